# Memory of columns, kept for the next batches while there is a scan.
#
# A thread's malloc returns large blocks to the system as soon as a reader releases a batch, and the
# faults of the next one cost as much as its rows.  Kept blocks have a power of two of bytes; a slot
# is taken or filled in one step.  RocketMQ has none.

cdef enum:
    KEPT_BITS = 16               # blocks of 64 KiB and more
    KEPT_CLASSES = 9
    KEPT_LARGEST = 16 << 20
    KEPT_SLOTS = 8               # of a class
    KEPT_MOST = 64 << 20         # bytes of all

cdef atomic_i64[KEPT_CLASSES * KEPT_SLOTS] kept_blocks           # their addresses; 0: none
cdef atomic_i64 kept_bytes
cdef atomic_i64 kept_scans       # that may use them


cdef inline int64_t output_room(int64_t bytes) noexcept nogil:
    """Room to ask for: of blocks that are kept a power of two."""
    cdef int64_t room = 1 << KEPT_BITS
    if bytes < room or bytes > KEPT_LARGEST:
        return bytes
    while room < bytes:
        room <<= 1
    return room


cdef inline int64_t kept_class(int64_t room) noexcept nogil:
    """Class of blocks of exactly so many bytes; -1: none is kept."""
    cdef int64_t number = 0
    while number < KEPT_CLASSES and (<int64_t>1 << (KEPT_BITS + number)) < room:
        number += 1
    return number if number < KEPT_CLASSES \
        and (<int64_t>1 << (KEPT_BITS + number)) == room else -1


cdef char *output_take(int64_t room) noexcept nogil:
    """A kept block of exactly ``room`` bytes; NULL: there is none."""
    cdef int64_t number = kept_class(room)
    cdef int64_t i, block
    if number < 0:
        return NULL
    for i in range(number * KEPT_SLOTS, (number + 1) * KEPT_SLOTS):
        block = atomic_get(&kept_blocks[i])
        if block != 0 and atomic_swap_if(&kept_blocks[i], block, 0):
            atomic_add(&kept_bytes, -room)
            return <char *><size_t>block
    return NULL


cdef void output_give(char *data, int64_t room) noexcept nogil:
    """Keep a block of ``room`` bytes for ``output_take``, or free it."""
    cdef int64_t number = kept_class(room) if data != NULL else -1
    cdef int64_t i
    if number >= 0 and atomic_get(&kept_scans) > 0 \
            and atomic_get(&kept_bytes) + room <= KEPT_MOST:
        for i in range(number * KEPT_SLOTS, (number + 1) * KEPT_SLOTS):
            if atomic_get(&kept_blocks[i]) == 0 \
                    and atomic_swap_if(&kept_blocks[i], 0, <int64_t><size_t>data):
                atomic_add(&kept_bytes, room)
                return
    free(data)


cdef void output_begin() noexcept nogil:
    """A scan begins that may use the blocks."""
    atomic_add(&kept_scans, 1)


cdef void output_end() noexcept nogil:
    """It ended: the last one frees them."""
    cdef int64_t i, block
    atomic_add(&kept_scans, -1)
    if atomic_get(&kept_scans) > 0:
        return
    for i in range(KEPT_CLASSES * KEPT_SLOTS):
        block = atomic_get(&kept_blocks[i])
        if block != 0 and atomic_swap_if(&kept_blocks[i], block, 0):
            atomic_add(&kept_bytes, -(<int64_t>1 << (KEPT_BITS + i // KEPT_SLOTS)))
            free(<void *><size_t>block)
