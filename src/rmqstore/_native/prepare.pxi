# Ahead of the writer and off its path: blocks in windows, pages that are there already, and
# the next file, which has no name before it is needed, so that nobody else can hurt it.
#
# Source: store/AllocateMappedFileService.java

cdef void *prepare_run(void *argument) noexcept nogil:
    cdef Store *store = <Store *>argument
    cdef int64_t calls
    while not atomic_get(&store.stopping):
        calls = atomic_get_strict(&store.prepare.calls)
        prepare_ahead(store)
        worker_sleep(&store.prepare, &store.stopping, 0, calls, 10000000000LL)
    store_drop(store)
    return NULL


cdef void prepare_ahead(Store *store) noexcept nogil:
    """One round. What fails here is met again by the writer, who reports it."""
    cdef MappedFile *file
    cdef int64_t wrote, position, stop, target
    pthread_mutex_lock(&store.put_lock)
    file = store.current
    wrote = atomic_peek(&store.log.wrote)
    if file != NULL:
        mapped_file_hold(file)
    pthread_mutex_unlock(&store.put_lock)
    if file == NULL:
        return
    position = wrote - file.start
    if atomic_get(&file.reserved) < min(file.size, position + LOG_WINDOW // 2):
        pthread_mutex_lock(&store.prepare_mutex)
        mapped_file_reserve(file, file.fd,
                            (position + LOG_WINDOW) & ~<int64_t>(FOLIO_BYTES - 1))
        pthread_mutex_unlock(&store.prepare_mutex)
    # Pages ahead of the writer: few at first, more the faster it comes.
    if store.populated < wrote:
        store.populated = wrote
        store.populate_window = POPULATE_FIRST
    elif store.populated - wrote < store.populate_window // 2:
        store.populate_window = min(store.populate_window * 2, POPULATE_MOST)
    stop = min(wrote + store.populate_window, file.start + atomic_get(&file.reserved))
    if store.populated < file.start:
        store.populated = file.start
    while store.populated < stop and not atomic_get(&store.stopping):
        target = min(stop, store.populated + (1 << 20))
        position = (store.populated - file.start) & ~<int64_t>4095
        if madvise(file.base + position, <size_t>(target - file.start - position),
                   MADV_POPULATE_WRITE) != 0:
            break
        store.populated = target
    atomic_set(&store.prepare_at, wrote + store.populate_window // 2)
    if wrote - file.start > file.size // 2:
        prepare_next(store, file.start + file.size)
    mapped_file_release(file)


cdef void prepare_next(Store *store, int64_t start) noexcept nogil:
    """Have the file that begins at ``start`` ready."""
    cdef MappedFile *made = NULL
    pthread_mutex_lock(&store.prepare_mutex)
    if store.next_file != NULL and store.next_file.start != start:
        mapped_file_release(store.next_file)     # the writer had made that one itself by then
        store.next_file = NULL
    if store.next_file == NULL and file_set_stop(&store.log) == start \
            and log_make_file(store, start, &made) == 0:
        madvise(made.base, <size_t>min(made.size, POPULATE_FIRST), MADV_POPULATE_WRITE)
        store.next_file = made
    pthread_mutex_unlock(&store.prepare_mutex)
