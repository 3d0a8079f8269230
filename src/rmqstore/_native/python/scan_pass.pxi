# Pass of a scan, for Python and for readers of Arrow streams.
#
# Source: Apache Arrow, "The Arrow PyCapsule interface"

cdef tuple POLICIES = ("raise", "skip", "stop")
COLUMN_NAMES = init_columns()

cdef enum:
    PASS_ROWS                    # a batch is full
    PASS_GOES_ON                 # a slice of the log was examined, and there is more
    PASS_ENDED


cdef struct PassStream:
    Scan *scan
    Turn *turn
    PyObject *owner              # the ScanPass, held


cdef int64_t pass_begin(Scan *scan, Turn *turn) noexcept nogil:
    """Take the turn: 0; E_FORKED if a thread of the parent may have it forever; or -EDEADLOCK."""
    if scan.store.fork_generation != fork_generation:
        return E_FORKED
    return turn_wait(turn, INT64_MAX)


cdef int64_t pass_slice(Scan *scan) noexcept nogil:
    """Continue for a slice: PASS_..., or the status of a store that cannot be read any more."""
    cdef Store *store = scan.store
    cdef int64_t rc = store_enter(store)
    if rc < 0:
        return rc
    rc = derive_if_needed(store)
    if rc == 0:
        rc = scan_slice(scan)
    store_leave(store)
    if rc < 0 and scan.status == 0:
        return rc
    if scan.batch.rows and (scan.ended or scan_batch_full(scan)):
        return PASS_ROWS
    return PASS_ENDED if scan.ended else PASS_GOES_ON


