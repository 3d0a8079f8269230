# Move of records from one log into another: measure, then copy with new offsets.
#
# Copies are written with pwrite: several processes can write parts of one file, and a retry writes
# the same bytes.

cdef enum:
    MOVE_BUFFER = 4 << 20

cdef struct Mover:
    Cursor cursor
    TopicTable *table
    bint chosen                  # only topics that have write queues in the table
    bint numbered                # queue offsets start at their queues' next_offset
    int64_t store_timestamp      # for all copies, -1: each keeps its own
    Topic *topic                 # of the last record
    char *buffer
    int64_t room
    int64_t used                 # bytes of the buffer
    int64_t position             # log offset of the buffer's beginning in the new log
    int64_t file_start           # log offset of the new file's beginning
    int fd
    int64_t bytes
    int64_t records
    int64_t last_record          # its offset in the new log, -1: none
    int64_t last_store_timestamp


# Contents of a range of a log.
cdef struct Measured:
    int64_t first                # the first record, -1: none
    int64_t end                  # of the last one, or of the blank after it
    int64_t records
    int64_t bytes                # of the records to move
    int64_t since_first          # the first record not older than requested, -1: none
    int64_t since_bytes          # of the records to move, from there on


cdef bint is_moved(Mover *mover, const char *data, const Record *record) noexcept nogil:
    """Whether a record's topic is moved, and the record is not from before its deletion."""
    cdef Topic *topic = mover.topic
    if record.topic_length == 0:             # it replaces damaged bytes
        return False
    if topic == NULL or not is_same(
            topic.name, topic.length, data + record.topic_at, record.topic_length):
        topic = topic_find(mover.table, data + record.topic_at, record.topic_length)
        mover.topic = topic
        if topic == NULL:
            return not mover.chosen
    return record.physical_offset >= topic.deleted_before \
        and not (mover.chosen and atomic_peek(&topic.write_queue_nums) == 0)


cdef int64_t move_find_first(Cursor *cursor) noexcept nogil:
    """Advance to the first record at or after ``cursor.at``: 1, 0 without one."""
    cdef int64_t file_size = cursor.store.log.file_size
    cdef int64_t stop = cursor.stop
    cdef int64_t rc
    if cursor.at % file_size == 0:
        return 1
    # Bytes after the range may be needed to recognize it.
    cursor.stop = cursor.at - cursor.at % file_size + file_size
    cursor.at -= 1                           # the search begins one byte later
    rc = cursor_resync(cursor)
    cursor.stop = stop
    return 0 if rc > 0 and cursor.at >= stop else min(rc, 1)


cdef int64_t move_measure(Mover *mover, int64_t since, Measured *found) noexcept nogil:
    """Count the records that begin in the cursor's range."""
    cdef Cursor *cursor = &mover.cursor
    cdef Record record
    cdef const char *data = NULL
    cdef int64_t at
    cdef int64_t rc = move_find_first(cursor)
    memset(found, 0, sizeof(Measured))
    found.first = -1
    found.since_first = -1
    if rc <= 0:
        return rc
    while True:
        rc = cursor_next(cursor, &record, &data)
        if rc <= 0:
            break
        at = cursor.at - rc
        if found.first < 0:
            found.first = at
        if found.since_first < 0 and record.store_timestamp >= since:
            found.since_first = at
        found.records += 1
        if is_moved(mover, data, &record):
            found.bytes += rc
            if found.since_first >= 0:
                found.since_bytes += rc
    found.end = cursor.at
    if rc < 0 or cursor.at % cursor.store.log.file_size == 0:
        return rc
    # A blank that begins at the end of the range belongs to it.
    cursor.stop = cursor.at + 1
    at = cursor.at
    if cursor_next(cursor, &record, &data) == 0:
        at = cursor.at
    found.end = at
    return 0


