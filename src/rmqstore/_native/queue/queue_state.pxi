# State of topics and queues while a store is open.
#
# Source: store/ConsumeQueue.java; store/DefaultMessageStore.java consumeQueueTable

cdef enum:
    QUEUE_WINDOW = 256 << 10     # bytes of blocks reserved at a time
    FLOOR_UNITS = 4096           # units examined in one step
    OFFSET_GIVEN = 0x4E455649    # tags code of an empty unit at a given-away offset
    EXT_ADDRESS = -2147483649    # tags codes up to this are addresses in consumequeue_ext
    FILTER_POSITIONS_MAX = 16    # bits of one subscription in a bit map
    TOPIC_DIRECTORY_BYTES = 255  # the longest name of a directory

# Units derived from the log, from the first one missing or wrong in the files on.  Complete before
# it is published; then neither changed nor freed while the queue exists.
cdef struct Derived:
    Derived *older               # its predecessor
    char *units
    int64_t start
    int64_t count
    int64_t room


# The fields of a unit.
cdef struct Unit:
    int64_t physical_offset
    int64_t tags_code
    int32_t size


# Configuration of consumequeue_ext.
cdef struct ExtSettings:
    int64_t file_size            # for a queue without files
    bint written                 # each new unit gets one


# Files of a queue in consumequeue_ext.  Written fields belong to the dispatch thread.
cdef struct QueueExt:
    FileSet files
    MappedFile *current          # where units are written; held
    atomic_i64 names_dirty       # 1: its directories have to be synced
    atomic_i64 size_known        # 1: read from the files
    bint begun                   # the end of its units was found: more can be written
    int64_t began_at             # that end
    int64_t retry_at             # monotonic ns of the next search for it
    int64_t newest_record        # log offset of the record whose unit was written last; -1: none
    int64_t newest_address


# A subscription with an expression, for the bit maps: does it want a message?
# ``evaluate`` returns 1 for true, else 0 or a negative number.
cdef struct BitmapFilter:
    int64_t (*evaluate)(
        const void *compiled, const char *properties, int64_t length) noexcept nogil
    void (*release)(void *compiled) noexcept nogil
    void *compiled
    int64_t position_count
    int32_t positions[FILTER_POSITIONS_MAX]


# The subscriptions of a topic.  Complete before it is published; freed with the topic.
cdef struct BitmapFilters:
    BitmapFilters *older         # its predecessor
    int64_t bitmap_bytes
    int64_t count
    BitmapFilter *filters


# Restart of a queue's offsets along the log, as its topic was deleted and made again.
cdef struct Life:
    int64_t start                # records below are of an earlier life
    int64_t first                # its first queue offset
    int64_t next                 # the next queue offset along the log; 0: none seen
    int64_t seen_until           # records below were processed
    int64_t known_until          # records below have their units already, or none
    int64_t restart_next         # the offset that confirms a new life at ``restart``; 0: none
    int64_t room                 # messages for which there was room before the newest unit's record
    bint doubtful                # a single record, its offset too high for the log below it
    bint newest_was_there        # the newest record's unit was already in its position
    Unit restart


# Upper levels of a bisection by store time; ``busy`` guards the rest.
cdef struct TimeMemo:
    atomic_i64 busy              # 1: taken by a search; others do without
    int64_t low                  # the ends of the bisection
    int64_t high
    const Derived *derived       # the queue's at that time
    atomic_i64 ascend_high       # times ascend up to this end
    int64_t searches             # between these ends, one after the other
    int64_t made_at              # monotonic ns
    int64_t *times               # store time + 1, the node's children at 2n and 2n + 1; 0: unknown


cdef struct Topic:
    Topic *next                  # of the same hash slot
    Topic *next_made             # in order of entry
    uint32_t hash
    uint32_t digest              # of the name, in the watermark
    int32_t key_hash             # Java's hash of "<topic>#", which index keys begin with
    atomic_i64 write_queue_nums  # 0: no entry in topics.json
    atomic_i64 round_robin
    atomic_i64 client_queue_nums  # queue ids below are for clients to send to; 0: query first
    atomic_i64 client_messages   # sent this way, and the bytes of their records
    atomic_i64 client_bytes
    Queue **queues               # by id, up to queue_room; replaced by a larger copy
    int64_t queue_room
    Queue *far_queues            # queues with ids too high for the array
    Queue *first_queue           # all of them, in order of entry
    int64_t deleted_before       # records below this log offset belong to a deleted topic
    int64_t noted_before         # the same, from rmqstore-deleted.json
    bint entered                 # in topics.json when the store was opened
    bint gone                    # not recreated by records after noted_before
    bint schedule                # SCHEDULE_TOPIC_XXXX: tags codes are times
    BitmapFilters *bitmap_filters            # published; NULL: none
    int32_t length
    char name[8]                 # extended to the name and its zero


