# Find by key: index files newest first, and the log where no index file covers it.
#
# Source: store/DefaultMessageStore.java queryMessage, store/index/IndexService.java queryOffset

cdef enum:
    CACHE_LINE = 64
    HIT_UNKNOWN = 2

cdef struct KeyQuery:
    const char *topic
    int64_t topic_length
    const char *key
    int64_t key_length
    int32_t key_hash
    int64_t max_num
    int64_t begin                # inclusive, store time
    int64_t end
    bint index_only
    bint records                 # keep the records; else only their offsets
    int64_t hits_before          # hits of earlier keys
    int64_t head                 # the end of the log if the caller knows it; 0: find it
    const Found *last            # NULL, or a record that was read for earlier keys
    Index *walked                # NULL, or the file whose entries for the key are known:
    int64_t walked_end           # its end when they were found
    const int64_t *walked_hits
    int64_t walked_count


cdef void query_hash(KeyQuery *query) noexcept nogil:
    """Set the hash of ``topic#key``."""
    query.key_hash = index_key_hash(query.key, query.key_length, java_hash_utf8(
        b"#", 1, java_hash_utf8(query.topic, query.topic_length, 0)))


cdef bint record_has_key(
    const char *data, const Record *record, const KeyQuery *query,
) noexcept nogil:
    """Whether a record has the topic, and the key as UNIQ_KEY or in KEYS, compared exactly."""
    cdef StoreProperties properties
    cdef int64_t at = 0
    cdef const char *word
    cdef int64_t length
    if record.store_timestamp < query.begin or record.store_timestamp > query.end \
            or record_is_rolled_back(record):
        return False
    if record.topic_length != query.topic_length or memcmp(
            data + record.topic_at, query.topic, <size_t>query.topic_length) != 0:
        return False
    store_properties(data + record.properties_at, record.properties_length, &properties)
    if properties.unique_key.value_length == query.key_length and memcmp(
            properties.unique_key.value, query.key, <size_t>query.key_length) == 0:
        return True
    while properties.keys.value_length > 0 and split_next(
            properties.keys.value, properties.keys.value_length, 32, &at, &word, &length):
        if length == query.key_length and memcmp(word, query.key, <size_t>length) == 0:
            return True
    return False


cdef int64_t query_head(Store *store) noexcept nogil:
    """Current end for a query; while dispatch waits for space, the end of the readable log."""
    if not store.writable:
        return log_end(store)
    if atomic_get(&store.dispatch.stalled) != 0:
        return atomic_get(&store.log.flushed if store.settings.sync_flush else &store.log.wrote)
    return atomic_get(&store.dispatch.dispatched)


# Keys of the records above the part of the log that a search has reached.
cdef enum:
    KEYS_UNKNOWN                 # no index file has been used yet
    KEYS_ENTERED                 # from ``begins`` on, the newer file has them
    KEYS_LOST                    # the files below the newer one have no good part

# A search for a key, from the end of the log downwards: the index files, newest first, and the
# parts of the log between them.
cdef struct KeySearch:
    Store *store
    const KeyQuery *query
    Got *got                     # records found, and damage
    Offsets *hits                # offsets found
    int64_t until                # log offset from which all has been searched
    int64_t begins               # the first offset in the newer file's entries; -1: none
    int64_t above                # KEYS_...


cdef int64_t query_run(
    Store *store, const KeyQuery *query, Got *got, Offsets *hits,
) noexcept nogil:
    """Collect all hits, newest first, into ``got`` (records) or ``hits`` (offsets).

    REQUIRES: query_wait, once for all keys of a call.
    """
    cdef KeySearch search = KeySearch(store, query, got, hits, 0, -1, KEYS_UNKNOWN)
    cdef Index *index = index_to_search(store, 0)
    cdef int64_t i = 0
    cdef int64_t rc = 0
    if index != NULL and query.walked == NULL:
        slot_fetch(index, query.key_hash)
    search.until = query.head if query.head > 0 else query_head(store)
    while True:
        if index != NULL and not index_is_usable(store, index):
            search.above = KEYS_LOST
        else:
            rc = search_file(&search, index, i)
        index_close(index)
        if rc != 0 or index == NULL or search_has_enough(&search):
            return min(rc, 0)
        i += 1
        index = index_to_search(store, i)


cdef inline Index *index_to_search(Store *store, int64_t newest) noexcept nogil:
    """As index_set_hold; NULL for a store without an index, too."""
    return index_set_hold(&store.indexes, newest) if store.indexes.enabled else NULL


cdef inline void slot_fetch(Index *index, int32_t key_hash) noexcept nogil:
    """Prefetch a key's slot: its chain is walked once the log's end is known."""
    cdef const char *at = index_bytes(index, index_slot_at(index, key_hash), INDEX_SLOT_BYTES)
    if at != NULL:
        prefetch_to_read(at)


