# Whether every record of the log is in a queue, so that going along queues misses none; and
# where a record begins near any byte of the log.
#
# Records that were prepared or rolled back have no unit, and neither have those whose topic was
# deleted. Each record must begin where another one, or a filler, ends. Whether the beginnings are
# the ends, but for the first and the last, is told by the sums of a hash over both: one walk over
# the units in any order, and units named twice make it fail.
#
# Source: ours

cdef struct Tiles:
    int64_t start                # a record begins there
    int64_t stop                 # and one ends here
    int64_t first_file           # number of the file that has ``start``
    int64_t files
    int64_t *ends                # by file: the end of its last record
    uint64_t open                # sum of hash(beginning) - hash(end) over records and fillers


cdef inline uint64_t place_hash(int64_t offset) noexcept nogil:
    """splitmix64's mixing, from a start that differs from process to process."""
    cdef uint64_t z = <uint64_t>offset * <uint64_t>0x9E3779B97F4A7C15 + place_seed
    z = (z ^ (z >> 30)) * <uint64_t>0xBF58476D1CE4E5B9
    z = (z ^ (z >> 27)) * <uint64_t>0x94D049BB133111EB
    return z ^ (z >> 31)


cdef uint64_t place_seed = 0


cdef int64_t log_is_all_queued(Store *store, int64_t stop) noexcept nogil:
    """1 if each record below ``stop``, where one ends, has a unit in a queue; 0; -errno."""
    cdef int64_t rc, first, minimums
    pthread_mutex_lock(&store.queued_mutex)
    first = log_first(store)
    minimums = queue_minimums(store)
    if first != store.queued_first or minimums != store.queued_minimums:
        store.queued_until = first           # files went since: nothing is known any more
        store.queued_first = first
        store.queued_minimums = minimums
    rc = log_is_tiled(store, store.queued_until, stop)
    if rc == 1:
        store.queued_until = max(store.queued_until, stop)
    pthread_mutex_unlock(&store.queued_mutex)
    return 0 if rc == E_REMOVED or rc == E_NOT_FOUND else rc


cdef void queued_forget(Store *store) noexcept nogil:
    """After units went: nothing is known to be in queues any more."""
    pthread_mutex_lock(&store.queued_mutex)
    store.queued_first = -1
    pthread_mutex_unlock(&store.queued_mutex)


cdef int64_t queue_minimums(Store *store) noexcept nogil:
    """A number that changes when the first unit of a queue is another one."""
    cdef Queue *queue = first_queue(&store.table)
    cdef int64_t total = 0
    while queue != NULL:
        total += atomic_get(&queue.min_offset)
        queue = next_queue(queue)
    return total


cdef int64_t log_is_tiled(Store *store, int64_t start, int64_t stop) noexcept nogil:
    """1 if the units' records and the fillers lie end to end from ``start`` to ``stop``."""
    cdef Queue *queue = first_queue(&store.table)
    cdef Tiles tiles
    cdef int64_t rc = 0
    if start >= stop:
        return 1
    tiles.start = start
    tiles.stop = stop
    tiles.first_file = start // store.log.file_size
    tiles.files = (stop - 1) // store.log.file_size - tiles.first_file + 1
    tiles.open = 0
    tiles.ends = <int64_t *>calloc(<size_t>tiles.files, sizeof(int64_t))
    if tiles.ends == NULL:
        return E_NO_MEMORY
    while queue != NULL and rc >= 0:
        # What a light queue has is there by multi-dispatch, from a record of another queue.
        if not topic_is_light(queue.topic):
            # What a queue has that cannot be read is not known.
            rc = E_REMOVED
            if not queue.unreadable:
                rc = tiles_add(&tiles, queue, store.log.file_size)
        queue = next_queue(queue)
    if rc >= 0:
        rc = tiles_meet(store, &tiles)
    free(tiles.ends)
    return rc


cdef bint topic_is_light(const Topic *topic) noexcept nogil:
    return topic.length > 5 and memcmp(topic.name, b"%LMQ%", 5) == 0


cdef int64_t tiles_add(Tiles *tiles, Queue *queue, int64_t file_size) noexcept nogil:
    """Take in the records that a queue's units name."""
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
            tiles.open += place_hash(unit.physical_offset) \
                - place_hash(unit.physical_offset + unit.size)
            tiles.ends[file] = max(tiles.ends[file], unit.physical_offset + unit.size)
        if slice_lost(&units) < 0:
            rc = E_LOST
        slice_release(&units)
        if rc < 0:
            return rc
        at += rc
    return min(at, 0)


cdef int64_t tiles_meet(Store *store, Tiles *tiles) noexcept nogil:
    """1 if records and fillers cover the log without a gap or an overlap, else 0."""
    cdef int64_t file_size = store.log.file_size
    cdef int64_t i, end
    cdef Slice slice
    cdef bint filler
    for i in range(tiles.files):
        end = min(tiles.stop, (tiles.first_file + i + 1) * file_size)
        if tiles.ends[i] == end:
            continue
        if end == tiles.stop or tiles.ends[i] == 0:
            return 0
        if file_set_read(&store.log, tiles.ends[i], 8, &slice) < 8:
            slice_release(&slice)
            return 0
        filler = get_i32(slice.data + RECORD_MAGIC) == MAGIC_BLANK \
            and get_i32(slice.data) == end - tiles.ends[i]
        if slice_lost(&slice) < 0:
            slice_release(&slice)
            return E_LOST
        slice_release(&slice)
        if not filler:
            return 0
        tiles.open += place_hash(tiles.ends[i]) - place_hash(end)
    return tiles.open == place_hash(tiles.start) - place_hash(tiles.stop)


cdef int64_t next_unit(Store *store, int64_t offset) noexcept nogil:
    """Where the first record at or after ``offset`` begins that a unit names; INT64_MOST."""
    cdef Queue *queue = first_queue(&store.table)
    cdef Unit unit
    cdef int64_t at, stop
    cdef int64_t found = INT64_MOST
    memset(&unit, 0, sizeof(Unit))
    while queue != NULL:
        stop = atomic_get(&queue.max_offset)
        at = queue_first_at_or_after(queue, offset, atomic_get(&queue.min_offset), stop)
        while 0 <= at < stop and queue_unit_at(queue, at, &unit) == 0:
            if not unit_is_blank(&unit) and unit.physical_offset >= offset:
                found = min(found, unit.physical_offset)
                break
            at += 1                      # a damaged one
        queue = next_queue(queue)
    return found


cdef int64_t log_boundary(Store *store, int64_t offset) noexcept nogil:
    """A place at or before ``offset`` where a record begins, the nearest that is known."""
    cdef Queue *queue = first_queue(&store.table)
    cdef Unit unit
    cdef int64_t low, at
    cdef int64_t boundary = offset - offset % store.log.file_size
    memset(&unit, 0, sizeof(Unit))
    while queue != NULL:
        low = atomic_get(&queue.min_offset)
        at = queue_first_at_or_after(queue, offset + 1, low, atomic_get(&queue.max_offset))
        if at > low and queue_unit_at(queue, at - 1, &unit) == 0 \
                and not unit_is_blank(&unit) and boundary < unit.physical_offset <= offset \
                and (load_derived(&queue.derived) != NULL
                     or unit_is_good(store, queue, at - 1)):
            boundary = unit.physical_offset
        queue = next_queue(queue)
    return boundary
