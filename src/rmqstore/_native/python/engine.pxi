# One class with the public methods of an open store, each one call to the part that does it.
# Source: store/DefaultMessageStore.java

cdef class Engine:
    """The base of ``MessageStore``: writing, reading, searching.  Each method is one call."""

    cdef readonly Core core      # the store itself, for the project's own modules

    def __cinit__(self, *args, **kwargs):
        self.core = Core()

    def close(self):
        """Flush everything, close the store, and release the lock.

        Messages read from it stay valid. Closing again does nothing.

        Raises
        ------
        StoreFailedError, OSError
            Acknowledged messages could not be flushed; ``abort`` stays, and the next opening
            recovers.
        ForkedStoreError
            The store belongs to the parent process.

        Notes
        -----
        Source: ``store/DefaultMessageStore.java shutdown``.
        """
        close_store(self.core)

    @property
    def path(self):
        """Directory of the store."""
        return self.core._path

    @property
    def config(self):
        """The configuration in force, with the actual file sizes."""
        return self.core._config

    @property
    def closed(self):
        """Whether :meth:`close` was called."""
        return self.core.closed

    @property
    def mode(self):
        """``"r"``, ``"r+"`` or ``"a"``."""
        return self.core.mode

    # Write

    def put(self, topic, body, *, queue_id=None, queue_key=None, tags=None, keys=None,
            properties=None, flag=0, delay_level=0, born_timestamp=None, born_host=None,
            uniq_key=True, lite_topics=None, wait=True):
        """Store one message.

        Parameters
        ----------
        topic : str
            1 to 127 of ``[%|a-zA-Z0-9_-]``.  An unknown topic is created.
        body : bytes-like
            Any C-contiguous buffer; deflated from ``StoreConfig.compress_above`` bytes on.
        queue_id : int, optional
            Queue of the topic; 0 or more. A queue beyond the topic's count is created; the first is
            logged. RocketMQ's clients do not read it until :meth:`create_topic` raises the count.
        queue_key : str, int or bytes, optional
            Selects the queue as ``SelectMessageQueueByHash`` does; without either, round-robin.
        tags : str, optional
            Without ``||``, at which filters split theirs.
        keys : str or iterable of str, optional
            A str is keys separated by spaces.
        properties : mapping of str to str, optional
            RocketMQ's reserved names are refused.
        flag : int, optional
            The application's own, 32 bits.
        delay_level : int or str, optional
            1 to 18, the levels of ``message_delay_level``; 0: none; higher levels count as the
            highest. Or the delay of a level, as ``"10s"``. The message waits in
            ``SCHEDULE_TOPIC_XXXX`` until it is due.
        born_timestamp : int, datetime or str, optional
            Milliseconds since the epoch, or an aware time; now by default.
        born_host : str, optional
            ``"ip:port"``; the store's by default.
        uniq_key : bool or str, optional
            True makes a client id as RocketMQ does, a str is used unchanged, False leaves it out.
        lite_topics : iterable of str, optional
            Names of light queues that get it too: queue 0 of ``%LMQ%name``; not if it is delayed.
        wait : bool, optional
            With synchronous flush: return only once the message is on the disk.

        Returns
        -------
        PutResult

        Raises
        ------
        MessageIllegalError
            The topic, a property or a size is out of its limits; nothing is stored.
        TypeError, ValueError
            Another argument has a wrong type or value; the message names it and its limits.
        PutError
            It could not be stored (``DISK_FULL``, ``LMQ_CONSUME_QUEUE_NUM_EXCEEDED``), or not
            flushed in time (``FLUSH_DISK_TIMEOUT``), by its ``status``.
        StoreFailedError
            A sync failed, now or before: the store accepts no more messages.
        ReadOnlyStoreError, StoreClosedError, ForkedStoreError
            The store is not open for writing here.

        Notes
        -----
        Source: ``store/DefaultMessageStore.java putMessage``.
        """
        return put_message(self.core, topic, body, queue_id, queue_key, tags, keys, properties,
                           flag, delay_level, born_timestamp, born_host, uniq_key, lite_topics,
                           None, wait)

    def put_batch(self, topic, bodies, *, queue_id=None, queue_key=None, tags=None, keys=None,
                  properties=None, uniq_key=True, wait=True):
        """Store messages in one queue, with consecutive offsets, in one file: all or none.

        Parameters
        ----------
        topic : str
            As for :meth:`put`.
        bodies : sequence of bytes-like
            At least one. As in a Java client's batch none is deflated.
        queue_id, queue_key : int; str, int or bytes; optional
            As for :meth:`put`, for the whole batch.
        tags, keys, properties, uniq_key : optional
            As for :meth:`put_many`, one for all, or a column as long as ``bodies``.
        wait : bool, optional
            As for :meth:`put`.

        Returns
        -------
        PutResult
            Of the first message; ``count`` is the number of messages.

        Raises
        ------
        MessageIllegalError, PutError, StoreFailedError, TypeError, ValueError
            As for :meth:`put`; nothing is stored then, except with ``FLUSH_DISK_TIMEOUT``.

        Notes
        -----
        Source: ``store/DefaultMessageStore.java putMessages``.
        """
        return put_batched(self.core, topic, bodies, queue_id, queue_key, tags, keys, properties,
                           uniq_key, bool(wait))

    def put_many(self, topic, bodies, *, queue_id=None, queue_key=None, tags=None, keys=None,
                 properties=None, uniq_key=True, wait=True):
        """Store many messages fast; each argument is one value for all rows or a column.

        Parameters
        ----------
        topic : str, or a column of str
            As for :meth:`put`. A column is a sequence, a NumPy array or an Arrow array.
        bodies : column of bytes-like
            One for each row; deflated as for :meth:`put`.
        queue_id, queue_key, tags, properties, uniq_key : optional
            As for :meth:`put`, one for all rows, or a column; in Arrow, properties are maps.
        keys : str, or a column, optional
            In a column a row is a str, or a list of str.
        wait : bool, optional
            As for :meth:`put`, for the last row.

        Returns
        -------
        PutManyResult

        Raises
        ------
        MessageIllegalError, TypeError, ValueError
            A row is out of its limits; the message names argument and row. No row is stored.
        PutError
            ``stored`` rows are in the log, the others not.
        StoreFailedError, ReadOnlyStoreError, StoreClosedError, ForkedStoreError
            As for :meth:`put`.

        Notes
        -----
        Rows keep their order within a queue. The call may span files and queues.
        """
        return put_rows(self.core, topic, bodies, queue_id, queue_key, tags, keys, properties,
                        uniq_key, bool(wait))

    def put_table(self, table, *, wait=True):
        """Store the rows of a table, whose columns are named as the fields of a message.

        ``store.put_table(other.scan())`` makes the same messages except for offsets, store
        time and store host; compressed bodies are stored inflated, unless the scan has a column
        ``raw_body``.  A new topic gets ``StoreConfig.default_topic_queue_nums`` queues:
        call ``create_topic`` first if it had more.

        Parameters
        ----------
        table : object with ``__arrow_c_stream__``
            A pyarrow ``Table``, a data frame of Polars or pandas (a map that pandas made lists
            of is taken as ``pandas.ArrowDtype`` alone), a scan and so on. ``topic`` and
            ``body`` or ``raw_body`` are required; fields set by the store (``queue_offset``,
            ``physical_offset``, ``store_size``, ``msg_id``, ``store_timestamp``,
            ``store_host``, ``body_crc``) are ignored.  See Notes.
        wait : bool, optional
            As for :meth:`put`, for the last row.

        Returns
        -------
        PutManyResult
            ``queue_offset`` is 0 for prepared and rollback records, which are in no queue.

        Raises
        ------
        MessageIllegalError, TypeError, ValueError
            A column or a row is invalid; the message names both, the row counted
            over the whole table. No row is stored.
        OSError
            The table itself failed while it was read. No row is stored.
        PutError
            ``stored`` rows are in the log, the others not.
        StoreFailedError, ReadOnlyStoreError, StoreClosedError, ForkedStoreError
            As for :meth:`put`.

        Notes
        -----
        The whole table is read, then checked, before the first row is stored, so that it is in
        memory once, with up to about 100 bytes a row in addition: pass a larger table batch by
        batch, one call each.

        ``properties`` is stored unchanged, including reserved names, in the map's order; ``tags``,
        ``keys`` and ``uniq_key`` are added if the map lacks them, and raise if they contradict
        it, even by a null. Without ``properties`` and ``uniq_key`` a unique key is made.
        ``__CRC32#`` and offsets in further queues are made anew, where there are to be any.

        ``raw_body`` is stored unchanged, with ``sys_flag``; ``body`` is stored unchanged, and
        clears the bits of ``sys_flag`` for compression. If a row has both and a ``sys_flag``, the
        raw one is stored, and raises if it does not inflate to the other.
        The bits of ``sys_flag`` for hosts come from the hosts.

        A null means the same as a missing column: ``queue_id`` then takes turns,
        ``born_timestamp`` (timestamps have a zone; rounded down to milliseconds) is now,
        ``born_host`` the store's. Rows keep their order within a queue.
        """
        return put_batches(self.core, table, bool(wait))

    def flush(self):
        """Force log, queues, index and checkpoint to the disk.

        Raises
        ------
        StoreFailedError
            A sync failed, now or before.
        ReadOnlyStoreError, StoreClosedError, ForkedStoreError
            The store is not open for writing here.

        Notes
        -----
        Source: ``store/DefaultMessageStore.java flush``.
        """
        flush_store(self.core)

    def wait_durable(self, physical_offset=None, timeout=None):
        """Wait until the log is on the disk.

        Parameters
        ----------
        physical_offset : int, optional
            Up to the record that begins there; by default, everything written so far.
        timeout : float, optional
            Seconds; by default, no limit.

        Returns
        -------
        bool
            False if ``timeout`` passed first.

        Raises
        ------
        ValueError
            ``physical_offset`` is beyond the log.
        StoreFailedError, ReadOnlyStoreError, StoreClosedError, ForkedStoreError
            As for :meth:`put`.

        Notes
        -----
        Source: ``store/CommitLog.java GroupCommitService``.
        """
        return wait_until_durable(self.core, physical_offset, timeout)

    # Read

    def get(self, topic, queue_id, offset, max_messages=32, *, max_bytes=None, tags=None,
            sql=None):
        """Read messages of one queue from a queue offset on.

        Parameters
        ----------
        topic, queue_id : str, int
            An unknown topic or queue is no error: ``NO_MESSAGE_IN_QUEUE``.
        offset, max_messages : int
            Queue offset of the first message, and maximum number of messages, 1 or more.
        max_bytes : int, optional
            Maximum bytes of the records; one message is always returned.
        tags : str, optional
            ``"TagA || TagB"``; compared exactly.
        sql : str, optional
            RocketMQ's SQL92 filter over the properties, as ``"amount > 5 AND region IN ('eu')"``.

        Returns
        -------
        GetResult

        Raises
        ------
        StoreCorruptError
            A record is damaged, or its log file is missing between others.
        TypeError, ValueError, FilterError
            An argument has a wrong type or value.
        StoreClosedError, ForkedStoreError
            The store is not open here.

        Notes
        -----
        With a filter at most ``max(16000, 20 * max_messages)`` bytes of units are examined;
        ``next_offset`` is the offset at which to continue.
        Source: ``store/DefaultMessageStore.java getMessage``.
        """
        return get_from_queue(self.core, topic, queue_id, offset, max_messages, max_bytes, tags,
                              sql)

    def at(self, physical_offset):
        """Return the message whose record begins at a byte of the commit log.

        Parameters
        ----------
        physical_offset : int
            0 or more.

        Returns
        -------
        Message

        Raises
        ------
        MessageNotFoundError
            The log does not reach there, or has a filler there.
        StoreCorruptError
            No valid record begins there.
        TypeError, ValueError
            ``physical_offset`` is not an int, or negative.
        StoreClosedError, ForkedStoreError
            The store is not open here.

        Notes
        -----
        Source: ``store/DefaultMessageStore.java lookMessageByOffset``.
        """
        return message_at(self.core, physical_offset)

    def query(self, topic, key, *, max_num=None, begin=None, end=None, index_only=False):
        """Find the messages of a topic that have a key.

        Parameters
        ----------
        topic, key : str
            ``key`` is one of KEYS or UNIQ_KEY, compared exactly.
        max_num : int, optional
            Maximum number of messages; all by default.
        begin, end : int, datetime or str, optional
            Store times, both inclusive; ms since the epoch.
        index_only : bool, optional
            Do not search the parts of the log that no index file covers.

        Returns
        -------
        list of Message
            Newest first.

        Raises
        ------
        StoreCorruptError
            A record or an index chain on the path is damaged, or its file is missing.
        TypeError, ValueError
            An argument has a wrong type or value.
        StoreClosedError, ForkedStoreError
            The store is not open here.

        Notes
        -----
        Source: ``store/DefaultMessageStore.java queryMessage``.
        """
        return query_key(self.core, topic, key, max_num, begin, end, index_only)

    def index_coverage(self):
        """Return the ranges of the commit log that the index covers.

        Returns
        -------
        list of (int, int)
            Start and stop, physical offsets in bytes, oldest first.
        """
        return ranges_indexed(self.core)
