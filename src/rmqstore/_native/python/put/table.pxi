# put_table: rows from the columns of a table, batch by batch.
#
# Source: common/message/MessageExtBrokerInner.java, for a message's fields

# Allowed types of each column; a null in one with "or null" counts as a missing column.
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
    "born_timestamp": "an array of timestamps with a zone, or of integers (milliseconds), or null",
    "born_host": "an array of strings 'ip:port' or '[ipv6]:port', or null for the store's own",
    "reconsume_times": "an array of integers of 32 bits, or null",
    "prepared_transaction_offset": "an array of integers, or null",
}
# Set by the store itself: ignored.
cdef tuple STORE_COLUMNS = (
    "queue_offset", "physical_offset", "store_size", "msg_id", "store_timestamp", "store_host",
    "body_crc",
)
# Lowest and highest of a number, and its value if the table has none; born_timestamp: now.
cdef dict TABLE_NUMBERS = {
    "queue_id": (0, INT32_MAX, -1),          # the topic's queues take turns
    "flag": (-INT32_MAX - 1, INT32_MAX, 0),
    "sys_flag": (-INT32_MAX - 1, INT32_MAX, NO_NUMBER),
    "reconsume_times": (-INT32_MAX - 1, INT32_MAX, 0),
    "prepared_transaction_offset": (INT64_MIN, INT64_MAX, 0),
    "born_timestamp": (INT64_MIN, INT64_MAX, 0),
}


cdef int take_hosts(RowInput input, ColumnInput column) except -1:
    """Parse born hosts; rows often have the same host as the row before."""
    cdef HostValue *hosts
    cdef const Span *text
    cdef const Span *last = NULL
    cdef int64_t row
    if column.view.kind != COLUMN_SPANS:     # an array of nulls
        return 0
    input.hosts = memory_new(column.rows * <int64_t>sizeof(HostValue))
    hosts = <HostValue *>input.hosts.data
    input.rows.born_hosts = hosts
    for row in range(column.rows):
        text = column_span(&column.view, row)
        hosts[row].length = 0
        if text.length < 0:
            last = NULL
            continue
        if last != NULL and is_same(text.data, text.length, last.data, last.length):
            hosts[row] = hosts[row - 1]
            continue
        last = text
        hosts[row].length = <int32_t>host_parse(text.data, text.length, hosts[row].bytes)
        if hosts[row].length == 0:
            raise arguments.wrong_value(
                column.subject(row), HOST_RULE, text_of(text.data, text.length))
    return 0


cdef list table_names(const ArrowSchema *schema):
    """Checked names of a table's columns; None for an ignored one."""
    cdef list names = []
    cdef const ArrowSchema *child
    cdef int64_t i
    if schema.format == NULL or strcmp(schema.format, b"+s") != 0 or schema.dictionary != NULL:
        code = "" if schema.format == NULL else schema.format.decode("ascii", "replace")
        raise TypeError(
            f"table must be an Arrow stream of structs, not of {arrow_type(code)}")
    for i in range(schema.n_children):
        child = schema_child(schema, i)
        if child == NULL:
            raise ValueError(f"table must have a type for each of {schema.n_children} columns")
        name = "" if child.name == NULL else text_of(child.name, <int64_t>strlen(child.name))
        if name in names:
            raise ValueError(f"table must not have the column {name!r} twice")
        names.append(name)
        # pandas exports the index of a frame as a column: it is no part of the messages.
        if name in TABLE_COLUMNS or name in STORE_COLUMNS or name.startswith("__index_level_"):
            continue
        from difflib import get_close_matches
        near = get_close_matches(name, [*TABLE_COLUMNS, *STORE_COLUMNS], n=1)
        raise ValueError(
            f"table must not have the column {name!r}: messages have no such field"
            + (f"; the nearest name is '{near[0]}'" if near else ""))
    if "topic" not in names:
        raise ValueError("table must have a column 'topic'")
    if "body" not in names and "raw_body" not in names:
        raise ValueError("table must have a column 'body' or 'raw_body'")
    return [name if name in TABLE_COLUMNS else None for name in names]


