# Reput: each new record of the log gets its consume queue unit and its index entries.
#
# In batches: units are written one by one; keys are hashed, their slots prefetched, then all are
# entered.  The dispatched position is published last.
#
# Source: store/DefaultMessageStore.java ReputMessageService, CommitLogDispatcherBuildConsumeQueue,
#         CommitLogDispatcherBuildIndex; store/index/IndexService.java buildIndex

cdef enum:
    DISPATCH_BATCH = 128         # records
    WANTED_SPINS = 256           # pauses, then yields, while others wait for the lock
    WANTED_YIELDS = 1000

    REQUEST_UNIT = 1                # the record has a unit in a queue
    REQUEST_KEYS = 2                # index its keys, if any
    REQUEST_ROLLBACK = 4            # neither, but roll a full index file as 4.9.3 does
    REQUEST_SKIPPED = 8             # an invalid topic name or queue id

# Parts of one record that dispatch needs.
cdef struct DispatchRequest:
    Topic *topic                 # the record's; on entry the preceding record's, or NULL
    int64_t code                 # with REQUEST_UNIT
    StoreProperties properties


# Output of dispatch.
cdef enum:
    DISPATCH_ALL                 # units and index entries
    DISPATCH_UNITS               # units only, while the index has no space


cdef int64_t dispatch_until(Store *store, int64_t limit) noexcept nogil:
    """Dispatch the records below the log offset ``limit``: 0 or a status.

    While the index has no space, units are still written, each once.
    """
    cdef int64_t rc = dispatch_range(
        store, atomic_get(&store.dispatch.dispatched), limit, DISPATCH_ALL)
    if lacks_space(rc) and store.dispatch.index_stalled:
        dispatch_range(store, max(atomic_get(&store.dispatch.dispatched),
                                  store.dispatch.units_until), limit, DISPATCH_UNITS)
    return rc


cdef inline void dispatch_note_refused(Store *store, Queue *queue) noexcept nogil:
    """Note the queue that cannot be written; NULL if the failure is not in a queue's file."""
    store.dispatch.index_stalled = False
    store_queue(&store.dispatch.refused, queue)


cdef inline void dispatch_goes_on(Store *store) noexcept nogil:
    """Clear the stall; writes only if there was one, as puts read these fields."""
    if unlikely(atomic_get(&store.dispatch.stalled) != 0):
        atomic_set(&store.dispatch.stalled, 0)
    if unlikely(store.dispatch.index_stalled or load_queue(&store.dispatch.refused) != NULL):
        dispatch_note_refused(store, NULL)


cdef void dispatch_let_others(Store *store) noexcept nogil:
    """Yield to callers that wait for the lock of dispatch: a mutex is not fair."""
    cdef int64_t spins = 0
    while atomic_get(&store.dispatch.lock_wanted) > 0 and spins < WANTED_SPINS + WANTED_YIELDS:
        if spins < WANTED_SPINS:
            cpu_pause()
        else:
            sched_yield()
        spins += 1


cdef int64_t dispatch_range(
    Store *store, int64_t at, int64_t limit, int what,
) noexcept nogil:
    """Dispatch the records in [at, limit); publish the position unless only units are written."""
    cdef MappedFile *file = NULL
    cdef int64_t rc = 0
    cdef int64_t stop
    cdef bint units_only = what == DISPATCH_UNITS
    while at < limit and rc == 0:
        if file == NULL or at < file.start or at >= file.start + file.size:
            mapped_file_release(file)
            file = NULL
            rc = file_set_hold(&store.log, at, &file)
            if rc < 0:
                dispatch_note_refused(store, NULL)
                break
        stop = min(limit, file.start + file.size)
        while at < stop and rc == 0:
            if unlikely(atomic_get(&store.dispatch.lock_wanted) > 0):
                dispatch_let_others(store)
            lock_take(&store.dispatch.lock)
            store.dispatch.pending.units_only = units_only
            rc = dispatch_batch(store, file, &at, stop)
            if rc == 0 and units_only:
                store.dispatch.units_until = at
            elif rc == 0:
                atomic_set_strict(&store.dispatch.dispatched, at)
            lock_give(&store.dispatch.lock)
            if rc == 0 and not units_only:
                gate_open(&store.dispatch.visible)
                wakeups_ring(&store.dispatch.wakeups, at)
            if unlikely(atomic_get(&store.stopping) != 0):
                break
        if atomic_get(&store.stopping):
            break
    mapped_file_release(file)
    return rc


