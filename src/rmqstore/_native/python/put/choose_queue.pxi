# Destination of a message: its topic, created if new, and one of its queues.
#
# Source: client/producer/selector/SelectMessageQueueByHash.java;
#         broker/topic/TopicConfigManager.java

# Choice of a message's queue.
cdef enum:
    QUEUE_IN_TURN
    QUEUE_BY_ID                  # -1: in turn
    QUEUE_BY_NUMBER              # as a Java int's hashCode
    QUEUE_BY_TEXT                # as a Java string's
    QUEUE_BY_HASH                # an unsigned number


cdef inline int64_t queue_of(
    int how, int64_t number, const Span *text, Topic *topic, int64_t queue_nums,
) noexcept nogil:
    """Queue of a message; ``topic`` is NULL if it is yet to be created."""
    cdef int64_t rest
    if how == QUEUE_BY_ID and number >= 0:
        return number
    if how == QUEUE_BY_HASH:
        return <int64_t>(<uint64_t>number % <uint64_t>queue_nums)
    if how == QUEUE_BY_TEXT or how == QUEUE_BY_NUMBER:
        if how == QUEUE_BY_TEXT:
            number = java_hash_utf8(text.data, text.length, 0)
        rest = number % queue_nums           # has the sign of the dividend, as in Java
        return -rest if rest < 0 else rest
    return 0 if topic == NULL else (atomic_add(&topic.round_robin, 1) - 1) % queue_nums


cdef Topic *known_topic(OpenStore engine, const Span *name) noexcept:
    """Topic's entry if topics.json has it, else NULL."""
    cdef Topic *found = topic_find(&engine.store.table, name.data, name.length)
    if likely(found != NULL and atomic_peek(&found.write_queue_nums) > 0):
        return found
    return NULL


cdef Topic *writable_topic(OpenStore engine, const Span *name) except NULL:
    """Topic's entry; a topic missing in topics.json is created with the default queues."""
    cdef Topic *found = known_topic(engine, name)
    if likely(found != NULL):
        return found
    text = text_of(name.data, name.length)
    engine.make_topic(text)
    found = topic_find(&engine.store.table, name.data, name.length)
    if found == NULL:
        raise errors.TopicNotFoundError(f"{engine._path}: no topic {text!r}")
    return found


cdef int keep_topic(OpenStore engine, Topic *topic, int64_t physical_offset) except -1:
    """Restore the entry of a topic that was deleted before its message was appended.

    Before the message is acknowledged, the topic of an existing queue must be in topics.json, and
    the note of the deletion on the disk.
    """
    if unlikely(atomic_peek(&topic.write_queue_nums) == 0) and not topic.schedule:
        engine.remake_topic(text_of(topic.name, topic.length), physical_offset)
    return 0


cdef Queue *writable_queue(OpenStore engine, Topic *topic, int64_t queue_id) except NULL:
    cdef Queue *queue = queue_find(topic, <int32_t>queue_id)
    if queue == NULL:
        queue = queue_enter(&engine.store.table, topic, <int32_t>queue_id)
        if queue == NULL:
            raise MemoryError()
        if queue_id >= atomic_peek(&topic.write_queue_nums) and engine.note_queue is not None:
            engine.note_queue(text_of(topic.name, topic.length), queue_id)
    if unlikely(topic.schedule) and not engine.delays_begun:
        engine.delays_begun = True
        if engine.begin_schedule is not None:
            engine.begin_schedule()
    return queue


cdef int64_t rows_find_topics(Store *store, const Rows *rows, int64_t row) noexcept nogil:
    """Note the topics of the rows from ``row`` on; the first row whose topic must be created."""
    cdef const Span *name
    cdef Topic *last = NULL
    while row < (1 if rows.one_topic else rows.count):
        name = column_span(rows.topic, row)
        if last == NULL or not is_same(name.data, name.length, last.name, last.length):
            last = topic_find(&store.table, name.data, name.length)
            if last == NULL or atomic_peek(&last.write_queue_nums) == 0:
                return row
        rows.topics[row] = last
        row += 1
    return rows.count


cdef int64_t rows_find_queues(
    const Rows *rows, int how, const ColumnView *column, int64_t row,
) noexcept nogil:
    """Note the queues of the rows from ``row`` on; the first row whose queue must be created."""
    cdef Topic *topic
    cdef Topic *last_topic = NULL
    cdef const Span *text = NULL
    cdef int64_t number = -1
    cdef int64_t last_id = -1
    while row < rows.count:
        topic = rows.topics[0 if rows.one_topic else row]
        if how == QUEUE_BY_TEXT:
            text = column_span(column, row)
        elif how != QUEUE_IN_TURN:
            number = column_get_int(column, row)
        rows.queue_ids[row] = queue_of(how, number, text, topic,
                                       max(1, atomic_peek(&topic.write_queue_nums)))
        if topic != last_topic or rows.queue_ids[row] != last_id:
            last_topic = topic
            last_id = rows.queue_ids[row]
            if queue_find(topic, <int32_t>last_id) == NULL:
                return row
        row += 1
    return row


cdef int rows_choose_queues(OpenStore engine, RowInput input) except -1:
    """Find, or create, topics, queues and unique keys of the rows.

    REQUIRES: all rows were checked, so that no refused row leaves a new topic.
    """
    cdef Store *store = engine.store
    cdef Rows *rows = &input.rows
    cdef int64_t row = 0
    input.topics = memory_new(rows.count * <int64_t>sizeof(Topic *) + 8)
    input.queue_ids = memory_new(rows.count * <int64_t>sizeof(int64_t))
    rows.topics = <Topic **>input.topics.data
    rows.queue_ids = <int64_t *>input.queue_ids.data
    while row < rows.count:
        with nogil:
            row = rows_find_topics(store, rows, row)
        if row < rows.count:
            rows.topics[row] = writable_topic(engine, column_span(rows.topic, row))
            row += 1
    row = 0
    while row < rows.count:
        with nogil:
            row = rows_find_queues(rows, input.choice, &input.queue.view, row)
        if row < rows.count:
            writable_queue(engine, rows.topics[0 if rows.one_topic else row],
                           rows.queue_ids[row])
            row += 1
    if rows.generate:
        rows.first_unique = unique_keys_take(
            &unique_keys, rows.same.born_timestamp, max(1, rows.count))
    return 0
