# Evaluation of an SQL92 filter over a record's properties: three-valued, with Java's conversions.
#
# Source: filter/expression/ComparisonExpression.java, UnaryExpression.java, LogicExpression.java,
# broker/filter/MessageEvaluationContext.java

cdef struct SqlRun:
    const SqlProgram *program    # NULL: everything passes
    SqlValue *stack
    SqlString *properties        # by number of the name
    SqlString *literals


cdef int64_t sql_run_init(SqlRun *run, const SqlProgram *program) noexcept nogil:
    """Allocate the evaluation of a program, which must outlive it: 0 or E_NO_MEMORY."""
    run.stack = <SqlValue *>malloc(
        <size_t>program.depth_max * sizeof(SqlValue)
        + <size_t>(program.names.count + program.string_count) * sizeof(SqlString))
    if run.stack == NULL:
        return E_NO_MEMORY
    run.properties = <SqlString *>(run.stack + program.depth_max)
    run.literals = run.properties + program.names.count
    if program.string_count:
        memcpy(run.literals, program.strings, <size_t>program.string_count * sizeof(SqlString))
    run.program = program
    return 0


cdef void sql_run_free(SqlRun *run) noexcept nogil:
    free(run.stack)
    memset(run, 0, sizeof(SqlRun))


cdef inline void set_bool(SqlValue *value, bint outcome) noexcept nogil:
    value.type = VALUE_BOOL
    value.number = outcome


cdef inline bint is_bool(const SqlValue *value, bint outcome) noexcept nogil:
    return value.type == VALUE_BOOL and value.number == outcome


cdef bint sql_equal(SqlValue *left, const SqlValue *right, bint negated) noexcept nogil:
    """Evaluate = or <> into ``left``; False where Java raises.

    A null on the left gives unknown, a null on the right not equal, two nulls equal.
    """
    cdef int answer = 0
    if left.type == VALUE_NULL or right.type == VALUE_NULL:
        if left.type == right.type:
            set_bool(left, not negated)
        elif left.type != VALUE_NULL:
            set_bool(left, negated)
        return True
    if not sql_compare(left, right, &answer):
        return False
    set_bool(left, (answer == 0) != negated)
    return True


cdef inline bint ordered_as(int32_t op, int answer) noexcept nogil:
    if op == STEP_GREATER:
        return answer > 0
    if op == STEP_GREATER_EQUAL:
        return answer >= 0
    if op == STEP_LESS:
        return answer < 0
    return answer <= 0


cdef bint sql_ordered(
    int32_t op, const SqlValue *left, const SqlValue *right, SqlValue *into,
) noexcept nogil:
    """Evaluate < <= > >= of a non-null left side: False where Java raises."""
    cdef int answer = 0
    if right.type == VALUE_NULL:
        into.type = VALUE_NULL
        return True
    if not sql_compare_ordered(left, right, &answer):
        return False
    set_bool(into, ordered_as(op, answer))
    return True


cdef inline void sql_join(SqlValue *left, const SqlValue *right, bint decides) noexcept nogil:
    """AND, decided by false, or OR, decided by true, of an undecided left side."""
    if is_bool(right, decides):
        set_bool(left, decides)
    elif left.type == VALUE_NULL or right.type == VALUE_NULL:
        left.type = VALUE_NULL
    else:
        set_bool(left, not decides)


cdef void sql_negate(SqlValue *value) noexcept nogil:
    if value.type == VALUE_INT or value.type == VALUE_LONG:
        value.number = -value.number
    elif value.type == VALUE_DOUBLE:
        value.real = -value.real
    else:
        value.type = VALUE_NULL


