# Topic names from Python: deleted topics, and topics in topics.json.
#
# Source: broker/topic/TopicConfigManager.java

cdef int enter_deleted(Store *store, str name, int64_t offset) except -1:
    """Keep records of a deleted topic below ``offset`` from bringing its queues back."""
    cdef int64_t length = 0
    cdef const char *data = utf8_of("topic", name, &length)
    cdef Topic *topic
    if topic_name_stored(data, length):
        topic = topic_enter(&store.table, data, length)
        if topic != NULL:
            topic.deleted_before = offset
            topic.noted_before = offset
    return 0


cdef int enter_listed(Store *store, object names) except -1:
    """Enter the topics of topics.json: a topic missing there may have been deleted."""
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
