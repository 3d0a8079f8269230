# A column argument from the structs of an Arrow array, in every layout of strings, binary values
# and integers.
#
# Arrays are read where they are; offsets, views and codes are checked here, so that readers need
# not.  The interface does not tell the size of a data buffer (but for views): an offset past the
# end of one cannot be seen.

cdef int refuse_arrow(ColumnInput column, str problem) except -1:
    raise ValueError(f"{column.where(-1)}: the Arrow array contradicts itself: {problem}")


cdef int refuse_format(ColumnInput column, const char *code) except -1:
    text = code.decode("ascii", "replace")
    where = column.where(-1)
    raise TypeError(f"{where}: an Arrow array of {arrow_type(text)}; it may be {column.allowed}")


cdef dict ARROW_TYPES = {
    "n": "nulls", "b": "bool", "c": "int8", "C": "uint8", "s": "int16", "S": "uint16", "i": "int32",
    "I": "uint32", "l": "int64", "L": "uint64", "e": "halffloat", "f": "float", "g": "double",
    "z": "binary", "Z": "large_binary", "vz": "binary_view", "u": "string", "U": "large_string",
    "vu": "string_view", "+l": "lists", "+L": "large lists", "+s": "structs", "+m": "maps",
}


cdef str arrow_type(str code):
    """A type as people call it, from the code of the C data interface."""
    name = ARROW_TYPES.get(code)
    if name is None and code.startswith(("ts", "td")):
        name = "dates or times"
    return f"{name} (format '{code}')" if name else f"format '{code}'"


cdef int check_array(ColumnInput column, const ArrowArray *array, int64_t buffers) except -1:
    """What every layout has: lengths that can be, and at least that many buffers."""
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
    """Rows of a child array from ``start`` on; the part borrows all that it points at."""
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


cdef int take_validity(ColumnInput column, const ArrowArray *array) except -1:
    """Take the null bits; raise for the first null where there may be none."""
    cdef const uint8_t *bits = <const uint8_t *>array.buffers[0]
    cdef int64_t row
    column.rows = array.length
    if array.null_count == 0 or array.length == 0:
        return 0
    if bits == NULL:
        if array.null_count > 0:
            return refuse_arrow(column, f"{array.null_count} nulls without a validity buffer")
        return 0
    if not column.nullable:
        for row in range(array.length):
            if not arrow_bit(bits, array.offset + row):
                return column.refuse_null(row)
        return 0
    column.view.validity = bits
    column.view.validity_offset = array.offset
    return 0


cdef int64_t offsets_end(const char *offsets, int64_t rows, bint wide) noexcept nogil:
    """The last of ``rows + 1`` offsets; -1 if one is negative or less than the one before."""
    cdef int64_t row
    cdef bint bad = False
    if wide:
        for row in range(rows):
            bad |= native_i64(offsets + 8 * row + 8) < native_i64(offsets + 8 * row)
        return -1 if bad or native_i64(offsets) < 0 else native_i64(offsets + 8 * rows)
    for row in range(rows):
        bad |= native_i32(offsets + 4 * row + 4) < native_i32(offsets + 4 * row)
    return -1 if bad or native_i32(offsets) < 0 else native_i32(offsets + 4 * rows)


cdef int take_offsets(
    ColumnInput column, const ArrowArray *array, bint wide, int64_t *end,
) except -1:
    """Null bits and offsets of strings or lists; ``end`` is the last offset."""
    take_validity(column, array)
    column.view.kind = COLUMN_OFFSETS_64 if wide else COLUMN_OFFSETS_32
    column.view.rows = <const char *>array.buffers[1]
    end[0] = 0
    if array.length == 0:
        return 0
    if column.view.rows == NULL:
        return refuse_arrow(column, "no buffer of offsets")
    column.view.rows += (8 if wide else 4) * array.offset
    with nogil:
        end[0] = offsets_end(column.view.rows, array.length, wide)
    if end[0] < 0:
        return refuse_arrow(column, "an offset is negative or less than the one before")
    return 0


cdef int take_strings(ColumnInput column, const ArrowArray *array, bint wide) except -1:
    """Strings or binary values, each from an offset to the next."""
    cdef int64_t end = 0
    check_array(column, array, 3)
    take_offsets(column, array, wide, &end)
    column.view.data = <const char *>array.buffers[2]
    if column.view.data == NULL:
        column.view.data = b""
        if end > 0:
            return refuse_arrow(column, f"no data, offsets up to {end}")
    return 0


