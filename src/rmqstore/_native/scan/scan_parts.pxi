# Parts of a pass, read side by side: the range that is cut, and the begin of a part.
#
# The whole pass fixes head, path and range once.  RocketMQ has no such scan.

cdef enum:
    SIZES_SAMPLED = 16           # units that estimate the sizes of a queue


# Range of a pass, to be cut.
cdef struct Extent:
    int64_t start                # log offsets, or queue offsets of the only queue
    int64_t stop
    int64_t bytes                # of the records, estimated along a queue


cdef bint scan_extent(const Scan *whole, Extent *extent) noexcept nogil:
    """Range of a pass that has begun and read nothing; False if it is not to be cut.

    Merged queues are not: a damaged unit would part them otherwise than it orders them; nor are
    units alone, which are read faster than threads start.
    """
    cdef const Lane *lane
    cdef Unit unit
    cdef int64_t i, at
    cdef int64_t named = 0
    if not whole.begun or whole.ended or whole.tail >= 0 or whole.source.by_units:
        return False
    if whole.source.along == ALONG_LOG:
        extent.start = whole.source.cursor.at
        extent.stop = whole.end
        extent.bytes = extent.stop - extent.start
        return True
    if whole.source.along != ALONG_QUEUES or whole.source.queues.lane_count != 1:
        return False
    lane = whole.source.queues.lanes
    extent.start = lane.at
    extent.stop = lane.stop
    extent.bytes = 0
    for i in range(SIZES_SAMPLED):
        at = lane.at + (lane.stop - lane.at) * i // SIZES_SAMPLED
        if at < lane.stop and queue_unit_at(lane.queue, at, &unit) == 0 and unit.size > 0:
            extent.bytes += unit.size
            named += 1
    extent.bytes = extent.bytes // max(named, 1) * (lane.stop - lane.at)
    return True


cdef int64_t scan_cut(const Scan *whole, int64_t at) noexcept nogil:
    """Where to cut near ``at``, at or before it: along the log at a known record boundary."""
    return log_boundary(whole.store, at, BOUNDARY_NEAR) \
        if whole.source.along == ALONG_LOG else at


cdef int64_t scan_begin_part(Scan *scan) noexcept nogil:
    """Begin the part [start, stop) of the pass ``scan.whole``; ``start`` is its, or a cut."""
    cdef const Scan *whole = scan.whole
    cdef Cursor *cursor = &scan.source.cursor
    cdef MergedQueues *queues = &scan.source.queues
    cdef Record record
    cdef const char *data = NULL
    scan.begun = True
    scan.tail = -1
    scan.filter.queued = whole.filter.queued
    scan.head = whole.head
    scan.end = scan.stop
    scan.source.along = whole.source.along
    cursor_init(cursor, scan.store, scan.start, scan.stop)
    cursor.report_removed = True
    cursor.in_place = not scan.store.writable
    if scan.source.along == ALONG_QUEUES:
        queues.lanes = <Lane *>calloc(1, sizeof(Lane))
        if queues.lanes == NULL:
            return E_NO_MEMORY
        queues.lane_count = 1
        queues.lanes.queue = whole.source.queues.lanes.queue
        queues.lanes.at = scan.start
        queues.lanes.stop = scan.stop
        queues.end = whole.source.queues.end
        return merged_start(queues)
    if cursor_next(cursor, &record, &data) > 0 and record.physical_offset == scan.start:
        cursor.at = scan.start
        return 0
    if scan.start == whole.source.cursor.at:
        cursor.at = scan.start               # where the whole pass would have begun
        return 0
    return scan_find_record(scan, scan.start)
