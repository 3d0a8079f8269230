# put_many and put_batch: rows from columns of arguments.
#
# Source: store/DefaultMessageStore.java putMessages

cdef ColumnInput bodies_column(object value):
    """``bodies``: a buffer, or a column of them."""
    cdef ColumnInput column = ColumnInput(
        "bodies", "a C-contiguous buffer of bytes, or a sequence, a NumPy array or an Arrow array "
        "of binary values", NOT_NULL)
    if not take_arrow(column, value, CONTENT_BYTES):
        take_bytes(column, value)
    return column


cdef ColumnInput properties_column(object value):
    """``properties``: a mapping or None for all rows, or a column of them; encoded here."""
    cdef ColumnInput column = ColumnInput(
        "properties", "a mapping of str to str, None, or a sequence or an Arrow array of them",
        NULLABLE)
    cdef PropertiesText out = PropertiesText()
    cdef Span *spans = NULL
    cdef tuple rows
    cdef int64_t row
    cdef bint single = is_mapping(value)
    if value is None or take_arrow(column, value, CONTENT_MAPS):
        return column
    column.owners.append(out)
    if single:
        rows = (value,)
    else:
        rows = rows_of(column, value)
        if rows is None:
            column.refuse_type(-1, value)
    column.owners.append(rows)
    column.take_spans(len(rows), &spans)
    for row in range(column.rows):
        mapping = rows[row]
        if row > 0 and mapping is rows[row - 1]:
            spans[row] = spans[row - 1]
            continue
        spans[row].data = <const char *>out.text.length
        spans[row].length = -1
        if mapping is not None:
            if not is_mapping(mapping):
                column.refuse_type(row, mapping)
            try:
                add_properties(mapping, &out.text, out.text.length)
            except Exception as error:
                error.add_note(column.where(-1 if single else row))
                raise
            spans[row].length = out.text.length - <int64_t>spans[row].data
    out.set_addresses(spans, column.rows)
    if single:
        column.rows = -1
        column.set_scalar(spans[0].data, spans[0].length)
    return column


cdef int take_queue(RowInput input, object queue_id, object queue_key) except -1:
    """Set the choice of the rows' queues: ids, keys (typed by the first row), or neither."""
    cdef ColumnInput column = ColumnInput(
        "queue_key", "a str, bytes, an int from -2147483648 to 2147483647, or a sequence, a NumPy "
        "array or an Arrow array of one of these types", NOT_NULL)
    cdef tuple rows
    if queue_id is not None and queue_key is not None:
        raise ValueError("queue_id and queue_key must not be given both")
    input.queue = column
    if queue_id is not None:
        input.queue = int_column("queue_id", queue_id, 0, INT32_MAX)
        input.choice = QUEUE_BY_ID
    if queue_key is None:
        return 0
    column.low = -INT32_MAX - 1
    column.high = INT32_MAX
    if not take_arrow(column, queue_key, CONTENT_BYTES | CONTENT_TEXT | CONTENT_INTEGERS):
        if PyUnicode_Check(queue_key):
            take_text(column, queue_key)
        elif isinstance(queue_key, (bytes, bytearray, memoryview)):
            take_bytes(column, queue_key)
        elif is_integer(queue_key):
            take_numbers(column, queue_key)
        else:
            rows = rows_of(column, queue_key)
            if rows is None or (len(rows) > 0 and PyIndex_Check(rows[0])):
                take_numbers(column, queue_key if rows is None else rows)
            elif len(rows) > 0 and isinstance(rows[0], str):
                take_text(column, rows)
            else:
                take_bytes(column, rows)
    if column.content == CONTENT_INTEGERS:
        input.choice = QUEUE_BY_NUMBER
    elif column.content == CONTENT_TEXT:
        input.choice = QUEUE_BY_TEXT
    else:
        input.choice = QUEUE_BY_HASH
        hash_rows(column)
    return 0


cdef int hash_rows(ColumnInput column) except -1:
    """Replace rows of bytes by their hashes."""
    cdef ColumnView bytes_view = column.view
    cdef int64_t *hashes = NULL
    cdef int64_t row
    cdef const Span *span
    cdef bint scalar = column.rows < 0
    column.take_ints(1 if scalar else column.rows, &hashes)
    for row in range(column.rows):
        span = column_span(&bytes_view, row)
        hashes[row] = <int64_t><uint64_t>arrays.bytes_hash(
            PyBytes_FromStringAndSize(span.data, span.length))
    if scalar:
        column.rows = -1
        column.set_integer(hashes[0])
    return 0


