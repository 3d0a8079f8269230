# Opening, second part: the queues that are there; which of their units are believed, and what
# is left of them once the log was dispatched.
#
# Source: store/ConsumeQueue.java recover, truncateDirtyLogicFiles, correctMinOffset;
#         store/DefaultMessageStore.java loadConsumeQueue

cdef int64_t load_queues(Store *store, Failure *failure) noexcept nogil:
    """Enter a topic and a queue for each directory below consumequeue/.

    Names that are none are passed over: a broker does so too.  Returns the number of queues.
    """
    cdef DIR *directory
    cdef dirent *entry
    cdef Topic *topic
    cdef int64_t rc
    cdef int64_t count = 0
    cdef int64_t length
    cdef int64_t fd = sys_open_directory(store.root, "consumequeue")
    if fd == -ENOENT:
        return 0
    if fd < 0:
        return fail(failure, fd, "consumequeue", "the directory cannot be opened", -1, 0, 0)
    directory = fdopendir(<int>fd)
    if directory == NULL:
        close(<int>fd)
        return fail(failure, E_NO_MEMORY, "consumequeue", "no memory", -1, 0, 0)
    rc = 0
    while rc >= 0:
        entry = readdir(directory)
        if entry == NULL:
            break
        length = <int64_t>strlen(entry.d_name)
        if not topic_name_good(entry.d_name, length):
            continue
        topic = topic_find(&store.table, entry.d_name, length)
        rc = load_topic_queues(store, <int>fd, entry.d_name, topic, failure)
        count += max(rc, 0)
    closedir(directory)
    return rc if rc < 0 else count


cdef int64_t load_topic_queues(
    Store *store, int parent, const char *name, Topic *topic, Failure *failure,
) noexcept nogil:
    """The queues of one topic's directory; their number."""
    cdef DIR *directory
    cdef dirent *entry
    cdef Queue *queue
    cdef int64_t queue_id
    cdef int64_t count = 0
    cdef char path[FAILURE_PATH_BYTES]
    cdef int64_t fd = sys_open_directory(parent, name)
    snprintf(path, FAILURE_PATH_BYTES, "consumequeue/%s", name)
    if fd == -ENOTDIR or fd == -ELOOP or fd == -ENOENT:
        return 0
    if fd < 0:
        return fail(failure, fd, path, "the topic's directory cannot be opened", -1, 0, 0)
    directory = fdopendir(<int>fd)
    if directory == NULL:
        close(<int>fd)
        return fail(failure, E_NO_MEMORY, name, "no memory", -1, 0, 0)
    while True:
        entry = readdir(directory)
        if entry == NULL:
            break
        queue_id = parse_decimal(entry.d_name, <int64_t>strlen(entry.d_name))
        # Only the name that a queue id is written as: not 007.
        if queue_id < 0 or queue_id > 0x7FFFFFFF or (entry.d_name[0] == 48 and entry.d_name[1]):
            continue
        if topic == NULL:
            topic = topic_enter(&store.table, name, <int64_t>strlen(name))
        queue = NULL
        if topic != NULL:
            queue = queue_enter(&store.table, topic, <int32_t>queue_id, store.root,
                                store.settings.queue_file_size, store.writable)
        if queue == NULL:
            closedir(directory)
            return fail(failure, E_NO_MEMORY, name, "no memory", -1, 0, 0)
        queue.files.open_files = &store.open_files
        queue.listed = True
        count += 1
    closedir(directory)
    return count


cdef enum:
    QUEUE_SIZES = 16             # different ones that queues may show before others are passed over
    QUEUES_ENOUGH = 3            # queues more than any other size has, for who only reads


cdef int64_t tell_queue_size(Store *store, Failure *failure) noexcept nogil:
    """The size of a consume queue file as most queues show it; 0 unknown."""
    cdef int64_t sizes[QUEUE_SIZES]
    cdef int64_t queues[QUEUE_SIZES]
    cdef Queue *queue = first_queue(&store.table)
    cdef int64_t rc, size, i, second
    cdef int64_t count = 0
    cdef int64_t best = -1
    while queue != NULL:
        if queue.files.count == 0:
            rc = file_set_list(&queue.files, failure)
            if rc < 0 and rc != -ENOENT and store.writable:
                return rc
        size = file_set_tell_size(&queue.files, UNIT_BYTES)
        queue = next_queue(queue)
        i = 0
        while i < count and sizes[i] != size:
            i += 1
        if size == 0 or i == QUEUE_SIZES:
            continue
        if i == count:
            sizes[i] = size
            queues[i] = 0
            count += 1
        queues[i] += 1
        second = 0
        if best < 0 or queues[i] > queues[best] \
                or (queues[i] == queues[best] and sizes[i] > sizes[best]):
            best = i
        for i in range(count):
            if i != best:
                second = max(second, queues[i])
        if not store.writable and queues[best] >= second + QUEUES_ENOUGH:
            return sizes[best]
    return sizes[best] if best >= 0 else 0


