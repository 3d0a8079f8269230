# A column of put_many or of a table from Python's side: owner, errors, sequences and buffers.
#
# A column is checked in full while it is made, with the GIL held; what it points at is kept
# alive by `owners`, and by nothing else, so that an error on the way leaks nothing.

from reprlib import Repr

cdef object short_text = Repr()
short_text.maxstring = 80
short_text.maxother = 80


cdef enum:
    CONTENT_NONE = 0
    CONTENT_BYTES = 1
    CONTENT_TEXT = 2         # checked to be UTF-8
    CONTENT_INTEGERS = 4
    CONTENT_KEYS = 8         # lists of text


@cython.final
cdef class ColumnInput:
    """One argument: what C reads, and everything that it borrows."""

    cdef ColumnView view
    cdef int64_t rows            # -1: one value for all rows
    cdef int content             # CONTENT_NONE while absent
    cdef int64_t first_row       # of the whole argument, where this is a chunk of it
    cdef int64_t low             # of integers, both included
    cdef int64_t high
    cdef bint nullable           # rows may have no value
    cdef bint generate           # uniq_key=True
    cdef bint volatile           # others may write to the rows' bytes: some of them are no bytes
    cdef str kind                # what it is called in errors: argument or column
    cdef str argument            # name, for errors
    cdef str unit                # what errors count: rows, or the values of a dictionary
    cdef str allowed             # what it may be, for errors
    cdef ColumnInput lists       # whose rows are lists of what this column has; errors name those
    cdef list owners             # tuples, memoryviews, ArrowOwners, memory as bytes

    def __cinit__(self, str argument, str allowed, bint nullable):
        self.rows = -1
        self.low = INT64_MIN
        self.high = INT64_MAX
        self.nullable = nullable
        self.kind = "argument"
        self.argument = argument
        self.unit = "row"
        self.allowed = allowed
        self.owners = []

    cdef int take_memory(self, int64_t size, char **memory) except -1:
        """Bytes that live as long as the column, aligned to 16, not cleared."""
        cdef bytes block
        if size > INT64_MAX - 64:
            raise MemoryError(f"argument '{self.argument}' needs {size} bytes")
        block = PyBytes_FromStringAndSize(NULL, size)
        memory[0] = PyBytes_AS_STRING(block)
        self.owners.append(block)
        return 0

    cdef int take_spans(self, int64_t rows, Span **spans) except -1:
        """Make this a column of ``rows`` spans, which the caller fills."""
        cdef char *memory = NULL
        if rows > INT64_MAX // <int64_t>sizeof(Span) - 64:
            raise MemoryError(f"argument '{self.argument}' has {rows} rows")
        self.take_memory(rows * <int64_t>sizeof(Span), &memory)
        self.view.kind = COLUMN_SPANS
        self.view.rows = memory
        self.rows = rows
        spans[0] = <Span *>memory
        return 0

    cdef int set_scalar(self, const char *data, int64_t length) except -1:
        self.view.kind = COLUMN_SCALAR
        self.view.code_count = 1
        self.view.data = data
        self.view.length = length
        return 0

    cdef ColumnInput new_part(self):
        """A column of what this one's rows consist of, named alike."""
        cdef ColumnInput part = ColumnInput(self.argument, self.allowed, True)
        part.kind = self.kind
        return part

    cdef str where(self, int64_t row):
        """Argument and row; -1: the argument as a whole."""
        cdef int64_t item
        if row < 0:
            return f"{self.kind} '{self.argument}'"
        if self.lists is not None:
            item = row + list_bound(&self.lists.view, 0)
            row = 0
            while list_bound(&self.lists.view, row + 1) <= item:
                row += 1
            return self.lists.where(row)
        return f"{self.kind} '{self.argument}', {self.unit} {self.first_row + row}"

    cdef int refuse_type(self, int64_t row, object value) except -1:
        kind = type(value).__name__
        text = short_text.repr(value)
        raise TypeError(f"{self.where(row)}: {text} is of type {kind}; it may be {self.allowed}")

    cdef int refuse_value(self, int64_t row, str problem) except -1:
        raise ValueError(f"{self.where(row)}: {problem}; it may be {self.allowed}")

    cdef int refuse_null(self, int64_t row) except -1:
        return self.refuse_value(row, "no value (null)")


