# put_table: a table is read whole, checked whole, then appended batch by batch.
#
# Source: none; API.md, section 2.

cdef str row_text(TableInput batch, str name, int64_t row):
    """A row of a text column as errors show it."""
    cdef const char *data = NULL
    cdef int64_t length = 0
    if not column_get(batch.view(name), row, &data, &length):
        return "null"
    return short_text.repr(text_of(data, length))


cdef str map_text(TableInput batch, str name, int64_t row):
    """A property of a row's map as errors show it."""
    cdef RowMap mapped
    cdef Span *span = &mapped.tags
    map_read(&batch.table, row, False, &mapped)
    if name == "keys":
        span = &mapped.keys
    elif name == "uniq_key":
        span = &mapped.unique
    return short_text.repr(text_of(span.data, span.length))


cdef object illegal_row(str problem, object status=types.PutStatus.MESSAGE_ILLEGAL):
    return errors.MessageIllegalError(problem, status=status)


cdef int refuse_row(
    Store *store, TableInput batch, int64_t row, int problem, int64_t size,
) except -1:
    """Raise for what table_check found; the message names column and row."""
    cdef str at = f"row {batch.first_row + row}"
    cdef str separators = f"\\x01, \\x02 or {TORN_BYTES} times \\x00 in a row"
    cdef dict names = {
        ROW_BAD_TAGS: "tags", ROW_BAD_KEYS: "keys", ROW_BAD_UNIQUE: "uniq_key",
        ROW_OTHER_TAGS: "tags", ROW_OTHER_KEYS: "keys", ROW_OTHER_UNIQUE: "uniq_key",
    }
    if problem == ROW_BAD_TOPIC:
        raise illegal_row(f"column 'topic', {at}: {row_text(batch, 'topic', row)}; it may be 1 to "
                          "127 of [%|a-zA-Z0-9_-]")
    if problem == ROW_NO_BODY:
        name = "body" if "body" in batch.columns else "raw_body"
        raise ValueError(f"column '{name}', {at}: no value (null); each row has a body")
    if problem == ROW_BODIES_DIFFER:
        raise ValueError(f"column 'body', {at}: not the body that column 'raw_body' holds")
    if problem == ROW_BAD_HOST:
        raise ValueError(f"column 'born_host', {at}: {row_text(batch, 'born_host', row)}; it may "
                         "be 'ip:port' or '[ipv6]:port'")
    if problem == ROW_NULL_PROPERTY:
        raise ValueError(f"column 'properties', {at}: a name or a value is null")
    if problem == ROW_EMPTY_PROPERTY:
        raise illegal_row(f"column 'properties', {at}: a name or a value is empty; a reader drops "
                          "such a property")
    if problem == ROW_BAD_PROPERTY:
        raise illegal_row(f"column 'properties', {at}: {separators} in a name or a value, which "
                          "it may not contain")
    if problem in (ROW_BAD_TAGS, ROW_BAD_KEYS, ROW_BAD_UNIQUE):
        raise illegal_row(f"column '{names[problem]}', {at}: {separators}, which it may not "
                          "contain")
    if problem in (ROW_OTHER_TAGS, ROW_OTHER_KEYS, ROW_OTHER_UNIQUE):
        name = names[problem]
        stored = {"tags": "TAGS", "keys": "KEYS", "uniq_key": "UNIQ_KEY"}[name]
        raise ValueError(f"column '{name}', {at}: {row_text(batch, name, row)}, but column "
                         f"'properties' has {stored} {map_text(batch, name, row)}")
    if problem == ROW_PROPERTIES_TOO_LARGE:
        raise illegal_row(f"column 'properties', {at}: the properties take {size} bytes; they may "
                          f"take {PROPERTIES_MAX_BYTES}", types.PutStatus.PROPERTIES_SIZE_EXCEEDED)
    limit = min(store.settings.max_message_size, store.log.file_size - RECORD_BLANK_BYTES)
    raise illegal_row(f"column 'body', {at}: the record takes {size} bytes; it may take {limit}")


