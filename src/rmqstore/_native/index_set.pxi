# The index files of a store, oldest first: list, roll, choose, tell what they cover.
#
# Source: store/index/IndexService.java

cdef const char *INDEX_REBUILT = ".rebuilt"      # a name that no broker takes for an index file

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


cdef bint index_name_good(const char *name) noexcept nogil:
    cdef int64_t i
    for i in range(INDEX_NAME_DIGITS):
        if name[i] < 48 or name[i] > 57:
            return False
    return name[INDEX_NAME_DIGITS] == 0


cdef int64_t index_set_open_directory(
    IndexSet *indexes, DIR **directory, Failure *failure,
) noexcept nogil:
    """The descriptor of ``index/`` and a stream over it, -ENOENT where there is none."""
    cdef int64_t fd = sys_open_directory(indexes.root, "index")
    if fd < 0:
        return fd if fd == -ENOENT else fail(
            failure, fd, "index", "the directory cannot be opened", -1, 0, 0)
    directory[0] = fdopendir(<int>fd)
    if directory[0] == NULL:
        close(<int>fd)
        return fail(failure, E_NO_MEMORY, "index", "no memory", -1, 0, 0)
    return fd


cdef int64_t index_set_size_up(IndexSet *indexes, Failure *failure) noexcept nogil:
    """Tell slots and entries from the files; nothing is changed.

    Where they are configured, a set whose sound files all are of other sizes is refused: a broker
    of those sizes would read them differently.
    """
    cdef IndexSizes choices[SIZE_CHOICES]
    cdef stat_t status
    cdef DIR *directory = NULL
    cdef dirent *entry
    cdef int64_t count = 0
    cdef int64_t i, fd, file
    cdef int64_t odd = 0
    cdef int64_t odd_size = 0
    cdef int64_t began = monotonic_ns()
    if began < indexes.size_up_at:
        return 0
    if indexes.slot_num > 0:
        indexes.hint.slot_num = indexes.slot_num
        indexes.hint.entry_num = indexes.entry_num
    fd = index_set_open_directory(indexes, &directory, failure)
    if fd < 0:
        return 0 if fd == -ENOENT else fd
    while True:
        entry = readdir(directory)
        if entry == NULL:
            break
        if not index_name_good(entry.d_name):
            continue
        file = sys_open_file(<int>fd, entry.d_name, O_RDONLY, &status)
        if file < 0 and is_passing(file) and indexes.writable and indexes.slot_num == 0:
            closedir(directory)              # it may be the one that tells
            return fail(failure, file, "index", "a file cannot be opened", -1, 0, 0)
        if file < 0:
            continue
        if indexes.slot_num > 0 and status.st_size != index_file_bytes(
                indexes.slot_num, indexes.entry_num):
            odd += 1
            odd_size = status.st_size
        if status.st_size > 0:
            index_ask_file(<int>file, status.st_size, &indexes.hint, choices, &count)
        close(<int>file)
    closedir(directory)
    if indexes.slot_num == 0:
        for i in range(count if indexes.writable and PLANTED("a11") else 0):
            if choices[i].sound < choices[i].files:
                return fail(failure, E_INCOMPATIBLE, "index", "the sizes cannot be told", -1, 0, 0)
        index_choose_sizes(choices, count, &indexes.slot_num, &indexes.entry_num)
        # A search that was in vain is not made at each call.
        indexes.size_up_at = monotonic_ns() + 50 * (monotonic_ns() - began)
        return 0
    if not indexes.writable or odd == 0:
        return 0
    for i in range(count):
        if choices[i].sound and choices[i].slot_num == indexes.slot_num \
                and choices[i].entry_num == indexes.entry_num:
            return 0                         # the others are damaged
    for i in range(count):
        if choices[i].sound:
            return fail(failure, E_INCOMPATIBLE, "index", "the size is not the configured one", -1,
                        odd_size, index_file_bytes(indexes.slot_num, indexes.entry_num))
    return 0


cdef int64_t index_set_list(IndexSet *indexes, Failure *failure) noexcept nogil:
    """List ``index/`` anew: new files are opened, those that went are dropped.

    A file of another length is passed over by who only reads; who writes gives a short one its
    length, for its entries to be checked, and sets a longer one aside.
    """
    cdef char path[FAILURE_PATH_BYTES + NAME_ROOM]
    cdef stat_t status
    cdef DIR *directory = NULL
    cdef dirent *entry
    cdef IndexFile *index
    cdef int64_t fd, rc
    cdef int64_t size
    atomic_set(&indexes.listed_at, monotonic_ns())
    if indexes.slot_num == 0:
        rc = index_set_size_up(indexes, failure)
        if rc < 0 or indexes.slot_num == 0:
            return rc
    fd = index_set_open_directory(indexes, &directory, failure)
    if fd < 0:
        return 0 if fd == -ENOENT else fd
    rc = 0
    size = index_file_bytes(indexes.slot_num, indexes.entry_num)
    pthread_mutex_lock(&indexes.mutex)
    index_set_drop_gone(indexes, <int>fd)
    while rc >= 0:
        entry = readdir(directory)
        if entry == NULL:
            break
        if indexes.writable and index_name_left(entry.d_name):
            sys_unlink(<int>fd, entry.d_name)        # of a rebuilding that was not finished
            continue
        if not index_name_good(entry.d_name) or index_set_has(indexes, entry.d_name):
            continue
        if fstatat(<int>fd, entry.d_name, &status, AT_SYMLINK_NOFOLLOW) != 0 \
                or not S_ISREG(status.st_mode):
            continue
        snprintf(path, sizeof(path), "index/%s", <char *>entry.d_name)
        if status.st_size != size:
            if not indexes.writable:
                continue
            if status.st_size > size:
                rc = index_set_aside(indexes, entry.d_name)
                continue
            rc = index_complete(indexes, path)
            if rc < 0:
                fail(failure, rc, path, "a short index file cannot be completed", -1, 0, 0)
                break
            indexes.mended = True
        index = NULL
        rc = index_open_file(indexes.root, path, indexes.slot_num, indexes.entry_num,
                             indexes.writable, &index)
        if rc == 0:
            rc = index_set_enter(indexes, index)
        elif not indexes.writable:
            rc = 0
        if rc < 0:
            fail(failure, rc, path, "cannot be opened", -1, 0, 0)
    indexes.last = indexes.files[indexes.count - 1] if indexes.count else NULL
    pthread_mutex_unlock(&indexes.mutex)
    closedir(directory)
    return rc


