# Zeros written ahead of the writer, by system calls, into a file that this process has created.
#
# A page first touched through the mapping costs its own fault, and read-ahead around it.  Pages
# written in a run become one folio, mapped by a single fault.  Only into reserved blocks not yet
# written; after any failure the store goes through the mapping.
#
# Source: store/MappedFile.java warmMappedFile

cdef enum:
    ZERO_RUN = 256 << 10         # most bytes at a time: others may be waiting
    ZERO_BLOCK = 32 << 10        # bytes at a time, for writes at random places

cdef const char[ZERO_RUN] ZEROS      # never written


cdef int open_to_zero(const MappedFile *file, int root, const char *path) noexcept nogil:
    """A descriptor of a mapped file, -1 if there is none or the name is another file's."""
    cdef stat_t status
    cdef int fd = openat(root, path, O_RDWR | O_CLOEXEC)
    if fd >= 0 and (fstat(fd, &status) != 0 or status.st_ino != file.inode
                    or status.st_dev != file.device):
        close(fd)
        return -1
    return fd


cdef void zero_range(MappedFile *file, int fd, int64_t start, int64_t stop) noexcept nogil:
    """Write zeros to [start, stop), at most ZERO_RUN, unless the file was cut meanwhile."""
    cdef stat_t status
    if FAULT("zeros"):
        return
    if start < stop and fstat(fd, &status) == 0 and status.st_size == file.size \
            and pwrite(fd, ZEROS, <size_t>(stop - start), start) < 0:
        return


cdef inline int64_t zero_run_stop(MappedFile *file, int64_t start) noexcept nogil:
    """End of the run at ``start``; its length is the alignment of ``start``.

    So runs are short at the start of a file, which may get no more, and whole folios later.
    """
    cdef int64_t run = min(max(start & -start, PAGE_BYTES), ZERO_RUN)
    return min(start + run, atomic_peek(&file.reserved))


cdef int64_t mapped_file_reserve_zeroed(
    MappedFile *file, int64_t stop, int64_t window,
) noexcept nogil:
    """As mapped_file_reserve, after zeros if the file is ``zeroed``; one caller at a time.

    Nothing is stored beyond ``reserved``, which rises last.  A ``window`` of blocks is allocated at
    once, so that they are in one piece.
    """
    cdef int64_t have = atomic_get(&file.reserved)
    cdef int64_t at, end
    cdef int64_t rc = -ENOSPC
    if not file.zeroed:
        return mapped_file_reserve(file, file.fd, stop)
    stop = min((stop + ZERO_RUN - 1) & ~<int64_t>(ZERO_RUN - 1), file.size)
    if stop <= have:
        return 0
    if have % window == 0:
        rc = sys_reserve(file.fd, have, min(window, file.size - have))
    if lacks_space(rc):
        rc = sys_reserve(file.fd, have, stop - have)
    if rc < 0:
        return mapped_file_reserve(file, file.fd, stop) if rc == -EOPNOTSUPP else rc
    at = have
    while at < stop:
        end = min(at + ZERO_RUN, stop)
        zero_range(file, file.fd, at, end)
        at = end
    KILL_POINT("after-zeros")
    atomic_raise(&file.reserved, stop)
    return 0
