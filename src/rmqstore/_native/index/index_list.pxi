# The directory ``index/``: files listed, completed, or set aside if unusable.
#
# Source: store/index/IndexService.java load

cdef const char *INDEX_REBUILT = ".rebuilt"      # suffix that brokers ignore


cdef bint index_name_good(const char *name) noexcept nogil:
    cdef int64_t i
    for i in range(INDEX_NAME_DIGITS):
        if name[i] < 48 or name[i] > 57:
            return False
    return name[INDEX_NAME_DIGITS] == 0


cdef int64_t index_set_open_directory(
    IndexSet *indexes, DIR **directory, Failure *failure,
) noexcept nogil:
    """Open ``index/``: descriptor and stream; -ENOENT if it does not exist."""
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
    """Infer the numbers of slots and entries from the files.

    Refuse configured numbers if all sound files have other sizes, or most of those as long have:
    a broker would misread them.
    """
    cdef IndexSizes choices[SIZE_CHOICES]
    cdef stat_t status
    cdef DIR *directory = NULL
    cdef dirent *entry
    cdef const IndexSizes *best
    cdef int64_t count = 0
    cdef int64_t i, fd, file
    cdef int64_t odd = 0
    cdef int64_t odd_size = 0
    cdef int64_t size
    cdef bint configured                     # the length is
    cdef int64_t began = monotonic_ns()
    if began < indexes.size_up_at:
        return 0
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
            closedir(directory)              # the size may depend on this very file
            return fail(failure, file, "index", "a file cannot be opened", -1, 0, 0)
        if file < 0:
            continue
        configured = indexes.slot_num > 0 and status.st_size == index_file_bytes(
            indexes.slot_num, indexes.entry_num)
        if indexes.slot_num > 0 and not configured:
            odd += 1
            odd_size = status.st_size
        if index_sizes_are_sure(choices, count, status.st_size):
            index_vote(choices, &count, choices[0].slot_num, choices[0].entry_num, SIZES_SOUND)
        elif configured and index_chains_fit(<int>file, indexes.slot_num, indexes.entry_num):
            index_vote(choices, &count, indexes.slot_num, indexes.entry_num, SIZES_SOUND)
        elif status.st_size > 0:
            if not (indexes.sizes_set and index_vote_length(
                    <int>file, status.st_size, &indexes.hint, choices, &count)):
                index_ask_file(<int>file, status.st_size, &indexes.hint, choices, &count)
        close(<int>file)
    closedir(directory)
    best = index_best_sizes(choices, count)
    if indexes.slot_num == 0:
        if best != NULL:
            indexes.slot_num = best.slot_num
            indexes.entry_num = best.entry_num
        # After a fruitless search, wait before the next.
        indexes.size_up_at = monotonic_ns() + 50 * (monotonic_ns() - began)
        return 0
    if not indexes.writable:
        return 0
    if best == NULL or best.sound == 0:
        return 0
    size = index_file_bytes(indexes.slot_num, indexes.entry_num)
    # A few keys fit the configured slots by chance: files of one length have one number of slots.
    for i in range(count):
        if choices[i].sound and choices[i].slot_num == indexes.slot_num \
                and choices[i].entry_num == indexes.entry_num \
                and (choices[i].sound >= best.sound
                     or index_file_bytes(best.slot_num, best.entry_num) != size):
            return 0                         # the rest are damaged
    if odd == 0:                             # the same length with more slots and fewer entries
        return fail(failure, E_INCOMPATIBLE, "index",
                    "the slots are not as many as max_hash_slot_num has; name the right sizes in "
                    "config=, or none: then they are inferred",
                    -1, best.slot_num, indexes.slot_num)
    return fail(failure, E_INCOMPATIBLE, "index",
                "the size is not the configured one, of max_hash_slot_num and max_index_num; name "
                "the right size in config=, or none: then it is inferred",
                -1, odd_size, size)


