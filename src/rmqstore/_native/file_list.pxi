# What lies in a directory of numbered files: names, lengths, gaps, foreign files.
#
# Source: store/MappedFileQueue.java load, doLoad

cdef enum:
    START_MARGIN = 0x7FFFFFFF    # a file is no larger than that


cdef int64_t offset_name(const char *name) noexcept nogil:
    """The offset that a file name of 20 digits says, or E_INCOMPATIBLE."""
    cdef uint64_t value = 0
    cdef int64_t i
    for i in range(NAME_DIGITS):
        if name[i] < 48 or name[i] > 57:
            return E_INCOMPATIBLE
        if value > <uint64_t>INT64_MOST // 10:
            return E_INCOMPATIBLE
        value = value * 10 + <uint64_t>(name[i] - 48)
    if name[NAME_DIGITS] != 0 or value > <uint64_t>INT64_MOST:
        return E_INCOMPATIBLE
    return <int64_t>value


cdef int64_t file_set_list(FileSet *files, Failure *failure) noexcept nogil:
    """List the directory anew: files that came are entered, files that went are dropped.

    Returns the number of files.  A set that is written refuses a foreign file, one that is
    only read passes over it.
    """
    cdef char path[FAILURE_PATH_BYTES + NAME_ROOM]
    cdef stat_t status
    cdef DIR *directory
    cdef dirent *entry
    cdef int64_t fd, start, index
    cdef int64_t rc = 0
    cdef int64_t kept = 0
    fd = sys_open_directory(files.root, files.directory)
    if fd < 0:
        return fail(failure, fd, files.directory, "the directory cannot be opened", -1, 0, 0)
    directory = fdopendir(<int>fd)
    if directory == NULL:
        close(<int>fd)
        return fail(failure, E_NO_MEMORY, files.directory, "no memory", -1, 0, 0)
    pthread_mutex_lock(&files.mutex)
    for index in range(files.count):
        files.slots[index].length = -1       # until it is seen again
    while rc >= 0:
        entry = readdir(directory)
        if entry == NULL:
            break
        if entry.d_name[0] == 46 and (entry.d_name[1] == 0 or
                                      (entry.d_name[1] == 46 and entry.d_name[2] == 0)):
            continue
        start = offset_name(entry.d_name)
        if start > INT64_MOST - START_MARGIN:
            start = E_INCOMPATIBLE           # arithmetic on its offsets would overflow
        if files.aligned and start % files.file_size:
            continue
        if start < 0:
            if files.writable:
                snprintf(path, sizeof(path), "%s/%s", files.directory, <char *>entry.d_name)
                rc = fail(failure, E_INCOMPATIBLE, path,
                          "a foreign file: a broker would not start", -1, 0, 0)
            continue
        if fstatat(<int>fd, entry.d_name, &status, AT_SYMLINK_NOFOLLOW) != 0:
            continue                         # gone since it was listed
        if not S_ISREG(status.st_mode):
            if files.writable:
                snprintf(path, sizeof(path), "%s/%s", files.directory, <char *>entry.d_name)
                rc = fail(failure, E_INCOMPATIBLE, path, "not a regular file", -1, 0, 0)
            continue
        index = file_set_index_of(files, start)
        if index < 0:
            index = file_set_insert(files, start, status.st_size)
            rc = index if index < 0 else rc
        else:
            files.slots[index].length = status.st_size
            file_slot_check(files, index, &status)
    closedir(directory)
    for index in range(files.count):
        if files.slots[index].length < 0:
            mapped_file_release(files.slots[index].file)
        else:
            files.slots[kept] = files.slots[index]
            kept += 1
    files.count = kept
    atomic_set(&files.listed_at, monotonic_ns())
    pthread_mutex_unlock(&files.mutex)
    return rc if rc < 0 else kept


