# Ext units while queues are completed from the log: kept or rewritten.
#
# A unit keeps its address only if the ext unit at that address has its record's tags code and store
# time, so that no address ever names another message's ext unit.
#
# Source: store/ConsumeQueue.java recover, truncateDirtyLogicFiles

cdef int64_t stored_at(Store *store, int64_t physical_offset) noexcept nogil:
    """Store time of the unchecked record at an offset, or a status."""
    cdef char head[RECORD_BORN_HOST + HOST_V6_BYTES + 8]
    cdef int64_t rc = file_set_peek(&store.log, physical_offset, sizeof(head), head)
    cdef int64_t at = RECORD_BORN_HOST + HOST_V4_BYTES
    if rc < 0:
        return rc
    if rc >= RECORD_BORN_HOST and get_i32(head + RECORD_SYS_FLAG) & SYS_BORN_HOST_V6:
        at = RECORD_BORN_HOST + HOST_V6_BYTES
    return get_i64(head + at) if rc >= at + 8 else E_NOT_FOUND


cdef bint ext_unit_is_of(
    QueueExt *ext, Queue *queue, int64_t offset, int64_t code, int64_t store_timestamp,
    ExtUnit *unit,
) noexcept nogil:
    """Whether the ext unit at ``offset`` has that store time and tags code.

    Not the code of a delayed message: its due time depends on the delay levels at its put.
    """
    cdef MappedFile *near = NULL
    cdef int64_t rc = ext_unit_at(ext, &near, offset, unit)
    mapped_file_release(near)
    return rc == 0 and unit.store_timestamp == store_timestamp and (
        unit.tags_code == code or queue.topic.schedule)


cdef bint ext_follows(Queue *queue, QueueExt *ext, int64_t offset) noexcept nogil:
    """Whether a unit at ``offset`` directly follows the last one, or begins the next file.

    4.9.3 steps from unit to unit: a gap is allowed only at the end of a file.
    """
    cdef int64_t at = atomic_peek(&ext.files.wrote)
    cdef int64_t used = at % ext.files.file_size
    if offset == at:
        return True
    if used == 0 or offset != at - used + ext.files.file_size \
            or used > ext.files.file_size - 2 or queue_ext_room(queue, ext, at, 2) < 0:
        return False
    put_i16(ext.current.base + (at - ext.current.start), EXT_END_SIZE)
    return True


