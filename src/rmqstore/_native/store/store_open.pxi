# Lifetime of a store: created, opened, its threads started, closed or abandoned.
#
# Source: store/DefaultMessageStore.java start, shutdown

cdef int64_t store_start(Store *store, Failure *failure) noexcept nogil:
    """Open the log's last file, and start the four activities."""
    cdef int64_t rc = 0
    cdef int64_t wrote = atomic_get(&store.log.wrote)
    store.log.window = min(LOG_WINDOW, store.log.file_size)
    if store.log.count == 0:                 # from now on readers find a store
        rc = log_next_file(store, 0, &store.writer.current)
        if rc == 0:
            rc = file_set_sync_name(&store.log, store.writer.current)
        if rc < 0:
            return fail(failure, rc, set_directory(&store.log, 0),
                        "the first file cannot be made", 0, 0, 0)
    elif wrote < file_set_stop(&store.log):  # recovery has reserved its blocks
        rc = file_set_hold_open(&store.log, wrote, &store.writer.current)
        if rc < 0:
            return fail_in_file(failure, rc, &store.log, wrote, "cannot be used")
    file_set_opened(&store.log)
    if atomic_get(&store.dispatch.logics_timestamp) == 0:
        atomic_set(
            &store.dispatch.logics_timestamp, atomic_get(&store.writer.last_store_timestamp))
    store.flush.thorough_log_at = monotonic_ns()
    store.flush.thorough_queue_at = store.flush.thorough_log_at
    atomic_set(&store.state, STATE_OPEN)
    rc = 0
    if not store.settings.log_only:
        rc = start_worker(store, &store.dispatch.worker, "rmq-reput", reput_run)
        if rc == 0:
            rc = start_worker(store, &store.flush.log_worker, "rmq-flush-log", flush_log_run)
        if rc == 0:
            rc = start_worker(store, &store.flush.queue_worker, "rmq-flush-cq", flush_queue_run)
    if rc == 0:
        rc = start_worker(store, &store.writer.worker, "rmq-prepare", prepare_run)
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
    join_worker(&store.dispatch.worker)
    join_worker(&store.flush.log_worker)
    join_worker(&store.flush.queue_worker)
    join_worker(&store.writer.worker)


cdef void store_signal_stop(Store *store) noexcept nogil:
    atomic_set_strict(&store.stopping, 1)
    worker_call(&store.dispatch.worker)
    worker_call(&store.flush.log_worker)
    worker_call(&store.flush.queue_worker)
    worker_call(&store.writer.worker)


cdef void join_worker(Worker *worker) noexcept nogil:
    if worker.started:
        pthread_join(worker.thread, NULL)
        worker.started = False


cdef void store_abandon(Store *store) noexcept nogil:
    """Abandon an unclosed store: its threads end by themselves, `abort` stays."""
    store.abandoned = True
    atomic_add(&stores_leaving, 1)
    atomic_set(&store.state, STATE_CLOSED)
    if store.dispatch.worker.started:
        pthread_detach(store.dispatch.worker.thread)
    if store.flush.log_worker.started:
        pthread_detach(store.flush.log_worker.thread)
    if store.flush.queue_worker.started:
        pthread_detach(store.flush.queue_worker.thread)
    if store.writer.worker.started:
        pthread_detach(store.writer.worker.thread)
    store_signal_stop(store)
    store_drop(store)


cdef int64_t store_close(Store *store) noexcept nogil:
    """Close for good: 0, or the status that kept acknowledged messages from the disk.

    Order: log, queues, index, checkpoint, `abort`, each durable before the next.
    """
    cdef int64_t rc = 0
    cdef int64_t stalled_at_ns = 0
    if not atomic_swap_if(&store.state, STATE_OPEN, STATE_CLOSING):
        return E_CLOSED
    wait_for_calls(&store.in_use)
    if store.settings.log_only:
        store_stop(store)
    elif store.writable:
        if atomic_get(&store.failed) == 0:
            check_names(store)
        if atomic_get(&store.failed) == 0:
            rc = flush_log_now(store)
        if rc == 0 and not atomic_get(&store.stopping):
            rc = close_dispatch(store, INT64_MAX, &stalled_at_ns)
        store_stop(store)
        if rc == 0 and atomic_get(&store.dispatch.dispatched) < atomic_get(&store.log.wrote):
            atomic_set(&store.stopping, 0)   # at interpreter exit the threads have already ended
            rc = reput_until(store, atomic_get(&store.log.wrote))
        if rc == 0:
            rc = atomic_get(&store.failed)
        if rc == 0:
            rc = flush_queues_now(store, FLUSH_ALL)
        if rc == 0:
            rc = checkpoint_write(
                store, atomic_get(&store.dispatch.dispatched), store.dispatch.last_record,
                atomic_get(&store.writer.last_store_timestamp), MARK_CLOSED)
        if rc != 0 and atomic_get(&store.failed) != 0:
            rc = E_FAILED
        KILL_POINT("close-before-abort")
        if rc == 0:
            rc = abort_remove(store)
    atomic_set_strict(&store.state, STATE_CLOSED)
    wakeups_ring(&store.flush.wakeups, INT64_MAX)
    wakeups_ring(&store.dispatch.wakeups, INT64_MAX)
    store_empty(store)
    return rc


