# An open store for the project's own modules, each method one call to the part that does it.
# Source: store/DefaultMessageStore.java

cdef class Core(OpenStore):
    """Open store without the parts that Python adds: ``store.core``.  Each method is one call.

    Its user keeps it open, and keeps its ``services`` running.
    """

    cdef object __weakref__
    cdef dict __dict__           # tests replace calls
    cdef public object services  # kept as long as the store

    # Open and close

    def open(self, str path, str mode, object config, double timeout, object read_topics, *,
             int infer_sizes=0, bint fill=False, bint full=False, bint log_only=False,
             object places=None):
        """Open the directory; see open_store."""
        cdef int how = (infer_sizes | fill * OPEN_FILL | full * OPEN_FULL
                        | log_only * OPEN_LOG_ONLY)
        open_store(self, path, mode, config, how, timeout, read_topics, places)

    def close(self):
        """Flush everything, close the store, and release the lock; see Engine.close."""
        close_store(self)

    @property
    def path(self):
        """Directory of the store."""
        return self._path

    @property
    def config(self):
        """Configuration in force, with the actual file sizes once these are known."""
        return self._config

    @config.setter
    def config(self, config):
        self._config = config

    @property
    def closed(self):
        """Whether the store was closed, or is not open yet."""
        return self.store == NULL or atomic_get(&self.store.state) != STATE_OPEN

    def refuse_inner_close(self):
        """Raise if a close would wait for a call of its own thread."""
        refuse_inner_close(self)

    def undo_opening(self):
        """Close a store whose start failed, without marking it as cleanly closed."""
        give_up_store(self)

    def recovery(self):
        """Findings of the opening, as a dict."""
        return recovery_of(self)

    def verify(self):
        """Check the whole log, and every unit against its record; nothing is changed."""
        return verify_all(self)

    def sizes(self):
        """File sizes: log, queue, slots, entries, ext."""
        return sizes_of(self)

    def check_open(self):
        """Raise unless the store is open here."""
        store_leave(self.entered())

    def check_writable(self):
        """Raise unless the store is open for writing here."""
        store_writable(self.store, self._path)
        store_leave(self.store)

    def set_failed(self, int number, path, str what):
        """Fail the store after a sync in Python failed with errno ``number``."""
        note_failed_sync(self, number, path, what)

    def now(self):
        """Milliseconds since the epoch by the store's clock."""
        cdef Store *store = self.store
        return wall_millis() if store == NULL else store_millis(store)

    def advance_clock(self, int64_t millis):
        """Move the store's clock forward or back."""
        cdef Store *store = self.store
        if store != NULL:
            atomic_add(&store.clock_shift, millis)

    def stats(self):
        """Positions and counters of the four activities, as a dict."""
        return stats_of(self)

    def figures(self):
        """Counters of puts and gets, as a dict."""
        return figures_of(self)

    def topic_counts(self):
        """Messages put to each topic since the store was opened, and their records' bytes."""
        return topic_counts(self)

    def log_places(self):
        """Directories of the log: path, whether read only, whether full.

        Empty if the log is in the store's own directory.
        """
        return places_of(self)

    def log_path_full(self, path, full):
        """Set whether a directory's disk is full: it then gets no new log file.

        Only with directories elsewhere, and while another one has room.
        """
        set_place_full(self, path, full)

    # Topics

    def set_topic(self, str topic, int64_t write_queue_nums):
        """Enter a topic of topics.json; 0 removes the entry."""
        set_topic(self, topic, write_queue_nums)

    def knows_topic(self, topic):
        """Whether a put need not create the topic, which writes and syncs files."""
        return knows_topic(self, topic)

    def queue_files(self):
        """``{topic: [queue ids]}`` of the queues that exist."""
        return queue_files(self)

    def delete_queues(self, str topic):
        """Remove a topic's queues and their files; the log's end at that time."""
        return delete_queues(self, topic)

    def gone_topics(self):
        """Topics with records that a recovery met without restoring their queues."""
        return gone_topics(self)

    # Write

    def put_half(self, topic, body, queue_id, queue_key, tags, keys, properties, flag,
                 born_timestamp, born_host, uniq_key, producer_group, wait):
        """Store the half message of a transaction; other arguments as for ``put``."""
        return put_message(self, topic, body, queue_id, queue_key, tags, keys, properties, flag, 0,
                           born_timestamp, born_host, uniq_key, None, producer_group, bool(wait))

    def put_stored(self, topic, queue_id, body, properties, *, flag=0, sys_flag=0,
                   born_timestamp=None, born_host=None, reconsume_times=0,
                   prepared_transaction_offset=0, store_host=None, moved=False, wait=True):
        """Store a record with its properties string unchanged.

        Refused as by ``put``, and, if it waits, also if its destination would refuse it.
        A ``moved`` record was acknowledged: it is refused only if the format cannot hold it.

        A copy of another record keeps the original's store host, as with a broker.

        Further queues named by the record, as by a client's ``INNER_MULTI_DISPATCH``, are recreated
        if the settings allow it or the record has offsets in them from elsewhere, unless it waits
        in the topics of delayed or half messages.

        An unknown topic is created with the default number of queues; for another number, create
        it first.
        """
        return put_stored(self, topic, queue_id, body, properties, flag, sys_flag, born_timestamp,
                          born_host, reconsume_times, prepared_transaction_offset, store_host,
                          bool(moved), bool(wait))

    def put_stored_batch(self, topic, queue_id, list rows not None, *, sys_flag, born_timestamp,
                         born_host, store_host, reconsume_times=0, wait=True):
        """Store consecutive records of one queue, all or none: rows of (body, properties, flag).

        Returns the first one's result, and all physical offsets.
        """
        return put_stored_batch(self, topic, queue_id, rows, sys_flag, born_timestamp, born_host,
                                store_host, reconsume_times, bool(wait))

    def result_of(self, Message message):
        """Result of the put of a message of this store."""
        return result_of(message)

    def flush(self):
        """Force log, queues, index and checkpoint to the disk; see Engine.flush."""
        flush_store(self)

    def flush_log(self):
        """Force only the log to the disk; its flushed position."""
        return flush_log(self)

    def log_wakeup(self):
        """Descriptor by which an event loop waits for the disk."""
        return log_wakeup(self, LOG_FLUSHED)

    def dispatch_wakeup(self):
        """Descriptor, readable once dispatch has reached the wanted position."""
        return log_wakeup(self, LOG_DISPATCHED)

    # Read

    def get(self, topic, queue_id, offset, max_messages=32, *, max_bytes=None, tags=None,
            sql=None):
        """Read messages of one queue; see Engine.get."""
        return get_from_queue(self, topic, queue_id, offset, max_messages, max_bytes, tags, sql)

    def at(self, physical_offset):
        """Message whose record begins at a byte of the log; see Engine.at."""
        return message_at(self, physical_offset)

    def query(self, topic, key, *, max_num=None, begin=None, end=None, index_only=False):
        """Messages of a topic that have a key; see Engine.query."""
        return query_key(self, topic, key, max_num, begin, end, index_only)

    def query_many(self, topic, keys, object max_num, object begin, object end,
                   bint index_only):
        """Messages of many keys: a list for each."""
        return messages_of_keys(self, topic, keys, max_num, begin, end, index_only)

    def locate(self, topic, keys, object max_num, object begin, object end, bint index_only):
        """Physical offsets of the hits of many keys, and the index of each key's first."""
        return locate_keys(self, topic, keys, max_num, begin, end, index_only)

    def pull(self, topic, queue_id, int64_t offset, int64_t max_messages, int64_t max_bytes,
             PullFilter filter=None, opaque=None, *, at_once=False):
        """Read stored records of a queue; ``at_once``: without waiting for earlier puts' dispatch.

        Returns status, next, minimum and maximum offset, the number of records, and the records
        concatenated, after a pull answer's header if there are any and ``opaque`` is given.
        """
        return pull_messages(
            self, topic, queue_id, offset, max_messages, max_bytes, filter, opaque, bool(at_once))

    def record(self, physical_offset):
        """Bytes of the record at an offset of the log, as sent to clients."""
        return record_at(self, physical_offset)

    def record_bytes(self, Message message not None):
        """Stored bytes of the message's record."""
        with cython.critical_section(message):
            data = PyBytes_FromStringAndSize(message.slice.data, message.record.size)
            message.intact()
        return data

    def equal_until(self, Core other not None, int64_t start, int64_t stop):
        """Offset up to which a part of one log file was found equal to another reader's."""
        cdef Store *one = self.entered()
        cdef Store *two = NULL
        cdef int64_t until
        try:
            two = other.entered()
            with nogil:
                until = logs_equal_until(one, two, start, stop)
        finally:
            if two != NULL:
                store_leave(two)
            store_leave(one)
        return until

    def renamed(self, Message message not None, topic, queue_id=None):
        """Show a message just read under its real topic, and queue, in place."""
        return message_renamed(message, topic, queue_id)

    @property
    def passed_over(self):
        """Damage passed over by queries: log offset to its error."""
        return self._passed_over

    # Queues

    def bounds(self, topic, queue_id):
        """Current (min, max) of a queue; None if there is no such queue."""
        return queue_bounds_of(self, topic, queue_id)

    def bounds_of_each(self, places):
        """Current (min, max) of each (topic, queue id), after one wait; None if there is none."""
        return queue_bounds_of_each(self, places)

    def units(self, topic, queue_id, int64_t start, int64_t stop):
        """The bytes of units [start, stop) of a queue."""
        return units_of_queue(self, topic, queue_id, start, stop)

    def queued_size(self, topic, queue_id, int64_t start, int64_t stop):
        """Number and bytes of the records of units [start, stop) of a queue."""
        return queued_size_of(self, topic, queue_id, start, stop)

    def ext_units(self, topic, queue_id, int64_t start, int64_t stop):
        """Ext units of [start, stop): fields, bit maps, and the width of those."""
        return ext_units_of_queue(self, topic, queue_id, start, stop)

    def truncate_ext(self, topic, queue_id, int64_t address):
        """Remove ext files that end before ``address``; their number."""
        return truncate_ext(self, topic, queue_id, address)

    def first_after(self, topic, queue_id, int64_t millis, bounds, *, bint last=False):
        """First queue offset stored later than a time; ``last``: after the last stored until it."""
        return first_after(self, topic, queue_id, millis, bounds, last)

    def store_time(self, topic, queue_id, int64_t queue_offset):
        """Store time of a queue's message in ms; -1 if it is removed or not there yet."""
        return store_time_of(self, topic, queue_id, queue_offset)

    def set_bitmap_filters(self, dict by_topic not None, int64_t bitmap_bytes):
        """Replace the subscriptions of topics: lists of (expression, bits) by name."""
        cdef Store *store = self.entered()
        try:
            set_bitmap_filters(store, by_topic, bitmap_bytes)
        finally:
            store_leave(store)

    # Retention

    def removable_files(self):
        """Begin of the log, end of its removable files, and their size."""
        return removable_files(self)

    def log_content(self, int64_t start):
        """Newest store time of a log file, or -1; its records; whether all was read."""
        return log_content(self, start)

    def log_changed_at(self, int64_t start):
        """Time of a log file's last change, in ms."""
        return log_changed_at(self, start)

    def emptied_queues(self, int64_t until):
        """Number of queues that lose their last message if the log begins at ``until``."""
        return emptied_queues(self, until)

    def remove_log_files(self, int64_t until):
        """Remove the log files that end at or below ``until``; their number."""
        return remove_log_files(self, until)

    def remove_dangling(self):
        """Remove files of queues and index that point below the log; the numbers of both."""
        return remove_dangling(self)

    def unused_topics(self, bint remove):
        """Topics without a reference or messages; remove their queues."""
        return unused_topics(self, remove)

    def disk_use(self):
        """Used percent of the file systems of log and queues."""
        return disk_use(self)

    def pretend_disk_use(self, log, queues):
        """For tests: pretended disk use; None: the real one."""
        pretend_disk_use(self, log, queues)

    # Schedule

    def newest_store_time(self):
        """Store time of the newest record of a store open for writing, in ms; 0 for a reader."""
        cdef Store *store = self.entered()
        time = atomic_get(&store.writer.last_store_timestamp)
        store_leave(store)
        return time

    def forgotten_delays(self, queue_id, int64_t start, int64_t count):
        """Queue offsets of delayed messages, from ``start`` on, whose tags codes are no times."""
        return forgotten_delays(self, queue_id, start, count)

    def set_tags_code(self, queue_id, int64_t queue_offset, int64_t code):
        """Set the tags code, a delayed message's time; False if its unit is gone."""
        return set_delay_time(self, queue_id, queue_offset, code)
