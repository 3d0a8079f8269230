# Parsers as the fuzzer calls them: one input each, made from a seed.  Besides never touching a
# byte outside its input, each has promises to keep.

from rmqstore._native.base.java_string cimport java_hash_code

cdef enum:
    FUZZ_BROKEN = -1
    FUZZ_REFUSED = 0
    FUZZ_TAKEN = 1
    FUZZ_LOG_OFFSET = 0x12345600     # the log offset of the record


cdef int64_t fuzz_broke(Fuzz *fuzz, const char *promise) noexcept nogil:
    fuzz.broken = promise
    return FUZZ_BROKEN


cdef void fuzz_record_fields(Fuzz *fuzz) noexcept nogil:
    """Note the fields of the seed's record, and the numbers among its properties."""
    cdef Record record
    cdef int64_t field
    fuzz_field(fuzz, RECORD_SIZE, 4)
    fuzz_field(fuzz, RECORD_MAGIC, 4)
    fuzz_field(fuzz, RECORD_BODY_CRC, 4)
    fuzz_field(fuzz, RECORD_QUEUE_ID, 4)
    fuzz_field(fuzz, RECORD_QUEUE_OFFSET, 8)
    fuzz_field(fuzz, RECORD_PHYSICAL_OFFSET, 8)
    fuzz_field(fuzz, RECORD_SYS_FLAG, 4)
    fuzz_field(fuzz, RECORD_SYS_FLAG + 3, 1)
    if record_parse(fuzz.data, fuzz.length, fuzz.length, &record, &field) <= 0:
        return
    fuzz_field(fuzz, record.born_host_at, 4)
    fuzz_field(fuzz, record.store_host_at, 4)
    fuzz_field(fuzz, record.body_at - 4, 4)
    fuzz_field(fuzz, record.body_at - 12, 8)
    fuzz_field(fuzz, record.topic_at - (1 if record.magic == MAGIC_MESSAGE else 2),
               1 if record.magic == MAGIC_MESSAGE else 2)
    fuzz_field(fuzz, record.topic_at, 1)
    fuzz_field(fuzz, record.properties_at - 2, 2)
    fuzz_field(fuzz, record.properties_at, 1)
    fuzz_field(fuzz, record.size - 1, 1)


cdef void fuzz_record_repair(Fuzz *fuzz) noexcept nogil:
    """Repair what would end the parse early, so that later fields are read too."""
    cdef Record record
    cdef int64_t field
    if fuzz.length < RECORD_FIXED_BYTES:
        return
    if not fuzz_one_in(fuzz, 4):
        put_i32(fuzz.data + RECORD_SIZE, <int32_t>fuzz.length)
    if not fuzz_one_in(fuzz, 8):
        put_i64(fuzz.data + RECORD_PHYSICAL_OFFSET, FUZZ_LOG_OFFSET)
    if not fuzz_one_in(fuzz, 4) \
            and record_parse(fuzz.data, fuzz.length, fuzz.length, &record, &field) > 0:
        put_i32(fuzz.data + RECORD_BODY_CRC,
                record_body_crc(fuzz.data + record.body_at, record.body_length))
        if record_checksum_at(fuzz.data, &record) >= 0 and not fuzz_one_in(fuzz, 4):
            record_write_checksum(fuzz.data, record.size)


cdef int64_t fuzz_record_make(Fuzz *fuzz) noexcept nogil:
    fuzz_record_fields(fuzz)
    fuzz_mutate_some(fuzz, 4)
    if not fuzz_one_in(fuzz, 3):
        fuzz_record_repair(fuzz)
    return 0


