# Eventfds that are written to when the log is on the disk: how event loops wait for it.
#
# A loop has one of them in its selector as long as anything in it waits, and says up to where.
# It says so first and looks at the position afterwards; the flush moves the position first and
# looks at what is wanted afterwards: one of the two sees the other.
#
# Source: ours; store/CommitLog.java GroupCommitService for what is waited for

cdef struct Wakeup:
    int fd                       # does not block, neither who writes nor who reads
    atomic_i64 wanted            # log offset up to which its loop waits
    Wakeup *next


cdef struct Wakeups:
    pthread_mutex_t mutex        # held for a write that does not block a loop at most
    Wakeup *first
    atomic_i64 count


cdef void wakeups_init(Wakeups *wakeups) noexcept nogil:
    memset(wakeups, 0, sizeof(Wakeups))
    pthread_mutex_init(&wakeups.mutex, NULL)


cdef void wakeups_destroy(Wakeups *wakeups) noexcept nogil:
    pthread_mutex_destroy(&wakeups.mutex)


cdef int64_t wakeups_add(Wakeups *wakeups, Wakeup *wakeup) noexcept nogil:
    """Make the descriptor and enter it, wanting nothing yet: 0 or -errno."""
    cdef int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)
    if fd < 0:
        return -errno
    wakeup.fd = fd
    atomic_set(&wakeup.wanted, INT64_MAX)
    pthread_mutex_lock(&wakeups.mutex)
    wakeup.next = wakeups.first
    wakeups.first = wakeup
    atomic_add(&wakeups.count, 1)
    pthread_mutex_unlock(&wakeups.mutex)
    return 0


cdef void wakeups_remove(Wakeups *wakeups, Wakeup *wakeup) noexcept nogil:
    """Take it out: nobody writes to its descriptor from then on."""
    cdef Wakeup **at
    pthread_mutex_lock(&wakeups.mutex)
    at = &wakeups.first
    while at[0] != NULL:
        if at[0] == wakeup:
            at[0] = wakeup.next
            atomic_add(&wakeups.count, -1)
            break
        at = &at[0].next
    pthread_mutex_unlock(&wakeups.mutex)


cdef void wakeups_ring(Wakeups *wakeups, int64_t position) noexcept nogil:
    """Wake the loops that wait for something below ``position``.

    After the position was set with atomic_set_strict. INT64_MAX wakes all of them: what they
    wait for has to be seen to have ended.
    """
    cdef Wakeup *wakeup
    if atomic_get_strict(&wakeups.count) == 0:
        return
    pthread_mutex_lock(&wakeups.mutex)
    wakeup = wakeups.first
    while wakeup != NULL:
        if atomic_get_strict(&wakeup.wanted) <= position:
            eventfd_write(wakeup.fd, 1)      # can only fail where it is readable anyway
        wakeup = wakeup.next
    pthread_mutex_unlock(&wakeups.mutex)
