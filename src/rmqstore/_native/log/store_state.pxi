# State of an open store, and who may access it.
#
# Locks and their order: base/locks.pxd.  The lock of dispatch guards queue files, index files and
# ``dispatched``; only the flush threads move flushed positions; all else has its own lock, is
# atomic, or is constant after opening.
#
# Source: store/DefaultMessageStore.java

cdef enum:
    STATE_OPENING
    STATE_OPEN
    STATE_CLOSING
    STATE_CLOSED

    DELAY_LEVELS_MAX = 64
    LOG_WINDOW = 64 << 20            # bytes of a log file reserved at a time
    POPULATE_FIRST = 256 << 10
    POPULATE_MAX = 32 << 20
    STALLED_NS = 150000000           # how long to wait for a stalled dispatch
    DISPATCH_RETRY_NS = 50000000     # how long a stalled dispatch waits for space or memory
    DISPATCH_IDLE_NS = 500000000     # how often an idle dispatch checks without being woken
    WAIT_SLICE_NS = 200000000        # how often a wait checks for signals
    VISIBLE_WAIT_NS = 1000000000     # how long a read waits for earlier puts
    REFRESH_AFTER_NS = 100000000     # how long a reader relies on its last listing
    CLOSE_SLICE_NS = 100000000       # how often a close checks whether dispatch continues
    CLOSE_STALLED_NS = 1000000000    # how long it waits for disk space


# The part of StoreConfig that the core uses.  Times in ns, sizes in bytes.
cdef struct Settings:
    int64_t log_file_size
    int64_t queue_file_size
    int64_t ext_file_size
    int64_t ext_bitmap_bytes     # size of a bit map, if known
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
    int64_t disk_warning_ratio   # percent of a disk above which messages are refused; 0: by room
    int64_t delay_count
    int64_t delay_millis[DELAY_LEVELS_MAX]
    int64_t max_light_queues
    int64_t compress_above       # body bytes; -1: never
    int64_t warm_pages           # of a file made ahead, per sync
    bint multi_dispatch          # a record put as a whole may name further queues
    bint light_queues            # including light queues
    bint warm                    # fill the pages of a file made ahead
    bint sync_flush
    bint flush_on_put            # ASYNC_FLUSH: check for dirty bytes after each put
    bint ext_enabled
    bint index_enabled
    bint check_crc
    bint record_checksum
    bint log_only                # write only the log, without a sync
    int32_t store_host_length
    char store_host[HOST_V6_BYTES]


cdef enum:
    PENDING_ROOM = 512           # keys of a dispatch batch before they are entered
    KEYLESS = -1

cdef struct PendingKey:
    int64_t physical_offset
    int64_t store_timestamp
    int32_t key_hash             # KEYLESS: no key, but roll the file if it is full
    bint begins                  # the first of its record

cdef struct Pending:
    int64_t count
    bint lost                    # keys were dropped for lack of space
    bint known                   # the next keys' record was entered before
    bint units_only              # leave out keys: the index has no space
    PendingKey keys[PENDING_ROOM]


# Append: the log's last file, and preparation ahead of it.
cdef struct Writer:
    Lock put_lock
    MappedFile *current          # the log's last file; held
    atomic_i64 last_store_timestamp
    Lock prepare_lock
    MappedFile *next_file        # made ahead, without a name
    atomic_i64 prepare_at        # wake the preparer when the log has come this far
    int64_t populated            # log offset up to which pages are populated
    int64_t populate_window
    Worker worker                # prepares


# Reput: the position up to which queues and index are written, and the reason of a stall.
cdef struct Dispatch:
    atomic_i64 dispatched        # log offset
    int64_t last_record          # offset of the last dispatched one, -1: none
    atomic_i64 logics_timestamp  # its store time
    Lock turn                    # held while records are dispatched: one thread at a time
    Lock lock
    atomic_i64 lock_wanted       # callers waiting for ``lock``: dispatch lets them go first
    Pending *pending
    char *bitmap                 # of the record being dispatched
    int64_t bitmap_room
    int64_t units_until          # log offset of the queues' units while the index waits
    int64_t recovering_until     # log offset below which a recovery's rules apply
    atomic_i64 skipped           # records with an invalid topic or queue id
    Gate visible                 # callers waiting for it
    Wakeups wakeups              # consumers waiting for it
    atomic_i64 stalled           # -errno while it waits for space
    bint index_stalled           # the index lacks space, not a queue; set before ``stalled``
    Queue *refused               # the last queue that could not be written, NULL: none
    Worker worker


