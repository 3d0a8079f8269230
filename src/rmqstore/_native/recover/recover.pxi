# Opening for writing: the sequence of steps.
#
# lock -> check -> abort -> repair.  All checks that may refuse come first, so that a refusal leaves
# the directory unchanged.  Nothing is changed before `abort` is durable, so that a crash during
# recovery is an unclean exit again.
#
# Source: store/DefaultMessageStore.java load, recover, start

cdef int64_t recover_store(Store *store, Failure *failure) noexcept nogil:
    """Recover a locked directory, to a state in which the four activities can start."""
    cdef Checkpoint checkpoint
    cdef stat_t status
    cdef int64_t rc
    cdef int64_t end = 0
    cdef int64_t began = monotonic_ns()
    rc = sys_open_file(store.root, "abort", O_RDONLY, &status)
    store.recovery.clean = rc == -ENOENT
    if rc >= 0:
        close(<int>rc)
    rc = recover_refresh(store, failure)
    if rc < 0:
        return rc
    # A log in several directories lacks its last files if one directory is not mounted.
    if store.log.places != NULL and store.recovery.clean \
            and queues_end(store, INT64_MOST) > file_set_stop(&store.log):
        return fail(failure, E_INCOMPATIBLE, "consumequeue",
                    "the log ends before what the queues name: is a directory of it not mounted?",
                    -1, file_set_stop(&store.log), queues_end(store, INT64_MOST))
    rc = checkpoint_read(store.root, &checkpoint)
    if rc < 0:
        return fail(failure, rc, "checkpoint", "cannot be read", -1, 0, 0)
    rc = recover_size_index(store, &checkpoint, failure)
    if rc < 0:
        return rc
    recover_check_mark(store, &checkpoint)
    if store.log.count:
        end = recover_find_end(store, &checkpoint, failure)
        if end < 0:
            return end
        # A lost last file makes the log at most a file shorter; a larger note is a damaged byte.
        if end < checkpoint.confirmed <= file_set_stop(&store.log) + store.log.file_size:
            return fail(failure, E_INCOMPATIBLE, "checkpoint",
                        "RocketMQ 5 noted a longer log; mode 'r' shows what is there", -1, end,
                        checkpoint.confirmed)
        rc = recover_precheck(store, &checkpoint, end, failure)
        if rc < 0:
            return rc
    rc = abort_create(store)
    if rc < 0:
        return fail(failure, rc, "abort", "cannot be made", -1, 0, 0)
    KILL_POINT("recover-after-abort")
    rc = recover_repair(store, &checkpoint, end, failure)
    store.recovery.seconds_ns = monotonic_ns() - began
    return rc


cdef int64_t recover_repair(
    Store *store, Checkpoint *checkpoint, int64_t end, Failure *failure,
) noexcept nogil:
    """Repair log, queues and index; `abort` is durable."""
    cdef LogForce force
    cdef int64_t completed, forced
    cdef int64_t made = make_directories(store)
    cdef int64_t rc
    if made < 0:
        return fail(failure, made, "consumequeue", "the directories cannot be made", -1, 0, 0)
    rc = lock_log(store, failure) if store.log.places == NULL else 0     # made just now, perhaps
    if rc == 0:
        rc = log_complete_files(store, failure)
    if rc < 0:
        return rc
    store.recovery.completed_file = rc > 0
    if store.recovery.lost_until:
        rc = keep_lost_offsets(store, failure)
        if rc == 0:
            rc = log_replace_lost(store, &end, failure)
        if rc < 0:
            return rc
    if store.log.count:
        rc = recover_log(store, end, failure)
        if rc == 0:
            rc = recover_last_file(store, failure)
        if rc < 0:
            return rc
    force_begin(&force, store)
    if force_is_long(&force):
        rc = force_end(&force, failure)
        if rc < 0:
            return rc
    completed = recover_derived(store, checkpoint, failure)
    forced = force_end(&force, failure)
    if completed < 0 or forced < 0:
        return completed if completed < 0 else forced        # the one whose text is kept
    KILL_POINT("recover-after-force")
    topics_inferred_deleted(store)
    store.recovery.idle = made == 0 and completed == 0 and not checkpoint.stale \
        and found_in_order(store)
    store.recovery.end = atomic_get(&store.log.wrote)
    if checkpoint.stale:                     # else the next recovery would trust the old one
        rc = flush_queues_now(store, FLUSH_ALL)
        if rc < 0:
            return fail(failure, rc, "checkpoint", "cannot be written anew", -1, 0, 0)
    return 0


