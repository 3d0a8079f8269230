# Ends, units and store times of a queue.

# For a writer, all but the wait for earlier puts is a look at memory. The GIL is kept: another
# thread would have it for its whole turn, thousands of times where each queue is asked for.
cdef enum:
    PLACES_STEP = 1024           # of which the GIL is held, at most
    SIZED_UNITS = 4096           # at a time: they stay in a core's cache


cdef void wait_if_behind(Store *store):
    """Wait for earlier puts of a writer."""
    if store.writable and atomic_get(&store.dispatch.dispatched) < atomic_get_strict(
            &store.log.wrote):
        with nogil:
            wait_for_earlier_puts(store)


cdef object bounds_now(OpenStore engine, Store *store, object topic, object queue_id):
    """(min, max) of a queue, without a wait; None without one."""
    cdef Queue *queue = find_queue(store, topic, queue_id)
    cdef Got got
    cdef int64_t rc
    if queue == NULL:
        return None
    memset(&got, 0, sizeof(Got))
    got.at_once = True
    if store.writable:
        rc = queue_bounds(store, queue, INT64_MOST, &got)
    else:
        with nogil:
            rc = queue_bounds(store, queue, INT64_MOST, &got)
    if rc < 0:
        raise unreadable_error(store, queue, rc, engine._path)
    return got.min_offset, got.max_offset


cdef object queue_bounds_of(OpenStore engine, object topic, object queue_id):
    cdef Store *store = engine.entered()
    try:
        wait_if_behind(store)
        return bounds_now(engine, store, topic, queue_id)
    finally:
        store_leave(store)


cdef list queue_bounds_of_each(OpenStore engine, places):
    cdef Store *store = engine.entered()
    cdef list found = []
    try:
        wait_if_behind(store)
        for topic, queue_id in places:
            found.append(bounds_now(engine, store, topic, queue_id))
            if len(found) % PLACES_STEP == 0:
                with nogil:                  # others that wait for it
                    pass
        return found
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
                rc = units_as_they_are(store, queue, at, stop - at, &slice)
            if rc > 0:
                memcpy(memory.data + (at - start) * UNIT_BYTES, slice.data,
                       <size_t>(rc * UNIT_BYTES))
                at += rc
                rc = slice_lost(&slice)
            else:
                rc = rc if rc < 0 else E_REMOVED
            slice_release(&slice)
            if rc < 0:
                raise units_error(engine, store, queue, at, rc)
        return memory
    finally:
        store_leave(store)


cdef object units_error(
    OpenStore engine, Store *store, Queue *queue, int64_t at, int64_t status,
):
    """Error of a status that ended a read of units at ``at``."""
    if status == E_NOT_FOUND and queue_file_is_missing(queue, at):
        return corrupt_unit(engine._path, &queue.files, at * UNIT_BYTES, FIELD_MISSING)
    return unreadable_error(
        store, queue, E_REMOVED if status == E_NOT_FOUND else status, engine._path)


cdef int64_t add_sizes(
    Store *store, Queue *queue, int64_t *at, int64_t stop, int64_t *records, int64_t *total,
) noexcept nogil:
    """Count and sum the records of units from ``at`` to ``stop``; 0, or a status at ``at``."""
    cdef Slice slice
    cdef int64_t rc, i
    cdef int32_t size
    while at[0] < stop:
        rc = units_as_they_are(store, queue, at[0], min(stop - at[0], SIZED_UNITS), &slice)
        if rc <= 0:
            slice_release(&slice)
            return rc if rc < 0 else E_REMOVED
        for i in range(rc):
            size = get_i32(slice.data + i * UNIT_BYTES + UNIT_SIZE)
            if 0 < size < UNIT_BLANK_SIZE:
                records[0] += 1
                total[0] += size
        at[0] += rc
        rc = slice_lost(&slice)
        slice_release(&slice)
        if rc < 0:
            return rc
    return 0


