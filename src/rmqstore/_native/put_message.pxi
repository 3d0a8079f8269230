# put and put_batch: from arguments to a place in the log, with no Python in between.
#
# Source: store/DefaultMessageStore.java putMessage, putMessages; store/CommitLog.java

cdef enum:
    SMALL_BODY = 4096            # up to here an append is shorter than a release of the GIL
    DELAY_LEVEL_TEXT = 24


cdef inline int store_writable(Engine engine, bint putting=False) except -1:
    """Enter a call that writes; balanced by store_leave. Messages wait for disk space."""
    cdef Store *store = engine.store
    cdef int64_t rc
    if store == NULL:
        raise errors.StoreClosedError(f"{engine._path}: the store is closed")
    rc = store_enter(store)
    if rc < 0:
        raise status_error(rc, NULL, engine._path)
    if not store.writable:
        store_leave(store)
        raise errors.ReadOnlyStoreError(f"{engine._path}: opened with mode 'r'")
    if unlikely(atomic_get(&store.failed) != 0
                or (putting and atomic_get(&store.stalled) != 0)):
        store_leave(store)
        raise write_error(engine, E_FAILED if atomic_get(&store.failed) else E_STALLED)
    return 0


cdef object write_error(Engine engine, int64_t status):
    """The exception of an append that did not take place."""
    cdef Store *store = engine.store
    cdef int64_t stalled
    if status == E_STALLED:
        stalled = atomic_get(&store.stalled)
        if stalled == 0:
            stalled = -ENOSPC
        return errors.PutError(
            f"{engine._path}: consume queues and index cannot be written: "
            f"{strerror(-stalled) if stalled > -4096 else 'no memory'}",
            status=types.PutStatus.DISK_FULL, errno=-stalled if stalled > -4096 else None)
    if lacks_space(status):
        return errors.PutError(
            f"{engine._path}: the commit log cannot grow: {strerror(-status)}",
            status=types.PutStatus.DISK_FULL, errno=-status)
    if status == E_FAILED:
        return status_error(status, &store.failure, engine._path)
    if status == E_TOO_LARGE:
        return errors.MessageIllegalError(
            f"the records take more than a commit log file of {store.log.file_size} bytes",
            status=types.PutStatus.MESSAGE_ILLEGAL)
    if -4096 < status < 0:
        return errors.PutError(
            f"{engine._path}: no new commit log file: {strerror(-status)}",
            status=types.PutStatus.CREATE_MAPEDFILE_FAILED, errno=-status)
    return status_error(status, NULL, engine._path)


cdef Topic *known_topic(Engine engine, object topic, int64_t *length) except? NULL:
    """The topic's entry if topics.json has it, else NULL: it is made once all else is checked."""
    cdef const char *name = utf8_of("topic", topic, length)
    cdef Topic *found = topic_find(&engine.store.table, name, length[0])
    if likely(found != NULL and atomic_peek(&found.write_queue_nums) > 0):
        return found
    check_topic(name, length[0], topic)
    return NULL


cdef Topic *writable_topic(Engine engine, object topic) except NULL:
    """The topic's entry; one that topics.json has not is made with the default number of queues."""
    cdef int64_t length = 0
    cdef const char *name
    cdef Topic *found = known_topic(engine, topic, &length)
    if likely(found != NULL):
        return found
    engine._make_topic(topic)
    name = utf8_of("topic", topic, &length)
    found = topic_find(&engine.store.table, name, length)
    if found == NULL:
        raise errors.TopicNotFoundError(f"{engine._path}: no topic {topic!r}")
    return found


cdef int keep_topic(Engine engine, Topic *topic, int64_t physical_offset) except -1:
    """Have an entry again for a topic that was deleted before a message of it was appended.

    Before the message is acknowledged: where a queue exists, topics.json has its topic, and the
    note of the deletion is on the disk.
    """
    if unlikely(atomic_peek(&topic.write_queue_nums) == 0) and not topic.schedule:
        engine._remake_topic(topic.name[:topic.length].decode("ascii"), physical_offset)
    return 0


