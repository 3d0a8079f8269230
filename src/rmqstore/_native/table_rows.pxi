# A row of put_table as C sees it: checked, then laid out as a draft, without the GIL.
#
# Source: common/message/MessageDecoder.java messageProperties2String;
#         store/CommitLog.java MessageExtEncoder

# The first thing that is wrong with a row; the order of the tests in table_row_problem.
cdef enum:
    ROW_GOOD
    ROW_BAD_TOPIC
    ROW_NO_BODY                  # neither body nor raw_body
    ROW_BODIES_DIFFER            # body is not what raw_body holds
    ROW_BAD_HOST
    ROW_NULL_PROPERTY
    ROW_EMPTY_PROPERTY           # a reader would drop it
    ROW_BAD_PROPERTY             # 0x01, 0x02 or too many zeros
    ROW_BAD_TAGS                 # the same in a column
    ROW_BAD_KEYS
    ROW_BAD_UNIQUE
    ROW_OTHER_TAGS               # the column is not what the map says
    ROW_OTHER_KEYS
    ROW_OTHER_UNIQUE
    ROW_PROPERTIES_TOO_LARGE
    ROW_TOO_LARGE

# The columns beyond those of put_many. One that is not there is ABSENT, or INTEGER with its
# default, which stands for nulls of a column too.
cdef struct TableColumns:
    const ColumnView *raw_bodies
    const ColumnView *born_hosts
    const ColumnView *flags
    const ColumnView *sys_flags      # its validity tells the nulls
    const ColumnView *reconsume_times
    const ColumnView *prepared_offsets
    const ColumnView *born_timestamps
    const ColumnView *maps           # lists of entries; ABSENT: the table has no properties
    const ColumnView *names
    const ColumnView *values
    int64_t first_entry              # of the lists, row 0 of names and values
    bint has_maps
    int64_t host_length              # the host parsed last, 8 or 20 bytes, and its text
    char host[HOST_V6_BYTES]
    int64_t host_text_length
    char host_text[HOST_TEXT_ROOM]

# What a row's map says: of the three names that have columns the last, as a reader takes it.
cdef struct RowMap:
    Span tags
    Span keys
    Span unique
    int64_t length                   # bytes, with a 0x02 after each entry

cdef ColumnView NO_COLUMN            # ABSENT


cdef inline bint is_same(
    const char *a, int64_t length, const char *b, int64_t other_length,
) noexcept nogil:
    """Whether two texts are equal; an empty one may lie nowhere."""
    return length == other_length and (
        length == 0 or memcmp(a, b, <size_t>length) == 0)


cdef inline bint text_is_bad(const char *data, int64_t length) noexcept nogil:
    """Whether it holds what would end a property, or so many zeros that it looks torn."""
    return memchr(data, PROPERTY_NAME_END, <size_t>length) != NULL \
        or memchr(data, PROPERTY_VALUE_END, <size_t>length) != NULL or has_zero_run(data, length)


cdef inline int entry_problem(
    const char *name, int64_t name_length, const char *value, int64_t value_length,
) noexcept nogil:
    """What is wrong with an entry of a map.

    A value may have a 0x01: the first one of an entry ends its name.
    """
    if name_length == 0 or value_length == 0:
        return ROW_EMPTY_PROPERTY
    if text_is_bad(name, name_length) or has_zero_run(value, value_length) \
            or memchr(value, PROPERTY_VALUE_END, <size_t>value_length) != NULL:
        return ROW_BAD_PROPERTY
    return ROW_GOOD


