# Rows: a message from a row source, or the columns of many messages; their sizes are checked, then
# they are laid out for the log, without the GIL.
#
# Source: common/message/MessageDecoder.java messageProperties2String;
#         store/CommitLog.java MessageExtEncoder; store/DefaultMessageStore.java checkMessage

cdef enum:
    NUMBER_TEXT = 24
    HALF_TOPIC_LENGTH = 24
    # Added to a half message when it is put back or given up: TRANSACTION_CHECK_TIMES with its
    # number, and the longer name of the topic of those given up.
    HALF_LATER_BYTES = 40

cdef const char *HALF_TOPIC = b"RMQ_SYS_TRANS_HALF_TOPIC"

# Problem of a row, beyond the checks of its columns.
cdef enum:
    ROW_GOOD
    ROW_NO_BODY                  # neither body nor raw_body
    ROW_BODIES_DIFFER            # body is not the inflated raw_body
    ROW_OTHER_TAGS               # the column contradicts the map
    ROW_OTHER_KEYS
    ROW_OTHER_UNIQUE
    ROW_BAD_LIGHT                # names an invalid queue: LightProblem has the reason
    ROW_PROPERTIES_TOO_LARGE
    ROW_TOO_LARGE


cdef struct Limits:
    int64_t now                  # born time of rows without one
    int64_t max_message_size
    int64_t file_size            # of the commit log
    bint record_checksum
    bint store_host_v6
    bint multi_dispatch          # a record put as a whole may name further queues
    bint light_queues            # including light queues


cdef struct Row:
    Span topic
    Span body                    # as stored
    Span properties              # the caller's, without a 0x02 at the end
    Span keys                    # added to them; none if the length is below 1
    Span tags
    Span unique
    Span multi                   # names of further queues, with commas
    bint multi_given             # from the properties
    bint multi_dropped           # the properties' offsets in queues do not hold
    int64_t unique_number        # of a unique key to make, -1: none
    int64_t queue_id             # of the topic; of a delayed message, its eventual queue
    int64_t delay_level          # 0: none
    int64_t later                # bytes that the store adds later, which must fit too
    Span producer_group          # of a half message; none if the length is below 1
    int64_t born_timestamp
    int64_t prepared_transaction_offset
    int32_t flag
    int32_t sys_flag
    int32_t reconsume_times
    int32_t born_host_length     # 0: the store's own
    bint volatile_body           # may change concurrently
    char born_host[HOST_V6_BYTES]


# A host of a column, parsed.
cdef struct HostValue:
    int32_t length               # 0: null
    char bytes[HOST_V6_BYTES]


# Columns of a call.  ``same`` has the values common to all rows.
cdef struct Rows:
    int64_t count
    Row same
    bint generate                # make a unique key for each row, from this number on
    int64_t first_unique
    bint one_topic
    Topic **topics               # by row, or one
    int64_t *queue_ids           # by row
    const ColumnView *topic
    const ColumnView *body
    const ColumnView *properties
    const ColumnView *keys
    const ColumnView *tags
    const ColumnView *unique
    const char *compressed       # by row, whether put_many deflated the body; NULL: none
    # of put_table
    bint is_table
    bint is_mapped               # properties may contain keys, tags and unique keys
    const HostValue *born_hosts
    const ColumnView *raw_body
    const ColumnView *flag
    const ColumnView *sys_flag
    const ColumnView *reconsume_times
    const ColumnView *prepared_offset
    const ColumnView *born_timestamp

cdef int64_t NO_NUMBER = INT64_MIN   # a null SYSFLAG
cdef ColumnView NO_COLUMN            # ABSENT
cdef Row NO_ROW
NO_ROW.body.length = NO_ROW.properties.length = NO_ROW.keys.length = -1
NO_ROW.tags.length = NO_ROW.unique.length = NO_ROW.unique_number = NO_ROW.multi.length = -1
NO_ROW.producer_group.length = -1


cdef inline void take_span(const ColumnView *column, int64_t row, Span *into) noexcept nogil:
    """Get a row of a column with rows; values of other columns are in ``Rows.same``."""
    if column.kind == COLUMN_SPANS:
        into[0] = (<const Span *>column.rows)[row]


