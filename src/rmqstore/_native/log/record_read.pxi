# Reads of a record by position; checks of units against their records.
#
# Source: store/DefaultMessageStore.java getMessage, store/CommitLog.java getMessage

# A record found, for the Python layer; the holder owns the slice.
cdef struct Found:
    Slice slice
    Record record

cdef enum:
    RECORD_GUESS = 4096          # bytes read before a record's size is known
    SMALL_RECORD = 64 << 10      # up to here it is copied by the size in its first bytes
    LARGE_RECORD = 4 << 20       # from here on its parts are checked before it is read whole


cdef int64_t log_record(
    Store *store, int64_t physical_offset, int64_t size_hint, Found *found, int64_t *field,
) noexcept nogil:
    """Read and fully check the record at a log offset: its size, with a slice to release.

    0: a blank; E_NOT_FOUND: outside the log; E_REMOVED: in a removed file; E_CORRUPT: ``field``.
    """
    cdef MappedFile *near = NULL
    cdef int64_t rc = log_record_near(store, &near, physical_offset, size_hint, found, field)
    mapped_file_release(near)
    return rc


cdef int64_t log_record_near(
    Store *store, MappedFile **near, int64_t physical_offset, int64_t size_hint, Found *found,
    int64_t *field,
) noexcept nogil:
    """As log_record; ``near`` as for file_set_read_near."""
    cdef int64_t room, rc, wanted
    cdef const char *mapped
    cdef int64_t follow = 0
    memset(&found.slice, 0, sizeof(Slice))
    field[0] = FIELD_NONE
    if physical_offset < 0:
        return E_NOT_FOUND
    if store.writable and physical_offset >= atomic_get(&store.log.wrote):
        return E_NOT_FOUND
    room = store.log.file_size - physical_offset % store.log.file_size
    if size_hint <= 0:
        mapped = file_set_mapped(&store.log, near, physical_offset, &follow)
        if mapped != NULL and follow >= 4:
            size_hint = get_i32(mapped)      # the record's own size: how much to copy
            if size_hint > SMALL_RECORD:
                size_hint = 0
            elif store.writable:             # its end, which is parsed before its body is read
                prefetch_range(mapped, min(min(size_hint, follow), FETCHED_MAX))
    if size_hint > LARGE_RECORD:             # too large to allocate on a unit's word alone
        size_hint = 0
    wanted = min(room, max(size_hint, RECORD_GUESS) if store.log.writable or size_hint <= 0
                 else max(size_hint, 8))
    while True:
        rc = file_set_read_near(
            &store.log, near, physical_offset, min(room, wanted), &found.slice)
        if rc < 0:
            return E_REMOVED if rc == E_NOT_FOUND and physical_offset < log_first(store) else rc
        if found.slice.file != NULL:
            room = found.slice.file.start + found.slice.file.size - physical_offset
            found.slice.length = room        # mapped: the whole file is readable
        rc = record_parse(found.slice.data, found.slice.length, room, &found.record, field)
        if rc != E_NOT_FOUND:
            break
        if found.slice.length < wanted:      # the file itself is short
            rc = E_CORRUPT
            break
        slice_release(&found.slice)
        wanted = found.record.size
        if wanted > LARGE_RECORD:
            rc = large_record_fits(store, physical_offset, wanted, field)
            if rc < 0:
                return rc
    if rc > 0:
        field[0] = record_check(found.slice.data, &found.record, physical_offset, CHECK_CRC)
        if field[0] != FIELD_NONE:
            rc = E_CORRUPT
    if rc > 0:
        found.slice.length = rc
    if slice_lost(&found.slice) < 0:         # without a size: any byte after its beginning
        rc = E_LOST
    if rc <= 0:
        slice_release(&found.slice)
    else:
        found.slice.length = rc
    return rc


cdef const char *record_mapped(
    Store *store, MappedFile **near, int64_t offset, int64_t *room,
) noexcept nogil:
    """Mapped bytes of a small record at ``offset``, ``room`` to the end; else NULL.

    The caller discards its results if mapped_record_changed afterwards.
    """
    cdef int64_t size
    cdef const char *data = NULL
    if not (store.writable and offset >= atomic_get(&store.log.wrote)):
        data = file_set_mapped(&store.log, near, offset, room)
    if data == NULL or room[0] < 4:
        return NULL
    size = get_i32(data + RECORD_SIZE)
    if size > SMALL_RECORD or size > room[0] or size <= 0 or (
            near[0].base == NULL
            and not view_may_touch(&near[0].view, data - near[0].view.bytes, size)):
        return NULL
    return data


