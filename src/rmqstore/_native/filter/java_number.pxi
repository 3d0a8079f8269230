# Conversion of text to numbers, accepted and refused as by Java's valueOf.
#
# Source: java.lang.Integer parseInt, java.lang.Long parseLong, java.lang.Character digit,
# jdk.internal.math.FloatingDecimal readJavaFormatString and parseHexString (Java 17)

cdef enum:
    DIGITS_KEPT = 800            # decimal digits that decide the rounding of a double, and some
    HEX_DIGITS_KEPT = 30
    EXPONENT_MAX = 1_000_000     # beyond it everything is 0 or infinite

# The zeros of all digits of Unicode's BMP beyond ASCII; nine more digits follow each.
cdef uint16_t[36] DIGIT_ZEROS = [
    0x0660, 0x06F0, 0x07C0, 0x0966, 0x09E6, 0x0A66, 0x0AE6, 0x0B66, 0x0BE6, 0x0C66, 0x0CE6,
    0x0D66, 0x0DE6, 0x0E50, 0x0ED0, 0x0F20, 0x1040, 0x1090, 0x17E0, 0x1810, 0x1946, 0x19D0,
    0x1A80, 0x1A90, 0x1B50, 0x1BB0, 0x1C40, 0x1C50, 0xA620, 0xA8D0, 0xA900, 0xA9D0, 0xA9F0,
    0xAA50, 0xABF0, 0xFF10,
]

cdef double[23] POWERS_OF_TEN = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
]


cdef int32_t java_digit(uint32_t code) noexcept nogil:
    """Digit value of a BMP character, -1 if none."""
    cdef int64_t i
    if code < 128:
        return <int32_t>code - 48 if 48 <= code <= 57 else -1
    for i in range(36):
        if DIGIT_ZEROS[i] <= code < <uint32_t>DIGIT_ZEROS[i] + 10:
            return <int32_t>(code - DIGIT_ZEROS[i])
    return -1


cdef bint java_integer(
    const char *text, int64_t length, int64_t least, int64_t most, int64_t *value,
) noexcept nogil:
    """``Integer.valueOf`` and ``Long.valueOf``: whether a number within ``least..most``."""
    cdef int64_t at = 0
    cdef uint64_t limit = <uint64_t>most
    cdef uint64_t found = 0
    cdef uint32_t code = 0
    cdef int32_t digit
    cdef bint negative = False
    if length > 0 and (text[0] == 45 or text[0] == 43):
        negative = text[0] == 45
        at = 1
    if at == length:
        return False
    if negative:
        limit = <uint64_t>-(least + 1) + 1
    while at < length:
        at += java_decode_utf8(<const unsigned char *>text + at, length - at, &code)
        digit = java_digit(code)
        if digit < 0 or found > (limit - <uint64_t>digit) // 10:
            return False
        found = found * 10 + <uint64_t>digit
    value[0] = <int64_t>(0 - found) if negative else <int64_t>found
    return True


cdef inline bint is_digit(char byte) noexcept nogil:
    return 48 <= byte <= 57


cdef inline int32_t hex_value(char byte) noexcept nogil:
    if 48 <= byte <= 57:
        return byte - 48
    byte |= 32
    return byte - 87 if 97 <= byte <= 102 else -1


cdef bint java_exponent(
    const char *text, int64_t length, int64_t *at, int64_t *exponent,
) noexcept nogil:
    """Read a sign and digits at ``at``, which moves past them; False without a digit."""
    cdef bint negative = False
    cdef int64_t begin
    exponent[0] = 0
    if at[0] < length and (text[at[0]] == 45 or text[at[0]] == 43):
        negative = text[at[0]] == 45
        at[0] += 1
    begin = at[0]
    while at[0] < length and is_digit(text[at[0]]):
        if exponent[0] < EXPONENT_MAX:
            exponent[0] = exponent[0] * 10 + text[at[0]] - 48
        at[0] += 1
    if negative:
        exponent[0] = -exponent[0]
    return at[0] > begin


cdef inline bint is_suffix(const char *text, int64_t length, int64_t at) noexcept nogil:
    """Whether nothing or a single fFdD follows."""
    return at == length or (
        at == length - 1 and (text[at] | 32 == 102 or text[at] | 32 == 100))


