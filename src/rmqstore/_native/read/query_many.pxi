# Many keys: the newest index file is asked for a chunk of them at once, then each is queried.
#
# Source: none of RocketMQ's, which has one query for each key

# Many keys of a topic, and what the newest index file has for a chunk of them.
cdef struct KeyChunk:
    int32_t prefix               # hash of "topic#"
    int32_t hashes[KEY_CHUNK]
    IndexFile *index             # held; NULL: none
    bint walked                  # ``hits`` are those of the index file
    int64_t starts[KEY_CHUNK + 1]
    Offsets hits
    ChainWalk walk


cdef int64_t chunk_look_up(
    Store *store, KeyChunk *chunk, const ColumnView *keys, int64_t first, int64_t count,
) noexcept nogil:
    """Hash up to KEY_CHUNK keys, find their entries, and fetch the records of these."""
    cdef const char *at = NULL
    cdef int64_t length = 0
    cdef int64_t i, rc
    for i in range(count):
        column_get(keys, first + i, &at, &length)
        chunk.hashes[i] = index_key_hash(at, length, chunk.prefix)
    chunk.walked = False
    chunk.hits.count = 0
    if chunk.index == NULL or (not store.writable and index_set_ready(store) < 0) \
            or not index_is_usable(store, chunk.index):
        return 0
    # Whatever is wrong is met, and told, by the query of the key.
    rc = chains_walk(chunk.index, &chunk.walk, CHAIN_COLLECT, chunk.hashes, count, INT64_MOST)
    if rc == 0:
        rc = chains_by_key(&chunk.walk, count, chunk.starts, &chunk.hits)
        chunk.starts[count] = chunk.hits.count
        chunk.walked = rc == 0
        fetch_records(store, &chunk.hits)
    return E_NO_MEMORY if rc == E_NO_MEMORY else 0


cdef void fetch_records(Store *store, const Offsets *offsets) noexcept nogil:
    """Prefetch the beginnings of records, and what follows as far as they reach."""
    cdef MappedFile *log = NULL
    cdef const char *at
    cdef int64_t room = 0
    cdef int64_t length, i, part
    for i in range(offsets.count):
        at = file_set_mapped(&store.log, &log, offsets.items[i], &room)
        if at != NULL:
            prefetch_to_read(at)
            prefetch_to_read(at + CACHE_LINE)
    for i in range(offsets.count):
        at = file_set_mapped(&store.log, &log, offsets.items[i], &room)
        length = get_i32(at + RECORD_SIZE) if at != NULL and room >= 4 else 0
        for part in range(2, min(min(length, room), MOST_FETCHED) // CACHE_LINE + 1):
            prefetch_to_read(at + part * CACHE_LINE)
    mapped_file_release(log)


cdef int64_t query_each(
    Store *store, KeyQuery *query, const ColumnView *keys, int64_t count, Got *got,
    Offsets *hits, int64_t *starts,
) noexcept nogil:
    """The hits of many keys, one by one; the index file is asked for a chunk of them at once."""
    cdef KeyChunk *chunk = <KeyChunk *>calloc(1, sizeof(KeyChunk))
    cdef int64_t i, at
    cdef int64_t rc = 0
    if chunk == NULL:
        return E_NO_MEMORY
    chunk.prefix = java_hash_utf8(b"#", 1, java_hash_utf8(query.topic, query.topic_length, 0))
    if not store.writable:                   # once, instead of for each key
        log_refresh(store)
        query.head = log_end(store)
    chunk.index = index_set_hold(&store.indexes, 0)
    for i in range(count):
        at = i % KEY_CHUNK
        if at == 0:
            rc = chunk_look_up(store, chunk, keys, i, min(KEY_CHUNK, count - i))
            if rc < 0:
                break
        column_get(keys, i, &query.key, &query.key_length)
        query.key_hash = chunk.hashes[at]
        query.walked = chunk.index if chunk.walked and not chunk.walk.redo[at] else NULL
        query.walked_end = chunk.walk.end_phy_offset
        query.walked_hits = chunk.hits.items + chunk.starts[at]
        query.walked_count = chunk.starts[at + 1] - chunk.starts[at]
        query.hits_before = got.count + hits.count
        starts[i] = query.hits_before
        rc = query_run(store, query, got, hits)
        if rc < 0:
            break
    starts[count] = got.count + hits.count
    index_close(chunk.index)
    free(chunk.hits.items)
    free(chunk.walk.hits)
    free(chunk)
    return rc