cdef int64_t move_flush(Mover *mover) noexcept nogil:
    cdef int64_t rc = sys_write(
        mover.fd, mover.buffer, mover.used, mover.position - mover.file_start)
    mover.position += mover.used
    mover.used = 0
    return min(rc, 0)


cdef int64_t move_room(Mover *mover, int64_t size) noexcept nogil:
    """Make ``size`` bytes of room in the buffer."""
    cdef int64_t rc
    if mover.used + size <= mover.room:
        return 0
    rc = move_flush(mover)
    if rc < 0 or size <= mover.room:
        return rc
    free(mover.buffer)
    mover.room = max(size, MOVE_BUFFER)
    mover.buffer = <char *>malloc(<size_t>mover.room)
    if mover.buffer == NULL:
        mover.room = 0
        return E_NO_MEMORY
    return 0


cdef int64_t move_record(Mover *mover, const char *data, const Record *record) noexcept nogil:
    """Copy a record into the buffer; E_NOT_FOUND if its queue has no new number."""
    cdef char *at
    cdef Queue *queue
    cdef int64_t rc = move_room(mover, record.size)
    if rc < 0:
        return rc
    at = mover.buffer + mover.used
    memcpy(at, data, <size_t>record.size)
    put_i64(at + RECORD_PHYSICAL_OFFSET, mover.position + mover.used)
    if mover.numbered and not record.sys_flag & SYS_PREPARED:
        queue = queue_find(mover.topic, record.queue_id) if mover.topic != NULL else NULL
        if queue == NULL:
            return E_NOT_FOUND
        put_i64(at + RECORD_QUEUE_OFFSET, queue.next_offset + record.queue_offset)
    mover.last_store_timestamp = max(mover.last_store_timestamp, record.store_timestamp)
    if mover.store_timestamp >= 0:
        put_i64(at + record.store_host_at - 8, mover.store_timestamp)
        mover.last_store_timestamp = mover.store_timestamp
    if record_checksum_at(at, record) >= 0:
        record_write_checksum(at, record.size)
    mover.last_record = mover.position + mover.used
    mover.used += record.size
    mover.bytes += record.size
    mover.records += 1
    return 0


cdef int64_t move_copy(Mover *mover) noexcept nogil:
    """Copy the records of the cursor's range, which begins at a record."""
    cdef Cursor *cursor = &mover.cursor
    cdef Record record
    cdef const char *data = NULL
    cdef int64_t rc
    while True:
        rc = cursor_next(cursor, &record, &data)
        if rc <= 0:
            break
        if is_moved(mover, data, &record):
            rc = move_record(mover, data, &record)
            if rc < 0:
                cursor.at -= record.size
                return rc
    return rc if rc < 0 else move_flush(mover)


