# Fields of a send, under their long and short names, and its properties.
#
# Source: common/protocol/header/SendMessageRequestHeader.java, SendMessageRequestHeaderV2.java;
#         broker/processor/SendMessageProcessor.java asyncSendMessage

cdef enum:
    CODE_SEND = 10
    CODE_SEND_V2 = 310
    CODE_SEND_BATCH = 320

    SEND_FIELDS = 13             # a to m of the short names
    SEND_GROUP = 0
    SEND_TOPIC = 1
    SEND_DEFAULT_TOPIC = 2
    SEND_DEFAULT_NUMS = 3
    SEND_QUEUE_ID = 4
    SEND_SYS_FLAG = 5
    SEND_BORN = 6
    SEND_FLAG = 7
    SEND_PROPERTIES = 8
    SEND_RECONSUMED = 9
    SEND_MAX_RECONSUMED = 11
    SEND_BATCH = 12
    SEND_NEEDED = 8              # fields before this are required

    SEND_TEXT_MAX = 1024         # bytes of a group or topic; longer texts may be refused
    SEND_SYS_FLAGS = 3           # compressed, several tags: allowed in a plain message
    SEND_PROPERTIES_MAX = 64     # of one message; more take the slow path

cdef struct SendRequest:
    WireText fields[SEND_FIELDS]
    int64_t queue_id
    int64_t sys_flag
    int64_t born_timestamp
    int64_t flag
    int64_t reconsume_times
    bint batch
    bint waits                   # for the disk, if the store does

ctypedef const char *SendName

# Long names, in the order of the short ones.
cdef SendName[SEND_FIELDS] SEND_NAMES
SEND_NAMES[0] = b"producerGroup"
SEND_NAMES[1] = b"topic"
SEND_NAMES[2] = b"defaultTopic"
SEND_NAMES[3] = b"defaultTopicQueueNums"
SEND_NAMES[4] = b"queueId"
SEND_NAMES[5] = b"sysFlag"
SEND_NAMES[6] = b"bornTimestamp"
SEND_NAMES[7] = b"flag"
SEND_NAMES[8] = b"properties"
SEND_NAMES[9] = b"reconsumeTimes"
SEND_NAMES[10] = b"unitMode"
SEND_NAMES[11] = b"maxReconsumeTimes"
SEND_NAMES[12] = b"batch"


cdef int64_t send_field(const WireText *name, bint short_names) noexcept nogil:
    """Number of a send's field, -1: none."""
    cdef int64_t i
    if short_names:
        i = name.data[0] - 97 if name.length == 1 else -1
        return i if 0 <= i < SEND_FIELDS else -1
    for i in range(SEND_FIELDS):
        if is_same(name.data, name.length, SEND_NAMES[i], <int64_t>strlen(SEND_NAMES[i])):
            return i
    return -1


cdef bint send_parse(const Header *header, SendRequest *into) noexcept nogil:
    """Read the fields of a plain send; False: for the slow path, which reports any error."""
    cdef const WireField *field
    cdef const WireText *batch = &into.fields[SEND_BATCH]
    cdef int64_t i, which
    cdef int64_t number = 0
    for i in range(SEND_FIELDS):
        into.fields[i].length = -1
    for i in range(header.field_count):
        field = &header.fields[i]
        if field.name.escaped:
            return False
        which = send_field(&field.name, header.code != CODE_SEND)
        if which >= 0:
            into.fields[which] = field.value
    for i in range(SEND_NEEDED):
        if into.fields[i].length < 0:
            return False
    if into.fields[SEND_TOPIC].escaped \
            or into.fields[SEND_GROUP].length > SEND_TEXT_MAX \
            or into.fields[SEND_DEFAULT_TOPIC].length > SEND_TEXT_MAX \
            or not wire_int(&into.fields[SEND_DEFAULT_NUMS], INT32_MIN, INT32_MAX, &number) \
            or not wire_int(&into.fields[SEND_QUEUE_ID], INT32_MIN, INT32_MAX, &into.queue_id) \
            or not wire_int(&into.fields[SEND_SYS_FLAG], 0, SEND_SYS_FLAGS, &into.sys_flag) \
            or not wire_int(&into.fields[SEND_BORN], INT64_MIN, INT64_MAX, &into.born_timestamp) \
            or not wire_int(&into.fields[SEND_FLAG], INT32_MIN, INT32_MAX, &into.flag):
        return False
    if into.fields[SEND_MAX_RECONSUMED].length >= 0 and not wire_int(
            &into.fields[SEND_MAX_RECONSUMED], INT32_MIN, INT32_MAX, &number):
        return False
    into.reconsume_times = 0
    if into.fields[SEND_RECONSUMED].length >= 0 and not wire_int(
            &into.fields[SEND_RECONSUMED], INT32_MIN, INT32_MAX, &into.reconsume_times):
        return False
    into.batch = is_same(batch.data, batch.length, b"true", 4)
    if batch.length >= 0 and not into.batch \
            and not is_same(batch.data, batch.length, b"false", 5) \
            and not is_same(batch.data, batch.length, b"0", 1):      # of C++ clients
        return False                         # other words for true
    into.waits = True
    return into.batch == (header.code == CODE_SEND_BATCH)


