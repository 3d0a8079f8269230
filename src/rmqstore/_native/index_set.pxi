# The index files of a store, oldest first: list, roll, choose, tell what they cover.
#
# Source: store/index/IndexService.java

cdef struct IndexSet:
    pthread_mutex_t mutex        # guards files, count, room
    int root
    bint writable
    bint told                    # slots and entries are taken from a file's size
    bint enabled                 # messageIndexEnable, and the files are usable
    IndexFile **files
    int64_t count
    int64_t room
    int64_t slot_num
    int64_t entry_num
    atomic_i64 listed_at
    IndexFile *last              # the dispatch thread's own: keys go there
    int64_t known_end            # records before it have been entered in some file
    atomic_i64 full_timestamp    # end time of the newest full file that is on the disk
    atomic_i64 dispatched        # log offset up to which every record has been indexed


cdef void index_set_init(
    IndexSet *indexes, int root, bint writable, int64_t slot_num, int64_t entry_num, bint enabled,
) noexcept nogil:
    memset(indexes, 0, sizeof(IndexSet))
    pthread_mutex_init(&indexes.mutex, NULL)
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
    return 0


cdef bint index_name_good(const char *name) noexcept nogil:
    cdef int64_t i
    for i in range(INDEX_NAME_DIGITS):
        if name[i] < 48 or name[i] > 57:
            return False
    return name[INDEX_NAME_DIGITS] == 0


cdef int64_t index_set_tell_size(IndexSet *indexes, int64_t size) noexcept nogil:
    """Slots and entries of a file of ``size`` bytes, RocketMQ's ratio of 4 taken: 0 or E_*."""
    cdef int64_t slots = (size - INDEX_HEADER_BYTES) // (INDEX_SLOT_BYTES + 4 * INDEX_ENTRY_BYTES)
    if slots < 1 or index_file_bytes(slots, 4 * slots) != size:
        return E_INCOMPATIBLE
    indexes.slot_num = slots
    indexes.entry_num = 4 * slots
    return 0


cdef bint index_chains_fit(IndexFile *index) noexcept nogil:
    """Whether the first entries lie in the chains that the slots say: the sizes are right then."""
    cdef char entry[INDEX_ENTRY_BYTES]
    cdef char slot[INDEX_SLOT_BYTES]
    cdef int64_t number, key_hash, newest
    for number in range(1, min(atomic_get(&index.count), 65)):
        if index_read(index, index_entry_at(index, number), INDEX_ENTRY_BYTES, entry) < 0:
            return False
        key_hash = get_i32(entry + ENTRY_KEY_HASH)
        if key_hash < 0 or get_i32(entry + ENTRY_PREVIOUS) > number:
            return False
        if index_read(index, INDEX_HEADER_BYTES + (key_hash % index.slot_num) * INDEX_SLOT_BYTES,
                      INDEX_SLOT_BYTES, slot) < 0:
            return False
        newest = get_i32(slot)
        if newest < number or newest > atomic_get(&index.count):
            return False
    return True


