# The column arguments of put_many, put_batch and the like: one factory for each kind.
#
# Source: none; API.md, section 2.

from collections.abc import Mapping


cdef ColumnInput bodies_column(object value):
    """``bodies``: a buffer, or a column of them."""
    cdef ColumnInput column = ColumnInput(
        "bodies", "a C-contiguous buffer of bytes, or a sequence, a NumPy array or an Arrow array "
        "of binary values", False
    )
    if not take_arrow(column, value, CONTENT_BYTES):
        take_bytes(column, value)
    return column


cdef ColumnInput text_column(str argument, object value, bint nullable):
    """A str, or a column of str; None, also in rows, if ``nullable``."""
    cdef ColumnInput column = ColumnInput(
        argument, "a str, None, or a sequence, a NumPy array or an Arrow array of them"
        if nullable else "a str, or a sequence, a NumPy array or an Arrow array of str", nullable
    )
    if value is None and nullable:
        return column
    if not take_arrow(column, value, CONTENT_TEXT):
        take_text(column, value)
    return column


cdef ColumnInput keys_column(object value):
    """``keys``: a str or None for all rows, or a column of str, iterables of str and None.

    An iterable has the keys of one row; none of them may have a space.
    """
    cdef ColumnInput column = ColumnInput(
        "keys", "a str (keys separated by spaces), None, or a column whose rows are each a str, "
        "None or an iterable of str without spaces", True
    )
    if value is None:
        return column
    if take_arrow(column, value, CONTENT_TEXT | CONTENT_KEYS):
        return column
    if PyUnicode_Check(value):
        take_text(column, value)
    else:
        column.content = CONTENT_TEXT
        take_key_rows(column, array_or_sequence_rows(column, value))
    return column


cdef int encode_row(ColumnInput column, int64_t row, object mapping, bytearray out) except -1:
    """Append the properties of one row; an error of theirs gets a note that names it."""
    if not isinstance(mapping, (dict, Mapping)):
        return column.refuse_type(row, mapping)
    try:
        encode_properties(mapping, out)
    except Exception as error:
        error.add_note(column.where(row))
        raise
    return 0


cdef ColumnInput properties_column(object value):
    """``properties``: a mapping or None for all rows, or a sequence of them; encoded here."""
    cdef ColumnInput column = ColumnInput(
        "properties", "a mapping of str to str, None, or a sequence of them", True
    )
    cdef bytearray out = bytearray()
    cdef Span *spans = NULL
    cdef tuple rows
    cdef int64_t row, start
    if value is None:
        return column
    column.content = CONTENT_BYTES
    column.owners.append(out)
    if isinstance(value, (dict, Mapping)):
        encode_row(column, -1, value, out)
        column.set_scalar(PyByteArray_AS_STRING(out), len(out))
        return column
    if hasattr(value, "__arrow_c_array__") or hasattr(value, "__arrow_c_stream__"):
        column.refuse_type(-1, value)
    rows = array_or_sequence_rows(column, value)
    column.owners.append(rows)
    column.take_spans(len(rows), &spans)
    for row in range(column.rows):
        mapping = rows[row]
        if row > 0 and mapping is rows[row - 1]:
            spans[row] = spans[row - 1]
            continue
        start = len(out)
        spans[row].data = <const char *>start
        spans[row].length = -1
        if mapping is not None:
            encode_row(column, row, mapping, out)
            spans[row].length = len(out) - start
    # The places become addresses only now, as `out` moves while it grows.
    for row in range(column.rows):
        spans[row].data = PyByteArray_AS_STRING(out) + <int64_t>spans[row].data
    return column


cdef ColumnInput int_column(str argument, object value, int64_t low, int64_t high):
    """An integer from ``low`` to ``high``, None for absent, or a column of such integers."""
    cdef ColumnInput column = ColumnInput(
        argument, f"an int from {low} to {high}, or a sequence, a NumPy array or an Arrow array "
        "of them", False
    )
    column.low = low
    column.high = high
    if value is not None and not take_arrow(column, value, CONTENT_INTEGERS):
        take_ints(column, value)
    return column


cdef ColumnInput queue_key_column(object value, int64_t low, int64_t high):
    """``queue_key``: str, bytes or integers, told by the first row; ``content`` says which."""
    cdef ColumnInput column = ColumnInput(
        "queue_key", f"a str, bytes, an int from {low} to {high}, or a sequence, a NumPy array or "
        "an Arrow array of one of these types", False
    )
    cdef tuple rows
    column.low = low
    column.high = high
    if value is None or take_arrow(
        column, value, CONTENT_BYTES | CONTENT_TEXT | CONTENT_INTEGERS
    ):
        return column
    if PyUnicode_Check(value):
        take_text(column, value)
    elif isinstance(value, (bytes, bytearray, memoryview)):
        take_bytes(column, value)
    elif PyLong_Check(value) or (PyIndex_Check(value) and not PySequence_Check(value)):
        take_ints(column, value)
    else:
        view = buffer_of(value)
        rows = sequence_rows(column, value) if view is None else object_rows(view, value)
        if rows is None:
            if view.ndim == 2 or view.format.endswith("s"):
                take_bytes(column, value)
            else:
                take_ints(column, value)
        elif len(rows) > 0 and isinstance(rows[0], str):
            take_text(column, rows)
        elif len(rows) > 0 and PyIndex_Check(rows[0]):
            take_ints(column, rows)
        else:
            take_bytes(column, rows)
    return column


cdef ColumnInput uniq_key_column(object value):
    """``uniq_key``: True (made by the core), False, or a column of str; None in a row: without.

    True is ``generate``.
    """
    cdef ColumnInput column = ColumnInput(
        "uniq_key", "True, False, a str, or a sequence, a NumPy array or an Arrow array of str or "
        "None", True
    )
    if isinstance(value, bool):
        column.generate = value
    elif not take_arrow(column, value, CONTENT_TEXT):
        take_text(column, value)
    return column


cdef int64_t count_rows(tuple columns) except -1:
    """Rows of the first column that is not a scalar, 1 if all are; ValueError if others differ.

    ``bodies`` is to be the first one.
    """
    cdef ColumnInput column
    cdef ColumnInput first = None
    for column in columns:
        if column.rows < 0:
            continue
        if first is None:
            first = column
        elif column.rows != first.rows:
            raise ValueError(
                f"argument '{column.argument}' has {column.rows} rows, "
                f"{first.argument} {first.rows}"
            )
    return 1 if first is None else first.rows
