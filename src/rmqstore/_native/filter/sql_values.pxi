# Comparison of SQL92 values, with Java's conversions.
#
# Texts are compared as decoded by Java: a U+FFFD for each malformed part.
#
# Source: filter/expression/ComparisonExpression.java __compare

cdef enum:
    CHARACTER_BYTES = 4          # of UTF-8, at most, that become one character
    STRING_SHORT = 64            # compared without its hash


cdef bint java_text_same(
    const char *one, int64_t one_length, const char *other, int64_t other_length,
) noexcept nogil:
    """``String.equals`` of two texts as Java decodes them; ends at the first difference."""
    cdef const unsigned char *a = <const unsigned char *>one
    cdef const unsigned char *b = <const unsigned char *>other
    cdef int64_t i = 0
    cdef int64_t j = 0
    cdef uint32_t code_a = 0
    cdef uint32_t code_b = 0
    while i < one_length and j < other_length:
        i += java_decode_utf8(a + i, one_length - i, &code_a)
        j += java_decode_utf8(b + j, other_length - j, &code_b)
        if code_a != code_b:
            return False
    return i == one_length and j == other_length


cdef uint64_t string_code(SqlString *string) noexcept nogil:
    """Hash of the characters, computed once; equal for texts that Java takes for equal."""
    cdef int64_t at = 0
    cdef uint32_t code = 0
    if not string.known & STRING_HASHED:
        string.known |= STRING_HASHED
        string.hash = topic_hash_seed
        while at < string.length:
            at += java_decode_utf8(
                <const unsigned char *>string.text + at, string.length - at, &code)
            string.hash = (string.hash ^ code) * <uint64_t>0x9E3779B97F4A7C15
            string.hash ^= string.hash >> 32
    return string.hash


cdef bint string_is_utf8(SqlString *string) noexcept nogil:
    """Whether the text is UTF-8, which Java decodes without loss; validated once."""
    if not string.known & STRING_CHECKED:
        string.known |= STRING_CHECKED
        if utf8_error(string.text, string.length) < 0:
            string.known |= STRING_IS_UTF8
    return string.known & STRING_IS_UTF8 != 0


cdef bint strings_same(SqlString *one, SqlString *other) noexcept nogil:
    """``String.equals``; a text that is long or no UTF-8 is walked once over all comparisons."""
    if one.text == other.text and one.length == other.length:
        return True
    if min(one.length, other.length) > STRING_SHORT and string_code(one) != string_code(other):
        return False
    if one.length != other.length or memcmp(one.text, other.text, <size_t>one.length) != 0:
        if string_is_utf8(one) and string_is_utf8(other):
            return False
        if string_code(one) != string_code(other) \
                or not java_text_same(one.text, one.length, other.text, other.length):
            return False
    # From now on they share one text: a literal outlives a message.
    if not other.known & STRING_LITERAL:
        other[0] = one[0]
    elif not one.known & STRING_LITERAL:
        one[0] = other[0]
    return True


cdef bint is_in_list(const TextSet *texts, SqlString *string) noexcept nogil:
    """``contains``; linear in the list for a text that is no UTF-8."""
    cdef int64_t i
    if text_set_find(texts, string.text, string.length) >= 0:
        return True
    if string.length > CHARACTER_BYTES * texts.longest or string_is_utf8(string):
        return False
    for i in range(texts.count):
        if java_text_same(texts.texts[i], texts.lengths[i], string.text, string.length):
            return True
    return False


cdef bint string_is_whole(SqlString *string) noexcept nogil:
    """``Long.valueOf``, once: whether it succeeds; the value is in ``whole``."""
    if not string.known & STRING_WHOLE:
        string.known |= STRING_WHOLE
        if java_integer(string.text, string.length, INT64_LEAST, INT64_MOST, &string.whole):
            string.known |= STRING_IS_WHOLE
    return string.known & STRING_IS_WHOLE != 0


cdef bint string_is_real(SqlString *string) noexcept nogil:
    """``Double.valueOf``, once: whether it succeeds; the value is in ``real``."""
    if not string.known & STRING_REAL:
        string.known |= STRING_REAL
        if java_double(string.text, string.length, &string.real):
            string.known |= STRING_IS_REAL
    return string.known & STRING_IS_REAL != 0


cdef inline double sql_real(const SqlValue *value) noexcept nogil:
    return value.real if value.type == VALUE_DOUBLE else <double>value.number


cdef bint sql_text_as(SqlString *string, int64_t type, SqlValue *into) noexcept nogil:
    """``valueOf`` of a type: False where Java raises."""
    into.type = type
    if type == VALUE_DOUBLE:
        if not string_is_real(string):
            return False
        into.real = string.real
        return True
    if type == VALUE_BOOL:
        into.number = string.length == 4 and is_word(string.text, 4, b"true")
        return True
    if not string_is_whole(string):
        return False
    into.number = string.whole
    return type == VALUE_LONG or INT32_MIN <= into.number <= INT32_MAX


cdef bint sql_compare(const SqlValue *left, const SqlValue *right, int *answer) noexcept nogil:
    """``__compare``: -1, 0 or 1, also -1 for incomparable values; False where Java raises.

    Two texts are compared for equality only.
    """
    cdef SqlValue converted
    answer[0] = -1
    if left.type == VALUE_TEXT and right.type == VALUE_TEXT:
        answer[0] = 0 if strings_same(left.string, right.string) else 1
        return True
    if right.type == VALUE_TEXT:
        if left.type == VALUE_BOOL or not sql_text_as(right.string, left.type, &converted):
            return False
        right = &converted
    elif left.type == VALUE_TEXT:
        if not sql_text_as(left.string, right.type, &converted):
            return False
        left = &converted
    if (left.type == VALUE_BOOL) != (right.type == VALUE_BOOL):
        return True
    if left.type == VALUE_DOUBLE or right.type == VALUE_DOUBLE:
        answer[0] = java_compare_doubles(sql_real(left), sql_real(right))
    else:
        answer[0] = (left.number > right.number) - (left.number < right.number)
    return True


cdef bint sql_compare_ordered(
    const SqlValue *left, const SqlValue *right, int *answer,
) noexcept nogil:
    """As sql_compare for < and >: two texts are compared as numbers."""
    if left.type == VALUE_TEXT and right.type == VALUE_TEXT:
        if not string_is_real(left.string) or not string_is_real(right.string):
            return False
        answer[0] = java_compare_doubles(left.string.real, right.string.real)
        return True
    return sql_compare(left, right, answer)