cdef tuple queued_size_of(
    OpenStore engine, object topic, object queue_id, int64_t start, int64_t stop,
):
    """Number and bytes of the records of units [start, stop) of a queue."""
    cdef Store *store = engine.entered()
    cdef Queue *queue
    cdef int64_t records = 0
    cdef int64_t total = 0
    cdef int64_t rc = 0
    try:
        queue = find_queue(store, topic, queue_id)
        if queue != NULL:
            with nogil:
                rc = add_sizes(store, queue, &start, stop, &records, &total)
            if rc < 0:
                raise units_error(engine, store, queue, start, rc)
        return records, total
    finally:
        store_leave(store)


cdef object store_time_of(OpenStore engine, object topic, object queue_id, int64_t queue_offset):
    cdef Store *store = engine.entered()
    cdef Queue *queue
    cdef TimeSearch search
    cdef int64_t time
    try:
        queue = find_queue(store, topic, queue_id)
        # After the last unit the file has zeros, which are no units.
        if queue == NULL or queue_offset < 0 or (
                store.writable and queue_offset >= atomic_get(&queue.max_offset)):
            return -1
        with nogil:
            time_search_begin(&search, store, queue)
            time = search_time(&search, queue_offset)
            time_search_end(&search)
        if time < 0 and time != E_NOT_FOUND:
            raise time_error(engine, &search, time)
        return max(time, -1)
    finally:
        store_leave(store)


cdef object first_after(
    OpenStore engine, object topic, object queue_id, int64_t millis, object bounds, bint last,
):
    """Queue offset between messages stored until a time and later: see offset_by_time."""
    cdef Store *store = engine.entered()
    cdef Topic *named
    cdef Queue *queue = NULL
    cdef TimeSearch search
    cdef Got got
    cdef bint known = bounds is not None
    cdef int64_t length = 0
    cdef int64_t low = 0
    cdef int64_t high = -1
    cdef int64_t rc = 0
    cdef int64_t found = 0
    cdef const char *name
    cdef int32_t id
    try:
        name = utf8_of("topic", topic, &length)
        id = <int32_t>int_argument("queue_id", queue_id, 0, 0x7FFFFFFF)
        if known:
            low, high = bounds
        memset(&got, 0, sizeof(Got))
        with nogil:
            if store.writable and not known:
                wait_for_earlier_puts(store)
            refresh_queues(store)
            named = topic_find(&store.table, name, length)
            queue = NULL if named == NULL else queue_find(named, id)
            if queue != NULL and not known:
                rc = queue_bounds(store, queue, 0 if store.writable else INT64_MOST, &got)
                low = got.min_offset
                high = got.max_offset
            if queue != NULL and rc >= 0:
                time_search_begin(&search, store, queue)
                found = offset_by_time(
                    &search, millis, low, high, TIME_AFTER_LAST if last else TIME_FIRST_LATER)
                if found != E_BUSY:
                    time_search_end(&search)
        if found == E_BUSY:
            found = first_after_long(engine, &search)
        if rc < 0:
            raise unreadable_error(store, queue, rc, engine._path)
        if found < 0:
            raise time_error(engine, &search, found)
        return found
    finally:
        store_leave(store)


cdef int64_t first_after_long(OpenStore engine, TimeSearch *search) except? E_BUSY:
    """Complete a long search, in slices, to handle signals."""
    cdef int64_t found = E_BUSY
    try:
        while found == E_BUSY:
            PyErr_CheckSignals()
            store_leave(engine.entered())    # raises once it is being closed
            with nogil:
                found = each_by_time(search)
    finally:
        with nogil:
            time_search_end(search)
    return found


cdef object time_error(OpenStore engine, TimeSearch *search, int64_t status):
    cdef Got got
    memset(&got, 0, sizeof(Got))
    got.queue = search.queue
    got.field = search.field
    got.bad_offset = search.bad_offset
    got.unit_is_bad = search.field == FIELD_UNIT
    return read_error(engine, search.store, status, &got)
