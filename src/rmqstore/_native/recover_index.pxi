# Opening, third part: index files that may not be on the disk as a whole are walked entry by
# entry; what does not follow is dropped, and the slots are set to what the entries say. They
# are never thrown away: 4.9.3 does that, and the keys of what it does not dispatch are lost.
#
# Source: store/index/IndexService.java load

cdef int64_t recover_index(
    Store *store, const Checkpoint *checkpoint, bint trusted, bint full, Failure *failure,
) noexcept nogil:
    """Open the index files and mend them; the log offset from which keys must be dispatched."""
    cdef IndexFile *index
    cdef int64_t end = atomic_get(&store.log.wrote)
    cdef int64_t i, rc, key_end
    if not store.indexes.enabled:
        return end
    rc = index_set_list(&store.indexes, failure)
    if rc < 0:
        return rc
    if store.indexes.slot_num == 0:          # no file told the sizes
        store.indexes.slot_num = store.settings.slot_num
        store.indexes.entry_num = store.settings.entry_num
    trusted = trusted and not full and checkpoint.mark.index_end == index_set_end(&store.indexes) \
        and checkpoint.mark.index_entries == index_set_entries(&store.indexes)
    key_end = 0
    for i in range(store.indexes.count):
        index = store.indexes.files[i]
        if not store.recovery.clean:
            atomic_set(&index.flushed_count, 0)
            atomic_set(&index.name_dirty, 1)
        if not trusted and (full or i == store.indexes.count - 1
                            or atomic_get(&index.end_timestamp) > checkpoint.index):
            rc = index_mend(store, index, store.indexes.files[i - 1] if i else NULL, full)
            if rc < 0:
                return fail(failure, rc, "index", "an index file cannot be mended", -1, 0, 0)
            store.recovery.index_files_rebuilt += rc
        if i and index_is_full(store.indexes.files[i - 1]):
            atomic_raise(&store.indexes.full_timestamp,
                         atomic_get(&store.indexes.files[i - 1].end_timestamp))
        if atomic_get(&index.count) > 1:
            key_end = atomic_get(&index.end_phy_offset)
    store.indexes.known_end = key_end
    if store.indexes.count == 0:
        return log_first(store)
    if checkpoint.mark.valid and checkpoint.mark.dispatched <= end \
            and index_set_end(&store.indexes) >= checkpoint.mark.index_end:
        return max(key_end, checkpoint.mark.dispatched)
    return max(key_end, log_first(store))


cdef int64_t index_mend(
    Store *store, IndexFile *index, IndexFile *before, bint full,
) noexcept nogil:
    """Keep the entries that follow from each other and point into the log; 1 if any was dropped.

    ``before`` is the file before it, whose end values an empty one begins with.

    An entry follows if its predecessor in the chain is the newest one before it, and its
    offset is not below the one before; with ``full`` also, if its record has such a key.
    """
    cdef int32_t *heads = <int32_t *>calloc(<size_t>index.slot_num, sizeof(int32_t))
    cdef int64_t end = atomic_get(&store.log.wrote)
    cdef int64_t number = 1
    cdef int64_t last = 0
    cdef int64_t used = 0
    cdef int64_t count = atomic_get(&index.count)
    cdef int64_t slot
    cdef int64_t changed = 0
    cdef int32_t key_hash, previous
    cdef const char *entry
    if heads == NULL:
        return E_NO_MEMORY
    while number < count:
        entry = index.file.base + index_entry_at(index, number)
        key_hash = get_i32(entry + ENTRY_KEY_HASH)
        if key_hash < 0:
            break
        slot = key_hash % index.slot_num
        previous = get_i32(entry + ENTRY_PREVIOUS)
        if previous != heads[slot] or get_i64(entry + ENTRY_PHYSICAL_OFFSET) < last \
                or get_i64(entry + ENTRY_PHYSICAL_OFFSET) >= end \
                or get_i32(entry + ENTRY_SECONDS) < 0 \
                or (full and not entry_is_true(store, entry)):
            break
        last = get_i64(entry + ENTRY_PHYSICAL_OFFSET)
        if heads[slot] == 0:
            used += 1
        heads[slot] = <int32_t>number
        number += 1
    for slot in range(index.slot_num):
        entry = index.file.base + INDEX_HEADER_BYTES + slot * INDEX_SLOT_BYTES
        if get_i32(entry) != heads[slot]:
            put_i32_release(<char *>entry, heads[slot])
            changed = 1
    free(heads)
    if number < count:
        changed = 1
    if number > 1 and (changed or last != atomic_get(&index.end_phy_offset)):
        changed = 1
        index_mend_header(store, index, number, last, used)
    elif number <= 1:
        changed |= index_mend_empty(index, before)
    if changed:
        atomic_set(&index.flushed_count, 0)
    return changed


