# Wakeup of event loops that wait for the disk, and of consumers for messages: eventfd and outcome.

cdef enum:
    LOG_FLUSHED
    LOG_DISPATCHED


@cython.final
cdef class LogWakeup:
    """A descriptor that is readable once the log is flushed, or dispatched, up to the wanted
    position, or never can be; for one event loop or thread only.
    """

    cdef Store *store            # referenced, so that it outlives a close
    cdef Wakeup wakeup
    cdef int progress            # awaited: LOG_FLUSHED or LOG_DISPATCHED
    cdef str path

    def __cinit__(self):
        self.store = NULL
        self.wakeup.fd = -1

    def __init__(self):
        raise TypeError("made by the core")

    def __dealloc__(self):
        log_wakeup_leave(self)

    def fileno(self):
        """Descriptor for a selector."""
        return self.wakeup.fd

    def ours(self):
        """Whether it belongs to this process: a forked child has the parent's, and its selector."""
        return self.store != NULL and self.store.fork_generation == fork_generation

    def drain(self):
        """Make it unreadable until the next write to it."""
        cdef uint64_t written
        if self.ours():
            eventfd_read(self.wakeup.fd, &written)

    def reached(self, int64_t wanted):
        """Set the position waited for, up to which the log is to be flushed or dispatched.

        The current position, or -1 if it is too low and cannot advance: see error().
        """
        cdef Store *store = self.store
        cdef int64_t flushed
        cdef bint ended
        if store == NULL or store.fork_generation != fork_generation:
            return -1
        atomic_set_strict(&self.wakeup.wanted, wanted)
        # In this order: bytes flushed before the store ended count.
        ended = (atomic_get_strict(&store.state) == STATE_CLOSED
                 or atomic_get_strict(&store.failed) != 0)
        flushed = atomic_get_strict(
            &store.log.flushed if self.progress == LOG_FLUSHED else &store.dispatch.dispatched)
        return -1 if ended and flushed < wanted else flushed

    def error(self):
        """Reason why the log will not be flushed so far; a new exception each time."""
        cdef Store *store = self.store
        if store != NULL and store.fork_generation != fork_generation:
            return status_error(E_FORKED, NULL, self.path)
        if store != NULL and atomic_get(&store.failed) != 0:
            return status_error(E_FAILED, &store.failure, self.path)
        return status_error(E_CLOSED, NULL, self.path)

    def timed_out(self, PutResult result):
        """Exception of a put that waited for the disk longer than allowed."""
        if self.store == NULL:
            raise status_error(E_CLOSED, NULL, self.path)
        return late_error(self.store, result, self.path)

    def close(self):
        """Close the descriptor; it must have been removed from the selector."""
        log_wakeup_leave(self)


cdef Wakeups *wakeups_of(Store *store, int progress) noexcept nogil:
    return &store.flush.wakeups if progress == LOG_FLUSHED else &store.dispatch.wakeups


cdef LogWakeup log_wakeup(OpenStore engine, int progress):
    """A wakeup of a store opened for writing."""
    cdef LogWakeup made = LogWakeup.__new__(LogWakeup)
    cdef Store *store
    cdef int64_t rc
    made.path = engine._path
    made.progress = progress
    store_writable(engine.store, engine._path)
    store = engine.store
    with nogil:
        rc = wakeups_add(wakeups_of(store, progress), &made.wakeup)
        if rc == 0:
            atomic_add(&store.references, 1)
        store_leave(store)
    if rc < 0:
        raise errors.PutError(
            f"{engine._path}: nothing would tell when it is there: no eventfd: {strerror(-rc)}"
            if progress == LOG_DISPATCHED else
            f"{engine._path}: nothing is stored, as nothing would tell when it is on the disk: "
            f"no eventfd: {strerror(-rc)}",
            status=types.PutStatus.SERVICE_NOT_AVAILABLE, errno=-rc)
    made.store = store
    return made


cdef int log_wakeup_leave(LogWakeup self) except -1:
    cdef Store *store = self.store
    if store == NULL:
        return 0
    self.store = NULL
    # In a forked child the list and its lock are a copy that nothing uses.
    if store.fork_generation == fork_generation:
        with nogil:
            wakeups_remove(wakeups_of(store, self.progress), &self.wakeup)
            store_drop(store)
    close(self.wakeup.fd)
    self.wakeup.fd = -1
    return 0
