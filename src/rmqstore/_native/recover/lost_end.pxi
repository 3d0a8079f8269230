# Lost end of a closed store: queues, index or checkpoint name more of the log than exists, as its
# last file is missing, short, empty or zeroed.
#
# No other message gets an offset that a unit names: the lost part of the log becomes blanks and
# fillers, and in a queue that lost its last units a mark keeps the offset after them.

cdef enum:
    LOST_FILES_MAX = 1024        # after the log's last file; names beyond that are damaged


# The greatest log offset named anywhere, and the file or directory that names it.
cdef struct NamedEnd:
    int64_t offset
    char by[FAILURE_PATH_BYTES]


cdef bint end_is_plausible(Store *store, int64_t start, int64_t size) noexcept nogil:
    """Whether a record of ``size`` bytes can have been at a log offset."""
    cdef int64_t limit = INT64_MOST - START_MARGIN - store.log.file_size
    cdef int64_t stop = file_set_stop(&store.log)
    if stop < limit // 2 - LOST_FILES_MAX * store.log.file_size:
        limit = stop + LOST_FILES_MAX * store.log.file_size
    return RECORD_FIXED_BYTES <= size <= store.log.file_size and 0 <= start <= limit \
        and start % store.log.file_size + size <= store.log.file_size


cdef int64_t queue_newest_unit(Queue *queue, Unit *unit) noexcept nogil:
    """Queue offset of the newest unit in a queue's files, read into ``unit``; -1: none."""
    cdef int64_t used = queue_used_units(queue)
    if used <= 0 or queue_file_unit(queue, used - 1, unit) < 0 or unit_is_blank(unit):
        return -1
    return used - 1


cdef bint unit_names_beyond(Store *store, const Unit *unit, int64_t end) noexcept nogil:
    return unit.physical_offset >= end \
        and end_is_plausible(store, unit.physical_offset, unit.size)


cdef int64_t queues_named_end(
    Store *store, int64_t end, int64_t limit, Queue **found, int64_t *queue_offset,
) noexcept nogil:
    """Greatest end below ``limit`` that a newest unit names beyond ``end``; ``end``: none."""
    cdef Queue *queue = first_queue(&store.table)
    cdef Unit unit
    cdef int64_t at
    cdef int64_t most = end
    memset(&unit, 0, sizeof(Unit))
    while queue != NULL:
        file_set_reopen(&queue.files, READ_ONLY)
        at = queue_newest_unit(queue, &unit) if queue.files.count else -1
        if at >= 0 and unit_names_beyond(store, &unit, end) \
                and most < unit.physical_offset + unit.size < limit:
            most = unit.physical_offset + unit.size
            found[0] = queue
            queue_offset[0] = at
        file_set_reopen(&queue.files, READ_WRITE if store.writable else READ_ONLY)
        queue = next_queue(queue)
    return most


cdef int64_t log_has_place(
    Store *store, Queue *queue, int64_t queue_offset, int64_t end,
) noexcept nogil:
    """1 if a record below ``end`` names a queue offset, 0 if none does, or a status.

    If one does, the unit there is damaged, and nothing is lost.
    """
    cdef Cursor cursor
    cdef Record record
    cdef DispatchRequest request
    cdef MultiNames names
    cdef MultiName entry
    cdef Queue *named
    cdef const char *data = NULL
    cdef int64_t rc, wanted
    cdef bint found = False
    request.topic = NULL
    cursor_init(&cursor, store, log_first(store), end)
    cursor.check_crc = False
    while not found:
        rc = cursor_next_good(&cursor, &record, &data)
        if rc <= 0:
            break
        wanted = dispatch_request(&store.table, &store.settings, data, &record, &request)
        rc = min(wanted, 0)
        if rc < 0:
            break
        if not wanted & REQUEST_UNIT:
            continue
        found = request.topic == queue.topic and record.queue_id == queue.id \
            and record.queue_offset == queue_offset
        if found or multi_begin(&request.properties, &names) <= 0:
            continue
        while multi_next(&names, &entry):
            if multi_find_queue(&store.table, &record, &entry, &named) == 0 \
                    and named == queue and entry.queue_offset == queue_offset:
                found = True
    cursor_close(&cursor)
    return rc if rc < 0 else found


cdef int64_t queues_lost_end(Store *store, int64_t end, NamedEnd *named) noexcept nogil:
    """Raise ``named`` to the end that units name, unless the log has their messages elsewhere."""
    cdef Queue *queue = NULL
    cdef int64_t limit = INT64_MOST
    cdef int64_t queue_offset = 0
    cdef int64_t most, rc
    while True:
        most = queues_named_end(store, end, limit, &queue, &queue_offset)
        if most <= max(end, named.offset):
            return 0
        rc = log_has_place(store, queue, queue_offset, end)
        if rc < 0:
            return rc
        if rc == 0:
            named.offset = most
            copy_text(named.by, FAILURE_PATH_BYTES, queue.files.directory)
            return 0
        limit = most


