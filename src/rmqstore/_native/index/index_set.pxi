# The index files of a store, oldest first: hold, roll, flush.
#
# Source: store/index/IndexService.java

cdef struct IndexSet:
    Lock lock                    # guards files, count, room
    int root
    bint writable
    IndexSizes hint              # configured or checkpointed slots and entries, 0: none
    bint sizes_set               # by the configuration
    int64_t size_up_at           # earliest time of the next attempt to infer the sizes
    bint repaired                  # files were set aside or extended: trust none of them
    bint vouched                 # "r": closed cleanly, matching the watermark, or owned now
    int64_t set_aside            # files moved to the quarantine
    Lock check_lock              # "r": one thread checks the files
    bint enabled                 # messageIndexEnable, and the files are usable
    Index **files
    int64_t open                 # "r": open descriptors of the files, and their limit
    int64_t open_max
    int64_t count
    int64_t room
    int64_t slot_num
    int64_t entry_num
    atomic_i64 listed_at
    atomic_i64 waiting           # 1: check and repair of the files wait for space
    int64_t try_at               # monotonic ns of the next try
    Index *last                  # receives new keys; the dispatch thread's own
    int64_t known_end            # records below are already indexed
    atomic_i64 full_timestamp    # end time of the newest durable full file
    atomic_i64 dispatched        # log offset below which every record is indexed


cdef void index_set_init(
    IndexSet *indexes, int root, bint writable, int64_t slot_num, int64_t entry_num, bint enabled,
) noexcept nogil:
    memset(indexes, 0, sizeof(IndexSet))
    lock_init(&indexes.lock, LOCK_INDEXES)
    lock_init(&indexes.check_lock, LOCK_INDEX_CHECK)
    indexes.root = root
    indexes.writable = writable
    indexes.slot_num = slot_num
    indexes.entry_num = entry_num
    indexes.enabled = enabled


cdef void index_set_destroy(IndexSet *indexes) noexcept nogil:
    cdef int64_t i
    for i in range(indexes.count):
        index_close(indexes.files[i])
    free(indexes.files)
    lock_destroy(&indexes.lock)
    lock_destroy(&indexes.check_lock)


cdef int64_t index_set_enter(IndexSet *indexes, Index *index) noexcept nogil:
    """Enter a file in name order; the set takes the hold.  Under the lock."""
    cdef Index **grown
    cdef int64_t at = indexes.count
    grown = <Index **>array_with_room(
        indexes.files, &indexes.room, indexes.count, sizeof(Index *))
    if grown == NULL:
        return E_NO_MEMORY
    indexes.files = grown
    while at > 0 and strcmp(indexes.files[at - 1].name, index.name) > 0:
        indexes.files[at] = indexes.files[at - 1]
        at -= 1
    indexes.files[at] = index
    indexes.count += 1
    index.root = indexes.root
    if not indexes.writable:
        indexes.open += 1
        index_set_close_unused(indexes, index)
    elif index.file.fd >= 0:                 # the mapping needs no descriptor
        close(index.file.fd)
        index.file.fd = -1
    return 0


cdef void index_set_close_unused(IndexSet *indexes, const Index *but) noexcept nogil:
    """"r": if too many are open, close descriptors of files held by the set alone, except ``but``.

    Under the lock, so that nobody can take a hold.
    """
    cdef Index *index
    cdef int64_t i
    for i in range(indexes.count if indexes.open > indexes.open_max else 0):
        index = indexes.files[i]
        if index != but and index.file.fd >= 0 and atomic_get(&index.holds) == 1:
            close(index.file.fd)
            index.file.fd = -1
            indexes.open -= 1


cdef void index_set_open_again(IndexSet *indexes, Index *index) noexcept nogil:
    """"r": reopen the descriptor of a file, or store the error in its place.  Under the lock."""
    cdef int64_t fd
    if index.file.fd >= 0:
        return
    fd = index_open_again(index)
    if fd == E_REMOVED:                      # until the directory is listed again
        atomic_set(&index.state, INDEX_BROKEN)
        fd = -EBADF
    index.file.fd = <int>fd
    if fd >= 0:
        indexes.open += 1
        index_set_close_unused(indexes, index)


cdef void index_set_let_go(IndexSet *indexes, Index *index) noexcept nogil:
    """Release the set's hold on a leaving file.  Under the lock."""
    if not indexes.writable and index.file.fd >= 0:
        indexes.open -= 1
    index_close(index)


cdef Index *index_set_hold(IndexSet *indexes, int64_t newest) noexcept nogil:
    """Hold file ``newest`` counted from the end (0 is the last); NULL before the first."""
    cdef Index *index = NULL
    lock_take(&indexes.lock)
    if newest < indexes.count:
        index = indexes.files[indexes.count - 1 - newest]
        if not indexes.writable:
            index_set_open_again(indexes, index)
        atomic_add(&index.holds, 1)
    lock_give(&indexes.lock)
    return index


