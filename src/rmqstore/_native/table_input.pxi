# The columns of put_table, one batch of a table at a time.
#
# Source: none; API.md, section 6.

from difflib import get_close_matches

# What each column may be; a null of one that says "or null" is as if the row had no such column.
cdef dict TABLE_COLUMNS = {
    "topic": "an array of strings without nulls",
    "queue_id": "an array of integers from 0 to 2147483647, or null for the topic's next queue",
    "uniq_key": "an array of strings, or null",
    "tags": "an array of strings, or null",
    "keys": "an array of lists of strings without spaces, or of strings, or null",
    "properties": "an array of maps of strings to strings, or null",
    "body": "an array of binary values without nulls",
    "raw_body": "an array of binary values, or null where there is a body",
    "flag": "an array of integers of 32 bits, or null",
    "sys_flag": "an array of integers of 32 bits, or null",
    "born_timestamp": "an array of timestamps or of integers (milliseconds), or null for now",
    "born_host": "an array of strings 'ip:port' or '[ipv6]:port', or null for the store's own",
    "reconsume_times": "an array of integers of 32 bits, or null",
    "prepared_transaction_offset": "an array of integers, or null",
}
# What the store itself decides: not looked at.
cdef tuple STORE_COLUMNS = (
    "queue_offset", "physical_offset", "store_size", "msg_id", "store_timestamp", "store_host",
    "body_crc",
)
cdef dict TABLE_RANGES = {
    "queue_id": (0, INT32_MAX),
    "flag": (-INT32_MAX - 1, INT32_MAX),
    "sys_flag": (-INT32_MAX - 1, INT32_MAX),
    "reconsume_times": (-INT32_MAX - 1, INT32_MAX),
    "prepared_transaction_offset": (INT64_MIN, INT64_MAX),
    "born_timestamp": (INT64_MIN, INT64_MAX),
}


cdef int64_t time_unit(const char *code) noexcept nogil:
    """Units a millisecond of an Arrow timestamp, -1000 for seconds; 0 if it is none."""
    if code[0] != c't' or code[1] != c's' or code[2] == 0 or code[3] != c':':
        return 0
    if code[2] == c's':
        return -1000
    if code[2] == c'm':
        return 1
    if code[2] == c'u':
        return 1000
    return 1000000 if code[2] == c'n' else 0


cdef int64_t fill_numbers(
    const char *at, int64_t rows, int width, bint signed, int64_t unit, const ColumnView *column,
    int64_t low, int64_t high, int64_t missing, int64_t *values,
) noexcept nogil:
    """Take numbers in, rounded down to ``unit``; the first row out of range, -1: none is.

    ``missing`` stands for nulls.
    """
    cdef int64_t row, value
    cdef bint huge = not signed and width == 8
    for row in range(rows):
        value = native_int(at + row * width, width, signed, False)
        values[row] = value
        if column.validity != NULL and not arrow_bit(
                column.validity, column.validity_offset + row):
            values[row] = missing
            continue
        if not low <= value <= high or (huge and value < 0):
            return row
        if unit > 1:
            values[row] = value // unit - (1 if value % unit < 0 else 0)
        elif unit < 0:
            if not INT64_MIN // -unit <= value <= INT64_MAX // -unit:
                return row
            values[row] = value * -unit
    return -1


cdef int take_numbers(
    ColumnInput column, const ArrowSchema *schema, const ArrowArray *array, bint times,
    int64_t missing,
) except -1:
    """Integers, or timestamps as milliseconds; ``missing`` stands for nulls."""
    cdef const char *code = schema.format
    cdef int width = integer_width(code[0]) if code[0] != 0 and code[1] == 0 else 0
    cdef int64_t unit = time_unit(code) if times else 0
    cdef int64_t *values = NULL
    cdef const char *at
    cdef int64_t bad
    column.content = CONTENT_INTEGERS
    if strcmp(code, b"n") == 0 and schema.dictionary == NULL:
        column.view.kind = COLUMN_INTEGER
        column.view.integer = missing
        column.rows = array.length
        return 0
    if schema.dictionary != NULL or (width == 0 and unit == 0):
        return refuse_format(column, code)
    if unit != 0:
        width = 8
    else:
        unit = 1
    check_array(column, array, 2)
    take_validity(column, array)
    at = <const char *>array.buffers[1]
    if array.length == 0:
        column.view.kind = COLUMN_INTEGERS
        return 0
    if at == NULL:
        return refuse_arrow(column, "no data")
    at += width * array.offset
    if column.view.validity == NULL and unit == 1 and width == 8 and code[0] != c'L' \
            and column.low == INT64_MIN and column.high == INT64_MAX:
        column.view.kind = COLUMN_INTEGERS   # as they lie there
        column.view.rows = at
        return 0
    take_int_memory(column, array.length, &values)
    with nogil:
        bad = fill_numbers(at, array.length, width, code[0] >= c'a', unit, &column.view,
                           column.low, column.high, missing, values)
    if bad >= 0 and unit < 0:
        return column.refuse_value(bad, f"{values[bad]} seconds are too many")
    if bad >= 0 and code[0] == c'L':
        return refuse_integer(column, bad, <uint64_t>values[bad])
    return refuse_integer(column, bad, values[bad]) if bad >= 0 else 0


