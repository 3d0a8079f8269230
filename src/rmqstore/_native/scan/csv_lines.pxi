# A message as a line of CSV, its cells in column order; keys are joined by spaces, properties are a
# JSON object.

cdef int64_t put_csv_heading(LineWriter *writer) noexcept nogil:
    """Append the column names; in forms that mix text and binary the body has two."""
    cdef Growing *into = &writer.text
    cdef int64_t start = into.length
    cdef int64_t form = writer.body_form
    cdef const char *name
    cdef int64_t field
    for field in range(SCAN_RAW_BODY):
        name = COLUMN_KINDS[field].name
        if field == SCAN_BODY:
            if form == BODY_NONE:
                continue
            name = b",body_hex" if form == BODY_HEX else b",body_base64" \
                if form == BODY_BASE64 else b",body" if form == BODY_UTF8 \
                else b",body,body_base64"
        elif put_byte(into, c',') < 0:
            return E_NO_MEMORY
        if put_bytes(into, name, <int64_t>strlen(name)) < 0:
            return E_NO_MEMORY
    memmove(into.data + start, into.data + start + 1, <size_t>(into.length - start - 1))
    into.data[into.length - 1] = c'\n'
    return 0


cdef int64_t put_csv_body(LineWriter *writer, const LineInput *line) noexcept nogil:
    """Append the cell of the body, or its two cells in forms that mix text and binary."""
    cdef Growing *into = &writer.text
    cdef int64_t form = writer.body_form
    cdef bint as_text
    cdef Span text
    if form == BODY_NONE:
        return 0
    as_text = body_is_text(writer, line)
    if put_bytes(into, b",,", 2 if form == BODY_AUTO and not as_text else 1) < 0:
        return E_NO_MEMORY
    if not as_text:
        return E_NO_MEMORY if put_body_mark(into, line) < 0 else put_coded_body(writer, line)
    text = body_text(line)
    if line.error != NULL:                   # the mark inside the quotes
        writer.cell.length = 0
        if put_body_mark(&writer.cell, line) < 0 \
                or put_bytes(&writer.cell, text.data, text.length) < 0:
            return E_NO_MEMORY
        text.data = writer.cell.data
        text.length = writer.cell.length
    if put_csv_text(into, text.data, text.length) < 0:
        return E_NO_MEMORY
    return put_byte(into, c',') if form == BODY_AUTO else 0


cdef int64_t put_csv_field(
    LineWriter *writer, const LineInput *line, int64_t field,
) noexcept nogil:
    """Append a cell; null is empty."""
    cdef Growing *into = &writer.text
    cdef int64_t layout = COLUMN_KINDS[field].layout
    cdef Span text
    if field == SCAN_BORN_TIMESTAMP or field == SCAN_STORE_TIMESTAMP:
        return put_time(into, record_number(line.record, field), writer.zone)
    if layout == LAYOUT_INT32 or layout == LAYOUT_INT64:
        return put_number(into, record_number(line.record, field))
    if field == SCAN_KEYS:
        if line_keys(writer) < 0:
            return E_NO_MEMORY
        return put_csv_text(into, writer.cell.data, writer.cell.length)
    if field == SCAN_PROPERTIES:
        writer.cell.length = 0
        if put_json_properties(&writer.cell, &writer.batch) < 0:
            return E_NO_MEMORY
        return put_csv_text(into, writer.cell.data, writer.cell.length)
    if line_field_text(writer, line, field, &text) < 0:
        return E_NO_MEMORY
    return put_csv_text(into, text.data, max(text.length, 0))


cdef int64_t put_csv_line(LineWriter *writer, const LineInput *line) noexcept nogil:
    """Append a message and a line feed: 0 or E_NO_MEMORY."""
    cdef int64_t field
    if line_begin(writer, line) < 0:
        return E_NO_MEMORY
    for field in range(SCAN_RAW_BODY):
        if field == SCAN_BODY:
            if put_csv_body(writer, line) < 0:
                return E_NO_MEMORY
        elif (field and put_byte(&writer.text, c',') < 0) \
                or put_csv_field(writer, line, field) < 0:
            return E_NO_MEMORY
    return put_byte(&writer.text, c'\n')
