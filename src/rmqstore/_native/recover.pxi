# Opening for writing: the order of things.
#
# lock -> look -> abort -> mend. Nothing is changed before the lock is held and `abort` is on
# the disk, so that a crash in the middle of a recovery is an unclean exit again; and what may
# refuse is asked before that, so that a refusal leaves the directory as it was.
#
# Source: store/DefaultMessageStore.java load, recover, start

cdef int64_t recover_store(Store *store, bint full, bint fill, Failure *failure) noexcept nogil:
    """Take a locked directory to the state that the four activities start from.

    All that may refuse is asked before anything is changed.
    """
    cdef Checkpoint checkpoint
    cdef stat_t status
    cdef int64_t rc
    cdef int64_t end = 0
    cdef bint was_clean
    cdef int64_t began = monotonic_ns()
    rc = sys_open_file(store.root, "abort", O_RDONLY, &status)
    was_clean = rc == -ENOENT
    if rc >= 0:
        close(<int>rc)
    rc = recover_look(store, failure)
    if rc < 0:
        return rc
    rc = checkpoint_read(store.root, &checkpoint)
    if rc < 0:
        return fail(failure, rc, "checkpoint", "cannot be read", -1, 0, 0)
    rc = recover_size_index(store, &checkpoint, failure)
    if rc < 0:
        return rc
    recover_check_mark(store, &checkpoint)
    if store.log.count:
        end = recover_find_end(store, &checkpoint, was_clean, full, fill, failure)
        if end < 0:
            return end
        rc = recover_foresee(store, &checkpoint, end, was_clean, full, fill, failure)
        if rc < 0:
            return rc
    rc = 0 if PLANTED("abort-after-first-change") else abort_create(store)
    if rc < 0:
        return fail(failure, rc, "abort", "cannot be made", -1, 0, 0)
    KILL_POINT("recover-after-abort")
    rc = recover_mend(store, &checkpoint, end, was_clean, full, fill, failure)
    if PLANTED("abort-after-first-change"):
        abort_create(store)
    store.recovery.seconds_ns = monotonic_ns() - began
    return rc


cdef int64_t recover_mend(
    Store *store, Checkpoint *checkpoint, int64_t end, bint was_clean, bint full, bint fill,
    Failure *failure,
) noexcept nogil:
    """Make log, queues and index what they are to be; `abort` is on the disk."""
    cdef int64_t key_start, completed
    cdef bint known
    cdef int64_t rc = make_directories(store)
    if rc < 0:
        return fail(failure, rc, "consumequeue", "the directories cannot be made", -1, 0, 0)
    rc = file_set_validate(&store.log, True, failure)
    if rc < 0:
        return rc
    store.recovery.clean = was_clean
    store.recovery.completed_file = rc > 0
    if store.log.count:
        rc = recover_log(store, end, was_clean, failure)
        if rc == 0:
            rc = recover_last_file(store, failure)
        if rc < 0:
            return rc
    lower_deletions(store, atomic_get(&store.log.wrote))
    tell_gone_topics(store, atomic_get(&store.log.wrote))
    if checkpoint.mark.valid and checkpoint.mark.dispatched > atomic_get(&store.log.wrote):
        checkpoint.mark.valid = False        # cut below it: its word is not good any more
        checkpoint.stale = True
    KILL_POINT("recover-after-log")
    completed = recover_complete_queues(store, failure)
    rc = min(completed, 0)
    if rc == 0:
        rc = recover_queues(store, checkpoint, full, failure)
    if rc < 0:
        return rc
    known = rc == 1 and completed == 0       # the digest does not see all that a file lost
    KILL_POINT("recover-after-queues")
    key_start = recover_index(store, checkpoint, known and checkpoint.mark.clean and was_clean,
                              full, failure)
    if key_start < 0:
        return key_start
    KILL_POINT("recover-after-index")
    store.last_store_timestamp = max(store.last_store_timestamp, checkpoint.mark.store_timestamp)
    atomic_set(&store.physic_timestamp, min(checkpoint.physic, store.last_store_timestamp))
    rc = recover_dispatch(store, checkpoint, known, full, fill, key_start, failure)
    if rc < 0:
        return rc
    rc = recover_ends(store, failure)
    if rc == E_LOST and store.recovering_until:
        failure.status = 0                   # a hole in a queue's file: it takes a block to read it
        return fail(failure, -ENOSPC, "consumequeue", "the dispatch of the log failed", -1, 0, 0)
    if rc < 0:
        return rc
    if store.recovering_until:
        rc = recover_next_offsets(store)
        if rc < 0:
            return fail(failure, rc, "commitlog", "cannot be read", -1, 0, 0)
    topics_told_gone(store)
    if checkpoint.stale:                     # or the next recovery would believe the old one
        rc = flush_queues_now(store, True)
        if rc < 0:
            return fail(failure, rc, "checkpoint", "cannot be written anew", -1, 0, 0)
    return 0