cdef int64_t recover_queues(
    Store *store, const Checkpoint *checkpoint, bint full, Failure *failure,
) noexcept nogil:
    """Set every queue's end to the units that need no second look; the dispatch goes on there.

    Returns 1 if up to the watermark the queues are as its digest says, else 0.
    """
    cdef int64_t mark = log_first(store)
    cdef int64_t rc, queues
    cdef uint64_t digest
    if checkpoint.mark.valid and not full:
        mark = checkpoint.mark.dispatched
    rc = recover_floors(store, mark, checkpoint.mark.valid and checkpoint.mark.clean, failure)
    if rc < 0:
        return rc
    if not checkpoint.mark.valid or full or mark > atomic_get(&store.log.wrote):
        return 0
    rc = queues_digest(store, mark, &digest, &queues)
    if rc < 0:
        return fail(failure, rc, "consumequeue", "cannot be read", -1, 0, 0)
    return digest == checkpoint.mark.digest and queues == checkpoint.mark.queues


cdef int64_t recover_foresee(
    Store *store, const Checkpoint *checkpoint, int64_t end, bint was_clean, bint full, bint fill,
    Failure *failure,
) noexcept nogil:
    """Decide about all of the log where queues have lost units: nothing has been changed yet.

    After a clean exit none has, as long as no file is damaged.  The records behind one that a
    power cut took do not follow their queues' ends.
    """
    cdef Queue *queue = first_queue(&store.table)
    cdef uint64_t digest
    cdef int64_t queues
    cdef int64_t rc = 0
    cdef bint known = (was_clean or checkpoint.mark.dispatched <= end) and not log_has_holes(store)
    if full or not checkpoint.mark.valid:
        return 0                             # the whole log was examined
    atomic_set(&store.log.wrote, end)
    while queue != NULL and known and rc >= 0:
        rc = file_set_validate(&queue.files, False, failure)
        known = rc == 0
        if rc == 0 and not was_clean:
            rc = foresee_floor(store, queue, checkpoint.mark.dispatched)
        queue = next_queue(queue)
    if rc >= 0 and known and not was_clean:
        rc = queues_digest(store, checkpoint.mark.dispatched, &digest, &queues)
        known = digest == checkpoint.mark.digest and queues == checkpoint.mark.queues
    atomic_set(&store.log.wrote, 0)
    if rc < 0:
        return fail(failure, rc, "consumequeue", "cannot be read", -1, 0, 0)
    if not known:
        rc = examine_below(store, failure)
        if rc > 0:
            rc = damages_decide(store, fill, failure)
    return min(rc, 0)


cdef bint log_has_holes(const Store *store) noexcept nogil:
    """Whether there is damage with good records behind it."""
    cdef int64_t i
    for i in range(store.recovery.damage_count):
        if not store.recovery.damages[i].tail:
            return True
    return False


cdef int64_t foresee_floor(Store *store, Queue *queue, int64_t limit) noexcept nogil:
    """Set one queue's end as recover_floor will, from descriptors that only read."""
    cdef int64_t last_end = 0
    cdef int64_t floor = 0
    file_set_reopen(&queue.files, False)
    if queue.files.count and not queue_is_of_deleted(queue):
        floor = queue_floor(store, queue, limit, &last_end)
    file_set_reopen(&queue.files, store.writable)
    atomic_set(&queue.last_end, last_end)
    atomic_set(&queue.files.wrote, max(0, floor) * UNIT_BYTES)
    atomic_set(&queue.max_offset, max(0, floor))
    return min(floor, 0)


