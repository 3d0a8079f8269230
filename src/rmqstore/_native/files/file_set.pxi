# Files of one log or one queue in order: find, open at first use, create the next, list.
#
# Files are opened and mapped at first use.  Readers take their holds under the set's lock; the set
# itself holds each open file once.
#
# Source: store/MappedFileQueue.java

cdef int64_t open_files_init(OpenFiles *table, int64_t limit) noexcept nogil:
    memset(table, 0, sizeof(OpenFiles))
    lock_init(&table.lock, LOCK_OPEN_FILES)
    table.limit = limit
    table.entries = <OpenEntry *>calloc(<size_t>limit, sizeof(OpenEntry))
    return E_NO_MEMORY if table.entries == NULL else 0


cdef void open_files_destroy(OpenFiles *table) noexcept nogil:
    free(table.entries)
    lock_destroy(&table.lock)


cdef inline bint file_slot_may_close(FileSet *files, int64_t index) noexcept nogil:
    """Whether a flushed file with a durable name may be closed.  Under the lock."""
    cdef FileSlot *slot = &files.slots[index]
    cdef int64_t wrote = atomic_get(&files.wrote)
    return not files.writable or (
        index < files.count - 1
        and atomic_get(&files.flushed) >= min(wrote, slot.start + files.file_size)
        and (slot.start < wrote or files.unclean or not atomic_get(&slot.file.name_dirty)))


cdef void open_files_note(OpenFiles *table, FileSet *files, int64_t index) noexcept nogil:
    """Enter an open file if it may be closed; close the oldest entry.  Under the set's lock."""
    cdef FileSet *other
    cdef OpenEntry *entry = NULL
    cdef int64_t start = files.slots[index].start
    cdef int64_t at
    cdef int64_t tries = 0
    if not file_slot_may_close(files, index):
        return
    lock_take(&table.lock)
    while tries < table.limit:
        tries += 1
        entry = &table.entries[table.next]
        table.next = (table.next + 1) % table.limit
        other = entry.set
        if other == NULL or (other == files and entry.start == start):
            break
        # Another set's lock may only be tried: its holder may be waiting for ours.
        if other == files or lock_try(&other.lock):
            at = file_set_find(other, entry.start)
            # A file opened again since has a later entry: closing it for this one, each opening
            # would close another open file, although there is room for all.
            if at >= 0 and other.slots[at].entry == entry and other.slots[at].file != NULL \
                    and file_slot_may_close(other, at):
                mapped_file_release(other.slots[at].file)
                other.slots[at].file = NULL
            if other != files:
                lock_give(&other.lock)
            break
    entry.set = files
    entry.start = start
    files.slots[index].entry = entry
    lock_give(&table.lock)


cdef void open_files_forget(OpenFiles *table, FileSet *files) noexcept nogil:
    """Drop a set's entries, before the set is freed."""
    cdef int64_t i
    lock_take(&table.lock)
    for i in range(table.limit):
        if table.entries[i].set == files:
            table.entries[i].set = NULL
    lock_give(&table.lock)
    if table.unmapped != NULL:
        open_files_forget(table.unmapped, files)


cdef void file_set_init(
    FileSet *files, int root, const char *directory, int64_t file_size, bint writable,
) noexcept nogil:
    memset(files, 0, sizeof(FileSet))
    lock_init(&files.lock, LOCK_FILES)
    files.root = root
    copy_text(files.directory, DIRECTORY_BYTES, directory)
    files.file_size = file_size
    files.writable = writable


cdef void file_set_clear(FileSet *files) noexcept nogil:
    """Drop every file of a removed directory.  A held file lives until its release."""
    cdef int64_t i
    lock_take(&files.lock)
    for i in range(files.count):
        mapped_file_release(files.slots[i].file)
    files.count = 0
    atomic_set(&files.listed_at, monotonic_ns())
    lock_give(&files.lock)


cdef void file_set_destroy(FileSet *files) noexcept nogil:
    cdef int64_t i
    if files.open_files != NULL:
        open_files_forget(files.open_files, files)
    for i in range(files.count):
        mapped_file_release(files.slots[i].file)
    free(files.slots)
    files.slots = NULL
    files.count = 0
    lock_destroy(&files.lock)


