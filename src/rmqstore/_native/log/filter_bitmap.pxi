# Bit map of an ext unit: the expression subscriptions that match the message.
#
# A clear bit means no match; consumers that subscribed later must evaluate the message.
#
# Source: broker/filter/CommitLogDispatcherCalcBitMap.java, filter/util/BitsArray.java

cdef extern from *:
    BitmapFilters *load_filters "load_pointer"(BitmapFilters **at) noexcept nogil
    void store_filters "store_pointer"(BitmapFilters **at, BitmapFilters *value) noexcept nogil


cdef int64_t filter_bitmap(
    Store *store, Topic *topic, const char *properties, int64_t length, const char **bitmap,
) noexcept nogil:
    """Bytes of a message's bit map, valid until the next call; 0: no expression subscriptions.

    REQUIRES: called by the dispatch thread.
    """
    cdef BitmapFilters *filters = load_filters(&topic.bitmap_filters)
    cdef BitmapFilter *filter
    cdef char *grown
    cdef int64_t i, k
    bitmap[0] = NULL
    if filters == NULL or filters.count == 0:
        return 0
    if filters.bitmap_bytes > store.dispatch.bitmap_room:
        grown = <char *>realloc(store.dispatch.bitmap, <size_t>filters.bitmap_bytes)
        if grown == NULL:
            return 0
        store.dispatch.bitmap = grown
        store.dispatch.bitmap_room = filters.bitmap_bytes
    memset(store.dispatch.bitmap, 0, <size_t>filters.bitmap_bytes)
    for i in range(filters.count):
        filter = &filters.filters[i]
        if filter.evaluate(filter.compiled, properties, length) != 1:
            continue
        for k in range(filter.position_count):
            store.dispatch.bitmap[filter.positions[k] // 8] |= 1 << (filter.positions[k] % 8)
    bitmap[0] = store.dispatch.bitmap
    return filters.bitmap_bytes
