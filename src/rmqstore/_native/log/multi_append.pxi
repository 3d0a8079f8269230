# Further queues of a put message: their next offsets are written into its properties under the put
# lock, and consumed once the record is in the log.
#
# Source: store/MultiDispatch.java wrapMultiDispatch, updateMultiQueueOffset;
#         store/DefaultMessageStore.java isLmqConsumeQueueNumExceeded

cdef enum:
    OFFSET_TEXT_BYTES = 21       # of a queue offset, with a comma or a zero

cdef const char *MULTI_DISPATCH = b"INNER_MULTI_DISPATCH"
cdef const char *MULTI_OFFSET = b"INNER_MULTI_QUEUE_OFFSET"


cdef struct Multi:
    int64_t before               # bytes of the properties before the offsets
    int64_t count
    int64_t max_size             # of the record
    Queue **queues               # in the order of their names; may have duplicates
    int64_t *offsets


cdef int64_t multi_new(
    Store *store, const char *names, int64_t length, int32_t queue_id, Multi **made,
) noexcept nogil:
    """Find or enter the queues of a list of valid names: 0, E_NO_MEMORY, E_LIGHT_LIMIT."""
    cdef TopicTable *table = &store.table
    cdef int64_t count = list_count(names, length)
    cdef MultiName entry
    cdef Topic *topic
    cdef Queue *queue
    cdef int64_t i
    cdef Multi *multi = <Multi *>malloc(
        sizeof(Multi) + <size_t>count * (sizeof(Queue *) + sizeof(int64_t)))
    made[0] = multi
    if multi == NULL:
        return E_NO_MEMORY
    multi.count = count
    multi.max_size = store.settings.max_message_size
    multi.queues = <Queue **>(multi + 1)
    multi.offsets = <int64_t *>(multi.queues + count)
    length = list_length(names, length)
    for i in range(count):
        list_next(&names, &length, &entry.name, &entry.length)
        queue = NULL
        topic = topic_find(table, entry.name, entry.length)
        if topic == NULL:
            # Refused early: names without a queue would take memory.
            if name_is_light(entry.name, entry.length) \
                    and atomic_get(&table.light_queues) >= store.settings.max_light_queues:
                return E_LIGHT_LIMIT
            topic = topic_enter(table, entry.name, entry.length)
        if topic != NULL:
            queue = queue_find(topic, multi_queue_id(&entry, queue_id))
            if queue == NULL:
                queue = queue_enter(table, topic, multi_queue_id(&entry, queue_id))
        if queue == NULL:
            return E_NO_MEMORY
        multi.queues[i] = queue
    return 0


cdef int64_t multi_within_limit(Store *store, const Multi *multi) noexcept nogil:
    """0, or E_LIGHT_LIMIT if light queues would become too many.  Under the put lock."""
    cdef int64_t i
    cdef int64_t more = 0
    for i in range(multi.count):
        more += topic_is_light(multi.queues[i].topic) and not multi.queues[i].light_counted
    if more and atomic_peek(&store.table.light_queues) + more > store.settings.max_light_queues:
        return E_LIGHT_LIMIT
    return 0


cdef int64_t multi_complete(Store *store, Encoded *message) noexcept nogil:
    """Write the next offsets into the properties and set the sizes: 0, or the refusal.

    Under the put lock.  Idempotent.
    """
    cdef Multi *multi = <Multi *>message.multi
    cdef char *begin = <char *>message.properties
    cdef char *at = begin + multi.before
    cdef int64_t i
    cdef int64_t rc = multi_within_limit(store, multi)
    if rc < 0:
        return rc
    for i in range(multi.count):
        if i:
            at[0] = 44
            at += 1
        multi.offsets[i] = multi.queues[i].next_offset
        at += snprintf(at, OFFSET_TEXT_BYTES, "%lld", <long long>multi.offsets[i])
    if message.checksum:
        at[0] = PROPERTY_VALUE_END
        memset(at + 1, 0, CHECKSUM_PROPERTY_BYTES)
        at += 1 + CHECKSUM_PROPERTY_BYTES
    message.properties_length = at - begin
    message.size = <int32_t>encoded_size(message)
    if message.properties_length > PROPERTIES_MAX_BYTES:
        return E_PROPERTIES
    return E_MESSAGE_SIZE if message.size > multi.max_size else 0


cdef void queue_count_light(TopicTable *table, Queue *queue) noexcept nogil:
    """Count a light queue that has messages, once.  Under the put lock, or while opening."""
    if topic_is_light(queue.topic) and not queue.light_counted:
        queue.light_counted = True
        atomic_add(&table.light_queues, 1)


cdef void multi_appended(Store *store, const Multi *multi) noexcept nogil:
    """Consume the offsets of a record that is in the log.  Under the put lock."""
    cdef int64_t i
    for i in range(multi.count):
        multi.queues[i].next_offset = multi.offsets[i] + 1
        queue_count_light(&store.table, multi.queues[i])
