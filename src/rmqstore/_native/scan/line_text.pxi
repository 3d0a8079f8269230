# Numbers, times and texts in the syntax of JSON and CSV, appended to a growing buffer.
#
# Source: RFC 8259 (JSON), RFC 4180 (CSV), RFC 4648 (base64)

cdef enum:
    NUMBER_MAX = 20              # characters of a 64-bit number
    TIME_BYTES = 19              # of a time, after its year and before its zone
    TEXT_PIECE = 4096            # bytes of text reserved at a time
    DAY_MS = 86400000
    # Days from 0000-03-01, where a year of 365.2425 days begins, to 1970-01-01; and 400 years.
    EPOCH_DAYS = 719468
    CYCLE_DAYS = 146097

    TIMES_UTC
    TIMES_LOCAL                  # in this machine's zone

# The years 1 to 9999 in ms: the range of zone rules.
cdef int64_t LOCAL_FIRST = -62135596800000
cdef int64_t LOCAL_STOP = 253402300800000


cdef extern from *:
    """
    static const char base64_digits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    /* Without a table, so that a loop over it is vectorized. */
    static inline char hex_digit(unsigned char value) {
        return (char)(value + (value < 10 ? '0' : 'a' - 10));
    }

    #define EACH_BYTE(c) ((uint64_t)(c) * 0x0101010101010101ULL)
    /* The high bit of each byte equal to `c`; bytes above the lowest match may have it as well. */
    static inline uint64_t bytes_that_are(uint64_t bytes, unsigned char c) {
        uint64_t other = bytes ^ EACH_BYTE(c);
        return (other - EACH_BYTE(0x01)) & ~other & EACH_BYTE(0x80);
    }
    static inline int bytes_before(uint64_t marks) {
        return marks ? __builtin_ctzll(marks) >> 3 : 8;
    }
    /* How many of 8 bytes come before one that JSON escapes: below 0x20, a quote, a backslash. */
    static inline int json_plain(uint64_t bytes) {
        return bytes_before(((bytes - EACH_BYTE(0x20)) & ~bytes & EACH_BYTE(0x80))
            | bytes_that_are(bytes, '"') | bytes_that_are(bytes, '\\\\'));
    }
    /* How many of 8 bytes come before one for which CSV quotes a cell. */
    static inline int csv_plain(uint64_t bytes) {
        return bytes_before(bytes_that_are(bytes, ',') | bytes_that_are(bytes, '"')
            | bytes_that_are(bytes, '\\n') | bytes_that_are(bytes, '\\r'));
    }
    /* Seconds that this machine's zone is ahead of UTC; 0 if unknown. */
    static inline int64_t local_offset(int64_t seconds) {
        time_t then = (time_t)seconds; struct tm local;
        return localtime_r(&then, &local) == NULL ? 0 : local.tm_gmtoff;
    }
    """
    int64_t local_offset(int64_t seconds) noexcept nogil
    const char[65] base64_digits
    char hex_digit(unsigned char value) noexcept nogil
    int json_plain(uint64_t bytes) noexcept nogil
    int csv_plain(uint64_t bytes) noexcept nogil


cdef inline int64_t put_bytes(Growing *into, const char *data, int64_t length) noexcept nogil:
    """Append bytes as they are."""
    if growing_room(into, length) < 0:
        return E_NO_MEMORY
    if length:                               # ``data`` may be NULL if empty
        memcpy(into.data + into.length, data, <size_t>length)
        into.length += length
    return 0


cdef inline int64_t put_byte(Growing *into, char byte) noexcept nogil:
    return put_bytes(into, &byte, 1)


cdef int64_t put_number(Growing *into, int64_t value) noexcept nogil:
    """Append a decimal number."""
    cdef char[NUMBER_MAX] digits
    cdef uint64_t rest = <uint64_t>value
    cdef int64_t at = NUMBER_MAX
    if value < 0:
        rest = 0 - rest
    while True:
        at -= 1
        digits[at] = <char>(c'0' + rest % 10)
        rest //= 10
        if rest == 0:
            break
    if value < 0:
        at -= 1
        digits[at] = c'-'
    return put_bytes(into, &digits[at], NUMBER_MAX - at)


