# Refresh in read-only mode: created, removed and replaced files, file sizes, ends of queues.

cdef enum:
    REFRESH_SHARE = 20         # at most this fraction of the time goes into searches for new queues
    REFRESH_MAX_NS = 2000000000              # but at least that often
    TAKING_WAITS = 50          # while the store has an owner, possibly at work on a unit
    TAKING_WAIT_US = 1000
    TAKING_LISTS = 10          # waits after which files are listed again
    DOUBT_AGAIN_NS = 1000000000              # or each of many bad units would be waited for


cdef void reading_take_log_size(Store *store) noexcept nogil:
    """Infer the log's file size, once.  Under the refresh lock, or while the store is opened."""
    cdef int64_t size
    if store.view.log_size_read:
        return
    size = file_set_infer_size(&store.log, 1, LOG_FILE_LEAST)
    if size > 0:
        store.view.log_size_read = True
        file_set_reopen(&store.log, READ_ONLY)
        file_set_align(&store.log, size)


cdef void reading_take_queue_size(Store *store) noexcept nogil:
    """As reading_take_log_size, for the queues; names are checked against the size only then."""
    cdef Queue *queue
    cdef int64_t size = 0
    if not store.view.queue_size_read:
        size = infer_queue_file_size(&store.table, NULL)
    if size < UNIT_BYTES:
        return
    store.view.queue_size_read = True
    store.table.file_size = size
    queue = first_queue(&store.table)        # queues entered later get that size
    while queue != NULL:
        file_set_reopen(&queue.files, READ_ONLY)
        file_set_align(&queue.files, size)
        queue = next_queue(queue)


cdef int64_t log_list(Store *store) noexcept nogil:
    """List the log's files, under the refresh lock; their number or a status."""
    cdef int64_t rc = file_set_list(&store.log, NULL)
    reading_take_log_size(store)
    return rc


cdef int64_t queue_list(Store *store, Queue *queue) noexcept nogil:
    """As log_list, for a queue; without a directory it has no files."""
    cdef int64_t rc = file_set_list(&queue.files, NULL)
    if rc == -ENOENT:
        file_set_clear(&queue.files)
        return 0
    if rc > 0:
        reading_take_queue_size(store)
    return rc


cdef void queue_list_now(Store *store, Queue *queue) noexcept nogil:
    """List a queue's files before an open one is doubted: it may have been replaced."""
    lock_take(&store.view.refresh_lock)
    queue_list(store, queue)
    lock_give(&store.view.refresh_lock)


cdef int64_t queue_refresh_derived(Store *store, Queue *queue, Derived *derived) noexcept nogil:
    """Return a derived queue to its files after an owner wrote them."""
    cdef int64_t rc = 0
    if monotonic_ns() - atomic_get(&queue.refreshed_at) < REFRESH_AFTER_NS:
        return 0
    lock_take(&store.view.refresh_lock)
    atomic_set(&queue.refreshed_at, monotonic_ns())
    if load_derived(&queue.derived) == derived:
        rc = log_list_if_old(store)
        if rc >= 0 and queue_list(store, queue) > 0:
            rc = files_have_derived(store, queue, derived)
        if rc == 1:                          # readers may still use it: freed at the end
            store_derived(&queue.derived, NULL)
        elif rc == 0:                        # an owner may have removed files before them
            rc = queue_find_first(store, queue, derived)
    lock_give(&store.view.refresh_lock)
    return min(rc, 0)


cdef int64_t files_have_derived(Store *store, Queue *queue, const Derived *derived) noexcept nogil:
    """1 if the files now have the same units, or an owner continued differently."""
    cdef Slice units
    cdef Unit unit
    cdef Unit last
    cdef int64_t stop = derived.start + derived.count
    cdef int64_t at = derived.start
    cdef int64_t rc
    cdef int64_t used = queue_used_units(queue)
    if used < 0:
        return 0 if used == E_REMOVED else used  # removed since it was listed: not the same
    unit_read(derived.units + (derived.count - 1) * UNIT_BYTES, &last)
    # Fewer than before: the topic was deleted and made again.
    if used > 0 and queue_file_unit(queue, used - 1, &unit) == 0 \
            and unit.physical_offset > last.physical_offset \
            and unit_is_good(store, queue, used - 1):
        return 1
    while used >= stop and at < stop:
        rc = queue_file_units(queue, at, min(stop - at, FLOOR_UNITS), &units)
        if rc > 0 and memcmp(units.data, derived.units + (at - derived.start) * UNIT_BYTES,
                             <size_t>(rc * UNIT_BYTES)) != 0:
            rc = 0
        slice_release(&units)
        if rc <= 0:
            return 0 if rc == E_REMOVED or rc == E_NOT_FOUND else rc
        at += rc
    return at >= stop


