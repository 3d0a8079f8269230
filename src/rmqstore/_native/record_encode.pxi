# A message -> the bytes of its record. Everything is laid out ahead of the put lock; under it
# only the three fields that depend on the moment are set.
#
# Source: store/CommitLog.java MessageExtEncoder, DefaultAppendMessageCallback

# A message as it will be stored; nothing in it is owned.
cdef struct Draft:
    const char *topic
    int64_t topic_length
    const char *body
    int64_t body_length
    const char *properties
    int64_t properties_length    # with the checksum's 20 bytes where there is one
    int64_t born_timestamp
    int64_t prepared_transaction_offset
    int32_t body_crc
    int32_t queue_id
    int32_t flag
    int32_t sys_flag
    int32_t reconsume_times
    int32_t size                 # of the whole record
    bint checksum                # the properties end with a __CRC32# to fill in
    bint volatile_body           # others may write to it: only the copy has one checksum
    char born_host[HOST_V6_BYTES]
    char store_host[HOST_V6_BYTES]


cdef inline bint draft_is_queued(const Draft *draft) noexcept nogil:
    """Whether it gets a unit: prepared and rollback records have queue offset 0 and none."""
    return not draft.sys_flag & SYS_PREPARED     # a bit that both have


cdef int64_t draft_size(const Draft *draft) noexcept nogil:
    cdef int64_t size = RECORD_FIXED_BYTES
    if draft.sys_flag & SYS_BORN_HOST_V6:
        size += HOST_V6_EXTRA
    if draft.sys_flag & SYS_STORE_HOST_V6:
        size += HOST_V6_EXTRA
    return size + draft.body_length + draft.topic_length + draft.properties_length


cdef inline void record_write(
    char *into, const Draft *draft, int64_t physical_offset, int64_t queue_offset,
    int64_t store_timestamp,
) noexcept nogil:
    """Write the record of ``draft.size`` bytes.

    TOTALSIZE is written last: BODYCRC says nothing about topic and properties, and a process that
    is killed in between would leave a record without them that checks.
    """
    cdef char *at = into
    cdef int64_t length
    put_i32(at + RECORD_MAGIC, MAGIC_MESSAGE)
    put_i32(at + RECORD_BODY_CRC, draft.body_crc)
    put_i32(at + RECORD_QUEUE_ID, draft.queue_id)
    put_i32(at + RECORD_FLAG, draft.flag)
    put_i64(at + RECORD_QUEUE_OFFSET, queue_offset)
    put_i64(at + RECORD_PHYSICAL_OFFSET, physical_offset)
    put_i32(at + RECORD_SYS_FLAG, draft.sys_flag)
    put_i64(at + RECORD_BORN_TIMESTAMP, draft.born_timestamp)
    at += RECORD_BORN_HOST
    length = HOST_V6_BYTES if draft.sys_flag & SYS_BORN_HOST_V6 else HOST_V4_BYTES
    memcpy(at, draft.born_host, <size_t>length)
    at += length
    put_i64(at, store_timestamp)
    at += 8
    length = HOST_V6_BYTES if draft.sys_flag & SYS_STORE_HOST_V6 else HOST_V4_BYTES
    memcpy(at, draft.store_host, <size_t>length)
    at += length
    put_i32(at, draft.reconsume_times)
    put_i64(at + 4, draft.prepared_transaction_offset)
    put_i32(at + 12, <int32_t>draft.body_length)
    at += 16
    memcpy(at, draft.body, <size_t>draft.body_length)
    if unlikely(draft.volatile_body):
        put_i32(into + RECORD_BODY_CRC, record_body_crc(at, draft.body_length))
    at += draft.body_length
    at[0] = <char>draft.topic_length
    memcpy(at + 1, draft.topic, <size_t>draft.topic_length)
    at += 1 + draft.topic_length
    put_i16(at, <int16_t>draft.properties_length)
    KILL_POINT("mid-record")
    memcpy(at + 2, draft.properties, <size_t>draft.properties_length)
    if draft.checksum:                       # of TOTALSIZE too, and of all the rest
        put_i32(into + RECORD_SIZE, draft.size)
        record_write_checksum(into, draft.size)
    else:
        put_i32_release(into + RECORD_SIZE, draft.size)


cdef void record_write_checksum(char *record, int64_t size) noexcept nogil:
    """Fill in the __CRC32# property, which must be the record's last 20 bytes."""
    cdef char *at = record + size - CHECKSUM_PROPERTY_BYTES
    memcpy(at, b"__CRC32#\x01", 9)
    checksum_digits(<uint32_t>(crc32_update(0, record, <size_t>(at - record)) & 0x7FFFFFFF), at + 9)
    at[19] = PROPERTY_VALUE_END


cdef inline void blank_write(char *into, int64_t room) noexcept nogil:
    """The filler that ends a file; only its 8 bytes are written."""
    put_i32(into + RECORD_SIZE, <int32_t>room)
    put_i32(into + RECORD_MAGIC, MAGIC_BLANK)


cdef void record_hole_head(char *into, int64_t physical_offset, int64_t size) noexcept nogil:
    """The bytes that are not zero of a record of ``size`` bytes that stands for damaged ones.

    A rollback, which 4.9.3 passes over.  ``into`` has RECORD_FIXED_BYTES; the rest is zeros.
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
    """Whether it ends a transaction without a message: no queue and no index has it."""
    return (record.sys_flag & SYS_TRANSACTION) == SYS_ROLLBACK


cdef inline bint record_is_filler(const Record *record) noexcept nogil:
    """Whether it stands for damaged bytes: a rollback of no topic."""
    return record_is_rolled_back(record) and record.topic_length == 0
