# What a Python object hands over by the Arrow C data interface: one array, or a stream of them.

@cython.final
cdef class ArrowOwner:
    """A schema and an array, released with the last reference."""

    cdef ArrowSchema schema
    cdef ArrowArray array

    def __dealloc__(self):
        arrow_release_array(&self.array)
        arrow_release_schema(&self.schema)


cdef int take_values(
    ColumnInput column, const ArrowSchema *schema, const ArrowArray *array, int accept,
) except -1:
    """As ``take_array``, and lists of strings where the argument may be keys."""
    cdef const char *code = schema.format if schema.release != NULL else NULL
    if code != NULL and code[0] == c'+' and accept & CONTENT_KEYS:
        if code[1] in (c'l', c'L') and code[2] == 0:
            column.content = CONTENT_TEXT
            return take_key_lists(column, schema, array, code[1] == c'L')
    return take_array(column, schema, array, accept)


cdef int take_chunks(ColumnInput column, list chunks, int64_t rows) except -1:
    """Chunks, one after the other, as one column."""
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
        take_int_memory(column, rows, &values)
    else:
        column.take_spans(rows, &spans)
    for chunk in chunks:
        with nogil:
            for row in range(chunk.rows):
                if values != NULL:
                    values[at] = column_get_int(&chunk.view, row)
                elif not column_get(&chunk.view, row, &spans[at].data, &spans[at].length):
                    spans[at].length = -1
                at += 1
    return 0


cdef int refuse_stream(
    ColumnInput column, ArrowArrayStream *stream, int status,
) except -1:
    problem = stream.get_last_error(stream)
    text = "" if problem == NULL else problem.decode("utf-8", "replace")
    raise OSError(status, f"{column.where(-1)}: {text}")


cdef object open_stream(ColumnInput column, object value, ArrowOwner types):
    """The capsule of an Arrow stream, which releases it; ``types`` gets its schema."""
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
    """The next array of a stream, None at its end."""
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
    """All chunks of an Arrow stream; a single one is read where it is."""
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
        chunk = ColumnInput(column.argument, column.allowed, column.nullable)
        chunk.low = column.low
        chunk.high = column.high
        chunk.first_row = rows
        chunk.owners.append(owner)
        take_values(chunk, &types.schema, &owner.array, accept)
        rows += chunk.rows
        chunks.append(chunk)


cdef bint take_arrow(ColumnInput column, object value, int accept) except -1:
    """Take what offers the Arrow C data interface; False if it does not."""
    cdef ArrowOwner owner
    if isinstance(value, (str, bytes, list, tuple, int)):
        return False
    column.volatile = True                   # an array may be of memory that others write to
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
