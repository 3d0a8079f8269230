# Append: one writer at a time, under the put lock.  Bytes first, then the wrote position.
#
# Source: store/CommitLog.java asyncPutMessage, asyncPutMessages, DefaultAppendMessageCallback

cdef enum:
    APPEND_EACH = 0              # one after the other, over as many files as needed
    APPEND_WHOLE = 1             # all messages or none, in one file, visible together
    APPEND_AT_ONCE = 2           # no waits or system calls: the caller has the GIL
    APPEND_QUIET = 4             # the caller dispatches the records: reput_here

# Position of an appended message.
cdef struct AppendResult:
    int64_t physical_offset
    int64_t queue_offset
    int64_t store_timestamp

# Messages to append.
cdef struct Append:
    Encoded *messages
    Queue **queues               # of each message; with APPEND_WHOLE one for all
    AppendResult *appended       # of each message that is in the log
    int64_t count
    int64_t size                 # bytes of all, with APPEND_WHOLE
    int64_t how                  # APPEND_...


cdef inline int64_t log_room(Store *store, int64_t size, char **at) noexcept nogil:
    """Address of the next ``size`` bytes: 0, E_ROLL or E_RESERVE.  Under the put lock."""
    cdef MappedFile *file = store.writer.current
    cdef int64_t position
    if unlikely(file == NULL):
        return E_ROLL
    position = atomic_peek(&store.log.wrote) - file.start
    if unlikely(size + RECORD_BLANK_BYTES > file.size - position):
        return E_ROLL
    # The blank's 8 bytes need blocks too.
    if unlikely(position + size + RECORD_BLANK_BYTES > atomic_get(&file.reserved)):
        return E_RESERVE
    at[0] = file.base + position
    return 0


cdef int64_t log_make_room(Store *store, int64_t size, char **at) noexcept nogil:
    """log_room, after a roll and a reservation if needed; without the GIL."""
    cdef int64_t rc = log_room(store, size, at)
    if rc < 0 and not store.settings.log_only and disk_check(store) < 0:
        return E_DISK_USE
    if rc == E_ROLL:
        if size + RECORD_BLANK_BYTES > store.log.file_size:
            return E_TOO_LARGE
        rc = log_roll(store)
        if rc == 0:
            rc = log_room(store, size, at)
    if rc == E_RESERVE:
        rc = log_reserve(store, atomic_peek(&store.log.wrote) + size + RECORD_BLANK_BYTES)
        if rc == 0:
            rc = log_room(store, size, at)
    return rc


cdef int64_t log_reserve(Store *store, int64_t stop) noexcept nogil:
    """Allocate blocks of the current file up to the log offset ``stop``, in the calling thread."""
    cdef MappedFile *file = store.writer.current
    cdef int64_t rc
    # One at a time: where blocks are allocated by rewriting pages, two calls would undo each other.
    lock_take(&store.writer.prepare_lock)
    rc = -ENOSPC
    if file.zeroed:
        rc = mapped_file_reserve_zeroed(file, stop - file.start, LOG_WINDOW)
    if lacks_space(rc):
        rc = mapped_file_reserve_ahead(file, file.fd, stop - file.start, LOG_WINDOW)
    lock_give(&store.writer.prepare_lock)
    return rc


cdef int64_t queue_make_room(Store *store, Queue *queue, int64_t stop) noexcept nogil:
    """Create files and blocks for the units below ``stop``: 0 or E_STALLED.  Under the put lock.

    No message is acknowledged without space for its unit.  Dispatch reports all other failures.
    """
    cdef char *at = NULL
    cdef int64_t unit = queue.next_offset
    cdef int64_t rc = 0
    if store.settings.log_only:
        return 0
    dispatch_lock_take(store)
    while unit < stop and rc == 0:
        rc = queue_unit_address(queue, unit, &at)
        if rc == 0:
            unit = (queue.current.start + atomic_get(&queue.current.reserved)) // UNIT_BYTES
            queue.room = unit
    lock_give(&store.dispatch.lock)
    return E_STALLED if lacks_space(rc) else 0


cdef inline int64_t queue_room(
    Store *store, Queue *queue, int64_t stop, int64_t how,
) noexcept nogil:
    """queue_make_room unless there is room already; E_BUSY with APPEND_AT_ONCE."""
    if likely(stop <= queue.room):
        return 0
    if how & APPEND_AT_ONCE and not store.settings.log_only:
        return E_BUSY
    return queue_make_room(store, queue, stop)


