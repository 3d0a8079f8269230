# getMessage: statuses, filters, next offset.
#
# Source: store/DefaultMessageStore.java getMessage

cdef enum:
    GET_FOUND
    GET_NO_MATCHED_MESSAGE
    GET_MESSAGE_WAS_REMOVING
    GET_OFFSET_FOUND_NULL
    GET_OFFSET_OVERFLOW_BADLY
    GET_OFFSET_OVERFLOW_ONE
    GET_OFFSET_TOO_SMALL
    GET_NO_MATCHED_LOGIC_QUEUE
    GET_NO_MESSAGE_IN_QUEUE

    FILTER_SCAN_BYTES = 16000
    GET_UNITS = 512              # read at a time

cdef struct Got:
    Found *items
    int64_t count
    int64_t room
    int64_t status
    int64_t next_offset
    int64_t min_offset
    int64_t max_offset
    int64_t stop                 # end of the search, a queue offset
    int64_t bytes                # of the records found
    int64_t bad_offset           # log offset of a bad record
    Queue *queue                 # the queue read; NULL: none
    MappedFile *ext_near         # the ext file read last
    bint unit_is_bad             # it points elsewhere; bad_offset is its byte in the queue
    bint paused                  # the filter's work limit was reached: call again to go on
    bint removed                 # a removed record was passed over
    bint at_once                 # do not wait for earlier puts: set by the caller
    bint head_asked              # earlier puts were waited for, or the files refreshed
    int64_t field
    int64_t passed_over          # log offset of damage that may hide a key, plus 1; 0: none
    int64_t passed_field


cdef int64_t got_add(Got *got, const Found *found) noexcept nogil:
    cdef Found *grown
    grown = <Found *>array_with_room(got.items, &got.room, got.count, sizeof(Found))
    if grown == NULL:
        return E_NO_MEMORY
    got.items = grown
    got.items[got.count] = found[0]
    got.count += 1
    return 0


cdef int64_t got_reserve(Got *got, int64_t count) noexcept nogil:
    """Make room for ``count`` at once: each growth of the array may move it."""
    cdef Found *grown
    if count <= got.room:
        return 0
    grown = <Found *>realloc(got.items, <size_t>count * sizeof(Found))
    if grown == NULL:
        return E_NO_MEMORY
    got.items = grown
    got.room = count
    return 0


cdef void got_clear(Got *got) noexcept nogil:
    cdef int64_t i
    for i in range(got.count):
        slice_release(&got.items[i].slice)
    free(got.items)
    got.items = NULL
    got.count = 0


cdef int64_t get_messages(
    Store *store, Queue *queue, int64_t offset, int64_t max_messages, int64_t max_bytes,
    MessageFilter *filter, Got *got,
) noexcept nogil:
    """Fill ``got``; 0, or E_CORRUPT with ``got.bad_offset`` and ``got.field``, or another status.

    ``queue`` NULL is an unknown queue.  With ``got.paused`` set, the result is one of fewer
    units; another call with the same arguments goes on.
    """
    cdef MappedFile *near = NULL
    cdef int64_t rc = get_each(
        store, &near, queue, offset, max_messages, max_bytes, filter, got)
    mapped_file_release(near)
    mapped_file_release(got.ext_near)
    got.ext_near = NULL
    return rc


