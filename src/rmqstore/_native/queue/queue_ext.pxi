# Ext units of a queue, in consumequeue_ext: a unit refers to one by an address as its tags code.
#
# Written by the dispatch thread alone, each before the unit that names it; addresses ascend along
# the queue.  A missing or invalid ext unit is no error: only its bit map is not in the record too.
#
# Source: store/ConsumeQueueExt.java; store/ConsumeQueue.java getExt, truncateDirtyLogicFiles

cdef enum:
    EXT_LIST_NS = 100000000      # "r": validity of a directory listing
    EXT_NONE = 0                 # no address: the plain tags code is used


# A unit's fields; its bit map follows its first EXT_FIXED_BYTES.
cdef struct ExtUnit:
    int64_t tags_code
    int64_t store_timestamp
    int64_t size
    int64_t bitmap_bytes


cdef extern from *:
    """
    #define swap_pointer_if(p, seen, v) \\
        __atomic_compare_exchange_n(p, &(seen), v, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)
    """
    QueueExt *load_ext "load_pointer"(QueueExt **at) noexcept nogil
    bint swap_ext_if "swap_pointer_if"(QueueExt **at, QueueExt *seen, QueueExt *value) \
        noexcept nogil


cdef inline int64_t ext_offset(int64_t address) noexcept nogil:
    """Offset in the ext files of an address: the address plus 2^63."""
    return address & INT64_MAX


cdef inline bint ext_is_written(const Queue *queue) noexcept nogil:
    """Whether new units of the queue get an ext unit; never in a light queue."""
    return queue.ext_settings != NULL and queue.ext_settings.written \
        and not name_is_light(queue.topic.name, queue.topic.length)


cdef QueueExt *queue_ext_of(Queue *queue) noexcept nogil:
    """Ext files of a queue, listed at the first call; NULL: none, or no memory."""
    cdef char directory[FAILURE_PATH_BYTES]
    cdef QueueExt *ext = load_ext(&queue.ext)
    cdef QueueExt *seen = NULL
    if ext != NULL or queue.ext_settings == NULL:
        return ext
    ext = <QueueExt *>calloc(1, sizeof(QueueExt))
    if ext == NULL:
        return NULL
    snprintf(directory, FAILURE_PATH_BYTES, "consumequeue_ext/%s/%d", <char *>queue.topic.name,
             queue.id)
    file_set_init(&ext.files, queue.files.root, directory, queue.ext_settings.file_size,
                  queue.ext_settings.written)
    ext.files.window = QUEUE_WINDOW
    ext.files.of_queue = True
    ext.files.open_files = queue.files.open_files
    ext.newest_record = -1
    queue_ext_list(ext, NULL)
    if not swap_ext_if(&queue.ext, seen, ext):
        queue_ext_free(ext)                  # another thread was faster
        ext = load_ext(&queue.ext)
    return ext


cdef int64_t queue_ext_list(QueueExt *ext, Failure *failure) noexcept nogil:
    """List the files; their number, 0 without a directory.  "r": infer the file size."""
    cdef Failure unused
    cdef int64_t size
    cdef int64_t rc
    memset(&unused, 0, sizeof(Failure))
    rc = file_set_list(&ext.files, &unused)
    if rc == -ENOENT or rc == -ENOTDIR or (rc == -ELOOP and not ext.files.writable):
        file_set_clear(&ext.files)
        return fail_if_broken(ext.files.root, ext.files.directory, failure) \
            if ext.files.writable and failure != NULL else 0
    if rc < 0 and failure != NULL:
        failure[0] = unused
    if rc > 0 and not ext.files.writable and not atomic_get(&ext.size_known):
        size = file_set_infer_size(&ext.files, 1, EXT_FILE_LEAST)
        if size > 0:
            ext.files.file_size = size
            atomic_set(&ext.size_known, 1)
    return rc


