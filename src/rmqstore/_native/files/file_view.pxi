# Read-only access to a file: by a copy of its mapped bytes, by pread, or in place along a walk.
#
# A mapping makes small reads cheap, but each page touched counts as memory of the process, together
# with its whole folio in the page cache.  So a process uses a limited number of 2 MiB regions
# through views, and pread for other bytes.  A higher limit is for regions read often with pread and
# queue files opened often: memory grows with the data read often, not with the data stored.
#
# A queue file without regions is at first not even mapped: of a hundred thousand queues each is
# opened for a few units, which cost less than a mapping.
#
# A walk uses a file's bytes in place, region by region, and drops each region's pages after use.

cdef enum:
    VIEW_MAX = 64 << 10          # from here on pread is as fast
    REGION_SHIFT = 21
    REGIONS_MAX = 512            # of each kind: 1 GiB
    REGIONS_OFTEN = 16384        # with the regions read often: 64 MiB of page tables
    REGION_READS = 32            # with pread, as costly as the faults of a region
    OPENED_OFTEN = 4             # opens of a queue's file for pread


cdef inline bint has_free_regions(int kind) noexcept nogil:
    """Whether regions not read often may come into use."""
    return atomic_get(&regions_viewed[kind]) < REGIONS_MAX


cdef void mapped_file_view(MappedFile *file, int64_t length, int kind) noexcept nogil:
    """Map the first ``length`` bytes; without a mapping, all is read with pread."""
    cdef FileView *view = &file.view
    cdef char *bytes = NULL
    length = min(length, file.size)
    if length <= 0:
        return
    view.regions = <char *>calloc(<size_t>(length >> REGION_SHIFT) + 1, 1)
    if view.regions == NULL:
        return
    if sys_map(file.fd, length, READ_ONLY, &bytes) < 0:
        free(view.regions)
        return
    if guard_enter(bytes, <size_t>length, PROT_READ, &view.guard) < 0:
        free(view.regions)
        unmap_shared(bytes, <size_t>length)
        return
    if kind != VIEW_OF_LOG:                  # reads jump: a fault would read 128 KiB around it
        madvise(bytes, <size_t>length, MADV_RANDOM)
    view.kind = kind
    view.length = length
    view.bytes = bytes


cdef inline bint view_may_touch(FileView *view, int64_t at, int64_t length) noexcept nogil:
    """Whether at most VIEW_MAX bytes of a view may become memory of the process."""
    cdef int64_t region = at >> REGION_SHIFT
    return (byte_is_set(view.regions + region) or view_use_region(view, region)) and (
        (at + length - 1) >> REGION_SHIFT == region
        or byte_is_set(view.regions + region + 1) or view_use_region(view, region + 1))


cdef bint view_use_region(FileView *view, int64_t region) noexcept nogil:
    """Take a region into use; above REGIONS_MAX only if it was read often, or is of a queue."""
    cdef int64_t viewed = atomic_get(&regions_viewed[view.kind])
    if viewed >= REGIONS_MAX and (
            viewed >= REGIONS_OFTEN or (
                view.kind != VIEW_OF_QUEUE
                and not byte_counted(view.regions + region, REGION_READS))):
        return False
    if byte_set_first(view.regions + region):
        atomic_add(&view.used, 1)
        atomic_add(&regions_viewed[view.kind], 1)
    return True


cdef inline int64_t mapped_file_copy(
    MappedFile *file, char *into, int64_t at, int64_t length,
) noexcept nogil:
    """"r": copy up to ``length`` bytes at ``at``; their count, less at the end of the file.

    Bytes outside the mapping, or cut from it, are read with pread from the file as it is now.  A
    cut inside a page does not fault: the rest of the page reads as zeros.  So the file's length is
    checked if the last byte is zero.
    """
    cdef int64_t rc = mapped_file_peek(file, into, at, length)
    if rc == length and rc > 0 and into[rc - 1] == 0 and mapped_file_is_cut(file, at + length):
        return file_read(file.fd, into, length, at)
    return rc


cdef inline int64_t mapped_file_peek(
    MappedFile *file, char *into, int64_t at, int64_t length,
) noexcept nogil:
    """As mapped_file_copy, but a cut may read as zeros until files are listed again.

    For callers to whom zeros mean "not written yet", and who read again later.
    """
    cdef FileView *view = &file.view
    cdef int64_t rc
    cdef int number = FAULT("pread")
    if number:
        return -number
    if 0 < length <= VIEW_MAX and at + length <= view.length and view_may_touch(view, at, length):
        memcpy(into, view.bytes + at, <size_t>length)
        if not guard_lost(&view.guard, at, at + length):
            return length
    if file.fd != E_NO_DESCRIPTOR:
        return file_read(file.fd, into, length, at) if file.fd >= 0 else file.fd
    rc = E_NO_DESCRIPTOR
    if 0 < length and at + length <= view.length:
        memcpy(into, view.bytes + at, <size_t>length)
        if not guard_lost(&view.guard, at, at + length):
            rc = length
        madvise(<char *>view.bytes, <size_t>view.length, MADV_DONTNEED)
    return rc


cdef inline int64_t file_read(int fd, char *into, int64_t length, int64_t at) noexcept nogil:
    """As sys_read; the unreadable bytes are noted for this thread's error."""
    cdef int number = FAULT("file_read")
    cdef int64_t rc = -number if number else sys_read(fd, into, length, at)
    if rc == -EIO:
        file_note_bad(fd, into, length, at)
    return rc


cdef void file_note_bad(int fd, char *into, int64_t length, int64_t at) noexcept nogil:
    """Note the first unreadable bytes of a range."""
    cdef char *path = descriptor_path(fd)
    cdef int64_t done = 0
    cdef int64_t got = 1
    while got > 0 and done < length:
        got = pread(fd, into, <size_t>min(length - done, <int64_t>PAGE_BYTES), at + done)
        done += max(got, <int64_t>0)
    read_note(path, at + done if got < 0 else at)
    free(path)


cdef bint mapped_file_is_cut(const MappedFile *file, int64_t stop) noexcept nogil:
    """Whether the file ends before ``stop``, according to its descriptor."""
    cdef stat_t status
    return file.fd >= 0 and fstat(file.fd, &status) == 0 and status.st_size < stop


cdef int64_t view_enter(
    MappedFile *file, int64_t at, int64_t stop, const char **bytes,
) noexcept nogil:
    """Mapped bytes for a walk, up to a region's end or ``stop``; count, 0, -errno.

    The caller ends with view_leave, and checks the bytes it used: guard_lost, and for a cut as
    mapped_file_copy does.
    """
    cdef FileView *view = &file.view
    cdef int64_t region_end = ((at >> REGION_SHIFT) + 1) << REGION_SHIFT
    cdef int number = FAULT("pread")
    if number:
        return -number
    bytes[0] = view.bytes + at
    return max(0, min(min(region_end, view.length), stop) - at)


cdef void view_leave(MappedFile *file, const char *bytes, int64_t length) noexcept nogil:
    """Drop the pages of view_enter, except a region in use by other reads."""
    cdef FileView *view = &file.view
    cdef int64_t at = (bytes - view.bytes) & ~<int64_t>(PAGE_BYTES - 1)
    if not byte_is_set(view.regions + (at >> REGION_SHIFT)):
        madvise(<char *>view.bytes + at, <size_t>(bytes - view.bytes + length - at), MADV_DONTNEED)
