# RocketMQ's client-made message id, 32 hexadecimal digits: address 4, process 2, a number
# that distinguishes processes 4, milliseconds of the month 4, counter 2 bytes.
#
# Time and counter form one increasing number, across months and clocks: no key of a process repeats
# within a month, however many are made in a millisecond.
#
# Source: common/message/MessageClientIDSetter.java

cdef enum:
    UNIQUE_KEY_BYTES = 32
    UNIQUE_TIME_BITS = 46        # ms since the epoch: up to the year 4199
    MONTH_BITS = 22
    MONTH_LENGTH = (1 << MONTH_BITS) - 1

cdef struct UniqueKeys:
    char prefix[20]          # digits of address, process and the process's number
    uint32_t address
    atomic_i64 last          # ms since the epoch << 16 | counter
    atomic_i64 month         # start in s since the epoch << MONTH_BITS | length in s: one word

cdef UniqueKeys unique_keys

cdef extern from *:
    """
    static const char hex_digits[] = "0123456789ABCDEF";
    static inline void put_hex(char *into, uint64_t value, int digits) {
        for (int i = digits - 1; i >= 0; i--) { into[i] = hex_digits[value & 15]; value >>= 4; }
    }
    /* As put_hex with 8 digits: a nibble in each byte, all of them made digits at once. */
    static inline void put_hex_8(char *into, uint32_t value) {
        uint64_t v = value;
        v = (v & 0xFFFF) | (v & 0xFFFF0000) << 16;
        v = (v & 0x000000FF000000FFULL) | (v & 0x0000FF000000FF00ULL) << 8;
        v = (v & 0x000F000F000F000FULL) | (v & 0x00F000F000F000F0ULL) << 4;
        v += 0x3030303030303030ULL
           + ((v + 0x0606060606060606ULL) >> 4 & 0x0101010101010101ULL) * ('A' - '9' - 1);
    #if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        v = __builtin_bswap64(v);
    #endif
        memcpy(into, &v, 8);
    }
    """
    void put_hex(char *into, uint64_t value, int digits) noexcept nogil
    void put_hex_8(char *into, uint32_t value) noexcept nogil


cdef void unique_keys_init(UniqueKeys *keys, uint32_t address, uint32_t number) noexcept nogil:
    """Set this process's prefix; again in a child after a fork."""
    keys.address = address
    put_hex(keys.prefix, address, 8)
    put_hex(keys.prefix + 8, <uint64_t>(getpid() & 0xFFFF), 4)
    put_hex(keys.prefix + 12, number, 8)


cdef int64_t unique_keys_month(UniqueKeys *keys, int64_t time) noexcept nogil:
    """Start of the local month of ``time``, both in ms since the epoch."""
    cdef int64_t month = atomic_get(&keys.month)
    cdef int64_t start = (month >> MONTH_BITS) * 1000
    cdef tm when
    if likely(start <= time < start + (month & MONTH_LENGTH) * 1000):
        return start
    local_time(time, &when)
    when.tm_mday = 1
    when.tm_hour = 0
    when.tm_min = 0
    when.tm_sec = 0
    when.tm_isdst = -1
    start = mktime(&when)
    when.tm_mon += 1
    when.tm_isdst = -1
    atomic_set(&keys.month, start << MONTH_BITS | (mktime(&when) - start))
    return start * 1000


cdef int64_t unique_keys_take(UniqueKeys *keys, int64_t now, int64_t count) noexcept nogil:
    """Reserve ``count`` keys; the number of the first."""
    cdef int64_t first, last
    now = min(now, <int64_t>1 << UNIQUE_TIME_BITS)
    while True:
        last = atomic_get(&keys.last)
        first = max(last + 1, now * (1 << 16))
        if atomic_swap_if(&keys.last, last, first + count - 1):
            return first - (unique_keys_month(keys, first >> 16) << 16)


cdef inline void unique_key_write(
    const UniqueKeys *keys, int64_t number, char *into,
) noexcept nogil:
    memcpy(into, keys.prefix, 20)
    put_hex(into + 20, <uint64_t>number >> 32, 4)
    put_hex_8(into + 24, <uint32_t>number)