cdef inline bint ext_unit_read(const char *bytes, int64_t room, ExtUnit *unit) noexcept nogil:
    """Whether ``bytes``, at most ``room`` of them, begin with a whole unit."""
    unit.size = get_i16(bytes + EXT_SIZE)
    unit.tags_code = get_i64(bytes + EXT_TAGS_CODE)
    unit.store_timestamp = get_i64(bytes + EXT_STORE_TIMESTAMP)
    unit.bitmap_bytes = get_i16(bytes + EXT_BITMAP_SIZE)
    return unit.bitmap_bytes >= 0 and unit.size == EXT_FIXED_BYTES + unit.bitmap_bytes \
        and unit.size <= room


cdef int64_t ext_unit_at(
    QueueExt *ext, MappedFile **near, int64_t offset, ExtUnit *unit,
) noexcept nogil:
    """Read the unit at an offset of the ext files: 0, E_NOT_FOUND without one, or a status."""
    cdef char bytes[EXT_FIXED_BYTES]
    cdef int64_t room = ext.files.file_size - offset % ext.files.file_size
    cdef int64_t rc
    if room < EXT_FIXED_BYTES:
        return E_NOT_FOUND
    rc = file_set_peek_near(&ext.files, near, offset, EXT_FIXED_BYTES, bytes)
    if rc < 0:
        return rc
    return 0 if rc == EXT_FIXED_BYTES and ext_unit_read(bytes, room, unit) else E_NOT_FOUND


cdef int64_t queue_ext_unit(
    Queue *queue, MappedFile **near, int64_t address, ExtUnit *unit,
) noexcept nogil:
    """Read the ext unit at an address: 0, or a status without a valid one.

    ``near`` as for file_set_read_near.
    """
    cdef QueueExt *ext = queue_ext_of(queue)
    cdef int64_t rc, listed
    if ext == NULL or address > EXT_ADDRESS:
        return E_NOT_FOUND
    if not queue.files.writable:
        # Files created or recreated since.
        listed = atomic_get(&ext.files.listed_at)
        if listed < atomic_get(&queue.files.listed_at):
            queue_ext_list(ext, NULL)
    rc = ext_unit_at(ext, near, ext_offset(address), unit)
    if (rc == E_NOT_FOUND or rc == E_REMOVED) and not queue.files.writable \
            and monotonic_ns() - atomic_get(&ext.files.listed_at) > EXT_LIST_NS:
        queue_ext_list(ext, NULL)
        rc = ext_unit_at(ext, near, ext_offset(address), unit)
    return rc


cdef int64_t queue_ext_directories(Queue *queue, QueueExt *ext) noexcept nogil:
    """Create consumequeue_ext/<topic>/<queue id>, each level unless it exists."""
    cdef char path[FAILURE_PATH_BYTES]
    cdef int64_t rc = sys_make_directory(queue.files.root, "consumequeue_ext")
    snprintf(path, FAILURE_PATH_BYTES, "consumequeue_ext/%s", <char *>queue.topic.name)
    if rc >= 0:
        rc = sys_make_directory(queue.files.root, path)
    if rc >= 0:
        rc = sys_make_directory(queue.files.root, ext.files.directory)
    if rc >= 0:
        atomic_set(&ext.names_dirty, 1)
    return rc


cdef int64_t queue_ext_sync_names(Queue *queue, QueueExt *ext) noexcept nogil:
    """Make the directories durable, from the inside out."""
    cdef char path[FAILURE_PATH_BYTES]
    cdef int64_t rc
    if not atomic_get(&ext.names_dirty) or file_set_count(&ext.files) == 0:
        return 0
    atomic_set(&ext.names_dirty, 0)
    rc = sync_directory(queue.files.root, ext.files.directory)
    if rc == 0:
        snprintf(path, FAILURE_PATH_BYTES, "consumequeue_ext/%s", <char *>queue.topic.name)
        rc = sync_directory(queue.files.root, path)
    if rc == 0:
        rc = sync_directory(queue.files.root, "consumequeue_ext")
    if rc == 0:
        rc = sys_sync(queue.files.root)
    if rc < 0:
        atomic_set(&ext.names_dirty, 1)
    return rc


