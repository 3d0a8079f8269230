# Topic and queue -> state: a C hash table, as put and dispatch use no Python dict.  Topics and
# queues are freed only with the store: readers may keep pointers.  Lookups take no lock, insertions
# the table's.
#
# Source: store/DefaultMessageStore.java consumeQueueTable, CommitLog.topicQueueTable

cdef enum:
    TOPIC_TABLE_SLOTS = 1 << 14
    QUEUES_DIRECT = 1 << 16      # smaller ids are found by array
    SCHEDULE_TOPIC_LENGTH = 19
    BROKEN_NOTED = 8             # dangling links; beyond them only the number is kept

cdef const char *SCHEDULE_TOPIC = b"SCHEDULE_TOPIC_XXXX"


cdef struct TopicTable:
    int root                     # of the store; -1: the queues have no files
    int64_t file_size            # of the consume queue files
    bint writable
    OpenFiles *open_files
    ExtSettings ext
    Lock lock
    Topic **slots
    Topic *first
    Topic *last
    void **retired               # outgrown arrays, freed with the table
    int64_t retired_count
    atomic_i64 topics
    atomic_i64 queues
    atomic_i64 light_queues      # with messages; changed under the put lock
    atomic_i64 listing           # number of the last complete listing of the directories
    int64_t broken_links         # "r": dangling links of topics, queues, or their files
    char broken[BROKEN_NOTED][FAILURE_PATH_BYTES]
    int64_t gone_before          # above 0: a new topic counts as deleted up to this log offset


cdef extern from *:
    """
    #define load_pointer(p) __atomic_load_n(p, __ATOMIC_ACQUIRE)
    #define store_pointer(p, v) __atomic_store_n(p, v, __ATOMIC_RELEASE)
    """
    Topic *load_topic "load_pointer"(Topic **at) noexcept nogil
    void store_topic "store_pointer"(Topic **at, Topic *value) noexcept nogil
    Queue *load_queue "load_pointer"(Queue **at) noexcept nogil
    void store_queue "store_pointer"(Queue **at, Queue *value) noexcept nogil
    Queue **load_queue_array "load_pointer"(Queue ***at) noexcept nogil
    void store_queue_array "store_pointer"(Queue ***at, Queue **value) noexcept nogil
    int64_t load_room "load_pointer"(int64_t *at) noexcept nogil
    void store_room "store_pointer"(int64_t *at, int64_t value) noexcept nogil


cdef inline uint32_t topic_digest(const char *name, int64_t length) noexcept nogil:
    """Part of the watermark's digest: the same in every process and version."""
    cdef uint32_t hash = 2166136261
    cdef int64_t i
    for i in range(length):
        hash = (hash ^ <unsigned char>name[i]) * 16777619
    return hash ^ (hash >> 15)


cdef uint64_t topic_hash_seed = 0


cdef inline uint32_t topic_hash(const char *name, int64_t length) noexcept nogil:
    """Seeded per process: clients choose topics, properties and the names in filters."""
    cdef uint64_t state = topic_hash_seed + <uint64_t>length
    cdef uint64_t rest = 0
    cdef int64_t i
    while length >= 8:
        state = mixed_64(state ^ java_load_8(name))
        name += 8
        length -= 8
    if length >= 4:
        rest = java_load_4(name) | java_load_4(name + length - 4) << 32
    else:
        for i in range(length):
            rest = rest << 8 | <unsigned char>name[i]
    return <uint32_t>mixed_64(state ^ rest)


cdef int64_t topic_table_init(
    TopicTable *table, int root, int64_t file_size, bint writable, OpenFiles *open_files,
) noexcept nogil:
    """Initialize; ``file_size``: of consume queue files; ``root``: -1 without files."""
    memset(table, 0, sizeof(TopicTable))
    table.root = root
    table.file_size = file_size
    table.writable = writable
    table.open_files = open_files
    lock_init(&table.lock, LOCK_TOPICS)
    table.slots = <Topic **>calloc(TOPIC_TABLE_SLOTS, sizeof(Topic *))
    return 0 if table.slots != NULL else E_NO_MEMORY