cdef int64_t recover_floors(
    Store *store, int64_t limit, bint closed, Failure *failure,
) noexcept nogil:
    """Find every queue's floor: units up to ``limit``, a log offset, are believed.

    ``closed``: the watermark is that of a clean close, and the units before it were synced.
    """
    cdef Queue *queue = first_queue(&store.table)
    cdef int64_t rc
    while queue != NULL:
        rc = 0
        if not queue.unreadable:
            rc = recover_floor(store, queue, limit, closed and store.recovery.clean)
            rc = queue_note_unreadable(queue, rc)
        if rc < 0:
            return fail(failure, rc, queue.files.directory, "the queue cannot be read", -1,
                        0, 0)
        queue = next_queue(queue)
    return 0


cdef int64_t recover_floor(
    Store *store, Queue *queue, int64_t limit, bint closed,
) noexcept nogil:
    """Set one queue's end to its floor."""
    cdef int64_t last_end = 0
    cdef int64_t floor = 0
    queue.files.unclean = not store.recovery.clean
    queue.first_physical = INT64_MOST
    queue.first_offset = 0
    derived_free(queue.making)
    queue.making = NULL
    queue_forget_near(queue)
    atomic_set(&queue.files.wrote, 0)        # as long as the floor is not known, any may be closed
    if queue_is_of_deleted(queue):
        if not queue.files.writable:
            queue.deleted = True
        else:
            floor = queue_delete(queue)
            if floor == 0:
                floor = remove_topic_directory(store, queue.topic)
        if floor < 0:
            return floor
    elif queue.files.count:
        floor = -1
        if closed:
            floor = queue_floor_closed(queue, limit, &last_end)
        if floor == -1:
            floor = queue_floor(store, queue, limit, &last_end)
        if floor < 0:
            return floor
    queue.floor = floor
    memset(&queue.life, 0, sizeof(Life))
    if last_end:                             # not by blank units alone
        queue.life.first = file_set_start(&queue.files) // UNIT_BYTES
        queue.life.next = floor
        queue.life.newest_was_there = True
    atomic_set(&queue.last_end, last_end)
    atomic_set(&queue.files.wrote, floor * UNIT_BYTES)
    atomic_set(&queue.files.flushed, floor * UNIT_BYTES)
    atomic_set(&queue.max_offset, floor)
    if store.recovery.full_dispatch and not queue.deleted:
        return recover_first_unit(store, queue)
    return 0


cdef void recover_keep_lives(Store *store) noexcept nogil:
    """What lies before the ends that the watermark vouches for begins no life when met again."""
    cdef Queue *queue = first_queue(&store.table)
    while queue != NULL:
        queue.life.known_until = atomic_get(&queue.last_end)
        queue.life.seen_until = queue.life.known_until
        queue = next_queue(queue)


cdef int64_t queue_floor_closed(
    Queue *queue, int64_t limit, int64_t *last_end,
) noexcept nogil:
    """The floor of a queue that was closed cleanly, by bisection; -1 where it takes a walk."""
    cdef Unit unit
    cdef int64_t used = queue_used_units(queue)
    if used <= 0 or queue_file_unit(queue, used - 1, &unit) < 0 or unit_is_blank(&unit) \
            or unit.physical_offset < 0 or unit.physical_offset > limit - unit.size:
        return -1
    last_end[0] = unit.physical_offset + unit.size
    return used


cdef bint queue_is_of_deleted(Queue *queue) noexcept nogil:
    """Whether the files are of a topic that was deleted: a power cut may undo that they went."""
    cdef Unit unit
    cdef int64_t at = file_set_start(&queue.files) // UNIT_BYTES
    cdef int64_t per_file = queue.files.file_size // UNIT_BYTES
    if queue.topic.deleted_before == 0 or queue.files.count == 0:
        return False
    memset(&unit, 0, sizeof(Unit))
    for at in range(at, at + per_file):
        if queue_file_unit(queue, at, &unit) < 0:
            return False
        if unit.size > 0 and not unit_is_blank(&unit):
            return unit.physical_offset < queue.topic.deleted_before
    return False


cdef int64_t recover_ends(Store *store, Failure *failure) noexcept nogil:
    """After the dispatch: what lies behind the queues' ends goes, and their beginnings are told.

    A message put next goes behind its queue's end.
    """
    cdef Queue *queue = first_queue(&store.table)
    cdef int64_t rc
    while queue != NULL:
        rc = recover_end(store, queue)
        if rc < 0:
            return fail(failure, rc, queue.files.directory, "the queue cannot be completed",
                        -1, 0, 0)
        queue = next_queue(queue)
    return 0


