# A store's life: made, opened, its threads started, closed or left.
#
# Source: store/DefaultMessageStore.java start, shutdown

cdef enum:
    WRITER_MAPPINGS = 4096       # of full files that are on the disk; a process may have 65,530


cdef Store *store_new(int root, const Settings *settings, bint writable) noexcept nogil:
    """NULL without memory; ``root`` is taken over."""
    cdef Store *store = <Store *>calloc(1, sizeof(Store))
    if store == NULL:
        return NULL
    atomic_set(&store.references, 1)
    store.settings = settings[0]
    store.fork_generation = fork_generation
    store.root = root
    store.lock = -1
    store.last_record = -1
    store.writable = writable
    pthread_mutex_init(&store.put_lock, NULL)
    pthread_mutex_init(&store.prepare_mutex, NULL)
    pthread_mutex_init(&store.flush_mutex, NULL)
    pthread_mutex_init(&store.queue_flush_mutex, NULL)
    pthread_mutex_init(&store.failure_mutex, NULL)
    pthread_mutex_init(&store.look_mutex, NULL)
    pthread_mutex_init(&store.derive_mutex, NULL)
    pthread_mutex_init(&store.queued_mutex, NULL)
    pthread_mutex_init(&store.dispatch_mutex, NULL)
    pthread_mutex_init(&store.keyless.mutex, NULL)
    gate_init(&store.durable)
    gate_init(&store.visible)
    wakeups_init(&store.wakeups)
    worker_init(&store.reput)
    worker_init(&store.flush_log)
    worker_init(&store.flush_queue)
    worker_init(&store.prepare)
    file_set_init(&store.log, root, "commitlog", settings.log_file_size, writable)
    store.log.keep_made = True
    store.log.keep_opened = writable
    store.log.window = min(LOG_WINDOW, max(settings.log_file_size, 1 << 20))
    index_set_init(&store.indexes, root, writable, settings.slot_num, settings.entry_num,
                   settings.index_enabled)
    store.indexes.open_most = reader_files()
    store.pending = <Pending *>calloc(1, sizeof(Pending))
    if topic_table_init(&store.table) < 0 or store.pending == NULL \
            or open_files_init(&store.open_files,
                               WRITER_MAPPINGS if writable else reader_files()) < 0:
        store_drop(store)
        return NULL
    if not PLANTED("a14"):
        store.log.open_files = &store.open_files
    return store


