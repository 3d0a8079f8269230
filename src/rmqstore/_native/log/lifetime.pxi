# A store's memory: allocated, emptied once no call is inside, freed with the last reference.
#
# Source: store/DefaultMessageStore.java DefaultMessageStore, destroy

cdef enum:
    WRITER_MAPPINGS = 4096       # of full durable files; Linux allows a process 65,530
    READER_MAPPINGS = 16384      # of files of queues
    QUEUE_DESCRIPTORS = 64       # of queue files beyond the room for views


cdef int64_t reader_files() noexcept nogil:
    """Descriptors a read-only store keeps for log and index each: a quarter of the rlimit."""
    cdef rlimit_t limit
    if getrlimit(RLIMIT_NOFILE, &limit) != 0:
        return 64
    return max(8, min(256, <int64_t>min(limit.rlim_cur, <uint64_t>1 << 20) // 4))


cdef Store *store_new(int root, const Settings *settings, bint writable) noexcept nogil:
    """Allocate a store, which takes over ``root``; NULL: no memory."""
    cdef Store *store = <Store *>calloc(1, sizeof(Store))
    if store == NULL:
        return NULL
    atomic_set(&store.references, 1)
    store.settings = settings[0]
    store.figures.opened_at = wall_millis()
    store.fork_generation = fork_generation
    store.root = root
    store.lock = -1
    store.root_lock = -1
    store.log_lock = -1
    store.dispatch.last_record = -1
    store.writable = writable
    lock_init(&store.writer.put_lock, LOCK_PUT)
    lock_init(&store.writer.prepare_lock, LOCK_PREPARE)
    lock_init(&store.flush.log_lock, LOCK_FLUSH_LOG)
    lock_init(&store.flush.queues_lock, LOCK_FLUSH_QUEUES)
    lock_init(&store.failure_lock, LOCK_FAILURE)
    lock_init(&store.view.refresh_lock, LOCK_REFRESH)
    lock_init(&store.view.derive_lock, LOCK_DERIVE)
    lock_init(&store.view.queued_lock, LOCK_QUEUED)
    lock_init(&store.dispatch.turn, LOCK_REPUT)
    lock_init(&store.dispatch.lock, LOCK_DISPATCH)
    lock_init(&store.keyless.lock, LOCK_KEYLESS)
    lock_init(&store.times.lock, LOCK_TIMES)
    store.times.leapt = -1
    gate_init(&store.flush.durable)
    gate_init(&store.dispatch.visible)
    wakeups_init(&store.flush.wakeups)
    wakeups_init(&store.dispatch.wakeups)
    worker_init(&store.dispatch.worker)
    worker_init(&store.flush.log_worker)
    worker_init(&store.flush.queue_worker)
    worker_init(&store.writer.worker)
    file_set_init(&store.log, root, "commitlog", settings.log_file_size, writable)
    store.log.keep_made = True
    store.log.keep_opened = writable
    store.log.window = min(LOG_WINDOW, max(settings.log_file_size, 1 << 20))
    index_set_init(&store.indexes, root, writable, settings.slot_num, settings.entry_num,
                   settings.index_enabled)
    store.indexes.open_max = reader_files()
    store.dispatch.pending = <Pending *>calloc(1, sizeof(Pending))
    if writable and settings.ext_enabled and settings.ext_bitmap_bytes > 0:
        store.dispatch.bitmap = <char *>malloc(<size_t>settings.ext_bitmap_bytes)
        if store.dispatch.bitmap != NULL:    # else at its first use
            store.dispatch.bitmap_room = settings.ext_bitmap_bytes
    store.deleted = <DeletedFiles *>calloc(1, sizeof(DeletedFiles))
    if store.deleted != NULL:
        atomic_set(&store.deleted.references, 1)
    if topic_table_init(
            &store.table, root, settings.queue_file_size, writable, &store.open_files) < 0 \
            or store.dispatch.pending == NULL or store.deleted == NULL \
            or open_files_init(&store.open_log_files, reader_files()) < 0 \
            or open_files_init(&store.open_queue_files,
                               min(reader_files(), <int64_t>QUEUE_DESCRIPTORS)) < 0 \
            or open_files_init(&store.open_files,
                               WRITER_MAPPINGS if writable else READER_MAPPINGS) < 0:
        store_drop(store)
        return NULL
    store.table.ext.file_size = settings.ext_file_size
    store.table.ext.written = writable and settings.ext_enabled
    if not writable:
        store.open_files.unmapped = &store.open_queue_files
    store.log.open_files = &store.open_files if writable else &store.open_log_files
    return store


cdef void store_empty(Store *store) noexcept nogil:
    """Release files, memory and lock; no call is inside any more."""
    if store.emptied:
        return
    store.emptied = True
    forget_open_store(store)
    mapped_file_release(store.writer.current)
    mapped_file_release(store.writer.next_file)
    store.writer.current = NULL
    store.writer.next_file = NULL
    store.open_files.limit = store.open_log_files.limit = 0  # or each set would be searched for
    store.open_queue_files.limit = 0
    if store.table.slots != NULL:
        topic_table_destroy(&store.table)
    file_set_destroy(&store.log)
    index_set_destroy(&store.indexes)
    open_files_destroy(&store.open_files)
    open_files_destroy(&store.open_log_files)
    open_files_destroy(&store.open_queue_files)
    free(store.dispatch.pending)
    free(store.dispatch.bitmap)
    release_locks(store)
    places_close(store.log.places)
    store.log.places = NULL
    if store.root >= 0:
        close(store.root)
        store.root = -1


cdef void store_drop(Store *store) noexcept nogil:
    """Drop a reference; the last one frees everything and releases the lock."""
    if atomic_add(&store.references, -1) != 0:
        return
    store_empty(store)
    if store.abandoned:
        atomic_add(&stores_leaving, -1)
    free(store.recovery.damages)
    free(store.recovery.left_out)
    deleted_files_drop(store.deleted)
    gate_destroy(&store.flush.durable)
    gate_destroy(&store.dispatch.visible)
    wakeups_destroy(&store.flush.wakeups)
    wakeups_destroy(&store.dispatch.wakeups)
    worker_destroy(&store.dispatch.worker)
    worker_destroy(&store.flush.log_worker)
    worker_destroy(&store.flush.queue_worker)
    worker_destroy(&store.writer.worker)
    lock_destroy(&store.writer.put_lock)
    lock_destroy(&store.writer.prepare_lock)
    lock_destroy(&store.flush.log_lock)
    lock_destroy(&store.flush.queues_lock)
    lock_destroy(&store.failure_lock)
    lock_destroy(&store.view.refresh_lock)
    lock_destroy(&store.view.derive_lock)
    lock_destroy(&store.view.queued_lock)
    lock_destroy(&store.dispatch.turn)
    lock_destroy(&store.dispatch.lock)
    lock_destroy(&store.keyless.lock)
    free(store.root_path)
    lock_destroy(&store.times.lock)
    times_free(&store.times)
    free(store)
