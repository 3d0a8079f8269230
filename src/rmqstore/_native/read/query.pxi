# Find by key: the index files newest first, and the log itself where no index file covers it.
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
    int64_t hits_before          # hits of other keys, stored before this one's
    int64_t head                 # the end of the log if the caller knows it; 0: find it
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


cdef int64_t query_run(
    Store *store, const KeyQuery *query, Got *got, Offsets *hits,
) noexcept nogil:
    """Collect all hits, newest first, into ``got`` (records) or ``hits`` (offsets)."""
    cdef int64_t rc, newer
    cdef int64_t i = 0
    cdef Index *index
    cdef int64_t stop
    cdef int64_t begins = -1                 # the first offset in the newer file's entries
    cdef bint named = False                  # a newer file with entries was used
    cdef bint lost = False                   # files after it have no good part
    cdef bint whole
    if store.writable:
        # Do not wait for records that cannot become visible: a failed store can still be read.
        wait_for_earlier_puts(store)
    else:
        if monotonic_ns() - atomic_get(&store.indexes.listed_at) > REFRESH_AFTER_NS:
            log_refresh(store)
            index_set_list(&store.indexes, NULL)
        rc = index_set_ready(store)
        if rc < 0:
            return rc
    # From the end of the log downwards: ranges between two files are searched themselves.
    newer = query.head if query.head > 0 else query_head(store)
    while True:
        index = index_set_hold(&store.indexes, i) if store.indexes.enabled else NULL
        if index != NULL and not index_is_usable(store, index):
            index_close(index)
            i += 1
            lost = True
            continue
        stop = log_first(store)
        whole = False
        if index != NULL:
            if index.file.base == NULL:
                index_load_header(index)
            whole = named and index_has_all(index, False)
            if atomic_get(&index.count) > 1:
                stop = atomic_get(&index.end_phy_offset)
                log_refresh_for(store, stop)
            else:
                stop = newer
        rc = 0
        if newer == begins and (lost or (index != NULL and not whole)):
            newer += 1                       # lost keys may be of the record that continues there
        if i == 0 and store.indexes.enabled and atomic_get(&store.indexes.dispatched) > stop:
            stop = atomic_get(&store.indexes.dispatched)
        if not query.index_only and stop < newer:
            rc = query_log(store, query, stop, newer, whole and not lost, begins, got, hits)
        if rc == 0 and index != NULL and atomic_get(&index.count) > 1:
            rc = query_index(store, query, index, got, hits)
            newer = atomic_get(&index.begin_phy_offset)
            begins = newer
            named = True
            lost = False
            if rc == E_CORRUPT and atomic_get(&index.state) == INDEX_BROKEN:
                newer = stop + 1             # searched itself, including the record at its end
                begins = -1
                lost = True
                rc = 0
        elif index != NULL:
            lost = True                      # or empty
        index_close(index)
        if rc != 0 or index == NULL or got.count + hits.count - query.hits_before >= query.max_num:
            return min(rc, 0)
        i += 1


cdef int64_t query_add(
    Store *store, const KeyQuery *query, Found *found, Got *got, Offsets *hits,
) noexcept nogil:
    """Add a hit unless it equals the one before: 1 if there are enough."""
    cdef int64_t rc
    cdef int64_t offset = found.record.physical_offset
    if is_left_out(store, found.slice.data, &found.record):
        slice_release(&found.slice)
        return 0
    if query.records:
        if got.count > query.hits_before \
                and got.items[got.count - 1].record.physical_offset <= offset:
            slice_release(&found.slice)
            return 0
        rc = got_add(got, found)
        if rc < 0:
            slice_release(&found.slice)
            return rc
        return 1 if got.count - query.hits_before >= query.max_num else 0
    slice_release(&found.slice)
    if hits.count > query.hits_before and hits.items[hits.count - 1] <= offset:
        return 0
    rc = offsets_add(hits, offset)
    if rc < 0:
        return rc
    return 1 if hits.count - query.hits_before >= query.max_num else 0


