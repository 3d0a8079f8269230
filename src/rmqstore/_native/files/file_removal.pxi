# Removal of a set's first file while others read it.
#
# Holders keep the file's mapping and its disk space.
#
# Source: store/MappedFileQueue.java deleteExpiredFile, store/MappedFile.java destroy

cdef int64_t file_set_remove_first(
    FileSet *files, int64_t start, DeletedFiles *deleted,
) noexcept nogil:
    """Remove the file at ``start`` if it is the first of several: 0, E_NOT_FOUND, or a status.

    Durable only after file_set_sync_directory.
    """
    cdef char path[FAILURE_PATH_BYTES]
    cdef MappedFile *file
    cdef int64_t i, rc, place, directory
    lock_take(&files.lock)
    if files.count < 2 or files.slots[0].start != start:
        lock_give(&files.lock)
        return E_NOT_FOUND
    file = files.slots[0].file
    place = files.slots[0].place
    for i in range(1, files.count):
        files.slots[i - 1] = files.slots[i]
    files.count -= 1
    lock_give(&files.lock)
    file_name(path, "", start)
    directory = set_open_directory(files, place)
    rc = directory
    if directory >= 0:
        rc = sys_unlink(<int>directory, path)
        close(<int>directory)
    if rc == -ENOENT:
        rc = 0
    if rc < 0:
        lock_take(&files.lock)
        i = file_set_insert(files, start, files.file_size)
        if i >= 0:
            files.slots[i].file = file
            files.slots[i].place = place
            file = NULL
        lock_give(&files.lock)
    elif file != NULL:
        file.deleted = deleted
        atomic_add(&deleted.references, 1)
        atomic_add(&deleted.bytes, file.size)
    mapped_file_release(file)                # this may free a GiB of blocks: under no lock
    return rc


cdef int64_t file_set_sync_directory(FileSet *files) noexcept nogil:
    """Make additions and removals of files durable."""
    cdef int64_t place, directory
    cdef int64_t rc = 0
    for place in range(set_place_count(files)):
        if rc < 0 or set_is_read_only(files, place):
            continue
        directory = set_open_directory(files, place)
        if directory < 0:
            return directory
        rc = sys_sync(<int>directory)
        close(<int>directory)
    return rc


cdef int64_t file_set_unlink(FileSet *files) noexcept nogil:
    """Unlink all files and their directory; files in use stay mapped until released."""
    cdef char path[FAILURE_PATH_BYTES]
    cdef int64_t i, unlinked
    cdef int64_t rc = 0
    lock_take(&files.lock)
    for i in range(files.count):
        file_name(path, files.directory, files.slots[i].start)
        mapped_file_release(files.slots[i].file)
        unlinked = sys_unlink(files.root, path)
        if unlinked != -ENOENT:              # else removed by another process
            rc = min(rc, unlinked)
    files.count = 0
    lock_give(&files.lock)
    atomic_set(&files.wrote, 0)
    atomic_set(&files.flushed, 0)
    return remove_if_empty(files.root, files.directory) if rc == 0 else rc
