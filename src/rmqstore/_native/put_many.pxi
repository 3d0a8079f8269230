# put_many and put_batch: columns in, drafts made without the GIL, appended in chunks.
#
# Source: store/CommitLog.java asyncPutMessages, MessageExtBatchEncoder

cdef enum:
    MANY_CHUNK = 512             # rows laid out, then appended, at a time
    MANY_PROPERTIES = 1 << 16    # bytes of properties strings of a chunk, at first
    MANY_SPARE = 1 << 20         # with more of them a chunk is not kept
    FILL_PROPERTIES = 1          # of a RowFill: the properties are as put_many's

cdef struct Chunk

# Lays out one row beyond topic and queue: body, what else it has, and properties, but for
# FILL_PROPERTIES. A negative status else.
ctypedef int64_t (*RowFill)(
    const Rows *rows, int64_t row, Chunk *chunk, int64_t slot) noexcept nogil

# The columns of a call and what is the same for all rows.
cdef struct Rows:
    RowFill fill                 # NULL: as put_many does
    void *table                  # what only `fill` knows
    const ColumnView *bodies
    const ColumnView *topic
    const ColumnView *tags
    const ColumnView *keys
    const ColumnView *properties
    const ColumnView *unique
    bint generate
    bint volatile_bodies         # not bytes: others may write to them meanwhile
    int64_t unique_first         # number of the first row's unique key
    int64_t count
    Topic **topics               # by row, or one
    bint one_topic
    int64_t *queue_ids           # by row
    int64_t born_timestamp


cdef struct Chunk:
    Draft drafts[MANY_CHUNK]
    Queue *queues[MANY_CHUNK]
    Place places[MANY_CHUNK]
    int64_t at[MANY_CHUNK]       # where each row's properties begin
    char *text
    int64_t length
    int64_t room


cdef inline int64_t chunk_room(Chunk *chunk, int64_t length) noexcept nogil:
    cdef char *grown
    if chunk.length + length <= chunk.room:
        return 0
    grown = <char *>realloc(chunk.text, <size_t>((chunk.length + length) * 2))
    if grown == NULL:
        return E_NO_MEMORY
    chunk.text = grown
    chunk.room = (chunk.length + length) * 2
    return 0


cdef inline void chunk_property(
    Chunk *chunk, int64_t start, const char *name, int64_t name_length, const char *value,
    int64_t value_length,
) noexcept nogil:
    """Append one property to the row that began at ``start``; there is room."""
    cdef char *at = chunk.text + chunk.length
    if chunk.length > start:
        at[0] = PROPERTY_VALUE_END
        at += 1
    memcpy(at, name, <size_t>name_length)
    at[name_length] = PROPERTY_NAME_END
    memcpy(at + name_length + 1, value, <size_t>value_length)
    chunk.length = at + name_length + 1 + value_length - chunk.text


cdef int64_t row_properties(
    const Rows *rows, int64_t row, Chunk *chunk, int64_t slot,
) noexcept nogil:
    """The properties string of a row: the caller's, KEYS, TAGS, UNIQ_KEY."""
    cdef const char *data = NULL
    cdef int64_t length = 0
    cdef int64_t start = chunk.length
    cdef char key[UNIQUE_KEY_BYTES]
    chunk.at[slot] = start
    if column_get(rows.properties, row, &data, &length) and length > 1:
        if chunk_room(chunk, length) < 0:
            return E_NO_MEMORY
        memcpy(chunk.text + chunk.length, data, <size_t>(length - 1))   # less its last 0x02
        chunk.length += length - 1
    if column_get(rows.keys, row, &data, &length) and length > 0:
        if chunk_room(chunk, length + 8) < 0:
            return E_NO_MEMORY
        chunk_property(chunk, start, b"KEYS", 4, data, length)
    if column_get(rows.tags, row, &data, &length) and length > 0:
        if chunk_room(chunk, length + 8) < 0:
            return E_NO_MEMORY
        chunk_property(chunk, start, b"TAGS", 4, data, length)
    if rows.generate:
        if chunk_room(chunk, UNIQUE_KEY_BYTES + 12) < 0:
            return E_NO_MEMORY
        unique_key_write(&unique_keys, rows.unique_first + row, key)
        chunk_property(chunk, start, b"UNIQ_KEY", 8, key, UNIQUE_KEY_BYTES)
    elif column_get(rows.unique, row, &data, &length) and length > 0:
        if chunk_room(chunk, length + 12) < 0:
            return E_NO_MEMORY
        chunk_property(chunk, start, b"UNIQ_KEY", 8, data, length)
    return 0


