# Store times of the log's files: which parts a range of times needs, and whether times ascend.
#
# Store times ascend along the log, unless a clock was set.  A skipped part must not have a record
# stored in the range:
#
# - In a log of up to TIMES_WALKED bytes the heads of all records are walked once, and the times of
#   each file and of each block of it cached while the store is open.
# - In a longer log a file is bounded by its own first record and its neighbours', with a margin of
#   CLOCK_STEP_MS.  If a file begins earlier than its predecessor, a clock leapt: none is skipped.
#
# The margin of a search for a time is the most that a record is older than one before it.
# Appends of a store open for writing are never older than its records.

cdef enum:
    CLOCK_STEP_MS = 3600000      # the margin: the greatest clock step tolerated
    TIMES_WALKED = 1 << 30
    BLOCK_BYTES = 1 << 20        # of a block, at most
    BLOCK_LEAST = 8 << 10        # of a block: blocks of many small files must not fill the memory
    FILE_BLOCKS = 64             # of a small file, at most


cdef int64_t times_find(const LogTimes *times, int64_t start) noexcept nogil:
    """Index of the first entry at or after ``start``.  Under the lock."""
    cdef int64_t low = 0
    cdef int64_t high = times.count
    cdef int64_t middle
    while low < high:
        middle = (low + high) // 2
        if times.files[middle].start < start:
            low = middle + 1
        else:
            high = middle
    return low


cdef FileTimes *times_entry(Store *store, int64_t start) noexcept nogil:
    """Entry of the file at ``start``, created if new; NULL: no memory.  Under the lock."""
    cdef LogTimes *times = &store.times
    cdef FileTimes *grown
    cdef FileTimes *entry
    cdef Found found
    cdef int64_t field
    cdef int64_t at = times_find(times, start)
    if at < times.count and times.files[at].start == start:
        return &times.files[at]
    grown = <FileTimes *>array_with_room(
        times.files, &times.room, times.count, sizeof(FileTimes))
    if grown == NULL:
        return NULL
    times.files = grown
    memmove(&grown[at + 1], &grown[at], <size_t>(times.count - at) * sizeof(FileTimes))
    times.count += 1
    entry = &grown[at]
    memset(entry, 0, sizeof(FileTimes))
    entry.start = entry.until = start
    entry.first = entry.last = INT64_LEAST    # unknown
    entry.oldest = INT64_MOST
    entry.newest = INT64_LEAST
    if log_record(store, start, 0, &found, &field) > 0:
        entry.first = found.record.store_timestamp
        slice_release(&found.slice)
    return entry


cdef void times_forget(LogTimes *times, int64_t first) noexcept nogil:
    """Drop entries of removed files.  Under the lock."""
    cdef int64_t gone = times_find(times, first)
    cdef int64_t i
    for i in range(gone):
        free(times.files[i].blocks)
    if gone:
        times.count -= gone
        memmove(times.files, &times.files[gone], <size_t>times.count * sizeof(FileTimes))


cdef BlockTimes *times_block(FileTimes *entry, int64_t at, int64_t block_bytes) noexcept nogil:
    """Block of the record at ``at``, after those before it; NULL: no memory for the first."""
    cdef BlockTimes *block = NULL
    cdef BlockTimes *grown
    if entry.block_count:
        block = &entry.blocks[entry.block_count - 1]
        if at - block.start < block_bytes:
            return block
    grown = <BlockTimes *>array_with_room(
        entry.blocks, &entry.block_room, entry.block_count, sizeof(BlockTimes))
    if grown == NULL:
        return block
    entry.blocks = grown
    block = &grown[entry.block_count]
    block.start = at
    block.oldest = INT64_MOST
    block.newest = INT64_LEAST
    entry.block_count += 1
    return block


cdef void times_doubt(FileTimes *entry) noexcept nogil:
    """The last block has damage, which a scan is to meet: it is never skipped."""
    if entry.block_count:
        entry.blocks[entry.block_count - 1].oldest = INT64_LEAST
        entry.blocks[entry.block_count - 1].newest = INT64_MOST


cdef void times_reset(FileTimes *entry) noexcept nogil:
    """Forget what was walked."""
    entry.until = entry.start
    entry.oldest = INT64_MOST
    entry.newest = INT64_LEAST
    entry.back = 0
    entry.block_count = 0


cdef bint times_are_stale(Store *store, const FileTimes *entry) noexcept nogil:
    """Whether the last walked record is gone: an owner's recovery cut the log, then appended."""
    cdef char head[RECORD_HEAD_BYTES]
    return not store.writable and (
        log_bytes(store, entry.last_record.physical_offset, RECORD_HEAD_BYTES, head)
        != RECORD_HEAD_BYTES or not head_is_of(head, &entry.last_record))


