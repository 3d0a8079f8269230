# Column of properties strings from Arrow arrays of maps.
#
# Source: common/message/MessageDecoder.java messageProperties2String

@cython.final
cdef class PropertiesText:
    """Properties strings of a column's rows, concatenated."""

    cdef Text text

    def __cinit__(self):
        text_init(&self.text, NULL, 0)

    def __dealloc__(self):
        text_free(&self.text)

    cdef void set_addresses(self, Span *spans, int64_t rows) noexcept:
        """Turn offsets in the text, which moved while it grew, into addresses."""
        cdef int64_t row
        for row in range(rows):
            spans[row].data = self.text.data + <int64_t>spans[row].data


# Problem with an entry of a map.
cdef enum:
    MAP_GOOD
    MAP_NULL
    MAP_EMPTY
    MAP_BAD
    MAP_NO_MEMORY

    MAP_OF_CALLER                # properties that a put is given
    MAP_OF_RECORD                # all properties of a record


cdef bint is_named(const ArrowSchema *schema, const char *name) noexcept nogil:
    return schema != NULL and schema.name != NULL and strcmp(schema.name, name) == 0


cdef int take_map(
    ColumnInput column, const ArrowSchema *schema, const ArrowArray *array, int properties,
) except -1:
    """Take maps of strings, or lists of structs of ``key`` and ``value``, as some producers do."""
    cdef const char *code = schema.format
    cdef const ArrowSchema *entry
    cdef const uint8_t *validity = NULL
    cdef const uint8_t *bits
    cdef const int64_t *bounds = NULL
    cdef ArrowArray entries
    cdef ArrowArray part
    cdef ColumnInput names
    cdef ColumnInput values
    cdef int64_t row
    if strcmp(code, b"n") == 0 and schema.dictionary == NULL:
        column.rows = array.length
        return 0
    if code[0] != c'+' or code[1] not in (c'm', c'l', c'L') or code[2] != 0 \
            or schema.n_children != 1:
        return refuse_format(column, code)
    entry = schema_child(schema, 0)
    if entry == NULL or entry.format == NULL or strcmp(entry.format, b"+s") != 0 \
            or entry.n_children != 2 or (
            code[1] != c'm' and not (is_named(schema_child(entry, 0), b"key")
                                     and is_named(schema_child(entry, 1), b"value"))):
        return refuse_format(column, code)
    check_array(column, array, 2)
    take_items(column, schema, array, code, &validity, &bounds, &entries)
    if entries.n_children != 2 or entries.n_buffers < 1 or entries.buffers == NULL:
        return refuse_arrow(column, f"entries of {entries.n_children} children")
    names = column.new_part(bounds)
    values = column.new_part(bounds)
    bits = <const uint8_t *>entries.buffers[0]
    for row in range(entries.length if bits != NULL and entries.null_count != 0 else 0):
        if not arrow_bit(bits, entries.offset + row):
            return names.refuse_value(row, "an entry that is null")
    take_slice(column, array_child(&entries, 0), entries.offset, entries.length, &part)
    take_array(names, schema_child(entry, 0), &part, CONTENT_TEXT)
    take_slice(column, array_child(&entries, 1), entries.offset, entries.length, &part)
    take_array(values, schema_child(entry, 1), &part, CONTENT_TEXT)
    return encode_maps(column, names, values, bounds, validity, array.offset, properties)


cdef int encode_map(
    const ColumnView *names, const ColumnView *values, int64_t item, int64_t stop, Text *text,
) noexcept nogil:
    """Append the entries [item, stop) of a map: MAP_GOOD, or the problem.

    Values may contain 0x01: an entry's first 0x01 ends its name.
    """
    cdef const Span *name
    cdef const Span *value
    cdef int64_t start = text.length
    while item < stop:
        name = column_span(names, item)
        value = column_span(values, item)
        item += 1
        if name.length < 0 or value.length < 0:
            return MAP_NULL
        if is_same(name.data, name.length, b"__CRC32#", 8):
            continue                         # computed for the record, if at all
        if name.length == 0 or value.length == 0:
            return MAP_EMPTY
        if text_is_bad(name.data, name.length) or has_zero_run(value.data, value.length) \
                or memchr(value.data, PROPERTY_VALUE_END, <size_t>value.length) != NULL:
            return MAP_BAD
        if text_reserve(text, name.length + value.length + 2) < 0:
            return MAP_NO_MEMORY
        text_add_property(text, start, name.data, name.length, value.data, value.length)
    return MAP_GOOD


cdef int check_own_map(
    ColumnInput column, int64_t row, const ColumnView *names, const ColumnView *values,
    int64_t item, int64_t stop,
) except -1:
    """Check the entries [item, stop) as ``add_properties`` checks a mapping."""
    cdef const Span *name
    cdef const Span *value
    while item < stop:
        name = column_span(names, item)
        value = column_span(values, item)
        item += 1
        if name.length > 0 and text_of(name.data, name.length) in RESERVED_PROPERTIES:
            raise illegal(f"{column.where(row)}: must not have "
                          f"{text_of(name.data, name.length)!r}, a name that RocketMQ reserves")
        if value.length > 0 and text_is_bad(value.data, value.length):
            raise illegal(f"{column.where(row)}: must not have {SEPARATORS} in a name or a value")
    return 0


cdef int encode_maps(
    ColumnInput column, ColumnInput names, ColumnInput values, const int64_t *bounds,
    const uint8_t *validity, int64_t validity_offset, int properties,
) except -1:
    """Make this a column of properties strings."""
    cdef PropertiesText out = PropertiesText()
    cdef Span *spans = NULL
    cdef int problem
    cdef int64_t row
    column.take_spans(column.rows, &spans)
    column.owners.append(out)
    for row in range(column.rows):
        spans[row].data = <const char *>out.text.length
        spans[row].length = -1
        if validity != NULL and not arrow_bit(validity, validity_offset + row):
            continue
        if properties == MAP_OF_CALLER:
            check_own_map(column, row, &names.view, &values.view, bounds[row], bounds[row + 1])
        problem = encode_map(&names.view, &values.view, bounds[row], bounds[row + 1], &out.text)
        spans[row].length = out.text.length - <int64_t>spans[row].data
        if problem == MAP_NULL:
            raise ValueError(f"{column.where(row)}: must not have a name or a value that is null")
        if problem == MAP_EMPTY:
            raise illegal(f"{column.where(row)}: must not have an empty name or value, which "
                          "readers drop")
        if problem == MAP_BAD:
            raise illegal(f"{column.where(row)}: must not have {SEPARATORS} in a name or a value")
        if problem == MAP_NO_MEMORY:
            raise MemoryError()
    out.set_addresses(spans, column.rows)
    return 0
