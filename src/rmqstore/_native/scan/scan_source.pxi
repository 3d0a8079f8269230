# Source of a scan's records: the log, queues merged into log order, or offsets from the index.

cdef enum:
    ALONG_LOG
    ALONG_QUEUES
    ALONG_OFFSETS

    OFFSET_CHUNK = 2048          # bytes read for a record of unknown size

cdef struct ScanSource:
    int64_t along
    Cursor cursor
    MergedQueues queues
    Offsets offsets              # ascending
    int64_t next_offset          # position in ``offsets``
    int64_t read_to              # end of the last record read
    bint by_units                # along queues whose units are sure, and hold all that is wanted


cdef void source_free(ScanSource *source) noexcept nogil:
    merged_free(&source.queues)
    free(source.offsets.items)
    cursor_close(&source.cursor)
    memset(source, 0, sizeof(ScanSource))


cdef int64_t source_record_at(
    ScanSource *source, int64_t offset, int64_t size, Record *record, const char **data,
) noexcept nogil:
    """Record at an offset of the log, of ``size`` bytes (0: unknown)."""
    cdef Cursor *cursor = &source.cursor
    cdef int64_t rc
    if offset - source.read_to > NEAR_BYTES or offset < source.read_to:
        cursor.chunk = max(512, min(size if size else OFFSET_CHUNK, CURSOR_CHUNK))
    else:
        cursor.chunk = min(max(cursor.chunk * 2, 4096), CURSOR_CHUNK)
    cursor.at = offset
    cursor.stop = offset + 1
    rc = cursor_next(cursor, record, data)
    source.read_to = offset + max(rc, 0)
    if rc == 0 or (rc > 0 and record.physical_offset != offset):
        cursor.field = FIELD_MAGIC           # a blank, or beyond the end
        return E_CORRUPT
    return rc


cdef int64_t source_record_of(
    ScanSource *source, const Lane *lane, Record *record, const char **data,
) noexcept nogil:
    """As source_record_at, for a lane's unit, which must point to its own message.

    0: the record changed meanwhile, read again.
    """
    cdef int64_t rc
    if lane.unit.size <= 0:                  # an empty unit with others after it
        source.cursor.field = FIELD_UNIT
        return E_CORRUPT
    rc = source_record_at(source, lane.unit.physical_offset, lane.unit.size, record, data)
    if rc > 0 and (rc != lane.unit.size
                   or not record_is_of(data[0], record, lane.queue, lane.at)):
        if cursor_changed(&source.cursor, record, data[0]):
            return 0
        source.cursor.field = FIELD_QUEUE if rc == lane.unit.size else FIELD_UNIT
        rc = E_CORRUPT
    if rc == E_CORRUPT and unit_is_misplaced(lane.queue, lane.at, &lane.unit):
        source.cursor.field = FIELD_UNIT
    return rc


cdef int64_t source_next(
    ScanSource *source, const ScanFilter *filter, Record *record, const char **data,
) noexcept nogil:
    """Next record: its size, 0 at the end, or a status.

    After E_CORRUPT and E_REMOVED ``source_skip`` skips the bad or missing record.
    """
    cdef Store *store = source.cursor.store
    cdef Lane *lane
    cdef int64_t rc, offset
    source.queues.removed = NULL
    if source.along == ALONG_LOG:
        return cursor_next(&source.cursor, record, data)
    if source.along == ALONG_OFFSETS:
        if source.next_offset == source.offsets.count:
            return 0
        offset = source.offsets.items[source.next_offset]
        rc = source_record_at(source, offset, 0, record, data)
        if rc > 0:
            source.next_offset += 1
        return rc
    while source.queues.heap_count:
        if source.queues.taken:
            rc = merged_next(&source.queues)
            if rc < 0:
                return rc
            continue
        lane = &source.queues.lanes[source.queues.heap[0]]
        source.queues.taken = not unit_may_pass(filter, lane)
        if source.queues.taken:
            continue
        rc = source_record_of(source, lane, record, data)
        if rc == 0:
            continue
        if rc < 0:
            if store.writable or not unit_changes(
                    store, lane.queue, lane.at, &lane.unit, rc, source.cursor.field):
                return rc
            rc = merged_load_again(&source.queues)
            if rc < 0:
                return rc
            continue
        source.queues.taken = True
        # A record here by multi-dispatch is read in its own queue.
        if record_is_own(data[0], record, lane.queue, lane.at):
            return rc
        source.queues.taken = not cursor_changed(&source.cursor, record, data[0])
    return 0


cdef void source_step_back(ScanSource *source) noexcept nogil:
    """Return the last record once more."""
    if source.along == ALONG_OFFSETS:
        source.next_offset -= 1
    elif source.along == ALONG_QUEUES:
        source.queues.taken = False


cdef bint unit_may_pass(const ScanFilter *filter, const Lane *lane) noexcept nogil:
    """Whether the record may have the tags, judged by the unit; delivery times pass."""
    cdef MappedFile *near = NULL
    cdef bint passes
    if filter.messages.tags.count == 0 or lane.queue.topic.schedule or lane.unit.size <= 0:
        return True
    passes = unit_passes(&filter.messages.tags, lane.queue, &near, lane.unit.tags_code)
    mapped_file_release(near)                # not held: there may be thousands of queues
    return passes


cdef int64_t source_bad_offset(const ScanSource *source) noexcept nogil:
    """Log offset of the last failure."""
    if source.along == ALONG_QUEUES and source.queues.heap_count:
        return source.queues.lanes[source.queues.heap[0]].unit.physical_offset
    return source.cursor.at


cdef int64_t source_skip(ScanSource *source, int64_t rc) noexcept nogil:
    """Skip a bad or missing record: 1, 0 if nothing follows, another status."""
    cdef Cursor *cursor = &source.cursor
    cdef int64_t low
    if source.along == ALONG_OFFSETS:
        source.next_offset += 1
        return 1
    if source.along == ALONG_QUEUES:
        rc = merged_next(&source.queues) if source.queues.heap_count else 0
        return rc if rc < 0 else 1
    if rc == E_CORRUPT:
        return min(cursor_resync(cursor), 1)
    low = log_first(cursor.store)
    if low <= cursor.at:
        low = file_set_next_start(&cursor.store.log, cursor.at)
    if low < 0 or low >= cursor.stop:
        return 0
    cursor.at = low
    return 1