@cython.final
cdef class ScanPass:
    """One pass over messages: batches of columns, or messages, until the end."""

    cdef OpenStore engine
    cdef Scan scan
    cdef Turn turn               # one caller at a time
    cdef list keep
    cdef bytes last_error
    cdef ScanPass whole          # the pass that this one is a part of

    def __cinit__(self, OpenStore engine, tuple columns, tuple topics, int64_t queue_id,
                  int64_t start, int64_t stop, int64_t since, int64_t until, tags, sql,
                  tuple keys, int64_t batch_rows, int64_t batch_bytes, str on_corruption,
                  str on_removed, bint messages):
        cdef Scan *scan = &self.scan
        cdef int64_t[SCAN_COUNT] fields
        cdef int64_t i
        atomic_set(&self.turn.holder, 0)
        memset(scan, 0, sizeof(Scan))
        self.engine = engine
        self.keep = []
        scan.store = engine.store
        if scan.store == NULL:
            raise status_error(E_CLOSED, NULL, engine._path)
        i = store_enter(scan.store)          # only a check: nothing is read yet
        if i < 0:
            raise status_error(i, NULL, engine._path)
        store_leave(scan.store)
        for i in range(len(columns)):
            fields[i] = columns[i]
        if batch_init(&scan.batch, fields, len(columns)) < 0:
            raise MemoryError()
        if messages:
            scan.messages = <Got *>calloc(1, sizeof(Got))
            if scan.messages == NULL:
                raise MemoryError()
        scan.batch.max_body = engine.max_body
        take_texts(&scan.filter.topics, topics, self.keep)
        take_texts(&scan.filter.keys, keys, self.keep)
        filter_begin(&scan.filter.messages, tags, sql, self.keep)
        scan.filter.queue_id = queue_id
        scan.filter.since = since
        scan.filter.until = until
        scan.start = start
        scan.stop = stop
        scan.batch_rows = batch_rows
        scan.batch_bytes = batch_bytes
        scan.on_corruption = POLICIES.index(on_corruption)
        scan.on_removed = POLICIES.index(on_removed)

    def __dealloc__(self):
        scan_free(&self.scan)

    cdef int64_t fill(self) except -1:
        """Fill the batch, with checks for signals; whether there are rows.

        If so, the caller has the turn, takes the rows, and ends it.
        """
        cdef int64_t rc = PASS_GOES_ON
        while True:
            with nogil:
                rc = pass_begin(&self.scan, &self.turn)
                if rc == 0:
                    rc = pass_slice(&self.scan)
                    if rc != PASS_ROWS:
                        turn_end(&self.turn)
            if rc == PASS_ROWS:
                return True
            if rc < 0:
                raise (self.failure(rc) if rc == -EDEADLOCK else
                       unreadable_error(self.scan.store, NULL, rc, self.engine._path))
            if rc == PASS_ENDED:
                self.end()
                return False
            PyErr_CheckSignals()

    cdef int end(self) except -1:
        """Raise the error that ended the pass, once."""
        cdef int64_t status
        with cython.critical_section(self):
            status = self.scan.status
            self.scan.status = 0
        if status < 0:
            raise self.failure(status)
        return 0

    cdef object failure(self, int64_t status):
        cdef Scan *scan = &self.scan
        if status == E_CORRUPT and scan.removed_queue != NULL:
            return corrupt_unit(self.engine._path, &scan.removed_queue.files, scan.bad_offset,
                                scan.field)
        if status == E_CORRUPT:
            return corrupt_record(self.engine._path, &scan.store.log, scan.bad_offset,
                                  scan.field)
        if status == E_REMOVED:
            if scan.removed_queue == NULL:
                return errors.MessagesRemovedError("", -1, scan.removed_offset, scan.min_offset)
            return errors.MessagesRemovedError(
                text_of(scan.removed_queue.topic.name, scan.removed_queue.topic.length),
                scan.removed_queue.id, scan.removed_offset, scan.min_offset)
        if status == E_VERSION and scan.error != NULL:
            return <object>scan.error
        if status == -EDEADLOCK:
            return RuntimeError(f"{self.engine._path}: the scan was asked for more from within a "
                                "call of this thread that it waits for")
        return unreadable_error(scan.store, NULL, status, self.engine._path)

    def next_batch(self):
        """Return the next rows as a ``ColumnBatch``, None at the end."""
        cdef ColumnBatch batch
        cdef int64_t rc
        batch = ColumnBatch.__new__(ColumnBatch)
        if not self.fill():
            return None
        batch.rows = self.scan.batch.rows
        batch.bytes = self.scan.batch.bytes
        with nogil:
            rc = batch_export(&self.scan.batch, &batch.array)
            if rc == 0:
                rc = batch_type(&self.scan.batch, &batch.schema)
            turn_end(&self.turn)
        if rc < 0:
            raise MemoryError()
        return batch

    def next_messages(self):
        """Return the next messages as a list, None at the end."""
        cdef Got got
        if not self.fill():
            return None
        got = self.scan.messages[0]
        memset(self.scan.messages, 0, sizeof(Got))
        self.scan.batch.rows = 0
        self.scan.batch.bytes = 0
        turn_end(&self.turn)
        return got_messages(self.engine, &got, None)

    def count(self):
        """Return the number of remaining rows without building columns."""
        cdef int64_t found = 0
        while self.fill():
            found += self.scan.batch.rows
            self.scan.batch.rows = 0
            self.scan.batch.bytes = 0
            turn_end(&self.turn)
        return found

    def begin(self):
        """Fix the head, the path and the range, and read nothing.

        Return the range and the bytes of its records, as (start, stop, bytes), to be read by
        parts in place of this pass; None if it is not to be cut.
        """
        cdef Extent extent
        cdef int64_t rows = self.scan.batch_rows
        cdef int64_t rc
        cdef bint cut = False
        with nogil:
            rc = pass_begin(&self.scan, &self.turn)
            if rc == 0:
                self.scan.batch_rows = 0     # as if the batch were full
                rc = pass_slice(&self.scan)
                self.scan.batch_rows = rows
                cut = rc == PASS_GOES_ON and store_enter(self.scan.store) == 0
                if cut:
                    cut = scan_extent(&self.scan, &extent)
                    store_leave(self.scan.store)
                turn_end(&self.turn)
        if rc < 0:
            raise (self.failure(rc) if rc == -EDEADLOCK else
                   unreadable_error(self.scan.store, NULL, rc, self.engine._path))
        return (extent.start, extent.stop, extent.bytes) if cut else None

    def cut(self, int64_t at):
        """Return where to cut the range near ``at``, at or before it."""
        cdef int64_t rc
        with nogil:
            rc = store_enter(self.scan.store)
            if rc == 0:
                at = scan_cut(&self.scan, at)
                store_leave(self.scan.store)
        check(rc, &self.scan.store.failure, self.engine._path)
        return at

    def be_part(self, ScanPass whole, int64_t start, int64_t stop):
        """Read [start, stop) of a pass that has begun, and is read no more itself."""
        self.whole = whole
        self.scan.whole = &whole.scan
        self.scan.start = start
        self.scan.stop = stop
        self.expect(whole)

    def seek(self, bytes text not None, bint ignore_case, bint properties):
        """Leave out records without a text, before the first batch; not if they are compressed.

        Of a long text only its beginning is looked for, which bounds the time.
        """
        cdef Sought *sought = &self.scan.filter.text
        cdef int64_t i
        sought.length = min(len(text), SOUGHT_BYTES)
        for i in range(sought.length):
            sought.bits[i] = 0x20 if ignore_case and text[i:i + 1].isalpha() else 0
            sought.bytes[i] = <char>text[i] | sought.bits[i]
        self.scan.filter.text_in_properties = properties

    def expect(self, ScanPass like):
        """Expect as much of the next batch as another pass of these columns, in nobody's use."""
        cdef int64_t i
        for i in range(self.scan.batch.count):
            column_expect(&self.scan.batch.columns[i], &like.scan.batch.columns[i])

    @property
    def stopped(self):
        """Whether the pass ended at damage, as ``on_corruption="stop"`` has it."""
        return self.scan.stopped

    def extent(self, bint queued_too=True):
        """Return the log's begin, the end of its fully queued part, and its end.

        Below the second offset every record has a unit in a queue: paths along queues or by the
        index miss none.  It equals the first if it is unknown, or not requested (``queued_too``),
        as it takes a read of every unit.
        """
        cdef Store *store = self.scan.store
        cdef int64_t first = 0
        cdef int64_t queued = 0
        cdef int64_t end = 0
        cdef int64_t all_queued = 0
        cdef int64_t rc
        with nogil:
            rc = store_enter(store)
            if rc == 0:
                rc = derive_if_needed(store)
                end = scan_head(store, LOG_AND_QUEUES)
                first = min(log_first(store), end)
                if rc == 0 and queued_too:
                    queued = min(newest_unit_end(store, LISTED_NOW), end)
                    all_queued = log_is_all_queued(store, queued)
                store_leave(store)
        check(min(rc, all_queued), &store.failure, self.engine._path)
        return first, max(first, queued) if all_queued else first, end

    def narrowed(self, int64_t start, int64_t stop):
        """Return the part of a log range that the scan's store times leave."""
        cdef Store *store = self.scan.store
        cdef int64_t rc
        with nogil:
            rc = store_enter(store)
            if rc == 0:
                times_narrow(store, self.scan.filter.since, self.scan.filter.until,
                             scan_head(store, LOG_ALONE), &start, &stop)
                store_leave(store)
        check(rc, &store.failure, self.engine._path)
        return start, stop

    def schema(self):
        """Return the type of the batches: a capsule as from ``__arrow_c_schema__``."""
        cdef ArrowSchema *schema = <ArrowSchema *>calloc(1, sizeof(ArrowSchema))
        if schema == NULL or batch_type(&self.scan.batch, schema) < 0:
            if schema != NULL:
                arrow_release_schema(schema)
                free(schema)
            raise MemoryError()
        return PyCapsule_New(schema, b"arrow_schema", schema_capsule_free)

    def stream(self):
        """Return the batches: a capsule as from ``__arrow_c_stream__``."""
        cdef ArrowArrayStream *stream = <ArrowArrayStream *>calloc(1, sizeof(ArrowArrayStream))
        cdef PassStream *state = <PassStream *>calloc(1, sizeof(PassStream))
        if stream == NULL or state == NULL:
            free(stream)
            free(state)
            raise MemoryError()
        Py_INCREF(self)
        state.owner = <PyObject *>self
        state.scan = &self.scan
        state.turn = &self.turn
        stream.get_schema = stream_get_schema
        stream.get_next = stream_get_next
        stream.get_last_error = stream_get_last_error
        stream.release = stream_release
        stream.private_data = state
        return PyCapsule_New(stream, b"arrow_array_stream", stream_capsule_free)


