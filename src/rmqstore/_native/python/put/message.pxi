# put: one row from its arguments, without Python code between them and the log.
#
# Source: store/DefaultMessageStore.java putMessage; common/message/Message.java, MessageConst.java

cdef enum:
    STACK_TEXT = 1024            # bytes of properties kept on the stack

cdef object ZERO = 0
cdef ColumnInput KEYS_ARGUMENT = ColumnInput(
    "keys", "a str, keys separated by spaces, or an iterable of str without spaces", NULLABLE)


cdef inline int text_argument(str argument, object value, Span *span) except -1:
    """Check the text of a property."""
    span.data = utf8_of(argument, value, &span.length)
    if text_is_bad(span.data, span.length):
        raise illegal(f"{argument} must not contain {SEPARATORS}, got {arguments.shown(value)}")
    return 0


cdef int take_tags(object tags, Row *row) except -1:
    """Set the tags."""
    text_argument("tags", tags, &row.tags)
    if tags_are_split(row.tags.data, row.tags.length):
        raise illegal(f"tags must not contain {TAG_SEPARATOR}, got {arguments.shown(tags)}")
    return 0


cdef bint is_mapping(object value) except -1:
    """Whether it is a mapping; given a tuple, Cython drops an error of the second check."""
    return isinstance(value, dict) or isinstance(value, Mapping)


cdef int add_properties(object mapping, Text *text, int64_t start) except -1:
    """Append the caller's own properties to the string that begins at ``start``, in their order."""
    cdef Span name
    cdef Span value
    if not is_mapping(mapping):
        raise arguments.wrong_type("properties", "a mapping of str to str", mapping)
    for key, item in mapping.items():
        if not PyUnicode_Check(key) or not PyUnicode_Check(item):
            raise TypeError("properties must map str to str, got "
                            f"{arguments.shown(key)}: {arguments.shown(item)}")
        if key in RESERVED_PROPERTIES:
            raise illegal(f"properties must not have {key!r}, a name that RocketMQ reserves")
        text_argument("properties", key, &name)
        text_argument("properties", item, &value)
        if name.length == 0 or value.length == 0:
            raise illegal(f"properties must not have an empty name or value, which readers drop, "
                          f"got {key!r}: {item!r}")
        if text_reserve(text, name.length + value.length + 2) < 0:
            raise MemoryError()
        text_add_property(text, start, name.data, name.length, value.data, value.length)
    return 0


cdef int take_unique(object uniq_key, Row *row, PutResult result) except -1:
    """Set the unique key: True makes one, a str is used, False means none."""
    if uniq_key is True:
        unique_key_write(&unique_keys, unique_keys_take(&unique_keys, row.born_timestamp, 1),
                         result.key)
        result.generated = True
        row.unique.data = result.key
        row.unique.length = UNIQUE_KEY_BYTES
    elif uniq_key is not False:
        if not PyUnicode_Check(uniq_key):
            raise arguments.wrong_type("uniq_key", "True, False or a str", uniq_key)
        if not uniq_key:
            raise arguments.wrong_value("uniq_key", "True, False or a str that is not empty", "")
        text_argument("uniq_key", uniq_key, &row.unique)
        result.given_key = uniq_key
    return 0


cdef int take_group(object producer_group, Row *row) except -1:
    """Set the producer group of a half message."""
    if not PyUnicode_Check(producer_group):
        raise arguments.wrong_type("producer_group", "a str", producer_group)
    if not producer_group:
        raise arguments.wrong_value("producer_group", "a str that is not empty", "")
    return text_argument("producer_group", producer_group, &row.producer_group)


cdef object take_keys(object keys, Row *row):
    """Set the keys; returns the str that owns their text."""
    keys = joined_keys(KEYS_ARGUMENT, -1, keys)
    if keys is not None:
        text_argument("keys", keys, &row.keys)
    return keys