cdef bint mapped_record_changed(
    MappedFile *file, const char *data, const Record *record,
) noexcept nogil:
    """Whether a record parsed and used in place may have been replaced since.

    A recovery and new records change its head: no later record has the same offsets, checksum and
    time.  A cut inside its last page shows as a zero last byte, an earlier cut in the guard.
    """
    cdef const Guard *guard = &file.guard
    cdef int64_t at = data - file.base
    if file.base == NULL:
        guard = &file.view.guard
        at = data - file.view.bytes
    return data[record.size - 1] == 0 or not head_is_of(data, record) \
        or guard_lost(guard, at, at + record.size)


cdef inline bint head_is_of(const char *head, const Record *record) noexcept nogil:
    return get_i32(head + RECORD_SIZE) == record.size \
        and get_i32(head + RECORD_MAGIC) == record.magic \
        and get_i32(head + RECORD_BODY_CRC) == record.body_crc \
        and get_i64(head + RECORD_QUEUE_OFFSET) == record.queue_offset \
        and get_i64(head + record_stored_at(record.sys_flag)) == record.store_timestamp


cdef int64_t log_first(Store *store) noexcept nogil:
    """First offset of the log."""
    return file_set_start(&store.log)


cdef int64_t large_record_fits(
    Store *store, int64_t physical_offset, int64_t size, int64_t *field,
) noexcept nogil:
    """"r": whether the parts of a large record add up, checked before memory is allocated."""
    cdef char head[RECORD_HEAD_BYTES + 2 * HOST_V6_EXTRA]
    cdef char length[2]
    cdef int64_t at = RECORD_HEAD_BYTES - 4
    cdef int64_t body, topic, rc, topic_head
    cdef int32_t sys_flag
    rc = log_bytes(store, physical_offset, sizeof(head), head)
    if rc < <int64_t>sizeof(head):
        return rc if rc < 0 else E_CORRUPT
    topic_head = 2 if get_i32(head + RECORD_MAGIC) == MAGIC_MESSAGE_V2 else 1
    sys_flag = get_i32(head + RECORD_SYS_FLAG)
    at += HOST_V6_EXTRA if sys_flag & SYS_BORN_HOST_V6 else 0
    at += HOST_V6_EXTRA if sys_flag & SYS_STORE_HOST_V6 else 0
    body = get_i32(head + at)
    field[0] = FIELD_SIZE
    at += 4 + body
    if body < 0 or at + topic_head + 2 > size:
        return E_CORRUPT
    rc = log_bytes(store, physical_offset + at, 2, length)
    topic = -1
    if rc == 2:
        topic = get_i16(length) if topic_head == 2 else <signed char>length[0]
    at += topic_head + topic
    if topic < 0 or at + 2 > size:
        return rc if rc < 0 else E_CORRUPT
    rc = log_bytes(store, physical_offset + at, 2, length)
    if rc == 2 and at + 2 + get_i16(length) == size:
        field[0] = FIELD_NONE
    return E_CORRUPT if field[0] != FIELD_NONE else 0


cdef int64_t log_bytes(
    Store *store, int64_t offset, int64_t length, char *into,
) noexcept nogil:
    """"r": pread up to ``length`` bytes of one file: a large record must not cost pages."""
    cdef MappedFile *file = NULL
    cdef int64_t rc = file_set_hold(&store.log, offset, &file)
    if rc < 0:
        return rc
    length = min(length, file.start + store.log.file_size - offset)
    rc = file_read(file.fd, into, length, offset - file.start)
    mapped_file_release(file)
    return rc


cdef inline bint record_is_own(
    const char *data, const Record *record, const Queue *queue, int64_t queue_offset,
) noexcept nogil:
    """Whether a record names this queue and queue offset as its own."""
    return record.topic_length == queue.topic.length and record.queue_id == queue.id \
        and record.queue_offset == queue_offset \
        and memcmp(data + record.topic_at, queue.topic.name,
                   <size_t>queue.topic.length) == 0


cdef bint record_is_of(
    const char *data, const Record *record, const Queue *queue, int64_t queue_offset,
) noexcept nogil:
    """Whether a record names this queue and queue offset, itself or by multi-dispatch."""
    cdef StoreProperties properties
    cdef MultiNames names
    cdef MultiName entry
    cdef Topic *topic = queue.topic
    if record_is_own(data, record, queue, queue_offset):
        return True
    store_properties(data + record.properties_at, record.properties_length, &properties)
    if multi_begin(&properties, &names) <= 0:
        return False
    while multi_next(&names, &entry):
        # A broker without enableLmq has light queues under the id of the record's queue, and a
        # restarted one puts the unit of offset 0 at the end of the queue.
        if (entry.queue_offset == queue_offset or (
                entry.queue_offset == 0 and topic_is_light(topic))) \
                and entry.length == topic.length \
                and memcmp(entry.name, topic.name, <size_t>topic.length) == 0 \
                and (queue.id == record.queue_id
                     or queue.id == multi_queue_id(&entry, record.queue_id)):
            return True
    return False


