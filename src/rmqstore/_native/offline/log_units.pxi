# Dispatch of a range of the log to memory: queue units in runs, and index entries.
#
# A record belongs to the range in which it begins.  A range that starts within a file begins with
# the first record found; the walk ends at the first record of the next range, so that the caller
# can check that ranges join.  Writes nothing, and reads no queue.
#
# Source: store/DefaultMessageStore.java ReputMessageService, CommitLogDispatcherBuildConsumeQueue,
#         CommitLogDispatcherBuildIndex

cdef enum:
    WALK_MORE                    # a slice is full
    WALK_ENDED
    WALK_DAMAGED                 # skipped bytes that are not a record
    WALK_CHANGED                 # a record of the slice was rewritten: its results are void

    WALK_EXAMINED = 64 << 20     # bytes of the log between checks for signals
    RUN_BYTES_MAX = 1 << 20
    WALK_ODD_MAX = 100           # odd records listed; more are counted
    WALK_CHUNK = 256 << 10       # bytes per read: fits the cache

# An index entry not yet assigned to a file.
cdef packed struct LooseEntry:
    int64_t physical_offset
    int64_t store_timestamp
    int32_t key_hash

# Units of one file of a queue, with consecutive queue offsets.
cdef struct UnitRun:
    Queue *queue
    int64_t first                # queue offset
    int64_t count
    char *units

# Of the range so far.
cdef struct WalkCounts:
    int64_t records
    int64_t units
    int64_t keys
    int64_t skipped
    int64_t noted                # records that the index handles, with or without keys
    bint noted_last              # one comes after the last key
    int64_t first_record         # -1: none begins in the range
    int64_t next_record          # the first one after the range; -1: none follows
    int64_t odd                  # with a field that nobody writes so

cdef struct LogWalk:
    Store *store                 # a log alone; its table has only the walk's queues
    Cursor cursor
    int64_t start
    int64_t stop
    bint begun
    bint ended
    bint unclean                 # ignore a torn last record, as recovery does
    bint any_version             # accept records of RocketMQ 5 as well
    bint indexed
    DispatchRequest request
    UnitRun *runs                # of the slice
    int64_t run_count
    int64_t run_room
    Queue **touched              # queues with an open run
    int64_t touched_count
    int64_t touched_room
    LooseEntry *entries          # of the slice, in log order
    int64_t entry_count
    int64_t entry_room
    int64_t bytes                # of the slice
    WalkCounts counts
    int64_t bad_offset           # with WALK_DAMAGED
    int64_t bad_field
    int64_t resumed              # a good record after it; -1: none in the range
    int64_t odd_offsets[WALK_ODD_MAX]
    const char *odd_fields[WALK_ODD_MAX]


cdef void walk_free_slice(LogWalk *walk) noexcept nogil:
    """Free a slice; runs handed out are no longer in it."""
    cdef int64_t i
    for i in range(walk.run_count):
        free(walk.runs[i].units)
    free(walk.entries)
    walk.run_count = 0
    walk.entries = NULL
    walk.entry_count = 0
    walk.entry_room = 0
    walk.bytes = 0


cdef void walk_free(LogWalk *walk) noexcept nogil:
    walk_free_slice(walk)
    free(walk.runs)
    free(walk.touched)
    cursor_close(&walk.cursor)
    if walk.store != NULL:
        store_drop(walk.store)
        walk.store = NULL


cdef int64_t walk_begin(LogWalk *walk) noexcept nogil:
    """Position the walk at the first record of the range; 0, or a status."""
    cdef int64_t rc
    cdef Cursor *cursor = &walk.cursor
    cursor_init(cursor, walk.store, walk.start, walk.stop)
    cursor.chunk = WALK_CHUNK
    cursor.in_place = True
    walk.begun = True
    walk.counts.first_record = -1
    walk.counts.next_record = -1
    if walk.start >= walk.stop:
        walk.ended = True
    elif walk.start % walk.store.log.file_size:
        cursor.at = walk.start - 1
        rc = cursor_resync(cursor)
        if rc < 0:
            return rc
        walk.ended = rc == 0
    cursor.stop = INT64_MOST
    cursor.report_removed = True
    return 0


cdef int64_t walk_slice(LogWalk *walk, int64_t most) noexcept nogil:
    """Continue until the slice has ``most`` bytes: WALK_MORE, _ENDED, _DAMAGED, or a status."""
    cdef WalkCounts before
    cdef int64_t at, rc
    if not walk.begun:
        rc = walk_begin(walk)
        if rc < 0:
            return rc
    before = walk.counts
    at = walk.cursor.at
    rc = walk_records(walk, most)
    if rc == WALK_CHANGED:
        rc = walk_close_runs(walk, 0)
        walk_free_slice(walk)
        walk.counts = before
        walk.cursor.at = at
        walk.cursor.in_place = False
        if rc == 0:
            rc = walk_records(walk, most)
    return rc


