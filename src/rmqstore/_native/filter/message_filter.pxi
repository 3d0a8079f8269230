# What a reader wants of a queue: tags, an SQL92 filter, or both.
#
# Source: broker/filter/ExpressionMessageFilter.java isMatchedByCommitLog

cdef struct MessageFilter:
    bint active                  # there is one; also while it is made
    TagFilter tags
    SqlRun sql


cdef bint filter_passes(
    const MessageFilter *filter, const char *data, const Record *record,
) noexcept nogil:
    """Whether a checked record passes both."""
    return tags_pass(&filter.tags, data, record) and (
        filter.sql.program == NULL or sql_matches(
            &filter.sql, data + record.properties_at, record.properties_length))


cdef inline void filter_free(MessageFilter *filter) noexcept nogil:
    if filter.active:
        tags_free(&filter.tags)
        sql_run_free(&filter.sql)
