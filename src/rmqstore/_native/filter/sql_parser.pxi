# State of the parser of SQL92 filters: current token, pending operators, refusal; and parsing of
# values, which are single tokens.
#
# Source: filter/parser/SelectorParser.java literal, stringLitteral, variable;
# filter/expression/ConstantExpression.java

cdef enum:
    OPERAND_NUMBER               # a literal; ``at``: the constant
    OPERAND_TEXT
    OPERAND_BOOL
    OPERAND_NULL
    OPERAND_NAME
    OPERAND_NEGATED              # of any kind: null if not a number
    OPERAND_CONDITION

    PENDING_OPEN
    PENDING_NEGATE
    PENDING_NOT
    PENDING_COMPARE              # < <= > >=, its step in ``op``
    PENDING_LOW                  # BETWEEN before its lower bound; ``op``: STEP_BETWEEN_LOW or ...
    PENDING_HIGH                 # before its upper bound
    PENDING_EQUAL                # = <>
    PENDING_AND
    PENDING_OR

    # Current position: a value, and whether operators of these levels may follow.
    AT_VALUE                     # after its signs
    AT_COMPARISON
    AT_EQUALITY
    AT_AND
    AT_OR

cdef struct SqlOperand:
    int32_t kind
    int32_t at
    int64_t start                # in the expression

cdef struct SqlPending:
    int32_t kind
    int32_t op
    int64_t skip                 # steps that jump to this operator's end; -1: none
    int64_t skip_low
    int64_t start

cdef struct SqlParser:
    SqlProgram *program
    SqlText text
    SqlToken token               # not consumed yet
    SqlOperand *operands
    int64_t operand_count
    int64_t operand_room
    SqlPending *pending
    int64_t pending_count
    int64_t pending_room
    int64_t status               # E_CORRUPT: refused, as described below; E_NO_MEMORY
    const char *expected         # a phrase; NULL: ``reason`` is complete
    const char *reason
    int64_t start                # of the token found instead
    int64_t stop


cdef int64_t sql_expected(SqlParser *parser, const char *what) noexcept nogil:
    """Refuse the current token."""
    if parser.status == 0:
        parser.status = E_CORRUPT
        parser.expected = what
        if parser.token.kind == TOKEN_BAD:
            parser.expected = NULL
            parser.reason = "an unfinished text" if parser.text.data[parser.token.start] == 39 \
                else "no word or sign of a filter"
        parser.start = parser.token.start
        parser.stop = parser.token.stop
    return parser.status


cdef int64_t sql_refuse(SqlParser *parser, const char *reason, int64_t start) noexcept nogil:
    if parser.status == 0:
        parser.status = E_CORRUPT
        parser.reason = reason
        parser.start = parser.stop = start
    return parser.status


cdef inline void sql_next(SqlParser *parser) noexcept nogil:
    sql_token(&parser.text, parser.token.stop, &parser.token)


cdef int64_t sql_step(SqlParser *parser, int32_t op, int64_t at, int64_t growth) noexcept nogil:
    cdef int64_t number = program_step(parser.program, op, at, growth)
    if number < 0:
        parser.status = number
    return number


cdef void sql_skips_here(SqlParser *parser, int64_t step) noexcept nogil:
    if step >= 0:
        parser.program.steps[step].at = <int32_t>parser.program.count


cdef int64_t sql_push_operand(
    SqlParser *parser, int32_t kind, int64_t at, int64_t start,
) noexcept nogil:
    cdef SqlOperand *grown = <SqlOperand *>array_with_room(
        parser.operands, &parser.operand_room, parser.operand_count, sizeof(SqlOperand))
    if grown == NULL:
        parser.status = E_NO_MEMORY
        return parser.status
    parser.operands = grown
    parser.operands[parser.operand_count].kind = kind
    parser.operands[parser.operand_count].at = <int32_t>at
    parser.operands[parser.operand_count].start = start
    parser.operand_count += 1
    return 0


