# The ext unit of each dispatched record, written before the unit that names it.
#
# Source: store/ConsumeQueue.java putMessagePositionInfoWrapper

cdef int64_t dispatch_ext_code(
    Store *store, Queue *queue, const char *data, const Record *record, int64_t code,
) noexcept nogil:
    """Write a record's ext unit; its address, to be stored as the unit's tags code.

    ``code`` itself if the ext unit cannot be written (as in 4.9.3), if the unit exists already,
    or during recovery, which writes ext units itself: ext_recovered_code.
    """
    cdef ExtUnit unit
    cdef const char *bitmap = NULL
    cdef QueueExt *ext
    if atomic_peek(&store.state) == STATE_OPENING \
            or record.physical_offset < store.dispatch.recovering_until \
            or record.queue_offset < atomic_peek(&queue.max_offset) \
            or not offset_is_likely(queue, record.queue_offset, record.physical_offset):
        return code
    ext = queue_ext_of(queue)
    if ext == NULL:
        return code
    if ext.newest_record == record.physical_offset:
        return ext.newest_address            # its own unit found no space at the last attempt
    if not ext.begun and dispatch_ext_begin(queue, ext) < 0:
        return code
    unit.tags_code = code
    unit.store_timestamp = record.store_timestamp
    unit.bitmap_bytes = filter_bitmap(store, queue.topic, data + record.properties_at,
                                      record.properties_length, &bitmap)
    KILL_POINT("before-ext-unit")
    unit.tags_code = queue_ext_put(queue, ext, &unit, bitmap)
    KILL_POINT("after-ext-unit")
    if unit.tags_code == EXT_NONE:
        return code
    ext.newest_record = record.physical_offset
    ext.newest_address = unit.tags_code
    return unit.tags_code


cdef int64_t dispatch_ext_begin(Queue *queue, QueueExt *ext) noexcept nogil:
    """First ext unit of a queue since the opening: remove the remains of an earlier life."""
    cdef int64_t rc = queue_ext_begin(queue, ext, atomic_peek(&queue.max_offset))
    if rc == 0:
        rc = queue_ext_cut(queue, ext)
        if rc < 0:
            queue_ext_restart(queue)
            ext.retry_at = monotonic_ns() + EXT_RETRY_NS
    return rc
