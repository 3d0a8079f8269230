# Fill of one index file by several processes: each enters the keys of its share of the slots.
#
# A chain never leaves its slot, and an entry's number is its position among all keys, so no process
# waits for another.  Each slot's newest entry is kept in memory and written to the file at the end,
# so that repeated or concurrent runs of a share write the same bytes.
#
# Source: store/index/IndexFile.java putKey

cdef struct IndexShare:
    int64_t low                  # first slot
    int64_t slots
    int32_t *newest              # number of the newest entry of each slot, 0: none
    int64_t number               # of the next entry, of any share
    int64_t begin                # the base of its time
    int64_t used                 # slots that have entries


cdef void index_outline(
    Index *index, const LooseEntry *before, const LooseEntry *first, const LooseEntry *last,
    int64_t count, int64_t slots_used,
) noexcept nogil:
    """Header of a file of ``count`` entries; ``before`` is the last key of the file before."""
    index_end_zeroing(index)                 # other processes enter the keys
    if before != NULL:
        index_seed(index, before.physical_offset, before.store_timestamp)
    if count == 0:                           # putKey was never called: the count stays unwritten
        return
    atomic_set(&index.begin_phy_offset, first.physical_offset)
    atomic_set(&index.begin_timestamp, first.store_timestamp)
    atomic_set(&index.end_phy_offset, last.physical_offset)
    atomic_set(&index.end_timestamp, last.store_timestamp)
    atomic_set(&index.slots_used, slots_used)
    atomic_set(&index.count, count + 1)
    index_store_header(index)


cdef int64_t index_share_begin(
    IndexShare *share, const Index *index, int64_t which, int64_t shares,
    const LooseEntry *before,
) noexcept nogil:
    """Begin share ``which`` of ``shares``; 0, or a status."""
    share.low = index.slot_num * which // shares
    share.slots = index.slot_num * (which + 1) // shares - share.low
    share.number = 1
    share.begin = before.store_timestamp if before != NULL else 0
    share.used = 0
    share.newest = <int32_t *>calloc(<size_t>max(share.slots, 1), sizeof(int32_t))
    return 0 if share.newest != NULL else E_NO_MEMORY


cdef void index_share_put(
    Index *index, IndexShare *share, const LooseEntry *entries, int64_t count,
) noexcept nogil:
    """Process the next keys, and enter the share's."""
    cdef int64_t slots[KEY_CHUNK]
    cdef int64_t done = 0
    cdef int64_t i, part
    cdef uint32_t slot_num = <uint32_t>index.slot_num
    cdef const LooseEntry *some
    cdef char *entry
    while done < count:
        part = min(KEY_CHUNK, count - done)
        some = entries + done
        for i in range(part):
            slots[i] = <int64_t>(<uint32_t>some[i].key_hash % slot_num) - share.low
            if 0 <= slots[i] < share.slots:
                prefetch(<const char *>&share.newest[slots[i]])
        for i in range(part):
            if 0 <= slots[i] < share.slots:
                entry = index.file.base + index_entry_at(index, share.number)
                put_i32(entry + ENTRY_KEY_HASH, some[i].key_hash)
                put_i64(entry + ENTRY_PHYSICAL_OFFSET, some[i].physical_offset)
                put_i32(entry + ENTRY_SECONDS,
                        <int32_t>index_seconds(share.begin, some[i].store_timestamp))
                put_i32(entry + ENTRY_PREVIOUS, share.newest[slots[i]])
                share.used += share.newest[slots[i]] == 0
                share.newest[slots[i]] = <int32_t>share.number
            if share.number == 1:
                share.begin = some[i].store_timestamp
            share.number += 1
        done += part


cdef void index_share_end(Index *index, IndexShare *share) noexcept nogil:
    """Write each slot's newest entry."""
    cdef char *slot = index.file.base + INDEX_HEADER_BYTES + share.low * INDEX_SLOT_BYTES
    cdef int64_t i
    for i in range(share.slots):
        put_i32(slot + i * INDEX_SLOT_BYTES, share.newest[i])