cdef inline void rows_get(const Rows *rows, int64_t row, Row *into) noexcept nogil:
    """Get one row.  REQUIRES: ``into`` is a copy of ``same``, or holds another row."""
    into.body = rows.same.body
    if rows.is_mapped:                       # restore what another row's map removed
        into.keys = rows.same.keys
        into.tags = rows.same.tags
        into.unique = rows.same.unique
        into.multi = rows.same.multi
        into.multi_given = into.multi_dropped = False
    take_span(rows.topic, row, &into.topic)
    take_span(rows.body, row, &into.body)
    take_span(rows.properties, row, &into.properties)
    take_span(rows.keys, row, &into.keys)
    take_span(rows.tags, row, &into.tags)
    take_span(rows.unique, row, &into.unique)
    if unlikely(rows.compressed != NULL):
        into.sys_flag = SYS_COMPRESSED if rows.compressed[row] else 0
    if rows.generate:
        into.unique_number = rows.first_unique + row
    if rows.is_table:
        rows_get_table(rows, row, into)


cdef void rows_get_table(const Rows *rows, int64_t row, Row *into) noexcept nogil:
    """Get the fields that only a table has."""
    cdef int64_t sys_flag = column_get_int(rows.sys_flag, row)
    into.flag = <int32_t>column_get_int(rows.flag, row)
    into.sys_flag = 0 if sys_flag == NO_NUMBER else <int32_t>sys_flag
    into.reconsume_times = <int32_t>column_get_int(rows.reconsume_times, row)
    into.prepared_transaction_offset = column_get_int(rows.prepared_offset, row)
    into.born_timestamp = column_get_int(rows.born_timestamp, row)
    into.born_host_length = 0
    if rows.born_hosts != NULL:
        into.born_host_length = rows.born_hosts[row].length
        memcpy(into.born_host, rows.born_hosts[row].bytes, HOST_V6_BYTES)
    # A raw body wins if its SYSFLAG is known, as the same bytes are then stored.
    if into.body.length < 0 or sys_flag != NO_NUMBER:
        if rows.raw_body.kind == COLUMN_SPANS and column_span(rows.raw_body, row).length >= 0:
            into.body = column_span(rows.raw_body, row)[0]
            return
    if into.sys_flag & SYS_COMPRESSED:
        into.sys_flag &= ~(SYS_COMPRESSED | SYS_COMPRESSION)


cdef bint same_words(const Span *a, const Property *b) noexcept nogil:
    """Whether two KEYS have the same keys; the number of spaces between them does not matter."""
    cdef const char *word = NULL
    cdef const char *other = NULL
    cdef int64_t length = 0
    cdef int64_t other_length = 0
    cdef int64_t at = 0
    cdef int64_t other_at = 0
    while split_next(a.data, max(0, a.length), 32, &at, &word, &length):
        if not split_next(b.value, b.value_length, 32, &other_at, &other, &other_length) \
                or not is_same(word, length, other, other_length):
            return False
    return not split_next(b.value, b.value_length, 32, &other_at, &other, &other_length)


cdef bint topic_waits(const Span *topic) noexcept nogil:
    """Whether messages of the topic are delivered later, and only then to further queues."""
    return is_same(topic.data, topic.length, SCHEDULE_TOPIC, SCHEDULE_TOPIC_LENGTH) \
        or is_same(topic.data, topic.length, HALF_TOPIC, HALF_TOPIC_LENGTH)


cdef int row_take_multi(
    const Limits *limits, const StoreProperties *mapped, Row *row,
) noexcept nogil:
    """Note the further queues named by given properties: ROW_GOOD or ROW_BAD_LIGHT.

    A record that has offsets from elsewhere enters these queues again; for others the settings
    decide, as in 4.9.3.
    """
    cdef const char *names = mapped.multi_dispatch.value
    cdef int64_t length = mapped.multi_dispatch.value_length
    cdef bint was_there = mapped.multi_offset.value_length > 0
    if length <= 0 or not (was_there or limits.multi_dispatch):
        return ROW_GOOD
    row.multi_dropped = was_there
    if topic_waits(&row.topic):
        return ROW_GOOD
    row.multi.data = names
    row.multi.length = list_length(names, length)
    row.multi_given = True
    return ROW_GOOD if first_bad_name(limits, row, was_there).length < 0 else ROW_BAD_LIGHT