cdef bint java_hex_double(const char *text, int64_t length, double *value) noexcept nogil:
    """Parse the part after 0x: digits, perhaps with a point, p, and an exponent of 2."""
    cdef char[HEX_DIGITS_KEPT + 64] kept
    cdef int64_t at = 0
    cdef int64_t count = 0
    cdef int64_t shift = 0               # of digits: after the point, or dropped
    cdef int64_t digits = 0
    cdef int64_t exponent = 0
    cdef bint point = False
    cdef bint more = False
    while at < length:
        if text[at] == 46 and not point:
            point = True
        elif hex_value(text[at]) >= 0:
            digits += 1
            if count == HEX_DIGITS_KEPT:
                more |= text[at] != 48
                shift += not point
            else:
                shift -= point
                if count or text[at] != 48:
                    kept[2 + count] = text[at]
                    count += 1
        else:
            break
        at += 1
    if digits == 0 or at == length or text[at] | 32 != 112:
        return False
    at += 1
    if not java_exponent(text, length, &at, &exponent) or not is_suffix(text, length, at):
        return False
    value[0] = 0.0
    if count == 0:
        return True
    exponent = max(-EXPONENT_MAX, min(<int64_t>EXPONENT_MAX, exponent)) + 4 * shift
    if more:                             # nonzero digits were dropped
        kept[2 + count] = 49
        count += 1
        exponent -= 4
    kept[0] = 48
    kept[1] = 120
    snprintf(kept + 2 + count, 32, "p%lld", <long long>exponent)
    value[0] = strtod(kept, NULL)
    return True


cdef bint java_decimal_double(const char *text, int64_t length, double *value) noexcept nogil:
    """Parse digits, perhaps with a point and an exponent of 10."""
    cdef char[DIGITS_KEPT + 64] kept
    cdef int64_t at = 0
    cdef int64_t count = 0               # digits from the first that is not 0
    cdef int64_t last = 0                # digits up to the last nonzero one
    cdef int64_t leading = 0             # zeros before the first
    cdef int64_t before_point = 0        # digits
    cdef int64_t exponent = 0
    cdef int64_t decimal                 # 0.digits times 10 to this power
    cdef int64_t whole = 0
    cdef bint point = False
    cdef bint more = False
    while at < length and (is_digit(text[at]) or text[at] == 46):
        if text[at] == 46:
            if point:
                return False
            point = True
        else:
            before_point += not point
            if count == 0 and text[at] == 48:
                leading += 1
            else:
                if count < DIGITS_KEPT:
                    kept[count] = text[at]
                    if count < 18:
                        whole = whole * 10 + text[at] - 48
                elif text[at] != 48:
                    more = True
                count += 1
                if text[at] != 48:
                    last = count
        at += 1
    if count + leading == 0:
        return False
    decimal = before_point - leading
    if at < length and text[at] | 32 == 101:
        at += 1
        if not java_exponent(text, length, &at, &exponent):
            return False
        decimal += exponent
    if not is_suffix(text, length, at):
        return False
    value[0] = 0.0
    if count == 0:
        return True
    if count <= 15 and -22 <= decimal - count <= 22:
        # Both are exact, so the single operation rounds correctly.
        value[0] = whole * POWERS_OF_TEN[decimal - count] if decimal >= count \
            else whole / POWERS_OF_TEN[count - decimal]
        return True
    count = min(last, <int64_t>DIGITS_KEPT)
    if more:
        kept[count] = 49
        count += 1
    # Without a point, independent of the locale.
    snprintf(kept + count, 32, "e%lld", <long long>(decimal - count))
    value[0] = strtod(kept, NULL)
    return True


cdef bint java_double(const char *text, int64_t length, double *value) noexcept nogil:
    """``Double.valueOf``: whether a number."""
    cdef bint negative = False
    cdef bint good
    while length > 0 and <unsigned char>text[0] <= 32:
        text += 1
        length -= 1
    while length > 0 and <unsigned char>text[length - 1] <= 32:
        length -= 1
    if length > 0 and (text[0] == 45 or text[0] == 43):
        negative = text[0] == 45
        text += 1
        length -= 1
    if length <= 0:
        return False
    if text[0] == 78:
        value[0] = NAN
        return length == 3 and memcmp(text, b"NaN", 3) == 0
    if text[0] == 73:
        value[0] = INFINITY
        good = length == 8 and memcmp(text, b"Infinity", 8) == 0
    elif text[0] == 48 and length > 1 and text[1] | 32 == 120:
        good = java_hex_double(text + 2, length - 2, value)
    else:
        good = java_decimal_double(text, length, value)
    if negative:
        value[0] = -value[0]
    return good


cdef inline int java_compare_doubles(double one, double other) noexcept nogil:
    """``Double.compare``: -0.0 below 0.0, NaN equal to itself and above all others."""
    cdef int64_t a, b
    if one < other:
        return -1
    if one > other:
        return 1
    if one == other and one != 0:
        return 0
    if one != one or other != other:
        return <int>(one != one) - <int>(other != other)
    memcpy(&a, &one, 8)
    memcpy(&b, &other, 8)
    return (a > b) - (a < b)
