# Opening for writing, first part: examine the log before anything is changed.
#
# The files are opened read-only and read through descriptors: nothing can be written by mistake,
# and no hole is touched for which a full disk has no block.
#
# Source: store/CommitLog.java recoverNormally, recoverAbnormally

cdef enum:
    LOST_LEAST = 16              # zeros that end a sector; fewer indicate no loss
    EXAMINE_CHUNK = 256 << 10       # bytes read at a time: they fit the processor's cache


# Trust in parts of the log.
cdef struct Window:
    int64_t start                # records are examined from here to ``stop``
    int64_t stop
    int64_t crc_from             # their bodies from here on
    int64_t durable              # below, all bytes were durable
    int64_t known_end            # a record that begins below existed: no torn tail


cdef int64_t log_examine(Store *store, const Window *window, Failure *failure) noexcept nogil:
    """Walk the log and note each damaged range; the offset at which its records end."""
    cdef int64_t wrote = atomic_get(&store.log.wrote)
    cdef int64_t rc
    file_set_reopen(&store.log, READ_ONLY)
    atomic_set(&store.log.wrote, file_set_stop(&store.log))      # log_record's limit
    rc = log_walk(store, window, failure)
    atomic_set(&store.log.wrote, wrote)
    if rc >= 0:
        store.recovery.examined_from = window.start
        wrote = rc
        rc = damages_classify(store, window, failure)
        if rc >= 0:
            rc = wrote
        else:
            fail(failure, rc, set_directory(&store.log, 0), "cannot be read", -1, 0, 0)
    file_set_reopen(&store.log, READ_WRITE if store.writable else READ_ONLY)
    return rc


cdef int64_t log_walk(Store *store, const Window *window, Failure *failure) noexcept nogil:
    """log_examine's walk: find ranges without a good record, up to the last nonzero byte."""
    cdef Cursor cursor
    cdef Record record
    cdef const char *data = NULL
    cdef int64_t rc, used
    cdef int64_t bad = -1                    # begin of the current damage
    cdef int64_t field = FIELD_NONE
    cdef int64_t last = file_set_stop(&store.log)
    cursor_init(&cursor, store, window.start, window.stop)
    cursor.chunk = EXAMINE_CHUNK
    while True:
        cursor.check_crc = store.settings.check_crc and cursor.at >= window.crc_from
        rc = cursor_next(&cursor, &record, &data)
        if rc > 0 and record.magic == MAGIC_MESSAGE_V2 and store.writable:
            bad = cursor.at - rc
            cursor_close(&cursor)
            return fail_of_five(store, bad, failure)
        elif rc > 0 and cursor.at - rc >= window.durable \
                and record_is_torn(data, &record, store.log.file_size):
            if bad < 0:
                bad = cursor.at - rc
                field = FIELD_TORN
            continue
        elif rc > 0:
            if bad >= 0:
                rc = damage_note(store, bad, record.physical_offset, 0, field)
                bad = -1
            if rc >= 0:
                store.recovery.records_checked += 1
                atomic_raise(&store.writer.last_store_timestamp, record.store_timestamp)
                continue
        elif rc == E_CORRUPT:
            used = log_used(store, cursor.at)
            rc = min(used, 0)
            if used == cursor.at:            # only zeros: the ordinary end
                break
            if used > 0:
                if bad < 0:
                    bad = cursor.at
                    field = cursor.field
                cursor.stop = min(window.stop, used)
                rc = cursor_resync(&cursor)
                cursor.stop = window.stop
                if rc > 0:
                    continue
        break
    cursor_close(&cursor)
    if rc < 0:
        return fail_in_file(failure, rc, &store.log, cursor.at, "cannot be read")
    if bad < 0:
        return cursor.at
    if window.stop < last:                   # a good record begins at the stop
        rc = damage_note(store, bad, window.stop, 0, field)
        return rc if rc < 0 else window.stop
    used = log_used(store, bad)
    rc = used if used < 0 else damage_note(store, bad, used, DAMAGE_TAIL, field)
    return rc if rc < 0 else bad


cdef int64_t fail_of_five(Store *store, int64_t at, Failure *failure) noexcept nogil:
    """Refuse a record that only RocketMQ 5 writes: nothing may be cut, whole or damaged."""
    cdef char path[FAILURE_PATH_BYTES]
    set_file_name(path, &store.log, set_place_of(&store.log, at), at - at % store.log.file_size)
    return fail(failure, E_VERSION, path,
                "a record of RocketMQ 5's second version: open with mode 'r'", at, 0, 0)


cdef int64_t damage_note(
    Store *store, int64_t start, int64_t stop, int64_t kind, int64_t field,
) noexcept nogil:
    """Enter a damaged range, split by file; a missing file has no bytes."""
    cdef Recovery *found = &store.recovery
    cdef Damage *grown
    cdef Damage *damage
    while start < stop:
        if not log_has_file(store, start):
            start = file_set_next_start(&store.log, start)
            if start < 0:
                break
            continue
        grown = <Damage *>array_with_room(
            found.damages, &found.damage_room, found.damage_count, sizeof(Damage))
        if grown == NULL:
            return E_NO_MEMORY
        found.damages = grown
        damage = &found.damages[found.damage_count]
        memset(damage, 0, sizeof(Damage))
        damage.start = start
        damage.stop = min(stop, start - start % store.log.file_size + store.log.file_size)
        damage.kind = kind
        damage.tail = kind == DAMAGE_TAIL
        damage.field = field
        damage.records = -1
        damage.checked = found.records_checked
        found.damage_count += 1
        start = damage.stop
    return 0


