# Opening for writing, first part: find where the log ends, and make what follows empty.
#
# Nothing that could be valid is cut: bytes behind the end are saved under
# rmqstore-quarantine/ before they are zeroed, and damage below what was durable is refused,
# or becomes one filler record where the caller asks for it.
#
# Source: store/CommitLog.java recoverNormally, recoverAbnormally

cdef int64_t recover_log(
    Store *store, const Checkpoint *checkpoint, bint was_clean, bint full, bint fill,
    Failure *failure,
) noexcept nogil:
    """Check the records of the recovery window and set the log's wrote position."""
    cdef int64_t first = file_set_start(&store.log)
    cdef int64_t last = file_set_stop(&store.log)
    cdef int64_t start, durable, end
    if checkpoint.mark.valid:
        start = checkpoint.mark.dispatched
        durable = last if was_clean else start
    else:
        start = recover_window(store, checkpoint, was_clean)
        if start < 0:
            return fail(failure, start, "commitlog", "cannot be read", -1, 0, 0)
        durable = last if was_clean else start
    if full:
        start = first
    store.recovery.checked_from = start
    end = recover_scan(store, start, durable, fill, failure)
    if end < 0:
        return end
    atomic_set(&store.log.wrote, end)
    atomic_set(&store.log.flushed, end)
    if not was_clean and start < end:
        return recover_redirty(store, start, end, failure)
    return 0


cdef int64_t recover_redirty(
    Store *store, int64_t start, int64_t stop, Failure *failure,
) noexcept nogil:
    """Have the pages of an unclean exit's window written once more.

    They may be in the page cache alone, and after a failed sync they count as clean there.
    """
    cdef MappedFile *file = NULL
    cdef int64_t at = start
    cdef int64_t end, rc
    store.log.unclean = True
    atomic_set(&store.log.flushed, start)
    while at < stop:
        rc = file_set_hold(&store.log, at, &file)
        if rc < 0:
            return fail(failure, rc, "commitlog", "cannot be read", at, 0, 0)
        end = min(stop, file.start + file.size)
        atomic_set(&file.name_dirty, 1)
        touch_pages(file.base, at - file.start, end - file.start)
        at = end
        mapped_file_release(file)
    return 0


cdef int64_t recover_window(
    Store *store, const Checkpoint *checkpoint, bint was_clean,
) noexcept nogil:
    """Where 4.9.3 would begin to check: a file's first byte.

    After a clean exit the last file but two.  Else the newest file whose first record is not
    later than the checkpoint less 3 s, the first one if none fits; a checkpoint from the
    future says nothing, and then it is the first one too.
    """
    cdef int64_t limit = max(0, min(checkpoint.physic, checkpoint.logics) - 3000)
    cdef int64_t i, rc, field
    cdef Slice slice
    cdef Record record
    cdef int64_t count = store.log.count
    if was_clean:
        return store.log.slots[max(0, count - 3)].start
    if limit > wall_millis():
        limit = 0
    i = count
    while i > 1:
        i -= 1
        rc = file_set_read(&store.log, store.log.slots[i].start, store.log.file_size, &slice)
        if rc < 0:
            return rc
        rc = record_parse(slice.data, rc, store.log.file_size, &record, &field)
        slice_release(&slice)
        if rc > 0 and record.physical_offset == store.log.slots[i].start \
                and record.store_timestamp <= limit:
            return store.log.slots[i].start
    return store.log.slots[0].start


cdef int64_t recover_scan(
    Store *store, int64_t start, int64_t durable, bint fill, Failure *failure,
) noexcept nogil:
    """Walk the log from ``start``; the offset of its end, with nothing behind it any more."""
    cdef Cursor cursor
    cdef Record record
    cdef const char *data
    cdef int64_t rc, bad, passed
    cdef int64_t last = file_set_stop(&store.log)
    cursor_init(&cursor, store, start, last)
    cursor.check_crc = store.settings.check_crc
    while True:
        rc = cursor_next(&cursor, &record, &data)
        if rc > 0 and cursor.at - rc >= durable and record_is_torn(data, &record) \
                and log_used(store, cursor.at) == cursor.at:
            cursor.at -= rc
            cursor.field = FIELD_PROPERTIES_LENGTH
            rc = E_CORRUPT
        if rc > 0:
            store.recovery.records_checked += 1
            store.last_store_timestamp = max(store.last_store_timestamp, record.store_timestamp)
            if record.magic == MAGIC_MESSAGE_V2:
                bad = cursor.at - rc
                cursor_close(&cursor)
                return fail(failure, E_VERSION, "commitlog",
                            "a record of RocketMQ 5: open with 'r'", bad, 0, 0)
            continue
        if rc != E_CORRUPT:
            break
        bad = cursor.at
        cursor_close(&cursor)
        if log_used(store, bad) == bad:  # nothing but zeros: the ordinary end
            rc = 0
            break
        cursor_init(&cursor, store, bad, last)
        rc = cursor_next(&cursor, &record, &data)
        passed = cursor_resync(&cursor)
        if passed < 0:
            rc = passed
            break
        if passed == 0 or bad >= durable:    # a torn tail, or a hole that was never synced
            cursor_close(&cursor)
            cursor.at = bad
            rc = recover_erase(store, bad, failure)
            break
        if not fill:
            rc = fail(failure, E_CORRUPT, "commitlog", record_field_name(cursor.field), bad,
                      bad + passed, durable)
            break
        rc = recover_fill(store, bad, cursor.at, failure)
        if rc < 0:
            break
        cursor_close(&cursor)
        cursor_init(&cursor, store, bad, last)
    cursor_close(&cursor)
    if rc < 0:
        return fail(failure, rc, "commitlog", "recovery failed", cursor.at, 0, 0)
    return cursor.at


