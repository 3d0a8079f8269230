# Check that records without a unit belong in no queue, for a store closed without a watermark, as
# by a broker.  Reads only the gaps between the units' records.

cdef enum:
    GAP_CHUNK = 4096             # bytes read for a gap far from the last one


cdef int64_t gaps_are_unqueued(Store *store, int64_t start, int64_t stop) noexcept nogil:
    """1 if units and unqueued records cover [start, stop) of the log, else 0; or a status."""
    cdef Queue *queue = first_queue(&store.table)
    cdef MergedQueues merged
    cdef Cursor cursor
    cdef int64_t rc = 1
    memset(&merged, 0, sizeof(MergedQueues))
    merged.end = stop
    while queue != NULL and rc > 0:
        if not topic_is_light(queue.topic):
            rc = 0
            if not queue.unreadable:
                rc = merged_add(&merged, queue, start)
                rc = rc if rc < 0 else 1
        queue = next_queue(queue)
    if rc > 0:
        rc = merged_start(&merged)
    if rc == 0 and merged.lane_count:
        cursor_init(&cursor, store, start, stop)
        cursor.check_crc = False
        rc = gaps_walk(store, &merged, &cursor, start, stop)
        cursor_close(&cursor)
    merged_free(&merged)
    return 0 if rc == E_REMOVED or rc == E_NOT_FOUND else rc


cdef int64_t gaps_walk(
    Store *store, MergedQueues *merged, Cursor *cursor, int64_t start, int64_t stop,
) noexcept nogil:
    """gaps_are_unqueued, along the units in log order."""
    cdef Unit unit
    cdef int64_t at = start
    cdef int64_t rc = 1
    cdef int64_t next_at
    while rc > 0:
        next_at = heap_key(merged, 0) if merged.heap_count else stop
        if at != next_at:
            rc = gap_is_unqueued(store, cursor, at, next_at)
        if rc <= 0 or merged.heap_count == 0:
            break
        unit = merged.lanes[merged.heap[0]].unit
        if unit.size <= 0:
            return 0
        at = unit.physical_offset + unit.size
        rc = merged_next(merged)
        rc = rc if rc < 0 else 1
    return rc


cdef int64_t gap_is_unqueued(
    Store *store, Cursor *cursor, int64_t start, int64_t stop,
) noexcept nogil:
    """Whether [start, stop) consists of fillers and good records that belong in no queue."""
    cdef Record record
    cdef DispatchRequest request
    cdef const char *data = NULL
    cdef int64_t rc, wanted
    request.topic = NULL
    if start - cursor.at > NEAR_BYTES:
        cursor.chunk = GAP_CHUNK
    else:
        cursor.chunk = min(max(cursor.chunk * 2, GAP_CHUNK), CURSOR_CHUNK)
    cursor.at = start
    cursor.stop = stop
    while True:
        rc = cursor_next(cursor, &record, &data)
        if rc <= 0:
            break
        wanted = dispatch_request(&store.table, &store.settings, data, &record, &request)
        if wanted < 0 or wanted & REQUEST_UNIT:
            return min(wanted, 0)
    if rc == E_CORRUPT:
        return 0
    return rc if rc < 0 else cursor.at == stop