cdef int64_t recover_last_file(Store *store, Failure *failure) noexcept nogil:
    """Open the log's last file to write on, while a refusal still leaves queues and index alone."""
    cdef int64_t wrote = atomic_get(&store.log.wrote)
    cdef MappedFile *last = NULL
    cdef int64_t rc
    if wrote >= file_set_stop(&store.log):
        return 0
    rc = file_set_hold_open(&store.log, wrote, &last)
    if rc == 0:
        rc = mapped_file_reserve(
            last, last.fd, min(store.log.file_size, wrote - last.start + RECORD_BLANK_BYTES))
        mapped_file_release(last)
    if rc < 0 and rc != -ENOSPC:
        return fail(failure, rc, "commitlog", "the last file cannot be used", wrote, 0, 0)
    return 0


cdef void recover_check_mark(Store *store, Checkpoint *checkpoint) noexcept nogil:
    """Believe the watermark only if the record that ended there is still the same.

    A broker keeps our page, may have cut the log below it, and have written on from there.
    """
    cdef Watermark *mark = &checkpoint.mark
    cdef Found found
    cdef int64_t field, rc
    cdef int64_t end = mark.last_record
    if not mark.valid:
        return
    file_set_reopen(&store.log, False)
    atomic_set(&store.log.wrote, file_set_stop(&store.log))      # log_record's limit
    if mark.last_record >= 0:
        rc = log_record(store, mark.last_record, 0, &found, &field)
        if rc > 0:
            end += rc
            if crc32_update(0, found.slice.data, <size_t>rc) != mark.last_crc:
                end = -1
            slice_release(&found.slice)
        else:
            end = -1
    else:
        end = log_first(store)
    atomic_set(&store.log.wrote, 0)
    file_set_reopen(&store.log, store.writable)
    # It ended there, or a filler took the rest of its file.
    if end != mark.dispatched and (end < 0 or mark.dispatched % store.log.file_size
                                   or mark.dispatched - end >= store.log.file_size
                                   or mark.dispatched < end):
        mark.valid = False
        checkpoint.stale = True
    if mark.dispatched > file_set_stop(&store.log) or mark.dispatched < log_first(store):
        mark.valid = False
        checkpoint.stale = True


cdef int64_t recover_look(Store *store, Failure *failure) noexcept nogil:
    """List everything and tell the sizes; refuse what cannot be, before anything is changed."""
    cdef Queue *queue
    cdef int64_t rc
    rc = file_set_list(&store.log, failure)
    if rc < 0 and rc != -ENOENT:
        return rc
    if failure.status == -ENOENT:
        failure.status = 0
    if store.log.file_size == 0:
        store.log.file_size = file_set_tell_size(&store.log, 1)
        if store.log.file_size == 0:
            store.log.file_size = store.settings.log_file_size
    rc = file_set_validate(&store.log, False, failure)
    if rc < 0:
        return rc
    rc = load_queues(store, failure)
    if rc < 0:
        return rc
    if store.log.count == 0 and rc > 0:
        return fail(failure, E_INCOMPATIBLE, "commitlog",
                    "there are consume queues but no log: is it mounted?", -1, 0, 0)
    rc = tell_queue_size(store, failure)
    if rc < 0:
        return rc
    if store.told_sizes and rc > 0:
        store.settings.queue_file_size = rc
    queue = first_queue(&store.table)
    while queue != NULL:
        queue.files.file_size = store.settings.queue_file_size
        rc = file_set_validate(&queue.files, False, failure)
        if rc < 0:
            return rc
        queue = next_queue(queue)
    return 0


