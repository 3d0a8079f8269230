# Units of a record in its further queues.
#
# As in 4.9.3 the first record that names an offset keeps it.  A broker forgets the next offsets of
# light queues: after a restart they begin at 0.  The unit of offset 0 then goes to the queue's end,
# and the following ones are skipped until they pass it: unlike a record of the queue itself, none
# of them restarts the queue.
#
# Source: store/ConsumeQueue.java multiDispatchLmqQueue, putMessagePositionInfo

cdef int64_t multi_find_queue(
    TopicTable *table, const Record *record, const MultiName *entry, Queue **found,
) noexcept nogil:
    """Find a queue named by a record; NULL: its topic was deleted; E_NOT_FOUND: invalid name."""
    cdef Topic *topic
    cdef int32_t queue_id = multi_queue_id(entry, record.queue_id)
    found[0] = NULL
    if not 0 <= entry.queue_offset <= INT64_MOST // UNIT_BYTES - 2 \
            or entry.length > TOPIC_DIRECTORY_BYTES \
            or not topic_name_stored(entry.name, entry.length):
        return E_NOT_FOUND
    topic = topic_find(table, entry.name, entry.length)
    if topic == NULL:
        topic = topic_enter(table, entry.name, entry.length)
        if topic == NULL:
            return E_NO_MEMORY
    if record.physical_offset < topic.deleted_before:
        if record.physical_offset >= topic.noted_before:
            topic.gone = True
        return 0
    found[0] = queue_find(topic, queue_id)
    if found[0] == NULL:
        found[0] = queue_enter(table, topic, queue_id)
    return 0 if found[0] != NULL else E_NO_MEMORY


cdef inline int64_t multi_place(
    const Queue *queue, int64_t physical_offset, int64_t queue_offset,
) noexcept nogil:
    """Position of the unit of a record that names ``queue_offset``; -1: none now."""
    if not topic_is_light(queue.topic):
        return queue_offset
    return light_place(queue, physical_offset, queue_offset)


cdef inline int64_t light_place(
    const Queue *queue, int64_t physical_offset, int64_t queue_offset,
) noexcept nogil:
    """multi_place in a light queue.

    A record before the first unit's is the queue's first: its own file is missing.
    """
    cdef int64_t end = atomic_peek(&queue.max_offset)
    if queue_offset > 0 or end == 0 \
            or physical_offset < queue.first_physical < INT64_MOST:
        return queue_offset
    return end if physical_offset >= atomic_peek(&queue.last_end) else -1


cdef int64_t multi_recover_unit(
    Store *store, Queue *queue, const Record *record, int64_t queue_offset, int64_t code,
    int64_t *skipped,
) noexcept nogil:
    """As recover_record, for a further queue: 1 if the unit was missing or wrong, 0, a status."""
    cdef Unit unit
    unit.physical_offset = record.physical_offset
    unit.size = record.size
    unit.tags_code = code
    queue_offset = multi_place(queue, record.physical_offset, queue_offset)
    if queue_offset < 0:
        return 0
    return recover_unit_at(store, queue, queue_offset, &unit, skipped)


cdef int64_t multi_write_unit(
    Store *store, Queue *queue, const Record *record, int64_t queue_offset, int64_t code,
) noexcept nogil:
    """Write the unit at exactly its queue offset, unless another record has it."""
    cdef int64_t rc
    cdef int64_t skipped = 0
    if unlikely(atomic_peek(&store.state) == STATE_OPENING
                or record.physical_offset < store.dispatch.recovering_until):
        rc = multi_recover_unit(store, queue, record, queue_offset, code, &skipped)
        atomic_add(&store.dispatch.skipped, skipped)
        return count_recovered(store, queue, rc)
    if likely(queue_append_unit(queue, queue_offset, record.physical_offset, record.size, code)):
        store.recovery.units_written += 1
        return 0
    queue_offset = multi_place(queue, record.physical_offset, queue_offset)
    if queue_offset < atomic_peek(&queue.max_offset):
        return 0
    if not offset_is_likely(queue, queue_offset, record.physical_offset):
        atomic_add(&store.dispatch.skipped, 1)
        return 0
    rc = queue_put_unit(queue, queue_offset, record.physical_offset, record.size, code)
    if rc > 0:
        store.recovery.units_written += rc
    return min(rc, 0)


cdef int64_t multi_dispatch(
    Store *store, const Record *record, const StoreProperties *properties, int64_t code,
    Queue **refused,
) noexcept nogil:
    """Write a record's units in its further queues: 0, or a status and the queue ``refused``.

    Invalid names and offsets are skipped and counted.
    """
    cdef MultiNames names
    cdef MultiName entry
    cdef Queue *queue
    cdef int64_t rc = multi_begin(properties, &names)
    refused[0] = NULL
    if rc <= 0:
        atomic_add(&store.dispatch.skipped, -rc)
        return 0
    while multi_next(&names, &entry):
        rc = multi_find_queue(&store.table, record, &entry, &queue)
        if rc == E_NOT_FOUND:
            atomic_add(&store.dispatch.skipped, 1)
            continue
        if rc < 0:
            return rc
        if queue == NULL:
            continue
        KILL_POINT("before-light-unit")
        rc = multi_write_unit(store, queue, record, entry.queue_offset, code)
        if rc < 0:
            refused[0] = queue
            return rc
    return 0
