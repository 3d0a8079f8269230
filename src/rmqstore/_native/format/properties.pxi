# The properties string: name 0x01 value 0x02 repeated, read and written without dicts.
#
# Source: common/message/MessageDecoder.java string2messageProperties, messageProperties2String

cdef enum:
    TORN_BYTES = 64              # this many zeros in a row are a missing sector, not text
    TAG_BAR = 0x7C               # |

cdef struct Property:
    const char *name
    int64_t name_length
    const char *value
    int64_t value_length


# Properties of a record used by the store itself; length -1 for a missing one.
cdef struct StoreProperties:
    Property tags
    Property keys
    Property unique_key
    Property delay
    Property multi_dispatch
    Property multi_offset


cdef inline bint property_next(
    const char *data, int64_t length, int64_t *at, Property *entry,
) noexcept nogil:
    """Take the next valid entry: a name, a 0x01 and a value; False at the end."""
    cdef const char *end
    cdef const char *split
    cdef int64_t size
    while at[0] < length:
        entry.name = data + at[0]
        end = find_byte(entry.name, PROPERTY_VALUE_END, length - at[0])
        size = end - entry.name if end != NULL else length - at[0]
        at[0] += size + 1
        split = find_byte(entry.name, PROPERTY_NAME_END, size)
        if split == NULL:
            continue
        entry.name_length = split - entry.name
        entry.value = split + 1
        entry.value_length = size - entry.name_length - 1
        if entry.name_length > 0 and entry.value_length > 0:
            return True
    return False


cdef bint property_find(
    const char *data, int64_t length, const char *name, int64_t name_length, Property *found,
) noexcept nogil:
    """Find the last entry of a name."""
    cdef Property entry
    cdef int64_t at = 0
    cdef bint hit = False
    while property_next(data, length, &at, &entry):
        if entry.name_length == name_length \
                and memcmp(entry.name, name, <size_t>name_length) == 0:
            found[0] = entry
            hit = True
    return hit


cdef void store_properties(
    const char *data, int64_t length, StoreProperties *into,
) noexcept nogil:
    """Collect the properties that dispatch needs, in one pass."""
    cdef Property entry
    cdef int64_t at = 0
    into.tags.value_length = -1
    into.keys.value_length = -1
    into.unique_key.value_length = -1
    into.delay.value_length = -1
    into.multi_dispatch.value_length = -1
    into.multi_offset.value_length = -1
    while property_next(data, length, &at, &entry):
        if entry.name_length == 4:
            if memcmp(entry.name, b"TAGS", 4) == 0:
                into.tags = entry
            elif memcmp(entry.name, b"KEYS", 4) == 0:
                into.keys = entry
        elif entry.name_length == 8:
            if memcmp(entry.name, b"UNIQ_KEY", 8) == 0:
                into.unique_key = entry
        elif entry.name_length == 5:
            if memcmp(entry.name, b"DELAY", 5) == 0:
                into.delay = entry
        elif entry.name_length == 20:
            if memcmp(entry.name, b"INNER_MULTI_DISPATCH", 20) == 0:
                into.multi_dispatch = entry
        elif entry.name_length == 24:
            if memcmp(entry.name, b"INNER_MULTI_QUEUE_OFFSET", 24) == 0:
                into.multi_offset = entry


cdef bint has_zero_run(const char *data, int64_t length) noexcept nogil:
    """Whether TORN_BYTES zeros are in a row: indistinguishable from a torn write."""
    cdef int64_t i
    cdef int64_t run = 0
    if length < TORN_BYTES:
        return False
    for i in range(length):
        run = run + 1 if data[i] == 0 else 0
        if run == TORN_BYTES:
            return True
    return False


cdef bint split_next(
    const char *text, int64_t length, char separator, int64_t *at,
    const char **word, int64_t *word_length,
) noexcept nogil:
    """Take the next nonempty word."""
    cdef const char *end
    while at[0] < length:
        word[0] = text + at[0]
        end = find_byte(word[0], separator, length - at[0])
        word_length[0] = end - word[0] if end != NULL else length - at[0]
        at[0] += word_length[0] + 1
        if word_length[0] > 0:
            return True
    return False


cdef inline int64_t tags_code(const Property *tags) noexcept nogil:
    """Java's hash of the whole TAGS value, sign-extended; 0 without tags."""
    if tags.value_length <= 0:
        return 0
    return java_hash_utf8(tags.value, tags.value_length, 0)


cdef int64_t parse_decimal(const char *text, int64_t length) noexcept nogil:
    """Value of up to 18 digits, -1 for anything else."""
    cdef int64_t i
    cdef int64_t value = 0
    if length < 1 or length > 18:
        return -1
    for i in range(length):
        if text[i] < 48 or text[i] > 57:
            return -1
        value = value * 10 + text[i] - 48
    return value


# A growing properties string: at first in the owner's memory.
cdef struct Text:
    char *data
    int64_t length
    int64_t room
    bint owned                   # grown: ``data`` is allocated


cdef inline void text_init(Text *text, char *memory, int64_t room) noexcept nogil:
    text.data = memory
    text.length = 0
    text.room = room
    text.owned = False


cdef inline void text_free(Text *text) noexcept nogil:
    if text.owned:
        free(text.data)


cdef int64_t text_grow(Text *text, int64_t length) noexcept nogil:
    cdef int64_t room = max(256, (text.length + length) * 2)
    cdef char *data = <char *>realloc(text.data if text.owned else NULL, <size_t>room)
    if data == NULL:
        return E_NO_MEMORY
    if not text.owned and text.length:
        memcpy(data, text.data, <size_t>text.length)
    text.data = data
    text.room = room
    text.owned = True
    return 0


cdef inline int64_t text_reserve(Text *text, int64_t length) noexcept nogil:
    """Make room for ``length`` more bytes: 0 or E_NO_MEMORY."""
    return 0 if likely(text.length + length <= text.room) else text_grow(text, length)


cdef inline void text_add(Text *text, const char *data, int64_t length) noexcept nogil:
    """REQUIRES: there is room."""
    memcpy(text.data + text.length, data, <size_t>length)
    text.length += length


cdef inline void text_add_property(
    Text *text, int64_t start, const char *name, int64_t name_length, const char *value,
    int64_t value_length,
) noexcept nogil:
    """Append ``name 0x01 value`` to the string that began at ``start``, separated by 0x02.

    REQUIRES: room for both and 2 bytes more.
    """
    cdef char *at = text.data + text.length
    if text.length > start:
        at[0] = PROPERTY_VALUE_END
        at += 1
    memcpy(at, name, <size_t>name_length)
    at[name_length] = PROPERTY_NAME_END
    memcpy(at + name_length + 1, value, <size_t>value_length)
    text.length = at + name_length + 1 + value_length - text.data


cdef inline bint text_is_bad(const char *data, int64_t length) noexcept nogil:
    """Whether a text has a byte that would end a property, or zeros that look torn."""
    return memchr(data, PROPERTY_NAME_END, <size_t>length) != NULL \
        or memchr(data, PROPERTY_VALUE_END, <size_t>length) != NULL or has_zero_run(data, length)


cdef inline bint tags_are_split(const char *data, int64_t length) noexcept nogil:
    """Whether a message's tags contain ``||``, at which filters split theirs."""
    cdef const char *end = data + length
    cdef const char *bar = <const char *>memchr(data, TAG_BAR, <size_t>length)
    while bar != NULL and bar + 1 < end and bar[1] != TAG_BAR:
        bar = <const char *>memchr(bar + 1, TAG_BAR, <size_t>(end - bar - 1))
    return bar != NULL and bar + 1 < end
