# verify="full" in read-only mode: checks every record of the log, and each unit against its record.
# Changes and refuses nothing: returns its findings.

cdef struct Verified:
    Offsets ranges               # start and stop of bytes that are no good record, in pairs
    Offsets units                # queue offsets of units that contradict their records
    int64_t records
    int64_t checked_units


cdef int64_t verify_log(Store *store, Verified *found) noexcept nogil:
    """Walk the whole log; 0 or a status."""
    cdef Cursor cursor
    cdef Record record
    cdef const char *data = NULL
    cdef int64_t rc, start
    cdef int64_t end = log_end(store)
    if end < 0:
        return end
    # A live owner writes beyond this end; without one, all nonzero bytes are checked.
    if not store.view.owned_elsewhere:
        end = log_used(store, end)
        if end < 0:
            return end
    cursor_init(&cursor, store, log_first(store), end)
    cursor.report_removed = True
    while True:
        rc = cursor_next(&cursor, &record, &data)
        if rc > 0 and not is_left_out(store, data, &record):
            found.records += 1
            continue
        if rc > 0:
            if offsets_add(&found.ranges, record.physical_offset) < 0 \
                    or offsets_add(&found.ranges, record.physical_offset + rc) < 0:
                rc = E_NO_MEMORY
                break
            continue
        if rc == E_REMOVED and cursor.at < log_first(store):
            cursor.at = log_first(store)     # an owner's retention removed it meanwhile
            continue
        if rc != E_CORRUPT:
            break
        start = cursor.at
        rc = cursor_resync(&cursor)
        if rc < 0:
            break
        if offsets_add(&found.ranges, start) < 0 \
                or offsets_add(&found.ranges, cursor.at if rc else end) < 0:
            rc = E_NO_MEMORY
            break
        if rc == 0:
            break
    cursor_close(&cursor)
    return min(rc, 0)


cdef int64_t verify_queue(Store *store, Queue *queue, Verified *found) noexcept nogil:
    """Compare a queue's units with their records; 0 or a status."""
    cdef Unit unit
    cdef Found record
    cdef int64_t rc, code
    cdef int64_t field = FIELD_NONE
    cdef int64_t stop = atomic_get(&queue.max_offset)
    cdef int64_t at = atomic_get(&queue.min_offset)
    found.units.count = 0
    if queue.unreadable:
        return queue.unreadable
    while at < stop:
        rc = queue_unit_at(queue, at, &unit)
        if rc < 0 and rc != E_NOT_FOUND and rc != E_REMOVED:
            return rc
        if rc == 0 and unit_is_blank(&unit):
            at += 1
            continue
        if rc == 0:
            rc = queue_record(store, queue, at, &unit, &record, &field)
        if rc > 0:
            code = record_tags_code(record.slice.data, &record.record)
            slice_release(&record.slice)
            if unit.tags_code != code and not unit_code_is_given(queue, &unit):
                rc = E_CORRUPT
        if -4096 < rc < 0 or rc == E_NO_MEMORY:
            return rc
        if rc == E_CORRUPT and not store.writable \
                and unit_changes(store, queue, at, &unit, rc, field):
            continue
        if (rc == E_REMOVED or rc == E_NOT_FOUND) and unit_was_removed(store, queue, at):
            at = atomic_get(&queue.min_offset)
            continue
        found.checked_units += 1
        if rc <= 0 and offsets_add(&found.units, at) < 0:
            return E_NO_MEMORY
        at += 1
    return 0