cdef Span first_bad_name(const Limits *limits, const Row *row, bint was_there) noexcept nogil:
    """First invalid name of a row's further queues; length -1: all are valid."""
    cdef const char *names = row.multi.data
    cdef int64_t length = row.multi.length
    cdef Span name
    name.data = names
    while length >= 0:
        list_next(&names, &length, &name.data, &name.length)
        if not topic_name_writable(name.data, name.length):
            return name
        if name.length == LIGHT_PREFIX_BYTES and name_is_light(name.data, name.length):
            return name
        if not (was_there or limits.light_queues) and name_is_light(name.data, name.length):
            return name
    name.length = -1
    return name


cdef int row_join_map(const Limits *limits, const Rows *rows, Row *row) noexcept nogil:
    """Drop tags, keys and unique key that the properties have; ROW_OTHER_... on a conflict.

    A missing column is compatible with any map; a null contradicts a value in the map.
    """
    cdef StoreProperties mapped
    cdef int problem = ROW_GOOD
    if row.properties.length <= 0:
        return ROW_GOOD
    store_properties(row.properties.data, row.properties.length, &mapped)
    if mapped.tags.value_length >= 0:
        if rows.tags != &NO_COLUMN and not is_same(
                row.tags.data, max(0, row.tags.length), mapped.tags.value,
                mapped.tags.value_length):
            problem = ROW_OTHER_TAGS
        row.tags.length = -1
    if mapped.keys.value_length >= 0:
        if rows.keys != &NO_COLUMN and not same_words(&row.keys, &mapped.keys):
            problem = problem or ROW_OTHER_KEYS
        row.keys.length = -1
    if mapped.unique_key.value_length >= 0:
        if rows.unique != &NO_COLUMN and not is_same(
                row.unique.data, max(0, row.unique.length), mapped.unique_key.value,
                mapped.unique_key.value_length):
            problem = problem or ROW_OTHER_UNIQUE
        row.unique.length = -1
    if unlikely(mapped.multi_dispatch.value_length > 0):
        problem = problem or row_take_multi(limits, &mapped, row)
    return problem


cdef inline int64_t property_room(const Span *value, int64_t name_length) noexcept nogil:
    """Bytes that a property takes, including its 0x02."""
    return value.length + name_length + 2 if value.length > 0 else 0


cdef inline int64_t row_properties_room(const Row *row) noexcept nogil:
    """Bytes of the properties string without a checksum, and a separator after it."""
    cdef int64_t size = row.properties.length + 1 if row.properties.length > 0 else 0
    size += property_room(&row.keys, 4) + property_room(&row.tags, 4)
    if row.unique_number >= 0:
        size += UNIQUE_KEY_BYTES + 10
    else:
        size += property_room(&row.unique, 8)
    if row.delay_level:                      # DELAY, REAL_TOPIC, REAL_QID, six separators
        size += 29 + row.topic.length + snprintf(NULL, 0, "%lld%lld", <long long>row.delay_level,
                                                 <long long>row.queue_id)
    if row.multi.length > 0:                 # at least: the offsets are known later
        if not row.multi_given:
            size += row.multi.length + 22
        if not row.multi_dropped:
            size += 25 + 2 * list_count(row.multi.data, row.multi.length)
    if row.producer_group.length > 0:        # TRAN_MSG, PGROUP, REAL_TOPIC, REAL_QID
        size += 44 + row.producer_group.length + row.topic.length \
            + snprintf(NULL, 0, "%lld", <long long>row.queue_id)
    return size