cdef bint log_has_file(Store *store, int64_t offset) noexcept nogil:
    """Whether a log file has ``offset``; only read-only mode continues without one."""
    cdef int64_t rc
    lock_take(&store.log.lock)
    rc = file_set_find(&store.log, offset)
    lock_give(&store.log.lock)
    return rc >= 0


cdef int64_t damages_classify(
    Store *store, const Window *window, Failure *failure,
) noexcept nogil:
    """Find each range's number of records, and whether a power cut may have left it."""
    cdef Damage *damage
    cdef int64_t i, rc
    for i in range(store.recovery.damage_count):
        damage = &store.recovery.damages[i]
        if damage.repaired or damage.used:
            continue
        rc = damage_used(store, damage)
        if rc < 0:
            return rc
        rc = damage_is_lost(store, damage, failure)
        if rc < 0:
            return rc
        if damage.kind == DAMAGE_TAIL:
            if damage.start < window.known_end:
                damage.kind = DAMAGE_BYTES
        else:
            damage.kind = DAMAGE_LOST if rc and damage.start >= window.durable else DAMAGE_BYTES
    return 0


cdef int64_t damage_used(Store *store, Damage *damage) noexcept nogil:
    """Part of a range worth saving: up to a file's end, without trailing zeros."""
    cdef MappedFile *file = NULL
    cdef int64_t rc
    damage.used = damage.stop
    if damage.stop % store.log.file_size:
        return 0
    rc = file_set_hold(&store.log, damage.start, &file)
    if rc < 0:
        return rc
    rc = mapped_file_last_used(file, damage.start - file.start)
    if rc >= 0:
        damage.used = max(damage.start, file.start + rc)
    mapped_file_release(file)
    return min(rc, 0)


cdef int64_t log_peek(Store *store, int64_t at, int64_t length, char *into) noexcept nogil:
    """Read bytes of one log file, zeros where it is too short; 0 or a status."""
    cdef Slice slice
    cdef int64_t rc = file_set_read(&store.log, at, length, &slice)
    memset(into, 0, <size_t>length)
    if rc > 0:
        memcpy(into, slice.data, <size_t>rc)
    slice_release(&slice)
    return min(rc, 0)


cdef int64_t sector_used(Store *store, int64_t at) noexcept nogil:
    """Log offset from which the rest of the sector of ``at`` is zero, or a status.

    The last bytes written to a sector may not have reached the disk.
    """
    cdef char sector[SECTOR_BYTES]
    cdef int64_t place = at % store.log.file_size
    cdef int64_t start = at - place % SECTOR_BYTES
    cdef int64_t rc = log_peek(
        store, start, min(SECTOR_BYTES, store.log.file_size - place + place % SECTOR_BYTES), sector)
    return rc if rc < 0 else start + 1 + last_nonzero(
        sector, min(SECTOR_BYTES, store.log.file_size - place + place % SECTOR_BYTES))


cdef int64_t damage_is_lost(Store *store, Damage *damage, Failure *failure) noexcept nogil:
    """1 if a power cut can leave such a range, 0 if not; sets ``records``.

    Then every recognizable record has magic code, position, and zero sectors.  A record without a
    head ends at the next one that names its own position.
    """
    cdef char head[RECORD_PHYSICAL_OFFSET + 8]
    cdef int64_t at = damage.start
    cdef int64_t rc = 1
    cdef int64_t size
    cdef int64_t records = 0
    cdef bint unknown = False
    while at < damage.stop and rc > 0:
        memset(head, 0, sizeof(head))
        rc = log_peek(store, at, min(damage.stop - at, <int64_t>sizeof(head)), head)
        if rc < 0:
            return rc
        size = get_i32(head + RECORD_SIZE)
        rc = bytes_are_lost(store, at, RECORD_MAGIC + 4)
        if rc < 0:
            return rc
        if get_i32(head + RECORD_MAGIC) == MAGIC_BLANK and damage.stop == at + size \
                and damage.stop % store.log.file_size == 0:
            rc = 1
            break
        if rc > 0:
            unknown = True
            at = head_find(store, at + 1, damage.stop)
            if at < 0:
                return at
            continue
        records += 1
        if store.writable and get_i32(head + RECORD_MAGIC) == MAGIC_MESSAGE_V2 \
                and get_i64(head + RECORD_PHYSICAL_OFFSET) == at:
            return fail_of_five(store, at, failure)
        if not magic_of_message(get_i32(head + RECORD_MAGIC)) or size < RECORD_FIXED_BYTES \
                or size > damage.stop - at:
            break
        rc = 1
        if get_i64(head + RECORD_PHYSICAL_OFFSET) != at:
            rc = bytes_are_lost(store, at + RECORD_PHYSICAL_OFFSET, 8)
        if rc > 0:
            rc = record_has_lost(store, at, size)
        at += size
    if rc < 0:
        return rc
    damage.records = -1 if unknown else records
    return rc > 0