cdef inline bint search_has_enough(const KeySearch *search) noexcept nogil:
    return search.got.count + search.hits.count - search.query.hits_before \
        >= search.query.max_num


cdef int64_t query_wait(Store *store) noexcept nogil:
    """Wait for earlier puts; "r": refresh log and index.  0 or a status."""
    if store.writable:
        # Do not wait for records that cannot become visible: a failed store can still be read.
        wait_for_earlier_puts(store)
        return 0
    if monotonic_ns() - atomic_get(&store.indexes.listed_at) > REFRESH_AFTER_NS:
        log_refresh(store)
        index_set_list(&store.indexes, NULL)
    return min(index_set_ready(store), 0)


cdef int64_t search_file(KeySearch *search, Index *index, int64_t i) noexcept nogil:
    """Search the log down to index file ``i`` (NULL: to its beginning), then the file.

    0, 1 if there are enough hits, or a status.
    """
    cdef Store *store = search.store
    cdef int64_t stop
    cdef int64_t rc = 0
    cdef bint has_entries = False
    cdef bint whole = False                  # it has all keys of its last record
    if index == NULL:
        stop = log_first(store)
    else:
        if index.file.base == NULL:
            index_load_header(index)
        has_entries = atomic_get(&index.count) > 1
        whole = search.above == KEYS_ENTERED and older_has_all(index)
        stop = search.until
        if has_entries:
            stop = atomic_get(&index.end_phy_offset)
            if stop >= search.until:         # else its part of the log is listed
                log_refresh_for(store, stop)
    if search.until == search.begins and (
            search.above == KEYS_LOST or (index != NULL and not whole)):
        search.until += 1                    # some keys of the record there may be lost
    if i == 0 and store.indexes.enabled:
        stop = max(stop, atomic_get(&store.indexes.dispatched))
    if not search.query.index_only and stop < search.until:
        rc = search_log(search, stop, whole)
    if rc == 0 and has_entries:
        return search_entries(search, index, stop)
    search.above = KEYS_LOST
    return rc


cdef int64_t search_entries(KeySearch *search, Index *index, int64_t stop) noexcept nogil:
    """Search an index file whose entries end at the log offset ``stop``: search_file's result."""
    cdef int64_t rc = search_index(search, index)
    search.until = search.begins = atomic_get(&index.begin_phy_offset)
    search.above = KEYS_ENTERED
    if rc == E_CORRUPT and atomic_get(&index.state) == INDEX_BROKEN:
        search.until = stop + 1              # search the log there, and the record at its end
        search.begins = -1
        search.above = KEYS_LOST
        return 0
    return rc


cdef int64_t search_add(KeySearch *search, Found *found) noexcept nogil:
    """Add a hit, unless it repeats the last one: 1 if there are enough, 0 or a status."""
    cdef Got *got = search.got
    cdef int64_t offset = found.record.physical_offset
    if is_left_out(search.store, found.slice.data, &found.record):
        slice_release(&found.slice)
        return 0
    if not search.query.records:
        slice_release(&found.slice)
        return search_add_offset(search, offset)
    if got.count > search.query.hits_before \
            and got.items[got.count - 1].record.physical_offset <= offset:
        slice_release(&found.slice)
        return 0
    if got_add(got, found) < 0:
        slice_release(&found.slice)
        return E_NO_MEMORY
    return search_has_enough(search)


cdef int64_t search_add_offset(KeySearch *search, int64_t offset) noexcept nogil:
    """Add the offset of a hit: search_add's result."""
    cdef Offsets *hits = search.hits
    if hits.count > search.query.hits_before and hits.items[hits.count - 1] <= offset:
        return 0
    if offsets_add(hits, offset) < 0:
        return E_NO_MEMORY
    return search_has_enough(search)


cdef int64_t search_index(KeySearch *search, Index *index) noexcept nogil:
    """Collect the hits of one index file: 0, 1 if there are enough, or a status.

    The records' own times decide: times of entries and header are rounded, and clamped or
    contradictory after a clock went back.
    """
    cdef Store *store = search.store
    cdef const KeyQuery *query = search.query
    cdef Offsets candidates
    cdef MappedFile *near = NULL
    cdef const int64_t *offsets
    cdef int64_t i, rc, count
    memset(&candidates, 0, sizeof(Offsets))
    if index == query.walked and atomic_get(&index.end_phy_offset) == query.walked_end:
        rc = 0
        offsets = query.walked_hits
        count = query.walked_count
    else:
        rc = index_collect(index, query.key_hash, &candidates)
        if rc == E_CORRUPT:                  # its part of the log is searched instead
            index_set_broken(&store.indexes, index)
            candidates.count = 0
        offsets = candidates.items
        count = candidates.count
    for i in range(count):
        if rc != 0:
            break
        rc = HIT_UNKNOWN if query.records else hit_in_place(search, &near, offsets[i])
        if rc == HIT_UNKNOWN:
            rc = search_candidate(search, &near, offsets[i])
    mapped_file_release(near)
    free(candidates.items)
    return rc


