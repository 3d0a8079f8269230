# Pass of a scan, batch by batch, after its path was chosen.

cdef void scan_free(Scan *scan) noexcept nogil:
    source_free(&scan.source)
    batch_free(&scan.batch)
    if scan.messages != NULL:
        got_clear(scan.messages)
        free(scan.messages)
    text_set_free(&scan.filter.topics)
    text_set_free(&scan.filter.keys)
    filter_free(&scan.filter.messages)
    if scan.error != NULL:
        inflated_free(scan.error)


cdef bint scan_batch_full(const Scan *scan) noexcept nogil:
    return scan.batch.rows >= scan.batch_rows or scan.batch.bytes >= scan.batch_bytes \
        or (scan.batch.rows > 0 and scan.waiting_data != NULL)


cdef int64_t scan_slice(Scan *scan) noexcept nogil:
    """Add rows until the batch is full, the scan ends, or SLICE_BYTES or FILTER_WORK is reached."""
    cdef ScanSource *source = &scan.source
    cdef Batch *batch = &scan.batch
    cdef Record record
    cdef const char *data = NULL
    cdef int64_t rc
    cdef int64_t records = 0
    cdef int64_t examined = 0
    cdef int64_t low = 0
    if not scan.begun:
        rc = scan_begin(scan) if scan.whole == NULL else scan_begin_part(scan)
        if rc == E_REMOVED and source.queues.removed != NULL:
            rc = scan_go_on(scan, rc)
            scan.ended = rc == 0
        if rc < 0:
            return scan_failed(scan, rc)
    if source.by_units:
        log_refresh(scan.store)
        low = log_first(scan.store)
    scan.filter.messages.work = 0
    while not scan.ended and examined < SLICE_BYTES and scan.filter.messages.work < FILTER_WORK:
        if scan_batch_full(scan):
            break
        if scan.waiting_data != NULL:
            record = scan.waiting
            data = scan.waiting_data
            scan.waiting_data = NULL
            rc = record.size
        else:
            rc = scan_unit_rows(scan, low) if source.by_units else 0
            if rc > 0:
                examined += rc * UNIT_BYTES
                continue
            if rc == 0:
                rc = source_next(source, &scan.filter, &record, &data)
            if rc > ROW_BYTES_ALONE and batch.rows:
                scan.waiting = record
                scan.waiting_data = data
                break
        if rc > 0:
            records += 1
            examined += rc
            scan_record(scan, data, &record)
        elif rc == 0 and scan.tail >= 0:
            source.along = ALONG_LOG
            source.by_units = False
            rc = scan_find_record(scan, scan.tail)
            scan.tail = -1
            if rc < 0:
                scan_failed(scan, rc)
        elif rc == 0:
            scan.ended = True
        else:
            examined += 4096                 # the search for the next good one is work as well
            rc = scan_go_on(scan, rc)
            if rc < 0:
                scan_failed(scan, rc)
            elif rc == 0:
                scan.ended = True
    atomic_add(&scan.store.view.scanned_records, records)
    atomic_add(&scan.store.view.scanned_bytes, examined)
    return 0


cdef void scan_record(Scan *scan, const char *data, const Record *record) noexcept nogil:
    """Add a record if wanted; if it changed meanwhile, it is returned again."""
    cdef int64_t rc = 0
    cdef bint wanted = scan_wants(&scan.filter, data, record) \
        and not is_left_out(scan.store, data, record)
    if wanted:
        rc = scan_row(scan, data, record)
        if rc == 0 and FAULT("row-changed"):
            scan_take_back(scan)
            rc = scan_row(scan, data, record)
    if rc == E_NO_MEMORY:                    # some columns may have the row
        scan_failed(scan, rc)
    elif cursor_changed(&scan.source.cursor, record, data):
        if wanted and rc == 0:
            scan_take_back(scan)
        source_step_back(&scan.source)
        if scan.error != NULL:
            inflated_free(scan.error)
            scan.error = NULL
    elif rc < 0 and (rc != E_CORRUPT or scan.on_corruption == ON_BAD_RAISE):
        scan_failed(scan, rc)
    elif rc < 0:
        scan.ended = scan.stopped = scan.on_corruption == ON_BAD_STOP


