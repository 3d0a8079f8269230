# Bytes of the commit log -> fields of a record.  Pure functions of pointer and length.
#
# Source: store/CommitLog.java checkMessageAndReturnSize

cdef struct Record:
    int64_t queue_offset
    int64_t physical_offset
    int64_t born_timestamp
    int64_t store_timestamp
    int64_t prepared_transaction_offset
    int32_t size
    int32_t magic
    int32_t body_crc
    int32_t queue_id
    int32_t flag
    int32_t sys_flag
    int32_t reconsume_times
    int32_t born_host_at         # positions in the record, and lengths
    int32_t store_host_at
    int32_t body_at
    int32_t body_length
    int32_t topic_at
    int32_t topic_length
    int32_t properties_at
    int32_t properties_length


cdef enum:
    SECTOR_BYTES = 512           # the unit that a disk writes atomically
    TIMESTAMP_STOP = 8796093022208   # 2**43: a time in the year 2248
    RECONSUMED_STOP = 1 << 24
    ZLIB_METHOD = 8              # low bits of a compressed body's first byte: deflate


# Reason for refusing a record, in the order of record_field_name.
cdef enum:
    FIELD_NONE
    FIELD_SIZE
    FIELD_MAGIC
    FIELD_BODY_CRC
    FIELD_BODY_LENGTH
    FIELD_TOPIC_LENGTH
    FIELD_PROPERTIES_LENGTH
    FIELD_PHYSICAL_OFFSET
    FIELD_CHECKSUM
    FIELD_BLANK_SIZE
    FIELD_QUEUE
    FIELD_UNIT
    FIELD_MISSING
    FIELD_BODY_STREAM
    FIELD_TORN
    FIELD_CUT
    FIELD_LOST


cdef const char *record_field_name(int64_t field) noexcept nogil:
    if field == FIELD_SIZE:
        return "TOTALSIZE is not the sum of the record's parts or does not fit into the file"
    if field == FIELD_MAGIC:
        return "MAGICCODE is none of a record"
    if field == FIELD_BODY_CRC:
        return "BODYCRC does not match the body"
    if field == FIELD_BODY_LENGTH:
        return "BODYLENGTH is negative or longer than the record"
    if field == FIELD_TOPIC_LENGTH:
        return "TOPICLENGTH is negative or longer than the record"
    if field == FIELD_PROPERTIES_LENGTH:
        return "PROPERTIESLENGTH is negative or longer than the record"
    if field == FIELD_PHYSICAL_OFFSET:
        return "PHYSICALOFFSET is not the record's own position"
    if field == FIELD_CHECKSUM:
        return "the __CRC32# property does not match the record"
    if field == FIELD_BLANK_SIZE:
        return "TOTALSIZE of the blank is not the room left in the file"
    if field == FIELD_QUEUE:
        return "the record does not name the queue and queue offset of its unit"
    if field == FIELD_UNIT:
        return "the unit does not lead to a record of its queue and queue offset"
    if field == FIELD_MISSING:
        return "the file is missing; put it back from a copy"
    if field == FIELD_BODY_STREAM:
        return "the compressed body cannot be inflated"
    if field == FIELD_TORN:
        return "a sector of the topic or the properties is zero"
    if field == FIELD_LOST:
        return "the log ended here, though queues, index or checkpoint named more of it"
    return "the file ends within the record"


cdef inline bint host_port_is_likely(const char *data, int64_t host_at, bint v6) noexcept nogil:
    return 0 <= get_i32(data + host_at + (16 if v6 else 4)) <= 0xFFFF


cdef inline bint time_is_likely(int64_t timestamp) noexcept nogil:
    return 0 <= timestamp < <int64_t>TIMESTAMP_STOP


