# A directory of numbered files: names, gaps, foreign files.
#
# Source: store/MappedFileQueue.java load, doLoad

cdef enum:
    START_MARGIN = 0x7FFFFFFF    # no file is larger
    LIST_AGAIN_MAX = 3           # re-reads of a directory with a gap


cdef int64_t offset_name(const char *name) noexcept nogil:
    """The offset in a file name of 20 digits, or E_INCOMPATIBLE."""
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
    """List the directories again: enter new files, drop removed ones; the number of files.

    A written set refuses foreign files; read-only mode ignores them.

    Listing is not atomic: while an owner removes and creates files, it may show a gap that never
    was.  So a reader that sees a gap lists again until two listings agree, under the lock.
    """
    cdef DIR *directories[PLACES_MAX]
    cdef int64_t index, fd, first, stop, count
    cdef int64_t place = 0
    cdef int64_t again = 0
    cdef int64_t rc = 0
    while place < set_place_count(files) and rc == 0:
        directories[place] = NULL
        fd = set_open_directory(files, place)
        if fd >= 0:
            directories[place] = fdopendir(<int>fd)
        if fd < 0:
            rc = fail(failure, fd, set_directory(files, place), "the directory cannot be opened",
                      -1, 0, 0)
        elif directories[place] == NULL:
            close(<int>fd)
            rc = fail(failure, E_NO_MEMORY, set_directory(files, place), "no memory", -1, 0, 0)
        else:
            place += 1
    if rc == 0:
        lock_take(&files.lock)
        rc = file_set_list_open(files, directories, place, failure)
        while again < LIST_AGAIN_MAX and rc > 0 and not files.writable and file_set_has_gap(files):
            again += 1
            first = files.slots[0].start
            stop = files.slots[rc - 1].start
            count = rc
            rc = file_set_list_open(files, directories, place, failure)
            if rc == count and first == files.slots[0].start and stop == files.slots[rc - 1].start:
                break
        atomic_set(&files.listed_at, monotonic_ns())
        lock_give(&files.lock)
    for index in range(place):
        closedir(directories[index])
    return rc


cdef bint file_set_has_gap(const FileSet *files) noexcept nogil:
    """Whether a file is missing between two others.  Under the lock."""
    cdef int64_t i
    for i in range(1, files.count):
        if files.slots[i].start - files.slots[i - 1].start != files.file_size:
            return True
    return False


cdef int64_t file_set_list_open(
    FileSet *files, DIR **directories, int64_t places, Failure *failure,
) noexcept nogil:
    """As file_set_list, once, from open directories.  Under the lock."""
    cdef int64_t index
    cdef int64_t kept = 0
    cdef int64_t rc = 0
    for index in range(files.count):
        files.slots[index].length = -1       # until seen again
    for index in range(places):
        rewinddir(directories[index])
        rc = file_set_list_place(files, index, directories[index], failure) if rc >= 0 else rc
    for index in range(files.count):
        if files.slots[index].length < 0:
            mapped_file_release(files.slots[index].file)
        else:
            files.slots[kept] = files.slots[index]
            kept += 1
    files.count = kept
    return rc if rc < 0 else kept


cdef int64_t file_set_list_place(
    FileSet *files, int64_t place, DIR *directory, Failure *failure,
) noexcept nogil:
    """Enter the files of one directory.  Under the lock.

    Opening refuses the same name in two directories: either file may be the log's.
    """
    cdef char path[FAILURE_PATH_BYTES + NAME_ROOM]
    cdef stat_t status
    cdef dirent *entry
    cdef int64_t start, index
    cdef int64_t rc = 0
    cdef int fd = dirfd(directory)
    while rc >= 0:
        entry = readdir(directory)
        if entry == NULL:
            break
        if entry.d_name[0] == 46 and (entry.d_name[1] == 0 or
                                      (entry.d_name[1] == 46 and entry.d_name[2] == 0)):
            continue
        start = offset_name(entry.d_name)
        if start > INT64_MOST - START_MARGIN:
            start = E_INCOMPATIBLE           # offset arithmetic would overflow
        if files.aligned and start % files.file_size:
            continue
        if start < 0:
            if files.writable:
                snprintf(path, sizeof(path), "%s/%s", set_directory(files, place),
                         <char *>entry.d_name)
                rc = fail(failure, E_INCOMPATIBLE, path, foreign_name_text(entry.d_name), -1, 0, 0)
            continue
        if fstatat(fd, entry.d_name, &status, 0) != 0:
            files.broken = files.broken or sys_is_broken_link(fd, entry.d_name)
            if files.writable and files.broken:
                rc = fail_broken_link(failure, set_directory(files, place), entry.d_name)
            continue                         # or removed since it was listed
        if not S_ISREG(status.st_mode):
            if files.writable:
                snprintf(path, sizeof(path), "%s/%s", set_directory(files, place),
                         <char *>entry.d_name)
                rc = fail(failure, E_INCOMPATIBLE, path,
                          "not a regular file; move it out of the directory", -1, 0, 0)
            continue
        index = file_set_index_of(files, start)
        if index < 0:
            index = file_set_insert(files, start, status.st_size)
            rc = index if index < 0 else rc
            if index >= 0:
                files.slots[index].place = place
        elif files.slots[index].length < 0:
            if files.slots[index].place != place:    # moved from one directory to another
                mapped_file_release(files.slots[index].file)
                files.slots[index].file = NULL
            files.slots[index].place = place
            files.slots[index].length = status.st_size
            file_slot_check(files, index, &status)
        elif failure != NULL:
            file_name(path, set_directory(files, files.slots[index].place), start)
            rc = fail_twice(failure, path, set_directory(files, place))
    return rc


