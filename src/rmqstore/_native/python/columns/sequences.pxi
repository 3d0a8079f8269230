# Column from Python sequences, buffers and NumPy arrays.

cdef extern from "Python.h":
    bint PyUnicode_IS_COMPACT_ASCII(PyObject *text)
    Py_ssize_t ascii_length "PyUnicode_GET_LENGTH"(PyObject *text)
    const char *ascii_data "PyUnicode_DATA"(PyObject *text)


cdef enum:
    ITEMS_FETCHED = 16           # ahead of the one in hand
    TEXT_COPIED_MAX = 256        # bytes; longer ones are kept
    TEXT_BLOCK = 64 << 10        # bytes of copies allocated at once


cdef tuple sequence_rows(ColumnInput column, object value):
    """Rows of a sequence as a tuple, which no other thread can change."""
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
    """Memoryview of a buffer exporter; None for anything else, as some arrays refuse.

    None for a masked array too: its buffer has values in masked rows as well.
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


cdef inline bint holds_objects(object value):
    """Whether it is a NumPy array of Python objects: its buffer has their addresses."""
    return getattr(getattr(value, "dtype", None), "hasobject", False) is True


cdef tuple rows_of(ColumnInput column, object value):
    """Rows of a sequence or of a NumPy array of bytes, str or objects; None for other buffers."""
    view = buffer_of(value)
    if view is None:
        return sequence_rows(column, value)
    rows = arrays.array_rows(value)
    return None if rows is None else tuple(rows)


cdef int take_buffer(ColumnInput column, int64_t row, object value, Span *span) except -1:
    """Point a span at the bytes of one C-contiguous buffer, and keep the buffer."""
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
    if buffer.ndim == 0 or holds_objects(value):  # ndim 0: NumPy's scalars
        return column.refuse_type(row, value)
    if not PyBuffer_IsContiguous(buffer, c'C'):
        return column.refuse_value(row, "a buffer that is not C-contiguous")
    column.owners.append(view)
    span.data = bytes_of(buffer)
    span.length = buffer.len
    return 0


cdef int take_bytes_rows(ColumnInput column, tuple rows) except -1:
    """Take a sequence of buffers."""
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


cdef int take_bytes(ColumnInput column, object value) except -1:
    """Take one buffer for all rows, a sequence of them, or a NumPy array of them."""
    cdef Span span
    column.content = CONTENT_BYTES
    if not PyBytes_Check(value):
        if PyObject_CheckBuffer(value) and buffer_of(value) is None:
            return column.refuse_type(-1, value)
        rows = rows_of(column, value)
        if rows is not None:
            return take_bytes_rows(column, rows)
        view = memoryview(value)
        if view.ndim != 1 or view.format.lstrip("@=<>!|") not in ("B", "b", "c"):
            return column.refuse_type(-1, value)
    take_buffer(column, -1, value, &span)
    return column.set_scalar(span.data, span.length)


cdef int take_str(ColumnInput column, int64_t row, object value, Span *span) except -1:
    """Point a span at the UTF-8 of one str, which owns it."""
    cdef Py_ssize_t size = 0
    if not PyUnicode_Check(value):
        return column.refuse_type(row, value)
    try:
        span.data = PyUnicode_AsUTF8AndSize(value, &size)
    except UnicodeEncodeError:
        column.refuse_value(row, f"{arguments.shown(value)} has a surrogate without its pair")
    span.length = size
    return 0


cdef inline PyObject *item_of(object rows, int64_t row) noexcept:
    """Borrow an item of a list or tuple, and prefetch a later one."""
    cdef const char *ahead
    if row + ITEMS_FETCHED < PySequence_Fast_GET_SIZE(rows):
        ahead = <const char *>PySequence_Fast_GET_ITEM(rows, row + ITEMS_FETCHED)
        prefetch_to_read(ahead)
        prefetch_to_read(ahead + CACHE_LINE)
    return PySequence_Fast_GET_ITEM(rows, row)


cdef inline bint point_at_str(PyObject *item, Span *span) noexcept:
    """Point a span at the UTF-8 of a str; False if it has none, or is no str."""
    cdef Py_ssize_t size = 0
    if not PyUnicode_Check(<object>item):
        return False
    if PyUnicode_IS_COMPACT_ASCII(item):
        span.data = ascii_data(item)
        span.length = ascii_length(item)
        return True
    span.data = utf8_or_error(item, &size)
    span.length = size
    if span.data == NULL:
        PyErr_Clear()
    return span.data != NULL


cdef bint copy_text_rows(ColumnInput column, object rows) except -1:
    """Take a list or tuple of str by copying, except long ones; False if it has other items.

    Runs no other code while an item is borrowed.
    """
    cdef Span *span = NULL
    cdef char *copy = NULL
    cdef int64_t room = 0
    cdef int64_t row = 0
    cdef int64_t count = PySequence_Fast_GET_SIZE(rows)
    cdef PyObject *item
    column.take_spans(count, &span)
    with cython.critical_section(rows):
        while row < count and row < PySequence_Fast_GET_SIZE(rows):
            item = item_of(rows, row)
            if column.nullable and <object>item is None:
                span.data = NULL
                span.length = -1
            elif not point_at_str(item, span):
                break
            elif span.length > TEXT_COPIED_MAX:
                column.owners.append(<object>item)
            else:
                if span.length >= room:      # an empty one has an address, too
                    room = min(<int64_t>TEXT_BLOCK, (count - row) * TEXT_COPIED_MAX)
                    column.take_memory(1, room, &copy)
                memcpy(copy, span.data, <size_t>span.length)
                span.data = copy
                copy += span.length
                room -= span.length
            span += 1
            row += 1
    return row == count


cdef int take_text_rows(ColumnInput column, object rows) except -1:
    """Take a list or tuple of str; the first other item is refused."""
    cdef Span *spans = NULL
    cdef int64_t row
    cdef tuple kept
    if copy_text_rows(column, rows):
        return 0
    kept = tuple(rows)
    column.take_spans(PyTuple_GET_SIZE(kept), &spans)
    column.owners.append(kept)
    for row in range(column.rows):
        if column.nullable and kept[row] is None:
            spans[row].data = NULL
            spans[row].length = -1
        else:
            take_str(column, row, kept[row], spans + row)
    return 0


cdef int take_text(ColumnInput column, object value) except -1:
    """Take one str for all rows, a sequence of them, or a NumPy array of them."""
    cdef Span span
    column.content = CONTENT_TEXT
    if PyUnicode_Check(value):
        take_str(column, -1, value, &span)
        column.owners.append(value)
        return column.set_scalar(span.data, span.length)
    rows = value if PyList_CheckExact(value) else rows_of(column, value)
    return column.refuse_type(-1, value) if rows is None else take_text_rows(column, rows)


cdef int take_int(ColumnInput column, int64_t row, object value, int64_t *into) except -1:
    """Take one Python integer or an equivalent, but no bool."""
    cdef int overflow = 0
    if isinstance(value, bool) or not (PyLong_Check(value) or PyIndex_Check(value)):
        return column.refuse_type(row, value)
    value = PyNumber_Index(value)
    into[0] = PyLong_AsLongLongAndOverflow(value, &overflow)
    if overflow or not column.low <= into[0] <= column.high:
        return column.refuse_number(row, value)
    return 0


cdef int take_int_list(ColumnInput column, list given) except -1:
    """As take_int_rows, without a copy of the list; runs no other code while items are borrowed."""
    cdef int64_t *values = NULL
    cdef int64_t count = PyList_GET_SIZE(given)
    cdef int64_t row = 0
    cdef int overflow = 0
    cdef PyObject *item
    column.take_ints(count, &values)
    with cython.critical_section(given):
        while row < count and row < PyList_GET_SIZE(given):
            item = item_of(given, row)
            if not PyLong_CheckExact(<object>item):
                break
            values[row] = PyLong_AsLongLongAndOverflow(<object>item, &overflow)
            if overflow or not column.low <= values[row] <= column.high:
                break
            row += 1
    # Any other item is taken, or refused, as an item of any sequence.
    return 0 if row == count else take_int_rows(column, PyList_AsTuple(given))


cdef int take_int_rows(ColumnInput column, tuple rows) except -1:
    """Take a sequence of integers."""
    cdef int64_t *values = NULL
    cdef int64_t row
    column.take_ints(PyTuple_GET_SIZE(rows), &values)
    for row in range(column.rows):
        take_int(column, row, <object>PyTuple_GET_ITEM(rows, row), values + row)
    return 0


cdef inline bint is_integer(object value):
    return PyLong_Check(value) or (PyIndex_Check(value) and not PySequence_Check(value))


cdef int take_numbers(ColumnInput column, object value) except -1:
    """Take one integer for all rows, a sequence of them, or a NumPy array of them."""
    cdef Py_buffer *buffer
    cdef IntLayout layout
    column.content = CONTENT_INTEGERS
    if is_integer(value):
        column.view.kind = COLUMN_INTEGER
        return take_int(column, -1, value, &column.view.integer)
    if PyList_CheckExact(value):
        return take_int_list(column, value)
    rows = rows_of(column, value)
    if rows is not None:
        return take_int_rows(column, rows)
    view = arrays.integers(value)
    if view is None:
        return column.refuse_type(-1, value)
    buffer = PyMemoryView_GET_BUFFER(view)
    layout.width = <int>buffer.itemsize
    layout.signed = buffer.format[0] >= c'a'
    if point_at_integers(column, <const char *>buffer.buf, &layout, buffer.shape[0], NULL):
        column.owners.append(view)
        return 0
    return take_integers(column, <const char *>buffer.buf, &layout, buffer.shape[0], NULL, 0)
