# One file of the store: opened, mapped where it is written, held while it is used.
#
# Source: store/MappedFile.java, store/ReferenceResource.java

cdef struct MappedFile:
    char *base               # first mapped byte; NULL: read with pread
    int64_t size             # bytes a file of its kind has
    int64_t start            # offset of its first byte in the set
    int fd                   # -1: closed after mapping
    atomic_i64 holds         # 1 for the set + 1 a user; unmapped at 0
    atomic_i64 reserved      # bytes from the start on that have blocks on the disk
    atomic_i64 name_dirty    # 1: the directory has to be synced before the name lasts
    uint64_t device
    uint64_t inode


# A piece of a file that stays valid until slice_release.
cdef struct Slice:
    const char *data
    int64_t length
    MappedFile *file         # held, or NULL
    char *owned              # a private copy, or NULL


cdef MappedFile *mapped_file_new(
    int fd, int64_t start, int64_t size, stat_t *status,
) noexcept nogil:
    """Take over ``fd``; NULL without memory (``fd`` is then still the caller's)."""
    cdef MappedFile *file = <MappedFile *>calloc(1, sizeof(MappedFile))
    if file == NULL:
        return NULL
    file.fd = fd
    file.start = start
    file.size = size
    file.device = status.st_dev
    file.inode = status.st_ino
    atomic_set(&file.holds, 1)
    return file


cdef inline void mapped_file_hold(MappedFile *file) noexcept nogil:
    """Only for one who holds the file already, or the lock of its set."""
    atomic_add(&file.holds, 1)


cdef void mapped_file_release(MappedFile *file) noexcept nogil:
    if file == NULL or atomic_add(&file.holds, -1) != 0:
        return
    if file.base != NULL:
        unmap_shared(file.base, <size_t>file.size)
    if file.fd >= 0:
        close(file.fd)
    free(file)


cdef int64_t mapped_file_map(MappedFile *file) noexcept nogil:
    return sys_map(file.fd, file.size, True, &file.base)


cdef int64_t mapped_file_reserve(MappedFile *file, int fd, int64_t stop) noexcept nogil:
    """Blocks for all bytes below ``stop``, so that no store through the mapping can fault.

    A file system without fallocate is told by -EOPNOTSUPP, and the bytes are written instead.
    """
    cdef int64_t have = atomic_get(&file.reserved)
    cdef int64_t rc
    if stop > file.size:
        stop = file.size
    if stop <= have:
        return 0
    rc = sys_reserve(fd, have, stop - have)
    if rc == -EOPNOTSUPP:
        rc = mapped_file_write_over(fd, have, stop)
    if rc == 0:
        atomic_raise(&file.reserved, stop)
    return rc


cdef int64_t mapped_file_write_over(int fd, int64_t start, int64_t stop) noexcept nogil:
    """Write every page of a range with what it holds, so that it has blocks."""
    cdef char page[4096]
    cdef int64_t at = start
    cdef int64_t rc, part
    while at < stop:
        part = min(4096 - (at & 4095), stop - at)
        memset(page, 0, 4096)
        rc = sys_read(fd, page, part, at)
        if rc < 0:
            return rc
        rc = sys_write(fd, page, part, at)
        if rc < 0:
            return rc
        at += part
    return 0


cdef int64_t mapped_file_sync(MappedFile *file, int64_t start, int64_t stop) noexcept nogil:
    """Force bytes [start, stop) of the file to the disk."""
    if stop <= start:
        return 0
    if file.base == NULL:
        return sys_sync(file.fd)
    return sys_sync_range(file.base, start, stop)


cdef int64_t mapped_file_unlinked(MappedFile *file) noexcept nogil:
    """1 if the file has no name any more: somebody who does not heed the lock removed it."""
    cdef stat_t status
    if file.fd < 0:
        return 0
    if fstat(file.fd, &status) != 0:
        return -errno
    return status.st_nlink == 0


cdef int64_t mapped_file_last_used(MappedFile *file, int64_t start) noexcept nogil:
    """The byte after the last one at or after ``start`` that is not zero; ``start`` if none.

    Holes are skipped, so that a sparse file costs what it holds.
    """
    cdef int64_t last = start
    cdef int64_t at = start
    cdef int64_t hole, position, got
    cdef char *buffer = <char *>malloc(1 << 16)
    if buffer == NULL:
        return E_NO_MEMORY
    while at < file.size:
        position = lseek(file.fd, at, SEEK_DATA)
        if position < 0:
            if errno != EINVAL:              # ENXIO: nothing but a hole up to the end
                break
            position = at
        at = position
        hole = lseek(file.fd, at, SEEK_HOLE)
        if hole <= at or hole > file.size:
            hole = file.size
        while at < hole:
            got = sys_read(file.fd, buffer, min(hole - at, 1 << 16), at)
            if got <= 0:
                free(buffer)
                return got if got < 0 else last
            position = last_nonzero(buffer, got)
            if position >= 0:
                last = at + position + 1
            at += got
    free(buffer)
    return last


cdef int64_t last_nonzero(const char *data, int64_t length) noexcept nogil:
    """Place of the last byte that is not zero, -1 if there is none."""
    cdef uint64_t word
    while length >= 8:
        memcpy(&word, data + length - 8, 8)
        if word:
            break
        length -= 8
    while length > 0:
        length -= 1
        if data[length]:
            return length
    return -1


cdef inline void slice_release(Slice *slice) noexcept nogil:
    if slice.file != NULL:
        mapped_file_release(slice.file)
        slice.file = NULL
    if slice.owned != NULL:
        free(slice.owned)
        slice.owned = NULL
    slice.data = NULL
    slice.length = 0
