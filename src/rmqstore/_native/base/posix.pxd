"""POSIX and Linux declarations that Cython does not ship."""
from libc.stdint cimport int64_t, uint64_t


cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_cond_t:
        pass
    ctypedef struct pthread_condattr_t:
        pass
    ctypedef unsigned long pthread_t
    int pthread_mutex_init(pthread_mutex_t *mutex, void *attributes)
    int pthread_mutex_destroy(pthread_mutex_t *mutex)
    int pthread_mutex_lock(pthread_mutex_t *mutex)
    int pthread_mutex_trylock(pthread_mutex_t *mutex)
    int pthread_mutex_unlock(pthread_mutex_t *mutex)
    int pthread_cond_destroy(pthread_cond_t *cond)
    int pthread_cond_signal(pthread_cond_t *cond)
    int pthread_cond_broadcast(pthread_cond_t *cond)
    int pthread_create(pthread_t *thread, void *attributes,
                       void *(*run)(void *) noexcept nogil, void *argument)
    int pthread_join(pthread_t thread, void **result)
    int pthread_detach(pthread_t thread)
    int pthread_atfork(void (*prepare)() noexcept nogil, void (*parent)() noexcept nogil,
                       void (*child)() noexcept nogil)


cdef extern from *:
    """
    #include <errno.h>
    #include <pthread.h>
    #include <sched.h>
    #include <signal.h>
    #include <stdint.h>
    #include <time.h>

    static int64_t clock_ns(clockid_t clock) {
        struct timespec now;
        clock_gettime(clock, &now);
        return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    }
    static int64_t wall_millis(void) { return clock_ns(CLOCK_REALTIME) / 1000000; }
    static int64_t monotonic_ns(void) { return clock_ns(CLOCK_MONOTONIC); }
    /* To a tick, some milliseconds, at a fraction of the cost. */
    static int64_t coarse_ns(void) { return clock_ns(CLOCK_MONOTONIC_COARSE); }
    static int64_t coarse_wall_millis(void) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME_COARSE, &now);
        return (int64_t)now.tv_sec * 1000 + (uint32_t)now.tv_nsec / 1000000;
    }

    static int cond_init_monotonic(pthread_cond_t *cond) {
        pthread_condattr_t attributes;
        int rc = pthread_condattr_init(&attributes);
        if (rc == 0) rc = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
        if (rc == 0) rc = pthread_cond_init(cond, &attributes);
        pthread_condattr_destroy(&attributes);
        return rc;
    }
    /* Wait at most the given time; returns 0 or ETIMEDOUT. */
    static int cond_wait_ns(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t ns) {
        struct timespec until;
        int64_t end = monotonic_ns() + (ns > 0 ? ns : 0);
        until.tv_sec = end / 1000000000;
        until.tv_nsec = end % 1000000000;
        return pthread_cond_timedwait(cond, mutex, &until);
    }
    /* A thread of ours: no signals, a name of at most 15 characters.  SIGBUS stays unblocked:
       a fault on a mapped page would otherwise end the process. */
    static int thread_start(pthread_t *thread, const char *name, void *(*run)(void *),
                            void *argument) {
        sigset_t all, before;
        int rc;
        sigfillset(&all);
        sigdelset(&all, SIGBUS);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        rc = pthread_create(thread, NULL, run, argument);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (rc == 0) pthread_setname_np(*thread, name);
        return rc;
    }
    static void local_time(int64_t millis, struct tm *into) {
        time_t seconds = (time_t)(millis / 1000);
        localtime_r(&seconds, into);
    }
    """
    ctypedef struct tm "struct tm":
        int tm_sec, tm_min, tm_hour, tm_mday, tm_mon, tm_year, tm_isdst
    int64_t wall_millis() noexcept nogil
    int64_t monotonic_ns() noexcept nogil
    int64_t coarse_ns() noexcept nogil
    int64_t coarse_wall_millis() noexcept nogil
    int cond_init_monotonic(pthread_cond_t *cond) noexcept nogil
    int cond_wait_ns(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t ns) noexcept nogil
    int thread_start(pthread_t *thread, const char *name, void *(*run)(void *) noexcept nogil,
                     void *argument) noexcept nogil
    void local_time(int64_t millis, tm *into) noexcept nogil
    int sched_yield() noexcept nogil
    long mktime(tm *time) noexcept nogil


