# Off the writer's path: allocates blocks in windows, populates pages ahead of the writer, and makes
# the next file, unnamed until it is needed, so that no other process can interfere with it.
#
# Source: store/AllocateMappedFileService.java

cdef void *prepare_run(void *argument) noexcept nogil:
    cdef Store *store = <Store *>argument
    cdef int64_t calls
    while not atomic_get(&store.stopping):
        calls = atomic_get_strict(&store.writer.worker.calls)
        prepare_ahead(store)
        worker_sleep(&store.writer.worker, &store.stopping, 0, calls, PREPARE_IDLE_NS)
    store_drop(store)
    return NULL


cdef void prepare_ahead(Store *store) noexcept nogil:
    """One round. The writer will meet any failure here again and report it."""
    cdef MappedFile *file
    cdef int64_t wrote, position, stop, target
    lock_take(&store.writer.put_lock)
    file = store.writer.current
    wrote = atomic_peek(&store.log.wrote)
    if file != NULL:
        mapped_file_hold(file)
    lock_give(&store.writer.put_lock)
    if file == NULL:
        return
    position = wrote - file.start
    if atomic_get(&file.reserved) < min(file.size, position + LOG_WINDOW // 2):
        lock_take(&store.writer.prepare_lock)
        mapped_file_reserve(file, file.fd,
                            (position + LOG_WINDOW) & ~<int64_t>(FOLIO_BYTES - 1))
        lock_give(&store.writer.prepare_lock)
    # Pages ahead of the writer: few at first, more as the rate grows.
    if store.writer.populated < wrote:
        store.writer.populated = wrote
        store.writer.populate_window = POPULATE_FIRST
    elif store.writer.populated - wrote < store.writer.populate_window // 2:
        store.writer.populate_window = min(store.writer.populate_window * 2, POPULATE_MOST)
    stop = min(wrote + store.writer.populate_window, file.start + atomic_get(&file.reserved))
    if store.writer.populated < file.start:
        store.writer.populated = file.start
    while store.writer.populated < stop and not atomic_get(&store.stopping):
        target = min(stop, store.writer.populated + (1 << 20))
        position = (store.writer.populated - file.start) & ~<int64_t>4095
        if madvise(file.base + position, <size_t>(target - file.start - position),
                   MADV_POPULATE_WRITE) != 0:
            break
        store.writer.populated = target
    atomic_set(&store.writer.prepare_at, wrote + store.writer.populate_window // 2)
    if wrote - file.start > file.size // 2:
        prepare_next(store, file.start + file.size)
    mapped_file_release(file)


cdef void prepare_next(Store *store, int64_t start) noexcept nogil:
    """Make the file that begins at ``start``."""
    cdef MappedFile *made = NULL
    lock_take(&store.writer.prepare_lock)
    if store.writer.next_file != NULL and store.writer.next_file.start != start:
        mapped_file_release(store.writer.next_file)  # the writer made that one itself
        store.writer.next_file = NULL
    if store.writer.next_file == NULL and file_set_stop(&store.log) == start \
            and log_make_file(store, start, &made) == 0:
        madvise(made.base, <size_t>min(made.size, POPULATE_FIRST), MADV_POPULATE_WRITE)
        store.writer.next_file = made
    lock_give(&store.writer.prepare_lock)