cdef int64_t reader_files() noexcept nogil:
    """Descriptors that a store which is only read keeps open of log and queues, and of the index.

    A third of what the process may, each.
    """
    cdef rlimit_t limit
    if getrlimit(RLIMIT_NOFILE, &limit) != 0:
        return 64
    return max(8, min(256, <int64_t>min(limit.rlim_cur, <uint64_t>1 << 20) // 3))


cdef void store_empty(Store *store) noexcept nogil:
    """Let go of files, memory and lock; nobody is inside any more."""
    if store.emptied:
        return
    store.emptied = True
    forget_open_store(store)
    mapped_file_release(store.current)
    mapped_file_release(store.next_file)
    store.current = NULL
    store.next_file = NULL
    if store.table.slots != NULL:
        topic_table_destroy(&store.table)
    file_set_destroy(&store.log)
    index_set_destroy(&store.indexes)
    open_files_destroy(&store.open_files)
    free(store.pending)
    if store.lock >= 0:
        sys_unlock_first_byte(store.lock)
        close(store.lock)
        store.lock = -1
    if store.root >= 0:
        close(store.root)
        store.root = -1


cdef void store_drop(Store *store) noexcept nogil:
    """Drop a reference; the last one frees everything and gives the lock back."""
    if atomic_add(&store.references, -1) != 0:
        return
    store_empty(store)
    if store.left_behind:
        atomic_add(&stores_leaving, -1)
    free(store.recovery.damages)
    gate_destroy(&store.durable)
    gate_destroy(&store.visible)
    wakeups_destroy(&store.wakeups)
    worker_destroy(&store.reput)
    worker_destroy(&store.flush_log)
    worker_destroy(&store.flush_queue)
    worker_destroy(&store.prepare)
    pthread_mutex_destroy(&store.put_lock)
    pthread_mutex_destroy(&store.prepare_mutex)
    pthread_mutex_destroy(&store.flush_mutex)
    pthread_mutex_destroy(&store.queue_flush_mutex)
    pthread_mutex_destroy(&store.failure_mutex)
    pthread_mutex_destroy(&store.look_mutex)
    pthread_mutex_destroy(&store.derive_mutex)
    pthread_mutex_destroy(&store.queued_mutex)
    pthread_mutex_destroy(&store.dispatch_mutex)
    pthread_mutex_destroy(&store.keyless.mutex)
    free(store)


cdef enum:
    LEAVING_NS = 2000000000      # for the threads of a store that was dropped in this process


cdef int64_t store_lock(Store *store, int64_t timeout_ns, Failure *failure) noexcept nogil:
    """Take <root>/lock as Java does; who holds it is told in ``failure.actual``."""
    cdef stat_t status
    cdef int64_t until = monotonic_ns() + timeout_ns
    cdef int64_t rc
    rc = open_lock(store)
    if rc < 0:
        return fail(failure, rc, "lock", "cannot be opened", -1, 0, 0)
    while True:
        rc = sys_lock_first_byte(store.lock)
        if rc == 0:
            break
        if rc != -EAGAIN and rc != -EACCES:
            return fail(failure, rc, "lock", "cannot be locked", -1, 0, 0)
        if monotonic_ns() >= until and not (
                atomic_get(&stores_leaving) > 0 and monotonic_ns() < until + LEAVING_NS):
            return fail(failure, E_LOCKED, "lock", "the store is open elsewhere", -1,
                        sys_lock_owner(store.lock), 0)
        usleep(5000)
    if fstat(store.lock, &status) != 0:
        return fail(failure, -errno, "lock", "cannot be read", -1, 0, 0)
    if status.st_size < 4:
        rc = sys_write(store.lock, b"lock", 4, 0)
        if rc >= 0:
            rc = sys_sync(store.lock)
        if rc < 0:
            return fail(failure, rc, "lock", "cannot be written", -1, 0, 0)
    return 0


cdef int64_t open_lock(Store *store) noexcept nogil:
    """Open <root>/lock, which is not locked yet.

    No fork comes between: a child has to know of the descriptor, as it would keep the lock.
    """
    cdef stat_t status
    cdef int64_t fd = 0
    pthread_mutex_lock(&open_stores_mutex)
    if store.lock < 0:
        fd = sys_open_file(store.root, "lock", O_RDWR | O_CREAT, &status)
        if fd >= 0:
            store.lock = <int>fd
    pthread_mutex_unlock(&open_stores_mutex)
    return min(fd, 0)


cdef int64_t store_start(Store *store, Failure *failure) noexcept nogil:
    """Take the log's last file, and start the four activities."""
    cdef int64_t rc = 0
    cdef int64_t wrote = atomic_get(&store.log.wrote)
    store.log.window = min(LOG_WINDOW, store.log.file_size)
    if store.log.count == 0:                 # so that a reader finds a store from now on
        rc = log_next_file(store, 0, &store.current)
        if rc == 0:
            rc = file_set_sync_name(&store.log, store.current)
        if rc < 0:
            return fail(failure, rc, "commitlog", "the first file cannot be made", 0, 0, 0)
    elif wrote < file_set_stop(&store.log):  # whose blocks recovery has reserved
        rc = file_set_hold_open(&store.log, wrote, &store.current)
        if rc < 0:
            return fail(failure, rc, "commitlog", "the last file cannot be used", wrote, 0, 0)
    file_set_opened(&store.log)
    if atomic_get(&store.logics_timestamp) == 0:
        atomic_set(&store.logics_timestamp, store.last_store_timestamp)
    store.thorough_log_at = monotonic_ns()
    store.thorough_queue_at = store.thorough_log_at
    atomic_set(&store.state, STATE_OPEN)
    if PLANTED("a15"):
        note_open_store(store)
    rc = 0
    if not store.settings.draft:
        rc = start_worker(store, &store.reput, "rmq-reput", reput_run)
        if rc == 0:
            rc = start_worker(store, &store.flush_log, "rmq-flush-log", flush_log_run)
        if rc == 0:
            rc = start_worker(store, &store.flush_queue, "rmq-flush-cq", flush_queue_run)
    if rc == 0:
        rc = start_worker(store, &store.prepare, "rmq-prepare", prepare_run)
    if rc < 0:
        fail(failure, rc, "", "a thread cannot be started", -1, 0, 0)
        store_stop(store)
    return rc


cdef int64_t start_worker(
    Store *store, Worker *worker, const char *name, void *(*run)(void *) noexcept nogil,
) noexcept nogil:
    cdef int rc
    atomic_add(&store.references, 1)
    rc = thread_start(&worker.thread, name, run, store)
    if rc != 0:
        atomic_add(&store.references, -1)
        return -rc
    worker.started = True
    return 0


cdef void store_stop(Store *store) noexcept nogil:
    """Stop the threads and wait for them."""
    store_signal_stop(store)
    join_worker(&store.reput)
    join_worker(&store.flush_log)
    join_worker(&store.flush_queue)
    join_worker(&store.prepare)


cdef void store_signal_stop(Store *store) noexcept nogil:
    atomic_set_strict(&store.stopping, 1)
    worker_call(&store.reput)
    worker_call(&store.flush_log)
    worker_call(&store.flush_queue)
    worker_call(&store.prepare)


cdef void join_worker(Worker *worker) noexcept nogil:
    if worker.started:
        pthread_join(worker.thread, NULL)
        worker.started = False


cdef void store_leave_behind(Store *store) noexcept nogil:
    """For a store nobody closed: its threads end by themselves, `abort` stays."""
    store.left_behind = True
    atomic_add(&stores_leaving, 1)
    atomic_set(&store.state, STATE_CLOSED)
    if store.reput.started:
        pthread_detach(store.reput.thread)
    if store.flush_log.started:
        pthread_detach(store.flush_log.thread)
    if store.flush_queue.started:
        pthread_detach(store.flush_queue.thread)
    if store.prepare.started:
        pthread_detach(store.prepare.thread)
    store_signal_stop(store)
    store_drop(store)


cdef int64_t store_close(Store *store) noexcept nogil:
    """Close for good: 0, or what kept acknowledged messages from the disk.

    Log, queues, index, checkpoint, then `abort`: each is on the disk before the next.
    """
    cdef int64_t rc = 0
    cdef int64_t stalled_at_ns = 0
    if not atomic_swap_if(&store.state, STATE_OPEN, STATE_CLOSING):
        return E_CLOSED
    while atomic_get(&store.in_use) > 0:     # calls that are inside end first
        usleep(200)
    if store.settings.draft:
        store_stop(store)
    elif store.writable:
        if atomic_get(&store.failed) == 0:
            rc = flush_log_now(store)
        if rc == 0 and not atomic_get(&store.stopping):
            rc = close_dispatch(store, INT64_MAX, &stalled_at_ns)
        store_stop(store)
        if rc == 0 and atomic_get(&store.dispatched) < atomic_get(&store.log.wrote):
            atomic_set(&store.stopping, 0)   # the threads had ended before: at interpreter exit
            rc = dispatch_until(store, atomic_get(&store.log.wrote))
        if rc == 0:
            rc = atomic_get(&store.failed)
        if rc == 0:
            rc = flush_queues_now(store, True)
        if rc == 0:
            rc = checkpoint_write(store, atomic_get(&store.dispatched), store.last_record,
                                  store.last_store_timestamp, True)
        if rc != 0 and atomic_get(&store.failed) != 0:
            rc = E_FAILED
        KILL_POINT("close-before-abort")
        if rc == 0:
            rc = abort_remove(store)
    atomic_set_strict(&store.state, STATE_CLOSED)
    wakeups_ring(&store.wakeups, INT64_MAX)
    store_empty(store)
    return rc


cdef int64_t close_dispatch(
    Store *store, int64_t until_ns, int64_t *stalled_at_ns,
) noexcept nogil:
    """Let the dispatch reach the end of the log; it may be kept from it by a full disk.

    With SYNC_FLUSH it goes no further than the log is forced to the disk, which may want a
    descriptor that is not to be had.  E_TIMEOUT if it is not there by ``until_ns``.
    ``stalled_at_ns`` is 0 before the first call.
    """
    cdef int64_t rc = E_TIMEOUT
    cdef int64_t kept
    while rc == E_TIMEOUT and monotonic_ns() < until_ns:
        rc = wait_visible(store, atomic_get(&store.log.wrote), monotonic_ns() + 100000000)
        kept = atomic_get(&store.stalled)
        if kept == 0 and store.settings.sync_flush:
            kept = atomic_get(&store.unflushed)
        if kept == 0:
            stalled_at_ns[0] = 0
        elif stalled_at_ns[0] == 0:
            stalled_at_ns[0] = monotonic_ns()
        elif monotonic_ns() - stalled_at_ns[0] > 1000000000:
            return kept
    return rc


cdef int64_t store_open_reading(Store *store, Failure *failure) noexcept nogil:
    """For "r": list log, queues and index; nothing is locked, made or changed."""
    cdef stat_t status
    cdef int64_t fd, rc
    rc = file_set_list(&store.log, failure)
    if rc < 0:
        return rc
    if rc == 0:
        return fail(failure, E_NOT_FOUND, "commitlog", "there is no log file", -1, 0, 0)
    store.log.file_size = store.settings.log_file_size
    reading_take_log_size(store)
    rc = load_queues(store, failure)
    if rc < 0:
        return rc
    reading_take_queue_size(store)
    fd = sys_open_file(store.root, "lock", O_RDONLY, &status)
    if fd >= 0:
        store.owned_elsewhere = sys_lock_owner(<int>fd) > 0
        close(<int>fd)
    reading_list_index(store)
    atomic_set(&store.state, STATE_OPEN)
    return 0


cdef void reading_list_index(Store *store) noexcept nogil:
    """List the index; whether it can be believed is told by an owner, or how it was left."""
    cdef Checkpoint checkpoint
    cdef stat_t status
    cdef int64_t fd
    if checkpoint_read(store.root, &checkpoint) < 0:
        memset(&checkpoint, 0, sizeof(Checkpoint))
    index_take_hint(&store.indexes, &checkpoint)
    index_set_list(&store.indexes, NULL)
    fd = sys_open_file(store.root, "abort", O_RDONLY, &status)
    if fd >= 0:
        close(<int>fd)
    store.indexes.vouched = store.owned_elsewhere or (
        fd == -ENOENT and index_is_vouched(&store.indexes, &checkpoint.mark))