cdef int64_t multi_make_room(Store *store, const Multi *multi, int64_t how) noexcept nogil:
    """queue_room for the next unit of each queue."""
    cdef int64_t i
    cdef int64_t rc = 0
    for i in range(multi.count):
        if rc == 0:
            rc = queue_room(store, multi.queues[i], multi.queues[i].next_offset + 1, how)
    return rc


cdef int64_t log_roll(Store *store) noexcept nogil:
    """End the current file with a blank and continue in the next one.  Under the put lock."""
    cdef MappedFile *file = store.writer.current
    cdef MappedFile *following = NULL
    cdef int64_t wrote = atomic_peek(&store.log.wrote)
    cdef int64_t next_start = wrote
    cdef int64_t rc
    if file != NULL:
        next_start = file.start + file.size
    rc = log_next_file(store, next_start, &following)
    if rc < 0:
        return rc
    if file != NULL and wrote < next_start:
        if wrote + RECORD_BLANK_BYTES - file.start > atomic_get(&file.reserved):
            # Not concurrently with the preparer: where blocks are allocated by rewriting, it would
            # restore the bytes it read before the blank.
            rc = log_reserve(store, wrote + RECORD_BLANK_BYTES)
            if rc < 0:
                mapped_file_release(following)
                return rc
        KILL_POINT("before-filler")
        blank_write(file.base + (wrote - file.start), next_start - wrote)
        KILL_POINT("after-filler")
        rc = log_written(store, file, wrote, RECORD_BLANK_BYTES)
        if rc < 0:
            mapped_file_release(following)
            return rc
    atomic_set_strict(&store.log.wrote, next_start)
    store.writer.current = following
    if file != NULL and store.settings.warm:
        munlock(file.base, <size_t>file.size)
    mapped_file_release(file)
    worker_call(&store.writer.worker)
    worker_wake(&store.dispatch.worker)
    return 0


cdef inline int64_t log_written(
    Store *store, MappedFile *file, int64_t offset, int64_t size,
) noexcept nogil:
    """Check before publication that the bytes written are in the file; else fail the store."""
    if likely(mapped_file_lost(file, offset - file.start, offset - file.start + size) == 0):
        return 0
    store_set_failed(store, E_LOST, set_directory(&store.log, 0), "")
    return E_FAILED


cdef int64_t log_make_file(Store *store, int64_t start, MappedFile **made) noexcept nogil:
    """Create an unnamed log file and sync its length; a failed sync is final.

    Otherwise a directory sync for another file could make the name durable before the length,
    leaving an empty file in the middle of the log.
    """
    cdef int64_t rc = file_set_make(&store.log, start, made)
    if rc < 0:
        return rc
    rc = sys_sync(made[0].fd)
    if rc < 0:
        mapped_file_release(made[0])
        made[0] = NULL
        store_set_failed(store, rc, set_directory(&store.log, 0), "")
        return E_FAILED if atomic_get(&store.state) == STATE_OPEN else rc
    if not store.settings.sync_flush:        # whose syncs of a record would write a whole run
        made[0].zeroed = True
        atomic_set(&made[0].reserved, 0)
    return 0


cdef int64_t log_next_file(Store *store, int64_t start, MappedFile **file) noexcept nogil:
    """Hold the file at ``start`` for the writer: existing, prepared, or new."""
    cdef MappedFile *made = NULL
    cdef int64_t rc = file_set_hold_open(&store.log, start, file)
    if rc != E_NOT_FOUND:
        if rc == 0:
            rc = mapped_file_reserve(file[0], file[0].fd, min(LOG_WINDOW, file[0].size))
            if rc < 0:
                mapped_file_release(file[0])
        return rc
    lock_take(&store.writer.prepare_lock)
    if store.writer.next_file != NULL and store.writer.next_file.start == start:
        made = store.writer.next_file
        store.writer.next_file = NULL
    lock_give(&store.writer.prepare_lock)
    if made == NULL:
        rc = log_make_file(store, start, &made)
        if rc < 0:
            return rc
    rc = file_set_adopt_held(&store.log, made)
    if rc == 0:
        file[0] = made
    return rc


cdef inline void log_appended(Store *store, int64_t wrote, int64_t how) noexcept nogil:
    """Wake the threads that process new records."""
    if not store.settings.sync_flush:
        if not how & APPEND_QUIET:
            worker_wake(&store.dispatch.worker)
        if unlikely(store.settings.flush_on_put):
            worker_wake(&store.flush.log_worker)
    if unlikely(wrote >= atomic_peek(&store.writer.prepare_at)):
        worker_call(&store.writer.worker)


