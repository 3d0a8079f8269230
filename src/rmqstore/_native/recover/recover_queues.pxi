# Opening, second part: existing queues: their trusted units, then their ends after the dispatch of
# the log.
#
# Source: store/ConsumeQueue.java recover, truncateDirtyLogicFiles, correctMinOffset;
#         store/DefaultMessageStore.java loadConsumeQueue

cdef int64_t recover_queues(
    Store *store, const Checkpoint *checkpoint, int64_t end, Failure *failure,
) noexcept nogil:
    """Set every queue's end after the units that need no second check; dispatch continues there.

    1 if the queues match the watermark's digest up to the watermark, else 0.
    """
    cdef int64_t mark = log_first(store)
    cdef int64_t rc, queues
    cdef uint64_t digest
    if checkpoint.mark.valid and not store.recovery.full:
        mark = checkpoint.mark.dispatched
    rc = recover_floors(
        store, mark, UNITS_SYNCED if checkpoint.mark.valid and checkpoint.mark.clean
        and store.recovery.clean else UNITS_CHECKED, failure)
    if rc < 0:
        return rc
    if not checkpoint.mark.valid or store.recovery.full or mark > end:
        return 0
    rc = queues_digest(store, mark, &digest, &queues)
    if rc < 0:
        return fail(failure, rc, "consumequeue", "cannot be read", -1, 0, 0)
    return digest == checkpoint.mark.digest and queues == checkpoint.mark.queues


cdef int64_t recover_precheck(
    Store *store, const Checkpoint *checkpoint, int64_t end, Failure *failure,
) noexcept nogil:
    """Before any change, examine the whole log if queues have lost units.

    After a clean exit only if a file is damaged.  Records lost in a power cut show later: the next
    ones do not continue their queues.
    """
    cdef Queue *queue = first_queue(&store.table)
    cdef uint64_t digest
    cdef int64_t queues
    cdef int64_t rc = 0
    cdef bint clean = store.recovery.clean
    cdef bint known = (clean or checkpoint.mark.dispatched <= end) and not log_has_holes(store)
    store.recovery.lacking = queues_lack(store, checkpoint) or store.recovery.lost_until > 0
    known = known and not store.recovery.lacking
    if store.recovery.full or not checkpoint.mark.valid:
        return 0                             # the whole log was examined already
    atomic_set(&store.log.wrote, end)
    while queue != NULL and known and rc >= 0:
        rc = file_set_validate(&queue.files, LENGTHS_CHECKED, failure)
        known = rc == 0
        if rc == 0 and not clean:
            rc = precheck_floor(store, queue, checkpoint.mark.dispatched)
        queue = next_queue(queue)
    if rc >= 0 and known and not clean:
        rc = queues_digest(store, checkpoint.mark.dispatched, &digest, &queues)
        known = digest == checkpoint.mark.digest and queues == checkpoint.mark.queues
    atomic_set(&store.log.wrote, 0)
    if rc < 0:
        return fail(failure, rc, "consumequeue", "cannot be read", -1, 0, 0)
    if not known:
        rc = examine_below(store, failure)
        if rc > 0:
            rc = damages_decide(store, failure)
    return min(rc, 0)


cdef bint log_has_holes(const Store *store) noexcept nogil:
    """Whether good records follow damage."""
    cdef int64_t i
    for i in range(store.recovery.damage_count):
        if not store.recovery.damages[i].tail:
            return True
    return False


cdef int64_t precheck_floor(Store *store, Queue *queue, int64_t limit) noexcept nogil:
    """Set one queue's end as recover_floor will, through read-only descriptors."""
    cdef int64_t last_end = 0
    cdef int64_t floor = 0
    file_set_reopen(&queue.files, READ_ONLY)
    if queue.files.count and not queue_is_of_deleted(queue):
        floor = queue_floor(store, queue, limit, &last_end)
    file_set_reopen(&queue.files, READ_WRITE if store.writable else READ_ONLY)
    atomic_set(&queue.last_end, last_end)
    atomic_set(&queue.files.wrote, max(0, floor) * UNIT_BYTES)
    atomic_set(&queue.max_offset, max(0, floor))
    return min(floor, 0)


# Trust in units below a watermark.
cdef enum:
    UNITS_CHECKED                # check each one
    UNITS_SYNCED                 # they were synced by a clean close


cdef int64_t recover_floors(
    Store *store, int64_t limit, int units, Failure *failure,
) noexcept nogil:
    """Find every queue's floor, trusting units up to the log offset ``limit``."""
    cdef Queue *queue = first_queue(&store.table)
    cdef int64_t rc
    while queue != NULL:
        rc = 0
        if not queue.unreadable:
            rc = recover_floor(store, queue, limit, units)
            rc = queue_note_unreadable(queue, rc)
        if rc < 0:
            return fail_in_set(failure, rc, &queue.files, "the queue cannot be read")
        queue = next_queue(queue)
    return 0