cdef tuple sequence_rows(ColumnInput column, object value):
    """The rows of a sequence; a tuple, so that no other thread can change them meanwhile."""
    if PyTuple_CheckExact(value):
        return value
    if PyList_CheckExact(value):
        return PyList_AsTuple(value)
    if (
        isinstance(value, (str, bytes, bytearray, memoryview, dict, set, frozenset))
        or not PySequence_Check(value)
    ):
        column.refuse_type(-1, value)
    return tuple(value)


cdef object buffer_of(object value):
    """A memoryview of what exports a buffer, None of anything else (some arrays refuse).

    Not of a masked array either: its buffer has values where it has none.
    """
    cdef Py_buffer *buffer
    if not PyObject_CheckBuffer(value) or hasattr(value, "mask"):
        return None
    try:
        view = memoryview(value)
    except (BufferError, TypeError, ValueError):
        return None
    buffer = PyMemoryView_GET_BUFFER(view)
    return None if buffer.suboffsets != NULL else view


cdef inline bint is_bytes_format(const char *code) noexcept nogil:
    """True for a buffer of single bytes."""
    if code[0] in (c'@', c'=', c'<', c'>', c'!', c'|'):
        code += 1
    return code[0] in (c'B', c'b', c'c') and code[1] == 0


cdef tuple object_rows(object view, object value):
    """Rows of a one-dimensional NumPy array of str or of objects, else None."""
    cdef Py_buffer *buffer = PyMemoryView_GET_BUFFER(view)
    cdef int64_t end
    if buffer.ndim != 1 or not hasattr(value, "tolist"):
        return None
    end = <int64_t>strlen(buffer.format)
    if end > 0 and buffer.format[end - 1] in (c'O', c'w'):
        return tuple(value.tolist())
    return None


cdef tuple array_or_sequence_rows(ColumnInput column, object value):
    """Rows of a sequence or of a NumPy array of str or objects."""
    view = buffer_of(value)
    if view is None:
        return sequence_rows(column, value)
    rows = object_rows(view, value)
    if rows is None:
        column.refuse_type(-1, value)
    return rows


# Bytes

cdef int take_buffer(ColumnInput column, int64_t row, object value, Span *span) except -1:
    """Point a span at the bytes of one C-contiguous buffer and keep that."""
    cdef Py_buffer *buffer
    if PyBytes_Check(value):
        column.owners.append(value)
        span.data = PyBytes_AS_STRING(value)
        span.length = PyBytes_GET_SIZE(value)
        return 0
    view = buffer_of(value)
    if view is None:
        return column.refuse_type(row, value)
    column.volatile = True
    buffer = PyMemoryView_GET_BUFFER(view)
    if buffer.ndim == 0:  # NumPy's scalars
        return column.refuse_type(row, value)
    if not PyBuffer_IsContiguous(buffer, c'C'):
        return column.refuse_value(row, "a buffer that is not C-contiguous")
    column.owners.append(view)
    span.data = <const char *>buffer.buf
    span.length = buffer.len
    return 0


cdef int take_bytes_rows(ColumnInput column, tuple rows) except -1:
    """A sequence of buffers."""
    cdef Span *spans = NULL
    cdef PyObject *item
    cdef int64_t row
    cdef int64_t count = PyTuple_GET_SIZE(rows)
    column.take_spans(count, &spans)
    column.owners.append(rows)
    for row in range(count):
        item = PyTuple_GET_ITEM(rows, row)
        if PyBytes_CheckExact(<object>item):
            spans[row].data = PyBytes_AS_STRING(<object>item)
            spans[row].length = PyBytes_GET_SIZE(<object>item)
        else:
            take_buffer(column, row, <object>item, spans + row)
    return 0


