# Whether every record of the log is in a queue, so that going along queues misses none; and
# where a record begins near any byte of the log.
#
# Records that were prepared or rolled back have no unit, and neither have those whose topic was
# deleted. The sizes of all units and of the fillers then do not add up to the log.
#
# Source: ours

cdef struct Tiles:
    int64_t start                # a record begins there
    int64_t stop                 # and one ends here
    int64_t first_file           # number of the file that has ``start``
    int64_t files
    int64_t *ends                # by file: the end of its last record
    int64_t bytes                # of records


cdef int64_t log_is_all_queued(Store *store, int64_t stop) noexcept nogil:
    """1 if each record below ``stop``, where one ends, has a unit in a queue; 0; -errno."""
    cdef Topic *topic = load_topic(&store.table.first)
    cdef Queue *queue
    cdef Tiles tiles
    cdef int64_t rc = 0
    tiles.start = max(log_first(store), atomic_get(&store.queued_until))
    tiles.stop = stop
    if tiles.start >= stop:
        return 1
    tiles.first_file = tiles.start // store.log.file_size
    tiles.files = (stop - 1) // store.log.file_size - tiles.first_file + 1
    tiles.bytes = 0
    tiles.ends = <int64_t *>calloc(<size_t>tiles.files, sizeof(int64_t))
    if tiles.ends == NULL:
        return E_NO_MEMORY
    while topic != NULL and rc >= 0:
        queue = load_queue(&topic.first_queue)
        while queue != NULL and rc >= 0:
            rc = tiles_add(&tiles, queue, store.log.file_size)
            queue = queue.next_made
        topic = load_topic(&topic.next_made)
    if rc >= 0:
        rc = tiles_meet(store, &tiles)
    free(tiles.ends)
    if rc == 1:
        atomic_raise(&store.queued_until, stop)
    return 0 if rc == E_REMOVED or rc == E_NOT_FOUND else rc


cdef int64_t tiles_add(Tiles *tiles, Queue *queue, int64_t file_size) noexcept nogil:
    """Add up the records that a queue's units name."""
    cdef Slice units
    cdef Unit unit
    cdef int64_t stop = atomic_get(&queue.max_offset)
    cdef int64_t at, i, rc, file
    at = queue_first_at_or_after(queue, tiles.start, atomic_get(&queue.min_offset), stop)
    while 0 <= at < stop:
        rc = queue_units(queue, at, min(stop - at, LANE_UNITS), &units)
        if rc <= 0:
            slice_release(&units)
            return rc if rc < 0 else E_REMOVED
        for i in range(rc):
            unit_read(units.data + i * UNIT_BYTES, &unit)
            if unit_is_blank(&unit):
                continue
            if unit.physical_offset >= tiles.stop:
                stop = at
                break
            file = unit.physical_offset // file_size - tiles.first_file
            if unit.size <= 0 or file < 0:
                slice_release(&units)
                return E_REMOVED
            tiles.bytes += unit.size
            tiles.ends[file] = max(tiles.ends[file], unit.physical_offset + unit.size)
        slice_release(&units)
        at += rc
    return min(at, 0)


cdef int64_t tiles_meet(Store *store, const Tiles *tiles) noexcept nogil:
    """1 if records and fillers cover the log without a gap or an overlap, else 0."""
    cdef int64_t file_size = store.log.file_size
    cdef int64_t wanted = 0
    cdef int64_t i, start, end
    cdef Slice slice
    cdef bint filler
    for i in range(tiles.files):
        start = max(tiles.start, (tiles.first_file + i) * file_size)
        end = min(tiles.stop, (tiles.first_file + i + 1) * file_size)
        if tiles.ends[i] == end:
            wanted += end - start
            continue
        if tiles.ends[i] < start or end == tiles.stop \
                or file_set_read(&store.log, tiles.ends[i], 8, &slice) < 8:
            return 0
        filler = get_i32(slice.data + RECORD_MAGIC) == MAGIC_BLANK \
            and get_i32(slice.data) == end - tiles.ends[i]
        slice_release(&slice)
        if not filler:
            return 0
        wanted += tiles.ends[i] - start
    return wanted == tiles.bytes


cdef int64_t log_boundary(Store *store, int64_t offset) noexcept nogil:
    """A place at or before ``offset`` where a record begins, the nearest that is known."""
    cdef Topic *topic = load_topic(&store.table.first)
    cdef Queue *queue
    cdef Unit unit
    cdef int64_t low, at
    cdef int64_t boundary = offset - offset % store.log.file_size
    memset(&unit, 0, sizeof(Unit))
    while topic != NULL:
        queue = load_queue(&topic.first_queue)
        while queue != NULL:
            low = atomic_get(&queue.min_offset)
            at = queue_first_at_or_after(queue, offset + 1, low, atomic_get(&queue.max_offset))
            if at > low and queue_unit_at(queue, at - 1, &unit) == 0 \
                    and not unit_is_blank(&unit) and boundary < unit.physical_offset <= offset \
                    and unit_is_good(store, queue, at - 1):
                boundary = unit.physical_offset
            queue = queue.next_made
        topic = load_topic(&topic.next_made)
    return boundary
