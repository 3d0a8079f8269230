# Commit log as a part by itself: takes encoded records, finds positions of good records.

cdef enum:
    LOG_FILE_BYTES = 1 << 30
    POSITIONS_MAX = 1024         # records looked for at a time


cdef class CommitLog:
    """CommitLog(directory, *, file_size=1073741824, mode='r')\n--\n
    The files of a commit log.

    Parameters
    ----------
    directory : path-like
        A store's ``commitlog``; a torn tail is saved in ``rmqstore-quarantine`` beside it.
    file_size : int, optional
        Bytes, 1,024 or more. By default inferred from the files with mode ``"r"``.
    mode : str, optional
        ``"r"`` reads, ``"r+"`` writes an existing log, ``"a"`` creates it if there is none.

    Attributes
    ----------
    min_offset, max_offset : int
        First byte of the first file, and the byte after the last record.
    flushed_offset : int
        Byte up to which this object knows the log to be on the disk.

    Raises
    ------
    StoreNotFoundError
        There is no such directory, or (``"r+"``) no file in it.
    IncompatibleStoreError
        Writing: a file has another size, is foreign, or is missing in the middle.
    ValueError
        An argument is out of range.

    Notes
    -----
    Source: ``store/CommitLog.java``.
    """

    cdef object __weakref__
    cdef Store *store
    cdef str path
    cdef bint writable
    cdef atomic_i64 last_end                 # "r": an end without records after it

    def __cinit__(self):
        self.store = NULL
        atomic_set(&self.last_end, -1)

    def __init__(self, directory, *, file_size=LOG_FILE_BYTES, str mode="r"):
        arguments.integer_within("file_size", file_size, LOG_FILE_LEAST, FILE_MAX)
        self.open(directory, file_size, mode, file_size == LOG_FILE_BYTES)

    cdef int open(self, directory, int64_t file_size, str mode, bint infer_sizes) except -1:
        """Open the directory, and make it with ``"a"``."""
        cdef Settings settings
        cdef Failure failure
        cdef int64_t fd, rc
        cdef bytes name
        check_mode(mode)
        open_once(self.path)
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
        return 0

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
        cdef Store *store = self.store
        cdef bint is_open = store != NULL and atomic_get(&store.state) == STATE_OPEN
        if is_open and access == READ_WRITE and not self.writable:
            raise errors.ReadOnlyStoreError(f"{self.path}: opened with mode 'r'; 'r+' writes")
        if is_open and store.fork_generation != fork_generation:
            raise status_error(E_FORKED, NULL, self.path)
        with cython.critical_section(self):  # against close
            is_open = is_open and atomic_get(&store.state) == STATE_OPEN
            if is_open:
                atomic_add(&store.in_use, 1)
        if not is_open:
            raise errors.StoreClosedError(f"{self.path}: the commit log is closed")
        calls_inside(1)
        return store

    def append(self, records):
        """Append encoded records, setting the physical offset in each.

        Parameters
        ----------
        records : iterable of bytes-like
            As from :func:`rmqstore.encode_record`; each is checked.

        Returns
        -------
        list of int
            Their physical offsets.

        Raises
        ------
        ValueError, MessageIllegalError
            A record is invalid, or too large for a file; the records before it are in the log.
        ReadOnlyStoreError, StoreClosedError
            The log is not open for writing.

        Notes
        -----
        Source: ``store/CommitLog.java``.
        """
        if isinstance(records, (bytes, bytearray, memoryview)):
            raise arguments.wrong_type("records", "an iterable of records", records)
        return [self.append_one(arguments.buffer_of("records", record)) for record in records]

    cdef object append_one(self, data):
        """Append one encoded record; returns its physical offset."""
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

    def records(self, start=None, stop=None):
        """Iterate over the good records that begin in a range.

        Parameters
        ----------
        start, stop : int, optional
            Physical offsets, by default all that exist; ``start`` must be a record's.

        Returns
        -------
        iterator of (int, int)
            Physical offset and size, bytes.

        Notes
        -----
        Damaged bytes are skipped, up to the next record that names its own offset.
        Source: ``store/CommitLog.java checkMessageAndReturnSize``.
        """
        low, high, _ = self.bounds()
        at = low if start is None else max(low, PyNumber_Index(start))
        end = high if stop is None else min(high, PyNumber_Index(stop))
        while at < end:
            found = self.next(at, end)
            if not found:
                return
            yield from found
            offset, size = found[len(found) - 1]
            at = offset + size

    cdef list next(self, int64_t at, int64_t stop):
        """(offset, size) of the next good records from a record boundary on; none at the end."""
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

    cdef tuple bounds(self):
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

    @property
    def min_offset(self):
        """First byte of the first file."""
        return self.bounds()[0]

    @property
    def max_offset(self):
        """Byte after the last record."""
        return self.bounds()[1]

    @property
    def flushed_offset(self):
        """Byte up to which this object knows the log to be on the disk."""
        return self.bounds()[2]

    def flush(self):
        """Force the log to the disk."""
        cdef Store *store = self.opened(READ_WRITE)
        cdef int64_t rc
        with nogil:
            rc = flush_log_now(store)
            store_leave(store)
        check(rc, &store.failure, self.path)

    def close(self):
        """Flush if open for writing, and close; closing again does nothing."""
        cdef Store *store = self.store
        cdef int64_t rc = 0
        if store == NULL:
            return
        with cython.critical_section(self):
            closes = atomic_swap_if(&store.state, STATE_OPEN, STATE_CLOSING)
        if not closes:
            return
        with nogil:
            wait_for_calls(&store.in_use)
            if store.writable:
                rc = flush_log_now(store)
            atomic_set(&store.state, STATE_CLOSED)
            store_empty(store)
        check(rc, &store.failure, self.path)

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        self.close()


cdef int64_t log_end_beyond(Store *store, int64_t end) noexcept nogil:
    """End of a log without queues: damaged bytes do not end it."""
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
        atomic_raise(&store.writer.last_store_timestamp, record.store_timestamp)
        atomic_set_strict(&store.log.wrote, offset[0] + size)
    lock_give(&store.writer.put_lock)
    return rc
