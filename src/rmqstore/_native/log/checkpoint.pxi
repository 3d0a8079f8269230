# The checkpoint page: RocketMQ's three times, and our watermark further back.
#
# Watermark: a log offset below which log, queues and index were durable, and a digest of the queues
# at that offset.  A hint: recovery checks it against the files.
#
# Source: store/StoreCheckpoint.java

cdef enum:
    WATERMARK_MAGIC = 0x524D5157     # "RMQW"
    WATERMARK_VERSION = 1
    WATERMARK_CRC = 88
    TIMES_AHEAD_MS = 86400000        # a time later than this is not a checkpoint's

cdef struct Watermark:
    bint valid
    bint clean                   # written by a clean close
    int64_t dispatched           # everything below is durable: records, units, entries
    int64_t queues               # their number, and a digest of their units
    uint64_t digest
    int64_t index_end            # endPhyOffset of the last index file
    int64_t index_entries        # entries in all files
    int64_t store_timestamp
    int64_t last_record          # offset of the last record below ``dispatched``, -1: none
    uint32_t last_crc            # over all of its bytes
    int64_t slot_num             # of an index file; 0 if written by an earlier version
    int64_t entry_num
    int32_t fronts               # digest of the begins of the queues' files; 0: unknown

cdef struct Checkpoint:
    bint stale                   # a watermark was found, but cannot be trusted
    int64_t physic
    int64_t logics
    int64_t index
    int64_t confirmed            # of RocketMQ 5: the log had at least this many bytes; 0: unknown
    int64_t marked               # ``dispatched`` of the watermark, also of a rejected one; 0: none
    int64_t marked_record        # and its last record, -1: none
    Watermark mark


cdef int64_t checkpoint_read(int root, Checkpoint *into) noexcept nogil:
    """Read the page; a missing or short file counts as zeros."""
    cdef char page[CHECKPOINT_BYTES]
    cdef stat_t status
    cdef int64_t rc
    cdef int64_t fd = sys_open_file(root, "checkpoint", O_RDONLY, &status)
    memset(into, 0, sizeof(Checkpoint))
    into.marked_record = -1
    if fd == -ENOENT:
        return 0
    if fd < 0:
        return fd
    memset(page, 0, CHECKPOINT_BYTES)
    rc = sys_read(<int>fd, page, CHECKPOINT_BYTES, 0)
    close(<int>fd)
    if rc < 0:
        return rc
    into.physic = get_i64(page + CHECKPOINT_PHYSIC)
    into.logics = get_i64(page + CHECKPOINT_LOGICS)
    into.index = get_i64(page + CHECKPOINT_INDEX)
    if checkpoint_is_sound(page):
        into.confirmed = max(get_i64(page + CHECKPOINT_MASTER_FLUSHED),
                             get_i64(page + CHECKPOINT_CONFIRMED))
    watermark_read(page + WATERMARK_AT, &into.mark)
    if into.mark.valid:
        into.marked = into.mark.dispatched
        into.marked_record = into.mark.last_record
    return 0


cdef bint checkpoint_is_sound(const char *page) noexcept nogil:
    """Whether the page can be a checkpoint; only then RocketMQ 5's fields in it count."""
    cdef int64_t most = wall_millis() + TIMES_AHEAD_MS
    return 0 <= get_i64(page + CHECKPOINT_PHYSIC) <= most \
        and 0 <= get_i64(page + CHECKPOINT_LOGICS) <= most \
        and 0 <= get_i64(page + CHECKPOINT_INDEX) <= most


cdef void index_take_hint(IndexSet *indexes, const Checkpoint *checkpoint) noexcept nogil:
    """Use the index file sizes of the checkpoint as a hint if the files do not show theirs."""
    if not indexes.sizes_set and checkpoint.mark.valid and checkpoint.mark.slot_num > 0 \
            and checkpoint.mark.entry_num > 1:
        indexes.hint.slot_num = checkpoint.mark.slot_num
        indexes.hint.entry_num = checkpoint.mark.entry_num


