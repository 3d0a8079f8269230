# The index files of a store, oldest first: held, rolled, written and flushed.
#
# Source: store/index/IndexService.java

cdef struct IndexSet:
    pthread_mutex_t mutex        # guards files, count, room
    int root
    bint writable
    IndexSizes hint              # slots and entries as a checkpoint has them, 0: none
    int64_t size_up_at           # when the files may be asked for their sizes once more
    bint mended                  # files were set aside or given their length: believe none
    bint vouched                 # "r": a clean close left them, as the watermark says, or an owner
    int64_t set_aside            # files that went to the quarantine
    pthread_mutex_t check_mutex  # one thread checks the files of a set that is only read
    bint enabled                 # messageIndexEnable, and the files are usable
    IndexFile **files
    int64_t open                 # "r": descriptors that the files keep, and how many may be
    int64_t open_most
    int64_t count
    int64_t room
    int64_t slot_num
    int64_t entry_num
    atomic_i64 listed_at
    atomic_i64 waiting           # 1: the files are checked and mended when there is space
    int64_t try_at               # monotonic ns of the next try
    IndexFile *last              # the dispatch thread's own: keys go there
    int64_t known_end            # records before it have been entered in some file
    atomic_i64 full_timestamp    # end time of the newest full file that is on the disk
    atomic_i64 dispatched        # log offset up to which every record has been indexed


cdef void index_set_init(
    IndexSet *indexes, int root, bint writable, int64_t slot_num, int64_t entry_num, bint enabled,
) noexcept nogil:
    memset(indexes, 0, sizeof(IndexSet))
    pthread_mutex_init(&indexes.mutex, NULL)
    pthread_mutex_init(&indexes.check_mutex, NULL)
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
    pthread_mutex_destroy(&indexes.mutex)
    pthread_mutex_destroy(&indexes.check_mutex)


cdef int64_t index_set_enter(IndexSet *indexes, IndexFile *index) noexcept nogil:
    """Enter a file in the order of the names; the set takes the hold. Under the mutex."""
    cdef IndexFile **grown
    cdef int64_t at = indexes.count
    if indexes.count == indexes.room:
        grown = <IndexFile **>realloc(
            indexes.files, <size_t>(indexes.room * 2 + 4) * sizeof(IndexFile *))
        if grown == NULL:
            return E_NO_MEMORY
        indexes.files = grown
        indexes.room = indexes.room * 2 + 4
    while at > 0 and strcmp(indexes.files[at - 1].name, index.name) > 0:
        indexes.files[at] = indexes.files[at - 1]
        at -= 1
    indexes.files[at] = index
    indexes.count += 1
    index.root = indexes.root
    if not indexes.writable:
        indexes.open += 1
        index_set_close_unused(indexes, index)
    elif index.file.fd >= 0:                 # the mapping stays
        close(index.file.fd)
        index.file.fd = -1
    return 0


cdef void index_set_close_unused(IndexSet *indexes, const IndexFile *but) noexcept nogil:
    """"r": close the descriptors of all files that only the set holds, if there are too many.

    Not that of the file ``but``. Under the mutex, without which nobody can get a hold.
    """
    cdef IndexFile *index
    cdef int64_t i
    for i in range(indexes.count if indexes.open > indexes.open_most else 0):
        index = indexes.files[i]
        if index != but and index.file.fd >= 0 and atomic_get(&index.holds) == 1:
            close(index.file.fd)
            index.file.fd = -1
            indexes.open -= 1


cdef void index_set_open_again(IndexSet *indexes, IndexFile *index) noexcept nogil:
    """"r": have the descriptor of a file open, or in its place why not. Under the mutex."""
    cdef int64_t fd
    if index.file.fd >= 0:
        return
    fd = index_open_again(index)
    if fd == E_REMOVED:                      # so until the directory is listed anew
        atomic_set(&index.state, INDEX_BROKEN)
        fd = -EBADF
    index.file.fd = <int>fd
    if fd >= 0:
        indexes.open += 1
        index_set_close_unused(indexes, index)


cdef void index_set_let_go(IndexSet *indexes, IndexFile *index) noexcept nogil:
    """Drop the set's hold on a file that leaves it. Under the mutex."""
    if not indexes.writable and index.file.fd >= 0:
        indexes.open -= 1
    index_close(index)


cdef IndexFile *index_set_hold(IndexSet *indexes, int64_t newest) noexcept nogil:
    """Hold the file that is ``newest`` from the end (0 the last); NULL beyond the first."""
    cdef IndexFile *index = NULL
    pthread_mutex_lock(&indexes.mutex)
    if newest < indexes.count:
        index = indexes.files[indexes.count - 1 - newest]
        if not indexes.writable:
            index_set_open_again(indexes, index)
        atomic_add(&index.holds, 1)
    pthread_mutex_unlock(&indexes.mutex)
    return index


cdef void index_name_for(const char *last, int64_t now, char *into) noexcept nogil:
    """yyyyMMddHHmmssSSS in local time, but greater than the last name whatever the clock says."""
    cdef tm when
    cdef char digits[96]                     # a year of any size, as far as C knows
    local_time(now, &when)
    snprintf(digits, sizeof(digits), "%04d%02d%02d%02d%02d%02d%03d", when.tm_year + 1900,
             when.tm_mon + 1, when.tm_mday, when.tm_hour, when.tm_min, when.tm_sec,
             <int>(now % 1000))
    copy_text(into, INDEX_NAME_DIGITS + 1, digits)
    if last != NULL and strcmp(into, last) <= 0:
        index_name_after(last, into)


cdef void index_name_after(const char *name, char *into) noexcept nogil:
    """The next number; ``into`` may be ``name`` itself."""
    cdef int64_t i = INDEX_NAME_DIGITS - 1
    if into != name:
        memcpy(into, name, INDEX_NAME_DIGITS + 1)
    while i >= 0 and into[i] == 57:
        into[i] = 48
        i -= 1
    if i >= 0:
        into[i] += 1


cdef int64_t index_set_roll(IndexSet *indexes) noexcept nogil:
    """Make sure that the last file has room: make one if there is none or it is full."""
    cdef char name[INDEX_NAME_DIGITS + 1]
    cdef IndexFile *index = NULL
    cdef IndexFile *last = indexes.last
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
    pthread_mutex_lock(&indexes.mutex)
    rc = index_set_enter(indexes, index)
    if rc == 0:
        indexes.last = index
    pthread_mutex_unlock(&indexes.mutex)
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
    """Force index files to the disk, all or only those that are full; the number of syncs.

    ``flushed_log``: where the log ends on the disk.  A full file that points behind it waits: the
    checkpoint's time would vouch for records that a power cut may take.
    """
    cdef IndexFile *index
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
        if PLANTED("a18"):
            ahead = False
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
    """The directory is on the disk, with the names that were there before its sync."""
    cdef int64_t i
    pthread_mutex_lock(&indexes.mutex)
    for i in range(indexes.count):
        atomic_swap_if(&indexes.files[i].name_dirty, NAME_IN_SYNC, NAME_SYNCED)
    pthread_mutex_unlock(&indexes.mutex)
