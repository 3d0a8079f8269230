# Parser of SQL92 filters, without recursion, into evaluation steps.
#
# Precedence, tightest first: a value or a condition in brackets; signs and NOT before it;
# comparisons, BETWEEN and IN; = <> and IS NULL; AND; OR.  As in Java the text after a complete
# expression is not read, except for one token, which must be valid.  Nesting takes memory, not
# stack: an expression too deep for Java's stack works here.
#
# Source: filter/parser/SelectorParser.java; the checks are those of filter/expression/
# ComparisonExpression.java, ConstantExpression.java and UnaryExpression.java

cdef int64_t sql_to_condition(SqlParser *parser) noexcept nogil:
    """Make the last operand a condition: a property counts as one."""
    cdef SqlOperand *last = sql_operand(parser, 0)
    if last.kind == OPERAND_NAME:
        sql_step(parser, STEP_CAST, 0, 0)
    elif last.kind not in (OPERAND_CONDITION, OPERAND_BOOL, OPERAND_NULL):
        return sql_refuse(parser, "a value, where a condition is expected", last.start)
    last.kind = OPERAND_CONDITION
    return parser.status


cdef int64_t sql_check_ordered(SqlParser *parser, const SqlOperand *operand) noexcept nogil:
    """Refuse an operand that < > and BETWEEN do not compare."""
    if operand.kind == OPERAND_TEXT:
        return sql_refuse(parser, "a text is compared by = and <> only", operand.start)
    if operand.kind == OPERAND_NULL:
        return sql_refuse(parser, "NULL is compared by IS NULL and IS NOT NULL only",
                          operand.start)
    if operand.kind in (OPERAND_BOOL, OPERAND_CONDITION):
        return sql_refuse(parser, "a condition is compared by = and <> only", operand.start)
    return 0


cdef int64_t sql_check_equal(SqlParser *parser) noexcept nogil:
    cdef SqlOperand *left = sql_operand(parser, 1)
    cdef SqlOperand *right = sql_operand(parser, 0)
    if left.kind == OPERAND_NULL or right.kind == OPERAND_NULL:
        return sql_refuse(parser, "NULL is compared by IS NULL and IS NOT NULL only",
                          left.start if left.kind == OPERAND_NULL else right.start)
    if left.kind == OPERAND_BOOL and right.kind in (OPERAND_NUMBER, OPERAND_TEXT):
        return sql_refuse(parser, "TRUE and FALSE are compared with no number or text",
                          right.start)
    return 0


cdef int64_t sql_check_bounds(SqlParser *parser) noexcept nogil:
    """BETWEEN: check that literal bounds are in order."""
    cdef const SqlOperand *low = sql_operand(parser, 1)
    cdef const SqlOperand *high = sql_operand(parser, 0)
    cdef const SqlValue *constants = parser.program.constants
    cdef int answer = 0
    if low.kind == OPERAND_NUMBER and high.kind == OPERAND_NUMBER \
            and sql_compare(&constants[high.at], &constants[low.at], &answer) and answer < 0:
        return sql_refuse(parser, "the lower bound is above the upper one", low.start)
    return 0


cdef int64_t sql_between(SqlParser *parser, SqlPending *frame) noexcept nogil:
    """Complete BETWEEN, its value and both bounds being parsed."""
    cdef bint inside = frame.op == STEP_BETWEEN_LOW
    if (inside and sql_check_bounds(parser) < 0) \
            or sql_check_ordered(parser, sql_operand(parser, 2)) < 0 \
            or sql_check_ordered(parser, sql_operand(parser, 1)) < 0 \
            or sql_check_ordered(parser, sql_operand(parser, 0)) < 0:
        return parser.status
    sql_step(parser, STEP_BETWEEN_HIGH if inside else STEP_OUTSIDE_HIGH, 0, -2)
    sql_skips_here(parser, frame.skip_low)
    parser.operand_count -= 2
    return parser.status


cdef int64_t sql_reduce(SqlParser *parser) noexcept nogil:
    """Complete the pending operator, whose operands are parsed."""
    cdef SqlPending *frame = &parser.pending[parser.pending_count - 1]
    cdef SqlOperand *last
    if frame.kind == PENDING_NEGATE:
        sql_step(parser, STEP_NEGATE, 0, 0)
    elif frame.kind == PENDING_NOT:
        if sql_to_condition(parser) == 0:
            sql_step(parser, STEP_NOT, 0, 0)
    elif frame.kind == PENDING_HIGH:
        sql_between(parser, frame)
    elif frame.kind == PENDING_COMPARE:
        if sql_check_ordered(parser, sql_operand(parser, 1)) == 0 \
                and sql_check_ordered(parser, sql_operand(parser, 0)) == 0:
            sql_step(parser, frame.op, 0, -1)
        parser.operand_count -= 1
    elif frame.kind == PENDING_EQUAL:
        if sql_check_equal(parser) == 0:
            sql_step(parser, frame.op, 0, -1)
        parser.operand_count -= 1
    else:                                    # AND, OR
        if sql_to_condition(parser) == 0:
            sql_step(parser, frame.op, 0, -1)
        parser.operand_count -= 1
    if parser.status < 0:
        return parser.status
    sql_skips_here(parser, frame.skip)
    last = sql_operand(parser, 0)
    if frame.kind in (PENDING_NEGATE, PENDING_NOT):
        last.start = frame.start
    last.kind = OPERAND_NEGATED if frame.kind == PENDING_NEGATE else OPERAND_CONDITION
    parser.pending_count -= 1
    return 0


