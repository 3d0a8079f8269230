# Begin and end of a queue's ext units: found after an opening, cut, removed.
#
# The queue's units show both ends.  4.9.3 walks all ext files instead, and until then takes the
# bytes after the last ext unit that the queue names for more of them.
#
# Source: store/ConsumeQueueExt.java recover, truncateByMinAddress, truncateByMaxAddress, destroy

cdef enum:
    EXT_RETRY_NS = 1000000000    # after a failed search for the end
    EXT_SEARCH_UNITS = 4096      # units of the queue read at a time


cdef int64_t ext_end_before(Queue *queue, QueueExt *ext, int64_t stop) noexcept nogil:
    """End of the ext units named by the queue's units below ``stop``, or a status.

    The newest address decides, as addresses ascend.  If its ext unit is missing, the end is the
    start of the next file: no other ext unit may get that address.
    """
    cdef ExtUnit there
    cdef Slice units
    cdef Unit unit
    cdef MappedFile *near = NULL
    cdef int64_t first = file_set_start(&queue.files) // UNIT_BYTES
    cdef int64_t most = file_set_stop(&ext.files)
    cdef int64_t at = stop
    cdef int64_t rc, start, i, offset
    if most == 0:                            # beyond that many of the largest: damage
        most = min(stop, INT64_MOST // (1 << 16)) * (EXT_UNIT_MAX_BYTES + EXT_END_BYTES)
    while at > first:
        start = max(first, at - EXT_SEARCH_UNITS)
        start = max(start, (at - 1) - (at - 1) % (queue.files.file_size // UNIT_BYTES))
        rc = queue_file_units(queue, start, at - start, &units)
        if rc < 0 and rc != E_NOT_FOUND and rc != E_REMOVED:
            return rc
        i = rc
        while i > 0:
            i -= 1
            unit_read(units.data + i * UNIT_BYTES, &unit)
            offset = ext_offset(unit.tags_code)
            if unit.size <= 0 or unit.tags_code > EXT_ADDRESS or offset >= most:
                continue
            rc = ext_unit_at(ext, &near, offset, &there)
            mapped_file_release(near)
            near = NULL
            slice_release(&units)
            if rc == 0:
                return offset + there.size
            return offset - offset % ext.files.file_size + ext.files.file_size
        slice_release(&units)
        at = start
    return 0


cdef int64_t queue_ext_begin(Queue *queue, QueueExt *ext, int64_t stop) noexcept nogil:
    """Find the next ext unit's position if the queue's units end at ``stop``; 0 or a status."""
    cdef int64_t end
    if ext.begun:
        return 0
    if monotonic_ns() < ext.retry_at:
        return E_NOT_FOUND
    end = ext_end_before(queue, ext, stop)
    if end < 0:
        ext.retry_at = monotonic_ns() + EXT_RETRY_NS
        return end
    atomic_set(&ext.files.flushed, end)      # first: a flush must not see bytes it need not force
    atomic_set(&ext.files.wrote, end)
    ext.began_at = end
    ext.newest_record = -1
    ext.begun = True
    return 0


cdef void queue_ext_restart(Queue *queue) noexcept nogil:
    """Restart a queue's ext units, as the end of its units has moved."""
    cdef QueueExt *ext = load_ext(&queue.ext)
    if ext == NULL:
        return
    mapped_file_release(ext.current)
    ext.current = NULL
    ext.begun = False
    ext.retry_at = 0
    ext.newest_record = -1


cdef int64_t queue_ext_cut(Queue *queue, QueueExt *ext) noexcept nogil:
    """Remove all beyond the end: whole files, and the rest of the end's file.

    A broker reads a file's units up to the first of size 0.
    """
    cdef char path[FAILURE_PATH_BYTES]
    cdef stat_t status
    cdef MappedFile plain
    cdef FileSlot *last
    cdef int64_t end = atomic_get(&ext.files.wrote)
    cdef int64_t rc = 0
    cdef int64_t start = -1
    cdef int64_t fd, used
    mapped_file_release(ext.current)
    ext.current = NULL
    lock_take(&ext.files.lock)
    while ext.files.count and rc == 0:
        last = &ext.files.slots[ext.files.count - 1]
        start = last.start
        if start < end:
            break
        file_name(path, ext.files.directory, start)
        rc = sys_unlink(ext.files.root, path)
        if rc == 0 or rc == -ENOENT:
            rc = 0
            mapped_file_release(last.file)
            ext.files.count -= 1
            atomic_set(&ext.names_dirty, 1)
        start = -1
    lock_give(&ext.files.lock)
    if rc < 0 or start < 0 or start + ext.files.file_size <= end:
        return rc
    file_name(path, ext.files.directory, start)
    fd = sys_open_file(ext.files.root, path, O_RDWR, &status)
    if fd < 0:
        return fd
    memset(&plain, 0, sizeof(MappedFile))
    plain.fd = <int>fd
    plain.size = min(ext.files.file_size, status.st_size)
    used = mapped_file_last_used(&plain, end - start) if end - start < plain.size else 0
    rc = min(used, 0)
    if used > end - start:
        rc = zero_data(<int>fd, end - start, used)
        if rc == 0:
            rc = sys_sync(<int>fd)
    close(<int>fd)
    return rc


cdef int64_t queue_ext_check(Queue *queue, Failure *failure) noexcept nogil:
    """Check before any change that the files have the configured size; 0 or a status."""
    cdef char path[FAILURE_PATH_BYTES]
    cdef QueueExt *ext
    cdef FileSlot *slot
    cdef int64_t i
    cdef int64_t rc
    if not ext_is_written(queue):
        return 0
    ext = queue_ext_of(queue)
    rc = E_NO_MEMORY if ext == NULL else queue_ext_list(ext, failure)
    if rc < 0:
        return fail(failure, rc, "consumequeue_ext", "cannot be read", -1, 0, 0)
    for i in range(ext.files.count):
        slot = &ext.files.slots[i]
        file_name(path, ext.files.directory, slot.start)
        if slot.start % ext.files.file_size:
            return fail(failure, E_INCOMPATIBLE, path,
                        "the name is no multiple of the file size; move it out of the directory",
                        -1, slot.start, ext.files.file_size)
        if slot.length > ext.files.file_size:
            return fail(failure, E_INCOMPATIBLE, path, other_size_text(slot, ext.files.file_size),
                        -1, slot.length, ext.files.file_size)
    return 0


cdef int64_t queue_ext_complete(Queue *queue, Failure *failure) noexcept nogil:
    """Extend files that a power cut left short to full length; 0 or a status."""
    cdef char path[FAILURE_PATH_BYTES]
    cdef QueueExt *ext = load_ext(&queue.ext)
    cdef FileSlot *slot
    cdef int64_t i, rc
    if ext == NULL or not ext.files.writable:
        return 0
    for i in range(ext.files.count):
        slot = &ext.files.slots[i]
        file_name(path, ext.files.directory, slot.start)
        if slot.length < ext.files.file_size:
            rc = file_set_complete(&ext.files, slot)
            if rc < 0:
                return fail(failure, rc, path, "a short file cannot be completed", -1, 0, 0)
    return 0


cdef int64_t queue_ext_truncate_before(Queue *queue, int64_t address) noexcept nogil:
    """Remove the files that end before ``address``: their number, or a status.

    ``address``: tags code of the queue's first unit with a record in the log; a code that is no
    address removes nothing.  REQUIRES: the locks of flushing queues and of dispatch.
    """
    cdef char path[FAILURE_PATH_BYTES]
    cdef QueueExt *ext
    cdef int64_t removed = 0
    cdef int64_t i
    cdef int64_t rc = 0
    if address > EXT_ADDRESS:
        return 0
    ext = queue_ext_of(queue)
    if ext == NULL or ext.files.file_size <= 0:
        return 0
    lock_take(&ext.files.lock)
    while removed < ext.files.count - 1 \
            and ext.files.slots[removed].start + ext.files.file_size < ext_offset(address):
        file_name(path, ext.files.directory, ext.files.slots[removed].start)
        rc = sys_unlink(ext.files.root, path)
        if rc < 0 and rc != -ENOENT:
            break
        rc = 0
        mapped_file_release(ext.files.slots[removed].file)
        removed += 1
    for i in range(removed, ext.files.count):
        ext.files.slots[i - removed] = ext.files.slots[i]
    ext.files.count -= removed
    if removed:
        atomic_raise(&ext.files.flushed, ext.files.slots[0].start)
        atomic_set(&ext.names_dirty, 1)
    lock_give(&ext.files.lock)
    return rc if rc < 0 else removed


cdef int64_t queue_ext_delete(Queue *queue) noexcept nogil:
    """Unlink the files and directory of a removed queue; readers keep their holds."""
    cdef QueueExt *ext = queue_ext_of(queue)
    if ext == NULL:
        return 0
    queue_ext_restart(queue)
    return file_set_unlink(&ext.files)