cdef int64_t recover_derived(
    Store *store, Checkpoint *checkpoint, Failure *failure,
) noexcept nogil:
    """Repair queues and index by the repaired log; the number of queue files extended."""
    cdef int64_t key_start, rc
    cdef bint known
    cdef int64_t completed
    lower_deletions(store, atomic_get(&store.log.wrote))
    infer_deleted_topics(store, atomic_get(&store.log.wrote))
    if checkpoint.mark.valid and checkpoint.mark.dispatched > atomic_get(&store.log.wrote):
        checkpoint.mark.valid = False        # the log was cut below it
        checkpoint.stale = True
    KILL_POINT("recover-after-log")
    completed = recover_complete_queues(store, failure)
    rc = min(completed, 0)
    if rc == 0:
        rc = recover_queues(store, checkpoint, atomic_get(&store.log.wrote), failure)
    if rc < 0:
        return rc
    # The digest does not cover every loss of a file.
    known = rc == 1 and completed == 0 and not store.recovery.lacking
    if not known:                            # may refuse: before the index is changed
        rc = recover_below(store, failure)
        if rc < 0:
            return rc
    KILL_POINT("recover-after-queues")
    key_start = recover_index(
        store, checkpoint, QUEUES_KNOWN if known else QUEUES_UNKNOWN, failure)
    if key_start < 0:
        return key_start
    KILL_POINT("recover-after-index")
    atomic_raise(&store.writer.last_store_timestamp, checkpoint.mark.store_timestamp)
    atomic_set(&store.flush.physic_timestamp,
               min(checkpoint.physic, atomic_get(&store.writer.last_store_timestamp)))
    rc = recover_dispatch(store, checkpoint, known, key_start, failure)
    if rc < 0:
        return rc
    rc = recover_ends(store, failure)
    if rc == E_LOST and store.dispatch.recovering_until:
        failure.status = 0                   # a hole in a queue's file: reading it needs a block
        return fail(failure, -ENOSPC, "consumequeue", "the dispatch of the log failed", -1, 0, 0)
    if rc == 0 and store.dispatch.recovering_until:
        rc = recover_next_offsets(store)
        if rc < 0:
            fail(failure, rc, set_directory(&store.log, 0), "cannot be read", -1, 0, 0)
    return rc if rc < 0 else completed


cdef bint found_in_order(const Store *store) noexcept nogil:
    """Whether a closed store was sound: a start that fails later may leave it so."""
    cdef const Recovery *recovery = &store.recovery
    return recovery.clean and store.log.count > 0 and recovery.damage_count == 0 \
        and not recovery.completed_file and recovery.units_written == 0 \
        and recovery.queues_rebuilt == 0 and recovery.index_files_rebuilt == 0 \
        and recovery.index_set_aside == 0 and store.dispatch.recovering_until == 0


cdef int64_t recover_last_file(Store *store, Failure *failure) noexcept nogil:
    """Open the log's last file for writing, while a refusal still leaves queues and index alone."""
    cdef int64_t wrote = atomic_get(&store.log.wrote)
    cdef MappedFile *last = NULL
    cdef int64_t rc
    if wrote >= file_set_stop(&store.log):
        return 0
    rc = file_set_hold_open(&store.log, wrote, &last)
    if rc == 0 and last.read_only:
        mapped_file_release(last)
        rc = -EROFS
    if rc == 0:
        rc = mapped_file_reserve(
            last, last.fd, min(store.log.file_size, wrote - last.start + RECORD_BLANK_BYTES))
        mapped_file_release(last)
    if rc < 0 and rc != -ENOSPC:
        return fail_in_file(failure, rc, &store.log, wrote, "cannot be used")
    return 0