cdef int64_t sql_push_pending(
    SqlParser *parser, int32_t kind, int32_t op, int64_t skip,
) noexcept nogil:
    """Push the operator that the current token begins, and advance."""
    cdef SqlPending *grown = <SqlPending *>array_with_room(
        parser.pending, &parser.pending_room, parser.pending_count, sizeof(SqlPending))
    if grown == NULL:
        parser.status = E_NO_MEMORY
        return parser.status
    parser.pending = grown
    parser.pending[parser.pending_count].kind = kind
    parser.pending[parser.pending_count].op = op
    parser.pending[parser.pending_count].skip = skip
    parser.pending[parser.pending_count].skip_low = -1
    parser.pending[parser.pending_count].start = parser.token.start
    parser.pending_count += 1
    sql_next(parser)
    return parser.status


cdef inline SqlOperand *sql_operand(SqlParser *parser, int64_t before) noexcept nogil:
    """Operand ``before`` places below the last."""
    return &parser.operands[parser.operand_count - 1 - before]


cdef int64_t sql_number(SqlParser *parser, SqlValue *value) noexcept nogil:
    """Value of the current literal, in the type Java gives it."""
    cdef const char *text = parser.text.data + parser.token.start
    cdef int64_t length = parser.token.stop - parser.token.start
    if parser.token.kind == TOKEN_DECIMAL:
        length -= text[length - 1] | 32 == 108
        if not java_integer(text, length, INT64_LEAST, INT64_MOST, &value.number):
            return sql_refuse(parser, "a number above 9223372036854775807", parser.token.start)
        value.type = VALUE_INT if value.number <= INT32_MAX else VALUE_LONG
        return 0
    value.type = VALUE_DOUBLE
    if not java_double(text, length, &value.real) or value.real == INFINITY:
        return sql_refuse(parser, "a number above 1.7976931348623157E308", parser.token.start)
    if value.real == 0:
        return sql_refuse(parser, "a number with a point or an exponent below 4.9E-324; write 0",
                          parser.token.start)
    return 0


cdef const char *sql_quoted(SqlParser *parser, int64_t *length) noexcept nogil:
    """Text of the current literal: two quotes in it stand for one."""
    cdef const char *at = parser.text.data + parser.token.start + 1
    cdef const char *stop = parser.text.data + parser.token.stop - 1
    cdef const char *quote
    cdef const char *begin = parser.program.text + parser.program.text_length
    while at < stop:
        quote = <const char *>memchr(at, 39, <size_t>(stop - at))
        if quote == NULL:
            program_text(parser.program, at, stop - at)
            break
        program_text(parser.program, at, quote + 1 - at)
        at = quote + 2
    length[0] = parser.program.text + parser.program.text_length - begin
    return begin


cdef int64_t sql_name(SqlParser *parser) noexcept nogil:
    cdef const char *text = parser.text.data + parser.token.start
    cdef int64_t length = parser.token.stop - parser.token.start
    cdef int64_t number = text_set_find(&parser.program.names, text, length)
    if number < 0:
        number = text_set_add(
            &parser.program.names, program_text(parser.program, text, length), length)
    if number < 0:
        parser.status = number
        return number
    sql_step(parser, STEP_NAME, number, 1)
    return sql_push_operand(parser, OPERAND_NAME, number, parser.token.start)


cdef int64_t sql_literal(SqlParser *parser) noexcept nogil:
    cdef SqlValue value
    cdef int32_t kind = OPERAND_NUMBER
    cdef int64_t number
    cdef int64_t length = 0
    cdef const char *text = NULL
    memset(&value, 0, sizeof(SqlValue))
    if parser.token.kind == TOKEN_TEXT:
        text = sql_quoted(parser, &length)
        kind = OPERAND_TEXT
    elif parser.token.kind == TOKEN_NULL:
        value.type = VALUE_NULL
        kind = OPERAND_NULL
    elif parser.token.kind in (TOKEN_TRUE, TOKEN_FALSE):
        value.type = VALUE_BOOL
        value.number = parser.token.kind == TOKEN_TRUE
        kind = OPERAND_BOOL
    elif sql_number(parser, &value) < 0:
        return parser.status
    if kind == OPERAND_TEXT:
        number = program_string(parser.program, text, length)
    else:
        number = program_constant(parser.program, &value)
    if number < 0:
        parser.status = number
        return number
    sql_step(parser, STEP_STRING if kind == OPERAND_TEXT else STEP_CONSTANT, number, 1)
    return sql_push_operand(parser, kind, number, parser.token.start)
