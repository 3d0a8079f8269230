# Subscriptions with an expression, which the core evaluates for bit maps.
#
# Source: broker/filter/ConsumerFilterManager.java get

cdef int set_bitmap_filters(Store *store, dict by_topic, int64_t bitmap_bytes) except -1:
    """Replace the subscriptions of topics: lists of (expression, bits) by name.

    Dispatch uses them from its next record on.  Invalid expressions are ignored, as by a broker.
    """
    cdef Topic *topic
    cdef int64_t length = 0
    cdef const char *name
    for text, entries in by_topic.items():
        name = utf8_of("topic", text, &length)
        if not topic_name_stored(name, length):
            continue
        topic = topic_enter(&store.table, name, length)
        if topic == NULL:
            raise MemoryError()
        publish_filters(store, topic, entries, bitmap_bytes)
    return 0


cdef int read_bitmap_filters(Store *store, str path, object config) except -1:
    """Read config/consumerFilter.json, if the configuration wants bit maps."""
    if not (store.table.ext.written and config.enable_calc_filter_bit_map):
        return 0
    from rmqstore.brokerfiles.consumerfilters import bitmap_subscriptions
    by_topic, bitmap_bytes = bitmap_subscriptions(path, config, wall_millis())
    return set_bitmap_filters(store, by_topic, bitmap_bytes)


cdef int publish_filters(
    Store *store, Topic *topic, list entries, int64_t bitmap_bytes,
) except -1:
    cdef BitmapFilters *filters = <BitmapFilters *>calloc(1, sizeof(BitmapFilters))
    cdef BitmapFilter *filter
    cdef int64_t length = 0
    cdef int64_t rc
    cdef const char *text
    try:
        if filters == NULL:
            raise MemoryError()
        filters.bitmap_bytes = bitmap_bytes
        filters.filters = <BitmapFilter *>calloc(
            <size_t>max(len(entries), 1), sizeof(BitmapFilter))
        if filters.filters == NULL:
            raise MemoryError()
        for expression, bits in entries:
            filter = &filters.filters[filters.count]
            filter.position_count = 0
            for bit in bits[:FILTER_POSITIONS_MAX]:
                if not 0 <= bit < 8 * bitmap_bytes:
                    raise ValueError(f"bit {bit} of {8 * bitmap_bytes}")
                filter.positions[filter.position_count] = bit
                filter.position_count += 1
            text = utf8_of("expression", expression, &length)
            rc = bitmap_sql_init(filter, text, length)
            if rc == E_NO_MEMORY:
                raise MemoryError()
            filters.count += rc == 0
        with nogil:                          # dispatch may be using the old ones
            dispatch_lock_take(store)
            filters.older = topic.bitmap_filters
            store_filters(&topic.bitmap_filters, filters)
            lock_give(&store.dispatch.lock)
        filters = NULL
    finally:
        bitmap_filters_free(filters)
    return 0