cdef int64_t recover_floor(
    Store *store, Queue *queue, int64_t limit, int units,
) noexcept nogil:
    """Set one queue's end to its floor."""
    cdef int64_t last_end = 0
    cdef int64_t floor = 0
    queue.files.unclean = not store.recovery.clean
    queue.first_physical = INT64_MOST
    queue.first_offset = 0
    derived_free(queue.making)
    queue.making = NULL
    queue_forget_near(queue)
    queue_ext_restart(queue)
    atomic_set(&queue.files.wrote, 0)        # until the floor is known, any file may be closed
    if queue_is_of_deleted(queue):
        if not queue.files.writable:
            queue.deleted = True
        else:
            floor = queue_delete(&store.table, queue)
            if floor == 0:
                remove_ext_directory(store, queue.topic)     # left if it is not empty
                floor = remove_topic_directory(store, queue.topic)
        if floor < 0:
            return floor
    elif queue.files.count:
        floor = -1
        if units == UNITS_SYNCED:
            floor = queue_floor_closed(queue, limit, &last_end)
        if floor == -1:
            floor = queue_floor(store, queue, limit, &last_end)
        if floor < 0:
            return floor
    queue.floor = floor
    memset(&queue.life, 0, sizeof(Life))
    if last_end:                             # not with blank units alone
        queue.life.first = file_set_start(&queue.files) // UNIT_BYTES
        queue.life.next = floor
        queue.life.newest_was_there = True
    atomic_set(&queue.last_end, last_end)
    atomic_set(&queue.files.wrote, floor * UNIT_BYTES)
    atomic_set(&queue.files.flushed, floor * UNIT_BYTES)
    atomic_set(&queue.max_offset, floor)
    if store.recovery.full_dispatch and not queue.deleted:
        return recover_first_unit(store, queue)
    return 0


cdef void recover_keep_lives(Store *store) noexcept nogil:
    """Keep records below the watermark's ends from beginning a new life if met again."""
    cdef Queue *queue = first_queue(&store.table)
    while queue != NULL:
        queue.life.known_until = atomic_get(&queue.last_end)
        queue.life.seen_until = queue.life.known_until
        queue = next_queue(queue)


cdef int64_t queue_floor_closed(
    Queue *queue, int64_t limit, int64_t *last_end,
) noexcept nogil:
    """Floor of a queue that was closed cleanly, by bisection; -1 if a walk is needed."""
    cdef Unit unit
    cdef int64_t used = queue_used_units(queue)
    if used <= 0 or queue_file_unit(queue, used - 1, &unit) < 0 or unit_is_blank(&unit) \
            or unit.physical_offset < 0 or unit.physical_offset > limit - unit.size:
        return -1
    last_end[0] = unit.physical_offset + unit.size
    return used


cdef int64_t recover_ends(Store *store, Failure *failure) noexcept nogil:
    """After dispatch: drop everything beyond the queues' ends, and set their beginnings."""
    cdef Queue *queue = first_queue(&store.table)
    cdef int64_t rc
    while queue != NULL:
        rc = recover_end(store, queue)
        if rc < 0:
            return fail(failure, rc, queue.files.directory, "the queue cannot be completed",
                        -1, 0, 0)
        queue = next_queue(queue)
    return 0


