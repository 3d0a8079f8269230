# Thread of the core: sleeps until there is work, wakes at once, stops on request.
#
# It touches no Python object.  Publishers of work call worker_wake, a single load while the worker
# is awake: it announces its sleep before it checks for work once more.
#
# Source: common/ServiceThread.java

cdef enum:
    WAITER_CHECK_NS = 500000000      # how often a waiter at a gate checks unwoken
    CALLS_CHECK_US = 200             # how often a close looks for calls in progress


cdef struct Worker:
    Lock lock
    pthread_cond_t cond
    pthread_t thread
    atomic_i64 sleeping
    atomic_i64 calls             # wake-ups requested
    bint started


cdef int64_t worker_init(Worker *worker) noexcept nogil:
    memset(worker, 0, sizeof(Worker))
    lock_init(&worker.lock, LOCK_WORKER)
    return -cond_init_monotonic(&worker.cond)


cdef void worker_destroy(Worker *worker) noexcept nogil:
    pthread_cond_destroy(&worker.cond)
    lock_destroy(&worker.lock)


cdef inline void worker_wake(Worker *worker) noexcept nogil:
    """Wake the worker after work was published with atomic_set_strict."""
    if unlikely(atomic_get_strict(&worker.sleeping) != 0):
        lock_take(&worker.lock)
        # One wake-up is enough: a waiter whose ``sleeping`` is 0 has a signal on its way.
        atomic_set_strict(&worker.sleeping, 0)
        lock_give(&worker.lock)
        # After the unlock: otherwise the thread wakes only to wait for the lock.
        pthread_cond_signal(&worker.cond)


cdef inline void worker_call(Worker *worker) noexcept nogil:
    """Make the worker run once more, even before its time."""
    atomic_add(&worker.calls, 1)
    worker_wake(worker)


cdef void worker_sleep(
    Worker *worker, atomic_i64 *watched, int64_t seen, int64_t calls_seen, int64_t ns,
) noexcept nogil:
    """Sleep at most ``ns``, unless ``watched`` or the calls have changed."""
    lock_take(&worker.lock)
    atomic_set_strict(&worker.sleeping, 1)
    if atomic_get_strict(watched) == seen and atomic_get_strict(&worker.calls) == calls_seen:
        cond_wait_ns(&worker.cond, &worker.lock.mutex, ns)
    atomic_set_strict(&worker.sleeping, 0)
    lock_give(&worker.lock)


# Callers waiting for a position to be reached.
cdef struct Gate:
    Lock lock
    pthread_cond_t cond
    atomic_i64 waiting


cdef int64_t gate_init(Gate *gate) noexcept nogil:
    memset(gate, 0, sizeof(Gate))
    lock_init(&gate.lock, LOCK_GATE)
    return -cond_init_monotonic(&gate.cond)


cdef void gate_destroy(Gate *gate) noexcept nogil:
    pthread_cond_destroy(&gate.cond)
    lock_destroy(&gate.lock)


cdef inline void gate_open(Gate *gate) noexcept nogil:
    """Wake all waiters; after the position was set with atomic_set_strict."""
    if atomic_get_strict(&gate.waiting) > 0:
        lock_take(&gate.lock)                # passes once waiters before their sleep are asleep
        lock_give(&gate.lock)
        # After the unlock: otherwise each waiter wakes only to wait for the lock.
        pthread_cond_broadcast(&gate.cond)


cdef int64_t gate_wait(
    Gate *gate, atomic_i64 *position, int64_t target, atomic_i64 *broken, int64_t until_ns,
) noexcept nogil:
    """Wait until ``position`` reaches ``target``: 0, E_TIMEOUT, or the status in ``broken``."""
    cdef int64_t rc = 0
    cdef int64_t left
    lock_take(&gate.lock)
    atomic_add(&gate.waiting, 1)
    while atomic_get_strict(position) < target:
        rc = atomic_get(broken)
        if rc != 0:
            break
        left = until_ns - monotonic_ns()
        if left <= 0:
            rc = E_TIMEOUT
            break
        cond_wait_ns(&gate.cond, &gate.lock.mutex, min(left, WAITER_CHECK_NS))
    atomic_add(&gate.waiting, -1)
    lock_give(&gate.lock)
    return rc


cdef void wait_for_calls(atomic_i64 *in_use) noexcept nogil:
    """Wait for the calls in progress; new ones must be refused by now."""
    while atomic_get_strict(in_use) > 0:
        usleep(CALLS_CHECK_US)
