# Turn: a lock whose holder may run Python code, and so signal handlers and finalizers that take any
# other turn.  Turns have no order, a holder has no lock of the core, and a wait that would deadlock
# on its own thread is refused.

cdef struct Turn:
    atomic_i64 holder            # the thread whose turn it is, 0: none


# A waiting thread; lives on its stack.
cdef struct TurnWaiter:
    int64_t thread
    const Turn *turn
    TurnWaiter *next


cdef Lock turns_lock             # guards the list of waiters
cdef pthread_cond_t turns_cond
cdef TurnWaiter *turn_waiters = NULL
cdef atomic_i64 turns_wanted     # number of waiters


cdef void turns_init() noexcept nogil:
    """Run when the module is loaded, and in a forked child, where nobody waits."""
    global turn_waiters
    lock_init(&turns_lock, LOCK_TURNS)
    cond_init_monotonic(&turns_cond)
    turn_waiters = NULL
    atomic_set(&turns_wanted, 0)


cdef inline int64_t turn_try(Turn *turn) noexcept nogil:
    """Take the turn: 0; E_BUSY; or -EDEADLOCK if this thread has it."""
    if atomic_swap_if(&turn.holder, 0, this_thread()):
        return 0
    return -EDEADLOCK if atomic_get(&turn.holder) == this_thread() else E_BUSY


cdef bint turn_waits_for_us(const Turn *turn) noexcept nogil:
    """Whether the holder waits, directly or through others, for a turn of this thread."""
    cdef int64_t holder = atomic_get(&turn.holder)
    cdef const TurnWaiter *waiter = turn_waiters
    cdef int64_t steps = atomic_get(&turns_wanted)
    while waiter != NULL and steps >= 0:
        if waiter.thread != holder:
            waiter = waiter.next
            continue
        holder = atomic_get(&waiter.turn.holder)
        if holder == this_thread():
            return True
        waiter = turn_waiters
        steps -= 1
    return False


cdef int64_t turn_wait(Turn *turn, int64_t until_ns) noexcept nogil:
    """As turn_try, but wait: E_TIMEOUT; or -EDEADLOCK if the wait would never end."""
    cdef TurnWaiter waiter
    cdef TurnWaiter **at
    cdef int64_t left
    cdef int64_t rc = turn_try(turn)
    if rc != E_BUSY:
        return rc
    lock_take(&turns_lock)
    waiter.thread = this_thread()
    waiter.turn = turn
    waiter.next = turn_waiters
    set_waiters(&waiter)
    atomic_add(&turns_wanted, 1)
    while True:
        rc = turn_try(turn)
        if rc == E_BUSY and turn_waits_for_us(turn):
            rc = -EDEADLOCK
        left = until_ns - monotonic_ns()
        if rc == E_BUSY and left <= 0:
            rc = E_TIMEOUT
        if rc != E_BUSY:
            break
        cond_wait_ns(&turns_cond, &turns_lock.mutex, min(left, WAITER_CHECK_NS))
    atomic_add(&turns_wanted, -1)
    at = &turn_waiters
    while at[0] != &waiter:
        at = &at[0].next
    at[0] = waiter.next
    lock_give(&turns_lock)
    return rc


cdef inline void set_waiters(TurnWaiter *first) noexcept nogil:
    global turn_waiters
    turn_waiters = first


cdef inline void turn_end(Turn *turn) noexcept nogil:
    atomic_set_strict(&turn.holder, 0)
    if unlikely(atomic_get_strict(&turns_wanted) > 0):
        lock_take(&turns_lock)
        pthread_cond_broadcast(&turns_cond)
        lock_give(&turns_lock)
