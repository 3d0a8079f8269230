# Frames of answers, and of requests to clients, from Python values.
#
# Source: remoting/protocol/RemotingCommand.java encode

cdef int add_json(Text *into, object value) except -1:
    """Append a str as a JSON string; half of a surrogate pair is a question mark, as in Java."""
    cdef Py_ssize_t length = 0
    cdef const char *data
    cdef bytes plain
    if not PyUnicode_Check(value):
        value = str(value)
    try:
        data = PyUnicode_AsUTF8AndSize(value, &length)
    except UnicodeEncodeError:
        plain = value.encode("utf-8", "replace")
        data = PyBytes_AS_STRING(plain)
        length = PyBytes_GET_SIZE(plain)
    if text_add_json(into, data, length) < 0:
        raise MemoryError()
    return 0


cdef int add_word(Text *into, const char *word) except -1:
    if text_reserve(into, <int64_t>strlen(word) + 24) < 0:
        raise MemoryError()
    text_add_word(into, word)
    return 0


def encode_frame(int32_t code, fields, const unsigned char[::1] body not None, int32_t opaque,
                 int32_t flag, remark):
    """Bytes of an answer, or of a request with a flag without its lowest bit.

    Raises ValueError if the body is too long for any frame.
    """
    cdef char[1024] memory
    cdef Text text
    cdef bytes out
    cdef char *at
    cdef bint first = True
    cdef int64_t size = len(body)
    text_init(&text, memory, 1024)
    try:
        if size > FRAME_MAX:
            raise ValueError(f"a body of {size} bytes; a frame may have {FRAME_MAX}")
        frame_begin(&text)
        add_word(&text, b"{\"code\":")
        text_add_number(&text, code)
        if fields is not None:
            add_word(&text, b",\"extFields\":{")
            for name, value in fields.items():
                if value is None:
                    continue
                if not first:
                    add_word(&text, b",")
                first = False
                add_json(&text, name)
                add_word(&text, b":")
                add_json(&text, value)
            add_word(&text, b"}")
        add_word(&text, b",\"flag\":")
        text_add_number(&text, flag)
        add_word(&text, b",\"language\":\"JAVA\",\"opaque\":")
        text_add_number(&text, opaque)
        if remark is not None:
            add_word(&text, b",\"remark\":")
            add_json(&text, remark)
        add_word(&text, b",\"serializeTypeCurrentRPC\":\"JSON\",\"version\":399}")
        frame_header_ends(&text, 0, size)
        out = PyBytes_FromStringAndSize(NULL, text.length + size)
        at = PyBytes_AS_STRING(out)
        memcpy(at, text.data, <size_t>text.length)
        if size:
            memcpy(at + text.length, &body[0], <size_t>size)
        return out
    finally:
        text_free(&text)
