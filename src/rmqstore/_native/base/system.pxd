"""System calls that touch the store, all of them: the only place where failures are injected.

Each returns 0 or more, or ``-errno``.  Paths are relative to an open directory.  Symbolic links
are followed, as by a broker, for operators who move files to another disk; the opened file is
checked afterwards.
"""
from libc.errno cimport (
    EBADF, EEXIST, EINTR, EINVAL, EIO, ELOOP, EMFILE, ENFILE, ENOENT, ENOLCK, ENOMEM, ENOSYS,
    ENOTDIR, ENOTEMPTY, EOPNOTSUPP, errno,
)
from libc.stdint cimport int64_t
from libc.string cimport memcpy, memset, strcmp, strlen, strrchr

from rmqstore._native.base.posix cimport *
from rmqstore._native.base.faults cimport FAULT


cdef enum:
    NAME_ROOM = 256
    TARGET_ROOM = 4096           # for the path of a link's target

# Flags for opening and mapping files.
cdef enum:
    READ_ONLY
    READ_WRITE


cdef inline int64_t sys_open(int directory, const char *path, int flags) noexcept nogil:
    """Open ``path`` below ``directory``, without waiting for the other end of a FIFO.

    O_CREAT does not create the target of a dangling link: its disk may not be mounted.
    """
    cdef int without = flags if flags & O_EXCL else flags & ~O_CREAT
    cdef int fd
    cdef int number = FAULT("open")
    if number:
        return -number
    while True:
        fd = openat(directory, path, without | O_NONBLOCK | O_CLOEXEC, 0o644)
        number = errno
        if fd < 0 and number == ENOENT and without != flags:
            fd = openat(directory, path, flags | O_EXCL | O_NONBLOCK | O_CLOEXEC, 0o644)
            if fd < 0 and errno == EEXIST:   # a link, or created meanwhile
                fd = openat(directory, path, without | O_NONBLOCK | O_CLOEXEC, 0o644)
            number = errno
        if fd >= 0:
            return fd
        if number != EINTR:
            return -number


cdef inline int64_t sys_open_file(
    int directory, const char *path, int flags, stat_t *status,
) noexcept nogil:
    """Open a regular file; anything else (a FIFO, a device) fails with -EINVAL."""
    cdef int64_t fd = sys_open(directory, path, flags)
    cdef int number
    if fd < 0:
        return fd
    number = FAULT("fstat")
    if number == 0 and fstat(<int>fd, status) != 0:
        number = errno
    if number == 0 and not S_ISREG(status.st_mode):
        number = EINVAL
    if number:
        close(<int>fd)
        return -number
    return fd


cdef inline int64_t sys_open_directory(int directory, const char *path) noexcept nogil:
    return sys_open(directory, path, O_RDONLY | O_DIRECTORY)


cdef inline int64_t sys_make_directory(int directory, const char *path) noexcept nogil:
    """1: created, 0: it exists already."""
    cdef int number = FAULT("mkdir")
    if number:
        return -number
    if mkdirat(directory, path, 0o755) == 0:
        return 1
    number = errno
    return 0 if number == EEXIST else -number


cdef inline int64_t sys_truncate(int fd, int64_t length) noexcept nogil:
    cdef int number = FAULT("ftruncate")
    if number:
        return -number
    return 0 if ftruncate(fd, length) == 0 else -errno


cdef inline int64_t sys_reserve(int fd, int64_t offset, int64_t length) noexcept nogil:
    """Allocate the blocks of a file's range, without glibc's emulation by writes."""
    cdef int number = FAULT("fallocate")
    if number:
        return -number
    while True:
        if fallocate(fd, FALLOC_FL_KEEP_SIZE, offset, length) == 0:
            return 0
        number = errno
        if number != EINTR:
            return -number


cdef inline int64_t sys_map(int fd, int64_t length, int access, char **base) noexcept nogil:
    cdef int number = FAULT("mmap")
    cdef void *at
    if number:
        return -number
    at = map_shared(
        <size_t>length, PROT_READ | PROT_WRITE if access == READ_WRITE else PROT_READ, fd)
    if at == MAP_FAILED:
        return -errno
    base[0] = <char *>at
    return 0


cdef inline int64_t sync_status(int number) noexcept nogil:
    """Status of a failed sync; -EIO for a lack of memory or descriptors, which callers would retry.

    Any failed sync may have lost bytes: msync returns ENOMEM for a range that is not mapped.
    """
    if number == ENOMEM or number == EMFILE or number == ENFILE:
        return -EIO
    return -number


cdef inline int64_t sys_sync_range(char *base, int64_t start, int64_t stop) noexcept nogil:
    """msync the pages of [start, stop); the caller treats a failure as final."""
    cdef int number = FAULT("sync")
    start &= ~<int64_t>4095
    if number == 0 and msync(base + start, <size_t>(stop - start), MS_SYNC) != 0:
        number = errno
    return sync_status(number)


