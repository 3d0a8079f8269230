# Values of an SQL92 filter compared, with Java's conversions.
#
# Text is compared as Java sees it, where each malformed part of it is a U+FFFD.
#
# Source: filter/expression/ComparisonExpression.java __compare

cdef bint java_text_same(const SqlValue *one, const SqlValue *other) noexcept nogil:
    """``String.equals`` of the two as Java decodes them."""
    cdef const unsigned char *a = <const unsigned char *>one.text
    cdef const unsigned char *b = <const unsigned char *>other.text
    cdef int64_t i = 0
    cdef int64_t j = 0
    cdef uint32_t code_a = 0
    cdef uint32_t code_b = 0
    if one.length == other.length and memcmp(a, b, <size_t>one.length) == 0:
        return True
    if utf8_error(one.text, one.length) < 0 and utf8_error(other.text, other.length) < 0:
        return False
    while i < one.length and j < other.length:
        i += java_decode_utf8(a + i, one.length - i, &code_a)
        j += java_decode_utf8(b + j, other.length - j, &code_b)
        if code_a != code_b:
            return False
    return i == one.length and j == other.length


cdef bint is_in_list(const TextSet *texts, const SqlValue *value) noexcept nogil:
    cdef SqlValue each
    cdef int64_t i
    if text_set_find(texts, value.text, value.length) >= 0:
        return True
    if utf8_error(value.text, value.length) < 0:
        return False
    for i in range(texts.count):
        each.text = texts.texts[i]
        each.length = <int32_t>texts.lengths[i]
        if java_text_same(&each, value):
            return True
    return False


cdef inline double sql_real(const SqlValue *value) noexcept nogil:
    return value.real if value.type == VALUE_DOUBLE else <double>value.number


cdef bint sql_text_as(const SqlValue *text, int32_t type, SqlValue *into) noexcept nogil:
    """``valueOf`` of a type: False where Java raises."""
    into.type = type
    if type == VALUE_INT:
        return java_integer(text.text, text.length, INT32_MIN, INT32_MAX, &into.number)
    if type == VALUE_LONG:
        return java_integer(text.text, text.length, INT64_LEAST, INT64_MOST, &into.number)
    if type == VALUE_DOUBLE:
        return java_double(text.text, text.length, &into.real)
    into.number = text.length == 4 and is_word(text.text, 4, b"true")
    return True


cdef bint sql_compare(const SqlValue *left, const SqlValue *right, int *answer) noexcept nogil:
    """``__compare``: -1, 0 or 1, also -1 for what cannot be compared; False where Java raises.

    Of two texts only whether they are the same is said.
    """
    cdef SqlValue converted
    answer[0] = -1
    if left.type == VALUE_TEXT and right.type == VALUE_TEXT:
        answer[0] = 0 if java_text_same(left, right) else 1
        return True
    if right.type == VALUE_TEXT:
        if left.type == VALUE_BOOL or not sql_text_as(right, left.type, &converted):
            return False
        right = &converted
    elif left.type == VALUE_TEXT:
        if not sql_text_as(left, right.type, &converted):
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
    cdef double a = 0
    cdef double b = 0
    if left.type == VALUE_TEXT and right.type == VALUE_TEXT:
        if not java_double(left.text, left.length, &a) \
                or not java_double(right.text, right.length, &b):
            return False
        answer[0] = java_compare_doubles(a, b)
        return True
    return sql_compare(left, right, answer)