cdef int64_t query_index(
    Store *store, const KeyQuery *query, Index *index, Got *got, Offsets *hits,
) noexcept nogil:
    """Collect the hits of one index file: 0, 1 if there are enough, or the failure.

    The records' own times decide: those of entries and header are rounded, and clamped or
    contradictory where a clock went back.
    """
    cdef Offsets candidates
    cdef Found found
    cdef MappedFile *near = NULL
    cdef const int64_t *offsets
    cdef int64_t i, rc, field, count
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
    i = 0
    while rc == 0 and i < count:
        if not query.records:
            rc = hit_in_place(store, &near, offsets[i], query, hits)
            if rc != HIT_UNKNOWN:
                i += 1
                continue
        rc = log_record_near(store, &near, offsets[i], 0, &found, &field)
        i += 1
        if (rc == E_REMOVED or rc == E_NOT_FOUND) and log_lacks(store, offsets[i - 1]):
            field = FIELD_MISSING
            rc = E_CORRUPT
        if rc == E_CORRUPT:
            got.field = field
            got.bad_offset = offsets[i - 1]
            if not candidate_is_stale(store, got.bad_offset):
                break
            rc = 0
            continue
        if rc <= 0:
            rc = 0 if rc == E_REMOVED or rc == E_NOT_FOUND else rc
            continue
        if record_has_key(found.slice.data, &found.record, query):
            rc = query_add(store, query, &found, got, hits)
        else:
            slice_release(&found.slice)
            rc = 0
    mapped_file_release(near)
    free(candidates.items)
    return rc


cdef int64_t hit_in_place(
    Store *store, MappedFile **near, int64_t offset, const KeyQuery *query, Offsets *hits,
) noexcept nogil:
    """Add the offset of a record with the key, without a copy of the record.

    0, 1 if there are enough, or another failure; HIT_UNKNOWN if it is not good in place and
    has to be read.
    """
    cdef Record record
    cdef int64_t field
    cdef int64_t room = 0
    cdef bint hit
    cdef const char *data = NULL
    if store.recovery.damage_count == 0 or store.writable:
        data = record_mapped(store, near, offset, &room)
    if data == NULL or record_parse(data, room, room, &record, &field) <= 0 \
            or data[record.size - 1] == 0 \
            or record_check(data, &record, offset, CHECK_CRC) != FIELD_NONE:
        return HIT_UNKNOWN
    hit = record_has_key(data, &record, query)
    if mapped_record_changed(near[0], data, &record):
        return HIT_UNKNOWN
    if not hit or (hits.count > query.hits_before and hits.items[hits.count - 1] <= offset):
        return 0
    if offsets_add(hits, offset) < 0:
        return E_NO_MEMORY
    return 1 if hits.count - query.hits_before >= query.max_num else 0


cdef bint candidate_is_stale(Store *store, int64_t offset) noexcept nogil:
    """Whether the record of an index entry is no longer in the log."""
    if not_recovered(store, offset):
        return True
    return lies_inside_record(store, offset)


cdef bint not_recovered(Store *store, int64_t offset) noexcept nogil:
    """Whether a recovery of a read-only store would leave no record there."""
    if not store.writable:
        derive_if_needed(store)              # finds the damage that a recovery would repair
    return not store.writable and (
        offset >= log_end(store) or never_synced(&store.recovery, offset))