cdef Queue *writable_queue(Engine engine, Topic *topic, int64_t queue_id) except NULL:
    cdef Store *store = engine.store
    cdef Queue *queue = queue_find(topic, <int32_t>queue_id)
    if queue == NULL:
        queue = queue_enter(&store.table, topic, <int32_t>queue_id, store.root,
                            store.settings.queue_file_size, True)
        if queue == NULL:
            raise MemoryError()
        queue.files.open_files = &store.open_files
    return queue


cdef int64_t java_remainder(int64_t hash, int64_t queue_nums) noexcept nogil:
    """abs(hash % n) with Java's %, which takes the sign of the dividend: as C's."""
    cdef int64_t rest = hash % queue_nums
    return -rest if rest < 0 else rest


cdef int64_t choose_queue(Engine engine, Topic *topic, object queue_id, object queue_key) except -1:
    """By id, by key as SelectMessageQueueByHash does, or the next one round robin.

    ``topic`` NULL is one that is to be made with the default number of queues.
    """
    cdef int64_t queue_nums = engine.store.settings.default_queue_nums
    cdef int64_t length = 0
    cdef const char *text
    if topic != NULL:
        queue_nums = max(1, atomic_peek(&topic.write_queue_nums))
    if queue_id is not None:
        if queue_key is not None:
            raise ValueError("arguments 'queue_id' and 'queue_key' exclude each other")
        return int_argument("queue_id", queue_id, 0, 0x7FFFFFFF)
    if queue_key is None:
        if topic == NULL:
            return 0
        return (atomic_add(&topic.round_robin, 1) - 1) % queue_nums
    if PyUnicode_Check(queue_key):
        text = utf8_of("queue_key", queue_key, &length)
        return java_remainder(java_hash_utf8(text, length, 0), queue_nums)
    if isinstance(queue_key, (bytes, bytearray, memoryview)):
        return arrays.bytes_hash(queue_key) % queue_nums
    return java_remainder(
        int_argument("queue_key", queue_key, -0x80000000, 0x7FFFFFFF), queue_nums)


cdef int add_keys(object keys, Text *text) except -1:
    """The KEYS property."""
    cdef int64_t length = 0
    cdef const char *data
    if PyUnicode_Check(keys):
        joined = keys
    else:
        joined = joined_keys(KEYS_ARGUMENT, -1, keys)
        if joined is None:
            return 0
    data = utf8_of("keys", joined, &length)
    refuse_separators("keys", data, length)
    if length:
        text_add_property(text, b"KEYS", 4, data, length)
    return 0


cdef int add_text(str argument, const char *name, int64_t name_length, object value,
                  Text *text) except -1:
    """TAGS or UNIQ_KEY."""
    cdef int64_t length = 0
    cdef const char *data = utf8_of(argument, value, &length)
    refuse_separators(argument, data, length)
    if length:
        text_add_property(text, name, name_length, data, length)
    return 0


cdef int add_unique_key(object uniq_key, int64_t now, Text *text, PutResult result) except -1:
    """True: one is made; a str is taken; False: none."""
    if uniq_key is True:
        unique_key_write(&unique_keys, unique_keys_take(&unique_keys, now, 1), result.key)
        result.generated = True
        text_add_property(text, b"UNIQ_KEY", 8, result.key, UNIQUE_KEY_BYTES)
    elif uniq_key is not False:
        if not PyUnicode_Check(uniq_key):
            raise TypeError(f"argument 'uniq_key' is {uniq_key!r}; it may be True, False or a str")
        if not uniq_key:
            raise ValueError("argument 'uniq_key' is ''; it may be True, False or a str")
        add_text("uniq_key", b"UNIQ_KEY", 8, uniq_key, text)
        result.given_key = uniq_key
    return 0


cdef int add_delay(
    const char *topic, int64_t length, int64_t level, int64_t queue_id, Text *text,
) except -1:
    """The properties that take a message to the schedule topic and back."""
    cdef char number[DELAY_LEVEL_TEXT]
    text_add_property(text, b"DELAY", 5, number,
                      snprintf(number, DELAY_LEVEL_TEXT, "%lld", <long long>level))
    text_add_property(text, b"REAL_TOPIC", 10, topic, length)
    text_add_property(text, b"REAL_QID", 8, number,
                      snprintf(number, DELAY_LEVEL_TEXT, "%lld", <long long>queue_id))
    return 0


