# The logs of two readers, compared in place, a region at a time: no byte is copied.
#
# Pages are not populated in advance: where the page cache has large folios, a fault maps many pages
# at once, and where it has small ones, populating costs more than the faults.


cdef int64_t logs_equal_until(
    Store *a, Store *b, int64_t start, int64_t stop,
) noexcept nogil:
    """Log offset up to which bytes of one file of each log are equal, by regions.

    Ends at a file that is cut, unreadable, gone or not mapped so far: unsure, not unequal.
    """
    cdef MappedFile *one = NULL
    cdef MappedFile *other = NULL
    cdef int64_t at = start
    cdef int64_t until
    if file_set_hold(&a.log, start, &one) < 0:
        return start
    if file_set_hold(&b.log, start, &other) >= 0:
        while at < stop:
            until = min(stop - one.start, (((at - one.start) >> REGION_SHIFT) + 1) << REGION_SHIFT)
            if one.start != other.start or not files_equal(one, other, at - one.start, until):
                break
            at = one.start + until
        mapped_file_release(other)
    mapped_file_release(one)
    return at


cdef bint files_equal(MappedFile *a, MappedFile *b, int64_t at, int64_t stop) noexcept nogil:
    """Whether the mapped bytes [at, stop) of two files are there, and equal."""
    cdef bint equal
    if stop > min(a.view.length, b.view.length) or a.fd < 0 or b.fd < 0:
        return False
    equal = memcmp(a.view.bytes + at, b.view.bytes + at, <size_t>(stop - at)) == 0
    view_leave(a, a.view.bytes + at, stop - at)
    view_leave(b, b.view.bytes + at, stop - at)
    return equal and not guard_lost(&a.view.guard, at, stop) \
        and not guard_lost(&b.view.guard, at, stop) \
        and not mapped_file_is_cut(a, stop) and not mapped_file_is_cut(b, stop)
