# Completion of queues from the log: each record's unit at exactly its queue offset.
#
# Beyond a queue's floor its files may never have been synced: any page or sector may be zeros.  A
# unit there counts once the walk meets its record; missing units are rewritten, or blank if no
# record names the offset.  Read-only mode does the same in memory: it sees a recovery's result.
#
# Source: store/ConsumeQueue.java putMessagePositionInfo, correctMinOffset

cdef enum:
    UNIT_LOST_SIZE = 1           # in memory only; smaller than any record


cdef int64_t queue_floor(
    Store *store, Queue *queue, int64_t limit, int64_t *last_end,
) noexcept nogil:
    """Queue offset after the leading units that need no second check, or -errno.

    Their records follow one another without overlap and end at or below the log offset ``limit``.
    Leading blank units count, later ones if another unit follows.
    """
    cdef Slice units
    cdef Unit unit
    cdef int64_t at = file_set_start(&queue.files) // UNIT_BYTES
    cdef int64_t floor = at
    cdef int64_t low = queue.topic.deleted_before
    cdef int64_t rc, i
    cdef bint blank = True                   # only blank units so far
    cdef bint good = True
    last_end[0] = 0
    while True:
        rc = queue_file_units(queue, at, FLOOR_UNITS, &units)
        if rc == E_NOT_FOUND or rc == E_REMOVED or rc == 0:
            slice_release(&units)
            rc = file_set_next_start(&queue.files, at * UNIT_BYTES)
            if rc < 0 or queue.files.writable:
                return floor
            at = rc // UNIT_BYTES            # read-only mode skips a missing file
            continue
        if rc < 0:
            return rc
        for i in range(rc):
            unit_read(units.data + i * UNIT_BYTES, &unit)
            if unit_is_blank(&unit):
                if blank:
                    floor = at + i + 1
                continue
            good = unit.size > 0 and low <= unit.physical_offset <= limit - unit.size
            if not good:
                break
            blank = False
            low = unit.physical_offset + unit.size
            floor = at + i + 1
        slice_release(&units)
        if not blank:
            last_end[0] = low
        if not good:
            return floor
        at += rc


cdef int64_t recover_unit(
    Store *store, Queue *queue, int64_t queue_offset, Unit *unit, int64_t *skipped,
) noexcept nogil:
    """Process the unit of a queue's next record: the number of units mended, or a status.

    E_REMOVED and ``store`` NULL: as for unit_action.
    """
    cdef int64_t more
    cdef int64_t rc = life_drop_restart(queue, queue_offset, unit)
    if rc < 0:
        return rc
    if life_begins(&queue.life, queue_offset, unit):
        queue_begin_life(queue)
        if queue.files.writable and life_takes_files(store, queue):
            rc = queue_trim(queue, 0)
        if rc == 0:
            rc = recover_unit_at(store, queue, queue.life.first, &queue.life.restart, skipped)
    if rc >= 0:
        more = recover_unit_at(store, queue, queue_offset, unit, skipped)
        rc = more if more < 0 else rc + more
    return rc


cdef bint life_takes_files(Store *store, Queue *queue) noexcept nogil:
    """Whether to drop the queue's files when ``life.restart`` becomes its first record.

    Opening leaves that to the end of the walk, except for files at a damaged record's too high
    offset: all files between would have to be created.
    """
    if store != NULL and queue.life.start != queue.life.restart.physical_offset:
        return queue.files.count and queue.life.first * UNIT_BYTES < queue.files.slots[0].start
    return store == NULL or atomic_peek(&store.state) != STATE_OPENING


cdef int64_t life_drop_restart(
    Queue *queue, int64_t queue_offset, const Unit *unit,
) noexcept nogil:
    """Drop a ``restart`` record that the queue's files contradict: 0, or a status.

    If a life has one message and the next record names the same offset, the log alone cannot show
    whether a new life began.  The files can: units of the first message and of the record after
    next are in position, and a new life would have replaced the first.
    """
    cdef Unit there
    cdef int64_t rc
    if not queue.life.newest_was_there or queue_offset != queue.life.next \
            or queue_offset != queue.life.restart_next:
        return 0
    rc = recovered_unit(queue, queue_offset, &there)
    if rc < 0:
        return 0 if rc == E_NOT_FOUND else rc
    if there.physical_offset == unit.physical_offset and there.size == unit.size:
        queue.life.restart_next = 0
    return 0


