# Frames of answers and requests, with a JSON header, which every client reads.
#
# Source: remoting/protocol/RemotingCommand.java encodeHeader; fastjson's order of names

cdef inline void text_add_number(Text *into, int64_t value) noexcept nogil:
    """Append a decimal number.  REQUIRES: there is room for 20 bytes."""
    cdef char[24] digits
    cdef int64_t at = 24
    cdef uint64_t rest = <uint64_t>value if value >= 0 else 0 - <uint64_t>value
    while True:
        at -= 1
        digits[at] = <char>(48 + rest % 10)
        rest //= 10
        if rest == 0:
            break
    if value < 0:
        at -= 1
        digits[at] = c'-'
    text_add(into, digits + at, 24 - at)


cdef inline void text_add_word(Text *into, const char *word) noexcept nogil:
    """Append a constant.  REQUIRES: there is room."""
    text_add(into, word, <int64_t>strlen(word))


cdef int64_t text_add_json(Text *into, const char *data, int64_t length) noexcept nogil:
    """Append UTF-8 as a JSON string, in quotes: 0 or E_NO_MEMORY."""
    cdef int64_t i
    cdef unsigned char c
    cdef char *to
    if text_reserve(into, 6 * length + 2) < 0:
        return E_NO_MEMORY
    to = into.data + into.length
    to[0] = c'"'
    to += 1
    for i in range(length):
        c = <unsigned char>data[i]
        if c >= 32 and c != 34 and c != 92:
            to[0] = <char>c
            to += 1
        elif c == 34 or c == 92:
            to[0] = c'\\'
            to[1] = <char>c
            to += 2
        else:
            memcpy(to, b"\\u00", 4)
            put_hex(to + 4, c, 2)
            to += 6
    to[0] = c'"'
    into.length = to + 1 - into.data
    return 0


cdef inline int64_t frame_begin(Text *into) noexcept nogil:
    """Begin a frame, whose lengths are filled in at its end; its position, or E_NO_MEMORY."""
    if text_reserve(into, 64) < 0:
        return E_NO_MEMORY
    into.length += FRAME_HEAD_BYTES
    return into.length - FRAME_HEAD_BYTES


cdef inline void frame_header_ends(Text *into, int64_t start, int64_t body_length) noexcept nogil:
    """Fill in the lengths of the frame that begins at ``start``."""
    cdef int64_t length = into.length - start - FRAME_HEAD_BYTES
    put_i32(into.data + start, <int32_t>(4 + length + body_length))
    put_i32(into.data + start + 4, <int32_t>length)