cdef inline void write_digits(char *into, int64_t value, int64_t count) noexcept nogil:
    """Write the last ``count`` decimal digits of a number that is not negative."""
    while count:
        count -= 1
        into[count] = <char>(c'0' + value % 10)
        value //= 10


cdef int64_t put_year(Growing *into, int64_t year) noexcept nogil:
    """Append a year: four digits; outside 0 to 9999 a sign and at least four."""
    cdef char[4] text
    if not 0 <= year <= 9999 and put_byte(into, c'-' if year < 0 else c'+') < 0:
        return E_NO_MEMORY
    year = -year if year < 0 else year
    if year > 9999:
        return put_number(into, year)
    write_digits(text, year, 4)
    return put_bytes(into, text, 4)


cdef int64_t zone_seconds(int64_t millis, int64_t zone) noexcept nogil:
    """Seconds of the zone ahead of UTC; 0 also where local time leaves the years 1 to 9999."""
    cdef int64_t seconds
    if zone == TIMES_UTC or not LOCAL_FIRST <= millis < LOCAL_STOP:
        return 0
    seconds = millis // 1000
    seconds = local_offset(seconds - (millis % 1000 < 0))
    return seconds if LOCAL_FIRST <= millis + 1000 * seconds < LOCAL_STOP else 0


