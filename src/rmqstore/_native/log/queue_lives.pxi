# Ownership of a queue offset that several records of the log name.
#
# A queue's offsets ascend along the log until its topic is deleted and recreated: they restart at
# 0, and a broker leaves the earlier life's records in the log.  So a record that falls back to 0,
# or to before the queue's beginning, starts a new life if the queue's next record continues it, and
# the earlier life's units go.  Without a continuation it is damaged, like any other record that
# falls back.  Within a life, a unit already in position stays if it holds.
#
# A queue may begin at any offset, as in a compacted log.  But a first record whose offset is too
# high for the log below it, and contradicted by the next ones, is damaged: no life to end.  A bit
# may be flipped alike in later ones: until two consecutive records continue the first, it stays in
# doubt, and any record that can follow the lower one ends it.
#
# Source: 4.9.3 appends such units, store/ConsumeQueue.java putMessagePositionInfo

cdef enum:
    UNIT_SKIPPED                 # of an earlier life, wrong, or its position is taken
    UNIT_TO_WRITE                # missing in its position, or wrong there
    UNIT_PRESENT                 # already there
    UNIT_TOO_FAR                 # the gap before it is impossible

    NEAR_UNITS = 256             # units that read-only mode reads at a time


cdef inline bint gap_is_likely(int64_t missing, int64_t bytes_between) noexcept nogil:
    return missing <= bytes_between // RECORD_FIXED_BYTES


cdef inline bint first_is_likely(
    Queue *queue, int64_t queue_offset, int64_t physical_offset,
) noexcept nogil:
    """Whether an empty queue can begin at that offset: anywhere, but not far beyond its files."""
    return queue.files.count == 0 or gap_is_likely(queue_offset, physical_offset) \
        or queue_offset * UNIT_BYTES < file_set_stop(&queue.files)


cdef inline bint offset_is_likely(
    Queue *queue, int64_t queue_offset, int64_t physical_offset,
) noexcept nogil:
    """Whether the log has room for the messages missing before a record.

    BODYCRC does not cover QUEUEOFFSET: a flipped bit could fill in millions of units.
    """
    cdef int64_t known = atomic_peek(&queue.max_offset)
    if known == 0:
        return first_is_likely(queue, queue_offset, physical_offset)
    return queue_offset <= known or gap_is_likely(
        queue_offset - known, physical_offset - atomic_peek(&queue.last_end))


cdef inline bint recovered_offset_is_likely(
    Queue *queue, int64_t queue_offset, int64_t physical_offset,
) noexcept nogil:
    """As offset_is_likely, also after a newest unit whose record's queue offset is too low.

    The messages missing before that record then count as missing after it.
    """
    return offset_is_likely(queue, queue_offset - queue.life.room, physical_offset)


cdef inline void life_keep_room(Queue *queue, int64_t queue_offset, int64_t start) noexcept nogil:
    """Note how many more missing messages fit before a queue's next unit than its offset shows."""
    cdef int64_t room = (start - atomic_peek(&queue.last_end)) // RECORD_FIXED_BYTES
    queue.life.room = max(room - (queue_offset - atomic_peek(&queue.max_offset)), 0)


cdef inline bint life_begins(Life *life, int64_t queue_offset, const Unit *unit) noexcept nogil:
    """Process a queue's next record; whether it confirms a new life from ``restart``."""
    cdef int64_t first = life.restart_next - 1
    cdef bint follows = 0 < life.restart_next == queue_offset
    if unit.physical_offset < life.seen_until:
        return False                         # seen before: a batch is repeated
    life.seen_until = unit.physical_offset + 1
    if life.next == 0:
        life.first = queue_offset
        life.doubtful = not gap_is_likely(queue_offset, unit.physical_offset)
    elif life.doubtful and first >= 0 and queue_offset != life.next:
        if queue_offset > life.next:
            life.next = queue_offset + 1
            return False                     # like the first one: perhaps damaged alike
        follows = follows or (queue_offset > first and gap_is_likely(
            queue_offset - life.restart_next,
            unit.physical_offset - life.restart.physical_offset - life.restart.size))
    elif queue_offset >= life.next:
        life.doubtful = False
    if queue_offset < life.next and not follows:
        life.restart = unit[0]
        life.restart_next = queue_offset + 1
        return False
    life.next = queue_offset + 1
    life.restart_next = 0
    if not follows or 0 < first >= life.first:
        return False
    life.first = first
    if not life.doubtful:
        life.start = life.restart.physical_offset
    life.doubtful = False
    return True


cdef void queue_begin_life(Queue *queue) noexcept nogil:
    """Empty a queue; ``life.restart`` becomes its first unit.

    Units of the new life already in its files count once the walk meets their records.
    """
    derived_free(queue.making)
    queue.making = NULL
    queue.floor = 0
    queue.first_offset = 0
    queue.first_physical = INT64_MOST
    atomic_set(&queue.min_offset, 0)
    atomic_set(&queue.max_offset, 0)
    atomic_set(&queue.last_end, 0)
    queue.life.room = 0
    atomic_set(&queue.files.wrote, 0)
    atomic_set(&queue.files.flushed, file_set_start(&queue.files))


