# Hosts and store message ids as text.
#
# Source: common/message/MessageDecoder.java createMessageId, common/UtilAll.java

cdef enum:
    HOST_TEXT_MAX = 64           # "[v6]:port"
    MESSAGE_ID_MAX = 56          # digits, with an IPv6 host


cdef int64_t host_write(const char *host, bint v6, char *into) noexcept nogil:
    """Write ``ip:port``, or ``[v6]:port``; the length.  ``into`` has room for HOST_TEXT_MAX."""
    cdef char address[HOST_TEXT_MAX]
    if v6:
        inet_ntop(AF_INET6, host, address, HOST_TEXT_MAX)
        return snprintf(into, HOST_TEXT_MAX, "[%s]:%d", address, get_i32(host + 16))
    return snprintf(into, HOST_TEXT_MAX, "%d.%d.%d.%d:%d", <int><unsigned char>host[0],
                    <int><unsigned char>host[1], <int><unsigned char>host[2],
                    <int><unsigned char>host[3], get_i32(host + 4))


cdef int64_t message_id_write(
    const char *host, bint v6, int64_t physical_offset, char *into,
) noexcept nogil:
    """Write address, port and offset in hexadecimal; the length, at most MESSAGE_ID_MAX."""
    cdef int64_t length = HOST_V6_BYTES if v6 else HOST_V4_BYTES
    cdef int64_t i = 0
    while i < length:
        put_hex(into + 2 * i, <uint64_t>get_i32(host + i), 8)
        i += 4
    put_hex(into + 2 * length, <uint64_t>physical_offset, 16)
    return 2 * length + 16


cdef int64_t host_parse(const char *text, int64_t length, char *into) noexcept nogil:
    """Parse "ip:port" or "[v6]:port" to address and port; the bytes written: 8, 20, or 0."""
    cdef char address[HOST_TEXT_MAX]
    cdef int64_t colon = length - 1
    cdef int64_t port
    while colon >= 0 and text[colon] != c':':
        colon -= 1
    port = parse_decimal(text + colon + 1, length - colon - 1)
    if not 0 < colon < HOST_TEXT_MAX or length - colon > 11 or not 0 <= port <= INT32_MAX \
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