cdef bint view_is_good(
    const char *at, const char **blocks, const char *sizes, int64_t count,
) noexcept nogil:
    """Whether one view points into one of ``count`` blocks."""
    cdef int64_t length = native_i32(at)
    cdef int64_t block, start
    if length <= VIEW_INLINE:
        return length >= 0
    block = native_i32(at + 8)
    start = native_i32(at + 12)
    if block < 0 or block >= count or start < 0 or blocks[block] == NULL:
        return False
    return start + length <= native_i64(sizes + 8 * block)


cdef int take_views(ColumnInput column, const ArrowArray *array) except -1:
    """String or binary views; the last buffer has the sizes of the data buffers."""
    cdef const char *sizes
    cdef int64_t row
    cdef int64_t bad = -1
    check_array(column, array, 3)
    take_validity(column, array)
    sizes = <const char *>array.buffers[array.n_buffers - 1]
    column.view.kind = COLUMN_VIEWS
    column.view.blocks = <const char **>array.buffers + 2
    column.view.rows = <const char *>array.buffers[1]
    if array.length == 0:
        return 0
    if column.view.rows == NULL or (array.n_buffers > 3 and sizes == NULL):
        return refuse_arrow(column, "no buffer of views, or none of their data's sizes")
    column.view.rows += VIEW_BYTES * array.offset
    with nogil:
        for row in range(array.length):
            if not view_is_good(
                column.view.rows + VIEW_BYTES * row, column.view.blocks, sizes,
                array.n_buffers - 3,
            ) and (
                column.view.validity == NULL or arrow_bit(column.view.validity, array.offset + row)
            ):
                bad = row
                break
    if bad >= 0:
        return refuse_arrow(column, f"row {bad} lies outside of its data")
    return 0


