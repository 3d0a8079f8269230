# Retention: removal of whole files from the log's front, then of files that point only to them.
#
# Each removal of a log file is durable before the next, and all before any removal of queue files:
# after a crash or a power cut the log has no gap, and no remaining record lacks its unit.  Files of
# a queue are removed in order and synced together: file systems lose unsynced directory changes
# from the last one backwards.
#
# Source: store/DefaultMessageStore.java CleanCommitLogService, CleanConsumeQueueService;
#         store/CommitLog.java deleteExpiredFile; store/ConsumeQueue.java deleteExpiredFile;
#         store/index/IndexService.java deleteExpiredFile

cdef enum:
    CLOSING_EVERY = 1024         # records between two checks for a close


# Contents of a file of the log.
cdef struct LogContent:
    int64_t newest               # store time of its newest record, -1: none
    int64_t records
    bint whole                   # no part was unreadable


# Number of queue and index files removed by retention.
cdef struct Removed:
    int64_t queue_files
    int64_t index_files


cdef int64_t log_removable_until(Store *store) noexcept nogil:
    """Log offset at or below which whole files may be removed.

    Keeps the last file, the newest record's, and all that queues or index still need.
    """
    cdef Found found
    cdef int64_t count = file_set_count(&store.log)
    cdef int64_t first = log_first(store)
    cdef int64_t until = file_set_start_of(&store.log, count - 1)
    cdef int64_t dispatched, last_record, time, field, rc
    if count < 2 or until < 0:
        return first
    if not store.writable:                   # an owner may have made the last one ahead
        while until > first:
            rc = log_record(store, until, 0, &found, &field)
            if rc > 0:
                slice_release(&found.slice)
            if rc >= 0:
                break
            until -= store.log.file_size
        return until
    if store.dispatch.recovering_until:
        return first
    last_record = dispatched_position(store, &dispatched, &time)
    if last_record >= 0:
        dispatched = min(dispatched, last_record)
    return max(first, min(until, dispatched - dispatched % store.log.file_size))


cdef int64_t log_file_content(Store *store, int64_t start, LogContent *content) noexcept nogil:
    """Walk a file of the log; 0, E_CLOSED once the store closes, or another status."""
    cdef Cursor cursor
    cdef Record record
    cdef const char *data
    cdef int64_t rc = 0
    content.newest = -1
    content.records = 0
    content.whole = True
    cursor_init(&cursor, store, start, start + store.log.file_size)
    cursor.check_crc = False
    cursor.report_removed = True
    while rc == 0:
        rc = cursor_next(&cursor, &record, &data)
        if rc > 0:
            content.newest = max(content.newest, record.store_timestamp)
            content.records += 1
            rc = 0
            if content.records % CLOSING_EVERY == 0 and atomic_get(&store.state) != STATE_OPEN:
                rc = E_CLOSED
        elif rc == E_CORRUPT:
            content.whole = False
            rc = cursor_resync(&cursor)
            if rc == 0:
                break
            rc = min(rc, 0)
        elif rc == 0:
            break
    cursor_close(&cursor)
    return rc


cdef int64_t log_file_changed_at(Store *store, int64_t start) noexcept nogil:
    """Modification time of a log file, ms."""
    cdef stat_t status
    cdef int64_t fd = set_open_file(
        &store.log, set_place_of(&store.log, start), start, O_RDONLY, &status)
    if fd < 0:
        return fd
    close(<int>fd)
    return stat_mtime_millis(&status)


cdef int64_t queue_first_from(
    Store *store, Queue *queue, int64_t until, int64_t *stop,
) noexcept nogil:
    """First queue offset whose record begins at or after ``until``; ``stop``: none."""
    cdef int64_t low = file_set_start(&queue.files) // UNIT_BYTES
    stop[0] = atomic_get(&queue.max_offset)
    return queue_first_at_or_after(queue, until, min(low, stop[0]), stop[0])


cdef int64_t count_emptied(Store *store, int64_t until) noexcept nogil:
    """Number of queues that lose their last message if the log begins at ``until``."""
    cdef Queue *queue = first_queue(&store.table)
    cdef int64_t count = 0
    cdef int64_t first, stop
    while queue != NULL:
        stop = atomic_get(&queue.max_offset)
        if atomic_get(&queue.min_offset) < stop:
            first = queue_first_from(store, queue, until, &stop)
            if first < 0:
                return first
            count += first == stop
        queue = next_queue(queue)
    return count


