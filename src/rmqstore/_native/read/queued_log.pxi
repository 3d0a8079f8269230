# Check that every record of the log is in a queue, so that a read of the queues misses none; and
# the nearest known record boundary to any byte of the log.
#
# Prepared and rolled-back records, and records of deleted topics, have no unit.  Each record must
# begin where another record, or a blank, ends.  One pass over the units, in any order, sums a hash
# of the beginnings and of the ends: equal except for the first and the last.  A record with two
# units fails the check.

cdef enum:
    BOUNDARY_NEAR = 256 << 10       # of the log, walked as soon as a queue's unit is found
    SURE_LOG_BYTES = 16 << 10       # of the log, whose units are as costly as to read a record


cdef struct Extents:
    int64_t start                # begin of a record
    int64_t stop                 # end of a record
    int64_t first_file           # number of the file with ``start``
    int64_t files
    int64_t *ends                # by file: the end of its last record
    uint64_t unmatched           # sum of hash(beginning) - hash(end) over records and blanks


cdef inline uint64_t offset_hash(int64_t offset) noexcept nogil:
    """Seeded per process."""
    return mixed_64(<uint64_t>offset * <uint64_t>0x9E3779B97F4A7C15 + offset_hash_seed)


cdef uint64_t offset_hash_seed = 0


cdef int64_t queued_until(Store *store) noexcept nogil:
    """Log offset up to which each record is known to have a unit.  Under the lock."""
    cdef int64_t first = log_first(store)
    cdef int64_t minimums = queue_minimums(store)
    if first != store.view.queued_first or minimums != store.view.queued_minimums:
        store.view.queued_until = first           # files were removed: start over
        store.view.queued_first = first
        store.view.queued_minimums = minimums
    return store.view.queued_until


cdef int64_t log_is_all_queued(Store *store, int64_t stop) noexcept nogil:
    """1 if each record below ``stop``, a record's end, has a unit in a queue; 0; -errno."""
    cdef int64_t rc
    lock_take(&store.view.queued_lock)
    rc = log_is_covered(store, queued_until(store), stop)
    if rc == 1:
        store.view.queued_until = max(store.view.queued_until, stop)
    lock_give(&store.view.queued_lock)
    return 0 if rc == E_REMOVED or rc == E_NOT_FOUND else rc


cdef bint units_are_sure(
    Store *store, int64_t rows, int64_t start, int64_t stop,
) noexcept nogil:
    """Whether each unit of an ordinary queue in [start, stop) has a record of its own in the log.

    ``start`` is a record's begin, ``stop`` a record's end.  Units that cover the log once are of
    records that do not overlap, of their own queues: a record in an ordinary queue of another
    topic, by multi-dispatch, has two, unless its own topic was deleted.  Such a topic, known
    damage, and a cut or missing file of the log are doubts.  So is a check that costs more than to
    read ``rows`` records.
    """
    cdef int64_t known, began, cost
    cdef bint part
    if has_damage(&store.recovery, start, stop) or not file_set_has(&store.log, start, stop) \
            or has_deleted_topic(&store.table, start):
        return False
    lock_take(&store.view.queued_lock)
    known = queued_until(store)
    lock_give(&store.view.queued_lock)
    if known >= stop:
        return True
    began = monotonic_ns()
    part = stop - start < (stop - known) // 2        # a check of all is not repeated
    cost = (stop - (start if part else known)) // SURE_LOG_BYTES
    if not store.writable:
        cost += topic_queues(&store.table)
    if rows < cost or began < atomic_get(&store.view.queued_again_at):
        return False
    if refresh_queues(store) == 0:
        newest_unit_end(store, LIST_IF_OLD)
        if part and log_is_covered(store, start, stop) == 1:
            return True
        if not part and log_is_all_queued(store, stop) == 1:
            return True
    known = monotonic_ns()
    atomic_set(&store.view.queued_again_at, known + (known - began) * SEARCH_SHARE)
    return False


cdef bint has_deleted_topic(TopicTable *table, int64_t start) noexcept nogil:
    """Whether a topic was deleted with records behind ``start``."""
    cdef Topic *topic = load_topic(&table.first)
    while topic != NULL:
        if topic.deleted_before > start:
            return True
        topic = load_topic(&topic.next_made)
    return False


cdef int64_t topic_queues(TopicTable *table) noexcept nogil:
    """Queues of all topics."""
    cdef Queue *queue = first_queue(table)
    cdef int64_t count = 0
    while queue != NULL:
        count += 1
        queue = next_queue(queue)
    return count


cdef int64_t queue_minimums(Store *store) noexcept nogil:
    """A number that changes when the first unit of any queue does."""
    cdef Queue *queue = first_queue(&store.table)
    cdef int64_t total = 0
    while queue != NULL:
        total += atomic_get(&queue.min_offset)
        queue = next_queue(queue)
    return total


