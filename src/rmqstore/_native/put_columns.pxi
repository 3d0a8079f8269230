# The columns of put_many and put_batch, checked as a whole before the first row is written.

@cython.final
cdef class RowInput:
    """Everything a call's rows borrow, and the C view of it."""

    cdef Rows rows
    cdef ColumnInput bodies
    cdef ColumnInput topic
    cdef ColumnInput tags
    cdef ColumnInput keys
    cdef ColumnInput properties
    cdef ColumnInput unique
    cdef ColumnInput queue
    cdef Memory topics
    cdef Memory queue_ids

    def __cinit__(self, Engine engine, topic, bodies, queue_id, queue_key, tags, keys,
                  properties, uniq_key):
        cdef Store *store = engine.store
        if queue_id is not None and queue_key is not None:
            raise ValueError("arguments 'queue_id' and 'queue_key' exclude each other")
        self.bodies = bodies_column(bodies)
        self.topic = text_column("topic", topic, False)
        self.tags = text_column("tags", tags, True)
        self.keys = keys_column(keys)
        self.properties = properties_column(properties)
        self.unique = uniq_key_column(uniq_key)
        if queue_key is not None:
            self.queue = queue_key_column(queue_key, -0x80000000, 0x7FFFFFFF)
        else:
            self.queue = int_column("queue_id", queue_id, 0, 0x7FFFFFFF)
        self.rows.count = count_rows((self.bodies, self.topic, self.tags, self.keys,
                                      self.properties, self.unique, self.queue))
        self.rows.bodies = &self.bodies.view
        self.rows.topic = &self.topic.view
        self.rows.tags = &self.tags.view
        self.rows.keys = &self.keys.view
        self.rows.properties = &self.properties.view
        self.rows.unique = &self.unique.view
        self.rows.generate = self.unique.generate
        self.rows.volatile_bodies = self.bodies.volatile and not PLANTED("a3")
        self.rows.born_timestamp = wall_millis()
        self.check_text("tags", self.tags)
        self.check_text("keys", self.keys)
        self.check_text("uniq_key", self.unique)
        self.check_topics()
        self.check_sizes(store)
        # Only now, so that refused rows leave no topic behind.
        self.find_topics(engine)
        self.find_queues(engine, queue_id is None, queue_key is not None)
        if self.rows.generate:
            self.rows.unique_first = unique_keys_take(
                &unique_keys, self.rows.born_timestamp, max(1, self.rows.count))

    cdef int check_text(self, str argument, ColumnInput column) except -1:
        cdef int64_t row
        with nogil:
            row = row_with_separator(&column.view, self.rows.count)
        if row >= 0:
            raise errors.MessageIllegalError(
                f"argument '{argument}' has \\x01, \\x02 or {TORN_BYTES} times \\x00 in row {row}, "
                "which it may not contain",
                status=types.PutStatus.MESSAGE_ILLEGAL)
        return 0

    cdef int check_topics(self) except -1:
        cdef const char *data = NULL
        cdef int64_t length = 0
        cdef int64_t row
        for row in range(self.rows.count if self.topic.rows >= 0 else 1):
            column_get(&self.topic.view, row, &data, &length)
            if not topic_name_good(data, length):
                name = text_of(data, length)
                raise errors.MessageIllegalError(
                    f"argument 'topic' is {name!r} in row {row}; it may be 1 to 127 of "
                    "[%|a-zA-Z0-9_-]", status=types.PutStatus.MESSAGE_ILLEGAL)
        return 0

    cdef int check_sizes(self, Store *store) except -1:
        cdef int64_t size = 0
        cdef int64_t row
        with nogil:
            row = rows_too_large(store, &self.rows, &size)
        if row < 0:
            return 0
        if size < 0:
            raise errors.MessageIllegalError(
                f"the properties of row {row} take {-size} bytes; they may take "
                f"{PROPERTIES_MAX_BYTES}", status=types.PutStatus.PROPERTIES_SIZE_EXCEEDED)
        limit = min(store.settings.max_message_size, store.log.file_size - RECORD_BLANK_BYTES)
        raise errors.MessageIllegalError(
            f"the record of row {row} takes {size} bytes; it may take {limit}",
            status=types.PutStatus.MESSAGE_ILLEGAL)

    cdef int find_topics(self, Engine engine) except -1:
        """Each distinct topic is looked up once where the column has codes."""
        cdef const char *data = NULL
        cdef int64_t length = 0
        cdef int64_t row, code
        cdef Topic **topics
        cdef Topic *last = NULL
        cdef dict by_code = {}
        if self.topic.view.code_count == 1 and self.topic.rows < 0:
            column_get(&self.topic.view, 0, &data, &length)
            self.topics = memory_new(sizeof(Topic *))
            (<Topic **>self.topics.data)[0] = writable_topic(engine, text_of(data, length))
            self.rows.one_topic = True
            self.rows.topics = <Topic **>self.topics.data
            return 0
        self.topics = memory_new(self.rows.count * <int64_t>sizeof(Topic *))
        topics = <Topic **>self.topics.data
        for row in range(self.rows.count):
            if self.topic.view.code_count > 1:
                code = column_code(&self.topic.view, row)
                place = by_code.get(code)
                if place is not None:
                    topics[row] = topics[<int64_t>place]
                    continue
                by_code[code] = row
            column_get(&self.topic.view, row, &data, &length)
            if last == NULL or last.length != length or memcmp(
                    last.name, data, <size_t>length) != 0:
                last = topic_find(&engine.store.table, data, length)
                if last == NULL or atomic_peek(&last.write_queue_nums) == 0:
                    last = writable_topic(engine, text_of(data, length))
            topics[row] = last
        self.rows.topics = topics
        return 0

    cdef int find_queues(self, Engine engine, bint no_id, bint by_key) except -1:
        """The queue id of each row, and the queues made."""
        cdef int64_t row, n
        cdef int64_t length = 0
        cdef const char *data = NULL
        cdef int64_t *ids
        cdef Topic *topic
        cdef Topic *last_topic = NULL
        cdef int64_t last_id = -1
        self.queue_ids = memory_new(self.rows.count * <int64_t>sizeof(int64_t))
        ids = <int64_t *>self.queue_ids.data
        for row in range(self.rows.count):
            topic = self.rows.topics[0 if self.rows.one_topic else row]
            n = max(1, atomic_peek(&topic.write_queue_nums))
            if not by_key and no_id:
                ids[row] = (atomic_add(&topic.round_robin, 1) - 1) % n
            elif not by_key:
                ids[row] = column_get_int(&self.queue.view, row)
            elif self.queue.content == CONTENT_INTEGERS:
                ids[row] = java_remainder(column_get_int(&self.queue.view, row), n)
            else:
                column_get(&self.queue.view, row, &data, &length)
                if self.queue.content == CONTENT_TEXT:
                    ids[row] = java_remainder(java_hash_utf8(data, length, 0), n)
                else:
                    ids[row] = arrays.bytes_hash(
                        PyBytes_FromStringAndSize(data, length)) % n
            if topic != last_topic or ids[row] != last_id:
                last_topic = topic
                last_id = ids[row]
                if queue_find(topic, <int32_t>last_id) == NULL:
                    writable_queue(engine, topic, last_id)
        self.rows.queue_ids = ids
        return 0


