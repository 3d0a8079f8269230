# Disk use: above a watermark puts are refused, which leaves room for the units of messages already
# stored and for other users of the disk.
#
# Source: store/DefaultMessageStore.java CleanCommitLogService isSpaceFull;
#         common/UtilAll.java getDiskPartitionSpaceUsedPercent

cdef enum:
    DISK_WARNING = 90            # percent, unless configured:
    DISK_ROOM = 64 << 20         # then enough if so much is left


cdef int64_t directory_disk_use(int64_t fd, int64_t *room) noexcept nogil:
    """Used percent of a directory's file system, 0 if unknown; closes ``fd``."""
    cdef int64_t rc
    room[0] = 0
    if fd < 0:
        return 0
    rc = sys_disk_use(<int>fd, room)
    close(<int>fd)
    return max(rc, 0)


cdef int64_t queues_disk_use(Store *store, int64_t *room) noexcept nogil:
    """Used percent of the queues' file system; 0 if unknown."""
    cdef int64_t percent = atomic_get(&store.disk.pretended_queues) - 1
    room[0] = 0
    if percent >= 0:
        return percent
    return directory_disk_use(sys_open_directory(store.root, "consumequeue"), room)


cdef bint disk_use_is_too_much(const Store *store, int64_t percent, int64_t room) noexcept nogil:
    if store.settings.disk_warning_ratio > 0:
        return percent > store.settings.disk_warning_ratio
    return percent > DISK_WARNING and room < DISK_ROOM


cdef int64_t log_disk_use(Store *store, int64_t *room) noexcept nogil:
    """Used percent of the log's file system, the least of several; marks the too full ones."""
    cdef int64_t place, percent, there
    cdef int64_t least = atomic_get(&store.disk.pretended_log) - 1
    room[0] = 0
    if least >= 0:
        return least
    for place in range(set_place_count(&store.log)):
        if set_is_read_only(&store.log, place):
            continue
        percent = directory_disk_use(set_open_directory(&store.log, place), &there)
        if store.log.places != NULL:
            atomic_set(&store.log.places.items[place].too_full,
                       disk_use_is_too_much(store, percent, there))
        if least < 0 or percent < least:
            least = percent
            room[0] = there
    return max(least, 0)


cdef int64_t disk_check(Store *store) noexcept nogil:
    """Check the disks of log and queues: 0, or E_DISK_USE while messages are refused.

    The queues' disk only against a configured watermark: a put without room for its unit fails
    anyway.
    """
    cdef int64_t room = 0
    cdef int64_t percent = log_disk_use(store, &room)
    cdef bint full = disk_use_is_too_much(store, percent, room)
    if not full and store.settings.disk_warning_ratio > 0:
        percent = queues_disk_use(store, &room)
        full = disk_use_is_too_much(store, percent, room)
    if full != (atomic_get(&store.disk.refuses) != 0):
        atomic_set(&store.disk.refuses, full)
    return E_DISK_USE if full else 0
