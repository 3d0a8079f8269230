# Records in quarantined bytes.

def log_pieces(const unsigned char[::1] buffer, int64_t offset, int64_t file_stop):
    """Good records in bytes from ``offset`` of the log: (offset, size, kind) each.

    ``kind``: ``"message"``; ``"filler"``, which replaces damaged bytes; ``"blank"``, at the end of
    the file, which is ``file_stop``.
    """
    cdef Record record
    cdef int64_t rc, field, size
    cdef int64_t at = 0
    cdef int64_t length = buffer.shape[0]
    cdef const char *data = <const char *>&buffer[0] if length else NULL
    found = []
    while at + RECORD_BLANK_BYTES <= length:
        rc = record_parse(data + at, length - at, file_stop - offset - at, &record, &field)
        if rc == 0:
            found.append((offset + at, file_stop - offset - at, "blank"))
            break
        if rc > 0 and record_check(data + at, &record, offset + at, CHECK_CRC) == FIELD_NONE:
            found.append((offset + at, rc, "filler" if record_is_filler(&record) else "message"))
            at += rc
            continue
        at += 1
        rc = record_find(data + at, length - at, offset + at, file_stop, &size)
        if rc < 0:
            break
        at += rc
    return found


def filler_record(int64_t offset, int64_t size):
    """A record of ``size`` bytes, RECORD_FIXED_BYTES or more, that replaces damaged ones."""
    cdef bytearray into = bytearray(max(size, RECORD_FIXED_BYTES))
    if size < RECORD_FIXED_BYTES:
        raise arguments.wrong_value("size", f"{RECORD_FIXED_BYTES} or more", size)
    record_hole_head(into, offset, size)
    return bytes(into)