cdef void recover_check_mark(Store *store, Checkpoint *checkpoint) noexcept nogil:
    """Trust the watermark only if the record that ended at it is unchanged.

    A broker keeps the page, but may have truncated the log below it and appended.
    """
    cdef Watermark *mark = &checkpoint.mark
    cdef Found found
    cdef int64_t field, rc
    cdef int64_t end = mark.last_record
    if not mark.valid:
        return
    file_set_reopen(&store.log, READ_ONLY)
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
    file_set_reopen(&store.log, READ_WRITE if store.writable else READ_ONLY)
    # The log ended there, or a blank took the rest of the file.
    if end != mark.dispatched and (end < 0 or mark.dispatched % store.log.file_size
                                   or mark.dispatched - end >= store.log.file_size
                                   or mark.dispatched < end):
        mark.valid = False
        checkpoint.stale = True
    if mark.dispatched > file_set_stop(&store.log) or mark.dispatched < log_first(store):
        mark.valid = False
        checkpoint.stale = True


cdef int64_t recover_refresh(Store *store, Failure *failure) noexcept nogil:
    """List everything and infer the sizes; refuse invalid stores before anything is changed."""
    cdef Queue *queue
    cdef int64_t rc
    rc = file_set_list(&store.log, failure)
    if rc < 0 and rc != -ENOENT:
        return rc
    if failure.status == -ENOENT:
        failure.status = 0
    if store.log.file_size == 0:
        store.log.file_size = file_set_infer_size(&store.log, 1, LOG_FILE_LEAST)
        if store.log.file_size == 0:
            store.log.file_size = store.settings.log_file_size
    else:
        rc = file_set_check_size(
            &store.log, 1, file_set_infer_size(&store.log, 1, LOG_FILE_LEAST),
            store.log.file_size, "mapped_file_size_commit_log", failure)
        if rc < 0:
            return rc
    rc = log_check_files(store, failure)
    if rc < 0:
        return rc
    rc = load_queues(&store.table, failure)
    if rc < 0:
        return rc
    if store.log.count == 0 and rc > 0:
        return fail(failure, E_INCOMPATIBLE, set_directory(&store.log, 0),
                    "there are consume queues but no log: is it mounted?", -1, 0, 0)
    rc = recover_size_queues(store, failure)
    if rc < 0:
        return rc
    queue = first_queue(&store.table)
    while queue != NULL:
        queue.files.file_size = store.table.file_size
        rc = file_set_validate(&queue.files, LENGTHS_CHECKED, failure)
        if rc >= 0:
            rc = queue_check_gaps(store, queue, failure)
        if rc >= 0:
            rc = queue_ext_check(queue, failure)
        if rc < 0:
            return rc
        queue = next_queue(queue)
    return 0


cdef int64_t recover_size_queues(Store *store, Failure *failure) noexcept nogil:
    """Infer the sizes of queue and ext files, or check the configured ones; 0 or a status."""
    cdef Queue *queue = first_queue(&store.table)
    cdef QueueExt *ext
    cdef int64_t ext_size
    cdef int64_t size = infer_queue_file_size(&store.table, failure)
    cdef int64_t rc = min(size, 0)
    if rc == 0:
        rc = infer_ext_file_size(&store.table, failure)
    ext_size = rc
    if store.view.queue_size_inferred and size > 0:
        store.table.file_size = size
    store.recovery.queue_size_taken = store.view.queue_size_inferred and size == 0
    if store.view.ext_size_inferred and ext_size > 0:
        set_ext_file_size(&store.table, ext_size)
    if 0 < size < store.table.file_size and queue_files_are_short(&store.table, size):
        size = 0
    while queue != NULL and rc >= 0:
        rc = file_set_check_size(&queue.files, UNIT_BYTES, size, store.table.file_size,
                                 "mapped_file_size_consume_queue", failure)
        ext = load_ext(&queue.ext) if ext_size > 0 else NULL
        if rc == 0 and ext != NULL:
            rc = file_set_check_size(&ext.files, 1, ext_size, store.table.ext.file_size,
                                     "mapped_file_size_consume_queue_ext", failure)
        queue = next_queue(queue)
    return min(rc, 0)


