# Open store as seen by its methods, and entry of a call.

cdef class OpenStore:
    """The state of an open store, its name in errors, and the calls it makes; base of ``Core``."""

    cdef Store *store
    cdef str _path
    cdef object _config
    cdef readonly str mode
    cdef int64_t max_body
    cdef tuple log_paths         # directories of the log, for errors
    cdef dict _passed_over       # damage passed over by queries: log offset to its error
    # Called by the core; whoever opens a store for writing sets the first two.
    cdef public object make_topic      # (topic): a message is put to a new topic
    cdef public object remake_topic    # (topic, log offset): to one deleted before that offset
    cdef public object note_queue      # (topic, id): a put creates a queue beyond its count
    cdef public object begin_schedule  # (): the first delayed message is put
    cdef bint delays_begun       # there may be delayed messages: the schedule service is started

    def __cinit__(self, *args, **kwargs):
        self.store = NULL
        self._passed_over = {}

    def __dealloc__(self):
        cdef Store *store = self.store
        self.store = NULL
        # A forked child leaves its copy alone: the threads are the parent's.
        if store == NULL or store.fork_generation != fork_generation:
            return
        if atomic_get(&store.state) == STATE_CLOSED:
            store_drop(store)
        else:
            store_abandon(store)

    cdef Store *entered_as_listed(self) except NULL:
        """The store, entered without a look into its log; balanced by store_leave."""
        cdef Store *store = self.store
        cdef int64_t rc
        if store == NULL:
            raise errors.StoreClosedError(f"{self._path}: the store is closed")
        rc = store_enter(store)
        if rc < 0:
            raise status_error(rc, NULL, self._path)
        return store

    cdef Store *entered(self) except NULL:
        """The store, entered for a read; balanced by store_leave."""
        cdef Store *store = self.entered_as_listed()
        cdef int64_t rc
        if not store.writable and not store.view.owned_elsewhere \
                and not atomic_get(&store.view.derived):
            with nogil:
                rc = derive_if_needed(store)
            if rc < 0:
                store_leave(store)
                raise unreadable_error(store, NULL, rc, self._path)
        return store
