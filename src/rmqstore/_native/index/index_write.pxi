# Creation of an index file and entry of keys.
#
# Zeros are written ahead of a new file's entries, and to a block of slots before its first use:
# files/zero_ahead.pxi.
#
# Source: store/index/IndexFile.java putKey

cdef int64_t index_begin_zeroing(Index *index) noexcept nogil:
    """Let index_put write zeros ahead in a new file: 0 or E_NO_MEMORY.

    Except in the blocks of the header and of the first entries.
    """
    cdef int64_t whole = index_entry_at(index, 0) // ZERO_BLOCK
    index.blocks = <char *>calloc(<size_t>(whole + 1), 1)
    if index.blocks == NULL:
        return E_NO_MEMORY
    index.blocks[0] = 1
    index.blocks[whole] = 1
    index.zeroed = (index_entry_at(index, 1) + PAGE_BYTES - 1) & ~<int64_t>(PAGE_BYTES - 1)
    return 0


cdef void index_end_zeroing(Index *index) noexcept nogil:
    free(index.blocks)
    index.blocks = NULL
    index.zeroed = INT64_MOST


cdef bint index_zero(Index *index, int64_t start, int64_t stop) noexcept nogil:
    """Write zeros to a range; False if the file cannot be opened."""
    cdef char path[FAILURE_PATH_BYTES]
    cdef int fd = index.file.fd
    if fd < 0:
        snprintf(path, FAILURE_PATH_BYTES, "index/%s", <char *>index.name)
        fd = open_to_zero(index.file, index.root, path)
        if fd < 0:
            return False
    zero_range(index.file, fd, start, stop)
    if fd != index.file.fd:
        close(fd)
    return True


cdef void index_zero_block(Index *index, char *slot) noexcept nogil:
    """Write zeros to a slot's block before its first use.

    Then store to it: a write fault maps the whole block, after a read fault each page would fault
    once more.
    """
    cdef int64_t block = (slot - index.file.base) // ZERO_BLOCK
    index.blocks[block] = 1
    index_zero(index, block * ZERO_BLOCK, (block + 1) * ZERO_BLOCK)
    put_i32_release(slot, 0)


cdef void index_zero_ahead(Index *index, int64_t at) noexcept nogil:
    """Write zeros before the first entry beyond ``zeroed``, at ``at``."""
    cdef int64_t start = index.zeroed
    index.zeroed = INT64_MOST
    if at <= start and index_zero(index, start, zero_run_stop(index.file, start)):
        index.zeroed = zero_run_stop(index.file, start)


cdef inline int64_t index_put(
    Index *index, int32_t key_hash, int64_t physical_offset, int64_t store_timestamp,
) noexcept nogil:
    """putKey: 1, E_FULL, or -errno if no block can be allocated."""
    cdef int64_t number = atomic_peek(&index.count)
    cdef int64_t begin = atomic_peek(&index.begin_timestamp)
    cdef int64_t seconds, rc
    cdef int64_t at
    cdef int32_t previous
    cdef char *slot
    cdef char *entry
    if number >= index.entry_num:
        return E_FULL
    at = index_entry_at(index, number)
    if at + INDEX_ENTRY_BYTES > atomic_peek(&index.file.reserved):
        rc = index_reserve(index, number)
        if rc < 0:
            return rc
    if unlikely(at + INDEX_ENTRY_BYTES > index.zeroed):
        index_zero_ahead(index, at)
    slot = index_slot(index, key_hash)
    if index.blocks != NULL and unlikely(index.blocks[(slot - index.file.base) // ZERO_BLOCK] == 0):
        index_zero_block(index, slot)
    previous = get_i32_acquire(slot)
    if previous <= 0 or previous > number:
        previous = 0
    seconds = index_seconds(begin, store_timestamp)
    entry = index.file.base + at
    put_i32(entry + ENTRY_KEY_HASH, key_hash)
    put_i64(entry + ENTRY_PHYSICAL_OFFSET, physical_offset)
    put_i32(entry + ENTRY_SECONDS, <int32_t>seconds)
    put_i32(entry + ENTRY_PREVIOUS, previous)
    KILL_POINT("index-entry")
    put_i32_release(slot, <int32_t>number)
    if number <= 1:
        atomic_set(&index.begin_phy_offset, physical_offset)
        atomic_set(&index.begin_timestamp, store_timestamp)
    if previous == 0:
        atomic_set(&index.slots_used, atomic_peek(&index.slots_used) + 1)
    atomic_set(&index.end_phy_offset, physical_offset)
    atomic_set(&index.end_timestamp, store_timestamp)
    atomic_set(&index.count, number + 1)
    index_store_header(index)
    # The slot may be anywhere below the entry; one lost page makes the file unusable for writing.
    rc = mapped_file_lost(index.file, 0, at + INDEX_ENTRY_BYTES)
    return rc if rc < 0 else 1


cdef int64_t index_make_file(
    int root, const char *directory, const char *name, int64_t slot_num, int64_t entry_num,
    Index **made,
) noexcept nogil:
    """Create an empty index file; its slots have blocks before the name is visible."""
    cdef char path[FAILURE_PATH_BYTES]
    cdef int64_t at, fd, rc
    at = sys_open_directory(root, directory)
    if at < 0:
        return at
    fd = sys_open(<int>at, ".", O_TMPFILE | O_RDWR)
    rc = fd
    if fd >= 0:
        rc = sys_truncate(<int>fd, index_file_bytes(slot_num, entry_num))
        if rc == 0:
            rc = sys_reserve(<int>fd, 0, INDEX_HEADER_BYTES + slot_num * INDEX_SLOT_BYTES)
            if rc == -EOPNOTSUPP:
                rc = mapped_file_write_over(
                    <int>fd, 0, INDEX_HEADER_BYTES + slot_num * INDEX_SLOT_BYTES)
        if rc == 0:
            rc = sys_link_unnamed(<int>fd, <int>at, name)
        close(<int>fd)
    if rc >= 0:
        snprintf(path, FAILURE_PATH_BYTES, "%s/%s", directory, name)
        rc = index_open_file(root, path, slot_num, entry_num, READ_WRITE, made)
        if rc == 0 and index_begin_zeroing(made[0]) < 0:
            index_close(made[0])
            rc = E_NO_MEMORY
        if rc < 0:                           # else each attempt would leave a file
            sys_unlink(<int>at, name)
    close(<int>at)
    if rc == 0:
        atomic_set(&made[0].name_dirty, NAME_DIRTY)
    return min(rc, 0)