cdef int64_t fuzz_properties(Fuzz *fuzz, const char *data, int64_t length) noexcept nogil:
    """Walk the properties of a record, and read everything read from them."""
    cdef StoreProperties read
    cdef Property entry, last
    cdef const char *word
    cdef int64_t word_length
    cdef int64_t at = 0
    cdef int64_t words = 0
    memset(&last, 0, sizeof(Property))
    last.value_length = -1
    while property_next(data, length, &at, &entry):
        if entry.name < data or entry.name_length < 1 or entry.value_length < 1 \
                or entry.value + entry.value_length > data + length:
            return fuzz_broke(fuzz, "a property lies outside of its record")
        if entry.name_length == 4 and memcmp(entry.name, b"KEYS", 4) == 0:
            last = entry
    store_properties(data, length, &read)
    if read.keys.value_length != last.value_length \
            or (last.value_length >= 0 and read.keys.value != last.value):
        return fuzz_broke(fuzz, "the KEYS of the record are not the last ones")
    if property_find(data, length, b"KEYS", 4, &entry) != (last.value_length >= 0):
        return fuzz_broke(fuzz, "a property is found and not read, or read and not found")
    at = 0
    while last.value_length > 0 and split_next(
            last.value, last.value_length, 32, &at, &word, &word_length):
        words += word_length
        index_key_hash(word, word_length, 7)
    if words > max(last.value_length, 0):
        return fuzz_broke(fuzz, "the keys are longer than the property")
    tags_code(&read.tags)
    if read.delay.value_length > 0:
        parse_decimal(read.delay.value, read.delay.value_length)
    has_zero_run(data, length)
    return 0


cdef int64_t fuzz_record(Fuzz *fuzz) noexcept nogil:
    """Parse and check a record, and read all of its fields."""
    cdef char host[HOST_TEXT_MAX]
    cdef char digits[MESSAGE_ID_MAX]
    cdef Record record
    cdef int64_t rc, field, at, size
    cdef int64_t length = fuzz.length
    cdef int64_t room = length + (fuzz_below(fuzz, 200) if fuzz_one_in(fuzz, 4) else 0)
    cdef const char *data = fuzz_place(fuzz, fuzz.data, length)
    rc = record_parse(data, length, room, &record, &field)
    if rc == 0:
        if record.size != room:
            return fuzz_broke(fuzz, "a blank of another size than the room")
        return FUZZ_TAKEN
    if rc == E_NOT_FOUND:
        if not length < record.size <= room:
            return fuzz_broke(fuzz, "more bytes are wanted than there are")
        return FUZZ_REFUSED
    if rc < 0:
        if rc != E_CORRUPT or field == FIELD_NONE:
            return fuzz_broke(fuzz, "refused without a field, or with another status")
        return FUZZ_REFUSED
    if rc != record.size or rc > length or rc < RECORD_FIXED_BYTES:
        return fuzz_broke(fuzz, "the size is not the record's")
    if record.body_length < 0 or record.topic_length < 0 or record.properties_length < 0 \
            or record.body_at + record.body_length >= record.topic_at \
            or record.topic_at + record.topic_length + 2 != record.properties_at \
            or record.properties_at + record.properties_length != rc:
        return fuzz_broke(fuzz, "parts that do not follow each other")
    at = fuzz_properties(fuzz, data + record.properties_at, record.properties_length)
    if at < 0:
        return at
    topic_name_stored(data + record.topic_at, record.topic_length)
    java_hash_utf8(data + record.topic_at, record.topic_length, 0)
    at = host_write(data + record.born_host_at, record.sys_flag & SYS_BORN_HOST_V6 != 0, host)
    if at < 0 or at >= HOST_TEXT_MAX:
        return fuzz_broke(fuzz, "a host longer than its room")
    if message_id_write(data + record.store_host_at, record.sys_flag & SYS_STORE_HOST_V6 != 0,
                        record.physical_offset, digits) > MESSAGE_ID_MAX:
        return fuzz_broke(fuzz, "an id longer than its room")
    field = record_check(data, &record, FUZZ_LOG_OFFSET, CHECK_CRC)
    at = record_find(data, length, FUZZ_LOG_OFFSET, FUZZ_LOG_OFFSET + room, &size)
    if field == FIELD_NONE and (at != 0 or size != rc):
        return fuzz_broke(fuzz, "a good record is not found, or another one is")
    return FUZZ_TAKEN if field == FIELD_NONE else FUZZ_REFUSED


cdef int64_t fuzz_find(Fuzz *fuzz) noexcept nogil:
    """Search for the next record in a piece of the log with others before and after it."""
    cdef Record record
    cdef int64_t at, field
    cdef int64_t size = 0
    cdef int64_t length = fuzz.length
    cdef const char *data = fuzz_place(fuzz, fuzz.data, length)
    at = record_find(data, length, FUZZ_LOG_OFFSET, FUZZ_LOG_OFFSET + length, &size)
    if at == E_NOT_FOUND:
        return FUZZ_REFUSED
    if at < 0 or size < RECORD_FIXED_BYTES or at + size > length \
            or record_parse(data + at, length - at, length - at, &record, &field) != size \
            or record_check(data + at, &record, FUZZ_LOG_OFFSET + at, CHECK_CRC) != FIELD_NONE:
        return fuzz_broke(fuzz, "what is found is no record")
    return FUZZ_TAKEN


