# Which parts of the log the index covers, and which of the others are known to need none.

cdef int64_t keyless_until(Store *store, int64_t start) noexcept nogil:
    """The offset up to which the log was found to hold no key from ``start`` on."""
    cdef Keyless *keyless = &store.keyless
    cdef int64_t until = start
    cdef int64_t i
    pthread_mutex_lock(&keyless.mutex)
    for i in range(keyless.count):
        if keyless.starts[i] <= start:
            until = max(until, keyless.stops[i])
    pthread_mutex_unlock(&keyless.mutex)
    return until


cdef bint uncovered_is_keyless(Store *store, int64_t start, int64_t stop) noexcept nogil:
    """Whether a range was found to hold no key."""
    return keyless_until(store, start) >= stop


cdef void note_keyless(Store *store, int64_t start, int64_t stop) noexcept nogil:
    cdef Keyless *keyless = &store.keyless
    cdef int64_t i
    if stop <= start:
        return
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


cdef bint index_is_usable(Store *store, IndexFile *index) noexcept nogil:
    """Whether its keys may be asked for; who only reads asks for none before it was checked."""
    cdef int64_t state = atomic_get(&index.state)
    return state != INDEX_BROKEN and (store.writable or state != INDEX_UNCHECKED)


cdef bint index_has_all(IndexFile *index) noexcept nogil:
    """Whether a file that is not the newest has all the keys that were entered in it.

    One that is not full lost the last of them to a power cut. A recovery enters them in a file
    between the two, where there is a name for one.
    """
    return atomic_get(&index.state) != INDEX_PATCHED and index_is_full(index)


cdef void index_set_broken(IndexSet *indexes, IndexFile *index) noexcept nogil:
    """Believe a file no more that did not hold where it was read."""
    pthread_mutex_lock(&indexes.mutex)
    if atomic_get(&index.state) < INDEX_PATCHED:
        index_read(index, 0, INDEX_HEADER_BYTES, index.patched_from)
    atomic_set(&index.state, INDEX_BROKEN)
    pthread_mutex_unlock(&indexes.mutex)


cdef bint index_set_is_checked(IndexSet *indexes) noexcept nogil:
    cdef int64_t i
    cdef bint checked = True
    pthread_mutex_lock(&indexes.mutex)
    for i in range(indexes.count):
        if atomic_get(&indexes.files[i].state) == INDEX_UNCHECKED:
            checked = False
    pthread_mutex_unlock(&indexes.mutex)
    return checked


cdef int64_t index_set_ready(Store *store) noexcept nogil:
    """"r": check the files that are new. Nothing is changed on the disk.

    The newest file of a store that somebody writes is believed by its header: it moves.
    """
    cdef IndexSet *indexes = &store.indexes
    cdef IndexFile *index
    cdef int64_t before = -1
    cdef int64_t rc = 0
    cdef int64_t i, end, compare_from
    cdef bint deep
    if not indexes.enabled or index_set_is_checked(indexes):
        return 0
    pthread_mutex_lock(&indexes.check_mutex)
    end = log_end(store)
    compare_from = 0 if end - log_first(store) <= COMPARED_LOG else INT64_MOST
    deep = compare_from == 0 or not indexes.vouched
    i = index_set_count(indexes)
    while i > 0 and rc >= 0:
        i -= 1
        index = index_set_hold(indexes, i)
        if index == NULL:
            continue
        if atomic_get(&index.state) == INDEX_UNCHECKED:
            if i == 0 and store.owned_elsewhere:
                index_load_header(index)
                atomic_set(&index.state, INDEX_SOUND)
            else:
                rc = index_check_reading(store, index, before, deep, compare_from)
        if atomic_get(&index.count) > 1:
            before = atomic_get(&index.end_phy_offset)
        index_close(index)
    pthread_mutex_unlock(&indexes.check_mutex)
    return min(rc, 0)


cdef int64_t index_check_reading(
    Store *store, IndexFile *index, int64_t before, bint deep, int64_t compare_from,
) noexcept nogil:
    """Check one file; where it does not hold, keep in memory what of it does."""
    cdef IndexWalk walk
    cdef char first[INDEX_ENTRY_BYTES]
    cdef int64_t rc = index_read(index, 0, INDEX_HEADER_BYTES, index.patched_from)
    if rc == 0:
        rc = index_load_header(index)
    if rc < 0:
        return rc if is_passing(rc) else 0   # unread, and so not asked
    log_look_for(store, atomic_get(&index.end_phy_offset))
    if not deep and index_header_fits(store, index) and (
            atomic_get(&index.count) <= 1 or atomic_get(&index.begin_phy_offset) >= before):
        atomic_set(&index.state, INDEX_SOUND)
        return 0
    rc = index_examine(store, index, INT64_MOST, compare_from, &walk)
    if rc < 0:
        return rc if is_passing(rc) else 0
    if rc == 1 and (walk.count <= 1 or atomic_get(&index.begin_phy_offset) >= before):
        free(walk.heads)
        atomic_set(&index.state, INDEX_SOUND)
        return 0
    index.heads = walk.heads
    if index_read(index, index_entry_at(index, 1), INDEX_ENTRY_BYTES, first) < 0 \
            or get_i64(first + ENTRY_PHYSICAL_OFFSET) < before:
        walk.count = 1                       # some other file's keys
    atomic_set(&index.count, walk.count)
    atomic_set(&index.begin_phy_offset, get_i64(first + ENTRY_PHYSICAL_OFFSET))
    atomic_set(&index.end_phy_offset, walk.last)
    atomic_set(&index.begin_timestamp, 0)
    atomic_set(&index.end_timestamp, INT64_MOST - 1000)
    atomic_set(&index.state, INDEX_PATCHED)
    return 0


cdef int64_t index_covered(Store *store, Offsets *ranges) noexcept nogil:
    """Start and stop, in turn, of each range of the log that the index covers, oldest first."""
    cdef IndexFile *index
    cdef Found found
    cdef int64_t rc, start, stop, field
    cdef bint whole
    cdef bint joined = True                  # the file before has all that it is to have
    cdef int64_t i = index_set_count(&store.indexes)
    while i > 0 and store.indexes.enabled:
        i -= 1
        index = index_set_hold(&store.indexes, i)
        if index == NULL:
            break
        if not index_is_usable(store, index):
            index_close(index)
            joined = False
            continue
        if index.file.base == NULL:
            index_load_header(index)
        start = atomic_get(&index.begin_phy_offset)
        stop = atomic_get(&index.end_phy_offset)
        rc = atomic_get(&index.count)
        whole = atomic_get(&index.state) != INDEX_PATCHED if i == 0 \
            else index_has_all(index)
        index_close(index)
        if rc <= 1:
            joined = joined and whole
            continue
        if not joined:
            start += 1                       # keys of its first record may have been lost there
        joined = whole
        rc = log_record(store, stop, 0, &found, &field)
        if rc > 0:
            stop += rc if whole else 0       # else the last record's keys may not all be there
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
