# Index file as a part by itself.
#
# The parts take no lock, as jobs share them: a writer must own the directory.

cdef enum:
    FILE_MAX = 0x7FFFFFFF        # bytes
    INDEX_SLOTS = 5000000
    INDEX_ENTRIES = 20000000

cdef object HITS_MAX = 1 << 60


cdef int check_mode(str mode) except -1:
    arguments.one_of("mode", mode, ("r", "r+", "a"))
    return 0


cdef int open_once(str path) except -1:
    """Refuse a second ``__init__`` of an object: ``path`` is None before the first."""
    if path is not None:
        raise TypeError(f"{path}: the object was made already")
    return 0


cdef int32_t hash_of_key(key) except -1:
    """Hash of a key as index entries have it."""
    cdef int64_t length = 0
    cdef const char *text
    if not isinstance(key, str):
        raise arguments.wrong_type("key", "str", key)
    text = utf8_of("key", key, &length)
    return index_key_hash(text, length, 0)


cdef class IndexFile:
    """IndexFile(path, *, hash_slot_num=5000000, index_num=20000000, mode='r')\n--\n
    One index file.

    Parameters
    ----------
    path : path-like
    hash_slot_num, index_num : int, optional
        Slots and entries; one entry fewer can be used.
    mode : str, optional
        ``"r"`` reads, ``"r+"`` writes an existing file, ``"a"`` creates it if there is none.

    Attributes
    ----------
    begin_timestamp, end_timestamp : int
        Store time of the first and of the last key, ms.
    begin_phy_offset, end_phy_offset : int
        Physical offset of the first and of the last key's record.
    hash_slot_count : int
        Slots in use.
    index_count : int
        Number of the next entry; 1 in an empty file.

    Raises
    ------
    StoreNotFoundError
        There is no such file.
    IncompatibleStoreError
        The file has another size. With the default numbers and mode ``"r"``, they are inferred
        from its size.
    ValueError
        An argument is out of range.

    Notes
    -----
    ``key`` is the text that is hashed: ``topic + "#" + key`` in a store.
    Source: ``store/index/IndexFile.java``.
    """

    cdef object __weakref__
    cdef Index *index
    cdef str path
    cdef bint writable
    cdef int64_t fork_generation
    cdef Lock lock       # one writer at a time

    def __cinit__(self):
        self.fork_generation = fork_generation
        self.index = NULL
        lock_init(&self.lock, LOCK_OBJECT)

    def __init__(self, path, *, hash_slot_num=INDEX_SLOTS, index_num=INDEX_ENTRIES,
                 str mode="r"):
        arguments.integer_within("hash_slot_num", hash_slot_num, 1, FILE_MAX // INDEX_SLOT_BYTES)
        arguments.integer_within("index_num", index_num, 2, FILE_MAX // INDEX_ENTRY_BYTES)
        if index_file_bytes(hash_slot_num, index_num) > FILE_MAX:
            raise ValueError(f"{hash_slot_num} slots and {index_num} entries take more than "
                             f"{FILE_MAX} bytes")
        self.open(path, hash_slot_num, index_num, mode,
                  mode == "r" and hash_slot_num == INDEX_SLOTS and index_num == INDEX_ENTRIES)

    cdef int open(self, path, int64_t slots, int64_t entries, str mode,
                  bint infer_sizes) except -1:
        """Open or make the file."""
        cdef stat_t status
        cdef bytes name
        cdef int64_t inferred_slots
        cdef int64_t fd, rc
        check_mode(mode)
        open_once(self.path)
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
        return 0

    def __dealloc__(self):
        index_close(self.index)
        lock_destroy(&self.lock)

    cdef Index *hold(self, int access) except NULL:
        """Hold the file for a call."""
        cdef Index *index
        if self.index != NULL and self.fork_generation != fork_generation:
            raise status_error(E_FORKED, NULL, self.path)
        if self.index != NULL and access == READ_WRITE and not self.writable:
            raise errors.ReadOnlyStoreError(f"{self.path}: opened with mode 'r'; 'r+' writes")
        with cython.critical_section(self):  # against close
            index = self.index
            if index != NULL:
                atomic_add(&index.holds, 1)
        if index == NULL:
            raise errors.StoreClosedError(f"{self.path}: the index file is closed")
        if not self.writable:
            index_load_header(index)
        return index

    def put_key(self, key, physical_offset, store_timestamp):
        """Enter a key.

        Parameters
        ----------
        key : str
        physical_offset : int
            Bytes.
        store_timestamp : time
            Milliseconds since the epoch, an aware datetime, or ISO-8601 text with a zone.

        Returns
        -------
        bool
            False if the file is full.

        Raises
        ------
        TypeError, ValueError
            An argument has a wrong type or is out of range.
        ReadOnlyStoreError, StoreClosedError
            The file is not open for writing.

        Notes
        -----
        Source: ``store/index/IndexFile.java putKey``.
        """
        cdef int32_t key_hash = hash_of_key(key)
        cdef int64_t offset = arguments.integer_within(
            "physical_offset", physical_offset, INT64_MIN, INT64_MAX)
        cdef int64_t stamp = times.to_millis(store_timestamp, name="store_timestamp")
        cdef Index *index = self.hold(READ_WRITE)
        cdef int64_t rc
        with nogil:
            lock_take(&self.lock)
            rc = index_put(index, key_hash, offset, stamp)
            lock_give(&self.lock)
            index_close(index)
        if rc == E_FULL:
            return False
        check(rc, NULL, self.path)
        return True

    def put_keys(self, keys, physical_offsets, store_timestamps):
        """Enter many keys.

        Parameters
        ----------
        keys : sequence, NumPy or Arrow array of str
        physical_offsets, store_timestamps : int, or a column of int as long as ``keys``

        Returns
        -------
        int
            Number of keys entered before the file was full.

        Raises
        ------
        TypeError, ValueError
            A row has a wrong type or value, or columns differ in length; nothing was entered.
        ReadOnlyStoreError, StoreClosedError
            The file is not open for writing.

        Notes
        -----
        Source: ``store/index/IndexFile.java putKey``.
        """
        cdef ColumnInput hashes = hash_column(keys)
        cdef ColumnInput offsets = int_column(
            "physical_offsets", physical_offsets, INT64_LEAST, INT64_MOST)
        cdef ColumnInput stamps = int_column(
            "store_timestamps", store_timestamps, INT64_LEAST, INT64_MOST)
        cdef int64_t count = count_rows((hashes, offsets, stamps))
        cdef int64_t done = 0
        cdef int64_t rc = 0
        cdef Index *index = self.hold(READ_WRITE)
        with nogil:
            lock_take(&self.lock)
            while done < count and rc >= 0:
                rc = put_key_chunk(index, &hashes.view, &offsets.view, &stamps.view, done,
                                   min(KEY_CHUNK, count - done), &done)
            lock_give(&self.lock)
            index_close(index)
        if rc != E_FULL:
            check(min(rc, 0), NULL, self.path)
        return done

    def select_phy_offset(self, key, max_num=64, begin=0, end=None):
        """Return the physical offsets of the entries with the key's hash, newest first.

        Parameters
        ----------
        key : str
        max_num : int, optional
            Maximum number of offsets.
        begin, end : time, optional
            Store times, both inclusive, compared to the second.

        Returns
        -------
        list of int

        Raises
        ------
        StoreCorruptError
            The chain does not lead to older entries.

        Notes
        -----
        Source: ``store/index/IndexFile.java selectPhyOffset``.
        """
        cdef int32_t key_hash = hash_of_key(key)
        cdef int64_t most = arguments.integer_within("max_num", max_num, 0, HITS_MAX)
        cdef int64_t first = times.to_millis(begin, name="begin")
        cdef int64_t last = INT64_MAX if end is None else times.to_millis(end, name="end")
        cdef Offsets found
        cdef int64_t rc
        cdef int64_t i = 0
        cdef Index *index = self.hold(READ_ONLY)
        memset(&found, 0, sizeof(Offsets))
        with nogil:
            rc = index_select(index, key_hash, most, first, last, &found)
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

    def select_many(self, keys, max_num=64):
        """Return the physical offsets of many keys, newest first for each.

        Parameters
        ----------
        keys : sequence, NumPy or Arrow array of str
        max_num : int, optional
            Maximum number of offsets for each key.

        Returns
        -------
        physical_offsets, starts : numpy.ndarray
            int64; the hits of key ``i`` are ``physical_offsets[starts[i]:starts[i + 1]]``.

        Raises
        ------
        StoreCorruptError
            A chain does not lead to older entries.

        Notes
        -----
        Source: ``store/index/IndexFile.java selectPhyOffset``.
        """
        cdef int64_t most = arguments.integer_within("max_num", max_num, 0, HITS_MAX)
        cdef ColumnInput hashes = hash_column(keys)
        cdef int64_t count = count_rows((hashes,))
        cdef Memory starts = memory_new((count + 1) * 8)
        cdef int64_t *start = <int64_t *>starts.data
        cdef Offsets found
        cdef int64_t rc
        cdef Index *index = self.hold(READ_ONLY)
        memset(&found, 0, sizeof(Offsets))
        with nogil:
            rc = select_keys(index, &hashes.view, count, most, start, &found)
            index_close(index)
        if rc < 0:
            free(found.items)
            self.check_chain(rc)
        return (arrays.int64_array(memory_of(found.items, found.count * 8), found.count),
                arrays.int64_array(starts, count + 1))

    cdef tuple header(self):
        """Begin and end timestamp, begin and end offset, slots used, count."""
        cdef Index *index = self.hold(READ_ONLY)
        found = (atomic_get(&index.begin_timestamp), atomic_get(&index.end_timestamp),
                 atomic_get(&index.begin_phy_offset), atomic_get(&index.end_phy_offset),
                 atomic_get(&index.slots_used), atomic_get(&index.count))
        index_close(index)
        return found

    @property
    def begin_timestamp(self):
        """Store time of the first key, ms."""
        return self.header()[0]

    @property
    def end_timestamp(self):
        """Store time of the last key, ms."""
        return self.header()[1]

    @property
    def begin_phy_offset(self):
        """Physical offset of the first key's record."""
        return self.header()[2]

    @property
    def end_phy_offset(self):
        """Physical offset of the last key's record."""
        return self.header()[3]

    @property
    def hash_slot_count(self):
        """Slots in use."""
        return self.header()[4]

    @property
    def index_count(self):
        """Number of the next entry; 1 in an empty file."""
        return self.header()[5]

    def flush(self):
        """Force the file to the disk."""
        cdef Index *index = self.hold(READ_WRITE)
        cdef int64_t rc
        with nogil:
            rc = mapped_file_sync(index.file, 0, index_entry_at(index, atomic_get(&index.count)))
            index_close(index)
        check(min(rc, 0), NULL, self.path)

    def close(self):
        """Flush if open for writing, and close; closing again does nothing."""
        cdef Index *index
        cdef int64_t rc = 0
        with cython.critical_section(self):  # only one call closes
            index = self.index
            self.index = NULL
        if index == NULL:
            return
        with nogil:
            if self.writable:
                rc = mapped_file_sync(index.file, 0,
                                      index_entry_at(index, atomic_get(&index.count)))
            index_close(index)
        check(min(rc, 0), NULL, self.path)

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        self.close()


cdef int64_t put_key_chunk(
    Index *index, const ColumnView *hashes, const ColumnView *offsets, const ColumnView *stamps,
    int64_t first, int64_t count, int64_t *done,
) noexcept nogil:
    """Prefetch the slots of keys, then enter the keys, counting in ``done``."""
    cdef int64_t i, rc
    for i in range(first, first + count):
        prefetch(index_slot(index, <int32_t>column_get_int(hashes, i)))
    for i in range(first, first + count):
        rc = index_put(index, <int32_t>column_get_int(hashes, i), column_get_int(offsets, i),
                       column_get_int(stamps, i))
        if rc < 0:
            return rc
        done[0] += 1
    return 0


cdef int64_t select_keys(
    Index *index, const ColumnView *hashes, int64_t count, int64_t max_num, int64_t *starts,
    Offsets *found,
) noexcept nogil:
    """Walk the chains of many keys."""
    cdef ChainWalk *walk = <ChainWalk *>calloc(1, sizeof(ChainWalk))
    cdef int64_t rc = 0 if walk != NULL else E_NO_MEMORY
    cdef int64_t first = 0
    while rc == 0 and first < count:
        rc = select_key_chunk(index, hashes, first, min(KEY_CHUNK, count - first), max_num,
                              starts + first, found, walk)
        first += KEY_CHUNK
    if walk != NULL:
        free(walk.hits)
    free(walk)
    starts[count] = found.count
    return rc


cdef int64_t select_key_chunk(
    Index *index, const ColumnView *all_hashes, int64_t first, int64_t count, int64_t max_num,
    int64_t *starts, Offsets *found, ChainWalk *walk,
) noexcept nogil:
    """Walk the chains of up to KEY_CHUNK keys side by side, or else one after the other."""
    cdef int32_t hashes[KEY_CHUNK]
    cdef int64_t i, rc
    memset(hashes, 0, sizeof(hashes))        # gcc does not see that all used hashes are set
    for i in range(count):
        hashes[i] = <int32_t>column_get_int(all_hashes, first + i)
    rc = chains_walk(index, walk, CHAIN_SELECT, hashes, count, max_num)
    if rc == 0:
        return chains_by_key(walk, count, starts, found)
    for i in range(count):
        if rc < 0:
            break
        starts[i] = found.count
        rc = index_select(index, hashes[i], found.count + max_num, INT64_LEAST, INT64_MOST, found)
    return rc