cdef void index_name_for(const char *last, int64_t now, char *into) noexcept nogil:
    """Name of a new file: yyyyMMddHHmmssSSS, local time, but always greater than the last name."""
    cdef tm when
    cdef char digits[96]                     # for any year that C can represent
    local_time(now, &when)
    snprintf(digits, sizeof(digits), "%04d%02d%02d%02d%02d%02d%03d", when.tm_year + 1900,
             when.tm_mon + 1, when.tm_mday, when.tm_hour, when.tm_min, when.tm_sec,
             <int>(now % 1000))
    copy_text(into, INDEX_NAME_DIGITS + 1, digits)
    if last != NULL and strcmp(into, last) <= 0:
        index_name_after(last, into)


cdef void index_name_after(const char *name, char *into) noexcept nogil:
    """Increment a name; ``into`` may be ``name`` itself."""
    cdef int64_t i = INDEX_NAME_DIGITS - 1
    if into != name:
        memcpy(into, name, INDEX_NAME_DIGITS + 1)
    while i >= 0 and into[i] == 57:
        into[i] = 48
        i -= 1
    if i >= 0:
        into[i] += 1


cdef int64_t index_set_roll(IndexSet *indexes) noexcept nogil:
    """Ensure that the last file has room; create one if there is none or it is full."""
    cdef char name[INDEX_NAME_DIGITS + 1]
    cdef Index *index = NULL
    cdef Index *last = indexes.last
    cdef int64_t rc
    if last != NULL and not index_is_full(last):
        return 0
    if last == NULL:
        rc = sys_make_directory(indexes.root, "index")
        if rc < 0:
            return rc
    index_name_for(last.name if last != NULL else NULL, wall_millis(), name)
    rc = index_make_file(indexes.root, "index", name, indexes.slot_num, indexes.entry_num, &index)
    if rc < 0:
        return rc
    if last != NULL:
        index_seed(index, atomic_peek(&last.end_phy_offset), atomic_peek(&last.end_timestamp))
    lock_take(&indexes.lock)
    rc = index_set_enter(indexes, index)
    if rc == 0:
        indexes.last = index
    lock_give(&indexes.lock)
    return rc


cdef inline int64_t index_set_put(
    IndexSet *indexes, int32_t key_hash, int64_t physical_offset, int64_t store_timestamp,
) noexcept nogil:
    cdef int64_t rc = index_put(indexes.last, key_hash, physical_offset, store_timestamp)
    while unlikely(rc == E_FULL):
        rc = index_set_roll(indexes)
        if rc == 0:
            rc = index_put(indexes.last, key_hash, physical_offset, store_timestamp)
    return rc


cdef int64_t index_set_flush(
    IndexSet *indexes, bint full_only, int64_t flushed_log,
) noexcept nogil:
    """Force index files to the disk, all or only full ones; the number of syncs.

    A full file that points beyond ``flushed_log``, the log's durable end, waits: the checkpoint's
    time would cover records that a power cut may take.
    """
    cdef Index *index
    cdef int64_t rc
    cdef int64_t syncs = 0
    cdef int64_t i = 0
    cdef bint names = False
    cdef bint ahead
    if not indexes.writable or atomic_get(&indexes.waiting):
        return 0
    while True:
        index = index_set_hold(indexes, i)
        if index == NULL:
            break
        rc = 0
        ahead = atomic_get(&index.count) > 1 and atomic_get(&index.end_phy_offset) >= flushed_log
        if not full_only or (index_is_full(index) and not ahead):
            if atomic_get(&index.name_dirty) != NAME_SYNCED:
                names = True
                atomic_set(&index.name_dirty, NAME_IN_SYNC)
            rc = index_flush(index)
            if rc >= 0:
                syncs += rc
                if index_is_full(index) and i > 0 and not ahead:
                    atomic_raise(&indexes.full_timestamp, atomic_get(&index.end_timestamp))
        index_close(index)
        if rc < 0:
            return rc
        i += 1
    if names:
        rc = sync_directory(indexes.root, "index")
        if rc == 0:
            rc = sys_sync(indexes.root)
        if rc < 0:
            return rc
        index_set_names_synced(indexes)
    return syncs


cdef void index_set_names_synced(IndexSet *indexes) noexcept nogil:
    """Record that the directory was synced, with the names present before."""
    cdef int64_t i
    lock_take(&indexes.lock)
    for i in range(indexes.count):
        atomic_swap_if(&indexes.files[i].name_dirty, NAME_IN_SYNC, NAME_SYNCED)
    lock_give(&indexes.lock)
