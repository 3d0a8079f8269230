# Selection of a scan: topic, queue, store time, tags, keys, properties, text.
#
# RocketMQ has none.

cdef struct ScanFilter:
    TextSet topics               # empty: any
    TextSet keys                 # any of these in KEYS, or as UNIQ_KEY; empty: all pass
    int64_t queue_id             # -1: any
    int64_t since                # store time, inclusive
    int64_t until                # exclusive; INT64_MOST: no bound
    bint queued                  # exclude records in no queue: prepared or rolled back
    MessageFilter messages
    Sought text                  # in the body as stored, unless that is compressed; empty: any
    bint text_in_properties      # or in the properties as stored


cdef bint has_wanted_key(
    const TextSet *wanted, const char *data, const Record *record,
) noexcept nogil:
    """Match as a query does: KEYS or UNIQ_KEY, and no rolled-back record."""
    cdef StoreProperties properties
    cdef int64_t at = 0
    cdef int64_t length = 0
    cdef const char *word = NULL
    if record_is_rolled_back(record):
        return False
    store_properties(data + record.properties_at, record.properties_length, &properties)
    if properties.unique_key.value_length > 0 and text_set_find(
            wanted, properties.unique_key.value, properties.unique_key.value_length) >= 0:
        return True
    while properties.keys.value_length > 0 and split_next(
            properties.keys.value, properties.keys.value_length, 32, &at, &word, &length):
        if text_set_find(wanted, word, length) >= 0:
            return True
    return False


cdef bint may_have_text(
    const ScanFilter *filter, const char *data, const Record *record,
) noexcept nogil:
    """Whether the record has the text, or its body is compressed."""
    return record.sys_flag & SYS_COMPRESSED \
        or holds_sought(data + record.body_at, record.body_length, &filter.text) \
        or (filter.text_in_properties and holds_sought(
            data + record.properties_at, record.properties_length, &filter.text))


cdef bint scan_wants(
    ScanFilter *filter, const char *data, const Record *record,
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
    if filter.topics.count and text_set_find(
            &filter.topics, data + record.topic_at, record.topic_length) < 0:
        return False
    if filter.messages.active and not filter_passes(&filter.messages, data, record):
        return False
    if filter.keys.count and not has_wanted_key(&filter.keys, data, record):
        return False
    return filter.text.length == 0 or may_have_text(filter, data, record)
