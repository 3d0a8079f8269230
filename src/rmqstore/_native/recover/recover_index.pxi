# Opening, third part: check all index files.  A bad or missing file is rebuilt from the log; the
# newest keeps its good entries, and dispatch enters the rest.  4.9.3 drops whole files, and with
# them the keys of records that it does not dispatch again.  A bad index never prevents opening.
#
# Source: store/index/IndexService.java load

cdef int64_t recover_size_index(
    Store *store, const Checkpoint *checkpoint, Failure *failure,
) noexcept nogil:
    """Infer slots and entries of the index files; nothing is changed yet."""
    cdef int64_t rc
    if not store.indexes.enabled:
        return 0
    index_take_hint(&store.indexes, checkpoint)
    rc = index_set_size_up(&store.indexes, failure)
    if rc == 0 and store.indexes.slot_num == 0:
        store.indexes.slot_num = store.indexes.hint.slot_num
        store.indexes.entry_num = store.indexes.hint.entry_num
    if rc == 0 and store.indexes.slot_num == 0:      # no file shows the sizes
        store.indexes.slot_num = store.settings.slot_num
        store.indexes.entry_num = store.settings.entry_num
        store.recovery.index_size_taken = not store.indexes.sizes_set
    return rc


# Whether the queues match the watermark.
cdef enum:
    QUEUES_UNKNOWN
    QUEUES_KNOWN


cdef int64_t recover_index(
    Store *store, const Checkpoint *checkpoint, int queues, Failure *failure,
) noexcept nogil:
    """Open and repair the index files; the log offset from which keys must be dispatched.

    Without space, dispatch repairs them later, before it enters a key.
    """
    cdef int64_t rc
    if not store.indexes.enabled:
        return atomic_get(&store.log.wrote)
    rc = recover_index_files(store, checkpoint, queues, failure)
    if not lacks_space(rc):
        return rc
    failure.status = 0
    index_set_wait(&store.indexes)
    return log_first(store)


cdef void index_set_wait(IndexSet *indexes) noexcept nogil:
    """Keep index files from queries and flushes until checked and repaired."""
    cdef int64_t i
    for i in range(indexes.count):
        atomic_set(&indexes.files[i].state, INDEX_BROKEN)
    indexes.last = NULL
    indexes.known_end = 0
    atomic_set(&indexes.waiting, 1)


cdef int64_t index_set_resume(Store *store) noexcept nogil:
    """Check and repair the files that waited for space; -ENOSPC if there is still none.

    REQUIRES: dispatch has not passed the offset from which it must enter keys.
    """
    cdef IndexSet *indexes = &store.indexes
    cdef Checkpoint checkpoint
    cdef Failure failure
    cdef int64_t began = monotonic_ns()
    cdef int64_t rc
    if began < indexes.try_at:
        return -ENOSPC
    memset(&checkpoint, 0, sizeof(Checkpoint))
    memset(&failure, 0, sizeof(Failure))
    rc = recover_index_files(store, &checkpoint, QUEUES_UNKNOWN, &failure)
    if lacks_space(rc):
        index_set_wait(indexes)
        # The work so far may have taken long: the whole log was read.
        indexes.try_at = monotonic_ns() + 10 * (monotonic_ns() - began)
    if rc < 0:
        return rc
    atomic_set(&indexes.waiting, 0)
    return 0


