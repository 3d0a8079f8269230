# Quarantine: bytes removed from the log are saved under rmqstore-quarantine/ and synced before the
# log changes.  Holes are neither read nor written: a sparse file costs only its data.  All I/O is
# through descriptors: a full disk is an error, never a signal.

cdef enum:
    FILL_MAX = 4 << 20           # bytes of one filler record, which readers allocate
    SAVE_TRIES = 1000


cdef int64_t log_open_file(Store *store, int64_t start) noexcept nogil:
    """Open the log file that begins at an offset; the caller closes the descriptor."""
    cdef stat_t status
    return set_open_file(&store.log, set_place_of(&store.log, start), start, O_RDWR, &status)


cdef int64_t quarantine_make(Store *store, int64_t offset, char *name) noexcept nogil:
    """Create a file named by the log offset of its bytes and the time; a descriptor."""
    cdef char path[FAILURE_PATH_BYTES]
    cdef stat_t status
    cdef int64_t fd = -EEXIST
    cdef int64_t now = wall_millis()
    cdef int64_t tries = 0
    cdef int64_t rc = sys_make_directory(store.root, "rmqstore-quarantine")
    if rc < 0:
        return rc
    while fd == -EEXIST and tries < SAVE_TRIES:
        snprintf(name, QUARANTINE_NAME_BYTES, "%020lld-%lld", <long long>offset,
                 <long long>(now + tries))
        snprintf(path, FAILURE_PATH_BYTES, "rmqstore-quarantine/%s", name)
        fd = sys_open_file(store.root, path, O_RDWR | O_CREAT | O_EXCL, &status)
        tries += 1
    return fd


cdef int64_t quarantine_save(
    Store *store, int fd, int64_t file_start, Damage *damage,
) noexcept nogil:
    """Save the bytes of a damaged range, in a file of the range's length, and sync them."""
    cdef int64_t rc
    cdef int64_t target = quarantine_make(store, damage.start, damage.saved)
    if target < 0:
        return target
    rc = copy_data(fd, damage.start - file_start, damage.used - file_start, <int>target, 0)
    if rc == 0:
        rc = sys_truncate(<int>target, damage.used - damage.start)
    if rc == 0:
        rc = sys_sync(<int>target)
    close(<int>target)
    if rc == 0:
        rc = sync_directory(store.root, "rmqstore-quarantine")
    if rc == 0:
        rc = sys_sync(store.root)
    return rc


cdef int64_t fill_write(int fd, int64_t file_start, int64_t start, int64_t stop) noexcept nogil:
    """Write filler records over zeros at [start, stop) of the log, up to 8 bytes at a file's end.

    4.9.3 skips rollback records, and the rest of a file after its blank.
    """
    cdef char head[RECORD_FIXED_BYTES]
    cdef int64_t size
    cdef int64_t rc = 0
    while start < stop and rc >= 0:
        size = min(stop - start, FILL_MAX)
        if stop - start - size < RECORD_FIXED_BYTES:     # the last one takes a short rest too
            size = stop - start
        record_hole_head(head, start, size)
        rc = sys_write(fd, head, RECORD_HEAD_BYTES, start - file_start)
        start += size
    return min(rc, 0)


cdef int64_t log_fill(Store *store, Damage *damage) noexcept nogil:
    """Save a damaged range of one file and overwrite it with a filler."""
    cdef char blank[RECORD_BLANK_BYTES]
    cdef int64_t file_start = damage.start - damage.start % store.log.file_size
    cdef int64_t file_stop = file_start + store.log.file_size
    cdef int64_t rc
    cdef int64_t fd = log_open_file(store, file_start)
    if fd < 0:
        return fd
    rc = 0
    if damage.used > damage.start:
        rc = quarantine_save(store, <int>fd, file_start, damage)
    KILL_POINT("before-erase")
    if rc == 0:
        rc = zero_data(<int>fd, damage.start - file_start, damage.stop - file_start)
    if rc == 0 and damage.stop == file_stop:
        blank_write(blank, file_stop - damage.start)
        rc = min(0, sys_write(<int>fd, blank, RECORD_BLANK_BYTES, damage.start - file_start))
    elif rc == 0:
        rc = fill_write(<int>fd, file_start, damage.start, damage.stop)
    if rc == 0:
        rc = sys_sync(<int>fd)
    close(<int>fd)
    return rc


cdef int64_t log_erase(Store *store, Damage *damage) noexcept nogil:
    """Save a torn tail's part in one file, then zero and sync it, so that it cannot return."""
    cdef int64_t file_start = damage.start - damage.start % store.log.file_size
    cdef int64_t rc
    cdef int64_t fd = log_open_file(store, file_start)
    if fd < 0:
        return fd
    rc = quarantine_save(store, <int>fd, file_start, damage)
    KILL_POINT("before-erase")
    if rc == 0:
        rc = zero_data(<int>fd, damage.start - file_start, damage.stop - file_start)
    if rc == 0:
        rc = sys_sync(<int>fd)
    close(<int>fd)
    return rc
