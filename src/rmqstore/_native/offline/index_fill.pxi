# Fill of one index file with all of its keys in order.
#
# Entries are written in pieces, not stored through the mapping, whose pages would be zeroed first.
# Each slot's newest entry is kept in memory and written at the end, so that repeated or concurrent
# fills write the same bytes.
#
# Source: store/index/IndexFile.java putKey

cdef enum:
    FILL_ENTRIES = 64 * KEY_CHUNK    # per write: stay in the processor's cache
    FILL_STARTED = 8 << 20           # bytes between starts of writing to the disk

cdef struct IndexFill:
    int32_t *newest              # number of the newest entry of each slot, 0: none
    char *buffer                 # entries not written yet
    int64_t buffered             # of them
    int64_t number               # of the next entry
    int64_t begin                # the base of its time
    int64_t used                 # slots that have entries
    int64_t started              # end of the bytes on their way to the disk
    bint seeded
    LooseEntry before            # last key of the file before, if seeded
    LooseEntry first
    LooseEntry last


cdef int64_t index_fill_begin(IndexFill *fill, Index *index) noexcept nogil:
    """Begin a fill, ``before`` and ``seeded`` given; 0, or a status."""
    index_end_zeroing(index)
    fill.number = 1
    fill.begin = fill.before.store_timestamp if fill.seeded else 0
    fill.started = index_entry_at(index, 1)
    fill.newest = <int32_t *>calloc(<size_t>index.slot_num, sizeof(int32_t))
    fill.buffer = <char *>malloc(FILL_ENTRIES * INDEX_ENTRY_BYTES)
    return 0 if fill.newest != NULL and fill.buffer != NULL else E_NO_MEMORY


cdef void index_fill_free(IndexFill *fill) noexcept nogil:
    free(fill.newest)
    free(fill.buffer)
    memset(fill, 0, sizeof(IndexFill))


cdef int64_t index_fill_write(Index *index, IndexFill *fill) noexcept nogil:
    """Write the buffered entries; 0, or a status."""
    cdef int64_t at = index_entry_at(index, fill.number)
    cdef int64_t length = fill.buffered * INDEX_ENTRY_BYTES
    cdef int64_t rc = sys_write(index.file.fd, fill.buffer, length, at - length)
    fill.buffered = 0
    if at - fill.started >= FILL_STARTED:
        sys_start_sync(index.file.fd, fill.started, at - fill.started)
        fill.started = at
    return min(rc, 0)


cdef int64_t index_fill_put(
    Index *index, IndexFill *fill, const LooseEntry *entries, int64_t count,
) noexcept nogil:
    """Enter the next keys; 0, or a status."""
    cdef uint32_t slots[KEY_CHUNK]
    cdef uint32_t slot_num = <uint32_t>index.slot_num
    cdef const LooseEntry *stop = entries + count
    cdef int64_t i, part, rc
    cdef int32_t *newest
    cdef char *entry
    if fill.number + count > index.entry_num:
        return E_FULL
    if fill.number == 1 and count > 0:
        fill.first = entries[0]
    while entries < stop:
        part = min(KEY_CHUNK, <int64_t>(stop - entries), FILL_ENTRIES - fill.buffered)
        for i in range(part):
            slots[i] = <uint32_t>entries[i].key_hash % slot_num
            prefetch(<const char *>&fill.newest[slots[i]])
        entry = fill.buffer + fill.buffered * INDEX_ENTRY_BYTES
        for i in range(part):
            newest = &fill.newest[slots[i]]
            put_i32(entry + ENTRY_KEY_HASH, entries[i].key_hash)
            put_i64(entry + ENTRY_PHYSICAL_OFFSET, entries[i].physical_offset)
            put_i32(entry + ENTRY_SECONDS,
                    <int32_t>index_seconds(fill.begin, entries[i].store_timestamp))
            put_i32(entry + ENTRY_PREVIOUS, newest[0])
            fill.used += newest[0] == 0
            newest[0] = <int32_t>fill.number
            if fill.number == 1:
                fill.begin = entries[i].store_timestamp
            fill.number += 1
            entry += INDEX_ENTRY_BYTES
        fill.last = entries[part - 1]
        fill.buffered += part
        entries += part
        if fill.buffered == FILL_ENTRIES:
            rc = index_fill_write(index, fill)
            if rc < 0:
                return rc
    return 0


cdef int64_t index_fill_end(Index *index, IndexFill *fill) noexcept nogil:
    """Write the last entries, the slots and the header; 0, or a status."""
    cdef int64_t i, rc
    if fill.number == 1:                     # putKey was never called: the count stays unwritten
        if fill.seeded:
            index_seed(index, fill.before.physical_offset, fill.before.store_timestamp)
        return 0
    rc = index_fill_write(index, fill)
    if rc == 0:
        for i in range(index.slot_num):
            put_i32(<char *>&fill.newest[i], fill.newest[i])
        rc = sys_write(index.file.fd, <const char *>fill.newest,
                       index.slot_num * INDEX_SLOT_BYTES, INDEX_HEADER_BYTES)
    if rc < 0:
        return rc
    atomic_set(&index.begin_phy_offset, fill.first.physical_offset)
    atomic_set(&index.begin_timestamp, fill.first.store_timestamp)
    atomic_set(&index.end_phy_offset, fill.last.physical_offset)
    atomic_set(&index.end_timestamp, fill.last.store_timestamp)
    atomic_set(&index.slots_used, fill.used)
    atomic_set(&index.count, fill.number)
    index_store_header(index)
    return 0
