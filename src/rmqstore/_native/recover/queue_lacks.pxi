# Missing, short, empty or zeroed queue files, found by names, lengths and files' first and last
# units: a walk over the whole log then completes the queues.
#
# A file missing at the front looks like retention.  It counts as missing unless the log lacks the
# records before the first unit too, or the watermark has the same beginning.

cdef enum:
    LACKS_NOTHING
    LACKS_FILE
    LACKS_ALL                    # an empty file
    LACKS_END                    # a short one
    LACKS_UNITS                  # zeros where units were
    LACKS_FRONT                  # the files before the first one
    LACKS_EXT                    # ext units

    LOG_PER_UNIT = 16            # least bytes of the log: a record may name many light queues


cdef inline void queue_note_lack(Queue *queue, int lack, int64_t byte) noexcept nogil:
    if queue.lacks == LACKS_NOTHING:
        queue.lacks = lack
        queue.lacks_at = byte


cdef bint unit_is_empty(Queue *queue, int64_t queue_offset) noexcept nogil:
    """Whether the unit was never written, or lost by the file."""
    cdef Unit unit
    memset(&unit, 0, sizeof(Unit))
    return queue_file_unit(queue, queue_offset, &unit) < 0 or unit.size <= 0


cdef void queue_find_zeros(Queue *queue) noexcept nogil:
    """Check the first unit of each used file, and the last if a file follows."""
    cdef int64_t per_file = queue.files.file_size // UNIT_BYTES
    cdef int64_t i = queue.files.count - 1
    cdef int64_t first
    while i >= 0:
        first = queue.files.slots[i].start // UNIT_BYTES
        if not unit_is_empty(queue, first):
            break
        if queue_used_units(queue) > first:      # else nothing was written there yet
            queue_note_lack(queue, LACKS_UNITS, first * UNIT_BYTES)
            break
        i -= 1
    while i > 0:
        i -= 1
        first = queue.files.slots[i].start // UNIT_BYTES
        if unit_is_empty(queue, first) or unit_is_empty(queue, first + per_file - 1):
            queue_note_lack(queue, LACKS_UNITS, first * UNIT_BYTES)


