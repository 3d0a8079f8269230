# One index file: hash slots, and chains of entries from the newest to the oldest.
#
# Written by one thread through the mapping.  A slot is published after its entry is complete, and
# readers follow a chain only to lower numbers: neither a torn nor a malicious file can trap them.
#
# Source: store/index/IndexFile.java, store/index/IndexHeader.java

cdef enum:
    INDEX_WINDOW = 16 << 20      # bytes of entries reserved at a time
    KEY_CHUNK = 256              # keys whose slots are prefetched before they are entered
    ENTRIES_READ = 4096          # entries read at a time

    INDEX_UNCHECKED = 0          # only listed
    INDEX_SOUND = 1
    INDEX_PATCHED = 2            # "r": ``heads`` replace its slots, ``count`` the valid entries
    INDEX_BROKEN = 3             # found damaged by a reader, who searches its part of the log

cdef struct Index:
    MappedFile *file
    atomic_i64 holds             # 1 for the set + 1 for each user
    int64_t slot_num
    int64_t entry_num
    atomic_i64 begin_timestamp   # header fields, as published to readers
    atomic_i64 end_timestamp
    atomic_i64 begin_phy_offset
    atomic_i64 end_phy_offset
    atomic_i64 slots_used
    atomic_i64 count             # number of the next entry: 1 in a fresh file
    atomic_i64 flushed_count     # ``count`` at the last sync
    atomic_i64 name_dirty        # NAME_...
    atomic_i64 state             # INDEX_...
    int64_t zeroed               # end of the entries zeroed ahead; INT64_MOST: no zeroing
    char *blocks                 # a flag per ZERO_BLOCK bytes of slots: zeroed; or NULL
    int32_t *heads               # newest entry of each slot, computed from the entries, or NULL
    char patched_from[INDEX_HEADER_BYTES]    # the header when patched
    char name[INDEX_NAME_DIGITS + 1]
    int root                     # where index/<name> is reopened; -1: never closed

cdef enum:
    NAME_SYNCED = 0
    NAME_DIRTY = 1
    NAME_IN_SYNC = 2             # the next sync of the directory covers it


# Physical offsets, in the order found.
cdef struct Offsets:
    int64_t *items
    int64_t count
    int64_t room


cdef int64_t offsets_add(Offsets *offsets, int64_t value) noexcept nogil:
    cdef int64_t *grown
    grown = <int64_t *>array_with_room(offsets.items, &offsets.room, offsets.count, sizeof(int64_t))
    if grown == NULL:
        return E_NO_MEMORY
    offsets.items = grown
    offsets.items[offsets.count] = value
    offsets.count += 1
    return 0


cdef inline int64_t index_file_bytes(int64_t slot_num, int64_t entry_num) noexcept nogil:
    return INDEX_HEADER_BYTES + slot_num * INDEX_SLOT_BYTES + entry_num * INDEX_ENTRY_BYTES


cdef inline int64_t index_entry_at(const Index *index, int64_t number) noexcept nogil:
    return INDEX_HEADER_BYTES + index.slot_num * INDEX_SLOT_BYTES + number * INDEX_ENTRY_BYTES


cdef int64_t index_read(
    Index *index, int64_t at, int64_t length, char *into,
) noexcept nogil:
    """Copy bytes of the file."""
    cdef int64_t rc
    if index.file.base != NULL:
        memcpy(into, index.file.base + at, <size_t>length)
        return mapped_file_lost(index.file, at, at + length)
    rc = mapped_file_peek(index.file, into, at, length)
    if rc < 0:
        return rc
    return 0 if rc == length else E_CORRUPT


cdef int64_t index_load_header(Index *index) noexcept nogil:
    """Read the header into the fields.  A count of 0 or less means a fresh file."""
    cdef char header[INDEX_HEADER_BYTES]
    cdef int64_t rc, count
    if index.heads != NULL:                  # the file's header is wrong
        return 0
    rc = index_read(index, 0, INDEX_HEADER_BYTES, header)
    if rc < 0:
        return rc
    atomic_set(&index.begin_timestamp, get_i64(header + INDEX_BEGIN_TIMESTAMP))
    atomic_set(&index.end_timestamp, get_i64(header + INDEX_END_TIMESTAMP))
    atomic_set(&index.begin_phy_offset, get_i64(header + INDEX_BEGIN_PHY_OFFSET))
    atomic_set(&index.end_phy_offset, get_i64(header + INDEX_END_PHY_OFFSET))
    atomic_set(&index.slots_used, get_i32(header + INDEX_SLOTS_USED))
    count = get_i32(header + INDEX_COUNT)
    atomic_set(&index.count, min(max(count, 1), index.entry_num))
    return 0