cdef int64_t log_is_covered(Store *store, int64_t start, int64_t stop) noexcept nogil:
    """1 if the units' records and the blanks cover the log from ``start`` to ``stop``."""
    cdef Queue *queue = first_queue(&store.table)
    cdef Extents extents
    cdef int64_t rc = 0
    if start >= stop:
        return 1
    extents.start = start
    extents.stop = stop
    extents.first_file = start // store.log.file_size
    extents.files = (stop - 1) // store.log.file_size - extents.first_file + 1
    extents.unmatched = 0
    extents.ends = <int64_t *>calloc(<size_t>extents.files, sizeof(int64_t))
    if extents.ends == NULL:
        return E_NO_MEMORY
    while queue != NULL and rc >= 0:
        # Units of a light queue are of other queues' records, by multi-dispatch.
        if not topic_is_light(queue.topic):
            # Units of an unreadable queue are unknown.
            rc = E_REMOVED
            if not queue.unreadable:
                rc = extents_add(&extents, queue, store.log.file_size)
        queue = next_queue(queue)
    if rc >= 0:
        rc = extents_cover(store, &extents)
    free(extents.ends)
    return rc


cdef int64_t extents_add(Extents *extents, Queue *queue, int64_t file_size) noexcept nogil:
    """Add the records of a queue's units."""
    cdef Slice units
    cdef Unit unit
    cdef int64_t stop = atomic_get(&queue.max_offset)
    cdef int64_t at, i, rc, file
    at = queue_first_at_or_after(queue, extents.start, atomic_get(&queue.min_offset), stop)
    while 0 <= at < stop:
        rc = queue_units(queue, at, min(stop - at, LANE_UNITS), &units)
        if rc <= 0:
            slice_release(&units)
            return rc if rc < 0 else E_REMOVED
        for i in range(rc):
            unit_read(units.data + i * UNIT_BYTES, &unit)
            if unit_is_blank(&unit):
                continue
            if unit.physical_offset >= extents.stop:
                stop = at
                break
            file = unit.physical_offset // file_size - extents.first_file
            if unit.size <= 0 or file < 0:
                slice_release(&units)
                return E_REMOVED
            extents.unmatched += offset_hash(unit.physical_offset) \
                - offset_hash(unit.physical_offset + unit.size)
            extents.ends[file] = max(extents.ends[file], unit.physical_offset + unit.size)
        if slice_lost(&units) < 0:
            rc = E_LOST
        slice_release(&units)
        if rc < 0:
            return rc
        at += rc
    return min(at, 0)


cdef int64_t extents_cover(Store *store, Extents *extents) noexcept nogil:
    """1 if records and blanks cover the log without a gap or an overlap, else 0."""
    cdef int64_t file_size = store.log.file_size
    cdef int64_t i, end
    cdef Slice slice
    cdef bint blank
    for i in range(extents.files):
        end = min(extents.stop, (extents.first_file + i + 1) * file_size)
        if extents.ends[i] == end:
            continue
        if end % file_size or extents.ends[i] == 0:
            return 0
        if file_set_read(&store.log, extents.ends[i], 8, &slice) < 8:
            slice_release(&slice)
            return 0
        blank = get_i32(slice.data + RECORD_MAGIC) == MAGIC_BLANK \
            and get_i32(slice.data) == end - extents.ends[i]
        if slice_lost(&slice) < 0:
            slice_release(&slice)
            return E_LOST
        slice_release(&slice)
        if not blank:
            return 0
        extents.unmatched += offset_hash(extents.ends[i]) - offset_hash(end)
    return extents.unmatched == offset_hash(extents.start) - offset_hash(extents.stop)


cdef int64_t next_unit(Store *store, int64_t offset) noexcept nogil:
    """Offset of the first record at or after ``offset`` with a unit; INT64_MOST."""
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
            at += 1                      # a damaged unit
        queue = next_queue(queue)
    return found


cdef int64_t log_boundary(Store *store, int64_t offset, int64_t near) noexcept nogil:
    """Known record boundary at or before ``offset``: the nearest, or any within ``near`` bytes.

    Among many queues a few have a record nearby: a walk from it is cheaper than more searches.
    """
    cdef Queue *queue = first_queue(&store.table)
    cdef Unit unit
    cdef int64_t low, at
    cdef int64_t boundary = offset - offset % store.log.file_size
    memset(&unit, 0, sizeof(Unit))
    while queue != NULL and offset - boundary > near:
        low = atomic_get(&queue.min_offset)
        at = queue_first_at_or_after(queue, offset + 1, low, atomic_get(&queue.max_offset))
        if at > low and queue_unit_at(queue, at - 1, &unit) == 0 \
                and not unit_is_blank(&unit) and boundary < unit.physical_offset <= offset \
                and (load_derived(&queue.derived) != NULL
                     or unit_is_good(store, queue, at - 1)):
            boundary = unit.physical_offset
        queue = next_queue(queue)
    return boundary
