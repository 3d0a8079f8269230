# Tokens of an SQL92 filter, by longest match.
#
# Source: filter/parser/SelectorParser.jj, SelectorParserTokenManager.java

cdef enum:
    TOKEN_END
    TOKEN_NOT
    TOKEN_AND
    TOKEN_OR
    TOKEN_BETWEEN
    TOKEN_IN
    TOKEN_TRUE
    TOKEN_FALSE
    TOKEN_NULL
    TOKEN_IS
    TOKEN_DECIMAL
    TOKEN_FLOAT
    TOKEN_TEXT
    TOKEN_NAME
    TOKEN_EQUAL
    TOKEN_NOT_EQUAL
    TOKEN_GREATER
    TOKEN_GREATER_EQUAL
    TOKEN_LESS
    TOKEN_LESS_EQUAL
    TOKEN_OPEN
    TOKEN_COMMA
    TOKEN_CLOSE
    TOKEN_PLUS
    TOKEN_MINUS
    TOKEN_BAD                    # no token begins like this

cdef struct SqlText:
    const char *data
    int64_t length
    int64_t last_break           # end of its last line, -1 if it has none

cdef struct SqlToken:
    int32_t kind
    int64_t start
    int64_t stop


cdef inline bint is_name_byte(char byte) noexcept nogil:
    return 97 <= (byte | 32) <= 122 or byte == 95 or byte == 36


cdef bint is_word(const char *text, int64_t length, const char *word) noexcept nogil:
    """Compare ignoring case."""
    cdef int64_t i
    for i in range(length):
        if word[i] == 0 or text[i] | 32 != word[i]:
            return False
    return word[length] == 0


cdef int32_t word_kind(const char *text, int64_t length) noexcept nogil:
    if length == 2:
        if is_word(text, length, b"or"):
            return TOKEN_OR
        if is_word(text, length, b"in"):
            return TOKEN_IN
        if is_word(text, length, b"is"):
            return TOKEN_IS
    elif length == 3:
        if is_word(text, length, b"and"):
            return TOKEN_AND
        if is_word(text, length, b"not"):
            return TOKEN_NOT
    elif length == 4:
        if is_word(text, length, b"true"):
            return TOKEN_TRUE
        if is_word(text, length, b"null"):
            return TOKEN_NULL
    elif length == 5 and is_word(text, length, b"false"):
        return TOKEN_FALSE
    elif length == 7 and is_word(text, length, b"between"):
        return TOKEN_BETWEEN
    return TOKEN_NAME


cdef int64_t comment_stop(const SqlText *of, int64_t at) noexcept nogil:
    """End of the comment at ``at``; ``at`` without one, or if it is not closed."""
    cdef const char *text = of.data
    cdef int64_t length = of.length
    cdef int64_t begin = at
    cdef const char *star
    if length - at < 2:
        return begin
    if text[at] == 45 and text[at + 1] == 45:
        at += 2
        if at > of.last_break:
            return begin
        while text[at] != 10 and text[at] != 13:
            at += 1
        return at + 1
    elif text[at] == 47 and text[at + 1] == 42:
        at += 2
        while at < length:
            star = <const char *>memchr(text + at, 42, <size_t>(length - at))
            if star == NULL or star + 1 == text + length:
                return begin
            at = star + 1 - text
            if text[at] == 47:
                return at + 1
    return begin


cdef int64_t digits_stop(const char *text, int64_t at, int64_t length) noexcept nogil:
    while at < length and is_digit(text[at]):
        at += 1
    return at


cdef int64_t exponent_stop(const char *text, int64_t at, int64_t length) noexcept nogil:
    """End of e, a sign and digits; ``at`` without them."""
    cdef int64_t digits = at + 1
    cdef int64_t stop
    if at >= length or text[at] | 32 != 101:
        return at
    if digits < length and (text[digits] == 43 or text[digits] == 45):
        digits += 1
    stop = digits_stop(text, digits, length)
    return stop if stop > digits else at


cdef void number_token(const char *text, int64_t length, SqlToken *token) noexcept nogil:
    """Read a number at ``start``, where a digit or a point is."""
    cdef int64_t at = token.start
    cdef int64_t digits = digits_stop(text, at, length)
    token.kind = TOKEN_FLOAT
    if digits < length and text[digits] == 46:
        token.stop = digits_stop(text, digits + 1, length)
        if token.stop - at == 1:             # a lone point
            token.kind = TOKEN_BAD
        token.stop = exponent_stop(text, token.stop, length)
        return
    token.stop = exponent_stop(text, digits, length)
    if token.stop > digits:
        return
    token.kind = TOKEN_DECIMAL               # 0, or no leading 0
    if text[at] == 48:
        token.stop = at + 1
    elif digits < length and text[digits] | 32 == 108:
        token.stop = digits + 1


cdef void text_token(const char *text, int64_t length, SqlToken *token) noexcept nogil:
    """Read a quoted text; one without an end ends at its last two quotes in a row, as in Java."""
    cdef int64_t at = token.start + 1
    cdef int64_t stop = -1
    cdef const char *quote
    while at < length:
        quote = <const char *>memchr(text + at, 39, <size_t>(length - at))
        if quote == NULL:
            break
        at = quote + 1 - text
        stop = at
        if at == length or text[at] != 39:
            break
        at += 1                              # two quotes: one in the text, if another follows
    token.kind = TOKEN_TEXT if stop > 0 else TOKEN_BAD
    token.stop = stop if stop > 0 else length


cdef void sql_text(SqlText *into, const char *text, int64_t length) noexcept nogil:
    into.data = text
    into.length = length
    into.last_break = length - 1
    while into.last_break >= 0 and text[into.last_break] != 10 and text[into.last_break] != 13:
        into.last_break -= 1


cdef void sql_token(const SqlText *of, int64_t at, SqlToken *token) noexcept nogil:
    """Read the token at or after ``at``, past blanks and comments."""
    cdef const char *text = of.data
    cdef int64_t length = of.length
    cdef int64_t stop
    cdef char byte
    while at < length:
        if text[at] in (32, 9, 10, 13, 12):
            at += 1
            continue
        stop = comment_stop(of, at)
        if stop == at:
            break
        at = stop
    token.start = at
    token.stop = min(at + 1, length)
    token.kind = TOKEN_END
    if at == length:
        return
    byte = text[at]
    if is_name_byte(byte):
        while token.stop < length and (
                is_name_byte(text[token.stop]) or is_digit(text[token.stop])):
            token.stop += 1
        token.kind = word_kind(text + at, token.stop - at)
    elif is_digit(byte) or byte == 46:
        number_token(text, length, token)
    elif byte == 39:
        text_token(text, length, token)
    else:
        token.kind = sign_kind(byte, text[at + 1] if at + 1 < length else 0)
        if token.kind in (TOKEN_NOT_EQUAL, TOKEN_GREATER_EQUAL, TOKEN_LESS_EQUAL):
            token.stop = at + 2


cdef int32_t sign_kind(char byte, char following) noexcept nogil:
    if byte == 61:
        return TOKEN_EQUAL
    if byte == 60:
        if following == 62:
            return TOKEN_NOT_EQUAL
        return TOKEN_LESS_EQUAL if following == 61 else TOKEN_LESS
    if byte == 62:
        return TOKEN_GREATER_EQUAL if following == 61 else TOKEN_GREATER
    if byte == 40:
        return TOKEN_OPEN
    if byte == 41:
        return TOKEN_CLOSE
    if byte == 44:
        return TOKEN_COMMA
    if byte == 43:
        return TOKEN_PLUS
    return TOKEN_MINUS if byte == 45 else TOKEN_BAD