cdef void index_store_header(Index *index) noexcept nogil:
    cdef char *base = index.file.base
    put_i64(base + INDEX_BEGIN_TIMESTAMP, atomic_peek(&index.begin_timestamp))
    put_i64(base + INDEX_END_TIMESTAMP, atomic_peek(&index.end_timestamp))
    put_i64(base + INDEX_BEGIN_PHY_OFFSET, atomic_peek(&index.begin_phy_offset))
    put_i64(base + INDEX_END_PHY_OFFSET, atomic_peek(&index.end_phy_offset))
    put_i32(base + INDEX_SLOTS_USED, <int32_t>atomic_peek(&index.slots_used))
    put_i32_release(base + INDEX_COUNT, <int32_t>atomic_peek(&index.count))


cdef void index_seed(
    Index *index, int64_t end_phy_offset, int64_t end_timestamp,
) noexcept nogil:
    """Begin a new file with the end values of the full one before it."""
    if end_phy_offset > 0:
        atomic_set(&index.begin_phy_offset, end_phy_offset)
        atomic_set(&index.end_phy_offset, end_phy_offset)
    if end_timestamp > 0:
        atomic_set(&index.begin_timestamp, end_timestamp)
        atomic_set(&index.end_timestamp, end_timestamp)
    if end_phy_offset > 0 or end_timestamp > 0:
        put_i64(index.file.base + INDEX_BEGIN_TIMESTAMP, atomic_peek(&index.begin_timestamp))
        put_i64(index.file.base + INDEX_END_TIMESTAMP, atomic_peek(&index.end_timestamp))
        put_i64(index.file.base + INDEX_BEGIN_PHY_OFFSET, atomic_peek(&index.begin_phy_offset))
        put_i64(index.file.base + INDEX_END_PHY_OFFSET, atomic_peek(&index.end_phy_offset))


cdef inline int32_t index_key_hash(const char *key, int64_t length, int32_t start) noexcept nogil:
    """Hash of ``topic#key``; ``start`` is the hash of ``topic#``."""
    return java_abs_hash(java_hash_utf8(key, length, start))


cdef inline bint index_is_full(Index *index) noexcept nogil:
    return atomic_peek(&index.count) >= index.entry_num


cdef inline int64_t index_slot_at(const Index *index, int32_t key_hash) noexcept nogil:
    # Neither is negative, and both fit: a 32-bit division takes half the time.
    return INDEX_HEADER_BYTES \
        + <int64_t>(<uint32_t>key_hash % <uint32_t>index.slot_num) * INDEX_SLOT_BYTES


cdef inline char *index_slot(Index *index, int32_t key_hash) noexcept nogil:
    return index.file.base + index_slot_at(index, key_hash)


cdef int64_t index_open_again(Index *index) noexcept nogil:
    """Open a set's file; the caller closes or keeps the descriptor."""
    cdef char path[FAILURE_PATH_BYTES]
    cdef stat_t status
    cdef int64_t fd
    snprintf(path, FAILURE_PATH_BYTES, "index/%s", <char *>index.name)
    fd = sys_open_file(index.root, path, O_RDWR if index.file.base != NULL else O_RDONLY, &status)
    if fd >= 0 and (status.st_dev != index.file.device or status.st_ino != index.file.inode):
        close(<int>fd)
        return E_REMOVED                     # the name now belongs to another file
    return E_REMOVED if fd == -ENOENT else fd


cdef int64_t index_reserve(Index *index, int64_t number) noexcept nogil:
    """Allocate blocks for the entries up to ``number`` and a window more."""
    cdef int64_t stop = index_entry_at(index, number + 1)
    cdef int64_t fd = index.file.fd
    cdef int64_t rc
    if fd < 0:
        fd = index_open_again(index)
        if fd < 0:
            return fd
    rc = mapped_file_reserve_ahead(index.file, <int>fd, stop, INDEX_WINDOW)
    if index.file.fd < 0:
        close(<int>fd)
    return rc


