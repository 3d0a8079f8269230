# Methods for the services of a store, not for its callers.
#
# Source: store/DefaultMessageStore.java

cdef class ServiceEngine(OpenStore):
    """Base of ``Engine``: methods for schedule, transactions, consumers, retention."""

    def _now(self):
        """Milliseconds since the epoch by the store's clock."""
        cdef Store *store = self.store
        return wall_millis() if store == NULL else store_millis(store)

    def _advance_clock(self, int64_t millis):
        """Move the store's clock forward or back."""
        cdef Store *store = self.store
        if store != NULL:
            atomic_add(&store.clock_shift, millis)

    def _ext_units(self, topic, queue_id, int64_t start, int64_t stop):
        """Ext units of [start, stop): fields, bit maps, and the width of those."""
        return ext_units_of_queue(self, topic, queue_id, start, stop)

    def _set_bitmap_filters(self, dict by_topic not None, int64_t bitmap_bytes):
        """Replace the subscriptions of topics: lists of (expression, bits) by name."""
        cdef Store *store = self.entered()
        try:
            set_bitmap_filters(store, by_topic, bitmap_bytes)
        finally:
            store_leave(store)

    def _truncate_ext(self, topic, queue_id, int64_t address):
        """Remove ext files that end before ``address``; their number."""
        return truncate_ext(self, topic, queue_id, address)

    def _refuse_inner_close(self):
        """Raise if a close would wait for a call of its own thread."""
        refuse_inner_close(self)

    def _undo_opening(self):
        """Close a store whose start failed, without marking it as cleanly closed."""
        give_up_store(self)

    # Retention

    def _removable_files(self):
        """Begin of the log, end of its removable files, and their size."""
        return removable_files(self)

    def _log_content(self, int64_t start):
        """Newest store time of a log file, or -1; its records; whether all was read."""
        return log_content(self, start)

    def _log_changed_at(self, int64_t start):
        """Time of a log file's last change, in ms."""
        return log_changed_at(self, start)

    def _emptied_queues(self, int64_t until):
        """Number of queues that lose their last message if the log begins at ``until``."""
        return emptied_queues(self, until)

    def _remove_log_files(self, int64_t until):
        """Remove the log files that end at or below ``until``; their number."""
        return remove_log_files(self, until)

    def _remove_dangling(self):
        """Remove files of queues and index that point below the log; the numbers of both."""
        return remove_dangling(self)

    def _unused_topics(self, bint remove):
        """Topics that nothing names and without messages; remove their queues."""
        return unused_topics(self, remove)

    def _disk_use(self):
        """Used percent of the file systems of log and queues."""
        return disk_use(self)

    def _pretend_disk_use(self, log, queues):
        """For tests: pretended disk use; None: the real one."""
        pretend_disk_use(self, log, queues)

    # Schedule, transactions

    def _result_of(self, Message message):
        """Result of the put of a message of this store."""
        return result_of(message)

    def _begin_schedule(self):
        """Called for the first delayed message; overridden by the store that delivers them."""

    def _newest_store_time(self):
        """Store time of the newest record of a store open for writing, in ms; 0 for a reader."""
        cdef Store *store = self.entered()
        cdef int64_t time
        with nogil:
            lock_take(&store.writer.put_lock)
            time = store.writer.last_store_timestamp
            lock_give(&store.writer.put_lock)
        store_leave(store)
        return time

    def _put_half(self, topic, body, queue_id, queue_key, tags, keys, properties, flag,
                  born_timestamp, born_host, uniq_key, producer_group, wait):
        """Store the half message of a transaction; the other arguments are those of ``put``."""
        return put_message(self, topic, body, queue_id, queue_key, tags, keys, properties, flag, 0,
                           born_timestamp, born_host, uniq_key, None, producer_group, bool(wait))

    def _forgotten_delays(self, queue_id, int64_t start, int64_t count):
        """Queue offsets of delayed messages, from one on, whose tags codes are no times."""
        return forgotten_delays(self, queue_id, start, count)

    def _set_tags_code(self, queue_id, int64_t queue_offset, int64_t code):
        """Set the tags code, the time, of a delayed message; False if its unit is gone."""
        return set_delay_time(self, queue_id, queue_offset, code)

    def _check_open(self):
        """Raise unless the store is open here."""
        store_leave(self.entered())

    def _renamed(self, Message message not None, topic, queue_id=None):
        """Show a message just read under its real topic, and queue, in place."""
        return message_renamed(message, topic, queue_id)

    def _dispatch_wakeup(self):
        """A descriptor, readable once dispatch has reached the wanted position."""
        return log_wakeup(self, LOG_DISPATCHED)

    def _figures(self):
        """Counters of puts and gets, as a dict."""
        return figures_of(self)

    def _topic_counts(self):
        """Messages put to each topic since the store was opened, and their records' bytes."""
        return topic_counts(self)

    def _bounds_of_each(self, places):
        """Current (min, max) of each (topic, queue id), after one wait; None if there is none."""
        return queue_bounds_of_each(self, places)

    def _record(self, physical_offset):
        """Bytes of the record at an offset of the log, as sent to clients."""
        return record_at(self, physical_offset)

    def _put_stored(self, topic, queue_id, body, properties, *, flag=0, sys_flag=0,
                    born_timestamp=None, born_host=None, reconsume_times=0,
                    prepared_transaction_offset=0, store_host=None, moved=False, wait=True):
        """Store a record with its properties string unchanged.

        Refused as by ``put``, and where it waits also if its destination would refuse it.
        A ``moved`` record was acknowledged: it is refused only if the format cannot hold it.

        A copy of another record keeps that one's store host, as with a broker.

        If it names further queues, as a client's ``INNER_MULTI_DISPATCH``, and the settings allow
        it or it has offsets in them from elsewhere, these are recreated, except for a record that
        waits in the topics of delayed or half messages.

        An unknown topic is created with the default number of queues: create those with another
        number first.
        """
        return put_stored(self, topic, queue_id, body, properties, flag, sys_flag, born_timestamp,
                          born_host, reconsume_times, prepared_transaction_offset, store_host,
                          bool(moved), bool(wait))

    # Clients

    def _pull(self, topic, queue_id, int64_t offset, int64_t max_messages, int64_t max_bytes,
              PullFilter filter=None, opaque=None, *, at_once=False):
        """Read stored records of a queue; ``at_once``: without earlier puts' dispatch.

        Returns status, next, minimum and maximum offset, the number of records, and these
        concatenated; with an ``opaque`` number after a pull answer's header, if there are any.
        """
        return pull_messages(
            self, topic, queue_id, offset, max_messages, max_bytes, filter, opaque, bool(at_once))

    def _put_stored_batch(self, topic, queue_id, list rows not None, *, sys_flag, born_timestamp,
                          born_host, store_host, reconsume_times=0, wait=True):
        """Store records of one queue side by side, all or none: rows of (body, properties, flag).

        Returns the result of the first, and the physical offsets of all.
        """
        return put_stored_batch(self, topic, queue_id, rows, sys_flag, born_timestamp, born_host,
                                store_host, reconsume_times, bool(wait))

    def _record_bytes(self, Message message not None):
        """Stored bytes of the message's record."""
        data = PyBytes_FromStringAndSize(message.slice.data, message.record.size)
        message.intact()
        return data

    def _log_places(self):
        """Directories of the log: path, whether read only, whether full.

        Empty if the log is in the store's own directory.
        """
        return places_of(self)

    def _log_path_full(self, path, full):
        """Set whether a directory's disk is full: then no new file of the log goes there.

        Only while another one has room, and only with directories elsewhere.
        """
        set_place_full(self, path, full)