cdef int64_t queues_begin_at(Store *store, int64_t until) noexcept nogil:
    """Set every queue's minimum for a log that begins at ``until``."""
    cdef Queue *queue = first_queue(&store.table)
    cdef int64_t first = 0
    cdef int64_t stop
    while queue != NULL and first >= 0:
        dispatch_lock_take(store)
        if file_set_count(&queue.files):
            first = queue_first_from(store, queue, until, &stop)
            if first >= 0:
                atomic_set(&queue.min_offset, first)
        lock_give(&store.dispatch.lock)
        queue = next_queue(queue)
    return min(first, 0)


cdef int64_t retention_failed(Store *store, int64_t status, const char *directory) noexcept nogil:
    """A failed directory sync is final, as any failed sync: E_FAILED."""
    if is_passing(status):
        return status
    store_set_failed(store, status, directory, "the directory cannot be forced to the disk")
    return E_FAILED


cdef int64_t retention_remove_log(Store *store, int64_t until) noexcept nogil:
    """Remove the log files that end at or below ``until``; their number, or a status.

    REQUIRES: ``until`` <= log_removable_until; one caller at a time.
    """
    cdef int64_t start
    cdef int64_t count = 0
    # So that no recovery begins at a checkpoint below the log, nor lacks a unit whose queue file
    # would have to be created.
    cdef int64_t rc = flush_queues_now(store, FLUSH_ALL)
    until = min(until, atomic_get(&store.log.flushed))
    if rc == 0:
        rc = queues_begin_at(store, until)
    while rc == 0 and atomic_get(&store.state) == STATE_OPEN:
        start = log_first(store)
        if start + store.log.file_size > until:
            break
        KILL_POINT("retention-before-unlink")
        rc = file_set_remove_first(&store.log, start, store.deleted)
        if rc == E_NOT_FOUND:
            rc = 0
            break
        KILL_POINT("retention-after-unlink")
        if rc == 0:
            count += 1
            rc = file_set_sync_directory(&store.log)
            if rc < 0:
                rc = retention_failed(store, rc, "commitlog")
    if rc < 0:
        queues_begin_at(store, log_first(store))
    KILL_POINT("retention-after-log")
    return rc if rc < 0 else count


cdef int64_t retention_trim(Store *store, Removed *removed) noexcept nogil:
    """Remove queue and index files that point only below the log; 0, or a status."""
    cdef Queue *queue = first_queue(&store.table)
    cdef int64_t rc = 0
    memset(removed, 0, sizeof(Removed))
    while queue != NULL and rc >= 0 and atomic_get(&store.state) == STATE_OPEN:
        rc = queue_trim_front(store, queue)
        removed.queue_files += max(rc, 0)
        if rc >= 0 and load_ext(&queue.ext) != NULL:
            rc = queue_ext_trim_front(store, queue)
        queue = next_queue(queue)
    KILL_POINT("retention-after-queues")
    if rc >= 0 and atomic_get(&store.state) == STATE_OPEN:
        rc = index_trim_front(store)
        removed.index_files = max(rc, 0)
    KILL_POINT("retention-after-index")
    if rc > 0:                               # the checkpoint counts the index's entries
        rc = flush_queues_now(store, FLUSH_ALL)
    return min(rc, 0)


cdef int64_t queue_trim_front(Store *store, Queue *queue) noexcept nogil:
    """Remove a queue's files below its minimum, except the newest unit's; their number."""
    cdef int64_t rc = 0
    cdef int64_t count = 0
    cdef int64_t start, stop
    if file_set_count(&queue.files) < 2:
        return 0
    lock_take(&store.flush.queues_lock)      # excludes deletion of the topic too
    while rc == 0:
        start = file_set_start(&queue.files)
        stop = min(atomic_get(&queue.min_offset), atomic_get(&queue.max_offset) - 1) * UNIT_BYTES
        stop = min(stop, atomic_get(&queue.files.flushed))
        if start + queue.files.file_size > stop:
            break
        rc = file_set_remove_first(&queue.files, start, store.deleted)
        if rc == E_NOT_FOUND:
            rc = 0
            break
        KILL_POINT("retention-queue-unlinked")
        count += rc == 0
    if count and rc == 0:
        rc = file_set_sync_directory(&queue.files)
        if rc < 0:
            rc = retention_failed(store, rc, queue.files.directory)
    lock_give(&store.flush.queues_lock)
    return rc if rc < 0 else count


