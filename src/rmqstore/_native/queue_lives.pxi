# Which record of the log has a place of a queue where several name it.
#
# Along the log the queue offsets of a queue go up, until its topic is deleted and made again: then
# they begin with 0, and a broker leaves the records of the earlier life in the log. So what falls
# back to 0, or in front of where the queue began, is the beginning of a new life if the queue's
# next record follows it, and what the earlier life had goes. Alone it is a damaged record, as is
# any other that falls back. Within a life the unit that is at a place stays if it holds.
#
# A queue that is met for the first time may begin at any place, as in a log that was compacted.
# But a first record for whose place the log below it has no room, and which the next ones
# contradict, is damaged: it had no life that could end.
#
# Source: ours; 4.9.3 appends such units, store/ConsumeQueue.java putMessagePositionInfo

cdef enum:
    GOES_NOT                     # of an earlier life, not what it says, or the place is taken
    GOES                         # to its place
    GOES_SAME                    # and is there
    GOES_TOO_FAR                 # the gap before it cannot be

    NEAR_UNITS = 256             # read together by who only reads


cdef inline bint life_begins(Life *life, int64_t queue_offset, const Unit *unit) noexcept nogil:
    """Take in a queue's next record; whether a new life began with the one kept as ``restart``."""
    cdef bint follows = 0 < life.restart_next == queue_offset
    if unit.physical_offset < life.seen_until:
        return False                         # a batch is done again
    life.seen_until = unit.physical_offset + 1
    if life.next == 0:
        life.first = queue_offset
        life.doubtful = not gap_is_likely(queue_offset, unit.physical_offset)
    elif queue_offset >= life.next:
        life.doubtful = False
    if queue_offset < life.next and not follows:
        life.restart = unit[0]
        life.restart_next = queue_offset + 1
        return False
    life.next = queue_offset + 1
    life.restart_next = 0
    if not follows or 0 < queue_offset - 1 >= life.first:
        return False
    life.first = queue_offset - 1
    if not life.doubtful:
        life.start = life.restart.physical_offset
    life.doubtful = False
    return True


cdef void queue_begin_life(Queue *queue) noexcept nogil:
    """Empty a queue: the unit of ``life.restart`` is the first one that it gets.

    Units of the new life that are in its files count once their records are met.
    """
    derived_free(queue.making)
    queue.making = NULL
    queue.floor = 0
    queue.first_offset = 0
    queue.first_physical = INT64_MOST
    atomic_set(&queue.min_offset, 0)
    atomic_set(&queue.max_offset, 0)
    atomic_set(&queue.last_end, 0)
    atomic_set(&queue.files.wrote, 0)
    atomic_set(&queue.files.flushed, file_set_start(&queue.files))


cdef int64_t unit_goes(
    Store *store, Queue *queue, int64_t queue_offset, Unit *unit,
) noexcept nogil:
    """Whether a record's unit goes to its place: GOES_..., or a status.

    With GOES_SAME ``unit`` is the one that is there. E_REMOVED: records before it have to be met
    as well. Without a store the queue has nothing but units of records that were good just now.
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
        return GOES_NOT
    if queue_offset > end and store != NULL:
        # The unit at the end names the record, and the record another place: one is damaged.
        rc = recovered_unit(queue, end, &there)
        if rc == 0 and there.physical_offset == physical_offset and there.size == unit.size:
            return GOES_NOT
        if not store.recovery.full_dispatch:
            return E_REMOVED
    if queue_offset < end or store != NULL:
        rc = recovered_unit(queue, queue_offset, &there)
        if rc < 0 and rc != E_NOT_FOUND:
            return rc
        if rc == 0 and there.physical_offset == physical_offset and there.size == unit.size and (
                there.tags_code == unit.tags_code or unit_code_is_given(queue, &there)):
            unit[0] = there
            return GOES_SAME
        if rc == 0 and there.physical_offset != physical_offset and not PLANTED("a5"):
            rc = unit_holds(store, queue, queue_offset, &there)
            if rc != 0:
                return rc if rc < 0 else GOES_NOT
    if queue_offset < queue.life.first and queue_offset + 1 == queue.life.restart_next:
        return GOES_NOT                      # until the next one follows it
    return GOES if offset_is_likely(queue, queue_offset, physical_offset) else GOES_TOO_FAR


cdef int64_t unit_holds(
    Store *store, Queue *queue, int64_t queue_offset, const Unit *unit,
) noexcept nogil:
    """1 if a unit's record checks and names its place, and lies behind its predecessor's; 0."""
    cdef Unit before
    cdef Found found
    cdef int64_t rc, field
    if unit.size == 0 and PLANTED("a2"):
        return 1
    if unit.size <= 0 or unit_is_blank(unit) or unit.physical_offset < queue.life.start:
        return 0
    if store != NULL and (
            unit.physical_offset < queue.topic.deleted_before
            or (not store.writable and never_synced(store, unit.physical_offset))):
        return 0
    if 0 < queue_offset <= atomic_peek(&queue.max_offset):
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
    """The unit that is there as of now: 0, E_NOT_FOUND, or -errno."""
    cdef Derived *making = queue.making
    cdef int64_t rc
    if making != NULL and making.start <= queue_offset < making.start + making.count:
        unit_read(making.units + (queue_offset - making.start) * UNIT_BYTES, unit)
        return 0
    rc = queue_near_unit(queue, queue_offset, unit)
    return E_NOT_FOUND if rc == E_REMOVED else rc


cdef int64_t queue_near_unit(Queue *queue, int64_t queue_offset, Unit *unit) noexcept nogil:
    """As queue_file_unit, for who asks for one unit after the other and does not map the files."""
    cdef int64_t rc
    if queue.files.writable:
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


cdef int64_t queue_trim(Queue *queue, int64_t stop) noexcept nogil:
    """Unlink the files that begin at byte ``stop`` of the queue or behind it.

    An earlier life of the topic had them. A broker takes a queue's end to be where the last but
    two begins if the last three are empty.
    """
    cdef char path[FAILURE_PATH_BYTES]
    cdef FileSlot *last
    cdef int64_t rc = 0
    mapped_file_release(queue.current)
    queue.current = NULL
    pthread_mutex_lock(&queue.files.mutex)
    while queue.files.count and rc == 0:
        last = &queue.files.slots[queue.files.count - 1]
        if last.start < stop:
            break
        file_name(path, queue.files.directory, last.start)
        rc = sys_unlink(queue.files.root, path)
        if rc == 0:
            mapped_file_release(last.file)
            queue.files.count -= 1
            atomic_set(&queue.names_dirty, 1)
    pthread_mutex_unlock(&queue.files.mutex)
    return rc
