# Topics that are deleted: by us, with a note in rmqstore-deleted.json, or by a broker, which
# leaves their records in the log and nothing that says so.
#
# Source: store/DefaultMessageStore.java cleanUnusedTopic

cdef int enter_deleted(Store *store, str name, int64_t offset) except -1:
    """Records of a deleted topic below ``offset`` do not bring its queues back."""
    cdef int64_t length = 0
    cdef const char *data = utf8_of("topic", name, &length)
    cdef Topic *topic
    if topic_name_good(data, length):
        topic = topic_enter(&store.table, data, length)
        if topic != NULL:
            topic.deleted_before = offset
            topic.noted_before = offset
    return 0


cdef int enter_listed(Store *store, object names) except -1:
    """Enter the topics of topics.json: one that it does not have may have been deleted."""
    cdef int64_t length = 0
    cdef const char *data
    cdef Topic *topic
    for name in names:
        data = utf8_of("topic", name, &length)
        topic = topic_enter(&store.table, data, length)
        if topic == NULL:
            raise MemoryError()
        topic.entered = True
    store.topics_listed = True
    return 0


cdef void tell_gone_topics(Store *store, int64_t end) noexcept nogil:
    """Do not bring back what somebody deleted without a note, a broker for one.

    That is a topic without an entry in topics.json and without a queue, in a store that was
    closed. In one that was not, either may not have come to the disk, and the log has its say.
    Called before the log is walked; until topics_told_gone a topic that is first met there is
    asked as well.
    """
    cdef stat_t status
    cdef Topic *topic = load_topic(&store.table.first)
    if not store.topics_listed or not store.recovery.clean or PLANTED("a4") \
            or fstatat(store.root, "consumequeue", &status, 0) != 0:
        return
    while topic != NULL:
        topic_ask_gone(topic, end)
        topic = load_topic(&topic.next_made)
    store.table.gone_before = end


cdef void topics_told_gone(Store *store) noexcept nogil:
    store.table.gone_before = 0


cdef void lower_deletions(Store *store, int64_t end) noexcept nogil:
    """Take no record behind the log's end for one of a topic that was deleted.

    What the note of a deletion names may not be in the log any more: records put next come below.
    """
    cdef Topic *topic = load_topic(&store.table.first)
    while topic != NULL and not PLANTED("a4"):
        topic.deleted_before = min(topic.deleted_before, end)
        topic = load_topic(&topic.next_made)


cdef int64_t topic_delete(Store *store, Topic *topic) noexcept nogil:
    """Empty every queue of a topic and unlink its files, while neither send nor dispatch runs.

    Records that are in the log by then are not dispatched any more. Returns its end.
    """
    cdef Queue *queue
    cdef int64_t rc = 0
    pthread_mutex_lock(&store.queue_flush_mutex)
    pthread_mutex_lock(&store.put_lock)
    pthread_mutex_lock(&store.dispatch_mutex)
    topic.deleted_before = atomic_get(&store.log.wrote)
    queue = topic.first_queue
    while queue != NULL and rc >= 0:
        rc = queue_delete(queue)
        queue = queue.next_made
    if rc >= 0:                              # the dispatch may make it anew as soon as it can
        rc = remove_topic_directory(store, topic)
    pthread_mutex_unlock(&store.dispatch_mutex)
    pthread_mutex_unlock(&store.put_lock)
    pthread_mutex_unlock(&store.queue_flush_mutex)
    queued_forget(store)
    return rc if rc < 0 else topic.deleted_before


cdef int64_t remove_topic_directory(Store *store, Topic *topic) noexcept nogil:
    """Remove the topic's directory, empty by now, and make that durable."""
    cdef char path[FAILURE_PATH_BYTES]
    cdef int64_t rc
    snprintf(path, FAILURE_PATH_BYTES, "consumequeue/%s", <char *>topic.name)
    rc = remove_directory_below(store.root, path)
    if rc < 0 and rc != -ENOENT and rc != -ENOTEMPTY:
        return rc
    rc = sync_directory(store.root, "consumequeue")
    if rc == 0 or is_passing(rc):
        return rc
    store_broke(store, rc, "consumequeue", "the directory cannot be forced to the disk")
    return E_FAILED


cdef int64_t queue_delete(Queue *queue) noexcept nogil:
    """Forget a queue's units and unlink its files and directory; who reads keeps what it holds."""
    cdef char path[FAILURE_PATH_BYTES]
    cdef int64_t i, rc
    atomic_set(&queue.max_offset, 0)
    atomic_set(&queue.min_offset, 0)
    atomic_set(&queue.last_end, 0)
    queue.next_offset = 0
    queue.room = 0
    mapped_file_release(queue.current)
    queue.current = NULL
    pthread_mutex_lock(&queue.files.mutex)
    rc = 0
    for i in range(queue.files.count):
        file_name(path, queue.files.directory, queue.files.slots[i].start)
        if PLANTED("unlink-held-mapping") and queue.files.slots[i].file != NULL \
                and atomic_get(&queue.files.slots[i].file.holds) > 1:
            mapped_file_release(queue.files.slots[i].file)
        mapped_file_release(queue.files.slots[i].file)
        rc = min(rc, sys_unlink(queue.files.root, path))
    queue.files.count = 0
    pthread_mutex_unlock(&queue.files.mutex)
    atomic_set(&queue.files.wrote, 0)
    atomic_set(&queue.files.flushed, 0)
    if rc == 0:
        rc = remove_directory_below(queue.files.root, queue.files.directory)
    return 0 if rc == -ENOENT or rc == -ENOTEMPTY else rc


cdef int64_t remove_directory_below(int root, const char *path) noexcept nogil:
    return 0 if unlinkat(root, path, AT_REMOVEDIR) == 0 else -errno
