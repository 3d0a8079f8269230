"""64-bit atomics: every state shared by threads is one of these or guarded by a lock."""
from libc.stdint cimport int64_t


cdef extern from *:
    """
    #include <stdint.h>
    typedef struct { int64_t value; } atomic_i64;
    static inline int64_t atomic_get(const atomic_i64 *a) {
        return __atomic_load_n(&a->value, __ATOMIC_ACQUIRE);
    }
    static inline int64_t atomic_peek(const atomic_i64 *a) {
        return __atomic_load_n(&a->value, __ATOMIC_RELAXED);
    }
    static inline void atomic_set(atomic_i64 *a, int64_t v) {
        __atomic_store_n(&a->value, v, __ATOMIC_RELEASE);
    }
    /* Sequentially consistent: for a flag that is checked after the data was published. */
    static inline void atomic_set_strict(atomic_i64 *a, int64_t v) {
        __atomic_store_n(&a->value, v, __ATOMIC_SEQ_CST);
    }
    static inline int64_t atomic_get_strict(const atomic_i64 *a) {
        return __atomic_load_n(&a->value, __ATOMIC_SEQ_CST);
    }
    /* Returns the new value. */
    static inline int64_t atomic_add(atomic_i64 *a, int64_t v) {
        return __atomic_add_fetch(&a->value, v, __ATOMIC_SEQ_CST);
    }
    static inline int atomic_swap_if(atomic_i64 *a, int64_t expected, int64_t desired) {
        return __atomic_compare_exchange_n(&a->value, &expected, desired, 0,
                                           __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    }
    /* How many store calls this thread is inside: a close from there would wait for itself. */
    static __thread int64_t calls_of_thread;
    static inline int64_t calls_inside(int64_t change) { return calls_of_thread += change; }
    /* Which thread this is; none is 0. */
    static inline int64_t this_thread(void) { return (int64_t)&calls_of_thread; }
    static inline void cpu_pause(void) {
    #if defined(__x86_64__)
        __builtin_ia32_pause();
    #elif defined(__aarch64__)
        __asm__ __volatile__("yield");
    #endif
    }
    static inline void prefetch(const void *at) { __builtin_prefetch(at, 1, 3); }
    /* A byte that is a flag, and counts up to some tens before the flag is set. */
    #define BYTE_FLAG 0x80
    static inline int byte_is_set(const char *at) {
        return __atomic_load_n(at, __ATOMIC_RELAXED) & BYTE_FLAG;
    }
    /* Set it; 1 for the one caller that found it clear. */
    static inline int byte_set_first(char *at) {
        return (__atomic_fetch_or(at, (char)BYTE_FLAG, __ATOMIC_RELAXED) & BYTE_FLAG) == 0;
    }
    /* Count once more; 1 if it counted to ``most`` before.  No more threads than 127 - most. */
    static inline int byte_counted(char *at, int most) {
        if ((__atomic_load_n(at, __ATOMIC_RELAXED) & ~BYTE_FLAG) >= most) return 1;
        __atomic_fetch_add(at, 1, __ATOMIC_RELAXED);
        return 0;
    }
    static inline void prefetch_to_read(const void *at) { __builtin_prefetch(at, 0, 3); }
    static inline void prefetch_range(const char *at, int64_t length) {
        for (int64_t done = 0; done < length; done += 64) prefetch_to_read(at + done);
    }
    #define likely_(x) __builtin_expect(!!(x), 1)
    #define unlikely_(x) __builtin_expect(!!(x), 0)
    """
    ctypedef struct atomic_i64:
        pass
    int64_t atomic_get(const atomic_i64 *a) noexcept nogil
    int64_t atomic_peek(const atomic_i64 *a) noexcept nogil
    void atomic_set(atomic_i64 *a, int64_t v) noexcept nogil
    void atomic_set_strict(atomic_i64 *a, int64_t v) noexcept nogil
    int64_t atomic_get_strict(const atomic_i64 *a) noexcept nogil
    int64_t atomic_add(atomic_i64 *a, int64_t v) noexcept nogil
    bint atomic_swap_if(atomic_i64 *a, int64_t expected, int64_t desired) noexcept nogil
    int64_t calls_inside(int64_t change) noexcept nogil
    int64_t this_thread() noexcept nogil
    void cpu_pause() noexcept nogil
    void prefetch(const void *at) noexcept nogil
    bint byte_is_set(const char *at) noexcept nogil
    bint byte_set_first(char *at) noexcept nogil
    bint byte_counted(char *at, int most) noexcept nogil
    void prefetch_to_read(const void *at) noexcept nogil
    void prefetch_range(const char *at, int64_t length) noexcept nogil
    bint likely "likely_"(bint x) noexcept nogil
    bint unlikely "unlikely_"(bint x) noexcept nogil


cdef inline void atomic_raise(atomic_i64 *a, int64_t v) noexcept nogil:
    """Set to ``v`` unless it is already ``v`` or more."""
    cdef int64_t seen = atomic_get(a)
    while seen < v:
        if atomic_swap_if(a, seen, v):
            return
        seen = atomic_get(a)
