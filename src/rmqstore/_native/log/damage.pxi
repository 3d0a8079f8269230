# Damage found in the log on opening, and its repair.
#

cdef enum:
    QUARANTINE_NAME_BYTES = 48

    DAMAGE_TAIL = 1              # no good record follows, none was there: cut
    DAMAGE_LOST = 2              # never synced, and zeros, as a power cut leaves: filled
    DAMAGE_BYTES = 3             # anything else: refused, or filled on request


# Bytes of one log file that are no good record.
cdef struct Damage:
    int64_t start                # log offsets
    int64_t stop
    int64_t used                 # end of the bytes worth saving
    int64_t kind
    int64_t field                # the check that failed
    int64_t records              # number of records lost, -1: unknown
    int64_t checked              # good records of the scan before it
    bint tail                    # no good record follows
    bint repaired
    bint unnamed                 # "r": no units cover it
    char saved[QUARANTINE_NAME_BYTES]    # in rmqstore-quarantine/; empty: none


# Request for an opening, its findings and its repairs.
cdef struct Recovery:
    bint full                    # requested: examine the whole log
    bint fill                    # requested: fill damage that good records follow
    bint clean                   # the last owner closed the store: no `abort`
    Damage *damages
    int64_t damage_count
    int64_t damage_room
    int64_t examined_from        # every record from here on was examined before any change
    bint full_dispatch
    int64_t records_checked
    int64_t bytes_cut
    int64_t units_written
    int64_t queues_rebuilt
    int64_t index_files_rebuilt
    bint queue_size_taken        # the default: neither a file nor the configuration has a size
    bint index_size_taken
    int64_t index_set_aside      # index files moved to the quarantine
    int64_t checked_from
    int64_t seconds_ns
    bint completed_file
    bint changed                 # something was repaired already
    bint made_lock               # created by this opening
    bint made_abort
    bint idle                    # clean exit, confirmed: nothing was repaired
    int64_t end                  # of the log
    int64_t lost_from            # a closed store's log ends there, although ``lost_by`` names more
    int64_t lost_until           # end of the loss; 0: none
    char lost_by[FAILURE_PATH_BYTES]
    bint lacking                 # queues lack files or units of the watermark's digest
    FileSlot *left_out           # empty log files after a short or missing one
    int64_t left_out_count


cdef bint never_synced(const Recovery *recovery, int64_t offset) noexcept nogil:
    """Whether a power cut took the bytes at ``offset``: recovery replaces them with a filler."""
    cdef int64_t i
    for i in range(recovery.damage_count):
        if recovery.damages[i].kind == DAMAGE_LOST \
                and recovery.damages[i].start <= offset < recovery.damages[i].stop:
            return True
    return False


cdef int64_t behind_damage(
    const Recovery *recovery, int64_t at, int64_t *clear,
) noexcept nogil:
    """End of the damaged range with ``at``, or ``at``; none begins below ``clear``."""
    cdef const Damage *damage
    cdef int64_t i = 0
    if at < clear[0]:
        return at
    clear[0] = INT64_MOST
    while i < recovery.damage_count:
        damage = &recovery.damages[i]
        i += 1
        if damage.start <= at < damage.stop:
            at = damage.stop
            clear[0] = INT64_MOST
            i = 0                            # the next file may begin with damage
        elif damage.start > at:
            clear[0] = min(clear[0], damage.start)
    return at


cdef bint has_unnamed_damage(const Recovery *recovery, int64_t start, int64_t stop) noexcept nogil:
    """"r": whether a part of the log has damage that units do not cover."""
    cdef int64_t i
    for i in range(recovery.damage_count):
        if recovery.damages[i].unnamed and recovery.damages[i].start < stop \
                and start < recovery.damages[i].stop:
            return True
    return False


cdef bint has_damage(const Recovery *recovery, int64_t start, int64_t stop) noexcept nogil:
    """Whether damage was found on opening in a part of the log."""
    cdef int64_t i
    for i in range(recovery.damage_count):
        if recovery.damages[i].start < stop and start < recovery.damages[i].stop:
            return True
    return False


cdef bint is_reported_damage(const Recovery *recovery, int64_t offset) noexcept nogil:
    """Whether damage at ``offset`` was reported on opening, or is repaired by a recovery."""
    cdef const Damage *damage
    cdef int64_t i
    for i in range(recovery.damage_count):
        damage = &recovery.damages[i]
        if damage.start <= offset < damage.stop:
            return damage.unnamed or damage.kind != DAMAGE_BYTES
    return False


cdef bint unit_names_damage(const Recovery *recovery, const Unit *unit) noexcept nogil:
    """"r": whether a unit points into damage that its read must report.

    Only damage that a recovery refuses: torn tails and power-cut losses it mends silently.
    """
    cdef const Damage *damage
    cdef int64_t i
    for i in range(recovery.damage_count if unit.size > 0 else 0):
        damage = &recovery.damages[i]
        if damage.kind == DAMAGE_BYTES and not damage.tail \
                and damage.start <= unit.physical_offset \
                and unit.physical_offset <= damage.stop - unit.size:
            return True
    return False
