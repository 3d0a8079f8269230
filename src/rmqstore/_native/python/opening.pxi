# Opening: the lock, recovery's inputs from Python, and the threads.
#
# Source: store/DefaultMessageStore.java load, start

# Options of an opening: any combination of these bits.
cdef enum:
    OPEN_INFER_LOG = 1           # infer the size of the log's files from them; see file_sizes.py
    OPEN_INFER_QUEUES = 2
    OPEN_INFER_INDEX = 4
    OPEN_FILL = 8                # fill damage that good records follow
    OPEN_FULL = 16               # examine the whole log
    OPEN_LOG_ONLY = 32           # write only the log, without a sync
    OPEN_INFER_EXT = 64

cdef tuple DELAY_UNITS = (("s", 1000), ("m", 60000), ("h", 3600000), ("d", 86400000))


cdef int take_settings(object config, Settings *settings) except -1:
    """Read the part of a StoreConfig that the core uses."""
    cdef int64_t ms = 1000000
    cdef int i = 0
    memset(settings, 0, sizeof(Settings))
    settings.log_file_size = config.mapped_file_size_commit_log
    settings.queue_file_size = config.mapped_file_size_consume_queue
    settings.ext_file_size = config.mapped_file_size_consume_queue_ext
    settings.ext_enabled = config.enable_consume_queue_ext
    settings.ext_bitmap_bytes = config.bit_map_length_consume_queue_ext // 8
    settings.slot_num = config.max_hash_slot_num
    settings.entry_num = config.max_index_num
    settings.max_message_size = config.max_message_size
    settings.flush_interval_log = config.flush_interval_commit_log * ms
    settings.flush_interval_queue = config.flush_interval_consume_queue * ms
    settings.flush_thorough_log = config.flush_commit_log_thorough_interval * ms
    settings.flush_thorough_queue = config.flush_consume_queue_thorough_interval * ms
    settings.flush_least_pages_log = config.flush_commit_log_least_pages
    settings.flush_least_pages_queue = config.flush_consume_queue_least_pages
    settings.sync_flush_timeout = config.sync_flush_timeout * ms
    settings.default_queue_nums = config.default_topic_queue_nums
    settings.disk_warning_ratio = config.disk_space_warning_level_ratio or 0
    settings.max_light_queues = config.max_lmq_consume_queue_num
    settings.compress_above = -1 if config.compress_above is None else config.compress_above
    settings.multi_dispatch = config.enable_multi_dispatch
    settings.light_queues = config.enable_lmq
    settings.sync_flush = config.flush_disk_type == "SYNC_FLUSH"
    settings.flush_on_put = not settings.sync_flush and not config.flush_commit_log_timed
    settings.warm_pages = config.flush_least_pages_when_warm_maped_file
    settings.warm = config.warm_maped_file_enable
    settings.index_enabled = config.message_index_enable
    settings.check_crc = config.check_crc_on_recover
    settings.record_checksum = config.record_checksum
    settings.store_host_length = host_bytes("store_host", config.store_host, settings.store_host)
    for level in config.message_delay_level.split():
        if i < DELAY_LEVELS_MAX:
            for unit, millis in DELAY_UNITS:
                if level.endswith(unit):
                    settings.delay_millis[i] = int(level.removesuffix(unit)) * millis
            i += 1
    settings.delay_count = i
    return 0


cdef int wait_for_lock(
    OpenStore engine, Store *store, double timeout, Failure *failure,
) except -1:
    """Take the lock; in slices, to handle signals."""
    cdef int64_t until = monotonic_ns() + <int64_t>(timeout * 1e9)
    cdef int64_t rc, slice
    while True:
        slice = max(0, min(until - monotonic_ns(), WAIT_SLICE_NS))
        memset(failure, 0, sizeof(Failure))
        with nogil:
            rc = store_lock(store, slice, failure)
        if rc != E_LOCKED or monotonic_ns() >= until:
            return <int>check(rc, failure, engine._path)
        PyErr_CheckSignals()


