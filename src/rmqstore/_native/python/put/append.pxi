# Append of checked rows to the log: laid out in chunks, appended, waited for.
#
# Source: store/CommitLog.java asyncPutMessages, GroupCommitService

cdef enum:
    SMALL_BODY = 4096            # up to here an append is shorter than a release of the GIL
    CHUNK_ROWS = 512             # rows laid out, then appended, at a time
    CHUNK_TEXT = 1 << 16         # initial room for the properties strings of a chunk, in bytes
    SPARE_TEXT = 1 << 20         # a chunk with more room is not kept for reuse


cdef struct Chunk:
    int64_t rows
    int64_t multi_until          # messages below may have further queues
    Encoded *messages
    Queue **queues
    AppendResult *appended
    Text text


cdef extern from *:
    """
    #define swap_pointer(p, v) __atomic_exchange_n(p, v, __ATOMIC_ACQ_REL)
    """
    Chunk *swap_chunk "swap_pointer"(Chunk **at, Chunk *value) noexcept nogil


# The last chunk, kept for reuse: its pages are already populated.  Without it, put_many takes 160
# ns a message instead of 97 in calls of 100 rows of 128 bytes, and 106 instead of 88 in calls of
# 4,096 (processor time of the caller, best of 21).
cdef Chunk *spare_chunk = NULL


cdef Chunk *chunk_new(int64_t rows) except NULL:
    """Allocate a chunk for ``rows`` rows, in one piece of memory."""
    cdef Chunk *chunk = NULL
    cdef int64_t row = sizeof(Encoded) + sizeof(Queue *) + sizeof(AppendResult)
    if rows == CHUNK_ROWS:
        chunk = swap_chunk(&spare_chunk, NULL)
    if chunk != NULL:
        return chunk
    chunk = <Chunk *>malloc(sizeof(Chunk) + <size_t>(rows * row))
    if chunk == NULL:
        raise MemoryError()
    chunk.rows = rows
    chunk.multi_until = 0
    chunk.messages = <Encoded *>(chunk + 1)
    chunk.queues = <Queue **>(chunk.messages + rows)
    chunk.appended = <AppendResult *>(chunk.queues + rows)
    text_init(&chunk.text, NULL, 0)
    if text_reserve(&chunk.text, CHUNK_TEXT) < 0:
        free(chunk)
        raise MemoryError()
    return chunk


cdef void chunk_free(Chunk *chunk) noexcept nogil:
    """Keep the chunk for the next call, unless its size differs or its text grew large."""
    if chunk.rows == CHUNK_ROWS and chunk.text.room <= SPARE_TEXT:
        chunk = swap_chunk(&spare_chunk, chunk)
    if chunk != NULL:
        text_free(&chunk.text)
        free(chunk)


cdef void chunk_drop_multi(Chunk *chunk) noexcept nogil:
    """Free its messages' further queues."""
    while chunk.multi_until > 0:
        chunk.multi_until -= 1
        free(chunk.messages[chunk.multi_until].multi)


cdef int64_t chunk_fill(
    Store *store, const Limits *limits, const Rows *rows, int64_t first, int64_t count,
    Chunk *chunk,
) noexcept nogil:
    """Lay out ``count`` rows from ``first`` on, and find their queues."""
    cdef Row row = rows.same
    cdef Topic *topic
    cdef int32_t queue_id
    cdef int64_t i, rc
    chunk.text.length = 0
    for i in range(count):
        rows_get(rows, first + i, &row)
        if rows.is_mapped:
            row_join_map(limits, rows, &row)
        topic = rows.topics[0 if rows.one_topic else first + i]
        queue_id = <int32_t>rows.queue_ids[first + i]
        if row_encode(&store.settings, &row, topic, queue_id, &chunk.text,
                      &chunk.messages[i]) < 0:
            return E_NO_MEMORY
        if unlikely(row.multi.length > 0):
            chunk.multi_until = i + 1
            rc = row_encode_multi(store, &row, queue_id, &chunk.text, &chunk.messages[i])
            if rc < 0:
                return rc
        chunk.queues[i] = queue_find(topic, queue_id)
    for i in range(count):                   # offsets to addresses: the text may have moved
        chunk.messages[i].properties = chunk.text.data + <int64_t>chunk.messages[i].properties
    return 0


