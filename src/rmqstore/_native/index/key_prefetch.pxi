# Fetching what many keys will need of an index file before any of them is looked up.
#
# Looked up one by one, each key waits for memory several times: for its slot, then for each entry
# of the chain.  Here all keys of a chunk take a step before any takes the next, so that their
# misses overlap.  Nothing is decided by what is read here, and nothing of it is kept.

cdef enum:
    CHAIN_STEPS = 4              # entries of a chain that are fetched; most are not longer


cdef inline const char *index_bytes(
    IndexFile *index, int64_t at, int64_t length,
) noexcept nogil:
    """Mapped bytes of the file, or NULL."""
    if index.file.base != NULL:
        return index.file.base + at
    if at + length > index.file.view.length or not view_may_touch(&index.file.view, at, length):
        return NULL
    return index.file.view.bytes + at


cdef void index_prefetch_chains(
    IndexFile *index, const int32_t *hashes, int64_t count, int64_t *offsets,
) noexcept nogil:
    """Fetch the slots and entries of up to KEY_CHUNK keys.

    ``offsets``: the log offset of each key's newest entry with its hash, as far as it was fetched,
    else -1.
    """
    cdef const char *at[KEY_CHUNK]           # the slot, then an entry of the chain; NULL: its end
    cdef int64_t i, number
    cdef int64_t walking = count
    for i in range(count):
        offsets[i] = -1
        at[i] = index_bytes(index, INDEX_HEADER_BYTES + (
            hashes[i] % index.slot_num) * INDEX_SLOT_BYTES, INDEX_SLOT_BYTES)
        prefetch_to_read(at[i])
    for i in range(count):
        number = get_i32_acquire(at[i]) if at[i] != NULL else 0
        at[i] = entry_fetched(index, number, index.entry_num)
    for _ in range(CHAIN_STEPS):
        if walking == 0:
            break
        walking = 0
        for i in range(count):
            if at[i] == NULL:
                continue
            if offsets[i] < 0 and get_i32(at[i] + ENTRY_KEY_HASH) == hashes[i]:
                offsets[i] = get_i64(at[i] + ENTRY_PHYSICAL_OFFSET)
            at[i] = entry_fetched(index, get_i32(at[i] + ENTRY_PREVIOUS), index.entry_num)
            walking += at[i] != NULL


cdef inline const char *entry_fetched(
    IndexFile *index, int64_t number, int64_t stop,
) noexcept nogil:
    """Fetch an entry, which may lie in two cache lines; NULL if there is none of that number."""
    cdef const char *at = NULL
    if 0 < number < stop:
        at = index_bytes(index, index_entry_at(index, number), INDEX_ENTRY_BYTES)
    if at != NULL:
        prefetch_to_read(at)
        prefetch_to_read(at + INDEX_ENTRY_BYTES - 1)
    return at