cdef int take_bytes_array(ColumnInput column, object view) except -1:
    """A NumPy array of 'S', whose rows end before their zeros at the end, or rows of bytes."""
    cdef Py_buffer *buffer = PyMemoryView_GET_BUFFER(view)
    cdef Span *spans = NULL
    cdef int64_t row, size
    cdef const char *at = <const char *>buffer.buf
    column.volatile = True
    if buffer.ndim == 2:
        if buffer.strides[1] != 1 and buffer.shape[1] > 1:
            view = view.tobytes()
            at = PyBytes_AS_STRING(view)
            column.view.stride = buffer.shape[1]
        else:
            column.view.stride = buffer.strides[0]
        column.view.kind = COLUMN_FIXED
        column.view.data = at
        column.view.length = buffer.shape[1]
        column.rows = buffer.shape[0]
    else:
        column.take_spans(buffer.shape[0], &spans)
        for row in range(buffer.shape[0]):
            size = buffer.itemsize
            while size > 0 and at[size - 1] == 0:
                size -= 1
            spans[row].data = at
            spans[row].length = size
            at += buffer.strides[0]
    column.owners.append(view)
    return 0


cdef int take_bytes(ColumnInput column, object value) except -1:
    """One buffer for all rows, a sequence of them, or a NumPy array of them."""
    cdef Py_buffer *buffer
    cdef Span span
    column.content = CONTENT_BYTES
    if PyBytes_Check(value):
        take_buffer(column, -1, value, &span)
        return column.set_scalar(span.data, span.length)
    view = buffer_of(value)
    if view is None and PyObject_CheckBuffer(value):
        return column.refuse_type(-1, value)
    if view is None:
        return take_bytes_rows(column, sequence_rows(column, value))
    rows = object_rows(view, value)
    if rows is not None:
        return take_bytes_rows(column, rows)
    buffer = PyMemoryView_GET_BUFFER(view)
    if buffer.ndim == 1 and is_bytes_format(buffer.format):
        take_buffer(column, -1, value, &span)
        return column.set_scalar(span.data, span.length)
    if buffer.ndim == 2 and is_bytes_format(buffer.format):
        return take_bytes_array(column, view)
    if buffer.ndim == 1 and buffer.format[strlen(buffer.format) - 1] == c's':
        return take_bytes_array(column, view)
    return column.refuse_type(-1, value)


# Text

cdef int take_str(ColumnInput column, int64_t row, object value, Span *span) except -1:
    """Point a span at the UTF-8 of one str, which the str itself keeps."""
    cdef Py_ssize_t size = 0
    if not PyUnicode_Check(value):
        return column.refuse_type(row, value)
    try:
        span.data = PyUnicode_AsUTF8AndSize(value, &size)
    except UnicodeEncodeError:
        column.refuse_value(row, f"{short_text.repr(value)} has a surrogate without its pair")
    span.length = size
    return 0


cdef int take_text_rows(ColumnInput column, tuple rows) except -1:
    """A sequence of str."""
    cdef Span *spans = NULL
    cdef PyObject *item
    cdef PyObject *last = NULL
    cdef int64_t row
    cdef int64_t count = PyTuple_GET_SIZE(rows)
    column.take_spans(count, &spans)
    column.owners.append(rows)
    for row in range(count):
        item = PyTuple_GET_ITEM(rows, row)
        if item == last:
            spans[row] = spans[row - 1]
        elif column.nullable and <object>item is None:
            spans[row].data = NULL
            spans[row].length = -1
        else:
            take_str(column, row, <object>item, spans + row)
        last = item
    return 0


cdef int take_text(ColumnInput column, object value) except -1:
    """One str for all rows, a sequence of them, or a NumPy array of them."""
    cdef Span span
    column.content = CONTENT_TEXT
    if PyUnicode_Check(value):
        take_str(column, -1, value, &span)
        column.owners.append(value)
        return column.set_scalar(span.data, span.length)
    return take_text_rows(column, array_or_sequence_rows(column, value))


# Integers