cdef void file_slot_check(FileSet *files, int64_t index, const stat_t *status) noexcept nogil:
    """Who only reads lets go of an open file whose name another one has by now.

    As long as it is open no other file has its inode number. Under the mutex.
    """
    cdef MappedFile *file = files.slots[index].file
    if file == NULL or files.writable or PLANTED("a16") or (
            file.device == status.st_dev and file.inode == status.st_ino):
        return
    mapped_file_release(file)
    files.slots[index].file = NULL


cdef int64_t file_set_index_of(FileSet *files, int64_t start) noexcept nogil:
    """Place of the file that starts exactly there.  Under the mutex."""
    cdef int64_t low = 0
    cdef int64_t high = files.count - 1
    cdef int64_t middle
    while low <= high:
        middle = (low + high) // 2
        if files.slots[middle].start == start:
            return middle
        if files.slots[middle].start < start:
            low = middle + 1
        else:
            high = middle - 1
    return E_NOT_FOUND


cdef enum:
    TELL_CANDIDATES = 16


cdef int64_t file_set_tell_size(FileSet *files, int64_t unit) noexcept nogil:
    """The size the files have, a multiple of ``unit``; 0 if nothing tells.

    Each length and each distance of two names has a voice, and no length that most distances
    contradict: one file that is too long or too short changes nothing.
    """
    cdef int64_t candidates[TELL_CANDIDATES]
    cdef int64_t count = 0
    cdef int64_t most = 0
    cdef int64_t size = 0
    cdef int64_t i, k, value, voices
    if PLANTED("a8"):
        for i in range(files.count):
            size = max(size, files.slots[i].length)
        return size
    for i in range(2 * files.count - 1 if files.count else 0):   # distances before lengths
        if i < files.count - 1:
            value = files.slots[i + 1].start - files.slots[i].start
        else:
            value = files.slots[i - files.count + 1].length
        if value <= 0 or value > START_MARGIN or value % unit or count == TELL_CANDIDATES:
            continue
        k = 0
        while k < count and candidates[k] != value:
            k += 1
        if k < count:
            continue
        candidates[count] = value
        count += 1
        voices = file_set_voices(files, value)
        if voices > most:
            most = voices
            size = value
    for i in range(files.count if size == 0 else 0):
        value = files.slots[i].length
        size = max(size, value - value % unit if value <= START_MARGIN else 0)
    return size


cdef int64_t file_set_voices(FileSet *files, int64_t size) noexcept nogil:
    """How many lengths and distances of names say that the files have this size."""
    cdef int64_t voices = 0
    cdef int64_t fitting = 0
    cdef int64_t i, distance
    for i in range(files.count):
        voices += files.slots[i].length == size
        if i:
            distance = files.slots[i].start - files.slots[i - 1].start
            voices += distance == size
            fitting += distance % size == 0
    return voices if 2 * fitting >= files.count - 1 else 0


cdef void file_set_reopen(FileSet *files, bint writable) noexcept nogil:
    """Have each file opened anew, to be read or to be written; nobody uses one of them."""
    cdef int64_t i
    pthread_mutex_lock(&files.mutex)
    files.writable = writable
    for i in range(files.count):
        mapped_file_release(files.slots[i].file)
        files.slots[i].file = NULL
    pthread_mutex_unlock(&files.mutex)


cdef void file_set_align(FileSet *files, int64_t file_size) noexcept nogil:
    """Set the size, as told; who only reads passes over files whose name is no multiple of it."""
    cdef int64_t i
    cdef int64_t kept = 0
    pthread_mutex_lock(&files.mutex)
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
    pthread_mutex_unlock(&files.mutex)