cdef int64_t recover_index_files(
    Store *store, const Checkpoint *checkpoint, int queues, Failure *failure,
) noexcept nogil:
    """As recover_index, or -ENOSPC."""
    cdef IndexSet *indexes = &store.indexes
    cdef int64_t end = atomic_get(&store.log.wrote)
    cdef int64_t rc, compare_from, key_end
    cdef bint vouched, small
    cdef bint cut = False
    rc = index_set_list(indexes, failure)
    if rc < 0:
        return rc
    vouched = queues == QUEUES_KNOWN and checkpoint.mark.clean and store.recovery.clean \
        and not store.recovery.full and index_is_vouched(indexes, &checkpoint.mark)
    small = end - log_first(store) <= COMPARED_LOG
    compare_from = 0                         # the whole log is, or soon will be, in the page cache
    if not store.recovery.full and not small and checkpoint.mark.valid:
        compare_from = INT64_MOST if vouched else checkpoint.mark.dispatched
    # First of all: a page that was read first costs one more fault when rewritten.
    if not store.recovery.clean:
        index_set_redirty(indexes)
    rc = index_set_check(store, not vouched or small, compare_from)
    if rc >= 0:
        rc = index_set_repair(store, vouched, compare_from)
        cut = rc > 0
    if rc < 0:
        return fail(failure, rc, "index", "an index file cannot be repaired", -1, 0, 0)
    store.recovery.index_set_aside = indexes.set_aside
    indexes.last = indexes.files[indexes.count - 1] if indexes.count else NULL
    key_end = index_note_ends(indexes, end)
    indexes.known_end = key_end
    if indexes.count == 0:
        return log_first(store)
    # With the same end but fewer entries, the last record lacks some of its keys.
    if not cut and checkpoint.mark.valid and checkpoint.mark.dispatched <= end \
            and 0 <= checkpoint.mark.index_end <= index_set_end(indexes) \
            and checkpoint.mark.index_entries <= index_set_entries(indexes):
        indexes.known_end = max(key_end, checkpoint.mark.dispatched)  # with all of their keys
        return indexes.known_end
    return max(key_end, log_first(store))


cdef int64_t index_note_ends(IndexSet *indexes, int64_t end) noexcept nogil:
    """Note the time of the newest full file; the offset of the last record with entries."""
    cdef Index *index
    cdef int64_t key_end = 0
    cdef int64_t i
    for i in range(indexes.count):
        index = indexes.files[i]
        if i + 1 < indexes.count and index_is_full(index) \
                and atomic_get(&index.end_phy_offset) < end:
            atomic_raise(&indexes.full_timestamp, atomic_get(&index.end_timestamp))
        if atomic_get(&index.count) > 1:
            key_end = atomic_get(&index.end_phy_offset)
    return key_end


cdef void index_set_redirty(IndexSet *indexes) noexcept nogil:
    """After an unclean exit the pages may be only in the page cache, where they count as clean."""
    cdef Index *index
    cdef int64_t i, stop
    for i in range(indexes.count):
        index = indexes.files[i]
        stop = index_entry_at(index, atomic_get(&index.count))
        atomic_set(&index.flushed_count, 0)
        atomic_set(&index.name_dirty, NAME_DIRTY)
        madvise(index.file.base, <size_t>stop, MADV_POPULATE_WRITE)      # at once, if supported
        touch_pages(index.file.base, 0, stop)


cdef int64_t index_set_check(Store *store, bint deep, int64_t compare_from) noexcept nogil:
    """Set each file's state, INDEX_SOUND or INDEX_BROKEN."""
    cdef IndexSet *indexes = &store.indexes
    cdef Index *index
    cdef IndexWalk walk
    cdef int64_t before = -1
    cdef int64_t i, rc
    for i in range(indexes.count):
        index = indexes.files[i]
        if deep:
            rc = index_examine(store, index, atomic_get(&store.log.wrote), compare_from, &walk)
            if rc < 0:
                return rc
            free(walk.heads)
        else:
            rc = index_header_fits(store, index)
        if atomic_get(&index.count) > 1 and atomic_get(&index.begin_phy_offset) < before:
            rc = 0                           # the keys of another file
        atomic_set(&index.state, INDEX_SOUND if rc == 1 else INDEX_BROKEN)
        if rc == 1 and atomic_get(&index.count) > 1:
            before = atomic_get(&index.end_phy_offset)
    return 0


cdef int64_t index_set_repair(
    Store *store, bint vouched, int64_t compare_from,
) noexcept nogil:
    """Rebuild bad and missing files; 1 if the newest entries were cut."""
    cdef IndexSet *indexes = &store.indexes
    cdef int64_t count = indexes.count
    cdef Index **files = <Index **>malloc(<size_t>(count + 1) * sizeof(Index *))
    cdef Index *before = NULL
    cdef IndexGap gap
    cdef int64_t i
    cdef int64_t run = 0                     # first file after ``before``
    cdef int64_t rc = 0
    if files == NULL:
        return E_NO_MEMORY
    for i in range(count):                   # a copy, as the set changes
        files[i] = indexes.files[i]
        atomic_add(&files[i].holds, 1)
    for i in range(count):
        if rc < 0 or atomic_get(&files[i].state) != INDEX_SOUND \
                or atomic_get(&files[i].count) <= 1:
            continue
        if not vouched or i > run:
            memset(&gap, 0, sizeof(IndexGap))
            gap.store = store
            gap.before = before
            gap.after = files[i]
            gap.bad = files + run
            gap.bad_count = i - run
            rc = index_replace(&gap, compare_from)
        before = files[i]
        run = i + 1
    if rc == 0:
        rc = index_repair_newest(store, before, files + run, count - run, compare_from)
    for i in range(count):
        index_close(files[i])
    free(files)
    return rc