@cython.final
cdef class LogMove:
    """A log whose records move into another, selected and with their new queue offsets."""

    cdef CommitLog source
    cdef Store *store
    cdef bint chosen
    cdef bint numbered

    def __init__(self, directory, int64_t file_size):
        self.source = CommitLog.__new__(CommitLog)
        self.source.open(directory, file_size, "r", False)
        self.store = self.source.opened(READ_ONLY)
        store_leave(self.store)

    cdef Topic *topic(self, str name) except NULL:
        cdef int64_t length = 0
        cdef const char *data = utf8_of("topic", name, &length)
        cdef Topic *topic
        if not 1 <= length <= TOPIC_V2_MAX_BYTES:
            raise arguments.wrong_value("topic", f"1 to {TOPIC_V2_MAX_BYTES} bytes", name)
        topic = topic_enter(&self.store.table, data, length)
        if topic == NULL:
            raise MemoryError()
        return topic

    def choose(self, names):
        """Move only records of these topics."""
        for name in names:
            atomic_set(&self.topic(name).write_queue_nums, 1)
        self.chosen = True

    def drop_below(self, str name, int64_t physical_offset):
        """Leave out the topic's records from before its deletion at this log offset."""
        self.topic(name).deleted_before = physical_offset

    def number(self, str name, int32_t queue_id, int64_t first):
        """Add ``first`` to the queue offsets of a queue; once called, all queues need it."""
        cdef Topic *topic = self.topic(name)
        cdef Queue *queue
        if queue_id < 0:
            raise arguments.wrong_value("queue_id", "0 or more", queue_id)
        queue = queue_enter(&self.store.table, topic, queue_id)
        if queue == NULL:
            raise MemoryError()
        queue.next_offset = first
        self.numbered = True

    cdef int begin(self, Mover *mover, int64_t start, int64_t stop) except -1:
        memset(mover, 0, sizeof(Mover))
        self.source.opened(READ_ONLY)
        cursor_init(&mover.cursor, self.store, start, stop)
        mover.cursor.report_removed = True
        mover.table = &self.store.table
        mover.chosen = self.chosen
        mover.numbered = self.numbered
        mover.last_record = -1
        return 0

    cdef int end(self, Mover *mover, int64_t rc) except -1:
        """Free the resources of a call, and raise for its status."""
        cdef int64_t at = mover.cursor.at
        cdef int64_t field = mover.cursor.field
        cursor_close(&mover.cursor)
        free(mover.buffer)
        store_leave(self.store)
        if rc == E_CORRUPT:
            raise corrupt_record(os_path.dirname(self.source.path), &self.store.log, at,
                                 field)
        if rc == E_REMOVED:
            raise errors.MessagesRemovedError("", -1, at, log_first(self.store))
        if rc == E_NOT_FOUND:
            raise errors.StoreCorruptError(
                self.source.path, at, "the record is of a queue that has no number")
        check(rc, NULL, self.source.path)
        return 0

    def measure(self, int64_t start, int64_t stop, int64_t since):
        """Measure a range of the log: a tuple of the fields of Measured."""
        cdef Mover mover
        cdef Measured found
        cdef int64_t rc
        self.begin(&mover, start, stop)
        mover.cursor.check_crc = False
        with nogil:
            rc = move_measure(&mover, since, &found)
        self.end(&mover, rc)
        return (found.first, found.end, found.records, found.bytes, found.since_first,
                found.since_bytes)

    def copy(self, int64_t start, int64_t stop, int fd, int64_t file_start, int64_t position,
             int64_t store_timestamp):
        """Copy records to ``position`` of the new log, whose file ``fd`` begins at file_start.

        REQUIRES: a record begins at ``start``.  Returns bytes, records, the last record's offset
        (-1: none) and the newest store time.
        """
        cdef Mover mover
        cdef int64_t rc
        self.begin(&mover, start, stop)
        mover.fd = fd
        mover.file_start = file_start
        mover.position = position
        mover.store_timestamp = store_timestamp
        with nogil:
            rc = move_copy(&mover)
        self.end(&mover, rc)
        return mover.bytes, mover.records, mover.last_record, mover.last_store_timestamp

    def close(self):
        """Close the files."""
        self.source.close()


def write_blank(int fd, int64_t file_size, int64_t at):
    """End a log file, whose records end at ``at``, with a blank."""
    cdef char blank[RECORD_BLANK_BYTES]
    cdef int64_t rc
    if not 0 <= at <= file_size - RECORD_BLANK_BYTES:
        raise ValueError(f"no room for a blank at {at} of {file_size} bytes")
    blank_write(blank, file_size - at)
    with nogil:
        rc = sys_write(fd, blank, RECORD_BLANK_BYTES, at)
    check(rc, NULL, "a log file")


def queue_ends(OpenStore engine):
    """By topic and queue: the next queue offset, unless it is 0."""
    cdef Store *store = engine.entered()
    cdef Queue *queue = first_queue(&store.table)
    cdef dict ends = {}
    while queue != NULL:
        if queue.next_offset > 0:
            name = text_of(queue.topic.name, queue.topic.length)
            ends.setdefault(name, {})[queue.id] = queue.next_offset
        queue = next_queue(queue)
    store_leave(store)
    return ends