cdef int64_t recover_erase(Store *store, int64_t start, Failure *failure) noexcept nogil:
    """Save what lies from ``start`` on, then zero and sync it, so that it cannot come back."""
    cdef MappedFile *file = NULL
    cdef int64_t used = log_used(store, start)
    cdef int64_t at = start
    cdef int64_t rc, stop
    if used < 0:
        return fail(failure, used, "commitlog", "cannot be read", start, 0, 0)
    store.recovery.bytes_cut += used - start
    store.recovery.cut_from = start
    while at < used:
        rc = file_set_hold(&store.log, at, &file)
        if rc == 0:
            stop = min(used, file.start + file.size)
            rc = save_bytes(store, file, at, stop)
            if rc == 0:
                KILL_POINT("before-erase")
                rc = zero_bytes(file, at - file.start, stop - file.start)
            at = file.start + file.size
            mapped_file_release(file)
        if rc < 0:
            return fail(failure, rc, "commitlog", "a torn tail cannot be saved and erased",
                        at, 0, 0)
    return 0


cdef int64_t zero_bytes(MappedFile *file, int64_t start, int64_t stop) noexcept nogil:
    """Zero a part of a file through its descriptor, and sync it."""
    cdef char page[4096]
    cdef int64_t rc, part
    memset(page, 0, 4096)
    while start < stop:
        part = min(4096 - (start & 4095), stop - start)
        rc = sys_write(file.fd, page, part, start)
        if rc < 0:
            return rc
        start += part
    return sys_sync(file.fd)


cdef int64_t save_bytes(Store *store, MappedFile *file, int64_t start, int64_t stop) noexcept nogil:
    """Copy a part of the log to rmqstore-quarantine/, named by its offset, and sync it."""
    cdef char path[FAILURE_PATH_BYTES]
    cdef char *buffer
    cdef stat_t status
    cdef int64_t fd, rc, part
    cdef int64_t at = start
    rc = sys_make_directory(store.root, "rmqstore-quarantine")
    if rc < 0:
        return rc
    snprintf(path, FAILURE_PATH_BYTES, "rmqstore-quarantine/%020lld-%lld",
             <long long>start, <long long>wall_millis())
    fd = sys_open_file(store.root, path, O_RDWR | O_CREAT, &status)
    if fd < 0:
        return fd
    buffer = <char *>malloc(1 << 20)
    rc = 0 if buffer != NULL else E_NO_MEMORY
    while rc >= 0 and at < stop:
        part = min(stop - at, 1 << 20)
        rc = sys_read(file.fd, buffer, part, at - file.start)
        if rc >= 0:
            rc = sys_write(<int>fd, buffer, rc, at - start)
        at += part
    free(buffer)
    if rc >= 0:
        rc = sys_sync(<int>fd)
    close(<int>fd)
    if rc >= 0:
        rc = sync_directory(store.root, "rmqstore-quarantine")
    if rc >= 0:
        rc = sys_sync(store.root)
    store.recovery.saved_count += 1
    return min(rc, 0)


cdef int64_t recover_fill(
    Store *store, int64_t start, int64_t stop, Failure *failure,
) noexcept nogil:
    """Put one filler record over [start, stop), which no good record overlaps."""
    cdef MappedFile *file = NULL
    cdef int64_t rc = file_set_hold(&store.log, start, &file)
    cdef int64_t end
    if rc < 0:
        return fail(failure, rc, "commitlog", "cannot be read", start, 0, 0)
    end = min(stop, file.start + file.size)
    rc = mapped_file_reserve(file, file.fd, end - file.start)
    if rc == 0:
        rc = save_bytes(store, file, start, end)
    if rc == 0 and end - start < RECORD_BLANK_BYTES:
        rc = E_CORRUPT
    elif rc == 0 and stop >= file.start + file.size:
        blank_write(file.base + (start - file.start), end - start)
    elif rc == 0 and end - start < RECORD_FIXED_BYTES:
        rc = E_CORRUPT
    elif rc == 0:
        record_write_hole(file.base + (start - file.start), start, end - start)
    if rc == 0:
        rc = mapped_file_sync(file, start - file.start, end - file.start)
        store.recovery.holes_filled += 1
    mapped_file_release(file)
    if rc < 0:
        return fail(failure, rc, "commitlog", "a damaged range cannot be filled", start, stop, 0)
    return 0
