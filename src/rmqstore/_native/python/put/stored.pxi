# Put of a record whose properties are stored as given, as by a store's services.
#
# Source: broker/transaction/queue/TransactionalMessageBridge.java;
#         store/schedule/ScheduleMessageService.java messageTimeup

cdef void set_store_host(Encoded *message, const char *host, int32_t length) noexcept nogil:
    """Give a laid-out record the store host of the record of which it is a copy."""
    memcpy(message.store_host, host, <size_t>length)
    message.sys_flag &= ~SYS_STORE_HOST_V6
    if length == HOST_V6_BYTES:
        message.sys_flag |= SYS_STORE_HOST_V6
    message.size = <int32_t>encoded_size(message)


cdef int stored_problem(
    const Limits *limits, Row *row, const StoreProperties *mapped, bint moved, int64_t *size,
) noexcept nogil:
    """Problem of a refused record, as row_size_problem and row_take_multi.

    A waiting message must be valid at its destination too, and gets ``row.later``.
    """
    cdef Row there
    cdef Property entry
    cdef int64_t at = 0
    cdef int problem = row_take_multi(limits, mapped, row)
    if problem == ROW_GOOD and topic_waits(&row.topic):
        there = row[0]
        if row.topic.length == HALF_TOPIC_LENGTH:
            row.later = HALF_LATER_BYTES
        while property_next(row.properties.data, row.properties.length, &at, &entry):
            if is_same(entry.name, entry.name_length, b"REAL_TOPIC", 10):
                there.topic.data = entry.value
                there.topic.length = entry.value_length
            elif is_same(entry.name, entry.name_length, b"TRANSACTION_CHECK_TIMES", 23):
                row.later = 0
            elif is_same(entry.name, entry.name_length, b"DELAY", 5):
                row.later += moved and entry.value_length == 1   # given back again: 2 digits
        if not topic_waits(&there.topic):
            problem = row_take_multi(limits, mapped, &there)
            if moved:                        # it waits until the settings allow its names
                problem = ROW_GOOD
            if there.multi.length > 0:
                there.later = OFFSET_TEXT_BYTES * list_count(there.multi.data, there.multi.length)
            if problem == ROW_BAD_LIGHT:
                row.multi = there.multi
            elif problem == ROW_GOOD:
                problem = row_size_problem(limits, &there, size)
    return row_size_problem(limits, row, size) if problem == ROW_GOOD else problem


cdef PutResult put_stored(
    OpenStore engine, object topic, object queue_id, object body, object properties, object flag,
    object sys_flag, object born_timestamp, object born_host, object reconsume_times,
    object prepared_transaction_offset, object store_host, bint moved, bint wait,
):
    """See ``Core.put_stored``; checked although its callers are ours."""
    cdef Store *store = engine.store
    cdef Settings settings                   # with a checksum, if it fits
    cdef Limits limits
    cdef char[STACK_TEXT] memory
    cdef Row row = NO_ROW
    cdef Text text
    cdef Encoded message
    cdef StoreProperties mapped
    cdef Append append
    cdef AppendResult appended
    cdef Topic *to
    cdef Queue *queue
    cdef int64_t size = 0
    cdef int32_t host_length = 0
    cdef char host[HOST_V6_BYTES]
    cdef int problem
    cdef PutResult result = PutResult.__new__(PutResult)
    if not PyBytes_CheckExact(body):
        raise arguments.wrong_type("body", "bytes", body)
    text_init(&text, memory, STACK_TEXT)
    message.multi = NULL
    store_puttable(store, engine._path)
    try:
        limits = limits_of(store)
        row.topic.data = utf8_of("topic", topic, &row.topic.length)
        # A broker may have acknowledged a message to a topic that no client may name.
        if not moved or row.topic.length > TOPIC_MAX_BYTES \
                or not topic_name_stored(row.topic.data, row.topic.length):
            check_topic(row.topic.data, row.topic.length, topic)
        row.queue_id = int_argument("queue_id", queue_id, 0, INT32_MAX)
        row.properties.data = utf8_of("properties", properties, &row.properties.length)
        if row.properties.length and row.properties.data[row.properties.length - 1] == 2:
            row.properties.length -= 1
        row.flag = <int32_t>int_argument("flag", flag, -INT32_MAX - 1, INT32_MAX)
        row.sys_flag = <int32_t>int_argument("sys_flag", sys_flag, 0, INT32_MAX)
        row.reconsume_times = <int32_t>int_argument(
            "reconsume_times", reconsume_times, -INT32_MAX - 1, INT32_MAX)
        row.prepared_transaction_offset = int_argument(
            "prepared_transaction_offset", prepared_transaction_offset, INT64_MIN, INT64_MAX)
        row.born_timestamp = limits.now
        if born_timestamp is not None:
            row.born_timestamp = int_argument(
                "born_timestamp", born_timestamp, INT64_MIN, INT64_MAX)
        if born_host is not None:
            row.born_host_length = host_bytes("born_host", born_host, row.born_host)
        if store_host is not None:
            host_length = host_bytes("store_host", store_host, host)
            limits.store_host_v6 = host_length == HOST_V6_BYTES
        row.body.data = PyBytes_AS_STRING(body)
        row.body.length = PyBytes_GET_SIZE(body)
        store_properties(row.properties.data, row.properties.length, &mapped)
        settings = store.settings
        if moved:
            limits.max_message_size = limits.file_size
        problem = stored_problem(&limits, &row, &mapped, moved, &size)
        if problem != ROW_GOOD and problem != ROW_BAD_LIGHT and moved and limits.record_checksum:
            settings.record_checksum = limits.record_checksum = False
            row.later = 0
            problem = stored_problem(&limits, &row, &mapped, moved, &size)
        if problem == ROW_BAD_LIGHT:
            raise light_error(&limits, &row, "properties")
        check_size(&limits, problem, size)
        to = topic_find(&store.table, row.topic.data, row.topic.length)
        if to == NULL or not to.schedule:
            if is_same(row.topic.data, row.topic.length, SCHEDULE_TOPIC, SCHEDULE_TOPIC_LENGTH):
                to = topic_enter(&store.table, SCHEDULE_TOPIC, SCHEDULE_TOPIC_LENGTH)
            else:
                to = writable_topic(engine, &row.topic)
        if to == NULL or row_encode(
                &settings, &row, to, <int32_t>row.queue_id, &text, &message) < 0:
            raise MemoryError()
        if host_length:
            set_store_host(&message, host, host_length)
        if row.multi.length > 0:
            check_multi(engine, row_encode_multi(
                store, &row, <int32_t>row.queue_id, &text, &message))
            (<Multi *>message.multi).max_size = limits.max_message_size
        message.properties = text.data + <int64_t>message.properties
        queue = writable_queue(engine, to, row.queue_id)
        append = Append(&message, &queue, &appended, 1, message.size, APPEND_WHOLE)
        append_one(engine, &append, wait, result)
        memcpy(result.host, message.store_host, HOST_V6_BYTES)
        result.v6 = message.sys_flag & SYS_STORE_HOST_V6 != 0
    finally:
        free(message.multi)
        text_free(&text)
        store_leave(store)
    return result


