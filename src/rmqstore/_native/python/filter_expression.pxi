# Filters of a consumer's subscription: tags, and SQL92.
#
# Source: common/filter/FilterAPI.java buildSubscriptionData, filter/SqlFilter.java

cdef enum:
    SQL_KEPT_BYTES = 32 << 20    # of compiled expressions kept for reuse
    SQL_KEPT_OWN = 512           # overhead of a kept one, besides its steps

# Operators of other languages; a tag may have spaces, and any other operator within a word.
cdef object NO_TAG = compile_pattern(r"\||&&|(?<= )[<>=!]{1,2}(?= )")
cdef dict SQL_FILTERS = {}
cdef int64_t sql_filter_bytes = 0


@cython.final
cdef class SqlFilter:
    """Compiled SQL92 filter; immutable."""

    cdef SqlProgram program
    cdef int64_t bytes

    def __dealloc__(self):
        program_free(&self.program)


cdef int filter_begin(MessageFilter *filter, object tags, object sql, list keep) except -1:
    """Compile a filter; None: all pass.  ``keep`` keeps its borrowed objects alive.

    The caller frees it, also after an error.
    """
    cdef SqlFilter compiled
    if tags is None and sql is None:
        return 0
    filter.active = True
    parse_tags(tags, &filter.tags, keep)
    if sql is not None:
        compiled = sql_filter(sql)
        keep.append(compiled)
        if sql_run_init(&filter.sql, &compiled.program) < 0:
            raise MemoryError()
    filter.active = filter.tags.count > 0 or filter.sql.program != NULL
    return 0


cdef int parse_tags(object tags, TagFilter *filter, list keep) except -1:
    """A RocketMQ tag expression: names with || between them, or * for all."""
    cdef int64_t length = 0
    cdef int64_t at = 0
    cdef const char *data
    if tags is None:
        return 0
    if not PyUnicode_Check(tags):
        raise arguments.wrong_type("tags", "str such as 'TagA || TagB'", tags)
    if tags.strip() in ("", "*"):
        return 0
    for part in tags.split("||"):
        name = part.strip()
        check_tag(name, at + len(part) - len(part.lstrip()))
        at += len(part) + 2
        if not name:
            continue
        data = utf8_of("tags", name, &length)
        keep.append(name)
        if text_set_add(&filter.names, data, length) < 0:
            raise MemoryError()
    if filter.names.count == 0:
        raise errors.FilterError(f"no tag in {arguments.shown(tags)}", 0)
    if tags_ready(filter) < 0:
        raise MemoryError()
    return 0


cdef int check_tag(object name, int64_t start) except -1:
    """Refuse a name that only another kind of filter can have."""
    found = NO_TAG.search(name)
    if found is None:
        return 0
    what = "a single '|'" if found[0] == "|" else f"'{found[0]}'"
    raise errors.FilterError(f"expected '||' or the end after a tag, found {what}",
                             start + found.start())


cdef SqlFilter sql_filter(object sql):
    """Compiled expression, from the cache if possible."""
    cdef SqlFilter made
    cdef SqlParser parser
    cdef int64_t length = 0
    cdef int64_t rc
    cdef const char *data
    if not PyUnicode_Check(sql):
        raise arguments.wrong_type("sql", "str such as \"amount > 5\"", sql)
    made = SQL_FILTERS.get(sql)
    if made is not None:
        return made
    data = utf8_of("sql", sql, &length)
    made = SqlFilter.__new__(SqlFilter)
    with nogil:
        rc = sql_parse(&parser, &made.program, data, length)
    if rc == E_CORRUPT:
        raise sql_error(&parser, sql)
    if rc < 0:
        raise MemoryError()
    made.bytes = SQL_KEPT_OWN + program_bytes(&made.program, length)
    keep_sql_filter(sql, made)
    return made


cdef int keep_sql_filter(object sql, SqlFilter made) except -1:
    """Keep a compiled expression; the oldest ones make room for it."""
    global sql_filter_bytes
    cdef SqlFilter oldest
    if made.bytes > SQL_KEPT_BYTES:
        return 0
    with cython.critical_section(SQL_FILTERS):
        while SQL_FILTERS and sql_filter_bytes + made.bytes > SQL_KEPT_BYTES:
            oldest = SQL_FILTERS.pop(next(iter(SQL_FILTERS)))
            sql_filter_bytes -= oldest.bytes
        oldest = SQL_FILTERS.get(sql)
        if oldest is None:                   # not compiled by another thread meanwhile
            SQL_FILTERS[sql] = made
            sql_filter_bytes += made.bytes
    return 0


cdef object sql_error(SqlParser *parser, object sql):
    """Error of an expression that does not parse, positions in characters."""
    cdef bytes text = sql.encode()
    cdef int64_t start = len(text[:parser.start].decode())
    if parser.expected == NULL:
        message = parser.reason.decode()
        if parser.token.kind == TOKEN_BAD:
            message = f"{message}: {arguments.shown(sql[start:start + 1])}"
    elif parser.start == parser.stop:
        message = f"expected {parser.expected.decode()}, found the end"
    else:
        found = text[parser.start:parser.stop].decode()
        message = f"expected {parser.expected.decode()}, found {arguments.shown(found)}"
    return errors.FilterError(message, start)


def _check_filter(tags, sql):
    """Raise as a use of these expressions would."""
    cdef MessageFilter filter
    memset(&filter, 0, sizeof(MessageFilter))
    try:
        filter_begin(&filter, tags, sql, [])
    finally:
        filter_free(&filter)


def _message_passes(Message message not None, tags, sql):
    """Whether a message passes a tag expression and an SQL92 filter; None for any."""
    cdef MessageFilter filter
    cdef list keep = []
    memset(&filter, 0, sizeof(MessageFilter))
    try:
        filter_begin(&filter, tags, sql, keep)
        with cython.critical_section(message):
            passes = not filter.active or filter_passes(
                &filter, message.slice.data, &message.record)
            message.intact()
    finally:
        filter_free(&filter)
    return passes


def _sql_matches(sql, const unsigned char[::1] properties):
    """Whether a record with this stored properties string passes an SQL92 filter."""
    cdef SqlFilter made = sql_filter(sql)
    cdef SqlRun run
    cdef bint passes
    cdef const char *data = <const char *>&properties[0] if len(properties) else NULL
    if sql_run_init(&run, &made.program) < 0:
        raise MemoryError()
    with nogil:
        passes = sql_matches(&run, data, len(properties))
    sql_run_free(&run)
    return passes
