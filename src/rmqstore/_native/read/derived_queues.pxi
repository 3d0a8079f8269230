# Derived queues, "r" without an owner: missing queues, and units that never reached the disk, are
# rebuilt from the log as by a recovery, in memory.

cdef enum:
    GOES_ON_BYTES = 4 << 20      # examined beyond the end of a log with complete queues

cdef int64_t derive_units(Store *store) noexcept nogil:
    """Derive the queues as a recovery would leave them."""
    cdef Checkpoint checkpoint
    cdef stat_t status
    cdef int64_t rc, end
    cdef int64_t fd = sys_open_file(store.root, "abort", O_RDONLY, &status)
    if fd >= 0:
        close(<int>fd)
    store.recovery.clean = fd == -ENOENT
    if checkpoint_read(store.root, &checkpoint) < 0:
        memset(&checkpoint, 0, sizeof(Checkpoint))
    recover_check_mark(store, &checkpoint)
    if store.recovery.clean and not checkpoint.mark.valid:
        end = log_end(store)
        if end < 0:
            return end
        rc = log_goes_on(store, end)
        if rc == 0 and has_light_queue(store):
            rc = 1
        if rc == 0:
            rc = min(find_end_reading(store, &checkpoint, end), 0)
        if rc < 0:
            return rc
        if rc == 0 and log_is_covered(store, log_first(store), end) == 1:
            return 0                         # every record has its unit
        lower_deletions(store, end)
        infer_deleted_topics(store, end)
        if rc == 0 and gaps_are_unqueued(store, log_first(store), end) == 1:
            return 0                         # every record that belongs in a queue
    end = recover_examine(store, &checkpoint, NULL)
    rc = find_end_reading(store, &checkpoint, end) if end >= 0 else end
    if rc < 0:
        return rc
    lower_deletions(store, end)
    infer_deleted_topics(store, end)
    rc = derive_queues(store, &checkpoint, end)
    if rc >= 0:
        # A search from the last unit ends at the first damaged record, and the search above was
        # made without units.
        atomic_raise(&store.view.log_end, end)
        log_end_searched(store, monotonic_ns())
        mark_unnamed(store)
    return rc


cdef int64_t find_end_reading(
    Store *store, const Checkpoint *checkpoint, int64_t end,
) noexcept nogil:
    """As find_lost_end, unless an owner has appeared, which appends."""
    cdef stat_t status
    cdef int64_t rc
    if not store.recovery.clean:
        return 0
    rc = find_lost_end(store, checkpoint, end)
    if rc > 0 and (store_is_owned(store) or fstatat(
            store.root, "abort", &status, AT_SYMLINK_NOFOLLOW) == 0):
        store.recovery.lost_until = 0
    return rc


cdef int64_t log_goes_on(Store *store, int64_t end) noexcept nogil:
    """1 if nonzero bytes follow the end shown by units and records, else 0, or a status.

    They may be a damaged record, followed by good ones without units.  Examined are the next bytes
    and the beginnings of the files; without any unit, the whole log.
    """
    cdef MappedFile near
    cdef MappedFile *file = NULL
    cdef int64_t i, rc
    if newest_unit_end(store, LIST_IF_OLD) == 0:
        rc = log_used(store, end)
        return rc if rc < 0 else rc > end
    for i in range(store.log.count):
        if store.log.slots[i].start > end and log_begins_at(store, store.log.slots[i].start):
            return 1
    rc = file_set_hold(&store.log, end, &file)
    if rc < 0:
        return 0 if rc == E_NOT_FOUND or rc == E_REMOVED else rc
    memset(&near, 0, sizeof(MappedFile))
    near.fd = file.fd
    near.size = min(file.size, end - file.start + GOES_ON_BYTES)
    rc = mapped_file_last_used(&near, end - file.start)
    mapped_file_release(file)
    return rc if rc < 0 else rc > end - file.start


cdef void mark_unnamed(Store *store) noexcept nogil:
    """Mark damage not covered by units: readers of a queue may pass over it."""
    cdef Damage *damage
    cdef int64_t i
    for i in range(store.recovery.damage_count):
        damage = &store.recovery.damages[i]
        damage.unnamed = not damage.tail \
            and log_is_covered(store, damage.start, damage.stop) != 1


cdef int64_t derive_queues(
    Store *store, const Checkpoint *checkpoint, int64_t end,
) noexcept nogil:
    """From the watermark on if the queues match it, else from the log's first record."""
    cdef int64_t rc = list_queues(store)
    if rc == 0:
        rc = recover_queues(store, checkpoint, end, NULL)
    if queues_lack(store, checkpoint) and rc == 1:   # the digest does not cover all of that
        rc = 0
    if rc == 1:
        rc = derive_walk(store, checkpoint.mark.dispatched, end)
        if rc == 0:
            rc = 1
        elif rc == E_REMOVED:
            rc = 0
    if rc == 0:
        rc = derive_from_first(store, end)
    return derive_ends(store, end) if rc >= 0 else rc


cdef int64_t derive_from_first(Store *store, int64_t end) noexcept nogil:
    """Use files only as far as the log confirms them."""
    cdef int64_t rc = examine_below(store, NULL)
    if rc < 0:
        return rc
    store.recovery.full_dispatch = True
    rc = recover_floors(store, log_first(store), UNITS_CHECKED, NULL)
    if rc == 0:
        rc = derive_walk(store, log_first(store), end)
    return rc


