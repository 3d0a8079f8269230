# Index file for jobs of many processes.

cdef bint loose_entry_of(entry, LooseEntry *into) except -1:
    """Parse an entry as returned by ``LogUnits``; False if it is empty."""
    cdef Py_buffer view
    PyObject_GetBuffer(entry, &view, PyBUF_SIMPLE)
    try:
        if view.len not in (0, <Py_ssize_t>sizeof(LooseEntry)):
            raise ValueError(f"{view.len} bytes are no entry")
        memcpy(into, view.buf, <size_t>view.len)
        return view.len > 0
    finally:
        PyBuffer_Release(&view)


@cython.final
cdef class IndexPart(IndexFile):
    """An index file for jobs: filled by shares, and compared with the log."""

    def __init__(self, path, int64_t slots, int64_t entries, str mode, bint infer_sizes):
        self.open(path, slots, entries, mode, infer_sizes)

    def outline(self, seed, first, last, int64_t count, int64_t used):
        """Write the header of a file of ``count`` entries in ``used`` slots, and allocate blocks.

        ``seed``: last entry of the preceding file; ``first`` and ``last``: this file's; all as
        returned by ``LogUnits``, or empty.
        """
        cdef LooseEntry[3] given
        cdef bint[3] there
        cdef Index *index
        cdef int64_t rc
        cdef int64_t i = 0
        for entry in (seed, first, last):
            there[i] = loose_entry_of(entry, &given[i])
            i += 1
        if count < 0 or (count > 0) != (there[1] and there[2]):
            raise ValueError(f"{count} entries, with the first {first!r} and the last {last!r}")
        index = self.hold(READ_WRITE)
        with nogil:
            lock_take(&self.lock)
            rc = E_FULL
            if count < index.entry_num:
                rc = mapped_file_reserve(index.file, index.file.fd,
                                         index_entry_at(index, count + 1))
            if rc >= 0:
                index_outline(index, &given[0] if there[0] else NULL, &given[1], &given[2],
                              count, used)
            lock_give(&self.lock)
            index_close(index)
        check(min(rc, 0), NULL, self.path)

    def enter_share(self, int64_t which, int64_t of, seed, pieces):
        """Enter the keys of one of ``of`` equal parts of the slots; the number of slots used.

        ``pieces``: all entries of the file in order, including other parts' entries.  Several
        processes may do so concurrently, after ``outline``.
        """
        cdef LooseEntry before
        cdef Py_buffer view
        cdef IndexShare share
        cdef Index *index
        cdef bint seeded = loose_entry_of(seed, &before)
        cdef int64_t count = 0
        cdef int64_t rc
        if not 0 <= which < of:
            raise ValueError(f"share {which} of {of}")
        index = self.hold(READ_WRITE)
        memset(&share, 0, sizeof(IndexShare))
        try:
            with nogil:
                rc = index_share_begin(&share, index, which, of,
                                       &before if seeded else NULL)
            check(rc, NULL, self.path)
            for piece in pieces:
                PyObject_GetBuffer(piece, &view, PyBUF_SIMPLE)
                try:
                    count = view.len // <int64_t>sizeof(LooseEntry)
                    if view.len % sizeof(LooseEntry):
                        raise ValueError(f"{view.len} bytes are no whole number of entries")
                    if share.number + count > atomic_get(&index.count):
                        raise ValueError(
                            f"more entries than the {atomic_get(&index.count) - 1} outlined")
                    with nogil:
                        index_share_put(index, &share, <const LooseEntry *>view.buf, count)
                finally:
                    PyBuffer_Release(&view)
            with nogil:
                index_share_end(index, &share)
        finally:
            free(share.newest)
            index_close(index)
        return share.used

    def place_of(self, int64_t physical_offset):
        """Number of the first entry whose record is at or after a log offset."""
        cdef Index *index = self.hold(READ_ONLY)
        cdef int64_t rc
        with nogil:
            rc = index_first_at_or_after(index, physical_offset)
            index_close(index)
        return check(rc, NULL, self.path)

    def match(self, int64_t number, int64_t stop, entries, int64_t seeded):
        """Number of matching entries of [number, stop); ``seeded`` is the file's first time."""
        cdef Py_buffer view
        cdef char *buffer = NULL
        cdef Index *index
        cdef int64_t rc
        PyObject_GetBuffer(entries, &view, PyBUF_SIMPLE)
        try:
            if number < 1 or view.len < (stop - number) * <int64_t>sizeof(LooseEntry):
                raise ValueError(f"{view.len} bytes are too few for [{number}, {stop})")
            index = self.hold(READ_ONLY)
            with nogil:
                buffer = <char *>malloc(CHECK_ENTRIES * INDEX_ENTRY_BYTES)
                rc = E_NO_MEMORY
                if buffer != NULL:
                    rc = index_match(index, number, min(stop, atomic_get(&index.count)),
                                     <const LooseEntry *>view.buf, seeded, buffer)
                free(buffer)
                index_close(index)
        finally:
            PyBuffer_Release(&view)
        return check(rc, NULL, self.path)

    def entries(self, int64_t number, int64_t stop):
        """Entries of [number, stop): hash, physical offset, seconds."""
        cdef char entry[INDEX_ENTRY_BYTES]
        cdef Index *index = self.hold(READ_ONLY)
        cdef int64_t rc = 0
        found = []
        stop = min(stop, atomic_get(&index.count))
        while number < stop and rc >= 0:
            rc = index_read(index, index_entry_at(index, number), INDEX_ENTRY_BYTES, entry)
            found.append((get_i32(entry + ENTRY_KEY_HASH), get_i64(entry + ENTRY_PHYSICAL_OFFSET),
                          get_i32(entry + ENTRY_SECONDS)))
            number += 1
        index_close(index)
        check(rc, NULL, self.path)
        return found

    def check_chains(self, int64_t most):
        """Entries and slots (-1 - slot) that do not name the newest entry of the slot so far.

        Number, expected and actual predecessor, of at most ``most``; their count; slots in use.
        """
        cdef Memory memory = memory_new(most * 24)
        cdef int64_t *found = <int64_t *>memory.data
        cdef Index *index = self.hold(READ_ONLY)
        cdef int64_t rc, used
        cdef int64_t i = 0
        with nogil:
            rc = index_check_chains(index, found, most, &used)
            index_close(index)
        check(rc, NULL, self.path)
        bad = []
        while i < min(rc, most):
            bad.append((found[i * 3], found[i * 3 + 1], found[i * 3 + 2]))
            i += 1
        return bad, rc, used