cdef void topic_table_destroy(TopicTable *table) noexcept nogil:
    cdef Topic *topic = table.first
    cdef Topic *gone_topic
    cdef Queue *queue
    cdef Queue *gone
    cdef int64_t i
    while topic != NULL:
        queue = topic.first_queue
        while queue != NULL:
            gone = queue
            queue = queue.next_made
            queue_destroy(gone)
        gone_topic = topic
        topic = topic.next_made
        free(gone_topic.queues)
        bitmap_filters_free(gone_topic.bitmap_filters)
        free(gone_topic)
    for i in range(table.retired_count):
        free(table.retired[i])
    free(table.retired)
    free(table.slots)
    lock_destroy(&table.lock)


cdef inline Topic *topic_find(TopicTable *table, const char *name, int64_t length) noexcept nogil:
    cdef uint32_t hash = topic_hash(name, length)
    cdef Topic *topic = load_topic(&table.slots[hash & (TOPIC_TABLE_SLOTS - 1)])
    while topic != NULL:
        if topic.hash == hash and topic.length == length \
                and memcmp(topic.name, name, <size_t>length) == 0:
            return topic
        topic = topic.next
    return NULL


cdef inline bint queue_is_unlisted(TopicTable *table, Queue *queue) noexcept nogil:
    """"r": whether a queue's directory disappeared."""
    return not table.writable and atomic_get(&queue.listed) > 0 \
        and atomic_get(&queue.listed) < atomic_get(&table.listing)


cdef inline bint queue_is_gone(TopicTable *table, Queue *queue) noexcept nogil:
    """"r": whether a queue's topic was deleted; units derived from the log replace the files."""
    return queue_is_unlisted(table, queue) and load_derived(&queue.derived) == NULL


cdef inline bint topic_is_light(const Topic *topic) noexcept nogil:
    """Whether the topic's queue is a light one, with units of other queues' records."""
    return name_is_light(topic.name, topic.length)


cdef bint topic_is_kept(const Topic *topic) noexcept nogil:
    """Whether brokers create the topic themselves, possibly without an entry in topics.json."""
    return topic.schedule or topic.name[0] == 37 \
        or strncmp(topic.name, "RMQ_SYS_", 8) == 0 or strncmp(topic.name, "rmq_sys_", 8) == 0 \
        or strncmp(topic.name, "TRANS_CHECK_MAX_TIME_TOPIC", 26) == 0


cdef void topic_ask_gone(TopicTable *table, Topic *topic, int64_t end) noexcept nogil:
    """Ignore records below ``end`` of a topic that has neither an entry nor a queue."""
    cdef Queue *queue = load_queue(&topic.first_queue)
    if topic.entered or topic_is_kept(topic):
        return
    while queue != NULL:
        if atomic_get(&queue.listed) > 0 and not queue_is_gone(table, queue):
            return
        queue = queue.next_made
    topic.deleted_before = end


cdef Topic *topic_enter(TopicTable *table, const char *name, int64_t length) noexcept nogil:
    """Find or make the entry of a topic; NULL without memory."""
    cdef uint32_t hash = topic_hash(name, length)
    cdef Topic **slot = &table.slots[hash & (TOPIC_TABLE_SLOTS - 1)]
    cdef Topic *topic
    lock_take(&table.lock)
    topic = topic_find(table, name, length)
    if topic == NULL:
        topic = <Topic *>calloc(1, sizeof(Topic) + <size_t>length)
        if topic != NULL:
            memcpy(<char *>topic.name, name, <size_t>length)
            topic.length = <int32_t>length
            topic.hash = hash
            topic.digest = topic_digest(name, length)
            topic.key_hash = java_hash_utf8(b"#", 1, java_hash_utf8(name, length, 0))
            topic.schedule = length == SCHEDULE_TOPIC_LENGTH \
                and memcmp(name, SCHEDULE_TOPIC, SCHEDULE_TOPIC_LENGTH) == 0
            if table.gone_before > 0:
                topic_ask_gone(table, topic, table.gone_before)
            topic.next = slot[0]
            store_topic(slot, topic)
            if table.last == NULL:
                store_topic(&table.first, topic)
            else:
                store_topic(&table.last.next_made, topic)
            table.last = topic
            atomic_add(&table.topics, 1)
    lock_give(&table.lock)
    return topic


