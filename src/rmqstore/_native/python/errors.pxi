# Conversion of a status of the C layer to an exception, here and nowhere else.

cdef enum:
    SHORT_TEXT = 64              # bytes of a text decoded here, before any decoder

cdef object status_error(int64_t status, Failure *failure, str root):
    """Exception for a status; ``failure`` may be NULL."""
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
    if status == -ENOENT or status == -ELOOP or status == E_INCOMPATIBLE:
        link = broken_link(path)
        if link and status == E_INCOMPATIBLE:
            return errors.IncompatibleStoreError(f"{link}: is its disk mounted?")
        if link:
            return OSError(-status, f"{what}: {link}" if what else link, path)
    if status == E_LOST:
        noted = loss_noted(&lost_at).decode("utf-8", "replace")
        if lost_at >= 0:                     # else another thread met it and set the failure
            path = os_path.join(root, noted)
            offset = lost_at
        return OSError(EIO, f"{LOSS_TEXT.decode('ascii')}, at offset {offset}", path)
    if -4096 < status < 0:
        reason = strerror(-status)
        if status == -EINVAL or status == -EISDIR or status == -ENXIO:
            special = not_regular(path)
            reason = f"{special}: move it away" if special else reason
        if status == -EIO and path == root:
            noted = read_noted(&lost_at).decode("utf-8", "replace")
            if noted.startswith(root + "/"):
                reason = f"{reason}, at offset {lost_at}"
                path = noted
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
        return errors.ReadOnlyStoreError(f"{root}: opened with mode 'r'; 'r+' writes")
    if status == E_NOT_FOUND:
        return errors.StoreNotFoundError(f"{path}: {what or 'not found'}")
    if status == E_INCOMPATIBLE or status == E_VERSION:
        where = f", at offset {offset}" if offset >= 0 else ""
        wrong, mark, way = what.partition("; ")
        if wrong == "not a regular file":
            wrong = not_regular(path) or wrong
        return errors.IncompatibleStoreError(f"{path}: {wrong}{values}{where}{mark}{way}")
    if status == E_LOCKED:
        owner = ""
        if failure != NULL and failure.actual > 1:
            owner = f" by process {failure.actual}"
        return errors.StoreLockedError(f"{path}: {what}{owner}")
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
    """Error of a lookup while dispatch is stalled for lack of space or memory."""
    cdef int64_t stalled = atomic_get(&store.dispatch.stalled)
    cdef int64_t behind = atomic_get(&store.log.wrote) - atomic_get(&store.dispatch.dispatched)
    path = os_path.join(root, fsdecode(dispatch_refused(store)))
    what = f"the dispatch to queues and index is {behind} bytes behind the log"
    if -4096 < stalled < 0:
        return OSError(-stalled, f"{what}: {strerror(-stalled)}", path)
    return errors.StoreError(f"{path}: {what}: no memory")


cdef int64_t check(int64_t status, Failure *failure, str root) except? -1:
    """``status`` if it is 0 or more, else raise."""
    if status >= 0:
        return status
    raise status_error(status, failure, root)


cdef object log_path(str root, const FileSet *log, int64_t place):
    """Path of one of the log's directories."""
    return os_path.join(root, fsdecode(set_directory(log, place)))


cdef object corrupt_record(str root, FileSet *log, int64_t offset, int64_t field):
    """Error of a bad log record, with its file and offset."""
    cdef int64_t start
    if offset < 0:
        return errors.StoreCorruptError(
            os_path.join(root, "index"), -1, "a chain does not lead to older entries")
    start = offset - offset % log.file_size
    path = os_path.join(log_path(root, log, set_place_of(log, offset)), f"{start:020d}")
    return errors.StoreCorruptError(
        path, offset, record_field_name(field).decode("ascii"))


cdef object corrupt_unit(str root, const FileSet *files, int64_t at, int64_t field):
    """Error of an invalid unit at byte ``at`` of its queue, or of its missing file."""
    cdef int64_t start = at - at % files.file_size
    return errors.StoreCorruptError(
        os_path.join(root, fsdecode(files.directory), f"{start:020d}"), at - start,
        record_field_name(field).decode("ascii"))


cdef object text_of(const char *data, int64_t length):
    """Text as Java decodes it: U+FFFD for malformed UTF-8."""
    cdef char copy[SHORT_TEXT]               # mapped bytes may change after a check
    if 1 < length <= SHORT_TEXT:
        memcpy(copy, data, <size_t>length)
        if bytes_are_ascii(copy, length):
            text = PyUnicode_New(length, 127)
            memcpy(PyUnicode_DATA(text), copy, <size_t>length)
            return text
    return PyUnicode_DecodeUTF8(data, length, b"rmqstore.java")