cdef int64_t file_set_insert(FileSet *files, int64_t start, int64_t length) noexcept nogil:
    """Enter a file in order; its index, or E_NO_MEMORY.  Under the lock or before sharing."""
    cdef FileSlot *grown
    cdef int64_t at = files.count
    grown = <FileSlot *>array_with_room(files.slots, &files.capacity, files.count, sizeof(FileSlot))
    if grown == NULL:
        return E_NO_MEMORY
    files.slots = grown
    while at > 0 and files.slots[at - 1].start > start:
        files.slots[at] = files.slots[at - 1]
        at -= 1
    files.slots[at].start = start
    files.slots[at].length = length
    files.slots[at].opened = 0
    files.slots[at].place = 0
    files.slots[at].file = NULL
    files.slots[at].entry = NULL
    files.count += 1
    return at


cdef int64_t file_set_find(FileSet *files, int64_t offset) noexcept nogil:
    """Index of the file that holds ``offset``, or E_NOT_FOUND.  Under the lock."""
    cdef int64_t low, high, middle
    if files.count == 0 or offset < files.slots[0].start:
        return E_NOT_FOUND
    low = (offset - files.slots[0].start) // files.file_size
    if low < files.count and files.slots[low].start <= offset \
            and offset - files.slots[low].start < files.file_size:
        return low
    low = 0                                  # there are gaps
    high = files.count - 1
    while low < high:
        middle = (low + high + 1) // 2
        if files.slots[middle].start <= offset:
            low = middle
        else:
            high = middle - 1
    if offset - files.slots[low].start < files.file_size:
        return low
    return E_NOT_FOUND


cdef int64_t file_set_gap(FileSet *files, int64_t start, int64_t stop) noexcept nogil:
    """First offset in [start, stop) whose file is missing between two others, or E_NOT_FOUND."""
    cdef int64_t i, first
    cdef int64_t found = E_NOT_FOUND
    lock_take(&files.lock)
    for i in range(1, files.count):
        first = max(start, files.slots[i - 1].start + files.file_size)
        if first < min(stop, files.slots[i].start):
            found = first
            break
    lock_give(&files.lock)
    return found


cdef bint file_set_has(FileSet *files, int64_t start, int64_t stop) noexcept nogil:
    """Whether the files have each byte of [start, stop)."""
    cdef int64_t i
    lock_take(&files.lock)
    for i in range(files.count):
        if files.slots[i].start <= start < files.slots[i].start + files.slots[i].length:
            start = files.slots[i].start + files.slots[i].length
    lock_give(&files.lock)
    return start >= stop


cdef int64_t file_set_map(FileSet *files, MappedFile *file, const char *path) noexcept nogil:
    """Map a written file; a queue's without read-ahead.

    At the first unit, the kernel would read zeros ahead over all of a mostly empty file.
    """
    cdef int64_t rc = mapped_file_map(file, files.root, path)
    if rc == 0 and files.of_queue:
        madvise(file.base, <size_t>file.size, MADV_RANDOM)
    return rc


cdef int64_t file_set_open_slot(FileSet *files, int64_t index) noexcept nogil:
    """Open a file, and map it if the set is written.  Under the lock."""
    cdef char path[FAILURE_PATH_BYTES]
    cdef stat_t status
    cdef FileSlot *slot = &files.slots[index]
    cdef MappedFile *file
    cdef OpenFiles *table
    cdef int64_t fd, rc
    cdef bint read_only
    set_file_name(path, files, slot.place, slot.start)
    fd = set_open_to_use(files, slot.place, slot.start, &status, &read_only)
    if fd == -ENOENT and not files.writable:
        return E_REMOVED
    files.refused = fd < 0
    files.refused_start = slot.start
    if fd < 0:
        return fd
    if files.writable and status.st_size != files.file_size:
        close(<int>fd)
        return E_INCOMPATIBLE
    file = mapped_file_new(<int>fd, slot.start, files.file_size, &status)
    if file == NULL:
        close(<int>fd)
        return E_NO_MEMORY
    file.place = slot.place
    if files.writable:
        file.read_only = read_only
        rc = file_set_map(files, file, path)
        if rc < 0:
            mapped_file_release(file)
            return rc
        if not files.keep_opened:
            close(file.fd)
            file.fd = -1
    else:
        if not files.of_queue:
            mapped_file_view(file, status.st_size, VIEW_OF_LOG)
        elif slot.opened >= OPENED_OFTEN or has_free_regions(VIEW_OF_QUEUE):
            mapped_file_view(file, status.st_size, VIEW_OF_QUEUE)
        if files.of_queue and file.view.bytes != NULL:
            close(file.fd)                   # files may outnumber descriptors
            file.fd = E_NO_DESCRIPTOR
        else:
            slot.opened += 1
    slot.file = file
    if files.unclean:
        atomic_set(&file.name_dirty, 1)
    if files.open_files != NULL:
        table = files.open_files
        if table.unmapped != NULL and file.fd >= 0:
            table = table.unmapped
        open_files_note(table, files, index)
    return 0