cdef int check_batch(Store *store, TableInput batch) except -1:
    """All that makes a row illegal; bodies that are there twice are compared."""
    cdef Span raw
    cdef Span plain
    cdef int64_t row
    cdef int64_t size = 0
    cdef int32_t sys_flag = 0
    cdef int problem = ROW_GOOD
    with nogil:
        row = table_check(store, &batch.rows, &batch.table, &problem, &size)
    if row >= 0:
        return refuse_row(store, batch, row, problem, size)
    if "body" not in batch.columns or "raw_body" not in batch.columns:
        return 0
    row = next_compressed(&batch.rows, &batch.table, 0, &raw, &plain, &sys_flag)
    while row >= 0:
        try:
            body = bodies.inflate(PyBytes_FromStringAndSize(raw.data, raw.length), sys_flag,
                                  plain.length)
        except errors.StoreCorruptError:
            body = None
        if body is None or not is_same(PyBytes_AS_STRING(body), PyBytes_GET_SIZE(body),
                                       plain.data, plain.length):
            return refuse_row(store, batch, row, ROW_BODIES_DIFFER, 0)
        row = next_compressed(&batch.rows, &batch.table, row + 1, &raw, &plain, &sys_flag)
    return 0


def check_table(table, *, max_message_size, file_size, record_checksum=False, store_host_v6=False):
    """Check a table as ``put_table`` does, for a store of these limits that need not be there.

    Parameters
    ----------
    table : object with ``__arrow_c_stream__``
        As for :meth:`MessageStore.put_table`.
    max_message_size, file_size : int
        Bytes that a record may take, and that a file of the commit log has.
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

    Notes
    -----
    Source: ours.
    """
    cdef ArrowOwner schema = ArrowOwner()
    cdef ArrowOwner owner
    cdef TableInput batch
    cdef Memory room = memory_new(<int64_t>sizeof(Store))
    cdef Store *limits = <Store *>room.data
    cdef int64_t count = 0
    cdef list names = []
    memset(limits, 0, sizeof(Store))
    limits.settings.max_message_size = max_message_size
    limits.settings.record_checksum = record_checksum
    limits.settings.store_host_length = HOST_V6_BYTES if store_host_v6 else HOST_V4_BYTES
    limits.log.file_size = file_size
    for owner in read_table(table, schema, names):
        batch = TableInput()
        batch.take(owner, &schema.schema, names, count, 0)
        check_batch(limits, batch)
        count += batch.rows.count
    return count


cdef int64_t known_topics(Store *store, const Rows *rows, int64_t row) noexcept nogil:
    """Note the topics of the rows from ``row`` on; the first whose topic is to be made."""
    cdef const char *name = NULL
    cdef int64_t length = 0
    cdef Topic *last = NULL
    while row < rows.count:
        column_get(rows.topic, row, &name, &length)
        if last == NULL or not is_same(name, length, last.name, last.length):
            last = topic_find(&store.table, name, length)
            if last == NULL or atomic_peek(&last.write_queue_nums) == 0:
                return row
        rows.topics[row] = last
        row += 1
    return row


cdef int64_t known_queues(const Rows *rows, const ColumnView *ids, int64_t row) noexcept nogil:
    """Note the queues of the rows from ``row`` on; the first whose queue is to be made."""
    cdef Topic *topic
    cdef Topic *last_topic = NULL
    cdef int64_t last_id = -1
    while row < rows.count:
        topic = rows.topics[row]
        rows.queue_ids[row] = column_get_int(ids, row)
        if rows.queue_ids[row] < 0:
            rows.queue_ids[row] = (atomic_add(&topic.round_robin, 1) - 1) % max(
                1, atomic_peek(&topic.write_queue_nums))
        if topic != last_topic or rows.queue_ids[row] != last_id:
            last_topic = topic
            last_id = rows.queue_ids[row]
            if queue_find(topic, <int32_t>last_id) == NULL:
                return row
        row += 1
    return row


