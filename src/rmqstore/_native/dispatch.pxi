# Reput: each new record of the log gets its consume queue unit and its index entries.
#
# Records are taken in batches: units are written as they come, keys are hashed and their
# slots fetched into the cache, then entered together. The position is published last.
#
# Source: store/DefaultMessageStore.java ReputMessageService, CommitLogDispatcherBuildConsumeQueue,
#         CommitLogDispatcherBuildIndex; store/index/IndexService.java buildIndex

cdef enum:
    DISPATCH_BATCH = 128         # records
    PENDING_ROOM = 512           # keys of one batch before they are entered
    REPUT_SPINS = 1000           # looks for more before it sleeps, about 20 us
    KEYLESS = -1

    SAYS_UNIT = 1                # the record has a place in a queue
    SAYS_KEYS = 2                # its keys are indexed, if it has any
    SAYS_ROLLBACK = 4            # it has neither, but 4.9.3 looks for the index file
    SAYS_SKIPPED = 8             # a topic that is a path, or a queue that cannot be

# What the dispatch takes from one record.
cdef struct Said:
    Topic *topic                 # the record's; before the call: of the one before it, or NULL
    int64_t code                 # with SAYS_UNIT
    StoreProperties properties

cdef struct PendingKey:
    int64_t physical_offset
    int64_t store_timestamp
    int32_t key_hash             # KEYLESS: a record that only has the file made if it is full

cdef struct Pending:
    int64_t count
    bint lost                    # keys were dropped for lack of space
    bint known                   # the record of the next keys has been entered before
    bint units_only              # keys are left out: the index has no space
    PendingKey keys[PENDING_ROOM]


cdef int64_t dispatch_until(Store *store, int64_t limit) noexcept nogil:
    """Dispatch the records below the log offset ``limit``: 0, or what stopped it.

    Where the index has no space the queues get their units all the same, once.
    """
    cdef int64_t rc = dispatch_range(store, atomic_get(&store.dispatched), limit, False)
    if lacks_space(rc) and store.index_stalled:
        dispatch_range(store, max(atomic_get(&store.dispatched), store.units_until), limit, True)
    return rc


cdef int64_t dispatch_range(
    Store *store, int64_t at, int64_t limit, bint units_only,
) noexcept nogil:
    """Dispatch the records in [at, limit), and publish that unless it is for the units alone."""
    cdef MappedFile *file = NULL
    cdef int64_t rc = 0
    cdef int64_t stop
    while at < limit and rc == 0:
        if file == NULL or at < file.start or at >= file.start + file.size:
            mapped_file_release(file)
            file = NULL
            rc = file_set_hold(&store.log, at, &file)
            if rc < 0:
                break
        stop = min(limit, file.start + file.size)
        while at < stop and rc == 0:
            pthread_mutex_lock(&store.dispatch_mutex)
            store.pending.units_only = units_only
            rc = dispatch_batch(store, file, &at, stop)
            if rc == 0 and units_only:
                store.units_until = at
            elif rc == 0:
                atomic_set_strict(&store.dispatched, at)
            pthread_mutex_unlock(&store.dispatch_mutex)
            if rc == 0 and not units_only:
                gate_open(&store.visible)
            if unlikely(atomic_get(&store.stopping) != 0):
                break
        if atomic_get(&store.stopping):
            break
    mapped_file_release(file)
    return rc


cdef int64_t dispatch_batch(
    Store *store, MappedFile *file, int64_t *position, int64_t stop,
) noexcept nogil:
    """Dispatch up to DISPATCH_BATCH records of one file and move ``position`` behind them."""
    cdef const char *data
    cdef Record record
    cdef Said said
    cdef Pending *pending = store.pending
    cdef int64_t at = position[0]
    cdef int64_t size, field
    cdef int64_t done = 0
    cdef int64_t newest = 0
    cdef int64_t last = -1
    cdef int64_t rc = 0
    said.topic = NULL
    pending.count = 0
    pending.lost = False
    while done < DISPATCH_BATCH and at < stop:
        done += 1
        data = file.base + (at - file.start)
        size = record_parse(data, file.size - (at - file.start), file.size - (at - file.start),
                            &record, &field)
        if size == 0:                        # the filler
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
            rc = fail(&store.failure, E_CORRUPT, "commitlog", record_field_name(field), at, 0, 0)
            break
        rc = dispatch_record(store, file, data, &record, &said)
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
        atomic_set(&store.logics_timestamp, newest)
        atomic_set(&store.indexes.dispatched, at)
        store.last_record = last
    position[0] = at
    return 0


