# Load queues from the directories below consumequeue/, and infer the size of their files.
#
# Source: store/DefaultMessageStore.java loadConsumeQueue

cdef int64_t load_queues(TopicTable *table, Failure *failure) noexcept nogil:
    """Enter a topic and a queue for each directory below consumequeue/.

    Other names are ignored, as by a broker.  Returns the number of queues.
    """
    cdef DIR *directory
    cdef dirent *entry
    cdef Topic *topic
    cdef int64_t rc
    cdef int64_t count = 0
    cdef int64_t length
    cdef int64_t fd = sys_open_directory(table.root, "consumequeue")
    table.broken_links = 0
    if fd == -ENOENT or (fd == -ELOOP and not table.writable):
        atomic_add(&table.listing, 1)
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
        if not topic_name_stored(entry.d_name, length):
            continue
        topic = topic_find(table, entry.d_name, length)
        rc = load_topic_queues(table, <int>fd, entry.d_name, topic, failure)
        count += max(rc, 0)
    closedir(directory)
    if rc >= 0:
        atomic_add(&table.listing, 1)
    return rc if rc < 0 else count


cdef int64_t note_broken_link(
    TopicTable *table, const char *directory, const char *name, Failure *failure,
) noexcept nogil:
    """A link that leads nowhere: refused where the store is written, else noted; 0 or a status."""
    if table.writable:
        return fail_broken_link(failure, directory, name)
    if table.broken_links < BROKEN_NOTED:
        snprintf(table.broken[table.broken_links], FAILURE_PATH_BYTES, "%s/%s", directory, name)
    table.broken_links += 1
    return 0


cdef int64_t load_topic_queues(
    TopicTable *table, int parent, const char *name, Topic *topic, Failure *failure,
) noexcept nogil:
    """Enter the queues of one topic's directory; their number."""
    cdef DIR *directory
    cdef dirent *entry
    cdef Queue *queue
    cdef int64_t queue_id
    cdef int64_t rc
    cdef int64_t count = 0
    cdef char path[FAILURE_PATH_BYTES]
    cdef int64_t fd = sys_open_directory(parent, name)
    snprintf(path, FAILURE_PATH_BYTES, "consumequeue/%s", name)
    if (fd == -ENOENT or fd == -ELOOP) and sys_is_broken_link(parent, name):
        return note_broken_link(table, "consumequeue", name, failure)
    if fd == -ENOTDIR or fd == -ENOENT:
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
        # Only the canonical form of a queue id: not 007.
        if queue_id < 0 or queue_id > 0x7FFFFFFF or (entry.d_name[0] == 48 and entry.d_name[1]):
            continue
        if entry.d_type != DT_DIR and sys_is_broken_link(<int>fd, entry.d_name):
            rc = note_broken_link(table, path, entry.d_name, failure)
            if rc < 0:
                closedir(directory)
                return rc
            continue
        if topic == NULL:
            topic = topic_enter(table, name, <int64_t>strlen(name))
        queue = NULL
        if topic != NULL:
            queue = queue_enter(table, topic, <int32_t>queue_id)
        if queue == NULL:
            closedir(directory)
            return fail(failure, E_NO_MEMORY, name, "no memory", -1, 0, 0)
        atomic_set(&queue.listed, atomic_get(&table.listing) + 1)
        count += 1
    closedir(directory)
    return count


cdef enum:
    QUEUE_SIZES = 16             # distinct sizes that are counted; others are ignored
    QUEUES_ENOUGH = 3            # "r": a lead of so many queues settles the size


cdef int64_t infer_queue_file_size(TopicTable *table, Failure *failure) noexcept nogil:
    """The size of a consume queue file, inferred from most queues; 0 unknown."""
    cdef int64_t sizes[QUEUE_SIZES]
    cdef int64_t queues[QUEUE_SIZES]
    cdef Queue *queue = first_queue(table)
    cdef int64_t rc, size, i, second
    cdef int64_t count = 0
    cdef int64_t best = -1
    while queue != NULL:
        if queue.files.count == 0:
            rc = file_set_list(&queue.files, failure)
            if rc < 0 and rc != -ENOENT and table.writable:
                return rc
        size = file_set_infer_size(&queue.files, UNIT_BYTES)
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
        if not table.writable and queues[best] >= second + QUEUES_ENOUGH:
            return sizes[best]
    return sizes[best] if best >= 0 else 0