cdef int64_t dispatch_batch(
    Store *store, MappedFile *file, int64_t *position, int64_t stop,
) noexcept nogil:
    """Dispatch up to DISPATCH_BATCH records of one file and advance ``position`` past them."""
    cdef const char *data
    cdef Record record
    cdef DispatchRequest request
    cdef Pending *pending = store.dispatch.pending
    cdef int64_t at = position[0]
    cdef int64_t size, field
    cdef int64_t done = 0
    cdef int64_t newest = 0
    cdef int64_t last = -1
    cdef int64_t rc = 0
    request.topic = NULL
    pending.count = 0
    pending.lost = False
    while done < DISPATCH_BATCH and at < stop:
        done += 1
        data = file.base + (at - file.start)
        size = record_parse(data, file.size - (at - file.start), file.size - (at - file.start),
                            &record, &field)
        if size == 0:                        # the blank
            rc = mapped_file_lost(file, at - file.start, at - file.start + RECORD_BLANK_BYTES)
            if rc < 0:
                break
            at = file.start + file.size
            break
        if size < 0 or record.physical_offset != at:
            rc = mapped_file_lost(file, at - file.start, file.size)
            if rc < 0:
                break
            if size > 0:
                field = FIELD_PHYSICAL_OFFSET
            rc = fail(&store.failure, E_CORRUPT, set_directory(&store.log, 0),
                      record_field_name(field), at, 0, 0)
            break
        prefetch_record(data, size)
        rc = dispatch_record(store, file, data, &record, &request)
        if rc < 0:
            break
        newest = record.store_timestamp
        last = at
        at += size
        if pending.count > PENDING_ROOM - 256:
            rc = dispatch_keys(store)
            if rc < 0:
                break
    if rc == 0 and not pending.units_only:
        rc = dispatch_keys(store)
    if rc == 0 and pending.lost:
        rc = -ENOSPC
    if rc < 0:
        return rc
    if last >= 0 and not pending.units_only:
        atomic_set(&store.dispatch.logics_timestamp, newest)
        atomic_set(&store.indexes.dispatched, at)
        store.indexes.known_end = max(store.indexes.known_end, at)
        store.dispatch.last_record = last
    position[0] = at
    return 0


cdef inline int64_t dispatch_request(
    TopicTable *table, const Settings *settings, const char *data, const Record *record,
    DispatchRequest *request,
) noexcept nogil:
    """Decide the dispatch of a record: REQUEST_... flags, 0 for nothing, or E_NO_MEMORY."""
    cdef Topic *topic = request.topic
    cdef int32_t transaction = record.sys_flag & SYS_TRANSACTION
    if transaction == SYS_ROLLBACK:
        return REQUEST_ROLLBACK
    store_properties(data + record.properties_at, record.properties_length, &request.properties)
    if topic == NULL or topic.length != record.topic_length \
            or memcmp(topic.name, data + record.topic_at, <size_t>topic.length) != 0:
        topic = topic_find(table, data + record.topic_at, record.topic_length)
        if topic == NULL and topic_name_stored(data + record.topic_at, record.topic_length):
            topic = topic_enter(table, data + record.topic_at, record.topic_length)
            if topic == NULL:
                return E_NO_MEMORY
        request.topic = topic
    # Deleting a topic deletes only its queues: its records can still be found by key.
    if topic != NULL and record.physical_offset < topic.deleted_before:
        if record.physical_offset >= topic.noted_before:
            topic.gone = True
        return REQUEST_KEYS
    if transaction == SYS_PREPARED:
        return REQUEST_KEYS
    if topic == NULL or record.queue_id < 0 or record.queue_offset < 0 \
            or record.queue_offset > INT64_MOST // UNIT_BYTES - 2:
        return REQUEST_KEYS | REQUEST_SKIPPED
    request.code = dispatch_tags_code(settings, topic, &request.properties, record.store_timestamp)
    return REQUEST_KEYS | REQUEST_UNIT


cdef inline int64_t dispatch_record(
    Store *store, MappedFile *file, const char *data, const Record *record,
    DispatchRequest *request,
) noexcept nogil:
    """Write a record's unit, and note its keys."""
    cdef Queue *queue
    cdef int64_t rc, code
    cdef int64_t wanted = dispatch_request(&store.table, &store.settings, data, record, request)
    if wanted < 0:
        return wanted
    rc = mapped_file_lost(file, data - file.base, data - file.base + record.size)
    if rc < 0:
        return rc
    if wanted & REQUEST_SKIPPED:                  # skipped, and counted
        atomic_add(&store.dispatch.skipped, 1)
    if wanted & REQUEST_UNIT:
        queue = queue_find(request.topic, record.queue_id)
        if queue == NULL:
            queue = queue_enter(&store.table, request.topic, record.queue_id)
            if queue == NULL:
                return E_NO_MEMORY
        code = request.code
        if unlikely(ext_is_written(queue)):
            code = dispatch_ext_code(store, queue, data, record, code)
        KILL_POINT("before-unit")
        rc = dispatch_unit(store, queue, record, code)
        if likely(rc == 0) and unlikely(request.properties.multi_offset.value_length > 0):
            rc = multi_dispatch(store, record, &request.properties, request.code, &queue)
        if rc < 0:
            dispatch_note_refused(store, queue)
            return rc
    if store.indexes.enabled and not store.dispatch.pending.units_only \
            and wanted & (REQUEST_KEYS | REQUEST_ROLLBACK):
        dispatch_note_keys(store, data, record, request, wanted & REQUEST_KEYS)
    return 0


