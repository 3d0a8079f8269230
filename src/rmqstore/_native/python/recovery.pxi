# Findings of an opening, and the check of a whole store, as Python objects.

cdef dict LACKS = {
    LACKS_FILE: "missing", LACKS_ALL: "empty", LACKS_END: "short", LACKS_UNITS: "without units",
    LACKS_FRONT: "not the first: one in front of it is missing", LACKS_EXT: "without ext units"}


cdef bint queue_begins_before(Queue *queue, int64_t byte) noexcept nogil:
    """Whether the log had units before the first existing file."""
    cdef Derived *derived = load_derived(&queue.derived)
    if queue.files.writable:
        return file_set_start(&queue.files) < byte
    return derived != NULL and derived.start * UNIT_BYTES < byte


cdef list lacks_of(Store *store):
    """``(file, problem)`` for each queue whose files showed a loss."""
    cdef Queue *queue = first_queue(&store.table)
    lacks = []
    while queue != NULL:
        if queue.lacks != LACKS_NOTHING and (
                queue.lacks != LACKS_FRONT or queue_begins_before(queue, queue.lacks_at)):
            lacks.append((
                os_path.join(fsdecode(queue.files.directory), f"{queue.lacks_at:020d}"),
                LACKS[queue.lacks]))
        queue = next_queue(queue)
    return lacks


cdef dict recovery_of(OpenStore engine):
    cdef Store *store = engine.entered()
    cdef int64_t start = log_first(store)
    cdef int64_t end, i
    cdef char text[FAILURE_WHAT_BYTES]
    with nogil:
        end = log_end(store)
    ranges = []
    for i in range(store.recovery.damage_count):
        if not store.writable or not store.recovery.damages[i].repaired:
            kind = "torn" if store.recovery.damages[i].tail else "damaged"
        else:
            kind = "cut" if store.recovery.damages[i].tail else "filled"
        ranges.append((
            kind,
            store.recovery.damages[i].start, store.recovery.damages[i].stop,
            store.recovery.damages[i].records,
            record_field_name(store.recovery.damages[i].field).decode("ascii"),
            store.recovery.damages[i].saved.decode("ascii"),
            not store.recovery.damages[i].unnamed))
    broken = []
    for i in range(min(store.table.broken_links, BROKEN_NOTED)):
        broken.append(fsdecode(<char *>store.table.broken[i]))
    if not store.writable and store.recovery.lost_until:
        lost_text(store, text, FAILURE_WHAT_BYTES)
        ranges.append(("damaged", store.recovery.lost_from, store.recovery.lost_until, -1,
                       text.decode("utf-8", "replace"), "", False))
    found = dict(
        broken_links=broken,
        clean=bool(store.recovery.clean), records_checked=store.recovery.records_checked,
        bytes_cut=store.recovery.bytes_cut, ranges=ranges,
        units_written=store.recovery.units_written,
        full_dispatch=bool(store.recovery.full_dispatch),
        index_files_rebuilt=store.recovery.index_files_rebuilt,
        index_set_aside=store.recovery.index_set_aside,
        queue_size_taken=bool(store.recovery.queue_size_taken),
        index_size_taken=bool(store.recovery.index_size_taken),
        queues_rebuilt=store.recovery.queues_rebuilt,
        checked_from=store.recovery.checked_from,
        completed_file=bool(store.recovery.completed_file),
        seconds=store.recovery.seconds_ns / 1e9, log_start=start, log_end=end,
        skipped=atomic_get(&store.dispatch.skipped), lacks=lacks_of(store))
    store_leave(store)
    return found


cdef tuple verify_all(OpenStore engine):
    """``(records, units, ranges, queues)``: the numbers checked, and the damage.

    ``ranges`` of the log have no good record; ``queues``: by directory, the queue offsets of wrong
    units, and -errno or 0.
    """
    cdef Store *store = engine.entered()
    cdef Queue *queue
    cdef Verified found
    cdef int64_t rc
    cdef list queues = []
    memset(&found, 0, sizeof(Verified))
    try:
        with nogil:
            rc = verify_log(store, &found)
        queue = first_queue(&store.table) if rc >= 0 else NULL
        while queue != NULL:
            with nogil:
                rc = verify_queue(store, queue, &found)
            if rc == E_NO_MEMORY:
                raise MemoryError()
            if rc < 0 or found.units.count:
                queues.append((fsdecode(queue.files.directory),
                               [found.units.items[i] for i in range(found.units.count)],
                               min(rc, 0)))
            queue = next_queue(queue)
            PyErr_CheckSignals()
        if rc < 0 and not queues:
            raise unreadable_error(store, NULL, rc, engine._path)
        ranges = [(found.ranges.items[2 * i], found.ranges.items[2 * i + 1])
                  for i in range(found.ranges.count // 2)]
    finally:
        free(found.ranges.items)
        free(found.units.items)
        store_leave(store)
    return found.records, found.checked_units, ranges, queues