cdef struct Queue:
    Topic *topic
    Queue *next_made
    Queue *next_far
    FileSet files
    MappedFile *current          # where units are written; held, owned by the dispatch thread
    const ExtSettings *ext_settings          # NULL: a queue by itself, without any
    QueueExt *ext                # published; NULL: not requested yet
    int64_t zeroed               # zeros are written up to here; INT64_MOST: not in this file
    atomic_i64 max_offset        # end of the units; stored only after their bytes
    atomic_i64 min_offset        # first unit whose record the log still has
    atomic_i64 last_end          # end of the record that the newest unit points to
    atomic_i64 put_units         # appended since the store was opened, and their records' bytes
    atomic_i64 put_bytes
    atomic_i64 names_dirty       # 1: its directories have to be synced
    int64_t next_offset          # queue offset of the next message; guarded by the put lock
    int64_t room                 # units below have a file and blocks; guarded by the put lock
    atomic_i64 refreshed_at      # "r": monotonic ns of the last search for the end
    atomic_i64 doubted_at        # "r": of the last doubt about a unit that proved to be bad
    Derived *derived             # "r": published; NULL if the files are complete
    Derived *derived_kept        # all ever published, newest first
    Derived *making              # under construction, unpublished
    TimeMemo time_memo
    Slice near                   # "r": units of the files from near_start on, while deriving
    int64_t near_start
    int64_t near_count
    char *run                    # LogUnits: units of a run, from run_start on
    int64_t run_start
    int64_t run_count
    int64_t run_room
    int64_t floor                # recovery: units from here on count only once their records do
    int64_t first_offset         # recovery: the first unit with a good record, and its position
    int64_t first_physical       # INT64_MOST: none; records before it are of an earlier life
    Life life                    # while units are derived from the log
    Life ahead                   # the same, for the pass that runs ahead
    int64_t bad_start            # "r": units [bad_start, bad_stop) at the end were bad
    int64_t bad_stop
    int64_t unreadable           # "r": -errno of an unreadable queue; 0: readable
    int64_t bad_log_stop         # valid while the log's files end there
    bint light_counted           # in the table's number of light queues; guarded by the put lock
    bint completed               # units were written while the store was opened
    atomic_i64 listed            # number of the last listing that found its directory; 0: none
    bint deleted                 # "r": its files belong to a deleted topic
    int lacks                    # LACKS_...: a loss that its files show
    int64_t lacks_at             # byte of the queue at which that file begins
    int32_t id


cdef Queue *queue_new(
    Topic *topic, int32_t queue_id, int root, int64_t file_size, bint writable,
) noexcept nogil:
    cdef char directory[FAILURE_PATH_BYTES]
    cdef Queue *queue = <Queue *>calloc(1, sizeof(Queue))
    if queue == NULL:
        return NULL
    if topic != NULL and topic.length > TOPIC_DIRECTORY_BYTES:
        # Of RocketMQ 5, with queues elsewhere.  No topic has a space: the path does not exist.
        snprintf(directory, FAILURE_PATH_BYTES, "consumequeue/a topic of %d bytes/%d",
                 topic.length, queue_id)
    elif topic != NULL:
        snprintf(directory, FAILURE_PATH_BYTES, "consumequeue/%s/%d", <char *>topic.name, queue_id)
    else:
        directory[0] = 46                    # ConsumeQueue by itself: "."
        directory[1] = 0
    queue.topic = topic
    queue.id = queue_id
    file_set_init(&queue.files, root, directory, file_size, writable)
    queue.files.window = QUEUE_WINDOW
    queue.files.of_queue = topic != NULL      # a part by itself has no log to rebuild it from
    return queue


cdef void queue_ext_free(QueueExt *ext) noexcept nogil:
    mapped_file_release(ext.current)
    file_set_destroy(&ext.files)
    free(ext)


cdef void queue_destroy(Queue *queue) noexcept nogil:
    mapped_file_release(queue.current)
    file_set_destroy(&queue.files)
    if queue.ext != NULL:
        queue_ext_free(queue.ext)
    derived_free(queue.derived_kept)
    derived_free(queue.making)
    slice_release(&queue.near)
    free(queue.time_memo.times)
    free(queue.run)
    free(queue)


cdef void bitmap_filters_free(BitmapFilters *filters) noexcept nogil:
    cdef BitmapFilters *older
    cdef int64_t i
    while filters != NULL:
        older = filters.older
        for i in range(filters.count):
            filters.filters[i].release(filters.filters[i].compiled)
        free(filters.filters)
        free(filters)
        filters = older


cdef extern from *:
    Derived *load_derived "load_pointer"(Derived **at) noexcept nogil
    void store_derived "store_pointer"(Derived **at, Derived *value) noexcept nogil


cdef void derived_free(Derived *derived) noexcept nogil:
    cdef Derived *older
    while derived != NULL:
        older = derived.older
        free(derived.units)
        free(derived)
        derived = older