cdef int64_t index_file_named_end(Store *store, int fd, int64_t length) noexcept nogil:
    """Offset of the last record named by an index file whose header and entries agree; or 0."""
    cdef IndexSet *indexes = &store.indexes
    cdef char header[INDEX_HEADER_BYTES]
    cdef char last[INDEX_ENTRY_BYTES]
    cdef char slot[INDEX_SLOT_BYTES]
    cdef int64_t count, at
    if indexes.slot_num <= 0 or length != index_file_bytes(indexes.slot_num, indexes.entry_num) \
            or sys_read(fd, header, INDEX_HEADER_BYTES, 0) != INDEX_HEADER_BYTES:
        return 0
    count = get_i32(header + INDEX_COUNT)
    if count <= 1 or count > indexes.entry_num:
        return 0
    at = INDEX_HEADER_BYTES + indexes.slot_num * INDEX_SLOT_BYTES + (count - 1) * INDEX_ENTRY_BYTES
    if sys_read(fd, last, INDEX_ENTRY_BYTES, at) != INDEX_ENTRY_BYTES \
            or get_i32(last + ENTRY_KEY_HASH) < 0:
        return 0
    at = INDEX_HEADER_BYTES + INDEX_SLOT_BYTES * (
        get_i32(last + ENTRY_KEY_HASH) % indexes.slot_num)
    if sys_read(fd, slot, INDEX_SLOT_BYTES, at) != INDEX_SLOT_BYTES \
            or get_i32(slot) != count - 1 \
            or get_i64(last + ENTRY_PHYSICAL_OFFSET) != get_i64(header + INDEX_END_PHY_OFFSET):
        return 0
    return get_i64(last + ENTRY_PHYSICAL_OFFSET)


cdef int64_t index_lost_end(Store *store, int64_t end, NamedEnd *named) noexcept nogil:
    """Raise ``named`` to the end that index files name."""
    cdef DIR *directory
    cdef dirent *entry
    cdef stat_t status
    cdef int64_t file, start
    cdef int64_t fd = sys_open_directory(store.root, "index") if store.indexes.enabled else -ENOENT
    if fd < 0:
        return 0
    directory = fdopendir(<int>fd)
    if directory == NULL:
        close(<int>fd)
        return E_NO_MEMORY
    while True:
        entry = readdir(directory)
        if entry == NULL:
            break
        if strlen(entry.d_name) != INDEX_NAME_DIGITS:
            continue
        file = sys_open_file(<int>fd, entry.d_name, O_RDONLY, &status)
        if file < 0:
            continue
        start = index_file_named_end(store, <int>file, status.st_size)
        close(<int>file)
        if start >= max(end, named.offset) and end_is_plausible(store, start, RECORD_FIXED_BYTES):
            named.offset = start + RECORD_FIXED_BYTES
            snprintf(named.by, FAILURE_PATH_BYTES, "index/%s", <char *>entry.d_name)
    closedir(directory)
    return 0


cdef int64_t find_lost_end(Store *store, const Checkpoint *checkpoint, int64_t end) noexcept nogil:
    """Note in ``store.recovery`` a closed log's lost end, if any file names one: 1, 0, a status.

    Agreement of log and checkpoint proves nothing: both may be copies older than the queues.
    """
    cdef Recovery *recovery = &store.recovery
    cdef NamedEnd named
    cdef int64_t wrote, rc
    named.offset = end
    if checkpoint.marked_record >= end \
            and end_is_plausible(store, checkpoint.marked_record, RECORD_FIXED_BYTES):
        named.offset = max(checkpoint.marked_record + RECORD_FIXED_BYTES, checkpoint.marked)
        copy_text(named.by, FAILURE_PATH_BYTES, "checkpoint")
    wrote = atomic_get(&store.log.wrote)
    file_set_reopen(&store.log, READ_ONLY)
    atomic_set(&store.log.wrote, file_set_stop(&store.log))      # limit of readable bytes
    rc = queues_lost_end(store, end, &named)
    atomic_set(&store.log.wrote, wrote)
    file_set_reopen(&store.log, READ_WRITE if store.writable else READ_ONLY)
    if rc == 0:
        rc = index_lost_end(store, end, &named)
    if rc < 0 or named.offset <= end:
        return rc
    recovery.lost_from = end
    recovery.lost_until = named.offset
    copy_text(recovery.lost_by, FAILURE_PATH_BYTES, named.by)
    return 1


