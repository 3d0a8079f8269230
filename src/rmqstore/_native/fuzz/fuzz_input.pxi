# Inputs for the fuzzer: numbers, mutations of a seed whose field positions are known, and memory
# that ends where the input ends.
#
# Each input depends only on the run's seed and its own number, so that any of 10^8 can be
# reproduced by itself.  Only builds with RMQSTORE_FAULTS can call this.

cdef enum:
    FUZZ_ROOM = 16 << 10         # bytes of the longest input
    FUZZ_FIELDS = 64
    FUZZ_ROOMS = 16              # guarded buffers per input

cdef extern from *:
    """
    #ifdef __SANITIZE_ADDRESS__
    void __asan_poison_memory_region(void const volatile *at, size_t size);
    void __asan_unpoison_memory_region(void const volatile *at, size_t size);
    #define FUZZ_HIDE(at, size) __asan_poison_memory_region(at, size)
    #define FUZZ_SHOW(at, size) __asan_unpoison_memory_region(at, size)
    #else
    #define FUZZ_HIDE(at, size) ((void)(at), (void)(size))
    #define FUZZ_SHOW(at, size) ((void)(at), (void)(size))
    #endif
    /* `size` bytes with an inaccessible page on either side */
    static char *fuzz_map(size_t size) {
        char *at = mmap(NULL, size + 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED || mprotect(at + 4096, size, PROT_READ | PROT_WRITE) != 0) return NULL;
        return at + 4096;
    }
    static void fuzz_unmap(char *at, size_t size) {
        if (at != NULL) { FUZZ_SHOW(at, size); munmap(at - 4096, size + 8192); }
    }
    """
    int memfd_create(const char *name, unsigned flags) noexcept nogil
    void *memmove(void *into, const void *data, size_t size) noexcept nogil
    void FUZZ_HIDE(const char *at, size_t size) noexcept nogil
    void FUZZ_SHOW(const char *at, size_t size) noexcept nogil
    char *fuzz_map(size_t size) noexcept nogil
    void fuzz_unmap(char *at, size_t size) noexcept nogil


cdef struct Fuzz:
    uint64_t state               # of the random numbers of this input
    char *data                   # the seed being mutated, FUZZ_ROOM bytes
    int64_t length
    const char **seeds
    int64_t *seed_lengths
    int64_t seed_count
    int32_t[FUZZ_FIELDS] at      # fields of the seed, and their bytes
    int32_t[FUZZ_FIELDS] width
    int64_t field_count
    bint fixed                   # the length must not change
    char *rooms[FUZZ_ROOMS]
    int64_t rooms_used
    Offsets found
    const char *broken           # the broken promise, NULL: none
    int page                     # a file in memory, for readers that use pread


cdef inline uint64_t fuzz_mix(uint64_t value) noexcept nogil:
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ULL
    value = (value ^ (value >> 27)) * 0x94D049BB133111EBULL
    return value ^ (value >> 31)


cdef inline uint64_t fuzz_next(Fuzz *fuzz) noexcept nogil:
    fuzz.state += 0x9E3779B97F4A7C15ULL
    return fuzz_mix(fuzz.state)


cdef inline int64_t fuzz_below(Fuzz *fuzz, int64_t count) noexcept nogil:
    """A number from 0 to ``count`` - 1; 0 if ``count`` is 0."""
    return <int64_t>(fuzz_next(fuzz) % <uint64_t>count) if count > 0 else 0


cdef inline bint fuzz_one_in(Fuzz *fuzz, int64_t count) noexcept nogil:
    return fuzz_below(fuzz, count) == 0


cdef char *fuzz_take(Fuzz *fuzz, int64_t length) noexcept nogil:
    """``length`` bytes with inaccessible bytes before and after them; NULL: no more."""
    cdef char *room
    if fuzz.rooms_used == FUZZ_ROOMS or length < 0 or length > FUZZ_ROOM:
        return NULL
    room = fuzz.rooms[fuzz.rooms_used]
    fuzz.rooms_used += 1
    FUZZ_SHOW(room, FUZZ_ROOM)
    FUZZ_HIDE(room, <size_t>(FUZZ_ROOM - length))
    return room + FUZZ_ROOM - length


cdef char *fuzz_place(Fuzz *fuzz, const char *data, int64_t length) noexcept nogil:
    """A copy of some bytes in a guarded buffer of exactly their length."""
    cdef char *at = fuzz_take(fuzz, length)
    if at != NULL and length > 0:
        memcpy(at, data, <size_t>length)
    return at


cdef int64_t fuzz_value(Fuzz *fuzz) noexcept nogil:
    """A number, mostly near some limit."""
    cdef int64_t kind = fuzz_below(fuzz, 16)
    cdef int64_t value
    if kind < 3:
        return fuzz_below(fuzz, 4) - 1
    if kind < 5:
        return fuzz.length + fuzz_below(fuzz, 5) - 2
    if kind < 8:                             # around a power of two
        value = <int64_t>(<uint64_t>1 << fuzz_below(fuzz, 64))
        return <int64_t>(<uint64_t>value + <uint64_t>fuzz_below(fuzz, 3) - 1)
    if kind < 10:
        return INT64_MAX if kind == 8 else INT64_MIN
    if kind < 12:
        return 0x7FFFFFFF if kind == 10 else -0x80000000
    if kind < 15:
        return fuzz_below(fuzz, 2 * fuzz.length + 256) - 128
    return <int64_t>fuzz_next(fuzz)