cdef int64_t bytes_are_lost(Store *store, int64_t start, int64_t size) noexcept nogil:
    """1 if any of a few bytes is in the part of its sector that is zero to the end, else 0."""
    cdef int64_t rc = sector_used(store, start)
    if 0 <= rc < start + size and rc < start - (start % store.log.file_size) % SECTOR_BYTES \
            + SECTOR_BYTES:
        return 1
    if rc >= 0:
        rc = sector_used(store, start + size - 1)
    return rc if rc < 0 else rc < start + size


cdef int64_t record_has_lost(Store *store, int64_t start, int64_t size) noexcept nogil:
    """Whether a sector of a record is zero, or the end of one it reaches into."""
    cdef int64_t at = start
    cdef int64_t stop = start + size
    cdef int64_t rc, end, place
    while at < stop:
        place = at % store.log.file_size
        end = at - place % SECTOR_BYTES + SECTOR_BYTES
        rc = sector_used(store, at)
        if rc < 0:
            return rc
        if rc <= at and (place % SECTOR_BYTES == 0 or at == start):
            return 1
        if min(end, stop) - max(rc, at) >= LOST_LEAST:
            return 1
        at = end
    return 0


cdef int64_t head_find(Store *store, int64_t at, int64_t stop) noexcept nogil:
    """Next position before ``stop`` with a record head that names it; else ``stop``."""
    cdef char *buffer = <char *>malloc(COPY_BYTES)
    cdef int64_t length, i
    cdef int64_t rc = 0 if buffer != NULL else E_NO_MEMORY
    while rc >= 0 and at + RECORD_PHYSICAL_OFFSET + 8 <= stop:
        length = min(stop - at, COPY_BYTES)
        rc = log_peek(store, at, length, buffer)
        if rc < 0:
            break
        for i in range(length - RECORD_PHYSICAL_OFFSET - 7):
            if buffer[i + RECORD_MAGIC] == <char>0xDA \
                    and magic_of_message(get_i32(buffer + i + RECORD_MAGIC)) \
                    and get_i64(buffer + i + RECORD_PHYSICAL_OFFSET) == at + i:
                free(buffer)
                return at + i
        at += length - RECORD_PHYSICAL_OFFSET - 7
    free(buffer)
    return rc if rc < 0 else stop


cdef int64_t damages_decide(Store *store, Failure *failure) noexcept nogil:
    """Refuse damage that may not be repaired: nothing has been changed yet."""
    cdef char path[FAILURE_PATH_BYTES]
    cdef char what[FAILURE_WHAT_BYTES]
    cdef Damage *damage
    cdef int64_t i, behind
    for i in range(store.recovery.damage_count):
        damage = &store.recovery.damages[i]
        if damage.repaired or damage.kind != DAMAGE_BYTES \
                or (store.recovery.fill and (damage.tail or damage_can_be_filled(store, damage))):
            continue
        behind = store.recovery.records_checked - damage.checked
        snprintf(what, FAILURE_WHAT_BYTES,
                 "%s; %lld bytes are damaged, %lld good records lie behind them: %s",
                 record_field_name(damage.field), <long long>(damage.stop - damage.start),
                 <long long>behind,
                 <const char *>b"no filler fits there; mode 'r' shows all others"
                 if store.recovery.fill else
                 <const char *>b"on_corruption='fill' loses no other record, mode 'r' shows them")
        set_file_name(path, &store.log, set_place_of(&store.log, damage.start),
                      damage.start - damage.start % store.log.file_size)
        return fail(failure, E_CORRUPT, path, what, damage.start, 0, 0)
    return 0


cdef bint damage_can_be_filled(Store *store, const Damage *damage) noexcept nogil:
    """Whether a range has room for a filler record, or for the 8 bytes that end a file."""
    cdef int64_t least = RECORD_FIXED_BYTES if damage.stop % store.log.file_size \
        else RECORD_BLANK_BYTES
    return damage.stop - damage.start >= least


cdef int64_t queues_end(Store *store, int64_t limit) noexcept nogil:
    """End of the last record below ``limit`` with a unit; after a clean exit, the log's end."""
    cdef Queue *queue = first_queue(&store.table)
    cdef Unit unit
    cdef int64_t used
    cdef int64_t end = 0
    memset(&unit, 0, sizeof(Unit))
    while queue != NULL:
        file_set_reopen(&queue.files, READ_ONLY)
        used = queue_used_units(queue)
        if used > 0 and queue_unit_at(queue, used - 1, &unit) == 0 \
                and not unit_is_blank(&unit) and unit.physical_offset >= 0 \
                and unit.physical_offset < limit:
            end = max(end, unit.physical_offset + max(unit.size, 0))
        file_set_reopen(&queue.files, READ_WRITE if store.writable else READ_ONLY)
        queue = next_queue(queue)
    return end