cdef int refuse_integer(ColumnInput column, int64_t row, object value) except -1:
    where = column.where(row)
    raise ValueError(f"{where}: {value} is out of range; it may be {column.low} to {column.high}")


cdef int take_int(ColumnInput column, int64_t row, object value, int64_t *into) except -1:
    """One Python integer, or what can stand for one; no bool."""
    cdef int overflow = 0
    if isinstance(value, bool) or not (PyLong_Check(value) or PyIndex_Check(value)):
        return column.refuse_type(row, value)
    value = PyNumber_Index(value)
    into[0] = PyLong_AsLongLongAndOverflow(value, &overflow)
    if overflow or not column.low <= into[0] <= column.high:
        return refuse_integer(column, row, value)
    return 0


cdef int take_int_memory(ColumnInput column, int64_t rows, int64_t **values) except -1:
    """Make this a column of ``rows`` integers, which the caller fills."""
    cdef char *memory = NULL
    if rows > INT64_MAX // 8 - 64:
        raise MemoryError(f"argument '{column.argument}' has {rows} rows")
    column.take_memory(8 * rows, &memory)
    column.view.kind = COLUMN_INTEGERS
    column.view.rows = memory
    column.rows = rows
    values[0] = <int64_t *>memory
    return 0


cdef int take_int_rows(ColumnInput column, tuple rows) except -1:
    """A sequence of integers."""
    cdef int64_t *values = NULL
    cdef int64_t row
    cdef int64_t count = PyTuple_GET_SIZE(rows)
    take_int_memory(column, count, &values)
    for row in range(count):
        take_int(column, row, <object>PyTuple_GET_ITEM(rows, row), values + row)
    return 0


cdef int take_int_array(
    ColumnInput column, const char *at, int64_t rows, int64_t stride, int width, bint signed,
    bint swapped,
) except -1:
    """Machine integers, ``stride`` bytes apart."""
    cdef int64_t *values = NULL
    cdef int64_t row
    cdef int64_t bad = -1
    cdef bint huge = not signed and width == 8
    take_int_memory(column, rows, &values)
    with nogil:
        for row in range(rows):
            values[row] = native_int(at + row * stride, width, signed, swapped)
            if not column.low <= values[row] <= column.high or (huge and values[row] < 0):
                bad = row
                break
    if bad < 0:
        return 0
    if huge:
        return refuse_integer(column, bad, <uint64_t>values[bad])
    return refuse_integer(column, bad, values[bad])


cdef int take_int_buffer(ColumnInput column, object view, object value) except -1:
    """A one-dimensional buffer of integers of any width and byte order."""
    cdef Py_buffer *buffer = PyMemoryView_GET_BUFFER(view)
    cdef const char *code = buffer.format
    cdef bint swapped = False
    if code[0] in (c'@', c'=', c'<', c'>', c'!', c'|'):
        swapped = code[0] == c'<' if NATIVE_BIG_ENDIAN else code[0] in (c'>', c'!')
        code += 1
    if buffer.ndim != 1 or code[0] == 0 or code[1] != 0 or strchr(b"bBhHiIlLqQnN", code[0]) == NULL:
        return column.refuse_type(-1, value)
    return take_int_array(
        column, <const char *>buffer.buf, buffer.shape[0], buffer.strides[0],
        <int>buffer.itemsize, code[0] >= c'a', swapped,
    )


cdef int take_ints(ColumnInput column, object value) except -1:
    """One integer for all rows, a sequence of them, or a NumPy array of them."""
    column.content = CONTENT_INTEGERS
    if PyLong_Check(value) or (PyIndex_Check(value) and not PySequence_Check(value)):
        column.view.kind = COLUMN_INTEGER
        return take_int(column, -1, value, &column.view.integer)
    view = None if isinstance(value, bytes) else buffer_of(value)
    if view is None:
        return take_int_rows(column, sequence_rows(column, value))
    rows = object_rows(view, value)
    if rows is not None:
        return take_int_rows(column, rows)
    return take_int_buffer(column, view, value)
