# Queue units and index entries of a range of a log, and functions for them.

@cython.final
cdef class LogUnits:
    """Units and index entries of the records that begin in a range of a store's log.

    ``damages``: for each part without a good record, its offset, the reason, and the offset of the
    next good record of the range, or -1.
    """

    cdef LogWalk walk
    cdef str path
    cdef readonly list damages

    def __cinit__(self):
        memset(&self.walk, 0, sizeof(LogWalk))

    def __init__(self, path, config, dict deleted, int64_t start, int64_t stop, *,
                 bint unclean=False, bint any_version=False, places=None):
        cdef Settings settings
        cdef Failure failure
        cdef LogWalk *walk = &self.walk
        cdef int64_t fd, rc
        if not 0 <= start <= stop:
            raise ValueError(
                f"start and stop must be 0 or more, in this order, got {start} and {stop}")
        self.path = fsdecode(path)
        self.damages = []
        take_settings(config, &settings)
        fd = openat(AT_FDCWD, fsencode(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        if fd < 0:
            raise errors.StoreNotFoundError(f"{self.path}: {strerror(errno)}")
        walk.store = store_new(<int>fd, &settings, READ_ONLY)
        if walk.store == NULL:
            raise MemoryError()
        take_places(walk.store, places)
        walk.start = start
        walk.stop = stop
        walk.unclean = unclean
        walk.any_version = any_version
        walk.indexed = settings.index_enabled
        walk.counts.first_record = -1
        walk.counts.next_record = -1
        for name, offset in deleted.items():
            enter_deleted(walk.store, name, offset)
        memset(&failure, 0, sizeof(Failure))
        with nogil:
            rc = file_set_list(&walk.store.log, &failure)
            if rc > 0:
                rc = file_set_infer_size(&walk.store.log, 1, 1)
            if rc > 0:
                file_set_align(&walk.store.log, rc)
        check(rc, &failure, self.path)
        if rc == 0:
            raise errors.StoreNotFoundError(f"{self.path}: no commit log file")

    def __dealloc__(self):
        if self.walk.store != NULL and self.walk.store.fork_generation != fork_generation:
            return
        walk_free(&self.walk)

    def next(self, int64_t most):
        """Return the next runs and index entries, of about ``most`` bytes; None at the end.

        A run: topic, queue id, first unit's queue offset, begin of its record, end of the last
        unit's record, units; all of one file of the queue.  Entries are in log order, for
        ``put_loose``.
        """
        cdef LogWalk *walk = &self.walk
        cdef int64_t rc = WALK_MORE
        cdef UnitRun *run
        cdef Unit first
        cdef Unit last
        cdef int64_t i
        if walk.store.fork_generation != fork_generation:
            raise status_error(E_FORKED, NULL, self.path)
        with nogil:
            walk_free_slice(walk)
            rc = walk_slice(walk, most)
        check(rc, &walk.store.failure, self.path)
        PyErr_CheckSignals()
        if rc == WALK_DAMAGED:
            self.damages.append((walk.bad_offset,
                                 record_field_name(walk.bad_field).decode("ascii"), walk.resumed))
        if rc == WALK_ENDED and walk.run_count == 0 and walk.entry_count == 0:
            return None
        runs = []
        for i in range(walk.run_count):
            run = &walk.runs[i]
            units = memory_of(run.units, run.count * UNIT_BYTES)
            unit_read(run.units, &first)
            unit_read(run.units + (run.count - 1) * UNIT_BYTES, &last)
            run.units = NULL
            runs.append((text_of(run.queue.topic.name, run.queue.topic.length), run.queue.id,
                         run.first, first.physical_offset, last.physical_offset + last.size,
                         units))
        entries = memory_of(walk.entries, walk.entry_count * <int64_t>sizeof(LooseEntry))
        walk.entries = NULL
        return runs, entries

    def totals(self):
        """Counts so far, and the offsets of the first record of the range and after the range."""
        cdef LogWalk *walk = &self.walk
        cdef WalkCounts *counts = &walk.counts
        return dict(records=counts.records, units=counts.units, keys=counts.keys,
                    skipped=counts.skipped, noted=counts.noted, noted_last=bool(counts.noted_last),
                    first_record=counts.first_record, next_record=counts.next_record,
                    bytes=max(0, min(walk.cursor.at, walk.stop) - walk.start) if walk.begun else 0)

    def odd_fields(self):
        """Return offsets and a field of the first records with an impossible value, and how many.

        Any such record in the range so far counts.
        """
        cdef LogWalk *walk = &self.walk
        return [(walk.odd_offsets[i], walk.odd_fields[i].decode("ascii"))
                for i in range(min(walk.counts.odd, WALK_ODD_MAX))], walk.counts.odd

    def names(self, int64_t physical_offset, int64_t size, str topic, int32_t queue_id,
              int64_t queue_offset):
        """Whether a record of that size exists, for the queue and queue offset.

        One of a transaction that is prepared or rolled back has no unit.
        """
        cdef Store *store = self.walk.store
        cdef int64_t length = 0
        cdef const char *name = utf8_of("topic", topic, &length)
        cdef Found found
        cdef Topic *entry
        cdef Queue *queue = NULL
        cdef int64_t field
        cdef bint hit = False
        if not topic_name_stored(name, length) or queue_id < 0:
            return False
        with nogil:
            entry = topic_enter(&store.table, name, length)
            if entry != NULL:
                queue = queue_enter(&store.table, entry, queue_id)
            if queue != NULL and log_record(store, physical_offset, size, &found, &field) > 0:
                hit = found.record.size == size and not found.record.sys_flag & SYS_PREPARED \
                    and record_is_of(found.slice.data, &found.record, queue, queue_offset)
                slice_release(&found.slice)
        if queue == NULL:
            raise MemoryError()
        return hit

    def has_key(self, int64_t physical_offset, int32_t key_hash):
        """Whether the record there has a key of that hash; true below the log's first record."""
        cdef char entry[INDEX_ENTRY_BYTES]
        cdef bint hit
        memset(entry, 0, INDEX_ENTRY_BYTES)
        put_i32(entry + ENTRY_KEY_HASH, key_hash)
        put_i64(entry + ENTRY_PHYSICAL_OFFSET, physical_offset)
        with nogil:
            hit = key_hash >= 0 and entry_is_true(self.walk.store, entry)
        return hit

    def is_blank(self, int64_t start, int64_t stop):
        """Whether the bytes of a range of the log are zeros."""
        cdef Store *store = self.walk.store
        cdef Slice slice
        cdef int64_t rc = 1
        cdef bint blank = True
        with nogil:
            while start < stop and blank and rc > 0:
                rc = file_set_read(&store.log, start, min(stop - start, WALK_CHUNK), &slice)
                if rc > 0:
                    blank = last_nonzero(slice.data, rc) < 0
                    start += rc
                slice_release(&slice)
        return blank


cdef object unit_tuple(const Unit *unit):
    """Offset, size, code; None for a blank unit."""
    if unit_is_blank(unit) or not (unit.physical_offset or unit.size or unit.tags_code):
        return None
    return unit.physical_offset, unit.size, unit.tags_code


def differing_units(str topic, expected, found):
    """Return differing units: index, then offset, size, code expected and found, or None.

    A delivery time or an ext address matches any code.
    """
    cdef Py_buffer wanted
    cdef Py_buffer actual
    cdef bint schedule = topic == SCHEDULE_TOPIC_NAME
    cdef Unit one
    cdef Unit other
    cdef int64_t i = 0
    differing = []
    PyObject_GetBuffer(expected, &wanted, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(found, &actual, PyBUF_SIMPLE)
        try:
            if wanted.len != actual.len or wanted.len % UNIT_BYTES:
                raise ValueError(f"{wanted.len} and {actual.len} bytes cannot be compared")
            while i < wanted.len // UNIT_BYTES:
                unit_read(<const char *>wanted.buf + i * UNIT_BYTES, &one)
                unit_read(<const char *>actual.buf + i * UNIT_BYTES, &other)
                if one.physical_offset != other.physical_offset or one.size != other.size or (
                        one.tags_code != other.tags_code and not schedule
                        and other.tags_code > EXT_ADDRESS):
                    differing.append((i, (one.physical_offset, one.size, one.tags_code),
                                      unit_tuple(&other)))
                i += 1
        finally:
            PyBuffer_Release(&actual)
    finally:
        PyBuffer_Release(&wanted)
    return differing


def used_units(units):
    """Return nonblank units: index, then offset, size, code."""
    cdef Py_buffer view
    cdef Unit unit
    cdef int64_t i = 0
    found = []
    PyObject_GetBuffer(units, &view, PyBUF_SIMPLE)
    try:
        while i < view.len // UNIT_BYTES:
            unit_read(<const char *>view.buf + i * UNIT_BYTES, &unit)
            one = unit_tuple(&unit)
            if one is not None:
                found.append((i, one))
            i += 1
    finally:
        PyBuffer_Release(&view)
    return found


def leading_units(units):
    """Return the number of units before the first blank, and the last one's record's end, or 0."""
    cdef Py_buffer view
    cdef Unit unit
    cdef int64_t count = 0
    cdef int64_t end = 0
    PyObject_GetBuffer(units, &view, PyBUF_SIMPLE)
    with nogil:
        while count < view.len // UNIT_BYTES:
            unit_read(<const char *>view.buf + count * UNIT_BYTES, &unit)
            if unit.physical_offset < 0 or unit.size <= 0:
                break
            end = unit.physical_offset + unit.size
            count += 1
    PyBuffer_Release(&view)
    return count, end


def units_within(units, int64_t start, int64_t stop):
    """Whether all records are inside [start, stop) of the log; blank units have none."""
    cdef Py_buffer view
    cdef Unit unit
    cdef int64_t i = 0
    cdef bint within = True
    PyObject_GetBuffer(units, &view, PyBUF_SIMPLE)
    with nogil:
        while within and i < view.len // UNIT_BYTES:
            unit_read(<const char *>view.buf + i * UNIT_BYTES, &unit)
            if unit.size > 0 and not unit_is_blank(&unit):
                within = start <= unit.physical_offset <= stop - unit.size
            i += 1
    PyBuffer_Release(&view)
    return within


def loose_entries(entries):
    """Return entries of ``LogUnits`` as tuples: hash, physical offset, store time."""
    cdef Py_buffer view
    cdef const LooseEntry *entry
    cdef int64_t i = 0
    found = []
    PyObject_GetBuffer(entries, &view, PyBUF_SIMPLE)
    try:
        entry = <const LooseEntry *>view.buf
        while i < view.len // <int64_t>sizeof(LooseEntry):
            found.append((entry[i].key_hash, entry[i].physical_offset, entry[i].store_timestamp))
            i += 1
    finally:
        PyBuffer_Release(&view)
    return found


def index_seconds_of(int64_t begin_timestamp, int64_t store_timestamp):
    """Return the seconds to store in an entry of a file that begins at ``begin_timestamp``."""
    return index_seconds(begin_timestamp, store_timestamp)


LOOSE_ENTRY_BYTES = sizeof(LooseEntry)


def log_extent(path, places=None):
    """Return a store's log: its beginning, the end of its last file, its file size."""
    cdef Settings settings
    cdef Failure failure
    cdef Store *store
    cdef int64_t fd, rc
    text = fsdecode(path)
    fd = openat(AT_FDCWD, fsencode(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    if fd < 0:
        raise errors.StoreNotFoundError(f"{text}: {strerror(errno)}")
    memset(&settings, 0, sizeof(Settings))
    memset(&failure, 0, sizeof(Failure))
    store = store_new(<int>fd, &settings, READ_ONLY)
    if store == NULL:
        raise MemoryError()
    try:
        take_places(store, places)
    except BaseException:
        store_drop(store)
        raise
    with nogil:
        rc = file_set_list(&store.log, &failure)
        if rc > 0:
            rc = file_set_infer_size(&store.log, 1, 1)
        if rc > 0:
            file_set_align(&store.log, rc)
    found = file_set_start(&store.log), file_set_stop(&store.log), store.log.file_size
    store_drop(store)
    if rc == -ENOENT or rc == 0:
        raise errors.StoreNotFoundError(f"{text}: no commit log file")
    check(rc, &failure, text)
    return found


def gap_is_likely_between(int64_t missing, int64_t bytes_between):
    """Whether ``missing`` messages can be lost in a gap of ``bytes_between`` bytes of the log."""
    return bool(gap_is_likely(missing, bytes_between))


def blank_units(int64_t count):
    """Return blank units, which fill a gap in a queue."""
    cdef Memory memory = memory_new(count * UNIT_BYTES)
    cdef int64_t i
    for i in range(count):
        unit_write(memory.data + i * UNIT_BYTES, 0, UNIT_BLANK_SIZE, 0)
    return memory


def start_sync(int fd):
    """Start to write a file's dirty pages to the disk; the next sync waits for them."""
    with nogil:
        sys_start_sync(fd, 0, 0)


def next_index_name(last, int64_t millis):
    """Return the name of an index file made at ``millis``, above ``last``, which may be None."""
    cdef char name[INDEX_NAME_DIGITS + 1]
    cdef bytes before = b"" if last is None else fsencode(last)
    if last is not None and len(before) != INDEX_NAME_DIGITS:
        raise arguments.wrong_value("last", f"{INDEX_NAME_DIGITS} digits", last)
    index_name_for(NULL if last is None else PyBytes_AS_STRING(before), millis, name)
    return name.decode("ascii")
