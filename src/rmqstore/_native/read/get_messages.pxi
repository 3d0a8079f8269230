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
    RECORDS_AHEAD = 2            # prefetched
    GOT_FIRST = 4                # records to make room for at first: queries find few

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
    bint paused                  # the filter's work limit was reached: call again
    bint removed                 # a removed record was passed over
    bint at_once                 # do not wait for earlier puts: set by the caller
    bint head_asked              # earlier puts were waited for, or the files refreshed
    int64_t field
    int64_t passed_over          # log offset of damage that may hide a key, plus 1; 0: none
    int64_t passed_field


cdef int64_t got_reserve(Got *got, int64_t count) noexcept nogil:
    """Make room for ``count`` messages at once: each growth of the array may move it."""
    cdef Found *grown
    if count <= got.room:
        return 0
    grown = <Found *>realloc(got.items, <size_t>count * sizeof(Found))
    if grown == NULL:
        return E_NO_MEMORY
    got.items = grown
    got.room = count
    return 0


cdef int64_t got_add(Got *got, const Found *found) noexcept nogil:
    if got.count == got.room and got_reserve(got, max(GOT_FIRST, 4 * got.room)) < 0:
        return E_NO_MEMORY
    got.items[got.count] = found[0]
    got.count += 1
    return 0


cdef void got_clear(Got *got) noexcept nogil:
    cdef int64_t i
    for i in range(got.count):
        slice_release(&got.items[i].slice)
    free(got.items)
    got.items = NULL
    got.count = 0


# Outcome for a reader's unit that was read as empty.
cdef enum:
    UNIT_EMPTY                   # confirmed, and others follow
    UNIT_THERE                   # written meanwhile
    UNIT_TAKEN_BACK              # together with all units after it

# Next action after a step of a read; a failure is a status.
cdef enum:
    READ_ON                      # the next unit
    READ_AGAIN                   # the same unit, from its file
    READ_STOPS                   # the messages found so far are the result
    READ_ENDED                   # the result, with its status and next offset, is complete

# A read of a queue.
cdef struct Reading:
    Store *store
    Queue *queue
    MessageFilter *filter
    Got *got                     # the result so far
    MappedFile *near             # the log file read last
    int64_t at                   # queue offset of the next unit
    int64_t max_messages
    int64_t max_bytes


cdef int64_t get_messages(
    Store *store, Queue *queue, int64_t offset, int64_t max_messages, int64_t max_bytes,
    MessageFilter *filter, Got *got,
) noexcept nogil:
    """Fill ``got``; 0, or E_CORRUPT with ``got.bad_offset`` and ``got.field``, or another status.

    ``queue`` NULL: unknown queue.  If ``got.paused``, fewer units were read; call again with the
    same arguments.
    """
    cdef Reading reading = Reading(
        store, queue, filter, got, NULL, offset, max_messages, max_bytes)
    cdef int64_t rc = read_begin(&reading)
    if rc == READ_ON:
        rc = read_units(&reading)
    mapped_file_release(reading.near)
    mapped_file_release(got.ext_near)
    got.ext_near = NULL
    return min(rc, 0)


cdef int64_t read_begin(Reading *reading) noexcept nogil:
    """Find the queue's bounds, and where the search begins and stops."""
    cdef Got *got = reading.got
    cdef int64_t rc
    reading.filter.work = 0
    if got.paused:
        got.paused = False
        got.status = GET_FOUND
        reading.at = got.next_offset
        return READ_ON
    rc = queue_bounds(reading.store, reading.queue, reading.at + reading.max_messages, got)
    if rc < 0:
        return rc
    if got.status != GET_FOUND or not get_offset_inside(reading.at, got):
        return READ_ENDED
    got.stop = INT64_MOST
    if reading.filter.active:
        got.stop = reading.at + max(FILTER_SCAN_BYTES, 20 * reading.max_messages) // UNIT_BYTES
    return READ_ON


cdef int64_t read_units(Reading *reading) noexcept nogil:
    """Read units and their records up to a limit: 0 or a status."""
    cdef Got *got = reading.got
    cdef Slice units
    cdef int64_t count
    cdef int64_t rc = READ_ON
    while reading.at < got.stop and got.count < reading.max_messages and not got.paused:
        if reading.at >= got.max_offset \
                and not queue_has_grown(reading.store, reading.queue, got):
            break
        count = read_run(reading, &units, &rc)
        if count:
            rc = read_records(reading, &units, count)
            if rc != READ_ENDED and slice_lost(&units) < 0:
                rc = E_LOST
        slice_release(&units)
        if rc == READ_STOPS:
            break
        if rc == READ_ENDED or rc < 0:
            return rc
    if reading.at >= got.max_offset:         # else a full page would seem to be the last
        queue_has_grown(reading.store, reading.queue, got)
    got.next_offset = reading.at
    if got.count == 0:
        got.status = GET_MESSAGE_WAS_REMOVING if got.removed else GET_NO_MATCHED_MESSAGE
    return 0


