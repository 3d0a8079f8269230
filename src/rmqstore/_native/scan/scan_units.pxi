# Rows from units alone: 20 bytes each, and no record.

cdef int64_t scan_unit_rows(Scan *scan, int64_t low) noexcept nogil:
    """Add rows from the next units of one queue: their number, or a status.

    0: no unit is left, or the next one is not as it was when the units were sure: records before
    ``low`` were removed since, or another process rewrites the queue.  Its record decides.
    """
    cdef MergedQueues *queues = &scan.source.queues
    cdef Batch *batch = &scan.batch
    cdef int64_t stop = queues.end
    cdef int64_t place, rc, most
    cdef int64_t count = 0
    cdef const char *units
    cdef Lane *lane
    cdef Unit unit
    queues.removed = NULL
    if queues.heap_count and queues.taken:
        rc = merged_next(queues)
        if rc < 0:
            return rc
    if queues.heap_count == 0:
        return 0
    lane = &queues.lanes[queues.heap[0]]
    for place in range(1, min(queues.heap_count, 3)):
        stop = min(stop, heap_key(queues, place))
    most = min(scan.batch_rows - batch.rows,
               (scan.batch_bytes - batch.bytes - 1) // batch.row_bytes + 1)
    most = min(most, min(lane.units_at + lane.units_count, lane.stop) - lane.at)
    units = lane.units.data + (lane.at - lane.units_at) * UNIT_BYTES
    low = max(low, lane.rows_end)
    while count < most:
        unit_read(units + count * UNIT_BYTES, &unit)
        if unit.size <= 0 or unit_is_blank(&unit) or not low <= unit.physical_offset < stop \
                or unit.physical_offset + unit.size > queues.end:
            break
        low = unit.physical_offset + unit.size
        count += 1
    if count == 0:
        return 0
    rc = batch_add_units(batch, lane.queue, lane.at, units, count)
    if rc == 0:
        rc = slice_lost(&lane.units)
    if rc < 0:
        return rc
    batch.rows += count
    batch.bytes += count * batch.row_bytes
    lane.rows_end = low
    lane.at += count - 1
    queues.taken = True
    return count
