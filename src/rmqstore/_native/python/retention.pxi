# The core's part of retention: contents of log files, and their removal.
#
# Source: store/DefaultMessageStore.java CleanCommitLogService, cleanUnusedTopic

cdef tuple removable_files(OpenStore engine):
    """Begin of the log, end of its removable files, and their size."""
    cdef Store *store = engine.entered()
    cdef int64_t until, first, size
    with nogil:
        log_refresh(store)
        if store.writable:
            wait_for_earlier_puts(store)
        until = log_removable_until(store)
        first = log_first(store)
    size = store.log.file_size
    store_leave(store)
    return first, max(first, until), size


cdef tuple log_content(OpenStore engine, int64_t start):
    cdef Store *store = engine.entered()
    cdef LogContent content
    cdef int64_t rc
    with nogil:
        rc = log_file_content(store, start, &content)
    store_leave(store)
    check(rc, NULL, os_path.join(engine._path, "commitlog", f"{start:020d}"))
    return content.newest, content.records, bool(content.whole)


cdef int64_t log_changed_at(OpenStore engine, int64_t start) except? -1:
    cdef Store *store = engine.entered()
    cdef int64_t rc
    with nogil:
        rc = log_file_changed_at(store, start)
    store_leave(store)
    return check(rc, NULL, os_path.join(engine._path, "commitlog", f"{start:020d}"))


cdef int64_t emptied_queues(OpenStore engine, int64_t until) except? -1:
    cdef Store *store = engine.entered()
    cdef Queue *queue
    cdef int64_t rc
    with nogil:
        queue = NULL if store.writable else first_queue(&store.table)
        while queue != NULL:
            queue_refresh(store, queue, LIST_IF_OLD)
            queue = next_queue(queue)
        rc = count_emptied(store, until)
    store_leave(store)
    return check(rc, NULL, os_path.join(engine._path, "consumequeue"))


cdef int64_t remove_log_files(OpenStore engine, int64_t until) except? -1:
    cdef Store *store
    cdef int64_t rc
    store_writable(engine.store, engine._path)
    store = engine.store
    with nogil:
        rc = retention_remove_log(store, min(until, log_removable_until(store)))
    store_leave(store)
    if rc == E_FAILED:
        return check(rc, &store.failure, engine._path)
    return check(rc, NULL, os_path.join(engine._path, "commitlog"))


cdef tuple remove_dangling(OpenStore engine):
    cdef Store *store
    cdef Removed removed
    cdef int64_t rc
    store_writable(engine.store, engine._path)
    store = engine.store
    with nogil:
        rc = retention_trim(store, &removed)
    store_leave(store)
    if rc == E_FAILED:
        check(rc, &store.failure, engine._path)
    check(rc, NULL, os_path.join(engine._path, "consumequeue"))
    return removed.queue_files, removed.index_files


cdef list unused_topics(OpenStore engine, bint remove):
    """Topics without a reference or messages, ordered by name."""
    cdef Store *store
    cdef Topic *topic
    cdef int64_t rc = 0
    cdef int64_t count = 0
    names = []
    store_writable(engine.store, engine._path)
    store = engine.store
    topic = load_topic(&store.table.first) if store.topics_listed else NULL
    while topic != NULL and rc >= 0:
        rc = topic_is_unused(store, topic)
        if rc and remove:
            with nogil:
                rc = topic_remove_unused(store, topic)
            count += rc > 0
        if rc > 0:
            names.append(topic.name[:topic.length].decode("ascii"))
        topic = load_topic(&topic.next_made)
    if count and rc >= 0:
        with nogil:                          # the checkpoint counts the queues
            rc = flush_queues_now(store, FLUSH_ALL)
    store_leave(store)
    if rc == E_FAILED:
        check(rc, &store.failure, engine._path)
    check(rc, NULL, os_path.join(engine._path, "consumequeue"))
    return sorted(names)


cdef tuple disk_use(OpenStore engine):
    """Used percent of the file systems of log and queues."""
    cdef Store *store = engine.entered()
    cdef int64_t log, queues, room
    with nogil:
        log = log_disk_use(store, &room)
        queues = queues_disk_use(store, &room)
    store_leave(store)
    return log, queues


cdef int pretend_disk_use(OpenStore engine, log, queues) except -1:
    cdef Store *store = engine.entered()
    try:
        atomic_set(&store.disk.pretended_log, -1 if log is None else log)
        atomic_set(&store.disk.pretended_queues, -1 if queues is None else queues)
        atomic_add(&store.disk.pretended_log, 1)
        atomic_add(&store.disk.pretended_queues, 1)
        with nogil:
            disk_check(store)
    finally:
        store_leave(store)
    return 0
