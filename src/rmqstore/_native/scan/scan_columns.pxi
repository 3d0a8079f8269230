# Columns for a record's fields: their list, their types, and a row from a record's bytes.
#
# Source: the fields are common/message/MessageExt.java's.

cdef enum:
    SCAN_TOPIC
    SCAN_QUEUE_ID
    SCAN_QUEUE_OFFSET
    SCAN_PHYSICAL_OFFSET
    SCAN_STORE_SIZE
    SCAN_MSG_ID
    SCAN_UNIQ_KEY
    SCAN_TAGS
    SCAN_KEYS
    SCAN_PROPERTIES
    SCAN_BODY
    SCAN_FLAG
    SCAN_SYS_FLAG
    SCAN_BORN_TIMESTAMP
    SCAN_STORE_TIMESTAMP
    SCAN_BORN_HOST
    SCAN_STORE_HOST
    SCAN_RECONSUME_TIMES
    SCAN_PREPARED_TRANSACTION_OFFSET
    SCAN_BODY_CRC
    SCAN_RAW_BODY
    SCAN_COUNT

    ROW_BYTES_OF_TEXT = 64       # of a topic, a host or an id, with its end offset
    NAMES_COMPARED = 24          # up to this many properties are compared one by one
    NAME_SLOTS = 1 << 14         # more than the properties that fit into 32,767 bytes

cdef struct ColumnKind:
    const char *name
    const char *format           # of the Arrow C data interface
    int64_t layout

cdef ColumnKind[SCAN_COUNT] COLUMN_KINDS


cdef void column_kind(
    int64_t field, const char *name, const char *format, int64_t layout,
) noexcept nogil:
    COLUMN_KINDS[field].name = name
    COLUMN_KINDS[field].format = format
    COLUMN_KINDS[field].layout = layout


cdef tuple init_columns():
    """Fill in the table; return the names in order."""
    column_kind(SCAN_TOPIC, b"topic", b"u", LAYOUT_TEXT)
    column_kind(SCAN_QUEUE_ID, b"queue_id", b"i", LAYOUT_INT32)
    column_kind(SCAN_QUEUE_OFFSET, b"queue_offset", b"l", LAYOUT_INT64)
    column_kind(SCAN_PHYSICAL_OFFSET, b"physical_offset", b"l", LAYOUT_INT64)
    column_kind(SCAN_STORE_SIZE, b"store_size", b"i", LAYOUT_INT32)
    column_kind(SCAN_MSG_ID, b"msg_id", b"u", LAYOUT_TEXT)
    column_kind(SCAN_UNIQ_KEY, b"uniq_key", b"u", LAYOUT_TEXT)
    column_kind(SCAN_TAGS, b"tags", b"u", LAYOUT_TEXT)
    column_kind(SCAN_KEYS, b"keys", b"+l", LAYOUT_LIST)
    column_kind(SCAN_PROPERTIES, b"properties", b"+m", LAYOUT_MAP)
    column_kind(SCAN_BODY, b"body", b"z", LAYOUT_TEXT)
    column_kind(SCAN_FLAG, b"flag", b"i", LAYOUT_INT32)
    column_kind(SCAN_SYS_FLAG, b"sys_flag", b"i", LAYOUT_INT32)
    column_kind(SCAN_BORN_TIMESTAMP, b"born_timestamp", b"tsm:UTC", LAYOUT_INT64)
    column_kind(SCAN_STORE_TIMESTAMP, b"store_timestamp", b"tsm:UTC", LAYOUT_INT64)
    column_kind(SCAN_BORN_HOST, b"born_host", b"u", LAYOUT_TEXT)
    column_kind(SCAN_STORE_HOST, b"store_host", b"u", LAYOUT_TEXT)
    column_kind(SCAN_RECONSUME_TIMES, b"reconsume_times", b"i", LAYOUT_INT32)
    column_kind(SCAN_PREPARED_TRANSACTION_OFFSET, b"prepared_transaction_offset", b"l",
                LAYOUT_INT64)
    column_kind(SCAN_BODY_CRC, b"body_crc", b"l", LAYOUT_INT64)
    column_kind(SCAN_RAW_BODY, b"raw_body", b"z", LAYOUT_TEXT)
    return tuple([COLUMN_KINDS[i].name.decode("ascii") for i in range(SCAN_COUNT)])


