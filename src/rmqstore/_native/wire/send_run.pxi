# Plain sends of one read of a connection: from their frames to the log, and their answers.
#
# Source: broker/processor/SendMessageProcessor.java asyncSendMessage, asyncSendBatchMessage,
#         handlePutMessageResult; store/CommitLog.java MessageExtBatchEncoder

cdef enum:
    RUN_MAX = 512                # messages appended at a time, batches excepted
    BATCH_MAX = 1 << 16          # messages of a batch; more take the slow path

# A request of the run, answered once its messages are in the log.
cdef struct Send:
    int64_t first                # its first message in the run
    int64_t count
    int64_t frame                # position of its frame in the received bytes
    int32_t opaque
    int32_t code
    bint oneway
    bint waits                   # for the disk
    bint batch


# Names of a gateway, and addresses of a connection.
cdef struct SendNames:
    const char *cluster
    int64_t cluster_length
    const char *region           # as a JSON string, in quotes
    int64_t region_length


cdef struct SendHosts:
    char born[HOST_V6_BYTES]
    char store[HOST_V6_BYTES]
    bint born_v6
    bint store_v6
    bint known


# Sends of one read of a connection, appended together.
cdef struct SendRun:
    Encoded *messages
    Queue **queues
    AppendResult *appended
    int64_t room
    int64_t count
    int64_t size                 # bytes of all records
    Send[RUN_MAX] sends
    int64_t send_count
    bint whole                   # a single batch
    Text text                    # the properties
    Text plain                   # properties of one message, unescaped


cdef void run_clear(SendRun *run) noexcept nogil:
    run.count = run.send_count = run.size = 0
    run.whole = False
    run.text.length = 0


cdef void run_free(SendRun *run) noexcept nogil:
    free(run.messages)
    free(run.queues)
    free(run.appended)
    text_free(&run.text)
    text_free(&run.plain)


cdef bint run_reserve(SendRun *run) noexcept nogil:
    """Make room for one more message."""
    cdef int64_t room = run.room * 2 if run.room else 64
    cdef void *grown
    if run.count < run.room:
        return True
    grown = realloc(run.messages, <size_t>room * sizeof(Encoded))
    if grown == NULL:
        return False
    run.messages = <Encoded *>grown
    grown = realloc(run.queues, <size_t>room * sizeof(Queue *))
    if grown == NULL:
        return False
    run.queues = <Queue **>grown
    grown = realloc(run.appended, <size_t>room * sizeof(AppendResult))
    if grown == NULL:
        return False
    run.appended = <AppendResult *>grown
    run.room = room
    return True


cdef Queue *send_queue(Store *store, SendRun *run, SendRequest *request) noexcept nogil:
    """Queue of a send; NULL: its topic is not open to sends."""
    cdef const WireText *name = &request.fields[SEND_TOPIC]
    cdef Topic *topic = topic_find(&store.table, name.data, name.length)
    cdef Queue *queue
    cdef int64_t most, id
    if topic == NULL:
        return NULL
    most = atomic_get(&topic.client_queue_nums)
    id = request.queue_id
    if most <= 0 or id >= most:
        return NULL
    if id < 0:
        most = atomic_peek(&topic.write_queue_nums)
        if most <= 0:
            return NULL
        id = (atomic_add(&topic.round_robin, 1) - 1) % most
    queue = queue_find(topic, <int32_t>id)
    if queue == NULL:
        queue = queue_enter(&store.table, topic, <int32_t>id)
    return queue


cdef bint run_add(
    Store *store, SendRun *run, const SendRequest *request, const SendHosts *hosts, Queue *queue,
    const BatchItem *item, int64_t start,
) noexcept nogil:
    """Lay out a message whose properties begin at ``start`` of the text; False if too large."""
    cdef const Settings *settings = &store.settings
    cdef Encoded *into
    if text_reserve(&run.text, CHECKSUM_PROPERTY_BYTES + 2) < 0 or not run_reserve(run):
        return False
    if settings.record_checksum:
        text_add(&run.text, b"\x02", 1)
        memset(run.text.data + run.text.length, 0, CHECKSUM_PROPERTY_BYTES)
        run.text.length += CHECKSUM_PROPERTY_BYTES
    into = &run.messages[run.count]
    into.properties = <const char *>start    # the text may move
    into.properties_length = run.text.length - start
    into.checksum = settings.record_checksum
    into.multi = NULL
    into.topic = queue.topic.name
    into.topic_length = queue.topic.length
    into.queue_id = queue.id
    into.body = item.body
    into.body_length = item.body_length
    into.volatile_body = False
    into.flag = item.flag
    into.reconsume_times = <int32_t>request.reconsume_times
    into.born_timestamp = request.born_timestamp
    into.prepared_transaction_offset = 0
    into.sys_flag = <int32_t>request.sys_flag
    memcpy(into.born_host, hosts.born, HOST_V6_BYTES)
    memcpy(into.store_host, hosts.store, HOST_V6_BYTES)
    if hosts.born_v6:
        into.sys_flag |= SYS_BORN_HOST_V6
    if hosts.store_v6:
        into.sys_flag |= SYS_STORE_HOST_V6
    if into.properties_length > PROPERTIES_MAX_BYTES \
            or encoded_size(into) > settings.max_message_size \
            or encoded_size(into) + RECORD_BLANK_BYTES > store.log.file_size:
        return False
    into.size = <int32_t>encoded_size(into)
    into.body_crc = record_body_crc(item.body, item.body_length)
    run.queues[run.count] = queue
    run.size += into.size
    run.count += 1
    return True