cdef int64_t recover_complete_queues(Store *store, Failure *failure) noexcept nogil:
    """Give the queues' short files their full length; how many there were."""
    cdef Queue *queue = first_queue(&store.table)
    cdef int64_t rc
    cdef int64_t completed = 0
    while queue != NULL:
        rc = file_set_validate(&queue.files, True, failure)
        if rc < 0:
            return rc
        completed += rc
        queue = next_queue(queue)
    return completed


cdef int64_t recover_dispatch(
    Store *store, const Checkpoint *checkpoint, bint known, bint full, bint fill,
    int64_t key_start, Failure *failure,
) noexcept nogil:
    """Complete queues and index from the log.

    From the recovery window on; from the log's beginning where the watermark's digest says
    that a queue has lost units, or a record does not follow its queue's end.
    """
    cdef int64_t first = log_first(store)
    cdef int64_t end = atomic_get(&store.log.wrote)
    cdef int64_t start = min(store.recovery.checked_from, key_start)
    cdef int64_t rc
    if store.log.count == 0:
        return 0
    # Without a watermark nothing tells that no queue has lost units: the whole log does.
    if full or not known:
        start = first
        rc = recover_from_first(store, fill, failure)
        if rc < 0:
            return rc
    else:
        recover_keep_lives(store)
    atomic_set(&store.dispatched, min(max(start, first), end))
    if checkpoint.mark.valid:
        store.last_record = checkpoint.mark.last_record
    rc = dispatch_until(store, end)
    while rc == E_CORRUPT and known and atomic_get(&store.dispatched) < checkpoint.mark.dispatched:
        rc = dispatch_past_damage(store, checkpoint.mark.dispatched)
        if rc == 0:
            rc = dispatch_until(store, end)
    if rc == E_REMOVED and not store.recovery.full_dispatch:
        rc = recover_from_first(store, fill, failure)
        if rc < 0:
            return rc
        rc = dispatch_until(store, end)
    if lacks_space(rc):
        rc = recover_stall(store, end, fill, failure)
        if rc > 0:
            return 0
    if rc < 0:
        if rc == E_CORRUPT and store.failure.status != 0:
            failure[0] = store.failure
        return fail(failure, rc, "consumequeue", "the dispatch of the log failed",
                    atomic_get(&store.dispatched), 0, 0)
    if store.indexes.enabled:
        atomic_set(&store.indexes.dispatched, end)
    return 0


cdef int64_t recover_stall(
    Store *store, int64_t end, bint fill, Failure *failure,
) noexcept nogil:
    """Have the open store dispatch what finds no space now: 1, or 0 if there was space after all.

    It goes on by a recovery's rules, which ask the whole log: nobody tells then that records
    before the ones at hand are missing.
    """
    cdef int64_t rc = recover_from_first(store, fill, failure)
    if rc == 0:
        rc = dispatch_until(store, end)
    if not lacks_space(rc):
        return rc
    atomic_set(&store.stalled, rc)
    store.recovering_until = end
    return 1


