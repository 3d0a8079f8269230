# Topics: their entries, their queues, their deletion.
#
# Source: broker/topic/TopicConfigManager.java

cdef int set_topic(OpenStore engine, str topic, int64_t write_queue_nums) except -1:
    cdef int64_t length = 0
    cdef const char *name = utf8_of("topic", topic, &length)
    cdef Topic *entry
    cdef Store *store
    if not topic_name_stored(name, length):
        check_topic(name, length, topic)
    store = engine.entered()
    entry = topic_enter(&store.table, name, length)
    if entry != NULL and length <= TOPIC_MAX_BYTES:      # else no message can be put to it
        atomic_set(&entry.write_queue_nums, write_queue_nums)
    store_leave(store)
    if entry == NULL:
        raise MemoryError()


cdef bint knows_topic(OpenStore engine, object topic) except -1:
    cdef Span name
    store_puttable(engine.store, engine._path)
    try:
        name.data = utf8_of("topic", topic, &name.length)
        return known_topic(engine, &name) != NULL
    finally:
        store_leave(engine.store)


cdef int64_t delete_queues(OpenStore engine, str topic) except -1:
    cdef int64_t length = 0
    cdef const char *name = utf8_of("topic", topic, &length)
    cdef Store *store
    cdef Topic *found
    cdef int64_t rc = 0
    store_writable(engine.store, engine._path)
    store = engine.store
    found = topic_find(&store.table, name, length)
    if found != NULL:
        with nogil:
            rc = topic_delete(store, found)
    store_leave(store)
    if rc == E_FAILED:
        return check(rc, &store.failure, engine._path)
    return check(rc, NULL, os_path.join(engine._path, "consumequeue", topic))


cdef list gone_topics(OpenStore engine):
    cdef Store *store = engine.entered()
    cdef Topic *topic = load_topic(&store.table.first)
    names = []
    while topic != NULL:
        if topic.gone:
            names.append(topic.name[:topic.length].decode("utf-8"))
        topic = load_topic(&topic.next_made)
    store_leave(store)
    return names


cdef bint queue_is_used(Store *store, Queue *queue) noexcept nogil:
    """Whether a queue of a writable store has messages: a deleted topic's has none."""
    cdef int64_t next_offset
    lock_take(&store.writer.put_lock)
    next_offset = queue.next_offset
    lock_give(&store.writer.put_lock)
    return next_offset > 0 or file_set_count(&queue.files) > 0


cdef dict queue_files(OpenStore engine):
    cdef Store *store = engine.entered()
    cdef Topic *topic
    cdef Queue *queue
    cdef int64_t rc = 0
    cdef bint there
    found = {}
    with nogil:
        rc = refresh_queues(store)
        if rc == 0:                      # include queues that a recovery would create or remove
            rc = derive_if_needed(store)
    topic = load_topic(&store.table.first)
    while topic != NULL:
        ids = []
        queue = load_queue(&topic.first_queue)
        while queue != NULL:
            there = store.writable and atomic_get(&queue.max_offset) > 0
            if not there:
                with nogil:
                    there = queue_is_used(store, queue) if store.writable \
                        else not (queue.deleted or queue_is_gone(&store.table, queue))
            if there:
                ids.append(queue.id)
            queue = queue.next_made
        # Without queues, the owner's entries decide, which a reader reads anew.
        if ids or (store.writable and atomic_get(&topic.write_queue_nums) > 0):
            found[topic.name[:topic.length].decode("utf-8", "replace")] = sorted(ids)
        topic = load_topic(&topic.next_made)
    store_leave(store)
    check(rc, NULL, engine._path)
    return found


cdef dict topic_counts(OpenStore engine):
    """Messages dispatched to each topic's queues since the store was opened, and bytes."""
    cdef Store *store = engine.entered()
    cdef Topic *topic = load_topic(&store.table.first)
    cdef Queue *queue
    cdef int64_t messages, size
    counts = {}
    while topic != NULL:
        messages = size = 0
        queue = load_queue(&topic.first_queue)
        while queue != NULL:
            messages += atomic_get(&queue.put_units)
            size += atomic_get(&queue.put_bytes)
            queue = queue.next_made
        if messages:
            counts[topic.name[:topic.length].decode("utf-8", "replace")] = (messages, size)
        topic = load_topic(&topic.next_made)
    store_leave(store)
    return counts
