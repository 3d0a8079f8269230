# An index file on its own.

cdef int check_mode(str mode) except -1:
    arguments.one_of("mode", mode, ("r", "r+", "a"))
    return 0


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
cdef class IndexPart:
    """The C side of :class:`rmqstore.IndexFile`."""

    cdef IndexFile *index
    cdef str path
    cdef bint writable
    cdef int64_t fork_generation
    cdef Lock lock       # one writer at a time

    def __cinit__(self):
        self.fork_generation = fork_generation
        self.index = NULL
        lock_init(&self.lock, LOCK_OBJECT)

    def __init__(self, path, int64_t slots, int64_t entries, str mode, bint infer_sizes):
        cdef stat_t status
        cdef bytes name
        cdef int64_t inferred_slots
        cdef int64_t fd, rc
        check_mode(mode)
        self.path = fsdecode(path)
        self.writable = mode != "r"
        directory, base = os_path.split(os_path.abspath(self.path))
        name = fsencode(base)
        fd = openat(AT_FDCWD, fsencode(directory), O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        if fd < 0:
            raise errors.StoreNotFoundError(f"{directory}: {strerror(errno)}")
        try:
            rc = fstatat(<int>fd, name, &status, 0)
            if rc != 0 and mode == "a":
                rc = index_make_file(<int>fd, ".", name, slots, entries, &self.index)
            elif rc != 0:
                raise errors.StoreNotFoundError(f"{self.path}: {strerror(errno)}")
            else:
                inferred_slots = index_infer_slots(status.st_size)
                if infer_sizes and inferred_slots > 0 \
                        and status.st_size != index_file_bytes(slots, entries):
                    slots = inferred_slots
                    entries = 4 * inferred_slots
                rc = index_open_file(<int>fd, name, slots, entries, self.writable, &self.index)
            if rc == E_INCOMPATIBLE:
                raise errors.IncompatibleStoreError(
                    f"{self.path}: {status.st_size} bytes, not the "
                    f"{index_file_bytes(slots, entries)} of {slots} slots and {entries} entries")
            check(rc, NULL, self.path)
        finally:
            close(<int>fd)

    def __dealloc__(self):
        index_close(self.index)
        lock_destroy(&self.lock)

    cdef IndexFile *hold(self, int access) except NULL:
        """Hold the file for a call."""
        cdef IndexFile *index = self.index
        if index == NULL:
            raise errors.StoreClosedError(f"{self.path}: the index file is closed")
        if self.fork_generation != fork_generation:
            raise status_error(E_FORKED, NULL, self.path)
        if access == READ_WRITE and not self.writable:
            raise errors.ReadOnlyStoreError(f"{self.path}: opened with mode 'r'; 'r+' writes")
        atomic_add(&index.holds, 1)
        if not self.writable:
            index_load_header(index)
        return index

    def put(self, str key, int64_t physical_offset, int64_t store_timestamp):
        """putKey: False if the file is full."""
        cdef int64_t length = 0
        cdef const char *text = utf8_of("key", key, &length)
        cdef int32_t key_hash = index_key_hash(text, length, 0)
        cdef IndexFile *index = self.hold(READ_WRITE)
        cdef int64_t rc
        with nogil:
            lock_take(&self.lock)
            rc = index_put(index, key_hash, physical_offset, store_timestamp)
            lock_give(&self.lock)
            index_close(index)
        if rc == E_FULL:
            return False
        check(rc, NULL, self.path)
        return True

    def put_many(self, keys, physical_offsets, store_timestamps):
        """putKey of columns; the number of keys entered before the file was full."""
        cdef ColumnInput text = text_column("keys", keys, NOT_NULL)
        cdef ColumnInput offsets = int_column(
            "physical_offsets", physical_offsets, INT64_LEAST, INT64_MOST)
        cdef ColumnInput stamps = int_column(
            "store_timestamps", store_timestamps, INT64_LEAST, INT64_MOST)
        cdef int64_t count = count_rows((text, offsets, stamps))
        cdef int64_t done = 0
        cdef int64_t rc = 0
        cdef IndexFile *index = self.hold(READ_WRITE)
        with nogil:
            lock_take(&self.lock)
            while done < count and rc >= 0:
                rc = put_key_chunk(index, &text.view, &offsets.view, &stamps.view, done,
                                   min(KEY_CHUNK, count - done), &done)
            lock_give(&self.lock)
            index_close(index)
        if rc != E_FULL:
            check(min(rc, 0), NULL, self.path)
        return done

    def outline(self, seed, first, last, int64_t count, int64_t used):
        """Write the header of a file of ``count`` entries in ``used`` slots, and allocate blocks.

        ``seed`` is the last entry of the file before, ``first`` and ``last`` are this file's,
        all as returned by ``LogUnits``, or empty.
        """
        cdef LooseEntry[3] given
        cdef bint[3] there
        cdef IndexFile *index
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

        ``pieces`` are all entries of the file in order, including those of other parts.
        Several processes may do so concurrently, once the file has its outline.
        """
        cdef LooseEntry before
        cdef Py_buffer view
        cdef IndexShare share
        cdef IndexFile *index
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
        cdef IndexFile *index = self.hold(READ_ONLY)
        cdef int64_t rc
        with nogil:
            rc = index_first_at_or_after(index, physical_offset)
            index_close(index)
        return check(rc, NULL, self.path)

    def match(self, int64_t number, int64_t stop, entries, int64_t seeded):
        """Number of matching entries of [number, stop); ``seeded`` is the file's first time."""
        cdef Py_buffer view
        cdef char *buffer = NULL
        cdef IndexFile *index
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
        cdef IndexFile *index = self.hold(READ_ONLY)
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
        """Entries and slots (-1 - slot) whose predecessor is not the newest before them.

        Number, expected and actual predecessor, of at most ``most``; and their count.
        """
        cdef Memory memory = memory_new(most * 24)
        cdef int64_t *found = <int64_t *>memory.data
        cdef IndexFile *index = self.hold(READ_ONLY)
        cdef int64_t rc
        cdef int64_t i = 0
        with nogil:
            rc = index_check_chains(index, found, most)
            index_close(index)
        check(rc, NULL, self.path)
        bad = []
        while i < min(rc, most):
            bad.append((found[i * 3], found[i * 3 + 1], found[i * 3 + 2]))
            i += 1
        return bad, rc

    def select(self, str key, int64_t max_num, int64_t begin, int64_t end):
        """selectPhyOffset."""
        cdef int64_t length = 0
        cdef int64_t rc
        cdef int64_t i = 0
        cdef const char *text = utf8_of("key", key, &length)
        cdef int32_t key_hash = index_key_hash(text, length, 0)
        cdef Offsets found
        cdef IndexFile *index = self.hold(READ_ONLY)
        memset(&found, 0, sizeof(Offsets))
        with nogil:
            rc = index_select(index, key_hash, max_num, begin, end, &found)
            index_close(index)
        hits = []
        while i < found.count:
            hits.append(found.items[i])
            i += 1
        free(found.items)
        self.check_chain(rc)
        return hits

    cdef int check_chain(self, int64_t rc) except -1:
        if rc == E_CORRUPT:
            raise errors.StoreCorruptError(
                self.path, -1, "a chain does not lead to older entries")
        check(rc, NULL, self.path)
        return 0

    def select_many(self, keys, int64_t max_num):
        """selectPhyOffset of many keys: offsets, their count, and where each key's begin."""
        cdef ColumnInput text = text_column("keys", keys, NOT_NULL)
        cdef int64_t count = count_rows((text,))
        cdef Memory starts = memory_new((count + 1) * 8)
        cdef int64_t *start = <int64_t *>starts.data
        cdef Offsets found
        cdef int64_t rc
        cdef IndexFile *index = self.hold(READ_ONLY)
        memset(&found, 0, sizeof(Offsets))
        with nogil:
            rc = select_keys(index, &text.view, count, max_num, start, &found)
            index_close(index)
        if rc < 0:
            free(found.items)
            self.check_chain(rc)
        return memory_of(found.items, found.count * 8), found.count, starts

    def header(self):
        """begin and end timestamp, begin and end offset, slots used, count."""
        cdef IndexFile *index = self.hold(READ_ONLY)
        found = (atomic_get(&index.begin_timestamp), atomic_get(&index.end_timestamp),
                 atomic_get(&index.begin_phy_offset), atomic_get(&index.end_phy_offset),
                 atomic_get(&index.slots_used), atomic_get(&index.count))
        index_close(index)
        return found

    def flush(self):
        """Force the file to the disk."""
        cdef IndexFile *index = self.hold(READ_WRITE)
        cdef int64_t rc
        with nogil:
            rc = mapped_file_sync(index.file, 0, index_entry_at(index, atomic_get(&index.count)))
            index_close(index)
        check(min(rc, 0), NULL, self.path)

    def close(self):
        """Flush if it was written, and close the file."""
        cdef IndexFile *index = self.index
        cdef int64_t rc = 0
        self.index = NULL                    # before the GIL is released: only one call closes
        if index == NULL:
            return
        with nogil:
            if self.writable:
                rc = mapped_file_sync(index.file, 0,
                                      index_entry_at(index, atomic_get(&index.count)))
            index_close(index)
        check(min(rc, 0), NULL, self.path)

    @property
    def closed(self):
        return self.index == NULL


cdef int64_t put_key_chunk(
    IndexFile *index, const ColumnView *keys, const ColumnView *offsets, const ColumnView *stamps,
    int64_t first, int64_t count, int64_t *done,
) noexcept nogil:
    """Hash keys and prefetch their slots, then enter them, counting in ``done``."""
    cdef int32_t hashes[KEY_CHUNK]
    cdef const char *text = NULL
    cdef int64_t length = 0
    cdef int64_t i, rc
    for i in range(count):
        column_get(keys, first + i, &text, &length)
        hashes[i] = index_key_hash(text, length, 0)
        prefetch(index_slot(index, hashes[i]))
    for i in range(count):
        rc = index_put(index, hashes[i], column_get_int(offsets, first + i),
                       column_get_int(stamps, first + i))
        if rc < 0:
            return rc
        done[0] += 1
    return 0


cdef int64_t select_keys(
    IndexFile *index, const ColumnView *keys, int64_t count, int64_t max_num, int64_t *starts,
    Offsets *found,
) noexcept nogil:
    """Walk the chains of many keys."""
    cdef ChainWalk *walk = <ChainWalk *>calloc(1, sizeof(ChainWalk))
    cdef int64_t rc = 0 if walk != NULL else E_NO_MEMORY
    cdef int64_t first = 0
    while rc == 0 and first < count:
        rc = select_key_chunk(index, keys, first, min(KEY_CHUNK, count - first), max_num,
                              starts + first, found, walk)
        first += KEY_CHUNK
    if walk != NULL:
        free(walk.hits)
    free(walk)
    starts[count] = found.count
    return rc


cdef int64_t select_key_chunk(
    IndexFile *index, const ColumnView *keys, int64_t first, int64_t count, int64_t max_num,
    int64_t *starts, Offsets *found, ChainWalk *walk,
) noexcept nogil:
    """Walk the chains of up to KEY_CHUNK keys side by side, or else one after the other."""
    cdef int32_t hashes[KEY_CHUNK]
    cdef const char *text = NULL
    cdef int64_t length = 0
    cdef int64_t i, rc
    memset(hashes, 0, sizeof(hashes))        # gcc does not see that all used ones are set
    for i in range(count):
        column_get(keys, first + i, &text, &length)
        hashes[i] = index_key_hash(text, length, 0)
    rc = chains_walk(index, walk, CHAIN_SELECT, hashes, count, max_num)
    if rc == 0:
        return chains_by_key(walk, count, starts, found)
    for i in range(count):
        if rc < 0:
            break
        starts[i] = found.count
        rc = index_select(index, hashes[i], found.count + max_num, INT64_LEAST, INT64_MOST, found)
    return rc
