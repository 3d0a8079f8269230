# The engine behind a store: open, close, state. What Python sees of the C store.
#
# Source: store/DefaultMessageStore.java

cdef object ZERO = 0
cdef tuple DELAY_UNITS = (("s", 1000), ("m", 60000), ("h", 3600000), ("d", 86400000))
cdef ColumnInput KEYS_ARGUMENT = ColumnInput(
    "keys", "a str, keys separated by spaces, or an iterable of str without spaces", True)


cdef int take_settings(object config, Settings *settings) except -1:
    """What the core acts on, from a StoreConfig."""
    cdef int64_t ms = 1000000
    cdef int i = 0
    memset(settings, 0, sizeof(Settings))
    settings.log_file_size = config.mapped_file_size_commit_log
    settings.queue_file_size = config.mapped_file_size_consume_queue
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
    settings.sync_flush = config.flush_disk_type == "SYNC_FLUSH"
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


cdef class Engine:
    """A store as the core has it: the base of ``MessageStore``.

    Notes
    -----
    Source: ``store/DefaultMessageStore.java``.
    """

    cdef Store *store
    cdef str _path
    cdef readonly object _config
    cdef readonly str mode
    cdef int64_t max_body

    def __cinit__(self, *args, **kwargs):
        self.store = NULL

    def __dealloc__(self):
        cdef Store *store = self.store
        self.store = NULL
        # A child of a fork leaves its copy alone: the threads are the parent's.
        if store == NULL or store.fork_generation != fork_generation:
            return
        if atomic_get(&store.state) == STATE_CLOSED:
            store_drop(store)
        else:
            store_leave_behind(store)

    def _open(self, str path, str mode, object config, bint told, bint fill, bint full,
              double timeout, object read_topics, bint draft=False):
        """Open the directory; ``told``: sizes as the files tell them.

        ``read_topics()``: topics that were deleted, with the log offset as of then, and the names
        in topics.json, or None if that cannot be believed. It is called once the lock is held, so
        that what it reads is what the last owner wrote last.
        ``draft``: what is put goes into the log alone, for who copies it from there; nothing is
        forced to the disk.
        """
        cdef Settings settings
        cdef Failure failure
        cdef Store *store
        cdef bytes root = fsencode(path)
        cdef const char *root_text = root
        cdef int64_t fd, rc
        cdef bint writable = mode != "r"
        take_settings(config, &settings)
        settings.draft = draft
        memset(&failure, 0, sizeof(Failure))
        with nogil:
            fd = openat(AT_FDCWD, root_text, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        if fd < 0:
            raise errors.StoreNotFoundError(f"{path}: {strerror(errno)}")
        self._path = path
        self._config = config
        self.mode = mode
        self.max_body = config.max_body_size
        with nogil:
            store = store_new(<int>fd, &settings, writable)
        if store == NULL:
            raise MemoryError()
        store.told_sizes = told
        if told:
            store.log.file_size = 0
            store.indexes.slot_num = 0
        if not PLANTED("a15"):
            note_open_store(store)
        try:
            known = read_topics() if PLANTED("a12") else None
            if writable and not PLANTED("lock-after-load"):
                self.wait_for_lock(store, timeout, &failure)
            if known is None:
                known = read_topics()
            deleted, listed = known
            for name, offset in deleted.items():
                enter_deleted(store, name, offset)
            if listed is not None:
                enter_listed(store, listed)
        except BaseException:
            store_drop(store)
            raise
        with nogil:
            if writable:
                rc = store_open_writing(store, full, fill, &failure)
            else:
                rc = store_open_reading(store, &failure)
        if rc < 0:
            with nogil:
                store_drop(store)
            raise status_error(rc, &failure, path)
        self.store = store
        if writable and PLANTED("lock-after-load"):
            self.wait_for_lock(store, timeout, &failure)

    cdef int wait_for_lock(self, Store *store, double timeout, Failure *failure) except -1:
        """Take the lock; in slices, for the sake of signals."""
        cdef int64_t until = monotonic_ns() + <int64_t>(timeout * 1e9)
        cdef int64_t rc, slice
        while True:
            slice = max(0, min(until - monotonic_ns(), 200000000))
            memset(failure, 0, sizeof(Failure))
            with nogil:
                rc = store_lock(store, slice, failure)
            if rc != E_LOCKED or monotonic_ns() >= until:
                return <int>check(rc, failure, self._path)
            PyErr_CheckSignals()

    def close(self):
        """Flush what is there, close the store, and give the lock back.

        Messages taken from it stay good. Closing again does nothing.

        Raises
        ------
        StoreFailedError, OSError
            What was acknowledged could not be flushed; ``abort`` stays, and the next opening
            recovers.
        ForkedStoreError
            The store belongs to the parent process.

        Notes
        -----
        Source: ``store/DefaultMessageStore.java shutdown``.
        """
        cdef Store *store = self.store
        cdef Failure failure
        cdef int64_t rc
        if store == NULL:
            return
        if store.fork_generation != fork_generation:
            raise status_error(E_FORKED, NULL, self._path)
        if calls_inside(0) > 0:
            raise RuntimeError(f"{self._path}: closed from within a call of this thread")
        if store_enter(store) == 0:
            try:
                if store.writable and not store.settings.draft:
                    wait_for_dispatch(store, &rc)    # a signal leaves the store open
            finally:
                store_leave(store)
        stalled = atomic_get(&store.stalled)
        behind = stalled_error(store, self._path) if stalled else None
        with nogil:
            rc = store_close(store)
        if rc == E_CLOSED:
            return
        failure = store.failure
        if rc < 0 and rc == stalled:
            raise behind
        if rc < 0:
            raise status_error(rc, &failure, self._path)

    @property
    def path(self):
        """Directory of the store."""
        return self._path

    @property
    def config(self):
        """The configuration in force, sizes as they are."""
        return self._config

    @property
    def closed(self):
        """Whether :meth:`close` was called."""
        return self.store == NULL or atomic_get(&self.store.state) != STATE_OPEN

    cdef Store *entered(self) except NULL:
        """The store, for a call that reads; balanced by store_leave."""
        cdef Store *store = self.store
        cdef int64_t rc
        if store == NULL:
            raise errors.StoreClosedError(f"{self._path}: the store is closed")
        rc = store_enter(store)
        if rc < 0:
            raise status_error(rc, NULL, self._path)
        if not store.writable and not store.owned_elsewhere and not atomic_get(&store.derived):
            with nogil:
                rc = derive_if_needed(store)
            if rc < 0:
                store_leave(store)
                raise unreadable_error(store, NULL, rc, self._path)
        return store

    def _recovery(self):
        """What opening found, as a dict."""
        cdef Store *store = self.entered()
        cdef int64_t start = log_first(store)
        cdef int64_t end, i
        with nogil:
            end = log_end(store)
        ranges = []
        for i in range(store.recovery.damage_count):
            if not store.recovery.damages[i].mended:
                continue                     # only read: nothing was done about it
            ranges.append((
                "cut" if store.recovery.damages[i].tail else "filled",
                store.recovery.damages[i].start, store.recovery.damages[i].stop,
                store.recovery.damages[i].records,
                record_field_name(store.recovery.damages[i].field).decode("ascii"),
                store.recovery.damages[i].saved.decode("ascii")))
        found = dict(
            clean=bool(store.recovery.clean), records_checked=store.recovery.records_checked,
            bytes_cut=store.recovery.bytes_cut, ranges=ranges,
            units_written=store.recovery.units_written,
            full_dispatch=bool(store.recovery.full_dispatch),
            index_files_rebuilt=store.recovery.index_files_rebuilt,
            index_set_aside=store.recovery.index_set_aside,
            queues_rebuilt=store.recovery.queues_rebuilt,
            checked_from=store.recovery.checked_from,
            completed_file=bool(store.recovery.completed_file),
            seconds=store.recovery.seconds_ns / 1e9, log_start=start, log_end=end,
            skipped=atomic_get(&store.skipped))
        store_leave(store)
        return found

    def _verify(self):
        """Check the whole log, and every unit against its record; nothing is changed.

        ``(records, units, ranges, queues)``: how many were checked, what is no good record,
        and for queues that are not as they should be directory, queue offsets, and -errno or 0.
        """
        cdef Store *store = self.entered()
        cdef Queue *queue
        cdef Verified found
        cdef int64_t rc
        cdef list queues = []
        memset(&found, 0, sizeof(Verified))
        try:
            with nogil:
                rc = verify_log(store, &found)
            queue = first_queue(&store.table) if rc >= 0 else NULL
            while queue != NULL:
                with nogil:
                    rc = verify_queue(store, queue, &found)
                if rc == E_NO_MEMORY:
                    raise MemoryError()
                if rc < 0 or found.units.count:
                    queues.append((fsdecode(queue.files.directory),
                                   [found.units.items[i] for i in range(found.units.count)],
                                   min(rc, 0)))
                queue = next_queue(queue)
                PyErr_CheckSignals()
            if rc < 0 and not queues:
                raise unreadable_error(store, NULL, rc, self._path)
            ranges = [(found.ranges.items[2 * i], found.ranges.items[2 * i + 1])
                      for i in range(found.ranges.count // 2)]
        finally:
            free(found.ranges.items)
            free(found.units.items)
            store_leave(store)
        return found.records, found.checked_units, ranges, queues

    def _sizes(self):
        """File sizes in force: log, queue, slots, entries."""
        cdef Store *store = self.entered()
        sizes = (store.log.file_size, store.settings.queue_file_size, store.indexes.slot_num,
                 store.indexes.entry_num)
        store_leave(store)
        return sizes

    def stats(self):
        """Positions and counters of the four activities.

        Returns
        -------
        dict of str to int
            Byte positions in the log (``wrote_position``, ``flushed_position``,
            ``dispatched_position``, ``dispatch_behind_bytes``), syncs so far
            (``commit_log_syncs``, ``consume_queue_syncs``), ``topics``, ``queues``,
            ``index_files``, ``skipped_records``, whose topic or queue cannot be, and what
            scans have looked at (``scanned_records``, ``scanned_bytes``).

        Notes
        -----
        Source: ``store/StoreStatsService.java``.
        """
        cdef Store *store = self.entered()
        wrote = atomic_get(&store.log.wrote)
        dispatched = atomic_get(&store.dispatched)
        found = dict(
            wrote_position=wrote, flushed_position=atomic_get(&store.log.flushed),
            dispatched_position=dispatched, dispatch_behind_bytes=max(0, wrote - dispatched),
            commit_log_syncs=atomic_get(&store.syncs_log),
            consume_queue_syncs=atomic_get(&store.syncs_queue),
            topics=atomic_get(&store.table.topics), queues=atomic_get(&store.table.queues),
            index_files=index_set_count(&store.indexes),
            skipped_records=atomic_get(&store.skipped),
            scanned_records=atomic_get(&store.scanned_records),
            scanned_bytes=atomic_get(&store.scanned_bytes))
        store_leave(store)
        return found

    def _set_topic(self, str topic, int64_t write_queue_nums):
        """Enter a topic of topics.json; 0 takes the entry away."""
        cdef int64_t length = 0
        cdef const char *name = utf8_of("topic", topic, &length)
        cdef Topic *entry
        cdef Store *store
        check_topic(name, length, topic)
        store = self.entered()
        entry = topic_enter(&store.table, name, length)
        if entry != NULL:
            atomic_set(&entry.write_queue_nums, write_queue_nums)
        store_leave(store)
        if entry == NULL:
            raise MemoryError()

    def _make_topic(self, topic):
        """Make an unknown topic; what MessageStore does with topics.json."""
        self._set_topic(topic, self._config.default_topic_queue_nums)

    def _remake_topic(self, topic, physical_offset):
        """Make a topic whose deletion came before the message at a log offset."""
        self._make_topic(topic)

    def _check_writable(self):
        """Raise unless the store is open for writing here."""
        store_writable(self)
        store_leave(self.store)

    def _broke(self, int number, path, str what):
        """A sync of Python's failed with errno ``number``: the first one is final here too."""
        cdef Store *store = self.entered()
        cdef bytes name = fsencode(path)
        cdef bytes text = what.encode()
        store_broke(store, -number, name, text)
        store_leave(store)

    def _delete_queues(self, str topic):
        """Remove the queues of a topic and their files; the log offset as of then."""
        cdef int64_t length = 0
        cdef const char *name = utf8_of("topic", topic, &length)
        cdef Store *store
        cdef Topic *found
        cdef int64_t rc = 0
        store_writable(self)
        store = self.store
        found = topic_find(&store.table, name, length)
        if found != NULL:
            with nogil:
                rc = topic_delete(store, found)
        store_leave(store)
        if rc == E_FAILED:
            return check(rc, &store.failure, self._path)
        return check(rc, NULL, os_path.join(self._path, "consumequeue", topic))

    def _gone_topics(self):
        """Topics of which a recovery met records and brought back no queue."""
        cdef Store *store = self.entered()
        cdef Topic *topic = load_topic(&store.table.first)
        names = []
        while topic != NULL:
            if topic.gone:
                names.append(topic.name[:topic.length].decode("ascii"))
            topic = load_topic(&topic.next_made)
        store_leave(store)
        return names

    def _queue_files(self):
        """``{topic: [queue ids]}`` of the queues that exist."""
        cdef Store *store = self.entered()
        cdef Topic *topic
        cdef Queue *queue
        cdef int64_t rc = 0
        cdef bint there
        found = {}
        with nogil:
            rc = look_for_queues(store)
            if rc == 0:                      # which of them a recovery would make or remove
                rc = derive_if_needed(store)
        topic = load_topic(&store.table.first)
        while topic != NULL:
            ids = []
            queue = load_queue(&topic.first_queue)
            while queue != NULL:
                with nogil:
                    there = queue_is_used(store, queue) if store.writable else not queue.deleted
                if there:
                    ids.append(queue.id)
                queue = queue.next_made
            if ids or atomic_get(&topic.write_queue_nums) > 0:
                found[topic.name[:topic.length].decode("utf-8", "replace")] = sorted(ids)
            topic = load_topic(&topic.next_made)
        store_leave(store)
        check(rc, NULL, self._path)
        return found


cdef int wait_for_dispatch(Store *store, int64_t *status) except -1:
    """Let the dispatch reach the log's end; in slices, for the sake of signals."""
    cdef int64_t stalled_at_ns = 0
    status[0] = E_TIMEOUT
    while status[0] == E_TIMEOUT and not atomic_get(&store.stopping):
        with nogil:
            status[0] = close_dispatch(store, monotonic_ns() + WAIT_SLICE_NS, &stalled_at_ns)
        PyErr_CheckSignals()
    return 0


cdef bint queue_is_used(Store *store, Queue *queue) noexcept nogil:
    """Whether a writing store's queue has anything: one that was deleted has nothing."""
    cdef int64_t next_offset
    pthread_mutex_lock(&store.put_lock)
    next_offset = queue.next_offset
    pthread_mutex_unlock(&store.put_lock)
    return next_offset > 0 or file_set_count(&queue.files) > 0


cdef int64_t store_open_writing(
    Store *store, bint full, bint fill, Failure *failure,
) noexcept nogil:
    """Recover and start a locked store; on failure nothing runs."""
    cdef int64_t rc
    cdef bint made_abort
    cdef stat_t status
    made_abort = fstatat(store.root, "abort", &status, AT_SYMLINK_NOFOLLOW) != 0
    rc = recover_store(store, full, fill, failure)
    if rc == 0:
        rc = store_start(store, failure)
    elif made_abort and (rc < -4095 or not store.recovery.changed):
        abort_remove(store)                  # refused: what was mended until then stays good
    return rc


def _at_exit():
    """Stop the threads of stores that nobody closed; their `abort` stays."""
    cdef Store *store
    with nogil:
        pthread_mutex_lock(&open_stores_mutex)
        store = open_stores
        while store != NULL:
            if store.fork_generation == fork_generation and atomic_get(&store.state) == STATE_OPEN:
                store_stop(store)
            store = store.next_open
        pthread_mutex_unlock(&open_stores_mutex)
