# Agreement of an index file with the log: header and both ends at each opening; all entries and
# slots unless the watermark vouches for them.

cdef enum:
    COMPARED_LOG = 4 << 20       # a log up to this size is compared in full at each opening

# Findings from a file's entries alone.
cdef struct IndexWalk:
    int32_t *heads               # the newest entry of each slot
    int64_t count                # number of the first entry that is inconsistent
    int64_t last                 # physical offset of the last consistent one
    int64_t used                 # slots that have entries

# Reads the entries of a file sequentially, in pieces.
cdef struct EntryReader:
    Index *index
    int64_t first                # number of the first entry in the buffer
    int64_t got                  # entries in the buffer
    char *buffer


cdef int64_t entry_reader_begin(EntryReader *reader, Index *index) noexcept nogil:
    memset(reader, 0, sizeof(EntryReader))
    reader.index = index
    reader.buffer = <char *>malloc(ENTRIES_READ * INDEX_ENTRY_BYTES)
    return 0 if reader.buffer != NULL else E_NO_MEMORY


cdef inline const char *entry_reader_at(EntryReader *reader, int64_t number) noexcept nogil:
    """Entry ``number``; NULL if it cannot be read."""
    if number < reader.first or number >= reader.first + reader.got:
        reader.first = number
        # After its entries a mapped file may have no blocks.
        reader.got = min(ENTRIES_READ, atomic_get(&reader.index.count) - number)
        if reader.got <= 0 or index_read(
                reader.index, index_entry_at(reader.index, number),
                reader.got * INDEX_ENTRY_BYTES, reader.buffer) < 0:
            reader.got = 0
            return NULL
    return reader.buffer + (number - reader.first) * INDEX_ENTRY_BYTES


cdef bint index_header_fits(Store *store, Index *index) noexcept nogil:
    """Whether header, first and last entry, the last entry's slot, and the log agree."""
    cdef char header[INDEX_HEADER_BYTES]
    cdef char first[INDEX_ENTRY_BYTES]
    cdef char last[INDEX_ENTRY_BYTES]
    cdef char slot[INDEX_SLOT_BYTES]
    cdef int64_t count, begin, end, begin_time, end_time, used
    if index_read(index, 0, INDEX_HEADER_BYTES, header) < 0:
        return False
    count = get_i32(header + INDEX_COUNT)
    if count == 0 or count == 1:
        return True
    begin = get_i64(header + INDEX_BEGIN_PHY_OFFSET)
    end = get_i64(header + INDEX_END_PHY_OFFSET)
    begin_time = get_i64(header + INDEX_BEGIN_TIMESTAMP)
    end_time = get_i64(header + INDEX_END_TIMESTAMP)
    used = get_i32(header + INDEX_SLOTS_USED)
    if count < 0 or count > index.entry_num or used < 1 or used > count - 1 or begin < 0 \
            or index_read(index, index_entry_at(index, 1), INDEX_ENTRY_BYTES, first) < 0 \
            or index_read(index, index_entry_at(index, count - 1), INDEX_ENTRY_BYTES, last) < 0:
        return False
    if begin > end or get_i64(first + ENTRY_PHYSICAL_OFFSET) != begin \
            or get_i64(last + ENTRY_PHYSICAL_OFFSET) != end \
            or get_i32(first + ENTRY_KEY_HASH) < 0 or get_i32(last + ENTRY_KEY_HASH) < 0 \
            or get_i32(first + ENTRY_PREVIOUS) != 0 or get_i32(first + ENTRY_SECONDS) < 0:
        return False
    if count > 2 and get_i32(last + ENTRY_SECONDS) != index_seconds(begin_time, end_time):
        return False
    if index_read(index, INDEX_HEADER_BYTES + INDEX_SLOT_BYTES * (
            get_i32(last + ENTRY_KEY_HASH) % index.slot_num), INDEX_SLOT_BYTES, slot) < 0 \
            or get_i32(slot) != count - 1:
        return False
    return record_time_is(store, begin, begin_time) and record_time_is(store, end, end_time)


cdef bint record_time_is(
    Store *store, int64_t physical_offset, int64_t store_timestamp,
) noexcept nogil:
    """Whether a record has that store time, or has expired, is damaged, or its file is missing."""
    cdef Found found
    cdef int64_t field
    cdef bint same
    cdef int64_t rc = log_record(store, physical_offset, 0, &found, &field)
    if rc == E_REMOVED or rc == E_CORRUPT:
        return True
    if rc <= 0:
        return file_set_gap(&store.log, physical_offset, physical_offset + 1) >= 0
    same = found.record.store_timestamp == store_timestamp or record_is_rolled_back(&found.record)
    slice_release(&found.slice)
    return same