cdef int64_t walk_records(LogWalk *walk, int64_t most) noexcept nogil:
    """As walk_slice, or WALK_CHANGED."""
    cdef Cursor *cursor = &walk.cursor
    cdef Record record
    cdef const char *data
    cdef int64_t rc
    cdef int64_t examined = cursor.at
    while not walk.ended:
        rc = cursor_next(cursor, &record, &data)
        if rc == E_CORRUPT:
            return walk_damaged(walk)
        if rc < 0:
            return rc
        if rc == 0:
            break
        if record.physical_offset >= walk.stop:
            walk.counts.next_record = record.physical_offset
            break
        if walk.unclean and record_is_torn(data, &record, walk.store.log.file_size) \
                and log_used(walk.store, cursor.at) <= cursor.at:
            break
        if record.magic == MAGIC_MESSAGE_V2 and not walk.any_version:
            cursor.at = record.physical_offset
            return fail(&walk.store.failure, E_VERSION, set_directory(&walk.store.log, 0),
                        "a record of RocketMQ 5: its own broker recovers such a store, and "
                        "'rmqstore extract' makes one of 4.9.3 from its messages", cursor.at, 0, 0)
        rc = walk_record(walk, data, &record)
        if cursor_changed(cursor, &record, data):
            return WALK_CHANGED
        if rc < 0:
            return rc
        if walk.bytes >= most or cursor.at - examined >= WALK_EXAMINED:
            return walk_close_runs(walk, WALK_MORE)
    walk.ended = True
    return walk_close_runs(walk, WALK_ENDED)


cdef int64_t walk_damaged(LogWalk *walk) noexcept nogil:
    """Note the damage, and go to the next good record of the range."""
    cdef Cursor *cursor = &walk.cursor
    cdef int64_t rc = 0
    walk.bad_offset = cursor.at
    walk.bad_field = cursor.field
    walk.resumed = -1
    if cursor.at < walk.stop:
        cursor.stop = walk.stop
        rc = cursor_resync(cursor)
        cursor.stop = INT64_MOST
        if rc < 0:
            return rc
    if rc > 0:
        walk.resumed = cursor.at
    else:
        walk.ended = True
    return walk_close_runs(walk, WALK_DAMAGED)


cdef inline int64_t walk_record(
    LogWalk *walk, const char *data, const Record *record,
) noexcept nogil:
    """Add the unit and index entries that dispatch would write for a record."""
    cdef Queue *queue
    cdef const char *odd
    cdef int64_t rc
    cdef int64_t wanted = dispatch_request(
        &walk.store.table, &walk.store.settings, data, record, &walk.request)
    if wanted < 0:
        return wanted
    if walk.counts.first_record < 0:
        walk.counts.first_record = record.physical_offset
    walk.counts.records += 1
    odd = record_odd_field(data, record)
    if unlikely(odd != NULL):
        if walk.counts.odd < WALK_ODD_MAX:
            walk.odd_offsets[walk.counts.odd] = record.physical_offset
            walk.odd_fields[walk.counts.odd] = odd
        walk.counts.odd += 1
    if wanted & REQUEST_SKIPPED:
        walk.counts.skipped += 1
    if wanted & REQUEST_UNIT:
        queue = queue_enter_near(&walk.store.table, walk.request.topic, record.queue_id)
        rc = walk_unit(walk, record, queue, record.queue_offset)
        if rc == 0 and unlikely(walk.request.properties.multi_offset.value_length > 0):
            rc = walk_multi(walk, record)
        if rc < 0:
            return rc
    if walk.indexed and wanted & (REQUEST_KEYS | REQUEST_ROLLBACK):
        walk.counts.noted += 1
        walk.counts.noted_last = True
        if wanted & REQUEST_KEYS:
            return walk_keys(walk, data, record)
    return 0


cdef inline Queue *queue_enter_near(
    TopicTable *table, Topic *topic, int32_t queue_id,
) noexcept nogil:
    """As queue_enter, without the table's lock for a known queue."""
    cdef Queue *queue = queue_find(topic, queue_id)
    return queue if queue != NULL else queue_enter(table, topic, queue_id)


cdef int64_t walk_multi(LogWalk *walk, const Record *record) noexcept nogil:
    """Add the units in the record's further queues."""
    cdef MultiNames names
    cdef MultiName entry
    cdef Queue *queue
    cdef int64_t rc = multi_begin(&walk.request.properties, &names)
    if rc <= 0:
        walk.counts.skipped -= rc
        return 0
    while multi_next(&names, &entry):
        rc = multi_find_queue(&walk.store.table, record, &entry, &queue)
        if rc == E_NOT_FOUND:
            walk.counts.skipped += 1
        elif rc < 0:
            return rc
        elif queue != NULL:
            rc = walk_unit(walk, record, queue, entry.queue_offset)
            if rc < 0:
                return rc
    return 0