# Destination of row results, and the end of the last row.
cdef struct ResultColumns:
    int64_t *physical_offset
    int64_t *queue_offset
    int32_t *queue_id
    int64_t stop


cdef int64_t append_rows(
    Store *store, const Rows *rows, Chunk *chunk, ResultColumns *appended, int64_t *status,
) noexcept nogil:
    """Append all rows, chunk by chunk, advancing ``appended``; the number appended."""
    cdef int64_t done = 0
    cdef int64_t part, stored, i
    cdef Limits limits = limits_of(store)
    cdef Append append = Append(chunk.messages, chunk.queues, chunk.appended, 0, 0, APPEND_EACH)
    while done < rows.count and status[0] == 0:
        part = min(CHUNK_ROWS, rows.count - done)
        status[0] = chunk_fill(store, &limits, rows, done, part, chunk)
        if status[0] < 0:
            chunk_drop_multi(chunk)
            break
        append.count = part
        stored = log_append(store, &append, status)
        for i in range(stored):
            appended.physical_offset[i] = chunk.appended[i].physical_offset
            appended.queue_offset[i] = chunk.appended[i].queue_offset
            appended.queue_id[i] = chunk.messages[i].queue_id
        if stored:
            appended.stop = chunk.appended[stored - 1].physical_offset \
                + chunk.messages[stored - 1].size
        chunk_drop_multi(chunk)
        appended.physical_offset += stored
        appended.queue_offset += stored
        appended.queue_id += stored
        done += stored
    return done


cdef PutManyResult append_inputs(OpenStore engine, list inputs, bint wait):
    """Append checked rows with chosen queues, in order."""
    cdef Store *store = engine.store
    cdef PutManyResult result = PutManyResult.__new__(PutManyResult)
    cdef RowInput input
    cdef ResultColumns appended
    cdef Chunk *chunk
    cdef int64_t stored
    cdef int64_t count = 0
    cdef int64_t status = 0
    cdef int64_t started = coarse_ns()
    for input in inputs:
        rows_choose_queues(engine, input)
        count += input.rows.count
    result._physical_offset = memory_new(count * 8)
    result._queue_offset = memory_new(count * 8)
    result._queue_id = memory_new(count * 4)
    appended.physical_offset = <int64_t *>result._physical_offset.data
    appended.queue_offset = <int64_t *>result._queue_offset.data
    appended.queue_id = <int32_t *>result._queue_id.data
    appended.stop = 0
    chunk = chunk_new(CHUNK_ROWS)
    try:
        for input in inputs:
            with nogil:
                stored = append_rows(store, &input.rows, chunk, &appended, &status)
            result._count += stored
            result.stop = appended.stop
            keep_topics(engine, &input.rows, stored, appended.physical_offset - stored)
            if status < 0:
                break
    finally:
        chunk_free(chunk)
    if status == 0 and result._count and store.settings.sync_flush:
        if wait:
            wait_for_disk(store, result.stop, result._count, &status)
        else:
            worker_call(&store.flush.log_worker)
    if result._count:
        count_put_time(&store.figures, coarse_ns() - started)
    elif status < 0:
        atomic_add(&store.figures.put_failed, 1)
    return finish_rows(engine, result, status)


cdef int keep_topics(
    OpenStore engine, const Rows *rows, int64_t stored, const int64_t *physical_offset,
) except -1:
    """keep_topic, for the rows in the log."""
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


cdef PutManyResult finish_rows(OpenStore engine, PutManyResult result, int64_t status):
    """Result, or the error that ended the call."""
    if status == 0 and unlikely(atomic_get_strict(&engine.store.failed) != 0):
        status = E_FAILED
    if status == 0:
        return result
    if status == E_TIMEOUT:
        raise errors.PutError(
            f"{engine._path}: {result._count} rows are stored, but {not_on_disk(engine.store)}",
            status=types.PutStatus.FLUSH_DISK_TIMEOUT, result=result, stored=result._count)
    error = write_error(engine.store, engine._path, status)
    if isinstance(error, errors.PutError):
        error.stored = result._count
        error.result = result if result._count else None
    raise error


