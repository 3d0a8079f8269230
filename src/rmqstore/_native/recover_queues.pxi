# Opening, second part: the queues that are there, cut where they say more than the log.
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
    cdef int64_t fd = sys_open_directory(parent, name)
    if fd == -ENOTDIR or fd == -ELOOP or fd == -ENOENT:
        return 0
    if fd < 0:
        return fail(failure, fd, name, "the topic's directory cannot be opened", -1, 0, 0)
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
    cdef Topic *topic = load_topic(&store.table.first)
    cdef Queue *queue
    cdef int64_t rc, size, i, second
    cdef int64_t count = 0
    cdef int64_t best = -1
    while topic != NULL:
        queue = load_queue(&topic.first_queue)
        while queue != NULL:
            if queue.files.count == 0:
                rc = file_set_list(&queue.files, failure)
                if rc < 0 and rc != -ENOENT and store.writable:
                    return rc
            size = file_set_tell_size(&queue.files, UNIT_BYTES)
            queue = queue.next_made
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
        topic = load_topic(&topic.next_made)
    return sizes[best] if best >= 0 else 0


cdef int64_t recover_queues(
    Store *store, const Checkpoint *checkpoint, bint full, Failure *failure,
) noexcept nogil:
    """Set every queue's ends, cutting units that point past the log or to other records.

    Returns 1 if the queues are as the watermark's digest says, else 0.
    """
    cdef Topic *topic = load_topic(&store.table.first)
    cdef Queue *queue
    cdef int64_t rc, queues
    cdef uint64_t digest
    cdef int64_t mark = checkpoint.mark.dispatched if checkpoint.mark.valid else 0
    while topic != NULL:
        queue = load_queue(&topic.first_queue)
        while queue != NULL:
            rc = recover_queue(store, queue, mark if not full else 0, failure)
            if rc < 0:
                return rc
            queue = queue.next_made
        topic = load_topic(&topic.next_made)
    if not checkpoint.mark.valid or mark > atomic_get(&store.log.wrote):
        return 0
    rc = queues_digest(store, mark, &digest, &queues)
    if rc < 0:
        return fail(failure, rc, "consumequeue", "cannot be read", -1, 0, 0)
    return digest == checkpoint.mark.digest and queues == checkpoint.mark.queues


cdef int64_t recover_queue(
    Store *store, Queue *queue, int64_t mark, Failure *failure,
) noexcept nogil:
    """Find the end of one queue, make what is behind it empty, and find its beginning."""
    cdef char path[FAILURE_PATH_BYTES]
    cdef Unit unit
    cdef Found found
    cdef int64_t field, used, first
    cdef int64_t rc = 0
    cdef int64_t end = atomic_get(&store.log.wrote)
    if queue.files.count == 0:
        rc = file_set_list(&queue.files, failure)
        if rc < 0:
            return rc
    if queue.files.count == 0:
        return 0
    used = queue_used_units(queue)
    first = queue.files.slots[0].start // UNIT_BYTES
    while used > first:
        rc = queue_unit_at(queue, used - 1, &unit)
        if rc < 0:
            used = rc
            break
        if unit_is_blank(&unit):
            if queue_skip_blanks(queue, first, used, &unit) == used:
                break                        # a queue that begins here keeps its numbering
            used -= 1
            continue
        if unit.physical_offset + unit.size <= end:
            # Below the watermark the units were good; else a stale one may look like one.
            if unit.physical_offset < mark or unit.physical_offset < log_first(store):
                break
            rc = queue_record(store, queue, used - 1, &unit, &found, &field)
            if rc > 0:
                slice_release(&found.slice)
                break
        used -= 1
    if used >= 0:
        rc = queue_cut(queue, used)
    if used < 0 or rc < 0:
        file_name(path, queue.files.directory, queue.files.slots[0].start)
        return fail(failure, min(used, rc), path, "the queue cannot be read", -1, 0, 0)
    if used > first:
        queue_unit_at(queue, used - 1, &unit)
        if not unit_is_blank(&unit):
            atomic_set(&queue.last_end, unit.physical_offset + unit.size)
    elif first:
        used = first
    queue.next_offset = used
    atomic_set(&queue.files.wrote, used * UNIT_BYTES)
    atomic_set(&queue.files.flushed, used * UNIT_BYTES)
    atomic_set(&queue.max_offset, used)
    rc = queue_first_at_or_after(queue, log_first(store), first, used)
    if rc >= 0:
        atomic_set(&queue.min_offset, rc)
        if not store.recovery.clean:
            rc = queue_first_at_or_after(queue, mark, first, used)
    if rc < 0:
        return fail(failure, rc, queue.files.directory, "the queue cannot be read", -1, 0, 0)
    if not store.recovery.clean:             # units behind the watermark may never have been synced
        atomic_set(&queue.files.flushed, min(rc, used) * UNIT_BYTES)
        atomic_set(&queue.names_dirty, 1)
        queue.files.unclean = True
    return 0


cdef int64_t queue_cut(Queue *queue, int64_t used) noexcept nogil:
    """Zero every unit from ``used`` on that is not zero."""
    cdef MappedFile *file = NULL
    cdef char *end
    cdef char *at
    cdef int64_t rc, i, start
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
    return 0


cdef int64_t queue_cut_range(
    Queue *queue, MappedFile *file, int64_t start, int64_t stop,
) noexcept nogil:
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
    close(<int>fd)
    return rc