cdef int64_t fail_broken_link(
    Failure *failure, const char *directory, const char *name,
) noexcept nogil:
    """Refuse a dangling link: its target may be on a disk that is not mounted."""
    cdef char path[FAILURE_PATH_BYTES + NAME_ROOM]
    snprintf(path, sizeof(path), "%s/%s", directory, name)
    return fail(failure, E_INCOMPATIBLE, path, "a link that leads nowhere", -1, 0, 0)


cdef int64_t fail_if_broken(int root, const char *path, Failure *failure) noexcept nogil:
    """Refuse a path with a dangling link on the way; 0 without one."""
    cdef char part[FAILURE_PATH_BYTES]
    cdef int64_t i = 0
    cdef int64_t length = <int64_t>strlen(path)
    copy_text(part, FAILURE_PATH_BYTES, path)
    while i <= length and i < FAILURE_PATH_BYTES:
        if path[i] == 47 or path[i] == 0:
            part[i] = 0
            if sys_is_broken_link(root, part):
                return fail(failure, E_INCOMPATIBLE, part, "a link that leads nowhere", -1, 0, 0)
            part[i] = path[i]
        i += 1
    return 0


cdef const char *foreign_name_text(const char *name) noexcept nogil:
    """Text of the refusal of a name that is no mapped file's, with the remedy."""
    if strncmp(name, b".nfs", 4) == 0:
        return "a foreign file: a broker would not start; it goes once the process that has the " \
            "deleted file open ends"
    if strcmp(name, b"lost+found") == 0:
        return "a foreign file: a broker would not start; a disk's own directory: mount the disk " \
            "one level higher, or remove this"
    return "a foreign file: a broker would not start; move it out of the directory"


cdef int64_t fail_twice(
    Failure *failure, const char *path, const char *directory,
) noexcept nogil:
    """Refuse a file that is in another directory of the log too."""
    cdef char what[FAILURE_WHAT_BYTES]
    snprintf(what, FAILURE_WHAT_BYTES,
             "the log has this file twice: it is also in %.150s; 'rmqstore repair' moves away "
             "a copy without bytes of its own", directory)
    return fail(failure, E_INCOMPATIBLE, path, what, -1, 0, 0)


cdef void file_slot_check(FileSet *files, int64_t index, const stat_t *status) noexcept nogil:
    """"r": release an open file that was replaced or changed its length.  Under the lock.

    Its inode number is not reused while it is open.
    """
    cdef MappedFile *file = files.slots[index].file
    if file == NULL or files.writable or (
            file.device == status.st_dev and file.inode == status.st_ino
            and file.view.length == min(status.st_size, file.size)):
        return
    mapped_file_release(file)
    files.slots[index].file = NULL


cdef int64_t file_set_index_of(FileSet *files, int64_t start) noexcept nogil:
    """Index of the file that begins at exactly ``start``.  Under the lock."""
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


cdef void file_set_reopen(FileSet *files, int access) noexcept nogil:
    """Make each file reopen at its next use, for reading or writing; no file is in use."""
    cdef int64_t i
    lock_take(&files.lock)
    files.writable = access == READ_WRITE
    for i in range(files.count):
        mapped_file_release(files.slots[i].file)
        files.slots[i].file = NULL
    lock_give(&files.lock)


cdef int64_t file_set_start(FileSet *files) noexcept nogil:
    """First offset in any file; 0 without files."""
    cdef int64_t start = 0
    lock_take(&files.lock)
    if files.count:
        start = files.slots[0].start
    lock_give(&files.lock)
    return start


cdef int64_t file_set_count(FileSet *files) noexcept nogil:
    cdef int64_t count
    lock_take(&files.lock)
    count = files.count
    lock_give(&files.lock)
    return count


cdef int64_t file_set_start_of(FileSet *files, int64_t index) noexcept nogil:
    """First offset of file ``index``, or E_NOT_FOUND."""
    cdef int64_t start = E_NOT_FOUND
    lock_take(&files.lock)
    if index < files.count:
        start = files.slots[index].start
    lock_give(&files.lock)
    return start


cdef int64_t file_set_stop(FileSet *files) noexcept nogil:
    """Offset after the last file; 0 without files."""
    cdef int64_t stop = 0
    lock_take(&files.lock)
    if files.count:
        stop = files.slots[files.count - 1].start + files.file_size
    lock_give(&files.lock)
    return stop


cdef int64_t file_set_stop_below(FileSet *files, int64_t offset) noexcept nogil:
    """End of the last file that begins at or before ``offset``; 0 without one."""
    cdef int64_t i
    cdef int64_t stop = 0
    lock_take(&files.lock)
    for i in range(files.count - 1, -1, -1):
        if files.slots[i].start <= offset:
            stop = files.slots[i].start + files.file_size
            break
    lock_give(&files.lock)
    return stop


cdef int64_t file_set_next_start(FileSet *files, int64_t offset) noexcept nogil:
    """Start of the first file after ``offset``, or E_NOT_FOUND."""
    cdef int64_t i
    cdef int64_t found = E_NOT_FOUND
    lock_take(&files.lock)
    for i in range(files.count):
        if files.slots[i].start > offset:
            found = files.slots[i].start
            break
    lock_give(&files.lock)
    return found


cdef bint name_unreadable(FileSet *files, int64_t status, Failure *failure) noexcept nogil:
    """Note the directory or file that fails with ``status``; False: none."""
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