cdef inline int64_t record_says(
    TopicTable *table, const Settings *settings, const char *data, const Record *record, Said *said,
) noexcept nogil:
    """What is to be done about a record: SAYS_... added up, 0 for nothing, or E_NO_MEMORY."""
    cdef Topic *topic = said.topic
    cdef int32_t transaction = record.sys_flag & SYS_TRANSACTION
    if transaction == SYS_ROLLBACK:
        return SAYS_ROLLBACK
    store_properties(data + record.properties_at, record.properties_length, &said.properties)
    if topic == NULL or topic.length != record.topic_length \
            or memcmp(topic.name, data + record.topic_at, <size_t>topic.length) != 0:
        topic = topic_find(table, data + record.topic_at, record.topic_length)
        if topic == NULL and topic_name_good(data + record.topic_at, record.topic_length):
            topic = topic_enter(table, data + record.topic_at, record.topic_length)
            if topic == NULL:
                return E_NO_MEMORY
        said.topic = topic
    # Whoever deletes a topic deletes its queues: its records are found by key all the same.
    if topic != NULL and record.physical_offset < topic.deleted_before:
        if record.physical_offset >= topic.noted_before:
            topic.gone = True
        return SAYS_KEYS
    if transaction == SYS_PREPARED:
        return SAYS_KEYS
    if topic == NULL or record.queue_id < 0 or record.queue_offset < 0 \
            or record.queue_offset > INT64_MOST // UNIT_BYTES - 2:
        return SAYS_KEYS | SAYS_SKIPPED
    said.code = dispatch_tags_code(settings, topic, &said.properties, record.store_timestamp)
    return SAYS_KEYS | SAYS_UNIT


cdef inline int64_t dispatch_record(
    Store *store, MappedFile *file, const char *data, const Record *record, Said *said,
) noexcept nogil:
    """Write the unit of one record, and note its keys."""
    cdef Queue *queue
    cdef int64_t rc
    cdef int64_t says = record_says(&store.table, &store.settings, data, record, said)
    if says < 0:
        return says
    rc = mapped_file_lost(file, data - file.base, data - file.base + record.size)
    if rc < 0:
        return rc
    if says & SAYS_SKIPPED:                  # passed over, and counted
        atomic_add(&store.skipped, 1)
    if says & SAYS_UNIT:
        queue = queue_find(said.topic, record.queue_id)
        if queue == NULL:
            queue = queue_enter(&store.table, said.topic, record.queue_id, store.root,
                                store.settings.queue_file_size, True)
            if queue == NULL:
                return E_NO_MEMORY
            queue.files.open_files = &store.open_files
        KILL_POINT("before-unit")
        rc = dispatch_unit(store, queue, record, said.code)
        if rc < 0:
            store.index_stalled = False
            return rc
    if store.indexes.enabled and not store.pending.units_only \
            and says & (SAYS_KEYS | SAYS_ROLLBACK):
        note_key(store, record, KEYLESS)
        if says & SAYS_KEYS:
            dispatch_note_keys(store, data, record, said)
    return 0


cdef inline int64_t dispatch_unit(
    Store *store, Queue *queue, const Record *record, int64_t code,
) noexcept nogil:
    """The unit of a record, at exactly its place."""
    cdef int64_t rc
    if unlikely(atomic_peek(&store.state) == STATE_OPENING
                or record.physical_offset < store.recovering_until):
        rc = recover_record(store, queue, record, code)
        if rc > 0:
            store.recovery.units_written += rc
            if not queue.completed:
                queue.completed = True
                store.recovery.queues_rebuilt += 1
        return min(rc, 0)
    if not offset_is_likely(queue, record.queue_offset, record.physical_offset):
        atomic_add(&store.skipped, 1)
        return 0
    rc = queue_put_unit(queue, record.queue_offset, record.physical_offset, record.size, code)
    if rc > 0:
        store.recovery.units_written += rc
    return min(rc, 0)


cdef inline bint offset_is_likely(
    Queue *queue, int64_t queue_offset, int64_t physical_offset,
) noexcept nogil:
    """Whether a gap before a record can be: each message that is missing took bytes of the log.

    BODYCRC does not cover QUEUEOFFSET, so one flipped bit would have millions of units filled.
    """
    cdef int64_t known = atomic_peek(&queue.max_offset)
    if known == 0:
        return first_is_likely(queue, queue_offset, physical_offset)
    return queue_offset <= known or gap_is_likely(
        queue_offset - known, physical_offset - atomic_peek(&queue.last_end))


cdef inline bint first_is_likely(
    Queue *queue, int64_t queue_offset, int64_t physical_offset,
) noexcept nogil:
    """Whether a queue without a unit can begin there: anywhere, but not far behind its files."""
    return queue.files.count == 0 or gap_is_likely(queue_offset, physical_offset) \
        or queue_offset * UNIT_BYTES < file_set_stop(&queue.files)


cdef inline bint gap_is_likely(int64_t missing, int64_t bytes_between) noexcept nogil:
    return missing <= bytes_between // RECORD_FIXED_BYTES


cdef inline int64_t dispatch_tags_code(
    const Settings *settings, const Topic *topic, const StoreProperties *properties,
    int64_t store_timestamp,
) noexcept nogil:
    """The hash of the tags; in the schedule topic the time at which to deliver."""
    cdef int64_t level
    if unlikely(topic.schedule) and properties.delay.value_length > 0:
        level = parse_decimal(properties.delay.value, properties.delay.value_length)
        if level > settings.delay_count:
            level = settings.delay_count
        if level > 0:
            return store_timestamp + settings.delay_millis[level - 1]
    return tags_code(&properties.tags)


