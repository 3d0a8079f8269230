# Fetching what many keys will need of an index file before any of them is looked up.
#
# Looked up one by one, each key waits for memory several times: for its slot, then for each entry
# of the chain.  Here all keys of a chunk take a step before any takes the next, so that their
# misses overlap.  Nothing is decided by what is read here, and nothing of it is kept.

cdef enum:
    CHAIN_STEPS = 4              # entries of a chain that are fetched; most are not longer


cdef inline const char *index_bytes(const IndexFile *index) noexcept nogil:
    """The mapped bytes of the whole file, or NULL."""
    if index.file.base != NULL:
        return index.file.base
    return index.file.view if index.file.view_bytes == index.file.size else NULL


cdef void index_prefetch_chains(
    const IndexFile *index, const int32_t *hashes, int64_t count, int64_t *offsets,
) noexcept nogil:
    """Fetch the slots and entries of up to KEY_CHUNK keys.

    ``offsets``: the log offset of each key's newest entry with its hash, as far as it was fetched,
    else -1; NULL if the caller does not want them.
    """
    cdef int64_t numbers[KEY_CHUNK]
    cdef const char *bytes = index_bytes(index)
    cdef const char *slots = bytes + INDEX_HEADER_BYTES
    cdef const char *entry
    cdef int64_t i, previous
    cdef int64_t walking = count
    for i in range(count if offsets != NULL else 0):
        offsets[i] = -1
    if bytes == NULL:
        return
    for i in range(count):
        prefetch_to_read(slots + (hashes[i] % index.slot_num) * INDEX_SLOT_BYTES)
    for i in range(count):
        numbers[i] = get_i32_acquire(slots + (hashes[i] % index.slot_num) * INDEX_SLOT_BYTES)
        if not 0 < numbers[i] < index.entry_num:
            numbers[i] = 0
        entry_prefetch(bytes, index, numbers[i])
    for _ in range(CHAIN_STEPS):
        if walking == 0:
            break
        walking = 0
        for i in range(count):
            if numbers[i] == 0:
                continue
            entry = bytes + index_entry_at(index, numbers[i])
            if offsets != NULL and offsets[i] < 0 and get_i32(entry + ENTRY_KEY_HASH) == hashes[i]:
                offsets[i] = get_i64(entry + ENTRY_PHYSICAL_OFFSET)
            previous = get_i32(entry + ENTRY_PREVIOUS)
            numbers[i] = previous if 0 < previous < numbers[i] else 0
            entry_prefetch(bytes, index, numbers[i])
            walking += numbers[i] > 0


cdef inline void entry_prefetch(
    const char *bytes, const IndexFile *index, int64_t number,
) noexcept nogil:
    """An entry may lie in two cache lines."""
    if number > 0:
        prefetch_to_read(bytes + index_entry_at(index, number))
        prefetch_to_read(bytes + index_entry_at(index, number) + INDEX_ENTRY_BYTES - 1)