cdef bint is_left_out(Store *store, const char *data, const Record *record) noexcept nogil:
    """Whether a recovery of a read-only store would remove a record whose body checks.

    If so, an owner may have written a good record since.
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
    cursor.report_removed = True             # no record continues behind a missing file
    while cursor_next(&cursor, &record, &data) > 0:
        pass
    at = cursor.at
    cursor_close(&cursor)
    return at > offset


cdef int64_t query_log(
    Store *store, const KeyQuery *query, int64_t start, int64_t stop, bint named, int64_t begins,
    Got *got, Offsets *hits,
) noexcept nogil:
    """Collect the hits in a part of the log that no index file covers, newest first.

    ``named``: the record at ``start`` is in the index with all its keys.  Otherwise it is read each
    time: an owner may still be entering its keys, or no index precedes it.
    ``begins``: the record with the first entries after the part, -1 for none: if the part has
    keys, a file is missing that may have had some of that record's keys too.
    """
    cdef Offsets found_at
    cdef Found found
    cdef int64_t field
    cdef int64_t rc = 0
    cdef int64_t rest = start
    cdef int64_t keyless
    memset(&found_at, 0, sizeof(Offsets))
    if not named:
        rc = log_record(store, start, 0, &found, &field)
        if rc > 0:
            rest = start + rc
            rc = 0
            if record_has_key(found.slice.data, &found.record, query):
                rc = offsets_add(&found_at, start)
            slice_release(&found.slice)
        elif rc != E_NO_MEMORY:              # the walk will meet it again
            rc = 0
    keyless = keyless_until(&store.keyless, rest + named)
    if keyless > rest + named:
        rest = keyless
    if rc == 0 and rest < stop:
        rc = query_walk(store, query, rest, stop, start if named else -1, begins, got, &found_at)
        if rc > 0 and begins >= 0 and log_record(store, begins, 0, &found, &field) > 0:
            if record_has_key(found.slice.data, &found.record, query):
                rc = offsets_add(&found_at, begins)
            slice_release(&found.slice)
        rc = min(rc, 0)
    while rc == 0 and found_at.count > 0:
        found_at.count -= 1
        rc = log_record(store, found_at.items[found_at.count], 0, &found, &field)
        if rc > 0:
            rc = query_add(store, query, &found, got, hits)
        elif rc == E_CORRUPT and not_recovered(store, found_at.items[found_at.count]):
            rc = 0
        elif rc == E_CORRUPT:
            got.field = field
            got.bad_offset = found_at.items[found_at.count]
    free(found_at.items)
    return rc


cdef int64_t query_walk(
    Store *store, const KeyQuery *query, int64_t start, int64_t stop, int64_t named,
    int64_t begins, Got *got, Offsets *found_at,
) noexcept nogil:
    """Search a part of the log, oldest first: 1 if it has any keys, 0 or a status.

    The first damage that may hide the key is noted in ``got``, unless opening reported it.
    A part without keys is noted.  ``named``: the offset of a record that is in the index and does
    not count, -1 for none.
    """
    cdef Cursor cursor
    cdef Record record
    cdef const char *data
    cdef int64_t rc, bad, field
    cdef int64_t until = start               # read up to there
    cdef bint keyed = False
    cursor_init(&cursor, store, start, stop)
    cursor.check_crc = False                 # hits are checked when they are read
    cursor.chunk = min(CURSOR_CHUNK, max(stop - start, RECORD_GUESS))
    while True:
        rc = cursor_next(&cursor, &record, &data)
        if rc == E_CORRUPT:
            keyed = keyed or begins >= 0     # damaged bytes may have had keys
            bad = cursor.at
            field = cursor.field
            rc = cursor_resync(&cursor)
            if rc > 0 and got.passed_over == 0 and not store.view.owned_elsewhere \
                    and not is_reported_damage(&store.recovery, bad):
                got.passed_over = bad + 1
                got.passed_field = field
            if rc > 0:
                continue
        if rc <= 0:
            break
        until = cursor.at
        if not keyed and record.physical_offset != named:
            keyed = record_is_keyed(data, &record)
        if record_has_key(data, &record, query):
            rc = offsets_add(found_at, record.physical_offset)
            if rc < 0:
                break
    # Unreadable bytes may become readable: an owner is writing them, or just made their file.
    if cursor.at >= stop or (begins >= 0 and stop <= file_set_stop(&store.log)):
        until = stop
    cursor_close(&cursor)
    if rc == 0 and not keyed:
        note_keyless(&store.keyless, start + (start == named), until)
    return keyed if rc == 0 else rc


cdef bint record_is_keyed(const char *data, const Record *record) noexcept nogil:
    """Whether the index would have entries for it, once it is completely written."""
    cdef StoreProperties properties
    if record_is_rolled_back(record):
        return False
    if record_may_be_unfinished(data, record):
        return True
    store_properties(data + record.properties_at, record.properties_length, &properties)
    return properties.unique_key.value_length > 0 or properties.keys.value_length > 0