cdef bint sql_bound(int32_t op, SqlValue *top, int64_t *back) noexcept nogil:
    """Evaluate a bound of BETWEEN or NOT BETWEEN and pop ``back`` values; False where Java raises.

    The lower bound leaves the value and its outcome, or a deciding outcome alone.
    """
    cdef bint inside = op == STEP_BETWEEN_LOW or op == STEP_BETWEEN_HIGH
    cdef SqlValue outcome
    back[0] = 0
    if op == STEP_BETWEEN_LOW or op == STEP_OUTSIDE_LOW:
        if not sql_ordered(
                STEP_GREATER_EQUAL if inside else STEP_LESS, top - 1, top, top):
            return False
        if is_bool(top, not inside):
            (top - 1)[0] = top[0]
            back[0] = 1
        return True
    if not sql_ordered(STEP_LESS_EQUAL if inside else STEP_GREATER, top - 2, top, &outcome):
        return False
    sql_join(top - 1, &outcome, not inside)
    (top - 2)[0] = (top - 1)[0]
    back[0] = 2
    return True


cdef bint sql_run_steps(const SqlRun *run) noexcept nogil:
    """Whether the outcome is true with the collected properties."""
    cdef const SqlProgram *program = run.program
    cdef SqlValue *top = run.stack - 1
    cdef const SqlStep *step
    cdef int64_t at = 0
    cdef int64_t back = 0
    cdef int32_t op
    while at < program.count:
        step = &program.steps[at]
        op = step.op
        at += 1
        if op == STEP_NAME:
            top += 1
            top.string = &run.properties[step.at]
            top.type = VALUE_NULL if top.string.text == NULL else VALUE_TEXT
        elif op == STEP_STRING:
            top += 1
            top.string = &run.literals[step.at]
            top.type = VALUE_TEXT
        elif op == STEP_CONSTANT:
            top += 1
            top[0] = program.constants[step.at]
        elif op == STEP_SKIP_NULL:
            if top.type == VALUE_NULL:
                at = step.at
        elif op == STEP_EQUAL or op == STEP_NOT_EQUAL:
            top -= 1
            if not sql_equal(top, top + 1, op == STEP_NOT_EQUAL):
                return False
        elif STEP_GREATER <= op <= STEP_LESS_EQUAL:
            top -= 1
            if not sql_ordered(op, top, top + 1, top):
                return False
        elif op == STEP_SKIP_FALSE or op == STEP_SKIP_TRUE:
            if is_bool(top, op == STEP_SKIP_TRUE):
                at = step.at
        elif op == STEP_AND or op == STEP_OR:
            top -= 1
            sql_join(top, top + 1, op == STEP_OR)
        elif op == STEP_IN or op == STEP_NOT_IN:
            if top.type != VALUE_NULL:
                set_bool(top, is_in_list(&program.lists[step.at], top.string)
                         != (op == STEP_NOT_IN))
        elif op == STEP_CAST:
            if top.type != VALUE_NULL:
                set_bool(top, False)
        elif op == STEP_NOT:
            if top.type != VALUE_NULL:
                set_bool(top, not top.number)
        elif op == STEP_IS_NULL or op == STEP_IS_NOT_NULL:
            set_bool(top, (top.type == VALUE_NULL) == (op == STEP_IS_NULL))
        elif op == STEP_NEGATE:
            sql_negate(top)
        else:
            if not sql_bound(op, top, &back):
                return False
            top -= back
            if back == 1:
                at = step.at
    return is_bool(top, True)


cdef bint sql_matches(const SqlRun *run, const char *properties, int64_t length) noexcept nogil:
    """Whether a record with these properties passes: one walk over them for all names.

    Each step runs, and each property is converted, at most once: the cost is bounded by the lengths
    of the expression and the properties.
    """
    cdef const SqlProgram *program = run.program
    cdef Property entry
    cdef int64_t at = 0
    cdef int64_t i
    for i in range(program.names.count):
        run.properties[i].text = NULL
    while program.names.count and property_next(properties, length, &at, &entry):
        i = text_set_find(&program.names, entry.name, entry.name_length)
        if i >= 0:
            run.properties[i].text = entry.value
            run.properties[i].length = entry.value_length
            run.properties[i].known = 0
    return sql_run_steps(run)
