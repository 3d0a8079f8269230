# A message -> the bytes of its record: encoded before the put lock is taken, copied and completed
# with position and time under it.
#
# Source: store/CommitLog.java MessageExtEncoder, DefaultAppendMessageCallback

# A message laid out for the log, without position and time; all memory is borrowed.
cdef struct Encoded:
    const char *topic
    int64_t topic_length
    const char *body
    int64_t body_length
    const char *properties
    int64_t properties_length    # with the 20 bytes of a checksum, if any
    int64_t born_timestamp
    int64_t prepared_transaction_offset
    int32_t body_crc
    int32_t queue_id
    int32_t flag
    int32_t sys_flag
    int32_t reconsume_times
    int32_t size                 # of the whole record
    void *multi                  # a Multi, whose offsets complete the properties; or NULL
    bint checksum                # the properties end with a __CRC32# to fill in
    bint volatile_body           # the caller may still change it: take the CRC of the copy
    char born_host[HOST_V6_BYTES]
    char store_host[HOST_V6_BYTES]


cdef inline bint encoded_is_queued(const Encoded *message) noexcept nogil:
    """Whether a record gets a unit; not prepared and rollback records, whose queue offset is 0."""
    return not message.sys_flag & SYS_PREPARED     # a bit set in both


cdef int64_t encoded_size(const Encoded *message) noexcept nogil:
    cdef int64_t size = RECORD_FIXED_BYTES
    if message.sys_flag & SYS_BORN_HOST_V6:
        size += HOST_V6_EXTRA
    if message.sys_flag & SYS_STORE_HOST_V6:
        size += HOST_V6_EXTRA
    return size + message.body_length + message.topic_length + message.properties_length


cdef inline int64_t host_copy(char *at, const char *host, int32_t v6) noexcept nogil:
    """Write a host; its bytes.  Either length is a constant, so that the copy is inlined."""
    if unlikely(v6 != 0):
        memcpy(at, host, HOST_V6_BYTES)
        return HOST_V6_BYTES
    memcpy(at, host, HOST_V4_BYTES)
    return HOST_V4_BYTES


cdef inline void record_write(
    char *into, const Encoded *message, int64_t physical_offset, int64_t queue_offset,
    int64_t store_timestamp,
) noexcept nogil:
    """Write the record of ``message.size`` bytes, TOTALSIZE last.

    BODYCRC does not cover topic and properties: a process killed before they are written would
    otherwise leave a record that passes the check.
    """
    cdef char *at = into
    put_i32(at + RECORD_MAGIC, MAGIC_MESSAGE)
    put_i32(at + RECORD_BODY_CRC, message.body_crc)
    put_i32(at + RECORD_QUEUE_ID, message.queue_id)
    put_i32(at + RECORD_FLAG, message.flag)
    put_i64(at + RECORD_QUEUE_OFFSET, queue_offset)
    put_i64(at + RECORD_PHYSICAL_OFFSET, physical_offset)
    put_i32(at + RECORD_SYS_FLAG, message.sys_flag)
    put_i64(at + RECORD_BORN_TIMESTAMP, message.born_timestamp)
    at += RECORD_BORN_HOST
    at += host_copy(at, message.born_host, message.sys_flag & SYS_BORN_HOST_V6)
    put_i64(at, store_timestamp)
    at += 8
    at += host_copy(at, message.store_host, message.sys_flag & SYS_STORE_HOST_V6)
    put_i32(at, message.reconsume_times)
    put_i64(at + 4, message.prepared_transaction_offset)
    put_i32(at + 12, <int32_t>message.body_length)
    at += 16
    memcpy(at, message.body, <size_t>message.body_length)
    if unlikely(message.volatile_body):
        put_i32(into + RECORD_BODY_CRC, record_body_crc(at, message.body_length))
    at += message.body_length
    at[0] = <char>message.topic_length
    memcpy(at + 1, message.topic, <size_t>message.topic_length)
    at += 1 + message.topic_length
    put_i16(at, <int16_t>message.properties_length)
    KILL_POINT("mid-record")
    memcpy(at + 2, message.properties, <size_t>message.properties_length)
    if message.checksum:                       # covers all of the record
        put_i32(into + RECORD_SIZE, message.size)
        record_write_checksum(into, message.size)
    else:
        put_i32_last(into + RECORD_SIZE, message.size)


cdef void record_write_checksum(char *record, int64_t size) noexcept nogil:
    """Fill in the __CRC32# property, which must be the record's last 20 bytes."""
    cdef char *at = record + size - CHECKSUM_PROPERTY_BYTES
    memcpy(at, b"__CRC32#\x01", 9)
    checksum_digits(<uint32_t>(crc32_update(0, record, <size_t>(at - record)) & 0x7FFFFFFF), at + 9)
    at[19] = PROPERTY_VALUE_END


cdef inline void blank_write(char *into, int64_t room) noexcept nogil:
    """Write the blank that ends a file: only 8 bytes."""
    put_i32(into + RECORD_SIZE, <int32_t>room)
    put_i32(into + RECORD_MAGIC, MAGIC_BLANK)


cdef void record_hole_head(char *into, int64_t physical_offset, int64_t size) noexcept nogil:
    """Nonzero bytes of a filler record of ``size`` bytes: a rollback, which 4.9.3 skips.

    ``into`` has RECORD_FIXED_BYTES; the rest of the record is zeros.
    """
    cdef char zeros[4096]
    cdef int64_t length = size - RECORD_FIXED_BYTES
    cdef int64_t left = length
    cdef uint32_t crc = 0
    memset(zeros, 0, 4096)
    while left > 0:
        crc = crc32_update(crc, zeros, <size_t>min(left, 4096))
        left -= 4096
    memset(into, 0, RECORD_FIXED_BYTES)
    put_i32(into + RECORD_SIZE, <int32_t>size)
    put_i32(into + RECORD_MAGIC, MAGIC_MESSAGE)
    put_i64(into + RECORD_PHYSICAL_OFFSET, physical_offset)
    put_i32(into + RECORD_SYS_FLAG, SYS_ROLLBACK)
    put_i32(into + RECORD_HEAD_BYTES - 4, <int32_t>length)
    put_i32(into + RECORD_BODY_CRC, <int32_t>(crc & 0x7FFFFFFF))


cdef inline bint record_is_rolled_back(const Record *record) noexcept nogil:
    """Whether a record rolls back a transaction: in no queue and no index."""
    return (record.sys_flag & SYS_TRANSACTION) == SYS_ROLLBACK


cdef inline bint record_is_filler(const Record *record) noexcept nogil:
    """Whether a record replaces damaged bytes: a rollback without a topic."""
    return record_is_rolled_back(record) and record.topic_length == 0
