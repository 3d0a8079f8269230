# Queue offset by store time: bisection over units and their records' heads, then a linear search
# through as much time as the clock went back by.
#
# Searches between the same ends begin with the same records, each of which misses the processor's
# caches.  So their times are cached for a moment; each search reads the two deciding records
# itself.
#
# Source: store/ConsumeQueue.java getOffsetInQueueByTime

cdef enum:
    TIME_HEAD_BYTES = 76         # of a record, store time included
    MEMO_NODES = 4096            # 12 levels
    MEMO_AFTER = 4               # searches between the same ends
    MEMO_NS = 100000000          # delay until a live owner's rewrites are seen

    TIME_FIRST_LATER             # first message stored later
    TIME_AFTER_LAST              # after the last one stored until then

    TIMES_A_SLICE = 1 << 17      # messages that are read without a look at signals


# Files last used by a search.
cdef struct TimeSearch:
    Store *store
    Queue *queue
    MappedFile *units
    MappedFile *log
    int64_t bad_offset           # log offset of a bad record
    int64_t field                # FIELD_UNIT: bad_offset is the unit's byte in the queue
    int64_t millis               # the time searched for, in messages [low, high)
    int64_t low
    int64_t high
    int which                    # TIME_...


cdef void time_search_begin(TimeSearch *search, Store *store, Queue *queue) noexcept nogil:
    memset(search, 0, sizeof(TimeSearch))
    search.store = store
    search.queue = queue


cdef void time_search_end(TimeSearch *search) noexcept nogil:
    mapped_file_release(search.units)
    mapped_file_release(search.log)


cdef int64_t search_time(TimeSearch *search, int64_t queue_offset) noexcept nogil:
    """Store time of a queue's message; E_NOT_FOUND: removed; or a status.

    From the record's head alone if it names the unit's queue and position; else from the fully
    checked record.
    """
    cdef Store *store = search.store
    cdef Found found
    cdef Unit unit
    cdef char head[TIME_HEAD_BYTES]
    cdef int64_t time
    cdef int64_t rc = queue_unit_near(search.queue, &search.units, queue_offset, &unit)
    if rc == 0 and unit_is_blank(&unit):
        return E_NOT_FOUND
    if rc == 0 and unit.size >= TIME_HEAD_BYTES and unit.physical_offset >= 0 and not (
            store.writable and unit.physical_offset >= atomic_get(&store.log.wrote)):
        if file_set_peek_near(&store.log, &search.log, unit.physical_offset, TIME_HEAD_BYTES,
                              head) == TIME_HEAD_BYTES \
                and head_names(head, &unit, search.queue, queue_offset):
            time = get_i64(head + record_stored_at(get_i32(head + RECORD_SYS_FLAG)))
            if time >= 0:
                return time
    if rc < 0:
        return E_NOT_FOUND if rc == E_REMOVED else rc
    rc = queue_record(store, search.queue, queue_offset, &unit, &found, &search.field)
    if rc <= 0:
        return search_failed(search, queue_offset, &unit, rc)
    time = found.record.store_timestamp
    slice_release(&found.slice)
    return time if time >= 0 else E_NOT_FOUND


cdef int64_t search_failed(
    TimeSearch *search, int64_t queue_offset, const Unit *unit, int64_t status,
) noexcept nogil:
    """As search_time, for a unit without a record: its file may have been replaced."""
    if not search.store.writable and unit_changes(
            search.store, search.queue, queue_offset, unit, status, search.field):
        mapped_file_release(search.units)
        search.units = NULL
        return search_time(search, queue_offset)
    if status == E_REMOVED or status == E_NOT_FOUND:
        return E_NOT_FOUND
    search.bad_offset = unit.physical_offset
    if search.field == FIELD_UNIT:
        search.bad_offset = queue_offset * UNIT_BYTES
    return status


cdef inline bint head_names(
    const char *head, const Unit *unit, const Queue *queue, int64_t queue_offset,
) noexcept nogil:
    """Whether a record's head is the unit's message's."""
    cdef int32_t magic = get_i32(head + RECORD_MAGIC)
    return (magic == MAGIC_MESSAGE or magic == MAGIC_MESSAGE_V2) \
        and get_i32(head + RECORD_SIZE) == unit.size \
        and get_i64(head + RECORD_PHYSICAL_OFFSET) == unit.physical_offset \
        and get_i32(head + RECORD_QUEUE_ID) == queue.id \
        and get_i64(head + RECORD_QUEUE_OFFSET) == queue_offset


cdef int64_t *memo_take(Queue *queue, int64_t low, int64_t high) noexcept nogil:
    """Take the cached times of searches between these ends, to be given back; NULL: none."""
    cdef TimeMemo *memo = &queue.time_memo
    cdef const Derived *derived = load_derived(&queue.derived)
    cdef int64_t now = monotonic_ns()
    if not atomic_swap_if(&memo.busy, 0, 1):
        return NULL
    if memo.low != low or memo.high != high or memo.derived != derived:
        memo.low = low
        memo.high = high
        memo.derived = derived
        memo.searches = 0
    elif memo.searches > MEMO_AFTER and now - memo.made_at > MEMO_NS:
        memo.searches = MEMO_AFTER
    memo.searches += 1
    if memo.searches > MEMO_AFTER and memo.times == NULL:
        memo.times = <int64_t *>malloc(MEMO_NODES * sizeof(int64_t))
    if memo.searches <= MEMO_AFTER or memo.times == NULL:
        memo.searches = min(memo.searches, MEMO_AFTER)
        atomic_set(&memo.busy, 0)
        return NULL
    if memo.searches == MEMO_AFTER + 1:
        memset(memo.times, 0, MEMO_NODES * sizeof(int64_t))
        memo.made_at = now
    return memo.times


