# Pass of a scan: its state, its path and its range.

cdef enum:
    ON_BAD_RAISE
    ON_BAD_SKIP
    ON_BAD_STOP

    # Alone in its batch: offsets in a column have 31 bits, and a batch 1 GiB before its last row.
    ROW_BYTES_ALONE = 1 << 29
    BODY_BYTES_MAX = 1 << 30
    SLICE_BYTES = 64 << 20       # of the log between two checks for signals and closing
    RECORD_COST = 4096           # sequential bytes as costly as a random read

cdef struct Scan:
    Store *store
    ScanFilter filter
    ScanSource source
    Batch batch
    Got *messages                # NULL: columns are wanted
    int64_t start                # as requested; -1: from the first
    int64_t stop                 # -1: up to the head at the beginning
    int64_t batch_rows
    int64_t batch_bytes
    int64_t on_corruption
    int64_t on_removed
    bint begun
    bint ended
    int64_t status               # the failure that ended it, raised after the rows before it
    int64_t field                # of E_CORRUPT
    int64_t bad_offset
    const Queue *removed_queue   # the queue whose unit or file failed; NULL: the log
    int64_t removed_offset
    int64_t min_offset
    int64_t head                 # the end of the log at the beginning of the pass
    int64_t end                  # the same, or the requested end
    int64_t tail                 # where the log continues after the queues; -1: nowhere
    Record waiting               # needs a batch of its own
    const char *waiting_data     # NULL: none; valid until the source advances
    PyObject *error              # an exception raised by inflating
    bint stopped                 # ended at damage, by ON_BAD_STOP
    const Scan *whole            # the pass that this one is a part of; NULL: none


# Scope of the refresh that finds the end of the readable log.
cdef enum:
    LOG_ALONE
    LOG_AND_QUEUES               # new queues as well, for paths along queues


cdef int64_t scan_head(Store *store, int where) noexcept nogil:
    """Current end of the readable log."""
    if store.writable:
        wait_for_earlier_puts(store)
        return atomic_get(&store.dispatch.dispatched)
    log_refresh_now(store)
    if where == LOG_AND_QUEUES:
        refresh_queues(store)
    return log_end(store)


cdef int64_t queue_head(Scan *scan) noexcept nogil:
    """As scan_head, for one queue, without a read of other queues.

    With time bounds the exact end is needed, to tell files before it from files after it.
    """
    cdef Store *store = scan.store
    if store.writable or scan.filter.since > INT64_LEAST or scan.filter.until < INT64_MOST:
        return scan_head(store, LOG_ALONE)
    log_refresh_now(store)
    return file_set_stop(&store.log)


cdef bint scan_asks_units(const Scan *scan) noexcept nogil:
    """Whether units hold all that is requested of a record of its own queue.

    They show no damage inside a record: policies other than to raise an error read the records.
    """
    cdef const ScanFilter *filter = &scan.filter
    cdef int64_t i
    if scan.on_corruption != ON_BAD_RAISE or scan.messages != NULL or not scan.batch.of_units \
            or filter.messages.active or filter.keys.count or filter.since > INT64_LEAST \
            or filter.until < INT64_MOST \
            or (filter.queue_id >= 0 and not filter.queued):
        return False
    for i in range(filter.topics.count):
        if name_is_light(filter.topics.texts[i], filter.topics.lengths[i]):
            return False                     # units of other queues' records
    return True


cdef int64_t scan_begin(Scan *scan) noexcept nogil:
    """Fix the end and choose the path."""
    cdef Store *store = scan.store
    cdef ScanSource *source = &scan.source
    cdef Cursor *cursor = &source.cursor
    cdef int64_t end, first
    cdef int64_t rc = 0
    cdef bint along_queue
    scan.begun = True
    scan.tail = -1
    scan.filter.queued = scan.filter.topics.count == 1 and scan.filter.queue_id >= 0
    along_queue = scan.filter.queued and not (
        scan.filter.keys.count and scan.start < 0 and scan.stop < 0)
    if along_queue:
        scan.head = queue_head(scan)
    elif not store.writable and 0 <= scan.stop <= atomic_get(&store.view.log_end):
        # Finding the end reads each queue: do it once, and scan no further.
        log_refresh_now(store)
        scan.head = atomic_get(&store.view.log_end)
    else:
        scan.head = scan_head(
            store, LOG_AND_QUEUES if scan.filter.topics.count > 0 and not scan.filter.queued
            else LOG_ALONE)
    end = scan.head
    first = log_first(store)
    cursor_init(cursor, store, first, end)
    cursor.report_removed = True
    cursor.in_place = not store.writable
    if along_queue:
        return scan_along_queue(scan)
    if scan.stop >= 0:
        cursor.stop = end = min(end, scan.stop)
    if scan.start >= 0:
        if scan.start < first and scan_is_open(scan) and scan.on_removed != ON_BAD_SKIP:
            return scan_removed(scan, NULL, scan.start, first)
        cursor.at = min(max(first, scan.start), end)
    times_narrow(store, scan.filter.since, scan.filter.until, scan.head, &cursor.at, &cursor.stop)
    scan.end = end = cursor.stop
    if scan.filter.topics.count and scan.on_corruption != ON_BAD_SKIP \
            and has_unnamed_damage(&store.recovery, cursor.at, end):
        pass                                 # only the log itself meets it
    elif scan.filter.keys.count and scan.filter.topics.count and store.indexes.enabled:
        rc = scan_along_index(scan)
        if rc != E_CORRUPT:                  # a bad index file must not fail the scan
            return rc
        rc = 0
        source.offsets.count = 0
    elif scan.filter.topics.count:
        rc = scan_along_queues(scan)
        if rc != 0:
            return min(rc, 0)
    source.along = ALONG_LOG
    if first < cursor.at < end:
        rc = scan_find_record(scan, cursor.at)
    return rc


