# Further queues of a record by multi-dispatch, each with the record's queue offset.
#
# Names and offsets are two comma-separated lists, split as in Java: trailing empty items do not
# count.  Lists of different lengths name no queue.
#
# Source: store/ConsumeQueue.java multiDispatchLmqQueue; common/MixAll.java isLmq

cdef enum:
    LIGHT_PREFIX_BYTES = 5
    LIGHT_QUEUE_ID = 0           # the only id of a light queue

cdef const char *LIGHT_PREFIX = b"%LMQ%"


# A walk over both lists.
cdef struct MultiNames:
    const char *names
    const char *offsets
    int64_t names_length         # -1: all visited
    int64_t offsets_length


cdef struct MultiName:
    const char *name
    int64_t length
    int64_t queue_offset         # -1: no number


cdef inline bint name_is_light(const char *name, int64_t length) noexcept nogil:
    return length >= LIGHT_PREFIX_BYTES and memcmp(name, LIGHT_PREFIX, LIGHT_PREFIX_BYTES) == 0


cdef int64_t list_length(const char *text, int64_t length) noexcept nogil:
    """Length without trailing commas."""
    while length > 0 and text[length - 1] == 44:
        length -= 1
    return length


cdef int64_t list_count(const char *text, int64_t length) noexcept nogil:
    """Items of a list, empty ones included except trailing ones."""
    cdef int64_t i
    cdef int64_t count = 1
    length = list_length(text, length)
    for i in range(length):
        count += text[i] == 44
    return count if length > 0 else 0


cdef void list_next(
    const char **text, int64_t *length, const char **item, int64_t *item_length,
) noexcept nogil:
    """Take the first item, which may be empty; ``length`` becomes -1 after the last one."""
    cdef const char *end = find_byte(text[0], 44, length[0]) if length[0] > 0 else NULL
    item[0] = text[0]
    item_length[0] = end - text[0] if end != NULL else length[0]
    text[0] += item_length[0] + 1
    length[0] -= item_length[0] + 1


cdef int64_t multi_begin(const StoreProperties *properties, MultiNames *walk) noexcept nogil:
    """Begin a walk: the number of queues; 0: none, -1: lists of different lengths."""
    cdef int64_t count
    if properties.multi_dispatch.value_length <= 0 or properties.multi_offset.value_length <= 0:
        return 0
    walk.names = properties.multi_dispatch.value
    walk.offsets = properties.multi_offset.value
    walk.names_length = list_length(walk.names, properties.multi_dispatch.value_length)
    walk.offsets_length = list_length(walk.offsets, properties.multi_offset.value_length)
    count = list_count(walk.names, walk.names_length)
    return count if 0 < count == list_count(walk.offsets, walk.offsets_length) else -1


cdef bint multi_next(MultiNames *walk, MultiName *into) noexcept nogil:
    """Take the next queue, whose name may be invalid; False after the last one."""
    cdef const char *offset = NULL
    cdef int64_t length = 0
    if walk.names_length < 0 or walk.offsets_length < 0:
        return False
    list_next(&walk.names, &walk.names_length, &into.name, &into.length)
    list_next(&walk.offsets, &walk.offsets_length, &offset, &length)
    into.queue_offset = parse_decimal(offset, length)
    return True


cdef inline int32_t multi_queue_id(const MultiName *entry, int32_t queue_id) noexcept nogil:
    """Id of a queue named by a record of queue ``queue_id``."""
    return LIGHT_QUEUE_ID if name_is_light(entry.name, entry.length) else queue_id