cdef int finish_properties(Store *store, Draft *draft, Text *text) except -1:
    """Room for the whole-record checksum, which follows a 0x02 like any property."""
    if store.settings.record_checksum:
        if text.length:
            text_add(text, b"\x02", 1)
        text_add(text, b"__CRC32#\x010000000000\x02", CHECKSUM_PROPERTY_BYTES)
        draft.checksum = True
    draft.properties = text.data
    draft.properties_length = text.length
    return 0


cdef int take_body(object body, Py_buffer *view) except -1:
    try:
        PyObject_GetBuffer(body, view, PyBUF_SIMPLE)
    except TypeError:
        raise TypeError(
            f"argument 'body' is {short_text.repr(body)}; it may be bytes or another C-contiguous "
            "buffer") from None
    except BufferError as error:
        raise ValueError(f"argument 'body' is {body!r} ({error}); it may be bytes or another "
                         "C-contiguous buffer") from None
    return 0


cdef inline void draft_hosts(Store *store, Draft *draft) noexcept nogil:
    """The store's host, and the same for the born host until another is given."""
    memcpy(draft.store_host, store.settings.store_host, HOST_V6_BYTES)
    memcpy(draft.born_host, store.settings.store_host, HOST_V6_BYTES)
    if store.settings.store_host_length == HOST_V6_BYTES:
        draft.sys_flag |= SYS_STORE_HOST_V6 | SYS_BORN_HOST_V6


cdef int draft_born(Draft *draft, object born_timestamp, object born_host, int64_t now) except -1:
    cdef int length
    draft.born_timestamp = now
    if born_timestamp is not None:
        draft.born_timestamp = times.to_millis(born_timestamp, name="born_timestamp")
    if born_host is not None:
        length = host_bytes("born_host", born_host, draft.born_host)
        draft.sys_flag &= ~SYS_BORN_HOST_V6
        if length == HOST_V6_BYTES:
            draft.sys_flag |= SYS_BORN_HOST_V6
    return 0


cdef int append_and_wait(
    Engine engine, Draft *drafts, int64_t count, int64_t size, Queue *queue, bint wait,
    PutResult result,
) except -1:
    """Append, and with synchronous flush wait for the disk."""
    cdef Store *store = engine.store
    cdef int64_t rc = E_BUSY
    # A free lock, a small copy and no system call: shorter than handing the GIL over.
    if size <= SMALL_BODY:
        rc = log_append(store, drafts, count, size, queue, True, &result.place)
    if rc == E_BUSY:
        with nogil:
            rc = log_append(store, drafts, count, size, queue, False, &result.place)
    if rc < 0:
        raise write_error(engine, rc)
    result.stop = result.place.physical_offset + size
    result._queue_id = queue.id
    result._count = count
    memcpy(result.host, store.settings.store_host, HOST_V6_BYTES)
    result.v6 = store.settings.store_host_length == HOST_V6_BYTES
    keep_topic(engine, queue.topic, result.place.physical_offset)
    if store.settings.sync_flush:
        if wait:
            wait_acknowledged(engine, result)
        else:
            worker_call(&store.flush_log)
    # Last of all, so that nothing is acknowledged once a sync has failed.
    if unlikely(atomic_get_strict(&store.failed) != 0):
        raise write_error(engine, E_FAILED)
    return 0


cdef int wait_for_disk(Store *store, int64_t stop, int64_t count, int64_t *status) except -1:
    """wait_durable, in slices, for the sake of signals; what one raises says what was stored."""
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


cdef int wait_acknowledged(Engine engine, PutResult result) except -1:
    """Until the record is on the disk, or the time-out that 4.9.3 has too."""
    cdef Store *store = engine.store
    cdef int64_t rc
    wait_for_disk(store, result.stop, result._count, &rc)
    if rc == E_TIMEOUT:
        raise late_error(store, result, engine._path)
    if rc < 0:
        raise status_error(rc, &store.failure, engine._path)
    return 0


