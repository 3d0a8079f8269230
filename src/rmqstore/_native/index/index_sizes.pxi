# Inference of an index file's numbers of slots and entries, if they are not configured.
#
# A length does not determine them (40 + 4 s + 20 e), and files may be damaged: each file votes, and
# the numbers that fit the chains of most files win.

cdef enum:
    SIZE_CHOICES = 64
    SEARCH_BYTES = 16384         # read at a time to find the slots
    SIZE_SAMPLE = 64             # entries sampled at either end of a file
    SIZES_SURE = 8               # files that agree, before others of their length are not sampled

cdef struct IndexSizes:
    int64_t slot_num
    int64_t entry_num
    int64_t files                # with this length
    int64_t sound                # files among them whose chains fit these numbers


cdef int64_t index_infer_slots(int64_t size) noexcept nogil:
    """Slots of a file of ``size`` bytes at RocketMQ's 4 entries a slot, or E_INCOMPATIBLE."""
    cdef int64_t slots = (size - INDEX_HEADER_BYTES) // (INDEX_SLOT_BYTES + 4 * INDEX_ENTRY_BYTES)
    if slots < 1 or index_file_bytes(slots, 4 * slots) != size:
        return E_INCOMPATIBLE
    return slots


cdef bint index_chains_fit(int fd, int64_t slot_num, int64_t entry_num) noexcept nogil:
    """Whether most of the first and last entries are in the chains of their slots."""
    cdef char header[INDEX_HEADER_BYTES]
    cdef int64_t count, number
    cdef int64_t asked = 0
    cdef int64_t good = 0
    if sys_read(fd, header, INDEX_HEADER_BYTES, 0) != INDEX_HEADER_BYTES:
        return False
    count = get_i32(header + INDEX_COUNT)
    if count < 2 or count > entry_num:       # a wrong count, or an empty file, fits anything
        count = entry_num
    number = 1
    while number < count:
        if number == SIZE_SAMPLE and number < count - SIZE_SAMPLE:
            number = count - SIZE_SAMPLE
        asked += 1
        good += index_entry_fits(fd, slot_num, entry_num, number)
        number += 1
    return good > asked // 2


cdef bint index_entry_fits(
    int fd, int64_t slot_num, int64_t entry_num, int64_t number,
) noexcept nogil:
    """Whether an entry is its slot's newest, or older than it and in the same slot."""
    cdef char entry[INDEX_ENTRY_BYTES]
    cdef char slot[INDEX_SLOT_BYTES]
    cdef char hash[4]
    cdef int64_t key_hash, newest
    cdef int64_t entries = INDEX_HEADER_BYTES + slot_num * INDEX_SLOT_BYTES
    if sys_read(fd, entry, INDEX_ENTRY_BYTES, entries + number * INDEX_ENTRY_BYTES) \
            != INDEX_ENTRY_BYTES:
        return False
    key_hash = get_i32(entry + ENTRY_KEY_HASH)
    if key_hash < 0 or get_i64(entry + ENTRY_PHYSICAL_OFFSET) < 0 \
            or get_i32(entry + ENTRY_PREVIOUS) < 0 or get_i32(entry + ENTRY_PREVIOUS) >= number:
        return False
    if sys_read(fd, slot, INDEX_SLOT_BYTES, INDEX_HEADER_BYTES
                + (key_hash % slot_num) * INDEX_SLOT_BYTES) != INDEX_SLOT_BYTES:
        return False
    newest = get_i32(slot)
    if not number < newest < entry_num:
        return newest == number
    return sys_read(fd, hash, 4, entries + newest * INDEX_ENTRY_BYTES + ENTRY_KEY_HASH) == 4 \
        and get_i32(hash) % slot_num == key_hash % slot_num


cdef int64_t index_find_slots(int fd, int64_t size) noexcept nogil:
    """Slots of a file without 4 entries a slot, by an entry with the header's offset; 0: none."""
    cdef char header[INDEX_HEADER_BYTES]
    cdef char following[8]
    cdef char buffer[SEARCH_BYTES]
    cdef int64_t count, wanted, number, got, i, slots
    cdef int64_t at = INDEX_HEADER_BYTES
    if sys_read(fd, header, INDEX_HEADER_BYTES, 0) != INDEX_HEADER_BYTES:
        return 0
    count = get_i32(header + INDEX_COUNT)
    number = 1
    wanted = get_i64(header + INDEX_BEGIN_PHY_OFFSET)
    if wanted == 0 and count > 2:            # would match zeros anywhere
        number = count - 1
        wanted = get_i64(header + INDEX_END_PHY_OFFSET)
    while wanted > 0 and count > 1 and at < size:
        got = sys_read(fd, buffer, SEARCH_BYTES, at)
        i = 0
        while i + 8 <= got:
            # A record has several entries: the file's last one is the last of its own.
            if get_i64(buffer + i) == wanted and (number == 1 or sys_read(
                    fd, following, 8, at + i + INDEX_ENTRY_BYTES) < 8
                    or get_i64(following) != wanted):
                slots = (at + i - ENTRY_PHYSICAL_OFFSET - INDEX_HEADER_BYTES
                         - number * INDEX_ENTRY_BYTES) // INDEX_SLOT_BYTES
                if slots > 0 and index_chains_fit(fd, slots, max(count, 4 * slots)):
                    return slots
            i += INDEX_SLOT_BYTES
        if got < 8:
            break
        at += got - 4 if got % INDEX_SLOT_BYTES == 0 else got
    return 0


