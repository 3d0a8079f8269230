# Import of Python objects by the Arrow C data interface: an array, or a stream of arrays.

@cython.final
cdef class ArrowOwner:
    """A schema and an array, released with the last reference."""

    cdef ArrowSchema schema
    cdef ArrowArray array

    def __dealloc__(self):
        arrow_release_array(&self.array)
        arrow_release_schema(&self.schema)


cdef int64_t join_lists(
    const int64_t *bounds, const uint8_t *validity, int64_t validity_offset, const Span *words,
    int64_t rows, Span *spans, char *into,
) noexcept nogil:
    """Join each list's words with spaces; the first word that is null or has a space, or -1.

    REQUIRES: ``words`` begins with the first word of the first list.
    """
    cdef int64_t row, item, length
    for row in range(rows):
        spans[row].data = into
        spans[row].length = -1
        if validity != NULL and not arrow_bit(validity, validity_offset + row):
            continue
        for item in range(bounds[row], bounds[row + 1]):
            length = words[item].length
            if length < 0:
                return item
            if length > 0:                   # the address of an empty word may be NULL
                if memchr(words[item].data, c' ', <size_t>length) != NULL:
                    return item
                memcpy(into, words[item].data, <size_t>length)
            into[length] = c' '
            into += length + 1
        if into > spans[row].data:
            spans[row].length = into - spans[row].data - 1
    return -1


cdef int take_key_lists(
    ColumnInput column, const ArrowSchema *schema, const ArrowArray *array,
) except -1:
    """Take an Arrow array of lists of strings."""
    cdef ColumnInput words
    cdef ArrowArray part
    cdef const uint8_t *validity = NULL
    cdef const int64_t *bounds = NULL
    cdef const Span *word
    cdef Span *spans = NULL
    cdef char *memory = NULL
    cdef int64_t row
    cdef int64_t room = 0
    check_array(column, array, 2)
    take_items(column, schema, array, schema.format, &validity, &bounds, &part)
    words = column.new_part(bounds)
    take_array(words, schema_child(schema, 0), &part, CONTENT_TEXT)
    word = <const Span *>words.view.rows
    for row in range(words.rows if word != NULL else 0):
        room += max(0, word[row].length) + 1
    column.take_spans(array.length, &spans)
    column.take_memory(room, 1, &memory)
    if word == NULL:                         # an array of nulls
        if words.rows:
            words.refuse_value(0, "a key that is null or has a space")
        for row in range(array.length):
            spans[row].length = -1
        return 0
    with nogil:
        row = join_lists(bounds, validity, array.offset, word, array.length, spans, memory)
    return words.refuse_value(row, "a key that is null or has a space") if row >= 0 else 0


cdef int take_values(
    ColumnInput column, const ArrowSchema *schema, const ArrowArray *array, int accept,
) except -1:
    """As ``take_array``, with lists of strings if the argument may be keys; or maps of strings."""
    cdef const char *code = schema.format if schema.release != NULL else NULL
    if code != NULL and accept & CONTENT_MAPS:
        return take_map(column, schema, array, MAP_OF_CALLER)
    if code != NULL and code[0] == c'+' and accept & CONTENT_KEYS:
        if code[1] in (c'l', c'L') and code[2] == 0:
            column.content = CONTENT_TEXT
            return take_key_lists(column, schema, array)
    return take_array(column, schema, array, accept)


cdef int take_chunks(ColumnInput column, list chunks, int64_t rows) except -1:
    """Concatenate chunks into one column."""
    cdef ColumnInput chunk
    cdef Span *spans = NULL
    cdef int64_t *values = NULL
    cdef int64_t row
    cdef int64_t at = 0
    for chunk in chunks:
        if column.content == CONTENT_NONE:
            column.content = chunk.content
    column.owners.append(chunks)
    if len(chunks) == 1:
        chunk = chunks[0]
        column.view = chunk.view
        column.rows = rows
        return 0
    if column.content == CONTENT_INTEGERS:
        column.take_ints(rows, &values)
    else:
        column.take_spans(rows, &spans)
    for chunk in chunks:
        for row in range(chunk.rows):
            if values != NULL:
                values[at] = column_get_int(&chunk.view, row)
            else:
                spans[at].length = -1        # an array of nulls has no spans
                column_get(&chunk.view, row, &spans[at].data, &spans[at].length)
            at += 1
    return 0


