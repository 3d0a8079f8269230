# Ownership: two locks, a table of this process, and whether the locked names still exist.
#
# First the first byte of `lock`, as a broker does; but that file can be removed, recreated and
# locked again.  So second the directory itself.  On file systems without locks on directories the
# table keeps two stores of one process apart, and an owner that lost `lock` or its directory
# accepts no more writes.
#
# Source: store/DefaultMessageStore.java start

cdef enum:
    TAKE_TRIES = 100
    TAKE_RETRY_US = 5000
    LEAVING_NS = 2000000000      # wait for the threads of a store abandoned in this process
    NAMES_LOOK_NS = 500000000    # how often an owner checks its names


cdef int64_t store_lock(Store *store, int64_t timeout_ns, Failure *failure) noexcept nogil:
    """Become the owner; E_LOCKED: ``failure.actual`` is the holder."""
    cdef int64_t until = monotonic_ns() + timeout_ns
    cdef int64_t rc
    while True:
        memset(failure, 0, sizeof(Failure))
        rc = take_locks(store, failure)
        if rc == 0:
            return 0
        release_locks(store)
        if rc != E_LOCKED or monotonic_ns() >= until and not (
                atomic_get(&stores_leaving) > 0 and monotonic_ns() < until + LEAVING_NS):
            return rc
        usleep(TAKE_RETRY_US)


cdef int64_t take_locks(Store *store, Failure *failure) noexcept nogil:
    """Try once: the table, the directories, and last `lock`, not created beside an owner."""
    cdef int64_t rc = E_LOCKED
    if claim_root(store):
        rc = lock_root(store)
        if rc == 0:
            rc = lock_log(store, failure)
        if rc == 0:
            rc = lock_file(store)
    if failure.status != 0:
        return rc
    if rc == E_LOCKED:
        return fail(failure, rc, "lock", "the store is open elsewhere", -1,
                    sys_lock_owner(store.lock) if store.lock >= 0 else 0, 0)
    if rc < 0:
        return fail(failure, rc, "lock",
                    "cannot be opened" if store.lock < 0 else "cannot be locked", -1, 0, 0)
    if root_is_lost(store):
        lock_unmake(store)
        return fail(failure, E_NOT_FOUND, "",
                    "the directory was replaced while its lock was waited for", -1, 0, 0)
    return 0


cdef bint claim_root(Store *store) noexcept nogil:
    """Enter the directory in the process's table; False if another store has it."""
    cdef Store *other
    cdef stat_t status
    if fstat(store.root, &status) != 0:
        return True
    lock_take(&open_stores_lock)
    other = open_stores
    while other != NULL and not (
            other != store and other.claimed and other.fork_generation == fork_generation
            and other.root_inode == status.st_ino and other.root_device == status.st_dev):
        other = other.next_open
    if other == NULL:
        store.root_inode = status.st_ino
        store.root_device = status.st_dev
        store.claimed = True
    lock_give(&open_stores_lock)
    return other == NULL


cdef int64_t lock_root(Store *store) noexcept nogil:
    """Lock the directory, if the file system can: 0, E_LOCKED or -errno.

    No fork may happen between open and note: a child closes only descriptors it knows of.
    """
    cdef int64_t fd = 0
    lock_take(&open_stores_lock)
    if store.root_lock < 0:
        fd = sys_open_directory(store.root, ".")
        if fd >= 0:
            store.root_lock = <int>fd
    lock_give(&open_stores_lock)
    if fd < 0:
        return fd
    fd = sys_lock_directory(store.root_lock)
    return E_LOCKED if fd == -EAGAIN else fd