cdef const char *record_odd_field(const char *data, const Record *record) noexcept nogil:
    """Return the name of a field with a value that no client or broker writes; NULL if none has."""
    if not time_is_likely(record.born_timestamp):
        return "BORNTIMESTAMP"
    if not time_is_likely(record.store_timestamp):
        return "STORETIMESTAMP"
    if not host_port_is_likely(
            data, record.born_host_at, record.sys_flag & SYS_BORN_HOST_V6 != 0):
        return "BORNHOST"
    if not host_port_is_likely(
            data, record.store_host_at, record.sys_flag & SYS_STORE_HOST_V6 != 0):
        return "STOREHOST"
    if not 0 <= record.reconsume_times < RECONSUMED_STOP:
        return "RECONSUMETIMES"
    if record.sys_flag & ~SYS_KNOWN or (
            record.sys_flag & (SYS_COMPRESSED | SYS_COMPRESSION) == SYS_COMPRESSED
            and record.body_length > 0 and data[record.body_at] & 0xF != ZLIB_METHOD):
        return "SYSFLAG"
    return NULL


cdef int64_t last_nonzero(const char *data, int64_t length) noexcept nogil:
    """Position of the last nonzero byte, -1: none."""
    cdef uint64_t word
    while length >= 8:
        memcpy(&word, data + length - 8, 8)
        if word:
            break
        length -= 8
    while length > 0:
        length -= 1
        if data[length]:
            return length
    return -1


cdef int64_t record_parse(
    const char *data, int64_t length, int64_t room, Record *record, int64_t *field,
) noexcept nogil:
    """Parse the record at ``data``; ``length`` bytes may be read, ``room`` are in the file.

    Returns its size, 0 at the blank that ends a file, E_CORRUPT with ``field`` set, or E_NOT_FOUND
    if it needs more than ``length`` bytes (``record.size``).  The body is left to record_check.
    """
    cdef int64_t size, at
    cdef int32_t topic_head = 1
    field[0] = FIELD_NONE
    if length < 8:
        record.size = 8
        field[0] = FIELD_CUT
        return E_NOT_FOUND if room >= 8 else E_CORRUPT
    record.size = get_i32(data + RECORD_SIZE)
    record.magic = get_i32(data + RECORD_MAGIC)
    size = record.size
    if record.magic == MAGIC_BLANK:
        if size != room:
            field[0] = FIELD_BLANK_SIZE
            return E_CORRUPT
        return 0
    if record.magic == MAGIC_MESSAGE_V2:
        topic_head = 2
    elif record.magic != MAGIC_MESSAGE:
        field[0] = FIELD_MAGIC
        return E_CORRUPT
    if size < RECORD_FIXED_BYTES or size > room:
        field[0] = FIELD_SIZE
        return E_CORRUPT
    if size > length:
        field[0] = FIELD_CUT
        return E_NOT_FOUND
    record.body_crc = get_i32(data + RECORD_BODY_CRC)
    record.queue_id = get_i32(data + RECORD_QUEUE_ID)
    record.flag = get_i32(data + RECORD_FLAG)
    record.queue_offset = get_i64(data + RECORD_QUEUE_OFFSET)
    record.physical_offset = get_i64(data + RECORD_PHYSICAL_OFFSET)
    record.sys_flag = get_i32(data + RECORD_SYS_FLAG)
    record.born_timestamp = get_i64(data + RECORD_BORN_TIMESTAMP)
    at = RECORD_BORN_HOST
    record.born_host_at = <int32_t>at
    at += HOST_V6_BYTES if record.sys_flag & SYS_BORN_HOST_V6 else HOST_V4_BYTES
    record.store_timestamp = get_i64(data + at)
    at += 8
    record.store_host_at = <int32_t>at
    at += HOST_V6_BYTES if record.sys_flag & SYS_STORE_HOST_V6 else HOST_V4_BYTES
    if at + 16 + topic_head + 2 > size:
        field[0] = FIELD_SIZE
        return E_CORRUPT
    record.reconsume_times = get_i32(data + at)
    record.prepared_transaction_offset = get_i64(data + at + 4)
    record.body_length = get_i32(data + at + 12)
    at += 16
    record.body_at = <int32_t>at
    if record.body_length < 0 or record.body_length > size - at - topic_head - 2:
        field[0] = FIELD_BODY_LENGTH
        return E_CORRUPT
    at += record.body_length
    record.topic_length = <signed char>data[at] if topic_head == 1 else get_i16(data + at)
    at += topic_head
    record.topic_at = <int32_t>at
    if record.topic_length < 0 or record.topic_length > size - at - 2:
        field[0] = FIELD_TOPIC_LENGTH
        return E_CORRUPT
    at += record.topic_length
    record.properties_length = get_i16(data + at)
    at += 2
    record.properties_at = <int32_t>at
    if record.properties_length < 0 or record.properties_length > size - at:
        field[0] = FIELD_PROPERTIES_LENGTH
        return E_CORRUPT
    if at + record.properties_length != size:
        field[0] = FIELD_SIZE
        return E_CORRUPT
    return size