cdef int take_texts(TextSet *wanted, tuple texts, list keep) except -1:
    """Point to the texts, which ``keep`` keeps alive."""
    cdef int64_t length = 0
    cdef const char *data
    for text in texts:
        keep.append(text)
        data = utf8_of("text", text, &length)
        if text_set_add(wanted, data, length) < 0:
            raise MemoryError()
    return 0


cdef extern from *:
    """
    static void *gil_release(void) { return PyGILState_Check() ? PyEval_SaveThread() : NULL; }
    static void gil_take(void *saved) {
        if (saved != NULL) PyEval_RestoreThread((PyThreadState *)saved);
    }
    """
    void *gil_release() noexcept nogil
    void gil_take(void *saved) noexcept nogil


cdef int stream_get_schema(ArrowArrayStream *stream, ArrowSchema *into) noexcept nogil:
    cdef PassStream *state = <PassStream *>stream.private_data
    cdef int64_t rc = batch_type(&state.scan.batch, into)
    if rc < 0:
        arrow_release_schema(into)
        return ENOMEM
    return 0


cdef int stream_get_next(ArrowArrayStream *stream, ArrowArray *into) noexcept nogil:
    cdef PassStream *state = <PassStream *>stream.private_data
    cdef int64_t rc
    # Some readers call with the GIL held: release it for other threads.
    cdef void *saved = gil_release()
    memset(into, 0, sizeof(ArrowArray))
    rc = pass_begin(state.scan, state.turn)
    if rc < 0:
        gil_take(saved)
        return pass_note_error(state.owner, rc)
    rc = PASS_GOES_ON
    while rc == PASS_GOES_ON:
        rc = pass_slice(state.scan)
        if rc == PASS_GOES_ON and pass_signals(state.scan) < 0:
            rc = E_VERSION
    if rc == PASS_ROWS:
        rc = batch_export(&state.scan.batch, into)
        if rc < 0:
            arrow_release_array(into)
    elif rc == PASS_ENDED:
        rc = state.scan.status
        state.scan.status = 0
    turn_end(state.turn)
    gil_take(saved)
    return pass_note_error(state.owner, rc) if rc < 0 else 0