cdef int64_t unit_action(
    Store *store, Queue *queue, int64_t queue_offset, Unit *unit,
) noexcept nogil:
    """Classify a record's unit: UNIT_..., or a status; UNIT_PRESENT sets ``unit`` from the queue.

    E_REMOVED: the walk must restart at an earlier record.  ``store`` NULL: all units of the queue
    are of records just verified.
    """
    cdef Unit there
    cdef int64_t physical_offset = unit.physical_offset
    cdef int64_t end = atomic_peek(&queue.max_offset)
    cdef int64_t rc
    if physical_offset < queue.life.start or (
            physical_offset < queue.life.known_until
            and not queue.life.first <= queue_offset < end) or (
            physical_offset < queue.first_physical < INT64_MOST
            and queue_offset >= queue.first_offset) or (
            physical_offset > queue.first_physical and queue_offset < queue.first_offset):
        return UNIT_SKIPPED
    if queue_offset > end and store != NULL:
        # The last unit names the record, but the record another offset: one of them is damaged.
        rc = recovered_unit(queue, end, &there)
        if rc == 0 and there.physical_offset == physical_offset and there.size == unit.size:
            return UNIT_SKIPPED
        if not store.recovery.full_dispatch:
            return E_REMOVED
    if queue_offset < end or store != NULL:
        rc = recovered_unit(queue, queue_offset, &there)
        if rc < 0 and rc != E_NOT_FOUND:
            return rc
        if rc == 0 and there.physical_offset == physical_offset and there.size == unit.size and (
                there.tags_code == unit.tags_code
                or unit_code_stays(store, queue, queue_offset, &there, unit)):
            unit[0] = there
            return UNIT_PRESENT
        if rc == 0 and there.physical_offset != physical_offset:
            rc = unit_holds(store, queue, queue_offset, &there)
            if rc != 0:
                return rc if rc < 0 else UNIT_SKIPPED
    if queue_offset < queue.life.first and queue_offset + 1 == queue.life.restart_next:
        return UNIT_SKIPPED                  # until the next record confirms it
    return UNIT_TO_WRITE if recovered_offset_is_likely(
        queue, queue_offset, physical_offset) else UNIT_TOO_FAR


cdef bint unit_code_stays(
    Store *store, Queue *queue, int64_t queue_offset, const Unit *there, const Unit *unit,
) noexcept nogil:
    """Whether a unit keeps a tags code that is not its record's."""
    if there.tags_code <= EXT_ADDRESS:
        return ext_address_stays(store, queue, queue_offset, there, unit.tags_code)
    return queue.topic != NULL and queue.topic.schedule


cdef int64_t unit_holds(
    Store *store, Queue *queue, int64_t queue_offset, const Unit *unit,
) noexcept nogil:
    """1 if a unit's record is good, names its queue offset and follows its predecessor's; or 0."""
    cdef Unit before
    cdef Found found
    cdef int64_t rc, field
    if unit.size <= 0 or unit_is_blank(unit) or unit.physical_offset < queue.life.start:
        return 0
    if store != NULL and (
            unit.physical_offset < queue.topic.deleted_before
            or (not store.writable and never_synced(&store.recovery, unit.physical_offset))):
        return 0
    if 0 < queue_offset <= atomic_peek(&queue.max_offset):
        memset(&before, 0, sizeof(Unit))
        rc = recovered_unit(queue, queue_offset - 1, &before)
        if rc < 0 and rc != E_NOT_FOUND:
            return rc
        if rc == 0 and before.size > 0 and not unit_is_blank(&before) \
                and before.physical_offset >= unit.physical_offset:
            return 0
    if store == NULL:
        return 1
    rc = queue_record(store, queue, queue_offset, unit, &found, &field)
    if rc > 0:
        slice_release(&found.slice)
        return 1
    return rc if -4096 < rc < 0 or rc == E_NO_MEMORY else 0


cdef int64_t recovered_unit(Queue *queue, int64_t queue_offset, Unit *unit) noexcept nogil:
    """Read the current unit at a queue offset: 0, E_NOT_FOUND, or -errno."""
    cdef Derived *making = queue.making
    cdef int64_t rc
    if making != NULL and making.start <= queue_offset < making.start + making.count:
        unit_read(making.units + (queue_offset - making.start) * UNIT_BYTES, unit)
        return 0
    rc = queue_near_unit(queue, queue_offset, unit)
    return E_NOT_FOUND if rc == E_REMOVED else rc


cdef int64_t queue_near_unit(Queue *queue, int64_t queue_offset, Unit *unit) noexcept nogil:
    """As queue_file_unit, for sequential reads of files that are not mapped."""
    cdef MappedFile *file = queue.current
    cdef int64_t position, rc
    if queue.files.writable:
        # The file being written, without a search and its lock.
        if file != NULL and queue_offset * UNIT_BYTES >= file.start:
            position = queue_offset * UNIT_BYTES - file.start
            if queue.zeroed < position + UNIT_BYTES <= file.size:
                memset(unit, 0, sizeof(Unit))        # not written yet: not even zeros
                return 0
            if position + UNIT_BYTES <= min(file.size, atomic_peek(&file.reserved)):
                unit_read(file.base + position, unit)
                return mapped_file_lost(file, position, position + UNIT_BYTES)
        return queue_file_unit(queue, queue_offset, unit)
    if not queue.near_start <= queue_offset < queue.near_start + queue.near_count:
        queue_forget_near(queue)
        rc = queue_file_units(queue, queue_offset, NEAR_UNITS, &queue.near)
        if rc <= 0:
            slice_release(&queue.near)
            return rc if rc < 0 else E_NOT_FOUND
        queue.near_start = queue_offset
        queue.near_count = rc
    unit_read(queue.near.data + (queue_offset - queue.near_start) * UNIT_BYTES, unit)
    return 0


cdef void queue_forget_near(Queue *queue) noexcept nogil:
    slice_release(&queue.near)
    queue.near_count = 0
