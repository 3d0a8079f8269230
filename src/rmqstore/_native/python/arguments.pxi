# Single-value arguments: text, integers, hosts, topics.
#
# Source: common/message/Message.java; topics: common/topic/TopicValidator.java

cdef extern from "Python.h":
    const char *utf8_or_error "PyUnicode_AsUTF8AndSize"(PyObject *text, Py_ssize_t *length)


cdef str TOPIC_RULE = "1 to 127 of [%|a-zA-Z0-9_-]"
cdef str HOST_RULE = "'ip:port' or '[ipv6]:port'"
cdef str TAG_SEPARATOR = "'||', at which a filter splits its tags: it would match none"
cdef str SEPARATORS = f"\\x01, \\x02 or {TORN_BYTES} times \\x00 in a row"


cdef object illegal(str problem, object status=types.PutStatus.MESSAGE_ILLEGAL):
    return errors.MessageIllegalError(problem, status=status)


cdef int refuse_text(str argument, object value) except -1:
    """Raise for a str that UTF-8 cannot write, or that it has no memory for."""
    PyErr_Clear()
    try:
        PyUnicode_AsUTF8AndSize(value, NULL)
    except UnicodeEncodeError as error:
        raise ValueError(f"{argument} must be text that UTF-8 can write, got {value!r}: "
                         f"{error.reason}") from None
    raise MemoryError()


cdef inline const char *utf8_of(str argument, object value, int64_t *length) except NULL:
    """UTF-8 of a str; raises for a lone surrogate."""
    cdef Py_ssize_t size = 0
    cdef const char *data
    if not PyUnicode_Check(value):
        raise arguments.wrong_type(argument, "str", value)
    data = utf8_or_error(<PyObject *>value, &size)
    if data == NULL:
        refuse_text(argument, value)
    length[0] = size
    return data


cdef inline const char *bytes_of(const Py_buffer *view) noexcept nogil:
    """Bytes of a contiguous buffer; never NULL, unlike some exporters' empty buffers."""
    if view.buf == NULL:
        return b""
    return <const char *>view.buf


cdef int64_t int_argument(str argument, object value, int64_t low, int64_t high) except? -1:
    cdef int overflow = 0
    cdef int64_t number
    if not PyIndex_Check(value) or isinstance(value, bool):
        raise arguments.wrong_type(argument, f"int from {low} to {high}", value)
    number = PyLong_AsLongLongAndOverflow(PyNumber_Index(value), &overflow)
    if overflow or number < low or number > high:
        raise arguments.wrong_value(argument, f"{low} to {high}", value)
    return number


cdef int host_bytes(str argument, object value, char *into) except -1:
    """Parse a host argument of put."""
    cdef const char *text
    cdef int64_t length = 0
    cdef int64_t size
    if not PyUnicode_Check(value):
        raise arguments.wrong_type(argument, "str 'ip:port'", value)
    text = utf8_of(argument, value, &length)
    size = host_parse(text, length, into)
    if size > 0:
        return <int>size
    raise arguments.wrong_value(argument, HOST_RULE, value)


cdef int check_topic(const char *name, int64_t length, object topic) except -1:
    if not topic_name_writable(name, length):
        raise errors.MessageIllegalError(
            f"topic must be {TOPIC_RULE}, got {arguments.shown(topic)}",
            status=types.PutStatus.MESSAGE_ILLEGAL)
    return 0
