# Frames in the bytes received on a connection.
#
#     total   int32  length of all that follows
#     mark    int32  top byte: 0 JSON header, 1 ROCKETMQ header; low 24 bits: length of the header
#     header  and body, which may be empty
#
# Source: remoting/netty/NettyDecoder.java; remoting/protocol/RemotingCommand.java decode

cdef enum:
    FRAME_MAX = 16777216         # com.rocketmq.remoting.frameMaxLength, counted from the mark
    FRAME_HEAD_BYTES = 8         # both of these
    HEADER_MAX = 256 << 10       # 64 KiB, and 32,767 characters of properties, all escaped

cdef struct Frame:
    Header header
    const char *body
    int64_t body_length
    int64_t size                 # of the whole frame, also of an incomplete one; 0: unknown
    int64_t bad_length           # with a problem of lengths
    const char *problem


cdef int64_t frame_refuse(Frame *into, const char *problem, int64_t length) noexcept nogil:
    into.problem = problem
    into.bad_length = length
    return E_CORRUPT


cdef int64_t frame_next(const char *data, int64_t length, Frame *into) noexcept nogil:
    """Find the frame at the beginning: 1, 0 if incomplete, E_CORRUPT with ``problem``."""
    cdef int64_t total, header_length
    cdef uint32_t mark
    cdef bint good
    into.size = 0
    if length < 4:
        return 0
    total = get_i32(data)
    if not 4 <= total <= FRAME_MAX:
        return frame_refuse(into, b"a frame of", total)
    into.size = 4 + total
    if length < 8:
        return 0
    mark = <uint32_t>get_i32(data + 4)
    header_length = mark & 0xFFFFFF
    if mark >> 24 > 1:
        return frame_refuse(into, b"a header of type", mark >> 24)
    if header_length > total - 4:
        return frame_refuse(into, b"a header that does not end: bytes", header_length)
    if header_length > HEADER_MAX:
        return frame_refuse(into, b"a header of bytes", header_length)
    if length < into.size:
        return 0
    if mark >> 24:
        good = header_parse_binary(data + 8, header_length, &into.header)
    else:
        good = header_parse_json(data + 8, header_length, &into.header)
    if not good:
        return frame_refuse(into, into.header.problem, header_length)
    into.body = data + 8 + header_length
    into.body_length = total - 4 - header_length
    return 1
