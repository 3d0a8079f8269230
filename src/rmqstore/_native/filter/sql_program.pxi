# Compiled SQL92 filter: steps over a stack of values.
#
# Source: filter/expression/*.java; an expression tree there, one step a node here, in the order of
# evaluation

cdef enum:
    VALUE_NULL
    VALUE_BOOL
    VALUE_INT                    # of 32 bits
    VALUE_LONG
    VALUE_DOUBLE
    VALUE_TEXT

    STEP_CONSTANT                # push constant ``at``
    STEP_STRING                  # push string ``at``, a literal
    STEP_NAME                    # push the property of name ``at``
    STEP_CAST                    # a property as a condition: false, or unknown without a value
    STEP_NEGATE
    STEP_NOT
    STEP_IS_NULL
    STEP_IS_NOT_NULL
    STEP_EQUAL
    STEP_NOT_EQUAL
    STEP_SKIP_NULL               # to ``at`` if the value is null, which is then the result
    STEP_GREATER
    STEP_GREATER_EQUAL
    STEP_LESS
    STEP_LESS_EQUAL
    STEP_BETWEEN_LOW             # value, bound: to ``at`` with false if it is less
    STEP_BETWEEN_HIGH            # value, outcome of the first, bound
    STEP_OUTSIDE_LOW             # NOT BETWEEN: to ``at`` with true if it is less
    STEP_OUTSIDE_HIGH
    STEP_IN                      # list ``at``
    STEP_NOT_IN
    STEP_SKIP_FALSE              # AND: to ``at`` if the left side is false
    STEP_AND
    STEP_SKIP_TRUE               # OR
    STEP_OR

    # Conversions of a string made so far, and their outcomes.
    STRING_LITERAL = 1           # of the expression: lasts as long as the run
    STRING_WHOLE = 2             # tried as a long
    STRING_IS_WHOLE = 4
    STRING_REAL = 8
    STRING_IS_REAL = 16
    STRING_HASHED = 32
    STRING_CHECKED = 64          # validated as UTF-8
    STRING_IS_UTF8 = 128

# A property of the current message or a literal, with each conversion made once.
cdef struct SqlString:
    const char *text             # NULL: no such property
    int64_t length
    int64_t known                # STRING_...
    int64_t whole
    double real
    uint64_t hash                # of the characters as Java decodes them

cdef struct SqlValue:
    int64_t type
    int64_t number               # also of a boolean
    double real
    SqlString *string            # of a text

cdef struct SqlStep:
    int32_t op
    int32_t at

cdef struct SqlProgram:
    SqlStep *steps
    int64_t count
    int64_t room
    SqlValue *constants          # except texts
    int64_t constant_count
    int64_t constant_room
    SqlString *strings
    int64_t string_count
    int64_t string_room
    TextSet *lists               # of IN
    int64_t list_count
    int64_t list_room
    TextSet names                # of properties
    char *text                   # backs names, strings and lists
    int64_t text_length
    int64_t depth                # of the stack after the last step
    int64_t depth_max


cdef void program_free(SqlProgram *program) noexcept nogil:
    cdef int64_t i
    for i in range(program.list_count):
        text_set_free(&program.lists[i])
    free(program.lists)
    free(program.steps)
    free(program.constants)
    free(program.strings)
    free(program.text)
    text_set_free(&program.names)
    memset(program, 0, sizeof(SqlProgram))


cdef int64_t program_bytes(const SqlProgram *program, int64_t length) noexcept nogil:
    """Memory of a program whose expression has that length."""
    cdef int64_t i
    cdef int64_t bytes = length + text_set_bytes(&program.names)
    for i in range(program.list_count):
        bytes += text_set_bytes(&program.lists[i])
    return bytes + program.room * <int64_t>sizeof(SqlStep) \
        + program.constant_room * <int64_t>sizeof(SqlValue) \
        + program.string_room * <int64_t>sizeof(SqlString) \
        + program.list_room * <int64_t>sizeof(TextSet)


cdef const char *program_text(
    SqlProgram *program, const char *text, int64_t length,
) noexcept nogil:
    """Copy a text.  REQUIRES: room, the length of the whole expression."""
    cdef char *copy = program.text + program.text_length
    memcpy(copy, text, <size_t>length)
    program.text_length += length
    return copy


cdef int64_t program_step(
    SqlProgram *program, int32_t op, int64_t at, int64_t growth,
) noexcept nogil:
    """Add a step that grows the stack by ``growth``: its number, or E_NO_MEMORY."""
    cdef SqlStep *grown
    if program.count == INT32_MAX:
        return E_NO_MEMORY
    grown = <SqlStep *>array_with_room(
        program.steps, &program.room, program.count, sizeof(SqlStep))
    if grown == NULL:
        return E_NO_MEMORY
    program.steps = grown
    program.steps[program.count].op = op
    program.steps[program.count].at = <int32_t>at
    program.count += 1
    program.depth += growth
    program.depth_max = max(program.depth_max, program.depth)
    return program.count - 1


cdef int64_t program_constant(SqlProgram *program, const SqlValue *value) noexcept nogil:
    """Add a constant: its number, or E_NO_MEMORY."""
    cdef SqlValue *grown = <SqlValue *>array_with_room(
        program.constants, &program.constant_room, program.constant_count, sizeof(SqlValue))
    if grown == NULL:
        return E_NO_MEMORY
    program.constants = grown
    program.constants[program.constant_count] = value[0]
    program.constant_count += 1
    return program.constant_count - 1


cdef int64_t program_string(
    SqlProgram *program, const char *text, int64_t length,
) noexcept nogil:
    """Add a string, kept as long as the program: its number, or E_NO_MEMORY."""
    cdef SqlString *string
    cdef SqlString *grown = <SqlString *>array_with_room(
        program.strings, &program.string_room, program.string_count, sizeof(SqlString))
    if grown == NULL:
        return E_NO_MEMORY
    program.strings = grown
    string = &grown[program.string_count]
    memset(string, 0, sizeof(SqlString))
    string.text = text
    string.length = length
    string.known = STRING_LITERAL
    program.string_count += 1
    return program.string_count - 1


cdef int64_t program_list(SqlProgram *program) noexcept nogil:
    """Add an empty list: its number, or E_NO_MEMORY."""
    cdef TextSet *grown = <TextSet *>array_with_room(
        program.lists, &program.list_room, program.list_count, sizeof(TextSet))
    if grown == NULL:
        return E_NO_MEMORY
    program.lists = grown
    memset(&program.lists[program.list_count], 0, sizeof(TextSet))
    program.list_count += 1
    return program.list_count - 1
