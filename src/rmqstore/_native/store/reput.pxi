# Dispatch thread: runs as soon as a record is written.
#
# Source: store/DefaultMessageStore.java ReputMessageService

cdef enum:
    REPUT_SPINS = 1000           # checks for more before it sleeps, about 20 us


cdef int64_t reput_until(Store *store, int64_t limit) noexcept nogil:
    """As dispatch_until; also retries index files whose repair waited for space.

    REQUIRES: the turn of the dispatch.
    """
    cdef int64_t rc = 0
    note_most(&store.figures.behind_most, limit - atomic_get(&store.dispatch.dispatched))
    if unlikely(atomic_get(&store.indexes.waiting) != 0):
        lock_take(&store.dispatch.lock)
        rc = index_set_resume(store)
        lock_give(&store.dispatch.lock)
    if rc < 0 and not lacks_space(rc):
        return rc
    return dispatch_until(store, limit)


cdef void reput_here(Store *store) noexcept nogil:
    """Dispatch records appended with APPEND_QUIET in this thread, without waking another.

    Left to the dispatch thread if that is active anyway, or if dispatch is stalled.
    """
    cdef int64_t rc = 0
    if atomic_get(&store.dispatch.stalled) == 0 and lock_try(&store.dispatch.turn):
        if atomic_get(&store.log.wrote) > atomic_get(&store.dispatch.dispatched):
            rc = reput_until(store, atomic_get_strict(&store.log.wrote))
        lock_give(&store.dispatch.turn)
        if likely(rc == 0):
            return
    worker_wake(&store.dispatch.worker)


cdef void *reput_run(void *argument) noexcept nogil:
    """Dispatch thread: runs as soon as a record is written."""
    cdef Store *store = <Store *>argument
    cdef atomic_i64 *limit = &store.log.flushed if store.settings.sync_flush else &store.log.wrote
    cdef int64_t spins, seen, calls, rc
    while not atomic_get(&store.stopping):
        calls = atomic_get_strict(&store.dispatch.worker.calls)
        seen = atomic_get_strict(limit)
        if seen > atomic_get(&store.dispatch.dispatched):
            lock_take(&store.dispatch.turn)
            rc = reput_until(store, seen)
            lock_give(&store.dispatch.turn)
            if rc < 0:
                dispatch_stalled(store, rc)
                worker_sleep(&store.dispatch.worker, &store.stopping, 0, calls, DISPATCH_RETRY_NS)
            else:
                dispatch_goes_on(store)
            continue
        if unlikely(atomic_get(&store.dispatch.stalled) != 0):   # reput_here has gone on
            dispatch_goes_on(store)
        spins = 0
        while spins < REPUT_SPINS and atomic_get(limit) == seen \
                and not atomic_get(&store.stopping):
            cpu_pause()
            spins += 1
        if spins == REPUT_SPINS:
            worker_sleep(&store.dispatch.worker, limit, seen, calls, DISPATCH_IDLE_NS)
    store_drop(store)
    return NULL


cdef void dispatch_stalled(Store *store, int64_t status) noexcept nogil:
    """Note a failure: a lack of space or memory is retried, any other is final."""
    if lacks_space(status) or is_passing(status):
        atomic_set(&store.dispatch.stalled, status)
    else:
        atomic_set(&store.dispatch.stalled, 0)
        store_set_failed(store, status, dispatch_refused(store), "the dispatch cannot go on")
