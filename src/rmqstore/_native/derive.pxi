# "r" on a store that nobody owns: what a recovery would complete, queues that are missing and
# units that the disk never got, is told from the log in the same way and kept in memory.

cdef int64_t derive_units(Store *store) noexcept nogil:
    """See the queues as a recovery would leave them."""
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
        if end < 0 or log_is_tiled(store, log_first(store), end) == 1:
            return min(end, 0)               # each record has its unit
        lower_deletions(store, end)
        tell_gone_topics(store, end)
        if gaps_are_unqueued(store, log_first(store), end) == 1:
            return 0                         # each that has a place in a queue
    end = recover_examine(store, &checkpoint, store.recovery.clean, False, NULL)
    if end < 0:
        return end
    lower_deletions(store, end)
    tell_gone_topics(store, end)
    # What a recovery asks for the log's end finds it there while the queues are derived.
    atomic_set(&store.log.wrote, end)
    rc = derive_queues(store, &checkpoint, end)
    atomic_set(&store.log.wrote, 0)
    return rc


cdef int64_t derive_queues(
    Store *store, const Checkpoint *checkpoint, int64_t end,
) noexcept nogil:
    """From the watermark on where the queues are as it says, else from the log's first record."""
    cdef int64_t rc = list_queues(store)
    if rc == 0 and PLANTED("a7"):
        store.recovery.full_dispatch = True
        rc = derive_walk(store, newest_unit_end(store, True), end)
        return derive_ends(store) if rc >= 0 else rc
    if rc == 0:
        rc = recover_queues(store, checkpoint, False, NULL)
    if rc == 1 and has_short_queue(store):   # the digest does not see all that a file lost
        rc = 0
    if rc == 1:
        rc = derive_walk(store, checkpoint.mark.dispatched, end)
        if rc == 0:
            rc = 1
        elif rc == E_REMOVED:
            rc = 0
    if rc == 0:
        rc = derive_from_first(store, end)
    return derive_ends(store) if rc >= 0 else rc


cdef int64_t derive_from_first(Store *store, int64_t end) noexcept nogil:
    """Take nothing from the files that the log does not say as well."""
    cdef int64_t rc = examine_below(store, NULL)
    if rc < 0:
        return rc
    store.recovery.full_dispatch = True
    rc = recover_floors(store, log_first(store), False, NULL)
    if rc == 0:
        rc = derive_walk(store, log_first(store), end)
    return rc


cdef bint has_short_queue(Store *store) noexcept nogil:
    """Whether a queue's file has lost its end, which a recovery would make anew."""
    cdef Queue *queue = first_queue(&store.table)
    cdef int64_t i
    while queue != NULL:
        for i in range(queue.files.count):
            if queue.files.slots[i].length < queue.files.file_size:
                return True
        queue = next_queue(queue)
    return False


cdef int64_t list_queues(Store *store) noexcept nogil:
    """List the files of every queue; one that cannot be read is an error where it is read."""
    cdef Queue *queue = first_queue(&store.table)
    cdef int64_t rc
    while queue != NULL:
        rc = file_set_list(&queue.files, NULL)
        queue.unreadable = 0
        rc = queue_note_unreadable(queue, rc)
        if rc == E_NO_MEMORY or rc == -EMFILE or rc == -ENFILE:
            return rc
        queue = next_queue(queue)
    return 0


cdef int64_t derive_walk(Store *store, int64_t start, int64_t stop) noexcept nogil:
    """Place the units of the records from ``start`` on, but for damaged ones."""
    cdef Cursor cursor
    cdef Record record
    cdef const char *data = NULL
    cdef int64_t rc, behind
    cdef int64_t clear = -1
    cursor_init(&cursor, store, start, stop)
    cursor.check_crc = False
    while True:
        cursor.at = behind_damage(store, cursor.at, &clear)
        rc = cursor_next(&cursor, &record, &data)
        if rc > 0:
            behind = behind_damage(store, cursor.at - rc, &clear)
            if behind != cursor.at - rc:     # a filler ended the file, and the next begins with it
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


cdef int64_t behind_damage(Store *store, int64_t at, int64_t *clear) noexcept nogil:
    """The end of the damaged range that has ``at``, or ``at``; up to ``clear`` there is no more."""
    cdef Damage *damage
    cdef int64_t i = 0
    if at < clear[0]:
        return at
    clear[0] = INT64_MOST
    while i < store.recovery.damage_count:
        damage = &store.recovery.damages[i]
        i += 1
        if damage.start <= at < damage.stop:
            at = damage.stop
            clear[0] = INT64_MOST
            i = 0                            # the next file may begin with damage
        elif damage.start > at:
            clear[0] = min(clear[0], damage.start)
    return at


cdef bint never_synced(Store *store, int64_t offset) noexcept nogil:
    """Whether a power cut took what was there: a recovery puts a filler in its place."""
    cdef int64_t i
    for i in range(store.recovery.damage_count):
        if store.recovery.damages[i].kind == DAMAGE_LOST \
                and store.recovery.damages[i].start <= offset < store.recovery.damages[i].stop:
            return True
    return False


cdef int64_t derive_unit(Store *store, const char *data, const Record *record) noexcept nogil:
    """The unit of a record, in its queue's file or in memory."""
    cdef Said said
    cdef Queue *queue
    cdef int64_t says
    said.topic = NULL
    says = record_says(&store.table, &store.settings, data, record, &said)
    if says < 0 or not says & SAYS_UNIT:
        return min(says, 0)
    queue = queue_enter(&store.table, said.topic, record.queue_id, store.root,
                        store.settings.queue_file_size, False)
    if queue == NULL:
        return E_NO_MEMORY
    queue.files.open_files = &store.open_files
    if queue.unreadable:
        return 0
    return min(queue_note_unreadable(queue, recover_record(store, queue, record, said.code)), 0)


cdef int64_t derive_ends(Store *store) noexcept nogil:
    """Publish what was told, and each queue's beginning and end."""
    cdef Queue *queue = first_queue(&store.table)
    cdef int64_t rc
    while queue != NULL:
        rc = 0
        if not queue.unreadable:
            rc = queue_note_unreadable(queue, derive_end(store, queue))
        if rc < 0:
            return rc
        queue = next_queue(queue)
    return 0


cdef int64_t derive_end(Store *store, Queue *queue) noexcept nogil:
    cdef int64_t rc = 0
    cdef int64_t first = 0
    cdef int64_t end
    if not queue.deleted:
        rc = recover_tail(store, queue)
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
    """Once, before queues are looked at: only where nobody owns the store."""
    cdef int64_t rc = 0
    if store.writable or store.owned_elsewhere or atomic_get(&store.derived):
        return 0
    pthread_mutex_lock(&store.derive_mutex)
    if not atomic_get(&store.derived):
        rc = derive_units(store)
        topics_told_gone(store)
        atomic_set(&store.derived, 1)
    pthread_mutex_unlock(&store.derive_mutex)
    return rc
