# Units of a queue: 20 bytes each, pointing into the commit log.  Written through the mapping by the
# dispatch thread alone, read by any thread.
#
# Source: store/ConsumeQueue.java

cdef inline void unit_write(
    char *at, int64_t physical_offset, int32_t size, int64_t code,
) noexcept nogil:
    """Write a unit, its size last: to 4.9.3 a unit with a size is complete.

    A process killed before that leaves a unit without a size, which is rewritten.
    """
    put_i64(at + UNIT_PHYSICAL_OFFSET, physical_offset)
    put_i64(at + UNIT_TAGS_CODE, code)
    put_i32_release(at + UNIT_SIZE, size)


cdef inline void unit_read(const char *at, Unit *unit) noexcept nogil:
    """Read a unit, its size first, as it is written last."""
    unit.size = get_i32_acquire(at + UNIT_SIZE)
    unit.physical_offset = get_i64(at + UNIT_PHYSICAL_OFFSET)
    unit.tags_code = get_i64(at + UNIT_TAGS_CODE)


cdef inline bint unit_is_blank(const Unit *unit) noexcept nogil:
    """A unit for a queue offset that has no record."""
    return unit.size == UNIT_BLANK_SIZE and unit.physical_offset == 0


cdef int64_t queue_make_directories(Queue *queue) noexcept nogil:
    """Create consumequeue/<topic>/<queue id>, each level unless it exists."""
    cdef char path[FAILURE_PATH_BYTES]
    cdef int64_t rc
    if queue.topic == NULL:
        return 0
    snprintf(path, FAILURE_PATH_BYTES, "consumequeue/%s", <char *>queue.topic.name)
    rc = sys_make_directory(queue.files.root, path)
    if rc >= 0:
        rc = sys_make_directory(queue.files.root, queue.files.directory)
    atomic_set(&queue.names_dirty, 1)
    return rc


cdef int64_t sync_directory(int root, const char *path) noexcept nogil:
    cdef int64_t rc
    cdef int64_t fd = sys_open_directory(root, path)
    if fd < 0:
        return fd
    rc = sys_sync(<int>fd)
    close(<int>fd)
    return rc


cdef int64_t queue_sync_names(Queue *queue) noexcept nogil:
    """Make the queue's directories durable, from the inside out."""
    cdef char path[FAILURE_PATH_BYTES]
    cdef int64_t rc
    if queue.topic == NULL or not atomic_get(&queue.names_dirty):
        return 0
    atomic_set(&queue.names_dirty, 0)
    rc = sync_directory(queue.files.root, queue.files.directory)
    if rc == 0:
        snprintf(path, FAILURE_PATH_BYTES, "consumequeue/%s", <char *>queue.topic.name)
        rc = sync_directory(queue.files.root, path)
    if rc == 0:
        rc = sync_directory(queue.files.root, "consumequeue")
    if rc < 0:
        atomic_set(&queue.names_dirty, 1)
    return rc


cdef int64_t queue_use_file(Queue *queue, int64_t start) noexcept nogil:
    """Make the file that begins at byte ``start`` the current one; create it if missing."""
    cdef MappedFile *file = NULL
    cdef int64_t zeroed = INT64_MOST
    cdef int64_t rc = file_set_hold(&queue.files, start, &file)
    if rc == E_NOT_FOUND:
        zeroed = 0
        rc = 0
        if queue.files.count == 0:
            rc = queue_make_directories(queue)
        if rc >= 0:
            rc = file_set_make(&queue.files, start, &file)
        if rc == 0:
            rc = file_set_adopt_held(&queue.files, file)
    if rc < 0:
        return rc
    mapped_file_release(queue.current)
    queue.current = file
    queue.zeroed = zeroed
    return 0


cdef void queue_zero_ahead(Queue *queue, int64_t position) noexcept nogil:
    """Write zeros from ``zeroed`` on, before a unit at ``position``; stops for a file with gaps."""
    cdef char path[FAILURE_PATH_BYTES]
    cdef int64_t start = queue.zeroed
    cdef int fd = -1
    queue.zeroed = INT64_MOST
    if position > start:
        return
    file_name(path, queue.files.directory, queue.current.start)
    fd = open_to_zero(queue.current, queue.files.root, path)
    if fd >= 0:
        queue.zeroed = zero_run_stop(queue.current, start)
        zero_range(queue.current, fd, start, queue.zeroed)
        close(fd)


