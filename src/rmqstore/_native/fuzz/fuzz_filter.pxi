# SQL92 filters for the fuzzer: an expression, a zero, and a properties string.

cdef bint fuzz_program_sound(const SqlProgram *program) noexcept nogil:
    """Whether each step stays within the program and its tables, and skips forward only."""
    cdef const SqlStep *step
    cdef int64_t i, most
    for i in range(program.count):
        step = &program.steps[i]
        most = program.count + 1
        if step.op == STEP_NAME:
            most = program.names.count
        elif step.op == STEP_CONSTANT:
            most = program.constant_count
        elif step.op == STEP_STRING:
            most = program.string_count
        elif step.op == STEP_IN or step.op == STEP_NOT_IN:
            most = program.list_count
        elif step.op in (STEP_SKIP_NULL, STEP_SKIP_FALSE, STEP_SKIP_TRUE, STEP_BETWEEN_LOW,
                         STEP_OUTSIDE_LOW) and step.at <= i:
            return False
        if not 0 <= step.at < most:
            return False
    return program.depth == 1 and program.depth_max >= 1


cdef int64_t fuzz_filter(Fuzz *fuzz) noexcept nogil:
    """Parse an expression, and evaluate it over the properties and over none."""
    cdef SqlParser parser
    cdef SqlProgram program
    cdef SqlRun run
    cdef int64_t length = fuzz.length
    cdef int64_t rc, good
    cdef const char *zero = find_byte(fuzz.data, 0, length)
    cdef const char *text
    cdef const char *properties
    if zero != NULL:
        length = zero - fuzz.data
    text = fuzz_place(fuzz, fuzz.data, length)
    properties = fuzz_place(fuzz, fuzz.data + length, fuzz.length - length)
    rc = sql_parse(&parser, &program, text, length)
    good = FUZZ_TAKEN if rc == 0 else FUZZ_REFUSED
    if rc < 0:
        if rc != E_CORRUPT or (parser.expected == NULL) == (parser.reason == NULL):
            good = fuzz_broke(fuzz, "refused without a reason, or with another status")
        elif not 0 <= parser.start <= parser.stop <= length:
            good = fuzz_broke(fuzz, "a place outside of the expression")
    elif not fuzz_program_sound(&program) or program.text_length > length:
        good = fuzz_broke(fuzz, "a program that leaves its bounds")
    elif sql_run_init(&run, &program) == 0:
        sql_matches(&run, NULL, 0)
        if sql_matches(&run, properties, fuzz.length - length) \
                != sql_matches(&run, properties, fuzz.length - length):
            good = fuzz_broke(fuzz, "two outcomes of one filter")
        sql_run_free(&run)
    program_free(&program)
    return good