cdef extern from *:
    """
    #include <dirent.h>
    #include <fcntl.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <sys/file.h>
    #include <sys/mman.h>
    #include <sys/resource.h>
    #include <sys/stat.h>
    #include <sys/statvfs.h>
    #include <sys/uio.h>
    #include <unistd.h>
    static int64_t stat_mtime_millis(const struct stat *status) {
        return (int64_t)status->st_mtim.tv_sec * 1000 + status->st_mtim.tv_nsec / 1000000;
    }
    /* Whether a byte of a file is in the page cache; 0 also where the kernel cannot tell. */
    static int byte_is_cached(int fd, int64_t at) {
        char byte;
        struct iovec into = {&byte, 1};
        return preadv2(fd, &into, 1, at, RWF_NOWAIT) == 1;
    }
    #ifndef MADV_POPULATE_WRITE
    #define MADV_POPULATE_WRITE 23
    #endif
    #ifndef FALLOC_FL_KEEP_SIZE
    #define FALLOC_FL_KEEP_SIZE 1
    #endif
    /* Debug and sanitizer builds put an inaccessible page after each mapping: Linux places
       mappings side by side, and an overrun would go unnoticed. */
    #ifdef RMQSTORE_DEBUG
    #define GUARD_BYTES 4096
    #else
    #define GUARD_BYTES 0
    #endif
    static void *map_shared(size_t length, int protection, int fd) {
        size_t whole = (length + 4095) & ~(size_t)4095;
        void *at;
        if (GUARD_BYTES == 0) return mmap(NULL, length, protection, MAP_SHARED, fd, 0);
        at = mmap(NULL, whole + GUARD_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED) return at;
        if (mmap(at, length, protection, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
            int number = errno;
            munmap(at, whole + GUARD_BYTES);
            errno = number;
            return MAP_FAILED;
        }
        return at;
    }
    static void unmap_shared(void *at, size_t length) {
        size_t whole = (length + 4095) & ~(size_t)4095;
        munmap(at, GUARD_BYTES ? whole + GUARD_BYTES : length);
    }
    /* As malloc, for memory that is used from its beginning to its end: a large piece in huge
       pages, of which each costs one page fault where 512 small ones cost one each. */
    #define HUGE_PAGE ((size_t)2 << 20)
    static void *malloc_dense(size_t length) {
        void *at = NULL;
        if (length < 2 * HUGE_PAGE) return malloc(length);
        if (posix_memalign(&at, HUGE_PAGE, length) != 0) return NULL;
        madvise(at, length & ~(HUGE_PAGE - 1), MADV_HUGEPAGE);
        return at;
    }
    """
    void *malloc_dense(size_t length) noexcept nogil
    void *map_shared(size_t length, int protection, int fd) nogil
    void unmap_shared(void *at, size_t length) nogil
    ctypedef struct DIR:
        pass
    cdef struct dirent:
        char *d_name
        unsigned char d_type
    ctypedef struct stat_t "struct stat":
        unsigned int st_mode
        uint64_t st_ino
        uint64_t st_dev
        uint64_t st_nlink
        int64_t st_size
        int64_t st_blocks
        int64_t st_mtime
    ctypedef struct statvfs_t "struct statvfs":
        uint64_t f_frsize
        uint64_t f_blocks
        uint64_t f_bfree
        uint64_t f_bavail
    ctypedef struct rlimit_t "struct rlimit":
        uint64_t rlim_cur
    ctypedef struct flock_t "struct flock":
        short l_type
        short l_whence
        int64_t l_start
        int64_t l_len
        int l_pid
    enum:
        O_RDONLY, O_RDWR, O_WRONLY, O_CREAT, O_EXCL, O_CLOEXEC, O_DIRECTORY
        O_NONBLOCK, O_TMPFILE, O_PATH, O_TRUNC
        PROT_READ, PROT_WRITE, MS_SYNC, MADV_DONTNEED, MADV_POPULATE_WRITE, MADV_RANDOM
        POSIX_FADV_WILLNEED, SYNC_FILE_RANGE_WRITE
        AT_FDCWD, AT_SYMLINK_FOLLOW, AT_SYMLINK_NOFOLLOW, AT_REMOVEDIR
        F_OFD_SETLK, F_SETLK, F_OFD_GETLK, F_WRLCK, F_UNLCK, F_RDLCK
        LOCK_EX, LOCK_NB, LOCK_UN
        DT_DIR, W_OK, SEEK_SET, SEEK_DATA, SEEK_HOLE, RLIMIT_NOFILE
        FALLOC_FL_KEEP_SIZE
    void *MAP_FAILED
    bint S_ISREG(unsigned int mode) nogil
    bint S_ISDIR(unsigned int mode) nogil
    bint S_ISLNK(unsigned int mode) nogil
    dirent *readdir(DIR *directory) nogil
    int dirfd(DIR *directory) nogil
    int closedir(DIR *directory) nogil
    void rewinddir(DIR *directory) nogil
    DIR *fdopendir(int fd) nogil
    int getrlimit(int resource, rlimit_t *limit) nogil
    int openat(int directory, const char *path, int flags, ...) nogil
    int close(int fd) nogil
    int dup(int fd) nogil
    int faccessat(int directory, const char *path, int mode, int flags) nogil
    int fcntl(int fd, int command, ...) nogil
    int fstat(int fd, stat_t *status) nogil
    int fstatat(int directory, const char *path, stat_t *status, int flags) nogil
    int fstatvfs(int fd, statvfs_t *status) nogil
    int64_t stat_mtime_millis(const stat_t *status) nogil
    int ftruncate(int fd, int64_t length) nogil
    int fallocate(int fd, int mode, int64_t offset, int64_t length) nogil
    int flock(int fd, int operation) nogil
    int fsync(int fd) nogil
    int fdatasync(int fd) nogil
    int64_t lseek(int fd, int64_t offset, int whence) nogil
    int64_t readlink(const char *path, char *into, size_t room) nogil
    int64_t pread(int fd, void *into, size_t length, int64_t offset) nogil
    int64_t pwrite(int fd, const void *data, size_t length, int64_t offset) nogil
    int mkdirat(int directory, const char *path, unsigned int mode) nogil
    int unlinkat(int directory, const char *path, int flags) nogil
    int linkat(int from_directory, const char *path, int to_directory, const char *to_path,
               int flags) nogil
    int renameat(int from_directory, const char *path, int to_directory,
                 const char *to_path) nogil
    int mlock(const void *at, size_t length) nogil
    int munlock(const void *at, size_t length) nogil
    int msync(void *at, size_t length, int flags) nogil
    int madvise(void *at, size_t length, int advice) nogil
    int posix_fadvise(int fd, int64_t at, int64_t length, int advice) nogil
    bint byte_is_cached(int fd, int64_t at) noexcept nogil
    int sync_file_range(int fd, int64_t at, int64_t length, unsigned int flags) nogil
    int getpid() nogil
    int snprintf(char *into, size_t room, const char *format, ...) nogil
    int usleep(unsigned int microseconds) nogil


cdef extern from "<sys/eventfd.h>" nogil:
    enum:
        EFD_CLOEXEC, EFD_NONBLOCK
    int eventfd(unsigned int initial, int flags)
    int eventfd_read(int fd, uint64_t *value)
    int eventfd_write(int fd, uint64_t value)


cdef extern from "<arpa/inet.h>" nogil:
    enum:
        AF_INET, AF_INET6
    int inet_pton(int family, const char *text, void *into)
    const char *inet_ntop(int family, const void *address, char *text, unsigned int room)
