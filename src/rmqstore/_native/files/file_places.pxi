# What is kept of the files of one log or one queue, and where they lie: in one directory below the
# root, or, of a log, in directories anywhere.
#
# A directory of its own is opened once, by the path that the configuration names, and every file
# in it is reached through that descriptor. New files go to the directories in turn, by the number
# of the file; not to one that is only read, and not to one whose disk is full while another has
# room. The order is that of the names, as 4.9.3 sorts them.
#
# Source: store/MultiPathMappedFileQueue.java

cdef enum:
    PLACES_MOST = 64

cdef struct Place:
    int fd                   # of the directory
    bint read_only           # no file is made in it
    atomic_i64 full          # no file is made in it while another place has room: so it was said,
    atomic_i64 too_full      # or its disk is above the watermark
    char *path               # absolute, for errors

cdef struct Places:
    int64_t count
    Place items[PLACES_MOST]


cdef enum:
    DIRECTORY_BYTES = 288        # consumequeue/<topic of 255>/<queue id> takes 280
    RECOVERING_FILES = 32        # files of a set that keep a descriptor during recovery

cdef struct FileSlot:
    int64_t start            # offset of the first byte, from the name
    int64_t length           # bytes, when last listed
    MappedFile *file         # NULL: not open
    int64_t opened           # times it was opened and kept its descriptor
    int64_t place            # which of the set's directories it lies in; 0 if it has but one


cdef struct FileSet:
    Lock lock                # guards slots, count, capacity, listed_at
    int root                 # descriptor of the directory that contains ``directory``
    char directory[DIRECTORY_BYTES]
    Places *places           # where else the files lie, or NULL: ``directory`` below ``root``
    int64_t file_size
    int64_t window           # bytes reserved at a time ahead of the writer
    bint writable
    bint keep_made           # a new file keeps its descriptor, to reserve more blocks
    bint keep_opened         # an opened file keeps its descriptor while anybody holds it
    bint aligned             # ignore files whose name is no multiple of the size
    bint unclean             # names of the files may not be on the disk yet
    bint of_queue            # of a store, of thousands: an empty file is made again, wherever it is
    bint broken              # "r": a file was a link that leads nowhere, at a listing
    bint refused             # a file could not be opened,
    int64_t refused_start    # the last time this one
    FileSlot *slots
    int64_t count
    int64_t capacity
    atomic_i64 listed_at     # monotonic ns of the last listing
    atomic_i64 wrote         # end of what is written; stored only after the bytes before it
    atomic_i64 flushed       # end of what is on the disk
    OpenFiles *open_files    # NULL: no limit


# Which files of a store are open, so that thousands of queues do not exhaust descriptors or maps:
# the file entered longest ago is closed for the next.  Never entered are the last file of a written
# set, as its writer has a pointer to it, and a file that is not yet flushed: the kernel reports a
# failed sync only to descriptors open at that time.  Each is entered once neither applies.
cdef struct OpenFiles:
    Lock lock
    FileSet **sets
    int64_t *starts
    int64_t limit
    int64_t next
    OpenFiles *unmapped          # where files that keep a descriptor instead go; NULL: here


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
    """The path of one of a set's directories, below the root or absolute, for errors."""
    if files.places == NULL:
        return files.directory
    return files.places.items[place].path


cdef int64_t set_open_directory(const FileSet *files, int64_t place) noexcept nogil:
    """A new descriptor of one of a set's directories."""
    if files.places == NULL:
        return sys_open_directory(files.root, files.directory)
    return sys_open_directory(files.places.items[place].fd, ".")


cdef int64_t set_open_file(
    const FileSet *files, int64_t place, int64_t start, int flags, stat_t *status,
) noexcept nogil:
    """A new descriptor of the file that begins at ``start``, which lies in that directory."""
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

    What lies in a directory that is only read may be on a disk that takes no writes; the caller
    then never writes to it.
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
    """The directory for a new file, or after ``turn`` others that had no room; -ENOSPC: no more.

    By the file's number over those that are not full; if all are, over all that are written.
    """
    cdef int64_t usable[PLACES_MOST]
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
    """The path of a file; ``into`` has room for FAILURE_PATH_BYTES."""
    if directory[0]:
        snprintf(into, FAILURE_PATH_BYTES, "%s/%020lld", directory, <long long>start)
    else:
        snprintf(into, FAILURE_PATH_BYTES, "%020lld", <long long>start)


cdef void set_file_name(
    char *into, const FileSet *files, int64_t place, int64_t start,
) noexcept nogil:
    """The path of a file, below the root or absolute; ``into`` has FAILURE_PATH_BYTES."""
    file_name(into, set_directory(files, place), start)


cdef int64_t set_place_of(FileSet *files, int64_t at) noexcept nogil:
    """The directory of the file that byte ``at`` lies in, for errors; 0 if it has no file."""
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
    """As fail, naming the file that byte ``at`` of a set lies in."""
    cdef char path[FAILURE_PATH_BYTES]
    set_file_name(path, files, set_place_of(files, at), at - at % files.file_size)
    return fail(failure, status, path, what, at, 0, 0)


cdef int64_t fail_in_set(
    Failure *failure, int64_t status, FileSet *files, const char *what,
) noexcept nogil:
    """As fail, naming the file of a set that could not be opened, else its directory."""
    cdef char path[FAILURE_PATH_BYTES]
    if not files.refused:
        return fail(failure, status, set_directory(files, 0), what, -1, 0, 0)
    set_file_name(path, files, set_place_of(files, files.refused_start), files.refused_start)
    return fail(failure, status, path, what, -1, 0, 0)