cdef int64_t scan_failed(Scan *scan, int64_t status) noexcept nogil:
    """End the scan with an error, raised after the rows before it were returned."""
    scan.status = status
    scan.ended = True
    return status


cdef int64_t scan_go_on(Scan *scan, int64_t rc) noexcept nogil:
    """After a failure: 1 to continue after it, 0 at the end, or the failure if it is raised."""
    cdef ScanSource *source = &scan.source
    cdef Lane *lane
    cdef int64_t first
    if rc == E_REMOVED:
        log_refresh_now(scan.store)
        if source.queues.removed != NULL:
            return scan_lane_resume(scan, source.queues.removed)
        if source_bad_offset(source) >= log_first(scan.store):
            source.cursor.field = FIELD_MISSING  # retention removes files from the first one on
            rc = E_CORRUPT
        elif scan.on_removed != ON_BAD_SKIP:
            if source.along != ALONG_QUEUES or source.queues.heap_count == 0:
                return scan_removed(scan, NULL, source.cursor.at, log_first(scan.store))
            lane = &source.queues.lanes[source.queues.heap[0]]
            queue_refresh_now(scan.store, lane.queue)
            first = queue_first_kept(scan.store, lane.queue, lane.at, lane_end(scan, lane))
            return scan_removed(scan, lane.queue, lane.at,
                                first if first >= 0 else lane_following(scan, lane))
    if rc == E_CORRUPT:
        if scan.on_corruption == ON_BAD_STOP:
            scan.stopped = True
            return 0
        if scan.on_corruption == ON_BAD_RAISE:
            scan.field = source.cursor.field
            scan.bad_offset = source_bad_offset(source)
            if scan.field == FIELD_UNIT:     # the queue's file is damaged, not the log's
                lane = &source.queues.lanes[source.queues.heap[0]]
                scan.removed_queue = lane.queue
                scan.bad_offset = lane.at * UNIT_BYTES
            return E_CORRUPT
    elif rc != E_REMOVED:
        return rc
    rc = source_skip(source, rc)
    if rc == E_REMOVED and source.queues.removed != NULL:
        return scan_lane_resume(scan, source.queues.removed)
    return rc


cdef int64_t lane_end(const Scan *scan, const Lane *lane) noexcept nogil:
    """End of the lane in the whole pass."""
    return lane.stop if scan.whole == NULL else scan.whole.source.queues.lanes.stop


cdef int64_t lane_following(const Scan *scan, const Lane *lane) noexcept nogil:
    """First queue offset at or after the lane's that has a file."""
    cdef int64_t start = file_set_next_start(&lane.queue.files, lane.at * UNIT_BYTES)
    return max(start // UNIT_BYTES if start >= 0 else lane_end(scan, lane),
               atomic_get(&lane.queue.min_offset))


cdef int64_t scan_lane_resume(Scan *scan, Lane *lane) noexcept nogil:
    """As scan_go_on, for a missing queue file: removed by retention, with its topic, or lost."""
    cdef ScanSource *source = &scan.source
    cdef int64_t rc = E_REMOVED
    cdef bint removed
    while rc == E_REMOVED:
        queue_refresh_now(scan.store, lane.queue)
        removed = source.queues.made_again or lane.at < atomic_get(&lane.queue.min_offset) \
            or atomic_get(&lane.queue.max_offset) < lane_end(scan, lane)
        if removed and scan.on_removed == ON_BAD_RAISE:
            return scan_removed(scan, lane.queue, lane.at, lane_following(scan, lane))
        if not removed and scan.on_corruption == ON_BAD_STOP:
            scan.stopped = True
            return 0
        if not removed and scan.on_corruption == ON_BAD_RAISE:
            scan.removed_queue = lane.queue
            scan.field = FIELD_MISSING
            scan.bad_offset = lane.at * UNIT_BYTES
            return E_CORRUPT
        lane.at = lane.stop if source.queues.made_again \
            else max(lane.at + 1, lane_following(scan, lane))
        source.queues.made_again = False
        rc = merged_start(&source.queues)
        lane = source.queues.removed
    return rc if rc < 0 else 1