# Text of the last address, nearly always the next one's too.
cdef struct HostText:
    char host[HOST_V6_BYTES]
    int64_t host_length          # 0: none yet
    char text[64]
    int64_t length


# The columns of a batch, and the scratch memory of a row.
cdef struct Batch:
    OutputColumn *columns
    int64_t count
    int64_t rows
    int64_t bytes                # upper bound for the rows so far
    int64_t last_bytes           # for the last of them
    int64_t row_bytes            # of a row, without bodies, properties and topic
    int64_t properties_times     # columns computed from the properties
    int64_t text_bytes           # of the properties of the current row, decoded
    bint of_units                # units hold all columns
    bint wants_topic
    bint wants_body
    bint wants_raw_body
    Growing entries              # Property: the record's, in order
    Growing rewritten            # properties that are not UTF-8, with U+FFFD as Java places it
    Growing slots                # int32: NAME_SLOTS of a hash table over the names
    HostText born
    HostText store
    int64_t max_body


cdef int64_t batch_init(Batch *batch, const int64_t *fields, int64_t count) noexcept nogil:
    """Choose the columns."""
    cdef OutputColumn *column
    cdef int64_t i
    batch.columns = <OutputColumn *>calloc(<size_t>max(count, 1), sizeof(OutputColumn))
    if batch.columns == NULL:
        return E_NO_MEMORY
    output_begin()
    batch.count = count
    batch.row_bytes = 1
    batch.of_units = True
    for i in range(count):
        column = &batch.columns[i]
        column.field = fields[i]
        column.layout = COLUMN_KINDS[fields[i]].layout
        batch.row_bytes += ROW_BYTES_OF_TEXT if column.layout >= LAYOUT_TEXT else 8
        batch.of_units &= SCAN_QUEUE_ID <= column.field <= SCAN_STORE_SIZE
        batch.properties_times += SCAN_UNIQ_KEY <= column.field <= SCAN_PROPERTIES
        batch.wants_topic |= column.field == SCAN_TOPIC
        batch.wants_body |= column.field == SCAN_BODY
        batch.wants_raw_body |= column.field == SCAN_RAW_BODY
    return batch_begin(batch)


cdef int64_t batch_begin(Batch *batch) noexcept nogil:
    """Prepare for the first row."""
    cdef int64_t i
    batch.rows = 0
    batch.bytes = 0
    for i in range(batch.count):
        if column_begin(&batch.columns[i]) < 0:
            return E_NO_MEMORY
    return 0


cdef void batch_free(Batch *batch) noexcept nogil:
    cdef int64_t i
    for i in range(batch.count):
        output_column_free(&batch.columns[i])
    growing_free(&batch.entries)
    growing_free(&batch.rewritten)
    growing_free(&batch.slots)
    batch.count = 0
    if batch.columns != NULL:
        free(batch.columns)
        batch.columns = NULL
        output_end()


cdef int64_t batch_export(Batch *batch, ArrowArray *array) noexcept nogil:
    """Rows as a struct array; empties the batch.  The caller releases ``array``."""
    cdef int64_t i
    cdef int64_t rc = array_begin(array, batch.rows, 1, batch.count)
    for i in range(batch.count):
        if rc == 0:
            rc = column_export(&batch.columns[i], batch.rows, array.children[i])
        else:
            output_column_free(&batch.columns[i])
    batch.rows = 0
    batch.bytes = 0
    return rc if rc < 0 else batch_begin(batch)


cdef int64_t batch_type(const Batch *batch, ArrowSchema *schema) noexcept nogil:
    """Type of the struct array.  The caller releases ``schema``."""
    cdef const ColumnKind *kind
    cdef int64_t i
    cdef int64_t rc = type_begin(schema, b"", b"+s", 0, batch.count)
    for i in range(batch.count):
        if rc < 0:
            break
        kind = &COLUMN_KINDS[batch.columns[i].field]
        rc = type_of_column(schema.children[i], kind.name, kind.format, kind.layout)
    return rc


