# The writing methods, as Python calls them.

cdef enum:
    WAIT_SLICE_NS = 200000000


cdef class WritingEngine(Engine):
    """put and its relatives."""

    def put(self, topic, body, *, queue_id=None, queue_key=None, tags=None, keys=None,
            properties=None, flag=0, delay_level=0, born_timestamp=None, born_host=None,
            uniq_key=True, wait=True):
        """Store one message.

        Parameters
        ----------
        topic : str
            1 to 127 of ``[%|a-zA-Z0-9_-]``. An unknown one is made.
        body : bytes-like
            Any C-contiguous buffer.
        queue_id : int, optional
            Queue of the topic, 0 or more.
        queue_key : str, int or bytes, optional
            Chooses the queue as ``SelectMessageQueueByHash`` does. Without either the topic's
            queues take turns.
        tags : str, optional
        keys : str or iterable of str, optional
            A str is keys separated by spaces.
        properties : mapping of str to str, optional
            No reserved names.
        flag : int, optional
            The application's own, 32 bits.
        delay_level : int, optional
            1 to 18, 0 for none.
        born_timestamp : int, datetime or str, optional
            Milliseconds since the epoch, or an aware point in time; now by default.
        born_host : str, optional
            ``"ip:port"``; the store's host by default.
        uniq_key : bool or str, optional
            True makes RocketMQ's client id, a str is taken as it is, False leaves it out.
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
            Another argument is; the message names it, its value and what it may be.
        PutError
            It could not be stored, or (``FLUSH_DISK_TIMEOUT``) not be flushed in time.
        StoreFailedError
            A sync failed, now or before: the store takes nothing more.
        ReadOnlyStoreError, StoreClosedError, ForkedStoreError
            The store is not open for writing here.

        Notes
        -----
        Source: ``store/DefaultMessageStore.java putMessage``.
        """
        store_writable(self, True)
        try:
            return put_one(self, topic, body, queue_id, queue_key, tags, keys, properties, flag,
                           delay_level, born_timestamp, born_host, uniq_key, bool(wait))
        finally:
            store_leave(self.store)

    def put_batch(self, topic, bodies, *, queue_id=None, queue_key=None, tags=None, keys=None,
                  properties=None, uniq_key=True, wait=True):
        """Store messages in one queue, with consecutive offsets, in one file: all or none.

        Parameters
        ----------
        topic : str
        bodies : sequence of bytes-like
            At least one.
        queue_id, queue_key
            As for :meth:`put`, for the whole batch.
        tags, keys, properties, uniq_key
            One for all, or a sequence as long as ``bodies``.
        wait : bool, optional
            As for :meth:`put`.

        Returns
        -------
        PutResult
            Of the first message; ``count`` is the number of messages.

        Raises
        ------
        MessageIllegalError, PutError, StoreFailedError, TypeError, ValueError
            As for :meth:`put`; nothing is stored then, but for ``FLUSH_DISK_TIMEOUT``.

        Notes
        -----
        Source: ``store/DefaultMessageStore.java putMessages``.
        """
        store_writable(self, True)
        try:
            return put_batched(self, topic, bodies, queue_id, queue_key, tags, keys, properties,
                               uniq_key, bool(wait))
        finally:
            store_leave(self.store)

    def put_many(self, topic, bodies, *, queue_id=None, queue_key=None, tags=None, keys=None,
                 properties=None, uniq_key=True, wait=True):
        """Store many messages fast; each argument is one value for all rows or a column.

        Parameters
        ----------
        topic, bodies, queue_id, queue_key, tags, keys, properties, uniq_key
            As for :meth:`put`, or a sequence, NumPy array or Arrow array of such. In a column
            of keys a row is a str, or a list of str.
        wait : bool, optional
            As for :meth:`put`, for the last row.

        Returns
        -------
        PutManyResult

        Raises
        ------
        MessageIllegalError, TypeError, ValueError
            A row is not as it may be; the message names argument and row. No row is stored.
        PutError
            ``stored`` rows are in the log, the others not.
        StoreFailedError, ReadOnlyStoreError, StoreClosedError, ForkedStoreError
            As for :meth:`put`.

        Notes
        -----
        Rows keep their order within a queue. The call may span files and queues.
        Source: ours.
        """
        store_writable(self, True)
        try:
            return put_rows(self, topic, bodies, queue_id, queue_key, tags, keys, properties,
                            uniq_key, bool(wait))
        finally:
            store_leave(self.store)

    def put_table(self, table, *, wait=True):
        """Store the rows of a table, whose columns are named as the fields of a message.

        ``store.put_table(other.scan())`` makes the same messages but for offsets, store time
        and store host; what was compressed is stored inflated, unless ``raw_body`` is among the
        columns of the scan. A new topic gets ``StoreConfig.default_topic_queue_nums`` queues:
        ``create_topic`` first where it had more.

        Parameters
        ----------
        table : object with ``__arrow_c_stream__``
            A pyarrow ``Table``, a data frame of Polars or pandas (a map that pandas made lists
            of is taken as ``pandas.ArrowDtype`` alone), a scan and so on. ``topic`` and
            ``body`` or ``raw_body`` are needed; what the store decides (``queue_offset``,
            ``physical_offset``, ``store_size``, ``msg_id``, ``store_timestamp``,
            ``store_host``, ``body_crc``) is not looked at. See Notes.
        wait : bool, optional
            As for :meth:`put`, for the last row.

        Returns
        -------
        PutManyResult
            ``queue_offset`` is 0 for prepared and rollback records, which no queue has.

        Raises
        ------
        MessageIllegalError, TypeError, ValueError
            A column or a row is not as it may be; the message names both, the row counted
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
        memory once, and up to about 100 bytes a row beside it: a table larger than that is
        passed batch by batch, a call each.

        ``properties`` is stored as it is, reserved names too, in the map's order; ``tags``,
        ``keys`` and ``uniq_key`` are added where the map lacks them, and raise where they say
        something else, be it null. Without ``properties`` and ``uniq_key`` a unique key is
        made. ``__CRC32#`` is left out: it is made for the record, if ``StoreConfig`` says so.

        ``raw_body`` is stored as it is, with ``sys_flag``; ``body`` is stored as it is, and
        clears the bits of ``sys_flag`` for compression. Where both are there the raw one is
        stored if the row has a ``sys_flag``, and raises if it is not that body.
        The bits of ``sys_flag`` for hosts come from the hosts.

        A null is as if there were no such column: ``queue_id`` then takes turns,
        ``born_timestamp`` (rounded down to milliseconds; UTC without a zone) is now,
        ``born_host`` the store's. Rows keep their order within a queue.
        Source: ours.
        """
        cdef ArrowOwner schema = ArrowOwner()
        cdef list names = []
        cdef list batches
        store_writable(self, True)
        store_leave(self.store)
        # Outside of the call's hold: what makes the table may take as long as it likes.
        batches = read_table(table, schema, names)
        store_writable(self, True)
        try:
            return put_batches(self, schema, names, batches, bool(wait))
        finally:
            store_leave(self.store)

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
        cdef int64_t rc
        cdef Store *store
        store_writable(self)
        store = self.store
        try:
            with nogil:
                rc = flush_log_now(store)
            if rc == 0:
                wait_for_dispatch(store, &rc)
            if rc == 0:
                with nogil:
                    rc = flush_queues_now(store, True)
        finally:
            store_leave(store)
        if rc < 0 and atomic_get(&store.stalled) == rc:
            raise write_error(self, E_STALLED)
        if rc < 0:
            raise status_error(E_FAILED if atomic_get(&store.failed) else rc, &store.failure,
                               self._path)

    def _flush_log(self):
        """Force the log alone to the disk; the offset up to which it is there."""
        cdef int64_t rc
        cdef int64_t flushed
        cdef Store *store
        store_writable(self)
        store = self.store
        with nogil:
            rc = 0 if PLANTED("a4") else flush_log_now(store)
        flushed = atomic_get(&store.log.wrote if PLANTED("a4") else &store.log.flushed)
        store_leave(store)
        if rc < 0:
            raise status_error(E_FAILED if atomic_get(&store.failed) else rc, &store.failure,
                               self._path)
        return flushed

    def wait_durable(self, physical_offset=None, timeout=None):
        """Wait until the log is on the disk.

        Parameters
        ----------
        physical_offset : int, optional
            Up to the record that begins there; by default all that is written now.
        timeout : float, optional
            Seconds; by default without end.

        Returns
        -------
        bool
            False if the time was up first.

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
        cdef int64_t stop, rc, until
        cdef Store *store
        store_writable(self)
        store = self.store
        try:
            stop = atomic_get_strict(&store.log.wrote)
            if physical_offset is not None:
                # Records are flushed whole: the byte after its first one will do.
                stop = int_argument("physical_offset", physical_offset, 0, stop - 1) + 1
            until = INT64_MOST
            if timeout is not None:
                seconds = float(timeout)
                if not 0 <= seconds <= 1e9:
                    raise ValueError(
                        f"argument 'timeout' is {timeout!r}; it may be 0 to 1e9 seconds, or None")
                until = monotonic_ns() + <int64_t>(seconds * 1e9)
            while True:                      # in slices, for the sake of signals
                with nogil:
                    rc = wait_durable(store, stop, min(until, monotonic_ns() + WAIT_SLICE_NS))
                if rc != E_TIMEOUT or monotonic_ns() >= until:
                    break
                PyErr_CheckSignals()
        finally:
            store_leave(store)
        if rc == E_TIMEOUT:
            return False
        if rc < 0:
            raise status_error(rc, &store.failure, self._path)
        return True

    def _knows_topic(self, topic):
        """Whether a put to it has no topic to make, for which files are written and synced."""
        cdef int64_t length = 0
        store_writable(self, True)
        try:
            return known_topic(self, topic, &length) != NULL
        finally:
            store_leave(self.store)

    def _log_wakeup(self):
        """A descriptor for an event loop to wait for the disk by."""
        return log_wakeup(self)
