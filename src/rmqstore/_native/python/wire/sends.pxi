# Plain sends of a gateway's clients: from their frames to the log.
#
# Source: broker/processor/SendMessageProcessor.java; broker/topic/TopicConfigManager.java

cdef enum:
    QUIET_MAX = 64 << 10         # bytes of a run that the loop dispatches itself

# Long names of a send's fields, in the order of the short ones.
SEND_FIELD_NAMES = tuple([SEND_NAMES[i].decode("ascii") for i in range(SEND_FIELDS)])


@cython.final
cdef class ClientSends:
    """Sends of all connections of a gateway; used by its loop's thread.

    ``engine``: open for writing; ``cluster``: written to records; ``region``: to answers.

    Attributes
    ----------
    unflushed : bool
        With synchronous flush: something was stored since ``flush``.
    undispatched : bool
        Something was stored without a wake-up of the dispatch thread.
    offsets : dict or None
        Known offsets of the groups: commits of these end here.
    """

    cdef OpenStore engine
    cdef SendRun run
    cdef SendNames names
    cdef bytes cluster
    cdef bytes region
    cdef public bint unflushed
    cdef bint undispatched
    cdef public dict offsets
    cdef int64_t requests_v2     # stored, by their code
    cdef int64_t requests_long
    cdef int64_t requests_batch
    cdef int64_t requests_offset

    def __cinit__(self, OpenStore engine not None, str cluster not None, str region not None):
        cdef Text quoted
        memset(&self.run, 0, sizeof(SendRun))
        text_init(&self.run.text, NULL, 0)
        text_init(&self.run.plain, NULL, 0)
        text_init(&quoted, NULL, 0)
        self.engine = engine
        self.cluster = cluster.encode()
        try:
            add_json(&quoted, region)
            self.region = quoted.data[:quoted.length]
        finally:
            text_free(&quoted)
        self.names.cluster = PyBytes_AS_STRING(self.cluster)
        self.names.cluster_length = len(self.cluster)
        self.names.region = PyBytes_AS_STRING(self.region)
        self.names.region_length = len(self.region)

    def __dealloc__(self):
        run_free(&self.run)

    def set_topic(self, str topic not None, int64_t queue_nums):
        """Let clients send to the queues below ``queue_nums`` of a topic; 0: to none this way."""
        cdef int64_t length = 0
        cdef const char *name = utf8_of("topic", topic, &length)
        cdef Topic *entry
        cdef Store *store
        check_topic(name, length, topic)
        store = self.engine.entered()
        entry = topic_enter(&store.table, name, length)
        if entry != NULL:
            atomic_set(&entry.client_queue_nums, queue_nums)
        store_leave(store)
        if entry == NULL:
            raise MemoryError()

    def counts(self):
        """``{topic: (messages, bytes of their records)}`` of all sent this way."""
        cdef Store *store = self.engine.entered()
        cdef Topic *topic = load_topic(&store.table.first)
        cdef int64_t messages
        cdef dict found = {}
        while topic != NULL:
            messages = atomic_peek(&topic.client_messages)
            if messages:
                found[topic.name[:topic.length].decode("ascii")] = (
                    messages, atomic_peek(&topic.client_bytes))
            topic = load_topic(&topic.next_made)
        store_leave(store)
        return found

    def requests(self):
        """Numbers of requests completed here, by code; nonzero ones only."""
        counts = {CODE_SEND: self.requests_long, CODE_SEND_V2: self.requests_v2,
                  CODE_SEND_BATCH: self.requests_batch, CODE_UPDATE_OFFSET: self.requests_offset}
        return {code: count for code, count in counts.items() if count}

    def flush(self):
        """Have the log's own thread force it to the disk."""
        cdef Store *store
        self.unflushed = False
        store_writable(self.engine.store, self.engine._path)
        store = self.engine.store
        worker_call(&store.flush.log_worker)
        store_leave(store)


cdef int64_t sends_store(ClientSends sends) except -1:
    """Append the run; the number of its requests stored, from the first on."""
    cdef SendRun *run = &sends.run
    cdef OpenStore engine = sends.engine
    cdef Store *store = engine.store
    cdef int64_t status = E_BUSY
    cdef int64_t done = 0
    cdef int64_t good = 0
    cdef int64_t first, i
    cdef int64_t how = APPEND_WHOLE if run.whole else APPEND_EACH
    cdef int64_t started = coarse_ns()
    cdef Topic *topic
    if store == NULL or store_enter(store) < 0:
        return 0
    try:
        if not store.writable or atomic_get(&store.failed) != 0 \
                or atomic_get(&store.dispatch.stalled) != 0:
            return 0
        if run.size <= QUIET_MAX and not store.settings.sync_flush:
            how |= APPEND_QUIET
            sends.undispatched = True
        if run.size <= SMALL_BODY:
            done = run_append(store, run, how | APPEND_AT_ONCE, &status)
        if done < run.count and status == E_BUSY:
            with nogil:
                if run.size <= SMALL_BODY:
                    done = run_append_from(store, run, done, how, &status)
                else:
                    done = run_append(store, run, how, &status)
        while good < run.send_count \
                and run.sends[good].first + run.sends[good].count <= done:
            first = run.sends[good].first
            topic = run.queues[first].topic
            keep_topic(engine, topic, run.appended[first].physical_offset)
            atomic_set(&topic.client_messages,
                       atomic_peek(&topic.client_messages) + run.sends[good].count)
            for i in range(first, first + run.sends[good].count):
                atomic_set(&topic.client_bytes,
                           atomic_peek(&topic.client_bytes) + run.messages[i].size)
            if run.sends[good].code == CODE_SEND_V2:
                sends.requests_v2 += 1
            elif run.sends[good].code == CODE_SEND:
                sends.requests_long += 1
            else:
                sends.requests_batch += 1
            good += 1
            count_put_time(&store.figures, coarse_ns() - started)
        if good and store.settings.sync_flush:
            sends.unflushed = True
        # Last: no acknowledgement after a failed sync.
        return 0 if unlikely(atomic_get_strict(&store.failed) != 0) else good
    finally:
        store_leave(store)
