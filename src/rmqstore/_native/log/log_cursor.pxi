# Walk of the commit log, record by checked record, in place in the mapping or copied in chunks.
#
# In place, in a reader, another process may cut or rewrite the file at any time: the caller uses a
# record, then asks cursor_changed; if True, it discards its result and takes the record again, now
# a copy.  Bytes rejected in place are read again as a copy, which decides.
#
# Source: store/CommitLog.java recoverNormally

cdef enum:
    CURSOR_CHUNK = 256 << 10     # small enough to stay in the processor's cache until used
    AHEAD_BYTES = 2 << 20        # of a walk that the kernel has been asked to read ahead
    POSITION_CUT = 35            # bytes of a record that end just before its position is complete

cdef struct Cursor:
    Store *store
    int64_t at                   # log offset of the next record
    int64_t stop
    Slice slice                  # bytes from slice_at on, all of one file
    int64_t slice_at
    int64_t field                # reason for E_CORRUPT
    bint check_crc
    bint report_removed          # E_REMOVED and FIELD_MISSING for a missing file
    bint in_place                # "r": look at records in place on a long walk
    bint doubted                 # the slice is a copy of bytes rejected in place
    int64_t chunk                # bytes per read if files are not mapped
    char *buffer                 # of these reads, reused
    int64_t room
    int64_t walked               # end of the last read
    int64_t ahead                # log offset up to which the kernel was asked to read


cdef void cursor_init(Cursor *cursor, Store *store, int64_t start, int64_t stop) noexcept nogil:
    memset(cursor, 0, sizeof(Cursor))
    cursor.store = store
    cursor.at = start
    cursor.stop = stop
    cursor.check_crc = True
    cursor.chunk = CURSOR_CHUNK


cdef void cursor_close(Cursor *cursor) noexcept nogil:
    cursor_leave(cursor)
    free(cursor.buffer)
    cursor.buffer = NULL
    cursor.room = 0


cdef inline bint cursor_is_in_place(const Cursor *cursor) noexcept nogil:
    """Whether the slice is of a file that another process may write."""
    return cursor.slice.file != NULL and cursor.slice.file.base == NULL


cdef inline bint cursor_walks(const Cursor *cursor) noexcept nogil:
    """Whether it goes on in place, and no read is to keep regions of a view."""
    return cursor.in_place and cursor.chunk >= CURSOR_CHUNK


cdef void cursor_leave(Cursor *cursor) noexcept nogil:
    """Release the slice."""
    if cursor_is_in_place(cursor):
        view_leave(cursor.slice.file, cursor.slice.data, cursor.slice.length)
    slice_release(&cursor.slice)


cdef enum:
    WALK_IN_PLACE                # where the cursor allows it
    WALK_COPIED


cdef int64_t cursor_load(Cursor *cursor, int64_t need, int how) noexcept nogil:
    """Load ``need`` bytes at ``cursor.at`` into the slice, or as many as the file has."""
    cdef FileSet *log = &cursor.store.log
    cdef int64_t length = max(need, cursor.chunk)
    cdef int64_t rc
    cursor_leave(cursor)
    cursor.slice_at = cursor.at
    cursor.doubted = how == WALK_COPIED and cursor.in_place
    if log.writable:
        return file_set_read(log, cursor.at, log.file_size, &cursor.slice)
    if how == WALK_IN_PLACE and cursor_walks(cursor) and need <= CURSOR_CHUNK:
        rc = cursor_enter(cursor, log)
        if rc >= need or rc < 0:
            return rc
        if rc > 0:                           # across the region's end: a copy of this record alone
            length = need
            cursor_leave(cursor)
    rc = cursor_read(cursor, log, length)
    if rc >= 0:
        cursor.slice.data = cursor.buffer
        cursor.slice.length = rc
    return rc