cdef inline int64_t sys_sync(int fd) noexcept nogil:
    """fsync a file or directory; the caller treats a failure as final."""
    cdef int number = FAULT("sync")
    if number == 0 and fsync(fd) != 0:
        number = errno
    return sync_status(number)


cdef inline void sys_start_sync(int fd, int64_t offset, int64_t length) noexcept nogil:
    """Start to write dirty pages to the disk; the next sync waits for them and reports failures."""
    sync_file_range(fd, offset, length, SYNC_FILE_RANGE_WRITE)


cdef inline int64_t sys_read(int fd, char *into, int64_t length, int64_t offset) noexcept nogil:
    """Read up to ``length`` bytes; fewer only at the end of the file."""
    cdef int64_t got
    cdef int64_t done = 0
    cdef int number = FAULT("pread")
    if number:
        return -number
    while done < length:
        got = pread(fd, into + done, <size_t>(length - done), offset + done)
        if got < 0:
            number = errno
            if number == EINTR:
                continue
            return -number
        if got == 0:
            break
        done += got
    return done


cdef inline int64_t sys_write(
    int fd, const char *data, int64_t length, int64_t offset,
) noexcept nogil:
    cdef int64_t got
    cdef int64_t done = 0
    cdef int number = FAULT("pwrite")
    if number:
        return -number
    while done < length:
        got = pwrite(fd, data + done, <size_t>(length - done), offset + done)
        if got < 0:
            number = errno
            if number == EINTR:
                continue
            return -number
        done += got
    return done


cdef inline bint sys_is_link(int directory, const char *path) noexcept nogil:
    cdef stat_t status
    return fstatat(directory, path, &status, AT_SYMLINK_NOFOLLOW) == 0 and S_ISLNK(status.st_mode)


cdef inline bint sys_is_broken_link(int directory, const char *path) noexcept nogil:
    """Whether the path is a dangling or circular link."""
    cdef stat_t status
    return sys_is_link(directory, path) and fstatat(directory, path, &status, 0) != 0 \
        and (errno == ENOENT or errno == ENOTDIR or errno == ELOOP)


cdef inline bint sys_link_target(
    int directory, const char *path, char *target, stat_t *status,
) noexcept nogil:
    """Whether ``path`` links to a regular file of the same name; copy its path to ``target``.

    REQUIRES: ``target`` has TARGET_ROOM bytes.
    """
    cdef char link[64]
    cdef const char *name = strrchr(path, 47)
    cdef const char *found
    cdef int64_t length = -1
    cdef int fd
    if not sys_is_link(directory, path):
        return False
    fd = openat(directory, path, O_PATH | O_CLOEXEC)
    if fd < 0:
        return False
    if fstat(fd, status) == 0 and S_ISREG(status.st_mode):
        snprintf(link, 64, "/proc/self/fd/%d", fd)
        length = readlink(link, target, TARGET_ROOM - 1)
    close(fd)
    if length <= 0 or length >= TARGET_ROOM - 1:
        return False
    target[length] = 0
    found = strrchr(target, 47)
    return found != NULL and strcmp(found + 1, path if name == NULL else name + 1) == 0


