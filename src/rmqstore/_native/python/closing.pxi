# Closing: flush acknowledged messages, end the threads, release the lock.
#
# Source: store/DefaultMessageStore.java shutdown

cdef int wait_for_dispatch(Store *store, int64_t *status) except -1:
    """Let dispatch reach the log's end; in slices, to handle signals."""
    cdef int64_t stalled_at_ns = 0
    status[0] = E_TIMEOUT
    while status[0] == E_TIMEOUT and not atomic_get(&store.stopping):
        with nogil:
            status[0] = close_dispatch(store, monotonic_ns() + WAIT_SLICE_NS, &stalled_at_ns)
        PyErr_CheckSignals()
    return 0


cdef int refuse_inner_close(OpenStore engine) except -1:
    """Raise if a close would wait for a call of its own thread."""
    if calls_inside(0) > 0:
        raise RuntimeError(f"{engine._path}: closed from within a call of this thread")
    return 0


cdef int close_store(OpenStore engine) except -1:
    """See ``Core.close``."""
    cdef Store *store = engine.store
    cdef Failure failure
    cdef int64_t rc
    cdef int64_t stalled = 0
    behind = None
    if store == NULL:
        return 0
    if store.fork_generation != fork_generation:
        raise status_error(E_FORKED, NULL, engine._path)
    refuse_inner_close(engine)
    if store_enter(store) == 0:
        try:
            if store.writable and not store.settings.log_only:
                wait_for_dispatch(store, &rc)    # a signal leaves the store open
            stalled = atomic_get(&store.dispatch.stalled)
            if stalled != 0:
                behind = stalled_error(store, engine._path)  # names a queue, which a close frees
        finally:
            store_leave(store)
    with nogil:
        rc = store_close(store)
    if rc == E_CLOSED:
        return 0
    failure = store.failure
    if rc < 0 and rc == stalled:
        raise behind
    if rc < 0:
        raise status_error(rc, &failure, engine._path)
    return 0


cdef int give_up_store(OpenStore engine) except -1:
    """See ``Core.undo_opening``."""
    cdef Store *store = engine.store
    if store != NULL and store.fork_generation == fork_generation:
        with nogil:
            store_give_up(store)
    return 0


def _at_exit():
    """Stop the threads of unclosed stores; their `abort` stays."""
    cdef Store *store
    with nogil:
        lock_take(&open_stores_lock)
        store = open_stores
        while store != NULL:
            if store.fork_generation == fork_generation and atomic_get(&store.state) == STATE_OPEN:
                store_stop(store)
            store = store.next_open
        lock_give(&open_stores_lock)