cdef int64_t index_walk(
    Store *store, Index *index, int64_t stop, int64_t end, IndexWalk *walk,
) noexcept nogil:
    """Check the entries below number ``stop``, up to the first inconsistent one.

    Each points below the log offset ``end``, not before the previous entry, and its predecessor is
    the newest earlier entry of its slot.  The caller frees the heads.
    """
    cdef EntryReader reader
    cdef const char *entry
    cdef int64_t number = 1
    cdef int64_t rc, slot, offset
    cdef int32_t key_hash
    memset(walk, 0, sizeof(IndexWalk))
    rc = entry_reader_begin(&reader, index)
    walk.heads = <int32_t *>malloc_dense(<size_t>index.slot_num * sizeof(int32_t))
    if rc < 0 or walk.heads == NULL:
        free(reader.buffer)
        free(walk.heads)
        walk.heads = NULL
        return E_NO_MEMORY
    memset(walk.heads, 0, <size_t>index.slot_num * sizeof(int32_t))
    while number < stop:
        entry = entry_reader_at(&reader, number)
        if entry == NULL:
            break
        key_hash = get_i32(entry + ENTRY_KEY_HASH)
        offset = get_i64(entry + ENTRY_PHYSICAL_OFFSET)
        slot = key_hash % index.slot_num
        if key_hash < 0 or offset < walk.last or offset >= end \
                or get_i32(entry + ENTRY_SECONDS) < 0 \
                or get_i32(entry + ENTRY_PREVIOUS) != walk.heads[slot]:
            break
        # A page that never reached the disk: otherwise only a hash of 0 at log offset 0.
        if key_hash == 0 and offset == 0 and not entry_is_true(store, entry):
            break
        walk.last = offset
        walk.used += walk.heads[slot] == 0
        walk.heads[slot] = <int32_t>number
        number += 1
    walk.count = number
    free(reader.buffer)
    return 0


cdef int64_t index_slots_fit(Index *index, const int32_t *heads) noexcept nogil:
    """1 if each slot names its newest entry, 0, or -errno."""
    cdef int64_t at = 0
    cdef int64_t rc = 1
    cdef int64_t i, part
    cdef int32_t different
    cdef char *buffer = <char *>malloc(ENTRIES_READ * INDEX_SLOT_BYTES)
    if buffer == NULL:
        return E_NO_MEMORY
    while at < index.slot_num and rc > 0:
        part = min(index.slot_num - at, ENTRIES_READ)
        rc = index_read(index, INDEX_HEADER_BYTES + at * INDEX_SLOT_BYTES,
                        part * INDEX_SLOT_BYTES, buffer)
        if rc < 0:
            break
        different = 0
        for i in range(part):                # without a branch: several slots at a time
            different |= get_i32(buffer + i * INDEX_SLOT_BYTES) ^ heads[at + i]
        rc = different == 0
        at += part
    free(buffer)
    return rc


cdef bint record_needs_keys(
    const char *data, const Record *record, DispatchRequest *request,
) noexcept nogil:
    """Whether the index has entries for a record with keys."""
    if record_is_rolled_back(record):
        return False
    request.topic = NULL
    store_properties(data + record.properties_at, record.properties_length, &request.properties)
    return True


cdef int64_t index_compare(
    Store *store, Index *index, int64_t count, int64_t start,
) noexcept nogil:
    """Number of the first entry from the log offset ``start`` on that the log contradicts.

    ``count`` without one: each entry below it points to a record, and each record between the
    first and the last has all its keys.
    """
    cdef EntryReader reader
    cdef Cursor cursor
    cdef Record record
    cdef DispatchRequest request
    cdef const char *data
    cdef int64_t begin, end, rc, at, group
    cdef int64_t number = 1
    if count <= 1:
        return count
    if entry_reader_begin(&reader, index) < 0:
        return E_NO_MEMORY
    begin = entry_offset(&reader, 1)
    end = entry_offset(&reader, count - 1)
    start = max(start, log_first(store))
    while number < count and entry_offset(&reader, number) < start:
        number += 1
    cursor_init(&cursor, store, max(start, begin), end + 1)
    cursor.check_crc = False
    cursor.report_removed = True
    rc = 1
    at = -1
    while number < count and rc > 0:
        rc = cursor_next(&cursor, &record, &data)
        if rc == E_CORRUPT and at < 0 and cursor.field != FIELD_MISSING:
            break                            # no record where the first entry points
        if rc == E_CORRUPT:                  # unreadable records are not compared
            rc = cursor_resync(&cursor)
            while number < count and (rc == 0 or entry_offset(&reader, number) < cursor.at):
                number += 1
            continue
        if rc <= 0:
            break
        at = record.physical_offset
        if entry_offset(&reader, number) < at:
            break                            # does not name a record
        group = number
        while group < count and entry_offset(&reader, group) == at:
            group += 1
        # Some keys of the first and the last record may be in the neighbouring files.
        if record_needs_keys(data, &record, &request) and not (
                group_has_keys(&reader, number, group, data, &record, &request) if begin < at < end
                else group_is_of(&reader, number, group, data, &record, &request)):
            break
        number = group
    cursor_close(&cursor)
    free(reader.buffer)
    if rc < 0 and rc != E_REMOVED and rc != E_CORRUPT:
        return rc
    return number