cdef void queue_find_front(Store *store, Queue *queue) noexcept nogil:
    """Whether the log has the first unit's record, and so perhaps earlier ones."""
    cdef Unit unit
    cdef int64_t first = queue.files.slots[0].start
    memset(&unit, 0, sizeof(Unit))
    if first == 0 or (queue_file_unit(queue, first // UNIT_BYTES, &unit) == 0 and unit.size > 0
                      and not unit_is_blank(&unit)
                      and unit.physical_offset < log_first(store)):
        return
    queue_note_lack(queue, LACKS_FRONT, first)


cdef void queue_find_ext(Queue *queue) noexcept nogil:
    """Check that the first and last unit find their ext units, and no ext file shows a loss."""
    cdef QueueExt *ext
    cdef ExtUnit there
    cdef Unit unit
    cdef MappedFile *near = NULL
    cdef int64_t used, i
    cdef bint lacks = False
    if not ext_is_written(queue):
        return
    ext = queue_ext_of(queue)
    used = queue_used_units(queue)
    memset(&unit, 0, sizeof(Unit))
    if ext == NULL or used <= 0:
        return
    for i in range(ext.files.count):
        lacks = lacks or ext.files.slots[i].length < ext.files.file_size or (
            i and ext.files.slots[i].start != ext.files.slots[i - 1].start + ext.files.file_size)
    if queue_file_unit(queue, queue.files.slots[0].start // UNIT_BYTES, &unit) == 0 \
            and unit.tags_code <= EXT_ADDRESS:
        lacks = lacks or ext_unit_at(ext, &near, ext_offset(unit.tags_code), &there) < 0
    if queue_file_unit(queue, used - 1, &unit) == 0 and unit.tags_code <= EXT_ADDRESS:
        lacks = lacks or ext_unit_at(ext, &near, ext_offset(unit.tags_code), &there) < 0
    mapped_file_release(near)
    if lacks:
        queue_note_lack(queue, LACKS_EXT, 0)


cdef bint queue_lacks(Store *store, Queue *queue, bint vouched) noexcept nogil:
    """Note the first loss shown by a queue's files; ``vouched``: their beginning is right."""
    cdef FileSlot *slot
    cdef int64_t i
    cdef int64_t count = queue.files.count
    queue.lacks = LACKS_NOTHING
    if count == 0 or queue.deleted or queue.unreadable:
        return False
    for i in range(count):
        slot = &queue.files.slots[i]
        if i and slot.start > queue.files.slots[i - 1].start + queue.files.file_size:
            queue_note_lack(queue, LACKS_FILE,
                            queue.files.slots[i - 1].start + queue.files.file_size)
        if slot.length == 0:
            queue_note_lack(queue, LACKS_ALL, slot.start)
        elif slot.length < queue.files.file_size:
            queue_note_lack(queue, LACKS_END, slot.start)
    file_set_reopen(&queue.files, READ_ONLY)
    if queue.lacks == LACKS_NOTHING:
        queue_find_zeros(queue)
    if queue.lacks == LACKS_NOTHING and not vouched:
        queue_find_front(store, queue)
    if queue.lacks == LACKS_NOTHING and store.writable:
        queue_find_ext(queue)
    file_set_reopen(&queue.files, READ_WRITE if store.writable else READ_ONLY)
    return queue.lacks != LACKS_NOTHING


cdef bint queues_lack(Store *store, const Checkpoint *checkpoint) noexcept nogil:
    """Whether the files of any queue show a loss; each queue's first is noted."""
    cdef Queue *queue = first_queue(&store.table)
    cdef bint vouched = checkpoint.mark.valid and checkpoint.mark.fronts != 0 \
        and checkpoint.mark.fronts == queue_fronts(store)
    cdef bint found = False
    while queue != NULL:
        found = queue_lacks(store, queue, vouched) or found
        queue = next_queue(queue)
    return found


cdef int64_t queue_check_gaps(Store *store, Queue *queue, Failure *failure) noexcept nogil:
    """Refuse a file farther beyond the previous one than the log has units for; 0 or a status."""
    cdef char path[FAILURE_PATH_BYTES]
    cdef int64_t bytes = file_set_stop(&store.log) + 2 * store.log.file_size
    cdef int64_t most = bytes // LOG_PER_UNIT * UNIT_BYTES
    cdef int64_t i, follows
    for i in range(1, queue.files.count):
        follows = queue.files.slots[i - 1].start + queue.files.file_size
        if queue.files.slots[i].start - follows > most:
            file_name(path, queue.files.directory, queue.files.slots[i].start)
            return fail(failure, E_INCOMPATIBLE, path,
                        "does not follow the file before it: the log has no units for so wide a "
                        "gap; move it out of the directory",
                        -1, queue.files.slots[i].start, follows)
    return 0


cdef int64_t queue_fill_gaps(Queue *queue) noexcept nogil:
    """Create the files still missing between others, whose records have expired."""
    cdef int64_t i = 1
    cdef int64_t rc = 0
    while i < queue.files.count and rc == 0:
        if queue.files.slots[i].start == queue.files.slots[i - 1].start + queue.files.file_size:
            i += 1
            continue
        rc = queue_use_file(queue, queue.files.slots[i - 1].start + queue.files.file_size)
    return rc


cdef bint queue_files_are_short(TopicTable *table, int64_t size) noexcept nogil:
    """Whether files of ``size`` are each alone in a queue, and another has the configured size.

    If so, they lost their ends; otherwise the configuration is wrong.
    """
    cdef Queue *queue = first_queue(table)
    cdef bint found = False
    cdef int64_t i
    while queue != NULL:
        for i in range(queue.files.count):
            if queue.files.slots[i].length == size and queue.files.count > 1:
                return False
            found = found or queue.files.slots[i].length == table.file_size
        queue = next_queue(queue)
    return found
