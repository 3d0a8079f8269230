# Answer to a pull: header and stored records in one piece.
#
# Source: broker/processor/PullMessageProcessor.java processRequest, composeResponseHeader;
#         remoting/protocol/RemotingCommand.java

cdef enum:
    PULL_HEADER_ROOM = 512       # four numbers of 20 digits, and the text around them


cdef int64_t pull_header_write(const Got *got, int32_t opaque, char *into) noexcept nogil:
    """Write the header of an answer with messages; ``into`` has PULL_HEADER_ROOM bytes."""
    return snprintf(
        into, PULL_HEADER_ROOM,
        b"{\"code\":0,\"extFields\":{\"suggestWhichBrokerId\":\"0\",\"nextBeginOffset\":\"%lld\","
        b"\"minOffset\":\"%lld\",\"maxOffset\":\"%lld\"},\"flag\":1,\"language\":\"JAVA\","
        b"\"opaque\":%d,\"remark\":\"FOUND\",\"serializeTypeCurrentRPC\":\"JSON\",\"version\":399}",
        <long long>got.next_offset, <long long>got.min_offset, <long long>got.max_offset, opaque)


cdef int64_t got_bytes(const Got *got) noexcept nogil:
    """Bytes of the records."""
    cdef int64_t i
    cdef int64_t size = 0
    for i in range(got.count):
        size += got.items[i].record.size
    return size


cdef int64_t got_copy(const Got *got, char *into) noexcept nogil:
    """Copy the records: 0, or E_LOST if a file lost bytes meanwhile."""
    cdef int64_t i
    for i in range(got.count):
        memcpy(into, got.items[i].slice.data, <size_t>got.items[i].record.size)
        if slice_lost(&got.items[i].slice) < 0:
            return E_LOST
        into += got.items[i].record.size
    return 0