cdef inline bint magic_of_message(int32_t magic) noexcept nogil:
    """Whether the magic code begins a record: 4.9.3's, or RocketMQ 5's second version."""
    return magic == MAGIC_MESSAGE or magic == MAGIC_MESSAGE_V2


cdef inline int64_t record_stored_at(int32_t sys_flag) noexcept nogil:
    """Position of the store time in a record."""
    return RECORD_BORN_HOST + (HOST_V6_BYTES if sys_flag & SYS_BORN_HOST_V6 else HOST_V4_BYTES)


# Depth of a record's check: its fields against each other, or the body's CRC as well.
cdef enum:
    CHECK_FIELDS
    CHECK_CRC


cdef int64_t record_check(
    const char *data, const Record *record, int64_t physical_offset, int how,
) noexcept nogil:
    """FIELD_NONE if a parsed record is intact and at its own position, else the bad field.

    ``physical_offset`` -1: any position.
    """
    cdef int64_t checked
    if physical_offset >= 0 and record.physical_offset != physical_offset:
        return FIELD_PHYSICAL_OFFSET
    if how == CHECK_CRC:
        if record_body_crc(data + record.body_at, record.body_length) != record.body_crc:
            return FIELD_BODY_CRC
        checked = record_checksum_at(data, record)
        if checked >= 0 and not record_checksum_matches(data, record, checked):
            return FIELD_CHECKSUM
        if checked < 0 and record_checksum_is_damaged(data, record):
            return FIELD_CHECKSUM
    return FIELD_NONE


cdef inline int32_t record_body_crc(const char *body, int64_t length) noexcept nogil:
    """BODYCRC of a stored body."""
    if length == 0:
        return 0
    return <int32_t>(crc32_update(0, body, <size_t>length) & 0x7FFFFFFF)


cdef inline int64_t record_checksum_at(const char *data, const Record *record) noexcept nogil:
    """Position of RocketMQ 5's whole-record checksum in the record, -1 without one."""
    cdef int64_t at = record.size - CHECKSUM_PROPERTY_BYTES
    if record.properties_length < CHECKSUM_PROPERTY_BYTES \
            or data[record.size - 1] != PROPERTY_VALUE_END or data[at] != 95 \
            or memcmp(data + at, b"__CRC32#\x01", 9) != 0:
        return -1
    return at


cdef inline bint record_checksum_is_damaged(const char *data, const Record *record) noexcept nogil:
    """Whether the record ends with a checksum whose name or end is damaged, or zeros after a part.

    Otherwise a damaged record would pass for one without a checksum.  A wrong byte counts only if
    the digits match, which no similar property's do.
    """
    cdef const char *at = data + record.size - CHECKSUM_PROPERTY_BYTES
    cdef const char *fixed = b"__CRC32#\x01"
    cdef int64_t i, there
    cdef int64_t differing = at[CHECKSUM_PROPERTY_BYTES - 1] != PROPERTY_VALUE_END
    if record.properties_length < CHECKSUM_PROPERTY_BYTES or (
            record.properties_length > CHECKSUM_PROPERTY_BYTES
            and data[record.size - CHECKSUM_PROPERTY_BYTES - 1] != PROPERTY_VALUE_END):
        return False
    there = last_nonzero(at, CHECKSUM_PROPERTY_BYTES) + 1
    if 0 < there < CHECKSUM_PROPERTY_BYTES - 1 and memcmp(at, fixed, <size_t>min(there, 9)) == 0:
        return True
    for i in range(9):
        differing += at[i] != fixed[i]
        if differing > 1:
            return False
    return record_checksum_matches(data, record, record.size - CHECKSUM_PROPERTY_BYTES)


