# Opening for writing, second part: repair the log according to the examination.
#
# Valid records are never cut.  Invalid bytes are saved under rmqstore-quarantine/, then become a
# filler if a valid record follows, zeros if none does.
#
# Source: store/CommitLog.java recoverNormally, recoverAbnormally

cdef int64_t log_file_is_empty(Store *store, const FileSlot *slot) noexcept nogil:
    """1 if a file has only zeros, 0 if not, or a status."""
    cdef MappedFile plain
    cdef stat_t status
    cdef int64_t used
    cdef int64_t fd = set_open_file(&store.log, slot.place, slot.start, O_RDONLY, &status)
    if fd < 0:
        return fd
    memset(&plain, 0, sizeof(MappedFile))
    plain.fd = <int>fd
    plain.size = status.st_size
    used = mapped_file_last_used(&plain, 0)
    close(<int>fd)
    return used if used < 0 else used == 0


cdef int64_t log_leave_out(Store *store, int64_t count) noexcept nogil:
    """Leave out the files after the first ``count``; 0 or E_NO_MEMORY."""
    cdef FileSet *log = &store.log
    cdef int64_t more = log.count - count
    store.recovery.left_out = <FileSlot *>calloc(<size_t>more, sizeof(FileSlot))
    if store.recovery.left_out == NULL:
        return E_NO_MEMORY
    memcpy(store.recovery.left_out, &log.slots[count], <size_t>more * sizeof(FileSlot))
    store.recovery.left_out_count = more
    log.count = count
    return 0


cdef int64_t log_check_files(Store *store, Failure *failure) noexcept nogil:
    """Check the files before anything is changed: 0 or more, or a status.

    Empty files after a short or missing one are ignored: that one was the last in use.  They were
    made ahead by a broker, and are removed once nothing refuses the opening.  After an unclean exit
    a gap is refused unless the loss is accepted: only it shows that a file is lost, perhaps with a
    directory that is not mounted.
    """
    cdef FileSet *log = &store.log
    cdef int64_t rc = 1
    cdef int64_t stop = file_set_used_files(log)
    cdef int64_t i = stop
    cdef int64_t at
    cdef bint follows
    while i > 1 and rc == 1:
        i -= 1
        follows = log.slots[i - 1].start + log.file_size == log.slots[i].start
        if follows and log.slots[i - 1].length >= log.file_size:
            continue
        if not follows and not store.recovery.clean and not store.recovery.fill:
            break
        at = stop
        while at > i and rc == 1:
            at -= 1
            rc = log_file_is_empty(store, &log.slots[at])
        stop = i if rc == 1 else stop
    if rc >= 0 and stop < file_set_used_files(log):
        rc = log_leave_out(store, stop)
    if rc < 0:
        return fail(failure, rc, set_directory(log, 0), "cannot be read", -1, 0, 0)
    return file_set_validate(log, LENGTHS_CHECKED, failure)


cdef int64_t log_complete_files(Store *store, Failure *failure) noexcept nogil:
    """Remove the files left out and extend short ones: the number of these, or a status."""
    cdef char path[FAILURE_PATH_BYTES]
    cdef FileSlot *slot
    cdef int64_t i, directory
    cdef int64_t rc = 0
    for i in range(store.recovery.left_out_count):
        slot = &store.recovery.left_out[i]
        file_name(path, "", slot.start)
        directory = set_open_directory(&store.log, slot.place)
        rc = directory
        if directory >= 0:
            rc = sys_unlink(<int>directory, path)
            close(<int>directory)
        if rc < 0 and rc != -ENOENT:
            set_file_name(path, &store.log, slot.place, slot.start)
            return fail(failure, rc, path, "an empty file cannot be removed", -1, 0, 0)
    if store.recovery.left_out_count:
        store.recovery.changed = True
        rc = file_set_sync_directory(&store.log)
    if rc < 0:
        return fail(failure, rc, set_directory(&store.log, 0), "cannot be synced", -1, 0, 0)
    return file_set_validate(&store.log, LENGTHS_COMPLETED, failure)


cdef int64_t recover_find_end(
    Store *store, const Checkpoint *checkpoint, Failure *failure,
) noexcept nogil:
    """Examine the log and decide its repairs, without changes on the disk; the log's end."""
    cdef int64_t rc
    cdef int64_t end = recover_examine(store, checkpoint, failure)
    if end < 0:
        return end
    rc = find_lost_end(store, checkpoint, end) if store.recovery.clean else 0
    if rc < 0:
        return fail(failure, rc, set_directory(&store.log, 0), "cannot be read", -1, 0, 0)
    if rc > 0:
        rc = refuse_lost_end(store, failure)
    if rc == 0:
        rc = damages_decide(store, failure)
    return rc if rc < 0 else end


cdef int64_t recover_examine(
    Store *store, const Checkpoint *checkpoint, Failure *failure,
) noexcept nogil:
    """Examine the log's window, or all of it unless that is known to be unnecessary."""
    cdef Window window
    cdef int64_t first = file_set_start(&store.log)
    cdef int64_t start
    window.stop = file_set_stop(&store.log)
    if checkpoint.mark.valid:
        start = checkpoint.mark.dispatched
    else:
        start = recover_window(store, checkpoint)
        if start < 0:
            return fail(failure, start, set_directory(&store.log, 0), "cannot be read", -1, 0, 0)
    window.durable = window.stop if store.recovery.clean else start
    window.known_end = start
    if store.recovery.clean and not checkpoint.mark.valid:
        window.known_end = queues_end(store, window.stop)
    if store.recovery.full:
        start = first
    store.recovery.checked_from = start
    window.crc_from = start
    # Without a watermark queues and index are completed from the whole log.
    window.start = start if checkpoint.mark.valid else first
    return log_examine(store, &window, failure)


