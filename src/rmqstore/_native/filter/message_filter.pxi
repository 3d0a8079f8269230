# Filter of a read of a queue: tags, SQL92, or both.
#
# Source: broker/filter/ExpressionMessageFilter.java isMatchedByCommitLog

cdef enum:
    FILTER_WORK = 1 << 20        # of one look, which then pauses: a few milliseconds
    RECORD_BYTES = 16            # that cost as much to read as a byte of a property to filter

cdef struct MessageFilter:
    bint active                  # a filter is set; also while it is built
    int64_t work                 # steps and bytes since the look began
    TagFilter tags
    SqlRun sql


cdef bint filter_passes(
    MessageFilter *filter, const char *data, const Record *record,
) noexcept nogil:
    """Whether a checked record passes both filters.

    Counts the worst-case work, which is always the same for the same messages.
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
