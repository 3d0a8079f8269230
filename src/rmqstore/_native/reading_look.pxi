# Looking again, for who only reads: files that came, went or were replaced, their sizes, and the
# ends of queues and log as of now.
#
# Source: ours

cdef void reading_take_log_size(Store *store) noexcept nogil:
    """Take the log's file size from its files, once they tell it.

    Behind the look mutex, or while the store is opened.
    """
    cdef int64_t size
    if store.log_size_read:
        return
    size = file_set_tell_size(&store.log, 1)
    if size > 0:
        store.log_size_read = True
        file_set_reopen(&store.log, False)
        file_set_align(&store.log, size)


cdef void reading_take_queue_size(Store *store) noexcept nogil:
    """As reading_take_log_size, of the queues: one that is there before its first file tells none.

    Names are compared with the size only from then on.
    """
    cdef Queue *queue
    cdef int64_t size = 0
    if not store.queue_size_read:
        size = tell_queue_size(store, NULL)
    if size < UNIT_BYTES:
        return
    store.queue_size_read = True
    store.settings.queue_file_size = size
    queue = first_queue(&store.table)        # one that is made from now on has that size
    while queue != NULL:
        file_set_reopen(&queue.files, False)
        file_set_align(&queue.files, size)
        queue = next_queue(queue)


cdef int64_t log_list(Store *store) noexcept nogil:
    """List the log's files as of now, behind the look mutex; their number or a status."""
    cdef int64_t rc = file_set_list(&store.log, NULL)
    reading_take_log_size(store)
    return rc


cdef int64_t queue_list(Store *store, Queue *queue) noexcept nogil:
    """As log_list, of a queue; one whose directory is gone has no files."""
    cdef int64_t rc = file_set_list(&queue.files, NULL)
    if rc == -ENOENT:
        file_set_clear(&queue.files)
        return 0
    if rc > 0:
        reading_take_queue_size(store)
    return rc


cdef int64_t queue_look_derived(Store *store, Queue *queue, Derived *derived) noexcept nogil:
    """A queue told from the log is read from its files again once an owner has written them."""
    cdef int64_t rc = 0
    if monotonic_ns() - atomic_get(&queue.looked_at) < 100000000:
        return 0
    pthread_mutex_lock(&store.look_mutex)
    atomic_set(&queue.looked_at, monotonic_ns())
    if load_derived(&queue.derived) == derived and queue_list(store, queue) > 0:
        rc = files_have_derived(store, queue, derived)
        if rc == 1:                          # who reads it now may go on: it is freed at the end
            store_derived(&queue.derived, NULL)
    pthread_mutex_unlock(&store.look_mutex)
    return min(rc, 0)


cdef int64_t files_have_derived(Store *store, Queue *queue, const Derived *derived) noexcept nogil:
    """1 if the files say the same by now, or an owner went on behind it in another way."""
    cdef Slice units
    cdef Unit unit
    cdef Unit last
    cdef int64_t stop = derived.start + derived.count
    cdef int64_t at = derived.start
    cdef int64_t rc
    cdef int64_t used = queue_used_units(queue)
    if used < 0:
        return 0 if used == E_REMOVED else used  # gone since it was listed: not the same
    unit_read(derived.units + (derived.count - 1) * UNIT_BYTES, &last)
    # Fewer than there were: the topic was deleted, and made again.
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


cdef int64_t queue_look_at_files(Store *store, Queue *queue, bint listed) noexcept nogil:
    """List log and queue anew where that was not done just now: 0 or a status."""
    cdef int64_t now = monotonic_ns()
    cdef int64_t rc = 0
    # Units name files of the log that came since, and the minimum is where the log begins now.
    if not listed and now - atomic_get(&store.log.listed_at) > 100000000:
        rc = log_list(store)
        if rc < 0 and rc != -ENOENT:
            return rc
    rc = 0
    if queue.files.count == 0 or (
            not listed and now - atomic_get(&queue.files.listed_at) > 100000000):
        rc = queue_list(store, queue)
    if queue.deleted:                        # until files are there that were made since
        queue.deleted = queue.files.count == 0 or queue_is_of_deleted(queue)
    return min(rc, 0)


