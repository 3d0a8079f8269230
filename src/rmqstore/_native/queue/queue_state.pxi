# The state of a topic and of one of its queues while a store is open.
#
# Source: store/ConsumeQueue.java; store/DefaultMessageStore.java consumeQueueTable

cdef enum:
    QUEUE_WINDOW = 256 << 10     # bytes of blocks reserved at a time
    FLOOR_UNITS = 4096           # units examined in one step
    EXT_ADDRESS = -2147483649    # tags codes up to this are addresses in consumequeue_ext

# Units derived from the log, from ``start`` on: those missing or wrong in the files. Complete
# before it is published; after that neither changed nor freed while the queue lives.
cdef struct Derived:
    Derived *older               # the one it replaced
    char *units
    int64_t start
    int64_t count
    int64_t room


# The fields of a unit.
cdef struct Unit:
    int64_t physical_offset
    int64_t tags_code
    int32_t size


# Where a queue's offsets begin again along the log, as its topic was deleted and made again.
cdef struct Life:
    int64_t start                # records below are of an earlier life
    int64_t first                # the queue offset that it began with
    int64_t next                 # the next queue offset along the log; 0: none was seen
    int64_t seen_until           # records below were processed
    int64_t known_until          # records below have their units already, or none
    int64_t restart_next         # the offset that confirms a new life at ``restart``; 0: none
    bint doubtful                # a single record, whose offset is too high for the log below it
    bint newest_was_there        # the newest record's unit was already in its position
    Unit restart


# What a bisection by store time found at its upper levels; ``busy`` guards the rest.
cdef struct TimeMemo:
    atomic_i64 busy              # 1: a search has it; others do without
    int64_t low                  # the ends of the bisection
    int64_t high
    const Derived *derived       # the queue's at that time
    int64_t searches             # between these ends, one after the other
    int64_t made_at              # monotonic ns
    int64_t *times               # store time + 1, the node's children at 2n and 2n + 1; 0: unknown


cdef struct Topic:
    Topic *next                  # of the same hash slot
    Topic *next_made             # in the order in which they were entered
    uint32_t hash
    int32_t key_hash             # Java's hash of "<topic>#", which index keys begin with
    atomic_i64 write_queue_nums  # 0: no entry in topics.json
    atomic_i64 round_robin
    Queue **queues               # by id, up to queue_room; replaced by a larger copy
    int64_t queue_room
    Queue *far_queues            # those with ids too high for the array
    Queue *first_queue           # all of them, in the order in which they were entered
    int64_t deleted_before       # records below this log offset belong to a deleted topic
    int64_t noted_before         # the same, from rmqstore-deleted.json
    bint entered                 # topics.json had it when the store was opened
    bint gone                    # records after noted_before did not recreate it
    bint schedule                # SCHEDULE_TOPIC_XXXX: tags codes are times
    int32_t length
    char name[TOPIC_MAX_BYTES + 1]


cdef struct Queue:
    Topic *topic
    Queue *next_made
    Queue *next_far
    FileSet files
    MappedFile *current          # where units are written; held, owned by the dispatch thread
    int64_t zeroed               # zeros are written up to here; INT64_MOST: not to this file
    atomic_i64 max_offset        # end of the units; stored only after their bytes
    atomic_i64 min_offset        # first unit whose record the log still has
    atomic_i64 last_end          # end of the record that the newest unit points to
    atomic_i64 names_dirty       # 1: its directories have to be synced
    int64_t next_offset          # the next message's queue offset; guarded by the put lock
    int64_t room                 # units below have a file and blocks; guarded by the put lock
    atomic_i64 refreshed_at      # "r": monotonic ns of the last search for the end
    Derived *derived             # "r": published; NULL if the files are complete
    Derived *derived_kept        # all that were ever published, newest first
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
    int64_t bad_start            # "r": units [bad_start, bad_stop) at the end were not good
    int64_t bad_stop
    int64_t unreadable           # "r": why it cannot be read, -errno; 0: it can
    int64_t bad_log_stop         # valid while the log's files end there
    bint completed               # units were written while the store was opened
    bint listed                  # its directory was found
    bint deleted                 # "r": its files belong to a deleted topic
    int32_t id


cdef Queue *queue_new(
    Topic *topic, int32_t queue_id, int root, int64_t file_size, bint writable,
) noexcept nogil:
    cdef char directory[FAILURE_PATH_BYTES]
    cdef Queue *queue = <Queue *>calloc(1, sizeof(Queue))
    if queue == NULL:
        return NULL
    if topic != NULL:
        snprintf(directory, FAILURE_PATH_BYTES, "consumequeue/%s/%d", <char *>topic.name, queue_id)
    else:
        directory[0] = 46                    # ConsumeQueue by itself: "."
        directory[1] = 0
    queue.topic = topic
    queue.id = queue_id
    file_set_init(&queue.files, root, directory, file_size, writable)
    queue.files.window = QUEUE_WINDOW
    queue.files.of_queue = topic != NULL      # by itself it has no log to be made from
    return queue


cdef void queue_destroy(Queue *queue) noexcept nogil:
    mapped_file_release(queue.current)
    file_set_destroy(&queue.files)
    derived_free(queue.derived_kept)
    derived_free(queue.making)
    slice_release(&queue.near)
    free(queue.time_memo.times)
    free(queue.run)
    free(queue)


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