cdef const char *lost_state(Store *store) noexcept nogil:
    """State of the log file in which a closed store's log ends too early."""
    cdef int64_t at
    cdef int64_t length = 0
    lock_take(&store.log.lock)
    at = file_set_find(&store.log, store.recovery.lost_from)
    if at >= 0:
        length = store.log.slots[at].length
    lock_give(&store.log.lock)
    if at < 0:
        return "missing"
    if length == 0:
        return "empty"
    if length < store.log.file_size:
        return "short"
    return "without records from there on"


cdef void lost_text(Store *store, char *into, int64_t room) noexcept nogil:
    """Describe the log's end, and the file that names more of it."""
    snprintf(into, <size_t>room, "the log ends at %lld, but %.80s names %lld: the file is %s",
             <long long>store.recovery.lost_from, <char *>store.recovery.lost_by,
             <long long>store.recovery.lost_until, lost_state(store))


cdef int64_t refuse_lost_end(Store *store, Failure *failure) noexcept nogil:
    """Refuse a log that lost its end, unless the loss is accepted, before any change."""
    cdef char path[FAILURE_PATH_BYTES]
    cdef char what[FAILURE_WHAT_BYTES]
    cdef int64_t at = store.recovery.lost_from
    cdef int64_t length
    if store.recovery.fill:
        return 0
    lost_text(store, what, FAILURE_WHAT_BYTES)
    length = <int64_t>strlen(what)
    snprintf(what + length, <size_t>(FAILURE_WHAT_BYTES - length), "; put it back, or accept the "
             "loss with on_corruption='fill'")
    set_file_name(path, &store.log, set_place_of(&store.log, at), at - at % store.log.file_size)
    return fail(failure, E_CORRUPT, path, what, at, 0, 0)


cdef int64_t keep_lost_offsets(Store *store, Failure *failure) noexcept nogil:
    """Mark the last offset of each queue that names a lost record: it was given to a message."""
    cdef Queue *queue = first_queue(&store.table)
    cdef Unit unit
    cdef int64_t at, rc
    memset(&unit, 0, sizeof(Unit))
    while queue != NULL:
        file_set_reopen(&queue.files, READ_ONLY)
        at = queue_newest_unit(queue, &unit) if queue.files.count else -1
        file_set_reopen(&queue.files, READ_WRITE)
        rc = 0
        if at >= 0 and unit_names_beyond(store, &unit, store.recovery.lost_from):
            rc = queue_mark_given(queue, at)
        if rc < 0:
            return fail_in_file(failure, rc, &queue.files, at * UNIT_BYTES, "cannot be written")
        queue = next_queue(queue)
    return 0


cdef int64_t queue_mark_given(Queue *queue, int64_t queue_offset) noexcept nogil:
    """Replace a unit by the mark of a given-away queue offset, durably."""
    cdef char path[FAILURE_PATH_BYTES]
    cdef char bytes[UNIT_BYTES]
    cdef stat_t status
    cdef int64_t byte = queue_offset * UNIT_BYTES
    cdef int64_t start = byte - byte % queue.files.file_size
    cdef int64_t fd, rc
    file_name(path, queue.files.directory, start)
    fd = sys_open_file(queue.files.root, path, O_RDWR, &status)
    if fd < 0:
        return fd
    unit_write(bytes, 0, 0, OFFSET_GIVEN)
    rc = sys_write(<int>fd, bytes, UNIT_BYTES, byte - start)
    if rc >= 0:
        rc = sys_sync(<int>fd)
    close(<int>fd)
    return min(rc, 0)


cdef int64_t log_replace_lost(Store *store, int64_t *end, Failure *failure) noexcept nogil:
    """Create the lost files, and note blanks and fillers for the range; moves the end."""
    cdef int64_t size = store.log.file_size
    cdef int64_t stop = store.recovery.lost_until
    cdef int64_t start = end[0] - end[0] % size
    cdef int64_t rc = 0
    cdef MappedFile *file = NULL
    if stop % size and stop - max(end[0], stop - stop % size) < RECORD_FIXED_BYTES:
        stop = max(end[0], stop - stop % size) + RECORD_FIXED_BYTES
    if stop % size and (size - stop % size < RECORD_BLANK_BYTES
                        or stop // size != (stop - 1) // size):
        stop = stop + size - stop % size
    while start < stop and rc == 0:
        rc = log_next_file(store, start, &file)
        if rc == 0:
            rc = file_set_sync_name(&store.log, file)
            mapped_file_release(file)
        start += size
    if rc < 0:
        return fail_in_file(failure, rc, &store.log, start - size, "cannot be made")
    rc = damage_note(store, end[0], stop, DAMAGE_BYTES, FIELD_LOST)
    for start in range(store.recovery.damage_count if rc == 0 else 0):
        if store.recovery.damages[start].field == FIELD_LOST:
            store.recovery.damages[start].used = store.recovery.damages[start].start
    end[0] = stop
    return rc