# An index file with as many slots as its size implies at RocketMQ's ratio.
cdef int64_t fuzz_index_make(Fuzz *fuzz) noexcept nogil:
    cdef int64_t i, slots
    slots = (fuzz.length - INDEX_HEADER_BYTES) // (INDEX_SLOT_BYTES + 4 * INDEX_ENTRY_BYTES)
    fuzz.fixed = True
    for i in range(4):
        fuzz_field(fuzz, 8 * i, 8)
    fuzz_field(fuzz, INDEX_SLOTS_USED, 4)
    fuzz_field(fuzz, INDEX_COUNT, 4)
    for i in range(min(slots, 8)):
        fuzz_field(fuzz, INDEX_HEADER_BYTES + 4 * i, 4)
    for i in range(min(4 * slots, 16)):
        fuzz_field(fuzz, INDEX_HEADER_BYTES + 4 * slots + 20 * i + ENTRY_PREVIOUS, 4)
        fuzz_field(fuzz, INDEX_HEADER_BYTES + 4 * slots + 20 * i, 4)
        fuzz_field(fuzz, INDEX_HEADER_BYTES + 4 * slots + 20 * i + ENTRY_SECONDS, 4)
    fuzz_mutate_some(fuzz, 6)
    return 0


cdef int64_t fuzz_index(Fuzz *fuzz) noexcept nogil:
    """Read the header and chains from any slot, and enter keys after the existing ones."""
    cdef MappedFile file
    cdef Index index
    cdef int64_t i, rc, hash, begin, end, most, found
    cdef int64_t taken = FUZZ_REFUSED
    memset(&file, 0, sizeof(MappedFile))
    memset(&index, 0, sizeof(Index))
    index.file = &file
    index.slot_num = (fuzz.length - INDEX_HEADER_BYTES) // (
        INDEX_SLOT_BYTES + 4 * INDEX_ENTRY_BYTES)
    index.entry_num = 4 * index.slot_num
    file.size = fuzz.length
    file.fd = fuzz.page
    atomic_set(&file.holds, 2)
    atomic_set(&index.holds, 2)
    atomic_set(&file.reserved, file.size)
    if fuzz_one_in(fuzz, 32):                # as a reader opens it
        if pwrite(fuzz.page, fuzz.data, <size_t>fuzz.length, 0) != fuzz.length:
            return fuzz_broke(fuzz, "a page in memory cannot be written")
    else:
        file.base = fuzz_place(fuzz, fuzz.data, fuzz.length)
    if index_load_header(&index) < 0:
        return fuzz_broke(fuzz, "the header cannot be read")
    if not 1 <= atomic_get(&index.count) <= index.entry_num:
        return fuzz_broke(fuzz, "a count that cannot be")
    i = 0
    while i < 3:
        i += 1
        hash = get_i32(fuzz.data + INDEX_HEADER_BYTES + INDEX_SLOT_BYTES * index.slot_num
                       + INDEX_ENTRY_BYTES * fuzz_below(fuzz, index.entry_num))
        hash = java_abs_hash(<int32_t>hash)
        begin = INT64_MIN if fuzz_one_in(fuzz, 2) else fuzz_value(fuzz)
        end = INT64_MAX if fuzz_one_in(fuzz, 2) else fuzz_value(fuzz)
        most = 1 + fuzz_below(fuzz, 64)
        fuzz.found.count = 0
        rc = index_collect(&index, <int32_t>hash, &fuzz.found)
        if rc != 0 and rc != E_CORRUPT:
            return fuzz_broke(fuzz, "a chain with another status")
        if fuzz.found.count > index.entry_num:
            return fuzz_broke(fuzz, "a chain longer than the file")
        fuzz.found.count = 0
        rc = index_select(&index, <int32_t>hash, most, begin, end, &fuzz.found)
        if rc != 0 and rc != E_CORRUPT:
            return fuzz_broke(fuzz, "a select with another status")
        if fuzz.found.count > min(most, index.entry_num):
            return fuzz_broke(fuzz, "more hits than entries")
        if fuzz.found.count > 0:
            taken = FUZZ_TAKEN
    if file.base == NULL or fuzz_one_in(fuzz, 2):
        return taken
    for i in range(3):
        found = 1000 + i
        rc = index_put(&index, <int32_t>hash, found, fuzz_value(fuzz))
        if rc == E_FULL:
            break
        if rc != 1:
            return fuzz_broke(fuzz, "a put with another status")
        fuzz.found.count = 0
        rc = index_select(&index, <int32_t>hash, 1, INT64_MIN, INT64_MAX, &fuzz.found)
        if rc != 0 or fuzz.found.count != 1 or fuzz.found.items[0] != found:
            return fuzz_broke(fuzz, "a key that was put is not found")
    return taken