cdef int64_t cursor_enter(Cursor *cursor, FileSet *log) noexcept nogil:
    """Point the slice to bytes in place; their count, 0 if they must be copied."""
    cdef MappedFile *file = NULL
    cdef const char *bytes = NULL
    cdef int64_t stop = max(cursor.stop, atomic_get(&cursor.store.view.log_end))
    cdef int64_t rc = file_set_hold(log, cursor.at, &file)
    if rc < 0:
        return rc
    rc = 0
    if file.view.bytes != NULL:
        rc = view_enter(file, cursor.at - file.start, stop - file.start, &bytes)
    if rc <= 0:
        mapped_file_release(file)
        return rc
    cursor_ask_ahead(cursor, file, cursor.at + rc, stop)
    cursor.slice.data = bytes
    cursor.slice.length = rc
    cursor.slice.file = file                 # held
    return rc


cdef int64_t cursor_read(Cursor *cursor, FileSet *log, int64_t length) noexcept nogil:
    """Read up to ``length`` bytes at ``cursor.at``, all of one file, into the cursor's buffer."""
    cdef MappedFile *file = NULL
    cdef int64_t rc
    rc = file_set_hold(log, cursor.at, &file)
    if rc < 0:
        return rc
    length = min(length, file.start + log.file_size - cursor.at)
    if length > cursor.room:
        free(cursor.buffer)
        cursor.buffer = <char *>malloc(<size_t>length)
        cursor.room = length if cursor.buffer != NULL else 0
    if cursor.buffer != NULL:
        cursor_ask_ahead(cursor, file, cursor.at + length, cursor.stop)
        if cursor_walks(cursor) and file.fd >= 0:
            rc = file_read(file.fd, cursor.buffer, length, cursor.at - file.start)
        else:
            rc = mapped_file_copy(file, cursor.buffer, cursor.at - file.start, length)
    else:
        rc = E_NO_MEMORY
    mapped_file_release(file)
    return rc


cdef void cursor_ask_ahead(
    Cursor *cursor, const MappedFile *file, int64_t stop, int64_t end,
) noexcept nogil:
    """Have the kernel read ahead of a sequential walk, from ``stop`` up to ``end``."""
    cdef int64_t wanted = min(min(stop + AHEAD_BYTES, end), file.start + file.size)
    cdef bint goes_on = cursor.walked - CURSOR_CHUNK <= cursor.at <= cursor.walked
    cursor.walked = stop
    if not goes_on or cursor.ahead < cursor.at:
        cursor.ahead = stop
    if goes_on and wanted - cursor.ahead >= AHEAD_BYTES // 2 and file.fd >= 0:
        if not byte_is_cached(file.fd, wanted - 1 - file.start):     # else each page is looked up
            posix_fadvise(file.fd, cursor.ahead - file.start, wanted - cursor.ahead,
                          POSIX_FADV_WILLNEED)
        cursor.ahead = wanted


cdef int64_t cursor_at_gap(Cursor *cursor, int64_t rc) noexcept nogil:
    """Skip to the next file: 1; 0 at the end of the log.

    E_CORRUPT at a cut file; with ``report_removed``, E_REMOVED or E_CORRUPT for a file that
    retention removed or that is missing.
    """
    cdef int64_t next_start = file_set_next_start(&cursor.store.log, cursor.at)
    if cursor.report_removed and (rc == E_REMOVED or cursor.at < log_first(cursor.store)):
        return E_REMOVED
    if next_start < 0:
        return 0
    if cursor.report_removed or cursor.at % cursor.store.log.file_size:
        cursor.field = FIELD_MISSING if cursor.report_removed else FIELD_CUT
        return E_CORRUPT
    cursor.at = next_start
    return 1


cdef inline void prefetch_record(const char *data, int64_t size) noexcept nogil:
    """If the next two are about as long: their heads, and the ends with the properties."""
    prefetch_to_read(data + 2 * size)
    prefetch_to_read(data + 2 * size + 64)
    prefetch_to_read(data + 3 * size - 128)
    prefetch_to_read(data + 3 * size - 64)