cdef inline int64_t entry_offset(EntryReader *reader, int64_t number) noexcept nogil:
    cdef const char *entry = entry_reader_at(reader, number)
    return get_i64(entry + ENTRY_PHYSICAL_OFFSET) if entry != NULL else -1


cdef bint group_has_hash(
    EntryReader *reader, int64_t start, int64_t stop, int32_t key_hash,
) noexcept nogil:
    cdef const char *entry
    cdef int64_t number
    for number in range(start, stop):
        entry = entry_reader_at(reader, number)
        if entry != NULL and get_i32(entry + ENTRY_KEY_HASH) == key_hash:
            return True
    return False


cdef bint record_has_hash(
    const char *data, const Record *record, const DispatchRequest *request, int32_t key_hash,
) noexcept nogil:
    cdef int64_t at = -1
    cdef int32_t has = next_key_hash(data, record, request, &at)
    while has != key_hash and has != KEYLESS:
        has = next_key_hash(data, record, request, &at)
    return has == key_hash and has != KEYLESS


cdef bint group_is_of(
    EntryReader *reader, int64_t start, int64_t stop, const char *data, const Record *record,
    const DispatchRequest *request,
) noexcept nogil:
    """Whether each entry of [start, stop) has one of a record's keys."""
    cdef const char *entry
    cdef int64_t number
    for number in range(start, stop):
        entry = entry_reader_at(reader, number)
        if entry == NULL or not record_has_hash(
                data, record, request, get_i32(entry + ENTRY_KEY_HASH)):
            return False
    return True


cdef bint group_has_keys(
    EntryReader *reader, int64_t start, int64_t stop, const char *data, const Record *record,
    const DispatchRequest *request,
) noexcept nogil:
    """Whether the entries [start, stop) have exactly a record's keys.

    An extra entry may be the next record's, which then lacks it.
    """
    cdef const char *entry
    cdef int64_t number = start
    cdef int64_t at = -1
    cdef int32_t key_hash = next_key_hash(data, record, request, &at)
    while key_hash != KEYLESS:
        entry = entry_reader_at(reader, number) if number < stop else NULL
        if entry != NULL and get_i32(entry + ENTRY_KEY_HASH) == key_hash:
            number += 1
        elif not group_has_hash(reader, start, stop, key_hash):
            return False
        key_hash = next_key_hash(data, record, request, &at)
    return number == stop or group_is_of(reader, start, stop, data, record, request)


cdef bint entry_is_true(Store *store, const char *entry) noexcept nogil:
    """Whether the record that an entry points to has a key of that hash."""
    cdef DispatchRequest request
    cdef Found found
    cdef const char *data
    cdef int64_t field
    cdef bint hit
    if log_record(store, get_i64(entry + ENTRY_PHYSICAL_OFFSET), 0, &found, &field) <= 0:
        return get_i64(entry + ENTRY_PHYSICAL_OFFSET) < log_first(store)   # expired, not wrong
    data = found.slice.data
    request.topic = NULL
    store_properties(data + found.record.properties_at, found.record.properties_length,
                     &request.properties)
    hit = record_has_hash(data, &found.record, &request, get_i32(entry + ENTRY_KEY_HASH))
    if record_is_rolled_back(&found.record):
        hit = True                           # a filler that replaces a damaged record
    slice_release(&found.slice)
    return hit


cdef int64_t index_examine(
    Store *store, Index *index, int64_t end, int64_t compare_from, IndexWalk *walk,
) noexcept nogil:
    """Walk a file's entries, and compare them with the log from ``compare_from`` on: 1 if all good.

    0 if not: ``walk`` has the good part.  The caller frees the heads.
    """
    cdef int64_t rc, good, stop
    stop = atomic_get(&index.count)
    rc = index_walk(store, index, stop, end, walk)
    if rc < 0:
        return rc
    good = walk.count
    if compare_from < INT64_MOST:
        good = index_compare(store, index, walk.count, compare_from)
    if good >= 0 and good < walk.count:
        free(walk.heads)
        rc = index_walk(store, index, good, end, walk)
    if rc == 0 and good < 0:
        free(walk.heads)
        walk.heads = NULL
        return good
    if rc < 0:
        return rc
    if walk.count < stop or not index_header_fits(store, index):
        return 0
    return index_slots_fit(index, walk.heads)