cdef object late_error(Store *store, PutResult result, str root):
    """The exception of a message that is in the log, but was not on the disk in time."""
    result._status = 1
    return errors.PutError(
        f"{root}: stored at {result.physical_offset}, but {not_on_disk(store)}",
        status=types.PutStatus.FLUSH_DISK_TIMEOUT, result=result, stored=result._count)


cdef str not_on_disk(Store *store):
    """The end of a time-out's message, with the reason if no file could be opened to sync it."""
    cdef int64_t rc = atomic_get(&store.unflushed)
    text = f"not on the disk within {store.settings.sync_flush_timeout // 1000000} ms"
    return f"{text}: {strerror(ENOMEM if rc == E_NO_MEMORY else -rc)}" if is_passing(rc) else text


cdef PutResult put_one(
    Engine engine, object topic, object body, object queue_id, object queue_key, object tags,
    object keys, object properties, object flag, object delay_level, object born_timestamp,
    object born_host, object uniq_key, bint wait,
):
    cdef Store *store = engine.store
    cdef Topic *to
    cdef Queue *queue
    cdef Draft draft
    cdef Text text
    cdef Py_buffer view
    cdef int64_t now = wall_millis()
    cdef int64_t id
    cdef int64_t length = 0
    cdef int64_t level = 0
    cdef PutResult result = PutResult.__new__(PutResult)
    cdef bint viewed = False
    draft.sys_flag = 0
    draft.checksum = False
    draft.volatile_body = False
    draft.prepared_transaction_offset = 0
    draft.reconsume_times = 0
    text_init(&text)
    try:
        to = known_topic(engine, topic, &length)
        id = choose_queue(engine, to, queue_id, queue_key)
        draft.flag = 0
        if flag is not ZERO:
            draft.flag = <int32_t>int_argument("flag", flag, -0x80000000, 0x7FFFFFFF)
        draft_hosts(store, &draft)
        draft_born(&draft, born_timestamp, born_host, now)
        if properties is not None:
            properties_add(properties, &text)
        if keys is not None:
            add_keys(keys, &text)
        if tags is not None:
            add_text("tags", b"TAGS", 4, tags, &text)
        add_unique_key(uniq_key, now, &text, result)
        if delay_level is not ZERO:
            level = int_argument("delay_level", delay_level, 0, store.settings.delay_count)
            if level > 0:
                add_delay(utf8_of("topic", topic, &length), length, level, id, &text)
                id = level - 1
        if PyBytes_CheckExact(body):
            draft.body = PyBytes_AS_STRING(body)
            draft.body_length = PyBytes_GET_SIZE(body)
        else:
            # Others may write to it meanwhile, to what a read-only view is of as well.
            take_body(body, &view)
            viewed = True
            draft.body = <const char *>view.buf
            draft.body_length = view.len
            draft.volatile_body = not PLANTED("a3")
        finish_properties(store, &draft, &text)
        draft.topic = utf8_of("topic", topic, &length)
        draft.topic_length = length
        if level > 0:
            draft.topic = SCHEDULE_TOPIC
            draft.topic_length = SCHEDULE_TOPIC_LENGTH
        draft.queue_id = <int32_t>id
        check_draft(&draft, store.settings.max_message_size, store.log.file_size)
        # Only now, so that a refused message leaves no topic behind.
        if to == NULL:
            to = writable_topic(engine, topic)
        if level > 0:
            to = topic_enter(&store.table, SCHEDULE_TOPIC, SCHEDULE_TOPIC_LENGTH)
            if to == NULL:
                raise MemoryError()
        queue = writable_queue(engine, to, id)
        if not draft.volatile_body:
            draft.body_crc = record_body_crc(draft.body, draft.body_length)
        append_and_wait(engine, &draft, 1, draft.size, queue, wait, result)
    finally:
        text_free(&text)
        if viewed:
            PyBuffer_Release(&view)
    return result
