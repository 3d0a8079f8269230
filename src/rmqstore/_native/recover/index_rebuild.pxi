# Rebuild of the index between two files, if a file is bad or missing.  A durable new file gets a
# bad file's name, or, as names ascend along the log, one between its neighbours' names.

cdef struct IndexGap:
    Store *store
    Index *before                # NULL at the log's beginning
    Index *after
    Index **bad                  # bad files between them, oldest first
    int64_t bad_count
    int64_t bad_used             # bad files whose names were reused
    Index *made                  # being filled
    Index *newest                # made before it, or ``before``
    int64_t made_count


cdef int64_t gap_name(IndexGap *gap, int64_t store_timestamp, char *into) noexcept nogil:
    """Name for the next file: a bad one's, else from the time of its first key; or E_FULL."""
    cdef const char *last = gap.newest.name if gap.newest != NULL else NULL
    while gap.bad_used < gap.bad_count:
        copy_text(into, INDEX_NAME_DIGITS + 1, gap.bad[gap.bad_used].name)
        gap.bad_used += 1
        if last == NULL or strcmp(into, last) > 0:
            return 0
    index_name_for(last, store_timestamp, into)
    if strcmp(into, gap.after.name) < 0:
        return 0
    memset(into, 48, INDEX_NAME_DIGITS)      # no usable time: any name in between
    into[INDEX_NAME_DIGITS] = 0
    index_name_after(last if last != NULL else into, into)
    return 0 if strcmp(into, gap.after.name) < 0 else E_FULL


cdef int64_t gap_begin_file(IndexGap *gap, int64_t store_timestamp) noexcept nogil:
    """Create the next file, under a name that brokers ignore."""
    cdef IndexSet *indexes = &gap.store.indexes
    cdef char name[INDEX_NAME_DIGITS + 1]
    cdef char path[FAILURE_PATH_BYTES]
    cdef int64_t rc = gap_name(gap, store_timestamp, name)
    if rc < 0:
        return rc
    snprintf(path, sizeof(path), "%s%s", name, INDEX_REBUILT)
    rc = index_make_file(indexes.root, "index", path, indexes.slot_num, indexes.entry_num,
                         &gap.made)
    if rc == 0 and gap.newest != NULL:
        index_seed(gap.made, atomic_peek(&gap.newest.end_phy_offset),
                   atomic_peek(&gap.newest.end_timestamp))
    return rc


cdef int64_t gap_end_file(IndexGap *gap) noexcept nogil:
    """Force the file to the disk, name it, and enter it in the set."""
    cdef IndexSet *indexes = &gap.store.indexes
    cdef Index *made = gap.made
    cdef char path[FAILURE_PATH_BYTES]
    cdef char to[FAILURE_PATH_BYTES]
    cdef int64_t rc = sync_result(min(index_flush(made), 0))
    snprintf(path, sizeof(path), "index/%s%s", <char *>made.name, INDEX_REBUILT)
    snprintf(to, sizeof(to), "index/%s", <char *>made.name)
    KILL_POINT("before-index-swap")
    if rc == 0:
        rc = sys_rename(indexes.root, path, to)
    if rc == 0:
        rc = sync_result(sync_directory(indexes.root, "index"))
    if rc < 0:
        return rc
    index_set_remove(indexes, made.name)
    atomic_set(&made.state, INDEX_SOUND)
    atomic_set(&made.name_dirty, NAME_SYNCED)
    lock_take(&indexes.lock)
    rc = index_set_enter(indexes, made)
    lock_give(&indexes.lock)
    if rc < 0:
        return rc
    gap.made = NULL
    gap.newest = made
    gap.made_count += 1
    gap.store.recovery.index_files_rebuilt += 1
    return 0


cdef void gap_drop_file(IndexGap *gap) noexcept nogil:
    cdef char path[FAILURE_PATH_BYTES]
    if gap.made == NULL:
        return
    snprintf(path, sizeof(path), "index/%s%s", <char *>gap.made.name, INDEX_REBUILT)
    sys_unlink(gap.store.root, path)
    index_close(gap.made)
    gap.made = NULL