# The two flush activities.
cdef struct Flush:
    Gate durable                 # callers waiting for a durable log
    Wakeups wakeups              # event loops waiting for it
    atomic_i64 unflushed         # why no log file could be opened for a flush; retried
    atomic_i64 physic_timestamp
    atomic_i64 syncs_log
    atomic_i64 syncs_queue
    atomic_i64 calls
    int64_t thorough_log_at
    int64_t thorough_queue_at
    Lock log_lock
    Lock queues_lock
    Worker log_worker
    Worker queue_worker


# A read-only store's knowledge of the files, and its age.
cdef struct View:
    bint owned_elsewhere         # another process has the store open
    Lock refresh_lock
    atomic_i64 refreshed_at
    int64_t refresh_took         # ns of the last search for new queues
    int64_t guarded_at           # monotonic ns of the last check of the SIGBUS handler
    atomic_i64 log_end           # last known
    atomic_i64 search_at         # monotonic ns of the next search for it
    Lock derive_lock
    atomic_i64 derived           # the queues have been completed from the log
    Lock queued_lock
    int64_t queued_until         # from queued_first up to here every record is in a queue
    int64_t queued_first
    int64_t queued_minimums
    atomic_i64 queued_again_at   # monotonic ns of the next check, after one for units alone failed
    atomic_i64 scanned_records   # by all scans
    atomic_i64 scanned_bytes
    bint queue_size_inferred     # inferred from the files, as none is configured
    bint ext_size_inferred
    bint log_size_read           # known from a file; until then, look for one
    bint queue_size_read


# Store times of the records in a part of a log file.
cdef struct BlockTimes:
    int64_t start                # of its first record; it ends where the next one starts
    int64_t oldest
    int64_t newest


# Store times of a file of the log.
cdef struct FileTimes:
    int64_t start                # of the file
    int64_t until                # the fields below cover the records before
    int64_t first                # of the first record, INT64_LEAST if that is bad
    int64_t last
    Record last_record           # of a file that was walked
    int64_t oldest
    int64_t newest
    int64_t back                 # most ms by which a record is older than an earlier one
    BlockTimes *blocks           # up to ``until``, of a file that was walked
    int64_t block_count
    int64_t block_room


# Store times of the files queried so far.
cdef struct LogTimes:
    Lock lock
    FileTimes *files             # ascending
    int64_t count
    int64_t room
    atomic_i64 known_until       # log offset below which ``back`` holds; 0: unknown
    atomic_i64 back              # most ms by which a record may be older than an earlier one
    int64_t leapt                # start of a file with or before a leap; -1: none known


# Disk use, and whether it is too high to take messages.
cdef struct Disk:
    atomic_i64 refuses           # 1: messages are refused until there is room
    atomic_i64 pretended_log     # percent + 1 pretended in tests; 0: the real one
    atomic_i64 pretended_queues


cdef struct Store:
    # its lifetime
    atomic_i64 references        # 1 for the engine + 1 a thread
    atomic_i64 state
    atomic_i64 stopping
    atomic_i64 in_use            # calls in progress
    int64_t fork_generation
    Store *next_open             # list of open stores, for forks
    bint abandoned
    bint emptied                 # closed, and everything but this struct released
    bint writable
    bint topics_listed           # topics.json was readable: each Topic.entered is valid
    int root
    int lock
    int root_lock                # the directory once more, locked itself
    int log_lock                 # its `commitlog`, locked too; -1 where places are locked instead
    bint claimed                 # by the table of this process: guarded by open_stores_lock
    char *root_path              # of the directory; NULL: of a part by itself
    uint64_t root_device
    uint64_t root_inode
    atomic_i64 clock_shift       # ms of the store's clock ahead of the wall clock
    Settings settings
    atomic_i64 failed            # first failed sync: no more acknowledgements
    Failure failure              # of the first background failure
    Lock failure_lock
    # its files
    OpenFiles open_files
    OpenFiles open_log_files     # "r": log files, which keep descriptors
    OpenFiles open_queue_files   # "r": queue files with descriptors, beyond the room for views
    FileSet log
    TopicTable table
    IndexSet indexes
    Keyless keyless
    LogTimes times
    # its activities
    Writer writer
    Dispatch dispatch
    Flush flush
    View view
    Disk disk
    DeletedFiles *deleted        # of log and queues, while messages hold them
    Recovery recovery
    Figures figures