cdef void store_give_up(Store *store) noexcept nogil:
    """Close a store whose start failed, without a flush or a mark of a clean exit.

    An unchanged store that was closed cleanly before stays so.
    """
    if not atomic_swap_if(&store.state, STATE_OPEN, STATE_CLOSING):
        return
    wait_for_calls(&store.in_use)
    if store.writable:
        store_stop(store)
        if store.recovery.idle and atomic_get(&store.log.wrote) == store.recovery.end:
            opening_undo(store)
    atomic_set_strict(&store.state, STATE_CLOSED)
    wakeups_ring(&store.flush.wakeups, INT64_MAX)
    wakeups_ring(&store.dispatch.wakeups, INT64_MAX)
    store_empty(store)


cdef int64_t close_dispatch(
    Store *store, int64_t until_ns, int64_t *stalled_at_ns,
) noexcept nogil:
    """Let dispatch reach the end of the log: 0, E_TIMEOUT after ``until_ns``, or why it stalls.

    On a full disk, or, with SYNC_FLUSH, for lack of a descriptor to flush with, as dispatch then
    stops at the flushed position.  REQUIRES: ``stalled_at_ns`` is 0 before the first call.
    """
    cdef int64_t rc = E_TIMEOUT
    cdef int64_t kept
    while rc == E_TIMEOUT and monotonic_ns() < until_ns:
        rc = wait_visible(store, atomic_get(&store.log.wrote), monotonic_ns() + CLOSE_SLICE_NS)
        kept = atomic_get(&store.dispatch.stalled)
        if kept == 0 and store.settings.sync_flush:
            kept = atomic_get(&store.flush.unflushed)
        if kept == 0:
            stalled_at_ns[0] = 0
        elif stalled_at_ns[0] == 0:
            stalled_at_ns[0] = monotonic_ns()
        elif monotonic_ns() - stalled_at_ns[0] > CLOSE_STALLED_NS:
            return kept
    return rc


cdef int64_t reading_check_permitted(Store *store, Failure *failure) noexcept nogil:
    """Refuse a log with a file unreadable for this user: it would look like the log's end."""
    cdef char path[FAILURE_PATH_BYTES]
    cdef stat_t status
    cdef int64_t i, fd
    for i in range(store.log.count):
        set_file_name(path, &store.log, store.log.slots[i].place, store.log.slots[i].start)
        fd = set_open_file(
            &store.log, store.log.slots[i].place, store.log.slots[i].start, O_RDONLY, &status)
        if fd == -EACCES:
            return fail(failure, fd, path, "cannot be opened", -1, 0, 0)
        if fd >= 0:
            close(<int>fd)
    return 0


cdef int64_t store_open_reading(Store *store, Failure *failure) noexcept nogil:
    """"r": list log, queues and index; locks and changes nothing."""
    cdef int64_t rc
    rc = file_set_list(&store.log, failure)
    if rc < 0:
        return rc
    if rc == 0:
        return fail(failure, E_NOT_FOUND, set_directory(&store.log, 0),
                    "there is no log file", -1, 0, 0)
    store.log.file_size = store.settings.log_file_size
    reading_take_log_size(store)
    rc = reading_check_permitted(store, failure)
    if rc < 0:
        return rc
    rc = load_queues(&store.table, failure)
    if rc < 0:
        return rc
    reading_take_queue_size(store)
    if not store.view.ext_size_inferred:     # each set infers its own; this is only for reports
        rc = infer_ext_file_size(&store.table, NULL)
        if rc > 0:
            store.table.ext.file_size = rc
    store.view.owned_elsewhere = store_is_owned(store)
    reading_list_index(store)
    atomic_set(&store.state, STATE_OPEN)
    return 0


cdef void reading_list_index(Store *store) noexcept nogil:
    """List the index; trust it if an owner is alive or closed it cleanly."""
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
    store.indexes.vouched = store.view.owned_elsewhere or (
        fd == -ENOENT and index_is_vouched(&store.indexes, &checkpoint.mark))
