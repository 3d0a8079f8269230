"""Status codes of the C layer, and the failure record that the Python layer raises from.

Return values: 0 or more is success (a count or an offset), -1 to -4095 is ``-errno``, below are
these codes.
"""
from libc.errno cimport (
    EACCES, EDQUOT, EIO, ELOOP, EMFILE, ENFILE, ENOMEM, ENOSPC, ENOTDIR, EPERM,
)
from libc.stdint cimport int64_t
from libc.string cimport memcpy, strlen


cdef enum:
    E_CORRUPT = -5001        # bytes that contradict themselves
    E_CLOSED = -5002         # the store is closed
    E_FORKED = -5003         # the store belongs to the parent process
    E_FAILED = -5004         # an earlier sync failed; no more acknowledgements
    E_READ_ONLY = -5005      # opened with "r"
    E_ROLL = -5006           # no room left in this log file
    E_RESERVE = -5007        # room, but no blocks on the disk yet
    E_BUSY = -5008           # the lock is held by another thread
    E_NOT_FOUND = -5009      # no such topic, queue, unit or record
    E_TOO_LARGE = -5010      # a record too large for any file
    E_INCOMPATIBLE = -5011   # a file whose size or name contradicts the configuration
    E_LOCKED = -5012         # another process owns the store
    E_TIMEOUT = -5013        # the allowed time has passed
    E_FULL = -5014           # the index file has no free entry
    E_REMOVED = -5016        # the record was removed by retention
    E_NO_MEMORY = -5017
    E_STALLED = -5018        # dispatch waits for disk space
    E_VERSION = -5019        # written in a newer format
    E_NO_DESCRIPTOR = -5020  # no descriptor: unmapped bytes are read by the file's name
    E_PROPERTIES = -5021     # more bytes of properties than a record can have
    E_MESSAGE_SIZE = -5022   # a record of more than max_message_size
    E_LIGHT_LIMIT = -5023    # more light queues than max_lmq_consume_queue_num
    E_DISK_USE = -5024       # disk use is above the limit for taking messages
    E_LOST = -5030           # mapped bytes that the file or the disk no longer has


cdef enum:
    FAILURE_PATH_BYTES = 1024    # consumequeue/<topic of 255>/<queue id>/<20 digits> takes 301
    FAILURE_WHAT_BYTES = 256


cdef struct Failure:
    int64_t status           # 0: none
    int64_t offset           # where in the file or the log, -1: unknown
    int64_t actual
    int64_t expected
    char path[FAILURE_PATH_BYTES]    # below the store's root
    char what[FAILURE_WHAT_BYTES]


cdef inline void copy_text(char *into, int64_t room, const char *text) noexcept nogil:
    """Copy a C string, truncated to ``room`` bytes including its terminator."""
    cdef int64_t length = <int64_t>strlen(text)
    if length >= room:
        length = room - 1
    memcpy(into, text, <size_t>length)
    into[length] = 0


cdef inline int64_t fail(
    Failure *failure, int64_t status, const char *path, const char *what,
    int64_t offset, int64_t actual, int64_t expected,
) noexcept nogil:
    """Note the first failure and return its status."""
    if failure != NULL and failure.status == 0:
        failure.status = status
        failure.offset = offset
        failure.actual = actual
        failure.expected = expected
        copy_text(failure.path, FAILURE_PATH_BYTES, path)
        copy_text(failure.what, FAILURE_WHAT_BYTES, what)
    return status


cdef inline bint lacks_space(int64_t status) noexcept nogil:
    """Whether the disk or a quota is full."""
    return status == -ENOSPC or status == -EDQUOT


cdef inline int64_t sync_result(int64_t status) noexcept nogil:
    """Status of a sync: even a failure for lack of space is final, as bytes may be lost."""
    return -EIO if lacks_space(status) else status


cdef inline bint is_passing(int64_t status) noexcept nogil:
    """Whether an open failed for lack of descriptors or memory: no sync was attempted yet."""
    return status == -EMFILE or status == -ENFILE or status == -ENOMEM or status == E_NO_MEMORY


cdef inline bint is_unreadable(int64_t status) noexcept nogil:
    """Whether opening would fail again: neither a lack of descriptors nor a vanished file."""
    return status == -EACCES or status == -EPERM or status == -EIO or status == -ELOOP \
        or status == -ENOTDIR
