# Eventfds: flush writes them for event loops that wait for a durable log, dispatch for consumers
# that wait for messages.
#
# A loop stores ``wanted``, the position its tasks wait for, then reads the flushed position; flush
# stores that position, then reads ``wanted``: at least one of the two sees the other's store.
#
# Source: store/CommitLog.java GroupCommitService for the condition waited for

cdef struct Wakeup:
    int fd                       # nonblocking, for reads and writes
    atomic_i64 wanted            # log offset up to which its loop waits
    Wakeup *next


cdef struct Wakeups:
    Lock lock                    # held at most for a nonblocking write
    Wakeup *first
    atomic_i64 count


cdef void wakeups_init(Wakeups *wakeups) noexcept nogil:
    memset(wakeups, 0, sizeof(Wakeups))
    lock_init(&wakeups.lock, LOCK_WAKEUPS)


cdef void wakeups_destroy(Wakeups *wakeups) noexcept nogil:
    lock_destroy(&wakeups.lock)


cdef int64_t wakeups_add(Wakeups *wakeups, Wakeup *wakeup) noexcept nogil:
    """Create and enter the descriptor, without a wait yet: 0 or -errno."""
    cdef int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)
    if fd < 0:
        return -errno
    wakeup.fd = fd
    atomic_set(&wakeup.wanted, INT64_MAX)
    lock_take(&wakeups.lock)
    wakeup.next = wakeups.first
    wakeups.first = wakeup
    atomic_add(&wakeups.count, 1)
    lock_give(&wakeups.lock)
    return 0


cdef void wakeups_remove(Wakeups *wakeups, Wakeup *wakeup) noexcept nogil:
    """Remove a wakeup: its descriptor is not written afterwards."""
    cdef Wakeup **at
    lock_take(&wakeups.lock)
    at = &wakeups.first
    while at[0] != NULL:
        if at[0] == wakeup:
            at[0] = wakeup.next
            atomic_add(&wakeups.count, -1)
            break
        at = &at[0].next
    lock_give(&wakeups.lock)


cdef void wakeups_ring(Wakeups *wakeups, int64_t position) noexcept nogil:
    """Wake the loops that wait for a position up to ``position``; INT64_MAX: all of them.

    REQUIRES: the position was stored with atomic_set_strict.
    """
    cdef Wakeup *wakeup
    if atomic_get_strict(&wakeups.count) == 0:
        return
    lock_take(&wakeups.lock)
    wakeup = wakeups.first
    while wakeup != NULL:
        if atomic_get_strict(&wakeup.wanted) <= position:
            eventfd_write(wakeup.fd, 1)      # fails only if it is readable anyway
        wakeup = wakeup.next
    lock_give(&wakeups.lock)
