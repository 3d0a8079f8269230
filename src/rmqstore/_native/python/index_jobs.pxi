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
    """An index file for jobs: filled with all keys, and compared with the log."""

    cdef IndexFill fill

    def __cinit__(self):
        memset(&self.fill, 0, sizeof(IndexFill))

    def __init__(self, path, int64_t slots, int64_t entries, str mode, bint infer_sizes):
        self.open(path, slots, entries, mode, infer_sizes)

    def __dealloc__(self):
        index_fill_free(&self.fill)

    def begin_fill(self, seed):
        """Begin to enter all keys; ``seed`` is the last entry of the preceding file, or empty."""
        cdef Index *index
        cdef int64_t rc
        index_fill_free(&self.fill)
        self.fill.seeded = loose_entry_of(seed, &self.fill.before)
        index = self.hold(READ_WRITE)
        with nogil:
            rc = index_fill_begin(&self.fill, index)
            index_close(index)
        check(rc, NULL, self.path)

    cdef Index *filled(self) except NULL:
        """Hold the file of a fill."""
        if self.fill.buffer == NULL:
            raise ValueError(f"{self.path}: no fill has begun")
        return self.hold(READ_WRITE)

    def enter(self, entries):
        """Enter the next keys, as returned by ``LogUnits``; one thread at a time."""
        cdef Py_buffer view
        cdef Index *index = self.filled()
        cdef int64_t rc
        try:
            PyObject_GetBuffer(entries, &view, PyBUF_SIMPLE)
            try:
                if view.len % sizeof(LooseEntry):
                    raise ValueError(f"{view.len} bytes are no whole number of entries")
                with nogil:
                    rc = index_fill_put(index, &self.fill, <const LooseEntry *>view.buf,
                                        view.len // <int64_t>sizeof(LooseEntry))
            finally:
                PyBuffer_Release(&view)
        finally:
            index_close(index)
        check(rc, NULL, self.path)

    def end_fill(self):
        """Write the slots and the header."""
        cdef Index *index = self.filled()
        cdef int64_t rc
        with nogil:
            rc = index_fill_end(index, &self.fill)
            index_close(index)
            index_fill_free(&self.fill)
        check(rc, NULL, self.path)

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
