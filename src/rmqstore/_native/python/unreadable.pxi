# Files without read permission, or unreadable on the disk: an error for reads of their own queue
# alone.

cdef void name_any_unreadable(Store *store, int64_t status, Failure *failure) noexcept nogil:
    """As name_unreadable, for the log and every queue."""
    cdef Queue *queue = first_queue(&store.table)
    cdef bint named = name_unreadable(&store.log, status, failure)
    while queue != NULL and not named:
        named = name_unreadable(&queue.files, status, failure)
        queue = next_queue(queue)


cdef object unreadable_error(Store *store, Queue *queue, int64_t status, str root):
    """Exception for the status that ended a read of ``queue``, or of the log if NULL."""
    cdef Failure failure
    failure = store.failure
    if failure.status == 0 and is_unreadable(status) and not (
            queue != NULL and name_unreadable(&queue.files, status, &failure)):
        with nogil:
            name_any_unreadable(store, status, &failure)
    return status_error(status, &failure, root)
