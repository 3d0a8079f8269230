# Arguments of put -> the properties string and the draft; every limit is checked here.
#
# Source: common/message/Message.java, common/message/MessageConst.java,
#         store/DefaultMessageStore.java checkMessage

cdef enum:
    TEXT_ROOM = 1024
    HOST_TEXT_ROOM = 64          # an address and its port are shorter

# A string that grows: on the stack at first.
cdef struct Text:
    char *data
    int64_t length
    int64_t room
    bint owned
    char first[TEXT_ROOM]

cdef frozenset RESERVED_PROPERTIES = frozenset((
    "KEYS TAGS WAIT DELAY RETRY_TOPIC REAL_TOPIC REAL_QID TRAN_MSG PGROUP MIN_OFFSET MAX_OFFSET "
    "BUYER_ID ORIGIN_MESSAGE_ID TRANSFER_FLAG CORRECTION_FLAG MQ2_FLAG RECONSUME_TIME MSG_REGION "
    "TRACE_ON UNIQ_KEY MAX_RECONSUME_TIMES CONSUME_START_TIME TRAN_PREPARED_QUEUE_OFFSET "
    "TRANSACTION_CHECK_TIMES CHECK_IMMUNITY_TIME_IN_SECONDS INSTANCE_ID CORRELATION_ID "
    "REPLY_TO_CLIENT TTL ARRIVE_TIME PUSH_REPLY_TIME CLUSTER MSG_TYPE INNER_MULTI_DISPATCH "
    "INNER_MULTI_QUEUE_OFFSET __CRC32#").split())


cdef inline void text_init(Text *text) noexcept nogil:
    text.data = text.first
    text.length = 0
    text.room = TEXT_ROOM
    text.owned = False


cdef inline void text_free(Text *text) noexcept nogil:
    if text.owned:
        free(text.data)
        text.owned = False


cdef int text_grow(Text *text, int64_t length) except -1:
    cdef int64_t room = text.room
    cdef char *data
    while room < text.length + length:
        room *= 2
    data = <char *>realloc(text.data if text.owned else NULL, <size_t>room)
    if data == NULL:
        raise MemoryError()
    if not text.owned:
        memcpy(data, text.data, <size_t>text.length)
    text.data = data
    text.room = room
    text.owned = True
    return 0


cdef inline int text_add(Text *text, const char *data, int64_t length) except -1:
    if text.length + length > text.room:
        text_grow(text, length)
    memcpy(text.data + text.length, data, <size_t>length)
    text.length += length
    return 0


cdef inline int text_add_property(
    Text *text, const char *name, int64_t name_length, const char *value, int64_t value_length,
) except -1:
    """``name 0x01 value``, after a 0x02 unless it is the first."""
    cdef int64_t length = name_length + value_length + 2
    cdef char *at
    if text.length + length > text.room:
        text_grow(text, length)
    at = text.data + text.length
    if text.length:
        at[0] = PROPERTY_VALUE_END
        at += 1
    memcpy(at, name, <size_t>name_length)
    at[name_length] = PROPERTY_NAME_END
    memcpy(at + name_length + 1, value, <size_t>value_length)
    text.length = at + name_length + 1 + value_length - text.data
    return 0


cdef inline const char *utf8_of(str argument, object value, int64_t *length) except NULL:
    """The UTF-8 of a str; a lone surrogate has none."""
    cdef Py_ssize_t size = 0
    cdef const char *data
    if not PyUnicode_Check(value):
        raise TypeError(f"argument '{argument}' is {value!r}; it may be a str")
    try:
        data = PyUnicode_AsUTF8AndSize(value, &size)
    except UnicodeEncodeError as error:
        raise ValueError(f"argument '{argument}' is {value!r}: {error.reason}") from None
    length[0] = size
    return data


cdef int refuse_separators(str argument, const char *data, int64_t length) except -1:
    """0x01 and 0x02 would end a property."""
    cdef int64_t i
    for i in range(length):
        if data[i] == PROPERTY_NAME_END or data[i] == PROPERTY_VALUE_END:
            raise errors.MessageIllegalError(
                f"argument '{argument}' is {text_of(data, length)!r}; it may not contain "
                "\\x01 or \\x02", status=types.PutStatus.MESSAGE_ILLEGAL)
    if has_zero_run(data, length):
        raise errors.MessageIllegalError(
            f"argument '{argument}' has {TORN_BYTES} times \\x00 in a row; it may have fewer: a "
            "recovery takes that for a torn record", status=types.PutStatus.MESSAGE_ILLEGAL)
    return 0