cdef int row_size_problem(const Limits *limits, const Row *row, int64_t *size) noexcept nogil:
    """ROW_GOOD, or the part that is too large, and its size.

    A waiting message must fit into its topic now and at its destination: once acknowledged, it is
    moved under any later limits.  Additions meanwhile have to fit into the format alone.
    """
    size[0] = row_properties_room(row)
    if limits.record_checksum:
        size[0] += CHECKSUM_PROPERTY_BYTES
    elif size[0]:
        size[0] -= 1                         # no separator after the last
    if size[0] + row.later > PROPERTIES_MAX_BYTES:
        size[0] += row.later
        return ROW_PROPERTIES_TOO_LARGE
    size[0] += RECORD_FIXED_BYTES + row.body.length
    if row.delay_level:
        size[0] += max(<int64_t>SCHEDULE_TOPIC_LENGTH, row.topic.length)
    elif row.producer_group.length > 0:
        size[0] += max(<int64_t>HALF_TOPIC_LENGTH, row.topic.length)
    else:
        size[0] += row.topic.length
    if limits.store_host_v6:
        size[0] += HOST_V6_EXTRA
    if row.born_host_length == HOST_V6_BYTES \
            or (row.born_host_length == 0 and limits.store_host_v6):
        size[0] += HOST_V6_EXTRA
    if size[0] > limits.max_message_size:
        return ROW_TOO_LARGE
    size[0] += row.later
    return ROW_TOO_LARGE if size[0] + RECORD_BLANK_BYTES > limits.file_size else ROW_GOOD


cdef int64_t rows_size(const Limits *limits, const Rows *rows) noexcept nogil:
    """Bytes of the records of checked rows."""
    cdef Row row = rows.same
    cdef int64_t at
    cdef int64_t size = 0
    cdef int64_t total = 0
    for at in range(rows.count):
        rows_get(rows, at, &row)
        if rows.is_mapped:
            row_join_map(limits, rows, &row)
        row_size_problem(limits, &row, &size)
        total += size
    return total


cdef int64_t rows_check(
    const Limits *limits, const Rows *rows, int *problem, int64_t *size,
) noexcept nogil:
    """First row to refuse, with its problem; -1: none."""
    cdef Row row = rows.same
    cdef const Span *plain
    cdef int64_t at
    for at in range(rows.count):
        rows_get(rows, at, &row)
        problem[0] = ROW_GOOD
        if row.body.length < 0:
            problem[0] = ROW_NO_BODY
        elif rows.is_table and rows.raw_body.kind == COLUMN_SPANS \
                and rows.body.kind == COLUMN_SPANS and not row.sys_flag & SYS_COMPRESSED:
            plain = column_span(rows.body, at)
            if plain.length >= 0 and plain.data != row.body.data \
                    and not is_same(plain.data, plain.length, row.body.data, row.body.length):
                problem[0] = ROW_BODIES_DIFFER
        if rows.is_mapped and problem[0] == ROW_GOOD:
            problem[0] = row_join_map(limits, rows, &row)
        if problem[0] == ROW_GOOD:
            problem[0] = row_size_problem(limits, &row, size)
        if problem[0] != ROW_GOOD:
            return at
    return -1


cdef void text_add_kept(Text *text, int64_t start, const Row *row) noexcept nogil:
    """Append the given properties, except those recreated or dropped by 4.9.3.  REQUIRES: room."""
    cdef Property entry
    cdef int64_t at = 0
    while property_next(row.properties.data, row.properties.length, &at, &entry):
        if is_same(entry.name, entry.name_length, MULTI_OFFSET, 24) \
                or (row.multi_given and is_same(entry.name, entry.name_length, b"WAIT", 4)):
            continue
        text_add_property(text, start, entry.name, entry.name_length, entry.value,
                          entry.value_length)


cdef int64_t row_encode_multi(
    Store *store, const Row *row, int32_t queue_id, Text *text, Encoded *message,
) noexcept nogil:
    """Append the text before the offsets in further queues, with room for them: 0, or a status.

    REQUIRES: nothing was appended since row_encode.
    """
    cdef int64_t start = <int64_t>message.properties
    cdef int64_t room = OFFSET_TEXT_BYTES * list_count(row.multi.data, row.multi.length) \
        + row.multi.length + CHECKSUM_PROPERTY_BYTES + 64
    cdef Multi *multi = NULL
    cdef int64_t rc
    if text_reserve(text, room) < 0:
        return E_NO_MEMORY
    if not row.multi_given:
        text_add_property(text, start, MULTI_DISPATCH, 20, row.multi.data, row.multi.length)
    text_add_property(text, start, MULTI_OFFSET, 24, b"", 0)
    rc = multi_new(store, row.multi.data, row.multi.length, queue_id, &multi)
    message.multi = multi
    if rc < 0:
        return rc
    multi.before = text.length - start
    message.properties_length = text.length - start
    message.size = <int32_t>encoded_size(message)
    text.length += OFFSET_TEXT_BYTES * multi.count + CHECKSUM_PROPERTY_BYTES + 1
    return 0


