# Index entries compared with the log, one file at a time.

cdef enum:
    CHECK_ENTRIES = 4096         # read at a time
    CHECK_AHEAD = 64             # entries whose slots are on their way to the cache


cdef int64_t index_offset_near(Index *index, int64_t number, int64_t count) noexcept nogil:
    """Physical offset near entry ``number``: the median of three neighbours, as one may be bad."""
    cdef char entries[3 * INDEX_ENTRY_BYTES]
    cdef int64_t a, b, c, rc
    number = max(1, min(number - 1, count - 3))
    if count < 4:
        return 0
    rc = index_read(index, index_entry_at(index, number), 3 * INDEX_ENTRY_BYTES, entries)
    if rc < 0:
        return rc
    a = get_i64(entries + ENTRY_PHYSICAL_OFFSET)
    b = get_i64(entries + INDEX_ENTRY_BYTES + ENTRY_PHYSICAL_OFFSET)
    c = get_i64(entries + 2 * INDEX_ENTRY_BYTES + ENTRY_PHYSICAL_OFFSET)
    return max(0, max(min(a, b), min(max(a, b), c)))


cdef int64_t index_first_at_or_after(Index *index, int64_t physical_offset) noexcept nogil:
    """Number of the first entry at or after a log offset, or the next free number.

    Entries are in log order, with a few exceptions tolerated.
    """
    cdef char entry[INDEX_ENTRY_BYTES]
    cdef int64_t count = atomic_get(&index.count)
    cdef int64_t low = 1
    cdef int64_t high = count
    cdef int64_t middle, rc
    while low < high:
        middle = (low + high) // 2
        rc = index_offset_near(index, middle, count)
        if rc < 0:
            return rc
        if rc < physical_offset:
            low = middle + 1
        else:
            high = middle
    # The median of three may be off by one.
    low = max(1, low - 2)
    while low < count:
        rc = index_read(index, index_entry_at(index, low), INDEX_ENTRY_BYTES, entry)
        if rc < 0:
            return rc
        if get_i64(entry + ENTRY_PHYSICAL_OFFSET) >= physical_offset:
            rc = index_offset_near(index, low + 1, count) if low + 2 < count else physical_offset
            if rc < 0:
                return rc
            if rc >= physical_offset:
                break
        low += 1
    return low


cdef int64_t index_match(
    Index *index, int64_t number, int64_t stop, const LooseEntry *wanted, int64_t seeded,
    char *buffer,
) noexcept nogil:
    """Number of entries from ``number`` on that match, up to the first mismatch.

    ``seeded``: end time of the file before, the base of the first entry's time; -1: unknown.
    """
    cdef int64_t begin = atomic_get(&index.begin_timestamp)
    cdef int64_t matched = 0
    cdef int64_t i, part, rc
    cdef const char *entry
    cdef bint first
    while number < stop:
        part = min(stop - number, CHECK_ENTRIES)
        rc = index_read(index, index_entry_at(index, number), part * INDEX_ENTRY_BYTES, buffer)
        if rc < 0:
            return rc
        for i in range(part):
            entry = buffer + i * INDEX_ENTRY_BYTES
            if get_i32(entry + ENTRY_KEY_HASH) != wanted[matched].key_hash \
                    or get_i64(entry + ENTRY_PHYSICAL_OFFSET) != wanted[matched].physical_offset:
                return matched
            first = number + i == 1
            if not (first and seeded < 0) and get_i32(entry + ENTRY_SECONDS) != index_seconds(
                    seeded if first else begin, wanted[matched].store_timestamp):
                return matched
            matched += 1
        number += part
    return matched


cdef int64_t index_check_chains(
    Index *index, int64_t *found, int64_t most, int64_t *used,
) noexcept nogil:
    """Find entries and slots (-1 - slot) that do not name the newest entry of the slot so far.

    Their count; at most ``most`` of them are in ``found``: number, expected, actual.  ``used``:
    slots that name an entry.
    """
    cdef int32_t *heads = <int32_t *>calloc(<size_t>index.slot_num, sizeof(int32_t))
    cdef char *buffer = <char *>malloc(CHECK_ENTRIES * INDEX_ENTRY_BYTES)
    cdef int64_t count = atomic_get(&index.count)
    cdef int64_t bad = 0
    cdef int64_t at = 1
    cdef int64_t rc = 0
    cdef int32_t slots[CHECK_ENTRIES]
    cdef int32_t slot_num = <int32_t>index.slot_num
    cdef int64_t i, part
    cdef int32_t slot, head
    used[0] = 0
    if heads == NULL or buffer == NULL:
        rc = E_NO_MEMORY
    while at < count and rc >= 0:
        part = min(count - at, CHECK_ENTRIES)
        rc = index_read(index, index_entry_at(index, at), part * INDEX_ENTRY_BYTES, buffer)
        for i in range(part if rc >= 0 else 0):
            slots[i] = get_i32(buffer + i * INDEX_ENTRY_BYTES + ENTRY_KEY_HASH) % slot_num
        for i in range(part if rc >= 0 else 0):
            prefetch_to_read(heads + max(slots[min(i + CHECK_AHEAD, part - 1)], 0))
            slot = slots[i]
            if slot < 0:                     # an invalid hash: the comparison with the log finds it
                continue
            head = get_i32(buffer + i * INDEX_ENTRY_BYTES + ENTRY_PREVIOUS)
            if head != heads[slot]:
                index_note(found, most, &bad, at + i, heads[slot], head)
            heads[slot] = <int32_t>(at + i)
        at += part
    at = 0
    while at < index.slot_num and rc >= 0:
        part = min(index.slot_num - at, CHECK_ENTRIES)
        rc = index_read(index, INDEX_HEADER_BYTES + at * INDEX_SLOT_BYTES,
                        part * INDEX_SLOT_BYTES, buffer)
        for i in range(part if rc >= 0 else 0):
            head = get_i32(buffer + i * INDEX_SLOT_BYTES)
            used[0] += head != 0
            if head != heads[at + i]:
                index_note(found, most, &bad, -1 - (at + i), heads[at + i], head)
        at += part
    free(heads)
    free(buffer)
    return rc if rc < 0 else bad


cdef void index_note(
    int64_t *found, int64_t most, int64_t *bad, int64_t number, int64_t expected, int64_t actual,
) noexcept nogil:
    if bad[0] < most:
        found[bad[0] * 3] = number
        found[bad[0] * 3 + 1] = expected
        found[bad[0] * 3 + 2] = actual
    bad[0] += 1