cdef int64_t read_run(Reading *reading, Slice *units, int64_t *rc) noexcept nogil:
    """Number of the next units, in a slice to release; at 0 ``rc`` is the reason."""
    cdef Got *got = reading.got
    cdef int64_t count = min(min(got.stop, got.max_offset) - reading.at, <int64_t>GET_UNITS)
    if not reading.filter.active:
        count = min(count, reading.max_messages - got.count)
    count = queue_units(reading.queue, reading.at, count, units)
    if likely(count > 0):
        return count
    rc[0] = READ_ENDED
    if count < 0 and count != E_REMOVED and count != E_NOT_FOUND:
        rc[0] = count
    elif get_removed(reading.store, reading.queue, reading.at, got):
        return 0
    elif got.count:
        rc[0] = READ_STOPS
    elif queue_file_is_missing(reading.queue, reading.at):
        got.unit_is_bad = True
        got.bad_offset = reading.at * UNIT_BYTES
        got.field = FIELD_MISSING
        rc[0] = E_CORRUPT
    else:
        got.status = GET_OFFSET_FOUND_NULL
        got.next_offset = got.max_offset
    return 0


cdef inline int64_t read_records(
    Reading *reading, const Slice *units, int64_t count,
) noexcept nogil:
    """Read the records of units up to a limit."""
    cdef Got *got = reading.got
    cdef Unit unit
    cdef int64_t i, rc
    for i in range(count):
        if got.count >= reading.max_messages or got.paused:
            break
        if i + RECORDS_AHEAD < count and not reading.filter.active:
            unit_read(units.data + (i + RECORDS_AHEAD) * UNIT_BYTES, &unit)
            mapped_file_fetch(reading.near, unit.physical_offset, unit.size)
        unit_read(units.data + i * UNIT_BYTES, &unit)
        # An empty unit's code is meaningless.
        if unit.size <= 0 or unit_passes(
                &reading.filter.tags, reading.queue, &got.ext_near, unit.tags_code):
            rc = read_record(reading, &unit)
            if rc != READ_ON:
                return rc
        reading.at += 1
    return READ_ON


cdef inline int64_t read_record(Reading *reading, const Unit *unit) noexcept nogil:
    """Read the record of the unit at ``reading.at``, and add it if it passes the filter."""
    cdef Store *store = reading.store
    cdef Got *got = reading.got
    cdef Found found
    cdef int64_t rc
    if got.count and got.bytes + unit.size > reading.max_bytes:
        return READ_STOPS
    if unit.size <= 0 and not store.writable:
        rc = queue_ends_at(store, reading.queue, reading.at, got.max_offset)
        if rc == UNIT_THERE:
            return READ_AGAIN
        if rc == UNIT_TAKEN_BACK:
            get_ends_at(reading.at, got)
            return READ_ENDED
    rc = queue_record_near(
        store, &reading.near, reading.queue, reading.at, unit, &found, &got.field)
    if unlikely(rc < 0):
        return read_refused(reading, unit, rc)
    if reading.filter.active \
            and not filter_passes(reading.filter, found.slice.data, &found.record):
        slice_release(&found.slice)
    else:
        got.bytes += found.record.size
        rc = got_add(got, &found)
        if rc < 0:
            slice_release(&found.slice)
            return rc
    got.paused = reading.filter.work >= FILTER_WORK
    return READ_ON


cdef int64_t read_refused(Reading *reading, const Unit *unit, int64_t rc) noexcept nogil:
    """Next action after a unit whose record cannot be read, with the status ``rc``."""
    cdef Store *store = reading.store
    cdef Queue *queue = reading.queue
    cdef Got *got = reading.got
    if not store.writable and unit_changes(store, queue, reading.at, unit, rc, got.field):
        return READ_AGAIN
    if rc == E_REMOVED or rc == E_NOT_FOUND:
        if not got.removed:
            if get_removed(store, queue, reading.at, got):
                return READ_ENDED
            got.removed = True
            return READ_AGAIN                # its file was created or made again just now
        if not unit_is_blank(unit) and log_lacks(store, unit.physical_offset):
            got.field = FIELD_MISSING
        elif rc == E_NOT_FOUND and not unit_is_inside(store, unit):
            got.field = FIELD_UNIT
        else:
            return READ_ON
        rc = E_CORRUPT
    got.unit_is_bad = rc == E_CORRUPT and got.field == FIELD_UNIT
    got.bad_offset = reading.at * UNIT_BYTES if got.unit_is_bad else unit.physical_offset
    return rc


cdef bint queue_file_is_missing(Queue *queue, int64_t queue_offset) noexcept nogil:
    """Whether the queue file at ``at`` is missing between two others."""
    cdef int64_t byte = queue_offset * UNIT_BYTES
    return file_set_start(&queue.files) <= byte and file_set_next_start(&queue.files, byte) > 0


cdef int64_t queue_ends_at(
    Store *store, Queue *queue, int64_t at, int64_t stop,
) noexcept nogil:
    """State of an empty unit, UNIT_...: an owner's recovery may have taken back the units from it.

    It empties and rewrites them in ascending order: the last one may still exist.  A reader that
    derived units beyond may not know of it yet, and the file may have been replaced.
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

    If so, end the result there: every reader notices the gap.
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
    """Current min and max; as after head_met if a read up to ``reach`` meets the head."""
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
    """Before a read reports the queue's end, once a call: wait until earlier puts are in the queue.

    A read-only store looks for an owner's appends instead.
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