cdef void memo_give(Queue *queue, bint good) noexcept nogil:
    """Give the times back; they are used again only if ``good``."""
    if not good:
        queue.time_memo.searches = 0
    atomic_set(&queue.time_memo.busy, 0)


cdef int64_t offset_by_time(
    TimeSearch *search, int64_t millis, int64_t low, int64_t high, int which,
) noexcept nogil:
    """Queue offset between the messages of [low, high) stored until ``millis`` and later.

    If times do not ascend, ``which`` decides: the first one stored later, or the one after the last
    stored until ``millis``.  E_BUSY: continue with each_by_time.
    """
    cdef TimeMemo *memo = &search.queue.time_memo
    cdef int64_t back, at
    if low >= high or atomic_get(&memo.ascend_high) == high:
        return first_stored_after(search, millis, low, high)
    back = times_back(search.store, time_stop(search, low, high))
    if back == 0:
        atomic_set(&memo.ascend_high, high)
        return first_stored_after(search, millis, low, high)
    search.millis = millis
    search.low = low
    search.high = high
    search.which = which
    if back < INT64_MOST:
        if which == TIME_FIRST_LATER:
            at = search.low = first_stored_after(search, margin_below(millis, back), low, high)
        else:
            at = search.high = first_stored_after(search, margin_above(millis, back), low, high)
        if at < 0:
            return at
    return each_by_time(search)


cdef int64_t time_stop(TimeSearch *search, int64_t low, int64_t high) noexcept nogil:
    """End of the log for messages of [low, high)."""
    cdef Unit unit
    if search.store.writable:
        return atomic_get(&search.store.log.wrote)
    while high > low:
        high -= 1
        if queue_unit_near(search.queue, &search.units, high, &unit) == 0 \
                and not unit_is_blank(&unit):
            return min(unit.physical_offset + max(unit.size, 0), file_set_stop(&search.store.log))
    return 0


cdef int64_t each_by_time(TimeSearch *search) noexcept nogil:
    """As offset_by_time, by linear search: times in any order.

    E_BUSY after TIMES_A_SLICE messages: call again.
    """
    cdef bint upward = search.which == TIME_FIRST_LATER
    cdef int64_t time
    for _ in range(TIMES_A_SLICE):
        if search.low >= search.high:
            break
        time = search_time(search, search.low if upward else search.high - 1)
        if time < 0 and time != E_NOT_FOUND:
            return time
        if upward:
            if time > search.millis and time >= 0:
                return search.low
            search.low += 1
        else:
            if 0 <= time <= search.millis:
                return search.high
            search.high -= 1
    if search.low < search.high:
        return E_BUSY
    return search.low if upward else search.high


cdef int64_t first_stored_after(
    TimeSearch *search, int64_t millis, int64_t low, int64_t high,
) noexcept nogil:
    """First queue offset in [low, high) stored later than ``millis``, or ``high``.

    If the clock went back by up to b ms: all messages before it were stored until ``millis`` + b,
    and all from it on not before ``millis`` - b.
    """
    cdef int64_t *times = memo_take(search.queue, low, high) if low < high else NULL
    cdef int64_t rc
    cdef bint decided = True
    rc = bisect_times(search, millis, low, high, times, &decided)
    if times != NULL:
        memo_give(search.queue, decided)
    return rc if decided else bisect_times(search, millis, low, high, NULL, &decided)


cdef int64_t bisect_times(
    TimeSearch *search, int64_t millis, int64_t low, int64_t high, int64_t *times, bint *decided,
) noexcept nogil:
    """As first_stored_after, with cached ``times`` unless NULL.

    Not ``decided`` if a record next to the result contradicts its cached time.
    """
    cdef int64_t middle, probe, time
    cdef int64_t node = 1
    cdef bint remembered
    cdef bint low_remembered = False
    cdef bint high_remembered = False
    while low < high:
        middle = probe = low + (high - low) // 2
        remembered = times != NULL and node < MEMO_NODES and times[node] != 0
        if remembered:
            time = times[node] - 1
        else:
            time = search_time(search, probe)
            if times != NULL and node < MEMO_NODES and 0 <= time < INT64_MOST:
                times[node] = time + 1
        while time == E_NOT_FOUND and probe + 1 < high:  # a blank unit has no time: try the next
            probe += 1
            time = search_time(search, probe)
        if time < 0 and time != E_NOT_FOUND:
            return time
        if time < 0 or time > millis:
            high = middle
            high_remembered = remembered
            node = 2 * node
        else:
            low = probe + 1
            low_remembered = remembered
            node = 2 * node + 1
    if low_remembered:
        time = search_time(search, low - 1)
        decided[0] = 0 <= time <= millis
    if high_remembered and decided[0]:
        decided[0] = search_time(search, low) > millis
    return low