cdef int64_t index_stat(Index *index, stat_t *status) noexcept nogil:
    """Status of the file under this name in the set's directory."""
    cdef char path[FAILURE_PATH_BYTES]
    snprintf(path, FAILURE_PATH_BYTES, "index/%s", <char *>index.name)
    return 0 if fstatat(index.root, path, status, 0) == 0 else -errno


cdef int64_t index_unlinked(Index *index) noexcept nogil:
    """1 if a set's file was removed or replaced by another process."""
    cdef stat_t status
    cdef int64_t rc = index_stat(index, &status)
    if rc < 0:
        return 1 if rc == -ENOENT else rc
    return status.st_ino != index.file.inode or status.st_dev != index.file.device


cdef inline int64_t index_seconds(int64_t begin, int64_t store_timestamp) noexcept nogil:
    """Seconds to store in an entry of a file whose begin time is ``begin``."""
    if begin > 0 and store_timestamp > begin:
        return min((store_timestamp - begin) // 1000, 0x7FFFFFFF)
    return 0


cdef inline int64_t index_millis(int64_t begin, int64_t seconds) noexcept nogil:
    """Time of an entry in a file whose begin time is ``begin``, saturated."""
    return begin + seconds * 1000 if begin <= INT64_MOST - seconds * 1000 else INT64_MOST


cdef int64_t index_select(
    Index *index, int32_t key_hash, int64_t max_num, int64_t begin, int64_t end,
    Offsets *found,
) noexcept nogil:
    """selectPhyOffset: append a chain's matching offsets, newest first, up to ``max_num`` in all.

    Called by IndexFile of the Python API.  0, or E_CORRUPT if the chain does not descend.
    """
    cdef char entry[INDEX_ENTRY_BYTES]
    cdef char slot[INDEX_SLOT_BYTES]
    cdef int64_t begin_timestamp = atomic_get(&index.begin_timestamp)
    cdef int64_t count, number, previous, seconds, time, rc
    if index.file.base != NULL:
        number = get_i32_acquire(index_slot(index, key_hash))
        rc = mapped_file_lost(index.file, 0, index_entry_at(index, 0))
        if rc < 0:
            return rc
    else:
        rc = index_read(index, index_slot_at(index, key_hash), INDEX_SLOT_BYTES, slot)
        if rc < 0:
            return rc
        number = get_i32(slot)
        rc = index_load_header(index)        # with a live writer: not older than the slot
        if rc < 0:
            return rc
    count = atomic_get(&index.count)         # read after the slot: includes its entry
    if number <= 0 or number > count or number >= index.entry_num:
        return 0
    while found.count < max_num:
        rc = index_read(index, index_entry_at(index, number), INDEX_ENTRY_BYTES, entry)
        if rc < 0:
            return rc
        seconds = get_i32(entry + ENTRY_SECONDS)
        if seconds < 0:
            break
        time = index_millis(begin_timestamp, seconds)
        if get_i32(entry + ENTRY_KEY_HASH) == key_hash and begin <= time <= end:
            rc = offsets_add(found, get_i64(entry + ENTRY_PHYSICAL_OFFSET))
            if rc < 0:
                return rc
        previous = get_i32(entry + ENTRY_PREVIOUS)
        if previous <= 0 or previous == number or previous > count or time < begin:
            break
        if previous > number:
            return E_CORRUPT
        number = previous
    return 0


cdef int64_t index_collect(
    Index *index, int32_t key_hash, Offsets *found,
) noexcept nogil:
    """Append the offsets of all entries with a key hash, newest first.

    Called by queries of a store: read/query.pxi.  0, or E_CORRUPT if an entry of the chain is of
    another slot, or not older than its predecessor in the chain.
    """
    cdef char entry[INDEX_ENTRY_BYTES]
    cdef char slot[INDEX_SLOT_BYTES]
    cdef int64_t place = key_hash % index.slot_num
    cdef int64_t newer = INT64_MOST
    cdef int64_t number, count, offset, rc
    cdef int32_t hash
    if index.heads != NULL:
        number = index.heads[place]
    elif index.file.base != NULL:
        number = get_i32_acquire(index_slot(index, key_hash))
        rc = mapped_file_lost(index.file, 0, index_entry_at(index, 0))
        if rc < 0:
            return rc
    else:
        rc = index_read(index, index_slot_at(index, key_hash), INDEX_SLOT_BYTES, slot)
        if rc == 0:
            rc = index_load_header(index)    # with a live writer: not older than the slot
        if rc < 0:
            return rc
        number = get_i32(slot)
    count = atomic_get(&index.count)         # read after the slot: includes its entry
    if number < 0 or number > count or number >= index.entry_num:
        return E_CORRUPT
    while number > 0:
        rc = index_read(index, index_entry_at(index, number), INDEX_ENTRY_BYTES, entry)
        if rc < 0:
            return rc
        hash = get_i32(entry + ENTRY_KEY_HASH)
        offset = get_i64(entry + ENTRY_PHYSICAL_OFFSET)
        if hash < 0 or hash % index.slot_num != place or offset < 0 or offset > newer \
                or not 0 <= get_i32(entry + ENTRY_PREVIOUS) < number:
            return E_CORRUPT
        if hash == key_hash:
            rc = offsets_add(found, offset)
            if rc < 0:
                return rc
        newer = offset
        number = get_i32(entry + ENTRY_PREVIOUS)
    return 0


cdef int64_t index_open_file(
    int root, const char *path, int64_t slot_num, int64_t entry_num, bint writable,
    Index **opened,
) noexcept nogil:
    """Open an index file of ``slot_num`` slots and ``entry_num`` entries."""
    cdef stat_t status
    cdef Index *index
    cdef const char *name = strrchr(path, 47)
    cdef int64_t rc
    cdef int64_t size = index_file_bytes(slot_num, entry_num)
    cdef int64_t fd = sys_open_file(root, path, O_RDWR if writable else O_RDONLY, &status)
    if fd < 0:
        return fd
    if status.st_size != size:
        close(<int>fd)
        return E_INCOMPATIBLE
    index = <Index *>calloc(1, sizeof(Index))
    if index != NULL:
        index.file = mapped_file_new(<int>fd, 0, size, &status)
    if index == NULL or index.file == NULL:
        free(index)
        close(<int>fd)
        return E_NO_MEMORY
    atomic_set(&index.holds, 1)
    index.root = -1
    index.slot_num = slot_num
    index.entry_num = entry_num
    index.zeroed = INT64_MOST
    copy_text(index.name, INDEX_NAME_DIGITS + 1, name + 1 if name != NULL else path)
    rc = index_load_header(index)            # by pread: the mapped page may have no block yet
    if not writable:
        mapped_file_view(index.file, size, VIEW_OF_INDEX)
    elif rc == 0:
        rc = mapped_file_map(index.file, root, path)
    if rc == 0 and writable:
        # Writes hit any slot, so all of them get their blocks now.
        rc = mapped_file_reserve_ahead(
            index.file, <int>fd, index_entry_at(index, atomic_peek(&index.count)), 0)
    if rc < 0:
        index_close(index)
        return rc
    atomic_set(&index.flushed_count, atomic_peek(&index.count))
    opened[0] = index
    return 0


cdef void index_close(Index *index) noexcept nogil:
    """Release a hold."""
    if index != NULL and atomic_add(&index.holds, -1) == 0:
        mapped_file_release(index.file)
        free(index.heads)
        free(index.blocks)
        free(index)


cdef int64_t index_flush(Index *index) noexcept nogil:
    """Force the file to the disk; the number of syncs."""
    cdef stat_t status
    cdef int64_t count = atomic_get(&index.count)
    cdef int64_t rc
    if count == atomic_get(&index.flushed_count) and count > 1:
        return 0
    rc = mapped_file_sync(index.file, 0, index_entry_at(index, count))
    if rc == 0 and index.root >= 0 and index_stat(index, &status) == 0 \
            and status.st_size < index_entry_at(index, count):
        rc = note_loss(index.file, status.st_size)
    if rc < 0:
        return rc
    atomic_set(&index.flushed_count, count)
    return 1
