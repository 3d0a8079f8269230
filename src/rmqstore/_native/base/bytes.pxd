"""Big-endian loads and stores at any alignment, atomic ones of a mapped int; growing arrays."""
from libc.stdint cimport int16_t, int32_t, int64_t, uint16_t, uint32_t, uint64_t


cdef extern from *:
    """
    #include <stdint.h>
    #include <stdlib.h>
    #include <string.h>
    #if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    #define RMQ_BE16(v) __builtin_bswap16(v)
    #define RMQ_BE32(v) __builtin_bswap32(v)
    #define RMQ_BE64(v) __builtin_bswap64(v)
    #else
    #define RMQ_BE16(v) (v)
    #define RMQ_BE32(v) (v)
    #define RMQ_BE64(v) (v)
    #endif
    static inline int is_same(const char *a, int64_t length, const char *b, int64_t other) {
        return length == other && (length == 0 || memcmp(a, b, (size_t)length) == 0);
    }
    static inline int16_t get_i16(const char *at) {
        uint16_t v; memcpy(&v, at, 2); return (int16_t)RMQ_BE16(v);
    }
    static inline int32_t get_i32(const char *at) {
        uint32_t v; memcpy(&v, at, 4); return (int32_t)RMQ_BE32(v);
    }
    static inline int64_t get_i64(const char *at) {
        uint64_t v; memcpy(&v, at, 8); return (int64_t)RMQ_BE64(v);
    }
    static inline void put_i16(char *at, int16_t value) {
        uint16_t v = RMQ_BE16((uint16_t)value); memcpy(at, &v, 2);
    }
    static inline void put_i32(char *at, int32_t value) {
        uint32_t v = RMQ_BE32((uint32_t)value); memcpy(at, &v, 4);
    }
    static inline void put_i64(char *at, int64_t value) {
        uint64_t v = RMQ_BE64((uint64_t)value); memcpy(at, &v, 8);
    }
    /* at must be a multiple of 4, or ARM ends the process: units, slots and header fields */
    #ifdef RMQSTORE_DEBUG
    #define RMQ_ALIGNED(at) do { if ((uintptr_t)(at) % 4) __builtin_trap(); } while (0)
    #else
    #define RMQ_ALIGNED(at) ((void)0)
    #endif
    static inline int32_t get_i32_acquire(const char *at) {
        RMQ_ALIGNED(at);
        return (int32_t)RMQ_BE32(__atomic_load_n((const uint32_t *)at, __ATOMIC_ACQUIRE));
    }
    static inline void put_i32_release(char *at, int32_t value) {
        RMQ_ALIGNED(at);
        __atomic_store_n((uint32_t *)at, RMQ_BE32((uint32_t)value), __ATOMIC_RELEASE);
    }
    /* At any address, after all earlier stores. */
    static inline void put_i32_last(char *at, int32_t value) {
        __atomic_thread_fence(__ATOMIC_RELEASE);
        put_i32(at, value);
    }
    /* As memchr, without a call for the few bytes of a property. */
    #ifdef __SSE2__
    #include <emmintrin.h>
    static inline const char *find_byte(const char *at, char byte, int64_t length) {
        __m128i wanted = _mm_set1_epi8(byte);
        int64_t done = 0;
        int hits;
        if (length <= 0) return NULL;
        if (length < 16) return (const char *)memchr(at, byte, (size_t)length);
        for (; done + 16 <= length && done < 128; done += 16) {
            hits = _mm_movemask_epi8(
                _mm_cmpeq_epi8(_mm_loadu_si128((const __m128i *)(at + done)), wanted));
            if (hits) return at + done + __builtin_ctz((unsigned)hits);
        }
        if (done == length) return NULL;
        if (length - done >= 16)
            return (const char *)memchr(at + done, byte, (size_t)(length - done));
        /* The last 16 bytes: those before ``done`` have no hit. */
        hits = _mm_movemask_epi8(
            _mm_cmpeq_epi8(_mm_loadu_si128((const __m128i *)(at + length - 16)), wanted));
        return hits ? at + length - 16 + __builtin_ctz((unsigned)hits) : NULL;
    }
    #else
    static inline const char *find_byte(const char *at, char byte, int64_t length) {
        return (const char *)(length > 0 ? memchr(at, byte, (size_t)length) : NULL);
    }
    #endif
    /* A text to look for: its bytes, and the bits that each may differ in; ``length`` is not 0. */
    #define SOUGHT_BYTES 64
    typedef struct {
        char bytes[SOUGHT_BYTES];            /* with these bits set */
        char bits[SOUGHT_BYTES];
        int64_t length;
    } Sought;
    static inline int is_sought(const char *at, const Sought *text) {
        for (int64_t i = 0; i < text->length; i++)
            if ((char)(at[i] | text->bits[i]) != text->bytes[i]) return 0;
        return 1;
    }
    /* Whether the text is in ``data``: 16 places at a time by its first byte and its last. */
    static inline int holds_sought(const char *data, int64_t length, const Sought *text) {
        int64_t at = 0, last = text->length - 1;
        #ifdef __SSE2__
        __m128i first_bits = _mm_set1_epi8(text->bits[0]), first = _mm_set1_epi8(text->bytes[0]);
        __m128i last_bits = _mm_set1_epi8(text->bits[last]);
        __m128i last_byte = _mm_set1_epi8(text->bytes[last]);
        for (; at + last + 16 <= length; at += 16) {
            __m128i begins = _mm_loadu_si128((const __m128i *)(data + at));
            __m128i ends = _mm_loadu_si128((const __m128i *)(data + at + last));
            unsigned places = (unsigned)_mm_movemask_epi8(_mm_and_si128(
                _mm_cmpeq_epi8(_mm_or_si128(begins, first_bits), first),
                _mm_cmpeq_epi8(_mm_or_si128(ends, last_bits), last_byte)));
            for (; places; places &= places - 1)
                if (is_sought(data + at + __builtin_ctz(places), text)) return 1;
        }
        #endif
        for (; at + last < length; at++)
            if (is_sought(data + at, text)) return 1;
        return 0;
    }
    /* The items of an array with room for one more than ``count``; NULL without memory, and then
       the array is as it was. */
    static inline void *array_with_room(void *items, int64_t *room, int64_t count, size_t bytes) {
        int64_t more = *room * 2 + 16;
        if (count < *room) return items;
        items = realloc(items, (size_t)more * bytes);
        if (items != NULL) *room = more;
        return items;
    }
    /* Rewrite one byte of each page with its own value, which makes the page dirty. */
    static inline void touch_pages(char *base, int64_t start, int64_t stop) {
        for (int64_t at = start; at < stop; at = (at | 4095) + 1) {
            volatile char *byte = base + at;
            *byte = *byte;
        }
    }
    """
    enum:
        SOUGHT_BYTES
    ctypedef struct Sought:
        char bytes[64]
        char bits[64]
        int64_t length
    const char *find_byte(const char *at, char byte, int64_t length) noexcept nogil
    bint holds_sought(const char *data, int64_t length, const Sought *text) noexcept nogil
    void *array_with_room(void *items, int64_t *room, int64_t count, size_t bytes) noexcept nogil
    void touch_pages(char *base, int64_t start, int64_t stop) noexcept nogil
    # Equality of two texts; the pointer of an empty one may be NULL.
    bint is_same(const char *a, int64_t length, const char *b, int64_t other) noexcept nogil
    int16_t get_i16(const char *at) noexcept nogil
    int32_t get_i32(const char *at) noexcept nogil
    int64_t get_i64(const char *at) noexcept nogil
    void put_i16(char *at, int16_t value) noexcept nogil
    void put_i32(char *at, int32_t value) noexcept nogil
    void put_i64(char *at, int64_t value) noexcept nogil
    int32_t get_i32_acquire(const char *at) noexcept nogil
    void put_i32_release(char *at, int32_t value) noexcept nogil
    void put_i32_last(char *at, int32_t value) noexcept nogil


cdef extern from "<stdint.h>":
    const int64_t INT64_MOST "INT64_MAX"
    const int64_t INT64_LEAST "INT64_MIN"


cdef inline uint64_t mixed_64(uint64_t z) noexcept nogil:
    """splitmix64's finalizer: each bit of the result depends on all."""
    z = (z ^ (z >> 30)) * <uint64_t>0xBF58476D1CE4E5B9
    z = (z ^ (z >> 27)) * <uint64_t>0x94D049BB133111EB
    return z ^ (z >> 31)