cdef int64_t gap_put(
    IndexGap *gap, int32_t key_hash, int64_t physical_offset, int64_t store_timestamp,
) noexcept nogil:
    cdef int64_t rc = 0
    if gap.made != NULL and index_is_full(gap.made):
        rc = gap_end_file(gap)
    if rc == 0 and gap.made == NULL:
        rc = gap_begin_file(gap, store_timestamp)
    return rc if rc < 0 else index_put(gap.made, key_hash, physical_offset, store_timestamp)


cdef bint index_end_has(
    EntryReader *reader, Index *index, int64_t physical_offset, int32_t key_hash,
) noexcept nogil:
    """Whether the last entries of a file have a key of a record."""
    cdef int64_t number = atomic_get(&index.count) - 1
    while number > 0 and entry_offset(reader, number) == physical_offset:
        if group_has_hash(reader, number, number + 1, key_hash):
            return True
        number -= 1
    return False


cdef bint index_begin_has(
    EntryReader *reader, Index *index, int64_t physical_offset, int32_t key_hash,
) noexcept nogil:
    """Whether the first entries of a file have a key of a record."""
    cdef int64_t number = 1
    while number < atomic_get(&index.count) and entry_offset(reader, number) == physical_offset:
        if group_has_hash(reader, number, number + 1, key_hash):
            return True
        number += 1
    return False


cdef int64_t gap_enter_record(
    IndexGap *gap, EntryReader *before, EntryReader *after, const char *data,
    const Record *record,
) noexcept nogil:
    """Enter the keys of a record missing in both neighbours; their number."""
    cdef DispatchRequest request
    cdef int64_t at = -1
    cdef int64_t rc = 0
    cdef int64_t entered = 0
    cdef int64_t offset = record.physical_offset
    cdef int32_t key_hash
    if not record_needs_keys(data, record, &request):
        return 0
    key_hash = next_key_hash(data, record, &request, &at)
    while key_hash != KEYLESS and rc >= 0:
        if not (gap.before != NULL and index_end_has(before, gap.before, offset, key_hash)) \
                and not index_begin_has(after, gap.after, offset, key_hash):
            rc = gap_put(gap, key_hash, offset, record.store_timestamp)
            entered += 1
        key_hash = next_key_hash(data, record, &request, &at)
    return rc if rc < 0 else entered


cdef int64_t gap_walk(IndexGap *gap, EntryReader *before, EntryReader *after) noexcept nogil:
    """Enter the keys of the log between the neighbours; their number."""
    cdef Store *store = gap.store
    cdef Cursor cursor
    cdef Record record
    cdef const char *data
    cdef int64_t start = log_first(store)
    cdef int64_t stop = atomic_get(&gap.after.begin_phy_offset)
    cdef int64_t keys = 0
    cdef int64_t rc
    if gap.before != NULL:
        start = max(start, atomic_get(&gap.before.end_phy_offset))
    cursor_init(&cursor, store, start, stop + 1)
    cursor.check_crc = False
    while True:
        rc = cursor_next_good(&cursor, &record, &data)
        if rc <= 0:
            break
        rc = gap_enter_record(gap, before, after, data, &record)
        if rc < 0:
            break
        keys += rc
    cursor_close(&cursor)
    if rc == 0 and gap.made != NULL:
        rc = gap_end_file(gap)
    if rc == 0 and keys == 0:
        note_keyless(&store.keyless, start + (gap.before != NULL), stop)
    return rc if rc < 0 else keys


cdef int64_t index_fill_gap(IndexGap *gap) noexcept nogil:
    """Index the log between two files; 0 or a status.  Queries walk a range left unindexed."""
    cdef EntryReader before
    cdef EntryReader after
    cdef int64_t rc = entry_reader_begin(&after, gap.after)
    memset(&before, 0, sizeof(EntryReader))
    if rc == 0 and gap.before != NULL:
        rc = entry_reader_begin(&before, gap.before)
    gap.newest = gap.before
    if rc == 0:
        rc = gap_walk(gap, &before, &after)
    gap_drop_file(gap)
    free(before.buffer)
    free(after.buffer)
    return min(rc, 0)