cdef int64_t scan_row(Scan *scan, const char *data, const Record *record) noexcept nogil:
    """Add a record to the batch, with its body inflated."""
    cdef PyObject *inflated = NULL
    cdef const char *body = data + record.body_at
    cdef int64_t length = record.body_length
    cdef int64_t rc
    if scan.messages != NULL:
        return scan_message(scan, data, record)
    if not scan.batch.wants_body or not record.sys_flag & SYS_COMPRESSED:
        return batch_add(&scan.batch, data, record, body, length)
    rc = inflate_body(scan, body, length, record.sys_flag, &inflated)
    if rc == 0:
        body = PyBytes_AS_STRING_of(inflated)
        length = PyBytes_GET_SIZE_of(inflated)
        rc = batch_add(&scan.batch, data, record, body, length)
        inflated_free(inflated)
    elif rc == E_CORRUPT:
        scan.field = FIELD_BODY_STREAM
        scan.bad_offset = record.physical_offset
    return rc


cdef void scan_take_back(Scan *scan) noexcept nogil:
    """Remove the row added last."""
    if scan.messages == NULL:
        batch_take_back(&scan.batch)
        return
    scan.messages.count -= 1
    scan.batch.rows -= 1
    scan.batch.bytes -= scan.messages.items[scan.messages.count].record.size
    slice_release(&scan.messages.items[scan.messages.count].slice)


cdef int64_t scan_message(Scan *scan, const char *data, const Record *record) noexcept nogil:
    """Keep the record for a message: by reference in a written store, else as a copy."""
    cdef Found found
    cdef MappedFile *file = scan.source.cursor.slice.file
    cdef int64_t rc
    memset(&found, 0, sizeof(Found))
    found.record = record[0]
    found.slice.length = record.size
    found.slice.data = data
    if file != NULL and file.base != NULL:
        mapped_file_hold(file)
        found.slice.file = file
    else:
        found.slice.owned = <char *>malloc(<size_t>record.size)
        if found.slice.owned == NULL:
            return E_NO_MEMORY
        memcpy(found.slice.owned, data, <size_t>record.size)
        found.slice.data = found.slice.owned
    rc = got_add(scan.messages, &found)
    if rc < 0:
        slice_release(&found.slice)
        return rc
    scan.batch.rows += 1
    scan.batch.bytes += record.size
    return 0


cdef extern from *:
    """
    /* Of bytes objects that are held: needs no GIL. */
    #define held_bytes(o) PyBytes_AS_STRING(o)
    #define held_length(o) PyBytes_GET_SIZE(o)
    """
    const char *PyBytes_AS_STRING_of "held_bytes"(PyObject *held) noexcept nogil
    int64_t PyBytes_GET_SIZE_of "held_length"(PyObject *held) noexcept nogil


cdef int64_t inflate_body(
    Scan *scan, const char *stored, int64_t length, int32_t sys_flag, PyObject **inflated,
) noexcept with gil:
    """Inflate into bytes that the caller frees. E_CORRUPT, or E_VERSION with ``scan.error``."""
    try:
        body = bodies.inflate(PyBytes_FromStringAndSize(stored, length), sys_flag,
                              min(scan.batch.max_body, BODY_BYTES_MAX))
    except errors.StoreCorruptError:
        return E_CORRUPT
    except BaseException as error:
        Py_INCREF(error)
        scan.error = <PyObject *>error
        return E_VERSION
    Py_INCREF(body)
    inflated[0] = <PyObject *>body
    return 0


cdef void inflated_free(PyObject *held) noexcept with gil:
    Py_DECREF(<object>held)
