# One queue of a topic: units of 20 bytes that point into the commit log, written by the
# dispatch thread alone through raw mapped memory, read by anybody.
#
# Source: store/ConsumeQueue.java

cdef enum:
    QUEUE_WINDOW = 256 << 10     # bytes of blocks reserved at a time
    EXT_ADDRESS = -2147483649    # a tags code from here down is a place in consumequeue_ext

# Units told from the log, from ``start`` on: what the files do not have, or have wrong. Whole
# before anybody sees it, and never changed or freed after that while the queue lives.
cdef struct Derived:
    Derived *older               # what it took the place of
    char *units
    int64_t start
    int64_t count
    int64_t room


# A unit, read.
cdef struct Unit:
    int64_t physical_offset
    int64_t tags_code
    int32_t size


# Where a queue begins to count anew along the log, as its topic was deleted and made again.
cdef struct Life:
    int64_t start                # records below are of an earlier life
    int64_t first                # the queue offset that it began with
    int64_t next                 # the one that follows along the log; 0: none was seen
    int64_t seen_until           # records below were taken in
    int64_t known_until          # and those below have their places already, or none
    int64_t restart_next         # what confirms that a new life began with ``restart``; 0: nothing
    bint doubtful                # one record alone, whose place the log below it has no room for
    bint newest_was_there        # the newest record's unit was in its place when it was met
    Unit restart


cdef struct Queue:
    Topic *topic
    Queue *next_made
    Queue *next_far
    FileSet files
    MappedFile *current          # where units go; held, the dispatch thread's own
    atomic_i64 max_offset        # units that are there; stored only after their bytes
    atomic_i64 min_offset        # first unit whose record the log still has
    atomic_i64 last_end          # end of the record that the newest unit points to
    atomic_i64 names_dirty       # 1: its directories have to be synced
    int64_t next_offset          # the next message's queue offset; behind the put lock
    int64_t room                 # units below have a file and blocks; behind the put lock
    atomic_i64 looked_at         # "r": monotonic ns of the last look for the end
    Derived *derived             # "r": published; NULL where the files tell everything
    Derived *derived_kept        # all that were ever published, newest first
    Derived *making              # while it is made: not to be seen yet
    Slice near                   # "r": units of the files from near_start on, meanwhile
    int64_t near_start
    int64_t near_count
    char *run                    # LogUnits: units of a run, from run_start on
    int64_t run_start
    int64_t run_count
    int64_t run_room
    int64_t floor                # recovery: units from here on count once their records are met
    int64_t first_offset         # recovery: the first unit whose record is good, and where it is
    int64_t first_physical       # INT64_MOST: none; records before it are of an earlier life
    Life life                    # while units are told from the log
    Life ahead                   # the same, for who looks ahead
    int64_t bad_start            # "r": units [bad_start, bad_stop) at the end were not good
    int64_t bad_stop
    int64_t unreadable           # "r": why it cannot be read, -errno; 0: it can
    int64_t bad_log_stop         # while the log's files ended there
    bint completed               # units were written while the store was opened
    bint listed                  # its directory was seen
    bint deleted                 # "r": what lies there is of a topic that was deleted
    int32_t id


cdef Queue *queue_new(
    Topic *topic, int32_t queue_id, int root, int64_t file_size, bint writable,
) noexcept nogil:
    cdef char directory[FAILURE_PATH_BYTES]
    cdef Queue *queue = <Queue *>calloc(1, sizeof(Queue))
    if queue == NULL:
        return NULL
    if topic != NULL:
        snprintf(directory, FAILURE_PATH_BYTES, "consumequeue/%s/%d", <char *>topic.name, queue_id)
    else:
        directory[0] = 46                    # ConsumeQueue by itself: "."
        directory[1] = 0
    queue.topic = topic
    queue.id = queue_id
    file_set_init(&queue.files, root, directory, file_size, writable)
    queue.files.window = QUEUE_WINDOW
    queue.files.derived = topic != NULL      # by itself there is no log to make it anew from
    return queue


cdef void queue_destroy(Queue *queue) noexcept nogil:
    mapped_file_release(queue.current)
    file_set_destroy(&queue.files)
    derived_free(queue.derived_kept)
    derived_free(queue.making)
    slice_release(&queue.near)
    free(queue.run)
    free(queue)


