# Which records a scan selects: topic, queue, store time, tags, keys.
#
# Source: store/DefaultMessageFilter.java for the tags; ours

cdef enum:
    WANTED_COMPARED = 8          # up to so many are compared one by one

cdef struct WantedTexts:
    int64_t count                # 0: any
    const char **texts
    int64_t *lengths
    int32_t *slots               # hash table of their numbers, NULL if there are few
    uint32_t mask


cdef struct ScanFilter:
    WantedTexts topics
    WantedTexts keys             # one of them in KEYS, or as UNIQ_KEY
    int64_t queue_id             # -1: any
    int64_t since                # store time, inclusive
    int64_t until                # exclusive; INT64_MOST: no bound
    bint queued                  # exclude what is in no queue: prepared or rolled back
    TagFilter tags


cdef bint is_wanted(const WantedTexts *wanted, const char *text, int64_t length) noexcept nogil:
    cdef int64_t i
    cdef uint32_t slot
    if wanted.slots == NULL:
        for i in range(wanted.count):
            if wanted.lengths[i] == length and memcmp(wanted.texts[i], text, <size_t>length) == 0:
                return True
        return False
    slot = topic_hash(text, length) & wanted.mask
    while wanted.slots[slot] >= 0:
        i = wanted.slots[slot]
        if wanted.lengths[i] == length and memcmp(wanted.texts[i], text, <size_t>length) == 0:
            return True
        slot = (slot + 1) & wanted.mask
    return False


cdef int64_t wanted_hash(WantedTexts *wanted) noexcept nogil:
    """Build the hash table if there are many; the texts are distinct."""
    cdef int64_t i
    cdef uint32_t slot
    cdef uint32_t size = 32
    if wanted.count <= WANTED_COMPARED:
        return 0
    while size < 2 * wanted.count:
        size *= 2
    wanted.slots = <int32_t *>malloc(<size_t>size * 4)
    if wanted.slots == NULL:
        return E_NO_MEMORY
    memset(wanted.slots, 0xFF, <size_t>size * 4)
    wanted.mask = size - 1
    for i in range(wanted.count):
        slot = topic_hash(wanted.texts[i], wanted.lengths[i]) & wanted.mask
        while wanted.slots[slot] >= 0:
            slot = (slot + 1) & wanted.mask
        wanted.slots[slot] = <int32_t>i
    return 0


cdef void wanted_free(WantedTexts *wanted) noexcept nogil:
    free(wanted.texts)
    free(wanted.lengths)
    free(wanted.slots)


cdef bint has_wanted_key(
    const WantedTexts *wanted, const char *data, const Record *record,
) noexcept nogil:
    """Match as a query does: KEYS or UNIQ_KEY, and nothing that was rolled back."""
    cdef StoreProperties properties
    cdef int64_t at = 0
    cdef int64_t length = 0
    cdef const char *word = NULL
    if record_is_rolled_back(record):
        return False
    store_properties(data + record.properties_at, record.properties_length, &properties)
    if properties.unique_key.value_length > 0 and is_wanted(
            wanted, properties.unique_key.value, properties.unique_key.value_length):
        return True
    while properties.keys.value_length > 0 and split_next(
            properties.keys.value, properties.keys.value_length, 32, &at, &word, &length):
        if is_wanted(wanted, word, length):
            return True
    return False


cdef bint scan_wants(
    const ScanFilter *filter, const char *data, const Record *record,
) noexcept nogil:
    """Whether a checked record passes; fillers never do."""
    if record_is_filler(record):
        return False
    if record.store_timestamp < filter.since or (
            record.store_timestamp >= filter.until and filter.until != INT64_MOST):
        return False
    if filter.queued and (record.sys_flag & SYS_TRANSACTION) in (SYS_PREPARED, SYS_ROLLBACK):
        return False
    if filter.queue_id >= 0 and record.queue_id != filter.queue_id:
        return False
    if filter.topics.count and not is_wanted(
            &filter.topics, data + record.topic_at, record.topic_length):
        return False
    if filter.tags.count and not tags_pass(&filter.tags, data, record):
        return False
    return filter.keys.count == 0 or has_wanted_key(&filter.keys, data, record)