cdef bint ext_mend_bitmap(
    Queue *queue, QueueExt *ext, int64_t offset, const ExtUnit *unit,
) noexcept nogil:
    """Set all bits of each zero sector of a bit map, after the unit's first; False on failure.

    A power cut may lose just that sector.  A set bit only makes a broker evaluate the message.
    """
    cdef int64_t base = offset - offset % ext.files.file_size
    cdef int64_t stop = offset - base + unit.size
    cdef int64_t sector = ((offset - base) // SECTOR_BYTES + 1) * SECTOR_BYTES
    cdef int64_t at, length
    if sector >= stop or unit.bitmap_bytes == 0:
        return True
    if queue_ext_room(queue, ext, offset, unit.size) < 0:
        return False
    while sector < stop:
        at = max(sector, offset - base + EXT_FIXED_BYTES)
        sector += SECTOR_BYTES
        length = min(sector, stop) - at
        if length > 0 and last_nonzero(ext.current.base + at, length) < 0:
            memset(ext.current.base + at, 0xFF, <size_t>length)
    return mapped_file_lost(ext.current, offset - base, stop) == 0


cdef bint ext_address_stays(
    Store *store, Queue *queue, int64_t queue_offset, const Unit *there, int64_t code,
) noexcept nogil:
    """Whether a unit keeps its address (``code``: its record's); then the ext units end there."""
    cdef ExtUnit unit
    cdef QueueExt *ext
    cdef int64_t offset = ext_offset(there.tags_code)
    if not ext_is_written(queue):
        return True
    ext = queue_ext_of(queue)
    if ext == NULL or queue_ext_begin(queue, ext, atomic_peek(&queue.max_offset)) < 0 \
            or not ext_unit_is_of(ext, queue, offset, code,
                                  stored_at(store, there.physical_offset), &unit):
        return False
    if queue_offset >= atomic_peek(&queue.max_offset):
        if not ext_follows(queue, ext, offset) or not ext_mend_bitmap(queue, ext, offset, &unit):
            return False
        atomic_set(&ext.files.wrote, offset + unit.size)
    return True


cdef void ext_keep(Queue *queue, const Unit *unit) noexcept nogil:
    """Keep the ext unit of a unit that is kept: none is written over it."""
    cdef ExtUnit there
    cdef MappedFile *near = NULL
    cdef QueueExt *ext
    if unit.tags_code > EXT_ADDRESS or not ext_is_written(queue):
        return
    ext = queue_ext_of(queue)
    if ext == NULL or queue_ext_begin(queue, ext, atomic_peek(&queue.max_offset)) < 0:
        return
    if ext_unit_at(ext, &near, ext_offset(unit.tags_code), &there) == 0:
        atomic_raise(&ext.files.wrote, ext_offset(unit.tags_code) + there.size)
    mapped_file_release(near)


cdef int64_t ext_bitmap_there(
    Store *store, Queue *queue, QueueExt *ext, int64_t queue_offset, const Unit *unit,
    int64_t store_timestamp, const char **bitmap,
) noexcept nogil:
    """Bytes of the bit map in a record's old ext unit, copied; -1: none."""
    cdef ExtUnit there
    cdef Unit old
    cdef char *grown
    cdef int64_t offset
    if queue_file_unit(queue, queue_offset, &old) < 0 or old.tags_code > EXT_ADDRESS \
            or old.physical_offset != unit.physical_offset:
        return -1
    offset = ext_offset(old.tags_code)
    if not ext_unit_is_of(ext, queue, offset, unit.tags_code, store_timestamp, &there) \
            or not ext_mend_bitmap(queue, ext, offset, &there):
        return -1
    if there.bitmap_bytes > store.dispatch.bitmap_room:
        grown = <char *>realloc(store.dispatch.bitmap, <size_t>there.bitmap_bytes)
        if grown == NULL:
            return -1
        store.dispatch.bitmap = grown
        store.dispatch.bitmap_room = there.bitmap_bytes
    if there.bitmap_bytes and file_set_peek(
            &ext.files, offset + EXT_FIXED_BYTES, there.bitmap_bytes,
            store.dispatch.bitmap) != there.bitmap_bytes:
        return -1
    bitmap[0] = store.dispatch.bitmap
    return there.bitmap_bytes


cdef int64_t ext_recovered_code(
    Store *store, Queue *queue, int64_t queue_offset, const Unit *unit,
) noexcept nogil:
    """Tags code for a rewritten unit: an ext address, or the record's own code.

    Reuses an existing ext unit if only the queue's page was lost.
    """
    cdef char mark[2]
    cdef ExtUnit there
    cdef Found found
    cdef const char *bitmap = NULL
    cdef QueueExt *ext
    cdef int64_t field, at, address
    if queue_offset < atomic_peek(&queue.max_offset):
        return unit.tags_code                # an address would not ascend
    ext = queue_ext_of(queue)
    if ext == NULL or queue_ext_begin(queue, ext, atomic_peek(&queue.max_offset)) < 0 \
            or log_record(store, unit.physical_offset, unit.size, &found, &field) <= 0:
        return unit.tags_code
    at = atomic_peek(&ext.files.wrote)
    if file_set_peek(&ext.files, at, 2, mark) == 2 and get_i16(mark) == EXT_END_SIZE:
        at += ext.files.file_size - at % ext.files.file_size
    if ext_unit_is_of(ext, queue, at, unit.tags_code, found.record.store_timestamp, &there) \
            and ext_mend_bitmap(queue, ext, at, &there):
        atomic_set(&ext.files.wrote, at + there.size)
        address = at | INT64_MIN
    else:
        there.tags_code = unit.tags_code
        there.store_timestamp = found.record.store_timestamp
        there.bitmap_bytes = ext_bitmap_there(
            store, queue, ext, queue_offset, unit, found.record.store_timestamp, &bitmap)
        if there.bitmap_bytes < 0:
            there.bitmap_bytes = filter_bitmap(
                store, queue.topic, found.slice.data + found.record.properties_at,
                found.record.properties_length, &bitmap)
        address = queue_ext_put(queue, ext, &there, bitmap)
    slice_release(&found.slice)
    return unit.tags_code if address == EXT_NONE else address