cdef void watermark_read(const char *at, Watermark *mark) noexcept nogil:
    memset(mark, 0, sizeof(Watermark))
    if get_i32(at) != WATERMARK_MAGIC or get_i32(at + 4) != WATERMARK_VERSION \
            or <uint32_t>get_i32(at + WATERMARK_CRC) != crc32_update(0, at, WATERMARK_CRC):
        return
    mark.valid = True
    mark.clean = get_i64(at + 8) == 1
    mark.dispatched = get_i64(at + 16)
    mark.queues = get_i64(at + 24)
    mark.digest = <uint64_t>get_i64(at + 32)
    mark.index_end = get_i64(at + 40)
    mark.index_entries = get_i64(at + 48)
    mark.store_timestamp = get_i64(at + 56)
    mark.last_record = get_i64(at + 64)
    mark.last_crc = <uint32_t>get_i32(at + 72)
    mark.slot_num = get_i32(at + 76)
    mark.entry_num = get_i32(at + 80)
    mark.fronts = get_i32(at + 84)


# Claim of a watermark about the store.
cdef enum:
    MARK_OPEN
    MARK_CLOSED                  # closed cleanly: everything was durable


cdef int64_t checkpoint_write(
    Store *store, int64_t dispatched, int64_t last_record, int64_t logics, int state,
) noexcept nogil:
    """Write and sync times and watermark for the log offset ``dispatched``.

    REQUIRES: everything below it is durable; ``last_record`` is the last record below it.
    """
    cdef char page[CHECKPOINT_BYTES]
    cdef char *mark = page + WATERMARK_AT
    cdef stat_t status
    cdef Found found
    cdef int64_t fd, rc, queues, field
    cdef uint64_t digest
    cdef uint32_t last_crc = 0
    cdef bint marked = True
    if last_record >= 0:
        rc = log_record(store, last_record, 0, &found, &field)
        # Without checks of bodies a recovery keeps a record with a bad body: then there is no
        # watermark, and the next opening examines the log.
        marked = store.settings.check_crc or rc > 0
        if rc <= 0 and (marked or rc != E_CORRUPT):
            return rc if rc < 0 else E_CORRUPT
        if rc > 0:
            last_crc = crc32_update(0, found.slice.data, <size_t>rc)
            slice_release(&found.slice)
    fd = sys_open_file(store.root, "checkpoint", O_RDWR | O_CREAT, &status)
    if fd < 0:
        return fd
    memset(page, 0, CHECKPOINT_BYTES)
    rc = sys_read(<int>fd, page, CHECKPOINT_BYTES, 0)
    if rc >= 0:
        rc = queues_digest(store, dispatched, &digest, &queues)
    if rc >= 0:
        if not checkpoint_is_sound(page):
            put_i64(page + CHECKPOINT_MASTER_FLUSHED, 0)
            put_i64(page + CHECKPOINT_CONFIRMED, 0)
        put_i64(page + CHECKPOINT_PHYSIC, atomic_get(&store.flush.physic_timestamp))
        put_i64(page + CHECKPOINT_LOGICS, logics)
        put_i64(page + CHECKPOINT_INDEX, atomic_get(&store.indexes.full_timestamp))
        memset(mark, 0, WATERMARK_BYTES)
        put_i32(mark, WATERMARK_MAGIC)
        put_i32(mark + 4, WATERMARK_VERSION)
        put_i64(mark + 8, 1 if state == MARK_CLOSED else 0)
        put_i64(mark + 16, dispatched)
        put_i64(mark + 24, queues)
        put_i64(mark + 32, <int64_t>digest)
        # Without an index now, the next opening enters the missing keys.
        put_i64(mark + 40, index_set_end(&store.indexes) if store.indexes.enabled else -1)
        put_i64(mark + 48, index_set_entries(&store.indexes))
        put_i64(mark + 56, logics)
        put_i64(mark + 64, last_record)
        put_i32(mark + 72, <int32_t>last_crc)
        put_i32(mark + 76, <int32_t>store.indexes.slot_num)
        put_i32(mark + 80, <int32_t>store.indexes.entry_num)
        put_i32(mark + 84, queue_fronts(store))
        put_i32(mark + WATERMARK_CRC, <int32_t>crc32_update(0, mark, WATERMARK_CRC))
        if not marked:
            memset(mark, 0, WATERMARK_BYTES)
        rc = sys_write(<int>fd, page, CHECKPOINT_BYTES, 0)
    if rc >= 0:
        rc = sys_sync(<int>fd)
    close(<int>fd)
    if rc >= 0 and status.st_size == 0:
        rc = sys_sync(store.root)
    return min(rc, 0)