cdef int64_t queue_ext_trim_front(Store *store, Queue *queue) noexcept nogil:
    """Remove ext files that no unit from the queue's minimum on points to; their number."""
    cdef Unit unit
    cdef int64_t rc
    lock_take(&store.flush.queues_lock)
    dispatch_lock_take(store)
    rc = queue_file_unit(queue, atomic_get(&queue.min_offset), &unit)
    if rc == 0:
        rc = queue_ext_truncate_before(queue, unit.tags_code)
    elif rc == E_NOT_FOUND or rc == E_REMOVED:
        rc = 0                               # the queue is empty
    lock_give(&store.dispatch.lock)
    lock_give(&store.flush.queues_lock)
    return rc


cdef int64_t index_trim_front(Store *store) noexcept nogil:
    """Remove the index files with records only below the log, never the last; their number."""
    cdef char path[FAILURE_PATH_BYTES]
    cdef IndexSet *indexes = &store.indexes
    cdef Index *index
    cdef int64_t first = log_first(store)
    cdef int64_t count = 0
    cdef int64_t i
    cdef int64_t rc = 0
    while rc == 0:
        index = NULL
        lock_take(&indexes.lock)
        if indexes.count > 1 and not atomic_get(&indexes.waiting) \
                and atomic_get(&indexes.files[0].end_phy_offset) < first \
                and indexes.files[0] != indexes.last:
            index = indexes.files[0]
            for i in range(1, indexes.count):
                indexes.files[i - 1] = indexes.files[i]
            indexes.count -= 1
        lock_give(&indexes.lock)
        if index == NULL:
            break
        snprintf(path, FAILURE_PATH_BYTES, "index/%s", <char *>index.name)
        rc = sys_unlink(indexes.root, path)
        KILL_POINT("retention-index-unlinked")
        if rc == -ENOENT:
            rc = 0
        count += rc == 0
        if rc < 0:
            lock_take(&indexes.lock)
            if index_set_enter(indexes, index) == 0:
                index = NULL
            lock_give(&indexes.lock)
        index_close(index)
    if count and rc == 0:
        rc = sync_directory(indexes.root, "index")
        if rc < 0:
            rc = retention_failed(store, rc, "index")
    return rc if rc < 0 else count


cdef bint topic_is_unused(Store *store, Topic *topic) noexcept nogil:
    """Whether nothing refers to a topic, and its queues have files but no messages left.

    Stable only under the put lock and the lock of dispatch.
    """
    cdef Queue *queue = load_queue(&topic.first_queue)
    cdef bint has_files = False
    if atomic_get(&topic.write_queue_nums) > 0 or topic_is_kept(topic):
        return False
    while queue != NULL:
        if atomic_get(&queue.min_offset) < atomic_get(&queue.max_offset) \
                or queue.next_offset > atomic_get(&queue.max_offset):
            return False
        has_files = has_files or (file_set_count(&queue.files) > 0
                                  and atomic_get(&queue.max_offset) > 0)
        queue = queue.next_made
    return has_files


cdef int64_t topic_remove_unused(Store *store, Topic *topic) noexcept nogil:
    """Remove the queues of an unused topic: 1, or 0 if it is in use again, or a status."""
    cdef Queue *queue
    cdef int64_t rc = 0
    lock_take(&store.flush.queues_lock)
    lock_take(&store.writer.put_lock)
    dispatch_lock_take(store)
    if topic_is_unused(store, topic):
        rc = 1
        queue = topic.first_queue
        while queue != NULL and rc > 0:
            rc = queue_delete(&store.table, queue)
            rc = rc if rc < 0 else 1
            queue = queue.next_made
        if rc > 0:
            rc = remove_topic_directories(store, topic)
            rc = rc if rc < 0 else 1
    lock_give(&store.dispatch.lock)
    lock_give(&store.writer.put_lock)
    lock_give(&store.flush.queues_lock)
    KILL_POINT("retention-topic-removed")
    if rc > 0:
        queued_forget(store)
    return rc