cdef void store_set_failed(
    Store *store, int64_t status, const char *path, const char *what,
) noexcept nogil:
    """Fail the store for good after a failed sync: no more writes, and all waiters return."""
    cdef int64_t offset = -1
    if status == E_LOST:                     # with the noted file and offset
        path = loss_noted(&offset)
        what = LOSS_TEXT
    lock_take(&store.failure_lock)
    fail(&store.failure, status, path, what, offset, 0, 0)
    lock_give(&store.failure_lock)
    atomic_swap_if(&store.failed, 0, status)
    gate_open(&store.flush.durable)
    gate_open(&store.dispatch.visible)
    wakeups_ring(&store.flush.wakeups, INT64_MAX)
    wakeups_ring(&store.dispatch.wakeups, INT64_MAX)


cdef void times_free(LogTimes *times) noexcept nogil:
    cdef int64_t i
    for i in range(times.count):
        free(times.files[i].blocks)
    free(times.files)


cdef inline int64_t store_millis(const Store *store) noexcept nogil:
    """Milliseconds since the epoch by the store's clock."""
    return wall_millis() + atomic_peek(&store.clock_shift)


cdef void dispatch_lock_take(Store *store) noexcept nogil:
    """Take the lock of dispatch, held almost all the time while there is work."""
    atomic_add(&store.dispatch.lock_wanted, 1)
    lock_take(&store.dispatch.lock)
    atomic_add(&store.dispatch.lock_wanted, -1)


cdef inline int64_t store_enter(Store *store) noexcept nogil:
    """Begin a call: 0, or E_CLOSED, E_FORKED.  Balanced by store_leave."""
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


# Incremented in a child after each fork; identifies the parent's stores there.
cdef int64_t fork_generation = 0
# Unclosed stores whose last thread has yet to end and release the lock.
cdef atomic_i64 stores_leaving
cdef Store *open_stores = NULL
cdef Lock open_stores_lock


cdef void before_fork() noexcept nogil:
    lock_take(&open_stores_lock)


cdef void after_fork_in_parent() noexcept nogil:
    lock_give(&open_stores_lock)


cdef void after_fork_in_child() noexcept nogil:
    """Close the child's copies of the parent's locks, which would otherwise stay held."""
    global fork_generation
    cdef Store *store = open_stores
    cdef int64_t i
    fork_generation += 1
    turns_init()
    unique_keys_init(&unique_keys, unique_keys.address, <uint32_t>monotonic_ns())
    while store != NULL:
        if store.lock >= 0:
            close(store.lock)
            store.lock = -1
        if store.root_lock >= 0:
            close(store.root_lock)
            store.root_lock = -1
        if store.log_lock >= 0:
            close(store.log_lock)
            store.log_lock = -1
        for i in range(store.log.places.count if store.claimed and store.log.places != NULL else 0):
            close(store.log.places.items[i].fd)
            store.log.places.items[i].fd = -1
        store = store.next_open
    lock_give(&open_stores_lock)


cdef void note_open_store(Store *store) noexcept nogil:
    """Enter a store, before its lock is taken; undone by forget_open_store."""
    global open_stores
    lock_take(&open_stores_lock)
    store.next_open = open_stores
    open_stores = store
    lock_give(&open_stores_lock)


cdef void forget_open_store(Store *store) noexcept nogil:
    global open_stores
    cdef Store **at
    lock_take(&open_stores_lock)
    at = &open_stores
    while at[0] != NULL:
        if at[0] == store:
            at[0] = store.next_open
            break
        at = &at[0].next_open
    lock_give(&open_stores_lock)