cdef int64_t index_replace(IndexGap *gap, int64_t compare_from) noexcept nogil:
    """Fill the gap between two files, and remove the bad files in it.

    Without space for a new file, the bad files keep their good entries.
    """
    cdef IndexSet *indexes = &gap.store.indexes
    cdef Index *index
    cdef Index *before = gap.before
    cdef int64_t i
    cdef int64_t rc = index_fill_gap(gap)
    cdef bint filled = rc == 0
    if rc < 0 and rc != E_FULL and not lacks_space(rc) and not is_passing(rc):
        return rc
    rc = 0
    for i in range(gap.bad_count):
        index = gap.bad[i]
        if rc < 0 or atomic_get(&index.state) != INDEX_BROKEN \
                or not index_set_has_file(indexes, index):
            continue
        if filled:
            rc = index_set_aside(indexes, index.name)
            index_set_remove(indexes, index.name)
        else:
            rc = min(index_repair(gap.store, index, before, compare_from), 0)
            atomic_set(&index.state, INDEX_PATCHED)
            before = index
    return rc


cdef int64_t index_repair_newest(
    Store *store, Index *before, Index **files, int64_t count, int64_t compare_from,
) noexcept nogil:
    """Keep the good entries of the newest files, up to the first file without any.

    1 if a file lost entries, which dispatch enters again.
    """
    cdef IndexSet *indexes = &store.indexes
    cdef int64_t rc = 0
    cdef int64_t i
    cdef bint cut = False                    # the files after it do not count
    cdef bint lost = False
    for i in range(count):
        if cut:
            lost = lost or atomic_get(&files[i].count) > 1
            rc = index_set_aside(indexes, files[i].name)
            index_set_remove(indexes, files[i].name)
        else:
            rc = index_repair(store, files[i], before, compare_from)
            if rc > 0:
                store.recovery.index_files_rebuilt += 1
            lost = rc == REPAIR_CUT
            cut = lost or atomic_get(&files[i].count) <= 1
            atomic_set(&files[i].state, INDEX_SOUND)
            if rc >= 0 and atomic_get(&files[i].count) > 1:
                rc = index_join(store, before, files[i])
                lost = lost or atomic_get(&files[i].count) <= 1
                cut = cut or lost
                before = files[i]
        if rc < 0:
            return rc
    return 1 if lost else 0


cdef int64_t index_join(Store *store, Index *before, Index *index) noexcept nogil:
    """Index the range between two of the newest files; 0 or a status.

    Dispatch continues after the second file, which starts empty if no file fits between the two.
    """
    cdef IndexGap gap
    cdef int64_t rc
    memset(&gap, 0, sizeof(IndexGap))
    gap.store = store
    gap.before = before
    gap.after = index
    rc = index_fill_gap(&gap)
    if rc == E_FULL:
        memset(index.file.base + INDEX_HEADER_BYTES, 0,
               <size_t>(index.slot_num * INDEX_SLOT_BYTES))
        index_repair_empty(index, gap.newest)
        atomic_set(&index.flushed_count, 0)
        return 0
    return 0 if lacks_space(rc) or is_passing(rc) else rc


cdef enum:
    REPAIR_CHANGED = 1
    REPAIR_CUT = 2