cdef int64_t pass_signals(Scan *scan) noexcept with gil:
    """Check for signals: 0, or -1 with a handler's exception."""
    try:
        PyErr_CheckSignals()
    except BaseException as error:
        if scan.error != NULL:
            Py_DECREF(<object>scan.error)
        Py_INCREF(error)
        scan.error = <PyObject *>error
        return -1
    return 0


cdef const char *stream_get_last_error(ArrowArrayStream *stream) noexcept nogil:
    return pass_last_error((<PassStream *>stream.private_data).owner)


cdef void stream_release(ArrowArrayStream *stream) noexcept nogil:
    cdef PassStream *state = <PassStream *>stream.private_data
    inflated_free(state.owner)
    free(state)
    stream.release = NULL


cdef int pass_note_error(PyObject *owner, int64_t status) noexcept with gil:
    """Keep the text of the error; an errno for the reader of the stream."""
    cdef ScanPass scan_pass = <ScanPass>owner
    cdef bint of_store = status == E_CLOSED or status == E_FORKED
    if of_store:
        error = status_error(status, NULL, scan_pass.engine._path)
    else:
        error = scan_pass.failure(status)
    scan_pass.last_error = f"{type(error).__name__}: {error}".encode()
    if status == E_NO_MEMORY:
        return ENOMEM
    return <int>-status if -4096 < status < 0 else EIO


cdef const char *pass_last_error(PyObject *owner) noexcept with gil:
    cdef ScanPass scan_pass = <ScanPass>owner
    return NULL if scan_pass.last_error is None else PyBytes_AS_STRING(scan_pass.last_error)
