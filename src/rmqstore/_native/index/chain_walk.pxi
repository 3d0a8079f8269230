# Chains of many keys of one index file, walked side by side.
#
# A key walked by itself misses the cache at its slot and at each entry of its chain.  Here all keys
# of a chunk take a step before any takes the next, and prefetch the next step's data: the misses
# overlap.
#
# Source: store/index/IndexFile.java selectPhyOffset

cdef enum:
    WALK_REDO = 1                # the mapping lacks something: query key by key
    WALK_HITS_MAX = 1 << 16      # of a chunk; keys with more are queried one by one

    CHAIN_SELECT                 # as index_select, at any time
    CHAIN_COLLECT                # as index_collect, which checks each entry


# A key on its way along its chain.
cdef struct ChainStep:
    const char *at               # its slot, then an entry
    int64_t number               # of that entry
    int64_t count                # hits so far
    int64_t newer                # log offset of the entry before it in the chain
    int32_t hash
    int32_t key                  # number in the chunk


cdef struct ChainHit:
    int64_t physical_offset
    int64_t key                  # number in the chunk


cdef struct ChainWalk:
    ChainStep steps[KEY_CHUNK]   # unfinished ones first
    ChainHit *hits               # in the order found
    int64_t count
    int64_t room
    int64_t end_phy_offset       # the file's when the walk began
    bint redo[KEY_CHUNK]         # keys with an invalid chain


cdef inline const char *index_bytes(
    Index *index, int64_t at, int64_t length,
) noexcept nogil:
    """Mapped bytes of a file, or NULL."""
    if index.file.base != NULL:
        return index.file.base + at
    if at + length > index.file.view.length or not view_may_touch(&index.file.view, at, length):
        return NULL
    return index.file.view.bytes + at


cdef inline const char *entry_fetched(
    Index *index, int64_t number, int64_t stop,
) noexcept nogil:
    """Prefetch an entry, which may span two cache lines; NULL: no such entry."""
    cdef const char *at = NULL
    if 0 < number < stop:
        at = index_bytes(index, index_entry_at(index, number), INDEX_ENTRY_BYTES)
    if at != NULL:
        prefetch_to_read(at)
        prefetch_to_read(at + INDEX_ENTRY_BYTES - 1)
    return at


cdef int64_t chains_walk(
    Index *index, ChainWalk *walk, int how, const int32_t *hashes, int64_t keys,
    int64_t max_num,
) noexcept nogil:
    """Collect hits of up to KEY_CHUNK keys: 0, WALK_REDO, E_CORRUPT or another status.

    A key's hits are in chain order, interleaved with other keys' hits.
    """
    cdef ChainStep *step
    cdef int64_t count, i, kept, rc
    cdef int64_t going = keys
    walk.count = 0
    # Read before the slots: while it is the same, only the last record can have got more entries.
    walk.end_phy_offset = atomic_get(&index.end_phy_offset)
    if index.heads != NULL:                  # patched: the file's slots are not used
        return WALK_REDO
    memset(walk.redo, 0, sizeof(walk.redo))
    if max_num <= 0:
        return 0
    for i in range(keys):
        step = &walk.steps[i]
        step.hash = hashes[i]
        step.key = <int32_t>i
        step.count = 0
        step.newer = INT64_MOST
        step.at = index_bytes(index, index_slot_at(index, hashes[i]), INDEX_SLOT_BYTES)
        if step.at == NULL:
            return WALK_REDO
        prefetch_to_read(step.at)
    for i in range(keys):
        walk.steps[i].number = get_i32_acquire(walk.steps[i].at)
    if index.file.base == NULL:
        rc = index_load_header(index)        # with a live writer: not older than the slots
        if rc < 0:
            return rc
    count = atomic_get(&index.count)         # read after the slots: includes their entries
    kept = 0
    for i in range(going):
        step = &walk.steps[i]
        if 0 < step.number <= count and step.number < index.entry_num:
            step.at = entry_fetched(index, step.number, index.entry_num)
            if step.at == NULL:
                return WALK_REDO
            walk.steps[kept] = step[0]
            kept += 1
        else:
            walk.redo[i] = step.number != 0
    going = kept
    while going:
        if walk.count + going > WALK_HITS_MAX:
            return WALK_REDO
        kept = 0
        for i in range(going):
            step = &walk.steps[i]
            rc = chain_step(index, walk, how, step, count, max_num)
            if rc < 0 or rc == WALK_REDO:
                return rc
            if step.at != NULL:
                walk.steps[kept] = step[0]
                kept += 1
        going = kept
    if index.file.base != NULL:
        return mapped_file_lost(index.file, 0, index_entry_at(index, count))
    return WALK_REDO if guard_lost(&index.file.view.guard, 0, index.file.view.length) else 0


cdef inline int64_t chain_step(
    Index *index, ChainWalk *walk, int how, ChainStep *step, int64_t count, int64_t max_num,
) noexcept nogil:
    """Process a key's entry and step to the older one; ``at`` is NULL at the end of the chain."""
    cdef const char *entry = step.at
    cdef int32_t hash = get_i32(entry + ENTRY_KEY_HASH)
    cdef int64_t offset = get_i64(entry + ENTRY_PHYSICAL_OFFSET)
    cdef int64_t previous = get_i32(entry + ENTRY_PREVIOUS)
    cdef ChainHit *grown
    step.at = NULL
    if how == CHAIN_SELECT and get_i32(entry + ENTRY_SECONDS) < 0:
        return 0
    if how == CHAIN_COLLECT and (
            hash < 0 or offset < 0 or offset > step.newer or not 0 <= previous < step.number
            or (hash - step.hash) % index.slot_num != 0):
        walk.redo[step.key] = True
        return 0
    step.newer = offset
    if hash == step.hash:
        grown = <ChainHit *>array_with_room(walk.hits, &walk.room, walk.count, sizeof(ChainHit))
        if grown == NULL:
            return E_NO_MEMORY
        walk.hits = grown
        walk.hits[walk.count].physical_offset = offset
        walk.hits[walk.count].key = step.key
        walk.count += 1
        step.count += 1
    if previous <= 0 or previous == step.number or previous > count:
        return 0
    if previous > step.number:
        return E_CORRUPT
    if step.count >= max_num:
        return 0
    step.number = previous
    step.at = entry_fetched(index, previous, index.entry_num)
    return 0 if step.at != NULL else WALK_REDO


cdef int64_t chains_by_key(
    const ChainWalk *walk, int64_t keys, int64_t *starts, Offsets *found,
) noexcept nogil:
    """Append the hits, key by key; ``starts``: index of each key's first hit."""
    cdef int64_t counts[KEY_CHUNK + 1]
    cdef int64_t *grown
    cdef int64_t i
    cdef int64_t room = found.room
    memset(counts, 0, sizeof(counts))
    while room < found.count + walk.count:
        room = max(2 * room, <int64_t>KEY_CHUNK)
    if room > found.room:
        grown = <int64_t *>realloc(found.items, <size_t>room * sizeof(int64_t))
        if grown == NULL:
            return E_NO_MEMORY
        found.items = grown
        found.room = room
    for i in range(walk.count):
        counts[walk.hits[i].key + 1] += 1
    for i in range(keys):
        counts[i + 1] += counts[i]
        starts[i] = found.count + counts[i]
    for i in range(walk.count):
        found.items[found.count + counts[walk.hits[i].key]] = walk.hits[i].physical_offset
        counts[walk.hits[i].key] += 1
    found.count += walk.count
    return 0