cdef int64_t get_each(
    Store *store, MappedFile **near, Queue *queue, int64_t offset, int64_t max_messages,
    int64_t max_bytes, MessageFilter *filter, Got *got,
) noexcept nogil:
    """As get_messages; ``near``: the last log file read, released by the caller."""
    cdef Slice units
    cdef Unit unit
    cdef Found found
    cdef int64_t at, rc, i
    cdef int64_t n = 0
    if got.paused:
        got.paused = False
        got.status = GET_FOUND
        at = got.next_offset
    else:
        rc = queue_bounds(store, queue, offset + max_messages, got)
        if rc < 0 or got.status != GET_FOUND:
            return rc
        if not get_offset_inside(offset, got):
            return 0
        at = offset
        got.stop = INT64_MOST
        if filter.active:
            got.stop = offset + max(FILTER_SCAN_BYTES, 20 * max_messages) // UNIT_BYTES
    filter.work = 0
    while at < got.stop and got.count < max_messages and not got.paused:
        if at >= got.max_offset and not queue_has_grown(store, queue, got):
            break
        n = min(min(got.stop, got.max_offset) - at, <int64_t>GET_UNITS)
        if not filter.active:
            n = min(n, max_messages - got.count)
        n = queue_units(queue, at, n, &units)
        if n <= 0:
            slice_release(&units)
            if n < 0 and n != E_REMOVED and n != E_NOT_FOUND:
                return n
            if get_removed(store, queue, at, got):
                return 0
            if got.count:
                break
            if queue_file_is_missing(queue, at):
                got.unit_is_bad = True
                got.bad_offset = at * UNIT_BYTES
                got.field = FIELD_MISSING
                return E_CORRUPT
            got.status = GET_OFFSET_FOUND_NULL
            got.next_offset = got.max_offset
            return 0
        for i in range(n):
            if got.count >= max_messages or got.paused:
                break
            unit_read(units.data + i * UNIT_BYTES, &unit)
            # An empty one's code says nothing.
            if unit.size > 0 and not unit_passes(
                    &filter.tags, queue, &got.ext_near, unit.tags_code):
                at += 1
                continue
            if got.count and got.bytes + unit.size > max_bytes:
                max_messages = got.count     # ends both loops
                break
            if unit.size <= 0 and not store.writable:
                rc = queue_ends_at(store, queue, at, got.max_offset)
                if rc == UNIT_THERE:
                    break                    # and read again
                if rc == UNIT_TAKEN_BACK:
                    slice_release(&units)
                    get_ends_at(at, got)
                    return 0
            rc = queue_record_near(store, near, queue, at, &unit, &found, &got.field)
            if unlikely(rc < 0) and not store.writable and unit_changes(
                    store, queue, at, &unit, rc, got.field):
                break                        # and is read again
            if (rc == E_REMOVED or rc == E_NOT_FOUND) and not got.removed:
                if get_removed(store, queue, at, got):
                    slice_release(&units)
                    return 0
                got.removed = True
                break                        # its file was created or made again just now
            if (rc == E_REMOVED or rc == E_NOT_FOUND) and not unit_is_blank(&unit) \
                    and log_lacks(store, unit.physical_offset):
                got.field = FIELD_MISSING
                rc = E_CORRUPT
            if rc == E_NOT_FOUND and not unit_is_inside(store, &unit):
                got.field = FIELD_UNIT
                rc = E_CORRUPT
            if rc == E_REMOVED or rc == E_NOT_FOUND:
                at += 1
                continue
            if rc < 0:
                got.unit_is_bad = rc == E_CORRUPT and got.field == FIELD_UNIT
                got.bad_offset = at * UNIT_BYTES if got.unit_is_bad else unit.physical_offset
                if slice_lost(&units) < 0:   # the unit itself was lost
                    rc = E_LOST
                slice_release(&units)
                return rc
            if not filter.active or filter_passes(filter, found.slice.data, &found.record):
                got.bytes += found.record.size
                rc = got_add(got, &found)
                if rc < 0:
                    slice_release(&found.slice)
                    slice_release(&units)
                    return rc
            else:
                slice_release(&found.slice)
            at += 1
            got.paused = filter.work >= FILTER_WORK
        rc = slice_lost(&units)
        slice_release(&units)
        if rc < 0:
            return rc
    if at >= got.max_offset:                 # else a full page would seem to be the last
        queue_has_grown(store, queue, got)
    got.next_offset = at
    if got.count == 0:
        got.status = GET_MESSAGE_WAS_REMOVING if got.removed else GET_NO_MATCHED_MESSAGE
    return 0


cdef bint queue_file_is_missing(Queue *queue, int64_t queue_offset) noexcept nogil:
    """Whether the file there is missing between two others."""
    cdef int64_t byte = queue_offset * UNIT_BYTES
    return file_set_start(&queue.files) <= byte and file_set_next_start(&queue.files, byte) > 0


# Outcome for a reader's unit that was read as empty.
cdef enum:
    UNIT_EMPTY                   # confirmed, and others follow
    UNIT_THERE                   # written by now
    UNIT_TAKEN_BACK              # with those after it