cdef int64_t put_zone(Growing *into, int64_t seconds) noexcept nogil:
    """Append ``Z`` or ``+hh:mm``, with seconds if there are any, as in early times."""
    cdef char[9] text
    if seconds == 0:
        return put_byte(into, c'Z')
    memcpy(text, b"+  :  :  ", 9)
    if seconds < 0:
        text[0] = c'-'
        seconds = -seconds
    write_digits(text + 1, seconds // 3600, 2)
    write_digits(text + 4, seconds // 60 % 60, 2)
    write_digits(text + 7, seconds % 60, 2)
    return put_bytes(into, text, 9 if seconds % 60 else 6)


cdef int64_t put_time(Growing *into, int64_t millis, int64_t zone) noexcept nogil:
    """Append ISO-8601 with milliseconds, as ``times.format_millis`` does."""
    cdef char[TIME_BYTES] text
    cdef int64_t ahead = zone_seconds(millis, zone)
    cdef int64_t day, rest, cycle, year, month
    millis += 1000 * ahead
    day = millis // DAY_MS
    rest = millis % DAY_MS
    if rest < 0:                             # C rounds towards zero
        rest += DAY_MS
        day -= 1
    day += EPOCH_DAYS
    cycle = (day if day >= 0 else day - (CYCLE_DAYS - 1)) // CYCLE_DAYS
    day -= cycle * CYCLE_DAYS
    year = (day - day // 1460 + day // 36524 - day // (CYCLE_DAYS - 1)) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153             # counted from March
    day -= (153 * month + 2) // 5 - 1
    month += 3 if month < 10 else -9
    year += 400 * cycle + (month <= 2)
    if put_year(into, year) < 0:
        return E_NO_MEMORY
    memcpy(text, b"-  -  T  :  :  .   ", TIME_BYTES)
    write_digits(text + 1, month, 2)
    write_digits(text + 4, day, 2)
    write_digits(text + 7, rest // 3600000, 2)
    write_digits(text + 10, rest // 60000 % 60, 2)
    write_digits(text + 13, rest // 1000 % 60, 2)
    write_digits(text + 16, rest % 1000, 3)
    if put_bytes(into, text, TIME_BYTES) < 0:
        return E_NO_MEMORY
    return put_zone(into, ahead)


cdef int64_t put_hex_bytes(Growing *into, const char *data, int64_t length) noexcept nogil:
    """Append two digits a byte."""
    cdef int64_t i
    cdef char *out
    if growing_room(into, 2 * length) < 0:
        return E_NO_MEMORY
    out = into.data + into.length
    for i in range(length):
        out[2 * i] = hex_digit(<unsigned char>data[i] >> 4)
        out[2 * i + 1] = hex_digit(data[i] & 15)
    into.length += 2 * length
    return 0


cdef int64_t put_base64(Growing *into, const char *data, int64_t length) noexcept nogil:
    """Append four characters for each three bytes, padded with ``=``."""
    cdef int64_t i
    cdef uint32_t three
    cdef char *out
    if growing_room(into, (length + 2) // 3 * 4) < 0:
        return E_NO_MEMORY
    out = into.data + into.length
    for i in range(0, length, 3):
        three = <uint32_t><unsigned char>data[i] << 16
        if i + 1 < length:
            three |= <uint32_t><unsigned char>data[i + 1] << 8
        if i + 2 < length:
            three |= <unsigned char>data[i + 2]
        out[0] = base64_digits[three >> 18]
        out[1] = base64_digits[three >> 12 & 63]
        out[2] = base64_digits[three >> 6 & 63] if i + 1 < length else c'='
        out[3] = base64_digits[three & 63] if i + 2 < length else c'='
        out += 4
    into.length = out - into.data
    return 0


cdef inline char *json_escape(char *out, unsigned char c) noexcept nogil:
    """Write one character of a JSON string, at most 6 bytes; the position after it."""
    cdef char short_one
    if c >= 0x20 and c != c'"' and c != c'\\':
        out[0] = <char>c
        return out + 1
    out[0] = c'\\'
    short_one = c'n' if c == c'\n' else c't' if c == c'\t' else c'r' if c == c'\r' \
        else c'b' if c == c'\b' else c'f' if c == c'\f' else <char>c
    if c >= 0x20 or short_one != <char>c:
        out[1] = short_one
        return out + 2
    memcpy(out + 1, b"u00", 3)
    out[4] = hex_digit(c >> 4)
    out[5] = hex_digit(c & 15)
    return out + 6


cdef int64_t put_json_text(Growing *into, const char *text, int64_t length) noexcept nogil:
    """Append a JSON string; characters beyond ASCII are not escaped.

    REQUIRES: the text is UTF-8.
    """
    cdef int64_t at = 0
    cdef int64_t stop, plain
    cdef char *out
    if put_byte(into, c'"') < 0:
        return E_NO_MEMORY
    while at < length:
        stop = min(length, at + TEXT_PIECE)
        if growing_room(into, 6 * (stop - at)) < 0:
            return E_NO_MEMORY
        out = into.data + into.length
        while at < stop:
            if stop - at >= 8:
                memcpy(out, text + at, 8)
                plain = json_plain(java_load_8(text + at))
                out += plain
                at += plain
                if plain == 8:
                    continue
            out = json_escape(out, <unsigned char>text[at])
            at += 1
        into.length = out - into.data
    return put_byte(into, c'"')


cdef bint csv_quotes(const char *text, int64_t length) noexcept nogil:
    """Whether a cell must be quoted: it has a comma, a quote or a line break."""
    cdef int64_t at = 0
    while at < length:
        if length - at >= 8:
            if csv_plain(java_load_8(text + at)) < 8:
                return True
            at += 8
        elif text[at] == c',' or text[at] == c'"' or text[at] == c'\n' or text[at] == c'\r':
            return True
        else:
            at += 1
    return False


cdef int64_t put_csv_text(Growing *into, const char *text, int64_t length) noexcept nogil:
    """Append a cell of text, quoted if necessary, with its own quotes doubled."""
    cdef const char *quote
    cdef int64_t size
    if not csv_quotes(text, length):
        return put_bytes(into, text, length)
    if put_byte(into, c'"') < 0:
        return E_NO_MEMORY
    while length:
        quote = <const char *>memchr(text, c'"', <size_t>length)
        size = quote + 1 - text if quote != NULL else length
        if put_bytes(into, text, size) < 0 or (quote != NULL and put_byte(into, c'"') < 0):
            return E_NO_MEMORY
        text += size
        length -= size
    return put_byte(into, c'"')