cdef int64_t recover_unit_at(
    Store *store, Queue *queue, int64_t at, Unit *unit, int64_t *skipped,
) noexcept nogil:
    """Place a unit if it belongs at ``at``: 1 if it was missing or wrong, 0, or a status."""
    cdef int64_t goes = unit_action(store, queue, at, unit)
    cdef int64_t rc
    skipped[0] += goes == UNIT_TOO_FAR
    if goes != UNIT_TO_WRITE and goes != UNIT_PRESENT:
        return min(goes, 0)
    if at + 1 == queue.life.next and queue.life.restart_next == 0:
        queue.life.newest_was_there = goes == UNIT_PRESENT
    rc = 0
    # Nearly always it follows the last unit, and there is no gap to fill.
    if at != atomic_peek(&queue.max_offset) or queue.files.count == 0 \
            or at * UNIT_BYTES < queue.files.slots[0].start:
        rc = recover_units_before(store, queue, at, unit)
    if rc == 0:
        rc = recover_write(store, queue, at, unit, goes)
    if rc < 0:
        return rc
    if at >= atomic_peek(&queue.max_offset):
        life_keep_room(queue, at, unit.physical_offset)
        atomic_set(&queue.last_end, unit.physical_offset + unit.size)
        atomic_set(&queue.files.wrote, (at + 1) * UNIT_BYTES)
        atomic_set(&queue.max_offset, at + 1)
    return goes == UNIT_TO_WRITE


cdef int64_t count_recovered(Store *store, Queue *queue, int64_t rc) noexcept nogil:
    """Count ``rc`` units written to a queue by a recovery; a negative ``rc`` is returned."""
    if rc > 0:
        store.recovery.units_written += rc
        if not queue.completed:
            queue.completed = True
            store.recovery.queues_rebuilt += 1
    return min(rc, 0)


cdef int64_t recover_record(
    Store *store, Queue *queue, const Record *record, int64_t code,
) noexcept nogil:
    """As recover_unit, from a record of the log."""
    cdef Unit unit
    cdef int64_t rc
    cdef int64_t skipped = 0
    unit.physical_offset = record.physical_offset
    unit.size = record.size
    unit.tags_code = code
    rc = recover_unit(store, queue, record.queue_offset, &unit, &skipped)
    atomic_add(&store.dispatch.skipped, skipped)
    return rc


cdef bint unit_names_gap(Store *store, const Unit *unit) noexcept nogil:
    """Whether a unit's record is in a file missing between two others."""
    return unit.size > 0 and file_set_gap(
        &store.log, unit.physical_offset, unit.physical_offset + 1) >= 0


cdef int64_t unit_stays(
    Store *store, Queue *queue, int64_t queue_offset, const Unit *unit,
) noexcept nogil:
    """1 if a unit not met by the walk stays: it holds, or its read must report damage or a gap."""
    cdef int64_t rc = unit_holds(store, queue, queue_offset, unit)
    if rc == 0 and store != NULL and not queue.files.writable:
        rc = unit_names_damage(&store.recovery, unit) or unit_names_gap(store, unit)
    return rc


