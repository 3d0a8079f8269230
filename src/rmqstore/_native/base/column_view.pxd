"""C view of a column argument: rows of bytes or of integers, readable without the GIL.

Its owner (``ColumnInput``) has validated the rows and keeps their memory alive.  REQUIRES of
readers: ``0 <= row <`` rows.
"""
from libc.stdint cimport int32_t, int64_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy


cdef enum:
    COLUMN_ABSENT = 0        # no row has a value
    COLUMN_SCALAR = 1        # scalar: one value for all rows
    COLUMN_SPANS = 2         # rows: a Span each
    COLUMN_INTEGER = 3       # integer: one for all rows
    COLUMN_INTEGERS = 4      # rows: an int64 each, at any alignment


cdef struct Span:
    const char *data
    int64_t length               # bytes, -1: null


cdef struct ColumnView:
    int32_t kind
    Span scalar
    int64_t integer
    const char *rows             # value of row 0


# Integers of one width and sign in memory, in the machine's byte order.
cdef struct IntLayout:
    int width                    # bytes: 1, 2, 4 or 8
    bint signed


cdef inline int64_t native_int(const char *at, const IntLayout *layout) noexcept nogil:
    """Integer at any alignment; values above 2^63 - 1 come out negative."""
    cdef uint64_t value = 0
    cdef uint16_t two
    cdef uint32_t four
    if layout.width == 1:
        value = <unsigned char>at[0]
    elif layout.width == 2:
        memcpy(&two, at, 2)
        value = two
    elif layout.width == 4:
        memcpy(&four, at, 4)
        value = four
    else:
        memcpy(&value, at, 8)
        return <int64_t>value
    if layout.signed and value >> (8 * layout.width - 1):
        value -= <uint64_t>1 << (8 * layout.width)
    return <int64_t>value


cdef inline const Span *column_span(const ColumnView *column, int64_t row) noexcept nogil:
    """A row's bytes, alive as long as the owner.  REQUIRES: kind SCALAR or SPANS."""
    if column.kind == COLUMN_SPANS:
        return <const Span *>column.rows + row
    return &column.scalar


cdef inline int column_get(
    const ColumnView *column, int64_t row, const char **data, int64_t *length,
) noexcept nogil:
    """Bytes of one row: 1, or 0 for null or absent.  Not for integers."""
    cdef const Span *span
    if column.kind != COLUMN_SPANS and column.kind != COLUMN_SCALAR:
        return 0
    span = column_span(column, row)
    data[0] = span.data
    length[0] = span.length
    return span.length >= 0


cdef inline int64_t column_get_int(const ColumnView *column, int64_t row) noexcept nogil:
    """Integer of one row.  REQUIRES: kind INTEGER or INTEGERS, which have no nulls."""
    cdef int64_t value
    if column.kind == COLUMN_INTEGER:
        return column.integer
    memcpy(&value, column.rows + 8 * row, 8)
    return value