cdef int find_places(Engine engine, TableInput batch) except -1:
    """Topics and queues of a batch's rows; those that are not there yet are made."""
    cdef const char *name = NULL
    cdef int64_t length = 0
    cdef Store *store = engine.store
    cdef Rows *rows = &batch.rows
    cdef const ColumnView *ids = batch.view("queue_id")
    cdef int64_t row = 0
    batch.topics = memory_new(rows.count * <int64_t>sizeof(Topic *))
    batch.queue_ids = memory_new(rows.count * <int64_t>sizeof(int64_t))
    rows.topics = <Topic **>batch.topics.data
    rows.queue_ids = <int64_t *>batch.queue_ids.data
    while row < rows.count:
        with nogil:
            row = known_topics(store, rows, row)
        if row < rows.count:
            column_get(rows.topic, row, &name, &length)
            rows.topics[row] = writable_topic(engine, text_of(name, length))
            row += 1
    row = 0
    while row < rows.count:
        with nogil:
            row = known_queues(rows, ids, row)
        if row < rows.count:
            writable_queue(engine, rows.topics[row], rows.queue_ids[row])
            row += 1
    return 0


cdef list read_table(object table, ArrowOwner types, list names):
    """All batches of a table, each an ArrowOwner; ``names`` gets those of its columns."""
    cdef ColumnInput whole = ColumnInput("table", "an object with __arrow_c_stream__ whose "
                                         "columns are named as those of a message", False)
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


cdef PutManyResult append_batches(Engine engine, list batches, int64_t count, bint wait):
    """Append what is checked, in the order of the rows."""
    cdef Store *store = engine.store
    cdef PutManyResult result = PutManyResult.__new__(PutManyResult)
    cdef TableInput batch
    cdef Chunk *chunk
    cdef int64_t *physical_offset
    cdef int64_t *queue_offset
    cdef int32_t *queue_ids
    cdef int64_t stored = 0
    cdef int64_t stop = 0
    cdef int64_t status = 0
    cdef int64_t done, row
    result._physical_offset = memory_new(count * 8)
    result._queue_offset = memory_new(count * 8)
    result._queue_id = memory_new(count * 4)
    physical_offset = <int64_t *>result._physical_offset.data
    queue_offset = <int64_t *>result._queue_offset.data
    queue_ids = <int32_t *>result._queue_id.data
    chunk = chunk_new()
    for batch in batches:
        with nogil:
            done = append_rows(store, &batch.rows, chunk, physical_offset + stored,
                               queue_offset + stored, &stop, &status)
            for row in range(done):
                queue_ids[stored + row] = <int32_t>batch.rows.queue_ids[row]
        stored += done
        if status < 0:
            break
    with nogil:
        chunk_free(chunk)
        if status == 0 and stored and store.settings.sync_flush and not wait:
            worker_call(&store.flush_log)
    row = 0
    for batch in batches:
        done = min(batch.rows.count, stored - row)
        keep_topics(engine, &batch.rows, done, physical_offset + row)
        row += done
    if status == 0 and stored and store.settings.sync_flush and wait:
        wait_for_disk(store, stop, stored, &status)
    return finish_rows(engine, result, stored, stop, status)


cdef PutManyResult put_batches(Engine engine, ArrowOwner types, list names, list owners, bint wait):
    """Check all batches, then store them."""
    cdef ArrowOwner owner
    cdef TableInput batch
    cdef list batches = []
    cdef int64_t now = wall_millis()
    cdef int64_t count = 0
    for owner in owners:
        batch = TableInput()
        batch.take(owner, &types.schema, names, count, now)
        check_batch(engine.store, batch)
        count += batch.rows.count
        batches.append(batch)
    # Only now, so that refused rows leave no topic behind.
    for batch in batches:
        find_places(engine, batch)
        if batch.rows.generate:
            batch.rows.unique_first = unique_keys_take(
                &unique_keys, now, max(1, batch.rows.count))
    return append_batches(engine, batches, count, wait)
