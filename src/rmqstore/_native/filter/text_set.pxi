# Set of texts, numbered in order of insertion; found by comparison if few, by hash if many.  It
# does not own the texts.

cdef enum:
    TEXTS_COMPARED = 8           # up to this many are compared one by one
    TEXT_SLOTS = 32              # the smallest hash table

cdef struct TextSet:
    int64_t count
    int64_t room
    int64_t longest              # length of the longest text
    const char **texts
    int64_t *lengths
    int32_t *slots               # numbers, -1 for none; NULL while there are few
    uint32_t mask


cdef inline int64_t text_set_find(
    const TextSet *among, const char *text, int64_t length,
) noexcept nogil:
    """Number of a text, -1 if absent."""
    cdef int64_t i
    cdef uint32_t slot
    if length > among.longest:               # and not hashed
        return -1
    if among.slots == NULL:
        for i in range(among.count):
            if among.lengths[i] == length and memcmp(among.texts[i], text, <size_t>length) == 0:
                return i
        return -1
    slot = topic_hash(text, length) & among.mask
    while among.slots[slot] >= 0:
        i = among.slots[slot]
        if among.lengths[i] == length and memcmp(among.texts[i], text, <size_t>length) == 0:
            return i
        slot = (slot + 1) & among.mask
    return -1


cdef void text_set_enter(TextSet *into, int64_t number) noexcept nogil:
    cdef uint32_t slot = topic_hash(into.texts[number], into.lengths[number]) & into.mask
    while into.slots[slot] >= 0:
        slot = (slot + 1) & into.mask
    into.slots[slot] = <int32_t>number


cdef int64_t text_set_hash(TextSet *into) noexcept nogil:
    """Build a hash table at most half full: 0 or E_NO_MEMORY."""
    cdef uint32_t size = TEXT_SLOTS
    cdef int32_t *slots
    cdef int64_t i
    while size < 2 * into.room:
        size *= 2
    slots = <int32_t *>realloc(into.slots, <size_t>size * sizeof(int32_t))
    if slots == NULL:
        return E_NO_MEMORY
    memset(slots, 0xFF, <size_t>size * sizeof(int32_t))
    into.slots = slots
    into.mask = size - 1
    for i in range(into.count):
        text_set_enter(into, i)
    return 0


cdef int64_t text_set_grow(TextSet *into) noexcept nogil:
    """Make room for more: 0 or E_NO_MEMORY."""
    cdef int64_t room = max(<int64_t>TEXTS_COMPARED, 2 * into.room)
    cdef const char **texts = <const char **>realloc(into.texts, <size_t>room * sizeof(char *))
    cdef int64_t *lengths
    if texts == NULL:
        return E_NO_MEMORY
    into.texts = texts
    lengths = <int64_t *>realloc(into.lengths, <size_t>room * sizeof(int64_t))
    if lengths == NULL:
        return E_NO_MEMORY
    into.lengths = lengths
    into.room = room
    return text_set_hash(into) if room > TEXTS_COMPARED else 0


cdef int64_t text_set_add(TextSet *into, const char *text, int64_t length) noexcept nogil:
    """Number of a text, added if new; E_NO_MEMORY."""
    cdef int64_t number = text_set_find(into, text, length)
    if number >= 0:
        return number
    if into.count == INT32_MAX or (into.count == into.room and text_set_grow(into) < 0):
        return E_NO_MEMORY
    number = into.count
    into.texts[number] = text
    into.lengths[number] = length
    into.longest = max(into.longest, length)
    into.count += 1
    if into.slots != NULL:
        text_set_enter(into, number)
    return number


cdef int64_t text_set_bytes(const TextSet *of) noexcept nogil:
    """Memory of the set, besides the texts."""
    return of.room * <int64_t>(sizeof(char *) + sizeof(int64_t)) + (
        0 if of.slots == NULL else (of.mask + 1) * <int64_t>sizeof(int32_t))


cdef void text_set_free(TextSet *of) noexcept nogil:
    free(of.texts)
    free(of.lengths)
    free(of.slots)
    memset(of, 0, sizeof(TextSet))