cdef int properties_add(object mapping, Text *text) except -1:
    """Append the caller's own properties, in their order."""
    cdef const char *name
    cdef const char *value
    cdef int64_t name_length = 0
    cdef int64_t value_length = 0
    if not isinstance(mapping, Mapping):
        raise TypeError(f"argument 'properties' is {mapping!r}; it may be a mapping of str to str")
    for key, item in mapping.items():
        if not PyUnicode_Check(key) or not PyUnicode_Check(item):
            raise TypeError(f"argument 'properties' has {key!r}: {item!r}; both may be a str only")
        if key in RESERVED_PROPERTIES:
            raise errors.MessageIllegalError(
                f"argument 'properties' has {key!r}, a name that RocketMQ reserves",
                status=types.PutStatus.MESSAGE_ILLEGAL)
        name = utf8_of("properties", key, &name_length)
        value = utf8_of("properties", item, &value_length)
        refuse_separators("properties", name, name_length)
        refuse_separators("properties", value, value_length)
        if name_length == 0 or value_length == 0:
            raise errors.MessageIllegalError(
                f"argument 'properties' has {key!r}: {item!r}; neither may be empty: a reader "
                "drops such a property", status=types.PutStatus.MESSAGE_ILLEGAL)
        text_add_property(text, name, name_length, value, value_length)
    return 0


cdef int encode_properties(object mapping, bytearray out) except -1:
    """The same for a column: every entry ends with 0x02."""
    cdef Text text
    text_init(&text)
    try:
        properties_add(mapping, &text)
        if text.length:
            out += text.data[:text.length]
            out += b"\x02"
    finally:
        text_free(&text)
    return 0


cdef int64_t host_parse(const char *text, int64_t length, char *into) noexcept nogil:
    """ "ip:port" or "[v6]:port" -> address and port; the number of bytes, 8 or 20, or 0."""
    cdef char address[HOST_TEXT_ROOM]
    cdef int64_t colon = length - 1
    cdef int64_t port
    while colon >= 0 and text[colon] != c':':
        colon -= 1
    port = parse_decimal(text + colon + 1, length - colon - 1)
    if not 0 < colon < HOST_TEXT_ROOM or length - colon > 11 or not 0 <= port <= INT32_MAX \
            or memchr(text, 0, <size_t>colon) != NULL:
        return 0
    if text[0] == c'[' and text[colon - 1] == c']':
        memcpy(address, text + 1, <size_t>(colon - 2))
        address[colon - 2] = 0
        if inet_pton(AF_INET6, address, into) == 1:
            put_i32(into + 16, <int32_t>port)
            return HOST_V6_BYTES
        return 0
    memcpy(address, text, <size_t>colon)
    address[colon] = 0
    if inet_pton(AF_INET, address, into) == 1:
        put_i32(into + 4, <int32_t>port)
        return HOST_V4_BYTES
    return 0


cdef int host_bytes(str argument, object value, char *into) except -1:
    """The same for an argument of put."""
    cdef const char *text
    cdef int64_t length = 0
    cdef int64_t size
    if not PyUnicode_Check(value):
        raise TypeError(f"argument '{argument}' is {value!r}; it may be a str 'ip:port'")
    text = utf8_of(argument, value, &length)
    size = host_parse(text, length, into)
    if size > 0:
        return <int>size
    raise ValueError(
        f"argument '{argument}' is {value!r}; it may be 'ip:port' or '[ipv6]:port'")


cdef int64_t int_argument(str argument, object value, int64_t low, int64_t high) except? -1:
    cdef int overflow = 0
    cdef int64_t number
    if not PyIndex_Check(value) or isinstance(value, bool):
        raise TypeError(
            f"argument '{argument}' is {value!r}; it may be an int from {low} to {high}")
    number = PyLong_AsLongLongAndOverflow(PyNumber_Index(value), &overflow)
    if overflow or number < low or number > high:
        raise ValueError(f"argument '{argument}' is {value!r}; it may be from {low} to {high}")
    return number


cdef int check_topic(const char *name, int64_t length, object topic) except -1:
    if not topic_name_good(name, length):
        raise errors.MessageIllegalError(
            f"argument 'topic' is {topic!r}; it may be 1 to 127 of [%|a-zA-Z0-9_-]",
            status=types.PutStatus.MESSAGE_ILLEGAL)
    return 0


cdef int check_draft(Draft *draft, int64_t max_message_size, int64_t file_size) except -1:
    """Limits of properties and record; sets the size."""
    cdef int64_t size
    if draft.properties_length > PROPERTIES_MAX_BYTES:
        raise errors.MessageIllegalError(
            f"the properties take {draft.properties_length} bytes; they may take "
            f"{PROPERTIES_MAX_BYTES}", status=types.PutStatus.PROPERTIES_SIZE_EXCEEDED)
    size = draft_size(draft)
    if size > max_message_size:
        raise errors.MessageIllegalError(
            f"the record takes {size} bytes; max_message_size is {max_message_size}",
            status=types.PutStatus.MESSAGE_ILLEGAL)
    if size + RECORD_BLANK_BYTES > file_size:
        raise errors.MessageIllegalError(
            f"the record takes {size} bytes; a commit log file of {file_size} holds "
            f"{file_size - RECORD_BLANK_BYTES}", status=types.PutStatus.MESSAGE_ILLEGAL)
    draft.size = <int32_t>size
    return 0