cdef int64_t queue_ends_at(
    Store *store, Queue *queue, int64_t at, int64_t stop,
) noexcept nogil:
    """Whether an owner's recovery took back the units from ``at`` on, and has not rewritten them.

    It empties and writes them in ascending order, so that meanwhile the first, the last one is
    still there.  A reader that derived units beyond them may not know of it yet.  The file may
    also be another one by now.
    """
    cdef Derived *derived = load_derived(&queue.derived)
    cdef Unit unit
    cdef int64_t rc
    cdef int64_t waits = 0
    cdef bint doubted = unit_is_doubted(queue)
    memset(&unit, 0, sizeof(Unit))
    if derived != NULL:
        stop = min(stop, derived.start)
    while True:
        if doubted and waits % TAKING_LISTS == 0:
            queue_list_now(store, queue)
        rc = queue_file_unit(queue, stop - 1, &unit)
        if rc == E_NOT_FOUND or rc == E_REMOVED or (rc == 0 and unit.size <= 0):
            return UNIT_TAKEN_BACK
        rc = queue_file_unit(queue, at, &unit)
        if rc == E_NOT_FOUND or rc == E_REMOVED or (rc == 0 and unit.size > 0):
            return UNIT_THERE
        if rc < 0 or not doubted or not unit_may_come(store, queue, waits):
            return UNIT_EMPTY
        waits += 1


cdef void get_ends_at(int64_t at, Got *got) noexcept nogil:
    """End the queue before ``at``."""
    got.max_offset = at
    got.min_offset = min(got.min_offset, at)
    got.next_offset = at
    if got.count == 0:
        got.status = GET_OFFSET_OVERFLOW_ONE


cdef bint unit_is_inside(Store *store, const Unit *unit) noexcept nogil:
    """Whether a unit points into the log, even if that file is missing."""
    return 0 <= unit.physical_offset < (
        atomic_get(&store.log.wrote) if store.writable else file_set_stop(&store.log))


cdef bint get_removed(Store *store, Queue *queue, int64_t at, Got *got) noexcept nogil:
    """Whether retention removed the record at ``at``, by a fresh minimum.

    The result then ends there, so that every reader notices the gap.
    """
    if not store.writable and queue_refresh_now(store, queue) < 0:
        return False
    got.min_offset = min(atomic_get(&queue.min_offset), got.max_offset)
    if at >= got.min_offset:
        return False
    got.next_offset = at
    if got.count == 0:
        got.status = GET_OFFSET_TOO_SMALL
        got.next_offset = got.min_offset
    return True


cdef int64_t queue_bounds(Store *store, Queue *queue, int64_t reach, Got *got) noexcept nogil:
    """Current min and max, as after ``head_met`` if a read up to ``reach`` meets the head."""
    cdef int64_t rc = 0
    got.queue = queue
    if not store.writable and queue != NULL and queue.unreadable:
        return queue.unreadable
    if queue == NULL or reach >= atomic_get(&queue.max_offset) or (
            not store.writable
            and monotonic_ns() - atomic_get(&queue.files.listed_at) > REFRESH_AFTER_NS):
        rc = head_met(store, queue, got)
        if rc < 0 and rc != -ENOENT:
            return rc
    got.status = GET_FOUND
    if queue != NULL:
        got.max_offset = atomic_get(&queue.max_offset)
        got.min_offset = min(atomic_get(&queue.min_offset), got.max_offset)
    if got.max_offset == 0:
        got.status = GET_NO_MESSAGE_IN_QUEUE
        got.next_offset = 0
    return 0


cdef int64_t head_met(Store *store, Queue *queue, Got *got) noexcept nogil:
    """At the head: wait until earlier puts are in the queue, once a call.

    Every read of a queue comes here, with any filter, before it reports the queue's end.
    A reader without the lock looks for an owner's appends instead.
    """
    got.head_asked = True
    if store.writable:
        if not got.at_once:
            wait_for_earlier_puts(store)
        return 0
    return 0 if queue == NULL else queue_refresh(store, queue, LIST_IF_OLD)


cdef bint queue_has_grown(Store *store, Queue *queue, Got *got) noexcept nogil:
    """Whether a queue has grown since the read began; its max is current then."""
    cdef int64_t known = got.max_offset
    if got.head_asked or head_met(store, queue, got) < 0:
        return False
    got.max_offset = max(known, atomic_get(&queue.max_offset))
    return got.max_offset > known


cdef bint get_offset_inside(int64_t offset, Got *got) noexcept nogil:
    """Whether there is a unit at ``offset``; else set the status and the next offset."""
    if offset < got.min_offset:
        got.status = GET_OFFSET_TOO_SMALL
        got.next_offset = got.min_offset
    elif offset == got.max_offset:
        got.status = GET_OFFSET_OVERFLOW_ONE
        got.next_offset = offset
    elif offset > got.max_offset:
        got.status = GET_OFFSET_OVERFLOW_BADLY
        got.next_offset = got.min_offset if got.min_offset == 0 else got.max_offset
    else:
        return True
    return False