cdef ColumnInput table_column(RowInput input, str name):
    cdef ColumnInput column = ColumnInput(name, TABLE_COLUMNS[name], name != "topic")
    column.kind = "column"
    column.first_row = input.first_row
    if name in TABLE_NUMBERS:
        column.low, column.high, column.missing = TABLE_NUMBERS[name]
        if name == "born_timestamp":
            column.missing = input.rows.same.born_timestamp
        column.set_integer(column.missing)
    input.columns[name] = column
    return column


cdef int take_table_column(
    RowInput input, str name, const ArrowSchema *schema, const ArrowArray *array,
) except -1:
    cdef ColumnInput column = table_column(input, name)
    if schema == NULL or schema.format == NULL:
        return refuse_arrow(column, "its schema is released")
    if name == "born_timestamp":
        return take_array(column, schema, array, CONTENT_INTEGERS | CONTENT_TIMES)
    if name in TABLE_NUMBERS:
        return take_array(column, schema, array, CONTENT_INTEGERS)
    if name == "properties":
        return take_map(column, schema, array, MAP_OF_RECORD)
    if name == "body" or name == "raw_body":
        return take_array(column, schema, array, CONTENT_BYTES)
    take_values(column, schema, array, CONTENT_TEXT | (CONTENT_KEYS if name == "keys" else 0))
    if name == "topic":
        return check_topics(column)
    if name == "born_host":
        return take_hosts(input, column)
    check_property(column)
    return 0


cdef int point_at_numbers(RowInput input) except -1:
    for name in TABLE_NUMBERS:
        if name not in input.columns:
            table_column(input, name)
    input.rows.raw_body = input.view("raw_body")
    input.rows.flag = input.view("flag")
    input.rows.sys_flag = input.view("sys_flag")
    input.rows.reconsume_times = input.view("reconsume_times")
    input.rows.prepared_offset = input.view("prepared_transaction_offset")
    input.rows.born_timestamp = input.view("born_timestamp")
    return 0


cdef RowInput rows_of_batch(
    const Limits *limits, ArrowOwner owner, const ArrowSchema *schema, list names,
    int64_t first_row,
):
    """Build the columns of a batch and check them against each other."""
    cdef const ArrowArray *array = &owner.array
    cdef const uint8_t *bits
    cdef ColumnInput whole = ColumnInput("table", "a table", NOT_NULL)
    cdef RowInput input = RowInput()
    cdef ArrowArray part
    cdef int64_t i
    input.rows.same.born_timestamp = limits.now
    input.owner = owner
    input.first_row = whole.first_row = first_row
    check_array(whole, array, 1)
    if array.n_children != schema.n_children:
        refuse_arrow(whole, f"{array.n_children} columns instead of {schema.n_children}")
    bits = <const uint8_t *>array.buffers[0]
    for i in range(array.length if bits != NULL and array.null_count != 0 else 0):
        if not arrow_bit(bits, array.offset + i):
            whole.refuse_null(i)
    for i in range(schema.n_children):
        if names[i] is not None:
            take_slice(whole, array_child(array, i), array.offset, array.length, &part)
            take_table_column(input, names[i], schema_child(schema, i), &part)
    point_at_numbers(input)
    input.rows.count = array.length
    input.rows.is_table = True
    input.rows.is_mapped = "properties" in input.columns
    input.rows.generate = not input.rows.is_mapped and "uniq_key" not in input.columns
    input.rows.same.volatile_body = True
    input.queue = input.columns["queue_id"]
    input.choice = QUEUE_BY_ID
    input.point_at_texts()
    input.check(limits)
    compare_inflated(limits, input)
    return input


