# Preparation off the writer's path: blocks in windows, pages ahead of the writer, and the next
# file, unnamed until needed so that no other process can interfere with it.  The thread also checks
# the store's names (check_names), as it waits for no disk.
#
# Source: store/AllocateMappedFileService.java

cdef enum:
    WARM_BYTES = 4 << 20         # pages filled between checks for a stop


cdef void *prepare_run(void *argument) noexcept nogil:
    cdef Store *store = <Store *>argument
    cdef int64_t calls
    cdef int64_t looked = monotonic_ns()
    while not atomic_get(&store.stopping):
        calls = atomic_get_strict(&store.writer.worker.calls)
        if monotonic_ns() - looked >= NAMES_LOOK_NS and atomic_get(&store.failed) == 0:
            looked = monotonic_ns()
            check_names(store)
        prepare_ahead(store)
        worker_sleep(&store.writer.worker, &store.stopping, 0, calls, NAMES_LOOK_NS)
    store_drop(store)
    return NULL


cdef void prepare_ahead(Store *store) noexcept nogil:
    """One round.  The writer meets any failure here again and reports it."""
    cdef MappedFile *file
    cdef int64_t wrote, position, stop, target, rc
    lock_take(&store.writer.put_lock)
    file = store.writer.current
    wrote = atomic_peek(&store.log.wrote)
    if file != NULL:
        mapped_file_hold(file)
    lock_give(&store.writer.put_lock)
    if file == NULL:
        return
    position = wrote - file.start
    if not file.zeroed and atomic_get(&file.reserved) < min(file.size, position + LOG_WINDOW // 2):
        lock_take(&store.writer.prepare_lock)
        mapped_file_reserve(file, file.fd,
                            (position + LOG_WINDOW) & ~<int64_t>(FOLIO_BYTES - 1))
        lock_give(&store.writer.prepare_lock)
    # Pages ahead of the writer: few at first, more as the rate grows.
    if store.writer.populated < wrote:
        store.writer.populated = wrote
        store.writer.populate_window = POPULATE_FIRST
    elif store.writer.populated - wrote < store.writer.populate_window // 2:
        store.writer.populate_window = min(store.writer.populate_window * 2, POPULATE_MAX)
    stop = min(wrote + store.writer.populate_window, file.start + file.size)
    if store.writer.populated < file.start:
        store.writer.populated = file.start
    while store.writer.populated < stop and not atomic_get(&store.stopping):
        target = min(stop, store.writer.populated + (1 << 20))
        lock_take(&store.writer.prepare_lock)
        rc = mapped_file_reserve_zeroed(file, target - file.start, LOG_WINDOW)
        lock_give(&store.writer.prepare_lock)
        position = (store.writer.populated - file.start) & ~<int64_t>4095
        if rc < 0 or madvise(file.base + position, <size_t>(target - file.start - position),
                             MADV_POPULATE_WRITE) != 0:
            break
        store.writer.populated = target
    atomic_set(&store.writer.prepare_at, wrote + store.writer.populate_window // 2)
    if wrote - file.start > file.size // 2:
        prepare_next(store, file.start + file.size)
    mapped_file_release(file)


cdef void prepare_next(Store *store, int64_t start) noexcept nogil:
    """Make the file that begins at ``start``, and fill its pages if configured."""
    cdef MappedFile *made = NULL
    cdef MappedFile *cold = NULL
    lock_take(&store.writer.prepare_lock)
    if store.writer.next_file != NULL and store.writer.next_file.start != start:
        mapped_file_release(store.writer.next_file)  # the writer made its own
        store.writer.next_file = NULL
    if store.writer.next_file == NULL and file_set_stop(&store.log) == start \
            and log_make_file(store, start, &made) == 0:
        mapped_file_reserve_zeroed(made, POPULATE_FIRST, LOG_WINDOW)
        madvise(made.base, <size_t>min(made.size, POPULATE_FIRST), MADV_POPULATE_WRITE)
        store.writer.next_file = made
        if store.settings.warm:
            cold = made
            mapped_file_hold(cold)
    lock_give(&store.writer.prepare_lock)
    if cold != NULL:                         # the writer may take it meanwhile
        warm_file(store, cold)
        mapped_file_release(cold)


cdef void warm_file(Store *store, MappedFile *file) noexcept nogil:
    """Allocate all blocks and pages of a new file, and lock it in memory if permitted.

    SYNC_FLUSH: pages are synced in steps, so that none is dirty when the file comes into use.
    Best effort, except for a failed sync: the writer needs none of this.
    """
    cdef int64_t step = min(file.size, store.settings.warm_pages * PAGE_BYTES)
    cdef int64_t at = 0
    cdef int64_t stop, rc
    while at < file.size and not atomic_get(&store.stopping):
        stop = min(file.size, at + min(step, <int64_t>WARM_BYTES))
        lock_take(&store.writer.prepare_lock)        # as in log_reserve
        rc = mapped_file_reserve_zeroed(file, stop, LOG_WINDOW)
        lock_give(&store.writer.prepare_lock)
        if rc < 0 or madvise(file.base + at, <size_t>(stop - at), MADV_POPULATE_WRITE) != 0:
            return
        if store.settings.sync_flush and (stop == file.size or stop // step > at // step) \
                and sys_sync_range(file.base, stop - step, stop) < 0:
            store_set_failed(store, -EIO, set_directory(&store.log, file.place),
                             "a new file cannot be forced to the disk")
            return
        at = stop
    if at == file.size:
        mlock(file.base, <size_t>file.size)
