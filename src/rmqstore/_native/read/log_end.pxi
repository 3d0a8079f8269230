# End of the log: the wrote position, or, in read-only mode, the end found in the files.
#
# A reader caches the end.  It is valid while no record begins there: an owner writes a record's
# first bytes before anything else shows the record.
#
# Source: store/CommitLog.java getMaxOffset

cdef enum:
    SEARCH_SHARE = 20            # at most this fraction of the time goes into full searches
    TAIL_CHUNK = 8 << 10         # bytes read at a time beyond the known end: few if torn
    NEXT_BYTES = 8               # of the next record: its size and its magic


cdef int64_t log_end(Store *store) noexcept nogil:
    """End of the log; in read-only mode the first offset at which no good record begins.

    Searched from the greatest offset named by a good unit of any queue; repeated only after some
    time: an owner's recovery, and records after damage, are rare.
    """
    cdef int64_t end, began
    if store.writable:
        return atomic_get(&store.log.wrote)
    end = atomic_get(&store.view.log_end)
    if monotonic_ns() >= atomic_get(&store.view.search_at):
        began = monotonic_ns()
        end = max(end, log_first(store))
        log_refresh(store)
        end = max(end, newest_unit_end(store, LIST_IF_OLD))
        end = log_end_after(store, end)
        log_end_searched(store, began)
        return end
    if not log_begins_at(store, end):
        return end
    return log_end_after(store, end)


cdef void log_end_searched(Store *store, int64_t began) noexcept nogil:
    """Note a full search that began at ``began``; the next is due in proportion to its duration."""
    cdef int64_t ended = monotonic_ns()
    atomic_set(&store.view.search_at, ended + max(
        <int64_t>REFRESH_AFTER_NS, (ended - began) * SEARCH_SHARE))


cdef bint log_begins_at(Store *store, int64_t offset) noexcept nogil:
    """Whether there are, or may be, bytes of a record at the known end of the log."""
    cdef char bytes[NEXT_BYTES]
    cdef int64_t rc
    if offset % store.log.file_size == 0 and offset >= file_set_stop(&store.log):
        return False                         # its file is missing, or not listed yet
    rc = file_set_peek(&store.log, offset, NEXT_BYTES, bytes)
    return rc < NEXT_BYTES or get_i64(bytes) != 0


cdef int64_t log_end_after(Store *store, int64_t end) noexcept nogil:
    """First offset at or after a record's end at which no good record begins."""
    cdef Record record
    cdef const char *data
    cdef Cursor cursor
    cdef int64_t unfinished = -1             # position of the last record if it may be unfinished
    cursor_init(&cursor, store, end, INT64_MOST)
    cursor.chunk = TAIL_CHUNK
    while cursor_next(&cursor, &record, &data) > 0:
        unfinished = -1
        if record_may_be_unfinished(data, &record):
            unfinished = cursor.at - record.size
    cursor_close(&cursor)
    end = cursor.at
    # Bytes after a record, in the log or a queue, show that it is complete.
    if unfinished >= 0 and not log_begins_at(store, end) and store_is_owned(store):
        end = unfinished
    atomic_raise(&store.view.log_end, end)
    return end
