# Opening for writing, second part: the log is mended as its examination says.
#
# A valid record is never cut away.  What is not valid becomes a filler where a valid record
# follows, and zeros where none does; its bytes are saved under rmqstore-quarantine/ before.
#
# Source: store/CommitLog.java recoverNormally, recoverAbnormally

cdef int64_t recover_find_end(
    Store *store, const Checkpoint *checkpoint, bint was_clean, bint full, bint fill,
    Failure *failure,
) noexcept nogil:
    """Examine the log and decide about it; nothing on the disk changes. Returns its end."""
    cdef int64_t rc
    cdef int64_t end = recover_examine(store, checkpoint, was_clean, full, failure)
    if end < 0:
        return end
    rc = damages_decide(store, fill, failure)
    return rc if rc < 0 else end


cdef int64_t recover_examine(
    Store *store, const Checkpoint *checkpoint, bint was_clean, bint full, Failure *failure,
) noexcept nogil:
    """Examine the log's window, or all of it where nothing tells that it need not be."""
    cdef Window window
    cdef int64_t first = file_set_start(&store.log)
    cdef int64_t start
    window.stop = file_set_stop(&store.log)
    if checkpoint.mark.valid:
        start = checkpoint.mark.dispatched
    else:
        start = recover_window(store, checkpoint, was_clean)
        if start < 0:
            return fail(failure, start, "commitlog", "cannot be read", -1, 0, 0)
    window.durable = window.stop if was_clean else start
    window.known_end = start if checkpoint.mark.valid or not was_clean else queues_end(store)
    if full:
        start = first
    store.recovery.checked_from = start
    window.crc_from = start
    # Without a watermark queues and index are completed from the whole log.
    window.start = start if checkpoint.mark.valid else first
    return log_examine(store, &window, failure)


cdef int64_t recover_log(
    Store *store, int64_t end, bint was_clean, Failure *failure,
) noexcept nogil:
    """Mend what recover_find_end found, and set the log's wrote and flushed positions."""
    cdef int64_t start = store.recovery.checked_from
    cdef int64_t rc = log_mend(store, failure)
    if rc < 0:
        return rc
    atomic_set(&store.log.wrote, end)
    atomic_set(&store.log.flushed, end)
    if not was_clean and start < end:
        return recover_force(store, start, end, failure)
    return 0


cdef int64_t log_mend(Store *store, Failure *failure) noexcept nogil:
    """Fill and erase the damaged ranges that were found, in the order of the log."""
    cdef Damage *damage
    cdef int64_t i, rc
    for i in range(store.recovery.damage_count):
        damage = &store.recovery.damages[i]
        if damage.mended:
            continue
        store.recovery.changed = True
        if damage.tail:
            rc = log_erase(store, damage)
            store.recovery.bytes_cut += damage.stop - damage.start
        else:
            rc = log_fill(store, damage)
        if rc < 0:
            return fail(failure, rc, "commitlog", "a damaged range cannot be saved and mended",
                        damage.start, 0, 0)
        damage.mended = True
    return 0


cdef int64_t recover_force(
    Store *store, int64_t start, int64_t stop, Failure *failure,
) noexcept nogil:
    """Have an unclean exit's window on the disk before anything of it is served.

    It may be in the page cache alone, and after a failed sync its pages count as clean there:
    so they are written once more, but for holes, which have no blocks.
    """
    cdef int64_t at = start
    cdef int64_t rc = 0
    cdef int64_t fd, end, file_start
    cdef MappedFile *file = NULL
    store.log.unclean = True
    atomic_set(&store.log.flushed, start)
    while at < stop and rc == 0:
        file_start = at - at % store.log.file_size
        end = min(stop, file_start + store.log.file_size)
        fd = log_open_file(store, file_start)
        rc = min(fd, 0)
        if PLANTED("a13") and file_set_hold(&store.log, at, &file) == 0:
            touch_pages(file.base, at - file_start, end - file_start)
        if fd >= 0:
            rc = rewrite_data(<int>fd, at - file_start, end - file_start)
            close(<int>fd)
        at = end
    if rc == 0 and not PLANTED("a10"):
        rc = min(0, file_set_flush(&store.log, stop))
    if rc < 0:
        return fail(failure, rc, "commitlog", "what was found cannot be forced to the disk",
                    at, 0, 0)
    return 0


cdef int64_t recover_below(
    Store *store, bint fill, Failure *failure,
) noexcept nogil:
    """Before the whole log is dispatched: examine and mend what lies below the window."""
    cdef int64_t rc = examine_below(store, failure)
    if rc > 0:
        rc = damages_decide(store, fill, failure)
        if rc >= 0:
            rc = log_mend(store, failure)
    return rc


cdef int64_t examine_below(Store *store, Failure *failure) noexcept nogil:
    """1 after the part of the log that lies below the window was examined; 0 if there is none."""
    cdef Window window
    cdef int64_t rc
    memset(&window, 0, sizeof(Window))
    window.start = log_first(store)
    window.stop = store.recovery.examined_from
    window.crc_from = INT64_MOST
    window.durable = INT64_MOST
    if window.start >= window.stop:
        return 0
    rc = log_examine(store, &window, failure)
    return rc if rc < 0 else 1


cdef int64_t recover_window(
    Store *store, const Checkpoint *checkpoint, bint was_clean,
) noexcept nogil:
    """Where 4.9.3 would begin to check: a file's first byte.

    After a clean exit the last file but two.  Else the newest file whose first record is not
    later than the checkpoint less 3 s, the first one if none fits; a checkpoint from the
    future says nothing, and then it is the first one too.
    """
    cdef int64_t limit = max(0, min(checkpoint.physic, checkpoint.logics) - 3000)
    cdef int64_t field
    cdef Found found
    cdef int64_t rc = 0
    cdef int64_t i = store.log.count
    if was_clean:
        return store.log.slots[max(0, i - 3)].start
    if limit > wall_millis():
        limit = 0
    atomic_set(&store.log.wrote, file_set_stop(&store.log))      # log_record's limit
    file_set_reopen(&store.log, False)
    while i > 1:
        i -= 1
        rc = log_record(store, store.log.slots[i].start, 0, &found, &field)
        if rc > 0:
            slice_release(&found.slice)
            if found.record.store_timestamp <= limit:
                break
        elif rc > -4096 and rc < 0:
            break
        rc = 0
    else:
        i = 0
    file_set_reopen(&store.log, store.writable)
    atomic_set(&store.log.wrote, 0)
    return rc if rc < 0 else store.log.slots[i].start
