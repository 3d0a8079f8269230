# The reading methods, as Python calls them.

cdef object got_messages(Got *got, int64_t max_body):
    """A list of messages that take over what was found."""
    cdef list messages = []
    cdef int64_t i
    try:
        for i in range(got.count):
            messages.append(message_of(&got.items[i], max_body))
    finally:
        got_clear(got)
    return messages


cdef Queue *find_queue(Store *store, object topic, object queue_id) except? NULL:
    """The queue's state, NULL if there is none."""
    cdef int64_t length = 0
    cdef const char *name = utf8_of("topic", topic, &length)
    cdef int64_t id = int_argument("queue_id", queue_id, 0, 0x7FFFFFFF)
    cdef Topic *found
    with nogil:
        look_for_queues(store)
    found = topic_find(&store.table, name, length)
    return NULL if found == NULL else queue_find(found, <int32_t>id)


cdef int parse_tags(object tags, TagFilter *filter, list keep) except -1:
    """A RocketMQ tag expression: names with || between them, or * for all."""
    cdef int64_t length = 0
    cdef const char *data
    filter.count = 0
    if tags is None:
        return 0
    if not PyUnicode_Check(tags):
        raise TypeError(f"argument 'tags' is {tags!r}; it may be a str such as 'TagA || TagB'")
    if tags.strip() in ("", "*"):
        return 0
    for name in tags.split("||"):
        name = name.strip()
        if not name:
            continue
        if filter.count == FILTER_TAGS_MAX:
            raise errors.FilterError(f"more than {FILTER_TAGS_MAX} tags", tags.index(name))
        data = utf8_of("tags", name, &length)
        keep.append(name)
        filter.texts[filter.count] = data
        filter.lengths[filter.count] = length
        filter.codes[filter.count] = java_hash_utf8(data, length, 0)
        filter.count += 1
    if filter.count == 0:
        raise errors.FilterError(f"no tag in {tags!r}", 0)
    return 0


