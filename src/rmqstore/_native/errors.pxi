# The one place where a status of the C layer becomes an exception.

cdef object status_error(int64_t status, Failure *failure, str root):
    """The exception for a status; ``failure`` may be NULL."""
    cdef str path = root
    cdef str what = ""
    cdef str values = ""
    cdef int64_t offset = -1
    cdef int64_t lost_at = -1
    if failure != NULL and failure.status != 0:
        if failure.path[0]:
            path = os_path.join(root, failure.path.decode("utf-8", "replace"))
        what = failure.what.decode("utf-8", "replace")
        offset = failure.offset
        if failure.actual or failure.expected:
            values = f" ({failure.actual}, not {failure.expected})"
    if status == E_LOST:
        noted = loss_noted(&lost_at).decode("utf-8", "replace")
        if lost_at >= 0:                     # else another thread met it, and left the failure
            path = os_path.join(root, noted)
            offset = lost_at
        return OSError(EIO, f"{LOSS_TEXT.decode('ascii')}, at offset {offset}", path)
    if -4096 < status < 0:
        reason = strerror(-status)
        return OSError(-status, f"{what}: {reason}" if what else reason, path)
    if status == E_CORRUPT:
        return errors.StoreCorruptError(path, offset, (what or "contradicts itself") + values)
    if status == E_CLOSED:
        return errors.StoreClosedError(f"{root}: the store is closed")
    if status == E_FORKED:
        return errors.ForkedStoreError(
            f"{root}: the store was opened in the parent process; open it anew in this one")
    if status == E_FAILED:
        if offset >= 0:
            what = f"{what}, at offset {offset}"
        cause = None
        if failure != NULL and -4096 < failure.status < 0:
            cause = OSError(-failure.status, strerror(-failure.status), path)
            what = f"{what}: {cause.strerror}"
        failed = errors.StoreFailedError(
            f"{path}: {what or 'an earlier sync failed'}: the store takes nothing more until it "
            "is opened again")
        failed.__cause__ = cause
        return failed
    if status == E_READ_ONLY:
        return errors.ReadOnlyStoreError(f"{root}: opened with mode 'r'")
    if status == E_NOT_FOUND:
        return errors.StoreNotFoundError(f"{path}: {what or 'not found'}")
    if status == E_INCOMPATIBLE or status == E_VERSION:
        return errors.IncompatibleStoreError(
            f"{path}: {what}{values}" + (f", at offset {offset}" if offset >= 0 else ""))
    if status == E_LOCKED:
        owner = ""
        if failure != NULL and failure.actual > 1:
            owner = f" by process {failure.actual}"
        return errors.StoreLockedError(f"{path}: the store is open elsewhere{owner}")
    if status == E_NO_MEMORY:
        return MemoryError(f"{root}: no memory")
    if status == E_REMOVED:
        return FileNotFoundError(2, "the file is gone", path)
    if status == E_TIMEOUT:
        return TimeoutError(f"{root}: timed out")
    if status == E_FULL:
        return errors.StoreError(f"{path}: the index file is full")
    return errors.StoreError(f"{path}: {what or 'failed'} ({status})")


cdef object stalled_error(Store *store, str root):
    """Nothing is found where dispatch is behind the log, for want of space or memory."""
    cdef int64_t stalled = atomic_get(&store.stalled)
    cdef int64_t behind = atomic_get(&store.log.wrote) - atomic_get(&store.dispatched)
    path = os_path.join(root, "index" if store.index_stalled else "consumequeue")
    what = f"the dispatch to queues and index is {behind} bytes behind the log"
    if -4096 < stalled < 0:
        return OSError(-stalled, f"{what}: {strerror(-stalled)}", path)
    return errors.StoreError(f"{path}: {what}: no memory")


cdef int64_t check(int64_t status, Failure *failure, str root) except? -1:
    """``status`` if it is 0 or more, else raise."""
    if status >= 0:
        return status
    raise status_error(status, failure, root)


cdef object corrupt_record(str root, int64_t log_file_size, int64_t offset, int64_t field):
    """A record of the log that does not check, by file and place in it."""
    cdef int64_t start
    if offset < 0:
        return errors.StoreCorruptError(
            os_path.join(root, "index"), -1, "a chain does not lead to older entries")
    start = offset - offset % log_file_size
    path = os_path.join(root, "commitlog", f"{start:020d}")
    return errors.StoreCorruptError(
        path, offset, record_field_name(field).decode("ascii"))


cdef object corrupt_unit(str root, const FileSet *files, int64_t at, int64_t field):
    """A unit, at byte ``at`` of its queue, that cannot be, or whose file is missing."""
    cdef int64_t start = at - at % files.file_size
    return errors.StoreCorruptError(
        os_path.join(root, fsdecode(files.directory), f"{start:020d}"), at - start,
        record_field_name(field).decode("ascii"))


cdef object text_of(const char *data, int64_t length):
    """Text as Java decodes it: U+FFFD for what is not UTF-8."""
    return PyUnicode_DecodeUTF8(data, length, b"rmqstore.java")


def _replace_as_java(error):
    """One U+FFFD for a malformed part, and one for as much of a surrogate as is there."""
    cdef bytes data = error.object
    start = error.start
    part = data[start:start + 3]
    if len(part) >= 2 and part[0] == 0xED and 0xA0 <= part[1] <= 0xBF:
        return "\ufffd", start + (3 if len(part) == 3 and 0x80 <= part[2] <= 0xBF else 2)
    return "\ufffd", error.end
