# Filters by tags: first the hash in the unit, then the TAGS of the record.
#
# Source: store/DefaultMessageFilter.java, broker/filter/ExpressionMessageFilter.java

cdef enum:
    CODES_COMPARED = 8           # up to this many are compared one by one

cdef struct TagFilter:
    int64_t count                # 0: everything passes
    TextSet names
    int32_t *codes               # their hashes; many: ascending


cdef inline bint tags_code_passes(const TagFilter *tags, int64_t code) noexcept nogil:
    """Compare the low 32 bits, as Java does."""
    cdef int64_t i
    if tags.count == 0:
        return True
    if tags.count > CODES_COMPARED:
        return is_among_codes(tags, <int32_t>code)
    for i in range(tags.count):
        if <int32_t>code == tags.codes[i]:
            return True
    return False


cdef bint ext_code_passes(
    const TagFilter *tags, Queue *queue, MappedFile **near, int64_t address,
) noexcept nogil:
    """As tags_code_passes, with the code of an ext unit; without one the record's tag decides."""
    cdef ExtUnit unit
    if queue_ext_unit(queue, near, address, &unit) < 0:
        return True
    return tags_code_passes(tags, unit.tags_code)


cdef inline bint unit_passes(
    const TagFilter *tags, Queue *queue, MappedFile **near, int64_t code,
) noexcept nogil:
    """Whether a unit's record may have the tags; ``near``: the last ext file read."""
    if unlikely(code <= EXT_ADDRESS) and tags.count:
        return ext_code_passes(tags, queue, near, code)
    return tags_code_passes(tags, code)


cdef bint is_among_codes(const TagFilter *tags, int32_t code) noexcept nogil:
    """Binary search."""
    cdef int64_t low = 0
    cdef int64_t high = tags.count
    cdef int64_t middle
    while low < high:
        middle = (low + high) >> 1
        if tags.codes[middle] < code:
            low = middle + 1
        else:
            high = middle
    return low < tags.count and tags.codes[low] == code


cdef int compare_codes(const void *one, const void *other) noexcept nogil:
    cdef int32_t a = (<const int32_t *>one)[0]
    cdef int32_t b = (<const int32_t *>other)[0]
    return (a > b) - (a < b)


cdef int64_t tags_ready(TagFilter *tags) noexcept nogil:
    """Hash the names, once all are added: 0 or E_NO_MEMORY."""
    cdef int64_t i
    cdef int64_t count = tags.names.count
    tags.codes = <int32_t *>malloc(<size_t>max(count, 1) * sizeof(int32_t))
    if tags.codes == NULL:
        return E_NO_MEMORY
    for i in range(count):
        tags.codes[i] = java_hash_utf8(tags.names.texts[i], tags.names.lengths[i], 0)
    if count > CODES_COMPARED:
        qsort(tags.codes, <size_t>count, sizeof(int32_t), compare_codes)
    tags.count = count
    return 0


cdef bint tags_pass(const TagFilter *tags, const char *data, const Record *record) noexcept nogil:
    """Compare the TAGS string itself."""
    cdef Property found
    if tags.count == 0:
        return True
    return property_find(
        data + record.properties_at, record.properties_length, b"TAGS", 4, &found,
    ) and text_set_find(&tags.names, found.value, found.value_length) >= 0


cdef void tags_free(TagFilter *tags) noexcept nogil:
    text_set_free(&tags.names)
    free(tags.codes)
    memset(tags, 0, sizeof(TagFilter))