cdef bint record_checksum_matches(
    const char *data, const Record *record, int64_t at,
) noexcept nogil:
    cdef char digits[10]
    checksum_digits(<uint32_t>(crc32_update(0, data, <size_t>at) & 0x7FFFFFFF), digits)
    return memcmp(digits, data + at + 9, 10) == 0


cdef bint record_is_torn(
    const char *data, const Record *record, int64_t file_size,
) noexcept nogil:
    """Whether a sector of topic or properties is zeros that never reached the disk.

    BODYCRC does not cover them, and the lengths are in other sectors.  For records that may never
    have been synced.  No topic has NULs, and put refuses texts with TORN_BYTES NULs in a row.
    Indistinguishable from torn: a last text whose final NULs begin a sector.
    """
    cdef int64_t place = record.physical_offset % file_size
    return text_is_torn(data + record.topic_at, place + record.topic_at,
                        record.topic_length, 1) \
        or text_is_torn(data + record.properties_at, place + record.properties_at,
                        record.properties_length, TORN_BYTES)


cdef bint text_is_torn(
    const char *text, int64_t place, int64_t length, int64_t most,
) noexcept nogil:
    """Whether a text at ``place`` of its file has the zeros of a lost sector.

    The text is split at sector ends.  A part that begins its sector counts if all zeros, any part
    if its last ``most`` bytes are: the sector may have been written back during the copy.  A text
    of nothing but zeros always counts: the broker may have been killed during the copy.
    """
    cdef int64_t at = 0
    cdef int64_t end, zeros
    if length and last_nonzero(text, length) < 0:
        return True
    while at < length:
        end = min(length, ((place + at) | (SECTOR_BYTES - 1)) + 1 - place)
        zeros = end - at - 1 - last_nonzero(text + at, end - at)
        if zeros >= most or (zeros == end - at and (place + at) % SECTOR_BYTES == 0):
            return True
        at = end
    return False


cdef inline bint record_may_be_unfinished(const char *data, const Record *record) noexcept nogil:
    """Whether an owner may still be copying the log's last record.

    Topic and properties come last, under no CRC: bytes not yet written are zeros.
    """
    return memchr(data + record.topic_at, 0, <size_t>record.topic_length) != NULL \
        or memchr(data + record.properties_at, 0, <size_t>record.properties_length) != NULL


cdef void checksum_digits(uint32_t value, char *into) noexcept nogil:
    """Ten decimal digits, least significant first, as RocketMQ 5 writes them."""
    cdef int64_t i
    for i in range(10):
        into[i] = <char>(48 + value % 10)
        value //= 10


cdef int64_t record_find(
    const char *data, int64_t length, int64_t offset, int64_t file_end, int64_t *size,
) noexcept nogil:
    """Find the first good record from ``data`` (log ``offset``) on: its distance and ``size``.

    By magic code and the record's own physical offset; E_NOT_FOUND without one.
    """
    cdef Record record
    cdef int64_t field, at
    cdef const char *hit
    cdef int64_t place = 0
    while place + RECORD_FIXED_BYTES <= length:
        hit = <const char *>memchr(data + place + RECORD_MAGIC, 0xDA,
                                   <size_t>(length - place - RECORD_MAGIC))
        if hit == NULL:
            break
        at = hit - data - RECORD_MAGIC
        if at + RECORD_FIXED_BYTES > length:
            break
        if magic_of_message(get_i32(hit)) \
                and get_i64(data + at + RECORD_PHYSICAL_OFFSET) == offset + at \
                and record_parse(data + at, length - at, file_end - offset - at,
                                 &record, &field) > 0 \
                and record_check(data + at, &record, offset + at, CHECK_CRC) == FIELD_NONE:
            size[0] = record.size
            return at
        place = at + 1
    return E_NOT_FOUND
