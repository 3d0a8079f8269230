# Which parts of the log the index covers, and which of the others are known to need none.

cdef bint uncovered_is_keyless(Store *store, int64_t start, int64_t stop) noexcept nogil:
    """Whether a range was found to hold no key."""
    cdef Keyless *keyless = &store.keyless
    cdef int64_t i
    cdef bint hit = False
    pthread_mutex_lock(&keyless.mutex)
    for i in range(keyless.count):
        if keyless.starts[i] <= start and stop <= keyless.stops[i]:
            hit = True
            break
    pthread_mutex_unlock(&keyless.mutex)
    return hit


cdef void note_keyless(Store *store, int64_t start, int64_t stop) noexcept nogil:
    cdef Keyless *keyless = &store.keyless
    cdef int64_t i
    pthread_mutex_lock(&keyless.mutex)
    for i in range(keyless.count):
        if keyless.starts[i] <= start <= keyless.stops[i]:
            keyless.stops[i] = max(keyless.stops[i], stop)
            pthread_mutex_unlock(&keyless.mutex)
            return
    if keyless.count < KEYLESS_RANGES:
        keyless.starts[keyless.count] = start
        keyless.stops[keyless.count] = stop
        keyless.count += 1
    pthread_mutex_unlock(&keyless.mutex)


cdef int64_t index_covered(Store *store, Offsets *ranges) noexcept nogil:
    """Start and stop, in turn, of each range of the log that the index covers, oldest first."""
    cdef IndexFile *index
    cdef Found found
    cdef int64_t rc, start, stop, field
    cdef int64_t i = index_set_count(&store.indexes)
    while i > 0 and store.indexes.enabled:
        i -= 1
        index = index_set_hold(&store.indexes, i)
        if index == NULL:
            break
        if index.file.base == NULL:
            index_load_header(index)
        start = atomic_get(&index.begin_phy_offset)
        stop = atomic_get(&index.end_phy_offset)
        rc = atomic_get(&index.count)
        index_close(index)
        if rc <= 1:
            continue
        rc = log_record(store, stop, 0, &found, &field)
        if rc > 0:
            stop += rc
            slice_release(&found.slice)
        if i == 0:
            stop = max(stop, atomic_get(&store.indexes.dispatched))
        if ranges.count and (start <= ranges.items[ranges.count - 1]
                             or uncovered_is_keyless(
                                 store, ranges.items[ranges.count - 1], start)):
            ranges.items[ranges.count - 1] = stop
            continue
        rc = offsets_add(ranges, start)
        if rc == 0:
            rc = offsets_add(ranges, stop)
        if rc < 0:
            return rc
    return 0


cdef int64_t index_set_count(IndexSet *indexes) noexcept nogil:
    cdef int64_t count
    pthread_mutex_lock(&indexes.mutex)
    count = indexes.count
    pthread_mutex_unlock(&indexes.mutex)
    return count
