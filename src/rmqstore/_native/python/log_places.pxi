# Directories of a log outside the store's own, and the placement of new files.
#
# Source: store/MultiPathMappedFileQueue.java, store/CommitLog.java setFullStorePaths

cdef int take_places(Store *store, object found) except -1:
    """Open the directories of a list of ``LogPath``; None: the log is below the root."""
    cdef Places *places
    cdef Place *place
    cdef bytes path
    cdef const char *text
    cdef int fd, number
    if found is None:
        return 0
    places = <Places *>calloc(1, sizeof(Places))
    if places == NULL:
        raise MemoryError()
    store.log.places = places                # closed with the store
    for name, read_only in found:
        path = fsencode(name)
        text = path
        with nogil:
            fd = openat(AT_FDCWD, text, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
            number = errno
        if fd < 0:
            raise OSError(number, strerror(number), name)
        place = &places.items[places.count]
        place.fd = fd
        place.read_only = read_only
        place.path = strdup(text)
        places.count += 1
        if place.path == NULL:
            raise MemoryError()
        if store.writable and not read_only and faccessat(fd, ".", W_OK, 0) != 0:
            number = errno
            raise OSError(
                number, f"no file of the log can be made here: {strerror(number)}; in "
                "read_only_commit_log_store_paths it would only be read", name)
    return 0


cdef list places_of(OpenStore engine):
    """Directory, whether read only, and whether full, of each; empty: the root's."""
    cdef Store *store = engine.entered()
    cdef int64_t i
    cdef list found = []
    if store.log.places != NULL:
        for i in range(store.log.places.count):
            found.append((fsdecode(store.log.places.items[i].path),
                          bool(store.log.places.items[i].read_only),
                          atomic_get(&store.log.places.items[i].full) != 0))
    store_leave(store)
    return found


cdef int set_place_full(OpenStore engine, object path, bint full) except -1:
    """Set whether a directory gets new files only if no other has room."""
    cdef Store *store = engine.entered()
    cdef bytes name = fsencode(path)
    cdef int64_t i
    cdef bint known = store.log.places == NULL
    if store.log.places != NULL:
        for i in range(store.log.places.count):
            if strcmp(store.log.places.items[i].path, name) == 0:
                atomic_set(&store.log.places.items[i].full, full)
                known = True
    store_leave(store)
    if not known:
        raise ValueError(f"{path} is no directory of the log")