cdef void times_walk(Store *store, FileTimes *entry, int64_t stop) noexcept nogil:
    """Extend an entry to the file's records below ``stop``, without damage.  Under the lock."""
    cdef Cursor cursor
    cdef Record record
    cdef const char *data
    cdef BlockTimes *block
    cdef int64_t block_bytes = max(
        <int64_t>BLOCK_LEAST, min(store.log.file_size // FILE_BLOCKS, BLOCK_BYTES))
    cdef int64_t time
    cdef int64_t rc = 1
    stop = min(stop, entry.start + store.log.file_size)
    if entry.until >= stop:
        return
    if entry.block_count and times_are_stale(store, entry):
        times_reset(entry)
    cursor_init(&cursor, store, entry.until, stop)
    cursor.check_crc = False
    cursor.in_place = not store.writable
    while rc > 0:
        rc = cursor_next(&cursor, &record, &data)
        if rc == E_CORRUPT:
            times_doubt(entry)
            rc = cursor_resync(&cursor)
        elif rc > 0 and not cursor_changed(&cursor, &record, data):
            time = record.store_timestamp
            block = times_block(entry, record.physical_offset, block_bytes)
            if block != NULL:
                block.oldest = min(block.oldest, time)
                block.newest = max(block.newest, time)
            entry.last = time
            entry.last_record = record
            entry.oldest = min(entry.oldest, time)
            entry.newest = max(entry.newest, time)
            entry.back = max(entry.back, entry.newest - time)
    if rc < 0:                               # unreadable: it may have any time
        entry.oldest = INT64_LEAST
        entry.newest = INT64_MOST
        entry.back = INT64_MOST
        times_doubt(entry)
    cursor_close(&cursor)
    entry.until = stop


cdef bint log_is_walked(Store *store, int64_t head) noexcept nogil:
    """Whether the times of all records are known."""
    return head - log_first(store) <= TIMES_WALKED


cdef FileTimes *times_of(Store *store, int64_t index, int64_t head) noexcept nogil:
    """Current entry of a log file, valid until the next call; NULL: none.  Under the lock."""
    cdef int64_t start = file_set_start_of(&store.log, index) if index >= 0 else E_NOT_FOUND
    cdef FileTimes *entry
    if start < 0 or start >= head:
        return NULL
    entry = times_entry(store, start)
    if entry != NULL and log_is_walked(store, head):
        times_walk(store, entry, head)
    return entry


cdef inline bint times_are_whole(
    const Store *store, const FileTimes *entry, int64_t head,
) noexcept nogil:
    """Whether an entry covers all records of its file below ``head``."""
    return entry.until >= min(head, entry.start + store.log.file_size)


cdef int64_t margin_below(int64_t time, int64_t margin) noexcept nogil:
    return time - margin if time > INT64_LEAST + margin else INT64_LEAST


cdef int64_t margin_above(int64_t time, int64_t margin) noexcept nogil:
    return time + margin if time < INT64_MOST - margin else INT64_MOST


cdef void times_bounds(
    Store *store, int64_t index, int64_t head, int64_t *oldest, int64_t *newest,
) noexcept nogil:
    """Bounds of the store times of a file's records, by the rules above.  Under the lock."""
    cdef FileTimes *entry = times_of(store, index, head)
    cdef int64_t time, before, after
    oldest[0] = INT64_LEAST
    newest[0] = INT64_MOST
    if entry == NULL:
        return
    if times_are_whole(store, entry, head):
        oldest[0] = entry.oldest
        newest[0] = entry.newest
        return
    time = entry.first
    entry = times_of(store, index + 1, head)
    after = INT64_LEAST if entry == NULL else entry.first
    entry = times_of(store, index - 1, head)
    before = INT64_LEAST if entry == NULL else entry.first
    if time == INT64_LEAST:
        return
    if index == 0 or before > INT64_LEAST:
        oldest[0] = margin_below(min(time, before if index else time), CLOCK_STEP_MS)
        if after > INT64_LEAST:
            oldest[0] = min(oldest[0], margin_below(after, CLOCK_STEP_MS))
    if after > INT64_LEAST:
        newest[0] = margin_above(max(time, after), CLOCK_STEP_MS)


cdef int64_t files_back(Store *store, int64_t head, int64_t *leapt) noexcept nogil:
    """Most ms by which a record below ``head`` is older than an earlier record.  Under the lock.

    INT64_MOST: unbounded.  ``leapt``: start of the file in or after which the clock went back.
    """
    cdef FileTimes *entry
    cdef int64_t i, begins, ends
    cdef bint walked = log_is_walked(store, head)
    cdef int64_t before = INT64_LEAST        # the newest time known of the files before
    cdef int64_t start = -1
    cdef int64_t back = 0 if walked else CLOCK_STEP_MS
    for i in range(file_set_count(&store.log)):
        entry = times_of(store, i, head)
        if entry == NULL:
            continue
        begins = ends = entry.first
        if entry.oldest <= entry.newest:
            begins = entry.oldest
            ends = entry.newest
        if begins > INT64_LEAST and begins < before:
            leapt[0] = start
            if not walked:
                return INT64_MOST
            back = max(back, before - begins)
        start = entry.start
        if entry.back == INT64_MOST:
            leapt[0] = start
            return INT64_MOST
        back = max(back, entry.back)
        before = max(before, ends)
    return back


cdef int64_t times_back(Store *store, int64_t stop) noexcept nogil:
    """Most ms that a record below ``stop`` is older than an earlier one; INT64_MOST: unknown."""
    cdef LogTimes *times = &store.times
    cdef int64_t first = log_first(store)
    cdef int64_t back = INT64_MOST
    if atomic_get(&times.known_until) >= stop:
        return atomic_get(&times.back)
    lock_take(&times.lock)
    if times.leapt < first:
        times_forget(times, first)
        times.leapt = -1
        back = files_back(store, stop, &times.leapt)
        if back < INT64_MOST:
            times.leapt = -1
            if log_is_walked(store, stop):   # first, as it holds for less as well
                atomic_set(&times.back, back)
                atomic_set(&times.known_until, INT64_MOST if store.writable else stop)
    lock_give(&times.lock)
    return back


cdef void times_narrow(
    Store *store, int64_t since, int64_t until, int64_t head, int64_t *at, int64_t *stop,
) noexcept nogil:
    """Drop files and blocks at both ends of [at, stop) without records of [since, until)."""
    cdef int64_t count = file_set_count(&store.log)
    cdef int64_t i = 0
    cdef int64_t leapt = -1
    cdef int64_t start, oldest, newest
    if since == INT64_LEAST and until == INT64_MOST:
        return
    lock_take(&store.times.lock)
    times_forget(&store.times, log_first(store))
    if not log_is_walked(store, head) and files_back(store, head, &leapt) == INT64_MOST:
        lock_give(&store.times.lock)
        return
    while since > INT64_LEAST and i < count:
        start = file_set_start_of(&store.log, i)
        if start < 0 or start >= stop[0]:
            break
        if start + store.log.file_size > at[0]:
            times_bounds(store, i, head, &oldest, &newest)
            if newest >= since:
                break
            at[0] = min(start + store.log.file_size, stop[0])
        i += 1
    i = count
    while until < INT64_MOST and i > 0:
        i -= 1
        start = file_set_start_of(&store.log, i)
        if start >= stop[0]:
            continue
        if start < 0 or start + store.log.file_size <= at[0]:
            break
        times_bounds(store, i, head, &oldest, &newest)
        if oldest < until:
            break
        stop[0] = max(start, at[0])
    if log_is_walked(store, head) and at[0] < stop[0]:
        times_skip_older(store, since, head, at, stop[0])
        times_skip_newer(store, until, head, at[0], stop)
    lock_give(&store.times.lock)


cdef FileTimes *times_blocks(Store *store, int64_t offset, int64_t head) noexcept nogil:
    """Entry of the file with ``offset`` if its blocks cover it; else NULL.  Under the lock."""
    cdef LogTimes *times = &store.times
    cdef int64_t start = offset - offset % store.log.file_size
    cdef int64_t i = times_find(times, start)
    cdef FileTimes *entry
    if i == times.count or times.files[i].start != start:
        return NULL
    entry = &times.files[i]
    if entry.block_count == 0 or entry.blocks[0].start != start \
            or not times_are_whole(store, entry, head):
        return NULL
    if times_are_stale(store, entry):
        times_reset(entry)
        return NULL
    return entry


cdef void times_skip_older(
    Store *store, int64_t since, int64_t head, int64_t *at, int64_t stop,
) noexcept nogil:
    """Raise ``at`` past the blocks of its file that are older than ``since``.  Under the lock."""
    cdef FileTimes *entry = times_blocks(store, at[0], head)
    cdef int64_t end
    cdef int64_t i = 0
    while entry != NULL and i < entry.block_count:
        end = entry.blocks[i + 1].start if i + 1 < entry.block_count else entry.until
        if end > at[0]:
            if entry.blocks[i].newest >= since:
                break
            at[0] = min(end, stop)
        i += 1


cdef void times_skip_newer(
    Store *store, int64_t until, int64_t head, int64_t at, int64_t *stop,
) noexcept nogil:
    """Lower ``stop`` below the blocks of its file from ``until`` on.  Under the lock."""
    cdef FileTimes *entry = times_blocks(store, stop[0] - 1, head) if stop[0] > at else NULL
    cdef int64_t i = 0 if entry == NULL or until == INT64_MOST else entry.block_count
    while i > 0:
        i -= 1
        if entry.blocks[i].start < stop[0]:
            if entry.blocks[i].oldest < until:
                break
            stop[0] = max(entry.blocks[i].start, at)