cdef bint is_named(const ArrowSchema *schema, const char *name) noexcept nogil:
    return schema != NULL and schema.name != NULL and strcmp(schema.name, name) == 0


cdef int take_map(
    ColumnInput column, ColumnInput names, ColumnInput values, const ArrowSchema *schema,
    const ArrowArray *array,
) except -1:
    """Maps of strings, or lists of structs of ``key`` and ``value``, as some producers have it."""
    cdef const char *code = schema.format
    cdef const ArrowSchema *entry
    cdef const uint8_t *bits
    cdef ArrowArray entries
    cdef ArrowArray part
    cdef int64_t first = 0
    cdef int64_t end = 0
    cdef int64_t row
    column.content = CONTENT_TEXT
    if strcmp(code, b"n") == 0 and schema.dictionary == NULL:
        column.rows = array.length
        return 0
    if code[0] != c'+' or code[1] not in (c'm', c'l', c'L') or code[2] != 0 \
            or schema.n_children != 1:
        return refuse_format(column, code)
    entry = schema_child(schema, 0)
    if entry == NULL or entry.format == NULL or strcmp(entry.format, b"+s") != 0 \
            or entry.n_children != 2 or (
            code[1] != c'm' and not (is_named(schema_child(entry, 0), b"key")
                                     and is_named(schema_child(entry, 1), b"value"))):
        return refuse_format(column, code)
    check_array(column, array, 2)
    if array.n_children != 1:
        return refuse_arrow(column, f"a map with {array.n_children} children")
    take_offsets(column, array, code[1] == c'L', &end)
    if array.length > 0:
        first = list_bound(&column.view, 0)
    take_slice(column, array_child(array, 0), first, end - first, &entries)
    if entries.n_children != 2 or entries.n_buffers < 1 \
            or entries.buffers == NULL:
        return refuse_arrow(column, f"entries of {entries.n_children} children")
    bits = <const uint8_t *>entries.buffers[0]
    names.lists = column
    values.lists = column
    if bits != NULL and entries.null_count != 0:
        for row in range(entries.length):
            if not arrow_bit(bits, entries.offset + row):
                return names.refuse_value(row, "an entry that is null")
    take_slice(column, array_child(&entries, 0), entries.offset, entries.length, &part)
    take_array(names, schema_child(entry, 0), &part, CONTENT_TEXT)
    take_slice(column, array_child(&entries, 1), entries.offset, entries.length, &part)
    take_array(values, schema_child(entry, 1), &part, CONTENT_TEXT)
    return 0


cdef list table_names(const ArrowSchema *schema):
    """The names of a table's columns, checked; None for one that is not looked at."""
    cdef list names = []
    cdef const ArrowSchema *child
    cdef int64_t i
    if schema.format == NULL or strcmp(schema.format, b"+s") != 0 or schema.dictionary != NULL:
        code = "" if schema.format == NULL else schema.format.decode("ascii", "replace")
        raise TypeError(
            f"argument 'table': an Arrow stream of {arrow_type(code)}; it may be a table")
    seen = set()
    for i in range(schema.n_children):
        child = schema_child(schema, i)
        if child == NULL:
            raise ValueError(f"argument 'table' has {schema.n_children} columns without types")
        name = "" if child.name == NULL else text_of(child.name, <int64_t>strlen(child.name))
        if name in seen:
            raise ValueError(f"argument 'table' has the column {name!r} twice")
        seen.add(name)
        # pandas hands the index of a frame over as a column: it says nothing of the messages.
        if name in STORE_COLUMNS or name.startswith("__index_level_"):
            names.append(None)
            continue
        if name not in TABLE_COLUMNS:
            near = get_close_matches(name, [*TABLE_COLUMNS, *STORE_COLUMNS], n=1)
            raise ValueError(
                f"argument 'table' has the column {name!r}, which a message has not"
                + (f"; the nearest name is '{near[0]}'" if near else ""))
        names.append(name)
    if "topic" not in names:
        raise ValueError("argument 'table' has no column 'topic'")
    if "body" not in names and "raw_body" not in names:
        raise ValueError("argument 'table' has neither a column 'body' nor 'raw_body'")
    return names