cdef int64_t search_candidate(
    KeySearch *search, MappedFile **near, int64_t offset,
) noexcept nogil:
    """Add the record of an index entry if it has the key: 1 if there are enough, 0 or a status."""
    cdef Store *store = search.store
    cdef Found found
    cdef int64_t field
    cdef int64_t rc = log_record_near(store, near, offset, 0, &found, &field)
    if rc > 0:
        if record_has_key(found.slice.data, &found.record, search.query):
            return search_add(search, &found)
        slice_release(&found.slice)
        return 0
    if (rc == E_REMOVED or rc == E_NOT_FOUND) and log_lacks(store, offset):
        field = FIELD_MISSING
        rc = E_CORRUPT
    if rc == E_CORRUPT:
        search.got.field = field
        search.got.bad_offset = offset
        return 0 if candidate_is_stale(store, offset) else E_CORRUPT
    return 0 if rc == E_REMOVED or rc == E_NOT_FOUND else rc


cdef int64_t hit_in_place(
    KeySearch *search, MappedFile **near, int64_t offset,
) noexcept nogil:
    """Add the offset of a record with the key, without a copy: 0, 1 if there are enough, a status.

    HIT_UNKNOWN if its mapped bytes are not good: it has to be read.
    """
    cdef Record record
    cdef int64_t field
    cdef int64_t room = 0
    cdef bint hit
    cdef Store *store = search.store
    cdef const char *data = NULL
    if store.recovery.damage_count == 0 or store.writable:
        data = record_mapped(store, near, offset, &room)
    if data == NULL or record_parse(data, room, room, &record, &field) <= 0 \
            or data[record.size - 1] == 0 \
            or record_check(data, &record, offset, CHECK_CRC) != FIELD_NONE:
        return HIT_UNKNOWN
    hit = record_has_key(data, &record, search.query)
    if mapped_record_changed(near[0], data, &record):
        return HIT_UNKNOWN
    return search_add_offset(search, offset) if hit else 0


cdef bint candidate_is_stale(Store *store, int64_t offset) noexcept nogil:
    """Whether the record of an index entry is no longer in the log."""
    if not_recovered(store, offset):
        return True
    return lies_inside_record(store, offset)


cdef bint not_recovered(Store *store, int64_t offset) noexcept nogil:
    """Whether a recovery would leave no record there; False in a writing mode."""
    if not store.writable:
        derive_if_needed(store)              # finds the damage that a recovery would repair
    return not store.writable and (
        offset >= log_end(store) or never_synced(&store.recovery, offset))


cdef bint is_left_out(Store *store, const char *data, const Record *record) noexcept nogil:
    """"r": whether a recovery would remove a record whose body CRC matches.

    An owner may have written a good record there since the damage was found.
    """
    cdef const Damage *damage
    cdef int64_t i
    for i in range(store.recovery.damage_count if not store.writable else 0):
        damage = &store.recovery.damages[i]
        if damage.kind != DAMAGE_BYTES \
                and damage.start <= record.physical_offset < damage.stop:
            return record_is_torn(data, record, store.log.file_size)
    return False


cdef bint lies_inside_record(Store *store, int64_t offset) noexcept nogil:
    """Whether a record, such as the filler of a lost range, spans an offset of the log."""
    cdef Cursor cursor
    cdef Record record
    cdef const char *data = NULL
    cdef int64_t at
    cursor_init(&cursor, store, log_boundary(store, offset, 0), offset)
    cursor.check_crc = False
    cursor.report_removed = True             # no record continues after a missing file
    while cursor_next(&cursor, &record, &data) > 0:
        pass
    at = cursor.at
    cursor_close(&cursor)
    return at > offset


cdef int64_t search_log(KeySearch *search, int64_t start, bint whole) noexcept nogil:
    """Collect the hits from ``start`` to ``search.until``, not covered by the index, newest first.

    ``whole``: the index has all keys of the record at ``start``.  Otherwise that is read each time:
    an owner may still be entering its keys, or no index precedes it.
    """
    cdef Store *store = search.store
    cdef Offsets found_at
    cdef int64_t rc = 0
    cdef int64_t rest = start
    cdef int64_t keyless
    memset(&found_at, 0, sizeof(Offsets))
    if not whole:
        rc = note_hit(search, start, &found_at)
        if rc > 0:
            rest = start + rc
        elif rc != E_NO_MEMORY:              # the walk will meet it again
            rc = 0
    keyless = keyless_until(&store.keyless, rest + whole)
    if keyless > rest + whole:
        rest = keyless
    if rc >= 0:
        rc = 0
        if rest < search.until:
            rc = search_walk(search, rest, start if whole else -1, &found_at)
    # A part with keys lacks its index file, which may have had keys of that record too.
    if rc > 0 and search.begins >= 0 and note_hit(search, search.begins, &found_at) == E_NO_MEMORY:
        rc = E_NO_MEMORY
    rc = min(rc, 0)
    while rc == 0 and found_at.count > 0:
        found_at.count -= 1
        rc = search_found(search, found_at.items[found_at.count])
    free(found_at.items)
    return rc


