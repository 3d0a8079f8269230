# Column from an Arrow array's structs, in every layout of strings, binary values, numbers and
# timestamps.
#
# Invalid arrays are refused here, so that readers need no checks.  The interface does not carry the
# size of a data buffer (except for views): an offset beyond its end is not detected.

cdef enum:
    VIEW_BYTES = 16              # of a string view: length 4, then up to 12 bytes inline,
    VIEW_INLINE = 12             # or prefix 4, block 4, offset in the block 4


cdef int refuse_arrow(ColumnInput column, str problem) except -1:
    raise ValueError(f"{column.where(-1)}: the Arrow array contradicts itself: {problem}")


cdef int refuse_format(ColumnInput column, const char *code) except -1:
    text = arrow_type(code.decode("ascii", "replace"))
    raise TypeError(f"{column.where(-1)} must be {column.allowed}, not an Arrow array of {text}")


cdef int refuse_naive(ColumnInput column, const char *code) except -1:
    """Refuse local times: without a zone they are ambiguous."""
    raise ValueError(
        f"{column.where(-1)} must be {column.allowed}, not timestamps without a zone (format "
        f"'{code.decode('ascii')}'): give them theirs, as by pyarrow.compute.assume_timezone")


cdef dict ARROW_TYPES = {
    "n": "nulls", "b": "bool", "c": "int8", "C": "uint8", "s": "int16", "S": "uint16", "i": "int32",
    "I": "uint32", "l": "int64", "L": "uint64", "e": "halffloat", "f": "float", "g": "double",
    "z": "binary", "Z": "large_binary", "vz": "binary_view", "u": "string", "U": "large_string",
    "vu": "string_view", "+l": "lists", "+L": "large lists", "+s": "structs", "+m": "maps",
}


cdef str arrow_type(str code):
    """Common name of a type, from its code in the C data interface."""
    name = ARROW_TYPES.get(code)
    if name is None and code.startswith(("ts", "td")):
        name = "dates or times"
    return f"{name} (format '{code}')" if name else f"format '{code}'"


cdef int check_array(ColumnInput column, const ArrowArray *array, int64_t buffers) except -1:
    """Check the properties common to all layouts: valid lengths, and the number of buffers."""
    if array == NULL or array.release == NULL:
        return refuse_arrow(column, "it is released")
    if array.length < 0 or array.offset < 0 or array.length >= INT64_MAX - array.offset:
        return refuse_arrow(column, f"length {array.length}, offset {array.offset}")
    if array.null_count < -1 or array.null_count > array.length:
        return refuse_arrow(column, f"{array.null_count} nulls in {array.length} rows")
    if array.n_buffers < buffers or (buffers > 0 and array.buffers == NULL):
        return refuse_arrow(column, f"{array.n_buffers} buffers instead of {buffers}")
    return 0


cdef int take_slice(
    ColumnInput column, const ArrowArray *child, int64_t start, int64_t length, ArrowArray *part,
) except -1:
    """Rows of a child array from ``start`` on; the part borrows the child's memory."""
    check_array(column, child, 0)
    if start < 0 or length < 0 or start > child.length - length:
        return refuse_arrow(
            column, f"rows up to {start + length} of an array that has {child.length}")
    part[0] = child[0]
    part.offset += start
    part.length = length
    if part.null_count != 0:
        part.null_count = -1
    return 0


cdef int take_validity(
    ColumnInput column, const ArrowArray *array, const uint8_t **validity,
) except -1:
    """Null bits, NULL if no row is null; raises for the first null if none is allowed."""
    cdef const uint8_t *bits = <const uint8_t *>array.buffers[0]
    cdef int64_t row
    validity[0] = NULL
    if array.null_count == 0 or array.length == 0:
        return 0
    if bits == NULL:
        if array.null_count > 0:
            return refuse_arrow(column, f"{array.null_count} nulls without a validity buffer")
        return 0
    for row in range(0 if column.nullable else array.length):
        if not arrow_bit(bits, array.offset + row):
            return column.refuse_null(row)
    if column.nullable:
        validity[0] = bits
    return 0