cdef int map_read(
    const TableColumns *table, int64_t row, bint checking, RowMap *into,
) noexcept nogil:
    """Measure a row's map and find the names that have columns; a problem if ``checking``."""
    cdef const char *name = NULL
    cdef const char *value = NULL
    cdef int64_t name_length = 0
    cdef int64_t value_length = 0
    cdef int64_t entry
    cdef int problem
    into.tags.length = -1
    into.keys.length = -1
    into.unique.length = -1
    into.length = 0
    if not column_has(table.maps, row):
        return ROW_GOOD
    for entry in range(list_bound(table.maps, row) - table.first_entry,
                       list_bound(table.maps, row + 1) - table.first_entry):
        if not column_get(table.names, entry, &name, &name_length) \
                or not column_get(table.values, entry, &value, &value_length):
            return ROW_NULL_PROPERTY
        if is_same(name, name_length, b"__CRC32#", 8):
            continue
        if checking:
            problem = entry_problem(name, name_length, value, value_length)
            if problem != ROW_GOOD:
                return problem
        into.length += name_length + value_length + 2
        if is_same(name, name_length, b"TAGS", 4):
            into.tags.data = value
            into.tags.length = value_length
        elif is_same(name, name_length, b"KEYS", 4):
            into.keys.data = value
            into.keys.length = value_length
        elif is_same(name, name_length, b"UNIQ_KEY", 8):
            into.unique.data = value
            into.unique.length = value_length
    return ROW_GOOD


cdef bint same_words(
    const char *a, int64_t a_length, const char *b, int64_t b_length,
) noexcept nogil:
    """Whether two KEYS are the same keys; how many spaces are between them does not matter."""
    cdef const char *word = NULL
    cdef const char *other = NULL
    cdef int64_t length = 0
    cdef int64_t other_length = 0
    cdef int64_t at = 0
    cdef int64_t other_at = 0
    while split_next(a, a_length, 32, &at, &word, &length):
        if not split_next(b, b_length, 32, &other_at, &other, &other_length) \
                or not is_same(word, length, other, other_length):
            return False
    return not split_next(b, b_length, 32, &other_at, &other, &other_length)


cdef int text_problem(
    const ColumnView *column, int64_t row, const Span *mapped, int64_t name_length, bint words,
    int bad, int other, int64_t *total,
) noexcept nogil:
    """One of tags, keys and uniq_key against the map; adds what it takes if the map lacks it."""
    cdef const char *data = b""
    cdef int64_t length = 0
    if not column_get(column, row, &data, &length):
        length = 0
    if mapped.length < 0:
        if length > 0:
            total[0] += name_length + length + 2
            if text_is_bad(data, length):
                return bad
        return ROW_GOOD
    # A table without the column says nothing; a null says that there is none.
    if column == &NO_COLUMN:
        return ROW_GOOD
    if words:
        return ROW_GOOD if same_words(data, length, mapped.data, mapped.length) else other
    return ROW_GOOD if is_same(data, length, mapped.data, mapped.length) else other


cdef int properties_problem(
    const Rows *rows, const TableColumns *table, int64_t row, int64_t *total,
) noexcept nogil:
    """Check all that becomes properties; ``total`` is the bytes, with a 0x02 after each."""
    cdef RowMap mapped
    cdef int problem = map_read(table, row, True, &mapped)
    total[0] = mapped.length
    if problem == ROW_GOOD:
        problem = text_problem(rows.tags, row, &mapped.tags, 4, False, ROW_BAD_TAGS,
                               ROW_OTHER_TAGS, total)
    if problem == ROW_GOOD:
        problem = text_problem(rows.keys, row, &mapped.keys, 4, True, ROW_BAD_KEYS,
                               ROW_OTHER_KEYS, total)
    if problem == ROW_GOOD:
        problem = text_problem(rows.unique, row, &mapped.unique, 8, False, ROW_BAD_UNIQUE,
                               ROW_OTHER_UNIQUE, total)
    if rows.generate:
        total[0] += UNIQUE_KEY_BYTES + 10
    return problem


cdef inline int row_body(
    const Rows *rows, const TableColumns *table, int64_t row, const char **data, int64_t *length,
    int32_t *sys_flag, const char **plain, int64_t *plain_length,
) noexcept nogil:
    """The body to store with its SYSFLAG; returns 1 for an inflated one, 2 for a raw one, else 0.

    A raw body wins where its SYSFLAG is known, as the same bytes are stored then; ``plain`` is
    the inflated one beside it, NULL if there is none.
    """
    cdef bint has_plain = column_get(rows.bodies, row, plain, plain_length)
    cdef bint has_raw = column_get(table.raw_bodies, row, data, length)
    sys_flag[0] = <int32_t>column_get_int(table.sys_flags, row)
    if not has_plain:
        plain[0] = NULL
        return 2 if has_raw else 0
    if has_raw and column_has(table.sys_flags, row):
        return 2
    data[0] = plain[0]
    length[0] = plain_length[0]
    if sys_flag[0] & SYS_COMPRESSED:
        sys_flag[0] &= ~(SYS_COMPRESSED | SYS_COMPRESSION)
    return 1