cdef int64_t scan_find_record(Scan *scan, int64_t start) noexcept nogil:
    """Position the scan at the first record that begins at or after ``start``."""
    cdef Cursor *cursor = &scan.source.cursor
    cdef Record record
    cdef const char *data = NULL
    cdef int64_t rc
    cursor.at = log_boundary(scan.store, start, BOUNDARY_NEAR)
    cursor.stop = start
    cursor.check_crc = False                 # these are not requested
    while True:
        rc = cursor_next(cursor, &record, &data)
        if rc == E_CORRUPT and file_set_gap(&scan.store.log, start, start + 1) >= 0:
            rc = 0                           # the scan begins in a missing file, and reports it
            break
        if rc == E_CORRUPT:
            cursor.stop = scan.end           # a bad record before may reach into the range
            rc = cursor_resync(cursor)
            cursor.stop = start
            if rc == 0:
                cursor.at = scan.end
            if rc >= 0 and cursor.at > start:
                # A bad record that begins after ``start`` is reported if a unit names it.
                cursor.at = min(cursor.at, next_unit(scan.store, start))
        if rc <= 0:
            break
    cursor.at = max(cursor.at, start)
    cursor.stop = scan.end
    cursor.check_crc = True
    return 0 if rc == E_REMOVED else rc


cdef bint scan_is_open(const Scan *scan) noexcept nogil:
    """Whether the range from ``start`` to ``stop`` is not empty."""
    return scan.stop < 0 or scan.stop > scan.start


cdef int64_t scan_removed(
    Scan *scan, const Queue *queue, int64_t offset, int64_t min_offset,
) noexcept nogil:
    """Note that messages of a queue, or of the log, were removed; E_REMOVED."""
    scan.removed_queue = queue
    scan.removed_offset = offset
    scan.min_offset = min_offset
    return E_REMOVED


cdef int64_t scan_along_queue(Scan *scan) noexcept nogil:
    """Choose one queue, in its order, by queue offsets."""
    cdef Store *store = scan.store
    cdef ScanSource *source = &scan.source
    cdef Queue *queue = scan_queue(scan)
    cdef Lane *lane
    cdef Got got
    cdef int64_t rc
    source.along = ALONG_QUEUES
    if queue == NULL:
        refresh_queues(store)               # slow if there are many
        queue = scan_queue(scan)
    if queue == NULL:
        return 0
    memset(&got, 0, sizeof(Got))
    rc = queue_bounds(store, queue, INT64_MOST, &got)
    if rc < 0:
        return rc
    source.queues.lanes = <Lane *>calloc(1, sizeof(Lane))
    if source.queues.lanes == NULL:
        return E_NO_MEMORY
    source.queues.lane_count = 1
    lane = source.queues.lanes
    lane.queue = queue
    lane.at = got.min_offset
    lane.stop = got.max_offset
    if scan.stop >= 0:
        lane.stop = min(lane.stop, scan.stop)
    if scan.start >= 0:
        if scan.start < got.min_offset and scan_is_open(scan) \
                and scan.on_removed != ON_BAD_SKIP:
            return scan_removed(scan, queue, scan.start, got.min_offset)
        lane.at = max(lane.at, scan.start)
    source.queues.end = queue_end(queue, lane.at, lane.stop)
    times_narrow(store, scan.filter.since, scan.filter.until, scan.head, &source.cursor.at,
                 &source.cursor.stop)
    lane.at = max(lane.at, lane_begin(queue, source.cursor.at, lane.at, lane.stop))
    if source.cursor.stop < scan.head:
        rc = queue_first_at_or_after(queue, source.cursor.stop, lane.at, lane.stop)
        lane.stop = rc if rc >= 0 else lane.stop
    rc = merged_start(&source.queues)
    if rc == 0 and source.queues.heap_count and scan_asks_units(scan):
        source.by_units = units_are_sure(
            store, lane.stop - lane.at, lane.unit.physical_offset, source.queues.end)
    return rc


cdef Queue *scan_queue(Scan *scan) noexcept nogil:
    """Requested queue; NULL: unknown."""
    cdef Topic *topic = topic_find(&scan.store.table, scan.filter.topics.texts[0],
                                   scan.filter.topics.lengths[0])
    return NULL if topic == NULL else queue_find(topic, <int32_t>scan.filter.queue_id)