cdef bint entry_is_true(Store *store, const char *entry) noexcept nogil:
    """Whether the record that an entry points to has a key of that hash."""
    cdef Said said
    cdef Found found
    cdef const char *data
    cdef int64_t field
    cdef int64_t at = -1
    cdef int32_t key_hash = get_i32(entry + ENTRY_KEY_HASH)
    cdef int32_t has
    cdef bint hit
    if log_record(store, get_i64(entry + ENTRY_PHYSICAL_OFFSET), 0, &found, &field) <= 0:
        return get_i64(entry + ENTRY_PHYSICAL_OFFSET) < log_first(store)   # expired, not wrong
    data = found.slice.data
    said.topic = NULL
    store_properties(data + found.record.properties_at, found.record.properties_length,
                     &said.properties)
    has = next_key_hash(data, &found.record, &said, &at)
    while has != key_hash and has != KEYLESS:
        has = next_key_hash(data, &found.record, &said, &at)
    hit = has == key_hash and has != KEYLESS
    if (found.record.sys_flag & SYS_TRANSACTION) == SYS_ROLLBACK:
        hit = True                           # a filler in the place of a damaged record
    slice_release(&found.slice)
    return hit


cdef int64_t index_mend_empty(IndexFile *index, IndexFile *before) noexcept nogil:
    """Set the header of a file without entries; 1 if it said anything else."""
    cdef int64_t offset = 0
    cdef int64_t timestamp = 0
    if before != NULL:
        offset = atomic_get(&before.end_phy_offset)
        timestamp = atomic_get(&before.end_timestamp)
    if atomic_get(&index.count) == 1 and atomic_get(&index.end_phy_offset) == offset \
            and atomic_get(&index.end_timestamp) == timestamp:
        return 0
    atomic_set(&index.count, 1)
    atomic_set(&index.slots_used, 0)
    atomic_set(&index.begin_phy_offset, offset)
    atomic_set(&index.end_phy_offset, offset)
    atomic_set(&index.begin_timestamp, timestamp)
    atomic_set(&index.end_timestamp, timestamp)
    index_store_header(index)
    return 1


cdef void index_mend_header(
    Store *store, IndexFile *index, int64_t count, int64_t last, int64_t used,
) noexcept nogil:
    """Set the header to the entries that are left; times from the records themselves."""
    cdef Found found
    cdef int64_t field
    cdef int64_t first = get_i64(
        index.file.base + index_entry_at(index, 1) + ENTRY_PHYSICAL_OFFSET)
    atomic_set(&index.count, count)
    atomic_set(&index.slots_used, used)
    atomic_set(&index.begin_phy_offset, first)
    atomic_set(&index.end_phy_offset, last)
    if log_record(store, first, 0, &found, &field) > 0:
        atomic_set(&index.begin_timestamp, found.record.store_timestamp)
        slice_release(&found.slice)
    if log_record(store, last, 0, &found, &field) > 0:
        atomic_set(&index.end_timestamp, found.record.store_timestamp)
        slice_release(&found.slice)
    index_store_header(index)
