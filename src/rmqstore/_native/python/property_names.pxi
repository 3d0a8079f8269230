# RocketMQ's reserved property names, and one shared text for each.
#
# Source: common/message/MessageConst.java

cdef enum:
    NAME_PLACES = 256            # two names at one place: the later one is decoded each time

cdef tuple RESERVED_NAMES = tuple((
    "KEYS TAGS WAIT DELAY RETRY_TOPIC REAL_TOPIC REAL_QID TRAN_MSG PGROUP MIN_OFFSET MAX_OFFSET "
    "BUYER_ID ORIGIN_MESSAGE_ID TRANSFER_FLAG CORRECTION_FLAG MQ2_FLAG RECONSUME_TIME MSG_REGION "
    "TRACE_ON UNIQ_KEY MAX_RECONSUME_TIMES CONSUME_START_TIME TRAN_PREPARED_QUEUE_OFFSET "
    "TRANSACTION_CHECK_TIMES CHECK_IMMUNITY_TIME_IN_SECONDS INSTANCE_ID CORRELATION_ID "
    "REPLY_TO_CLIENT TTL ARRIVE_TIME PUSH_REPLY_TIME CLUSTER MSG_TYPE INNER_MULTI_DISPATCH "
    "INNER_MULTI_QUEUE_OFFSET __CRC32#").split())
cdef frozenset RESERVED_PROPERTIES = frozenset(RESERVED_NAMES)


cdef struct NameText:
    const char *name             # of the text
    int64_t length
    PyObject *text               # RESERVED_NAMES holds it


# Filled once, when the module is loaded.
cdef NameText[NAME_PLACES] NAME_TEXTS


cdef inline int64_t name_place(const char *name, int64_t length) noexcept nogil:
    return (<uint8_t>name[0] + 63 * <uint8_t>name[length - 1] + 8 * length) % NAME_PLACES


cdef object name_text(const char *name, int64_t length):
    """Text of a property's name, mostly a shared one."""
    cdef const NameText *known
    if length > 0:
        known = &NAME_TEXTS[name_place(name, length)]
        if known.length == length and memcmp(known.name, name, <size_t>length) == 0:
            return <object>known.text
    return text_of(name, length)


cdef int init_property_names() except -1:
    cdef NameText entry
    cdef Py_ssize_t length = 0
    cdef int64_t place
    for name in RESERVED_NAMES:
        entry.name = PyUnicode_AsUTF8AndSize(name, &length)
        entry.length = length
        entry.text = <PyObject *>name
        place = name_place(entry.name, entry.length)
        if NAME_TEXTS[place].text == NULL:
            NAME_TEXTS[place] = entry
    return 0


init_property_names()