cdef int64_t file_set_hold(FileSet *files, int64_t offset, MappedFile **file) noexcept nogil:
    """Hold the file with ``offset``; mapped_file_release ends the hold."""
    cdef int64_t index
    cdef int64_t rc = 0
    lock_take(&files.lock)
    index = file_set_find(files, offset)
    if index < 0:
        rc = index
    elif files.slots[index].file == NULL:
        rc = file_set_open_slot(files, index)
        if rc == 0 and files.keep_opened:
            file_set_close_unused(files, index, RECOVERING_FILES)
    elif files.keep_opened and files.slots[index].file.fd < 0:
        rc = file_set_open_again(files, index)
        file_set_close_unused(files, index, RECOVERING_FILES)
    if rc == 0:
        file[0] = files.slots[index].file
        mapped_file_hold(file[0])
    lock_give(&files.lock)
    return rc


cdef int64_t file_set_open_again(FileSet *files, int64_t index) noexcept nogil:
    """Reopen the descriptor of a mapped file.  Under the lock."""
    cdef stat_t status
    cdef MappedFile *file = files.slots[index].file
    cdef bint read_only
    cdef int64_t fd = set_open_to_use(files, file.place, file.start, &status, &read_only)
    if fd < 0:
        return fd
    if status.st_dev != file.device or status.st_ino != file.inode:
        close(<int>fd)
        return E_REMOVED                     # the name now belongs to another file
    file.fd = <int>fd
    return 0


cdef void file_set_close_unused(FileSet *files, int64_t but, int64_t most) noexcept nogil:
    """Above ``most`` descriptors, close those of files held by the set alone, except ``but``.

    Under the lock, so that nobody can take a hold.  Mappings stay: they report a failed sync too.
    Files without a mapping are closed.
    """
    cdef MappedFile *file
    cdef int64_t i
    cdef int64_t open = 0
    for i in range(files.count):
        file = files.slots[i].file
        open += file != NULL and file.fd >= 0
    for i in range(files.count if open > most else 0):
        file = files.slots[i].file
        if i == but or file == NULL or file.fd < 0 or atomic_get(&file.holds) > 1:
            continue
        if file.base == NULL:
            mapped_file_release(file)
            files.slots[i].file = NULL
        else:
            close(file.fd)
            file.fd = -1


cdef int64_t file_set_hold_open(FileSet *files, int64_t offset, MappedFile **file) noexcept nogil:
    """file_set_hold for the writer: the file has a descriptor, others lose theirs."""
    cdef int64_t rc = file_set_hold(files, offset, file)
    if rc < 0:
        return rc
    lock_take(&files.lock)
    if file[0].fd < 0:
        rc = file_set_open_again(files, file_set_find(files, offset))
    lock_give(&files.lock)
    if rc < 0:
        mapped_file_release(file[0])
    return rc


cdef void file_set_opened(FileSet *files) noexcept nogil:
    """End of recovery: only the writer's file keeps a descriptor from now on."""
    lock_take(&files.lock)
    files.keep_opened = False
    file_set_close_unused(files, -1, 0)
    lock_give(&files.lock)


cdef int64_t file_set_make(FileSet *files, int64_t start, MappedFile **made) noexcept nogil:
    """Create an unnamed file of full length, its first window reserved and mapped."""
    cdef int64_t turn = 0
    cdef int64_t rc = 0
    cdef int64_t place = set_place_for(files, start, 0)
    while place >= 0:
        rc = file_set_make_in(files, place, start, made)
        if not lacks_space(rc):
            return rc
        turn += 1
        place = set_place_for(files, start, turn)
    return rc if rc < 0 else place