cdef int64_t sql_read_operand(SqlParser *parser) noexcept nogil:
    """Read signs, NOT and opening brackets, up to the value after them: 0 or the refusal."""
    cdef int32_t kind
    while True:
        kind = parser.token.kind
        if kind == TOKEN_PLUS:
            sql_next(parser)
        elif kind == TOKEN_MINUS:
            if sql_push_pending(parser, PENDING_NEGATE, 0, -1) < 0:
                return parser.status
        elif kind == TOKEN_NOT:
            if sql_push_pending(parser, PENDING_NOT, 0, -1) < 0:
                return parser.status
        elif kind == TOKEN_OPEN:
            if sql_push_pending(parser, PENDING_OPEN, 0, -1) < 0:
                return parser.status
        else:
            break
    if kind == TOKEN_NAME:
        sql_name(parser)
    elif TOKEN_TRUE <= kind <= TOKEN_NULL or TOKEN_DECIMAL <= kind <= TOKEN_TEXT:
        sql_literal(parser)
    else:
        return sql_expected(parser, "a property, a number, a text in single quotes, TRUE, FALSE, "
                            "NULL, NOT, a sign or '('")
    if parser.status == 0:
        sql_next(parser)
    return parser.status


cdef int64_t sql_in(SqlParser *parser, int32_t op) noexcept nogil:
    """Read IN, the current token, with its list."""
    cdef const char *text
    cdef TextSet *texts
    cdef int64_t number
    cdef int64_t length = 0
    if sql_operand(parser, 0).kind != OPERAND_NAME:
        return sql_refuse(parser, "a value that is no property has no IN",
                          sql_operand(parser, 0).start)
    number = program_list(parser.program)
    if number < 0:
        parser.status = number
        return number
    texts = &parser.program.lists[number]
    sql_next(parser)
    if parser.token.kind != TOKEN_OPEN:
        return sql_expected(parser, "'(' after IN")
    while True:
        sql_next(parser)
        if parser.token.kind != TOKEN_TEXT:
            return sql_expected(parser, "a text in single quotes")
        text = sql_quoted(parser, &length)
        if text_set_add(texts, text, length) < 0:
            parser.status = E_NO_MEMORY
            return parser.status
        sql_next(parser)
        if parser.token.kind == TOKEN_CLOSE:
            break
        if parser.token.kind != TOKEN_COMMA:
            return sql_expected(parser, "',' or ')'")
    sql_next(parser)
    sql_step(parser, op, number, 0)
    sql_operand(parser, 0).kind = OPERAND_CONDITION
    return parser.status


cdef int64_t sql_is(SqlParser *parser) noexcept nogil:
    """Read IS, the current token, with NULL or NOT NULL."""
    cdef int32_t op = STEP_IS_NULL
    sql_next(parser)
    if parser.token.kind == TOKEN_NOT:
        op = STEP_IS_NOT_NULL
        sql_next(parser)
    if parser.token.kind != TOKEN_NULL:
        return sql_expected(parser, "NULL" if op == STEP_IS_NOT_NULL else "NULL or NOT NULL")
    sql_next(parser)
    sql_step(parser, op, 0, 0)
    sql_operand(parser, 0).kind = OPERAND_CONDITION
    return parser.status


cdef int64_t sql_comparison(SqlParser *parser) noexcept nogil:
    """Begin a comparison: 1 if a value must follow, 0 if it is complete or there is none."""
    cdef int32_t kind = parser.token.kind
    cdef int32_t op = STEP_BETWEEN_LOW
    cdef bint negated = kind == TOKEN_NOT
    if TOKEN_GREATER <= kind <= TOKEN_LESS_EQUAL:
        op = STEP_GREATER + kind - TOKEN_GREATER
        sql_push_pending(parser, PENDING_COMPARE, op, sql_step(parser, STEP_SKIP_NULL, 0, 0))
        return parser.status if parser.status else 1
    if negated:
        sql_next(parser)
        kind = parser.token.kind
        if kind != TOKEN_BETWEEN and kind != TOKEN_IN:
            return sql_expected(parser, "BETWEEN or IN after NOT")
    if kind == TOKEN_BETWEEN:
        op = STEP_OUTSIDE_LOW if negated else STEP_BETWEEN_LOW
        sql_push_pending(parser, PENDING_LOW, op, sql_step(parser, STEP_SKIP_NULL, 0, 0))
        return parser.status if parser.status else 1
    return sql_in(parser, STEP_NOT_IN if negated else STEP_IN)


