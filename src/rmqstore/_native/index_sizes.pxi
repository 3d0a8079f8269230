# How many slots and entries the index files of a store have, where no configuration says so.
#
# A length alone does not tell it (40 + 4 s + 20 e), and any one file may be damaged: all of them
# are asked, and what the chains of most of them agree with is taken.
#
# Source: ours

cdef enum:
    DEFAULT_SLOTS = 5000000      # maxHashSlotNum, maxIndexNum
    DEFAULT_ENTRIES = 20000000
    SIZE_CHOICES = 64
    SIZE_SAMPLE = 64             # entries at either end of a file

cdef struct IndexSizes:
    int64_t slot_num
    int64_t entry_num
    int64_t files                # whose length it is
    int64_t sound                # of them, whose chains are as it says


cdef int64_t index_tell_slots(int64_t size) noexcept nogil:
    """Slots of a file of ``size`` bytes, RocketMQ's ratio of 4 taken, or E_INCOMPATIBLE."""
    cdef int64_t slots = (size - INDEX_HEADER_BYTES) // (INDEX_SLOT_BYTES + 4 * INDEX_ENTRY_BYTES)
    if slots < 1 or index_file_bytes(slots, 4 * slots) != size:
        return E_INCOMPATIBLE
    return slots


cdef bint index_chains_fit(int fd, int64_t slot_num, int64_t entry_num) noexcept nogil:
    """Whether most of the first and last entries lie in the chains that the slots begin."""
    cdef char header[INDEX_HEADER_BYTES]
    cdef int64_t count, number
    cdef int64_t asked = 0
    cdef int64_t good = 0
    if sys_read(fd, header, INDEX_HEADER_BYTES, 0) != INDEX_HEADER_BYTES:
        return False
    count = get_i32(header + INDEX_COUNT)
    if count < 2 or count > entry_num:       # lies, or the file has no key: all that fits
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
    """Whether an entry is older than the newest of its slot, or that itself."""
    cdef char entry[INDEX_ENTRY_BYTES]
    cdef char slot[INDEX_SLOT_BYTES]
    cdef int64_t key_hash, newest
    if sys_read(fd, entry, INDEX_ENTRY_BYTES, INDEX_HEADER_BYTES + slot_num * INDEX_SLOT_BYTES
                + number * INDEX_ENTRY_BYTES) != INDEX_ENTRY_BYTES:
        return False
    key_hash = get_i32(entry + ENTRY_KEY_HASH)
    if key_hash < 0 or get_i64(entry + ENTRY_PHYSICAL_OFFSET) < 0 \
            or get_i32(entry + ENTRY_PREVIOUS) < 0 or get_i32(entry + ENTRY_PREVIOUS) >= number:
        return False
    if sys_read(fd, slot, INDEX_SLOT_BYTES, INDEX_HEADER_BYTES
                + (key_hash % slot_num) * INDEX_SLOT_BYTES) != INDEX_SLOT_BYTES:
        return False
    newest = get_i32(slot)
    return number <= newest < entry_num


cdef int64_t index_find_slots(int fd, int64_t size) noexcept nogil:
    """Slots of a file whose ratio is not 4: the header's offsets are those of the entries.

    0 where none fits.
    """
    cdef char header[INDEX_HEADER_BYTES]
    cdef char *buffer
    cdef int64_t count, wanted, number, got, i, slots
    cdef int64_t at = INDEX_HEADER_BYTES
    if sys_read(fd, header, INDEX_HEADER_BYTES, 0) != INDEX_HEADER_BYTES:
        return 0
    count = get_i32(header + INDEX_COUNT)
    number = 1
    wanted = get_i64(header + INDEX_BEGIN_PHY_OFFSET)
    if wanted == 0 and count > 2:            # zeros are everywhere
        number = count - 1
        wanted = get_i64(header + INDEX_END_PHY_OFFSET)
    buffer = <char *>malloc(ENTRIES_READ * INDEX_ENTRY_BYTES)
    while wanted > 0 and count > 1 and buffer != NULL and at < size:
        got = sys_read(fd, buffer, ENTRIES_READ * INDEX_ENTRY_BYTES, at)
        i = 0
        while i + 8 <= got:
            if get_i64(buffer + i) == wanted:
                slots = (at + i - ENTRY_PHYSICAL_OFFSET - INDEX_HEADER_BYTES
                         - number * INDEX_ENTRY_BYTES) // INDEX_SLOT_BYTES
                if slots > 0 and index_chains_fit(fd, slots, max(count, 4 * slots)):
                    free(buffer)
                    return slots
            i += INDEX_SLOT_BYTES
        if got < 8:
            break
        at += got - 4 if got % INDEX_SLOT_BYTES == 0 else got
    free(buffer)
    return 0


cdef void index_vote(
    IndexSizes *choices, int64_t *count, int64_t slot_num, int64_t entry_num, bint sound,
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
    choices[i].sound += sound


cdef void index_ask_file(
    int fd, int64_t size, const IndexSizes *hint, IndexSizes *choices, int64_t *count,
) noexcept nogil:
    """Enter what one file says of the sizes; a shorter one may be one that was cut."""
    cdef int64_t slots = index_tell_slots(size)
    cdef bint sound = False
    if slots > 0:
        sound = index_chains_fit(fd, slots, 4 * slots)
        index_vote(choices, count, slots, 4 * slots, sound)
    if not sound and hint.slot_num > 0:
        sound = index_chains_fit(fd, hint.slot_num, hint.entry_num)
        if sound or size == index_file_bytes(hint.slot_num, hint.entry_num):
            index_vote(choices, count, hint.slot_num, hint.entry_num, sound)
    if sound:
        return
    slots = index_find_slots(fd, size)
    if slots == 0:
        return
    size -= index_file_bytes(slots, 0)
    if size >= 0 and size % INDEX_ENTRY_BYTES == 0 and size // INDEX_ENTRY_BYTES != 4 * slots:
        index_vote(choices, count, slots, size // INDEX_ENTRY_BYTES, True)
    else:
        index_vote(choices, count, slots, 4 * slots, True)


cdef int64_t index_choose_sizes(
    const IndexSizes *choices, int64_t count, int64_t *slot_num, int64_t *entry_num,
) noexcept nogil:
    """Take what most files with sound chains say, else the length of most; 0 without any."""
    cdef const IndexSizes *best = NULL
    cdef int64_t i
    for i in range(count):
        if best == NULL or choices[i].sound > best.sound \
                or (choices[i].sound == best.sound and choices[i].files > best.files):
            best = &choices[i]
    if best == NULL:
        return 0
    slot_num[0] = best.slot_num
    entry_num[0] = best.entry_num
    return 1