cdef bint row_host(TableColumns *table, int64_t row, int64_t *length) noexcept nogil:
    """Parse the born host into ``table.host``: length 8 or 20, 0 for null. False: it is none.

    Rows tend to have the host of the row before.
    """
    cdef const char *text = NULL
    cdef int64_t size = 0
    length[0] = 0
    if not column_get(table.born_hosts, row, &text, &size):
        return True
    if size >= HOST_TEXT_ROOM:
        return False
    if size != table.host_text_length or memcmp(text, table.host_text, <size_t>size) != 0:
        table.host_length = host_parse(text, size, table.host)
        memcpy(table.host_text, text, <size_t>size)
        table.host_text_length = size
    length[0] = table.host_length
    return table.host_length > 0


cdef int table_row_problem(
    Store *store, const Rows *rows, TableColumns *table, int64_t row, int64_t *size,
) noexcept nogil:
    """What is wrong with a row but its topic; ``size`` is that of what is too large."""
    cdef const char *data = NULL
    cdef const char *plain = NULL
    cdef int64_t length = 0
    cdef int64_t plain_length = 0
    cdef int64_t properties = 0
    cdef int64_t host = 0
    cdef int32_t sys_flag = 0
    cdef int kind, problem
    kind = row_body(rows, table, row, &data, &length, &sys_flag, &plain, &plain_length)
    if kind == 0:
        return ROW_NO_BODY
    if kind == 2 and plain != NULL and not sys_flag & SYS_COMPRESSED \
            and not is_same(data, length, plain, plain_length):
        return ROW_BODIES_DIFFER
    size[0] = length
    if not row_host(table, row, &host):
        return ROW_BAD_HOST
    problem = properties_problem(rows, table, row, &properties)
    if problem != ROW_GOOD:
        return problem
    if properties:
        properties -= 1                      # the last 0x02
    if store.settings.record_checksum:
        properties += CHECKSUM_PROPERTY_BYTES + (1 if properties else 0)
    if properties > PROPERTIES_MAX_BYTES:
        size[0] = properties
        return ROW_PROPERTIES_TOO_LARGE
    size[0] = RECORD_FIXED_BYTES + length + properties
    column_get(rows.topic, row, &data, &length)
    size[0] += length
    if store.settings.store_host_length == HOST_V6_BYTES:
        size[0] += HOST_V6_EXTRA
    if host == HOST_V6_BYTES or (host == 0
                                 and store.settings.store_host_length == HOST_V6_BYTES):
        size[0] += HOST_V6_EXTRA
    if size[0] > store.settings.max_message_size \
            or size[0] + RECORD_BLANK_BYTES > store.log.file_size:
        return ROW_TOO_LARGE
    return ROW_GOOD


cdef int64_t table_check(
    Store *store, const Rows *rows, TableColumns *table, int *problem, int64_t *size,
) noexcept nogil:
    """The first row that may not be stored, with its problem; -1 if all rows may be."""
    cdef const char *name = NULL
    cdef const char *last = NULL
    cdef int64_t length = 0
    cdef int64_t last_length = -1
    cdef int64_t row
    for row in range(rows.count):
        column_get(rows.topic, row, &name, &length)
        if not is_same(name, length, last, last_length):
            problem[0] = ROW_BAD_TOPIC
            if not topic_name_good(name, length):
                return row
            last = name
            last_length = length
        problem[0] = table_row_problem(store, rows, table, row, size)
        if problem[0] != ROW_GOOD:
            return row
    return -1


