# Units of the schedule topic: delivery times forgotten by a recovery of 4.9.3.
#
# Source: store/schedule/ScheduleMessageService.java executeOnTimeup; store/DefaultMessageStore.java
#         load, which recovers before the schedule service knows the levels

# ms: lower tags codes are hashes, or, far below 0, ext addresses
cdef int64_t EARLIEST_TIME = 2147483648

SCHEDULE_TOPIC_NAME = SCHEDULE_TOPIC.decode("ascii")


cdef list forgotten_delays(OpenStore engine, object queue_id, int64_t start, int64_t count):
    cdef Memory memory = units_of_queue(engine, SCHEDULE_TOPIC_NAME, queue_id, start, start + count)
    cdef int64_t units = memory.length // UNIT_BYTES
    cdef int64_t i
    cdef Unit unit
    found = []
    for i in range(units):
        unit_read(memory.data + i * UNIT_BYTES, &unit)
        if unit.physical_offset >= 0 and unit.size > 0 and unit.size != UNIT_BLANK_SIZE \
                and EXT_ADDRESS < unit.tags_code < EARLIEST_TIME:
            found.append(start + i)
    return found


cdef bint set_delay_time(
    OpenStore engine, object queue_id, int64_t queue_offset, int64_t code,
) except -1:
    """Rewrite a unit in place, while nothing is dispatched."""
    cdef Store *store
    cdef Queue *queue
    cdef Unit unit
    cdef int64_t rc = E_NOT_FOUND
    store_writable(engine.store, engine._path)
    store = engine.store
    try:
        queue = find_queue(store, SCHEDULE_TOPIC_NAME, queue_id)
        if queue == NULL:
            return False
        with nogil:
            dispatch_lock_take(store)
            if queue_offset < atomic_peek(&queue.max_offset):
                rc = queue_unit_at(queue, queue_offset, &unit)
            if rc == 0:
                rc = queue_set_unit(queue, queue_offset, unit.physical_offset, unit.size, code)
            if rc == 0:
                atomic_set(&queue.files.flushed,
                           min(atomic_get(&queue.files.flushed), queue_offset * UNIT_BYTES))
            lock_give(&store.dispatch.lock)
        if rc == E_NOT_FOUND or rc == E_REMOVED:
            return False
        check(rc, NULL, engine._path)
        return True
    finally:
        store_leave(store)