cdef inline int64_t append_room(
    Store *store, Queue *queue, int64_t size, int64_t units, int64_t how, char **at,
) noexcept nogil:
    """Address of the next ``size`` bytes, with room for their units: 0, or the refusal."""
    cdef int64_t rc = log_room(store, size, at)
    if unlikely(rc != 0):
        rc = E_BUSY if how & APPEND_AT_ONCE else log_make_room(store, size, at)
    if rc == 0 and unlikely(atomic_get(&store.failed) != 0):
        rc = E_FAILED
    if rc == 0 and unlikely(atomic_get(&store.dispatch.stalled) != 0):
        rc = E_STALLED
    if rc == 0 and unlikely(atomic_get(&store.disk.refuses) != 0):
        rc = E_BUSY if how & APPEND_AT_ONCE else disk_check(store)
    return queue_room(store, queue, queue.next_offset + units, how) if rc == 0 else rc


cdef inline int64_t append_together(
    Store *store, const Append *append, int64_t first, int64_t count, int64_t now,
) noexcept nogil:
    """Append messages that become visible together: bytes, or a status.  Under the put lock.

    Queue offsets are consumed only once the records are in the log.
    """
    cdef Encoded *messages = &append.messages[first]
    cdef Encoded *message = messages
    cdef AppendResult *appended = &append.appended[first]
    cdef Queue *queue = append.queues[first]
    cdef int64_t how = append.how
    cdef bint queued = encoded_is_queued(messages)
    cdef int64_t units = count if how & APPEND_WHOLE else queued
    cdef int64_t size = append.size if how & APPEND_WHOLE else messages.size
    cdef int64_t start, physical_offset, queue_offset, rc
    cdef char *at = NULL
    if unlikely(messages.multi != NULL):
        rc = multi_complete(store, messages)
        if rc == 0:
            rc = multi_make_room(store, <Multi *>messages.multi, how)
        if rc < 0:
            return rc
        size = messages.size                 # a batch has no further queues
    rc = append_room(store, queue, size, units, how, &at)
    if unlikely(rc < 0):
        return rc
    start = physical_offset = atomic_peek(&store.log.wrote)
    queue_offset = queue.next_offset if units else 0
    while True:
        KILL_POINT("before-copy")
        appended.physical_offset = physical_offset
        appended.queue_offset = queue_offset
        appended.store_timestamp = now
        record_write(at, message, physical_offset, queue_offset, now)
        at += message.size
        physical_offset += message.size
        KILL_POINT("mid-copy")
        count -= 1
        if count == 0:
            break
        message += 1
        appended += 1
        queue_offset += 1
    rc = log_written(store, store.writer.current, start, physical_offset - start)
    if unlikely(rc < 0):
        return rc
    queue.next_offset += units
    if unlikely(messages.multi != NULL) and queued:
        multi_appended(store, <Multi *>messages.multi)
    atomic_set(&store.log.wrote, physical_offset)
    return physical_offset - start


cdef inline int64_t log_append(
    Store *store, const Append *append, int64_t *status,
) noexcept nogil:
    """Append messages in order, over as many files as needed; the number appended.

    If that is not all of them, ``status`` is the reason; APPEND_AT_ONCE: E_BUSY, never a wait.
    """
    cdef int64_t together = append.count if append.how & APPEND_WHOLE else 1
    cdef int64_t now, wrote
    cdef int64_t done = 0
    cdef int64_t stored = 0      # bytes
    cdef int64_t rc = 0
    if not append.how & APPEND_AT_ONCE:
        lock_take(&store.writer.put_lock)
    elif not lock_try(&store.writer.put_lock):
        status[0] = E_BUSY
        return 0
    now = max(store_millis(store), atomic_peek(&store.writer.last_store_timestamp))
    while done < append.count:
        rc = append_together(store, append, done, together, now)
        if unlikely(rc < 0):
            break
        stored += rc
        done += together
    if done:
        atomic_set(&store.writer.last_store_timestamp, now)
        count_put(&store.figures, done, stored)
    wrote = atomic_peek(&store.log.wrote)
    atomic_set_strict(&store.log.wrote, wrote)
    lock_give(&store.writer.put_lock)
    status[0] = min(rc, 0)
    if likely(done > 0):
        KILL_POINT("after-append")
        log_appended(store, wrote, append.how)
    return done