cdef int64_t recover_next_offsets(Store *store) noexcept nogil:
    """Have messages that are put next go behind those whose units wait for disk space."""
    cdef Cursor cursor
    cdef Record record
    cdef Unit unit
    cdef Said said
    cdef Queue *queue = first_queue(&store.table)
    cdef const char *data
    cdef int64_t rc, says
    while queue != NULL:
        queue.ahead = queue.life
        queue = next_queue(queue)
    cursor_init(&cursor, store, atomic_get(&store.dispatched), atomic_get(&store.log.wrote))
    cursor.check_crc = False
    memset(&unit, 0, sizeof(Unit))
    said.topic = NULL
    while True:
        rc = cursor_next(&cursor, &record, &data)
        if rc <= 0:
            break
        says = record_says(&store.table, &store.settings, data, &record, &said)
        queue = NULL
        if says >= 0 and says & SAYS_UNIT:
            queue = queue_enter(&store.table, said.topic, record.queue_id, store.root,
                                store.settings.queue_file_size, True)
            if queue == NULL:
                says = E_NO_MEMORY
        if says < 0:
            rc = says
            break
        if queue == NULL:
            continue
        queue.files.open_files = &store.open_files
        unit.physical_offset = record.physical_offset
        if life_begins(&queue.ahead, record.queue_offset, &unit):
            queue.next_offset = queue.ahead.first + 1
        if record.physical_offset >= queue.ahead.start \
                and record.queue_offset >= queue.next_offset \
                and (first_is_likely(queue, record.queue_offset, record.physical_offset)
                     if queue.next_offset == 0 else gap_is_likely(
                    record.queue_offset - queue.next_offset,
                    record.physical_offset - atomic_peek(&queue.last_end))):
            queue.next_offset = record.queue_offset + 1
    cursor_close(&cursor)
    return min(rc, 0)


cdef int64_t dispatch_past_damage(Store *store, int64_t mark) noexcept nogil:
    """Go on behind a damaged record below the watermark, whose queues lack nothing.

    The dispatch is there only because an index file does not hold.
    """
    cdef Cursor cursor
    cdef int64_t bad = store.failure.offset
    cdef int64_t rc
    if store.failure.status != E_CORRUPT or not atomic_get(&store.dispatched) <= bad < mark:
        return E_CORRUPT
    memset(&store.failure, 0, sizeof(Failure))
    rc = dispatch_until(store, bad)          # the batch may have begun before it
    if rc < 0:
        return rc
    cursor_init(&cursor, store, bad, mark)
    cursor.check_crc = False
    rc = cursor_resync(&cursor)
    cursor_close(&cursor)
    if rc >= 0:
        atomic_set(&store.dispatched, bad + rc if rc else mark)
    return min(rc, 0)


cdef int64_t recover_from_first(Store *store, bint fill, Failure *failure) noexcept nogil:
    """Have the whole log dispatched, and believe no unit whose record is still there."""
    cdef int64_t rc = recover_below(store, fill, failure)
    if rc < 0:
        return rc
    store.recovery.full_dispatch = True
    store.units_until = 0
    atomic_set(&store.dispatched, log_first(store))
    return recover_floors(store, log_first(store), False, failure)


cdef int64_t make_directories(Store *store) noexcept nogil:
    """The directories that every store has."""
    cdef int64_t rc = sys_make_directory(store.root, "commitlog")
    if rc >= 0:
        rc = sys_make_directory(store.root, "consumequeue")
    if rc >= 0:
        rc = sys_make_directory(store.root, "config")
    return sys_sync(store.root) if rc >= 0 else rc


cdef int64_t abort_create(Store *store) noexcept nogil:
    """The mark of a store that is open or was not closed."""
    cdef stat_t status
    cdef int64_t fd = sys_open_file(store.root, "abort", O_RDWR | O_CREAT, &status)
    if fd < 0:
        return fd
    close(<int>fd)
    return sys_sync(store.root)


cdef int64_t abort_remove(Store *store) noexcept nogil:
    cdef int64_t rc = sys_unlink(store.root, "abort")
    if rc < 0 and rc != -ENOENT:
        return rc
    return sys_sync(store.root)