cdef int64_t sql_low_bound(SqlParser *parser, SqlPending *frame) noexcept nogil:
    """Finish the lower bound of BETWEEN; AND must follow."""
    if parser.token.kind != TOKEN_AND:
        return sql_expected(parser, "AND with the upper bound of BETWEEN")
    frame.skip_low = sql_step(parser, frame.op, 0, 0)
    frame.kind = PENDING_HIGH
    sql_next(parser)
    return parser.status


cdef int64_t sql_after_operand(SqlParser *parser) noexcept nogil:
    """Read on after a value: 1 if another must follow, 0 at the end of the expression."""
    cdef int64_t level = AT_VALUE
    cdef int32_t pending, kind
    cdef SqlPending *frame
    cdef int64_t rc
    while parser.status == 0:
        kind = parser.token.kind
        frame = &parser.pending[parser.pending_count - 1] if parser.pending_count else NULL
        pending = frame.kind if frame != NULL else -1
        if level == AT_VALUE:
            if pending in (PENDING_NEGATE, PENDING_NOT):
                sql_reduce(parser)
            elif pending == PENDING_LOW:
                sql_low_bound(parser, frame)
                return parser.status if parser.status else 1
            elif pending in (PENDING_COMPARE, PENDING_HIGH):
                sql_reduce(parser)
                level = AT_COMPARISON
            else:
                level = AT_COMPARISON
        elif level == AT_COMPARISON:
            if TOKEN_GREATER <= kind <= TOKEN_LESS_EQUAL or kind in (
                    TOKEN_NOT, TOKEN_BETWEEN, TOKEN_IN):
                rc = sql_comparison(parser)
                if rc:
                    return rc
            elif pending == PENDING_EQUAL:
                sql_reduce(parser)
                level = AT_EQUALITY
            else:
                level = AT_EQUALITY
        elif level == AT_EQUALITY:
            if kind in (TOKEN_EQUAL, TOKEN_NOT_EQUAL):
                sql_push_pending(parser, PENDING_EQUAL,
                                 STEP_EQUAL if kind == TOKEN_EQUAL else STEP_NOT_EQUAL, -1)
                return parser.status if parser.status else 1
            if kind == TOKEN_IS:
                sql_is(parser)
            else:
                level = AT_AND
                if pending == PENDING_AND:
                    sql_reduce(parser)
        elif level == AT_AND:
            if kind == TOKEN_AND:
                if sql_to_condition(parser) == 0:
                    sql_push_pending(parser, PENDING_AND, STEP_AND,
                                     sql_step(parser, STEP_SKIP_FALSE, 0, 0))
                return parser.status if parser.status else 1
            level = AT_OR
            if pending == PENDING_OR:
                sql_reduce(parser)
        elif kind == TOKEN_OR:
            if sql_to_condition(parser) == 0:
                sql_push_pending(parser, PENDING_OR, STEP_OR,
                                 sql_step(parser, STEP_SKIP_TRUE, 0, 0))
            return parser.status if parser.status else 1
        elif pending == PENDING_OPEN:
            if kind != TOKEN_CLOSE:
                return sql_expected(parser, "an operator or ')'")
            sql_operand(parser, 0).start = frame.start
            parser.pending_count -= 1
            sql_next(parser)
            level = AT_VALUE
        else:
            return 0
    return parser.status


cdef int64_t sql_parse(
    SqlParser *parser, SqlProgram *program, const char *text, int64_t length,
) noexcept nogil:
    """Compile an expression: 0; E_CORRUPT with the refusal in ``parser``; E_NO_MEMORY.

    The caller always frees the program.
    """
    cdef int64_t rc = 1
    memset(parser, 0, sizeof(SqlParser))
    memset(program, 0, sizeof(SqlProgram))
    if length >= INT32_MAX:
        return E_NO_MEMORY
    parser.program = program
    program.text = <char *>malloc(<size_t>length + 1)
    if program.text == NULL:
        return E_NO_MEMORY
    sql_text(&parser.text, text, length)
    sql_next(parser)
    while rc > 0:
        rc = sql_read_operand(parser)
        if rc == 0:
            rc = sql_after_operand(parser)
    # Java has scanned the next token, too.
    if rc == 0 and parser.token.kind == TOKEN_BAD:
        rc = sql_expected(parser, "an operator or the end")
    if rc == 0:
        rc = sql_to_condition(parser)
    free(parser.operands)
    free(parser.pending)
    return rc
