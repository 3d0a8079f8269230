# Ranges of the log covered by the index, and ranges known to be keyless.

cdef bint index_is_usable(Store *store, Index *index) noexcept nogil:
    """Whether a file may be queried; in read-only mode, only once it is checked."""
    cdef int64_t state = atomic_get(&index.state)
    return state != INDEX_BROKEN and (store.writable or state != INDEX_UNCHECKED)


cdef inline bint newest_has_all(Index *index) noexcept nogil:
    """Whether the newest file still has all keys entered in it."""
    return atomic_get(&index.state) != INDEX_PATCHED


cdef bint older_has_all(Index *index) noexcept nogil:
    """As newest_has_all, for a file with a newer one.

    If not full, it lost its last keys in a power cut.  A recovery enters them in a new file between
    the two, if a name between theirs is free.
    """
    return newest_has_all(index) and index_is_full(index)


cdef void index_set_broken(IndexSet *indexes, Index *index) noexcept nogil:
    """Stop using a file found damaged by a read."""
    lock_take(&indexes.lock)
    if atomic_get(&index.state) < INDEX_PATCHED:
        index_read(index, 0, INDEX_HEADER_BYTES, index.patched_from)
    atomic_set(&index.state, INDEX_BROKEN)
    lock_give(&indexes.lock)


cdef bint index_set_is_checked(IndexSet *indexes) noexcept nogil:
    cdef int64_t i
    cdef bint checked = True
    lock_take(&indexes.lock)
    for i in range(indexes.count):
        if atomic_get(&indexes.files[i].state) == INDEX_UNCHECKED:
            checked = False
    lock_give(&indexes.lock)
    return checked


cdef int64_t index_set_ready(Store *store) noexcept nogil:
    """"r": check new files, without changes on the disk.

    A live owner's newest file keeps changing: its header is trusted.
    """
    cdef IndexSet *indexes = &store.indexes
    cdef Index *index
    cdef int64_t before = -1
    cdef int64_t rc = 0
    cdef int64_t i, end, compare_from
    cdef bint deep
    if not indexes.enabled or index_set_is_checked(indexes):
        return 0
    lock_take(&indexes.check_lock)
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
            if i == 0 and store.view.owned_elsewhere:
                index_load_header(index)
                atomic_set(&index.state, INDEX_SOUND)
            else:
                rc = index_check_reading(store, index, before, deep, compare_from)
        if atomic_get(&index.count) > 1:
            before = atomic_get(&index.end_phy_offset)
        index_close(index)
    lock_give(&indexes.check_lock)
    return min(rc, 0)


cdef int64_t index_check_reading(
    Store *store, Index *index, int64_t before, bint deep, int64_t compare_from,
) noexcept nogil:
    """Check one file; keep the good part of a bad one in memory."""
    cdef IndexWalk walk
    cdef char first[INDEX_ENTRY_BYTES]
    cdef int64_t rc = index_read(index, 0, INDEX_HEADER_BYTES, index.patched_from)
    if rc == 0:
        rc = index_load_header(index)
    if rc < 0:
        return rc if is_passing(rc) else 0   # unchecked, and so not queried
    log_refresh_for(store, atomic_get(&index.end_phy_offset))
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
        walk.count = 1                       # the keys of another file
    atomic_set(&index.count, walk.count)
    atomic_set(&index.begin_phy_offset, get_i64(first + ENTRY_PHYSICAL_OFFSET))
    atomic_set(&index.end_phy_offset, walk.last)
    atomic_set(&index.begin_timestamp, 0)
    atomic_set(&index.end_timestamp, INT64_MOST - 1000)
    atomic_set(&index.state, INDEX_PATCHED)
    return 0


cdef int64_t index_covered(Store *store, Offsets *ranges) noexcept nogil:
    """Start and stop, in turn, of each range of the log that the index covers, oldest first."""
    cdef Index *index
    cdef Found found
    cdef int64_t rc, start, stop, field
    cdef bint whole
    cdef bint joined = True                  # the file before is complete
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
        whole = older_has_all(index) if i > 0 else newest_has_all(index)
        index_close(index)
        if rc <= 1:
            joined = joined and whole
            continue
        if not joined:
            start += 1                       # keys of its first record may have been lost
        joined = whole
        rc = log_record(store, stop, 0, &found, &field)
        if rc > 0:
            stop += rc if whole else 0       # else keys of the last record may be missing
            slice_release(&found.slice)
        if i == 0:
            stop = max(stop, atomic_get(&store.indexes.dispatched))
        if ranges.count and (start <= ranges.items[ranges.count - 1]
                             or uncovered_is_keyless(
                                 &store.keyless, ranges.items[ranges.count - 1], start)):
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
    lock_take(&indexes.lock)
    count = indexes.count
    lock_give(&indexes.lock)
    return count
