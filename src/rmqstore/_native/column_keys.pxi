# The keys of messages: one string a row, the keys separated by one space, as in RocketMQ.
#
# Source: common/message/Message.java, setKeys

cdef str joined_keys(ColumnInput column, int64_t row, object keys):
    """Keys of one message: a str as it is, an iterable of str joined; None if there are none."""
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
            column.refuse_value(row, f"the key {short_text.repr(word)} has a space")
    return " ".join(words) if words else None


cdef int take_key_rows(ColumnInput column, tuple rows) except -1:
    """A sequence whose rows are each a str, None or an iterable of str."""
    cdef int64_t row = 0
    cdef list joined = []
    for keys in rows:
        joined.append(None if keys is None else joined_keys(column, row, keys))
        row += 1
    return take_text_rows(column, tuple(joined))


cdef int64_t join_lists(
    const ColumnView *lists, const ColumnView *words, int64_t rows, Span *spans, char *into,
    int64_t *bad,
) noexcept nogil:
    """Join the words of every list with one space and return the bytes that takes.

    ``words`` begin with the first list's first one.

    With ``into`` NULL they are only counted; ``bad`` is then the first row with a null or a
    space in a word, else -1.
    """
    cdef const char *word = NULL
    cdef int64_t length = 0
    cdef int64_t total = 0
    cdef int64_t first = list_bound(lists, 0) if rows > 0 else 0
    cdef int64_t row, item, start
    bad[0] = -1
    for row in range(rows):
        spans[row].length = -1
        if lists.validity != NULL and not arrow_bit(lists.validity, lists.validity_offset + row):
            continue
        start = total
        for item in range(list_bound(lists, row) - first, list_bound(lists, row + 1) - first):
            if not column_get(words, item, &word, &length) or memchr(word, c' ', <size_t>length):
                bad[0] = row
                return total
            if into != NULL:
                memcpy(into + total, word, <size_t>length)
                into[total + length] = c' '
            total += length + 1
        if total > start:
            spans[row].data = into + start
            spans[row].length = total - start - 1
    return total


cdef int take_key_lists(
    ColumnInput column, const ArrowSchema *schema, const ArrowArray *array, bint wide,
) except -1:
    """An Arrow array of lists of strings."""
    cdef ColumnInput words = column.new_part()
    cdef ColumnView lists
    cdef ArrowArray part
    cdef Span *spans = NULL
    cdef char *memory = NULL
    cdef int64_t end = 0
    cdef int64_t first = 0
    cdef int64_t bad = -1
    cdef int64_t total
    check_array(column, array, 2)
    if array.n_children != 1 or schema.n_children != 1:
        return refuse_arrow(column, f"a list with {array.n_children} children")
    take_offsets(column, array, wide, &end)
    if array.length > 0:
        first = list_bound(&column.view, 0)
    take_slice(column, array_child(array, 0), first, end - first, &part)
    words.lists = column
    take_array(words, schema_child(schema, 0), &part, CONTENT_TEXT)
    lists = column.view
    memset(&column.view, 0, sizeof(ColumnView))
    column.take_spans(array.length, &spans)
    with nogil:
        total = join_lists(&lists, &words.view, array.length, spans, NULL, &bad)
    if bad >= 0:
        return column.refuse_value(bad, "a key that is null or has a space")
    column.take_memory(total, &memory)
    with nogil:
        join_lists(&lists, &words.view, array.length, spans, memory, &bad)
    return 0
