# Queries of many keys: the newest index file is walked for a chunk of keys, then each is queried.
#
# Source: none; RocketMQ has one query for each key

cdef enum:
    RECORDS_FETCHED = 2          # of the hits of a key

# Keys of a topic, and the newest index file's hits for a chunk of them.
cdef struct KeyChunk:
    int32_t prefix               # hash of "topic#"
    int32_t hashes[KEY_CHUNK]
    Index *index                 # held; NULL: none
    bint walked                  # ``hits`` are complete for the index file
    int64_t starts[KEY_CHUNK + 1]
    Offsets hits
    Found last                   # "r": the last record with entries, which each key reads
    ChainWalk walk


cdef int64_t chunk_look_up(
    Store *store, KeyChunk *chunk, const ColumnView *keys, int64_t first, int64_t count,
    int64_t max_num,
) noexcept nogil:
    """Hash up to KEY_CHUNK keys, find their entries, and prefetch the entries' records."""
    cdef const char *at = NULL
    cdef int64_t length = 0
    cdef int64_t dispatched, i, rc
    for i in range(count):
        column_get(keys, first + i, &at, &length)
        chunk.hashes[i] = index_key_hash(at, length, chunk.prefix)
    chunk.walked = False
    chunk.hits.count = 0
    if chunk.index == NULL or (not store.writable and index_set_ready(store) < 0) \
            or not index_is_usable(store, chunk.index):
        return 0
    dispatched = atomic_get(&store.indexes.dispatched)
    # Any failure is met, and reported, by the query of the key.
    rc = chains_walk(chunk.index, &chunk.walk, CHAIN_COLLECT, chunk.hashes, count, INT64_MOST)
    if rc == 0:
        rc = chains_by_key(&chunk.walk, count, chunk.starts, &chunk.hits)
        chunk.starts[count] = chunk.hits.count
        # The walk may have missed entries of the last record.  A reader reads that record itself;
        # in a written store it is covered once it is dispatched.
        chunk.walked = rc == 0 and (
            not store.writable or dispatched > chunk.walk.end_phy_offset)
        fetch_records(store, chunk, count, max_num)
    return E_NO_MEMORY if rc == E_NO_MEMORY else 0


cdef void fetch_records(
    Store *store, const KeyChunk *chunk, int64_t count, int64_t max_num,
) noexcept nogil:
    """Prefetch the records of the newest hits of each key: their beginnings, then the rest."""
    cdef MappedFile *log = NULL
    cdef const char *at
    cdef int64_t room = 0
    cdef int64_t length, key, i
    for key in range(count):
        for i in range(chunk.starts[key], fetched_until(chunk, key, max_num)):
            at = file_set_mapped(&store.log, &log, chunk.hits.items[i], &room)
            if at != NULL:
                prefetch_to_read(at)
                prefetch_to_read(at + CACHE_LINE)
    for key in range(count):
        for i in range(chunk.starts[key], fetched_until(chunk, key, max_num)):
            at = file_set_mapped(&store.log, &log, chunk.hits.items[i], &room)
            length = get_i32(at + RECORD_SIZE) if at != NULL and room >= 4 else 0
            prefetch_range(at, min(min(length, room), FETCHED_MAX))
    mapped_file_release(log)


cdef inline int64_t fetched_until(
    const KeyChunk *chunk, int64_t key, int64_t max_num,
) noexcept nogil:
    """End of a key's hits whose records are prefetched."""
    return min(chunk.starts[key + 1],
               chunk.starts[key] + min(max_num, <int64_t>RECORDS_FETCHED))


cdef int64_t query_each(
    Store *store, KeyQuery *query, const ColumnView *keys, int64_t count, Got *got,
    Offsets *hits, int64_t *starts,
) noexcept nogil:
    """Query many keys one by one, after a lookup in the index file for each chunk of them."""
    cdef KeyChunk *chunk
    cdef int64_t i, at, field
    cdef int64_t rc = query_wait(store)
    if rc < 0:
        return rc
    # Most keys have one hit; not all of many may have one.
    if query.records and got_reserve(got, min(count, <int64_t>KEY_CHUNK)) < 0:
        return E_NO_MEMORY
    chunk = <KeyChunk *>calloc(1, sizeof(KeyChunk))
    if chunk == NULL:
        return E_NO_MEMORY
    chunk.prefix = java_hash_utf8(b"#", 1, java_hash_utf8(query.topic, query.topic_length, 0))
    if not store.writable:
        log_refresh(store)
        query.head = log_end(store)
    chunk.index = index_set_hold(&store.indexes, 0)
    if chunk.index != NULL and not store.writable and log_record(
            store, atomic_get(&chunk.index.end_phy_offset), 0, &chunk.last, &field) > 0:
        query.last = &chunk.last
    for i in range(count):
        at = i % KEY_CHUNK
        if at == 0:
            rc = chunk_look_up(store, chunk, keys, i, min(KEY_CHUNK, count - i),
                               query.max_num)
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
    slice_release(&chunk.last.slice)
    free(chunk.hits.items)
    free(chunk.walk.hits)
    free(chunk)
    return rc
