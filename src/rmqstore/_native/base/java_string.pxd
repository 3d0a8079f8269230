"""Java's ``String.hashCode`` over UTF-8 bytes, ``Math.abs`` of it, and UTF-8 validation.

The hash is ``h = 31 * h + unit`` over UTF-16 units, modulo 2^32, computed without building the
units: ASCII goes 8 bytes a step, anything else a character a step.

Source: ``java.lang.String``, ``hashCode`` and ``decodeUTF8_UTF16`` (Java 17);
``store/index/IndexFile.java``, ``indexKeyHashMethod``.
"""
from libc.stdint cimport INT32_MIN, int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy


cdef extern from *:
    """
    /* 8 bytes, the first one lowest, and 4 of them. */
    static inline uint64_t java_load_8(const char *at) {
        uint64_t v; memcpy(&v, at, 8);
    #if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
        v = __builtin_bswap64(v);
    #endif
        return v;
    }
    static inline uint64_t java_load_4(const char *at) {
        uint32_t v; memcpy(&v, at, 4);
    #if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
        v = __builtin_bswap32(v);
    #endif
        return v;
    }
    #define JAVA_NOT_ASCII 0x8080808080808080ULL

    /* How many of 8 bytes, loaded as above, come before one that is not ASCII. */
    static inline int java_ascii_before(uint64_t text) {
        uint64_t marks = text & JAVA_NOT_ASCII;
        return marks ? __builtin_ctzll(marks) >> 3 : 8;
    }

    /* Hash of 8 ASCII characters; leading zeros do not change it.
     *
     * Pairs c0 * 31 + c1 in lanes of 16 bits (at most 4,064), fours of them in lanes of 32 bits
     * (at most 3,909,568), then the two fours: 31^2 = 961, 31^4 = 923521.
     */
    static inline uint32_t java_hash_8(uint64_t text) {
        uint64_t pairs = (text & 0x00FF00FF00FF00FFULL) * 31
                       + (text >> 8 & 0x00FF00FF00FF00FFULL);
        uint64_t fours = (pairs & 0x0000FFFF0000FFFFULL) * 961
                       + (pairs >> 16 & 0x0000FFFF0000FFFFULL);
        return (uint32_t)fours * 923521u + (uint32_t)(fours >> 32);
    }
    /* 31^n modulo 2^32. */
    static const uint32_t java_power[9] = {
        1u, 31u, 961u, 29791u, 923521u, 28629151u, 887503681u, 1742810335u, 2487512833u};
    """
    uint64_t java_load_8(const char *at) noexcept nogil
    uint64_t java_load_4(const char *at) noexcept nogil
    int java_ascii_before(uint64_t text) noexcept nogil
    uint32_t java_hash_8(uint64_t text) noexcept nogil
    const uint32_t java_power[9]
    const uint64_t JAVA_NOT_ASCII


cdef enum:
    JAVA_REPLACEMENT = 0xFFFD


cdef inline bint continues_utf8(unsigned char byte) noexcept nogil:
    """Whether the byte continues a character."""
    return byte & 0xC0 == 0x80


cdef inline int64_t java_decode_utf8(
    const unsigned char *at, int64_t room, uint32_t *code,
) noexcept nogil:
    """Decode one character, or one U+FFFD where Java puts one; return the bytes consumed.

    The valid part of a sequence before an invalid byte becomes one U+FFFD, as does an encoded
    surrogate (ED A0..BF xx); the byte after ED is examined only if a third follows.
    """
    cdef unsigned char first = at[0]
    cdef unsigned char second = 0
    if first < 0x80:
        code[0] = first
        return 1
    code[0] = JAVA_REPLACEMENT
    if room >= 2:
        second = at[1]
    # Not a lead byte, at the end, or a second byte that makes it overlong or too large.
    if first < 0xC2 or first > 0xF4 or not continues_utf8(second):
        return 1
    if first < 0xE0:
        code[0] = (first & 0x1F) << 6 | (second & 0x3F)
        return 2
    if (
        (first == 0xE0 and second < 0xA0) or (first == 0xF0 and second < 0x90)
        or (first == 0xF4 and second > 0x8F)
    ):
        return 1
    if room < 3 or not continues_utf8(at[2]):
        return 2
    if first < 0xF0:
        if first != 0xED or second < 0xA0:
            code[0] = (first & 0x0F) << 12 | (second & 0x3F) << 6 | (at[2] & 0x3F)
        return 3
    if room < 4 or not continues_utf8(at[3]):
        return 3
    code[0] = (
        (first & 0x07) << 18 | (second & 0x3F) << 12 | (at[2] & 0x3F) << 6 | (at[3] & 0x3F)
    )
    return 4