cdef bint property_is_plain(const Property *entry) noexcept nogil:
    """Whether the property has no special meaning to the store."""
    if entry.name_length == 5:
        return memcmp(entry.name, b"DELAY", 5) != 0
    if entry.name_length == 8:
        return memcmp(entry.name, b"TRAN_MSG", 8) != 0 \
            and memcmp(entry.name, b"__CRC32#", 8) != 0
    if 14 <= entry.name_length <= 16:  # TIMER_DELAY_MS, ..._SEC, TIMER_DELIVER_MS: warned of
        return memcmp(entry.name, b"TIMER_DEL", 9) != 0
    if entry.name_length == 20:
        return memcmp(entry.name, b"INNER_MULTI_DISPATCH", 20) != 0
    if entry.name_length == 24:
        return memcmp(entry.name, MULTI_OFFSET, 24) != 0
    return True


cdef bint means_true(const char *value, int64_t length) noexcept nogil:
    """Java's parseBoolean."""
    return length == 4 and (value[0] | 32) == c't' and (value[1] | 32) == c'r' \
        and (value[2] | 32) == c'u' and (value[3] | 32) == c'e'


cdef int64_t send_properties(
    const char *text, int64_t length, const char *cluster, int64_t cluster_length, Text *into,
    SendRequest *request,
) noexcept nogil:
    """Append the stored properties, without WAIT and with the cluster: 1, or E_NO_MEMORY.

    0, and nothing appended: the message is not plain or has a duplicate name.
    """
    cdef Property[SEND_PROPERTIES_MAX] entries
    cdef Property entry
    cdef int64_t at = 0
    cdef int64_t start = into.length
    cdef int64_t count = 0
    cdef int64_t i
    while property_next(text, length, &at, &entry):
        if not property_is_plain(&entry) or count == SEND_PROPERTIES_MAX:
            return 0
        for i in range(count):
            if is_same(entries[i].name, entries[i].name_length, entry.name,
                       entry.name_length):
                return 0
        entries[count] = entry
        count += 1
    if text_reserve(into, length + cluster_length + 32) < 0:
        return E_NO_MEMORY
    for i in range(count):
        if is_same(entries[i].name, entries[i].name_length, b"WAIT", 4):
            request.waits = means_true(entries[i].value, entries[i].value_length)
        elif not is_same(entries[i].name, entries[i].name_length, b"CLUSTER", 7):
            text_add_property(into, start, entries[i].name, entries[i].name_length,
                              entries[i].value, entries[i].value_length)
    text_add_property(into, start, b"CLUSTER", 7, cluster, cluster_length)
    return 1


cdef bint batch_properties(const char *text, int64_t length, SendRequest *request) noexcept nogil:
    """Read a batch's own properties, which are not stored."""
    cdef Property entry
    cdef int64_t at = 0
    while property_next(text, length, &at, &entry):
        if not property_is_plain(&entry):
            return False
        if is_same(entry.name, entry.name_length, b"WAIT", 4):
            request.waits = means_true(entry.value, entry.value_length)
    return True


# A message in a batch's body.
cdef struct BatchItem:
    const char *body
    int64_t body_length
    const char *properties
    int64_t properties_length
    int32_t flag


cdef bint batch_next(
    const char *data, int64_t length, int64_t *at, BatchItem *into,
) noexcept nogil:
    """Read the message at ``at``, which moves past it; False if invalid."""
    cdef int64_t room = length - at[0]
    cdef const char *item = data + at[0]
    if room < 20:                            # size, magic, crc, flag, length of the body
        return False
    into.flag = get_i32(item + 12)
    into.body_length = get_i32(item + 16)
    if into.body_length < 0 or into.body_length > room - 22:
        return False
    into.body = item + 20
    into.properties = into.body + into.body_length + 2
    into.properties_length = get_i16(into.properties - 2)
    if into.properties_length < 0 or into.properties_length > room - 22 - into.body_length:
        return False
    at[0] += 22 + into.body_length + into.properties_length
    return True
