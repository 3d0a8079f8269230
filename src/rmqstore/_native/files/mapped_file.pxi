# One file of the store: opened, mapped, held while in use.
#
# Source: store/MappedFile.java, store/ReferenceResource.java

cdef extern from *:
    """
    #include <stdint.h>
    #include <stdlib.h>
    #include <string.h>
    /* The last loss that this thread met.  Paths are never freed: one per file that was lost. */
    typedef struct loss_path { struct loss_path *next; char text[]; } loss_path;
    static loss_path *loss_paths = NULL;
    static __thread const char *loss_file = "";
    static __thread int64_t loss_at = -1;
    static void loss_note(const char *path, int64_t offset) {
        loss_path *seen = __atomic_load_n(&loss_paths, __ATOMIC_ACQUIRE), *made;
        size_t length;
        loss_at = offset;
        loss_file = "";
        if (path == NULL) return;
        length = strlen(path) + 1;
        for (; seen != NULL; seen = seen->next)
            if (strcmp(seen->text, path) == 0) { loss_file = seen->text; return; }
        made = (loss_path *)malloc(sizeof(loss_path) + length);
        if (made == NULL) return;
        memcpy(made->text, path, length);
        made->next = __atomic_load_n(&loss_paths, __ATOMIC_ACQUIRE);
        while (!__atomic_compare_exchange_n(&loss_paths, &made->next, made, 0, __ATOMIC_ACQ_REL,
                                            __ATOMIC_ACQUIRE)) {}
        loss_file = made->text;
    }
    static const char *loss_noted(int64_t *offset) { *offset = loss_at; return loss_file; }
    /* The last read that failed in this thread, until an error names it. */
    static __thread int read_failed = 0;
    static void read_note(const char *path, int64_t offset) {
        loss_note(path, offset);
        read_failed = path != NULL;
    }
    static const char *read_noted(int64_t *offset) {
        const char *path = read_failed ? loss_file : "";
        read_failed = 0;
        *offset = loss_at;
        return path;
    }
    #define LOSS_TEXT "mapped bytes are gone: the file was cut, or the disk cannot read them"
    """
    void loss_note(const char *path, int64_t offset) noexcept nogil
    const char *loss_noted(int64_t *offset) noexcept nogil
    void read_note(const char *path, int64_t offset) noexcept nogil
    const char *read_noted(int64_t *offset) noexcept nogil
    const char *LOSS_TEXT
    char *strdup(const char *text) noexcept nogil


cdef enum:
    PAGE_BYTES = 4096
    FOLIO_BYTES = 256 << 10      # pages that the page cache may keep and write back as one
    REWRITE_BYTES = 1 << 20      # rewritten by one read and one write


# Kind of a read-only file; each kind has its own share of the memory for views.
cdef enum:
    VIEW_OF_LOG
    VIEW_OF_QUEUE
    VIEW_OF_INDEX
    VIEW_KINDS


# Mapping of a read-only file: see file_view.pxi.
cdef struct FileView:
    const char *bytes        # NULL: read with pread
    int64_t length           # mapped bytes from the file's beginning
    char *regions            # flags: in use, so that the region's pages may be the process's
    atomic_i64 used          # regions in use
    int kind                 # VIEW_OF_...
    Guard guard


# Deleted files that are still held.  Outlives its store while there are any.
cdef struct DeletedFiles:
    atomic_i64 references        # 1 for the store + 1 a file
    atomic_i64 bytes             # their disk space


cdef struct MappedFile:
    char *base               # first mapped byte of a written file; NULL: read only
    FileView view            # "r": its mapped bytes
    int64_t size             # nominal size in bytes
    int64_t start            # offset of its first byte in the set
    int fd                   # below 0: closed after mapping
    atomic_i64 holds         # 1 for the set + 1 for each user; unmapped at 0
    atomic_i64 reserved      # leading bytes with blocks on the disk
    atomic_i64 name_dirty    # 1: the name is durable only once the directory is synced
    uint64_t device
    uint64_t inode
    Guard guard              # bytes lost from the mapping
    char *path               # of a mapped file, for errors; NULL: unknown
    DeletedFiles *deleted    # where it is counted once deleted
    int64_t place            # index of its directory in the set
    bint read_only           # mapped for reading, though its set is written
    bint zeroed              # zeros are written before bytes of it are reserved


# A piece of a file that stays valid until slice_release.
cdef struct Slice:
    const char *data
    int64_t length
    MappedFile *file         # held, or NULL
    char *owned              # a private copy, or NULL


