# Ranges of a file through its descriptor: search, copy, zero, rewrite in place.
#
# Holes are neither read nor written: a sparse file costs only its data, and a full disk is an
# error, never a signal.
#

cdef enum:
    COPY_BYTES = 1 << 16


cdef int64_t next_data(int fd, int64_t at, int64_t stop, int64_t *data_stop) noexcept nogil:
    """Begin and end of the first data in [at, stop), holes skipped; ``stop`` if none."""
    cdef int64_t start = lseek(fd, at, SEEK_DATA)
    if start < 0:
        # ENXIO: a hole up to the end of the file.  Without SEEK_DATA support, all is data.
        start = stop if errno == ENXIO else at
    data_stop[0] = stop
    if start >= stop:
        return stop
    at = lseek(fd, start, SEEK_HOLE)
    if start < at < stop:
        data_stop[0] = at
    return start


cdef int64_t mapped_file_last_used(MappedFile *file, int64_t start) noexcept nogil:
    """Offset after the last nonzero byte from ``start`` on; ``start``: none.  Skips holes."""
    cdef int64_t last = start
    cdef int64_t stop, following, following_stop, position, got
    cdef int64_t at = next_data(file.fd, start, file.size, &stop)
    cdef char *buffer = <char *>malloc(COPY_BYTES)
    if buffer == NULL:
        return E_NO_MEMORY
    while at < file.size:
        # Before the read: its read-ahead makes data of unwritten blocks, up to the file's end.
        following = next_data(file.fd, stop, file.size, &following_stop)
        while at < stop:
            got = sys_read(file.fd, buffer, min(stop - at, COPY_BYTES), at)
            if got <= 0:
                free(buffer)
                return got if got < 0 else last
            position = last_nonzero(buffer, got)
            if position >= 0:
                last = at + position + 1
            at += got
        at = following
        stop = following_stop
    free(buffer)
    return last


cdef int64_t zero_data(int fd, int64_t start, int64_t stop) noexcept nogil:
    """Zero [start, stop) of a file; holes stay holes."""
    cdef char page[4096]
    cdef int64_t data_stop, part, rc
    memset(page, 0, 4096)
    while start < stop:
        start = next_data(fd, start, stop, &data_stop)
        while start < data_stop:
            part = min(4096 - (start & 4095), data_stop - start)
            rc = sys_write(fd, page, part, start)
            if rc < 0:
                return rc
            start += part
    return 0


cdef int64_t copy_data(
    int fd, int64_t start, int64_t stop, int target, int64_t target_start,
) noexcept nogil:
    """Copy [start, stop) of a file into another one; holes stay holes."""
    cdef char *buffer = <char *>malloc(COPY_BYTES)
    cdef int64_t at = start
    cdef int64_t rc = 0 if buffer != NULL else E_NO_MEMORY
    cdef int64_t data_stop
    while at < stop and rc >= 0:
        at = next_data(fd, at, stop, &data_stop)
        while at < data_stop and rc >= 0:
            rc = sys_read(fd, buffer, min(data_stop - at, COPY_BYTES), at)
            if rc > 0:
                rc = sys_write(target, buffer, rc, target_start + at - start)
            elif rc == 0:                    # the file is shorter
                rc = data_stop - at
            if rc > 0:
                at += rc
    free(buffer)
    return min(rc, 0)


cdef int64_t rewrite_data(int fd, int64_t start, int64_t stop) noexcept nogil:
    """Rewrite the data of [start, stop) in place, and start to sync it; holes stay holes."""
    cdef char *buffer = <char *>malloc(REWRITE_BYTES)
    cdef int64_t data_stop, part
    cdef int64_t rc = 0 if buffer != NULL else E_NO_MEMORY
    while start < stop and rc >= 0:
        start = next_data(fd, start, stop, &data_stop)
        while start < data_stop and rc >= 0:
            part = min(data_stop - start, REWRITE_BYTES)
            rc = write_over(fd, buffer, start, part)
            sys_start_sync(fd, start, part)  # while the next one is copied
            start += part
    free(buffer)
    return min(rc, 0)
