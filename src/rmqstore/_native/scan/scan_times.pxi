# Skipping by store time.
#
# Store times ascend along the log, unless a clock was set. Files of the log, and the units of
# queues that point into them, are skipped if they are older or younger than the range by more than
# CLOCK_STEP_MS; the rest is checked record by record.

cdef enum:
    CLOCK_STEP_MS = 3600000      # the greatest error of a clock that is allowed for


cdef int64_t early_bound(const ScanFilter *filter) noexcept nogil:
    """Nothing stored before this is in the range, allowing for clock errors."""
    return filter.since - CLOCK_STEP_MS if filter.since > INT64_LEAST + CLOCK_STEP_MS \
        else INT64_LEAST


cdef int64_t late_bound(const ScanFilter *filter) noexcept nogil:
    """Nothing stored at or after this is in the range, allowing for clock errors."""
    return filter.until + CLOCK_STEP_MS if filter.until < INT64_MOST - CLOCK_STEP_MS \
        else INT64_MOST


cdef int64_t time_at(Store *store, int64_t physical_offset, int64_t *millis) noexcept nogil:
    """The store time of the record there; E_... if it cannot be read."""
    cdef Found found
    cdef int64_t field
    cdef int64_t rc = log_record(store, physical_offset, 0, &found, &field)
    if rc <= 0:
        return E_NOT_FOUND
    millis[0] = found.record.store_timestamp
    slice_release(&found.slice)
    return 0


cdef int64_t file_time(Store *store, int64_t head, int64_t index, int64_t *start) noexcept nogil:
    """Store time of a file's first record; INT64_MOST after the head, INT64_LEAST if unknown."""
    cdef int64_t time = INT64_LEAST
    start[0] = file_set_start_of(&store.log, index)
    if start[0] >= head:
        return INT64_MOST
    if start[0] < 0 or time_at(store, start[0], &time) < 0:
        return INT64_LEAST
    return time


cdef void narrow_log(
    Store *store, const ScanFilter *filter, int64_t head, Cursor *cursor,
) noexcept nogil:
    """Skip files at both ends of the log by the times of their first records.

    Only a run of files that all begin too early, or all too late, is skipped; the file of each
    run next to the range is read nevertheless, so that one record that a wrong clock stamped hides
    no others.
    """
    cdef int64_t early = early_bound(filter)
    cdef int64_t late = late_bound(filter)
    cdef int64_t count = file_set_count(&store.log)
    cdef int64_t i = 0
    cdef int64_t start = 0
    cdef int64_t kept = -1
    cdef int64_t time
    while i < count and early > INT64_LEAST:
        time = file_time(store, head, i, &start)
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
        time = file_time(store, head, i, &start)
        if time < late:
            break
        if kept >= 0:
            cursor.stop = max(min(cursor.stop, kept), cursor.at)
        kept = start