cdef int64_t recover_end(Store *store, Queue *queue) noexcept nogil:
    cdef int64_t rc, first, stop, floor
    if queue.files.count == 0:
        queue.next_offset = 0
        return 0
    rc = recover_tail(store, queue)
    if rc < 0:
        return rc
    stop = atomic_get(&queue.max_offset) * UNIT_BYTES
    rc = queue_cut(queue, atomic_get(&queue.max_offset))
    # Where nothing but the next file lies behind the end, empty as it was made, it stays.
    if rc >= 0 and queue.life.start and (
            rc > 0 or queue.files.slots[queue.files.count - 1].start
            >= stop + queue.files.file_size):
        rc = queue_trim(queue, stop)
    if rc < 0:
        return rc
    first = queue.files.slots[0].start // UNIT_BYTES
    stop = max(first, atomic_get(&queue.max_offset))
    queue.next_offset = stop
    atomic_set(&queue.max_offset, stop)
    atomic_set(&queue.files.wrote, stop * UNIT_BYTES)
    # Nothing lies below the first file; a queue that was made just now may begin with a later one.
    floor = max(first, min(queue.floor, atomic_get(&queue.files.flushed) // UNIT_BYTES))
    if not store.recovery.clean:
        rc = queue_redirty(queue, floor, stop)
        if rc < 0:
            return rc
        atomic_set(&queue.names_dirty, 1)
    floor = max(first, atomic_get(&queue.files.flushed) // UNIT_BYTES)
    atomic_set(&queue.files.flushed, min(stop, floor) * UNIT_BYTES)
    first = queue_first_kept(store, queue, first, stop)
    if first < 0:
        return first
    atomic_set(&queue.min_offset, first)
    return 0


cdef int64_t queue_redirty(Queue *queue, int64_t start, int64_t stop) noexcept nogil:
    """Have the pages of units [start, stop) written once more.

    They may be in the page cache alone, and after a failed sync they count as clean there.
    """
    cdef MappedFile *file = NULL
    cdef int64_t at = start * UNIT_BYTES
    cdef int64_t end, rc
    while at < stop * UNIT_BYTES:
        rc = file_set_hold(&queue.files, at, &file)
        if rc < 0:
            return rc
        end = min(stop * UNIT_BYTES, file.start + file.size)
        atomic_set(&file.name_dirty, 1)
        touch_pages(file.base, at - file.start, end - file.start)
        at = end
        mapped_file_release(file)
    atomic_set(&queue.files.flushed, start * UNIT_BYTES)
    return 0


cdef int64_t queue_cut(Queue *queue, int64_t used) noexcept nogil:
    """Zero every unit from ``used`` on that is not zero; 1 if there was one."""
    cdef MappedFile *file = NULL
    cdef char *end
    cdef char *at
    cdef int64_t rc, i, start
    cdef int64_t cut = 0
    for i in range(queue.files.count):
        start = queue.files.slots[i].start
        if start + queue.files.file_size <= used * UNIT_BYTES:
            continue
        rc = file_set_hold(&queue.files, start, &file)
        if rc < 0:
            return rc
        at = file.base + max(0, used * UNIT_BYTES - start)
        end = file.base + file.size
        # Holes read as zeros; only what has bytes is touched.
        rc = queue_cut_range(queue, file, at - file.base, end - file.base)
        mapped_file_release(file)
        if rc < 0:
            return rc
        cut |= rc
    return cut


cdef int64_t queue_cut_range(
    Queue *queue, MappedFile *file, int64_t start, int64_t stop,
) noexcept nogil:
    """1 if there was a byte other than zero."""
    cdef char path[FAILURE_PATH_BYTES]
    cdef stat_t status
    cdef MappedFile plain
    cdef int64_t fd, rc, last
    file_name(path, queue.files.directory, file.start)
    fd = sys_open_file(queue.files.root, path, O_RDWR, &status)
    if fd < 0:
        return fd
    memset(&plain, 0, sizeof(MappedFile))
    plain.fd = <int>fd
    plain.size = stop
    last = mapped_file_last_used(&plain, start)
    rc = min(last, 0)
    if last > start:
        rc = zero_data(<int>fd, start, last)
        if rc == 0:
            rc = sys_sync(<int>fd)
        rc = 1 if rc == 0 else rc
    close(<int>fd)
    return rc
