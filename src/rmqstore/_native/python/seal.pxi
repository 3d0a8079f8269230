# Seal: the checkpoint of a store whose files were written piece by piece, and are known to be
# durable by the caller: as at a clean close, so that the next opening need not walk the log.
#
# Source: store/StoreCheckpoint.java

cdef int64_t seal(Store *store, int64_t last_record, int64_t store_timestamp) noexcept nogil:
    """Write times and watermark; the log offset that they cover, or a status."""
    cdef Index *index
    cdef int64_t rc
    cdef int64_t end = log_end(store)
    cdef int64_t i = 1                       # the newest file does not count
    while True:
        index = index_set_hold(&store.indexes, i)
        if index == NULL:
            break
        atomic_raise(&store.indexes.full_timestamp, atomic_get(&index.end_timestamp))
        index_close(index)
        i += 1
    atomic_set(&store.flush.physic_timestamp, store_timestamp)
    rc = checkpoint_write(store, end, last_record, store_timestamp, MARK_CLOSED)
    return rc if rc < 0 else end


def seal_store(OpenStore engine, int64_t last_record, int64_t store_timestamp):
    """Write the checkpoint of a store open with "r"; the log's end.

    ``last_record``: offset of the last record, or -1; ``store_timestamp``: its store time.
    """
    cdef Store *store = engine.entered()
    cdef int64_t rc
    with nogil:
        rc = seal(store, last_record, store_timestamp)
    store_leave(store)
    return check(rc, NULL, engine._path)
