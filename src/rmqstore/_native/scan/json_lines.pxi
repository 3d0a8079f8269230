# A message as a line of JSON: an object of all fields, without whitespace, as UTF-8.

cdef int64_t put_json_name(Growing *into, const char *name) noexcept nogil:
    """Append ``,"name":``."""
    if put_bytes(into, b",\"", 2) < 0 or put_bytes(into, name, <int64_t>strlen(name)) < 0:
        return E_NO_MEMORY
    return put_bytes(into, b"\":", 2)


cdef int64_t put_json_properties(Growing *into, const Batch *batch) noexcept nogil:
    """Append the properties as an object.  REQUIRES: union_names was called."""
    cdef const Property *entries = <const Property *>batch.entries.data
    cdef int64_t i
    cdef bint first = True
    if put_byte(into, c'{') < 0:
        return E_NO_MEMORY
    for i in range(batch.entries.length // <int64_t>sizeof(Property)):
        if entries[i].name_length == 0:
            continue
        if (not first and put_byte(into, c',') < 0) \
                or put_json_text(into, entries[i].name, entries[i].name_length) < 0 \
                or put_byte(into, c':') < 0 \
                or put_json_text(into, entries[i].value, entries[i].value_length) < 0:
            return E_NO_MEMORY
        first = False
    return put_byte(into, c'}')


cdef int64_t put_json_keys(Growing *into, const Property *keys) noexcept nogil:
    """Append the keys as a list."""
    cdef const char *word = NULL
    cdef int64_t length = 0
    cdef int64_t at = 0
    cdef bint first = True
    if put_byte(into, c'[') < 0:
        return E_NO_MEMORY
    while keys != NULL and split_next(keys.value, keys.value_length, 32, &at, &word, &length):
        if (not first and put_byte(into, c',') < 0) or put_json_text(into, word, length) < 0:
            return E_NO_MEMORY
        first = False
    return put_byte(into, c']')


cdef int64_t put_json_body(LineWriter *writer, const LineInput *line) noexcept nogil:
    """Append the body, under the name of its form."""
    cdef Growing *into = &writer.text
    cdef bint hexadecimal = writer.body_form == BODY_HEX
    cdef Span text
    if writer.body_form == BODY_NONE:
        return 0
    if line.json != NULL:
        if put_json_name(into, b"body") < 0:
            return E_NO_MEMORY
        return put_bytes(into, line.json, line.json_length)
    if body_is_text(writer, line):
        if put_json_name(into, b"body") < 0:
            return E_NO_MEMORY
        text = body_text(line)
        return put_json_text(into, text.data, text.length)
    if put_json_name(into, b"body_hex" if hexadecimal else b"body_base64") < 0 \
            or put_byte(into, c'"') < 0 or put_coded_body(writer, line) < 0:
        return E_NO_MEMORY
    return put_byte(into, c'"')


cdef int64_t put_json_field(
    LineWriter *writer, const LineInput *line, int64_t field,
) noexcept nogil:
    """Append a name and its value."""
    cdef Growing *into = &writer.text
    cdef int64_t layout = COLUMN_KINDS[field].layout
    cdef Span text
    if field == SCAN_BODY:
        if put_json_body(writer, line) < 0:
            return E_NO_MEMORY
        if line.error == NULL:
            return 0
        if put_json_name(into, b"body_error") < 0:
            return E_NO_MEMORY
        return put_json_text(into, line.error, line.error_length)
    if put_json_name(into, COLUMN_KINDS[field].name) < 0:
        return E_NO_MEMORY
    if field == SCAN_BORN_TIMESTAMP or field == SCAN_STORE_TIMESTAMP:
        if put_byte(into, c'"') < 0 \
                or put_time(into, record_number(line.record, field), writer.zone) < 0:
            return E_NO_MEMORY
        return put_byte(into, c'"')
    if layout == LAYOUT_INT32 or layout == LAYOUT_INT64:
        return put_number(into, record_number(line.record, field))
    if field == SCAN_KEYS:
        return put_json_keys(into, line_property(writer, field))
    if field == SCAN_PROPERTIES:
        return put_json_properties(into, &writer.batch)
    if line_field_text(writer, line, field, &text) < 0:
        return E_NO_MEMORY
    if text.length < 0:
        return put_bytes(into, b"null", 4)
    return put_json_text(into, text.data, text.length)


cdef int64_t put_json_object(LineWriter *writer, const LineInput *line) noexcept nogil:
    """Append a message after line_begin: 0 or E_NO_MEMORY."""
    cdef int64_t start = writer.text.length
    cdef int64_t field
    for field in range(SCAN_RAW_BODY):
        if put_json_field(writer, line, field) < 0:
            return E_NO_MEMORY
    writer.text.data[start] = c'{'           # replaces the comma before the first name
    return put_byte(&writer.text, c'}')


cdef int64_t put_json_line(LineWriter *writer, const LineInput *line) noexcept nogil:
    """Append a message and a line feed: 0 or E_NO_MEMORY."""
    if line_begin(writer, line) < 0 or put_json_object(writer, line) < 0:
        return E_NO_MEMORY
    return put_byte(&writer.text, c'\n')