# Locator of the bytes of an array's rows.
cdef struct ArrowRows:
    const char *rows             # offsets, views, or NULL: rows of ``width`` bytes
    IntLayout offsets            # their width is 0 for views
    const char *data
    const char **blocks          # of views
    const char *sizes
    int64_t block_count
    int64_t width


cdef bint arrow_span(const ArrowRows *array, int64_t row, Span *span) noexcept nogil:
    """Bytes of one row, never at NULL; False: outside their block, or without a data buffer.

    An array of empty rows need not have a data buffer.
    """
    cdef const char *at
    cdef int32_t[4] view
    cdef int64_t start, stop, size
    span.data = b""
    if array.rows == NULL:
        if array.data != NULL:
            span.data = array.data + row * array.width
        span.length = array.width
        return array.data != NULL or array.width == 0
    if array.offsets.width:
        at = array.rows + row * array.offsets.width
        start = native_int(at, &array.offsets)
        stop = native_int(at + array.offsets.width, &array.offsets)
        if array.data != NULL:
            span.data = array.data + start
        span.length = stop - start
        return 0 <= start <= stop and (array.data != NULL or stop == start)
    at = array.rows + VIEW_BYTES * row
    memcpy(view, at, VIEW_BYTES)
    span.data = at + 4
    span.length = view[0]
    if view[0] <= VIEW_INLINE:
        return view[0] >= 0
    if not 0 <= view[2] < array.block_count or view[3] < 0 or array.blocks[view[2]] == NULL:
        return False
    span.data = array.blocks[view[2]] + view[3]
    memcpy(&size, array.sizes + 8 * view[2], 8)
    return <int64_t>view[3] + view[0] <= size


cdef int take_rows(ColumnInput column, const ArrowArray *array, ArrowRows *rows) except -1:
    """Set the spans of an array's rows."""
    cdef Span *spans = NULL
    cdef const uint8_t *validity = NULL
    cdef int64_t row
    cdef int64_t bad = -1
    take_validity(column, array, &validity)
    column.take_spans(array.length, &spans)
    with nogil:
        for row in range(array.length):
            if validity != NULL and not arrow_bit(validity, array.offset + row):
                spans[row].data = NULL
                spans[row].length = -1
            elif not arrow_span(rows, array.offset + row, spans + row):
                bad = row
                break
        if bad < 0 and column.content == CONTENT_TEXT:
            row = first_not_utf8(spans, array.length)
        else:
            row = -1
    if bad >= 0:
        return refuse_arrow(column, f"row {bad} lies outside of its data")
    if row >= 0:
        shown = arguments.shown(spans[row].data[:min(spans[row].length, 80)])
        return column.refuse_value(row, f"{shown} is not UTF-8")
    return 0


cdef void offset_layout(IntLayout *layout, bint wide) noexcept nogil:
    layout.width = 8 if wide else 4
    layout.signed = True