cdef int64_t lock_log(Store *store, Failure *failure) noexcept nogil:
    """Lock the log's directories: through links, several stores may name the same one.

    Without places, a missing `commitlog` is locked once it is created.
    """
    cdef Places *places = store.log.places
    cdef int64_t i, parent, rc
    for i in range(places.count if places != NULL else 1):
        if places == NULL:
            rc = lock_own_log(store)
        elif places.items[i].read_only:
            continue
        else:
            rc = sys_lock_directory(places.items[i].fd)
            parent = openat(places.items[i].fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
            if rc == 0 and parent >= 0 and not is_root(store, <int>parent) \
                    and sys_lock_owner(<int>parent) > 0:
                rc = -EAGAIN                 # the log of the store in there
            if parent >= 0:
                close(<int>parent)
        if rc == -EAGAIN:
            return fail(failure, E_LOCKED, set_directory(&store.log, i),
                        "this directory of the log has another store that is open", -1, 0, 0)
        if rc < 0:
            return rc
    return 0


cdef int64_t lock_own_log(Store *store) noexcept nogil:
    """Lock `commitlog` if it exists: 0 or -errno; forks as in lock_root."""
    cdef int64_t fd
    lock_take(&open_stores_lock)
    if store.log_lock < 0:
        fd = sys_open_directory(store.root, "commitlog")
        if fd >= 0:                          # else opening reports the reason
            store.log_lock = <int>fd
    lock_give(&open_stores_lock)
    return sys_lock_directory(store.log_lock) if store.log_lock >= 0 else 0


cdef bint is_root(const Store *store, int fd) noexcept nogil:
    cdef stat_t status
    return fstat(fd, &status) == 0 and status.st_ino == store.root_inode \
        and status.st_dev == store.root_device


cdef int64_t lock_file(Store *store) noexcept nogil:
    """Lock the first byte of `lock`, created if missing: 0, E_LOCKED or -errno."""
    cdef int64_t rc
    for _ in range(TAKE_TRIES):
        rc = open_lock(store)
        if rc < 0:
            return rc
        rc = sys_lock_first_byte(store.lock)
        if rc == -EAGAIN or rc == -EACCES:
            return E_LOCKED
        if rc < 0 or not lock_is_lost(store):
            return rc
    return -ESTALE                           # removed each time between opening and locking


cdef int64_t open_lock(Store *store) noexcept nogil:
    """Reopen `lock` without locking it; forks as in lock_root."""
    cdef stat_t status
    cdef int64_t fd
    lock_take(&open_stores_lock)
    if store.lock >= 0:
        close(store.lock)
        store.lock = -1
    fd = sys_open_file(store.root, "lock", O_RDWR, &status)
    store.recovery.made_lock = fd == -ENOENT
    if fd == -ENOENT:
        fd = sys_open_file(store.root, "lock", O_RDWR | O_CREAT, &status)
    if fd >= 0:
        store.lock = <int>fd
    lock_give(&open_stores_lock)
    return min(fd, 0)


cdef int64_t lock_write_text(Store *store, Failure *failure) noexcept nogil:
    """Write RocketMQ's text into `lock`."""
    cdef stat_t status
    cdef int64_t rc = 0
    if fstat(store.lock, &status) != 0:
        return fail(failure, -errno, "lock", "cannot be read", -1, 0, 0)
    if status.st_size < 4:
        rc = sys_write(store.lock, b"lock", 4, 0)
        if rc >= 0:
            rc = sys_sync(store.lock)
    if rc < 0:
        return fail(failure, rc, "lock", "cannot be written", -1, 0, 0)
    return 0


cdef void lock_unmake(Store *store) noexcept nogil:
    """Remove the locked `lock` of a refused opening that created it."""
    if store.recovery.made_lock and store.lock >= 0 and not lock_is_lost(store):
        sys_unlink(store.root, "lock")


cdef void release_locks(Store *store) noexcept nogil:
    """Release the locks explicitly: a child just forked may have the descriptors too."""
    cdef int64_t i
    if store.claimed and store.log.places != NULL:
        for i in range(store.log.places.count):
            sys_unlock_directory(store.log.places.items[i].fd)
    lock_take(&open_stores_lock)
    if store.lock >= 0:
        sys_unlock_first_byte(store.lock)
        close(store.lock)
        store.lock = -1
    if store.root_lock >= 0:
        sys_unlock_directory(store.root_lock)
        close(store.root_lock)
        store.root_lock = -1
    if store.log_lock >= 0:
        sys_unlock_directory(store.log_lock)
        close(store.log_lock)
        store.log_lock = -1
    store.claimed = False
    lock_give(&open_stores_lock)


cdef bint lock_is_lost(Store *store) noexcept nogil:
    """Whether `lock` no longer names the locked file."""
    cdef stat_t own, named
    if fstat(store.lock, &own) != 0:
        return False
    if fstatat(store.root, "lock", &named, 0) != 0:
        return errno == ENOENT
    return own.st_ino != named.st_ino or own.st_dev != named.st_dev


cdef bint root_is_lost(Store *store) noexcept nogil:
    """Whether the store's path no longer leads to its directory."""
    cdef stat_t named
    cdef int number
    if store.root_path == NULL or not store.claimed:
        return False
    if fstatat(AT_FDCWD, store.root_path, &named, 0) != 0:
        number = errno                       # an inaccessible path shows nothing
        return number == ENOENT or number == ENOTDIR
    return store.root_inode != named.st_ino or store.root_device != named.st_dev


cdef bint log_file_is_lost(Store *store, MappedFile *file) noexcept nogil:
    """Whether a log file's name no longer leads to it."""
    cdef char path[FAILURE_PATH_BYTES]
    cdef stat_t own, named
    cdef int number
    if file.fd < 0 or fstat(file.fd, &own) != 0:
        return False
    set_file_name(path, &store.log, set_place_of(&store.log, file.start), file.start)
    if fstatat(store.root, path, &named, 0) != 0:
        number = errno
        return number == ENOENT or number == ENOTDIR
    return own.st_ino != named.st_ino or own.st_dev != named.st_dev


cdef void check_names(Store *store) noexcept nogil:
    """Fail the store if its files, lock or directory lost their names.

    A broker started by mistake deletes files before it takes the lock.  Writes to an unnamed file
    end with the process, writes in a replaced directory are invisible to the next opener, and
    without the name of `lock` another process can take the store.
    """
    cdef MappedFile *file
    cdef Index *index
    if store.lock >= 0 and lock_is_lost(store):
        store_set_failed(store, E_REMOVED, "lock",
                         "removed or replaced while the store was open, so that a second process "
                         "could write to it")
    if root_is_lost(store):
        store_set_failed(store, E_REMOVED, "",
                         "the directory was moved, removed or replaced while the store was open")
    lock_take(&store.writer.put_lock)
    file = store.writer.current
    if file != NULL:
        mapped_file_hold(file)
    lock_give(&store.writer.put_lock)
    if file != NULL and log_file_is_lost(store, file):
        store_set_failed(store, E_REMOVED,
                         set_directory(&store.log, set_place_of(&store.log, file.start)),
                         "the log's file was moved, removed or replaced by somebody else while "
                         "the store was open")
    mapped_file_release(file)
    index = index_set_hold(&store.indexes, 0)
    if index != NULL and index_unlinked(index) != 0:
        store_set_failed(store, E_REMOVED, "index",
                         "the index file was removed by somebody else while the store was open")
    index_close(index)