cdef int64_t queue_find_end(Store *store, Queue *queue) noexcept nogil:
    """Set a queue's end behind the last good unit; 0 or a status.

    Behind the bytes that look used, units that are not good (half written, or left over from a
    broker's own recovery) are stepped back over.
    It falls only where the unit before it is gone: then the files are others, of a topic that
    was deleted and made again, or an owner's recovery took it.
    """
    cdef Unit unit
    cdef int64_t known = atomic_get(&queue.max_offset)
    cdef int64_t used = 0
    cdef int64_t rc
    if not queue.deleted:
        used = queue_used_units(queue)
        if used == E_REMOVED:                # gone since it was listed
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


cdef int64_t queue_good_units(
    Store *store, Queue *queue, int64_t known, int64_t used,
) noexcept nogil:
    """The queue offset behind the last good unit below ``used``; at least ``known``.

    Bad ones that were stepped back over before are not looked at again as long as the first
    and the last of them are bad: an owner writes over them from the first one on.
    """
    cdef int64_t stop = file_set_stop(&store.log)
    cdef int64_t at = used
    while at > known and not unit_is_good(store, queue, at - 1):
        at -= 1
        if at == queue.bad_stop - 1 and known <= queue.bad_start < at \
                and stop == queue.bad_log_stop and not unit_is_good(store, queue, queue.bad_start):
            at = queue.bad_start
    queue.bad_start = at
    queue.bad_stop = used
    queue.bad_log_stop = stop
    return at


cdef int64_t queue_look(Store *store, Queue *queue, bint listed) noexcept nogil:
    """Tell min and max of a queue anew; only for a store that is only read."""
    cdef int64_t first, rc
    cdef Derived *derived = load_derived(&queue.derived)
    if store.writable:
        return 0
    if queue.unreadable:
        return queue.unreadable
    if derived != NULL:
        rc = queue_look_derived(store, queue, derived)
        if rc < 0 or load_derived(&queue.derived) != NULL:
            return rc
    pthread_mutex_lock(&store.look_mutex)
    rc = queue_look_at_files(store, queue, listed)
    if rc == 0:
        rc = queue_find_end(store, queue)
    if rc == 0 and queue.files.count:
        first = queue_first_kept(store, queue, queue.files.slots[0].start // UNIT_BYTES,
                                 atomic_get(&queue.max_offset))
        if first >= 0:
            atomic_set(&queue.min_offset, first)
        elif first != E_REMOVED:
            rc = first
    pthread_mutex_unlock(&store.look_mutex)
    return rc


cdef int64_t look_for_queues(Store *store) noexcept nogil:
    """New topics and queues, at most every 100 ms; only where they are only read."""
    cdef int64_t rc = 0
    if store.writable:
        return 0
    pthread_mutex_lock(&store.look_mutex)
    if monotonic_ns() - atomic_get(&store.looked_at) > 100000000:
        rc = load_queues(store, NULL)
        atomic_set(&store.looked_at, monotonic_ns())
    pthread_mutex_unlock(&store.look_mutex)
    return min(rc, 0)


cdef int64_t queue_look_at_once(Store *store, Queue *queue) noexcept nogil:
    """As queue_look, where a file is gone that was listed a moment ago."""
    atomic_set(&store.log.listed_at, 0)
    atomic_set(&queue.files.listed_at, 0)
    return queue_look(store, queue, False)


cdef int64_t log_look(Store *store) noexcept nogil:
    """Look for new files of the log, at most every 100 ms; only where it is only read."""
    cdef int64_t rc = 0
    if store.writable:
        return 0
    pthread_mutex_lock(&store.look_mutex)
    if monotonic_ns() - atomic_get(&store.log.listed_at) > 100000000:
        rc = log_list(store)
    pthread_mutex_unlock(&store.look_mutex)
    return min(rc, 0)


cdef int64_t log_look_at_once(Store *store) noexcept nogil:
    """As log_look, where a file is gone that was listed a moment ago."""
    atomic_set(&store.log.listed_at, 0)
    return log_look(store)


cdef void log_look_for(Store *store, int64_t offset) noexcept nogil:
    """Look for the log's new files where the index has an offset behind those that are known."""
    if not store.writable and offset >= file_set_stop(&store.log):
        log_look_at_once(store)