cdef int64_t queue_end(Queue *queue, int64_t start, int64_t stop) noexcept nogil:
    """End of the record of the last unit of [start, stop)."""
    cdef Unit unit
    while stop > start:
        stop -= 1
        if queue_unit_at(queue, stop, &unit) == 0 and not unit_is_blank(&unit):
            return unit.physical_offset + unit.size
    return INT64_MOST


cdef int64_t topic_units(Topic *topic) noexcept nogil:
    """Units of a topic's queues."""
    cdef Queue *queue = load_queue(&topic.first_queue)
    cdef int64_t count = 0
    while queue != NULL:
        count += max(0, atomic_get(&queue.max_offset) - atomic_get(&queue.min_offset))
        queue = queue.next_made
    return count


cdef int64_t all_units(Store *store) noexcept nogil:
    cdef Topic *topic = load_topic(&store.table.first)
    cdef int64_t count = 0
    while topic != NULL:
        count += topic_units(topic)
        topic = load_topic(&topic.next_made)
    return count


cdef int64_t scan_along_queues(Scan *scan) noexcept nogil:
    """Choose the topics' merged queues if they take less reading than the log: 1; else 0.

    Units alone always do.  Records after the newest unit are in no queue yet: they are scanned in
    the log.
    """
    cdef Store *store = scan.store
    cdef ScanSource *source = &scan.source
    cdef int64_t start = source.cursor.at
    cdef int64_t stop = source.cursor.stop
    cdef int64_t count = 0
    cdef int64_t i, rc, all, newest
    cdef bint less
    cdef Topic *topic
    cdef Queue *queue
    for i in range(scan.filter.topics.count):
        topic = topic_find(&store.table, scan.filter.topics.texts[i],
                           scan.filter.topics.lengths[i])
        if topic == NULL or topic.deleted_before > start:
            return 0                         # its records, if any, are in no queue
        count += topic_units(topic)
    all = max(all_units(store), 1)
    less = count * ((stop - start) // all + RECORD_COST) < stop - start
    if not less and not scan_asks_units(scan):
        return 0
    newest = newest_unit_end(store, LISTED_NOW)
    source.by_units = scan_asks_units(scan) and units_are_sure(
        store, count, log_first(store), newest)
    if not source.by_units:
        rc = log_is_all_queued(store, newest) if less else 0
        if rc <= 0:
            return rc
    source.along = ALONG_QUEUES
    source.queues.end = min(stop, newest)
    for i in range(scan.filter.topics.count):
        topic = topic_find(&store.table, scan.filter.topics.texts[i],
                           scan.filter.topics.lengths[i])
        # A queue created meanwhile precedes this one, and has nothing below the end.
        queue = load_queue(&topic.first_queue)
        while queue != NULL:
            rc = merged_add(&source.queues, queue, start)
            if rc < 0:
                return rc
            queue = queue.next_made
    if newest < stop:
        scan.tail = max(newest, start)
    rc = merged_start(&source.queues)
    return rc if rc < 0 else 1


cdef int64_t scan_along_index(Scan *scan) noexcept nogil:
    """Choose the records with the keys, from the index, and from the log where none covers it."""
    cdef ScanSource *source = &scan.source
    cdef KeyQuery query
    cdef Got got
    cdef Offsets *hits = &source.offsets
    cdef int64_t i, k
    cdef int64_t kept = 0
    cdef int64_t rc = query_wait(scan.store)
    source.along = ALONG_OFFSETS
    memset(&got, 0, sizeof(Got))
    if rc < 0:
        return rc
    for i in range(scan.filter.topics.count):
        for k in range(scan.filter.keys.count):
            memset(&query, 0, sizeof(KeyQuery))
            query.topic = scan.filter.topics.texts[i]
            query.topic_length = scan.filter.topics.lengths[i]
            query.key = scan.filter.keys.texts[k]
            query.key_length = scan.filter.keys.lengths[k]
            query_hash(&query)
            query.max_num = INT64_MOST
            query.begin = scan.filter.since
            query.end = scan.filter.until
            query.hits_before = hits.count
            query.head = 0 if scan.store.writable else scan.head
            rc = query_run(scan.store, &query, &got, hits)
            if rc < 0:
                scan.field = got.field
                scan.bad_offset = got.bad_offset
                return rc
    if hits.count > 1:
        qsort(hits.items, <size_t>hits.count, sizeof(int64_t), compare_offsets)
    for i in range(hits.count):
        if hits.items[i] >= source.cursor.at and hits.items[i] < source.cursor.stop \
                and (kept == 0 or hits.items[i] != hits.items[kept - 1]):
            hits.items[kept] = hits.items[i]
            kept += 1
    hits.count = kept
    return 0


cdef int compare_offsets(const void *a, const void *b) noexcept nogil:
    cdef int64_t left = (<const int64_t *>a)[0]
    cdef int64_t right = (<const int64_t *>b)[0]
    return -1 if left < right else 1 if left > right else 0
