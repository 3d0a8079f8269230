# Flushes, and waits for the disk.
#
# Source: store/CommitLog.java GroupCommitService

cdef int flush_store(OpenStore engine) except -1:
    cdef int64_t rc
    cdef Store *store
    store_writable(engine.store, engine._path)
    store = engine.store
    try:
        with nogil:
            rc = flush_log_now(store)
        if rc == 0:
            wait_for_dispatch(store, &rc)
        if rc == 0:
            with nogil:
                rc = flush_queues_now(store, FLUSH_ALL)
        if rc < 0 and atomic_get(&store.dispatch.stalled) == rc:
            raise write_error(store, engine._path, E_STALLED)
    finally:
        store_leave(store)
    if rc < 0:
        raise status_error(E_FAILED if atomic_get(&store.failed) else rc, &store.failure,
                           engine._path)


cdef int64_t flush_log(OpenStore engine) except -1:
    cdef int64_t rc
    cdef int64_t flushed
    cdef Store *store
    store_writable(engine.store, engine._path)
    store = engine.store
    with nogil:
        rc = flush_log_now(store)
    flushed = atomic_get(&store.log.flushed)
    store_leave(store)
    if rc < 0:
        raise status_error(E_FAILED if atomic_get(&store.failed) else rc, &store.failure,
                           engine._path)
    return flushed


cdef bint wait_until_durable(
    OpenStore engine, object physical_offset, object timeout,
) except -1:
    cdef int64_t stop, rc, until
    cdef Store *store
    store_writable(engine.store, engine._path)
    store = engine.store
    try:
        stop = atomic_get_strict(&store.log.wrote)
        if physical_offset is not None:
            # Records are flushed whole: the byte after its first one is enough.
            stop = int_argument("physical_offset", physical_offset, 0, stop - 1) + 1
        until = INT64_MOST
        if timeout is not None:
            seconds = float(timeout)
            if not 0 <= seconds <= 1e9:
                raise arguments.wrong_value("timeout", "0 to 1e9 seconds, or None", timeout)
            until = monotonic_ns() + <int64_t>(seconds * 1e9)
        while True:                      # in slices, to handle signals
            with nogil:
                rc = wait_durable(store, stop, min(until, monotonic_ns() + WAIT_SLICE_NS))
            if rc != E_TIMEOUT or monotonic_ns() >= until:
                break
            PyErr_CheckSignals()
    finally:
        store_leave(store)
    if rc == E_TIMEOUT:
        return False
    if rc < 0:
        raise status_error(rc, &store.failure, engine._path)
    return True


cdef int note_failed_sync(OpenStore engine, int number, object path, str what) except -1:
    cdef Store *store = engine.entered()
    cdef bytes name = fsencode(path)
    cdef bytes text = what.encode()
    store_set_failed(store, -number, name, text)
    store_leave(store)