cdef inline int64_t utf8_error(const char *text, int64_t length) noexcept nogil:
    """Position of the first byte that is not well-formed UTF-8, -1 if there is none."""
    cdef int64_t at = 0
    cdef int64_t size
    cdef uint32_t code = 0
    while at < length:
        if length - at >= 8:
            size = java_ascii_before(java_load_8(text + at))
            at += size
            if size == 8:
                continue
            # Two-byte characters, as most letters beyond ASCII are.
            if 0xC2 <= <unsigned char>text[at] < 0xE0 and at + 1 < length \
                    and continues_utf8(<unsigned char>text[at + 1]):
                at += 2
                continue
        elif length >= 8 and not java_load_8(text + length - 8) & JAVA_NOT_ASCII:
            return -1                        # the rest, and bytes before it once more
        size = java_decode_utf8(<const unsigned char *>text + at, length - at, &code)
        # U+FFFD itself is EF BF BD; nothing malformed that begins with EF takes three bytes.
        if code == JAVA_REPLACEMENT and not (size == 3 and <unsigned char>text[at] == 0xEF):
            return at
        at += size
    return -1


cdef inline uint32_t java_hash_code(uint32_t state, uint32_t code) noexcept nogil:
    """Hash extended by one character: one unit, or the two of a surrogate pair."""
    if code >= 0x10000:
        state = 31 * state + (0xD800 - (0x10000 >> 10) + (code >> 10))
        code = 0xDC00 | (code & 0x3FF)
    return 31 * state + code


cdef inline int32_t java_hash_utf8(
    const char *text, int64_t length, int32_t start,
) noexcept nogil:
    """Continue ``String.hashCode`` from ``start`` over ``length`` bytes of UTF-8.

    Malformed bytes count as the U+FFFD that ``new String(bytes, UTF_8)`` makes of them.
    """
    cdef uint32_t state = <uint32_t>start
    cdef uint32_t code = 0
    cdef int64_t at = 0
    cdef int64_t rest
    cdef uint64_t chunk
    while True:
        while length - at >= 8:
            chunk = java_load_8(text + at)
            if chunk & JAVA_NOT_ASCII:
                break
            state = state * java_power[8] + java_hash_8(chunk)
            at += 8
        rest = length - at
        if rest == 0:
            return <int32_t>state
        if rest < 8:
            # The remaining bytes, padded to 8 with leading zeros.
            if length >= 8:
                chunk = java_load_8(text + length - 8) >> 8 * (8 - rest) << 8 * (8 - rest)
            elif rest >= 4:
                chunk = java_load_4(text + at) | java_load_4(text + length - 4) << 8 * (rest - 4)
                chunk <<= 8 * (8 - rest)
            else:
                chunk = JAVA_NOT_ASCII
            if not chunk & JAVA_NOT_ASCII:
                return <int32_t>(state * java_power[rest] + java_hash_8(chunk))
        # Not all ASCII, or at most three bytes left: continue until the next 8 are ASCII again.
        while at < length:
            at += java_decode_utf8(<const unsigned char *>text + at, length - at, &code)
            state = java_hash_code(state, code)
            if length - at >= 8 and not java_load_8(text + at) & JAVA_NOT_ASCII:
                break


cdef inline int32_t java_abs_hash(int32_t value) noexcept nogil:
    """Absolute value of a hash; 0 for -2^31, which has none."""
    if value == INT32_MIN:
        return 0
    return -value if value < 0 else value
