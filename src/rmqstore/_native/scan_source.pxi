# Where a scan's records come from: along the log, along queues merged into the log's order, or
# by offsets that the index gave.
#
# Source: ours

cdef enum:
    ALONG_LOG
    ALONG_QUEUES
    ALONG_OFFSETS

    LANES_MORE = 64
    LANE_UNITS = 512             # units of a queue read at a time
    NEAR_BYTES = 32 << 10        # records no further apart are read together
    OFFSET_CHUNK = 2048          # for a record of unknown size

# One queue on its way.
cdef struct Lane:
    Queue *queue
    int64_t at                   # queue offset of ``unit``
    int64_t stop
    Slice units                  # from units_at on
    int64_t units_at
    int64_t units_count
    Unit unit


cdef struct ScanSource:
    int64_t along
    Cursor cursor
    Lane *lanes
    int64_t lane_count
    int64_t *heap                # lanes that have a unit, the one nearest in the log first
    int64_t heap_count
    Offsets offsets              # ascending
    int64_t next_offset          # of ``offsets``, the place
    int64_t end                  # log offset at which the lanes end
    bint made_again              # a lane has units behind the end: they are other messages
    int64_t read_to              # end of the record read last
    bint taken                   # the first lane's unit was given out
    Lane *removed                # the lane whose file is missing; NULL: a file of the log


cdef void source_free(ScanSource *source) noexcept nogil:
    cdef int64_t i
    for i in range(source.lane_count):
        slice_release(&source.lanes[i].units)
    free(source.lanes)
    free(source.heap)
    free(source.offsets.items)
    cursor_close(&source.cursor)
    memset(source, 0, sizeof(ScanSource))


cdef int64_t lane_fill(ScanSource *source, Lane *lane) noexcept nogil:
    """Stand on the first unit at or after ``at`` that points to a record: 1, 0 if there is none.

    E_REMOVED where a file of the queue is gone.
    """
    cdef int64_t rc
    while lane.at < lane.stop:
        if lane.units.data == NULL or lane.at < lane.units_at \
                or lane.at >= lane.units_at + lane.units_count:
            slice_release(&lane.units)
            rc = queue_units(lane.queue, lane.at, min(lane.stop - lane.at, LANE_UNITS),
                             &lane.units)
            if rc <= 0:
                slice_release(&lane.units)
                if rc < 0 and rc != E_NOT_FOUND and rc != E_REMOVED:
                    return rc
                source.removed = lane
                return E_REMOVED
            lane.units_at = lane.at
            lane.units_count = rc
        unit_read(lane.units.data + (lane.at - lane.units_at) * UNIT_BYTES, &lane.unit)
        rc = slice_lost(&lane.units)
        if rc < 0:
            return rc
        if lane.unit.physical_offset >= source.end and not unit_is_blank(&lane.unit):
            # The topic was deleted, and made again: these are other messages.
            source.made_again = True
            source.removed = lane
            return E_REMOVED
        if not unit_is_blank(&lane.unit):
            return 1
        lane.at += 1
    slice_release(&lane.units)
    return 0


cdef inline int64_t heap_key(const ScanSource *source, int64_t place) noexcept nogil:
    return source.lanes[source.heap[place]].unit.physical_offset


cdef void heap_sink(ScanSource *source, int64_t place) noexcept nogil:
    """Restore the order below ``place``, whose lane went on."""
    cdef int64_t child, moved
    while True:
        child = 2 * place + 1
        if child >= source.heap_count:
            return
        if child + 1 < source.heap_count \
                and heap_key(source, child + 1) < heap_key(source, child):
            child += 1
        if heap_key(source, place) <= heap_key(source, child):
            return
        moved = source.heap[place]
        source.heap[place] = source.heap[child]
        source.heap[child] = moved
        place = child


cdef int64_t source_add_lane(ScanSource *source, Queue *queue, int64_t start) noexcept nogil:
    """The units of a queue whose records begin in [start, source.end) of the log."""
    cdef Lane *grown
    cdef Lane *lane
    cdef int64_t low = atomic_get(&queue.min_offset)
    cdef int64_t high = atomic_get(&queue.max_offset)
    if source.lane_count % LANES_MORE == 0:
        grown = <Lane *>realloc(
            source.lanes, <size_t>(source.lane_count + LANES_MORE) * sizeof(Lane))
        if grown == NULL:
            return E_NO_MEMORY
        source.lanes = grown
    lane = &source.lanes[source.lane_count]
    memset(lane, 0, sizeof(Lane))
    lane.queue = queue
    lane.at = queue_first_at_or_after(queue, start, low, high)
    if lane.at < 0:
        return lane.at
    lane.stop = queue_first_at_or_after(queue, source.end, lane.at, high)
    source.lane_count += 1
    return min(lane.stop, 0)


