# Pulls of clients: stored records, and queues waited for.
#
# Source: broker/processor/PullMessageProcessor.java; broker/longpolling/PullRequestHoldService.java

@cython.final
cdef class PullFilter:
    """Filter of a subscription, parsed once for its pulls; immutable.

    ``tags`` and ``sql`` as for ``MessageStore.get``.  ``names``: tags, one of which a message must
    have; any characters are allowed, as in a broker.
    """

    cdef MessageFilter filter
    cdef list keep

    def __cinit__(self, tags=None, sql=None, names=None):
        memset(&self.filter, 0, sizeof(MessageFilter))
        self.keep = []
        if names is None:
            filter_begin(&self.filter, tags, sql, self.keep)
        else:
            filter_of_names(&self.filter, names, self.keep)

    def __dealloc__(self):
        filter_free(&self.filter)


cdef int filter_of_names(MessageFilter *filter, object names, list keep) except -1:
    cdef int64_t length = 0
    cdef const char *data
    if not names:
        raise ValueError("no tag")
    filter.active = True
    for name in names:
        data = utf8_of("names", name, &length)
        keep.append(name)
        if text_set_add(&filter.tags.names, data, length) < 0:
            raise MemoryError()
    if tags_ready(&filter.tags) < 0:
        raise MemoryError()
    return 0


cdef int pull_filter_begin(MessageFilter *filter, PullFilter made) except -1:
    """A filter of this call's own: its memory for SQL is not shared with other threads."""
    memset(filter, 0, sizeof(MessageFilter))
    if made is None or not made.filter.active:
        return 0
    filter.active = True
    filter.tags = made.filter.tags
    if made.filter.sql.program != NULL and sql_run_init(
            &filter.sql, made.filter.sql.program) < 0:
        raise MemoryError()
    return 0


cdef tuple pull_messages(
    OpenStore engine, object topic, object queue_id, int64_t offset, int64_t max_messages,
    int64_t max_bytes, PullFilter made, object opaque, bint at_once,
):
    """See ``Core.pull``."""
    cdef char[PULL_HEADER_ROOM] header
    cdef MessageFilter filter
    cdef Got got
    cdef Store *store
    cdef Topic *found
    cdef Queue *queue = NULL
    cdef bytes out = b""
    cdef char *at
    cdef int64_t length = 0
    cdef int64_t size = 0
    cdef int64_t rc = 0
    cdef int64_t started = coarse_ns()
    cdef const char *name = utf8_of("topic", topic, &length)
    cdef int32_t id = <int32_t>int_argument("queue_id", queue_id, 0, INT32_MAX)
    cdef int32_t number = 0
    cdef bint framed = opaque is not None
    if max_messages < 1 or max_bytes < 1:
        raise ValueError(f"a pull wants at least a message and a byte, got {max_messages} and "
                         f"{max_bytes}")
    if framed:
        number = <int32_t>int_argument("opaque", opaque, -INT32_MAX - 1, INT32_MAX)
    pull_filter_begin(&filter, made)
    memset(&got, 0, sizeof(Got))
    got.at_once = at_once
    try:
        store = engine.entered()
        try:
            found = topic_find(&store.table, name, length)
            if found != NULL:
                queue = queue_find(found, id)
            with nogil:
                rc = get_messages(
                    store, queue, max(-1, min(offset, INT64_MOST >> 1)),
                    min(max_messages, INT64_MOST >> 8), min(max_bytes, INT64_MOST >> 1), &filter,
                    &got)
            if rc < 0:
                raise read_error(engine, store, rc, &got)
            if got.count:
                size = got_bytes(&got)
                length = pull_header_write(&got, number, header) if framed else 0
                out = PyBytes_FromStringAndSize(
                    NULL, size + (length + FRAME_HEAD_BYTES if framed else 0))
                at = PyBytes_AS_STRING(out)
                if framed:
                    put_i32(at, <int32_t>(4 + length + size))
                    put_i32(at + 4, <int32_t>length)
                    memcpy(at + FRAME_HEAD_BYTES, header, <size_t>length)
                    at += FRAME_HEAD_BYTES + length
                with nogil:
                    rc = got_copy(&got, at)
                if rc < 0:
                    raise read_error(engine, store, rc, &got)
            count_get(&store.figures, got.count, coarse_ns() - started)
            return (STATUSES[got.status], got.next_offset, got.min_offset, got.max_offset,
                    got.count, out)
        finally:
            got_clear(&got)
            store_leave(store)
    finally:
        sql_run_free(&filter.sql)


@cython.final
cdef class QueueHolds:
    """Pulls held for messages, by number; used by one thread, of an engine open for writing."""

    cdef Store *store            # referenced; the queues exist while it is open
    cdef str path
    cdef HoldTable table

    def __cinit__(self, OpenStore engine not None):
        self.store = NULL
        memset(&self.table, 0, sizeof(HoldTable))
        self.table.free_place = -1
        store_writable(engine.store, engine._path)
        atomic_add(&engine.store.references, 1)
        self.path = engine._path
        self.store = engine.store
        store_leave(self.store)

    def __dealloc__(self):
        cdef Store *store = self.store
        free(self.table.holds)
        if store != NULL and store.fork_generation == fork_generation:
            with nogil:
                store_drop(store)

    def __len__(self):
        return self.table.held

    def add(self, topic, queue_id, int64_t offset):
        """Wait until a queue, perhaps empty yet, has a message at ``offset``; the hold's number."""
        cdef int64_t length = 0
        cdef const char *name = utf8_of("topic", topic, &length)
        cdef int32_t id = <int32_t>int_argument("queue_id", queue_id, 0, INT32_MAX)
        cdef Topic *entry
        cdef Queue *queue = NULL
        cdef int64_t at
        check_topic(name, length, topic)
        at = store_enter(self.store)
        if at < 0:
            raise status_error(at, NULL, self.path)
        entry = topic_enter(&self.store.table, name, length)
        if entry != NULL:
            queue = queue_find(entry, id)
            if queue == NULL:
                queue = queue_enter(&self.store.table, entry, id)
        store_leave(self.store)
        if queue == NULL:
            raise MemoryError()
        at = holds_add(&self.table, queue, offset)
        if at < 0:
            raise MemoryError()
        return at

    cdef QueueHold *hold_at(self, int64_t number) except NULL:
        if not 0 <= number < self.table.count or self.table.holds[number].queue == NULL:
            raise KeyError(number)
        return &self.table.holds[number]

    def set_offset(self, int64_t number, int64_t offset):
        """Wait for another offset from now on."""
        self.hold_at(number).offset = offset

    def remove(self, int64_t number):
        """Remove a hold; its number may be reused."""
        self.hold_at(number)
        holds_remove(&self.table, number)

    def moved(self):
        """Numbers of all holds whose queue has reached their offset; none of a closed store."""
        cdef list found = []
        cdef int64_t at
        if store_enter(self.store) < 0:
            return found
        try:
            at = holds_next(&self.table, 0)
            while at >= 0:
                found.append(at)
                at = holds_next(&self.table, at + 1)
        finally:
            store_leave(self.store)
        return found
