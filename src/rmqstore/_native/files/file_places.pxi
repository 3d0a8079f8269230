# Files of one log or one queue, and their directories: one below the root, or, for a log, several
# anywhere.
#
# A log directory is opened once by its configured path; its files are reached through that
# descriptor.  New files go to the directories in turn, by file number, except to read-only
# directories, and to full ones while another has room.  Files are ordered by name, as in 4.9.3.
#
# Source: store/MultiPathMappedFileQueue.java

cdef enum:
    PLACES_MAX = 64

cdef struct Place:
    int fd                   # of the directory
    bint read_only           # no file is created in it
    atomic_i64 full          # no file is created in it while another has room: its disk was full,
    atomic_i64 too_full      # or is above the watermark
    char *path               # absolute, for errors

cdef struct Places:
    int64_t count
    Place items[PLACES_MAX]


cdef enum:
    DIRECTORY_BYTES = 288        # consumequeue/<topic of 255>/<queue id> takes 280
    RECOVERING_FILES = 32        # files of a set that keep a descriptor during recovery

# A file entered as open; ``set`` NULL: none.
cdef struct OpenEntry:
    FileSet *set
    int64_t start


cdef struct FileSlot:
    int64_t start            # offset of the first byte, from the name
    int64_t length           # bytes, when last listed
    MappedFile *file         # NULL: not open
    const OpenEntry *entry   # of the open file; another entry of the same file is an earlier one
    int64_t opened           # times opened and left with a descriptor
    int64_t place            # index of its directory in the set; 0 if there is one


cdef struct FileSet:
    Lock lock                # guards slots, count, capacity, listed_at
    int root                 # descriptor of the directory that contains ``directory``
    char directory[DIRECTORY_BYTES]
    Places *places           # further directories, or NULL: ``directory`` below ``root``
    int64_t file_size
    int64_t window           # bytes reserved at a time ahead of the writer
    bint writable
    bint keep_made           # a new file keeps its descriptor, to reserve blocks
    bint keep_opened         # an opened file keeps its descriptor while held
    bint aligned             # ignore files whose name is not a multiple of the size
    bint unclean             # names of the files may not be durable yet
    bint of_queue            # one set of thousands; an empty file is recreated, wherever it is
    bint broken              # "r": a listing met a dangling link
    bint refused             # a file could not be opened,
    int64_t refused_start    # the last one
    FileSlot *slots
    int64_t count
    int64_t capacity
    atomic_i64 listed_at     # monotonic ns of the last listing
    atomic_i64 wrote         # end of written bytes; stored only after the bytes before it
    atomic_i64 flushed       # end of durable bytes
    OpenFiles *open_files    # NULL: no limit


# Open files of a store, bounded so that thousands of queues do not exhaust descriptors or maps:
# the file entered longest ago is closed for the next.  Never entered are the last file of a written
# set, as its writer has a pointer to it, and a file that is not yet flushed: the kernel reports a
# failed sync only to descriptors open at that time.  Each is entered once neither applies.
cdef struct OpenFiles:
    Lock lock
    OpenEntry *entries
    int64_t limit
    int64_t next
    OpenFiles *unmapped          # for files that keep a descriptor; NULL: this table


cdef void places_close(Places *places) noexcept nogil:
    cdef int64_t i
    if places == NULL:
        return
    for i in range(places.count):
        close(places.items[i].fd)
        free(places.items[i].path)
    free(places)


cdef inline int64_t set_place_count(const FileSet *files) noexcept nogil:
    return 1 if files.places == NULL else files.places.count


cdef inline const char *set_directory(const FileSet *files, int64_t place) noexcept nogil:
    """Path of one of a set's directories, below the root or absolute, for errors."""
    if files.places == NULL:
        return files.directory
    return files.places.items[place].path


cdef int64_t set_open_directory(const FileSet *files, int64_t place) noexcept nogil:
    """Open one of a set's directories."""
    if files.places == NULL:
        return sys_open_directory(files.root, files.directory)
    return sys_open_directory(files.places.items[place].fd, ".")