cdef int64_t store_open_writing(Store *store, Failure *failure) noexcept nogil:
    """Recover and start a locked store; on failure no thread is left running."""
    cdef int64_t rc
    cdef stat_t status
    if store.recovery.made_lock:             # a refusal leaves an existing one unchanged
        rc = lock_write_text(store, failure)
        if rc < 0:
            lock_unmake(store)
            return rc
    store.recovery.made_abort = fstatat(store.root, "abort", &status, AT_SYMLINK_NOFOLLOW) != 0
    rc = recover_store(store, failure)
    if rc < 0:
        if rc < -4095 or not store.recovery.changed:
            opening_undo(store)              # refused: repairs made so far stay
        return rc
    rc = lock_write_text(store, failure)
    if rc == 0:
        rc = store_start(store, failure)
    if rc < 0 and store.recovery.idle and atomic_get(&store.log.wrote) == store.recovery.end:
        opening_undo(store)
    return rc


cdef int open_store(
    OpenStore engine, str path, str mode, object config, int how, double timeout,
    object read_topics, object places,
) except -1:
    """Open a directory; ``how``: OPEN_ bits, ``places``: the log's directories, see take_places.

    ``read_topics()`` returns the deleted topics, with the log's end at their deletion, and the
    names in topics.json, or None if that cannot be trusted.  It is called with the lock held, and
    so reads the last owner's final state.
    """
    cdef Settings settings
    cdef Failure failure
    cdef Store *store
    cdef bytes root = fsencode(path)
    cdef const char *root_text = root
    cdef int64_t fd, rc
    cdef bint writable = mode != "r"
    take_settings(config, &settings)
    settings.log_only = how & OPEN_LOG_ONLY != 0
    memset(&failure, 0, sizeof(Failure))
    with nogil:
        fd = openat(AT_FDCWD, root_text, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    if fd < 0:
        raise errors.StoreNotFoundError(f"{path}: {strerror(errno)}")
    engine._path = path
    engine._config = config
    engine.mode = mode
    engine.max_body = config.max_body_size
    engine.log_paths = tuple([name for name, _ in places or ()]) or (
        os_path.join(path, "commitlog"),)
    with nogil:
        store = store_new(<int>fd, &settings, writable)
    if store == NULL:
        raise MemoryError()
    store.recovery.full = writable and how & OPEN_FULL != 0
    store.recovery.fill = writable and how & OPEN_FILL != 0
    store.view.queue_size_inferred = how & OPEN_INFER_QUEUES != 0
    store.view.ext_size_inferred = how & OPEN_INFER_EXT != 0
    if how & OPEN_INFER_LOG:
        store.log.file_size = 0
    if how & OPEN_INFER_INDEX == 0:
        store.indexes.hint.slot_num = store.indexes.slot_num
        store.indexes.hint.entry_num = store.indexes.entry_num
        store.indexes.sizes_set = True
    if how & OPEN_INFER_INDEX or not writable:       # "r" reads by the files
        store.indexes.slot_num = 0
    note_open_store(store)
    try:
        store.root_path = strdup(root_text)
        if store.root_path == NULL:
            raise MemoryError()
        take_places(store, places)
        if writable:
            wait_for_lock(engine, store, timeout, &failure)
        deleted, listed = read_topics()
        for name, offset in deleted.items():
            enter_deleted(store, name, offset)
        if listed is not None:
            enter_listed(store, listed)
        read_bitmap_filters(store, path, config)
    except BaseException:
        with nogil:
            lock_unmake(store)
            store_drop(store)
        raise
    with nogil:
        if writable:
            rc = store_open_writing(store, &failure)
        else:
            rc = store_open_reading(store, &failure)
    if rc < 0:
        with nogil:
            store_drop(store)
        raise status_error(rc, &failure, path)
    engine.store = store