cdef bint has_light_queue(Store *store) noexcept nogil:
    """Whether any queue has units of records of other queues."""
    cdef Queue *queue = first_queue(&store.table)
    while queue != NULL:
        if topic_is_light(queue.topic):
            return True
        queue = next_queue(queue)
    return False


cdef int64_t list_queues(Store *store) noexcept nogil:
    """List the files of every queue; an unreadable one fails when read."""
    cdef Queue *queue = first_queue(&store.table)
    cdef int64_t rc
    while queue != NULL:
        rc = file_set_list(&queue.files, NULL)
        if queue.files.broken:
            note_broken(&store.table, queue.files.directory)
        queue.unreadable = 0
        rc = queue_note_unreadable(queue, rc)
        if rc == E_NO_MEMORY or rc == -EMFILE or rc == -ENFILE:
            return rc
        queue = next_queue(queue)
    return 0


cdef int64_t derive_walk(Store *store, int64_t start, int64_t stop) noexcept nogil:
    """Place the units of the records from ``start`` on, skipping damaged ones."""
    cdef Cursor cursor
    cdef Record record
    cdef const char *data = NULL
    cdef int64_t rc, behind
    cdef int64_t clear = -1
    cursor_init(&cursor, store, start, stop)
    cursor.check_crc = False
    while True:
        cursor.at = behind_damage(&store.recovery, cursor.at, &clear)
        rc = cursor_next(&cursor, &record, &data)
        if rc > 0:
            behind = behind_damage(&store.recovery, cursor.at - rc, &clear)
            if behind != cursor.at - rc:     # a blank ended the file; this is the next one's first
                cursor.at = behind
                continue
        if rc == E_CORRUPT:
            rc = cursor_resync(&cursor)
            if rc > 0:
                continue
        if rc <= 0:
            break
        rc = derive_unit(store, data, &record)
        if rc < 0:
            break
    cursor_close(&cursor)
    return min(rc, 0)


cdef int64_t derive_unit(Store *store, const char *data, const Record *record) noexcept nogil:
    """Set a record's unit, in memory unless its queue's file has it."""
    cdef DispatchRequest request
    cdef Queue *queue
    cdef int64_t wanted
    request.topic = NULL
    wanted = dispatch_request(&store.table, &store.settings, data, record, &request)
    if wanted < 0 or not wanted & REQUEST_UNIT:
        return min(wanted, 0)
    queue = queue_enter(&store.table, request.topic, record.queue_id)
    if queue == NULL:
        return E_NO_MEMORY
    if not queue.unreadable:
        wanted = queue_note_unreadable(queue, recover_record(store, queue, record, request.code))
    if wanted < 0 or request.properties.multi_offset.value_length <= 0:
        return min(wanted, 0)
    return derive_multi(store, record, &request)


cdef int64_t derive_multi(
    Store *store, const Record *record, const DispatchRequest *request,
) noexcept nogil:
    """Set the units in the record's further queues."""
    cdef MultiNames names
    cdef MultiName entry
    cdef Queue *queue
    cdef int64_t skipped = 0
    cdef int64_t rc = 0
    if multi_begin(&request.properties, &names) <= 0:
        return 0
    while rc >= 0 and multi_next(&names, &entry):
        rc = multi_find_queue(&store.table, record, &entry, &queue)
        if rc == 0 and queue != NULL and not queue.unreadable:
            rc = queue_note_unreadable(queue, multi_recover_unit(
                store, queue, record, entry.queue_offset, request.code, &skipped))
        elif rc == E_NOT_FOUND:
            rc = 0
    return min(rc, 0)


cdef int64_t derive_ends(Store *store, int64_t end) noexcept nogil:
    """Publish the derived units, and each queue's beginning and end."""
    cdef Queue *queue = first_queue(&store.table)
    cdef int64_t rc
    while queue != NULL:
        rc = 0
        if not queue.unreadable:
            rc = queue_note_unreadable(queue, derive_end(store, queue, end))
        if rc < 0:
            return rc
        queue = next_queue(queue)
    return 0


cdef int64_t derive_end(Store *store, Queue *queue, int64_t log_stop) noexcept nogil:
    cdef int64_t rc = 0
    cdef int64_t first = 0
    cdef int64_t end
    if not queue.deleted:
        rc = recover_tail(store, queue, log_stop)
    queue_forget_near(queue)
    if rc < 0:
        return rc
    if queue.files.count:
        first = queue.files.slots[0].start // UNIT_BYTES
    end = atomic_get(&queue.max_offset)
    if queue.making != NULL:
        if queue.files.count == 0 or queue.making.start < first:
            first = queue.making.start
        queue.derived_kept = queue.making
        store_derived(&queue.derived, queue.making)
        queue.making = NULL
    end = max(first, end) if not queue.deleted else 0
    atomic_set(&queue.max_offset, end)
    rc = queue_first_kept(store, queue, min(first, end), end)
    if rc >= 0:
        atomic_set(&queue.min_offset, rc)
    return 0 if rc == E_REMOVED else min(rc, 0)


cdef int64_t derive_if_needed(Store *store) noexcept nogil:
    """Derive once, before queues are read, if the store has no owner."""
    cdef int64_t rc = 0
    if store.writable or store.view.owned_elsewhere or atomic_get(&store.view.derived):
        return 0
    lock_take(&store.view.derive_lock)
    if not atomic_get(&store.view.derived):
        rc = derive_units(store)
        topics_inferred_deleted(store)
        atomic_set(&store.view.derived, 1)
    lock_give(&store.view.derive_lock)
    return rc
