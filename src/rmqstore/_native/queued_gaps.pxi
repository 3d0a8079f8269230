# Whether the records that no unit names have no place in a queue: for a store that was closed
# and has no watermark, as a broker's. Only what lies between the units' records is read.
#
# Source: ours

cdef enum:
    GAP_CHUNK = 4096             # read for a gap that is far from the last one


cdef int64_t gaps_are_unqueued(Store *store, int64_t start, int64_t stop) noexcept nogil:
    """1 if units and such records lie end to end from ``start`` to ``stop``, else 0; a status."""
    cdef Queue *queue = first_queue(&store.table)
    cdef ScanSource source
    cdef Cursor cursor
    cdef int64_t rc = 1
    memset(&source, 0, sizeof(ScanSource))
    source.end = stop
    while queue != NULL and rc > 0:
        if not topic_is_light(queue.topic):
            rc = 0
            if not queue.unreadable:
                rc = source_add_lane(&source, queue, start)
                rc = rc if rc < 0 else 1
        queue = next_queue(queue)
    if rc > 0:
        rc = source_start_lanes(&source)
    if rc == 0 and source.lane_count:
        cursor_init(&cursor, store, start, stop)
        cursor.check_crc = False
        rc = gaps_walk(store, &source, &cursor, start, stop)
        cursor_close(&cursor)
    source_free(&source)
    return 0 if rc == E_REMOVED or rc == E_NOT_FOUND else rc


cdef int64_t gaps_walk(
    Store *store, ScanSource *source, Cursor *cursor, int64_t start, int64_t stop,
) noexcept nogil:
    """gaps_are_unqueued, along the units in the order of the log."""
    cdef Unit unit
    cdef int64_t at = start
    cdef int64_t rc = 1
    cdef int64_t next_at
    while rc > 0:
        next_at = heap_key(source, 0) if source.heap_count else stop
        if at != next_at:
            rc = gap_is_unqueued(store, cursor, at, next_at)
        if rc <= 0 or source.heap_count == 0:
            break
        unit = source.lanes[source.heap[0]].unit
        if unit.size <= 0:
            return 0
        at = unit.physical_offset + unit.size
        rc = lane_next(source)
        rc = rc if rc < 0 else 1
    return rc


cdef int64_t gap_is_unqueued(
    Store *store, Cursor *cursor, int64_t start, int64_t stop,
) noexcept nogil:
    """Whether good records without a place in a queue, and fillers, take [start, stop)."""
    cdef Record record
    cdef Said said
    cdef const char *data = NULL
    cdef int64_t rc, says
    said.topic = NULL
    if start - cursor.at > NEAR_BYTES:
        cursor.chunk = GAP_CHUNK
    else:
        cursor.chunk = min(max(cursor.chunk * 2, GAP_CHUNK), AHEAD_BYTES)
    cursor.at = start
    cursor.stop = stop
    while True:
        rc = cursor_next(cursor, &record, &data)
        if rc <= 0:
            break
        says = record_says(&store.table, &store.settings, data, &record, &said)
        if says < 0 or says & SAYS_UNIT:
            return min(says, 0)
    if rc == E_CORRUPT:
        return 0
    return rc if rc < 0 else cursor.at == stop