cdef int64_t cursor_next(Cursor *cursor, Record *record, const char **data) noexcept nogil:
    """Size of the next record; ``cursor.at`` moves past it.

    0 at ``stop`` or the end of the log; E_CORRUPT sets ``field`` and leaves ``at`` on the record.
    """
    cdef int64_t left, room, rc
    cdef int64_t file_size = cursor.store.log.file_size
    cdef int64_t need = 8
    cdef int how = WALK_IN_PLACE
    cdef bint again = False
    while cursor.at < cursor.stop:
        left = cursor.slice_at + cursor.slice.length - cursor.at
        if again or cursor.slice.data == NULL or cursor.at < cursor.slice_at or left < 8:
            rc = cursor_load(cursor, need, how)
            need = 8
            how = WALK_IN_PLACE
            again = False
            if rc == E_NOT_FOUND or rc == E_REMOVED:
                rc = cursor_at_gap(cursor, rc)
                if rc <= 0:
                    return rc
                continue
            if rc < 0:
                return rc
            left = rc
        room = file_size - cursor.at % file_size
        data[0] = cursor.slice.data + (cursor.at - cursor.slice_at)
        rc = record_parse(data[0], left, room, record, &cursor.field)
        if cursor_is_in_place(cursor):
            if rc > 0 and cursor_is_good(cursor, record, data[0]):
                cursor.at += rc
                prefetch_record(data[0], rc)
                return rc
            again = True
            if rc == E_NOT_FOUND and left < record.size <= min(room, <int64_t>CURSOR_CHUNK):
                need = record.size
            else:
                how = WALK_COPIED
            continue
        if cursor_lost(cursor, rc) < 0:
            return E_LOST
        if rc == E_NOT_FOUND and record.size > LARGE_RECORD and not cursor.store.log.writable \
                and large_record_fits(cursor.store, cursor.at, record.size, &cursor.field) < 0:
            return E_CORRUPT
        if rc == E_NOT_FOUND and left < min(room, record.size):
            if cursor.at > cursor.slice_at:  # past what was doubted, in place again
                need = record.size
                again = True
                continue
            rc = cursor_load(cursor, record.size, WALK_COPIED)
            if rc < 0:
                return rc
            if rc < record.size:
                cursor.field = FIELD_CUT
                return E_CORRUPT
            continue
        if rc == 0:
            cursor.at += room
            continue
        if rc > 0:
            cursor.field = record_check(data[0], record, cursor.at, cursor.check_crc)
            if cursor_lost(cursor, rc) < 0:
                return E_LOST
            if cursor.field == FIELD_NONE:
                cursor.at += rc
                if not cursor.check_crc and cursor.slice.file != NULL:
                    prefetch_record(data[0], rc)
                return rc
        return E_CORRUPT
    return 0


cdef bint cursor_is_good(Cursor *cursor, const Record *record, const char *data) noexcept nogil:
    """Whether a record parsed in place is good.

    Not if it ends with a zero, which a cut inside its last page shows as well.
    """
    cdef int64_t at = data - cursor.slice.file.view.bytes
    return data[record.size - 1] != 0 \
        and record_check(data, record, cursor.at, cursor.check_crc) == FIELD_NONE \
        and not guard_lost(&cursor.slice.file.view.guard, at, at + record.size)


cdef bint cursor_changed(Cursor *cursor, const Record *record, const char *data) noexcept nogil:
    """Whether the last record may have changed since; if so it is returned again, as a copy."""
    cdef char head[RECORD_HEAD_BYTES]
    if not cursor.in_place:
        return False
    if cursor_is_in_place(cursor):
        if not mapped_record_changed(cursor.slice.file, data, record):
            return False
    elif not cursor.doubted or log_bytes(
            cursor.store, cursor.at - record.size, RECORD_HEAD_BYTES, head) != RECORD_HEAD_BYTES \
            or head_is_of(head, record):
        return False                         # also if the file is gone
    cursor.at -= record.size
    cursor_load(cursor, 8, WALK_COPIED)      # after a failure, the next call tries again
    return True


cdef inline int64_t cursor_lost(Cursor *cursor, int64_t size) noexcept nogil:
    """E_LOST if any of the ``size`` bytes just examined are lost; size 0: to the file's end."""
    cdef MappedFile *file = cursor.slice.file
    if file == NULL:
        return 0
    return mapped_file_lost(file, cursor.at - file.start,
                            cursor.at - file.start + size if size > 0 else file.size)