cdef int64_t note_hit(KeySearch *search, int64_t offset, Offsets *found_at) noexcept nogil:
    """Note a record that has the key; its size, or a status if it cannot be read."""
    cdef const Found *last = search.query.last
    cdef Found found
    cdef int64_t field
    cdef int64_t rc
    if last != NULL and last.record.physical_offset == offset:
        return note_if_hit(search, last, found_at)
    rc = log_record(search.store, offset, 0, &found, &field)
    if rc > 0:
        rc = note_if_hit(search, &found, found_at)
        slice_release(&found.slice)
    return rc


cdef int64_t note_if_hit(
    KeySearch *search, const Found *found, Offsets *found_at,
) noexcept nogil:
    """Note a record if it has the key; its size, or E_NO_MEMORY."""
    if record_has_key(found.slice.data, &found.record, search.query) \
            and offsets_add(found_at, found.record.physical_offset) < 0:
        return E_NO_MEMORY
    return found.record.size


cdef int64_t search_found(KeySearch *search, int64_t offset) noexcept nogil:
    """Add a record that has the key: 1 if there are enough, 0 or a status."""
    cdef Found found
    cdef int64_t field
    cdef int64_t rc = log_record(search.store, offset, 0, &found, &field)
    if rc > 0:
        return search_add(search, &found)
    if rc == E_CORRUPT and not_recovered(search.store, offset):
        return 0
    if rc == E_CORRUPT:
        search.got.field = field
        search.got.bad_offset = offset
    return rc


cdef int64_t search_walk(
    KeySearch *search, int64_t start, int64_t known, Offsets *found_at,
) noexcept nogil:
    """Search from ``start`` to ``search.until``, oldest first: 1 if it has any keys, 0 or a status.

    Notes a keyless range, and, in ``got``, the first damage that may hide the key, unless opening
    reported it.  ``known``: offset of a record in the index, not counted; -1: none.
    """
    cdef Store *store = search.store
    cdef Cursor cursor
    cdef Record record
    cdef const char *data
    cdef int64_t rc
    cdef int64_t stop = search.until
    cdef int64_t read_to = start
    cdef bint keyed = False
    cursor_init(&cursor, store, start, stop)
    cursor.check_crc = False                 # hits are checked when they are read
    cursor.chunk = min(CURSOR_CHUNK, max(stop - start, RECORD_GUESS))
    while True:
        rc = cursor_next(&cursor, &record, &data)
        if rc == E_CORRUPT:
            keyed = keyed or search.begins >= 0      # damaged bytes may have had keys
            rc = walk_past_damage(search, &cursor)
            if rc > 0:
                continue
        if rc <= 0:
            break
        read_to = cursor.at
        if not keyed and record.physical_offset != known:
            keyed = record_is_keyed(data, &record)
        if record_has_key(data, &record, search.query):
            rc = offsets_add(found_at, record.physical_offset)
            if rc < 0:
                break
    # Unreadable bytes may become readable: an owner is writing them, or just made their file.
    if cursor.at >= stop or (search.begins >= 0 and stop <= file_set_stop(&store.log)):
        read_to = stop
    cursor_close(&cursor)
    if rc == 0 and not keyed:
        note_keyless(&store.keyless, start + (start == known), read_to)
    return keyed if rc == 0 else rc


cdef int64_t walk_past_damage(KeySearch *search, Cursor *cursor) noexcept nogil:
    """Resync, and note the first damage: cursor_resync's result."""
    cdef Store *store = search.store
    cdef int64_t bad = cursor.at
    cdef int64_t field = cursor.field
    cdef int64_t rc = cursor_resync(cursor)
    if rc > 0 and search.got.passed_over == 0 and not store.view.owned_elsewhere \
            and not is_reported_damage(&store.recovery, bad):
        search.got.passed_over = bad + 1
        search.got.passed_field = field
    return rc


cdef bint record_is_keyed(const char *data, const Record *record) noexcept nogil:
    """Whether a record has index entries, or may have once it is completely written."""
    cdef StoreProperties properties
    if record_is_rolled_back(record):
        return False
    if record_may_be_unfinished(data, record):
        return True
    store_properties(data + record.properties_at, record.properties_length, &properties)
    return properties.unique_key.value_length > 0 or properties.keys.value_length > 0
