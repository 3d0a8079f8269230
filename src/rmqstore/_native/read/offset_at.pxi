# A queue offset by store time: bisection over the units and the heads of their records.
#
# Source: store/ConsumeQueue.java getOffsetInQueueByTime

cdef enum:
    TIME_HEAD_BYTES = 76         # of a record, which has its store time in them


# The files that a search has used last.
cdef struct TimeSearch:
    Store *store
    Queue *queue
    MappedFile *units
    MappedFile *log
    int64_t bad_offset           # log offset of a record that did not check
    int64_t field


cdef void time_search_begin(TimeSearch *search, Store *store, Queue *queue) noexcept nogil:
    memset(search, 0, sizeof(TimeSearch))
    search.store = store
    search.queue = queue


cdef void time_search_end(TimeSearch *search) noexcept nogil:
    mapped_file_release(search.units)
    mapped_file_release(search.log)


cdef int64_t search_time(TimeSearch *search, int64_t queue_offset) noexcept nogil:
    """The store time of a queue's message, E_NOT_FOUND if it is gone, or a status.

    From the record's head alone where that names the unit's queue and position; else from the
    record, with all checks.
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
    if rc == 0:
        rc = queue_record(store, search.queue, queue_offset, &unit, &found, &search.field)
    if rc == E_REMOVED or rc == E_NOT_FOUND:
        return E_NOT_FOUND
    if rc <= 0:
        search.bad_offset = unit.physical_offset
        return rc
    time = found.record.store_timestamp
    slice_release(&found.slice)
    return time if time >= 0 else E_NOT_FOUND


cdef inline bint head_names(
    const char *head, const Unit *unit, const Queue *queue, int64_t queue_offset,
) noexcept nogil:
    """Whether the beginning of a record is that of the unit's message."""
    cdef int32_t magic = get_i32(head + RECORD_MAGIC)
    return (magic == MAGIC_MESSAGE or magic == MAGIC_MESSAGE_V2) \
        and get_i32(head + RECORD_SIZE) == unit.size \
        and get_i64(head + RECORD_PHYSICAL_OFFSET) == unit.physical_offset \
        and get_i32(head + RECORD_QUEUE_ID) == queue.id \
        and get_i64(head + RECORD_QUEUE_OFFSET) == queue_offset


cdef int64_t first_stored_after(
    TimeSearch *search, int64_t millis, int64_t low, int64_t high,
) noexcept nogil:
    """The first queue offset in [low, high) stored later than ``millis``, or ``high``."""
    cdef int64_t middle, probe, time
    while low < high:
        middle = probe = low + (high - low) // 2
        time = search_time(search, probe)
        while time == E_NOT_FOUND and probe + 1 < high:  # a blank unit has no time: try the next
            probe += 1
            time = search_time(search, probe)
        if time < 0 and time != E_NOT_FOUND:
            return time
        if time < 0 or time > millis:
            high = middle
        else:
            low = probe + 1
    return low
