# Ext units of a queue, with their bit maps.
#
# Source: store/ConsumeQueue.java getExt

cdef enum:
    EXT_FIELDS_BYTES = 24        # of a returned unit: tags code, store time, bit map bytes


cdef tuple ext_units_of_queue(
    OpenStore engine, object topic, object queue_id, int64_t start, int64_t stop,
):
    """Fields of [start, stop), all bit maps in rows of one width, and that width."""
    cdef Memory units = units_of_queue(engine, topic, queue_id, start, stop)
    cdef Store *store = engine.entered()
    cdef Queue *queue
    cdef Memory fields, bitmaps
    cdef int64_t width
    cdef int64_t count = max(0, stop - start)
    try:
        queue = find_queue(store, topic, queue_id)
        if queue == NULL:
            count = 0
        fields = memory_new(count * EXT_FIELDS_BYTES)
        with nogil:
            width = ext_units_take(queue, units.data, count, fields.data, NULL, 0)
        bitmaps = memory_new(count * width)
        with nogil:
            ext_units_take(queue, units.data, count, fields.data, bitmaps.data, width)
        return fields, bitmaps, width
    finally:
        store_leave(store)


cdef int64_t ext_units_take(
    Queue *queue, const char *units, int64_t count, char *fields, char *bitmaps, int64_t width,
) noexcept nogil:
    """Fill ``fields``, and ``bitmaps`` if given, of at most ``width`` bytes; the widest."""
    cdef MappedFile *near = NULL
    cdef ExtUnit there
    cdef Unit unit
    cdef char *bitmap
    cdef int64_t i, rc
    cdef int64_t widest = 0
    for i in range(count):
        unit_read(units + i * UNIT_BYTES, &unit)
        rc = queue_ext_unit(queue, &near, unit.tags_code, &there)
        if rc < 0:
            there.tags_code = unit.tags_code
            there.store_timestamp = -1
            there.bitmap_bytes = -1
        if bitmaps != NULL and width > 0:
            there.bitmap_bytes = min(there.bitmap_bytes, width)
            bitmap = bitmaps + i * width
            memset(bitmap, 0, <size_t>width)
            if there.bitmap_bytes > 0 and file_set_peek_near(
                    &queue.ext.files, &near, ext_offset(unit.tags_code) + EXT_FIXED_BYTES,
                    there.bitmap_bytes, bitmap) != there.bitmap_bytes:
                there.bitmap_bytes = 0       # gone since it was found
        memcpy(fields + i * EXT_FIELDS_BYTES, &there.tags_code, 8)
        memcpy(fields + i * EXT_FIELDS_BYTES + 8, &there.store_timestamp, 8)
        memcpy(fields + i * EXT_FIELDS_BYTES + 16, &there.bitmap_bytes, 8)
        widest = max(widest, there.bitmap_bytes)
    mapped_file_release(near)
    return widest


cdef object truncate_ext(OpenStore engine, object topic, object queue_id, int64_t address):
    cdef Store *store = engine.entered()
    cdef Queue *queue
    cdef int64_t rc
    try:
        queue = find_queue(store, topic, queue_id)
        if queue == NULL or not store.writable:
            return 0
        with nogil:
            lock_take(&store.flush.queues_lock)
            dispatch_lock_take(store)
            rc = queue_ext_truncate_before(queue, address)
            lock_give(&store.dispatch.lock)
            lock_give(&store.flush.queues_lock)
        return check(rc, NULL, engine._path)
    finally:
        store_leave(store)
