# A commit log on its own: encoded records in, positions of good records out.

cdef enum:
    POSITIONS_MAX = 1024         # records of one call of LogPart.next


@cython.final
cdef class LogPart:
    """The C side of :class:`rmqstore.CommitLog`."""

    cdef Store *store
    cdef str path
    cdef bint writable
    cdef atomic_i64 last_end                 # "r": an end without records behind it

    def __cinit__(self):
        self.store = NULL
        atomic_set(&self.last_end, -1)

    def __init__(self, directory, int64_t file_size, str mode, bint infer_sizes):
        cdef Settings settings
        cdef Failure failure
        cdef int64_t fd, rc
        cdef bytes name
        check_mode(mode)
        self.path = os_path.abspath(fsdecode(directory))
        self.writable = mode != "r"
        parent, base = os_path.split(self.path)
        if mode == "a":
            makedirs(self.path, exist_ok=True)
        name = fsencode(base)
        fd = openat(AT_FDCWD, fsencode(parent), O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        if fd < 0:
            raise errors.StoreNotFoundError(f"{parent}: {strerror(errno)}")
        memset(&settings, 0, sizeof(Settings))
        settings.log_file_size = file_size
        settings.check_crc = True
        self.store = store_new(<int>fd, &settings, self.writable)
        if self.store == NULL:
            raise MemoryError()
        if len(name) >= DIRECTORY_BYTES:
            raise arguments.wrong_value(
                "directory", f"a path whose last part takes at most {DIRECTORY_BYTES - 1} bytes",
                directory)
        copy_text(self.store.log.directory, DIRECTORY_BYTES, name)
        memset(&failure, 0, sizeof(Failure))
        with nogil:
            rc = self.open_log(infer_sizes, &failure)
        if rc == -ENOENT or rc == -ENOTDIR:
            raise errors.StoreNotFoundError(f"{self.path}: {strerror(-rc)}")
        check(rc, &failure, parent)
        if mode == "r+" and self.store.log.count == 0:
            raise errors.StoreNotFoundError(f"{self.path}: no commit log file")

    cdef int64_t open_log(self, bint infer_sizes, Failure *failure) noexcept nogil:
        """List the files and find the end; a writer zeros the bytes after it."""
        cdef Store *store = self.store
        cdef Window window
        cdef int64_t end
        cdef int64_t rc = file_set_list(&store.log, failure)
        if rc < 0:
            return rc
        rc = file_set_infer_size(&store.log, 1, LOG_FILE_LEAST)
        if infer_sizes and not self.writable and rc > 0:
            store.log.file_size = rc
        atomic_set(&store.state, STATE_OPEN)
        if not self.writable:
            return 0
        rc = file_set_validate(&store.log, LENGTHS_CHECKED, failure)
        if rc < 0:
            return rc
        if store.log.count:
            memset(&window, 0, sizeof(Window))
            window.start = file_set_start(&store.log)
            window.stop = file_set_stop(&store.log)
            window.durable = window.stop     # how far the log was synced is unknown
            end = log_examine(store, &window, failure)
            if end < 0:
                return end
            rc = damages_decide(store, failure)
            if rc >= 0:
                rc = file_set_validate(&store.log, LENGTHS_COMPLETED, failure)
            if rc >= 0:
                rc = log_repair(store, failure)
            if rc < 0:
                return rc
            atomic_set(&store.log.wrote, end)
            atomic_set(&store.log.flushed, end)
            if end < window.stop:
                rc = file_set_hold_open(&store.log, end, &store.writer.current)
                if rc < 0:
                    return rc
        file_set_opened(&store.log)
        store.log.window = min(LOG_WINDOW, store.log.file_size)
        return 0

    def __dealloc__(self):
        if self.store != NULL:
            store_drop(self.store)

    cdef Store *opened(self, int access) except NULL:
        if self.store == NULL or atomic_get(&self.store.state) != STATE_OPEN:
            raise errors.StoreClosedError(f"{self.path}: the commit log is closed")
        if access == READ_WRITE and not self.writable:
            raise errors.ReadOnlyStoreError(f"{self.path}: opened with mode 'r'; 'r+' writes")
        if self.store.fork_generation != fork_generation:
            raise status_error(E_FORKED, NULL, self.path)
        atomic_add(&self.store.in_use, 1)
        calls_inside(1)
        return self.store

    def append(self, data):
        """Append one encoded record, setting its physical offset; returns the offset."""
        cdef Store *store
        cdef Py_buffer view
        cdef Record record
        cdef int64_t rc, field
        cdef int64_t offset = 0
        if not PyBytes_CheckExact(data):     # mutable: copy first, and check the copy
            data = bytes(data)
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            rc = record_parse(<const char *>view.buf, view.len, view.len, &record, &field)
            if rc > 0:
                field = record_check(<const char *>view.buf, &record, -1, CHECK_CRC)
            if rc != view.len or field != FIELD_NONE:
                raise ValueError(f"no encoded record: {record_field_name(field).decode('ascii')}")
            if record.magic == MAGIC_MESSAGE_V2:
                raise errors.MessageIllegalError(
                    "a record of RocketMQ 5's second version: 4.9.3 would take it for damage",
                    status=types.PutStatus.MESSAGE_ILLEGAL)
            store = self.opened(READ_WRITE)
            with nogil:
                rc = append_encoded(store, <const char *>view.buf, &record, &offset)
                store_leave(store)
            if rc == E_TOO_LARGE:
                raise errors.MessageIllegalError(
                    f"the record takes {view.len} bytes; a file of {store.log.file_size} holds "
                    f"{store.log.file_size - RECORD_BLANK_BYTES}",
                    status=types.PutStatus.MESSAGE_ILLEGAL)
            check(rc, &store.failure if rc == E_FAILED else NULL, self.path)
        finally:
            PyBuffer_Release(&view)
        return offset

    def next(self, int64_t at, int64_t stop):
        """(offset, size) of good records from a record boundary on: not all, but none at the end.

        Many per call, as a cursor reads a piece of the log ahead.
        """
        cdef Store *store = self.opened(READ_ONLY)
        cdef Cursor cursor
        cdef Record record
        cdef const char *data
        cdef int64_t[POSITIONS_MAX] offsets
        cdef int64_t[POSITIONS_MAX] sizes
        cdef int64_t rc = 0
        cdef int64_t count = 0
        with nogil:
            if store.writable:
                stop = min(stop, atomic_get(&store.log.wrote))
            cursor_init(&cursor, store, at, stop)
            while count < POSITIONS_MAX:
                rc = cursor_next_good(&cursor, &record, &data)
                if rc <= 0:
                    break
                offsets[count] = record.physical_offset
                sizes[count] = rc
                count += 1
            cursor_close(&cursor)
            store_leave(store)
        if count == 0:               # else the next call meets the error
            check(rc, NULL, self.path)
        return [(offsets[n], sizes[n]) for n in range(count)]

    def bounds(self):
        """First offset, wrote position, and flushed position."""
        cdef Store *store = self.opened(READ_ONLY)
        cdef int64_t start, end
        cdef int64_t flushed
        with nogil:
            log_refresh(store)
            start = log_first(store)
            end = log_end(store)
            if not store.writable and end != atomic_get(&self.last_end):
                end = log_end_beyond(store, end)
                atomic_set(&self.last_end, end)
            flushed = atomic_get(&store.log.flushed) if store.writable else end
            store_leave(store)
        return start, end, flushed

    def flush(self):
        """Force the log to the disk."""
        cdef Store *store = self.opened(READ_WRITE)
        cdef int64_t rc
        with nogil:
            rc = flush_log_now(store)
            store_leave(store)
        check(rc, &store.failure, self.path)

    def close(self):
        """Flush if it was written, and close the files."""
        cdef Store *store = self.store
        cdef int64_t rc = 0
        if store == NULL or not atomic_swap_if(&store.state, STATE_OPEN, STATE_CLOSING):
            return
        with nogil:
            wait_for_calls(&store.in_use)
            if store.writable:
                rc = flush_log_now(store)
            atomic_set(&store.state, STATE_CLOSED)
            store_empty(store)
        check(rc, &store.failure, self.path)

    @property
    def closed(self):
        return self.store == NULL or atomic_get(&self.store.state) != STATE_OPEN


cdef int64_t log_end_beyond(Store *store, int64_t end) noexcept nogil:
    """End of a log known only by its files: damaged bytes do not end it.

    In a store the queues show the records behind them.
    """
    cdef Cursor cursor
    cdef int64_t found = 1
    while found > 0 and log_used(store, end) > end:
        cursor_init(&cursor, store, end, file_set_stop(&store.log))
        found = cursor_resync(&cursor)
        if found > 0:
            end = log_end_after(store, cursor.at)
        cursor_close(&cursor)
    return end


cdef int64_t append_encoded(
    Store *store, const char *data, const Record *record, int64_t *offset,
) noexcept nogil:
    """Copy a checked record into the log with its new physical offset."""
    cdef char *at = NULL
    cdef int64_t rc
    cdef int64_t size = record.size
    lock_take(&store.writer.put_lock)
    rc = log_make_room(store, size, &at)
    if rc == 0 and atomic_get(&store.failed) != 0:
        rc = E_FAILED
    if rc == 0:
        offset[0] = atomic_peek(&store.log.wrote)
        memcpy(at, data, <size_t>size)
        put_i64(at + RECORD_PHYSICAL_OFFSET, offset[0])
        if record_checksum_at(at, record) >= 0:
            record_write_checksum(at, size)
        rc = log_written(store, store.writer.current, offset[0], size)
    if rc == 0:
        store.writer.last_store_timestamp = max(
            store.writer.last_store_timestamp, record.store_timestamp)
        atomic_set_strict(&store.log.wrote, offset[0] + size)
    lock_give(&store.writer.put_lock)
    return rc