cdef int64_t cursor_resync(Cursor *cursor) noexcept nogil:
    """After E_CORRUPT, go to the next good record before ``stop``: bytes skipped, 0 or -errno."""
    cdef int64_t start = cursor.at
    cdef int64_t at, rc, length, size
    cdef int64_t file_size = cursor.store.log.file_size
    cursor.at += 1
    while cursor.at < cursor.stop:
        rc = cursor_load(cursor, CURSOR_CHUNK, WALK_COPIED)
        if rc == E_NOT_FOUND or rc == E_REMOVED or rc == 0:
            rc = file_set_next_start(&cursor.store.log, cursor.at)
            if rc < 0:
                return 0
            cursor.at = rc
            continue
        if rc < 0:
            return rc
        # Beyond the stop only enough to recognize a record that begins before it.
        length = min(cursor.slice.length, cursor.stop - cursor.slice_at + RECORD_FIXED_BYTES)
        at = record_find(cursor.slice.data, length, cursor.slice_at,
                         cursor.slice_at - cursor.slice_at % file_size + file_size, &size)
        rc = slice_lost(&cursor.slice)
        if rc < 0:
            return rc
        # A record may begin in this piece and end in the next.
        at = at + cursor.slice_at if at >= 0 else cursor_straddler(cursor, length)
        if at >= 0:
            if at >= cursor.stop:
                return 0
            cursor.at = at
            if cursor.in_place:
                cursor_leave(cursor)
            return cursor.at - start
        # The next piece has all of a record whose position field this one truncates.
        cursor.at = cursor.slice_at + (length if length <= POSITION_CUT else length - POSITION_CUT)
    return 0


cdef int64_t cursor_straddler(Cursor *cursor, int64_t length) noexcept nogil:
    """Log offset of a good record that begins in the slice and extends beyond it."""
    cdef Found found
    cdef int64_t field
    cdef int64_t at = 0
    cdef const char *hit
    cdef const char *data = cursor.slice.data
    if cursor.store.log.writable:
        return E_NOT_FOUND
    while at < length - POSITION_CUT:
        hit = <const char *>memchr(
            data + at + RECORD_MAGIC, 0xDA, <size_t>(length - POSITION_CUT - at))
        if hit == NULL:
            break
        at = hit - data - RECORD_MAGIC
        if get_i64(data + at + RECORD_PHYSICAL_OFFSET) == cursor.slice_at + at \
                and log_record(cursor.store, cursor.slice_at + at, 0, &found, &field) > 0:
            slice_release(&found.slice)
            return cursor.slice_at + at
        at += 1
    return E_NOT_FOUND


cdef int64_t log_used(Store *store, int64_t start) noexcept nogil:
    """Log offset after the last nonzero byte from ``start`` on; ``start``: none."""
    cdef MappedFile *file = NULL
    cdef int64_t used = start
    cdef int64_t at = start
    cdef int64_t rc, last
    while at < file_set_stop(&store.log):
        rc = file_set_hold(&store.log, at, &file)
        if rc == E_NOT_FOUND or rc == E_REMOVED:     # read-only: that file is missing
            at = file_set_next_start(&store.log, at)
            if at < 0:
                break
            continue
        if rc < 0:
            return rc
        last = mapped_file_last_used(file, at - file.start)
        if last < 0:
            mapped_file_release(file)
            return last
        if last > at - file.start:
            used = file.start + last
        at = file.start + file.size
        mapped_file_release(file)
    return used


cdef int64_t cursor_next_good(
    Cursor *cursor, Record *record, const char **data,
) noexcept nogil:
    """As cursor_next, past damaged bytes."""
    cdef int64_t rc = cursor_next(cursor, record, data)
    while rc == E_CORRUPT:
        rc = cursor_resync(cursor)
        if rc > 0:
            rc = cursor_next(cursor, record, data)
    return rc