cdef int64_t index_set_list(IndexSet *indexes, Failure *failure) noexcept nogil:
    """List ``index/`` again: open new files, drop removed ones.

    Of files with another length, read-only mode ignores all; a writer extends a short one, to be
    checked, and sets a longer one aside.
    """
    cdef char path[FAILURE_PATH_BYTES + NAME_ROOM]
    cdef stat_t status
    cdef DIR *directory = NULL
    cdef dirent *entry
    cdef Index *index
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
    lock_take(&indexes.lock)
    index_set_drop_gone(indexes, <int>fd)
    while rc >= 0:
        entry = readdir(directory)
        if entry == NULL:
            break
        if indexes.writable and index_name_left(entry.d_name):
            sys_unlink(<int>fd, entry.d_name)        # left by an interrupted rebuild
            continue
        if not index_name_good(entry.d_name) or index_set_has(indexes, entry.d_name):
            continue
        if fstatat(<int>fd, entry.d_name, &status, 0) != 0 \
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
            indexes.repaired = True
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
    lock_give(&indexes.lock)
    closedir(directory)
    return rc


cdef void index_set_drop_gone(IndexSet *indexes, int directory) noexcept nogil:
    """Drop removed and replaced files.  Under the lock."""
    cdef stat_t status
    cdef Index *index
    cdef char header[INDEX_HEADER_BYTES]
    cdef int64_t kept = 0
    cdef int64_t i
    cdef bint gone
    for i in range(indexes.count):
        index = indexes.files[i]
        gone = fstatat(directory, index.name, &status, 0) != 0 \
            or status.st_ino != index.file.inode \
            or (not indexes.writable and status.st_size != index.file.size)
        # A patched file is checked again once an owner has repaired and changed it.
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
    """Whether the name is an unfinished replacement's."""
    return strlen(name) > INDEX_NAME_DIGITS \
        and strcmp(name + INDEX_NAME_DIGITS, INDEX_REBUILT) == 0


cdef int64_t index_set_aside(IndexSet *indexes, const char *name) noexcept nogil:
    """Move an unusable file to rmqstore-quarantine/index.

    A link (it may be relative), or a file with the quarantine on another file system, is renamed
    in place instead: brokers load only files whose name is a number.
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
    rc = -EXDEV
    if not sys_is_link(indexes.root, path):
        rc = sys_rename(indexes.root, path, to)
    if rc == -EXDEV:
        snprintf(to, sizeof(to), "index/%s.aside", name)
        rc = sys_rename(indexes.root, path, to)
    else:
        if rc >= 0:
            rc = sync_result(sync_directory(indexes.root, "rmqstore-quarantine/index"))
        if rc >= 0:
            rc = sync_result(sync_directory(indexes.root, "rmqstore-quarantine"))
        if rc >= 0:
            rc = sync_result(sys_sync(indexes.root))
    if rc >= 0:
        rc = sync_result(sync_directory(indexes.root, "index"))
    if rc >= 0:
        indexes.set_aside += 1
        indexes.repaired = True
    return rc


cdef int64_t index_complete(IndexSet *indexes, const char *path) noexcept nogil:
    """Extend a file that a crash left short; its missing entries are entered again."""
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


cdef bint index_set_has_file(IndexSet *indexes, const Index *index) noexcept nogil:
    cdef int64_t i
    for i in range(indexes.count):
        if indexes.files[i] == index:
            return True
    return False


cdef void index_set_remove(IndexSet *indexes, const char *name) noexcept nogil:
    """Remove the named file from the set, if present."""
    cdef int64_t i
    cdef int64_t kept = 0
    lock_take(&indexes.lock)
    for i in range(indexes.count):
        if strcmp(indexes.files[i].name, name) == 0:
            index_set_let_go(indexes, indexes.files[i])
        else:
            indexes.files[kept] = indexes.files[i]
            kept += 1
    indexes.count = kept
    lock_give(&indexes.lock)
