"""Status codes of the C layer and the note a failure leaves for the Python layer.

Return values: 0 or more is success (a count or an offset), -1 to -4095 is ``-errno``,
below that one of these.
"""
from libc.stdint cimport int64_t
from libc.string cimport memcpy, strlen


cdef enum:
    E_CORRUPT = -5001        # bytes that contradict themselves
    E_CLOSED = -5002         # the store is closed
    E_FORKED = -5003         # the store belongs to the parent process
    E_FAILED = -5004         # an earlier sync failed; nothing is acknowledged any more
    E_READ_ONLY = -5005      # opened with "r"
    E_ROLL = -5006           # no room left in this log file
    E_RESERVE = -5007        # room, but without blocks on the disk yet
    E_BUSY = -5008           # the lock is held by another thread
    E_NOT_FOUND = -5009      # no such topic, queue, unit or record
    E_TOO_LARGE = -5010      # a record that no file can hold
    E_INCOMPATIBLE = -5011   # a file of another size or name than the configuration says
    E_LOCKED = -5012         # another process owns the store
    E_TIMEOUT = -5013        # waited as long as was allowed
    E_FULL = -5014           # the index file holds all the entries it can
    E_UNKNOWN_TOPIC = -5015  # put to a topic that has to be made first
    E_REMOVED = -5016        # the record was removed by retention
    E_NO_MEMORY = -5017
    E_STALLED = -5018        # dispatch waits for disk space
    E_VERSION = -5019        # written by a newer format
    E_LOST = -5030           # mapped bytes that the file or the disk no longer has


cdef enum:
    FAILURE_PATH_BYTES = 256
    FAILURE_WHAT_BYTES = 256


cdef struct Failure:
    int64_t status           # 0: none
    int64_t offset           # where in the file or the log, -1: nowhere
    int64_t actual
    int64_t expected
    char path[FAILURE_PATH_BYTES]    # below the store's root
    char what[FAILURE_WHAT_BYTES]


cdef inline void copy_text(char *into, int64_t room, const char *text) noexcept nogil:
    """Copy a C string, cut to ``room`` bytes with its end."""
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