cdef int64_t set_open_file(
    const FileSet *files, int64_t place, int64_t start, int flags, stat_t *status,
) noexcept nogil:
    """Open the file that begins at ``start`` in a directory."""
    cdef char path[FAILURE_PATH_BYTES]
    if files.places == NULL:
        file_name(path, files.directory, start)
        return sys_open_file(files.root, path, flags, status)
    file_name(path, "", start)
    return sys_open_file(files.places.items[place].fd, path, flags, status)


cdef int64_t set_open_to_use(
    const FileSet *files, int64_t place, int64_t start, stat_t *status, bint *read_only,
) noexcept nogil:
    """As set_open_file, for writing if the set is written.

    Read only if its directory is, and on a disk that refuses writes: ``read_only`` is then set.
    """
    cdef int64_t fd = set_open_file(
        files, place, start, O_RDWR if files.writable else O_RDONLY, status)
    read_only[0] = not files.writable
    if (fd == -EROFS or fd == -EACCES or fd == -EPERM) and files.writable \
            and set_is_read_only(files, place):
        read_only[0] = True
        fd = set_open_file(files, place, start, O_RDONLY, status)
    return fd


cdef inline bint set_is_read_only(const FileSet *files, int64_t place) noexcept nogil:
    return files.places != NULL and files.places.items[place].read_only


cdef inline bint place_is_full(const Place *place) noexcept nogil:
    return atomic_get(&place.full) != 0 or atomic_get(&place.too_full) != 0


cdef int64_t set_place_for(const FileSet *files, int64_t start, int64_t turn) noexcept nogil:
    """Directory for a new file, after ``turn`` others that had no room; -ENOSPC: none left.

    By file number over the directories with room, or, if all are full, over all written ones.
    """
    cdef int64_t usable[PLACES_MAX]
    cdef int64_t i, pass_over
    cdef int64_t count = 0
    if files.places == NULL:
        return 0 if turn == 0 else -ENOSPC
    for pass_over in range(2):
        for i in range(files.places.count if count == 0 else 0):
            if not files.places.items[i].read_only \
                    and (pass_over or not place_is_full(&files.places.items[i])):
                usable[count] = i
                count += 1
    if turn >= count:
        return -ENOSPC
    return usable[(start // files.file_size + turn) % count]


cdef void file_name(char *into, const char *directory, int64_t start) noexcept nogil:
    """Path of a file; ``into`` has room for FAILURE_PATH_BYTES."""
    if directory[0]:
        snprintf(into, FAILURE_PATH_BYTES, "%s/%020lld", directory, <long long>start)
    else:
        snprintf(into, FAILURE_PATH_BYTES, "%020lld", <long long>start)


cdef void set_file_name(
    char *into, const FileSet *files, int64_t place, int64_t start,
) noexcept nogil:
    """Path of a file, below the root or absolute; ``into`` has FAILURE_PATH_BYTES."""
    file_name(into, set_directory(files, place), start)


cdef int64_t set_place_of(FileSet *files, int64_t at) noexcept nogil:
    """Directory of the file with byte ``at``, for errors; 0 without a file."""
    cdef int64_t i
    cdef int64_t place = 0
    if files.places != NULL:
        lock_take(&files.lock)
        for i in range(files.count):
            if files.slots[i].start <= at:
                place = files.slots[i].place
        lock_give(&files.lock)
    return place


cdef int64_t fail_in_file(
    Failure *failure, int64_t status, FileSet *files, int64_t at, const char *what,
) noexcept nogil:
    """As fail, naming the file with byte ``at`` of a set."""
    cdef char path[FAILURE_PATH_BYTES]
    set_file_name(path, files, set_place_of(files, at), at - at % files.file_size)
    return fail(failure, status, path, what, at, 0, 0)


cdef int64_t fail_in_set(
    Failure *failure, int64_t status, FileSet *files, const char *what,
) noexcept nogil:
    """As fail, naming the file of a set that failed to open, else its directory."""
    cdef char path[FAILURE_PATH_BYTES]
    if not files.refused:
        return fail(failure, status, set_directory(files, 0), what, -1, 0, 0)
    set_file_name(path, files, set_place_of(files, files.refused_start), files.refused_start)
    return fail(failure, status, path, what, -1, 0, 0)