cdef void file_view_close(FileView *view) noexcept nogil:
    """Unmap a view and return its share of the memory for views."""
    if view.bytes == NULL:
        return
    guard_leave(&view.guard)
    unmap_shared(<char *>view.bytes, <size_t>view.length)
    atomic_add(&regions_viewed[view.kind], -atomic_get(&view.used))
    free(view.regions)
    view.bytes = NULL


# Regions in use by all views of the process, by kind.
cdef atomic_i64 regions_viewed[VIEW_KINDS]


cdef MappedFile *mapped_file_new(
    int fd, int64_t start, int64_t size, stat_t *status,
) noexcept nogil:
    """Take over ``fd``; NULL without memory (the caller then keeps ``fd``)."""
    cdef MappedFile *file = <MappedFile *>calloc(1, sizeof(MappedFile))
    if file == NULL:
        return NULL
    file.fd = fd
    file.start = start
    file.size = size
    file.device = status.st_dev
    file.inode = status.st_ino
    atomic_set(&file.holds, 1)
    return file


cdef inline void mapped_file_hold(MappedFile *file) noexcept nogil:
    """REQUIRES: the caller holds the file already, or the lock of its set."""
    atomic_add(&file.holds, 1)


cdef void mapped_file_release(MappedFile *file) noexcept nogil:
    if file == NULL or atomic_add(&file.holds, -1) != 0:
        return
    if file.base != NULL:
        guard_leave(&file.guard)
        unmap_shared(file.base, <size_t>file.size)
    file_view_close(&file.view)
    if file.fd >= 0:
        close(file.fd)
    if file.deleted != NULL:
        atomic_add(&file.deleted.bytes, -file.size)
        deleted_files_drop(file.deleted)
    free(file.path)
    free(file)


cdef void deleted_files_drop(DeletedFiles *deleted) noexcept nogil:
    """Drop a reference."""
    if deleted != NULL and atomic_add(&deleted.references, -1) == 0:
        free(deleted)


cdef int64_t mapped_file_map(MappedFile *file, int root, const char *path) noexcept nogil:
    """Map the file, for writing if allowed; ``path`` is below ``root`` or absolute."""
    cdef int protection = PROT_READ if file.read_only else PROT_READ | PROT_WRITE
    cdef int64_t rc = sys_map(
        file.fd, file.size, READ_ONLY if file.read_only else READ_WRITE, &file.base)
    if rc < 0:
        return rc
    if guard_enter(file.base, <size_t>file.size, protection, &file.guard) < 0:
        unmap_shared(file.base, <size_t>file.size)
        file.base = NULL
        return E_NO_MEMORY
    file.path = strdup(path) if path[0] == 47 else absolute_path(root, path)
    return 0


cdef char *absolute_path(int root, const char *path) noexcept nogil:
    """``path`` appended to the path of the directory ``root``; the caller frees it."""
    cdef char into[2048]
    cdef int64_t length = descriptor_link(root, into)
    if length:
        into[length] = 47
        length += 1
    copy_text(into + length, <int64_t>sizeof(into) - length, path)
    return strdup(into)


cdef char *descriptor_path(int fd) noexcept nogil:
    """Path of an open file, freed by the caller; NULL: unknown."""
    cdef char into[2048]
    cdef int64_t length = descriptor_link(fd, into)
    into[length] = 0
    return strdup(into) if length else NULL


cdef int64_t descriptor_link(int fd, char *into) noexcept nogil:
    """Copy the path of an open file or directory; its length, 0 if unknown or over 1,023."""
    cdef char link[64]
    cdef int64_t length = -1
    if fd >= 0:
        snprintf(link, 64, "/proc/self/fd/%d", fd)
        length = readlink(link, into, 1024)
    return length if 0 < length < 1024 else 0


cdef inline int64_t mapped_file_lost(MappedFile *file, int64_t start, int64_t stop) noexcept nogil:
    """0, or E_LOST if any of the mapped bytes [start, stop) just used are lost."""
    if not guard_lost(&file.guard, start, stop):
        return 0
    return note_loss(file, max(start, atomic_get(&file.guard.start)))


cdef int64_t note_loss(MappedFile *file, int64_t offset) noexcept nogil:
    """Note the loss for this thread's error; E_LOST."""
    loss_note(file.path, offset)
    return E_LOST


