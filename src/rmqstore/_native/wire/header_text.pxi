# Pieces of a frame's header, unconverted: JSON strings with their escapes, or bytes.
#
# Source: remoting/protocol/RemotingSerializable.java decode; com.alibaba.fastjson JSONLexerBase

cdef enum:
    WIRE_DEPTH = 60              # levels of nested JSON objects and arrays

cdef struct WireText:
    const char *data
    int64_t length               # -1: absent or null
    bint escaped                 # has backslashes


cdef inline int wire_hex_digit(char c) noexcept nogil:
    """Value of a hexadecimal digit, -1 for anything else."""
    if 48 <= c <= 57:
        return c - 48
    if 97 <= c <= 102:
        return c - 87
    if 65 <= c <= 70:
        return c - 55
    return -1


cdef inline int32_t wire_hex_unit(const char *at) noexcept nogil:
    """Four hexadecimal digits, or -1."""
    cdef int32_t value = 0
    cdef int digit
    cdef int64_t i
    for i in range(4):
        digit = wire_hex_digit(at[i])
        if digit < 0:
            return -1
        value = value << 4 | digit
    return value


cdef inline const char *wire_space(const char *at, const char *end) noexcept nogil:
    while at < end and (at[0] == 32 or at[0] == 10 or at[0] == 13 or at[0] == 9):
        at += 1
    return at


cdef const char *wire_string(const char *at, const char *end, WireText *into) noexcept nogil:
    """Read a string at its opening quote; the byte after it, NULL if invalid."""
    into.escaped = False
    if at >= end or at[0] != c'"':
        return NULL
    at += 1
    into.data = at
    while at < end:
        if at[0] == c'"':
            into.length = at - into.data
            return at + 1
        if at[0] == c'\\':
            into.escaped = True
            at += 1
            if at >= end:
                return NULL
            if at[0] == c'u':
                if end - at < 5 or wire_hex_unit(at + 1) < 0:
                    return NULL
                at += 4
            elif memchr(b"\"\\/bfnrt", at[0], 8) == NULL:
                return NULL
        at += 1
    return NULL


cdef const char *wire_digits(const char *at, const char *end) noexcept nogil:
    """Read digits, at least one; the byte after them, or NULL."""
    cdef const char *first = at
    while at < end and 48 <= at[0] <= 57:
        at += 1
    return at if at > first else NULL


cdef const char *wire_number(const char *at, const char *end, WireText *into) noexcept nogil:
    """Read a number; the byte after it, NULL if invalid."""
    cdef const char *first = at
    into.data = at
    into.escaped = False
    if at < end and at[0] == c'-':
        at += 1
        first = at
    at = wire_digits(at, end)
    if at == NULL or (first[0] == c'0' and at - first > 1):
        return NULL
    if at < end and at[0] == c'.':
        at = wire_digits(at + 1, end)
        if at == NULL:
            return NULL
    if at < end and (at[0] == c'e' or at[0] == c'E'):
        at += 1
        if at < end and (at[0] == c'+' or at[0] == c'-'):
            at += 1
        at = wire_digits(at, end)
        if at == NULL:
            return NULL
    into.length = at - into.data
    return at


cdef inline bint wire_word(
    const char *at, const char *end, const char *word, int64_t length,
) noexcept nogil:
    return end - at >= length and memcmp(at, word, <size_t>length) == 0


# Kind of a value.
cdef enum:
    WIRE_IS_TEXT
    WIRE_IS_NUMBER
    WIRE_IS_BOOLEAN
    WIRE_IS_NULL
    WIRE_IS_NESTED                  # an object or an array: its bytes are not kept


cdef const char *wire_plain(
    const char *at, const char *end, WireText *into, int *kind,
) noexcept nogil:
    """Read a value other than object or array; the byte after it, or NULL."""
    into.length = -1
    into.escaped = False
    if at >= end:
        return NULL
    if at[0] == c'"':
        kind[0] = WIRE_IS_TEXT
        return wire_string(at, end, into)
    into.data = at
    kind[0] = WIRE_IS_BOOLEAN
    if wire_word(at, end, b"true", 4):
        into.length = 4
        return at + 4
    if wire_word(at, end, b"false", 5):
        into.length = 5
        return at + 5
    kind[0] = WIRE_IS_NULL
    if wire_word(at, end, b"null", 4):
        return at + 4
    kind[0] = WIRE_IS_NUMBER
    return wire_number(at, end, into)


cdef const char *wire_name(const char *at, const char *end, WireText *into) noexcept nogil:
    """Read a member's name and its colon; the byte after it, or NULL."""
    at = wire_string(wire_space(at, end), end, into)
    if at == NULL:
        return NULL
    at = wire_space(at, end)
    return at + 1 if at < end and at[0] == c':' else NULL


cdef const char *wire_nested(const char *at, const char *end, int64_t depth) noexcept nogil:
    """Skip an object or an array at nesting ``depth``; the byte after it, or NULL.

    Without recursion: ``kinds`` has a set bit for each level that is an object.
    """
    cdef uint64_t kinds = 0
    cdef int64_t inside = depth
    cdef WireText text
    cdef int kind = 0
    cdef bint opened
    while True:
        at = wire_space(at, end)
        if at >= end:
            return NULL
        if at[0] == c'{' or at[0] == c'[':
            if inside == WIRE_DEPTH:
                return NULL
            inside += 1
            kinds = kinds << 1 | (at[0] == c'{')
            at = wire_space(at + 1, end)
            opened = not (at < end and at[0] == (c'}' if kinds & 1 else c']'))
            if opened and kinds & 1:
                at = wire_name(at, end, &text)
                if at == NULL:
                    return NULL
            if opened:
                continue
        else:
            at = wire_plain(at, end, &text, &kind)
            if at == NULL:
                return NULL
        while True:                          # a value has ended, or is about to
            at = wire_space(at, end)
            if at >= end:
                return NULL
            if at[0] == c',':
                at += 1
                if kinds & 1:
                    at = wire_name(at, end, &text)
                    if at == NULL:
                        return NULL
                break
            if at[0] != (c'}' if kinds & 1 else c']'):
                return NULL
            at += 1
            kinds >>= 1
            inside -= 1
            if inside == depth:
                return at