cdef int64_t index_set_end(IndexSet *indexes) noexcept nogil:
    cdef int64_t end = 0
    lock_take(&indexes.lock)
    if indexes.count:
        end = atomic_get(&indexes.files[indexes.count - 1].end_phy_offset)
    lock_give(&indexes.lock)
    return end


cdef int64_t index_set_entries(IndexSet *indexes) noexcept nogil:
    """Entries in all files; -1 if one is broken, so that the next opening checks them."""
    cdef int64_t entries = 0
    cdef int64_t i
    lock_take(&indexes.lock)
    for i in range(indexes.count):
        entries += atomic_get(&indexes.files[i].count) - 1
        if atomic_get(&indexes.files[i].state) == INDEX_BROKEN:
            entries = -1
            break
    lock_give(&indexes.lock)
    return entries


cdef bint index_is_vouched(IndexSet *indexes, const Watermark *mark) noexcept nogil:
    """Whether the index files are complete and as a clean close left them."""
    return mark.valid and mark.clean and not indexes.repaired \
        and mark.index_end == index_set_end(indexes) \
        and mark.index_entries == index_set_entries(indexes)


cdef int32_t queue_fronts(Store *store) noexcept nogil:
    """Digest of the queues with files, and of the first byte of each; not 0."""
    cdef Queue *queue = first_queue(&store.table)
    cdef uint64_t total = 0
    cdef uint64_t hash
    while queue != NULL:
        if file_set_count(&queue.files):
            hash = (queue.topic.digest ^ <uint64_t>queue.id) * 0x9E3779B97F4A7C15ULL
            hash = (hash ^ (hash >> 29) ^ <uint64_t>file_set_start(&queue.files)) \
                * 0xBF58476D1CE4E5B9ULL
            total += hash ^ (hash >> 32)
        queue = next_queue(queue)
    return <int32_t>(total ^ (total >> 32)) | 1


cdef int64_t queues_digest(
    Store *store, int64_t physical_offset, uint64_t *digest, int64_t *queues,
) noexcept nogil:
    """Sum over all queues of a hash of name, id and number of units below ``physical_offset``."""
    cdef Queue *queue = first_queue(&store.table)
    cdef int64_t units
    cdef uint64_t hash
    digest[0] = 0
    queues[0] = 0
    while queue != NULL:
        units = atomic_get(&queue.max_offset)
        if atomic_get(&queue.last_end) > physical_offset:
            units = queue_first_at_or_after(
                queue, physical_offset, atomic_get(&queue.min_offset), units)
            if units < 0:
                return units
        if units > 0:
            hash = queue.topic.digest
            hash = (hash ^ <uint64_t>queue.id) * 0x9E3779B97F4A7C15ULL
            hash = (hash ^ (hash >> 29) ^ <uint64_t>units) * 0xBF58476D1CE4E5B9ULL
            digest[0] += hash ^ (hash >> 32)
            queues[0] += 1
        queue = next_queue(queue)
    return 0