cdef int64_t recover_complete_queues(Store *store, Failure *failure) noexcept nogil:
    """Extend the queues' short files to full length; their number."""
    cdef Queue *queue = first_queue(&store.table)
    cdef int64_t rc
    cdef int64_t completed = 0
    while queue != NULL:
        rc = file_set_validate(&queue.files, LENGTHS_COMPLETED, failure)
        if rc < 0:
            return rc
        completed += rc
        rc = queue_ext_complete(queue, failure)
        if rc < 0:
            return rc
        queue = next_queue(queue)
    return completed


cdef int64_t recover_dispatch(
    Store *store, const Checkpoint *checkpoint, bint known, int64_t key_start, Failure *failure,
) noexcept nogil:
    """Complete queues and index from the log.

    From the recovery window on, or from the log's beginning if a queue has lost units by the
    watermark's digest, or if a record does not continue its queue.
    """
    cdef int64_t first = log_first(store)
    cdef int64_t end = atomic_get(&store.log.wrote)
    cdef int64_t start = min(store.recovery.checked_from, key_start)
    cdef int64_t index_files = store.indexes.count
    cdef int64_t rc
    if store.log.count == 0:
        return 0
    # Without a watermark only the whole log shows whether a queue has lost units.
    if store.recovery.full or not known:
        start = first
        rc = recover_from_first(store, failure)
        if rc < 0:
            return rc
    else:
        recover_keep_lives(store)
    atomic_set(&store.dispatch.dispatched, min(max(start, first), end))
    if checkpoint.mark.valid:
        store.dispatch.last_record = checkpoint.mark.last_record
    rc = dispatch_until(store, end)
    while rc == E_CORRUPT and known \
            and atomic_get(&store.dispatch.dispatched) < checkpoint.mark.dispatched:
        rc = dispatch_past_damage(store, checkpoint.mark.dispatched)
        if rc == 0:
            rc = dispatch_until(store, end)
    if rc == E_REMOVED and not store.recovery.full_dispatch:
        rc = recover_from_first(store, failure)
        if rc < 0:
            return rc
        rc = dispatch_until(store, end)
    if lacks_space(rc):
        rc = recover_stall(store, end, failure)
        if rc > 0:
            return 0
    if rc < 0:
        if rc == E_CORRUPT and store.failure.status != 0:
            failure[0] = store.failure
        return fail(failure, rc, dispatch_refused(store), "the dispatch of the log failed",
                    atomic_get(&store.dispatch.dispatched), 0, 0)
    if store.indexes.enabled:
        atomic_set(&store.indexes.dispatched, end)
    # Index files that dispatch made for missing ones at the end.
    store.recovery.index_files_rebuilt += store.indexes.count - index_files
    return 0


cdef int64_t recover_stall(Store *store, int64_t end, Failure *failure) noexcept nogil:
    """Leave records without space to the open store's dispatch: 1, or 0 if there was space.

    After a walk from the log's beginning: dispatch applies a recovery's rules to the rest, but
    would not detect missing earlier records.
    """
    cdef int64_t rc = recover_from_first(store, failure)
    if rc == 0:
        rc = dispatch_until(store, end)
    if not lacks_space(rc):
        return rc
    atomic_set(&store.dispatch.stalled, rc)
    store.dispatch.recovering_until = end
    return 1


cdef void recover_next_offset(
    Store *store, Queue *queue, const Record *record, int64_t queue_offset,
) noexcept nogil:
    """Set a queue's next offset after a record's, unless the record's is damaged."""
    if record.physical_offset >= queue.ahead.start and queue_offset >= queue.next_offset \
            and (first_is_likely(queue, queue_offset, record.physical_offset)
                 if queue.next_offset == 0 else gap_is_likely(
                queue_offset - queue.next_offset,
                record.physical_offset - atomic_peek(&queue.last_end))):
        queue.next_offset = queue_offset + 1
        queue_count_light(&store.table, queue)


