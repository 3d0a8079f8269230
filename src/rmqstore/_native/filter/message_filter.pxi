# What a reader wants of a queue: tags, an SQL92 filter, or both.
#
# Source: broker/filter/ExpressionMessageFilter.java isMatchedByCommitLog

cdef enum:
    FILTER_WORK = 1 << 20        # of a look, which then pauses: a few milliseconds
    RECORD_BYTES = 16            # that cost as much to read as a byte of a property to filter

cdef struct MessageFilter:
    bint active                  # there is one; also while it is made
    int64_t work                 # since the look began: steps and bytes
    TagFilter tags
    SqlRun sql


cdef bint filter_passes(
    MessageFilter *filter, const char *data, const Record *record,
) noexcept nogil:
    """Whether a checked record passes both.

    It counts what that takes at most, not what it took: the same for the same messages.
    """
    filter.work += record.properties_length + record.size // RECORD_BYTES
    if filter.sql.program != NULL:
        filter.work += filter.sql.program.count
    return tags_pass(&filter.tags, data, record) and (
        filter.sql.program == NULL or sql_matches(
            &filter.sql, data + record.properties_at, record.properties_length))


cdef inline void filter_free(MessageFilter *filter) noexcept nogil:
    if filter.active:
        tags_free(&filter.tags)
        sql_run_free(&filter.sql)
