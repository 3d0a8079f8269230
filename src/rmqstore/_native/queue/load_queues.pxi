# Load of the queues from the directories below consumequeue/, and inference of their file size.
#
# Source: store/DefaultMessageStore.java loadConsumeQueue

cdef int64_t load_queues(TopicTable *table, Failure *failure) noexcept nogil:
    """Enter a topic and a queue for each directory below consumequeue/; the number of queues.

    Other names are ignored, as by a broker.
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
    """Refuse a dangling link in a written store, else note it; 0 or a status."""
    cdef char path[FAILURE_PATH_BYTES]
    if table.writable:
        return fail_broken_link(failure, directory, name)
    snprintf(path, FAILURE_PATH_BYTES, "%s/%s", directory, name)
    note_broken(table, path)
    return 0


cdef void note_broken(TopicTable *table, const char *path) noexcept nogil:
    """"r": note a dangling link, or a queue's directory that has some."""
    if table.broken_links < BROKEN_NOTED:
        copy_text(table.broken[table.broken_links], FAILURE_PATH_BYTES, path)
    table.broken_links += 1


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
        # Only the canonical queue id: not 007.
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
    QUEUE_SIZES = 16             # distinct sizes counted; others are ignored
    QUEUES_ENOUGH = 3            # "r": a lead of this many queues settles the size

# File sizes, and the number of queues that show each.
cdef struct SizeVotes:
    int64_t sizes[QUEUE_SIZES]
    int64_t queues[QUEUE_SIZES]
    int64_t count
    int64_t best                 # index of the most frequent size, the larger of two
    int64_t second               # queues of the runner-up


cdef void size_vote(SizeVotes *votes, int64_t size) noexcept nogil:
    """Count the size shown by one queue; 0: none."""
    cdef int64_t i = 0
    while i < votes.count and votes.sizes[i] != size:
        i += 1
    if size == 0 or i == QUEUE_SIZES:
        return
    if i == votes.count:
        votes.sizes[i] = size
        votes.count += 1
    votes.queues[i] += 1
    if votes.queues[i] > votes.queues[votes.best] or (
            votes.queues[i] == votes.queues[votes.best]
            and votes.sizes[i] > votes.sizes[votes.best]):
        votes.best = i
    votes.second = 0
    for i in range(votes.count):
        if i != votes.best:
            votes.second = max(votes.second, votes.queues[i])


cdef int64_t infer_queue_file_size(TopicTable *table, Failure *failure) noexcept nogil:
    """Size of a consume queue file, inferred from most queues; 0: unknown."""
    cdef SizeVotes votes
    cdef Queue *queue = first_queue(table)
    cdef int64_t rc
    memset(&votes, 0, sizeof(SizeVotes))
    while queue != NULL:
        if queue.files.count == 0:
            rc = file_set_list(&queue.files, failure)
            if rc < 0 and rc != -ENOENT and table.writable:
                return rc
        size_vote(&votes, file_set_infer_size(&queue.files, UNIT_BYTES, UNIT_BYTES))
        queue = next_queue(queue)
        if not table.writable and votes.queues[votes.best] >= votes.second + QUEUES_ENOUGH:
            break
    return votes.sizes[votes.best]


cdef int64_t infer_ext_file_size(TopicTable *table, Failure *failure) noexcept nogil:
    """Size of an ext file, inferred from most queues; 0: unknown, or the store writes none.

    REQUIRES: the queues are listed.
    """
    cdef SizeVotes votes
    cdef QueueExt *ext
    cdef Queue *queue = first_queue(table)
    cdef int64_t rc
    memset(&votes, 0, sizeof(SizeVotes))
    while queue != NULL:
        if ext_is_written(queue) or not table.writable:
            ext = queue_ext_of(queue)
            rc = E_NO_MEMORY if ext == NULL else queue_ext_list(ext, failure)
            if rc < 0 and table.writable:
                return fail(failure, rc, "consumequeue_ext", "cannot be read", -1, 0, 0)
            if rc > 0:
                size_vote(&votes, file_set_infer_size(&ext.files, 1, EXT_FILE_LEAST))
        queue = next_queue(queue)
        if not table.writable and votes.queues[votes.best] >= votes.second + QUEUES_ENOUGH:
            break
    return votes.sizes[votes.best]


cdef void set_ext_file_size(TopicTable *table, int64_t size) noexcept nogil:
    """Set the size of all queues' ext files, while the store is opened."""
    cdef QueueExt *ext
    cdef Queue *queue = first_queue(table)
    table.ext.file_size = size
    while queue != NULL:
        ext = load_ext(&queue.ext)
        if ext != NULL:
            ext.files.file_size = size
        queue = next_queue(queue)