cdef int64_t source_start_lanes(ScanSource *source) noexcept nogil:
    """Find each lane's first unit and put the lanes in order; also after a failure."""
    cdef int64_t i, rc
    free(source.heap)
    source.taken = False
    source.heap = <int64_t *>malloc(<size_t>max(source.lane_count, 1) * sizeof(int64_t))
    if source.heap == NULL:
        return E_NO_MEMORY
    source.heap_count = 0
    for i in range(source.lane_count):
        rc = lane_fill(source, &source.lanes[i])
        if rc < 0:
            return rc
        if rc > 0:
            source.heap[source.heap_count] = i
            source.heap_count += 1
    i = source.heap_count // 2
    while i > 0:
        i -= 1
        heap_sink(source, i)
    return 0


cdef int64_t lane_next(ScanSource *source) noexcept nogil:
    """Go on behind the first lane's unit."""
    cdef Lane *lane = &source.lanes[source.heap[0]]
    cdef int64_t rc
    source.taken = False
    lane.at += 1
    rc = lane_fill(source, lane)
    if rc < 0:
        return rc
    if rc == 0:
        source.heap_count -= 1
        source.heap[0] = source.heap[source.heap_count]
    heap_sink(source, 0)
    return 0


cdef int64_t source_record_at(
    ScanSource *source, int64_t offset, int64_t size, Record *record, const char **data,
) noexcept nogil:
    """The record at an offset of the log, of ``size`` bytes if that is known, else 0."""
    cdef Cursor *cursor = &source.cursor
    cdef int64_t rc
    if offset - source.read_to > NEAR_BYTES or offset < source.read_to:
        cursor.chunk = max(512, min(size if size else OFFSET_CHUNK, AHEAD_BYTES))
    else:
        cursor.chunk = min(max(cursor.chunk * 2, 4096), AHEAD_BYTES)
    cursor.at = offset
    cursor.stop = offset + 1
    rc = cursor_next(cursor, record, data)
    source.read_to = offset + max(rc, 0)
    if rc == 0 or (rc > 0 and record.physical_offset != offset):
        cursor.field = FIELD_MAGIC           # a filler, or beyond the end
        return E_CORRUPT
    return rc


cdef int64_t source_next(
    ScanSource *source, const ScanFilter *filter, Record *record, const char **data,
) noexcept nogil:
    """The next record: its size, 0 at the end, E_CORRUPT, E_REMOVED, another status.

    After E_CORRUPT and E_REMOVED ``source_skip`` goes on behind what is bad or gone.
    """
    cdef Lane *lane
    cdef int64_t rc, offset
    source.removed = NULL
    if source.along == ALONG_LOG:
        return cursor_next(&source.cursor, record, data)
    if source.along == ALONG_OFFSETS:
        if source.next_offset == source.offsets.count:
            return 0
        offset = source.offsets.items[source.next_offset]
        rc = source_record_at(source, offset, 0, record, data)
        if rc > 0:
            source.next_offset += 1
        return rc
    while source.heap_count:
        if source.taken:
            rc = lane_next(source)
            if rc < 0:
                return rc
            continue
        lane = &source.lanes[source.heap[0]]
        source.taken = not unit_may_pass(filter, lane)
        if source.taken:
            continue
        if lane.unit.size <= 0:              # with units behind it: it names nothing
            source.cursor.field = FIELD_QUEUE
            return E_CORRUPT
        rc = source_record_at(source, lane.unit.physical_offset, lane.unit.size, record, data)
        if rc < 0:
            return rc
        if rc != lane.unit.size or not record_is_of(data[0], record, lane.queue, lane.at):
            source.cursor.field = FIELD_QUEUE
            return E_CORRUPT
        source.taken = True
        # One that is here by multi-dispatch is met in its own queue.
        if record_is_own(data[0], record, lane.queue, lane.at):
            return rc
    return 0


cdef bint unit_may_pass(const ScanFilter *filter, const Lane *lane) noexcept nogil:
    """What the unit tells of the record's tags; a time tells nothing."""
    return filter.tags.count == 0 or lane.queue.topic.schedule \
        or tags_code_passes(&filter.tags, lane.unit.tags_code)


cdef int64_t source_bad_offset(const ScanSource *source) noexcept nogil:
    """The log offset that the last failure was met at."""
    if source.along == ALONG_QUEUES and source.heap_count:
        return source.lanes[source.heap[0]].unit.physical_offset
    return source.cursor.at


cdef int64_t source_skip(ScanSource *source, int64_t rc) noexcept nogil:
    """Go on behind a record that is bad or gone: 1, 0 if nothing follows, another status."""
    cdef Cursor *cursor = &source.cursor
    cdef int64_t low
    if source.along == ALONG_OFFSETS:
        source.next_offset += 1
        return 1
    if source.along == ALONG_QUEUES:
        rc = lane_next(source) if source.heap_count else 0
        return rc if rc < 0 else 1
    if rc == E_CORRUPT:
        return min(cursor_resync(cursor), 1)
    low = log_first(cursor.store)
    if low <= cursor.at:
        low = file_set_next_start(&cursor.store.log, cursor.at)
    if low < 0 or low >= cursor.stop:
        return 0
    cursor.at = low
    return 1