cdef int64_t index_repair(
    Store *store, Index *index, Index *before, int64_t compare_from,
) noexcept nogil:
    """Keep the good entries, and set slots and header: 0, REPAIR_CHANGED, REPAIR_CUT or a status.

    ``before``: the preceding file, with whose end values an empty file starts.
    """
    cdef IndexWalk walk
    cdef int64_t count = atomic_get(&index.count)
    cdef int64_t changed = 0
    cdef int64_t slot
    cdef char *at
    cdef int64_t rc = index_examine(store, index, atomic_get(&store.log.wrote), compare_from, &walk)
    if rc < 0:
        return rc
    if walk.count > 1 and before != NULL and atomic_get(&before.end_phy_offset) > get_i64(
            index.file.base + index_entry_at(index, 1) + ENTRY_PHYSICAL_OFFSET):
        walk.count = 1
        memset(walk.heads, 0, <size_t>index.slot_num * sizeof(int32_t))
    for slot in range(index.slot_num):
        at = index.file.base + INDEX_HEADER_BYTES + slot * INDEX_SLOT_BYTES
        if get_i32(at) != walk.heads[slot]:
            put_i32_release(at, walk.heads[slot])
            changed = REPAIR_CHANGED
    free(walk.heads)
    if walk.count <= 1:
        changed |= index_repair_empty(index, before)
    elif changed or walk.count < count or not index_header_fits(store, index):
        changed = REPAIR_CHANGED
        index_repair_header(store, index, walk.count, walk.last, walk.used)
    if changed:
        atomic_set(&index.flushed_count, 0)
    return REPAIR_CUT if walk.count < count else changed


cdef int64_t index_repair_empty(Index *index, Index *before) noexcept nogil:
    """Set the header of a file without entries; 1 if it was different."""
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


cdef void index_repair_header(
    Store *store, Index *index, int64_t count, int64_t last, int64_t used,
) noexcept nogil:
    """Set the header for the remaining entries, with times from their records.

    The last entry's time is rewritten as well: if it contradicted the header, the next opening's
    check would fail.
    """
    cdef Found found
    cdef int64_t field
    cdef char *entry = index.file.base + index_entry_at(index, count - 1)
    cdef int64_t first = get_i64(
        index.file.base + index_entry_at(index, 1) + ENTRY_PHYSICAL_OFFSET)
    cdef int64_t begin_time = atomic_get(&index.begin_timestamp)
    cdef int64_t end_time
    if log_record(store, first, 0, &found, &field) > 0:
        if not record_is_rolled_back(&found.record):
            begin_time = found.record.store_timestamp
        slice_release(&found.slice)
    end_time = index_millis(begin_time, max(0, get_i32(entry + ENTRY_SECONDS)))
    if log_record(store, last, 0, &found, &field) > 0:
        if not record_is_rolled_back(&found.record):
            end_time = found.record.store_timestamp
            if count > 2:
                put_i32(entry + ENTRY_SECONDS, <int32_t>index_seconds(begin_time, end_time))
        slice_release(&found.slice)
    atomic_set(&index.count, count)
    atomic_set(&index.slots_used, used)
    atomic_set(&index.begin_phy_offset, first)
    atomic_set(&index.end_phy_offset, last)
    atomic_set(&index.begin_timestamp, begin_time)
    atomic_set(&index.end_timestamp, end_time)
    index_store_header(index)


cdef int64_t dispatch_past_damage(Store *store, int64_t mark) noexcept nogil:
    """Skip and note a damaged record below the watermark: its queues are complete.

    Dispatch is here only because of a bad index file; the new file lacks the record's keys.
    """
    cdef Cursor cursor
    cdef Record record
    cdef const char *data = NULL
    cdef int64_t bad = store.failure.offset
    cdef int64_t rc, known
    if store.failure.status != E_CORRUPT \
            or not atomic_get(&store.dispatch.dispatched) <= bad < mark:
        return E_CORRUPT
    memset(&store.failure, 0, sizeof(Failure))
    rc = dispatch_until(store, bad)          # the batch may have begun before it
    if rc < 0:
        return rc
    cursor_init(&cursor, store, bad, mark)
    cursor.check_crc = False
    cursor_next(&cursor, &record, &data)
    rc = cursor_resync(&cursor)
    cursor_close(&cursor)
    if rc >= 0:
        mark = bad + rc if rc else mark
        atomic_set(&store.dispatch.dispatched, mark)
        known = store.recovery.damage_count
        rc = damage_note(store, bad, mark, DAMAGE_BYTES, cursor.field)
        while rc == 0 and known < store.recovery.damage_count:
            store.recovery.damages[known].unnamed = True         # no entry leads there
            known += 1
    return min(rc, 0)
