# Tag expressions, as a consumer subscribes with them.
#
# Source: common/filter/FilterAPI.java buildSubscriptionData

cdef int parse_tags(object tags, TagFilter *filter, list keep) except -1:
    """A RocketMQ tag expression: names with || between them, or * for all."""
    cdef int64_t length = 0
    cdef const char *data
    filter.count = 0
    if tags is None:
        return 0
    if not PyUnicode_Check(tags):
        raise arguments.wrong_type("tags", "str such as 'TagA || TagB'", tags)
    if tags.strip() in ("", "*"):
        return 0
    for name in tags.split("||"):
        name = name.strip()
        if not name:
            continue
        if filter.count == FILTER_TAGS_MAX:
            raise errors.FilterError(f"more than {FILTER_TAGS_MAX} tags", tags.index(name))
        data = utf8_of("tags", name, &length)
        keep.append(name)
        filter.texts[filter.count] = data
        filter.lengths[filter.count] = length
        filter.codes[filter.count] = java_hash_utf8(data, length, 0)
        filter.count += 1
    if filter.count == 0:
        raise errors.FilterError(f"no tag in {tags!r}", 0)
    return 0