cdef int64_t queue_reserve(Queue *queue, int64_t stop) noexcept nogil:
    """Allocate the current file's blocks below ``stop`` and a window more."""
    cdef char path[FAILURE_PATH_BYTES]
    cdef stat_t status
    cdef int64_t fd, rc
    file_name(path, queue.files.directory, queue.current.start)
    fd = sys_open_file(queue.files.root, path, O_RDWR, &status)
    if fd < 0:
        return fd
    rc = mapped_file_reserve_ahead(queue.current, <int>fd, stop, QUEUE_WINDOW)
    close(<int>fd)
    return rc


cdef inline int64_t queue_unit_address(
    Queue *queue, int64_t queue_offset, char **at,
) noexcept nogil:
    """Address of unit ``queue_offset``; its file is created and its blocks allocated."""
    cdef int64_t byte = queue_offset * UNIT_BYTES
    cdef int64_t position
    cdef int64_t rc
    if queue.current == NULL or byte < queue.current.start \
            or byte >= queue.current.start + queue.files.file_size:
        rc = queue_use_file(queue, byte - byte % queue.files.file_size)
        if rc < 0:
            return rc
    position = byte - queue.current.start
    if position + UNIT_BYTES > atomic_peek(&queue.current.reserved):
        rc = queue_reserve(queue, position + UNIT_BYTES)
        if rc < 0:
            return rc
    if unlikely(position + UNIT_BYTES > queue.zeroed):
        queue_zero_ahead(queue, position)
    at[0] = queue.current.base + position
    return 0


cdef int64_t queue_set_unit(
    Queue *queue, int64_t queue_offset, int64_t physical_offset, int32_t size, int64_t code,
) noexcept nogil:
    """Write one unit without publishing it."""
    cdef char *at = NULL
    cdef int64_t rc = queue_unit_address(queue, queue_offset, &at)
    if rc == 0:
        unit_write(at, physical_offset, size, code)
        rc = mapped_file_lost(queue.current, at - queue.current.base,
                              at - queue.current.base + UNIT_BYTES)
    return rc


cdef inline void count_unit(Queue *queue, int64_t size) noexcept nogil:
    """Count an appended message; the only writer of these fields."""
    atomic_set(&queue.put_units, atomic_peek(&queue.put_units) + 1)
    atomic_set(&queue.put_bytes, atomic_peek(&queue.put_bytes) + size)


