# Parts common to messages as lines of JSON and CSV; field values.

# Form of a body.
cdef enum:
    BODY_AUTO                    # as text if it is UTF-8, else as base64
    BODY_UTF8                    # as text; the caller ensures that it is UTF-8
    BODY_BASE64
    BODY_HEX
    BODY_JSON                    # as JSON if it is valid, else as BODY_AUTO
    BODY_NONE

cdef const char *BODY_MARK = b"[not inflated] "

cdef struct LineInput:
    const char *data             # the record
    const Record *record
    const char *body             # inflated
    int64_t body_length
    const char *json             # the body if it is one JSON value, written as it is; NULL
    int64_t json_length
    const char *text             # the body made UTF-8, if BODY_UTF8 needs that
    int64_t text_length
    const char *error            # why the stored body could not be inflated; NULL
    int64_t error_length

# A piece of a format.
cdef struct FormatPiece:
    char letter                  # of a field; 0: the text
    const char *text
    int64_t length

cdef struct LineWriter:
    Growing text                 # the lines
    Growing cell                 # a value before it is escaped
    Batch batch                  # no columns: the parsed parts of the current record
    int64_t body_form
    int64_t zone                 # of times
    FormatPiece *pieces          # of the format, if any
    int64_t piece_count


cdef int64_t line_writer_init(
    LineWriter *writer, int64_t body_form, int64_t zone,
) noexcept nogil:
    memset(writer, 0, sizeof(LineWriter))
    writer.body_form = body_form
    writer.zone = zone
    return batch_init(&writer.batch, NULL, 0)


cdef void line_writer_free(LineWriter *writer) noexcept nogil:
    growing_free(&writer.text)
    growing_free(&writer.cell)
    free(writer.pieces)
    batch_free(&writer.batch)


cdef int64_t line_begin(LineWriter *writer, const LineInput *line) noexcept nogil:
    """Begin a record, before its fields."""
    cdef int64_t rc = batch_entries(&writer.batch, line.data, line.record)
    return rc if rc < 0 else union_names(&writer.batch)


cdef const Property *line_property(
    const LineWriter *writer, int64_t field,
) noexcept nogil:
    """The property of a property field; NULL: null."""
    if field == SCAN_UNIQ_KEY:
        return batch_property(&writer.batch, b"UNIQ_KEY", 8)
    if field == SCAN_TAGS:
        return batch_property(&writer.batch, b"TAGS", 4)
    return batch_property(&writer.batch, b"KEYS", 4)


cdef int64_t line_field_text(
    LineWriter *writer, const LineInput *line, int64_t field, Span *into,
) noexcept nogil:
    """Unescaped text of a text field, valid until the next; length -1: null."""
    cdef const Record *record = line.record
    cdef const Property *found
    cdef const HostText *host
    cdef Growing *cell = &writer.cell
    cdef bint v6 = record.sys_flag & SYS_STORE_HOST_V6 != 0
    into.length = -1
    if field == SCAN_UNIQ_KEY or field == SCAN_TAGS:
        found = line_property(writer, field)
        if found != NULL:
            into.data = found.value
            into.length = found.value_length
    elif field == SCAN_BORN_HOST or field == SCAN_STORE_HOST:
        if field == SCAN_STORE_HOST:
            host = host_text_of(&writer.batch.store, line.data + record.store_host_at, v6)
        else:
            host = host_text_of(&writer.batch.born, line.data + record.born_host_at,
                                record.sys_flag & SYS_BORN_HOST_V6 != 0)
        into.data = <const char *>host.text
        into.length = host.length
    elif field == SCAN_TOPIC:
        into.data = line.data + record.topic_at
        into.length = record.topic_length
        if unlikely(utf8_error(into.data, into.length) >= 0):
            cell.length = 0
            if rewrite_as_java(cell, into.data, into.length) < 0:
                return E_NO_MEMORY
            into.data = cell.data
            into.length = cell.length
    elif field == SCAN_MSG_ID:
        cell.length = 0
        if growing_room(cell, MESSAGE_ID_MAX) < 0:
            return E_NO_MEMORY
        into.data = cell.data
        into.length = message_id_write(
            line.data + record.store_host_at, v6, record.physical_offset, cell.data)
    return 0


cdef int64_t put_body_mark(Growing *into, const LineInput *line) noexcept nogil:
    """Append the mark of a body that could not be inflated, if no field has the reason."""
    return 0 if line.error == NULL else put_bytes(
        into, BODY_MARK, <int64_t>strlen(BODY_MARK))


cdef inline bint body_is_text(const LineWriter *writer, const LineInput *line) noexcept nogil:
    """Whether the body is written as text.  REQUIRES: it is written at all."""
    if writer.body_form == BODY_AUTO or writer.body_form == BODY_JSON:
        return utf8_error(line.body, line.body_length) < 0
    return writer.body_form == BODY_UTF8


cdef inline Span body_text(const LineInput *line) noexcept nogil:
    """The body as text.  REQUIRES: body_is_text."""
    cdef Span span
    span.data = line.text if line.text != NULL else line.body
    span.length = line.text_length if line.text != NULL else line.body_length
    return span


cdef int64_t put_coded_body(LineWriter *writer, const LineInput *line) noexcept nogil:
    """Append a binary body, in digits."""
    if writer.body_form == BODY_HEX:
        return put_hex_bytes(&writer.text, line.body, line.body_length)
    return put_base64(&writer.text, line.body, line.body_length)


cdef int64_t line_keys(LineWriter *writer) noexcept nogil:
    """The keys, joined by blanks, into ``writer.cell``."""
    cdef const Property *keys = line_property(writer, SCAN_KEYS)
    cdef const char *word = NULL
    cdef int64_t length = 0
    cdef int64_t at = 0
    cdef Growing *cell = &writer.cell
    cell.length = 0
    while keys != NULL and split_next(keys.value, keys.value_length, 32, &at, &word, &length):
        if (cell.length and put_byte(cell, c' ') < 0) or put_bytes(cell, word, length) < 0:
            return E_NO_MEMORY
    return 0
