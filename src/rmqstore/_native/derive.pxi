# "r" on a store that nobody owns: queues that are missing, and units that the dead owner did
# not get to write, are told from the log and kept in memory.

cdef int64_t derive_units(Store *store, bint everything) noexcept nogil:
    """Walk the log behind the newest unit, or all of it, and add what no file has."""
    cdef Cursor cursor
    cdef Record record
    cdef const char *data
    cdef int64_t rc
    cdef int64_t start = log_first(store)
    if not everything:
        start = max(start, newest_unit_end(store))
    cursor_init(&cursor, store, start, INT64_MOST)
    cursor.check_crc = True
    while True:
        rc = cursor_next(&cursor, &record, &data)
        if rc == E_CORRUPT:
            cursor.stop = file_set_stop(&store.log)
            if log_used(store, cursor.at) <= cursor.at:
                rc = 0
                break
            rc = cursor_resync(&cursor)
            if rc > 0:
                continue
        if rc <= 0 or record_is_torn(data, &record, store.log.file_size):
            break
        rc = derive_unit(store, data, &record)
        if rc < 0:
            break
    cursor_close(&cursor)
    return min(rc, 0)


cdef int64_t newest_unit_end(Store *store) noexcept nogil:
    """The end of the record that the newest good unit of any queue names."""
    cdef Topic *topic = load_topic(&store.table.first)
    cdef Queue *queue
    cdef Unit unit
    cdef int64_t end = 0
    memset(&unit, 0, sizeof(Unit))
    while topic != NULL:
        queue = load_queue(&topic.first_queue)
        while queue != NULL:
            queue_look(store, queue, True)
            if atomic_get(&queue.max_offset) > 0 \
                    and queue_unit_at(queue, atomic_get(&queue.max_offset) - 1, &unit) == 0 \
                    and not unit_is_blank(&unit):
                end = max(end, unit.physical_offset + unit.size)
            queue = queue.next_made
        topic = load_topic(&topic.next_made)
    return end


cdef int64_t derive_unit(Store *store, const char *data, const Record *record) noexcept nogil:
    """Add a record's unit to its queue unless a file has it."""
    cdef Said said
    cdef Queue *queue
    cdef int64_t known, says
    said.topic = NULL
    says = record_says(&store.table, &store.settings, data, record, &said)
    if says < 0 or not says & SAYS_UNIT:
        return min(says, 0)
    queue = queue_enter(&store.table, said.topic, record.queue_id, store.root,
                        store.settings.queue_file_size, False)
    if queue == NULL:
        return E_NO_MEMORY
    queue.files.open_files = &store.open_files
    known = atomic_get(&queue.max_offset)
    if record.queue_offset < known:
        return 0
    if queue.derived == NULL:
        queue.derived_start = known if known > 0 else record.queue_offset
        atomic_set(&queue.last_end, record.physical_offset)
        if known == 0:
            atomic_set(&queue.min_offset, record.queue_offset)
            atomic_set(&queue.max_offset, record.queue_offset)
    return derived_add(queue, record, said.code)


cdef int64_t derived_add(Queue *queue, const Record *record, int64_t code) noexcept nogil:
    """Append a unit, with blank ones where records are missing."""
    cdef char *grown
    cdef int64_t at = record.queue_offset - queue.derived_start
    if at < queue.derived_count or \
            not offset_is_likely(queue, record.queue_offset, record.physical_offset):
        return 0                             # an offset that cannot be believed
    if at >= queue.derived_room:
        grown = <char *>realloc(queue.derived, <size_t>((at * 2 + 64) * UNIT_BYTES))
        if grown == NULL:
            return E_NO_MEMORY
        queue.derived = grown
        queue.derived_room = at * 2 + 64
    while queue.derived_count < at:
        unit_write(queue.derived + queue.derived_count * UNIT_BYTES, 0, UNIT_BLANK_SIZE, 0)
        queue.derived_count += 1
    unit_write(queue.derived + at * UNIT_BYTES, record.physical_offset, record.size, code)
    queue.derived_count = at + 1
    atomic_set(&queue.last_end, record.physical_offset + record.size)
    atomic_set(&queue.max_offset, record.queue_offset + 1)
    return 0


cdef int64_t derive_if_needed(Store *store) noexcept nogil:
    """Once, before queues are looked at: only where nobody owns the store."""
    cdef int64_t rc = 0
    if store.writable or store.owned_elsewhere or store.derived:
        return 0
    pthread_mutex_lock(&store.derive_mutex)
    if not store.derived:
        rc = derive_units(store, atomic_get(&store.table.queues) == 0)
        store.derived = True
    pthread_mutex_unlock(&store.derive_mutex)
    return rc
