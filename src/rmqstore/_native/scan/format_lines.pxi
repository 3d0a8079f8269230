# A message by a format: text and fields, each named by a letter.

cdef int64_t format_number(char letter) noexcept nogil:
    """Number of a letter's field; -1: none."""
    if letter == c'q':
        return SCAN_QUEUE_ID
    if letter == c'o':
        return SCAN_QUEUE_OFFSET
    if letter == c'p':
        return SCAN_PHYSICAL_OFFSET
    if letter == c'R':
        return SCAN_STORE_SIZE
    return SCAN_STORE_TIMESTAMP if letter == c'M' else -1


cdef int64_t put_format_body(LineWriter *writer, const LineInput *line) noexcept nogil:
    """Append the body alone: with BODY_AUTO its bytes as they are."""
    cdef Span text
    if writer.body_form == BODY_NONE:
        return 0
    if put_body_mark(&writer.text, line) < 0:
        return E_NO_MEMORY
    if writer.body_form == BODY_AUTO:
        return put_bytes(&writer.text, line.body, line.body_length)
    if not body_is_text(writer, line):
        return put_coded_body(writer, line)
    text = body_text(line)
    return put_bytes(&writer.text, text.data, text.length)


cdef int64_t put_format_field(
    LineWriter *writer, const LineInput *line, char letter,
) noexcept nogil:
    """Append the field of a letter; null is empty."""
    cdef Growing *into = &writer.text
    cdef int64_t field = format_number(letter)
    cdef Span text
    if field >= 0:
        return put_number(into, record_number(line.record, field))
    if letter == c'T' or letter == c'B':
        field = SCAN_STORE_TIMESTAMP if letter == c'T' else SCAN_BORN_TIMESTAMP
        return put_time(into, record_number(line.record, field), writer.zone)
    if letter == c's':
        return put_format_body(writer, line)
    if letter == c'S':
        return put_number(into, line.body_length)
    if letter == c'h':
        return put_json_properties(into, &writer.batch)
    if letter == c'J':
        return put_json_object(writer, line)
    if letter == c'k':
        if line_keys(writer) < 0:
            return E_NO_MEMORY
        return put_bytes(into, writer.cell.data, writer.cell.length)
    field = SCAN_TOPIC if letter == c't' else SCAN_TAGS if letter == c'g' \
        else SCAN_MSG_ID if letter == c'i' else SCAN_UNIQ_KEY
    if line_field_text(writer, line, field, &text) < 0:
        return E_NO_MEMORY
    return put_bytes(into, text.data, max(text.length, 0))


cdef int64_t put_formatted(LineWriter *writer, const LineInput *line) noexcept nogil:
    """Append a message by the pieces of its format: 0 or E_NO_MEMORY."""
    cdef const FormatPiece *piece
    cdef int64_t i
    cdef int64_t rc = line_begin(writer, line)
    for i in range(writer.piece_count):
        if rc < 0:
            break
        piece = &writer.pieces[i]
        if piece.letter == 0:
            rc = put_bytes(&writer.text, piece.text, piece.length)
        else:
            rc = put_format_field(writer, line, piece.letter)
    return rc