cdef inline Queue *queue_find(Topic *topic, int32_t queue_id) noexcept nogil:
    cdef Queue **queues
    cdef Queue *queue
    if <uint32_t>queue_id < <uint32_t>load_room(&topic.queue_room):    # false for negative ids
        queues = load_queue_array(&topic.queues)
        return load_queue(&queues[queue_id])
    if queue_id < QUEUES_DIRECT:
        return NULL
    queue = load_queue(&topic.far_queues)
    while queue != NULL:
        if queue.id == queue_id:
            return queue
        queue = queue.next_far
    return NULL


cdef Queue *first_queue_from(Topic *topic) noexcept nogil:
    """First queue of a topic, or of the topics after it; NULL: none."""
    cdef Queue *queue
    while topic != NULL:
        queue = load_queue(&topic.first_queue)
        if queue != NULL:
            return queue
        topic = load_topic(&topic.next_made)
    return NULL


cdef inline Queue *first_queue(TopicTable *table) noexcept nogil:
    """First queue of all topics; a queue created during the walk may be missed."""
    return first_queue_from(load_topic(&table.first))


cdef inline Queue *next_queue(const Queue *queue) noexcept nogil:
    if queue.next_made != NULL:
        return queue.next_made
    return first_queue_from(load_topic(&queue.topic.next_made))


cdef Queue *queue_enter(TopicTable *table, Topic *topic, int32_t queue_id) noexcept nogil:
    """Find or make the entry of a queue; NULL without memory.  Nothing is created on disk."""
    cdef Queue *queue
    lock_take(&table.lock)
    queue = queue_find(topic, queue_id)
    if queue == NULL:
        queue = queue_new(topic, queue_id, table.root, table.file_size, table.writable)
        if queue != NULL:
            queue.files.open_files = table.open_files
            queue.ext_settings = &table.ext if table.ext.file_size > 0 else NULL
        if queue != NULL and queue_id < QUEUES_DIRECT and queue_id >= topic.queue_room \
                and topic_grow(table, topic, queue_id) < 0:
            queue_destroy(queue)
            queue = NULL
        if queue != NULL:
            if queue_id < QUEUES_DIRECT:
                store_queue(&topic.queues[queue_id], queue)
            else:
                queue.next_far = topic.far_queues
                store_queue(&topic.far_queues, queue)
            queue.next_made = topic.first_queue
            store_queue(&topic.first_queue, queue)
            atomic_add(&table.queues, 1)
    lock_give(&table.lock)
    return queue


cdef int64_t topic_grow(TopicTable *table, Topic *topic, int64_t queue_id) noexcept nogil:
    """Allocate a longer array of queues; the old one stays for readers that still use it."""
    cdef int64_t room = max(8, topic.queue_room)
    cdef Queue **grown
    cdef void **retired
    while room <= queue_id:
        room *= 2
    grown = <Queue **>calloc(<size_t>room, sizeof(Queue *))
    retired = <void **>realloc(table.retired, <size_t>(table.retired_count + 1) * sizeof(void *))
    if retired != NULL:
        table.retired = retired
    if grown == NULL or retired == NULL:
        free(grown)
        return E_NO_MEMORY
    if topic.queues != NULL:
        memcpy(grown, topic.queues, <size_t>topic.queue_room * sizeof(Queue *))
        table.retired[table.retired_count] = topic.queues
        table.retired_count += 1
    store_queue_array(&topic.queues, grown)
    store_room(&topic.queue_room, room)
    return 0


cdef bint topic_name_stored(const char *name, int64_t length) noexcept nogil:
    """Whether a stored topic can have the name: text that is a single path component.

    Stores of brokers before 4.7, which accepted nearly any name, are read too; the file system
    limits the length of a name with a directory.
    """
    if length < 1 or length > TOPIC_V2_MAX_BYTES or (name[0] == 46 and (
            length == 1 or (length == 2 and name[1] == 46))):
        return False
    return memchr(name, 47, <size_t>length) == NULL and memchr(name, 0, <size_t>length) == NULL \
        and utf8_error(name, length) < 0


cdef bint topic_name_writable(const char *name, int64_t length) noexcept nogil:
    """Whether a client may name the topic: 1 to 127 of [%|a-zA-Z0-9_-]."""
    cdef int64_t i
    cdef unsigned char c
    if length < 1 or length > TOPIC_MAX_BYTES:
        return False
    for i in range(length):
        c = <unsigned char>name[i]
        if not (97 <= c <= 122 or 65 <= c <= 90 or 48 <= c <= 57
                or c == 37 or c == 124 or c == 95 or c == 45):
            return False
    return True