cdef inline bint bytes_are_ascii(const char *data, int64_t length) noexcept nogil:
    cdef uint64_t eight = 0
    cdef uint64_t seen = 0
    while length >= 8:
        memcpy(&eight, data, 8)
        seen |= eight
        data += 8
        length -= 8
    eight = 0
    memcpy(&eight, data, <size_t>length)
    return ((seen | eight) & <uint64_t>0x8080808080808080) == 0


def _replace_as_java(error):
    """One U+FFFD for a malformed part, and one for a surrogate, even an incomplete one."""
    cdef bytes data = error.object
    start = error.start
    part = data[start:start + 3]
    if len(part) >= 2 and part[0] == 0xED and 0xA0 <= part[1] <= 0xBF:
        return "\ufffd", start + (3 if len(part) == 3 and 0x80 <= part[2] <= 0xBF else 2)
    return "\ufffd", error.end


cdef object disk_use_error(Store *store, str path):
    """Error of a message refused for disk use."""
    cdef int64_t room = 0
    cdef int64_t percent = log_disk_use(store, &room)
    cdef str directory = "commitlog"
    limit = store.settings.disk_warning_ratio or DISK_WARNING
    if not disk_use_is_too_much(store, percent, room):
        directory = "consumequeue"
        percent = queues_disk_use(store, &room)
    return errors.PutError(
        f"{os_path.join(path, directory)}: {percent} % of its disk are used, more than {limit} %: "
        "no message is taken until there is room",
        status=types.PutStatus.DISK_FULL, errno=ENOSPC)


cdef object write_error(Store *store, str path, int64_t status):
    """Exception for a failed append."""
    cdef int64_t stalled
    if status == E_DISK_USE:
        return disk_use_error(store, path)
    if status == E_STALLED:
        stalled = atomic_get(&store.dispatch.stalled)
        if stalled == 0:
            stalled = -ENOSPC
        return errors.PutError(
            f"{os_path.join(path, fsdecode(dispatch_refused(store)))}: consume queues and index "
            "cannot be written: "
            f"{strerror(-stalled) if stalled > -4096 else 'no memory'}: puts go on once they can",
            status=types.PutStatus.DISK_FULL, errno=-stalled if stalled > -4096 else None)
    if lacks_space(status):
        return errors.PutError(
            f"{log_path(path, &store.log, 0)}: the commit log cannot grow: {strerror(-status)}: "
            "free room and put again",
            status=types.PutStatus.DISK_FULL, errno=-status)
    if status == E_FAILED:
        return status_error(status, &store.failure, path)
    if status == E_TOO_LARGE:
        return errors.MessageIllegalError(
            f"the records take more than a commit log file of {store.log.file_size} bytes",
            status=types.PutStatus.MESSAGE_ILLEGAL)
    if status == E_LIGHT_LIMIT:
        return errors.PutError(
            f"{path}: there are {atomic_get(&store.table.light_queues)} light queues, of at most "
            f"{store.settings.max_light_queues}: raise max_lmq_consume_queue_num",
            status=types.PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED)
    if status == E_PROPERTIES:
        return errors.MessageIllegalError(
            "the properties take more bytes, with the offsets in further queues, than the "
            f"{PROPERTIES_MAX_BYTES} that a record can have",
            status=types.PutStatus.PROPERTIES_SIZE_EXCEEDED)
    if status == E_MESSAGE_SIZE:
        return errors.MessageIllegalError(
            "the record takes more bytes, with the offsets in further queues, than the "
            f"{store.settings.max_message_size} of max_message_size",
            status=types.PutStatus.MESSAGE_ILLEGAL)
    if -4096 < status < 0:
        return errors.PutError(
            f"{log_path(path, &store.log, 0)}: no new commit log file: {strerror(-status)}",
            status=types.PutStatus.CREATE_MAPEDFILE_FAILED, errno=-status)
    return status_error(status, NULL, path)


cdef inline int store_puttable(Store *store, str path) except -1:
    """As store_writable, for a call that stores messages: not while dispatch is stalled."""
    store_writable(store, path)
    if unlikely(atomic_get(&store.dispatch.stalled) != 0):
        try:                                 # the error names a queue, which a close frees
            raise write_error(store, path, E_STALLED)
        finally:
            store_leave(store)
    return 0


cdef inline int store_writable(Store *store, str path) except -1:
    """Enter a call that writes; balanced by store_leave."""
    cdef int64_t rc
    if store == NULL:
        raise errors.StoreClosedError(f"{path}: the store is closed")
    rc = store_enter(store)
    if rc < 0:
        raise status_error(rc, NULL, path)
    if not store.writable:
        store_leave(store)
        raise errors.ReadOnlyStoreError(f"{path}: opened with mode 'r'; 'r+' writes")
    if unlikely(atomic_get(&store.failed) != 0):
        store_leave(store)
        raise write_error(store, path, E_FAILED)
    return 0