cdef int compare_inflated(const Limits *limits, RowInput input) except -1:
    """Check that a row's inflated body equals its stored compressed one, if it has both."""
    cdef Row row = input.rows.same
    cdef const Span *plain
    cdef int64_t i
    if input.rows.body.kind != COLUMN_SPANS or input.rows.raw_body.kind != COLUMN_SPANS:
        return 0
    for i in range(input.rows.count):
        rows_get(&input.rows, i, &row)
        plain = column_span(input.rows.body, i)
        if plain.length < 0 or not row.sys_flag & SYS_COMPRESSED:
            continue
        try:
            body = bodies.inflate(PyBytes_FromStringAndSize(row.body.data, row.body.length),
                                  row.sys_flag, plain.length)
        except errors.StoreCorruptError:
            body = None
        if body is None or not is_same(PyBytes_AS_STRING(body), PyBytes_GET_SIZE(body),
                                       plain.data, plain.length):
            input.refuse(limits, i, ROW_BODIES_DIFFER, 0)
    return 0


cdef list read_table(object table, ArrowOwner types, list names):
    """Read all batches of a table, each an ArrowOwner; ``names`` gets its column names."""
    cdef ColumnInput whole = ColumnInput("table", "an object with __arrow_c_stream__ whose "
                                         "columns are named as those of a message", NOT_NULL)
    cdef ArrowOwner owner
    cdef list batches = []
    if not hasattr(table, "__arrow_c_stream__"):
        whole.refuse_type(-1, table)
    capsule = open_stream(whole, table, types)
    names += table_names(&types.schema)
    while True:
        owner = next_array(whole, capsule)
        if owner is None:
            return batches
        batches.append(owner)
        PyErr_CheckSignals()


cdef list rows_of_table(const Limits *limits, ArrowOwner types, list names, list owners):
    """A RowInput for each batch, all checked."""
    cdef ArrowOwner owner
    cdef RowInput input
    cdef list inputs = []
    cdef int64_t count = 0
    for owner in owners:
        input = rows_of_batch(limits, owner, &types.schema, names, count)
        count += input.rows.count
        inputs.append(input)
    return inputs


cdef PutManyResult put_batches(OpenStore engine, object table, bint wait):
    """Read the whole table, check all of it, then store it."""
    cdef ArrowOwner schema = ArrowOwner()
    cdef list names = []
    cdef list batches
    cdef Limits limits
    store_puttable(engine.store, engine._path)
    store_leave(engine.store)
    # Before entering the store: the producer of the table may take any time.
    batches = read_table(table, schema, names)
    store_puttable(engine.store, engine._path)
    try:
        limits = limits_of(engine.store)
        return append_inputs(engine, rows_of_table(&limits, schema, names, batches), wait)
    finally:
        store_leave(engine.store)


def check_table(table, *, max_message_size, file_size, record_checksum=False, store_host_v6=False):
    """Check a table as ``put_table`` does, for a store of these limits that need not exist.

    Parameters
    ----------
    table : object with ``__arrow_c_stream__``
        As for :meth:`MessageStore.put_table`.
    max_message_size, file_size : int
        Maximum bytes of a record, and bytes of a commit log file.
    record_checksum, store_host_v6 : bool, optional
        Whether records carry ``__CRC32#``, and a store host of IPv6.

    Returns
    -------
    int
        Rows; ``put_table`` of such a store refuses none of them.

    Raises
    ------
    MessageIllegalError, TypeError, ValueError
        As :meth:`MessageStore.put_table`, with the same message.
    OSError
        The table itself failed while it was read.
    """
    cdef ArrowOwner schema = ArrowOwner()
    cdef list names = []
    cdef Limits limits
    cdef RowInput input
    cdef int64_t count = 0
    limits.max_message_size = max_message_size
    limits.file_size = file_size
    limits.record_checksum = record_checksum
    limits.store_host_v6 = store_host_v6
    limits.multi_dispatch = False
    limits.light_queues = False
    for input in rows_of_table(&limits, schema, names, read_table(table, schema, names)):
        count += input.rows.count
    return count
