# A range of the log as the dispatch would take it: queue units in runs, and index entries.
#
# A record belongs to the range that it begins in.  A range that begins within a file begins with
# the first record found there; the walk ends on the first record of the next one, so that who
# has the ranges can tell whether they meet.  Nothing is written, and no queue is looked at.
#
# Source: store/DefaultMessageStore.java ReputMessageService, CommitLogDispatcherBuildConsumeQueue,
#         CommitLogDispatcherBuildIndex

cdef enum:
    WALK_MORE                    # a slice is full
    WALK_ENDED
    WALK_DAMAGED                 # bytes that are no record were passed over

    WALK_EXAMINED = 64 << 20     # bytes of the log before somebody looks for signals
    RUN_BYTES_MOST = 1 << 20
    WALK_CHUNK = 256 << 10       # read at a time: it stays in the cache

# An index entry before it has a file.
cdef packed struct LooseEntry:
    int64_t physical_offset
    int64_t store_timestamp
    int32_t key_hash

# Units of one file of a queue whose queue offsets follow each other.
cdef struct UnitRun:
    Queue *queue
    int64_t first                # queue offset
    int64_t count
    char *units

cdef struct LogWalk:
    Store *store                 # a log by itself, whose table has no queue but the walk's
    Cursor cursor
    int64_t start
    int64_t stop
    bint begun
    bint ended
    bint unclean                 # a torn last record counts as none, as in a recovery
    bint any_version             # records of RocketMQ 5 are taken as well
    bint indexed
    Said said
    UnitRun *runs                # of the slice
    int64_t run_count
    int64_t run_room
    Queue **touched              # queues with a run that may grow
    int64_t touched_count
    int64_t touched_room
    LooseEntry *entries          # of the slice, in log order
    int64_t entry_count
    int64_t entry_room
    int64_t bytes                # of the slice
    int64_t records              # these and the following: of the range so far
    int64_t units
    int64_t keys
    int64_t skipped
    int64_t noted                # records that the index takes notice of, with keys or without
    bint noted_last              # one of them is behind the last key
    int64_t first_record         # -1: none begins in the range
    int64_t next_record          # the first one behind the range; -1: none follows
    int64_t bad_offset           # with WALK_DAMAGED
    int64_t bad_field
    int64_t resumed              # a good record after it; -1: none in the range


cdef void walk_free_slice(LogWalk *walk) noexcept nogil:
    """Let go of what a slice has; runs that were given out are not in it any more."""
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
    """Stand on the first record of the range; 0, or a status."""
    cdef int64_t rc
    cdef Cursor *cursor = &walk.cursor
    cursor_init(cursor, walk.store, walk.start, walk.stop)
    cursor.chunk = WALK_CHUNK
    walk.begun = True
    walk.first_record = -1
    walk.next_record = -1
    if walk.start >= walk.stop:
        walk.ended = True
    elif walk.start % walk.store.log.file_size:
        cursor.at = walk.start - 1
        rc = cursor_resync(cursor)
        if rc < 0:
            return rc
        walk.ended = rc == 0
    cursor.stop = INT64_MOST
    cursor.tell_removed = True
    return 0


cdef int64_t walk_slice(LogWalk *walk, int64_t most) noexcept nogil:
    """Go on until the slice has ``most`` bytes: WALK_..., or a status."""
    cdef Cursor *cursor = &walk.cursor
    cdef Record record
    cdef const char *data
    cdef int64_t rc, examined
    if not walk.begun:
        rc = walk_begin(walk)
        if rc < 0:
            return rc
    examined = cursor.at
    while not walk.ended:
        rc = cursor_next(cursor, &record, &data)
        if rc == E_CORRUPT:
            return walk_damaged(walk)
        if rc < 0:
            return rc
        if rc == 0:
            break
        if record.physical_offset >= walk.stop:
            walk.next_record = record.physical_offset
            break
        if walk.unclean and record_is_torn(data, &record, walk.store.log.file_size) \
                and log_used(walk.store, cursor.at) <= cursor.at:
            break
        if record.magic == MAGIC_MESSAGE_V2 and not walk.any_version:
            cursor.at = record.physical_offset
            return fail(&walk.store.failure, E_VERSION, "commitlog",
                        "a record of RocketMQ 5", cursor.at, 0, 0)
        rc = walk_record(walk, data, &record)
        if rc < 0:
            return rc
        if walk.bytes >= most or cursor.at - examined >= WALK_EXAMINED:
            return walk_close_runs(walk, WALK_MORE)
    walk.ended = True
    return walk_close_runs(walk, WALK_ENDED)


