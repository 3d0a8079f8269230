# A walk along the commit log, mapped or copied piece by piece, one checked record after the other.
#
# Source: store/CommitLog.java recoverNormally

cdef enum:
    CURSOR_CHUNK = 1 << 20
    POSITION_CUT = 35            # bytes of a record that end just before its position is complete

cdef struct Cursor:
    Store *store
    int64_t at                   # log offset of the next record
    int64_t stop
    Slice slice                  # bytes from slice_at on, all of one file
    int64_t slice_at
    int64_t field                # why E_CORRUPT
    bint check_crc
    bint report_removed          # E_REMOVED and FIELD_MISSING for a file that is not there
    int64_t chunk                # bytes per read if files are not mapped
    char *buffer                 # for such reads, reused
    int64_t room
    ReadAhead *ahead             # NULL: read synchronously
    bint checked                 # the slice is from read-ahead: its records were checked


cdef void cursor_init(Cursor *cursor, Store *store, int64_t start, int64_t stop) noexcept nogil:
    memset(cursor, 0, sizeof(Cursor))
    cursor.store = store
    cursor.at = start
    cursor.stop = stop
    cursor.check_crc = True
    cursor.chunk = CURSOR_CHUNK


cdef void cursor_close(Cursor *cursor) noexcept nogil:
    slice_release(&cursor.slice)
    free(cursor.buffer)
    cursor.buffer = NULL
    cursor.room = 0
    read_ahead_free(cursor.ahead)
    cursor.ahead = NULL


cdef int64_t cursor_load(Cursor *cursor, int64_t need) noexcept nogil:
    """Get ``need`` bytes at ``cursor.at`` into the slice, or as many as the file has."""
    cdef FileSet *log = &cursor.store.log
    cdef int64_t rc
    cdef Piece *piece = NULL
    slice_release(&cursor.slice)
    cursor.slice_at = cursor.at
    if cursor.ahead != NULL and need < CURSOR_CHUNK:
        piece = read_ahead_take(cursor.ahead, cursor.at, cursor.stop)
    cursor.checked = piece != NULL
    if piece != NULL:
        cursor.slice.data = piece.buffer
        cursor.slice.length = piece.length
        return piece.length
    if log.writable:
        return file_set_read(log, cursor.at, log.file_size, &cursor.slice)
    rc = cursor_read(cursor, log, max(need, cursor.chunk))
    if rc >= 0:
        cursor.slice.data = cursor.buffer
        cursor.slice.length = rc
    return rc


cdef int64_t cursor_read(Cursor *cursor, FileSet *log, int64_t length) noexcept nogil:
    """Up to ``length`` bytes at ``cursor.at``, all of one file, into the cursor's buffer."""
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
        rc = mapped_file_copy(file, cursor.buffer, cursor.at - file.start, length)
    else:
        rc = E_NO_MEMORY
    mapped_file_release(file)
    return rc


cdef int64_t cursor_at_gap(Cursor *cursor, int64_t rc) noexcept nogil:
    """No file has ``cursor.at``: go on to the next one, 1; 0 at the end of the log.

    Files that retention removed or that are missing are reported with ``report_removed``.
    """
    cdef int64_t next_start = file_set_next_start(&cursor.store.log, cursor.at)
    if cursor.report_removed and (rc == E_REMOVED or cursor.at < log_first(cursor.store)):
        return E_REMOVED
    if next_start < 0:
        return 0
    if cursor.at % cursor.store.log.file_size:   # the file is too short or gone
        cursor.field = FIELD_CUT
        return E_CORRUPT
    if cursor.report_removed:
        cursor.field = FIELD_MISSING
        return E_CORRUPT
    cursor.at = next_start
    return 1


cdef int64_t cursor_next(Cursor *cursor, Record *record, const char **data) noexcept nogil:
    """The size of the next record; ``cursor.at`` advances past it.

    0 at ``stop`` or where no file follows; E_CORRUPT with ``field`` and ``at`` on it.
    """
    cdef int64_t left, room, rc
    cdef int64_t file_size = cursor.store.log.file_size
    while cursor.at < cursor.stop:
        left = cursor.slice_at + cursor.slice.length - cursor.at
        if cursor.slice.data == NULL or cursor.at < cursor.slice_at or left < 8:
            rc = cursor_load(cursor, 8)
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
        if cursor_lost(cursor, rc) < 0:
            return E_LOST
        if rc == E_NOT_FOUND and record.size > LARGE_RECORD and not cursor.store.log.writable \
                and large_record_fits(cursor.store, cursor.at, record.size, &cursor.field) < 0:
            return E_CORRUPT
        if rc == E_NOT_FOUND and left < min(room, record.size):
            rc = cursor_load(cursor, record.size)
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
            cursor.field = record_check(data[0], record, cursor.at,
                                        cursor.check_crc and not cursor.checked)
            if cursor_lost(cursor, rc) < 0:
                return E_LOST
            if cursor.field == FIELD_NONE:
                cursor.at += rc
                return rc
        return E_CORRUPT
    return 0


cdef inline int64_t cursor_lost(Cursor *cursor, int64_t size) noexcept nogil:
    """E_LOST if bytes of a record of ``size`` bytes just examined are gone.

    Without a size, if any byte after its beginning is.
    """
    cdef MappedFile *file = cursor.slice.file
    if file == NULL:
        return 0
    return mapped_file_lost(file, cursor.at - file.start,
                            cursor.at - file.start + size if size > 0 else file.size)


cdef int64_t cursor_resync(Cursor *cursor) noexcept nogil:
    """After E_CORRUPT: go to the next good record before ``stop``.

    Returns the bytes skipped, 0 if there is none, -errno.
    """
    cdef int64_t start = cursor.at
    cdef int64_t at, rc, length, size
    cdef int64_t file_size = cursor.store.log.file_size
    cursor.at += 1
    while cursor.at < cursor.stop:
        rc = cursor_load(cursor, CURSOR_CHUNK)
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
            return cursor.at - start
        # The next piece has all of a record whose position field this one truncates.
        cursor.at = cursor.slice_at + (length if length <= POSITION_CUT else length - POSITION_CUT)
    return 0


cdef int64_t cursor_straddler(Cursor *cursor, int64_t length) noexcept nogil:
    """Log offset of a good record that begins in the slice and extends beyond it."""
    cdef Found found
    cdef int64_t at, field
    cdef const char *data = cursor.slice.data
    if cursor.store.log.writable:
        return E_NOT_FOUND
    for at in range(length - POSITION_CUT):
        if data[at + RECORD_MAGIC] == <char>0xDA \
                and get_i64(data + at + RECORD_PHYSICAL_OFFSET) == cursor.slice_at + at:
            if log_record(cursor.store, cursor.slice_at + at, 0, &found, &field) > 0:
                slice_release(&found.slice)
                return cursor.slice_at + at
    return E_NOT_FOUND


cdef int64_t log_used(Store *store, int64_t start) noexcept nogil:
    """The log offset after the last byte from ``start`` on that is not zero; ``start`` if none."""
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