cdef RowInput rows_of_arguments(
    OpenStore engine, object topic, object bodies, object queue_id, object queue_key, object tags,
    object keys, object properties, object uniq_key, bint compress,
):
    """Build the columns of a call and check them against each other."""
    cdef Store *store = engine.store
    cdef RowInput input = RowInput()
    cdef ColumnInput body = bodies_column(bodies)
    cdef ColumnInput unique = ColumnInput(
        "uniq_key", "True, False, a str, or a sequence, a NumPy array or an Arrow array of str or "
        "None", NULLABLE)
    cdef Limits limits = limits_of(store)
    input.rows.same.born_timestamp = limits.now
    input.columns["body"] = body
    if compress and store.settings.compress_above >= 0:
        deflate_rows(store, engine._config, input, body)
    input.columns["topic"] = text_column("topic", topic, NOT_NULL)
    input.columns["tags"] = check_tags(text_column("tags", tags, NULLABLE))
    input.columns["keys"] = check_property(keys_column(keys))
    input.columns["properties"] = properties_column(properties)
    input.columns["uniq_key"] = unique
    if isinstance(uniq_key, bool):
        input.rows.generate = uniq_key
    elif not take_arrow(unique, uniq_key, CONTENT_TEXT):
        take_text(unique, uniq_key)
    check_property(unique)
    take_queue(input, queue_id, queue_key)
    input.rows.count = count_rows((*input.columns.values(), input.queue))
    input.rows.same.volatile_body = body.volatile
    input.point_at_texts()
    check_topics(input.columns["topic"])
    input.check(&limits)
    return input


cdef PutManyResult put_rows(
    OpenStore engine, object topic, object bodies, object queue_id, object queue_key, object tags,
    object keys, object properties, object uniq_key, bint wait,
):
    cdef RowInput input
    store_puttable(engine.store, engine._path)
    try:
        input = rows_of_arguments(
            engine, topic, bodies, queue_id, queue_key, tags, keys, properties, uniq_key, True)
        return append_inputs(engine, [input], wait)
    finally:
        store_leave(engine.store)


cdef PutResult put_batched(
    OpenStore engine, object topic, object bodies, object queue_id, object queue_key, object tags,
    object keys, object properties, object uniq_key, bint wait,
):
    """Store rows in one queue and one file, all or none."""
    cdef Span name
    cdef int64_t queue
    cdef RowInput input
    store_puttable(engine.store, engine._path)
    try:
        name.data = utf8_of("topic", topic, &name.length)
        check_topic(name.data, name.length, topic)
        queue = choose_queue(engine, known_topic(engine, &name), queue_id, queue_key)
        input = rows_of_arguments(
            engine, topic, bodies, queue, None, tags, keys, properties, uniq_key, False)
        if input.rows.count == 0:
            raise ValueError("bodies must have at least one message for a batch, got none")
        return append_batch(engine, input, wait)
    finally:
        store_leave(engine.store)


cdef PutResult append_batch(OpenStore engine, RowInput input, bint wait):
    """Append rows of one queue as a whole."""
    cdef Store *store = engine.store
    cdef Limits limits = limits_of(store)
    cdef PutResult result = PutResult.__new__(PutResult)
    cdef int64_t count = input.rows.count
    cdef int64_t room = min(limits.max_message_size, limits.file_size - RECORD_BLANK_BYTES)
    cdef int64_t size, rc
    cdef Append append
    cdef Chunk *chunk
    cdef ColumnInput unique = input.columns["uniq_key"]
    cdef Span first                          # the first row's unique key, if given
    first.length = -1
    column_get(&unique.view, 0, &first.data, &first.length)
    if first.length >= 0:
        result.given_key = text_of(first.data, first.length)
    with nogil:
        size = rows_size(&limits, &input.rows)
    if size > room:
        raise illegal(f"the batch takes {size} bytes; it may take {room}: it lies in one file")
    rows_choose_queues(engine, input)
    chunk = chunk_new(count)
    try:
        with nogil:
            rc = chunk_fill(store, &limits, &input.rows, 0, count, chunk)
        if rc < 0:
            raise MemoryError()
        if input.rows.generate:
            unique_key_write(&unique_keys, input.rows.first_unique, result.key)
            result.generated = True
        append = Append(chunk.messages, chunk.queues, chunk.appended, count, size, APPEND_WHOLE)
        append_one(engine, &append, wait, result)
    finally:
        chunk_free(chunk)
    return result