@cython.final
cdef class TableInput:
    """One batch of a table: what C reads, and everything that it borrows."""

    cdef Rows rows
    cdef TableColumns table
    cdef ArrowOwner owner
    cdef dict columns            # ColumnInput by name
    cdef int64_t first_row       # of the whole table
    cdef Memory topics
    cdef Memory queue_ids

    cdef ColumnInput new_column(self, str name, bint nullable):
        cdef ColumnInput column = ColumnInput(name, TABLE_COLUMNS[name], nullable)
        column.kind = "column"
        column.first_row = self.first_row
        self.columns[name] = column
        return column

    cdef int take_column(
        self, str name, const ArrowSchema *schema, const ArrowArray *array,
    ) except -1:
        cdef ColumnInput column = self.new_column(name, name != "topic")
        if schema.format == NULL:
            return refuse_arrow(column, "its schema is released")
        if name in TABLE_RANGES:
            column.low, column.high = TABLE_RANGES[name]
            return take_numbers(column, schema, array, name == "born_timestamp",
                                self.missing(name))
        if name == "properties":
            self.columns["key"] = column.new_part()
            self.columns["value"] = column.new_part()
            return take_map(column, self.columns["key"], self.columns["value"], schema, array)
        if name == "keys":
            return take_values(column, schema, array, CONTENT_TEXT | CONTENT_KEYS)
        if name == "body" or name == "raw_body":
            return take_array(column, schema, array, CONTENT_BYTES)
        return take_array(column, schema, array, CONTENT_TEXT)

    cdef int64_t missing(self, str name) except? -2:
        """What a number is where the table has none."""
        if name == "queue_id":
            return -1                        # the topic's queues take turns
        return self.rows.born_timestamp if name == "born_timestamp" else 0

    cdef const ColumnView *view(self, str name) except NULL:
        if name not in self.columns:
            return &NO_COLUMN
        return &(<ColumnInput>self.columns[name]).view

    cdef const ColumnView *numbers(self, str name) except NULL:
        cdef ColumnInput column
        if name not in self.columns:
            column = self.new_column(name, True)
            column.view.kind = COLUMN_INTEGER
            column.view.integer = self.missing(name)
        return self.view(name)

    cdef int take(
        self, ArrowOwner owner, const ArrowSchema *schema, list names, int64_t first_row,
        int64_t born_timestamp,
    ) except -1:
        """Read the columns of a batch, checked but for what ``table_check`` does."""
        cdef const ArrowArray *array = &owner.array
        cdef const uint8_t *bits
        cdef ColumnInput whole = ColumnInput("table", "a table", False)
        cdef ArrowArray part
        cdef int64_t i
        self.owner = owner
        self.columns = {}
        self.first_row = first_row
        whole.first_row = first_row
        self.rows.born_timestamp = born_timestamp
        check_array(whole, array, 1)
        if array.n_children != schema.n_children:
            return refuse_arrow(
                whole, f"{array.n_children} columns instead of {schema.n_children}")
        bits = <const uint8_t *>array.buffers[0]
        if bits != NULL and array.null_count != 0:
            for i in range(array.length):
                if not arrow_bit(bits, array.offset + i):
                    return whole.refuse_null(i)
        for i in range(schema.n_children):
            if names[i] is not None:
                take_slice(whole, array_child(array, i), array.offset, array.length, &part)
                self.take_column(names[i], schema_child(schema, i), &part)
        self.rows.count = array.length
        self.point_at_columns()
        return 0

    cdef int point_at_columns(self) except -1:
        cdef bint mapped = "properties" in self.columns
        self.rows.fill = table_fill
        self.rows.table = &self.table
        self.rows.volatile_bodies = not PLANTED("a3")
        self.rows.topic = self.view("topic")
        self.rows.bodies = self.view("body")
        self.rows.tags = self.view("tags")
        self.rows.keys = self.view("keys")
        self.rows.unique = self.view("uniq_key")
        self.rows.properties = &NO_COLUMN
        self.rows.generate = not mapped and "uniq_key" not in self.columns
        self.table.has_maps = mapped
        self.table.maps = self.view("properties")
        self.table.names = self.view("key")
        self.table.values = self.view("value")
        self.table.first_entry = 0
        if mapped and self.table.maps.rows != NULL and self.rows.count > 0:
            self.table.first_entry = list_bound(self.table.maps, 0)
        self.table.raw_bodies = self.view("raw_body")
        self.table.born_hosts = self.view("born_host")
        self.table.flags = self.numbers("flag")
        self.table.sys_flags = self.numbers("sys_flag")
        self.table.reconsume_times = self.numbers("reconsume_times")
        self.table.prepared_offsets = self.numbers("prepared_transaction_offset")
        self.table.born_timestamps = self.numbers("born_timestamp")
        self.numbers("queue_id")
        return 0
