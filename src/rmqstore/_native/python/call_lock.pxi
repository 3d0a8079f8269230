# Lock for the store's Python code, which signal handlers or finalizers may interrupt.

@cython.final
cdef class CallLock:
    """Lock for ``with``; its holder counts as in a call, and may not close a store.

    No interrupt is possible between taking the lock and the count of the call.  A thread that would
    wait for itself gets a ``RuntimeError``; with ``again``, it takes the lock once more.
    """

    cdef Turn turn
    cdef bint again
    cdef int64_t depth           # further acquisitions by its holder

    def __cinit__(self, *, bint again=False):
        atomic_set(&self.turn.holder, 0)
        self.again = again
        self.depth = 0

    def acquire(self, bint blocking=True):
        """Take the lock and return whether it was taken, always so with ``blocking``."""
        cdef int64_t rc = turn_try(&self.turn)
        if rc == -EDEADLOCK and self.again:
            self.depth += 1
            return True
        while blocking and (rc == E_BUSY or rc == E_TIMEOUT):
            with nogil:
                rc = turn_wait(&self.turn, monotonic_ns() + WAIT_SLICE_NS)
            if rc == E_TIMEOUT:
                PyErr_CheckSignals()
        if rc == 0:
            calls_inside(1)
        elif blocking:
            raise RuntimeError(
                "the store was called from within a call of this thread that changes the same, by "
                "a signal handler or a finalizer: have it leave a note, and call the store later")
        return rc == 0

    def release(self):
        """Release one acquisition."""
        if self.depth > 0:
            self.depth -= 1
            return
        calls_inside(-1)
        turn_end(&self.turn)

    def __enter__(self):
        self.acquire()

    def __exit__(self, *_):
        self.release()