cdef void fuzz_set(char *at, int64_t width, int64_t value) noexcept nogil:
    """The lowest ``width`` bytes of a number, big-endian."""
    while width > 0:
        width -= 1
        at[width] = <char>(value & 0xFF)
        value >>= 8


cdef int64_t fuzz_get(const char *at, int64_t width) noexcept nogil:
    cdef uint64_t value = 0
    cdef int64_t i
    for i in range(width):
        value = value << 8 | <unsigned char>at[i]
    return <int64_t>value


cdef void fuzz_field(Fuzz *fuzz, int64_t at, int64_t width) noexcept nogil:
    """Note the position of a field of the seed, for the mutations."""
    if fuzz.field_count < FUZZ_FIELDS and at >= 0 and width > 0 and at + width <= fuzz.length:
        fuzz.at[fuzz.field_count] = <int32_t>at
        fuzz.width[fuzz.field_count] = <int32_t>width
        fuzz.field_count += 1


cdef void fuzz_begin(Fuzz *fuzz, uint64_t seed, int64_t number) noexcept nogil:
    """Start input ``number`` from an unchanged seed."""
    cdef int64_t which
    fuzz.state = fuzz_mix(seed * 0x9E3779B97F4A7C15ULL + <uint64_t>number)
    which = fuzz_below(fuzz, fuzz.seed_count)
    fuzz.length = fuzz.seed_lengths[which]
    memcpy(fuzz.data, fuzz.seeds[which], <size_t>fuzz.length)
    fuzz.field_count = 0
    fuzz.rooms_used = 0
    fuzz.found.count = 0


cdef void fuzz_mutate(Fuzz *fuzz) noexcept nogil:
    """One mutation: of a field in half of the cases, else of any bytes."""
    cdef int64_t at, width, kind, field, length, other
    if fuzz.length == 0:
        return
    kind = fuzz_below(fuzz, 20)
    if kind < 10 and fuzz.field_count > 0:
        field = fuzz_below(fuzz, fuzz.field_count)
        at = fuzz.at[field]
        width = fuzz.width[field]
        if at + width > fuzz.length:
            return
        if kind < 6:
            fuzz_set(fuzz.data + at, width, fuzz_value(fuzz))
        elif kind < 9:                       # near the old value
            fuzz_set(fuzz.data + at, width, <int64_t>(
                <uint64_t>fuzz_get(fuzz.data + at, width) + <uint64_t>fuzz_below(fuzz, 17) - 8))
        else:
            fuzz.data[at] = <char>(fuzz.data[at] ^ (1 << fuzz_below(fuzz, 8)))
        return
    at = fuzz_below(fuzz, fuzz.length)
    length = 1 + fuzz_below(fuzz, min(fuzz.length - at, 64))
    if kind < 12:
        fuzz.data[at] = <char>(fuzz.data[at] ^ (1 << fuzz_below(fuzz, 8)))
    elif kind < 13:
        fuzz.data[at] = <char>fuzz_below(fuzz, 256)
    elif kind < 15:
        memset(fuzz.data + at, <int>fuzz_below(fuzz, 4) * 85, <size_t>length)
    elif kind < 16:
        width = min(<int64_t>1 << fuzz_below(fuzz, 4), fuzz.length - at)
        fuzz_set(fuzz.data + at, width, fuzz_value(fuzz))
    elif kind < 17 or fuzz.fixed:            # a piece of another seed
        other = fuzz_below(fuzz, fuzz.seed_count)
        length = min(length, fuzz.seed_lengths[other])
        memcpy(fuzz.data + at,
               fuzz.seeds[other] + fuzz_below(fuzz, fuzz.seed_lengths[other] - length + 1),
               <size_t>length)
    elif kind < 18:
        fuzz.length = at
    elif kind < 19:
        memmove(fuzz.data + at, fuzz.data + at + length, <size_t>(fuzz.length - at - length))
        fuzz.length -= length
    elif fuzz.length + length <= FUZZ_ROOM:
        memmove(fuzz.data + at + length, fuzz.data + at, <size_t>(fuzz.length - at))
        fuzz.length += length


cdef void fuzz_mutate_some(Fuzz *fuzz, int64_t most) noexcept nogil:
    cdef int64_t count = fuzz_below(fuzz, most + 1)
    while count > 0:
        fuzz_mutate(fuzz)
        count -= 1


cdef int64_t fuzz_init(Fuzz *fuzz) noexcept nogil:
    """Allocate the memory of a run; fuzz_end frees it, even if this fails."""
    cdef int64_t i
    memset(fuzz, 0, sizeof(Fuzz))
    fuzz.page = memfd_create("fuzz", 0)
    fuzz.data = <char *>malloc(FUZZ_ROOM)
    if fuzz.data == NULL or fuzz.page < 0:
        return E_NO_MEMORY
    for i in range(FUZZ_ROOMS):
        fuzz.rooms[i] = fuzz_map(FUZZ_ROOM)
        if fuzz.rooms[i] == NULL:
            return E_NO_MEMORY
    return 0


cdef void fuzz_end(Fuzz *fuzz) noexcept nogil:
    cdef int64_t i
    for i in range(FUZZ_ROOMS):
        fuzz_unmap(fuzz.rooms[i], FUZZ_ROOM)
    if fuzz.page >= 0:
        close(fuzz.page)
    free(fuzz.found.items)
    free(fuzz.data)
    free(fuzz.seeds)
    free(fuzz.seed_lengths)