cdef int64_t recover_next_offsets(Store *store) noexcept nogil:
    """Set the next queue offsets after the messages whose units wait for disk space."""
    cdef Cursor cursor
    cdef Record record
    cdef Unit unit
    cdef DispatchRequest request
    cdef MultiNames names
    cdef MultiName entry
    cdef Queue *queue = first_queue(&store.table)
    cdef const char *data
    cdef int64_t rc, wanted
    while queue != NULL:
        queue.ahead = queue.life
        queue = next_queue(queue)
    cursor_init(&cursor, store, atomic_get(&store.dispatch.dispatched),
                atomic_get(&store.log.wrote))
    cursor.check_crc = False
    memset(&unit, 0, sizeof(Unit))
    request.topic = NULL
    while True:
        rc = cursor_next(&cursor, &record, &data)
        if rc <= 0:
            break
        wanted = dispatch_request(&store.table, &store.settings, data, &record, &request)
        queue = NULL
        if wanted >= 0 and wanted & REQUEST_UNIT:
            queue = queue_enter(&store.table, request.topic, record.queue_id)
            if queue == NULL:
                wanted = E_NO_MEMORY
        if wanted < 0:
            rc = wanted
            break
        if queue == NULL:
            continue
        unit.physical_offset = record.physical_offset
        if life_begins(&queue.ahead, record.queue_offset, &unit):
            queue.next_offset = queue.ahead.first + 1
        recover_next_offset(store, queue, &record, record.queue_offset)
        if multi_begin(&request.properties, &names) <= 0:
            continue
        while wanted >= 0 and multi_next(&names, &entry):
            wanted = multi_find_queue(&store.table, &record, &entry, &queue)
            if queue != NULL:
                recover_next_offset(store, queue, &record, entry.queue_offset)
            elif wanted == E_NOT_FOUND:
                wanted = 0
        if wanted < 0:
            rc = wanted
            break
    cursor_close(&cursor)
    return min(rc, 0)


cdef int64_t recover_from_first(Store *store, Failure *failure) noexcept nogil:
    """Dispatch the whole log, and trust no unit whose record is still there."""
    cdef int64_t rc = recover_below(store, failure)
    if rc < 0:
        return rc
    store.recovery.full_dispatch = True
    store.dispatch.units_until = 0
    atomic_set(&store.dispatch.dispatched, log_first(store))
    return recover_floors(store, log_first(store), UNITS_CHECKED, failure)


cdef int64_t make_directories(Store *store) noexcept nogil:
    """Create the directories of every store; above 0 if one was missing."""
    cdef int64_t rc = 0
    cdef int64_t made = 0
    if store.log.places == NULL:
        rc = made = sys_make_directory(store.root, "commitlog")
    if rc >= 0:
        rc = sys_make_directory(store.root, "consumequeue")
        made |= rc
    if rc >= 0:
        rc = sys_make_directory(store.root, "config")
        made |= rc
    if rc >= 0:
        rc = sys_sync(store.root)
    return rc if rc < 0 else made


cdef int64_t abort_create(Store *store) noexcept nogil:
    """Create the file that marks a store as open or not closed."""
    cdef stat_t status
    cdef int64_t fd = sys_open_file(store.root, "abort", O_RDWR | O_CREAT, &status)
    if fd < 0:
        return fd
    close(<int>fd)
    return sys_sync(store.root)


cdef void opening_undo(Store *store) noexcept nogil:
    """Remove the files of a refused opening: `abort`, and `lock`, which is still held."""
    if store.recovery.made_abort:
        abort_remove(store)
    lock_unmake(store)


cdef int64_t abort_remove(Store *store) noexcept nogil:
    cdef int64_t rc = sys_unlink(store.root, "abort")
    if rc < 0 and rc != -ENOENT:
        return rc
    return sys_sync(store.root)