cdef int64_t rewrite_as_java(
    Growing *into, const char *data, int64_t length,
) noexcept nogil:
    """Append text with U+FFFD for malformed UTF-8, as ``new String(bytes, UTF_8)`` does."""
    cdef int64_t at = 0
    cdef int64_t size
    cdef uint32_t code = 0
    if growing_room(into, 3 * length) < 0:
        return E_NO_MEMORY
    while at < length:
        size = java_decode_utf8(<const unsigned char *>data + at, length - at, &code)
        if code == JAVA_REPLACEMENT:
            memcpy(into.data + into.length, b"\xEF\xBF\xBD", 3)
            into.length += 3
        else:
            memcpy(into.data + into.length, data + at, <size_t>size)
            into.length += size
        at += size
    return 0


cdef int64_t texts_put_decoded(
    Texts *texts, const char *data, int64_t length,
) noexcept nogil:
    """Append text that may not be UTF-8."""
    if likely(utf8_error(data, length) < 0):
        return texts_put(texts, data, length)
    if rewrite_as_java(&texts.bytes, data, length) < 0:
        return E_NO_MEMORY
    return growing_put_i32(&texts.ends, texts.bytes.length)


cdef int64_t batch_entries(Batch *batch, const char *data, const Record *record) noexcept nogil:
    """Decode the record's properties, in order, into ``batch.entries``."""
    cdef Property entry
    cdef int64_t at = 0
    cdef const char *text = data + record.properties_at
    cdef int64_t length = record.properties_length
    if unlikely(utf8_error(text, length) >= 0):
        # As a whole: no separator can be part of a malformed character.
        batch.rewritten.length = 0
        if rewrite_as_java(&batch.rewritten, text, length) < 0:
            return E_NO_MEMORY
        text = batch.rewritten.data
        length = batch.rewritten.length
    batch.entries.length = 0
    while property_next(text, length, &at, &entry):
        if growing_room(&batch.entries, sizeof(Property)) < 0:
            return E_NO_MEMORY
        memcpy(batch.entries.data + batch.entries.length, &entry, sizeof(Property))
        batch.entries.length += <int64_t>sizeof(Property)
    batch.text_bytes = length + 8 * (batch.entries.length // <int64_t>sizeof(Property))
    return 0


cdef const Property *batch_property(
    const Batch *batch, const char *name, int64_t length,
) noexcept nogil:
    """Last entry of a name; NULL: none."""
    cdef const Property *entries = <const Property *>batch.entries.data
    cdef int64_t i = batch.entries.length // <int64_t>sizeof(Property)
    while i > 0:
        i -= 1
        if entries[i].name_length == length \
                and memcmp(entries[i].name, name, <size_t>length) == 0:
            return &entries[i]
    return NULL


cdef inline bint same_name(const Property *a, const Property *b) noexcept nogil:
    return a.name_length == b.name_length \
        and memcmp(a.name, b.name, <size_t>a.name_length) == 0


cdef int64_t union_names(Batch *batch) noexcept nogil:
    """Merge entries of the same name, into the first one's position with the last one's value.

    The other entries get a name length of 0.
    """
    cdef Property *entries = <Property *>batch.entries.data
    cdef int64_t count = batch.entries.length // <int64_t>sizeof(Property)
    cdef int64_t i, earlier
    cdef int32_t *slots
    cdef uint32_t slot
    if count <= NAMES_COMPARED:
        for i in range(1, count):
            for earlier in range(i):
                if same_name(&entries[earlier], &entries[i]):
                    entries[earlier].value = entries[i].value
                    entries[earlier].value_length = entries[i].value_length
                    entries[i].name_length = 0
                    break
        return 0
    batch.slots.length = 0
    if growing_room(&batch.slots, NAME_SLOTS * 4) < 0:
        return E_NO_MEMORY
    slots = <int32_t *>batch.slots.data
    memset(slots, 0xFF, NAME_SLOTS * 4)
    for i in range(count):
        slot = topic_hash(entries[i].name, entries[i].name_length) & (NAME_SLOTS - 1)
        while slots[slot] >= 0 and not same_name(&entries[slots[slot]], &entries[i]):
            slot = (slot + 1) & (NAME_SLOTS - 1)
        if slots[slot] < 0:
            slots[slot] = <int32_t>i
        else:
            entries[slots[slot]].value = entries[i].value
            entries[slots[slot]].value_length = entries[i].value_length
            entries[i].name_length = 0
    return 0


cdef int64_t put_properties(Batch *batch, OutputColumn *column) noexcept nogil:
    cdef const Property *entries = <const Property *>batch.entries.data
    cdef int64_t i
    for i in range(batch.entries.length // <int64_t>sizeof(Property)):
        if entries[i].name_length == 0:
            continue
        if texts_put(&column.texts, entries[i].name, entries[i].name_length) < 0 \
                or texts_put(&column.seconds, entries[i].value, entries[i].value_length) < 0:
            return E_NO_MEMORY
    return growing_put_i32(&column.ends, texts_count(&column.texts))


cdef int64_t put_keys(OutputColumn *column, const Property *keys) noexcept nogil:
    cdef const char *word = NULL
    cdef int64_t length = 0
    cdef int64_t at = 0
    while keys != NULL and split_next(keys.value, keys.value_length, 32, &at, &word, &length):
        if texts_put(&column.texts, word, length) < 0:
            return E_NO_MEMORY
    return growing_put_i32(&column.ends, texts_count(&column.texts))


cdef int64_t put_property(
    Batch *batch, OutputColumn *column, const Property *found,
) noexcept nogil:
    """Append a text, or null."""
    if column_put_valid(column, batch.rows, found != NULL) < 0:
        return E_NO_MEMORY
    if found == NULL:
        return growing_put_i32(&column.texts.ends, column.texts.bytes.length)
    return texts_put(&column.texts, found.value, found.value_length)


cdef const HostText *host_text_of(HostText *known, const char *host, bint v6) noexcept nogil:
    """``ip:port`` or ``[v6]:port``, in ``known``."""
    cdef int64_t length = HOST_V6_BYTES if v6 else HOST_V4_BYTES
    if known.host_length != length or memcmp(known.host, host, <size_t>length) != 0:
        memcpy(known.host, host, <size_t>length)
        known.host_length = length
        known.length = host_write(known.host, v6, known.text)  # as ``host`` may change
    return known


cdef int64_t put_host(
    HostText *known, OutputColumn *column, const char *host, bint v6,
) noexcept nogil:
    cdef const HostText *text = host_text_of(known, host, v6)
    return texts_put(&column.texts, text.text, text.length)


cdef int64_t put_message_id(
    OutputColumn *column, const char *host, bint v6, int64_t physical_offset,
) noexcept nogil:
    cdef char digits[MESSAGE_ID_MAX]
    return texts_put(&column.texts, digits, message_id_write(host, v6, physical_offset, digits))


cdef int64_t record_number(const Record *record, int64_t field) noexcept nogil:
    """Value of a column of integers."""
    if field == SCAN_QUEUE_ID:
        return record.queue_id
    if field == SCAN_QUEUE_OFFSET:
        return record.queue_offset
    if field == SCAN_PHYSICAL_OFFSET:
        return record.physical_offset
    if field == SCAN_STORE_SIZE:
        return record.size
    if field == SCAN_FLAG:
        return record.flag
    if field == SCAN_SYS_FLAG:
        return record.sys_flag
    if field == SCAN_BORN_TIMESTAMP:
        return record.born_timestamp
    if field == SCAN_STORE_TIMESTAMP:
        return record.store_timestamp
    if field == SCAN_RECONSUME_TIMES:
        return record.reconsume_times
    if field == SCAN_PREPARED_TRANSACTION_OFFSET:
        return record.prepared_transaction_offset
    return record.body_crc


cdef int64_t put_text(
    Batch *batch, OutputColumn *column, const char *data, const Record *record, const char *body,
    int64_t body_length,
) noexcept nogil:
    """Append the value of a column of texts, or of keys."""
    cdef bint v6 = record.sys_flag & SYS_STORE_HOST_V6 != 0
    cdef int64_t field = column.field
    if field == SCAN_TOPIC:
        return texts_put_decoded(&column.texts, data + record.topic_at, record.topic_length)
    if field == SCAN_MSG_ID:
        return put_message_id(column, data + record.store_host_at, v6, record.physical_offset)
    if field == SCAN_UNIQ_KEY:
        return put_property(batch, column, batch_property(batch, b"UNIQ_KEY", 8))
    if field == SCAN_TAGS:
        return put_property(batch, column, batch_property(batch, b"TAGS", 4))
    if field == SCAN_KEYS:
        return put_keys(column, batch_property(batch, b"KEYS", 4))
    if field == SCAN_BODY:
        return texts_put(&column.texts, body, body_length)
    if field == SCAN_BORN_HOST:
        return put_host(&batch.born, column, data + record.born_host_at,
                        record.sys_flag & SYS_BORN_HOST_V6 != 0)
    if field == SCAN_STORE_HOST:
        return put_host(&batch.store, column, data + record.store_host_at, v6)
    return texts_put(&column.texts, data + record.body_at, record.body_length)


cdef int64_t batch_add(
    Batch *batch, const char *data, const Record *record, const char *body, int64_t body_length,
) noexcept nogil:
    """Append a record as a row; ``body`` is the inflated one.  0, or E_NO_MEMORY."""
    cdef OutputColumn *column
    cdef OutputColumn *properties = NULL
    cdef int64_t i
    cdef int64_t rc = batch_entries(batch, data, record) if batch.properties_times else 0
    for i in range(batch.count):
        if rc < 0:
            return rc
        column = &batch.columns[i]
        if column.layout == LAYOUT_INT32:
            rc = growing_put_i32(&column.values, record_number(record, column.field))
        elif column.layout == LAYOUT_INT64:
            rc = growing_put_i64(&column.values, record_number(record, column.field))
        elif column.layout == LAYOUT_MAP:
            properties = column              # last: merging names changes the entries
        else:
            rc = put_text(batch, column, data, record, body, body_length)
    if rc == 0 and properties != NULL:
        rc = union_names(batch)
        if rc == 0:
            rc = put_properties(batch, properties)
    if rc < 0:
        return rc
    batch.rows += 1
    batch.last_bytes = row_bytes(batch, record, body_length)
    batch.bytes += batch.last_bytes
    return 0


cdef int64_t batch_add_units(
    Batch *batch, const Queue *queue, int64_t queue_offset, const char *units, int64_t count,
) noexcept nogil:
    """Append values for units from ``queue_offset`` on, without counting rows; or E_NO_MEMORY."""
    cdef OutputColumn *column
    cdef int32_t *narrow
    cdef int64_t *wide
    cdef int64_t i, k
    for i in range(batch.count):
        column = &batch.columns[i]
        if growing_room(&column.values, 8 * count) < 0:
            return E_NO_MEMORY
        narrow = <int32_t *>(column.values.data + column.values.length)
        wide = <int64_t *>narrow
        if column.field == SCAN_QUEUE_ID:
            for k in range(count):
                narrow[k] = queue.id
        elif column.field == SCAN_STORE_SIZE:
            for k in range(count):
                narrow[k] = get_i32(units + k * UNIT_BYTES + UNIT_SIZE)
        elif column.field == SCAN_QUEUE_OFFSET:
            for k in range(count):
                wide[k] = queue_offset + k
        else:
            for k in range(count):
                wide[k] = get_i64(units + k * UNIT_BYTES + UNIT_PHYSICAL_OFFSET)
        column.values.length += count * (4 if column.layout == LAYOUT_INT32 else 8)
    return 0


cdef void batch_take_back(Batch *batch) noexcept nogil:
    """Remove the row added last."""
    cdef int64_t i
    batch.rows -= 1
    batch.bytes -= batch.last_bytes
    for i in range(batch.count):
        column_take_back(&batch.columns[i], batch.rows)


cdef int64_t row_bytes(
    const Batch *batch, const Record *record, int64_t body_length,
) noexcept nogil:
    """Upper bound for the bytes that the row takes."""
    cdef int64_t bytes = batch.row_bytes
    if batch.properties_times:
        bytes += batch.properties_times * batch.text_bytes
    if batch.wants_topic:
        bytes += 3 * record.topic_length
    if batch.wants_body:
        bytes += body_length
    if batch.wants_raw_body:
        bytes += record.body_length
    return bytes