cdef int64_t queue_record(
    Store *store, Queue *queue, int64_t queue_offset, const Unit *unit, Found *found,
    int64_t *field,
) noexcept nogil:
    """Read the record of a unit; it must name the unit's queue and queue offset."""
    cdef MappedFile *near = NULL
    cdef int64_t rc = queue_record_near(store, &near, queue, queue_offset, unit, found, field)
    mapped_file_release(near)
    return rc


cdef int64_t queue_record_near(
    Store *store, MappedFile **near, Queue *queue, int64_t queue_offset, const Unit *unit,
    Found *found, int64_t *field,
) noexcept nogil:
    """As queue_record; ``near`` as for file_set_read_near."""
    cdef int64_t rc, size
    if unit_is_blank(unit):
        return E_REMOVED
    if unit.size <= 0:                       # an empty unit with others after it
        field[0] = FIELD_UNIT
        return E_CORRUPT
    rc = log_record_near(store, near, unit.physical_offset, unit.size, found, field)
    if rc > 0 and (rc != unit.size or not record_is_of(
            found.slice.data, &found.record, queue, queue_offset)):
        size = rc
        slice_release(&found.slice)
        field[0] = FIELD_QUEUE if size == unit.size else FIELD_UNIT
        rc = E_CORRUPT
    elif rc == 0:
        field[0] = FIELD_MAGIC
        rc = E_CORRUPT
    if rc == E_CORRUPT and unit_is_misplaced(queue, queue_offset, unit):
        field[0] = FIELD_UNIT
    return rc


cdef bint unit_is_misplaced(Queue *queue, int64_t queue_offset, const Unit *unit) noexcept nogil:
    """Whether a unit's neighbours show that the unit is damaged, not the log."""
    cdef Unit other
    memset(&other, 0, sizeof(Unit))
    if queue_offset > 0 and queue_file_unit(queue, queue_offset - 1, &other) == 0 \
            and other.size > 0 and not unit_is_blank(&other) \
            and other.physical_offset + other.size > unit.physical_offset:
        return True
    memset(&other, 0, sizeof(Unit))
    return queue_file_unit(queue, queue_offset + 1, &other) == 0 and other.size > 0 \
        and not unit_is_blank(&other) and unit.physical_offset >= other.physical_offset


cdef bint unit_is_good(Store *store, Queue *queue, int64_t queue_offset) noexcept nogil:
    """"r": whether a unit's record is good and names the unit's queue offset.

    False while the tags code is incomplete: tag filters would miss the message.
    """
    cdef Unit unit
    cdef Unit before
    cdef Found found
    cdef int64_t field
    cdef bint torn
    memset(&unit, 0, sizeof(Unit))
    if queue_file_unit(queue, queue_offset, &unit) < 0 or unit.size <= 0 or unit_is_blank(&unit):
        return False
    memset(&before, 0, sizeof(Unit))
    if queue_offset > 0 and queue_file_unit(queue, queue_offset - 1, &before) == 0 \
            and not unit_is_blank(&before) and before.physical_offset >= unit.physical_offset:
        return False
    if queue_record(store, queue, queue_offset, &unit, &found, &field) <= 0:
        return False
    torn = record_is_torn(found.slice.data, &found.record,
                          store.log.file_size) or (
        not queue.topic.schedule
        and code_is_half_written(unit.tags_code, record_tags_code(found.slice.data, &found.record)))
    slice_release(&found.slice)
    return not torn


cdef int64_t queue_first_kept(
    Store *store, Queue *queue, int64_t low, int64_t stop,
) noexcept nogil:
    """First queue offset in [low, stop) whose record the log still has; ``stop``: none.

    A damaged unit that points below the log does not hide good units before it.
    """
    cdef int64_t start = log_first(store)
    cdef int64_t first = queue_first_at_or_after(queue, start, low, stop)
    cdef int64_t earlier
    while first > low + 1:
        earlier = queue_first_at_or_after(queue, start, low, first - 1)
        if not 0 <= earlier < first - 1 or not unit_is_good(store, queue, earlier):
            break
        first = earlier
    return first


cdef bint code_is_half_written(int64_t stored, int64_t wanted) noexcept nogil:
    """Whether a code differs only by bytes that are still zero."""
    cdef int64_t shift = 0
    if stored == wanted:
        return False
    while shift < 64:
        if (stored >> shift) & 0xFF and (stored >> shift) & 0xFF != (wanted >> shift) & 0xFF:
            return False
        shift += 8
    return True


cdef int64_t record_tags_code(const char *data, const Record *record) noexcept nogil:
    cdef StoreProperties properties
    store_properties(data + record.properties_at, record.properties_length, &properties)
    return tags_code(&properties.tags)
