# Topic deletion: ours, noted in rmqstore-deleted.json, or a broker's, which leaves records in the
# log and no note.
#
# Source: store/DefaultMessageStore.java cleanUnusedTopic

cdef void infer_deleted_topics(Store *store, int64_t end) noexcept nogil:
    """Before the log is walked: keep topics deleted without a note from coming back.

    After a clean exit these have neither an entry in topics.json nor a queue; after an unclean one
    either may just be missing, and the log decides.  Until topics_inferred_deleted the rule also
    applies to topics first met in the log.
    """
    cdef stat_t status
    cdef Topic *topic = load_topic(&store.table.first)
    if not store.topics_listed or not store.recovery.clean \
            or fstatat(store.root, "consumequeue", &status, 0) != 0:
        return
    while topic != NULL:
        topic_ask_gone(&store.table, topic, end)
        topic = load_topic(&topic.next_made)
    store.table.gone_before = end


cdef void topics_inferred_deleted(Store *store) noexcept nogil:
    store.table.gone_before = 0


cdef void lower_deletions(Store *store, int64_t end) noexcept nogil:
    """Limit deletions to the log's end: new records reuse the offsets of lost ones."""
    cdef Topic *topic = load_topic(&store.table.first)
    while topic != NULL:
        topic.deleted_before = min(topic.deleted_before, end)
        topic = load_topic(&topic.next_made)


cdef void queued_forget(Store *store) noexcept nogil:
    """After a removal of units: forget which records are in a queue."""
    lock_take(&store.view.queued_lock)
    store.view.queued_first = -1
    lock_give(&store.view.queued_lock)


cdef int64_t topic_delete(Store *store, Topic *topic) noexcept nogil:
    """Empty a topic's queues and unlink their files; the log's end, or a status.

    Locks out put and dispatch; records below that end are never dispatched again.
    """
    cdef Queue *queue
    cdef int64_t rc = 0
    lock_take(&store.flush.queues_lock)
    lock_take(&store.writer.put_lock)
    dispatch_lock_take(store)
    topic.deleted_before = atomic_get(&store.log.wrote)
    queue = topic.first_queue
    while queue != NULL and rc >= 0:
        rc = queue_delete(&store.table, queue)
        queue = queue.next_made
    if rc >= 0:                              # dispatch may recreate it at once
        rc = remove_topic_directories(store, topic)
    lock_give(&store.dispatch.lock)
    lock_give(&store.writer.put_lock)
    lock_give(&store.flush.queues_lock)
    queued_forget(store)
    return rc if rc < 0 else topic.deleted_before


cdef int64_t remove_topic_directories(Store *store, Topic *topic) noexcept nogil:
    """Remove the topic's empty directories, including its ext units' directory."""
    cdef int64_t ext = remove_ext_directory(store, topic)
    cdef int64_t rc = remove_topic_directory(store, topic)
    return rc if rc < 0 else ext


cdef int64_t remove_ext_directory(Store *store, Topic *topic) noexcept nogil:
    """Remove the topic's directory of ext units if it is empty."""
    cdef char path[FAILURE_PATH_BYTES]
    snprintf(path, FAILURE_PATH_BYTES, "consumequeue_ext/%s", <char *>topic.name)
    return remove_if_empty(store.root, path)


cdef int64_t remove_topic_directory(Store *store, Topic *topic) noexcept nogil:
    """Remove the topic's empty directory of queues durably."""
    cdef char path[FAILURE_PATH_BYTES]
    cdef int64_t rc
    snprintf(path, FAILURE_PATH_BYTES, "consumequeue/%s", <char *>topic.name)
    rc = remove_if_empty(store.root, path)
    if rc < 0:
        return rc
    rc = sync_directory(store.root, "consumequeue")
    if rc == 0 or is_passing(rc):
        return rc
    store_set_failed(store, rc, "consumequeue", "the directory cannot be forced to the disk")
    return E_FAILED


cdef int64_t queue_delete(TopicTable *table, Queue *queue) noexcept nogil:
    """Forget a queue's units, unlink its files and directory; readers keep the files they hold."""
    cdef int64_t rc
    atomic_set(&queue.max_offset, 0)
    atomic_set(&queue.min_offset, 0)
    atomic_set(&queue.last_end, 0)
    queue.life.room = 0
    queue.next_offset = 0
    queue.room = 0
    atomic_add(&table.light_queues, -1 if queue.light_counted else 0)
    queue.light_counted = False
    mapped_file_release(queue.current)
    queue.current = NULL
    rc = file_set_unlink(&queue.files)
    return queue_ext_delete(queue) if rc == 0 else rc