cdef int take_wait(
    OpenStore engine, object delay_level, object producer_group, Row *row,
) except -1:
    """Set the delay level, or the producer group of a half message."""
    if delay_level is not ZERO:
        if isinstance(delay_level, str):
            delay_level = arguments.named_delay(delay_level, engine._config.message_delay_level)
        # A level above the highest is the highest, as in 4.9.3.
        row.delay_level = min(int_argument("delay_level", delay_level, 0, INT32_MAX),
                              engine.store.settings.delay_count)
    if producer_group is not None:
        take_group(producer_group, row)
        row.later = HALF_LATER_BYTES
    if unlikely(row.delay_level > 0 or producer_group is not None) and topic_waits(&row.topic):
        raise illegal("topic of a message that waits must not be one of those in which they wait, "
                      f"got {arguments.shown(text_of(row.topic.data, row.topic.length))}")
    return 0


cdef bytes take_light_queues(object lite_topics, Row *row):
    """Set the further queues; returns the bytes that own their names."""
    cdef bytes names = light_names(lite_topics)
    row.multi.data = names
    row.multi.length = len(names)
    if row.delay_level > 0 and row.multi.length > 0:
        raise ValueError("lite_topics and delay_level must not be given both: the message would be "
                         "in the light queues before it is due")
    return names


cdef bint take_body(object body, Row *row, Py_buffer *view) except -1:
    """Set the body; returns whether ``view`` must be released after use."""
    if PyBytes_CheckExact(body):
        row.body.data = PyBytes_AS_STRING(body)
        row.body.length = PyBytes_GET_SIZE(body)
        return False
    try:
        if not PyBytes_Check(body) and holds_objects(body):
            raise TypeError()
        PyObject_GetBuffer(body, view, PyBUF_SIMPLE)
    except TypeError:
        raise arguments.wrong_type(
            "body", "bytes or another C-contiguous buffer", body) from None
    except BufferError as error:
        raise ValueError("body must be bytes or another C-contiguous buffer, got "
                         f"{arguments.shown(body)}: {error}") from None
    row.body.data = bytes_of(view)
    row.body.length = view.len
    row.volatile_body = True                 # even under a read-only view
    return True


cdef object pack_body(OpenStore engine, object body, Row *row):
    """Deflate a body that is large enough; returns the object that owns the bytes to store."""
    if not isinstance(body, bodies.Deflated):
        if row.body.length < max(1, engine.store.settings.compress_above):
            return body
        body = deflated(engine._config, body, row.body.length, "body")
    row.body.data = PyBytes_AS_STRING(body)
    row.body.length = PyBytes_GET_SIZE(body)
    row.volatile_body = False
    row.sys_flag = SYS_COMPRESSED
    return body


cdef int64_t choose_queue(
    OpenStore engine, Topic *topic, object queue_id, object queue_key,
) except -1:
    """Queue id: as given, by key, or round-robin; ``topic`` is NULL if it is yet to be created."""
    cdef int64_t queue_nums = engine.store.settings.default_queue_nums
    cdef int64_t number = -1
    cdef int how = QUEUE_IN_TURN
    cdef Span text
    if topic != NULL:
        queue_nums = max(1, atomic_peek(&topic.write_queue_nums))
    if queue_id is not None:
        if queue_key is not None:
            raise ValueError("queue_id and queue_key must not be given both")
        return int_argument("queue_id", queue_id, 0, INT32_MAX)
    if PyUnicode_Check(queue_key):
        text.data = utf8_of("queue_key", queue_key, &text.length)
        how = QUEUE_BY_TEXT
    elif isinstance(queue_key, (bytes, bytearray, memoryview)):
        number = <int64_t><uint64_t>arrays.bytes_hash(queue_key)
        how = QUEUE_BY_HASH
    elif queue_key is not None:
        number = int_argument("queue_key", queue_key, -INT32_MAX - 1, INT32_MAX)
        how = QUEUE_BY_NUMBER
    return queue_of(how, number, &text, topic, queue_nums)


