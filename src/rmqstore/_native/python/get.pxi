# get: messages of one queue.
#
# Source: store/DefaultMessageStore.java getMessage

cdef object got_messages(OpenStore engine, Got *got, object topic):
    """List of messages, which take over the records found.

    Messages of ``topic`` share its text, if it is exactly a str.
    """
    cdef list messages = []
    cdef Message message
    cdef const char *name = NULL
    cdef int64_t length = -1
    cdef int64_t i
    try:
        if type(topic) is str:
            name = utf8_of("topic", topic, &length)
        for i in range(got.count):
            message = message_of(&got.items[i], engine.max_body, engine.log_paths)
            # Messages of a light queue may be of other topics.
            if message.record.topic_length == length and memcmp(
                    message.slice.data + message.record.topic_at, name, <size_t>length) == 0:
                message._topic = topic
            messages.append(message)
    finally:
        got_clear(got)
    return messages


cdef Queue *find_queue(Store *store, object topic, object queue_id) except? NULL:
    """State of a queue, NULL without one."""
    cdef int64_t length = 0
    cdef const char *name = utf8_of("topic", topic, &length)
    cdef int64_t id = int_argument("queue_id", queue_id, 0, 0x7FFFFFFF)
    cdef Topic *found
    cdef Queue *queue
    if not store.writable:
        with nogil:
            refresh_queues(store)
    found = topic_find(&store.table, name, length)
    queue = NULL if found == NULL else queue_find(found, <int32_t>id)
    return NULL if queue == NULL or queue_is_gone(&store.table, queue) else queue


cdef object read_error(OpenStore engine, Store *store, int64_t rc, Got *got):
    if rc == E_CORRUPT and got.unit_is_bad:
        return corrupt_unit(engine._path, &got.queue.files, got.bad_offset, got.field)
    if rc == E_CORRUPT:
        return corrupt_record(engine._path, &store.log, got.bad_offset, got.field)
    return unreadable_error(store, got.queue, rc, engine._path)


cdef object get_from_queue(
    OpenStore engine, object topic, object queue_id, object offset, object max_messages,
    object max_bytes, object tags, object sql,
):
    cdef Store *store
    cdef Queue *queue
    cdef Got got
    cdef MessageFilter filter
    cdef int64_t rc, started
    cdef list keep = []
    cdef int64_t first = int_argument("offset", offset, INT64_LEAST, INT64_MOST)
    cdef int64_t most = int_argument("max_messages", max_messages, 1, INT64_MOST >> 8)
    cdef int64_t most_bytes = INT64_MOST >> 1
    if max_bytes is not None:
        most_bytes = int_argument("max_bytes", max_bytes, 1, INT64_MOST >> 1)
    memset(&filter, 0, sizeof(MessageFilter))
    memset(&got, 0, sizeof(Got))
    started = coarse_ns()
    store = engine.entered()
    try:
        filter_begin(&filter, tags, sql, keep)
        queue = find_queue(store, topic, queue_id)
        if queue == NULL and store.writable:
            # A put before this call may not be dispatched yet: it must be visible.
            with nogil:
                wait_for_earlier_puts(store)
            queue = find_queue(store, topic, queue_id)
        while True:                          # in slices, to handle signals and closing
            with nogil:
                rc = get_messages(store, queue, min(first, INT64_MOST >> 1), most, most_bytes,
                                  &filter, &got)
            if rc < 0:
                raise read_error(engine, store, rc, &got)
            if not got.paused:
                break
            PyErr_CheckSignals()
            store_leave(store)
            store = NULL
            store = engine.entered()
        if got.count == 0 and got.status >= GET_OFFSET_OVERFLOW_BADLY \
                and got.status != GET_OFFSET_TOO_SMALL and dispatch_is_stalled(store):
            raise stalled_error(store, engine._path)
        count_get(&store.figures, got.count, coarse_ns() - started)
    except BaseException:
        got_clear(&got)
        raise
    finally:
        if store != NULL:
            store_leave(store)
        filter_free(&filter)
    return types.GetResult(STATUSES[got.status], got_messages(engine, &got, topic),
                           got.next_offset, got.min_offset, got.max_offset)