cdef extern from *:
    Derived *load_derived "load_pointer"(Derived **at) noexcept nogil
    void store_derived "store_pointer"(Derived **at, Derived *value) noexcept nogil


cdef void derived_free(Derived *derived) noexcept nogil:
    cdef Derived *older
    while derived != NULL:
        older = derived.older
        free(derived.units)
        free(derived)
        derived = older


cdef inline void unit_write(
    char *at, int64_t physical_offset, int32_t size, int64_t code,
) noexcept nogil:
    """The size is written last: 4.9.3 takes a unit that has a size for complete.

    A process that is killed in between leaves one without a size, which is written again.
    """
    put_i64(at + UNIT_PHYSICAL_OFFSET, physical_offset)
    put_i64(at + UNIT_TAGS_CODE, code)
    put_i32_release(at + UNIT_SIZE, size)


cdef inline void unit_read(const char *at, Unit *unit) noexcept nogil:
    unit.physical_offset = get_i64(at + UNIT_PHYSICAL_OFFSET)
    unit.size = get_i32(at + UNIT_SIZE)
    unit.tags_code = get_i64(at + UNIT_TAGS_CODE)


cdef inline bint unit_is_blank(const Unit *unit) noexcept nogil:
    """One that fills the place of a message that is nowhere."""
    return unit.size == UNIT_BLANK_SIZE and unit.physical_offset == 0


cdef int64_t queue_make_directories(Queue *queue) noexcept nogil:
    """consumequeue/<topic>/<queue id>, of which each may be there."""
    cdef char path[FAILURE_PATH_BYTES]
    cdef int64_t rc
    if queue.topic == NULL:
        return 0
    snprintf(path, FAILURE_PATH_BYTES, "consumequeue/%s", <char *>queue.topic.name)
    rc = make_directory_below(queue.files.root, path)
    if rc >= 0:
        rc = make_directory_below(queue.files.root, queue.files.directory)
    atomic_set(&queue.names_dirty, 1)
    return rc


cdef int64_t make_directory_below(int root, const char *path) noexcept nogil:
    """mkdir with no link followed on the way."""
    cdef char parent[FAILURE_PATH_BYTES]
    cdef const char *name = strrchr(path, 47)
    cdef int64_t fd, rc
    if name == NULL:
        return sys_make_directory(root, path)
    memcpy(parent, path, <size_t>(name - path))
    parent[name - path] = 0
    fd = sys_open_directory(root, parent)
    if fd < 0:
        return fd
    rc = sys_make_directory(<int>fd, name + 1)
    close(<int>fd)
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
    """Make the file that begins at byte ``start`` the current one, and the file if need be."""
    cdef MappedFile *file = NULL
    cdef int64_t rc = file_set_hold(&queue.files, start, &file)
    if rc == E_NOT_FOUND:
        rc = 0
        if queue.files.count == 0:
            rc = queue_make_directories(queue)
        if rc >= 0:
            rc = file_set_make(&queue.files, start, &file)
        if rc == 0:
            mapped_file_hold(file)
            rc = file_set_adopt(&queue.files, file)
            if rc < 0:
                mapped_file_release(file)
                mapped_file_release(file)
    if rc < 0:
        return rc
    mapped_file_release(queue.current)
    queue.current = file
    return 0


cdef int64_t queue_reserve(Queue *queue, int64_t stop) noexcept nogil:
    """Blocks for the current file's bytes below ``stop`` and a window more."""
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


cdef inline int64_t queue_unit_place(Queue *queue, int64_t queue_offset, char **at) noexcept nogil:
    """Where unit ``queue_offset`` is written; its file is made and reserved."""
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
    at[0] = queue.current.base + position
    return 0


cdef int64_t queue_set_unit(
    Queue *queue, int64_t queue_offset, int64_t physical_offset, int32_t size, int64_t code,
) noexcept nogil:
    """Write one unit without publishing it."""
    cdef char *at = NULL
    cdef int64_t rc = queue_unit_place(queue, queue_offset, &at)
    if rc == 0:
        unit_write(at, physical_offset, size, code)
        rc = mapped_file_lost(queue.current, at - queue.current.base,
                              at - queue.current.base + UNIT_BYTES)
    return rc