cdef int64_t queue_find_first(
    Store *store, Queue *queue, const Derived *derived,
) noexcept nogil:
    """Set a queue's beginning, after files were listed; 0 or a status.  ``derived`` may be NULL."""
    cdef int64_t start = file_set_start(&queue.files) // UNIT_BYTES
    cdef int64_t first
    if derived != NULL and (queue.files.count == 0 or derived.start < start):
        start = derived.start
    first = queue_first_kept(store, queue, start, atomic_get(&queue.max_offset))
    if first >= 0:
        atomic_set(&queue.min_offset, first)
    return 0 if first == E_REMOVED else min(first, 0)


cdef int64_t log_list_if_old(Store *store) noexcept nogil:
    """List the log's files if the last listing is old; 0 or a status."""
    cdef int64_t rc = 0
    if monotonic_ns() - atomic_get(&store.log.listed_at) > REFRESH_AFTER_NS:
        rc = log_list(store)
    return 0 if rc == -ENOENT else min(rc, 0)


# Need for listing directories again.
cdef enum:
    LIST_IF_OLD                  # if the last listing is old
    LISTED_NOW                   # no: they were just listed


cdef int64_t queue_refresh_files(Store *store, Queue *queue, int listed) noexcept nogil:
    """List log and queue again unless just listed: 0 or a status."""
    cdef int64_t now = monotonic_ns()
    # Units may name new files of the log, and the log's beginning determines the minimum.
    cdef int64_t rc = log_list_if_old(store) if listed == LIST_IF_OLD else 0
    if rc < 0:
        return rc
    if queue.files.count == 0 or (
            listed == LIST_IF_OLD and now - atomic_get(&queue.files.listed_at) > REFRESH_AFTER_NS):
        rc = queue_list(store, queue)
    if queue.deleted:                        # until there are files made since
        queue.deleted = queue.files.count == 0 or queue_is_of_deleted(queue)
    return min(rc, 0)


cdef int64_t queue_find_end(Store *store, Queue *queue) noexcept nogil:
    """Set a queue's end after the last good unit; 0 or a status.

    Bad units before the end of the used bytes (half written, or left by a broker's recovery) are
    not counted.  The end falls only if the unit before it is gone: the topic was deleted and
    recreated, or an owner's recovery removed the unit.
    """
    cdef Unit unit
    cdef int64_t known = atomic_get(&queue.max_offset)
    cdef int64_t used = 0
    cdef int64_t rc
    # In the last file, a search would end there again.
    if known * UNIT_BYTES > file_set_stop(&queue.files) - queue.files.file_size \
            and queue_has_same_end(queue):
        return 0
    if not queue.deleted:
        used = queue_used_units(queue)
        if used == E_REMOVED:                # removed since it was listed
            rc = queue_list(store, queue)
            used = queue_used_units(queue) if rc >= 0 else rc
    if used < 0:
        return 0 if used == E_REMOVED else used
    if used < known:
        rc = queue_file_unit(queue, known - 1, &unit)
        if rc == E_NOT_FOUND or rc == E_REMOVED or (rc == 0 and unit.size <= 0):
            known = 0
    if used > known:
        used = queue_good_units(store, queue, known, used)
    if used > known or known == 0:
        atomic_set(&queue.max_offset, used)
    return 0


cdef bint unit_is_removed(Store *store, Queue *queue, int64_t queue_offset) noexcept nogil:
    """Whether a unit's record is below the log: an emptied queue continues after it."""
    cdef Unit unit
    memset(&unit, 0, sizeof(Unit))
    return queue_file_unit(queue, queue_offset, &unit) == 0 and unit.size > 0 \
        and not unit_is_blank(&unit) \
        and 0 <= unit.physical_offset <= log_first(store) - unit.size


cdef int64_t queue_good_units(
    Store *store, Queue *queue, int64_t known, int64_t used,
) noexcept nogil:
    """Queue offset after the last good unit below ``used``; at least ``known``.

    Known bad units are not checked again while the first and the last of them are bad: an owner
    overwrites them from the first one on.
    """
    cdef int64_t stop = file_set_stop(&store.log)
    cdef int64_t at = used
    cdef int64_t held
    while at > known and not unit_is_good(store, queue, at - 1) \
            and not unit_is_removed(store, queue, at - 1):
        held = file_set_stop_below(&queue.files, (at - 1) * UNIT_BYTES) // UNIT_BYTES
        if held < at:                        # a gap may be as wide as a name makes it
            at = max(known, held)
            continue
        at -= 1
        if at == queue.bad_stop - 1 and known <= queue.bad_start < at \
                and stop == queue.bad_log_stop and not unit_is_good(store, queue, queue.bad_start):
            at = queue.bad_start
    queue.bad_start = at
    queue.bad_stop = used
    queue.bad_log_stop = stop
    return at


