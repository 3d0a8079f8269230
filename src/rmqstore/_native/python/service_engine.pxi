# What the services of a store need of the core, and its callers do not.
#
# Source: store/DefaultMessageStore.java

cdef class ServiceEngine(OpenStore):
    """The base of ``Engine``: methods for schedule, transactions, consumers, retention."""

    def _now(self):
        """Milliseconds since the epoch by the store's clock."""
        cdef Store *store = self.store
        return wall_millis() if store == NULL else store_millis(store)

    def _advance_clock(self, int64_t millis):
        """Put the store's clock forward, or back."""
        cdef Store *store = self.store
        if store != NULL:
            atomic_add(&store.clock_shift, millis)

    def _ext_units(self, topic, queue_id, int64_t start, int64_t stop):
        """The ext units of [start, stop): fields, bit maps, and how wide those are."""
        return ext_units_of_queue(self, topic, queue_id, start, stop)

    def _set_bitmap_filters(self, dict by_topic not None, int64_t bitmap_bytes):
        """Replace the subscriptions of topics: lists of (expression, bits) by name."""
        cdef Store *store = self.entered()
        try:
            set_bitmap_filters(store, by_topic, bitmap_bytes)
        finally:
            store_leave(store)

    def _truncate_ext(self, topic, queue_id, int64_t address):
        """Remove ext files that end before ``address``; how many."""
        return truncate_ext(self, topic, queue_id, address)

    def _refuse_inner_close(self):
        """Raise where a close would wait for a call of its own thread."""
        refuse_inner_close(self)

    def _undo_opening(self):
        """Close a store whose start failed, without marking it as closed in good order."""
        give_up_store(self)

    # Retention

    def _removable_files(self):
        """Where the log begins, up to where its files may be removed, and their size."""
        return removable_files(self)

    def _log_content(self, int64_t start):
        """Of a log file: its newest store time, -1 if none, its records, whether all was read."""
        return log_content(self, start)

    def _log_changed_at(self, int64_t start):
        """When a log file was changed last, in ms."""
        return log_changed_at(self, start)

    def _emptied_queues(self, int64_t until):
        """How many queues lose their last message if the log begins at ``until``."""
        return emptied_queues(self, until)

    def _remove_log_files(self, int64_t until):
        """Remove the log files that end at or below ``until``; their number."""
        return remove_log_files(self, until)

    def _remove_dangling(self):
        """Remove files of queues and index that point below the log; the numbers of both."""
        return remove_dangling(self)

    def _unused_topics(self, bint remove):
        """Topics that nothing names and that have no message, and remove their queues."""
        return unused_topics(self, remove)

    def _disk_use(self):
        """Percent used of the file systems of log and queues."""
        return disk_use(self)

    def _pretend_disk_use(self, log, queues):
        """For tests: what the disks are taken to be used; None: what they are."""
        pretend_disk_use(self, log, queues)

    # Schedule, transactions

    def _result_of(self, Message message):
        """What the put of a message of this store returned."""
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
        """Show a message that was just read under its real topic, and queue, in place."""
        return message_renamed(message, topic, queue_id)

    def _dispatch_wakeup(self):
        """A descriptor that is readable once the dispatch has come as far as wanted."""
        return log_wakeup(self, True)

    def _figures(self):
        """Counters of puts and gets, as a dict."""
        return figures_of(self)

    def _topic_counts(self):
        """Messages put to each topic since the store was opened, and their records' bytes."""
        return topic_counts(self)

    def _record(self, physical_offset):
        """The bytes of the record at an offset of the log, as clients are sent it."""
        return record_at(self, physical_offset)

    def _put_stored(self, topic, queue_id, body, properties, *, flag=0, sys_flag=0,
                    born_timestamp=None, born_host=None, reconsume_times=0,
                    prepared_transaction_offset=0, store_host=None, moved=False, wait=True):
        """Store a record whose properties string is stored as given.

        It is refused as ``put`` refuses one, and where it waits also if it would be refused where
        it goes to.  A record that is ``moved`` was acknowledged: only what the format cannot hold
        is refused.

        One that is made of another record keeps that one's store host, as with a broker.

        If it names further queues, as a client's ``INNER_MULTI_DISPATCH``, and the settings say so
        or it has offsets in them from elsewhere, these are made anew, but for a record that waits
        in the topics of delayed or half messages.

        An unknown topic is made with the default number of queues: create those that have
        another one first.
        """
        return put_stored(self, topic, queue_id, body, properties, flag, sys_flag, born_timestamp,
                          born_host, reconsume_times, prepared_transaction_offset, store_host,
                          bool(moved), bool(wait))

    # Clients

    def _pull(self, topic, queue_id, int64_t offset, int64_t max_messages, int64_t max_bytes,
              PullFilter filter=None, opaque=None, *, at_once=False):
        """Read records of a queue as they are stored; ``at_once``: without earlier puts' dispatch.

        Returns status, next, minimum and maximum offset, how many records, and these one after
        another; with an ``opaque`` number behind the header of a pull's answer, if there are any.
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
        """The record of a message as it is stored."""
        data = PyBytes_FromStringAndSize(message.slice.data, message.record.size)
        message.intact()
        return data

    def _log_places(self):
        """The directories of the log: path, whether it is only read, whether it is full.

        Empty where the log is in the store's own directory.
        """
        return places_of(self)

    def _log_path_full(self, path, full):
        """Whether a directory's disk is full: then no new file of the log goes there.

        As long as another one has room. Without directories elsewhere nothing happens.
        """
        set_place_full(self, path, full)