cdef PutManyResult put_rows(
    Engine engine, object topic, object bodies, object queue_id, object queue_key, object tags,
    object keys, object properties, object uniq_key, bint wait,
):
    cdef Store *store = engine.store
    cdef RowInput input = RowInput(engine, topic, bodies, queue_id, queue_key, tags, keys,
                                   properties, uniq_key)
    cdef PutManyResult result = PutManyResult.__new__(PutManyResult)
    cdef Chunk *chunk
    cdef int64_t count = input.rows.count
    cdef int64_t stored, row
    cdef int64_t stop = 0
    cdef int64_t status = 0
    cdef int64_t *physical_offset
    cdef int64_t *queue_offset
    cdef int32_t *queue_ids
    result._physical_offset = memory_new(count * 8)
    result._queue_offset = memory_new(count * 8)
    result._queue_id = memory_new(count * 4)
    physical_offset = <int64_t *>result._physical_offset.data
    queue_offset = <int64_t *>result._queue_offset.data
    queue_ids = <int32_t *>result._queue_id.data
    chunk = chunk_new()
    with nogil:
        stored = append_rows(store, &input.rows, chunk, physical_offset, queue_offset, &stop,
                             &status)
        for row in range(stored):
            queue_ids[row] = <int32_t>input.rows.queue_ids[row]
        chunk_free(chunk)
        if status == 0 and stored and store.settings.sync_flush and not wait:
            worker_call(&store.flush_log)
    keep_topics(engine, &input.rows, stored, physical_offset)
    if status == 0 and stored and store.settings.sync_flush and wait:
        wait_for_disk(store, stop, stored, &status)
    return finish_rows(engine, result, stored, stop, status)


