# query, and locate_many and query_many for many keys.
#
# Source: store/DefaultMessageStore.java queryMessage

cdef extern from "Python.h":
    bint PyGC_Disable()                      # whether it was enabled
    bint PyGC_Enable()


cdef int set_query(KeyQuery *query, object topic, object key, object max_num, object begin,
                   object end, bint index_only) except -1:
    """Fill in a query; the caller keeps the strings alive while it runs."""
    memset(query, 0, sizeof(KeyQuery))
    query.topic = utf8_of("topic", topic, &query.topic_length)
    query.key = utf8_of("key", key, &query.key_length)
    query_hash(query)
    query.max_num = INT64_MOST
    if max_num is not None:
        query.max_num = int_argument("max_num", max_num, 1, INT64_MOST)
    query.begin = INT64_LEAST
    query.end = INT64_MOST
    if begin is not None:
        query.begin = times.to_millis(begin, name="begin")
    if end is not None:
        query.end = times.to_millis(end, name="end")
    query.index_only = index_only
    return 0


cdef list query_key(
    OpenStore engine, object topic, object key, object max_num, object begin, object end,
    bint index_only,
):
    cdef Store *store
    cdef Got got
    cdef Offsets hits
    cdef KeyQuery query
    cdef int64_t rc
    memset(&got, 0, sizeof(Got))
    memset(&hits, 0, sizeof(Offsets))
    set_query(&query, topic, key, max_num, begin, end, index_only)
    query.records = True
    store = engine.entered()
    try:                                     # an error names files, which a close frees
        with nogil:
            rc = query_wait(store)
            if rc == 0:
                rc = query_run(store, &query, &got, &hits)
        if rc < 0:
            got_clear(&got)
            raise read_error(engine, store, rc, &got)
        note_passed_over(engine, store, &got)
    finally:
        store_leave(store)
    return got_messages(engine, &got, topic)


cdef int note_passed_over(OpenStore engine, Store *store, Got *got) except -1:
    """Log damage in a part of the log that no index file covers, once."""
    cdef Got bad
    cdef int64_t at = got.passed_over - 1
    if at < 0 or at in engine._passed_over:
        return 0
    memset(&bad, 0, sizeof(Got))
    bad.bad_offset = at
    bad.field = got.passed_field
    error = read_error(engine, store, E_CORRUPT, &bad)
    engine._passed_over[at] = error
    log_warning("%s: a query passed over it, and what it hid is not found", error)
    return 0


# Result kept of a hit.
cdef enum:
    HITS_OFFSETS
    HITS_RECORDS


cdef Memory query_keys(
    OpenStore engine, object topic, object keys, object max_num, object begin, object end,
    bint index_only, int kind, Got *got, Offsets *hits,
):
    """Query each key into ``got`` or ``hits``; the index of each key's first hit."""
    cdef ColumnInput column = text_column("keys", keys, NOT_NULL)
    cdef int64_t count = count_rows((column,))
    cdef Memory starts = memory_new((count + 1) * 8)
    cdef Store *store
    cdef KeyQuery query
    cdef int64_t rc
    set_query(&query, topic, "", max_num, begin, end, index_only)
    query.records = kind == HITS_RECORDS
    store = engine.entered()
    try:
        with nogil:
            rc = query_each(store, &query, &column.view, count, got, hits,
                            <int64_t *>starts.data)
        if rc < 0:
            got_clear(got)
            free(hits.items)
            raise read_error(engine, store, rc, got)
        note_passed_over(engine, store, got)
    finally:
        store_leave(store)
    return starts


cdef tuple locate_keys(
    OpenStore engine, object topic, object keys, object max_num, object begin, object end,
    bint index_only,
):
    cdef Got got
    cdef Offsets hits
    cdef Memory starts
    memset(&got, 0, sizeof(Got))
    memset(&hits, 0, sizeof(Offsets))
    starts = query_keys(
        engine, topic, keys, max_num, begin, end, index_only, HITS_OFFSETS, &got, &hits)
    return memory_of(hits.items, hits.count * 8), hits.count, starts


cdef list messages_of_keys(
    OpenStore engine, object topic, object keys, object max_num, object begin, object end,
    bint index_only,
):
    cdef Got got
    cdef Offsets hits
    cdef Memory starts
    memset(&got, 0, sizeof(Got))
    memset(&hits, 0, sizeof(Offsets))
    starts = query_keys(
        engine, topic, keys, max_num, begin, end, index_only, HITS_RECORDS, &got, &hits)
    return lists_of(got_messages(engine, &got, topic), <const int64_t *>starts.data,
                    starts.length // 8 - 1)


cdef list lists_of(list items, const int64_t *starts, int64_t count):
    """Slices of a list, made without garbage collections, which walk all earlier ones.

    The GIL is held throughout: no other code sees collection disabled.
    """
    cdef list made = []
    cdef int64_t i
    cdef bint collects = PyGC_Disable()
    try:
        for i in range(count):
            made.append(PyList_GetSlice(items, starts[i], starts[i + 1]))
    finally:
        if collects:
            PyGC_Enable()
    return made


cdef list ranges_indexed(OpenStore engine):
    cdef Store *store = engine.entered()
    cdef Offsets ranges
    cdef int64_t rc
    cdef int64_t i = 0
    memset(&ranges, 0, sizeof(Offsets))
    with nogil:
        if store.writable:
            wait_for_earlier_puts(store)
        else:
            index_set_list(&store.indexes, NULL)
            index_set_ready(store)
        rc = index_covered(store, &ranges)
        store_leave(store)
    found = []
    while i < ranges.count:
        found.append((ranges.items[i], ranges.items[i + 1]))
        i += 2
    free(ranges.items)
    check(rc, NULL, engine._path)
    return found