cdef int take_bytes_array_of(
    ColumnInput column, const ArrowArray *array, const char *code,
) except -1:
    """Take strings or binary values by their format: u U z Z, vu vz, w:bytes."""
    cdef ArrowRows rows
    memset(&rows, 0, sizeof(ArrowRows))
    check_array(column, array, 2 if code[0] == c'w' else 3)
    if code[0] == c'w':
        rows.width = parse_decimal(code + 2, <int64_t>strlen(code + 2))
        rows.data = <const char *>array.buffers[1]
        if rows.width < 0 or (rows.width > 0
                              and array.offset + array.length > INT64_MAX // rows.width):
            return refuse_arrow(column, f"values of {rows.width} bytes")
        return take_rows(column, array, &rows)
    rows.rows = <const char *>array.buffers[1]
    if code[0] == c'v':                      # the last buffer has the sizes of the data buffers
        rows.blocks = <const char **>array.buffers + 2
        rows.block_count = array.n_buffers - 3
        rows.sizes = <const char *>array.buffers[array.n_buffers - 1]
        if rows.block_count > 0 and rows.sizes == NULL:
            rows.rows = NULL
    else:
        offset_layout(&rows.offsets, code[0] in (c'U', c'Z'))
        rows.data = <const char *>array.buffers[2]
    if rows.rows == NULL and array.length > 0:
        return refuse_arrow(column, "no buffer of places, or none of their data's sizes")
    return take_rows(column, array, &rows)


cdef int take_bounds(
    ColumnInput column, const ArrowArray *array, bint wide, const uint8_t **validity,
    const int64_t **into,
) except -1:
    """Null bits and bounds of lists, one bound more than rows."""
    cdef IntLayout layout
    cdef int64_t *bounds
    cdef char *memory = NULL
    cdef int64_t row
    cdef const char *at
    check_array(column, array, 2)
    take_validity(column, array, validity)
    column.rows = array.length
    column.take_memory(array.length + 1, sizeof(int64_t), &memory)
    bounds = <int64_t *>memory
    bounds[0] = 0
    into[0] = bounds
    if array.length == 0:
        return 0
    at = <const char *>array.buffers[1]
    if at == NULL:
        return refuse_arrow(column, "no buffer of offsets")
    offset_layout(&layout, wide)
    for row in range(array.length + 1):
        bounds[row] = native_int(at + (array.offset + row) * layout.width, &layout)
        if bounds[row] < (bounds[row - 1] if row else 0):
            return refuse_arrow(column, "an offset is negative or less than the one before")
    return 0


cdef int integer_width(char code) noexcept nogil:
    """Bytes of Arrow's integer formats, lower case for signed ones; 0 for any other."""
    if code in (c'c', c'C'):
        return 1
    if code in (c's', c'S'):
        return 2
    if code in (c'i', c'I'):
        return 4
    return 8 if code in (c'l', c'L') else 0


cdef int64_t time_unit(const char *code) noexcept nogil:
    """Units per millisecond of an Arrow timestamp, -1000 for seconds; 0 if it is not one."""
    if code[0] != c't' or code[1] != c's' or code[2] == 0 or code[3] != c':':
        return 0
    if code[2] == c's':
        return -1000
    if code[2] == c'm':
        return 1
    if code[2] == c'u':
        return 1000
    return 1000000 if code[2] == c'n' else 0


cdef int take_arrow_numbers(
    ColumnInput column, const ArrowArray *array, const char *code, int64_t unit,
) except -1:
    """Take integers of any width, or timestamps in any unit, rounded down to milliseconds."""
    cdef IntLayout layout
    cdef const uint8_t *validity = NULL
    cdef const char *at
    cdef int64_t *values
    cdef int64_t row, value
    check_array(column, array, 2)
    take_validity(column, array, &validity)
    layout.width = 8 if unit else integer_width(code[0])
    layout.signed = code[0] >= c'a'
    at = <const char *>array.buffers[1]
    if array.length > 0:                     # without rows the offset is arbitrary
        if at == NULL:
            return refuse_arrow(column, "no data")
        at += layout.width * array.offset
    if unit in (0, 1) and point_at_integers(column, at, &layout, array.length, validity):
        return 0
    take_integers(column, at, &layout, array.length, validity, array.offset)
    values = <int64_t *><char *>column.view.rows
    for row in range(array.length if unit not in (0, 1) else 0):
        value = values[row]
        if validity != NULL and not arrow_bit(validity, array.offset + row):
            continue
        if unit > 1:
            values[row] = value // unit - (1 if value % unit < 0 else 0)
        elif INT64_MIN // 1000 <= value <= INT64_MAX // 1000:
            values[row] = value * 1000
        else:
            return column.refuse_value(row, f"{value} seconds are too many")
    return 0


cdef int take_dictionary(
    ColumnInput column, const ArrowSchema *schema, const ArrowArray *array, int accept,
) except -1:
    """Take dictionary-encoded strings or binary values; errors in a value name its index."""
    cdef ColumnInput values = column.new_part(NULL)
    cdef IntLayout layout
    cdef const uint8_t *validity = NULL
    cdef const char *at
    cdef Span *spans = NULL
    cdef int64_t row, index
    values.unit = "value"
    values.first_row = 0
    if not integer_width(schema.format[0]) or schema.dictionary.dictionary != NULL:
        return refuse_format(column, schema.format)
    check_array(column, array, 2)
    take_validity(column, array, &validity)
    take_array(values, schema.dictionary, array.dictionary,
               accept & (CONTENT_BYTES | CONTENT_TEXT))
    column.content = values.content
    column.take_spans(array.length, &spans)
    at = <const char *>array.buffers[1]
    if at == NULL and array.length > 0:
        return refuse_arrow(column, "no indices")
    layout.width = integer_width(schema.format[0])
    layout.signed = schema.format[0] >= c'a'
    for row in range(array.length):
        spans[row].data = NULL
        spans[row].length = -1
        if validity == NULL or arrow_bit(validity, array.offset + row):
            index = native_int(at + (array.offset + row) * layout.width, &layout)
            if not 0 <= index < values.rows:
                return refuse_arrow(
                    column, f"row {row} has an index outside of {values.rows} values")
            column_get(&values.view, index, &spans[row].data, &spans[row].length)
        if spans[row].length < 0 and not column.nullable:
            return column.refuse_null(row)
    return 0


cdef int take_array(
    ColumnInput column, const ArrowSchema *schema, const ArrowArray *array, int accept,
) except -1:
    """Take one array; ``accept``: CONTENT_ bits.  Strings count as bytes if text is not allowed."""
    cdef const char *code
    cdef char layout
    cdef int64_t unit
    if schema == NULL or schema.release == NULL or schema.format == NULL:
        return refuse_arrow(column, "its schema is released")
    code = schema.format
    if schema.dictionary != NULL:
        if not accept & (CONTENT_BYTES | CONTENT_TEXT):
            return refuse_format(column, code)
        return take_dictionary(column, schema, array, accept)
    if strcmp(code, b"n") == 0:
        check_array(column, array, 0)
        column.rows = array.length
        if not column.nullable and array.length:
            column.refuse_null(0)
        return column.set_integer(column.missing) if accept & CONTENT_INTEGERS else 0
    unit = time_unit(code) if accept & CONTENT_TIMES else 0
    if unit and code[4] == 0:                # "tsm:", then the zone
        return refuse_naive(column, code)
    if unit or (integer_width(code[0]) and code[1] == 0 and accept & CONTENT_INTEGERS):
        column.content = CONTENT_INTEGERS
        return take_arrow_numbers(column, array, code, unit)
    layout = code[1] if code[0] == c'v' else code[0]
    if (layout in (c'u', c'U')) and accept & CONTENT_TEXT:
        column.content = CONTENT_TEXT
    elif (layout in (c'u', c'U', c'z', c'Z', c'w')) and accept & CONTENT_BYTES:
        column.content = CONTENT_BYTES
    else:
        return refuse_format(column, code)
    if code[0] == c'v' and code[2] != 0 or code[0] not in (c'v', c'w') and code[1] != 0 \
            or code[0] == c'v' and code[1] not in (c'u', c'z') \
            or code[0] == c'w' and code[1] != c':':
        return refuse_format(column, code)
    return take_bytes_array_of(column, array, code)


cdef int take_items(
    ColumnInput column, const ArrowSchema *schema, const ArrowArray *array, const char *code,
    const uint8_t **validity, const int64_t **into, ArrowArray *part,
) except -1:
    """Bounds of an array's lists, starting at 0, and the range of items that they cover."""
    cdef int64_t *bounds
    cdef int64_t row, first
    if array.n_children != 1 or schema.n_children != 1:
        return refuse_arrow(column, f"a list with {array.n_children} children")
    take_bounds(column, array, code[1] == c'L', validity, into)
    bounds = <int64_t *>into[0]
    first = bounds[0]
    for row in range(array.length + 1):
        bounds[row] -= first
    return take_slice(column, array_child(array, 0), first, bounds[array.length], part)
