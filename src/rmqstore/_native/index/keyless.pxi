# Ranges of the log outside all index files that are known to be keyless.
#

cdef enum:
    KEYLESS_RANGES = 64

# Each range was walked once.
cdef struct Keyless:
    Lock lock
    int64_t count
    int64_t starts[KEYLESS_RANGES]
    int64_t stops[KEYLESS_RANGES]


cdef int64_t keyless_until(Keyless *keyless, int64_t start) noexcept nogil:
    """Log offset up to which the log is known to be keyless from ``start`` on."""
    cdef int64_t until = start
    cdef int64_t i
    lock_take(&keyless.lock)
    for i in range(keyless.count):
        if keyless.starts[i] <= start:
            until = max(until, keyless.stops[i])
    lock_give(&keyless.lock)
    return until


cdef bint uncovered_is_keyless(Keyless *keyless, int64_t start, int64_t stop) noexcept nogil:
    """Whether a range is known to be keyless."""
    return keyless_until(keyless, start) >= stop


cdef void note_keyless(Keyless *keyless, int64_t start, int64_t stop) noexcept nogil:
    cdef int64_t i
    if stop <= start:
        return
    lock_take(&keyless.lock)
    for i in range(keyless.count):
        if keyless.starts[i] <= start <= keyless.stops[i]:
            keyless.stops[i] = max(keyless.stops[i], stop)
            lock_give(&keyless.lock)
            return
    if keyless.count < KEYLESS_RANGES:
        keyless.starts[keyless.count] = start
        keyless.stops[keyless.count] = stop
        keyless.count += 1
    lock_give(&keyless.lock)
