# Consume queue as a part by itself.

cdef enum:
    QUEUE_FILE_BYTES = 6000000


cdef int64_t find_ends(Queue *queue) noexcept nogil:
    """Find the first and last unit from the bytes."""
    cdef int64_t used = queue_used_units(queue)
    cdef int64_t first = 0
    cdef Unit unit
    if used < 0:
        return used
    if queue.files.count:
        first = queue.files.slots[0].start // UNIT_BYTES
    used = max(used, first)
    atomic_set(&queue.files.wrote, used * UNIT_BYTES)
    atomic_set(&queue.files.flushed, used * UNIT_BYTES)
    atomic_set(&queue.max_offset, used)
    first = queue_skip_blanks(queue, first, used, &unit)
    if first < 0:
        return first
    atomic_set(&queue.min_offset, first)
    return 0


cdef class ConsumeQueue:
    """ConsumeQueue(directory, *, file_size=6000000, mode='r')\n--\n
    The files of one queue.

    Parameters
    ----------
    directory : path-like
        ``consumequeue/<topic>/<queue id>`` of a store.
    file_size : int, optional
        Bytes, a multiple of 20. By default inferred from the files with mode ``"r"``.
    mode : str, optional
        ``"r"`` reads, ``"r+"`` writes an existing queue, ``"a"`` creates it if there is none.

    Attributes
    ----------
    min_offset, max_offset : int
        First queue offset whose unit is not blank, and the offset after the last unit.

    Raises
    ------
    StoreNotFoundError
        There is no such directory, or (``"r+"``) no file in it.
    IncompatibleStoreError
        Writing: a file has another size, is foreign, or is missing in the middle.
    ValueError
        An argument is out of range.

    Notes
    -----
    Source: ``store/ConsumeQueue.java``.
    """

    cdef object __weakref__
    cdef Queue *queue
    cdef str path
    cdef bint writable
    cdef int root
    cdef int64_t fork_generation
    cdef atomic_i64 in_use           # calls in progress
    cdef Lock lock                   # one writer, or one reader that refreshes the end

    def __cinit__(self):
        self.fork_generation = fork_generation
        self.queue = NULL
        self.root = -1
        lock_init(&self.lock, LOCK_OBJECT)

    def __init__(self, directory, *, file_size=QUEUE_FILE_BYTES, str mode="r"):
        arguments.integer_within("file_size", file_size, UNIT_BYTES, FILE_MAX)
        if file_size % UNIT_BYTES:
            raise arguments.wrong_value("file_size", f"a multiple of {UNIT_BYTES}", file_size)
        self.open(directory, file_size, mode, file_size == QUEUE_FILE_BYTES)

    cdef int open(self, directory, int64_t file_size, str mode, bint infer_sizes) except -1:
        """Open the directory, and make it with ``"a"``."""
        cdef Failure failure
        cdef Queue *queue
        cdef int64_t rc
        check_mode(mode)
        open_once(self.path)
        self.path = fsdecode(directory)
        self.writable = mode != "r"
        if mode == "a":
            makedirs(self.path, exist_ok=True)
        self.root = openat(AT_FDCWD, fsencode(self.path), O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        if self.root < 0:
            raise errors.StoreNotFoundError(f"{self.path}: {strerror(errno)}")
        queue = queue_new(NULL, 0, self.root, file_size, self.writable)
        if queue == NULL:
            raise MemoryError()
        self.queue = queue
        memset(&failure, 0, sizeof(Failure))
        check(file_set_list(&queue.files, &failure), &failure, self.path)
        if mode == "r+" and queue.files.count == 0:
            raise errors.StoreNotFoundError(f"{self.path}: no consume queue file")
        if infer_sizes and not self.writable:
            rc = file_set_infer_size(&queue.files, UNIT_BYTES, UNIT_BYTES)
            if rc >= UNIT_BYTES:
                queue.files.file_size = rc - rc % UNIT_BYTES
        if self.writable:
            check(file_set_validate(&queue.files, LENGTHS_COMPLETED, &failure), &failure, self.path)
        return check(find_ends(queue), NULL, self.path)

    def __dealloc__(self):
        if self.queue != NULL:
            queue_destroy(self.queue)
        if self.root >= 0:
            close(self.root)
        lock_destroy(&self.lock)

    cdef Queue *opened(self) except NULL:
        cdef Queue *queue
        if self.queue != NULL and self.fork_generation != fork_generation:
            raise status_error(E_FORKED, NULL, self.path)
        with cython.critical_section(self):  # against close
            queue = self.queue
            if queue != NULL:
                atomic_add(&self.in_use, 1)
        if queue == NULL:
            raise errors.StoreClosedError(f"{self.path}: the consume queue is closed")
        return queue

    def put_unit(self, physical_offset, size, tags_code, queue_offset):
        """Write a unit in its position.

        Parameters
        ----------
        physical_offset, size : int
            Offset of the record in the commit log, 0 or more, and its bytes, 1 or more.
        tags_code : int
            Hash of the tag, 64 bits.
        queue_offset : int
            Position in the queue; a gap after the last unit is filled with blank units.

        Returns
        -------
        bool
            True if the queue has the unit now; False if its position has a different one.

        Raises
        ------
        ValueError
            An argument is out of range.
        ReadOnlyStoreError, StoreClosedError
            The queue is not open for writing.

        Notes
        -----
        Source: ``store/ConsumeQueue.java putMessagePositionInfo``.
        """
        cdef int64_t begin = arguments.integer_within(
            "physical_offset", physical_offset, INT64_MIN, INT64_MAX)
        cdef int64_t length = arguments.integer_within("size", size, INT64_MIN, INT64_MAX)
        cdef int64_t code = arguments.integer_within("tags_code", tags_code, INT64_MIN, INT64_MAX)
        cdef int64_t at = arguments.integer_within(
            "queue_offset", queue_offset, INT64_MIN, INT64_MAX)
        cdef Queue *queue
        cdef Unit unit
        cdef int64_t rc
        if not self.writable:
            raise errors.ReadOnlyStoreError(f"{self.path}: opened with mode 'r'; 'r+' writes")
        if begin < 0 or not 1 <= length <= FILE_MAX:
            raise ValueError(f"physical_offset must be 0 or more and size 1 to {FILE_MAX}, got "
                             f"{begin} and {length}")
        if not 0 <= at < INT64_MOST // UNIT_BYTES - 1:
            raise arguments.wrong_value(
                "queue_offset", f"0 to {INT64_MOST // UNIT_BYTES - 2}", at)
        queue = self.opened()
        with nogil:
            lock_take(&self.lock)
            if at < atomic_get(&queue.max_offset):
                rc = queue_unit_at(queue, at, &unit)
                if rc == 0:
                    rc = (unit.physical_offset == begin and unit.size == length
                          and unit.tags_code == code)
                elif rc == E_NOT_FOUND:
                    rc = 0
            else:
                rc = queue_put_unit(queue, at, begin, <int32_t>length, code)
            lock_give(&self.lock)
            atomic_add(&self.in_use, -1)
        return check(rc, NULL, self.path) == 1

    cdef tuple bounds(self):
        """First queue offset, and the offset after the last."""
        cdef Queue *queue = self.opened()
        cdef int64_t rc = 0
        if not self.writable:
            with nogil:
                lock_take(&self.lock)
                rc = file_set_list(&queue.files, NULL)
                if rc >= 0:
                    rc = find_ends(queue)
                lock_give(&self.lock)
        low = atomic_get(&queue.min_offset)
        high = atomic_get(&queue.max_offset)
        atomic_add(&self.in_use, -1)
        check(rc, NULL, self.path)
        return low, high

    def units(self, start=None, stop=None):
        """Return units as a structured array.

        Parameters
        ----------
        start, stop : int, optional
            Queue offsets; by default all that exist.

        Returns
        -------
        numpy.ndarray
            Shape ``(stop - start,)``; fields ``physical_offset`` (>i8), ``size`` (>i4),
            ``tags_code`` (>i8), as stored.

        Raises
        ------
        IndexError
            Some do not exist; the message names min and max.

        Notes
        -----
        Source: ``store/ConsumeQueue.java getIndexBuffer``.
        """
        low, high = self.bounds()
        start = low if start is None else PyNumber_Index(start)
        stop = high if stop is None else PyNumber_Index(stop)
        if start < 0 or start > stop or stop > high:
            raise IndexError(
                f"units {start} to {stop} are not all there; min is {low}, max is {high}")
        return arrays.unit_array(self.unit_bytes(start, stop))

    cdef Memory unit_bytes(self, int64_t start, int64_t stop):
        """The bytes of units [start, stop)."""
        cdef Memory memory = memory_new(max(0, stop - start) * UNIT_BYTES)
        cdef Queue *queue = self.opened()
        cdef Slice slice
        cdef int64_t rc = 1
        cdef int64_t at = start
        with nogil:
            while at < stop and rc > 0:
                rc = queue_units(queue, at, stop - at, &slice)
                if rc > 0:
                    memcpy(memory.data + (at - start) * UNIT_BYTES, slice.data,
                           <size_t>(rc * UNIT_BYTES))
                    at += rc
                    if slice_lost(&slice) < 0:
                        rc = E_LOST
                slice_release(&slice)
            atomic_add(&self.in_use, -1)
        if rc <= 0:
            raise status_error(rc if rc < 0 else E_REMOVED, NULL, self.path)
        return memory

    @property
    def min_offset(self):
        """First queue offset whose unit is not blank."""
        return self.bounds()[0]

    @property
    def max_offset(self):
        """Queue offset after the last unit."""
        return self.bounds()[1]

    def flush(self):
        """Force the units to the disk."""
        cdef Queue *queue
        cdef int64_t rc
        if not self.writable:
            raise errors.ReadOnlyStoreError(f"{self.path}: opened with mode 'r'; 'r+' writes")
        queue = self.opened()
        with nogil:
            lock_take(&self.lock)
            rc = file_set_flush(&queue.files, atomic_get(&queue.files.wrote))
            lock_give(&self.lock)
            atomic_add(&self.in_use, -1)
        check(min(rc, 0), NULL, self.path)

    def close(self):
        """Flush if open for writing, and close; closing again does nothing."""
        cdef Queue *queue
        cdef int64_t rc = 0
        with cython.critical_section(self):  # only one call closes
            queue = self.queue
            self.queue = NULL
        if queue == NULL:
            return
        with nogil:
            wait_for_calls(&self.in_use)
            if self.writable:
                rc = file_set_flush(&queue.files, atomic_get(&queue.files.wrote))
            queue_destroy(queue)
        check(min(rc, 0), NULL, self.path)

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        self.close()


@cython.final
cdef class QueuePart(ConsumeQueue):
    """A consume queue for jobs, which write runs of units."""

    def __init__(self, directory, int64_t file_size):
        self.open(directory, file_size, "a", False)

    def put_run(self, int64_t first, units, bint is_light=False):
        """Write consecutive units as dispatch does; the number skipped."""
        cdef Py_buffer view
        cdef Queue *queue
        cdef int64_t skipped = 0
        cdef int64_t rc
        if not self.writable:
            raise errors.ReadOnlyStoreError(f"{self.path}: opened with mode 'r'; 'r+' writes")
        PyObject_GetBuffer(units, &view, PyBUF_SIMPLE)
        try:
            if view.len % UNIT_BYTES or not (
                    0 <= first <= INT64_MOST // UNIT_BYTES - 1 - view.len // UNIT_BYTES):
                raise ValueError(f"first={first}, {view.len} bytes: no units of a queue")
            queue = self.opened()
            with nogil:
                lock_take(&self.lock)
                rc = queue_put_run(queue, first, <const char *>view.buf, view.len // UNIT_BYTES,
                                   is_light, &skipped)
                lock_give(&self.lock)
                atomic_add(&self.in_use, -1)
        finally:
            PyBuffer_Release(&view)
        check(rc, NULL, self.path)
        return skipped


@cython.final
cdef class QueueDraft:
    """Units that dispatch makes from the records of a queue, in memory."""

    cdef Queue *queue

    def __cinit__(self):
        self.queue = queue_new(NULL, 0, -1, QUEUE_FILE_BYTES, False)
        if self.queue == NULL:
            raise MemoryError()

    def __dealloc__(self):
        if self.queue != NULL:
            queue_destroy(self.queue)

    def put_run(self, int64_t first, units, bint is_light=False):
        """Enter consecutive records' units; the number of units there are, with blank ones."""
        cdef Py_buffer view
        cdef int64_t skipped = 0
        cdef int64_t rc
        PyObject_GetBuffer(units, &view, PyBUF_SIMPLE)
        with nogil:
            rc = queue_put_run(self.queue, first, <const char *>view.buf, view.len // UNIT_BYTES,
                               is_light, &skipped)
        PyBuffer_Release(&view)
        check(rc, NULL, "")
        return 0 if self.queue.making == NULL else self.queue.making.count

    def units(self):
        """Return the queue offset of the first unit, and the units."""
        cdef Derived *made = self.queue.making
        if made == NULL:
            return 0, b""
        return made.start, PyBytes_FromStringAndSize(made.units, made.count * UNIT_BYTES)
