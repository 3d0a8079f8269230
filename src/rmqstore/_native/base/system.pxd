"""Every system call that touches the store, in one place, where failures can be injected.

Each returns 0 or more, or ``-errno``.  Paths are relative to an open directory, and no
component of them may be a symbolic link.
"""
from libc.errno cimport (
    EBADF, EINTR, EINVAL, EIO, EMFILE, ENAMETOOLONG, ENFILE, ENOLCK, ENOMEM, ENOSYS, EOPNOTSUPP,
    errno,
)
from libc.stdint cimport int64_t
from libc.string cimport memcpy, memset, strchr, strlen

from rmqstore._native.base.posix cimport *
from rmqstore._native.base.faults cimport FAULT, PLANTED


cdef enum:
    NAME_ROOM = 256

# How files are opened and mapped.
cdef enum:
    READ_ONLY
    READ_WRITE


cdef inline int64_t sys_open(int directory, const char *path, int flags) noexcept nogil:
    """Open ``path`` below ``directory``; no component may be a symbolic link."""
    cdef char part[NAME_ROOM]
    cdef const char *end
    cdef int at = directory
    cdef int next_at, number
    cdef int64_t length
    number = FAULT("open")
    if number:
        return -number
    while True:
        end = strchr(path, 47)
        if end == NULL:
            break
        length = end - path
        if length >= NAME_ROOM:
            if at != directory:
                close(at)
            return -ENAMETOOLONG
        memcpy(part, path, <size_t>length)
        part[length] = 0
        next_at = openat(at, part, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
        number = errno
        if at != directory:
            close(at)
        if next_at < 0:
            return -number
        at = next_at
        path = end + 1
    while True:
        next_at = openat(at, path, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0o644)
        number = errno
        if next_at >= 0 or number != EINTR:
            break
    if at != directory:
        close(at)
    return next_at if next_at >= 0 else -number


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
    """1: made, 0: it exists already."""
    cdef int number = FAULT("mkdir")
    if number:
        return -number
    if mkdirat(directory, path, 0o755) == 0:
        return 1
    number = errno
    return 0 if number == 17 else -number    # EEXIST


cdef inline int64_t sys_truncate(int fd, int64_t length) noexcept nogil:
    cdef int number = FAULT("ftruncate")
    if number:
        return -number
    return 0 if ftruncate(fd, length) == 0 else -errno


cdef inline int64_t sys_reserve(int fd, int64_t offset, int64_t length) noexcept nogil:
    """Allocate the blocks of a file's range, without glibc's emulation by writing."""
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
    """Status of a failed sync: never one that means no memory or descriptors, as callers retry
    those.  A failed sync may have lost the bytes whatever its reason (msync returns ENOMEM for
    a range that is not mapped, a file system may return anything).
    """
    if (number == ENOMEM or number == EMFILE or number == ENFILE) and not PLANTED("a10-enomem"):
        return -EIO
    return -number


cdef inline int64_t sys_sync_range(char *base, int64_t start, int64_t stop) noexcept nogil:
    """msync the pages of [start, stop); the caller treats a failure as final."""
    cdef int number = FAULT("sync")
    start &= ~<int64_t>4095
    if number == 0 and msync(base + start, <size_t>(stop - start), MS_SYNC) != 0:
        number = errno
    if number and PLANTED("retry-failed-sync"):
        number = errno if msync(base + start, <size_t>(stop - start), MS_SYNC) != 0 else 0
    return sync_status(number)


cdef inline int64_t sys_sync(int fd) noexcept nogil:
    """fsync a file or directory; the caller treats a failure as final."""
    cdef int number = FAULT("sync")
    if number == 0 and fsync(fd) != 0:
        number = errno
    if number and PLANTED("retry-failed-sync"):
        number = errno if fsync(fd) != 0 else 0
    return sync_status(number)


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


cdef inline int64_t sys_unlink(int directory, const char *path) noexcept nogil:
    cdef int number = FAULT("unlink")
    if number:
        return -number
    return 0 if unlinkat(directory, path, 0) == 0 else -errno


cdef inline int64_t sys_disk_use(int directory, int64_t *room) noexcept nogil:
    """Percent of a directory's file system that is used, rounded up, and the bytes left.

    What only root may use counts neither as used nor as left.
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
    """Give a file made with O_TMPFILE its name."""
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

    An open-file-description lock: unlike a POSIX one it holds against a second opener in
    this process and is not lost when some other descriptor of the file is closed.
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
    """Release the lock explicitly: a child forked just now may hold the descriptor too."""
    cdef flock_t lock = _first_byte(F_UNLCK)
    fcntl(fd, F_OFD_SETLK, &lock)


cdef inline int64_t sys_lock_directory(int fd) noexcept nogil:
    """Lock a directory: 0, also where the file system has no such locks, -EAGAIN if it is locked.

    Beside the lock, which nobody can query, there is a read lock for sys_lock_owner to see.
    """
    cdef flock_t lock = _first_byte(F_RDLCK)
    cdef int number = FAULT("lock")
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
    """Who holds a file or directory: 0 nobody, 1 an unknown holder, else a process id."""
    cdef flock_t lock = _first_byte(F_WRLCK)
    if fcntl(fd, F_OFD_GETLK, &lock) != 0:
        return -errno
    if lock.l_type == F_UNLCK:
        return 0
    return lock.l_pid if lock.l_pid > 0 else 1