cdef void index_set_drop_gone(IndexSet *indexes, int directory) noexcept nogil:
    """Let go of files that are not there any more, or are others now. Under the mutex."""
    cdef stat_t status
    cdef IndexFile *index
    cdef char header[INDEX_HEADER_BYTES]
    cdef int64_t kept = 0
    cdef int64_t i
    cdef bint gone
    for i in range(indexes.count):
        index = indexes.files[i]
        gone = fstatat(directory, index.name, &status, AT_SYMLINK_NOFOLLOW) != 0 \
            or status.st_ino != index.file.inode
        # One that was not believed is looked at anew once an owner has gone on with it.
        if not gone and not indexes.writable and atomic_get(&index.state) >= INDEX_PATCHED:
            index_set_open_again(indexes, index)
            gone = index_read(index, 0, INDEX_HEADER_BYTES, header) == 0 \
                and memcmp(header, index.patched_from, INDEX_HEADER_BYTES) != 0
        if gone:
            index_set_let_go(indexes, index)
        else:
            indexes.files[kept] = index
            kept += 1
    indexes.count = kept


cdef bint index_name_left(const char *name) noexcept nogil:
    """Whether a file was being made to take another one's place."""
    return strlen(name) > INDEX_NAME_DIGITS \
        and strcmp(name + INDEX_NAME_DIGITS, INDEX_REBUILT) == 0


cdef int64_t index_set_aside(IndexSet *indexes, const char *name) noexcept nogil:
    """Move a file that cannot be used to rmqstore-quarantine/index.

    A broker takes whatever has a number for its name.  Where that is another file system the file
    gets a name that is none.
    """
    cdef char path[FAILURE_PATH_BYTES]
    cdef char to[FAILURE_PATH_BYTES]
    cdef int64_t rc = sys_make_directory(indexes.root, "rmqstore-quarantine")
    if rc >= 0:
        rc = sys_make_directory(indexes.root, "rmqstore-quarantine/index")
    if rc < 0:
        return rc
    snprintf(path, sizeof(path), "index/%s", name)
    snprintf(to, sizeof(to), "rmqstore-quarantine/index/%s", name)
    rc = sys_rename(indexes.root, path, to)
    if rc == -EXDEV:
        snprintf(to, sizeof(to), "index/%s.aside", name)
        rc = sys_rename(indexes.root, path, to)
    else:
        rc = min(rc, sync_directory(indexes.root, "rmqstore-quarantine/index"))
        if rc >= 0:
            rc = min(sync_directory(indexes.root, "rmqstore-quarantine"), sys_sync(indexes.root))
    if rc >= 0:
        rc = sync_directory(indexes.root, "index")
    if rc >= 0:
        indexes.set_aside += 1
        indexes.mended = True
    return rc


cdef int64_t index_complete(IndexSet *indexes, const char *path) noexcept nogil:
    """Give a file its length that a crash left short; what it lacks is entered again."""
    cdef stat_t status
    cdef int64_t rc
    cdef int64_t fd = sys_open_file(indexes.root, path, O_RDWR, &status)
    if fd < 0:
        return fd
    rc = sys_truncate(<int>fd, index_file_bytes(indexes.slot_num, indexes.entry_num))
    close(<int>fd)
    return rc


cdef bint index_set_has(IndexSet *indexes, const char *name) noexcept nogil:
    cdef int64_t i
    for i in range(indexes.count):
        if strcmp(indexes.files[i].name, name) == 0:
            return True
    return False


cdef bint index_set_has_file(IndexSet *indexes, const IndexFile *index) noexcept nogil:
    cdef int64_t i
    for i in range(indexes.count):
        if indexes.files[i] == index:
            return True
    return False


cdef void index_set_remove(IndexSet *indexes, const char *name) noexcept nogil:
    """Take the file of that name out of the set, if it is in it."""
    cdef int64_t i
    cdef int64_t kept = 0
    pthread_mutex_lock(&indexes.mutex)
    for i in range(indexes.count):
        if strcmp(indexes.files[i].name, name) == 0:
            index_set_let_go(indexes, indexes.files[i])
        else:
            indexes.files[kept] = indexes.files[i]
            kept += 1
    indexes.count = kept
    pthread_mutex_unlock(&indexes.mutex)


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
