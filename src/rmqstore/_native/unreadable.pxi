# Files that may not be read, or that the disk does not give: the queue they are of is an error
# where it is read, and no other queue is.
#
# Source: ours

cdef bint is_unreadable(int64_t status) noexcept nogil:
    """Whether the system will refuse again: not for want of descriptors, and not as a file went."""
    return status == -EACCES or status == -EPERM or status == -EIO or status == -ELOOP \
        or status == -ENOTDIR


cdef int64_t queue_note_unreadable(Queue *queue, int64_t status) noexcept nogil:
    """0 where ``status`` says that a queue of a store that is only read cannot be; else it."""
    if queue.files.writable or not is_unreadable(status):
        return status
    queue.unreadable = 0 if PLANTED("a9") else status
    atomic_set(&queue.max_offset, 0)
    atomic_set(&queue.min_offset, 0)
    return 0


cdef bint name_unreadable(FileSet *files, int64_t status, Failure *failure) noexcept nogil:
    """Note the directory or the file that the system refuses with ``status``; False: none."""
    cdef char path[FAILURE_PATH_BYTES]
    cdef stat_t found
    cdef int64_t i, start
    cdef int64_t fd = sys_open_directory(files.root, files.directory)
    copy_text(path, FAILURE_PATH_BYTES, files.directory)
    for i in range(file_set_count(files) if fd >= 0 else 0):
        start = file_set_start_of(files, i)
        close(<int>fd)
        file_name(path, files.directory, start)
        fd = sys_open_file(files.root, path, O_RDONLY, &found)
        if fd < 0:
            break
    if fd >= 0:
        close(<int>fd)
        return False
    if fd == status:
        fail(failure, status, path, "cannot be read", -1, 0, 0)
    return fd == status


cdef void name_any_unreadable(Store *store, int64_t status, Failure *failure) noexcept nogil:
    """As name_unreadable, of the log and every queue."""
    cdef Queue *queue = first_queue(&store.table)
    cdef bint named = name_unreadable(&store.log, status, failure)
    while queue != NULL and not named:
        named = name_unreadable(&queue.files, status, failure)
        queue = next_queue(queue)


cdef object unreadable_error(Store *store, Queue *queue, int64_t status, str root):
    """The exception for a status that reading ended with, of ``queue`` unless it is NULL."""
    cdef Failure failure
    failure = store.failure
    if failure.status == 0 and is_unreadable(status) and not (
            queue != NULL and name_unreadable(&queue.files, status, &failure)):
        with nogil:
            name_any_unreadable(store, status, &failure)
    return status_error(status, &failure, root)