cdef int64_t recover_log(Store *store, int64_t end, Failure *failure) noexcept nogil:
    """Repair the damage from recover_find_end; set the log's wrote and flushed positions."""
    cdef int64_t start = store.recovery.checked_from
    cdef int64_t rc = log_repair(store, failure)
    if rc < 0:
        return rc
    atomic_set(&store.log.wrote, end)
    atomic_set(&store.log.flushed, end)
    if not store.recovery.clean and start < end:
        store.log.unclean = True
        atomic_set(&store.log.flushed, start)
    return 0


cdef int64_t log_repair(Store *store, Failure *failure) noexcept nogil:
    """Fill and erase the damaged ranges, in log order."""
    cdef Damage *damage
    cdef int64_t i, rc
    for i in range(store.recovery.damage_count):
        damage = &store.recovery.damages[i]
        if damage.repaired:
            continue
        store.recovery.changed = True
        if damage.tail:
            rc = log_erase(store, damage)
            store.recovery.bytes_cut += damage.stop - damage.start
        else:
            rc = log_fill(store, damage)
        if rc < 0:
            return fail(failure, rc, set_directory(&store.log, 0),
                        "a damaged range cannot be saved and repaired",
                        damage.start, 0, 0)
        damage.repaired = True
    return 0


# Forcing of an unclean exit's window, by a thread beside the repair of queues and index: these name
# records that are not durable yet, as they may at any time, and nothing is served before it ends.
cdef struct LogForce:
    Store *store
    int64_t at                   # begin of what is not forced yet
    int64_t stop
    int64_t status
    pthread_t thread
    bint started


cdef void force_begin(LogForce *force, Store *store) noexcept nogil:
    """Begin to force the log from its flushed position on; without a thread, force_end does it."""
    memset(force, 0, sizeof(LogForce))
    force.store = store
    force.at = atomic_get(&store.log.flushed)
    force.stop = atomic_get(&store.log.wrote)
    force.started = force.at < force.stop \
        and thread_start(&force.thread, "rmq-force", force_run, force) == 0


cdef bint force_is_long(LogForce *force) noexcept nogil:
    """Whether the files, mapped until they are flushed, might exceed the mappings of a process."""
    return force.stop - atomic_get(&force.store.log.flushed) \
        > WRITER_MAPPINGS * force.store.log.file_size


cdef int64_t force_end(LogForce *force, Failure *failure) noexcept nogil:
    """Wait until the log is on the disk: 0 or a status.  May be repeated."""
    cdef Store *store = force.store
    if force.started:
        pthread_join(force.thread, NULL)
        force.started = False
    else:
        force_run(force)
    if force.status == 0:                    # names of the files, and the flushed position
        force.status = min(0, file_set_flush(&store.log, force.stop))
    if force.status < 0:
        return fail(failure, force.status, set_directory(&store.log, 0),
                    "what was found cannot be forced to the disk",
                    force.at, 0, 0)
    return 0


cdef void *force_run(void *argument) noexcept nogil:
    cdef LogForce *force = <LogForce *>argument
    cdef int64_t size = force.store.log.file_size
    cdef int64_t end
    while force.at < force.stop and force.status == 0:
        end = min(force.stop, force.at - force.at % size + size)
        force.status = force_file(force.store, force.at, end)
        force.at = end
    return NULL


cdef int64_t force_file(Store *store, int64_t at, int64_t stop) noexcept nogil:
    """Force the bytes [at, stop) of one file to the disk.

    By rewriting their pages, which count as clean after a failed sync; not holes, which have no
    blocks.
    """
    cdef int64_t start = at - at % store.log.file_size
    cdef int64_t rc
    cdef int64_t fd = log_open_file(store, start)
    if (fd == -EROFS or fd == -EACCES or fd == -EPERM) \
            and set_is_read_only(&store.log, set_place_of(&store.log, at)):
        return 0                             # nobody can have left anything unwritten there
    if fd < 0:
        return fd
    rc = rewrite_data(<int>fd, at - start, stop - start)
    KILL_POINT("recover-in-force")
    if rc == 0:
        rc = sys_sync(<int>fd)
    close(<int>fd)
    return rc


cdef int64_t recover_below(Store *store, Failure *failure) noexcept nogil:
    """Examine and repair the part below the window, before the whole log is dispatched."""
    cdef int64_t rc = examine_below(store, failure)
    if rc > 0:
        rc = damages_decide(store, failure)
        if rc >= 0:
            rc = log_repair(store, failure)
    return rc


cdef int64_t examine_below(Store *store, Failure *failure) noexcept nogil:
    """Examine the part of the log below the window: 1, or 0 if there is none."""
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


cdef int64_t recover_window(Store *store, const Checkpoint *checkpoint) noexcept nogil:
    """Start of the file at which 4.9.3 would begin to check.

    After a clean exit the third-last file.  Otherwise the newest file whose first record is not
    later than the checkpoint minus 3 s, or else the first file, as for a checkpoint in the future.
    """
    cdef int64_t limit = max(0, min(checkpoint.physic, checkpoint.logics) - 3000)
    cdef int64_t field
    cdef Found found
    cdef int64_t rc = 0
    cdef int64_t i = store.log.count
    if store.recovery.clean:
        return store.log.slots[max(0, i - 3)].start
    if limit > wall_millis():
        limit = 0
    atomic_set(&store.log.wrote, file_set_stop(&store.log))      # log_record's limit
    file_set_reopen(&store.log, READ_ONLY)
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
    file_set_reopen(&store.log, READ_WRITE if store.writable else READ_ONLY)
    atomic_set(&store.log.wrote, 0)
    return rc if rc < 0 else store.log.slots[i].start