# Evidence for a choice of sizes.
cdef enum:
    SIZES_GUESSED
    SIZES_SOUND                  # its file's chains fit


cdef void index_vote(
    IndexSizes *choices, int64_t *count, int64_t slot_num, int64_t entry_num, int sizes,
) noexcept nogil:
    cdef int64_t i = 0
    if slot_num < 1 or entry_num < 2:
        return
    while i < count[0] and (choices[i].slot_num != slot_num or choices[i].entry_num != entry_num):
        i += 1
    if i == SIZE_CHOICES:
        return
    if i == count[0]:
        memset(&choices[i], 0, sizeof(IndexSizes))
        choices[i].slot_num = slot_num
        choices[i].entry_num = entry_num
        count[0] += 1
    choices[i].files += 1
    choices[i].sound += sizes == SIZES_SOUND


cdef bint index_sizes_are_sure(
    const IndexSizes *choices, int64_t count, int64_t size,
) noexcept nogil:
    """Whether several files, and no other one, have shown the numbers of a file this long."""
    return count == 1 and choices.sound >= SIZES_SURE \
        and size == index_file_bytes(choices.slot_num, choices.entry_num)


cdef void index_ask_file(
    int fd, int64_t size, const IndexSizes *hint, IndexSizes *choices, int64_t *count,
) noexcept nogil:
    """Count the vote of one file; a shorter one may have been truncated."""
    cdef int64_t slots = index_infer_slots(size)
    cdef bint sound = False
    if slots > 0:
        sound = index_chains_fit(fd, slots, 4 * slots)
        index_vote(choices, count, slots, 4 * slots, SIZES_SOUND if sound else SIZES_GUESSED)
    if not sound and hint.slot_num > 0:
        sound = index_chains_fit(fd, hint.slot_num, hint.entry_num)
        if sound or size == index_file_bytes(hint.slot_num, hint.entry_num):
            index_vote(choices, count, hint.slot_num, hint.entry_num,
                       SIZES_SOUND if sound else SIZES_GUESSED)
    if sound:
        return
    slots = index_find_slots(fd, size)
    if slots == 0:
        return
    size -= index_file_bytes(slots, 0)
    if size >= 0 and size % INDEX_ENTRY_BYTES == 0 and size // INDEX_ENTRY_BYTES != 4 * slots:
        index_vote(choices, count, slots, size // INDEX_ENTRY_BYTES, SIZES_SOUND)
    else:
        index_vote(choices, count, slots, 4 * slots, SIZES_SOUND)


cdef bint index_vote_length(
    int fd, int64_t size, const IndexSizes *configured, IndexSizes *choices, int64_t *count,
) noexcept nogil:
    """Count the vote of a whole file whose length is not the configured one.

    It has the configured slots, which its chains fit, or no keys.  False for any other file.
    """
    cdef char header[INDEX_HEADER_BYTES]
    cdef int64_t keys, likely
    cdef int64_t slots = configured.slot_num
    cdef int64_t rest = size - index_file_bytes(slots, 0)
    if size == index_file_bytes(slots, configured.entry_num) \
            or sys_read(fd, header, INDEX_HEADER_BYTES, 0) != INDEX_HEADER_BYTES:
        return False
    keys = get_i32(header + INDEX_COUNT)
    likely = index_infer_slots(size)
    if keys <= 1 and likely > 0:
        slots = likely
        rest = 4 * slots * INDEX_ENTRY_BYTES
    elif likely > 0 and likely != slots and index_chains_fit(fd, likely, 4 * likely):
        return False                         # a few keys may fit both by chance
    elif rest <= 0 or rest % INDEX_ENTRY_BYTES or keys > rest // INDEX_ENTRY_BYTES or (
            keys > 1 and not index_chains_fit(fd, slots, rest // INDEX_ENTRY_BYTES)):
        return False
    index_vote(choices, count, slots, rest // INDEX_ENTRY_BYTES, SIZES_SOUND)
    return True


cdef const IndexSizes *index_best_sizes(const IndexSizes *choices, int64_t count) noexcept nogil:
    """Sizes of most files with sound chains, else of the most common length; NULL: none."""
    cdef const IndexSizes *best = NULL
    cdef int64_t i
    for i in range(count):
        if best == NULL or choices[i].sound > best.sound \
                or (choices[i].sound == best.sound and choices[i].files > best.files):
            best = &choices[i]
    return best