cdef inline void sys_remove_target(
    int directory, const char *path, const char *target, const stat_t *status,
) noexcept nogil:
    """Remove the target of the removed link ``path``, once the link's removal is durable."""
    cdef char parent[TARGET_ROOM]
    cdef stat_t now
    cdef const char *end = strrchr(path, 47)
    cdef int fd
    snprintf(parent, TARGET_ROOM, ".")
    if end != NULL:
        snprintf(parent, TARGET_ROOM, "%.*s", <int>(end - path), path)
    fd = openat(directory, parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    if fd < 0:
        return
    if fsync(fd) == 0 and fstatat(AT_FDCWD, target, &now, AT_SYMLINK_NOFOLLOW) == 0 \
            and now.st_dev == status.st_dev and now.st_ino == status.st_ino:
        unlinkat(AT_FDCWD, target, 0)        # as with a broker, a file that cannot be removed stays
    close(fd)


cdef inline int64_t sys_unlink(int directory, const char *path) noexcept nogil:
    """Remove a file; of a link to a file of the same name both, as the link alone frees no space.

    The link goes first: a dangling link would keep the store from being opened.
    """
    cdef char target[TARGET_ROOM]
    cdef stat_t status
    cdef bint linked
    cdef int number = FAULT("unlink")
    if number:
        return -number
    linked = sys_link_target(directory, path, target, &status)
    if unlinkat(directory, path, 0) != 0:
        return -errno
    if linked:
        sys_remove_target(directory, path, target, &status)
    return 0


cdef inline int64_t sys_remove_directory(int directory, const char *path) noexcept nogil:
    """Remove an empty directory, or the link to one, whose target stays."""
    cdef DIR *entries
    cdef dirent *entry
    cdef int fd
    cdef int64_t rc = 0
    cdef int number = FAULT("rmdir")
    if number:
        return -number
    if unlinkat(directory, path, AT_REMOVEDIR) == 0:
        return 0
    if errno != ENOTDIR or not sys_is_link(directory, path):
        return -errno
    fd = openat(directory, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    if fd < 0:
        return -errno
    entries = fdopendir(fd)
    if entries == NULL:
        close(fd)
        return -ENOMEM
    while rc == 0:
        entry = readdir(entries)
        if entry == NULL:
            break
        if strcmp(entry.d_name, ".") != 0 and strcmp(entry.d_name, "..") != 0:
            rc = -ENOTEMPTY
    closedir(entries)
    if rc == 0 and unlinkat(directory, path, 0) != 0:
        rc = -errno
    return rc


cdef inline int64_t remove_if_empty(int directory, const char *path) noexcept nogil:
    """As sys_remove_directory; 0 as well if it is missing or not empty."""
    cdef int64_t rc = sys_remove_directory(directory, path)
    return 0 if rc == -ENOENT or rc == -ENOTEMPTY else rc


cdef inline int64_t sys_disk_use(int directory, int64_t *room) noexcept nogil:
    """Used percent of a directory's file system, rounded up, and the bytes left.

    Blocks reserved for root count as neither.
    """
    cdef statvfs_t status
    cdef uint64_t used, whole
    if fstatvfs(directory, &status) != 0:
        return -errno
    used = status.f_blocks - status.f_bfree
    whole = used + status.f_bavail
    room[0] = <int64_t>(status.f_bavail * status.f_frsize)
    return <int64_t>((used * 100 + whole - 1) // whole) if whole else 0


cdef inline int64_t sys_rename(int directory, const char *path, const char *to) noexcept nogil:
    cdef int number = FAULT("rename")
    if number:
        return -number
    return 0 if renameat(directory, path, directory, to) == 0 else -errno


cdef inline int64_t sys_link_unnamed(int fd, int directory, const char *path) noexcept nogil:
    """Link a file opened with O_TMPFILE to a name."""
    cdef char link[64]
    cdef int number = FAULT("linkat")
    if number:
        return -number
    snprintf(link, 64, "/proc/self/fd/%d", fd)
    return 0 if linkat(AT_FDCWD, link, directory, path, AT_SYMLINK_FOLLOW) == 0 else -errno


cdef inline flock_t _first_byte(short kind) noexcept nogil:
    cdef flock_t lock
    memset(&lock, 0, sizeof(lock))
    lock.l_type = kind
    lock.l_whence = SEEK_SET
    lock.l_start = 0
    lock.l_len = 1
    return lock


cdef inline int64_t sys_lock_first_byte(int fd) noexcept nogil:
    """Take the record lock that Java's FileChannel.tryLock(0, 1, false) contends for.

    An open-file-description lock: unlike a POSIX lock it excludes a second opener in this process
    and survives the closing of another descriptor of the file.
    """
    cdef flock_t lock = _first_byte(F_WRLCK)
    cdef int number = FAULT("lock")
    if number:
        return -number
    if fcntl(fd, F_OFD_SETLK, &lock) == 0:
        return 0
    number = errno
    if number == EINVAL:                     # not supported by the kernel or file system
        if fcntl(fd, F_SETLK, &lock) == 0:
            return 0
        number = errno
    return -number


cdef inline void sys_unlock_first_byte(int fd) noexcept nogil:
    """Release the lock explicitly: a child just forked may hold the descriptor too."""
    cdef flock_t lock = _first_byte(F_UNLCK)
    fcntl(fd, F_OFD_SETLK, &lock)


cdef inline int64_t sys_lock_directory(int fd) noexcept nogil:
    """Lock a directory: 0, also on file systems without such locks; -EAGAIN: locked already.

    The lock cannot be queried, so a read lock is set as well, for sys_lock_owner.
    """
    cdef flock_t lock = _first_byte(F_RDLCK)
    cdef int number = FAULT("lock-directory")
    if number == 0 and flock(fd, LOCK_EX | LOCK_NB) != 0:
        number = errno
    if number == EBADF or number == ENOLCK or number == EOPNOTSUPP or number == ENOSYS \
            or number == EINVAL:
        number = 0                           # NFS: a file that is open for writing, or none
    if number == 0:
        fcntl(fd, F_OFD_SETLK, &lock)
    return -number


cdef inline void sys_unlock_directory(int fd) noexcept nogil:
    cdef flock_t lock = _first_byte(F_UNLCK)
    fcntl(fd, F_OFD_SETLK, &lock)
    flock(fd, LOCK_UN)


cdef inline int64_t sys_lock_owner(int fd) noexcept nogil:
    """Owner of the lock on a file or directory: 0 none, 1 unknown, else a process id."""
    cdef flock_t lock = _first_byte(F_WRLCK)
    if fcntl(fd, F_OFD_GETLK, &lock) != 0:
        return -errno
    if lock.l_type == F_UNLCK:
        return 0
    return lock.l_pid if lock.l_pid > 0 else 1