cdef bint queue_has_same_end(Queue *queue) noexcept nogil:
    """Whether a queue's last unit exists and the next does not.

    An owner writes and takes back units there first.
    """
    cdef char bytes[2 * UNIT_BYTES]
    cdef int64_t stop = atomic_get(&queue.max_offset)
    cdef int64_t first = max(stop - 1, 0)
    cdef int64_t rc, i
    if queue.deleted:
        return False
    rc = file_set_peek(
        &queue.files, first * UNIT_BYTES, (stop - first + 1) * UNIT_BYTES, bytes)
    if rc < (stop - first) * UNIT_BYTES:
        return False                         # or there are no files
    for i in range((stop - first) * UNIT_BYTES, rc):
        if bytes[i] != 0:
            return False
    return stop == first or get_i32(bytes + UNIT_SIZE) > 0


cdef int64_t queue_refresh(Store *store, Queue *queue, int listed) noexcept nogil:
    """Refresh min and max of a queue; only in read-only mode."""
    cdef int64_t rc
    cdef Derived *derived = load_derived(&queue.derived)
    if store.writable:
        return 0
    if queue.unreadable:
        return queue.unreadable
    if derived != NULL:
        rc = queue_refresh_derived(store, queue, derived)
        if rc < 0 or load_derived(&queue.derived) != NULL:
            return rc
    if listed == LIST_IF_OLD \
            and monotonic_ns() - atomic_get(&queue.refreshed_at) <= REFRESH_AFTER_NS \
            and queue_has_same_end(queue):
        return 0
    lock_take(&store.view.refresh_lock)
    atomic_set(&queue.refreshed_at, monotonic_ns())
    rc = queue_refresh_files(store, queue, listed)
    if rc == 0:
        rc = queue_find_end(store, queue)
    if rc == 0 and queue.files.count:
        rc = queue_find_first(store, queue, NULL)
    lock_give(&store.view.refresh_lock)
    return rc


cdef bint store_is_owned(Store *store) noexcept nogil:
    """Whether a process has the store open for writing now."""
    cdef stat_t status
    cdef int64_t owner = 0
    cdef int64_t fd = sys_open_file(store.root, "lock", O_RDONLY, &status)
    if fd >= 0:
        owner = sys_lock_owner(<int>fd)
        close(<int>fd)
    if owner <= 0:                           # somebody may have removed `lock`
        owner = sys_lock_owner(store.root)
    return owner > 0


cdef bint unit_is_doubted(Queue *queue) noexcept nogil:
    """Whether an owner may be rewriting a bad unit or recreating its file."""
    return monotonic_ns() - atomic_get(&queue.doubted_at) > DOUBT_AGAIN_NS


cdef bint unit_may_come(Store *store, Queue *queue, int64_t waits) noexcept nogil:
    """Wait once more for a doubted unit; not without an owner, or for too long."""
    if waits == TAKING_WAITS or not store_is_owned(store):
        atomic_set(&queue.doubted_at, monotonic_ns())
        return False
    usleep(TAKING_WAIT_US)
    return True


cdef bint unit_changes(
    Store *store, Queue *queue, int64_t at, const Unit *unit, int64_t status, int64_t field,
) noexcept nogil:
    """Whether a unit changed since a reader read it, or its file was removed.

    ``status`` and ``field``: result of reading its record.  A unit that points to no record may be
    half written: wait for it.
    """
    cdef Derived *derived = load_derived(&queue.derived)
    cdef Unit now
    cdef int64_t rc
    cdef int64_t waits = 0
    cdef bint doubted = status == E_CORRUPT and unit_is_doubted(queue)
    if derived != NULL and at >= derived.start:
        return False
    memset(&now, 0, sizeof(Unit))
    while True:
        if doubted and waits % TAKING_LISTS == 0:
            queue_list_now(store, queue)
        rc = queue_file_unit(queue, at, &now)
        if rc < 0:
            return rc == E_NOT_FOUND or rc == E_REMOVED
        if now.physical_offset != unit.physical_offset or now.size != unit.size:
            return True
        if not doubted or field != FIELD_UNIT or not unit_may_come(store, queue, waits):
            return False
        waits += 1


cdef bint unit_was_removed(Store *store, Queue *queue, int64_t at) noexcept nogil:
    """Whether retention removed a unit's record or file, by a fresh minimum."""
    if not store.writable and unit_is_doubted(queue):
        queue_refresh_now(store, queue)
        if at >= atomic_get(&queue.min_offset):
            atomic_set(&queue.doubted_at, monotonic_ns())
    return at < atomic_get(&queue.min_offset)