cdef int64_t walk_damaged(LogWalk *walk) noexcept nogil:
    """Note where the damage is, and go to the next good record of the range."""
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
    """Add what the dispatch would write for a record."""
    cdef int64_t rc
    cdef int64_t says = record_says(
        &walk.store.table, &walk.store.settings, data, record, &walk.said)
    if says < 0:
        return says
    if walk.first_record < 0:
        walk.first_record = record.physical_offset
    walk.records += 1
    if says & SAYS_SKIPPED:
        walk.skipped += 1
    if says & SAYS_UNIT:
        rc = walk_unit(walk, record)
        if rc < 0:
            return rc
    if walk.indexed and says & (SAYS_KEYS | SAYS_ROLLBACK):
        walk.noted += 1
        walk.noted_last = True
        if says & SAYS_KEYS:
            return walk_keys(walk, data, record)
    return 0


cdef inline int64_t walk_unit(LogWalk *walk, const Record *record) noexcept nogil:
    """Add a unit to the run of its queue, or begin one."""
    cdef Queue *queue = queue_find(walk.said.topic, record.queue_id)
    cdef int64_t rc
    cdef char *grown
    if queue == NULL:
        queue = queue_enter(&walk.store.table, walk.said.topic, record.queue_id, -1,
                            walk.store.settings.queue_file_size, False)
        if queue == NULL:
            return E_NO_MEMORY
    if queue.run_count and (
            record.queue_offset != queue.run_start + queue.run_count
            or queue.run_count * UNIT_BYTES >= RUN_BYTES_MOST
            or record.queue_offset * UNIT_BYTES % queue.files.file_size == 0):
        rc = walk_close_run(walk, queue)
        if rc < 0:
            return rc
    if queue.run == NULL:
        rc = walk_touch(walk, queue)
        if rc < 0:
            return rc
    if queue.run_count == queue.run_room:
        grown = <char *>realloc(
            queue.run, <size_t>((queue.run_room * 2 + 64) * UNIT_BYTES))
        if grown == NULL:
            return E_NO_MEMORY
        queue.run = grown
        queue.run_room = queue.run_room * 2 + 64
    if queue.run_count == 0:
        queue.run_start = record.queue_offset
    unit_write(queue.run + queue.run_count * UNIT_BYTES, record.physical_offset,
               record.size, walk.said.code)
    queue.run_count += 1
    walk.units += 1
    walk.bytes += UNIT_BYTES
    return 0


cdef int64_t walk_touch(LogWalk *walk, Queue *queue) noexcept nogil:
    """Remember that a queue has a run, and have room for it among the runs."""
    cdef Queue **grown
    if walk.touched_count == walk.touched_room:
        grown = <Queue **>realloc(
            walk.touched, <size_t>(walk.touched_room * 2 + 64) * sizeof(Queue *))
        if grown == NULL:
            return E_NO_MEMORY
        walk.touched = grown
        walk.touched_room = walk.touched_room * 2 + 64
    walk.touched[walk.touched_count] = queue
    walk.touched_count += 1
    return 0


cdef int64_t walk_close_run(LogWalk *walk, Queue *queue) noexcept nogil:
    """Move a queue's run to those of the slice; the queue keeps its place among the touched."""
    cdef UnitRun *grown
    cdef UnitRun *run
    if queue.run_count == 0:
        return 0
    if walk.run_count == walk.run_room:
        grown = <UnitRun *>realloc(
            walk.runs, <size_t>(walk.run_room * 2 + 64) * sizeof(UnitRun))
        if grown == NULL:
            return E_NO_MEMORY
        walk.runs = grown
        walk.run_room = walk.run_room * 2 + 64
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
    """The end of a slice: ``status``, unless there is no memory."""
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
    cdef int32_t key_hash = next_key_hash(data, record, &walk.said, &at)
    while key_hash != KEYLESS:
        if walk.entry_count == walk.entry_room:
            grown = <LooseEntry *>realloc(
                walk.entries, <size_t>(walk.entry_room * 2 + 1024) * sizeof(LooseEntry))
            if grown == NULL:
                return E_NO_MEMORY
            walk.entries = grown
            walk.entry_room = walk.entry_room * 2 + 1024
        entry = &walk.entries[walk.entry_count]
        entry.physical_offset = record.physical_offset
        entry.store_timestamp = record.store_timestamp
        entry.key_hash = key_hash
        walk.entry_count += 1
        walk.keys += 1
        walk.bytes += sizeof(LooseEntry)
        walk.noted_last = False
        key_hash = next_key_hash(data, record, &walk.said, &at)
    return 0


cdef int64_t queue_put_run(
    Queue *queue, int64_t first, const char *units, int64_t count, int64_t *skipped,
) noexcept nogil:
    """Write units one after the other as a recovery without files does; 0, or a status."""
    cdef Unit unit
    cdef int64_t i, rc
    for i in range(count):
        unit_read(units + i * UNIT_BYTES, &unit)
        rc = recover_unit(NULL, queue, first + i, &unit, skipped)
        if rc < 0:
            return rc
    return 0