cdef int take_fixed(ColumnInput column, const ArrowArray *array, const char *width) except -1:
    """Binary values of one width, which the format tells in decimal."""
    cdef int64_t size = parse_decimal(width, <int64_t>strlen(width))
    check_array(column, array, 2)
    take_validity(column, array)
    if size < 0 or (size > 0 and array.offset + array.length > INT64_MAX // size):
        return refuse_arrow(column, f"values of {size} bytes")
    column.view.kind = COLUMN_FIXED
    column.view.length = size
    column.view.stride = size
    column.view.data = <const char *>array.buffers[1]
    if column.view.data == NULL:
        column.view.data = b""
        return refuse_arrow(column, "no data") if size * array.length > 0 else 0
    if array.length > 0:                     # without rows the offset may be any
        column.view.data += size * array.offset
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


cdef int take_integers(ColumnInput column, const ArrowArray *array, char code) except -1:
    """Integers of any width, without nulls."""
    cdef int width = integer_width(code)
    cdef const char *at
    check_array(column, array, 2)
    take_validity(column, array)
    at = <const char *>array.buffers[1]
    if array.length > 0:                     # without rows the offset may be any
        if at == NULL:
            return refuse_arrow(column, "no data")
        at += width * array.offset
    return take_int_array(column, at, array.length, width, width, code >= c'a', False)


cdef int take_codes(
    ColumnInput column, const ArrowArray *array, char code, ColumnInput values,
) except -1:
    """Rows that are indices of ``values``; the codes of the column are these indices."""
    cdef int width = integer_width(code)
    cdef const char *indices = <const char *>array.buffers[1]
    cdef int64_t row, index
    cdef int64_t bad = -1
    cdef int64_t null_row = -1
    cdef char *memory = NULL
    cdef Span *distinct
    cdef int32_t *codes
    column.take_memory(values.rows * <int64_t>sizeof(Span), &memory)
    distinct = <Span *>memory
    for row in range(values.rows):
        if not column_get(&values.view, row, &distinct[row].data, &distinct[row].length):
            distinct[row].length = -1
    column.take_memory(4 * array.length, &memory)
    codes = <int32_t *>memory
    if array.length > 0:
        if indices == NULL:
            return refuse_arrow(column, "no indices")
        indices += width * array.offset
    with nogil:
        for row in range(array.length):
            codes[row] = -1
            if column.view.validity == NULL or arrow_bit(
                column.view.validity, array.offset + row
            ):
                index = native_int(indices + row * width, width, code >= c'a', False)
                if index < 0 or index >= values.rows:
                    bad = row
                    break
                if distinct[index].length >= 0:
                    codes[row] = <int32_t>index
            if codes[row] < 0 and null_row < 0:
                null_row = row
    if bad >= 0:
        return refuse_arrow(column, f"row {bad} has an index outside of {values.rows} values")
    if null_row >= 0 and not column.nullable:
        return column.refuse_null(null_row)
    column.view.kind = COLUMN_CODES
    column.view.rows = memory
    column.view.distinct = distinct
    column.view.code_count = values.rows
    return 0


cdef int take_dictionary(
    ColumnInput column, const ArrowSchema *schema, const ArrowArray *array, int accept,
) except -1:
    """Dictionary-encoded strings or binary values; errors in its values name these."""
    cdef ColumnInput values = column.new_part()
    values.unit = "value"
    if not integer_width(schema.format[0]) or schema.dictionary.dictionary != NULL:
        return refuse_format(column, schema.format)
    check_array(column, array, 2)
    take_validity(column, array)
    take_array(
        values, schema.dictionary, array.dictionary, accept & (CONTENT_BYTES | CONTENT_TEXT)
    )
    if values.rows > INT32_MAX:
        return refuse_arrow(column, f"a dictionary of {values.rows} values")
    column.owners.append(values)
    column.content = values.content
    return take_codes(column, array, schema.format[0], values)


cdef int64_t first_not_utf8(const ColumnView *view, int64_t rows) noexcept nogil:
    """The first row that is not UTF-8, -1 if all of them are.

    Strings that lie one after the other are checked in one go; then none is broken if none
    begins in the middle of a character.
    """
    cdef const char *text = NULL
    cdef const char *end = NULL
    cdef int64_t length = 0
    cdef int64_t row
    cdef bint whole = False
    if view.kind in (COLUMN_OFFSETS_32, COLUMN_OFFSETS_64) and view.validity == NULL and rows > 0:
        column_get(view, 0, &text, &length)
        column_get(view, rows - 1, &end, &length)
        whole = utf8_error(text, end + length - text) < 0
    if whole:
        for row in range(rows):
            column_get(view, row, &text, &length)
            whole &= length == 0 or not continues_utf8(text[0])
    if not whole:
        for row in range(rows):
            if column_get(view, row, &text, &length) and utf8_error(text, length) >= 0:
                return row
    return -1


cdef int check_text(ColumnInput column) except -1:
    """Raise for the first row that is not UTF-8."""
    cdef const char *text = NULL
    cdef int64_t length = 0
    cdef int64_t bad
    with nogil:
        bad = first_not_utf8(&column.view, column.rows)
    if bad < 0:
        return 0
    column_get(&column.view, bad, &text, &length)
    shown = short_text.repr(text[:min(length, 80)])
    return column.refuse_value(bad, f"{shown} is not UTF-8")


cdef int take_array(
    ColumnInput column, const ArrowSchema *schema, const ArrowArray *array, int accept,
) except -1:
    """Read one array; ``accept`` has the CONTENT_ bits that the argument may be.

    Where that is bytes and not text, strings are taken as bytes.
    """
    cdef const char *code
    cdef char layout
    if schema == NULL or schema.release == NULL or schema.format == NULL:
        return refuse_arrow(column, "its schema is released")
    code = schema.format
    if schema.dictionary != NULL:
        return take_dictionary(column, schema, array, accept)
    if strcmp(code, b"n") == 0:
        check_array(column, array, 0)
        column.rows = array.length
        return 0 if column.nullable or array.length == 0 else column.refuse_null(0)
    if integer_width(code[0]) and code[1] == 0 and accept & CONTENT_INTEGERS:
        column.content = CONTENT_INTEGERS
        return take_integers(column, array, code[0])
    layout = code[1] if code[0] == c'v' else code[0]
    if (layout in (c'u', c'U')) and accept & CONTENT_TEXT:
        column.content = CONTENT_TEXT
    elif (layout in (c'u', c'U', c'z', c'Z', c'w')) and accept & CONTENT_BYTES:
        column.content = CONTENT_BYTES
    else:
        return refuse_format(column, code)
    if strcmp(code, b"vu") == 0 or strcmp(code, b"vz") == 0:
        take_views(column, array)
    elif strncmp(code, b"w:", 2) == 0:
        take_fixed(column, array, code + 2)
    elif code[1] == 0 and layout != c'w':
        take_strings(column, array, layout in (c'U', c'Z'))
    else:
        return refuse_format(column, code)
    if column.content == CONTENT_TEXT:
        check_text(column)
    return 0