cdef int64_t index_set_list(IndexSet *indexes, Failure *failure) noexcept nogil:
    """List ``index/`` anew: new files are opened, those that went are dropped.

    Sizes that are not known are told from the first file.  A set that is only read goes
    without files that cannot be used; one that is written refuses them.
    """
    cdef char path[FAILURE_PATH_BYTES + NAME_ROOM]
    cdef stat_t status
    cdef DIR *directory
    cdef dirent *entry
    cdef IndexFile *index
    cdef int64_t fd, i, rc
    cdef int64_t kept = 0
    atomic_set(&indexes.listed_at, monotonic_ns())
    fd = sys_open_directory(indexes.root, "index")
    if fd == -ENOENT:
        return 0
    if fd < 0:
        return fail(failure, fd, "index", "the directory cannot be opened", -1, 0, 0)
    directory = fdopendir(<int>fd)
    if directory == NULL:
        close(<int>fd)
        return fail(failure, E_NO_MEMORY, "index", "no memory", -1, 0, 0)
    rc = 0
    pthread_mutex_lock(&indexes.mutex)
    while rc >= 0:
        entry = readdir(directory)
        if entry == NULL:
            break
        if not index_name_good(entry.d_name) or index_set_has(indexes, entry.d_name):
            continue
        if fstatat(<int>fd, entry.d_name, &status, AT_SYMLINK_NOFOLLOW) != 0 \
                or not S_ISREG(status.st_mode):
            continue
        snprintf(path, sizeof(path), "index/%s", <char *>entry.d_name)
        if indexes.slot_num == 0 and status.st_size == 0:
            continue                         # tells nothing
        if indexes.slot_num == 0 and index_set_tell_size(indexes, status.st_size) < 0:
            if indexes.writable:
                rc = fail(failure, E_INCOMPATIBLE, path,
                          "slots and entries cannot be told from the size: configure them",
                          -1, status.st_size, 0)
            continue
        index = NULL
        if indexes.writable and status.st_size < index_file_bytes(
                indexes.slot_num, indexes.entry_num):
            rc = index_complete(indexes, path)
            if rc < 0:
                fail(failure, rc, path, "a short index file cannot be completed", -1, 0, 0)
                break
        i = index_open_file(indexes.root, path, indexes.slot_num, indexes.entry_num,
                            indexes.writable, &index)
        if i == 0 and not index_chains_fit(index) and (indexes.told or not indexes.writable):
            index_close(index)
            if indexes.writable:
                rc = fail(failure, E_INCOMPATIBLE, path,
                          "slots and entries cannot be told from the size: configure them",
                          -1, status.st_size, 0)
            continue
        if i == 0:
            i = index_set_enter(indexes, index)
        elif not indexes.writable:
            continue
        if i == E_INCOMPATIBLE:
            rc = fail(failure, i, path, "the size is not the configured one", -1, status.st_size,
                      index_file_bytes(indexes.slot_num, indexes.entry_num))
        elif i < 0:
            rc = fail(failure, i, path, "cannot be opened", -1, 0, 0)
    for i in range(indexes.count):
        if fstatat(<int>fd, indexes.files[i].name, &status, AT_SYMLINK_NOFOLLOW) != 0:
            index_close(indexes.files[i])
        else:
            indexes.files[kept] = indexes.files[i]
            kept += 1
    indexes.count = kept
    indexes.last = indexes.files[kept - 1] if kept else NULL
    pthread_mutex_unlock(&indexes.mutex)
    closedir(directory)
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


cdef IndexFile *index_set_hold(IndexSet *indexes, int64_t newest) noexcept nogil:
    """Hold the file that is ``newest`` from the end (0 the last); NULL beyond the first."""
    cdef IndexFile *index = NULL
    pthread_mutex_lock(&indexes.mutex)
    if newest < indexes.count:
        index = indexes.files[indexes.count - 1 - newest]
        atomic_add(&index.holds, 1)
    pthread_mutex_unlock(&indexes.mutex)
    return index


cdef void index_name_for(const char *last, int64_t now, char *into) noexcept nogil:
    """yyyyMMddHHmmssSSS in local time, but greater than the last name whatever the clock says."""
    cdef tm when
    cdef int64_t i
    cdef char digits[96]                     # a year of any size, as far as C knows
    local_time(now, &when)
    snprintf(digits, sizeof(digits), "%04d%02d%02d%02d%02d%02d%03d", when.tm_year + 1900,
             when.tm_mon + 1, when.tm_mday, when.tm_hour, when.tm_min, when.tm_sec,
             <int>(now % 1000))
    copy_text(into, INDEX_NAME_DIGITS + 1, digits)
    if last != NULL and strcmp(into, last) <= 0:
        memcpy(into, last, INDEX_NAME_DIGITS + 1)
        i = INDEX_NAME_DIGITS - 1
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


cdef int64_t index_set_flush(IndexSet *indexes, bint full_only) noexcept nogil:
    """Force index files to the disk, all or only those that are full; the number of syncs."""
    cdef IndexFile *index
    cdef int64_t rc
    cdef int64_t syncs = 0
    cdef int64_t i = 0
    cdef bint names = False
    if not indexes.writable:
        return 0
    while True:
        index = index_set_hold(indexes, i)
        if index == NULL:
            break
        rc = 0
        if not full_only or index_is_full(index):
            if atomic_get(&index.name_dirty):
                names = True
            rc = index_flush(index)
            if rc >= 0:
                atomic_set(&index.name_dirty, 0)
                syncs += rc
                if index_is_full(index) and i > 0:
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
    return syncs