cdef int append_one(OpenStore engine, Append *append, bint wait, PutResult result) except -1:
    """Append a message, or a batch as a whole, and with synchronous flush wait for the disk."""
    cdef Store *store = engine.store
    cdef int64_t status = E_BUSY
    cdef int64_t done = 0
    cdef int64_t took
    cdef int64_t started = 0     # start of a wait; 0: its record has the time
    # An uncontended lock, a small copy and no system call: faster than releasing the GIL.
    if append.size <= SMALL_BODY:
        append.how = APPEND_WHOLE | APPEND_AT_ONCE
        done = log_append(store, append, &status)
    if done == 0 and status == E_BUSY:
        started = coarse_ns()
        append.how = APPEND_WHOLE
        with nogil:
            done = log_append(store, append, &status)
    if done == 0:
        atomic_add(&store.figures.put_failed, 1)
        raise write_error(store, engine._path, status)
    if unlikely(append.messages[0].multi != NULL):   # complete only now
        append.size = append.messages[0].size
    result.appended = append.appended[0]
    result.stop = result.appended.physical_offset + append.size
    result._queue_id = append.queues[0].id
    result._count = append.count
    memcpy(result.host, store.settings.store_host, HOST_V6_BYTES)
    result.v6 = store.settings.store_host_length == HOST_V6_BYTES
    keep_topic(engine, append.queues[0].topic, result.appended.physical_offset)
    if store.settings.sync_flush:
        if wait:
            wait_acknowledged(engine, result)
        else:
            worker_call(&store.flush.log_worker)
    if started:
        took = coarse_ns() - started
    else:
        took = (coarse_wall_millis() + atomic_peek(&store.clock_shift)
                - result.appended.store_timestamp) * 1000000
    count_put_time(&store.figures, took)
    # Last: no acknowledgement after a failed sync.
    if unlikely(atomic_get_strict(&store.failed) != 0):
        raise write_error(store, engine._path, E_FAILED)
    return 0


cdef int wait_for_disk(Store *store, int64_t stop, int64_t count, int64_t *status) except -1:
    """wait_durable in slices, to handle signals; a handler's exception notes the stored rows."""
    cdef int64_t until = monotonic_ns() + store.settings.sync_flush_timeout
    while True:
        with nogil:
            status[0] = wait_durable(store, stop, min(until, monotonic_ns() + WAIT_SLICE_NS))
        if status[0] != E_TIMEOUT or monotonic_ns() >= until:
            return 0
        try:
            PyErr_CheckSignals()
        except BaseException as error:
            error.add_note(f"{count} messages, of which the log ends at {stop}, are stored; "
                           "they were not on the disk yet")
            raise


cdef int wait_acknowledged(OpenStore engine, PutResult result) except -1:
    """Wait until the record is durable, or until 4.9.3's time-out."""
    cdef Store *store = engine.store
    cdef int64_t rc
    wait_for_disk(store, result.stop, result._count, &rc)
    if rc == E_TIMEOUT:
        raise late_error(store, result, engine._path)
    if rc < 0:
        raise status_error(rc, &store.failure, engine._path)
    return 0


cdef object late_error(Store *store, PutResult result, str root):
    """Exception for a message in the log that was not on the disk in time."""
    result._status = 1
    return errors.PutError(
        f"{root}: stored at {result.physical_offset}, but {not_on_disk(store)}",
        status=types.PutStatus.FLUSH_DISK_TIMEOUT, result=result, stored=result._count)


cdef str not_on_disk(Store *store):
    """End of a time-out's message, with the reason if no file could be opened to sync it."""
    cdef int64_t rc = atomic_get(&store.flush.unflushed)
    text = f"not on the disk within {store.settings.sync_flush_timeout // 1000000} ms"
    return f"{text}: {strerror(ENOMEM if rc == E_NO_MEMORY else -rc)}" if is_passing(rc) else text
