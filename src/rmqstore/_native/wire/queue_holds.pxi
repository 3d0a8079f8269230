# Pulls held for their queues, and the search for pulls that can be answered.
#
# Source: broker/longpolling/PullRequestHoldService.java

cdef struct QueueHold:
    Queue *queue                 # NULL: a free place
    int64_t offset               # the awaited offset, or of a free place the next free one


cdef struct HoldTable:
    QueueHold *holds
    int64_t count                # places used so far
    int64_t room
    int64_t held
    int64_t free_place           # -1: none


cdef int64_t holds_add(HoldTable *table, Queue *queue, int64_t offset) noexcept nogil:
    """Enter a hold; its place, or E_NO_MEMORY."""
    cdef int64_t at = table.free_place
    cdef QueueHold *grown
    if at >= 0:
        table.free_place = table.holds[at].offset
    else:
        grown = <QueueHold *>array_with_room(
            table.holds, &table.room, table.count, sizeof(QueueHold))
        if grown == NULL:
            return E_NO_MEMORY
        table.holds = grown
        at = table.count
        table.count += 1
    table.holds[at].queue = queue
    table.holds[at].offset = offset
    table.held += 1
    return at


cdef void holds_remove(HoldTable *table, int64_t at) noexcept nogil:
    """REQUIRES: the place is in use."""
    table.holds[at].queue = NULL
    table.holds[at].offset = table.free_place
    table.free_place = at
    table.held -= 1
    if table.held == 0:
        table.count = 0
        table.free_place = -1


cdef int64_t holds_next(const HoldTable *table, int64_t at) noexcept nogil:
    """First place from ``at`` on whose queue has reached its offset; -1: none."""
    cdef QueueHold *hold
    while at < table.count:
        hold = &table.holds[at]
        if hold.queue != NULL and atomic_get(&hold.queue.max_offset) > hold.offset:
            return at
        at += 1
    return -1