cdef int64_t queue_put_unit(
    Queue *queue, int64_t queue_offset, int64_t physical_offset, int32_t size, int64_t code,
) noexcept nogil:
    """Write and publish the unit of ``queue_offset``: 1, 0 if it was there already, or a status.

    Blank units fill a gap before it, or before a queue that does not begin at 0.
    """
    cdef int64_t next_offset = atomic_peek(&queue.max_offset)
    cdef int64_t at, rc
    cdef Unit unit
    if queue_offset < next_offset:
        rc = queue_unit_at(queue, queue_offset, &unit)
        if rc == 0 and unit.physical_offset == physical_offset and unit.size == size and (
                unit.tags_code == code or unit_code_is_given(queue, &unit)):
            return 0
        rc = queue_set_unit(queue, queue_offset, physical_offset, size, code)
        if rc == 0:
            atomic_set(&queue.files.flushed,
                       min(atomic_get(&queue.files.flushed), queue_offset * UNIT_BYTES))
        return rc if rc < 0 else 1
    if queue_offset > next_offset:
        at = next_offset
        if queue.files.count == 0:           # only part of its first file
            at = queue_offset - queue_offset % (queue.files.file_size // UNIT_BYTES)
            atomic_set(&queue.min_offset, queue_offset)
            atomic_set(&queue.files.flushed, at * UNIT_BYTES)
        while at < queue_offset:
            rc = queue_set_unit(queue, at, 0, UNIT_BLANK_SIZE, 0)
            if rc < 0:
                return rc
            at += 1
    rc = queue_set_unit(queue, queue_offset, physical_offset, size, code)
    if rc < 0:
        return rc
    atomic_set(&queue.last_end, physical_offset + size)
    count_unit(queue, size)
    atomic_set(&queue.files.wrote, (queue_offset + 1) * UNIT_BYTES)
    atomic_set(&queue.max_offset, queue_offset + 1)
    return 1


cdef inline bint queue_append_unit(
    Queue *queue, int64_t queue_offset, int64_t physical_offset, int32_t size, int64_t code,
) noexcept nogil:
    """As queue_put_unit, for a unit at the queue's end that needs nothing else; else False."""
    cdef MappedFile *file = queue.current
    cdef int64_t position
    if unlikely(queue_offset == 0 or queue_offset != atomic_peek(&queue.max_offset)
                or file == NULL):
        return False
    position = queue_offset * UNIT_BYTES - file.start
    if unlikely(position < 0 or position + UNIT_BYTES > min(
            min(queue.files.file_size, queue.zeroed), atomic_peek(&file.reserved))):
        return False
    unit_write(file.base + position, physical_offset, size, code)
    if unlikely(mapped_file_lost(file, position, position + UNIT_BYTES) != 0):
        return False
    atomic_set(&queue.last_end, physical_offset + size)
    count_unit(queue, size)
    atomic_set(&queue.files.wrote, (queue_offset + 1) * UNIT_BYTES)
    atomic_set(&queue.max_offset, queue_offset + 1)
    return True


cdef bint unit_code_is_given(const Queue *queue, const Unit *unit) noexcept nogil:
    """Whether the tags code is not the record's: a delivery time, or an ext address."""
    return (queue.topic != NULL and queue.topic.schedule) or unit.tags_code <= EXT_ADDRESS


cdef int64_t queue_units(
    Queue *queue, int64_t queue_offset, int64_t count, Slice *slice,
) noexcept nogil:
    """Up to ``count`` units of one file; their number.  May include unpublished units."""
    cdef Derived *derived = load_derived(&queue.derived)
    memset(slice, 0, sizeof(Slice))
    if derived != NULL and queue_offset >= derived.start:
        count = min(count, derived.start + derived.count - queue_offset)
        if count <= 0:
            return 0
        slice.data = derived.units + (queue_offset - derived.start) * UNIT_BYTES
        slice.length = count * UNIT_BYTES
        return count
    if derived != NULL:                      # the files count only up to the derived units
        count = min(count, derived.start - queue_offset)
    return queue_file_units(queue, queue_offset, count, slice)


cdef int64_t queue_file_units(
    Queue *queue, int64_t queue_offset, int64_t count, Slice *slice,
) noexcept nogil:
    """As queue_units, from the files alone."""
    cdef int64_t rc
    rc = file_set_read(&queue.files, queue_offset * UNIT_BYTES, count * UNIT_BYTES, slice)
    return rc if rc < 0 else rc // UNIT_BYTES


cdef int64_t queue_file_unit(Queue *queue, int64_t queue_offset, Unit *unit) noexcept nogil:
    """As queue_unit_at, from the files alone."""
    cdef MappedFile *near = NULL
    cdef int64_t rc = queue_file_unit_near(queue, &near, queue_offset, unit)
    mapped_file_release(near)
    return rc


cdef int64_t queue_file_unit_near(
    Queue *queue, MappedFile **near, int64_t queue_offset, Unit *unit,
) noexcept nogil:
    """As queue_file_unit; ``near`` as for file_set_read_near."""
    cdef char bytes[UNIT_BYTES]
    cdef int64_t rc = file_set_peek_near(
        &queue.files, near, queue_offset * UNIT_BYTES, UNIT_BYTES, bytes)
    if rc == UNIT_BYTES:
        unit_read(bytes, unit)
        return 0
    return rc if rc < 0 else E_NOT_FOUND


cdef int64_t queue_unit_at(Queue *queue, int64_t queue_offset, Unit *unit) noexcept nogil:
    """Read one unit; 0, or E_NOT_FOUND, E_REMOVED, -errno."""
    cdef MappedFile *near = NULL
    cdef int64_t rc = queue_unit_near(queue, &near, queue_offset, unit)
    mapped_file_release(near)
    return rc


cdef int64_t queue_unit_near(
    Queue *queue, MappedFile **near, int64_t queue_offset, Unit *unit,
) noexcept nogil:
    """As queue_unit_at; ``near`` as for file_set_read_near."""
    cdef const Derived *derived = load_derived(&queue.derived)
    if derived == NULL or queue_offset < derived.start:
        return queue_file_unit_near(queue, near, queue_offset, unit)
    if queue_offset >= derived.start + derived.count:
        return E_NOT_FOUND
    unit_read(derived.units + (queue_offset - derived.start) * UNIT_BYTES, unit)
    return 0


cdef int64_t queue_first_at_or_after(
    Queue *queue, int64_t physical_offset, int64_t low, int64_t stop,
) noexcept nogil:
    """First queue offset in [low, stop) whose record begins at or after ``physical_offset``.

    ``stop`` without one.  Blank and empty units count as the next unit, so that a read meets empty
    ones; a damaged, negative physical offset does not end the search below it.
    """
    cdef int64_t high = stop
    cdef int64_t middle, probe
    cdef Unit unit
    while low < high:
        middle = (low + high) // 2
        probe = queue_skip_blanks(queue, middle, stop, &unit)
        while 0 <= probe < stop and unit.size <= 0:
            probe = queue_skip_blanks(queue, probe + 1, stop, &unit)
        if probe < 0:
            return probe
        if probe == stop or not 0 <= unit.physical_offset < physical_offset:
            high = middle
        else:
            low = probe + 1
    return queue_skip_blanks(queue, low, stop, &unit)


cdef int64_t queue_skip_blanks(
    Queue *queue, int64_t queue_offset, int64_t stop, Unit *unit,
) noexcept nogil:
    """First queue offset in [queue_offset, stop) with a unit that is not blank; or ``stop``."""
    cdef int64_t rc
    memset(unit, 0, sizeof(Unit))
    while queue_offset < stop:
        rc = queue_unit_at(queue, queue_offset, unit)
        if rc == E_NOT_FOUND or rc == E_REMOVED:     # a file is missing
            rc = file_set_next_start(&queue.files, queue_offset * UNIT_BYTES)
            if rc < 0:
                return stop
            queue_offset = min(stop, max(queue_offset + 1, rc // UNIT_BYTES))
            continue
        if rc < 0:
            return rc
        if not unit_is_blank(unit):
            break
        queue_offset += 1
    return queue_offset


cdef int64_t queue_used_units(Queue *queue) noexcept nogil:
    """Queue offset of the first empty unit (size <= 0) in the last file with a unit.

    By bisection, so that the cost does not depend on the file size.
    """
    cdef int64_t low, high, middle, rc, index
    cdef int64_t per_file = queue.files.file_size // UNIT_BYTES
    cdef Unit unit
    memset(&unit, 0, sizeof(Unit))
    index = queue.files.count - 1
    while index >= 0:
        low = queue.files.slots[index].start // UNIT_BYTES
        high = low + min(per_file, queue_data_units(queue, index))
        while low < high:
            middle = (low + high) // 2
            rc = queue_file_unit(queue, middle, &unit)
            if rc < 0 and rc != E_NOT_FOUND:
                return rc
            if rc == 0 and unit.size > 0 and unit.physical_offset >= 0:
                low = middle + 1
            else:
                high = middle
        if low > queue.files.slots[index].start // UNIT_BYTES or index == 0:
            return low
        index -= 1
    return 0


cdef int64_t queue_data_units(Queue *queue, int64_t index) noexcept nogil:
    """Units of a file that may have data: a page in a hole is empty without being read."""
    cdef MappedFile *file = NULL
    cdef int64_t length = queue.files.slots[index].length
    if not queue.files.writable and file_set_hold(
            &queue.files, queue.files.slots[index].start, &file) == 0:
        length = min(length, mapped_file_data_stop(file, length) + UNIT_BYTES - 1)
        mapped_file_release(file)
    return length // UNIT_BYTES


cdef int64_t queue_note_unreadable(Queue *queue, int64_t status) noexcept nogil:
    """0 if ``status`` only makes this queue of a read-only store unreadable; else ``status``."""
    if queue.files.writable or not is_unreadable(status):
        return status
    queue.unreadable = status
    atomic_set(&queue.max_offset, 0)
    atomic_set(&queue.min_offset, 0)
    return 0


cdef bint queue_is_of_deleted(Queue *queue) noexcept nogil:
    """Whether the files are of a deleted topic: a power cut may undo their removal."""
    cdef Unit unit
    cdef int64_t at = file_set_start(&queue.files) // UNIT_BYTES
    cdef int64_t per_file = queue.files.file_size // UNIT_BYTES
    if queue.topic.deleted_before == 0 or queue.files.count == 0:
        return False
    memset(&unit, 0, sizeof(Unit))
    for at in range(at, at + per_file):
        if queue_file_unit(queue, at, &unit) < 0:
            return False
        if unit.size > 0 and not unit_is_blank(&unit):
            return unit.physical_offset < queue.topic.deleted_before
    return False


cdef int64_t queue_trim(Queue *queue, int64_t stop) noexcept nogil:
    """Unlink the files that begin at byte ``stop`` of the queue or later.

    They remain from an earlier life of the topic.  A broker sets a queue's end to the start of the
    third-last file if the last three are empty.
    """
    cdef char path[FAILURE_PATH_BYTES]
    cdef FileSlot *last
    cdef int64_t rc = 0
    mapped_file_release(queue.current)
    queue.current = NULL
    lock_take(&queue.files.lock)
    while queue.files.count and rc == 0:
        last = &queue.files.slots[queue.files.count - 1]
        if last.start < stop:
            break
        file_name(path, queue.files.directory, last.start)
        rc = sys_unlink(queue.files.root, path)
        if rc == 0:
            mapped_file_release(last.file)
            queue.files.count -= 1
            atomic_set(&queue.names_dirty, 1)
    lock_give(&queue.files.lock)
    return rc