cdef int64_t fuzz_queue_make(Fuzz *fuzz) noexcept nogil:
    cdef int64_t i
    fuzz.fixed = True
    for i in range(min(fuzz.length // UNIT_BYTES, 20)):
        fuzz_field(fuzz, UNIT_BYTES * i, 8)
        fuzz_field(fuzz, UNIT_BYTES * i + UNIT_SIZE, 4)
        fuzz_field(fuzz, UNIT_BYTES * i + UNIT_TAGS_CODE, 8)
    fuzz_mutate_some(fuzz, 6)
    return 0


cdef int64_t fuzz_queue(Fuzz *fuzz) noexcept nogil:
    """The end of a queue and searches in it, over arbitrary units in one to three files."""
    cdef MappedFile[3] files
    cdef Queue *queue
    cdef Unit unit
    cdef char *base
    cdef int64_t i, rc, low, stop
    cdef int64_t units = fuzz.length // UNIT_BYTES
    cdef int64_t count = 3 if units % 3 == 0 else 2 if units % 2 == 0 else 1
    cdef int64_t file_size = UNIT_BYTES * (units // count)
    cdef int64_t start = file_size * fuzz_below(fuzz, 3)
    if units == 0:
        return FUZZ_REFUSED
    base = fuzz_place(fuzz, fuzz.data, fuzz.length)
    queue = queue_new(NULL, 0, -1, file_size, READ_WRITE)
    if queue == NULL:
        return fuzz_broke(fuzz, "no memory")
    memset(files, 0, sizeof(files))
    for i in range(count):
        files[i].fd = -1
        files[i].start = start + i * file_size
        files[i].size = file_size
        files[i].base = base + i * file_size
        atomic_set(&files[i].holds, 2)       # ours, and the set's
        atomic_set(&files[i].reserved, file_size)
        rc = file_set_insert(&queue.files, files[i].start, file_size)
        if rc < 0:
            return fuzz_broke(fuzz, "no memory")
        queue.files.slots[rc].file = &files[i]
    rc = fuzz_queue_reads(fuzz, queue, start // UNIT_BYTES, units)
    if rc >= 0 and fuzz_one_in(fuzz, 4):     # write over an existing unit
        low = start // UNIT_BYTES + fuzz_below(fuzz, units)
        atomic_set(&queue.max_offset, start // UNIT_BYTES + units)
        stop = fuzz_value(fuzz)
        if queue_put_unit(queue, low, stop, 100, 5) < 0:
            rc = fuzz_broke(fuzz, "a unit cannot be put where one lies")
        elif queue_unit_at(queue, low, &unit) != 0:
            rc = fuzz_broke(fuzz, "a unit that was put cannot be read")
    queue_destroy(queue)
    for i in range(count):
        if atomic_get(&files[i].holds) != 1:
            rc = fuzz_broke(fuzz, "a file is held for ever")
    return rc


cdef int64_t fuzz_queue_reads(
    Fuzz *fuzz, Queue *queue, int64_t first, int64_t units,
) noexcept nogil:
    cdef Unit unit
    cdef int64_t rc, low, stop
    rc = queue_used_units(queue)
    if rc != 0 and not first <= rc <= first + units:
        return fuzz_broke(fuzz, "an end outside of the files")
    low = first + fuzz_below(fuzz, units)
    stop = low + fuzz_below(fuzz, first + units - low + 1)
    rc = queue_first_at_or_after(queue, fuzz_value(fuzz), low, stop)
    if not low <= rc <= stop:
        return fuzz_broke(fuzz, "a place outside of the range")
    rc = queue_skip_blanks(queue, low, stop, &unit)
    if not low <= rc <= stop:
        return fuzz_broke(fuzz, "a place outside of the range")
    if rc < stop and unit_is_blank(&unit):
        return fuzz_broke(fuzz, "a blank unit is not passed over")
    return FUZZ_TAKEN if rc < stop and unit.size > 0 and unit.physical_offset >= 0 else FUZZ_REFUSED


cdef int64_t fuzz_checkpoint_make(Fuzz *fuzz) noexcept nogil:
    cdef int64_t i
    fuzz.fixed = True
    for i in range(10):
        fuzz_field(fuzz, 8 + 8 * i, 8)
    fuzz_field(fuzz, 0, 4)
    fuzz_field(fuzz, 4, 4)
    fuzz_field(fuzz, WATERMARK_CRC, 4)
    fuzz_mutate_some(fuzz, 4)
    if not fuzz_one_in(fuzz, 4) and fuzz.length >= WATERMARK_BYTES:
        put_i32(fuzz.data + WATERMARK_CRC, <int32_t>crc32_update(0, fuzz.data, WATERMARK_CRC))
    return 0


cdef int64_t fuzz_checkpoint(Fuzz *fuzz) noexcept nogil:
    """The watermark: trusted only with its magic, version and checksum."""
    cdef Watermark mark
    cdef const char *data
    if fuzz.length < WATERMARK_BYTES:
        return FUZZ_REFUSED
    data = fuzz_place(fuzz, fuzz.data, WATERMARK_BYTES)
    watermark_read(data, &mark)
    if mark.valid and (
            get_i32(data) != WATERMARK_MAGIC
            or <uint32_t>get_i32(data + WATERMARK_CRC) != crc32_update(0, data, WATERMARK_CRC)):
        return fuzz_broke(fuzz, "a watermark without its checksum")
    if not mark.valid and (mark.clean or mark.dispatched != 0):
        return fuzz_broke(fuzz, "a watermark that is not valid and says something")
    return FUZZ_TAKEN if mark.valid else FUZZ_REFUSED


cdef int64_t fuzz_text_make(Fuzz *fuzz) noexcept nogil:
    fuzz_mutate_some(fuzz, 5)
    return 0


cdef int64_t fuzz_text(Fuzz *fuzz) noexcept nogil:
    """UTF-8 as Java reads it: the fast hash equals the hash character by character."""
    cdef const char *data = fuzz_place(fuzz, fuzz.data, fuzz.length)
    cdef uint32_t state = 7
    cdef uint32_t code = 0
    cdef int64_t at = 0
    cdef int64_t size, bad
    while at < fuzz.length:
        size = java_decode_utf8(<const unsigned char *>data + at, fuzz.length - at, &code)
        if size < 1 or size > 4:
            return fuzz_broke(fuzz, "a character of no bytes, or of five")
        at += size
        state = java_hash_code(state, code)
    if at != fuzz.length or <uint32_t>java_hash_utf8(data, fuzz.length, 7) != state:
        return fuzz_broke(fuzz, "two hashes of one text")
    bad = utf8_error(data, fuzz.length)
    if bad >= fuzz.length or bad < -1:
        return fuzz_broke(fuzz, "a place outside of the text")
    if bad > 0 and utf8_error(data, bad) >= 0:
        return fuzz_broke(fuzz, "a bad character before the first bad one")
    return FUZZ_TAKEN if bad < 0 else FUZZ_REFUSED


cdef int64_t fuzz_name(Fuzz *fuzz) noexcept nogil:
    """Names of files: 20 digits of an offset, 17 of a time."""
    cdef char *data
    cdef int64_t start
    fuzz.length = min(fuzz.length, 40)
    data = fuzz_take(fuzz, fuzz.length + 1)
    memcpy(data, fuzz.data, <size_t>fuzz.length)
    data[fuzz.length] = 0
    start = offset_name(data)
    if start < 0 and start != E_INCOMPATIBLE:
        return fuzz_broke(fuzz, "another status")
    return FUZZ_TAKEN if start >= 0 or index_name_good(data) else FUZZ_REFUSED