cdef int64_t queue_put_unit(
    Queue *queue, int64_t queue_offset, int64_t physical_offset, int32_t size, int64_t code,
) noexcept nogil:
    """Write unit ``queue_offset`` at exactly its place and publish it.

    Returns 1 if it was written, 0 if the very same unit was there.  A queue that begins
    later than 0 and a gap are filled with blank units.
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
        if queue.files.count == 0:           # only the part of the first file before it
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
    atomic_set(&queue.files.wrote, (queue_offset + 1) * UNIT_BYTES)
    atomic_set(&queue.max_offset, queue_offset + 1)
    return 1


cdef bint unit_code_is_given(const Queue *queue, const Unit *unit) noexcept nogil:
    """Whether a tags code is more than the record tells: a time of delivery, an ext address."""
    return (queue.topic != NULL and queue.topic.schedule) or unit.tags_code <= EXT_ADDRESS


cdef int64_t queue_units(
    Queue *queue, int64_t queue_offset, int64_t count, Slice *slice,
) noexcept nogil:
    """Up to ``count`` units of one file; their number. Whether they are published is not asked."""
    cdef Derived *derived = load_derived(&queue.derived)
    memset(slice, 0, sizeof(Slice))
    if derived != NULL and queue_offset >= derived.start:
        count = min(count, derived.start + derived.count - queue_offset)
        if count <= 0:
            return 0
        slice.data = derived.units + (queue_offset - derived.start) * UNIT_BYTES
        slice.length = count * UNIT_BYTES
        return count
    if derived != NULL:                      # the files' part ends where the derived one begins
        count = min(count, derived.start - queue_offset)
    return queue_file_units(queue, queue_offset, count, slice)


cdef int64_t queue_file_units(
    Queue *queue, int64_t queue_offset, int64_t count, Slice *slice,
) noexcept nogil:
    """As queue_units, of what the files have."""
    cdef int64_t rc
    rc = file_set_read(&queue.files, queue_offset * UNIT_BYTES, count * UNIT_BYTES, slice)
    return rc if rc < 0 else rc // UNIT_BYTES


cdef int64_t queue_file_unit(Queue *queue, int64_t queue_offset, Unit *unit) noexcept nogil:
    """As queue_unit_at, of what the files have."""
    cdef Slice slice
    cdef int64_t rc = queue_file_units(queue, queue_offset, 1, &slice)
    if rc == 1:
        unit_read(slice.data, unit)
        rc = 0
    elif rc == 0:
        rc = E_NOT_FOUND
    slice_release(&slice)
    return rc


cdef int64_t queue_unit_at(Queue *queue, int64_t queue_offset, Unit *unit) noexcept nogil:
    """Read one unit; 0, or E_NOT_FOUND, E_REMOVED, -errno."""
    cdef Slice slice
    cdef int64_t rc = queue_units(queue, queue_offset, 1, &slice)
    if rc == 1:
        unit_read(slice.data, unit)
        rc = slice_lost(&slice)
    elif rc == 0:
        rc = E_NOT_FOUND
    slice_release(&slice)
    return rc


cdef int64_t queue_first_at_or_after(
    Queue *queue, int64_t physical_offset, int64_t low, int64_t stop,
) noexcept nogil:
    """First queue offset in [low, stop) whose record begins at or after ``physical_offset``.

    ``stop`` if there is none.  A blank unit counts as the one after it; a damaged one that
    names a place below 0 is no end of what lies before it.
    """
    cdef int64_t high = stop
    cdef int64_t middle, probe
    cdef Unit unit
    while low < high:
        middle = (low + high) // 2
        probe = queue_skip_blanks(queue, middle, stop, &unit)
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
    """First queue offset in [queue_offset, stop) that is not blank, with its unit; or ``stop``."""
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
    """Units in the files as far as their bytes tell: the first empty one in the last file.

    By bisection, so that it costs the same whatever the size; a unit is empty if its size is
    not above 0.
    """
    cdef int64_t low, high, middle, rc, index
    cdef int64_t per_file = queue.files.file_size // UNIT_BYTES
    cdef Unit unit
    memset(&unit, 0, sizeof(Unit))
    index = queue.files.count - 1
    while index >= 0:
        low = queue.files.slots[index].start // UNIT_BYTES
        high = low + min(per_file, queue.files.slots[index].length // UNIT_BYTES)
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
