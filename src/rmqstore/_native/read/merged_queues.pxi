# Units of several queues in log order: a heap of each queue's next unit.
#

cdef enum:
    LANES_MORE = 64
    LANE_UNITS = 512             # units of a queue read at a time
    NEAR_BYTES = 32 << 10        # closer records are read together

# The read position in one queue.
cdef struct Lane:
    Queue *queue
    int64_t at                   # queue offset of ``unit``
    int64_t stop
    Slice units                  # from units_at on
    int64_t units_at
    int64_t units_count
    int64_t rows_end             # log offset after the last row that a unit alone gave
    Unit unit


cdef struct MergedQueues:
    Lane *lanes
    int64_t lane_count
    int64_t *heap                # lanes with a unit, lowest in the log first
    int64_t heap_count
    int64_t end                  # log offset at which the lanes end
    bint made_again              # a lane has units beyond the end: of other messages
    bint taken                   # the first lane's unit was consumed
    Lane *removed                # the lane with a missing file; NULL: none


cdef void merged_free(MergedQueues *merged) noexcept nogil:
    cdef int64_t i
    for i in range(merged.lane_count):
        slice_release(&merged.lanes[i].units)
    free(merged.lanes)
    free(merged.heap)
    memset(merged, 0, sizeof(MergedQueues))


cdef int64_t lane_fill(MergedQueues *merged, Lane *lane) noexcept nogil:
    """Load the first unit from ``at`` on with a record: 1, 0: none, E_REMOVED: a file is gone."""
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
                merged.removed = lane
                return E_REMOVED
            lane.units_at = lane.at
            lane.units_count = rc
        unit_read(lane.units.data + (lane.at - lane.units_at) * UNIT_BYTES, &lane.unit)
        rc = slice_lost(&lane.units)
        if rc < 0:
            return rc
        if lane.unit.physical_offset >= merged.end and not unit_is_blank(&lane.unit):
            # The topic was deleted and made again: these are other messages.
            merged.made_again = True
            merged.removed = lane
            return E_REMOVED
        if not unit_is_blank(&lane.unit):
            return 1
        lane.at += 1
    slice_release(&lane.units)
    return 0


cdef inline int64_t heap_key(const MergedQueues *merged, int64_t place) noexcept nogil:
    return merged.lanes[merged.heap[place]].unit.physical_offset


cdef void heap_sink(MergedQueues *merged, int64_t place) noexcept nogil:
    """Restore the heap order below ``place``, whose lane advanced."""
    cdef int64_t child, moved
    while True:
        child = 2 * place + 1
        if child >= merged.heap_count:
            return
        if child + 1 < merged.heap_count \
                and heap_key(merged, child + 1) < heap_key(merged, child):
            child += 1
        if heap_key(merged, place) <= heap_key(merged, child):
            return
        moved = merged.heap[place]
        merged.heap[place] = merged.heap[child]
        merged.heap[child] = moved
        place = child


cdef int64_t lane_begin(
    Queue *queue, int64_t physical_offset, int64_t low, int64_t stop,
) noexcept nogil:
    """As queue_first_at_or_after, but a missing file before it is not passed over."""
    cdef int64_t first = queue_first_at_or_after(queue, physical_offset, low, stop)
    cdef int64_t file_units = queue.files.file_size // UNIT_BYTES
    cdef int64_t at = first
    cdef int64_t rc
    cdef Unit unit
    while at > low:
        rc = queue_unit_at(queue, at - 1, &unit)
        if rc != E_NOT_FOUND and rc != E_REMOVED:
            break
        at = max(low, min((at - 1) // file_units * file_units, file_set_stop_below(
            &queue.files, (at - 1) * UNIT_BYTES) // UNIT_BYTES))
    while at < first and queue_unit_at(queue, at, &unit) == 0 \
            and unit.physical_offset < physical_offset:
        at += 1                              # of a file that was cut
    return at


cdef int64_t merged_add(MergedQueues *merged, Queue *queue, int64_t start) noexcept nogil:
    """Add the units of a queue whose records begin in [start, merged.end) of the log."""
    cdef Lane *grown
    cdef Lane *lane
    cdef Unit unit
    cdef int64_t low = atomic_get(&queue.min_offset)
    cdef int64_t high = atomic_get(&queue.max_offset)
    if merged.lane_count % LANES_MORE == 0:
        grown = <Lane *>realloc(
            merged.lanes, <size_t>(merged.lane_count + LANES_MORE) * sizeof(Lane))
        if grown == NULL:
            return E_NO_MEMORY
        merged.lanes = grown
    lane = &merged.lanes[merged.lane_count]
    memset(lane, 0, sizeof(Lane))
    lane.queue = queue
    lane.at = lane_begin(queue, start, low, high)
    if 0 <= lane.at < high and not queue.files.writable \
            and queue_unit_at(queue, lane.at, &unit) == 0 and unit.size <= 0 \
            and file_set_list(&queue.files, NULL) > 0:           # the file may be another one
        lane.at = lane_begin(queue, start, low, high)
    if lane.at < 0:
        return lane.at
    lane.stop = queue_first_at_or_after(queue, merged.end, lane.at, high)
    merged.lane_count += 1
    return min(lane.stop, 0)


cdef int64_t merged_start(MergedQueues *merged) noexcept nogil:
    """Find each lane's first unit and build the heap; also after a failure."""
    cdef int64_t i, rc
    free(merged.heap)
    merged.taken = False
    merged.heap = <int64_t *>malloc(<size_t>max(merged.lane_count, 1) * sizeof(int64_t))
    if merged.heap == NULL:
        return E_NO_MEMORY
    merged.heap_count = 0
    for i in range(merged.lane_count):
        rc = lane_fill(merged, &merged.lanes[i])
        if rc < 0:
            return rc
        if rc > 0:
            merged.heap[merged.heap_count] = i
            merged.heap_count += 1
    i = merged.heap_count // 2
    while i > 0:
        i -= 1
        heap_sink(merged, i)
    return 0


cdef int64_t merged_load(MergedQueues *merged) noexcept nogil:
    """Load the first lane's unit, and restore the heap order."""
    cdef int64_t rc = lane_fill(merged, &merged.lanes[merged.heap[0]])
    merged.taken = False
    if rc < 0:
        return rc
    if rc == 0:
        merged.heap_count -= 1
        merged.heap[0] = merged.heap[merged.heap_count]
    heap_sink(merged, 0)
    return 0


cdef int64_t merged_next(MergedQueues *merged) noexcept nogil:
    """Advance past the first lane's unit."""
    merged.lanes[merged.heap[0]].at += 1
    return merged_load(merged)


cdef int64_t merged_load_again(MergedQueues *merged) noexcept nogil:
    """Load the first lane's unit from the files as they are now."""
    slice_release(&merged.lanes[merged.heap[0]].units)
    return merged_load(merged)