cdef int64_t mapped_file_reserve(MappedFile *file, int fd, int64_t stop) noexcept nogil:
    """Allocate blocks for all bytes below ``stop``, so that no store through the mapping faults.

    In whole pages: a store into a page needs all of its blocks, which may be smaller.  On a file
    system without fallocate the bytes are written instead.
    """
    cdef int64_t have = atomic_get(&file.reserved)
    cdef int64_t rc
    stop = min((stop + PAGE_BYTES - 1) & ~<int64_t>(PAGE_BYTES - 1), file.size)
    if stop <= have:
        return 0
    rc = sys_reserve(fd, have, stop - have)
    if rc == -EOPNOTSUPP:
        rc = mapped_file_write_over(fd, have, stop)
    if rc == 0:
        atomic_raise(&file.reserved, stop)
    return rc


cdef int64_t mapped_file_reserve_ahead(
    MappedFile *file, int fd, int64_t stop, int64_t window,
) noexcept nogil:
    """Allocate blocks for all bytes below ``stop``, and for a window more if the disk has room.

    A store into a page needs the blocks of its whole folio.  So windows end at a folio's end; if
    the disk has no room for a window, the last folio's pages are populated here, where a full disk
    is an error instead of a fault.
    """
    cdef int64_t have = atomic_get(&file.reserved)
    cdef int64_t start
    cdef int64_t rc = mapped_file_reserve(
        file, fd, (stop + window + FOLIO_BYTES - 1) & ~<int64_t>(FOLIO_BYTES - 1))
    if not lacks_space(rc):
        return rc
    rc = mapped_file_reserve(file, fd, stop)
    if rc < 0:
        return rc
    stop = atomic_get(&file.reserved)
    start = max(have, (stop - 1) & ~<int64_t>(FOLIO_BYTES - 1))
    if stop > start and madvise(file.base + start, <size_t>(stop - start),
                                MADV_POPULATE_WRITE) != 0 and errno == EFAULT:
        atomic_set(&file.reserved, have)
        return -ENOSPC
    return 0


cdef int64_t mapped_file_write_over(int fd, int64_t start, int64_t stop) noexcept nogil:
    """Rewrite a range with its own content, so that all of its pages have blocks and are dirty."""
    cdef int64_t room = min(stop - start, REWRITE_BYTES)
    cdef char *buffer
    cdef int64_t rc = 0
    cdef int64_t at = start
    cdef int64_t part
    if room <= 0:
        return 0
    buffer = <char *>malloc(<size_t>room)
    if buffer == NULL:
        return E_NO_MEMORY
    while at < stop and rc >= 0:
        part = min(room, stop - at)
        rc = write_over(fd, buffer, at, part)
        at += part
    free(buffer)
    return min(rc, 0)


cdef int64_t write_over(int fd, char *buffer, int64_t at, int64_t length) noexcept nogil:
    """Rewrite bytes with their own content; ``buffer`` has room for them."""
    cdef int64_t rc = sys_read(fd, buffer, length, at)
    if 0 <= rc < length:
        memset(buffer + rc, 0, <size_t>(length - rc))        # beyond the file's end
    return rc if rc < 0 else sys_write(fd, buffer, length, at)


cdef int64_t mapped_file_sync(MappedFile *file, int64_t start, int64_t stop) noexcept nogil:
    """Force bytes [start, stop) of the file to the disk."""
    cdef stat_t status
    cdef int64_t rc
    if stop <= start:
        return 0
    if file.base == NULL:
        return sys_sync(file.fd)
    rc = sys_sync_range(file.base, start, stop)
    # Bytes stored into our zero pages, or past an end that another process moved, are not saved.
    if rc == 0:
        rc = mapped_file_lost(file, start, stop)
    if rc == 0 and file.fd >= 0 and fstat(file.fd, &status) == 0 and status.st_size < stop:
        rc = note_loss(file, status.st_size)
    return rc


cdef int64_t mapped_file_data_stop(const MappedFile *file, int64_t length) noexcept nogil:
    """Begin of the hole at the file's end; ``length`` if none, or without a descriptor."""
    cdef int64_t hole
    if file.fd < 0:
        return length
    hole = lseek(file.fd, 0, SEEK_HOLE)
    if hole < 0 or hole >= length:
        return length
    return hole if lseek(file.fd, hole, SEEK_DATA) < 0 and errno == ENXIO else length


cdef inline int64_t slice_lost(const Slice *slice) noexcept nogil:
    """0, or E_LOST if bytes of a mapped slice are lost; copies never are."""
    if slice.file == NULL:
        return 0
    return mapped_file_lost(slice.file, slice.data - slice.file.base,
                            slice.data - slice.file.base + slice.length)


cdef inline void slice_release(Slice *slice) noexcept nogil:
    if slice.file != NULL:
        mapped_file_release(slice.file)
        slice.file = NULL
    if slice.owned != NULL:
        free(slice.owned)
        slice.owned = NULL
    slice.data = NULL
    slice.length = 0