cdef int64_t units_as_they_are(
    Store *store, Queue *queue, int64_t at, int64_t count, Slice *units,
) noexcept nogil:
    """As queue_units; a reader takes none from a file that was replaced."""
    cdef Unit unit
    cdef int64_t rc = queue_units(queue, at, count, units)
    cdef int64_t i
    if store.writable:
        return rc
    if rc == E_NOT_FOUND:
        queue_list_now(store, queue)
        return queue_units(queue, at, count, units)
    for i in range(rc):
        unit_read(units.data + i * UNIT_BYTES, &unit)
        if unit.size <= 0:
            if unit_changes(store, queue, at + i, &unit, E_CORRUPT, FIELD_UNIT):
                slice_release(units)
                return queue_units(queue, at, count, units)
            break
    return rc


cdef void forget_gone(Store *store) noexcept nogil:
    """Drop derived units of queues whose directories an owner removed.

    Not without an owner: a reader opened later derives them as well.
    """
    cdef Queue *queue = first_queue(&store.table)
    cdef stat_t status
    cdef bint owned = False
    while queue != NULL:
        if load_derived(&queue.derived) != NULL and queue_is_unlisted(&store.table, queue):
            owned = owned or store_is_owned(store) or (
                not store.recovery.clean and fstatat(store.root, "abort", &status, 0) != 0)
            if not owned:
                return
            store_derived(&queue.derived, NULL)      # readers may still use it
        queue = next_queue(queue)


cdef int64_t refresh_queues(Store *store) noexcept nogil:
    """"r": find new topics and queues.

    At most every REFRESH_AFTER_NS; with many queues less often, to bound its share of the time, but
    at least every REFRESH_MAX_NS.
    """
    cdef int64_t rc = 0
    cdef int64_t began
    if store.writable:
        return 0
    lock_take(&store.view.refresh_lock)
    began = monotonic_ns()
    if began - store.view.guarded_at > REFRESH_AFTER_NS:
        guard_install()                      # ahead of handlers installed since
        store.view.guarded_at = began
    if began - atomic_get(&store.view.refreshed_at) > max(
            <int64_t>REFRESH_AFTER_NS,
            min(store.view.refresh_took * REFRESH_SHARE, <int64_t>REFRESH_MAX_NS)):
        rc = load_queues(&store.table, NULL)
        if rc >= 0 and atomic_get(&store.view.derived):
            forget_gone(store)
        atomic_set(&store.view.refreshed_at, monotonic_ns())
        store.view.refresh_took = monotonic_ns() - began
    lock_give(&store.view.refresh_lock)
    return min(rc, 0)


cdef int64_t queue_refresh_now(Store *store, Queue *queue) noexcept nogil:
    """As queue_refresh, after a file just listed was found missing."""
    atomic_set(&store.log.listed_at, 0)
    atomic_set(&queue.files.listed_at, 0)
    atomic_set(&queue.refreshed_at, 0)
    return queue_refresh(store, queue, LIST_IF_OLD)


cdef int64_t log_refresh(Store *store) noexcept nogil:
    """Find new files of the log, at most every 100 ms; only in read-only mode."""
    cdef int64_t rc = 0
    if store.writable:
        return 0
    lock_take(&store.view.refresh_lock)
    if monotonic_ns() - atomic_get(&store.log.listed_at) > REFRESH_AFTER_NS:
        rc = log_list(store)
    lock_give(&store.view.refresh_lock)
    return min(rc, 0)


cdef int64_t log_refresh_now(Store *store) noexcept nogil:
    """As log_refresh, after a file just listed was found missing."""
    atomic_set(&store.log.listed_at, 0)
    return log_refresh(store)


cdef bint log_lacks(Store *store, int64_t offset) noexcept nogil:
    """Whether an offset's file is missing, not removed by retention: it is between two others."""
    if offset < log_first(store):
        return False
    if file_set_gap(&store.log, offset, offset + 1) >= 0:
        log_refresh(store)                   # the same for each message of the file
    else:
        log_refresh_now(store)
    return file_set_gap(&store.log, offset, offset + 1) >= 0


cdef void log_refresh_for(Store *store, int64_t offset) noexcept nogil:
    """Find new files of the log if the index has an offset beyond the known ones."""
    if not store.writable and offset >= file_set_stop(&store.log):
        log_refresh_now(store)


cdef int64_t newest_unit_end(Store *store, int listed) noexcept nogil:
    """End of the record of the newest good unit of any queue."""
    cdef Queue *queue = first_queue(&store.table)
    cdef Unit unit
    cdef int64_t end = 0
    memset(&unit, 0, sizeof(Unit))
    while queue != NULL:
        queue_refresh(store, queue, listed)
        if atomic_get(&queue.max_offset) > 0 \
                and queue_unit_at(queue, atomic_get(&queue.max_offset) - 1, &unit) == 0 \
                and not unit_is_blank(&unit):
            end = max(end, unit.physical_offset + unit.size)
        queue = next_queue(queue)
    return end