cdef int keep_topics(
    Engine engine, const Rows *rows, int64_t stored, const int64_t *physical_offset,
) except -1:
    """keep_topic for the rows that are in the log."""
    cdef Topic *last = NULL
    cdef Topic *topic
    cdef int64_t row = stored
    while row > 0:
        row -= 1
        topic = rows.topics[0 if rows.one_topic else row]
        if topic != last:
            keep_topic(engine, topic, physical_offset[row])
        if rows.one_topic:
            break
        last = topic
    return 0


cdef PutManyResult finish_rows(
    Engine engine, PutManyResult result, int64_t stored, int64_t stop, int64_t status,
):
    """The result of ``stored`` rows, or the error that ended them."""
    result._count = stored
    result.stop = stop
    if status == 0 and unlikely(atomic_get_strict(&engine.store.failed) != 0):
        status = E_FAILED
    if status < 0:
        if status == E_TIMEOUT:
            raise errors.PutError(
                f"{engine._path}: {stored} rows are stored, but {not_on_disk(engine.store)}",
                status=types.PutStatus.FLUSH_DISK_TIMEOUT, result=result, stored=stored)
        error = write_error(engine, status)
        if isinstance(error, errors.PutError):
            error.stored = stored
            error.result = result if stored else None
        raise error
    return result


cdef PutResult put_batched(
    Engine engine, object topic, object bodies, object queue_id, object queue_key, object tags,
    object keys, object properties, object uniq_key, bint wait,
):
    """One queue, one file, all rows or none."""
    cdef Store *store = engine.store
    cdef int64_t length = 0
    cdef Topic *to = known_topic(engine, topic, &length)
    cdef int64_t id = choose_queue(engine, to, queue_id, queue_key)
    cdef RowInput input = RowInput(engine, topic, bodies, id, None, tags, keys, properties,
                                   uniq_key)
    cdef int64_t count = input.rows.count
    cdef int64_t i, part
    cdef int64_t size = 0
    cdef int64_t done = 0
    cdef int64_t rc = 0
    cdef Memory drafts = memory_new(count * <int64_t>sizeof(Draft))
    cdef Draft *draft = <Draft *>drafts.data
    cdef list texts = []
    cdef Chunk *chunk
    cdef PutResult result = PutResult.__new__(PutResult)
    if count == 0:
        raise ValueError("argument 'bodies' is empty; a batch has at least one message")
    chunk = chunk_new()
    try:
        while done < count:
            part = min(MANY_CHUNK, count - done)
            with nogil:
                rc = chunk_fill(store, &input.rows, done, part, chunk)
            if rc < 0:
                raise MemoryError()
            text = PyBytes_FromStringAndSize(chunk.text, chunk.length)
            texts.append(text)
            for i in range(part):
                draft[done + i] = chunk.drafts[i]
                draft[done + i].properties = PyBytes_AS_STRING(text) + chunk.at[i]
                size += chunk.drafts[i].size
            done += part
    finally:
        chunk_free(chunk)
    if size > store.settings.max_message_size or size + RECORD_BLANK_BYTES > store.log.file_size:
        limit = min(store.settings.max_message_size, store.log.file_size - RECORD_BLANK_BYTES)
        raise errors.MessageIllegalError(
            f"the batch takes {size} bytes; it may take {limit}: it lies in one file",
            status=types.PutStatus.MESSAGE_ILLEGAL)
    if input.rows.generate:
        unique_key_write(&unique_keys, input.rows.unique_first, result.key)
        result.generated = True
    append_and_wait(engine, draft, count, size,
                    writable_queue(engine, input.rows.topics[0], id), wait, result)
    return result