cdef class ReadingEngine(WritingEngine):
    """get, query and what the mappings of topics and queues stand on."""

    def get(self, topic, queue_id, offset, max_messages=32, *, max_bytes=None, tags=None):
        """Read messages of one queue from a queue offset on.

        Parameters
        ----------
        topic : str
        queue_id : int
        offset : int
            Queue offset of the first message wanted.
        max_messages : int, optional
            At most so many, and so many where they are there; 1 or more.
        max_bytes : int, optional
            Stop before the records take more; one is always returned.
        tags : str, optional
            ``"TagA || TagB"``; compared exactly.

        Returns
        -------
        GetResult

        Raises
        ------
        StoreCorruptError
            A record does not check.
        TypeError, ValueError, FilterError
            An argument is not what it may be.
        StoreClosedError, ForkedStoreError

        Notes
        -----
        With a filter at most ``max(16000, 20 * max_messages)`` bytes of units are looked at;
        ``next_offset`` is where to go on.
        Source: ``store/DefaultMessageStore.java getMessage``.
        """
        cdef Store *store
        cdef Queue *queue
        cdef Got got
        cdef TagFilter filter
        cdef int64_t rc
        cdef list keep = []
        cdef int64_t first = int_argument("offset", offset, INT64_LEAST, INT64_MOST)
        cdef int64_t most = int_argument("max_messages", max_messages, 1, INT64_MOST >> 8)
        cdef int64_t most_bytes = INT64_MOST >> 1
        if max_bytes is not None:
            most_bytes = int_argument("max_bytes", max_bytes, 1, INT64_MOST >> 1)
        parse_tags(tags, &filter, keep)
        memset(&got, 0, sizeof(Got))
        store = self.entered()
        try:
            queue = find_queue(store, topic, queue_id)
            if queue == NULL and store.writable:
                # It may be on its way: what was put before this call is to be seen.
                with nogil:
                    wait_visible(store, atomic_get_strict(&store.log.wrote),
                                 monotonic_ns() + 1000000000)
                queue = find_queue(store, topic, queue_id)
            with nogil:
                rc = get_messages(store, queue, min(first, INT64_MOST >> 1), most, most_bytes,
                                  &filter, &got)
            if rc < 0:
                got_clear(&got)
                raise self.read_error(store, rc, &got)
            if got.count == 0 and got.status >= GET_OFFSET_OVERFLOW_BADLY \
                    and got.status != GET_OFFSET_TOO_SMALL and dispatch_is_stalled(store):
                got_clear(&got)
                raise stalled_error(store, self._path)
        finally:
            store_leave(store)
        return types.GetResult(STATUSES[got.status], got_messages(&got, self.max_body),
                               got.next_offset, got.min_offset, got.max_offset)

    cdef object read_error(self, Store *store, int64_t rc, Got *got):
        if rc == E_CORRUPT and got.unit_is_bad:
            return corrupt_unit(self._path, &got.queue.files, got.bad_offset, got.field)
        if rc == E_CORRUPT:
            return corrupt_record(self._path, store.log.file_size, got.bad_offset, got.field)
        return unreadable_error(store, got.queue, rc, self._path)

    def at(self, physical_offset):
        """Return the message whose record begins at a byte of the commit log.

        Parameters
        ----------
        physical_offset : int

        Returns
        -------
        Message

        Raises
        ------
        MessageNotFoundError
            The log has no such byte, or what begins there stands for bytes that were lost.
        StoreCorruptError
            No good record begins there.

        Notes
        -----
        Source: ``store/DefaultMessageStore.java lookMessageByOffset``.
        """
        cdef int64_t offset = int_argument("physical_offset", physical_offset, 0, INT64_MOST)
        cdef Store *store = self.entered()
        cdef Found found
        cdef int64_t rc, field
        with nogil:
            log_look(store)
            rc = log_record(store, offset, 0, &found, &field)
            if rc == E_CORRUPT and not_recovered(store, offset):
                rc = E_NOT_FOUND
            if rc > 0 and (record_is_filler(&found.record)
                           or is_left_out(store, found.slice.data, &found.record)):
                slice_release(&found.slice)
                rc = E_NOT_FOUND
            store_leave(store)
        if rc > 0:
            return message_of(&found, self.max_body)
        if rc == E_CORRUPT:
            raise corrupt_record(self._path, store.log.file_size, offset, field)
        if rc == 0 or rc == E_NOT_FOUND or rc == E_REMOVED:
            raise errors.MessageNotFoundError(f"{self._path}: no message at {offset}")
        raise unreadable_error(store, NULL, rc, self._path)

    def query(self, topic, key, *, max_num=None, begin=None, end=None, index_only=False):
        """Find the messages of a topic that have a key.

        Parameters
        ----------
        topic, key : str
            ``key`` is one of KEYS or UNIQ_KEY, compared exactly.
        max_num : int, optional
            At most so many; all by default.
        begin, end : int, datetime or str, optional
            Store times, both inclusive.
        index_only : bool, optional
            Do not search the parts of the log that no index file covers.

        Returns
        -------
        list of Message
            Newest first.

        Raises
        ------
        StoreCorruptError
            A record or an index chain that is in the way does not check.
        TypeError, ValueError
            An argument is not what it may be.
        StoreClosedError, ForkedStoreError

        Notes
        -----
        Source: ``store/DefaultMessageStore.java queryMessage``.
        """
        cdef Store *store
        cdef Got got
        cdef Offsets hits
        cdef KeyQuery query
        cdef int64_t rc
        memset(&got, 0, sizeof(Got))
        memset(&hits, 0, sizeof(Offsets))
        set_query(&query, topic, key, max_num, begin, end, index_only)
        query.records = True
        store = self.entered()
        with nogil:
            rc = query_run(store, &query, &got, &hits)
            store_leave(store)
        if rc < 0:
            got_clear(&got)
            raise self.read_error(store, rc, &got)
        return got_messages(&got, self.max_body)

    def _locate(self, topic, keys, object max_num, object begin, object end,
                bint index_only):
        """Physical offsets of the hits of many keys, and where each key's begin, as memory."""
        cdef Got got
        cdef Offsets hits
        cdef Memory starts
        memset(&got, 0, sizeof(Got))
        memset(&hits, 0, sizeof(Offsets))
        starts = self.query_keys(topic, keys, max_num, begin, end, index_only, False, &got, &hits)
        return memory_of(hits.items, hits.count * 8), hits.count, starts

    def _query_many(self, topic, keys, object max_num, object begin, object end,
                    bint index_only):
        """The messages of many keys: a list for each."""
        cdef Got got
        cdef Offsets hits
        cdef Memory starts
        cdef int64_t *start
        cdef int64_t i = 0
        memset(&got, 0, sizeof(Got))
        memset(&hits, 0, sizeof(Offsets))
        starts = self.query_keys(topic, keys, max_num, begin, end, index_only, True, &got, &hits)
        start = <int64_t *>starts.data
        messages = got_messages(&got, self.max_body)
        found = []
        while (i + 1) * 8 < starts.length:
            found.append(messages[start[i]:start[i + 1]])
            i += 1
        return found

    cdef Memory query_keys(self, object topic, object keys, object max_num, object begin,
                           object end, bint index_only, bint records, Got *got, Offsets *hits):
        """Query each key into ``got`` or ``hits``; where each key's hits begin."""
        cdef ColumnInput column = text_column("keys", keys, False)
        cdef int64_t count = count_rows((column,))
        cdef Memory starts = memory_new((count + 1) * 8)
        cdef Store *store
        cdef KeyQuery query
        cdef int64_t rc
        set_query(&query, topic, "", max_num, begin, end, index_only)
        query.records = records
        store = self.entered()
        try:
            with nogil:
                rc = query_each(store, &query, &column.view, count, got, hits,
                                <int64_t *>starts.data)
            if rc < 0:
                got_clear(got)
                free(hits.items)
                raise self.read_error(store, rc, got)
        finally:
            store_leave(store)
        return starts

    def index_coverage(self):
        """Return the ranges of the commit log that the index covers.

        Returns
        -------
        list of (int, int)
            Start and stop, physical offsets in bytes, oldest first.

        Notes
        -----
        Source: ours.
        """
        cdef Store *store = self.entered()
        cdef Offsets ranges
        cdef int64_t rc
        cdef int64_t i = 0
        memset(&ranges, 0, sizeof(Offsets))
        with nogil:
            if not store.writable:
                index_set_list(&store.indexes, NULL)
                index_set_ready(store)
            rc = index_covered(store, &ranges)
            store_leave(store)
        found = []
        while i < ranges.count:
            found.append((ranges.items[i], ranges.items[i + 1]))
            i += 2
        free(ranges.items)
        check(rc, NULL, self._path)
        return found

    def _bounds(self, topic, queue_id):
        """(min, max) of a queue as of now; None if there is no such queue."""
        cdef Store *store = self.entered()
        cdef Queue *queue
        cdef Got got
        cdef int64_t rc
        try:
            if store.writable:
                with nogil:
                    wait_visible(store, atomic_get_strict(&store.log.wrote),
                                 monotonic_ns() + 1000000000)
            queue = find_queue(store, topic, queue_id)
            if queue == NULL:
                return None
            memset(&got, 0, sizeof(Got))
            with nogil:
                rc = queue_bounds(store, queue, INT64_MOST, &got)
            if rc < 0:
                raise unreadable_error(store, queue, rc, self._path)
            return got.min_offset, got.max_offset
        finally:
            store_leave(store)

    def _units(self, topic, queue_id, int64_t start, int64_t stop):
        """The bytes of units [start, stop) of a queue."""
        cdef Store *store = self.entered()
        cdef Queue *queue
        cdef Slice slice
        cdef Memory memory
        cdef int64_t rc, at
        try:
            queue = find_queue(store, topic, queue_id)
            memory = memory_new(max(0, stop - start) * UNIT_BYTES if queue != NULL else 0)
            at = start
            while queue != NULL and at < stop:
                with nogil:
                    rc = queue_units(queue, at, stop - at, &slice)
                if rc <= 0:
                    slice_release(&slice)
                    raise unreadable_error(store, queue, rc if rc < 0 else E_REMOVED, self._path)
                memcpy(memory.data + (at - start) * UNIT_BYTES, slice.data,
                       <size_t>(rc * UNIT_BYTES))
                at += rc
                rc = slice_lost(&slice)
                slice_release(&slice)
                if rc < 0:
                    raise status_error(rc, NULL, self._path)
            return memory
        finally:
            store_leave(store)

    def _store_time(self, topic, queue_id, int64_t queue_offset):
        """Store time of a queue's message in ms; -1 if it is gone."""
        cdef Store *store = self.entered()
        cdef Queue *queue
        cdef Unit unit
        cdef Found found
        cdef Got got
        cdef int64_t rc
        memset(&got, 0, sizeof(Got))
        try:
            queue = find_queue(store, topic, queue_id)
            if queue == NULL:
                return -1
            with nogil:
                rc = queue_unit_at(queue, queue_offset, &unit)
                if rc == 0:
                    rc = queue_record(store, queue, queue_offset, &unit, &found, &got.field)
            if rc == E_REMOVED or rc == E_NOT_FOUND:
                return -1
            if rc <= 0:
                got.bad_offset = unit.physical_offset
                got.queue = queue
                raise self.read_error(store, rc, &got)
            time = found.record.store_timestamp
            slice_release(&found.slice)
            return time
        finally:
            store_leave(store)


cdef int set_query(KeyQuery *query, object topic, object key, object max_num, object begin,
                   object end, bint index_only) except -1:
    """Fill in a query; the strings must be kept while it runs."""
    memset(query, 0, sizeof(KeyQuery))
    query.topic = utf8_of("topic", topic, &query.topic_length)
    query.key = utf8_of("key", key, &query.key_length)
    query_hash(query)
    query.max_num = INT64_MOST
    if max_num is not None:
        query.max_num = int_argument("max_num", max_num, 1, INT64_MOST)
    query.begin = INT64_LEAST
    query.end = INT64_MOST
    if begin is not None:
        query.begin = times.to_millis(begin, name="begin")
    if end is not None:
        query.end = times.to_millis(end, name="end")
    query.index_only = index_only
    return 0
