# What store times spare a scan from reading.
#
# A record is stored later than the one before, but for a clock that was set back. Files of the
# log and units of a queue are passed over where they are older or younger than what is asked for
# by more than CLOCK_STEP_MS; what is left is looked at record by record.
#
# Source: store/ConsumeQueue.java getOffsetInQueueByTime; ours

cdef enum:
    CLOCK_STEP_MS = 3600000      # by so much a clock may have been set back
    LANE_WORTH = 4096            # units; fewer are as soon read


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


cdef int64_t file_by_time(Store *store, int64_t head, int64_t millis) noexcept nogil:
    """Start of the first file whose first record was stored at or after ``millis``.

    INT64_MOST if there is none, a failure where a first record cannot be read.
    """
    cdef int64_t low = 0
    cdef int64_t high = file_set_count(&store.log)
    cdef int64_t middle, start
    cdef int64_t found = INT64_MOST
    cdef int64_t time = 0
    while low < high:
        middle = (low + high) // 2
        start = file_set_start_of(&store.log, middle)
        if start < 0:
            return E_NOT_FOUND
        if start < head:                     # a file behind the head has no record yet
            if time_at(store, start, &time) < 0:
                return E_NOT_FOUND
            if time < millis:
                low = middle + 1
                continue
        found = start
        high = middle
    return found


cdef void narrow_log(Scan *scan, Cursor *cursor) noexcept nogil:
    """Leave out files of the log by the times of their first records."""
    cdef FileSet *log = &scan.store.log
    cdef int64_t early = early_bound(&scan.filter)
    cdef int64_t late = late_bound(&scan.filter)
    cdef int64_t start
    if early > INT64_LEAST:
        # The file before the first that begins too late to be the first.
        start = file_by_time(scan.store, scan.head, early)
        if start == INT64_MOST:
            start = scan.head
        if start > 0:
            start -= 1
            cursor.at = min(max(cursor.at, start - start % log.file_size), cursor.stop)
    if late < INT64_MOST:
        start = file_by_time(scan.store, scan.head, late)
        if start >= 0:
            cursor.stop = max(min(cursor.stop, start), cursor.at)


cdef int64_t unit_by_time(
    Store *store, Queue *queue, int64_t low, int64_t stop, int64_t millis,
) noexcept nogil:
    """First queue offset of [low, stop) stored at or after ``millis``, or ``stop``."""
    cdef int64_t high = stop
    cdef int64_t middle, probe
    cdef int64_t time = 0
    cdef Unit unit
    while low < high:
        middle = (low + high) // 2
        probe = queue_skip_blanks(queue, middle, stop, &unit)
        if probe < 0 or (probe < stop and time_at(store, unit.physical_offset, &time) < 0):
            return E_NOT_FOUND
        if probe == stop or time >= millis:
            high = middle
        else:
            low = probe + 1
    return low


cdef void narrow_lane(Scan *scan, Lane *lane) noexcept nogil:
    """Leave out units of a queue by the times of their records."""
    cdef int64_t early = early_bound(&scan.filter)
    cdef int64_t late = late_bound(&scan.filter)
    cdef int64_t at
    if lane.stop - lane.at < LANE_WORTH:
        return
    if early > INT64_LEAST:
        at = unit_by_time(scan.store, lane.queue, lane.at, lane.stop, early)
        lane.at = max(lane.at, at)
    if late < INT64_MOST:
        at = unit_by_time(scan.store, lane.queue, lane.at, lane.stop, late)
        if at >= 0:
            lane.stop = min(lane.stop, at)