cdef int64_t recover_end(Store *store, Queue *queue) noexcept nogil:
    cdef int64_t rc, first, stop, floor, given
    if queue.files.count == 0:
        queue.next_offset = 0
        return 0
    given = recover_tail(store, queue, atomic_get(&store.log.wrote))
    if given < 0:
        return given
    stop = atomic_get(&queue.max_offset) * UNIT_BYTES
    rc = queue_fill_gaps(queue)
    if rc == 0:
        rc = queue_cut(queue, atomic_get(&queue.max_offset), given)
    # A single empty file after the end, as created, stays.
    if rc >= 0 and queue.life.start and given == 0 and (
            rc > 0 or queue.files.slots[queue.files.count - 1].start
            >= stop + queue.files.file_size):
        rc = queue_trim(queue, stop)
    if rc >= 0:
        rc = recover_ext_end(store, queue)
    if rc < 0:
        return rc
    first = queue.files.slots[0].start // UNIT_BYTES
    stop = max(first, atomic_get(&queue.max_offset))
    queue.next_offset = max(stop, given)
    if queue.next_offset > 0:
        queue_count_light(&store.table, queue)
    atomic_set(&queue.max_offset, stop)
    atomic_set(&queue.files.wrote, stop * UNIT_BYTES)
    # Nothing is below the first file; a new queue may begin with a later one.
    floor = max(first, min(queue.floor, atomic_get(&queue.files.flushed) // UNIT_BYTES))
    if not store.recovery.clean:
        rc = queue_redirty(queue, floor, stop)
        if rc < 0:
            return rc
        atomic_set(&queue.names_dirty, 1)
    floor = max(first, atomic_get(&queue.files.flushed) // UNIT_BYTES)
    atomic_set(&queue.files.flushed, min(stop, floor) * UNIT_BYTES)
    first = queue_first_kept(store, queue, first, stop)
    if first < 0:
        return first
    atomic_set(&queue.min_offset, first)
    return 0


cdef int64_t recover_ext_end(Store *store, Queue *queue) noexcept nogil:
    """Drop ext units not named by the queue, and mark the others for another sync.

    After a clean exit only if some were written; otherwise the first new ext unit drops them.
    """
    cdef MappedFile *file = NULL
    cdef QueueExt *ext
    cdef int64_t at, end, rc
    if not ext_is_written(queue):
        return 0
    ext = queue_ext_of(queue)
    if ext == NULL:
        return E_NO_MEMORY
    if not ext.begun and (store.recovery.clean or ext.files.count == 0):
        return 0
    rc = queue_ext_begin(queue, ext, atomic_get(&queue.max_offset))
    if rc == 0:
        rc = queue_ext_cut(queue, ext)
    at = ext.began_at
    while rc == 0 and at < atomic_get(&ext.files.wrote) and not store.recovery.clean:
        rc = file_set_hold(&ext.files, at, &file)
        if rc == 0:
            end = min(atomic_get(&ext.files.wrote), file.start + file.size)
            atomic_set(&file.name_dirty, 1)
            touch_pages(file.base, at - file.start, end - file.start)
            at = end
            mapped_file_release(file)
    if rc == 0 and not store.recovery.clean:
        atomic_set(&ext.files.flushed, ext.began_at)
        atomic_set(&ext.names_dirty, ext.files.count > 0)
    return rc


cdef int64_t queue_redirty(Queue *queue, int64_t start, int64_t stop) noexcept nogil:
    """Rewrite the pages of units [start, stop), which count as clean after a failed sync."""
    cdef MappedFile *file = NULL
    cdef int64_t at = start * UNIT_BYTES
    cdef int64_t end, rc
    while at < stop * UNIT_BYTES:
        rc = file_set_hold(&queue.files, at, &file)
        if rc < 0:
            return rc
        end = min(stop * UNIT_BYTES, file.start + file.size)
        atomic_set(&file.name_dirty, 1)
        touch_pages(file.base, at - file.start, end - file.start)
        at = end
        mapped_file_release(file)
    atomic_set(&queue.files.flushed, start * UNIT_BYTES)
    return 0


cdef int64_t queue_cut(Queue *queue, int64_t used, int64_t given) noexcept nogil:
    """Zero every nonzero unit from ``used`` on, except an OFFSET_GIVEN mark; 1 if there was one.

    The mark is the unit before ``given``; 0: no mark.
    """
    cdef MappedFile *file = NULL
    cdef char *end
    cdef char *at
    cdef int64_t rc, i, start
    cdef int64_t cut = 0
    for i in range(queue.files.count):
        start = queue.files.slots[i].start
        if start + queue.files.file_size <= used * UNIT_BYTES:
            continue
        rc = file_set_hold(&queue.files, start, &file)
        if rc < 0:
            return rc
        at = file.base + max(0, used * UNIT_BYTES - start)
        end = file.base + file.size
        if given:
            end = min(end, file.base + max(0, (given - 1) * UNIT_BYTES - start))
        # Holes read as zeros; only data is rewritten.
        rc = queue_cut_range(queue, file, at - file.base, end - file.base) if at < end else 0
        mapped_file_release(file)
        if rc < 0:
            return rc
        cut |= rc
    return cut


cdef int64_t queue_cut_range(
    Queue *queue, MappedFile *file, int64_t start, int64_t stop,
) noexcept nogil:
    """1 if any byte was not zero."""
    cdef char path[FAILURE_PATH_BYTES]
    cdef stat_t status
    cdef MappedFile plain
    cdef int64_t fd, rc, last
    file_name(path, queue.files.directory, file.start)
    fd = sys_open_file(queue.files.root, path, O_RDWR, &status)
    if fd < 0:
        return fd
    memset(&plain, 0, sizeof(MappedFile))
    plain.fd = <int>fd
    plain.size = stop
    last = mapped_file_last_used(&plain, start)
    rc = min(last, 0)
    if last > start:
        rc = zero_data(<int>fd, start, last)
        if rc == 0:
            rc = sys_sync(<int>fd)
        rc = 1 if rc == 0 else rc
    close(<int>fd)
    return rc