cdef tuple put_stored_batch(
    OpenStore engine, object topic, object queue_id, list rows, object sys_flag,
    object born_timestamp, object born_host, object store_host, object reconsume_times, bint wait,
):
    """Store consecutive rows in one queue, all or none; the first one's result, all offsets.

    A row is ``(body, properties, flag)``: ``bytes``, the stored string, and a number.
    """
    cdef Store *store = engine.store
    cdef Limits limits
    cdef Row row = NO_ROW
    cdef Topic *to
    cdef Queue *queue
    cdef Append append
    cdef Chunk *chunk
    cdef int64_t total = 0
    cdef int64_t count = len(rows)
    cdef int64_t i, room
    cdef int32_t host_length
    cdef char host[HOST_V6_BYTES]
    cdef PutResult result = PutResult.__new__(PutResult)
    if count == 0:
        raise ValueError("rows must have at least one message for a batch, got none")
    store_puttable(store, engine._path)
    chunk = NULL
    try:
        limits = limits_of(store)
        row.topic.data = utf8_of("topic", topic, &row.topic.length)
        check_topic(row.topic.data, row.topic.length, topic)
        row.queue_id = int_argument("queue_id", queue_id, 0, INT32_MAX)
        row.sys_flag = <int32_t>int_argument("sys_flag", sys_flag, 0, INT32_MAX)
        row.reconsume_times = <int32_t>int_argument(
            "reconsume_times", reconsume_times, -INT32_MAX - 1, INT32_MAX)
        row.born_timestamp = int_argument("born_timestamp", born_timestamp, INT64_MIN, INT64_MAX)
        row.born_host_length = host_bytes("born_host", born_host, row.born_host)
        host_length = host_bytes("store_host", store_host, host)
        limits.store_host_v6 = host_length == HOST_V6_BYTES
        chunk = chunk_new(count)
        chunk.text.length = 0
        to = writable_topic(engine, &row.topic)
        queue = writable_queue(engine, to, row.queue_id)
        for i in range(count):
            body, properties, flag = rows[i]
            if not PyBytes_CheckExact(body):
                raise arguments.wrong_type("body", "bytes", body)
            row.body.data = PyBytes_AS_STRING(body)
            row.body.length = PyBytes_GET_SIZE(body)
            row.properties.data = utf8_of("properties", properties, &row.properties.length)
            row.flag = <int32_t>int_argument("flag", flag, -INT32_MAX - 1, INT32_MAX)
            check_row_size(&limits, &row)
            if row_encode(&store.settings, &row, to, <int32_t>row.queue_id, &chunk.text,
                          &chunk.messages[i]) < 0:
                raise MemoryError()
            set_store_host(&chunk.messages[i], host, host_length)
            chunk.queues[i] = queue
            total += chunk.messages[i].size
        room = min(limits.max_message_size, limits.file_size - RECORD_BLANK_BYTES)
        if total > room:
            raise illegal(
                f"the batch takes {total} bytes; it may take {room}: it lies in one file")
        for i in range(count):                   # offsets to addresses: the text may have moved
            chunk.messages[i].properties = chunk.text.data + <int64_t>chunk.messages[i].properties
        append = Append(
            chunk.messages, chunk.queues, chunk.appended, count, total, APPEND_WHOLE)
        append_one(engine, &append, wait, result)
        memcpy(result.host, chunk.messages[0].store_host, HOST_V6_BYTES)
        result.v6 = chunk.messages[0].sys_flag & SYS_STORE_HOST_V6 != 0
        offsets = [chunk.appended[i].physical_offset for i in range(count)]
    finally:
        if chunk != NULL:
            chunk_free(chunk)
        store_leave(store)
    return result, offsets