cdef int64_t file_set_validate(FileSet *files, bint complete, Failure *failure) noexcept nogil:
    """Before writing: every file has the size, none is missing.

    Short files that may be completed are, where ``complete`` is set.  Returns their number.
    """
    cdef char path[FAILURE_PATH_BYTES]
    cdef FileSlot *slot
    cdef int64_t i, rc
    cdef int64_t short_files = 0
    cdef int64_t used = file_set_used_files(files)
    for i in range(files.count):
        slot = &files.slots[i]
        file_name(path, files.directory, slot.start)
        if slot.start % files.file_size:
            return fail(failure, E_INCOMPATIBLE, path, "the name is no multiple of the file size",
                        -1, slot.start, files.file_size)
        if i and slot.start != files.slots[i - 1].start + files.file_size:
            return fail(failure, E_INCOMPATIBLE, path,
                        "does not follow the file before it: one is missing or overlaps",
                        -1, slot.start, files.slots[i - 1].start + files.file_size)
        if slot.length == files.file_size:
            continue
        # A queue's file that a cut left without a byte is made anew; what one of them lost in
        # the middle of its length was taken by somebody else.
        if slot.length > files.file_size or (
                i < used - 1 and not (files.derived and slot.length == 0)):
            return fail(failure, E_INCOMPATIBLE, path, "the size is not the configured one",
                        -1, slot.length, files.file_size)
        short_files += 1
        if complete:
            rc = file_set_complete(files, slot, path)
            if rc < 0:
                return fail(failure, rc, path, "a short file cannot be completed", -1, 0, 0)
    return short_files


cdef int64_t file_set_used_files(FileSet *files) noexcept nogil:
    """The number of files up to the last that has a length.

    A broker names two log files ahead, and a power cut may leave the names alone.
    """
    cdef int64_t used = files.count
    while used > 1 and files.slots[used - 1].length == 0:
        used -= 1
    return used


cdef int64_t file_set_complete(FileSet *files, FileSlot *slot, const char *path) noexcept nogil:
    """Give a short file its full length, durably."""
    cdef stat_t status
    cdef int64_t rc
    cdef int64_t fd = sys_open_file(files.root, path, O_RDWR, &status)
    if fd < 0:
        return fd
    rc = sys_truncate(<int>fd, files.file_size)
    if rc == 0:
        rc = sys_sync(<int>fd)
    close(<int>fd)
    if rc == 0:
        slot.length = files.file_size
    return rc


cdef int64_t file_set_start(FileSet *files) noexcept nogil:
    """First offset there is a file for; 0 without files."""
    cdef int64_t start = 0
    pthread_mutex_lock(&files.mutex)
    if files.count:
        start = files.slots[0].start
    pthread_mutex_unlock(&files.mutex)
    return start


cdef int64_t file_set_count(FileSet *files) noexcept nogil:
    cdef int64_t count
    pthread_mutex_lock(&files.mutex)
    count = files.count
    pthread_mutex_unlock(&files.mutex)
    return count


cdef int64_t file_set_start_of(FileSet *files, int64_t index) noexcept nogil:
    """First offset of the file with that number, or E_NOT_FOUND."""
    cdef int64_t start = E_NOT_FOUND
    pthread_mutex_lock(&files.mutex)
    if index < files.count:
        start = files.slots[index].start
    pthread_mutex_unlock(&files.mutex)
    return start


cdef int64_t file_set_stop(FileSet *files) noexcept nogil:
    """Offset after the last file; 0 without files."""
    cdef int64_t stop = 0
    pthread_mutex_lock(&files.mutex)
    if files.count:
        stop = files.slots[files.count - 1].start + files.file_size
    pthread_mutex_unlock(&files.mutex)
    return stop


cdef int64_t file_set_next_start(FileSet *files, int64_t offset) noexcept nogil:
    """Start of the first file after the one that has ``offset``, or E_NOT_FOUND."""
    cdef int64_t i
    cdef int64_t found = E_NOT_FOUND
    pthread_mutex_lock(&files.mutex)
    for i in range(files.count):
        if files.slots[i].start > offset:
            found = files.slots[i].start
            break
    pthread_mutex_unlock(&files.mutex)
    return found