cdef bint run_add_batch(
    Store *store, SendRun *run, SendRequest *request, const SendHosts *hosts,
    const SendNames *names, Queue *queue, const Frame *frame,
) noexcept nogil:
    """Lay out the messages of a batch; False if any is invalid or not plain."""
    cdef BatchItem item
    cdef Property found
    cdef int64_t at = 0
    cdef int64_t start
    cdef int64_t inside
    if frame.body_length > store.settings.max_message_size:
        return False
    while at < frame.body_length:
        if run.count == BATCH_MAX or not batch_next(frame.body, frame.body_length, &at, &item):
            return False
        if utf8_error(item.properties, item.properties_length) >= 0:
            return False
        inside = 0
        while property_next(item.properties, item.properties_length, &inside, &found):
            if not property_is_plain(&found) \
                    or is_same(found.name, found.name_length, b"CLUSTER", 7):
                return False
        start = run.text.length
        if text_reserve(&run.text, item.properties_length + names.cluster_length + 32) < 0:
            return False
        text_add(&run.text, item.properties, item.properties_length)
        if item.properties_length and item.properties[item.properties_length - 1] == 2:
            run.text.length -= 1             # added again with the next property
        text_add_property(&run.text, start, b"CLUSTER", 7, names.cluster, names.cluster_length)
        if not run_add(store, run, request, hosts, queue, &item, start):
            return False
    run.whole = True
    return run.count > 0 and run.size <= store.settings.max_message_size \
        and run.size + RECORD_BLANK_BYTES <= store.log.file_size


cdef bint run_take(
    Store *store, SendRun *run, const Frame *frame, const SendHosts *hosts,
    const SendNames *names, int64_t at,
) noexcept nogil:
    """Add a frame's send to the run; False: it takes the slow path.

    REQUIRES: for a batch, an empty run.
    """
    cdef SendRequest request
    cdef BatchItem item
    cdef Queue *queue
    cdef Send *send
    cdef int64_t start = run.text.length
    cdef int64_t first = run.count
    cdef bint good
    if not hosts.known or not send_parse(&frame.header, &request):
        return False
    queue = send_queue(store, run, &request)
    if queue == NULL:
        return False
    run.plain.length = 0
    if wire_text_add(&run.plain, &request.fields[SEND_PROPERTIES]) < 0:
        return False
    if request.batch:
        good = batch_properties(run.plain.data, run.plain.length, &request) \
            and run_add_batch(store, run, &request, hosts, names, queue, frame)
    else:
        item.body = frame.body
        item.body_length = frame.body_length
        item.flag = <int32_t>request.flag
        good = send_properties(run.plain.data, run.plain.length, names.cluster,
                               names.cluster_length, &run.text, &request) > 0 \
            and run_add(store, run, &request, hosts, queue, &item, start)
    if not good:
        if run.send_count == 0:
            run_clear(run)
        run.text.length = start
        run.count = first
        return False
    send = &run.sends[run.send_count]
    run.send_count += 1
    send.first = first
    send.count = run.count - first
    send.frame = at
    send.opaque = frame.header.opaque
    send.code = <int32_t>frame.header.code
    send.oneway = frame.header.flag & 2 != 0
    send.waits = request.waits
    send.batch = request.batch
    return True


cdef int64_t run_append(Store *store, SendRun *run, int64_t how, int64_t *status) noexcept nogil:
    """Append the run; the number of its messages in the log, and why not all are."""
    cdef int64_t i
    for i in range(run.count):
        run.messages[i].properties = run.text.data + <int64_t>run.messages[i].properties
    return run_append_from(store, run, 0, how, status)


cdef int64_t run_append_from(
    Store *store, SendRun *run, int64_t done, int64_t how, int64_t *status,
) noexcept nogil:
    """Append the run's messages from ``done`` on; the number then in the log."""
    cdef Append append = Append(
        run.messages + done, run.queues + done, run.appended + done, run.count - done, run.size,
        how)
    return done + log_append(store, &append, status)


cdef int64_t send_answer(
    Text *into, const SendRun *run, const Send *send, const SendHosts *hosts,
    const SendNames *names,
) noexcept nogil:
    """Append the answer to a request whose messages are in the log: 0 or E_NO_MEMORY."""
    cdef char[MESSAGE_ID_MAX + 8] id
    cdef int64_t length, start, i
    if text_reserve(into, 320 + names.region_length + send.count * (MESSAGE_ID_MAX + 1)) < 0:
        return E_NO_MEMORY
    start = frame_begin(into)
    text_add_word(into, b"{\"code\":0,\"extFields\":{\"queueId\":\"")
    text_add_number(into, run.queues[send.first].id)
    text_add_word(into, b"\",\"TRACE_ON\":\"true\",\"MSG_REGION\":")
    text_add(into, names.region, names.region_length)
    text_add_word(into, b",\"msgId\":\"")
    for i in range(send.first, send.first + send.count):
        if i > send.first:
            text_add_word(into, b",")
        length = message_id_write(
            hosts.store, hosts.store_v6, run.appended[i].physical_offset, id)
        text_add(into, id, length)
    text_add_word(into, b"\",\"queueOffset\":\"")
    text_add_number(into, run.appended[send.first].queue_offset)
    text_add_word(into, b"\"},\"flag\":1,\"language\":\"JAVA\",\"opaque\":")
    text_add_number(into, send.opaque)
    text_add_word(into, b",\"serializeTypeCurrentRPC\":\"JSON\",\"version\":399}")
    frame_header_ends(into, start, 0)
    return 0