cdef int64_t chunk_fill(
    Store *store, const Rows *rows, int64_t first, int64_t count, Chunk *chunk,
) noexcept nogil:
    """Lay out ``count`` rows from ``first`` on: drafts with checksums, and their queues."""
    cdef Draft *draft
    cdef Topic *topic
    cdef int64_t i, row, rc
    chunk.length = 0
    for i in range(count):
        row = first + i
        draft = &chunk.drafts[i]
        topic = rows.topics[0 if rows.one_topic else row]
        draft.sys_flag = 0
        draft_hosts(store, draft)
        draft.topic = topic.name
        draft.topic_length = topic.length
        draft.queue_id = <int32_t>rows.queue_ids[row]
        draft.flag = 0
        draft.reconsume_times = 0
        draft.prepared_transaction_offset = 0
        draft.born_timestamp = rows.born_timestamp
        draft.checksum = store.settings.record_checksum
        draft.volatile_body = rows.volatile_bodies
        rc = FILL_PROPERTIES
        if unlikely(rows.fill != NULL):
            rc = rows.fill(rows, row, chunk, i)
        else:
            column_get(rows.bodies, row, &draft.body, &draft.body_length)
        if rc == FILL_PROPERTIES:            # the only call, so that it is made in line
            rc = row_properties(rows, row, chunk, i)
        if rc == 0 and draft.checksum:
            rc = chunk_room(chunk, CHECKSUM_PROPERTY_BYTES + 1)
            if rc == 0:
                if chunk.length > chunk.at[i]:
                    chunk.text[chunk.length] = PROPERTY_VALUE_END
                    chunk.length += 1
                memset(chunk.text + chunk.length, 0, CHECKSUM_PROPERTY_BYTES)
                chunk.length += CHECKSUM_PROPERTY_BYTES
        if rc < 0:
            return rc
        draft.properties_length = chunk.length - chunk.at[i]
        draft.size = <int32_t>draft_size(draft)
        if not draft.volatile_body:
            draft.body_crc = record_body_crc(draft.body, draft.body_length)
        chunk.queues[i] = queue_find(topic, draft.queue_id)
    for i in range(count):                   # the text may have moved while it grew
        chunk.drafts[i].properties = chunk.text + chunk.at[i]
    return 0


cdef int64_t rows_too_large(Store *store, const Rows *rows, int64_t *size) noexcept nogil:
    """The first row that breaks a limit, with its size; -1 if all rows may be stored.

    A negative size is that of the properties.
    """
    cdef const char *data = NULL
    cdef int64_t row, length, properties, fixed
    fixed = RECORD_FIXED_BYTES
    if store.settings.store_host_length == HOST_V6_BYTES:
        fixed += 2 * HOST_V6_EXTRA
    for row in range(rows.count):
        properties = 0
        length = 0
        if column_get(rows.properties, row, &data, &length) and length > 1:
            properties += length
        if column_get(rows.keys, row, &data, &length) and length > 0:
            properties += length + 6
        if column_get(rows.tags, row, &data, &length) and length > 0:
            properties += length + 6
        if rows.generate:
            properties += UNIQUE_KEY_BYTES + 10
        elif column_get(rows.unique, row, &data, &length) and length > 0:
            properties += length + 10
        if properties:
            properties -= 1
        if store.settings.record_checksum:
            properties += CHECKSUM_PROPERTY_BYTES + (1 if properties else 0)
        if properties > PROPERTIES_MAX_BYTES:
            size[0] = -properties
            return row
        column_get(rows.bodies, row, &data, &length)
        size[0] = fixed + length + properties
        column_get(rows.topic, row, &data, &length)
        size[0] += length
        if size[0] > store.settings.max_message_size \
                or size[0] + RECORD_BLANK_BYTES > store.log.file_size:
            return row
    return -1


cdef int64_t row_with_separator(const ColumnView *column, int64_t count) noexcept nogil:
    """The first row whose text holds 0x01, 0x02 or too many zeros, -1 if none does."""
    cdef const char *data = NULL
    cdef int64_t row
    cdef int64_t length = 0
    for row in range(count):
        if column_get(column, row, &data, &length) and (
                memchr(data, PROPERTY_NAME_END, <size_t>length) != NULL
                or memchr(data, PROPERTY_VALUE_END, <size_t>length) != NULL
                or has_zero_run(data, length)):
            return row
        if column.code_count == 1:
            return -1
    return -1


cdef int64_t append_rows(
    Store *store, const Rows *rows, Chunk *chunk, int64_t *physical_offset,
    int64_t *queue_offset, int64_t *stop, int64_t *status,
) noexcept nogil:
    """Append all rows chunk by chunk; how many are in the log."""
    cdef int64_t done = 0
    cdef int64_t part, stored, i
    status[0] = 0
    while done < rows.count and status[0] == 0:
        part = min(MANY_CHUNK, rows.count - done)
        status[0] = chunk_fill(store, rows, done, part, chunk)
        if status[0] < 0:
            break
        stored = log_append_many(store, chunk.drafts, chunk.queues, part, chunk.places)
        if stored < part:
            status[0] = chunk.places[stored].store_timestamp
        for i in range(stored):
            physical_offset[done + i] = chunk.places[i].physical_offset
            queue_offset[done + i] = chunk.places[i].queue_offset
        if stored:
            stop[0] = chunk.places[stored - 1].physical_offset + chunk.drafts[stored - 1].size
        done += stored
    return done


cdef extern from *:
    """
    #define swap_pointer(p, v) __atomic_exchange_n(p, v, __ATOMIC_ACQ_REL)
    """
    Chunk *swap_chunk "swap_pointer"(Chunk **at, Chunk *value) noexcept nogil


# The chunk that was used last: pages that are touched already are worth keeping.
cdef Chunk *spare_chunk = NULL


cdef Chunk *chunk_new() except NULL:
    cdef Chunk *chunk = swap_chunk(&spare_chunk, NULL)
    if chunk != NULL:
        return chunk
    chunk = <Chunk *>malloc(sizeof(Chunk))
    if chunk == NULL:
        raise MemoryError()
    chunk.text = <char *>malloc(MANY_PROPERTIES)
    chunk.room = MANY_PROPERTIES
    if chunk.text == NULL:
        free(chunk)
        raise MemoryError()
    return chunk


cdef void chunk_free(Chunk *chunk) noexcept nogil:
    """Keep it for the next call, unless its text grew large."""
    if chunk != NULL and chunk.room <= MANY_SPARE:
        chunk = swap_chunk(&spare_chunk, chunk)
    if chunk != NULL:
        free(chunk.text)
        free(chunk)
