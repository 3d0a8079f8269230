# Append: one writer at a time, behind the put lock. Bytes first, then the wrote position.
#
# Source: store/CommitLog.java asyncPutMessage, asyncPutMessages, DefaultAppendMessageCallback

# Where a message went.
cdef struct Place:
    int64_t physical_offset
    int64_t queue_offset
    int64_t store_timestamp


cdef inline int64_t log_room(Store *store, int64_t size, char **at) noexcept nogil:
    """Where the next ``size`` bytes go: 0, E_ROLL or E_RESERVE. Behind the put lock."""
    cdef MappedFile *file = store.current
    cdef int64_t position
    if unlikely(file == NULL):
        return E_ROLL
    position = atomic_peek(&store.log.wrote) - file.start
    if unlikely(size + RECORD_BLANK_BYTES > file.size - position):
        return E_ROLL
    # The filler's 8 bytes have to find blocks too.
    if unlikely(position + size + RECORD_BLANK_BYTES > atomic_get(&file.reserved)):
        return E_RESERVE
    at[0] = file.base + position
    return 0


cdef int64_t log_make_room(Store *store, int64_t size, char **at) noexcept nogil:
    """log_room, with rolling and reserving where that is needed; without the GIL."""
    cdef int64_t rc = log_room(store, size, at)
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
    """Blocks for the current file up to the log offset ``stop``, by the writer itself."""
    cdef MappedFile *file = store.current
    cdef int64_t rc
    # One at a time: where blocks are had by writing pages over, two would undo each other.
    pthread_mutex_lock(&store.prepare_mutex)
    rc = mapped_file_reserve_ahead(file, file.fd, stop - file.start, LOG_WINDOW)
    pthread_mutex_unlock(&store.prepare_mutex)
    return rc


cdef int64_t queue_make_room(Store *store, Queue *queue, int64_t stop) noexcept nogil:
    """Have files and blocks for the units below ``stop``: 0 or E_STALLED. Behind the put lock.

    So that no message is acknowledged for which there is no space in its queue.  Anything else
    that is in the way the dispatch meets, and tells.
    """
    cdef char *at = NULL
    cdef int64_t unit = queue.next_offset
    cdef int64_t rc = 0
    if store.settings.draft:
        return 0
    pthread_mutex_lock(&store.dispatch_mutex)
    while unit < stop and rc == 0:
        rc = queue_unit_place(queue, unit, &at)
        if rc == 0:
            unit = (queue.current.start + atomic_get(&queue.current.reserved)) // UNIT_BYTES
            queue.room = unit
    pthread_mutex_unlock(&store.dispatch_mutex)
    return E_STALLED if lacks_space(rc) else 0


cdef int64_t log_roll(Store *store) noexcept nogil:
    """End the current file with a filler and go on in the next one. Behind the put lock."""
    cdef MappedFile *file = store.current
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
            # Not beside the preparer: where blocks are had by writing, it would write what it
            # read before the filler.
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
    store.current = following
    mapped_file_release(file)
    worker_call(&store.prepare)
    worker_wake(&store.reput)
    return 0


cdef inline int64_t log_written(
    Store *store, MappedFile *file, int64_t offset, int64_t size,
) noexcept nogil:
    """0 if bytes just written at a log offset are the file's, else the store has failed for good.

    Asked before they are published, behind the put lock.
    """
    if likely(mapped_file_lost(file, offset - file.start, offset - file.start + size) == 0):
        return 0
    store_broke(store, E_LOST, "commitlog", "")
    return E_FAILED


cdef int64_t log_make_file(Store *store, int64_t start, MappedFile **made) noexcept nogil:
    """Make a file of the log, without a name yet, whose length is on the disk.

    Else a sync of the directory for another file could let this one's name last without it: an
    empty file in the middle of the log.  As any failed sync, one here is final.
    """
    cdef int64_t rc = file_set_make(&store.log, start, made)
    if rc < 0:
        return rc
    rc = sys_sync(made[0].fd)
    if rc < 0:
        mapped_file_release(made[0])
        made[0] = NULL
        store_broke(store, rc, "commitlog", "")
        return E_FAILED if atomic_get(&store.state) == STATE_OPEN else rc
    return 0


cdef int64_t log_next_file(Store *store, int64_t start, MappedFile **file) noexcept nogil:
    """The file that begins at ``start``, held for the writer: there already, made ahead, or new."""
    cdef MappedFile *made = NULL
    cdef int64_t rc = file_set_hold_open(&store.log, start, file)
    if rc != E_NOT_FOUND:
        if rc == 0:
            rc = mapped_file_reserve(file[0], file[0].fd, min(LOG_WINDOW, file[0].size))
            if rc < 0:
                mapped_file_release(file[0])
        return rc
    pthread_mutex_lock(&store.prepare_mutex)
    if store.next_file != NULL and store.next_file.start == start:
        made = store.next_file
        store.next_file = NULL
    pthread_mutex_unlock(&store.prepare_mutex)
    if made == NULL:
        rc = log_make_file(store, start, &made)
        if rc < 0:
            return rc
    mapped_file_hold(made)
    rc = file_set_adopt(&store.log, made)
    if rc < 0:
        mapped_file_release(made)
        mapped_file_release(made)
        return rc
    file[0] = made
    return 0


