# What store times spare a scan from reading.
#
# A record is stored later than the one before, but for a clock that was set. Files of the log,
# and the units of queues that point into them, are passed over where they are older or younger
# than what is asked for by more than CLOCK_STEP_MS; the rest is looked at record by record.
#
# Source: ours

cdef enum:
    CLOCK_STEP_MS = 3600000      # by so much a clock may have been wrong


cdef int64_t early_bound(const ScanFilter *filter) noexcept nogil:
    """What was stored before this is not asked for, however the clock was set."""
    return filter.since - CLOCK_STEP_MS if filter.since > INT64_LEAST + CLOCK_STEP_MS \
        else INT64_LEAST


cdef int64_t late_bound(const ScanFilter *filter) noexcept nogil:
    """What was stored at or after this is not asked for, however the clock was set."""
    return filter.until + CLOCK_STEP_MS if filter.until < INT64_MOST - CLOCK_STEP_MS \
        else INT64_MOST


cdef int64_t time_at(Store *store, int64_t physical_offset, int64_t *millis) noexcept nogil:
    """The store time of the record there; E_... where none can be read."""
    cdef Found found
    cdef int64_t field
    cdef int64_t rc = log_record(store, physical_offset, 0, &found, &field)
    if rc <= 0:
        return E_NOT_FOUND
    millis[0] = found.record.store_timestamp
    slice_release(&found.slice)
    return 0


cdef int64_t file_time(Store *store, int64_t head, int64_t index, int64_t *start) noexcept nogil:
    """Store time of a file's first record; INT64_MOST behind the head, INT64_LEAST if unknown."""
    cdef int64_t time = INT64_LEAST
    start[0] = file_set_start_of(&store.log, index)
    if start[0] >= head:
        return INT64_MOST
    if start[0] < 0 or time_at(store, start[0], &time) < 0:
        return INT64_LEAST
    return time


cdef void narrow_log(Scan *scan, Cursor *cursor) noexcept nogil:
    """Leave out files at both ends of the log by the times of their first records.

    All files up to one must begin early enough, and all from another one on late enough; of each
    run the file next to what is asked for is read nevertheless, so that one record that a wrong
    clock stamped hides no others.
    """
    cdef Store *store = scan.store
    cdef int64_t early = early_bound(&scan.filter)
    cdef int64_t late = late_bound(&scan.filter)
    cdef int64_t count = file_set_count(&store.log)
    cdef int64_t i = 0
    cdef int64_t start = 0
    cdef int64_t kept = -1
    cdef int64_t time
    while i < count and early > INT64_LEAST:
        time = file_time(store, scan.head, i, &start)
        if time == INT64_LEAST or time > early:
            break
        if kept >= 0:
            cursor.at = min(max(cursor.at, kept), cursor.stop)
        kept = start
        i += 1
    i = count
    kept = -1
    while i > 0 and late < INT64_MOST:
        i -= 1
        time = file_time(store, scan.head, i, &start)
        if time < late:
            break
        if kept >= 0:
            cursor.stop = max(min(cursor.stop, kept), cursor.at)
        kept = start
