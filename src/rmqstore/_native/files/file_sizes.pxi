# File size of a set: inferred, compared with the configuration; short files completed.
#
# Source: store/MappedFileQueue.java doLoad

cdef enum:
    TELL_CANDIDATES = 16


cdef int64_t file_set_infer_size(FileSet *files, int64_t unit, int64_t least) noexcept nogil:
    """Infer the file size, a multiple of ``unit``; 0: unknown.

    Each length and each distance between two names is a vote; a size that most distances contradict
    never wins, so a single file of a wrong length changes nothing.  Files below ``least``, the
    smallest configurable size, are short and have no vote.
    """
    cdef int64_t candidates[TELL_CANDIDATES]
    cdef int64_t count = 0
    cdef int64_t most = 0
    cdef int64_t size = 0
    cdef int64_t i, k, value, votes
    for i in range(2 * files.count - 1 if files.count else 0):   # distances before lengths
        if i < files.count - 1:
            value = files.slots[i + 1].start - files.slots[i].start
        else:
            value = files.slots[i - files.count + 1].length
        if value < least or value > START_MARGIN or value % unit or count == TELL_CANDIDATES:
            continue
        k = 0
        while k < count and candidates[k] != value:
            k += 1
        if k < count:
            continue
        candidates[count] = value
        count += 1
        votes = file_set_size_votes(files, value)
        if votes > most:
            most = votes
            size = value
    for i in range(files.count if size == 0 else 0):
        value = files.slots[i].length
        size = max(size, value - value % unit if least <= value <= START_MARGIN else 0)
    return size


cdef int64_t file_set_size_votes(FileSet *files, int64_t size) noexcept nogil:
    """Number of file lengths and name distances equal to a size."""
    cdef int64_t votes = 0, fitting = 0
    cdef int64_t i, distance
    for i in range(files.count):
        votes += files.slots[i].length == size
        if i:
            distance = files.slots[i].start - files.slots[i - 1].start
            votes += distance == size
            fitting += distance % size == 0
    return votes if 2 * fitting >= files.count - 1 else 0


cdef const char *SIZE_WAY = "name the right size in config=, or none: then it is inferred"


cdef int64_t file_set_check_size(
    FileSet *files, int64_t unit, int64_t agreed, int64_t configured, const char *field,
    Failure *failure,
) noexcept nogil:
    """Refuse a configured size if a file has the size ``agreed`` on by the files; 0 or a status.

    The files are right: a broker does not load a set rewritten at another size.
    """
    cdef char path[FAILURE_PATH_BYTES]
    cdef char what[FAILURE_WHAT_BYTES]
    cdef int64_t i
    if agreed <= 0 or agreed == configured or agreed % unit:
        return 0
    for i in range(files.count):
        if files.slots[i].length == agreed:
            set_file_name(path, files, files.slots[i].place, files.slots[i].start)
            snprintf(what, FAILURE_WHAT_BYTES, "the size is not the configured one, %s; %s", field,
                     SIZE_WAY)
            return fail(failure, E_INCOMPATIBLE, path, what, -1, agreed, configured)
    return 0


cdef void file_set_align(FileSet *files, int64_t file_size) noexcept nogil:
    """Set the file size; read-only mode ignores files whose name is not a multiple."""
    cdef int64_t i
    cdef int64_t kept = 0
    lock_take(&files.lock)
    files.file_size = file_size
    files.aligned = not files.writable
    for i in range(files.count if files.aligned else 0):
        if files.slots[i].start % file_size == 0:
            files.slots[kept] = files.slots[i]
            kept += 1
        else:
            mapped_file_release(files.slots[i].file)
    if files.aligned:
        files.count = kept
    lock_give(&files.lock)


# Treatment of a short file that may be completed.
cdef enum:
    LENGTHS_CHECKED              # count it
    LENGTHS_COMPLETED            # give it its full length


cdef int64_t file_set_validate(FileSet *files, int lengths, Failure *failure) noexcept nogil:
    """Check before writing that every file has the right size and none is missing.

    Returns the number of short files at the end, which LENGTHS_COMPLETED completes.  A queue is
    rebuilt from the log: any of its files may be short, and missing ones count too.
    """
    cdef char path[FAILURE_PATH_BYTES]
    cdef FileSlot *slot
    cdef int64_t i, rc
    cdef int64_t short_files = 0
    cdef int64_t used = file_set_used_files(files)
    for i in range(files.count):
        slot = &files.slots[i]
        set_file_name(path, files, slot.place, slot.start)
        if slot.start % files.file_size:
            return fail(failure, E_INCOMPATIBLE, path,
                        "the name is no multiple of the file size; move it out of the directory",
                        -1, slot.start, files.file_size)
        if i and files.of_queue and slot.start > files.slots[i - 1].start:
            short_files += slot.start != files.slots[i - 1].start + files.file_size
        elif i and slot.start != files.slots[i - 1].start + files.file_size:
            return fail(failure, E_INCOMPATIBLE, path,
                        "does not follow the file before it: one is missing or overlaps; put the "
                        "missing one back from a copy: what is there can be read without it",
                        -1, slot.start, files.slots[i - 1].start + files.file_size)
        if slot.length == files.file_size:
            continue
        if slot.length > files.file_size or (i < used - 1 and not files.of_queue):
            return fail(failure, E_INCOMPATIBLE, path, other_size_text(slot, files.file_size), -1,
                        slot.length, files.file_size)
        short_files += 1
        if lengths == LENGTHS_COMPLETED:
            rc = file_set_complete(files, slot)
            if rc < 0:
                return fail(failure, rc, path, "a short file cannot be completed", -1, 0, 0)
    return short_files


cdef const char *other_size_text(const FileSlot *slot, int64_t file_size) noexcept nogil:
    """Text of the refusal of a file whose size differs from the rest, with the remedy."""
    if slot.length > file_size:
        return "the size is not the configured one, or the other files'; save it, and cut what " \
            "is too much"
    return "the size is not the configured one, or the other files'; put a whole copy of it " \
        "back: the rest can be read without it"


cdef int64_t file_set_used_files(FileSet *files) noexcept nogil:
    """Number of files up to the last nonempty one.

    A broker creates two log files ahead, and a power cut may leave just their names.
    """
    cdef int64_t used = files.count
    while used > 1 and files.slots[used - 1].length == 0:
        used -= 1
    return used


cdef int64_t file_set_complete(FileSet *files, FileSlot *slot) noexcept nogil:
    """Extend a short file to its full length, durably."""
    cdef stat_t status
    cdef int64_t rc
    cdef int64_t fd = set_open_file(files, slot.place, slot.start, O_RDWR, &status)
    if fd < 0:
        return fd
    rc = sys_truncate(<int>fd, files.file_size)
    if rc == 0:
        rc = sys_sync(<int>fd)
    close(<int>fd)
    if rc == 0:
        slot.length = files.file_size
    return rc
