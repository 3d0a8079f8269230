# Records of one log on their way into another one: how many they are, and copies of them that
# name their new places.
#
# A copy is written with pwrite, so that several processes may write the pieces of one file, and
# one that is tried again writes the same bytes.
#
# Source: ours

cdef enum:
    MOVE_BUFFER = 4 << 20

cdef struct Mover:
    Cursor cursor
    TopicTable *table
    bint chosen                  # only topics that have write queues in the table
    bint numbered                # queue offsets begin at their queues' next_offset
    int64_t store_timestamp      # of all copies, -1: each keeps its own
    Topic *topic                 # of the last record
    char *buffer
    int64_t room
    int64_t used                 # bytes of the buffer
    int64_t position             # in the new log, of the buffer's beginning
    int64_t file_start           # where the new file begins in the new log
    int fd
    int64_t bytes
    int64_t records
    int64_t last_record          # its place in the new log, -1: none
    int64_t last_store_timestamp


# What lies in a range of a log.
cdef struct Measured:
    int64_t first                # the first record, -1: none begins there
    int64_t end                  # of the last one, or of the filler behind it
    int64_t records
    int64_t bytes                # of those that are moved
    int64_t since_first          # the first that is not older than asked for, -1: none is
    int64_t since_bytes          # of those that are moved, from that one on


cdef bint is_moved(Mover *mover, const char *data, const Record *record) noexcept nogil:
    """Whether a record is of a topic that is moved, and not from before its deletion."""
    cdef Topic *topic = mover.topic
    if record.topic_length == 0:             # it stands for bytes that were damaged
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
    """Stand on the first record that begins at or after ``cursor.at``: 1, 0 if none does."""
    cdef int64_t file_size = cursor.store.log.file_size
    cdef int64_t stop = cursor.stop
    cdef int64_t rc
    if cursor.at % file_size == 0:
        return 1
    # It is told by bytes that may lie behind the range.
    cursor.stop = cursor.at - cursor.at % file_size + file_size
    cursor.at -= 1                           # where it looks from is the byte behind
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
    # A filler that begins where the range ends belongs to it.
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
    """Have ``size`` bytes free in the buffer."""
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
    """Copy a record into the buffer; E_NOT_FOUND if nothing tells its new queue offset."""
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
    """Copy the records of the cursor's range, which begins with one."""
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
    """A log whose records go into another one; which of them, and under what numbers."""

    cdef LogPart source
    cdef Store *store
    cdef bint chosen
    cdef bint numbered

    def __init__(self, directory, int64_t file_size):
        self.source = LogPart(directory, file_size, "r", False)
        self.store = self.source.opened(False)
        store_leave(self.store)

    cdef Topic *topic(self, str name) except NULL:
        cdef int64_t length = 0
        cdef const char *data = utf8_of("topic", name, &length)
        cdef Topic *topic
        if not 1 <= length <= TOPIC_MAX_BYTES:
            raise ValueError(f"argument 'topic' is {name!r}; it may have 1 to {TOPIC_MAX_BYTES} "
                             "bytes")
        topic = topic_enter(&self.store.table, data, length)
        if topic == NULL:
            raise MemoryError()
        return topic

    def choose(self, names):
        """Move records of these topics alone."""
        for name in names:
            atomic_set(&self.topic(name).write_queue_nums, 1)
        self.chosen = True

    def drop_below(self, str name, int64_t physical_offset):
        """Leave out what a topic had before it was deleted at this log offset."""
        self.topic(name).deleted_before = physical_offset

    def number(self, str name, int32_t queue_id, int64_t first):
        """Add ``first`` to the queue offsets of a queue; from now on each one needs that."""
        cdef Topic *topic = self.topic(name)
        cdef Queue *queue
        if queue_id < 0:
            raise ValueError(f"argument 'queue_id' is {queue_id}; it may be 0 or more")
        queue = queue_enter(&self.store.table, topic, queue_id, self.store.root, UNIT_BYTES, False)
        if queue == NULL:
            raise MemoryError()
        queue.next_offset = first
        self.numbered = True

    cdef int begin(self, Mover *mover, int64_t start, int64_t stop, bint check_crc) except -1:
        memset(mover, 0, sizeof(Mover))
        self.source.opened(False)
        cursor_init(&mover.cursor, self.store, start, stop)
        mover.cursor.check_crc = check_crc
        mover.cursor.tell_removed = True
        mover.table = &self.store.table
        mover.chosen = self.chosen
        mover.numbered = self.numbered
        mover.last_record = -1
        return 0

    cdef int end(self, Mover *mover, int64_t rc) except -1:
        """Let go of what a call took, and raise for its status."""
        cdef int64_t at = mover.cursor.at
        cdef int64_t field = mover.cursor.field
        cursor_close(&mover.cursor)
        free(mover.buffer)
        store_leave(self.store)
        if rc == E_CORRUPT:
            raise corrupt_record(os_path.dirname(self.source.path), self.store.log.file_size, at,
                                 field)
        if rc == E_REMOVED:
            raise errors.MessagesRemovedError("", -1, at, log_first(self.store))
        if rc == E_NOT_FOUND:
            raise errors.StoreCorruptError(
                self.source.path, at, "the record is of a queue that has no number")
        check(rc, NULL, self.source.path)
        return 0

    def measure(self, int64_t start, int64_t stop, int64_t since):
        """What begins in a range of the log: a tuple of the fields of Measured."""
        cdef Mover mover
        cdef Measured found
        cdef int64_t rc
        self.begin(&mover, start, stop, False)
        with nogil:
            rc = move_measure(&mover, since, &found)
        self.end(&mover, rc)
        return (found.first, found.end, found.records, found.bytes, found.since_first,
                found.since_bytes)

    def copy(self, int64_t start, int64_t stop, int fd, int64_t file_start, int64_t position,
             int64_t store_timestamp):
        """Copy records to ``position`` of the new log, whose file ``fd`` begins at file_start.

        ``start`` is a record's own. Returns bytes, records, the last one's place (-1: none) and
        the newest store time.
        """
        cdef Mover mover
        cdef int64_t rc
        self.begin(&mover, start, stop, True)
        mover.fd = fd
        mover.file_start = file_start
        mover.position = position
        mover.store_timestamp = store_timestamp
        with nogil:
            rc = move_copy(&mover)
        self.end(&mover, rc)
        return mover.bytes, mover.records, mover.last_record, mover.last_store_timestamp

    def close(self):
        """Let go of the files."""
        self.source.close()


def write_filler(int fd, int64_t file_size, int64_t at):
    """End a log file, whose records end at ``at``, with a filler."""
    cdef char blank[RECORD_BLANK_BYTES]
    cdef int64_t rc
    if not 0 <= at <= file_size - RECORD_BLANK_BYTES:
        raise ValueError(f"no room for a filler at {at} of {file_size} bytes")
    blank_write(blank, file_size - at)
    with nogil:
        rc = sys_write(fd, blank, RECORD_BLANK_BYTES, at)
    check(rc, NULL, "a log file")


def queue_ends(Engine engine):
    """By topic and queue: the next queue offset, where it is not 0."""
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