cdef inline int64_t walk_unit(
    LogWalk *walk, const Record *record, Queue *queue, int64_t queue_offset,
) noexcept nogil:
    """Add a unit to the run of its queue, or start a run."""
    cdef int64_t rc
    cdef char *grown
    if queue == NULL:
        return E_NO_MEMORY
    if queue.run_count and (
            queue_offset != queue.run_start + queue.run_count
            or queue.run_count * UNIT_BYTES >= RUN_BYTES_MAX
            or queue_offset * UNIT_BYTES % queue.files.file_size == 0):
        rc = walk_close_run(walk, queue)
        if rc < 0:
            return rc
    if queue.run == NULL:
        rc = walk_touch(walk, queue)
        if rc < 0:
            return rc
    grown = <char *>array_with_room(queue.run, &queue.run_room, queue.run_count, UNIT_BYTES)
    if grown == NULL:
        return E_NO_MEMORY
    queue.run = grown
    if queue.run_count == 0:
        queue.run_start = queue_offset
    unit_write(queue.run + queue.run_count * UNIT_BYTES, record.physical_offset,
               record.size, walk.request.code)
    queue.run_count += 1
    walk.counts.units += 1
    walk.bytes += UNIT_BYTES
    return 0


cdef int64_t walk_touch(LogWalk *walk, Queue *queue) noexcept nogil:
    """Enter a queue in ``touched``, and make room for its run in the slice."""
    cdef Queue **grown
    grown = <Queue **>array_with_room(
        walk.touched, &walk.touched_room, walk.touched_count, sizeof(Queue *))
    if grown == NULL:
        return E_NO_MEMORY
    walk.touched = grown
    walk.touched[walk.touched_count] = queue
    walk.touched_count += 1
    return 0


cdef int64_t walk_close_run(LogWalk *walk, Queue *queue) noexcept nogil:
    """Move a queue's run to the slice; the queue stays in ``touched``."""
    cdef UnitRun *grown
    cdef UnitRun *run
    if queue.run_count == 0:
        return 0
    grown = <UnitRun *>array_with_room(walk.runs, &walk.run_room, walk.run_count, sizeof(UnitRun))
    if grown == NULL:
        return E_NO_MEMORY
    walk.runs = grown
    run = &walk.runs[walk.run_count]
    run.units = <char *>malloc(<size_t>(queue.run_count * UNIT_BYTES))
    if run.units == NULL:
        return E_NO_MEMORY
    memcpy(run.units, queue.run, <size_t>(queue.run_count * UNIT_BYTES))
    run.queue = queue
    run.first = queue.run_start
    run.count = queue.run_count
    walk.run_count += 1
    queue.run_count = 0
    return 0


cdef int64_t walk_close_runs(LogWalk *walk, int64_t status) noexcept nogil:
    """End a slice: ``status``, unless memory runs out."""
    cdef int64_t i, rc
    for i in range(walk.touched_count):
        rc = walk_close_run(walk, walk.touched[i])
        if rc < 0:
            return rc
        free(walk.touched[i].run)
        walk.touched[i].run = NULL
        walk.touched[i].run_room = 0
    walk.touched_count = 0
    return status


cdef inline int64_t walk_keys(LogWalk *walk, const char *data, const Record *record) noexcept nogil:
    """Add an entry for each key of a record."""
    cdef LooseEntry *grown
    cdef LooseEntry *entry
    cdef int64_t at = -1
    cdef int32_t key_hash = next_key_hash(data, record, &walk.request, &at)
    while key_hash != KEYLESS:
        grown = <LooseEntry *>array_with_room(
            walk.entries, &walk.entry_room, walk.entry_count, sizeof(LooseEntry))
        if grown == NULL:
            return E_NO_MEMORY
        walk.entries = grown
        entry = &walk.entries[walk.entry_count]
        entry.physical_offset = record.physical_offset
        entry.store_timestamp = record.store_timestamp
        entry.key_hash = key_hash
        walk.entry_count += 1
        walk.counts.keys += 1
        walk.bytes += sizeof(LooseEntry)
        walk.counts.noted_last = False
        key_hash = next_key_hash(data, record, &walk.request, &at)
    return 0


cdef int64_t queue_put_run(
    Queue *queue, int64_t first, const char *units, int64_t count, bint is_light,
    int64_t *skipped,
) noexcept nogil:
    """Write consecutive units as a recovery without a store does; 0, or a status."""
    cdef Unit unit
    cdef int64_t i, rc, at
    for i in range(count):
        unit_read(units + i * UNIT_BYTES, &unit)
        if is_light:                         # the record's offsets may restart; the queue's do not
            at = light_place(queue, unit.physical_offset, first + i)
            rc = recover_unit_at(NULL, queue, at, &unit, skipped) if at >= 0 else 0
        else:
            rc = recover_unit(NULL, queue, first + i, &unit, skipped)
        if rc < 0:
            return rc
    return 0
