# Column of put_many or of a table in Python: the view for C, its owners, its errors.
#
# A column is fully checked while it is built, with the GIL held.  Only `owners` keeps its memory
# alive, so that an error during the build leaks nothing.


# Null rules of a column.
cdef enum:
    NOT_NULL
    NULLABLE

cdef enum:
    CONTENT_NONE = 0
    CONTENT_BYTES = 1
    CONTENT_TEXT = 2         # checked to be UTF-8
    CONTENT_INTEGERS = 4
    CONTENT_KEYS = 8         # lists of text
    CONTENT_TIMES = 16       # timestamps, as milliseconds
    CONTENT_MAPS = 32        # maps of text: the caller's own properties


@cython.final
cdef class ColumnInput:
    """One argument: its view for C, and every borrowed object."""

    cdef ColumnView view
    cdef int64_t rows            # -1: one value for all rows
    cdef int content             # CONTENT_NONE while absent
    cdef int64_t first_row       # of a chunk in the whole argument
    cdef int64_t low             # lowest allowed integer; ``high``: the highest
    cdef int64_t high
    cdef int64_t missing         # the value used for a null integer
    cdef bint nullable           # rows may have no value
    cdef bint volatile           # rows may change concurrently: some are in mutable memory
    cdef str kind                # in errors: argument or column
    cdef str argument            # name, for errors
    cdef str unit                # unit of row numbers in errors: rows, or dictionary values
    cdef str allowed             # allowed types, for errors
    cdef const int64_t *bounds   # of the lists that contain the items; errors name the lists
    cdef list owners             # tuples, memoryviews, ArrowOwners, Memory

    def __cinit__(self, str argument, str allowed, int nulls):
        self.rows = -1
        self.low = INT64_MIN
        self.high = INT64_MAX
        self.nullable = nulls == NULLABLE
        self.kind = "argument"
        self.argument = argument
        self.unit = "row"
        self.allowed = allowed
        self.owners = []

    cdef int take_memory(self, int64_t count, int64_t size, char **memory) except -1:
        """Allocate ``count`` items that live as long as the column, aligned to 16, not cleared."""
        cdef Memory block
        if count > (INT64_MAX - 64) // size:
            raise MemoryError(f"{self.where(-1)} has {count} rows")
        block = memory_new(count * size)
        memory[0] = block.data
        self.owners.append(block)
        return 0

    cdef int take_spans(self, int64_t rows, Span **spans) except -1:
        """Make this a column of ``rows`` spans, which the caller fills."""
        cdef char *memory = NULL
        self.take_memory(rows, sizeof(Span), &memory)
        self.view.kind = COLUMN_SPANS
        self.view.rows = memory
        self.rows = rows
        spans[0] = <Span *>memory
        return 0

    cdef int take_ints(self, int64_t rows, int64_t **values) except -1:
        """Make this a column of ``rows`` integers, which the caller fills."""
        cdef char *memory = NULL
        self.take_memory(rows, sizeof(int64_t), &memory)
        self.view.kind = COLUMN_INTEGERS
        self.view.rows = memory
        self.rows = rows
        values[0] = <int64_t *>memory
        return 0

    cdef int set_scalar(self, const char *data, int64_t length) except -1:
        self.view.kind = COLUMN_SCALAR
        self.view.scalar.data = data
        self.view.scalar.length = length
        return 0

    cdef int set_integer(self, int64_t value) except -1:
        self.view.kind = COLUMN_INTEGER
        self.view.integer = value
        return 0

    cdef ColumnInput new_part(self, const int64_t *bounds):
        """Column for the items of this column's rows, under its name; ``bounds`` of its lists."""
        cdef ColumnInput part = ColumnInput(self.argument, self.allowed, NULLABLE)
        part.kind = self.kind
        part.first_row = self.first_row
        part.bounds = bounds
        self.owners.append(part)
        return part

    cdef str where(self, int64_t row):
        """Name of a row in errors; -1: of the whole argument."""
        cdef int64_t item = row
        cdef str name = self.argument
        if self.kind != "argument":
            name = f"{self.kind} '{name}'"
        if row < 0:
            return name
        if self.bounds != NULL:
            row = 0
            while self.bounds[row + 1] <= item:
                row += 1
        return f"{name}, {self.unit} {self.first_row + row}"

    cdef str subject(self, int64_t row):
        """As where, for use before "must be"."""
        return self.where(row) if row < 0 else f"{self.where(row)}:"

    cdef int refuse_type(self, int64_t row, object value) except -1:
        raise arguments.wrong_type(self.subject(row), self.allowed, value)

    cdef int refuse_value(self, int64_t row, str problem) except -1:
        raise ValueError(f"{self.where(row)}: {problem}; it must be {self.allowed}")

    cdef int refuse_null(self, int64_t row) except -1:
        return self.refuse_value(row, "no value (null)")

    cdef int refuse_number(self, int64_t row, object value) except -1:
        raise arguments.wrong_value(self.subject(row), f"{self.low} to {self.high}", value)


cdef int64_t first_not_utf8(const Span *spans, int64_t rows) noexcept nogil:
    """First row that is not UTF-8; -1: none."""
    cdef int64_t row
    for row in range(rows):
        if spans[row].length > 0 and utf8_error(spans[row].data, spans[row].length) >= 0:
            return row
    return -1


cdef int64_t read_integers(
    const char *at, const IntLayout *layout, int64_t rows, const uint8_t *validity,
    int64_t validity_offset, int64_t low, int64_t high, int64_t missing, int64_t *values,
) noexcept nogil:
    """Read numbers; the first row out of range, -1: none.  ``missing`` replaces nulls."""
    cdef int64_t row
    cdef bint huge = not layout.signed and layout.width == 8
    for row in range(rows):
        values[row] = native_int(at + row * layout.width, layout)
        if validity != NULL and not arrow_bit(validity, validity_offset + row):
            values[row] = missing
        elif not low <= values[row] <= high or (huge and values[row] < 0):
            return row
    return -1


cdef bint point_at_integers(
    ColumnInput column, const char *at, const IntLayout *layout, int64_t rows,
    const uint8_t *validity,
) noexcept:
    """Use integers in place, if any value is allowed and none is missing; else False.

    REQUIRES: an owner of the column keeps the memory alive.
    """
    if layout.width != 8 or not layout.signed or validity != NULL or column.low != INT64_MIN \
            or column.high != INT64_MAX or <size_t>at & 7:
        return False
    column.view.kind = COLUMN_INTEGERS
    column.view.rows = at
    column.rows = rows
    return True


cdef int take_integers(
    ColumnInput column, const char *at, const IntLayout *layout, int64_t rows,
    const uint8_t *validity, int64_t validity_offset,
) except -1:
    """Take machine integers, checked against the column's limits."""
    cdef int64_t *values = NULL
    cdef int64_t bad
    column.take_ints(rows, &values)
    with nogil:
        bad = read_integers(at, layout, rows, validity, validity_offset, column.low, column.high,
                            column.missing, values)
    if bad >= 0 and not layout.signed and layout.width == 8:
        return column.refuse_number(bad, <uint64_t>values[bad])
    return column.refuse_number(bad, values[bad]) if bad >= 0 else 0
