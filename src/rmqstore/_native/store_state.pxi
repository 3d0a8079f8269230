# The whole state of an open store, as C sees it, and who may touch what.
#
# Lock order: put_lock -> dispatch_mutex -> preparer's mutex -> a file set's mutex -> table of open
# files -> gates, wakeups and workers; the flush mutexes are taken before put_lock, never inside it.
# The put lock guards: current, last_store_timestamp, every queue's next_offset.
# The dispatch thread alone writes: queues' files, index files, dispatched.
# The flush threads alone move: the sets' flushed positions.
# Everything else is atomic or constant after opening.
#
# Source: store/DefaultMessageStore.java

cdef enum:
    STATE_OPENING
    STATE_OPEN
    STATE_CLOSING
    STATE_CLOSED

    DELAY_LEVELS_MAX = 64
    LOG_WINDOW = 64 << 20        # bytes of a log file reserved at a time
    POPULATE_FIRST = 256 << 10
    POPULATE_MOST = 32 << 20
    FLUSH_ALL_NS = 500000000
    STALLED_NS = 150000000       # a stalled dispatch tries again each 50 ms


# StoreConfig, as far as the core acts on it. Times in ns, sizes in bytes.
cdef struct Settings:
    int64_t log_file_size
    int64_t queue_file_size
    int64_t slot_num
    int64_t entry_num
    int64_t max_message_size
    int64_t flush_interval_log
    int64_t flush_interval_queue
    int64_t flush_thorough_log
    int64_t flush_thorough_queue
    int64_t flush_least_pages_log
    int64_t flush_least_pages_queue
    int64_t sync_flush_timeout
    int64_t default_queue_nums
    int64_t delay_count
    int64_t delay_millis[DELAY_LEVELS_MAX]
    bint sync_flush
    bint index_enabled
    bint check_crc
    bint record_checksum
    bint draft                   # only the log is written, and nothing is forced to the disk
    int32_t store_host_length
    char store_host[HOST_V6_BYTES]


cdef enum:
    QUARANTINE_NAME_BYTES = 48

    DAMAGE_TAIL = 1              # no good record follows, and none was there: cut
    DAMAGE_LOST = 2              # never synced, and zeros: what a power cut leaves; filled
    DAMAGE_BYTES = 3             # anything else: refused, or filled where the caller asks for it


# Bytes of one log file that are no good record.
cdef struct Damage:
    int64_t start                # log offsets
    int64_t stop
    int64_t used                 # behind the last byte that is saved
    int64_t kind
    int64_t field                # what did not check
    int64_t records              # how many there were, -1 where nothing tells
    int64_t checked              # good records of the scan that lie before it
    bint tail                    # no good record lies behind it
    bint mended
    char saved[QUARANTINE_NAME_BYTES]    # in rmqstore-quarantine/; empty: nothing to save


# What opening found and did.
cdef struct Recovery:
    bint clean
    Damage *damages
    int64_t damage_count
    int64_t damage_room
    int64_t examined_from        # every record from here on was looked at before anything changed
    bint full_dispatch
    int64_t records_checked
    int64_t bytes_cut
    int64_t units_written
    int64_t queues_rebuilt
    int64_t index_files_rebuilt
    int64_t index_set_aside      # index files moved to the quarantine
    int64_t checked_from
    int64_t seconds_ns
    bint completed_file
    bint changed                 # something was mended already


cdef enum:
    KEYLESS_RANGES = 64

# Ranges between index files that were walked once and held no key.
cdef struct Keyless:
    pthread_mutex_t mutex
    int64_t count
    int64_t starts[KEYLESS_RANGES]
    int64_t stops[KEYLESS_RANGES]