cdef PutResult put_message(
    OpenStore engine, object topic, object body, object queue_id, object queue_key, object tags,
    object keys, object properties, object flag, object delay_level, object born_timestamp,
    object born_host, object uniq_key, object lite_topics, object producer_group, bint wait,
):
    """Store one message, or with a producer group the half message of a transaction."""
    cdef Store *store = engine.store
    cdef Limits limits
    cdef char[STACK_TEXT] memory
    cdef Row row = NO_ROW
    cdef Text own                            # the caller's properties
    cdef Topic *to
    cdef Py_buffer view
    cdef bint viewed = False
    cdef PutResult result = PutResult.__new__(PutResult)
    text_init(&own, memory, STACK_TEXT)
    store_puttable(store, engine._path)
    try:
        limits = limits_of(store)
        row.topic.data = utf8_of("topic", topic, &row.topic.length)
        to = known_topic(engine, &row.topic)
        if to == NULL:
            check_topic(row.topic.data, row.topic.length, topic)
        row.queue_id = choose_queue(engine, to, queue_id, queue_key)
        if flag is not ZERO:
            row.flag = <int32_t>int_argument("flag", flag, -INT32_MAX - 1, INT32_MAX)
        row.born_timestamp = limits.now
        if properties is not None:
            add_properties(properties, &own, 0)
            row.properties.data = own.data
            row.properties.length = own.length
        if keys is not None:
            keys = take_keys(keys, &row)
        if tags is not None:
            take_tags(tags, &row)
        take_unique(uniq_key, &row, result)
        if born_timestamp is not None:
            row.born_timestamp = times.to_millis(born_timestamp, name="born_timestamp")
        if born_host is not None:
            row.born_host_length = host_bytes("born_host", born_host, row.born_host)
        take_wait(engine, delay_level, producer_group, &row)
        if lite_topics is not None:
            lite_topics = take_light_queues(lite_topics, &row)
        viewed = take_body(body, &row, &view)
        if unlikely(store.settings.compress_above >= 0):
            body = pack_body(engine, body, &row)
        check_row_size(&limits, &row)
        # Only now, so that a refused message creates no topic.
        if to == NULL:
            to = writable_topic(engine, &row.topic)
        append_row(engine, &row, to, wait, result)
    finally:
        text_free(&own)
        if viewed:
            PyBuffer_Release(&view)
        store_leave(store)
    return result


cdef Topic *waiting_topic(OpenStore engine, const Row *row, Topic *topic) except NULL:
    """Topic to store a message in: its own, the schedule topic, or the half topic."""
    cdef Span half
    if row.delay_level > 0:
        topic = topic_enter(&engine.store.table, SCHEDULE_TOPIC, SCHEDULE_TOPIC_LENGTH)
    elif row.producer_group.length > 0:
        half.data = HALF_TOPIC
        half.length = HALF_TOPIC_LENGTH
        topic = writable_topic(engine, &half)
    if topic == NULL:
        raise MemoryError()
    return topic


cdef inline int32_t waiting_queue_id(const Row *row) noexcept nogil:
    """Queue id to store a message in, within waiting_topic."""
    if row.delay_level > 0:
        return <int32_t>(row.delay_level - 1)
    return 0 if row.producer_group.length > 0 else <int32_t>row.queue_id


cdef int append_row(
    OpenStore engine, const Row *row, Topic *topic, bint wait, PutResult result,
) except -1:
    """Lay out a checked row, append it, and with synchronous flush wait for the disk."""
    cdef Store *store = engine.store
    cdef Topic *to = waiting_topic(engine, row, topic)
    cdef int32_t queue_id = waiting_queue_id(row)
    cdef char[STACK_TEXT] memory
    cdef Text text
    cdef Encoded message
    cdef AppendResult appended
    cdef Append append
    cdef Queue *queue
    message.multi = NULL
    text_init(&text, memory, STACK_TEXT)
    try:
        if row_encode(&store.settings, row, to, queue_id, &text, &message) < 0:
            raise MemoryError()
        if row.multi.length > 0:
            check_multi(engine, row_encode_multi(store, row, queue_id, &text, &message))
        message.properties = text.data + <int64_t>message.properties
        queue = writable_queue(engine, to, queue_id)
        append = Append(&message, &queue, &appended, 1, message.size, APPEND_WHOLE)
        append_one(engine, &append, wait, result)
    finally:
        free(message.multi)
        text_free(&text)
    return 0