cdef int64_t next_compressed(
    const Rows *rows, const TableColumns *table, int64_t row, Span *raw, Span *plain,
    int32_t *sys_flag,
) noexcept nogil:
    """The next row from ``row`` on that has a compressed body and an inflated one; -1: none."""
    while row < rows.count:
        if row_body(rows, table, row, &raw.data, &raw.length, sys_flag, &plain.data,
                    &plain.length) == 2 and plain.data != NULL and sys_flag[0] & SYS_COMPRESSED:
            return row
        row += 1
    return -1


cdef int64_t add_text_property(
    Chunk *chunk, int64_t start, const char *name, int64_t name_length, const ColumnView *column,
    int64_t row,
) noexcept nogil:
    """Append one of tags, keys and uniq_key if the row has it."""
    cdef const char *data = NULL
    cdef int64_t length = 0
    if column_get(column, row, &data, &length) and length > 0:
        if chunk_room(chunk, name_length + length + 2) < 0:
            return E_NO_MEMORY
        chunk_property(chunk, start, name, name_length, data, length)
    return 0


cdef int64_t table_properties(
    const Rows *rows, const TableColumns *table, int64_t row, Chunk *chunk, int64_t slot,
) noexcept nogil:
    """The properties string of a row: its map in the map's order, then what that lacks."""
    cdef const char *name = NULL
    cdef const char *value = NULL
    cdef int64_t name_length = 0
    cdef int64_t value_length = 0
    cdef int64_t entry
    cdef int64_t rc = 0
    cdef int64_t start = chunk.length
    cdef RowMap mapped
    chunk.at[slot] = start
    map_read(table, row, False, &mapped)
    if chunk_room(chunk, mapped.length) < 0:
        return E_NO_MEMORY
    if mapped.length > 0:
        for entry in range(list_bound(table.maps, row) - table.first_entry,
                           list_bound(table.maps, row + 1) - table.first_entry):
            column_get(table.names, entry, &name, &name_length)
            column_get(table.values, entry, &value, &value_length)
            if not is_same(name, name_length, b"__CRC32#", 8):
                chunk_property(chunk, start, name, name_length, value, value_length)
    if mapped.keys.length < 0:
        rc = add_text_property(chunk, start, b"KEYS", 4, rows.keys, row)
    if rc == 0 and mapped.tags.length < 0:
        rc = add_text_property(chunk, start, b"TAGS", 4, rows.tags, row)
    if rc == 0 and mapped.unique.length < 0:
        rc = add_text_property(chunk, start, b"UNIQ_KEY", 8, rows.unique, row)
    return rc


cdef int64_t table_fill(
    const Rows *rows, int64_t row, Chunk *chunk, int64_t slot,
) noexcept nogil:
    """Lay out a row whose hosts are the store's until now. REQUIRES: it is checked."""
    cdef TableColumns *table = <TableColumns *>rows.table
    cdef Draft *draft = &chunk.drafts[slot]
    cdef const char *plain = NULL
    cdef int64_t length = 0
    cdef int32_t hosts = draft.sys_flag & (SYS_BORN_HOST_V6 | SYS_STORE_HOST_V6)
    row_body(rows, table, row, &draft.body, &draft.body_length, &draft.sys_flag, &plain, &length)
    row_host(table, row, &length)
    if length > 0:
        memcpy(draft.born_host, table.host, <size_t>length)
        hosts &= ~SYS_BORN_HOST_V6
        if length == HOST_V6_BYTES:
            hosts |= SYS_BORN_HOST_V6
    draft.sys_flag = (draft.sys_flag & ~(SYS_BORN_HOST_V6 | SYS_STORE_HOST_V6)) | hosts
    draft.flag = <int32_t>column_get_int(table.flags, row)
    draft.reconsume_times = <int32_t>column_get_int(table.reconsume_times, row)
    draft.prepared_transaction_offset = column_get_int(table.prepared_offsets, row)
    draft.born_timestamp = column_get_int(table.born_timestamps, row)
    if table.has_maps:
        return table_properties(rows, table, row, chunk, slot)
    return FILL_PROPERTIES
