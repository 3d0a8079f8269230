# Bytes of a log or a queue by offset: in place in a mapped file, or copied.
#
# Source: store/MappedFile.java selectMappedBuffer

cdef enum:
    FETCHED_MAX = 2048           # bytes of a record to prefetch


cdef int64_t file_set_read(
    FileSet *files, int64_t offset, int64_t length, Slice *slice,
) noexcept nogil:
    """Read up to ``length`` bytes at ``offset`` from one file; their count, 0 at its end.

    In place in a written set; otherwise a private copy, which cannot change under the reader.
    """
    cdef MappedFile *file = NULL
    cdef int64_t rc = file_set_read_near(files, &file, offset, length, slice)
    mapped_file_release(file)
    return rc


cdef int64_t file_set_read_near(
    FileSet *files, MappedFile **near, int64_t offset, int64_t length, Slice *slice,
) noexcept nogil:
    """As file_set_read; ``near``, NULL at first, keeps the file for the next read.

    The caller releases ``near``.
    """
    cdef MappedFile *file
    cdef int64_t rc
    memset(slice, 0, sizeof(Slice))
    rc = file_set_keep(files, near, offset)
    if rc < 0:
        return rc
    file = near[0]
    length = min(length, file.start + files.file_size - offset)
    if file.base != NULL:
        mapped_file_hold(file)
        slice.data = file.base + (offset - file.start)
        slice.length = length
        slice.file = file
        return length
    slice.owned = <char *>malloc(<size_t>max(length, 1))
    if slice.owned == NULL:
        return E_NO_MEMORY
    rc = mapped_file_copy(file, slice.owned, offset - file.start, length)
    if rc == E_NO_DESCRIPTOR:
        rc = file_set_read_by_name(files, file, slice.owned, offset - file.start, length)
    if rc < 0:
        slice_release(slice)
        return rc
    slice.data = slice.owned
    slice.length = rc
    return rc


cdef int64_t file_set_read_by_name(
    FileSet *files, const MappedFile *file, char *into, int64_t at, int64_t length,
) noexcept nogil:
    """"r": mapped_file_copy for a file mapped without a descriptor, by its name; E_REMOVED."""
    cdef stat_t status
    cdef int64_t rc
    cdef int64_t fd = set_open_file(files, file.place, file.start, O_RDONLY, &status)
    if fd < 0:
        return E_REMOVED if fd == -ENOENT else fd
    rc = E_REMOVED                           # the name now belongs to another file
    if status.st_dev == file.device and status.st_ino == file.inode:
        rc = file_read(<int>fd, into, length, at)
    close(<int>fd)
    return rc


cdef int64_t file_set_peek(
    FileSet *files, int64_t offset, int64_t length, char *into,
) noexcept nogil:
    """Copy up to ``length`` bytes at ``offset`` from one file; their count, or E_LOST.

    For few bytes: see mapped_file_peek.
    """
    cdef MappedFile *file = NULL
    cdef int64_t rc = file_set_peek_near(files, &file, offset, length, into)
    mapped_file_release(file)
    return rc


cdef int64_t file_set_peek_near(
    FileSet *files, MappedFile **near, int64_t offset, int64_t length, char *into,
) noexcept nogil:
    """As file_set_peek; ``near`` as for file_set_read_near."""
    cdef MappedFile *file
    cdef int64_t rc = file_set_keep(files, near, offset)
    if rc < 0:
        return rc
    file = near[0]
    offset -= file.start
    length = min(length, files.file_size - offset)
    if file.base == NULL:
        rc = mapped_file_peek(file, into, offset, length)
        if rc == E_NO_DESCRIPTOR:
            rc = file_set_read_by_name(files, file, into, offset, length)
        return rc
    memcpy(into, file.base + offset, <size_t>length)
    rc = mapped_file_lost(file, offset, offset + length)
    return rc if rc < 0 else length


cdef const char *file_set_mapped(
    FileSet *files, MappedFile **near, int64_t offset, int64_t *length,
) noexcept nogil:
    """Mapped bytes at ``offset``, ``length`` up to the file's end; NULL: not mapped.

    Unchecked for loss: for hints, or callers that check.  ``near`` as for file_set_read_near.
    """
    cdef MappedFile *file
    if offset < 0 or file_set_keep(files, near, offset) < 0:
        return NULL
    file = near[0]
    offset -= file.start
    if file.base != NULL:
        length[0] = file.size - offset
        return file.base + offset
    length[0] = file.view.length - offset
    if length[0] <= 0 or not view_may_touch(&file.view, offset, min(length[0], FETCHED_MAX)):
        return NULL
    return file.view.bytes + offset


cdef inline void mapped_file_fetch(
    const MappedFile *file, int64_t offset, int64_t length,
) noexcept nogil:
    """Prefetch bytes at ``offset`` of the log if they are of this file, and in use already."""
    cdef const char *bytes
    cdef int64_t at
    if file == NULL or length <= 0 or offset < file.start:
        return
    at = offset - file.start
    bytes = file.base
    if at > file.size - length:
        return
    if bytes == NULL:
        bytes = file.view.bytes
        if at > file.view.length - length or not byte_is_set(
                file.view.regions + (at >> REGION_SHIFT)):
            return
    prefetch_range(bytes + at, min(length, FETCHED_MAX))


cdef inline int64_t file_set_keep(
    FileSet *files, MappedFile **near, int64_t offset,
) noexcept nogil:
    """Hold the file with ``offset`` in ``near``, instead of its current file."""
    if near[0] != NULL and 0 <= offset - near[0].start < files.file_size:
        return 0
    mapped_file_release(near[0])
    near[0] = NULL
    return file_set_hold(files, offset, near)
