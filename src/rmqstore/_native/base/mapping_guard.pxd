"""SIGBUS guard for mapped bytes: the caller gets an error and the process survives.

A touch of a mapped page that the file no longer has (another process truncated it), or that the
disk cannot read, raises SIGBUS.  All mappings are registered in a lock-free table.  On a fault
inside one of them the handler records the range in its ``Guard``, maps zero pages over it and
returns.  Users of mapped bytes check ``guard_lost`` before they act on them: a relaxed load while
nothing is lost.  The handler never jumps, so no lock stays taken.

Every other SIGBUS goes to the handler installed before this one.  A handler installed later is
moved after it at the next ``guard_install``; until then it is called first, and may pass the fault
on by a call or, as faulthandler does, by raise().
"""
from libc.stdint cimport int64_t

from rmqstore._native.base.atomics cimport atomic_i64, atomic_peek, unlikely


cdef extern from *:
    """
    #include <errno.h>
    #include <signal.h>
    #include <stdint.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/mman.h>
    #include <sys/syscall.h>
    #include <unistd.h>

    /* What a mapping has lost: the bytes [start, stop) of the file read as our zeros. */
    typedef struct { atomic_i64 lost, start, stop, traps; struct guard_slot *slot; } Guard;

    /* ``low`` is 0 while a slot is free or being changed, and is stored last. */
    typedef struct guard_slot {
        uintptr_t low, high;
        Guard *guard;
        int protection, taken;
    } guard_slot;
    #define GUARD_SLOTS 512
    typedef struct guard_chunk {
        struct guard_chunk *next;
        guard_slot slots[GUARD_SLOTS];
    } guard_chunk;
    #define GUARD_HANDLERS 8

    static guard_chunk guard_first;
    static guard_chunk *guard_roomy = &guard_first;      /* where the last free slot was found */
    static struct sigaction guard_before[GUARD_HANDLERS];    /* [0]: installed before ours */
    static int guard_before_count = 0, guard_busy = 0;
    static size_t guard_page = 4096;
    /* Per thread: handlers being called, the last fault that was not ours, how often in a row,
       and whether a raised signal was ignored since the last true fault. */
    #define GUARD_TLS static __thread __attribute__((tls_model("initial-exec")))
    GUARD_TLS int guard_depth;
    GUARD_TLS uintptr_t guard_foreign;
    GUARD_TLS int guard_repeats, guard_let_pass;

    static guard_slot *guard_find(uintptr_t at) {
        guard_chunk *chunk = &guard_first;
        int i;
        for (; chunk != NULL; chunk = __atomic_load_n(&chunk->next, __ATOMIC_ACQUIRE)) {
            for (i = 0; i < GUARD_SLOTS; i++) {
                guard_slot *slot = &chunk->slots[i];
                uintptr_t low = __atomic_load_n(&slot->low, __ATOMIC_ACQUIRE);
                if (low == 0 || at < low
                    || at >= __atomic_load_n(&slot->high, __ATOMIC_RELAXED)) continue;
                __atomic_thread_fence(__ATOMIC_ACQUIRE);
                if (__atomic_load_n(&slot->low, __ATOMIC_RELAXED) == low) return slot;
            }
        }
        return NULL;
    }
    /* Map zeros over the page at ``at``, and over twice as much at each further fault, so that
       a long file that is gone costs few faults and few mappings. */
    static int guard_trap(guard_slot *slot, uintptr_t at) {
        Guard *guard = slot->guard;
        int64_t traps = __atomic_fetch_add(&guard->traps.value, 1, __ATOMIC_SEQ_CST);
        uintptr_t start = at & ~(uintptr_t)(guard_page - 1);
        uintptr_t stop = start + (guard_page << (traps < 18 ? traps : 18));
        int64_t from, to, seen;
        if (stop > slot->high) stop = slot->high;
        from = (int64_t)(start - slot->low);
        to = (int64_t)(stop - slot->low);
        /* Noted before the zeros are mapped: a reader of the zeros finds the note. */
        seen = __atomic_load_n(&guard->start.value, __ATOMIC_SEQ_CST);
        while ((traps == 0 || from < seen) && !__atomic_compare_exchange_n(
                &guard->start.value, &seen, from, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {}
        seen = __atomic_load_n(&guard->stop.value, __ATOMIC_SEQ_CST);
        while (to > seen && !__atomic_compare_exchange_n(
                &guard->stop.value, &seen, to, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {}
        __atomic_store_n(&guard->lost.value, 1, __ATOMIC_SEQ_CST);
        return syscall(SYS_mmap, start, stop - start, slot->protection,
                       MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == (long)start;
    }
    /* Whether the last page of any mapping cannot be read.  The kernel is asked, without a
       fault: it copies the mask before it checks the first argument, which is invalid. */
    static int guard_any_cut(void) {
        guard_chunk *chunk = &guard_first;
        int i;
        for (; chunk != NULL; chunk = __atomic_load_n(&chunk->next, __ATOMIC_ACQUIRE)) {
            for (i = 0; i < GUARD_SLOTS; i++) {
                guard_slot *slot = &chunk->slots[i];
                uintptr_t low = __atomic_load_n(&slot->low, __ATOMIC_ACQUIRE);
                uintptr_t high = __atomic_load_n(&slot->high, __ATOMIC_RELAXED);
                if (low != 0 && syscall(SYS_rt_sigprocmask, ~0, high - guard_page, NULL, 8) != 0
                    && errno == EFAULT) return 1;
            }
        }
        return 0;
    }
    /* Call the handler before ours; if that calls ours again, the one before it. */
    static void guard_pass_on(int number, siginfo_t *info, void *context) {
        int count = __atomic_load_n(&guard_before_count, __ATOMIC_ACQUIRE);
        int at = count - 1 - guard_depth - guard_repeats / 3;
        struct sigaction *before = &guard_before[at > 0 ? at : 0];
        int plain = (before->sa_flags & SA_SIGINFO) == 0;
        if (plain && before->sa_handler == SIG_IGN && info->si_code <= 0) return;
        if (plain && (before->sa_handler == SIG_DFL || before->sa_handler == SIG_IGN)) {
            struct sigaction end;
            memset(&end, 0, sizeof(end));
            end.sa_handler = SIG_DFL;
            sigaction(number, &end, NULL);
            /* A true fault recurs by itself, and ends the process where it happened. */
            if (info->si_code <= 0) raise(number);
            return;
        }
        if (at > 0) guard_depth++;
        if (plain) before->sa_handler(number);
        else before->sa_sigaction(number, info, context);
        if (at > 0) guard_depth--;
    }
    static void guard_on_fault(int number, siginfo_t *info, void *context) {
        int kept = errno;
        uintptr_t at = (uintptr_t)info->si_addr;
        guard_slot *slot;
        if (info->si_code == BUS_ADRERR
        #ifdef BUS_MCEERR_AR
            || info->si_code == BUS_MCEERR_AR
        #endif
            ) {
            guard_let_pass = 0;
            slot = guard_find(at);
            if (slot != NULL && guard_trap(slot, at)) {
                errno = kept;
                return;
            }
            guard_repeats = at == guard_foreign ? guard_repeats + 1 : 0;
            guard_foreign = at;
        } else if (info->si_code == SI_TKILL && info->si_pid == getpid() && guard_depth == 0
                   && !guard_let_pass && guard_any_cut()) {
            /* Raised again by a handler that ran before ours: let the instruction that touched
               the page run again, so that its fault comes here with its address. */
            guard_let_pass = 1;
            errno = kept;
            return;
        }
        guard_pass_on(number, info, context);
        errno = kept;
    }
    /* Put our handler in front: once per process, and again where another one replaced it. */
    static void guard_install(void) {
        struct sigaction ours, now;
        int free_ = 0;
        if (sigaction(SIGBUS, NULL, &now) != 0) return;
        if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == guard_on_fault) return;
        if (!__atomic_compare_exchange_n(&guard_busy, &free_, 1, 0, __ATOMIC_SEQ_CST,
                                         __ATOMIC_SEQ_CST)) return;
        if (sigaction(SIGBUS, NULL, &now) == 0
            && !((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == guard_on_fault)) {
            int count = guard_before_count, i;
            guard_page = (size_t)sysconf(_SC_PAGESIZE);
            for (i = 0; i < count; i++)
                if (guard_before[i].sa_sigaction == now.sa_sigaction) break;
            if (i < count) {         /* already known: move it to the top */
                for (; i < count - 1; i++) guard_before[i] = guard_before[i + 1];
                guard_before[count - 1] = now;
            } else if (count < GUARD_HANDLERS) {
                guard_before[count] = now;
                __atomic_store_n(&guard_before_count, count + 1, __ATOMIC_RELEASE);
            } else {
                guard_before[count - 1] = now;
            }
            memset(&ours, 0, sizeof(ours));
            ours.sa_sigaction = guard_on_fault;
            ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER | SA_RESTART;
            sigaction(SIGBUS, &ours, NULL);
        }
        __atomic_store_n(&guard_busy, 0, __ATOMIC_SEQ_CST);
    }
    /* Enter a mapping; -1 without memory. */
    static int guard_enter(void *base, size_t length, int protection, Guard *guard) {
        guard_chunk *chunk = __atomic_load_n(&guard_roomy, __ATOMIC_ACQUIRE), *following;
        uintptr_t low = (uintptr_t)base;
        int wrapped = chunk == &guard_first, i;
        memset(guard, 0, sizeof(*guard));
        guard_install();
        for (;;) {
            for (i = 0; i < GUARD_SLOTS; i++) {
                guard_slot *slot = &chunk->slots[i];
                int free_ = 0;
                if (__atomic_load_n(&slot->taken, __ATOMIC_RELAXED)) continue;
                if (!__atomic_compare_exchange_n(&slot->taken, &free_, 1, 0, __ATOMIC_SEQ_CST,
                                                 __ATOMIC_SEQ_CST)) continue;
                slot->guard = guard;
                slot->protection = protection;
                guard->slot = slot;
                __atomic_store_n(&guard_roomy, chunk, __ATOMIC_RELEASE);
                __atomic_store_n(&slot->high,
                                 low + ((length + guard_page - 1) & ~(guard_page - 1)),
                                 __ATOMIC_RELAXED);
                __atomic_store_n(&slot->low, low, __ATOMIC_RELEASE);
                return 0;
            }
            following = __atomic_load_n(&chunk->next, __ATOMIC_ACQUIRE);
            if (following == NULL && !wrapped) {
                wrapped = 1;
                following = &guard_first;
            }
            if (following == NULL) {
                guard_chunk *made = (guard_chunk *)calloc(1, sizeof(guard_chunk));
                if (made == NULL) return -1;
                if (__atomic_compare_exchange_n(&chunk->next, &following, made, 0,
                                                __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
                    following = made;
                else
                    free(made);
            }
            chunk = following;
        }
    }
    /* Remove a mapping from the table, before it is unmapped. */
    static void guard_leave(Guard *guard) {
        guard_slot *slot = guard->slot;
        if (slot == NULL) return;
        guard->slot = NULL;
        __atomic_store_n(&slot->low, 0, __ATOMIC_SEQ_CST);
        __atomic_store_n(&slot->taken, 0, __ATOMIC_RELEASE);
    }
    /* Orders every read and write before this ahead of the check of the note. */
    static inline void guard_fence(void) { __atomic_thread_fence(__ATOMIC_ACQUIRE); }
    """
    ctypedef struct Guard:
        atomic_i64 lost          # 1: some bytes are lost
        atomic_i64 start         # file offset of the first lost byte; ``stop``: after the last
        atomic_i64 stop
    void guard_install() noexcept nogil
    int guard_enter(void *base, size_t length, int protection, Guard *guard) noexcept nogil
    void guard_leave(Guard *guard) noexcept nogil
    void guard_fence() noexcept nogil


cdef inline bint guard_lost(const Guard *guard, int64_t start, int64_t stop) noexcept nogil:
    """Whether any of the bytes [start, stop) just used are zeros mapped by the handler."""
    guard_fence()
    if not unlikely(atomic_peek(&guard.lost) != 0):
        return False
    return start < atomic_peek(&guard.stop) and atomic_peek(&guard.start) < stop