cdef inline int64_t log_append(
    Store *store, const Draft *drafts, int64_t count, int64_t size, Queue *queue, bint fast,
    Place *place,
) noexcept nogil:
    """Append ``count`` records of ``size`` bytes in all to one queue, all of them or none.

    ``fast``: only if that takes neither waiting nor a system call, else E_BUSY; for a caller
    that holds the GIL.  ``place`` is the first record's.  A queue offset is used up only by
    a record that is in the log.
    """
    cdef char *at = NULL
    cdef int64_t rc, physical_offset, i, now
    if fast:
        if pthread_mutex_trylock(&store.put_lock) != 0:
            return E_BUSY
        rc = log_room(store, size, &at)
        if unlikely(rc != 0):
            pthread_mutex_unlock(&store.put_lock)
            return E_BUSY
    else:
        pthread_mutex_lock(&store.put_lock)
        rc = log_make_room(store, size, &at)
        if rc < 0:
            if PLANTED("queue-offset-used-by-refused-put"):
                queue.next_offset += count
            pthread_mutex_unlock(&store.put_lock)
            return rc
    rc = atomic_get(&store.failed)
    if unlikely(rc != 0 or atomic_get(&store.stalled) != 0):
        pthread_mutex_unlock(&store.put_lock)
        return E_FAILED if rc != 0 else E_STALLED
    if unlikely(queue.next_offset + count > queue.room):
        rc = E_BUSY if fast and not store.settings.draft else queue_make_room(
            store, queue, queue.next_offset + count)
        if rc < 0:
            pthread_mutex_unlock(&store.put_lock)
            return rc
    now = max(wall_millis(), store.last_store_timestamp)
    store.last_store_timestamp = now
    physical_offset = atomic_peek(&store.log.wrote)
    place.physical_offset = physical_offset
    place.queue_offset = queue.next_offset
    place.store_timestamp = now
    KILL_POINT("before-copy")
    if PLANTED("unit-before-record"):
        pthread_mutex_lock(&store.dispatch_mutex)
        queue_put_unit(queue, queue.next_offset, physical_offset, <int32_t>drafts[0].size, 0)
        pthread_mutex_unlock(&store.dispatch_mutex)
        usleep(200)
    for i in range(count):
        record_write(at, &drafts[i], physical_offset, queue.next_offset + i, now)
        at += drafts[i].size
        physical_offset += drafts[i].size
        KILL_POINT("mid-copy")
    rc = log_written(store, store.current, place.physical_offset, size)
    if unlikely(rc < 0):
        pthread_mutex_unlock(&store.put_lock)
        return rc
    queue.next_offset += count
    atomic_set_strict(&store.log.wrote, physical_offset)
    pthread_mutex_unlock(&store.put_lock)
    KILL_POINT("after-append")
    log_appended(store, physical_offset)
    return 0


cdef inline void log_appended(Store *store, int64_t wrote) noexcept nogil:
    """Tell those who wait for work in the log."""
    if not store.settings.sync_flush:
        worker_wake(&store.reput)
    if unlikely(wrote >= atomic_peek(&store.prepare_at)):
        worker_call(&store.prepare)


cdef int64_t log_append_many(
    Store *store, const Draft *drafts, Queue **queues, int64_t count, Place *places,
) noexcept nogil:
    """Append records to their queues in order, over as many files as it takes.

    Returns how many are in the log; fewer than ``count`` means that ``places[n].store_timestamp``
    of the first that is not holds the status.
    """
    cdef char *at = NULL
    cdef int64_t rc = 0
    cdef int64_t done = 0
    cdef int64_t physical_offset, queue_offset, now
    cdef bint queued
    cdef Queue *queue
    pthread_mutex_lock(&store.put_lock)
    now = max(wall_millis(), store.last_store_timestamp)
    store.last_store_timestamp = now
    while done < count:
        rc = log_room(store, drafts[done].size, &at)
        if unlikely(rc != 0):
            rc = log_make_room(store, drafts[done].size, &at)
        if rc == 0 and unlikely(atomic_get(&store.failed) != 0):
            rc = E_FAILED
        if rc == 0 and unlikely(atomic_get(&store.stalled) != 0):
            rc = E_STALLED
        queue = queues[done]
        queued = draft_is_queued(&drafts[done])
        if rc == 0 and queued and unlikely(queue.next_offset >= queue.room):
            rc = queue_make_room(store, queue, queue.next_offset + 1)
        if rc < 0:
            places[done].store_timestamp = rc
            break
        physical_offset = atomic_peek(&store.log.wrote)
        queue_offset = queue.next_offset if queued else 0
        record_write(at, &drafts[done], physical_offset, queue_offset, now)
        rc = log_written(store, store.current, physical_offset, drafts[done].size)
        if unlikely(rc < 0):
            places[done].store_timestamp = rc
            break
        places[done].physical_offset = physical_offset
        places[done].queue_offset = queue_offset
        places[done].store_timestamp = now
        queue.next_offset += queued
        atomic_set(&store.log.wrote, physical_offset + drafts[done].size)
        done += 1
    physical_offset = atomic_peek(&store.log.wrote)
    atomic_set_strict(&store.log.wrote, physical_offset)
    pthread_mutex_unlock(&store.put_lock)
    log_appended(store, physical_offset)
    return done