cdef int64_t queue_ext_flush(Queue *queue) noexcept nogil:
    """Force the ext units to the disk, before the queue's units that name them; the syncs."""
    cdef QueueExt *ext = load_ext(&queue.ext)
    cdef int64_t rc, syncs
    if ext == NULL or not ext.files.writable:
        return 0
    syncs = 0
    if atomic_get(&ext.files.flushed) < atomic_get(&ext.files.wrote):
        KILL_POINT("before-ext-sync")
        syncs = file_set_flush(&ext.files, atomic_get(&ext.files.wrote))
    rc = queue_ext_sync_names(queue, ext) if syncs >= 0 else syncs
    return rc if rc < 0 else syncs


cdef int64_t queue_ext_room(
    Queue *queue, QueueExt *ext, int64_t offset, int64_t bytes,
) noexcept nogil:
    """Make the file with ``offset`` the current one, created if missing, with its blocks."""
    cdef char path[FAILURE_PATH_BYTES]
    cdef stat_t status
    cdef MappedFile *file = NULL
    cdef int64_t start = offset - offset % ext.files.file_size
    cdef int64_t fd
    cdef int64_t rc = 0
    if ext.current == NULL or ext.current.start != start:
        rc = file_set_hold(&ext.files, start, &file)
        if rc == E_NOT_FOUND:
            rc = queue_ext_directories(queue, ext) if ext.files.count == 0 else 0
            if rc >= 0:
                rc = file_set_make(&ext.files, start, &file)
            if rc == 0:
                rc = file_set_adopt_held(&ext.files, file)
        if rc < 0:
            return rc
        mapped_file_release(ext.current)
        ext.current = file
    offset -= start
    if offset + bytes > atomic_peek(&ext.current.reserved):
        file_name(path, ext.files.directory, start)
        fd = sys_open_file(ext.files.root, path, O_RDWR, &status)
        if fd < 0:
            return fd
        rc = mapped_file_reserve_ahead(ext.current, <int>fd, offset + bytes, QUEUE_WINDOW)
        close(<int>fd)
    return rc


cdef int64_t queue_ext_put(
    Queue *queue, QueueExt *ext, const ExtUnit *unit, const char *bitmap,
) noexcept nogil:
    """Write the next ext unit: its address, or EXT_NONE on failure, such as a full disk.

    REQUIRES: queue_ext_begin returned 0.  Computes ``unit.size`` from the bit map.
    """
    cdef int64_t at = atomic_peek(&ext.files.wrote)
    cdef int64_t size = EXT_FIXED_BYTES + unit.bitmap_bytes
    cdef int64_t left = ext.files.file_size - at % ext.files.file_size
    cdef char *into
    if size > EXT_UNIT_MAX_BYTES or size > ext.files.file_size - EXT_END_BYTES:
        return EXT_NONE
    if at > ext_offset(EXT_ADDRESS) - 2 * ext.files.file_size:
        return EXT_NONE
    if size > left - EXT_END_BYTES:
        if left >= 2:
            if queue_ext_room(queue, ext, at, 2) < 0:
                return EXT_NONE
            put_i16(ext.current.base + (at - ext.current.start), EXT_END_SIZE)
        at += left
    if queue_ext_room(queue, ext, at, size) < 0:
        return EXT_NONE
    into = ext.current.base + (at - ext.current.start)
    put_i64(into + EXT_TAGS_CODE, unit.tags_code)
    put_i64(into + EXT_STORE_TIMESTAMP, unit.store_timestamp)
    put_i16(into + EXT_BITMAP_SIZE, <int16_t>unit.bitmap_bytes)
    if unit.bitmap_bytes:
        memcpy(into + EXT_FIXED_BYTES, bitmap, <size_t>unit.bitmap_bytes)
    put_i16(into + EXT_SIZE, <int16_t>size)
    if mapped_file_lost(ext.current, at - ext.current.start, at - ext.current.start + size) != 0:
        return EXT_NONE
    atomic_set(&ext.files.wrote, at + size)
    return at | INT64_MIN
