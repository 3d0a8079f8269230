"""A column argument as C sees it: rows of bytes or of integers, readable without the GIL.

The owner (``ColumnInput``) has checked all of it and keeps alive what is pointed at, so that
reading a row checks nothing but nulls.  REQUIRES of all readers: ``0 <= row <`` rows.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from rmqstore._native.arrow_c cimport arrow_bit


cdef enum:
    COLUMN_ABSENT = 0        # no row has a value
    COLUMN_SCALAR = 1        # data, length: one value for all rows
    COLUMN_SPANS = 2         # rows: a Span each
    COLUMN_FIXED = 3         # data: `length` bytes each, `stride` apart
    COLUMN_OFFSETS_32 = 4    # rows: an int32 each and one more, the row's place in `data`
    COLUMN_OFFSETS_64 = 5    # the same with int64
    COLUMN_VIEWS = 6         # rows: Arrow's 16 bytes each, inline or a place in one of `blocks`
    COLUMN_CODES = 7         # rows: an int32 each, an index of `distinct`, -1 for null
    COLUMN_INTEGER = 8       # integer: one for all rows
    COLUMN_INTEGERS = 9      # rows: an int64 each

    VIEW_BYTES = 16          # of Arrow's string view: length 4, then up to 12 bytes themselves
    VIEW_INLINE = 12         # or prefix 4, block 4, place in it 4


cdef struct Span:
    const char *data
    int64_t length               # bytes, -1: null


cdef struct ColumnView:
    int32_t kind
    int64_t code_count           # distinct values: 1 for SCALAR, those of CODES, else 0
    const char *data
    const char *rows             # what row 0 has; aligned to nothing
    const Span *distinct         # by code; values that no row has may be among them
    const char **blocks
    const uint8_t *validity      # a bit a row, NULL: none of them is null
    int64_t validity_offset      # bit of row 0
    int64_t length               # bytes
    int64_t stride               # bytes
    int64_t integer


cdef extern from *:
    """
    #define NATIVE_BIG_ENDIAN (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__)
    #define native_swap_16 __builtin_bswap16
    #define native_swap_32 __builtin_bswap32
    #define native_swap_64 __builtin_bswap64
    """
    const bint NATIVE_BIG_ENDIAN
    uint16_t native_swap_16(uint16_t value) noexcept nogil
    uint32_t native_swap_32(uint32_t value) noexcept nogil
    uint64_t native_swap_64(uint64_t value) noexcept nogil


cdef inline int32_t native_i32(const char *at) noexcept nogil:
    """int32 of this machine's byte order at any alignment."""
    cdef int32_t value
    memcpy(&value, at, 4)
    return value


cdef inline int64_t native_i64(const char *at) noexcept nogil:
    """int64 of this machine's byte order at any alignment."""
    cdef int64_t value
    memcpy(&value, at, 8)
    return value


cdef inline int64_t native_int(
    const char *at, int width, bint signed, bint swapped,
) noexcept nogil:
    """Integer of 1, 2, 4 or 8 bytes at any alignment; above 2^63 - 1 it comes out negative."""
    cdef uint64_t value = 0
    cdef uint16_t two
    cdef uint32_t four
    if width == 1:
        value = <unsigned char>at[0]
    elif width == 2:
        memcpy(&two, at, 2)
        value = native_swap_16(two) if swapped else two
    elif width == 4:
        memcpy(&four, at, 4)
        value = native_swap_32(four) if swapped else four
    else:
        memcpy(&value, at, 8)
        return <int64_t>(native_swap_64(value) if swapped else value)
    if signed and value >> (8 * width - 1):
        value -= <uint64_t>1 << (8 * width)
    return <int64_t>value


cdef inline int span_get(const Span *span, const char **data, int64_t *length) noexcept nogil:
    """As ``column_get``."""
    data[0] = span.data
    length[0] = span.length
    return span.length >= 0


cdef inline int column_get(
    const ColumnView *column, int64_t row, const char **data, int64_t *length,
) noexcept nogil:
    """Bytes of one row; returns 1, or 0 for null or absent.

    They remain live as long as the owner does.  Integers are not read here.
    """
    cdef const char *at
    cdef int64_t start
    if column.kind == COLUMN_SPANS:
        return span_get(<const Span *>column.rows + row, data, length)
    if column.kind == COLUMN_SCALAR:
        data[0] = column.data
        length[0] = column.length
        return 1
    if column.kind == COLUMN_CODES:
        start = native_i32(column.rows + 4 * row)
        return start >= 0 and span_get(column.distinct + start, data, length)
    if column.validity != NULL and not arrow_bit(column.validity, column.validity_offset + row):
        return 0
    if column.kind == COLUMN_OFFSETS_32:
        start = native_i32(column.rows + 4 * row)
        data[0] = column.data + start
        length[0] = native_i32(column.rows + 4 * row + 4) - start
        return 1
    if column.kind == COLUMN_OFFSETS_64:
        start = native_i64(column.rows + 8 * row)
        data[0] = column.data + start
        length[0] = native_i64(column.rows + 8 * row + 8) - start
        return 1
    if column.kind == COLUMN_FIXED:
        data[0] = column.data + row * column.stride
        length[0] = column.length
        return 1
    if column.kind == COLUMN_VIEWS:
        at = column.rows + VIEW_BYTES * row
        length[0] = native_i32(at)
        if length[0] <= VIEW_INLINE:
            data[0] = at + 4
        else:
            data[0] = column.blocks[native_i32(at + 8)] + native_i32(at + 12)
        return 1
    return 0


cdef inline int64_t column_get_int(const ColumnView *column, int64_t row) noexcept nogil:
    """Integer of one row.  REQUIRES: kind INTEGER or INTEGERS, which have no nulls."""
    if column.kind == COLUMN_INTEGER:
        return column.integer
    return native_i64(column.rows + 8 * row)


cdef inline bint column_has(const ColumnView *column, int64_t row) noexcept nogil:
    """Whether a row has a value of its own: for kinds with `rows` and a validity bit a row."""
    return column.rows != NULL and (
        column.validity == NULL or arrow_bit(column.validity, column.validity_offset + row))


cdef inline int64_t list_bound(const ColumnView *lists, int64_t row) noexcept nogil:
    """First item of a row's list, and the end of the list before it.  REQUIRES: kind OFFSETS."""
    if lists.kind == COLUMN_OFFSETS_64:
        return native_i64(lists.rows + 8 * row)
    return native_i32(lists.rows + 4 * row)


cdef inline int64_t column_code(const ColumnView *column, int64_t row) noexcept nogil:
    """Code of a row's value, below ``code_count``.

    Equal codes are equal values.  -1: null, or the column has no codes (``code_count`` is 0).
    """
    if column.kind == COLUMN_CODES:
        return native_i32(column.rows + 4 * row)
    return 0 if column.kind == COLUMN_SCALAR else -1


cdef inline int column_code_get(
    const ColumnView *column, int64_t code, const char **data, int64_t *length,
) noexcept nogil:
    """Bytes of the value of a code; as ``column_get``."""
    if column.kind == COLUMN_CODES:
        return span_get(column.distinct + code, data, length)
    return column_get(column, 0, data, length)
