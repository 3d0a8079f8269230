# Column arguments of text, hashes, keys and integers: a constructor for each.
#
# Source: common/message/Message.java setKeys, for how keys are joined

cdef ColumnInput text_column(str argument, object value, int nulls):
    """A str, or a column of str; None, also in rows, with NULLABLE."""
    cdef ColumnInput column = ColumnInput(
        argument, "a str, None, or a sequence, a NumPy array or an Arrow array of them"
        if nulls == NULLABLE else "a str, or a sequence, a NumPy array or an Arrow array of str",
        nulls
    )
    if value is None and nulls == NULLABLE:
        return column
    if not take_arrow(column, value, CONTENT_TEXT):
        take_text(column, value)
    return column


cdef bint hash_text_rows(ColumnInput column, object rows) except -1:
    """As copy_text_rows, into hashes."""
    cdef Span span
    cdef int64_t *hashes = NULL
    cdef int64_t row = 0
    cdef int64_t count = PySequence_Fast_GET_SIZE(rows)
    column.take_ints(count, &hashes)
    with cython.critical_section(rows):
        while row < count and row < PySequence_Fast_GET_SIZE(rows) \
                and point_at_str(item_of(rows, row), &span):
            hashes[row] = index_key_hash(span.data, span.length, 0)
            row += 1
    return row == count


cdef ColumnInput hash_column(object keys):
    """Hashes of a str, or of a column of str, as integers."""
    cdef ColumnInput column = ColumnInput("keys", "", NOT_NULL)
    cdef ColumnInput text
    cdef const Span *span
    cdef int64_t *hashes = NULL
    cdef int64_t row
    if (PyList_CheckExact(keys) or PyTuple_CheckExact(keys)) and hash_text_rows(column, keys):
        return column
    text = text_column("keys", keys, NOT_NULL)
    if text.rows < 0:
        column.set_integer(index_key_hash(text.view.scalar.data, text.view.scalar.length, 0))
        return column
    column.take_ints(text.rows, &hashes)
    with nogil:
        for row in range(text.rows):
            span = column_span(&text.view, row)
            hashes[row] = index_key_hash(span.data, span.length, 0)
    return column


cdef object joined_keys(ColumnInput column, int64_t row, object keys):
    """Keys of one message: a str unchanged, an iterable of str joined; None without keys."""
    cdef list words
    if PyUnicode_Check(keys):
        return keys
    if isinstance(keys, (bytes, bytearray, memoryview, dict)):
        column.refuse_type(row, keys)
    try:
        words = list(keys)
    except TypeError:
        column.refuse_type(row, keys)
    for word in words:
        if not PyUnicode_Check(word):
            column.refuse_type(row, word)
        if " " in word:
            column.refuse_value(row, f"the key {arguments.shown(word)} has a space")
    return " ".join(words) if words else None


cdef int take_key_rows(ColumnInput column, tuple rows) except -1:
    """Take a sequence whose rows are each a str, None or an iterable of str."""
    cdef int64_t row = 0
    cdef list joined = []
    for keys in rows:
        joined.append(None if keys is None else joined_keys(column, row, keys))
        row += 1
    return take_text_rows(column, tuple(joined))


cdef ColumnInput keys_column(object value):
    """``keys``: a str or None for all rows, or a column of str, iterables of str and None.

    An iterable is one row's keys, which may not contain spaces.
    """
    cdef ColumnInput column = ColumnInput(
        "keys", "a str (keys separated by spaces), None, or a column whose rows are each a str, "
        "None or an iterable of str without spaces", NULLABLE
    )
    if value is None:
        return column
    if take_arrow(column, value, CONTENT_TEXT | CONTENT_KEYS):
        return column
    if PyUnicode_Check(value):
        take_text(column, value)
        return column
    column.content = CONTENT_TEXT
    rows = value if PyList_CheckExact(value) else rows_of(column, value)
    if rows is None:
        column.refuse_type(-1, value)
    if not copy_text_rows(column, rows):
        take_key_rows(column, tuple(rows))
    return column


cdef ColumnInput int_column(str argument, object value, int64_t low, int64_t high):
    """An integer from ``low`` to ``high``, or a column of such integers."""
    cdef ColumnInput column = ColumnInput(
        argument, f"an int from {low} to {high}, or a sequence, a NumPy array or an Arrow array "
        "of them", NOT_NULL
    )
    column.low = low
    column.high = high
    if not take_arrow(column, value, CONTENT_INTEGERS):
        take_numbers(column, value)
    return column


cdef int64_t count_rows(tuple columns) except -1:
    """Rows of the first column that is not a scalar, 1 if all are; ValueError if others differ.

    REQUIRES: ``bodies`` is the first column.
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
                f"{column.argument} must have as many rows as {first.argument}, {first.rows}, "
                f"got {column.rows}"
            )
    return 1 if first is None else first.rows