cdef inline const char *dispatch_refused(Store *store) noexcept nogil:
    """Path of the last file or directory that dispatch could not write."""
    cdef const char *path = b"consumequeue"
    cdef Queue *queue = load_queue(&store.dispatch.refused)
    if store.dispatch.index_stalled:
        path = b"index"
    elif queue != NULL:
        path = queue.files.directory
    return path


cdef inline int64_t dispatch_unit(
    Store *store, Queue *queue, const Record *record, int64_t code,
) noexcept nogil:
    """Write the unit of a record at exactly its queue offset."""
    cdef int64_t rc
    if unlikely(atomic_peek(&store.state) == STATE_OPENING
                or record.physical_offset < store.dispatch.recovering_until):
        return count_recovered(store, queue, recover_record(store, queue, record, code))
    if likely(queue_append_unit(queue, record.queue_offset, record.physical_offset, record.size,
                                code)):
        store.recovery.units_written += 1
        return 0
    if not offset_is_likely(queue, record.queue_offset, record.physical_offset):
        atomic_add(&store.dispatch.skipped, 1)
        return 0
    rc = queue_put_unit(queue, record.queue_offset, record.physical_offset, record.size, code)
    if rc > 0:
        store.recovery.units_written += rc
    return min(rc, 0)


cdef inline int64_t dispatch_tags_code(
    const Settings *settings, const Topic *topic, const StoreProperties *properties,
    int64_t store_timestamp,
) noexcept nogil:
    """Hash of the tags; in the schedule topic the delivery time."""
    cdef int64_t level
    if unlikely(topic.schedule) and properties.delay.value_length > 0:
        level = parse_decimal(properties.delay.value, properties.delay.value_length)
        if level > settings.delay_count:
            level = settings.delay_count
        if level > 0:
            return store_timestamp + settings.delay_millis[level - 1]
    return tags_code(&properties.tags)


cdef inline int32_t next_key_hash(
    const char *data, const Record *record, const DispatchRequest *request, int64_t *at,
) noexcept nogil:
    """Hash of the unique key, then of each of KEYS, then KEYLESS; ``at`` begins as -1."""
    cdef const char *word
    cdef int64_t length
    cdef int32_t start
    if request.topic != NULL:
        start = request.topic.key_hash
    else:
        start = java_hash_utf8(b"#", 1, java_hash_utf8(
            data + record.topic_at, record.topic_length, 0))
    if at[0] < 0:
        at[0] = 0
        if request.properties.unique_key.value_length > 0:
            return index_key_hash(request.properties.unique_key.value,
                                  request.properties.unique_key.value_length, start)
    if request.properties.keys.value_length > 0 and split_next(
            request.properties.keys.value, request.properties.keys.value_length, 32, at, &word,
            &length):
        return index_key_hash(word, length, start)
    return KEYLESS


cdef inline void dispatch_note_keys(
    Store *store, const char *data, const Record *record, const DispatchRequest *request,
    int64_t with_keys,
) noexcept nogil:
    """Hash a record's keys and prefetch their slots; note a record without keys."""
    cdef int64_t at = -1
    cdef bint begins = True
    cdef int32_t key_hash = next_key_hash(data, record, request, &at) if with_keys else KEYLESS
    while key_hash != KEYLESS or begins:
        note_key(store, record, key_hash, begins)
        begins = False
        if key_hash != KEYLESS:
            key_hash = next_key_hash(data, record, request, &at)


cdef inline void note_key(
    Store *store, const Record *record, int32_t key_hash, bint begins,
) noexcept nogil:
    cdef Pending *pending = store.dispatch.pending
    cdef PendingKey *key
    if unlikely(pending.count == PENDING_ROOM):
        if dispatch_keys(store) < 0:
            pending.lost = True              # the batch is repeated
            return
    key = &pending.keys[pending.count]
    pending.count += 1
    key.physical_offset = record.physical_offset
    key.store_timestamp = record.store_timestamp
    key.key_hash = key_hash
    key.begins = begins
    if key_hash != KEYLESS and store.indexes.last != NULL:
        prefetch(index_slot(store.indexes.last, key_hash))


cdef int64_t dispatch_keys(Store *store) noexcept nogil:
    """Enter the pending keys, but not of records below the last index file's end."""
    cdef Pending *pending = store.dispatch.pending
    cdef PendingKey *key
    cdef int64_t rc = 0
    cdef int64_t i
    if unlikely(atomic_get(&store.indexes.waiting) != 0):
        rc = -ENOSPC                         # the files must be repaired first: reput_until
    for i in range(pending.count if rc == 0 else 0):
        key = &pending.keys[i]
        if key.begins:
            rc = index_set_roll(&store.indexes)
            if rc < 0:
                break
            pending.known = key.physical_offset < max(
                atomic_peek(&store.indexes.last.end_phy_offset), store.indexes.known_end)
        if key.key_hash != KEYLESS and not pending.known:
            rc = index_set_put(&store.indexes, key.key_hash, key.physical_offset,
                               key.store_timestamp)
            if rc < 0:
                break
    if rc < 0:
        store.dispatch.index_stalled = True
        atomic_set(&store.dispatch.stalled, rc)
        return rc
    pending.count = 0
    return 0
