# A consume queue on its own.

@cython.final
cdef class QueuePart:
    """The C side of :class:`rmqstore.ConsumeQueue`."""

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

    def __init__(self, directory, int64_t file_size, str mode, bint infer_sizes):
        cdef Failure failure
        cdef Queue *queue
        cdef int64_t rc
        check_mode(mode)
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
        check(self.find_ends(), NULL, self.path)

    cdef int64_t find_ends(self) noexcept nogil:
        """Find the first and last unit from the bytes."""
        cdef Queue *queue = self.queue
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

    def __dealloc__(self):
        if self.queue != NULL:
            queue_destroy(self.queue)
        if self.root >= 0:
            close(self.root)
        lock_destroy(&self.lock)

    cdef Queue *opened(self) except NULL:
        if self.queue == NULL:
            raise errors.StoreClosedError(f"{self.path}: the consume queue is closed")
        if self.fork_generation != fork_generation:
            raise status_error(E_FORKED, NULL, self.path)
        atomic_add(&self.in_use, 1)
        return self.queue

    def put(self, int64_t physical_offset, int64_t size, int64_t tags_code, int64_t queue_offset):
        """Write a unit in its position; False if another unit is there."""
        cdef Queue *queue
        cdef Unit unit
        cdef int64_t rc
        if not self.writable:
            raise errors.ReadOnlyStoreError(f"{self.path}: opened with mode 'r'; 'r+' writes")
        if not 0 <= physical_offset or not 1 <= size <= 0x7FFFFFFF:
            raise ValueError("physical_offset must be 0 or more and size 1 to 2147483647, got "
                             f"{physical_offset} and {size}")
        if not 0 <= queue_offset < INT64_MOST // UNIT_BYTES - 1:
            raise arguments.wrong_value(
                "queue_offset", f"0 to {INT64_MOST // UNIT_BYTES - 2}", queue_offset)
        queue = self.opened()
        with nogil:
            lock_take(&self.lock)
            if queue_offset < atomic_get(&queue.max_offset):
                rc = queue_unit_at(queue, queue_offset, &unit)
                if rc == 0:
                    rc = (unit.physical_offset == physical_offset and unit.size == size
                          and unit.tags_code == tags_code)
                elif rc == E_NOT_FOUND:
                    rc = 0
            else:
                rc = queue_put_unit(queue, queue_offset, physical_offset, <int32_t>size, tags_code)
            lock_give(&self.lock)
            atomic_add(&self.in_use, -1)
        return check(rc, NULL, self.path) == 1

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

    def bounds(self):
        """First queue offset, and the one after the last."""
        cdef Queue *queue = self.opened()
        cdef int64_t rc = 0
        if not self.writable:
            with nogil:
                lock_take(&self.lock)
                rc = file_set_list(&queue.files, NULL)
                if rc >= 0:
                    rc = self.find_ends()
                lock_give(&self.lock)
        low = atomic_get(&queue.min_offset)
        high = atomic_get(&queue.max_offset)
        atomic_add(&self.in_use, -1)
        check(rc, NULL, self.path)
        return low, high

    def units(self, int64_t start, int64_t stop):
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
        """Flush if it was written, and close the files."""
        cdef Queue *queue = self.queue
        cdef int64_t rc = 0
        self.queue = NULL                    # before the GIL is released: only one call closes
        if queue == NULL:
            return
        with nogil:
            wait_for_calls(&self.in_use)
            if self.writable:
                rc = file_set_flush(&queue.files, atomic_get(&queue.files.wrote))
            queue_destroy(queue)
        check(min(rc, 0), NULL, self.path)

    @property
    def closed(self):
        return self.queue == NULL