cdef inline int64_t row_encode(
    const Settings *settings, const Row *row, Topic *topic, int32_t queue_id, Text *text,
    Encoded *into,
) noexcept nogil:
    """Lay out a checked row: its properties go to ``text``, their position noted as an offset."""
    cdef char number[NUMBER_TEXT]
    cdef char key[UNIQUE_KEY_BYTES]
    cdef int64_t start = text.length
    if text_reserve(text, row_properties_room(row) + CHECKSUM_PROPERTY_BYTES + 2) < 0:
        return E_NO_MEMORY
    if unlikely(row.multi_given or row.multi_dropped):
        text_add_kept(text, start, row)
    elif row.properties.length > 0:
        text_add(text, row.properties.data, row.properties.length)
    if row.keys.length > 0:
        text_add_property(text, start, b"KEYS", 4, row.keys.data, row.keys.length)
    if row.tags.length > 0:
        text_add_property(text, start, b"TAGS", 4, row.tags.data, row.tags.length)
    if row.unique_number >= 0:
        unique_key_write(&unique_keys, row.unique_number, key)
        text_add_property(text, start, b"UNIQ_KEY", 8, key, UNIQUE_KEY_BYTES)
    elif row.unique.length > 0:
        text_add_property(text, start, b"UNIQ_KEY", 8, row.unique.data, row.unique.length)
    if unlikely(row.delay_level != 0):
        text_add_property(text, start, b"DELAY", 5, number,
                          snprintf(number, NUMBER_TEXT, "%lld", <long long>row.delay_level))
        text_add_property(text, start, b"REAL_TOPIC", 10, row.topic.data, row.topic.length)
        text_add_property(text, start, b"REAL_QID", 8, number,
                          snprintf(number, NUMBER_TEXT, "%lld", <long long>row.queue_id))
    if unlikely(row.producer_group.length > 0):
        text_add_property(text, start, b"TRAN_MSG", 8, b"true", 4)
        text_add_property(text, start, b"PGROUP", 6, row.producer_group.data,
                          row.producer_group.length)
        text_add_property(text, start, b"REAL_TOPIC", 10, row.topic.data, row.topic.length)
        text_add_property(text, start, b"REAL_QID", 8, number,
                          snprintf(number, NUMBER_TEXT, "%lld", <long long>row.queue_id))
    # Filled in when the rest of the record is complete.
    if settings.record_checksum and row.multi.length <= 0:
        if text.length > start:
            text_add(text, b"\x02", 1)
        memset(text.data + text.length, 0, CHECKSUM_PROPERTY_BYTES)
        text.length += CHECKSUM_PROPERTY_BYTES
    into.properties = <const char *>start
    into.properties_length = text.length - start
    into.checksum = settings.record_checksum
    into.multi = NULL
    into.topic = topic.name
    into.topic_length = topic.length
    into.queue_id = queue_id
    into.body = row.body.data
    into.body_length = row.body.length
    into.volatile_body = row.volatile_body
    into.flag = row.flag
    into.reconsume_times = row.reconsume_times
    into.born_timestamp = row.born_timestamp
    into.prepared_transaction_offset = row.prepared_transaction_offset
    into.sys_flag = row.sys_flag & ~(SYS_BORN_HOST_V6 | SYS_STORE_HOST_V6)
    memcpy(into.store_host, settings.store_host, HOST_V6_BYTES)
    if settings.store_host_length == HOST_V6_BYTES:
        into.sys_flag |= SYS_STORE_HOST_V6
    if row.born_host_length == 0:
        memcpy(into.born_host, settings.store_host, HOST_V6_BYTES)
        if settings.store_host_length == HOST_V6_BYTES:
            into.sys_flag |= SYS_BORN_HOST_V6
    else:
        memcpy(into.born_host, row.born_host, HOST_V6_BYTES)
        if row.born_host_length == HOST_V6_BYTES:
            into.sys_flag |= SYS_BORN_HOST_V6
    into.size = <int32_t>encoded_size(into)
    if not row.volatile_body:
        into.body_crc = record_body_crc(row.body.data, row.body.length)
    return 0