cdef const char *wire_value(
    const char *at, const char *end, int64_t depth, WireText *into, int *kind,
) noexcept nogil:
    """Read any value within ``depth`` others; the byte after it, or NULL."""
    at = wire_space(at, end)
    if at < end and (at[0] == c'{' or at[0] == c'['):
        kind[0] = WIRE_IS_NESTED
        into.length = -1
        into.escaped = False
        return wire_nested(at, end, depth)
    return wire_plain(at, end, into, kind)


cdef inline int64_t utf8_put(char *into, uint32_t code) noexcept nogil:
    """Write a character; its bytes."""
    if code < 0x80:
        into[0] = <char>code
        return 1
    if code < 0x800:
        into[0] = <char>(0xC0 | code >> 6)
        into[1] = <char>(0x80 | (code & 0x3F))
        return 2
    if code < 0x10000:
        into[0] = <char>(0xE0 | code >> 12)
        into[1] = <char>(0x80 | (code >> 6 & 0x3F))
        into[2] = <char>(0x80 | (code & 0x3F))
        return 3
    into[0] = <char>(0xF0 | code >> 18)
    into[1] = <char>(0x80 | (code >> 12 & 0x3F))
    into[2] = <char>(0x80 | (code >> 6 & 0x3F))
    into[3] = <char>(0x80 | (code & 0x3F))
    return 4


cdef inline uint32_t escape_code(const char *at, int64_t room, int64_t *took) noexcept nogil:
    """Character of a checked escape at a backslash, and the bytes consumed.

    A lone surrogate becomes a question mark, as in Java's UTF-8.
    """
    cdef uint32_t code
    cdef int32_t low
    took[0] = 2
    if at[1] == c'u':
        took[0] = 6
        code = <uint32_t>wire_hex_unit(at + 2)
        if code < 0xD800 or code > 0xDFFF:
            return code
        if code < 0xDC00 and room >= 12 and at[6] == c'\\' and at[7] == c'u':
            low = wire_hex_unit(at + 8)
            if 0xDC00 <= low <= 0xDFFF:
                took[0] = 12
                return 0x10000 + ((code & 0x3FF) << 10 | (<uint32_t>low & 0x3FF))
        return 63
    if at[1] == c'b':
        return 8
    if at[1] == c'f':
        return 12
    if at[1] == c'n':
        return 10
    if at[1] == c'r':
        return 13
    if at[1] == c't':
        return 9
    return <unsigned char>at[1]


cdef int64_t wire_text_add(Text *into, const WireText *text) noexcept nogil:
    """Append a text in Java's UTF-8, U+FFFD for malformed parts: its bytes, or E_NO_MEMORY."""
    cdef const char *at
    cdef const char *end
    cdef const char *plain
    cdef char *to
    cdef int64_t took = 0
    cdef int64_t start = into.length
    cdef uint32_t code = 0
    cdef bint good
    if text.length <= 0:
        return 0
    at = text.data                           # NULL for an empty text
    end = at + text.length
    good = utf8_error(text.data, text.length) < 0
    if text_reserve(into, text.length if good else 3 * text.length) < 0:
        return E_NO_MEMORY
    if good and not text.escaped:
        text_add(into, text.data, text.length)
        return text.length
    to = into.data + start
    while at < end:
        if text.escaped and at[0] == c'\\':
            code = escape_code(at, end - at, &took)
            to += utf8_put(to, code)
            at += took
        elif good:
            plain = at
            while at < end and at[0] != c'\\':
                at += 1
            memcpy(to, plain, <size_t>(at - plain))
            to += at - plain
        else:
            at += java_decode_utf8(<const unsigned char *>at, end - at, &code)
            to += utf8_put(to, code)
    into.length = to - into.data
    return into.length - start


cdef bint wire_int(const WireText *text, int64_t low, int64_t high, int64_t *into) noexcept nogil:
    """Read a number as Java's parseInt and parseLong do, within limits."""
    cdef const char *at = text.data
    cdef int64_t length = text.length
    cdef int64_t i
    cdef uint64_t value = 0
    cdef bint minus
    if length < 1 or text.escaped:
        return False
    minus = at[0] == c'-'
    if minus or at[0] == c'+':
        at += 1
        length -= 1
    if length < 1 or length > 19:
        return False
    for i in range(length):
        if not 48 <= at[i] <= 57:
            return False
        value = value * 10 + <uint64_t>(at[i] - 48)
    if value > <uint64_t>INT64_MAX + minus:
        return False
    into[0] = <int64_t>(0 - value) if minus else <int64_t>value
    return low <= into[0] <= high


cdef bint wire_is(const WireText *text, const char *word, int64_t length) noexcept nogil:
    """Whether a text, its escapes decoded, is this word of at most 32 bytes."""
    cdef char[400] memory
    cdef Text plain
    if not text.escaped:
        return is_same(text.data, text.length, word, length)
    if text.length > 6 * length or length > 32:
        return False
    text_init(&plain, memory, 400)
    wire_text_add(&plain, text)
    return is_same(plain.data, plain.length, word, length)