cdef struct Store:
    atomic_i64 references        # 1 for the engine + 1 a thread
    atomic_i64 state
    atomic_i64 failed            # first failed sync: nothing is acknowledged from then on
    atomic_i64 stalled           # -errno while dispatch cannot go on for lack of space
    atomic_i64 unflushed         # why no file of the log could be opened to force it; tried again
    bint index_stalled           # the index waits for it, not a queue; set before stalled is
    int64_t recovering_until     # log offset below which dispatch goes by a recovery's rules
    atomic_i64 stopping
    atomic_i64 in_use            # calls that are inside
    int64_t fork_generation
    Store *next_open             # list of open stores, for forks
    bint left_behind
    bint emptied                 # closed, and everything but this struct let go
    bint writable
    bint topics_listed           # topics.json could be read: each Topic.entered is told
    bint owned_elsewhere         # "r": another process has the store open
    int root
    int lock
    Settings settings
    OpenFiles open_files
    # send
    FileSet log
    pthread_mutex_t put_lock
    MappedFile *current
    int64_t last_store_timestamp
    TopicTable table
    # preparing log files
    pthread_mutex_t prepare_mutex
    MappedFile *next_file        # made ahead, without a name
    atomic_i64 prepare_at        # wake the preparer when the log has come this far
    int64_t populated            # log offset up to which pages are there
    int64_t populate_window
    # dispatch
    atomic_i64 dispatched        # log offset up to which queues and index are written
    int64_t last_record          # offset of the last one dispatched, -1: none; dispatch_mutex
    IndexSet indexes
    Keyless keyless
    Pending *pending
    int64_t units_until          # log offset up to which queues are written while the index waits
    pthread_mutex_t dispatch_mutex   # a batch of dispatch, or the deletion of a topic
    atomic_i64 skipped           # records whose topic or queue id is none
    # the log's read side
    atomic_i64 log_start         # "r": first and end offset as of the last look
    atomic_i64 log_end
    pthread_mutex_t look_mutex
    atomic_i64 looked_at
    pthread_mutex_t derive_mutex
    atomic_i64 derived           # the queues have been completed from the log
    pthread_mutex_t queued_mutex
    int64_t queued_until         # from queued_first up to here every record is in a queue
    int64_t queued_first
    int64_t queued_minimums
    atomic_i64 scanned_records   # by scans
    atomic_i64 scanned_bytes
    bint told_sizes              # no configuration: sizes as the files tell them
    bint log_size_read           # "r": a file has told the size; until then one has to come
    bint queue_size_read
    # flush
    Gate durable
    Gate visible
    Wakeups wakeups              # of event loops that wait for what Gate durable stands for
    atomic_i64 syncs_log
    atomic_i64 syncs_queue
    atomic_i64 flush_calls
    atomic_i64 physic_timestamp
    atomic_i64 logics_timestamp
    int64_t thorough_log_at
    int64_t thorough_queue_at
    pthread_mutex_t flush_mutex      # one flush of the log at a time
    pthread_mutex_t queue_flush_mutex
    Worker reput
    Worker flush_log
    Worker flush_queue
    Worker prepare
    Failure failure              # of the first background failure
    pthread_mutex_t failure_mutex
    Recovery recovery


cdef void store_broke(
    Store *store, int64_t status, const char *path, const char *what,
) noexcept nogil:
    """A sync failed: the store takes nothing more, and everybody who waits learns it."""
    cdef int64_t offset = -1
    if status == E_LOST:                     # with the file and the place that it noted
        path = loss_noted(&offset)
        what = LOSS_TEXT
    pthread_mutex_lock(&store.failure_mutex)
    fail(&store.failure, status, path, what, offset, 0, 0)
    pthread_mutex_unlock(&store.failure_mutex)
    atomic_swap_if(&store.failed, 0, status)
    gate_open(&store.durable)
    gate_open(&store.visible)
    wakeups_ring(&store.wakeups, INT64_MAX)


cdef inline int64_t store_enter(Store *store) noexcept nogil:
    """Begin a call: 0, or E_CLOSED, E_FORKED. Balanced by store_leave."""
    if unlikely(store.fork_generation != fork_generation):
        return E_FORKED
    atomic_add(&store.in_use, 1)
    if unlikely(atomic_get_strict(&store.state) != STATE_OPEN):
        atomic_add(&store.in_use, -1)
        return E_CLOSED
    calls_inside(1)
    return 0


cdef inline void store_leave(Store *store) noexcept nogil:
    calls_inside(-1)
    atomic_add(&store.in_use, -1)


# Raised in a child after each fork, so that the parent's stores can be told there.
cdef int64_t fork_generation = 0
# Stores that nobody closed and whose last thread has yet to end and give the lock back.
cdef atomic_i64 stores_leaving
cdef Store *open_stores = NULL
cdef pthread_mutex_t open_stores_mutex


cdef void before_fork() noexcept nogil:
    pthread_mutex_lock(&open_stores_mutex)


cdef void after_fork_in_parent() noexcept nogil:
    pthread_mutex_unlock(&open_stores_mutex)


cdef void after_fork_in_child() noexcept nogil:
    """The child lets go of the parent's locks: an inherited descriptor would keep them held."""
    global fork_generation
    cdef Store *store = open_stores
    fork_generation += 1
    unique_keys_init(&unique_keys, unique_keys.address, <uint32_t>monotonic_ns())
    while store != NULL:
        if store.lock >= 0:
            close(store.lock)
            store.lock = -1
        store = store.next_open
    pthread_mutex_unlock(&open_stores_mutex)


cdef void note_open_store(Store *store) noexcept nogil:
    """Before the lock is taken; until forget_open_store."""
    global open_stores
    pthread_mutex_lock(&open_stores_mutex)
    store.next_open = open_stores
    open_stores = store
    pthread_mutex_unlock(&open_stores_mutex)


cdef void forget_open_store(Store *store) noexcept nogil:
    global open_stores
    cdef Store **at
    pthread_mutex_lock(&open_stores_mutex)
    at = &open_stores
    while at[0] != NULL:
        if at[0] == store:
            at[0] = store.next_open
            break
        at = &at[0].next_open
    pthread_mutex_unlock(&open_stores_mutex)
