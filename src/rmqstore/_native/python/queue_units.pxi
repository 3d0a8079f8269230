# A queue's ends, units and store times.

cdef object queue_bounds_of(OpenStore engine, object topic, object queue_id):
    cdef Store *store = engine.entered()
    cdef Queue *queue
    cdef Got got
    cdef int64_t rc
    try:
        if store.writable:
            with nogil:
                wait_for_earlier_puts(store)
        queue = find_queue(store, topic, queue_id)
        if queue == NULL:
            return None
        memset(&got, 0, sizeof(Got))
        with nogil:
            rc = queue_bounds(store, queue, INT64_MOST, &got)
        if rc < 0:
            raise unreadable_error(store, queue, rc, engine._path)
        return got.min_offset, got.max_offset
    finally:
        store_leave(store)


cdef Memory units_of_queue(
    OpenStore engine, object topic, object queue_id, int64_t start, int64_t stop,
):
    cdef Store *store = engine.entered()
    cdef Queue *queue
    cdef Slice slice
    cdef Memory memory
    cdef int64_t rc, at
    try:
        queue = find_queue(store, topic, queue_id)
        memory = memory_new(max(0, stop - start) * UNIT_BYTES if queue != NULL else 0)
        at = start
        while queue != NULL and at < stop:
            with nogil:
                rc = queue_units(queue, at, stop - at, &slice)
            if rc <= 0:
                slice_release(&slice)
                raise unreadable_error(store, queue, rc if rc < 0 else E_REMOVED, engine._path)
            memcpy(memory.data + (at - start) * UNIT_BYTES, slice.data,
                   <size_t>(rc * UNIT_BYTES))
            at += rc
            rc = slice_lost(&slice)
            slice_release(&slice)
            if rc < 0:
                raise status_error(rc, NULL, engine._path)
        return memory
    finally:
        store_leave(store)


cdef object store_time_of(OpenStore engine, object topic, object queue_id, int64_t queue_offset):
    cdef Store *store = engine.entered()
    cdef Queue *queue
    cdef Unit unit
    cdef Found found
    cdef Got got
    cdef int64_t rc
    memset(&got, 0, sizeof(Got))
    try:
        queue = find_queue(store, topic, queue_id)
        if queue == NULL:
            return -1
        with nogil:
            rc = queue_unit_at(queue, queue_offset, &unit)
            if rc == 0:
                rc = queue_record(store, queue, queue_offset, &unit, &found, &got.field)
        if rc == E_REMOVED or rc == E_NOT_FOUND:
            return -1
        if rc <= 0:
            got.bad_offset = unit.physical_offset
            got.queue = queue
            raise read_error(engine, store, rc, &got)
        time = found.record.store_timestamp
        slice_release(&found.slice)
        return time
    finally:
        store_leave(store)
