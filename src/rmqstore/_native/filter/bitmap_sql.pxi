# An SQL92 subscription as evaluated for the bit maps of consumequeue_ext.
#
# Source: broker/filter/ConsumerFilterManager.java build

cdef struct BitmapSql:
    SqlProgram program
    SqlRun run


cdef int64_t bitmap_sql_matches(
    const void *compiled, const char *properties, int64_t length,
) noexcept nogil:
    return sql_matches(&(<const BitmapSql *>compiled).run, properties, length)


cdef void bitmap_sql_free(void *compiled) noexcept nogil:
    cdef BitmapSql *sql = <BitmapSql *>compiled
    sql_run_free(&sql.run)
    program_free(&sql.program)
    free(sql)


cdef int64_t bitmap_sql_init(BitmapFilter *filter, const char *text, int64_t length) noexcept nogil:
    """Compile an expression: 0; E_CORRUPT if invalid; E_NO_MEMORY."""
    cdef SqlParser parser
    cdef BitmapSql *sql = <BitmapSql *>calloc(1, sizeof(BitmapSql))
    cdef int64_t rc
    if sql == NULL:
        return E_NO_MEMORY
    rc = sql_parse(&parser, &sql.program, text, length)
    if rc == 0:
        rc = sql_run_init(&sql.run, &sql.program)
    if rc < 0:
        bitmap_sql_free(sql)
        return rc
    filter.evaluate = bitmap_sql_matches
    filter.release = bitmap_sql_free
    filter.compiled = sql
    return 0