cdef int refuse_stream(
    ColumnInput column, ArrowArrayStream *stream, int status,
) except -1:
    problem = stream.get_last_error(stream)
    text = "" if problem == NULL else problem.decode("utf-8", "replace")
    raise OSError(status, f"{column.where(-1)}: {text}")


cdef object open_stream(ColumnInput column, object value, ArrowOwner types):
    """Capsule of an Arrow stream, which releases it; ``types`` gets its schema."""
    cdef ArrowArrayStream *stream
    cdef int status
    capsule = value.__arrow_c_stream__()
    stream = <ArrowArrayStream *>PyCapsule_GetPointer(capsule, b"arrow_array_stream")
    if stream.release == NULL:
        refuse_arrow(column, "its stream is released")
    with nogil:
        status = stream.get_schema(stream, &types.schema)
    if status != 0:
        refuse_stream(column, stream, status)
    return capsule


cdef ArrowOwner next_array(ColumnInput column, object capsule):
    """Next array of a stream, None at its end."""
    cdef ArrowOwner owner = ArrowOwner()
    cdef ArrowArrayStream *stream = <ArrowArrayStream *>PyCapsule_GetPointer(
        capsule, b"arrow_array_stream")
    cdef int status
    with nogil:
        status = stream.get_next(stream, &owner.array)
    if status != 0:
        refuse_stream(column, stream, status)
    return owner if owner.array.release != NULL else None


cdef int take_stream(ColumnInput column, object value, int accept) except -1:
    """Take all chunks of an Arrow stream; a single one is read in place."""
    cdef ArrowOwner types = ArrowOwner()
    cdef ArrowOwner owner
    cdef ColumnInput chunk
    cdef list chunks = []
    cdef int64_t rows = 0
    capsule = open_stream(column, value, types)
    while True:
        owner = next_array(column, capsule)
        if owner is None:
            return take_chunks(column, chunks, rows)
        chunk = ColumnInput(
            column.argument, column.allowed, NULLABLE if column.nullable else NOT_NULL)
        chunk.low = column.low
        chunk.high = column.high
        chunk.first_row = rows
        chunk.owners.append(owner)
        take_values(chunk, &types.schema, &owner.array, accept)
        rows += chunk.rows
        chunks.append(chunk)


cdef bint take_arrow(ColumnInput column, object value, int accept) except -1:
    """Take an exporter of the Arrow C data interface; False if it is not one."""
    cdef ArrowOwner owner
    if isinstance(value, (str, bytes, list, tuple, int)):
        return False
    column.volatile = True                   # an array may be in memory that others write to
    if hasattr(value, "__arrow_c_array__"):
        owner = ArrowOwner()
        schema, array = value.__arrow_c_array__()
        arrow_move_schema(
            <ArrowSchema *>PyCapsule_GetPointer(schema, b"arrow_schema"), &owner.schema
        )
        arrow_move_array(<ArrowArray *>PyCapsule_GetPointer(array, b"arrow_array"), &owner.array)
        column.owners.append(owner)
        take_values(column, &owner.schema, &owner.array, accept)
        return True
    if hasattr(value, "__arrow_c_stream__"):
        take_stream(column, value, accept)
        return True
    return False


def schema_metadata(schema):
    """Return the key-value pairs of a schema's metadata, in order, duplicate keys included.

    ``schema`` has ``__arrow_c_schema__``.
    """
    cdef object capsule = schema.__arrow_c_schema__()
    cdef const ArrowSchema *found = <const ArrowSchema *>PyCapsule_GetPointer(
        capsule, b"arrow_schema")
    cdef const char *at = found.metadata
    cdef int32_t count = 0
    cdef int32_t length
    cdef list texts = []
    if at == NULL:
        return []
    memcpy(&count, at, 4)
    at += 4
    for _ in range(2 * <int64_t>count):
        memcpy(&length, at, 4)
        texts.append(at[4:4 + length])
        at += 4 + length
    return list(zip(texts[::2], texts[1::2]))