cdef int64_t file_set_make_in(
    FileSet *files, int64_t place, int64_t start, MappedFile **made,
) noexcept nogil:
    """As file_set_make, in one directory."""
    cdef char path[FAILURE_PATH_BYTES]
    cdef stat_t status
    cdef MappedFile *file
    cdef int64_t directory, fd, rc
    directory = set_open_directory(files, place)
    if directory < 0:
        return directory
    fd = sys_open(<int>directory, ".", O_TMPFILE | O_RDWR)
    close(<int>directory)
    if fd < 0:
        return fd
    rc = sys_truncate(<int>fd, files.file_size)
    if rc == 0 and fstat(<int>fd, &status) != 0:
        rc = -errno
    if rc < 0:
        close(<int>fd)
        return rc
    file = mapped_file_new(<int>fd, start, files.file_size, &status)
    if file == NULL:
        close(<int>fd)
        return E_NO_MEMORY
    file.place = place
    rc = mapped_file_reserve(file, file.fd, files.window)
    if rc == 0:
        set_file_name(path, files, place, start)
        rc = file_set_map(files, file, path)
    if rc < 0:
        mapped_file_release(file)
        return rc
    made[0] = file
    return 0


cdef int64_t file_set_adopt(FileSet *files, MappedFile *file) noexcept nogil:
    """Name a file from file_set_make and enter it; the set takes over the hold."""
    cdef char path[FAILURE_PATH_BYTES]
    cdef int64_t directory, rc
    KILL_POINT("before-link")
    directory = set_open_directory(files, file.place)
    if directory < 0:
        return directory
    file_name(path, "", file.start)
    rc = sys_link_unnamed(file.fd, <int>directory, path)
    close(<int>directory)
    if rc < 0:
        return rc
    KILL_POINT("after-link")
    atomic_set(&file.name_dirty, 1)
    if not files.keep_made:
        close(file.fd)
        file.fd = -1
    lock_take(&files.lock)
    rc = file_set_insert(files, file.start, files.file_size)
    if rc >= 0:
        files.slots[rc].file = file
        files.slots[rc].place = file.place
        if files.keep_made:
            file_set_close_unused(files, rc, 0)
        if files.open_files != NULL and rc > 0 and files.slots[rc - 1].file != NULL:
            open_files_note(files.open_files, files, rc - 1)
        rc = 0
    lock_give(&files.lock)
    return rc


cdef int64_t file_set_adopt_held(FileSet *files, MappedFile *file) noexcept nogil:
    """As file_set_adopt, with a hold for the caller; without success the file is released."""
    cdef int64_t rc
    mapped_file_hold(file)
    rc = file_set_adopt(files, file)
    if rc < 0:
        mapped_file_release(file)
        mapped_file_release(file)
    return rc


cdef int64_t file_set_sync_name(FileSet *files, MappedFile *file) noexcept nogil:
    """Make the name of a new file durable."""
    cdef int64_t directory, rc
    if not atomic_get(&file.name_dirty):
        return 0
    directory = set_open_directory(files, file.place)
    if directory < 0:
        return directory
    rc = sys_sync(<int>directory)
    close(<int>directory)
    if rc == 0:
        atomic_set(&file.name_dirty, 0)
    return rc


cdef int64_t file_set_flush(FileSet *files, int64_t stop) noexcept nogil:
    """Force everything below ``stop`` to the disk and move ``flushed``; the number of syncs.

    REQUIRES: one caller at a time.
    """
    cdef MappedFile *file = NULL
    cdef int64_t at = atomic_get(&files.flushed)
    cdef int64_t start, end, rc
    cdef int64_t syncs = 0
    while at < stop:
        rc = file_set_hold(files, at, &file)
        if rc < 0:
            return rc
        end = min(stop, file.start + files.file_size)
        rc = mapped_file_sync(file, at - file.start, end - file.start)
        if rc == 0:
            rc = file_set_sync_name(files, file)
        start = file.start
        mapped_file_release(file)
        if rc < 0:
            return rc
        syncs += 1
        at = end
        atomic_set(&files.flushed, at)
        if files.open_files != NULL and at == start + files.file_size:
            file_set_note_flushed(files, start)
    return syncs


cdef void file_set_note_flushed(FileSet *files, int64_t start) noexcept nogil:
    """Make a flushed file eligible for closing."""
    cdef int64_t index
    lock_take(&files.lock)
    index = file_set_find(files, start)
    if index >= 0 and files.slots[index].file != NULL:
        open_files_note(files.open_files, files, index)
    lock_give(&files.lock)