cdef inline int32_t next_key_hash(
    const char *data, const Record *record, const Said *said, int64_t *at,
) noexcept nogil:
    """The hash of the unique key, then of each of KEYS, then KEYLESS; ``at`` begins as -1."""
    cdef const char *word
    cdef int64_t length
    cdef int32_t start
    if said.topic != NULL:
        start = said.topic.key_hash
    else:
        start = java_hash_utf8(b"#", 1, java_hash_utf8(
            data + record.topic_at, record.topic_length, 0))
    if at[0] < 0:
        at[0] = 0
        if said.properties.unique_key.value_length > 0:
            return index_key_hash(said.properties.unique_key.value,
                                  said.properties.unique_key.value_length, start)
    if said.properties.keys.value_length > 0 and split_next(
            said.properties.keys.value, said.properties.keys.value_length, 32, at, &word, &length):
        return index_key_hash(word, length, start)
    return KEYLESS


cdef inline void dispatch_note_keys(
    Store *store, const char *data, const Record *record, const Said *said,
) noexcept nogil:
    """Hash the keys of a record and fetch their slots."""
    cdef int64_t at = -1
    cdef int32_t key_hash = next_key_hash(data, record, said, &at)
    while key_hash != KEYLESS:
        note_key(store, record, key_hash)
        key_hash = next_key_hash(data, record, said, &at)


cdef inline void note_key(Store *store, const Record *record, int32_t key_hash) noexcept nogil:
    cdef Pending *pending = store.pending
    cdef PendingKey *key
    if unlikely(pending.count == PENDING_ROOM):
        if dispatch_keys(store) < 0:
            pending.lost = True              # the batch is done again
            return
    key = &pending.keys[pending.count]
    pending.count += 1
    key.physical_offset = record.physical_offset
    key.store_timestamp = record.store_timestamp
    key.key_hash = key_hash
    if key_hash != KEYLESS and store.indexes.last != NULL:
        prefetch(index_slot(store.indexes.last, key_hash))


cdef int64_t dispatch_keys(Store *store) noexcept nogil:
    """Enter the keys noted; a record below the last file's end has been entered before."""
    cdef Pending *pending = store.pending
    cdef PendingKey *key
    cdef int64_t rc = 0
    cdef int64_t i
    if unlikely(atomic_get(&store.indexes.waiting) != 0):
        rc = index_set_resume(store)
    for i in range(pending.count if rc == 0 else 0):
        key = &pending.keys[i]
        if key.key_hash == KEYLESS:          # the first of each record
            rc = index_set_roll(&store.indexes)
            if rc < 0:
                break
            pending.known = key.physical_offset < max(
                atomic_peek(&store.indexes.last.end_phy_offset), store.indexes.known_end)
        elif not pending.known:
            rc = index_set_put(&store.indexes, key.key_hash, key.physical_offset,
                               key.store_timestamp)
            if rc < 0:
                break
    if rc < 0:
        store.index_stalled = True
        atomic_set(&store.stalled, rc)
        return rc
    pending.count = 0
    return 0


cdef void *reput_run(void *argument) noexcept nogil:
    """The dispatch activity: at work as soon as something is written, and at the latest each ms."""
    cdef Store *store = <Store *>argument
    cdef atomic_i64 *limit = &store.log.flushed if store.settings.sync_flush else &store.log.wrote
    cdef int64_t spins, seen, calls, rc
    while not atomic_get(&store.stopping):
        calls = atomic_get_strict(&store.reput.calls)
        seen = atomic_get_strict(limit)
        if seen > atomic_get(&store.dispatched):
            rc = dispatch_until(store, seen)
            if rc < 0:
                dispatch_stalled(store, rc)
                worker_sleep(&store.reput, &store.stopping, 0, calls, 50000000)
            else:
                atomic_set(&store.stalled, 0)
            continue
        spins = 0
        while spins < REPUT_SPINS and atomic_get(limit) == seen \
                and not atomic_get(&store.stopping):
            cpu_pause()
            spins += 1
        if spins == REPUT_SPINS:
            worker_sleep(&store.reput, limit, seen, calls, 500000000)
    store_drop(store)
    return NULL


cdef void dispatch_stalled(Store *store, int64_t status) noexcept nogil:
    """Without space or memory it is tried again; anything else ends the store's service."""
    if lacks_space(status) or is_passing(status):
        atomic_set(&store.stalled, status)
    else:
        atomic_set(&store.stalled, 0)
        store_broke(store, status, "consumequeue", "the dispatch cannot go on")


cdef bint topic_name_good(const char *name, int64_t length) noexcept nogil:
    """[%|a-zA-Z0-9_-]{1,127}: never a path."""
    cdef int64_t i
    cdef unsigned char c
    if length < 1 or length > TOPIC_MAX_BYTES:
        return False
    for i in range(length):
        c = <unsigned char>name[i]
        if not (97 <= c <= 122 or 65 <= c <= 90 or 48 <= c <= 57
                or c == 37 or c == 124 or c == 95 or c == 45):
            return False
    return True