cdef int64_t recover_units_before(
    Store *store, Queue *queue, int64_t queue_offset, const Unit *following,
) noexcept nogil:
    """Fill all positions between the queue's end, or its beginning, and ``queue_offset``.

    With blank units; a reader's units point into a missing log file before ``following``, if there
    is one, so that a read reports it.
    """
    cdef Unit unit
    cdef int64_t lost = E_NOT_FOUND
    cdef int64_t at = atomic_peek(&queue.max_offset)
    cdef int64_t stop = queue_offset
    cdef int64_t per_file = queue.files.file_size // UNIT_BYTES
    cdef int64_t rc
    if queue.files.count == 0 and at == 0 and queue.making == NULL:
        if queue.files.writable:             # only the part of the first file before it
            at = queue_offset - queue_offset % per_file
        else:
            at = queue_offset
        atomic_set(&queue.min_offset, queue_offset)
        atomic_set(&queue.files.flushed, at * UNIT_BYTES)
    elif queue.files.count and queue_offset < queue.files.slots[0].start // UNIT_BYTES:
        # Files before the first: nearest first, so that there is never a gap.
        stop = queue.files.slots[0].start // UNIT_BYTES
        at = stop
        while queue.files.writable and at > queue_offset:
            at -= per_file
            rc = queue_use_file(queue, at * UNIT_BYTES)
            if rc < 0:
                return rc
        at = min(at, queue_offset)
    elif queue.files.count:                  # begin of a later life of the queue
        at = max(at, queue.files.slots[0].start // UNIT_BYTES)
    if at < stop and store != NULL and not queue.files.writable:
        lost = file_set_gap(&store.log, atomic_peek(&queue.last_end), following.physical_offset)
    while at < stop:
        rc = recovered_unit(queue, at, &unit)
        if rc < 0 and rc != E_NOT_FOUND:
            return rc
        if rc == 0 and not unit_is_blank(&unit):
            rc = unit_stays(store, queue, at, &unit)
            if rc < 0:
                return rc
            rc = rc - 1
        if rc != 0:
            unit.physical_offset = max(lost, 0)
            unit.size = UNIT_BLANK_SIZE if lost < 0 else UNIT_LOST_SIZE
            unit.tags_code = 0
        rc = recover_write(store, queue, at, &unit,
                           UNIT_PRESENT if rc == 0 else UNIT_TO_WRITE)
        if rc < 0:
            return rc
        at += 1
    return 0


cdef int64_t recover_write(
    Store *store, Queue *queue, int64_t queue_offset, const Unit *unit, int64_t goes,
) noexcept nogil:
    """Write a unit to its position, in file or memory; UNIT_PRESENT: the file has it already."""
    cdef int64_t rc
    cdef int64_t code = unit.tags_code
    if not queue.files.writable:
        return derived_set(queue, queue_offset, unit, goes)
    if goes == UNIT_PRESENT:
        ext_keep(queue, unit)
        return 0
    if ext_is_written(queue) and not unit_is_blank(unit):
        code = ext_recovered_code(store, queue, queue_offset, unit)
    rc = queue_set_unit(queue, queue_offset, unit.physical_offset, unit.size, code)
    if rc == 0:
        atomic_set(&queue.files.flushed,
                   min(atomic_get(&queue.files.flushed), queue_offset * UNIT_BYTES))
    return rc


cdef int64_t derived_set(
    Queue *queue, int64_t queue_offset, const Unit *unit, int64_t goes,
) noexcept nogil:
    """Keep a unit in memory, from the first one missing in the files on."""
    cdef Derived *making = queue.making
    cdef int64_t rc
    if making == NULL:
        if goes == UNIT_PRESENT:
            return 0
        making = <Derived *>calloc(1, sizeof(Derived))
        if making == NULL:
            return E_NO_MEMORY
        making.start = queue_offset          # without files, the first unit
        if queue.files.count or atomic_peek(&queue.max_offset) > 0:
            making.start = min(queue_offset, max(queue.floor, atomic_peek(&queue.max_offset)))
        queue.making = making
        rc = derived_grow(making, max(queue_offset, atomic_peek(&queue.max_offset)))
        if rc < 0:
            return rc
        rc = derived_copy(queue, making, making.start,
                          max(queue_offset, atomic_peek(&queue.max_offset)))
        if rc < 0:
            return rc
        making.count = max(queue_offset, atomic_peek(&queue.max_offset)) - making.start
    elif queue_offset < making.start:
        rc = derived_begin_earlier(queue, making, queue_offset)
        if rc < 0:
            return rc
    rc = derived_grow(making, queue_offset + 1)
    if rc < 0:
        return rc
    unit_write(making.units + (queue_offset - making.start) * UNIT_BYTES, unit.physical_offset,
               unit.size, unit.tags_code)
    making.count = max(making.count, queue_offset + 1 - making.start)
    return 0


cdef int64_t derived_grow(Derived *derived, int64_t stop) noexcept nogil:
    """Make room for units up to the queue offset ``stop``."""
    cdef int64_t units = stop - derived.start
    cdef char *grown
    if units <= derived.room:
        return 0
    grown = <char *>realloc(derived.units, <size_t>((units * 2 + 64) * UNIT_BYTES))
    if grown == NULL:
        return E_NO_MEMORY
    derived.units = grown
    derived.room = units * 2 + 64
    return 0


cdef int64_t derived_copy(
    Queue *queue, Derived *derived, int64_t start, int64_t stop,
) noexcept nogil:
    """Copy [start, stop) from the files; missing units become blank."""
    cdef Unit unit
    cdef int64_t rc
    memset(&unit, 0, sizeof(Unit))
    while start < stop:
        rc = queue_near_unit(queue, start, &unit)
        if rc < 0 and rc != E_NOT_FOUND and rc != E_REMOVED:
            return rc
        if rc < 0 or unit.size <= 0:
            unit.physical_offset = 0
            unit.size = UNIT_BLANK_SIZE
            unit.tags_code = 0
        unit_write(derived.units + (start - derived.start) * UNIT_BYTES, unit.physical_offset,
                   unit.size, unit.tags_code)
        start += 1
    return 0


cdef int64_t derived_begin_earlier(
    Queue *queue, Derived *derived, int64_t start,
) noexcept nogil:
    """Move the beginning down to the queue offset ``start``."""
    cdef int64_t more = derived.start - start
    cdef int64_t was = derived.start
    cdef int64_t rc = derived_grow(derived, was + derived.count + more)
    if rc < 0:
        return rc
    memmove(derived.units + more * UNIT_BYTES, derived.units,
            <size_t>(derived.count * UNIT_BYTES))
    derived.start = start
    derived.count += more
    return derived_copy(queue, derived, start, was)


cdef int64_t recover_tail(Store *store, Queue *queue, int64_t end) noexcept nogil:
    """After the walk, keep good units beyond the queue's end.

    They are of multi-dispatch (records of other queues), or a reader's of lost records.  Returns
    the queue offset after an OFFSET_GIVEN mark, 0 without a mark, or a status.
    """
    cdef Unit unit
    cdef int64_t at = atomic_peek(&queue.max_offset)
    cdef int64_t stop = queue_stop(queue, at)
    cdef int64_t rc
    if stop < 0:
        return stop
    while at < stop:
        rc = recovered_unit(queue, at, &unit)
        if rc < 0 and rc != E_NOT_FOUND:
            return rc
        if rc == E_NOT_FOUND:                # no file: on to the next one, which may be far away
            rc = file_set_next_start(&queue.files, at * UNIT_BYTES)
            at = max(at + 1, rc // UNIT_BYTES if rc >= 0 else stop)
            continue
        if rc == 0 and 0 < unit.size <= end and unit.physical_offset <= end - unit.size \
                and unit.physical_offset >= atomic_peek(&queue.last_end):
            rc = unit_stays(store, queue, at, &unit)
            if rc < 0:
                return rc
            if rc:
                rc = recover_units_before(store, queue, at, &unit)
                if rc == 0:
                    rc = recover_write(store, queue, at, &unit, UNIT_PRESENT)
                if rc < 0:
                    return rc
                atomic_set(&queue.last_end, unit.physical_offset + unit.size)
                atomic_set(&queue.max_offset, at + 1)
        at += 1
    if stop > atomic_peek(&queue.max_offset) and queue.life.start == 0 \
            and recovered_unit(queue, stop - 1, &unit) == 0 \
            and unit.size == 0 and unit.tags_code == OFFSET_GIVEN:
        return stop
    return 0


cdef int64_t queue_stop(Queue *queue, int64_t first) noexcept nogil:
    """Queue offset after the last nonzero byte in the files; at least ``first``."""
    cdef char path[FAILURE_PATH_BYTES]
    cdef stat_t status
    cdef MappedFile plain
    cdef int64_t fd, start, from_byte, last
    cdef int64_t i = queue.files.count
    while i > 0:
        i -= 1
        start = queue.files.slots[i].start
        if start + queue.files.file_size <= first * UNIT_BYTES:
            break
        file_name(path, queue.files.directory, start)
        fd = sys_open_file(queue.files.root, path, O_RDONLY, &status)
        if fd < 0:
            if fd == -ENOENT and not queue.files.writable:
                continue
            return fd
        memset(&plain, 0, sizeof(MappedFile))
        plain.fd = <int>fd
        plain.size = min(queue.files.file_size, status.st_size)
        from_byte = max(0, first * UNIT_BYTES - start)
        last = mapped_file_last_used(&plain, from_byte) if from_byte < plain.size else from_byte
        close(<int>fd)
        if last < 0:
            return last
        if last > from_byte:
            return (start + last + UNIT_BYTES - 1) // UNIT_BYTES
    return first


cdef int64_t recover_first_unit(Store *store, Queue *queue) noexcept nogil:
    """Find the first good unit: earlier records with a higher offset are of another life."""
    cdef Unit unit
    cdef int64_t at = file_set_start(&queue.files) // UNIT_BYTES
    cdef int64_t stop = queue_stop(queue, at)
    cdef int64_t rc
    queue.first_offset = 0
    queue.first_physical = INT64_MOST
    while at < stop:
        rc = recovered_unit(queue, at, &unit)
        if rc < 0 and rc != E_NOT_FOUND:
            return rc
        if rc == 0:
            rc = at < queue.floor and unit.size > 0 and not unit_is_blank(&unit) \
                and unit.physical_offset >= queue.life.start
            if not rc:
                rc = unit_holds(store, queue, at, &unit)
            if rc < 0:
                return rc
            if rc:
                queue.first_offset = at
                queue.first_physical = unit.physical_offset
                return 0
        at += 1
    return 0
