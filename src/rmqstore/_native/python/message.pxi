# Message: a held record whose fields are decoded on access.
#
# Threads share messages, and detach() replaces the bytes: whoever reads these is in a critical
# section, which is nothing where there is a GIL.

cdef object host_text(const char *at, bint v6):
    """ "ip:port", or "[v6]:port"."""
    cdef char text[HOST_TEXT_MAX]
    return PyUnicode_DecodeUTF8(text, host_write(at, v6, text), NULL)


cdef object message_id(const char *host, bint v6, int64_t physical_offset):
    """The store's message id: address, port and offset in hexadecimal."""
    cdef char digits[MESSAGE_ID_MAX]
    return PyUnicode_DecodeUTF8(
        digits, message_id_write(host, v6, physical_offset, digits), NULL)


# Target of the pointers of a message without a record.
cdef char[256] NO_RECORD


@cython.final
@cython.no_gc
@cython.freelist(256)
cdef class Message:
    """A stored message.

    Fields are decoded on first access.  A message compares by value, can be pickled, and
    holds no lock.

    Attributes
    ----------
    topic : str
    queue_id, queue_offset : int
        Queue of the topic, and position in the queue, in messages.
    physical_offset, store_size : int
        Position of the record in the commit log, and its size, in bytes.
    body : bytes
        Inflated if the record is compressed.
    raw_body : memoryview
        The stored bytes, read-only; without a copy in a store opened for writing.  If the file
        is cut meanwhile, an existing view shows zeros there; ``body`` raises.
    tags : str or None
    keys : tuple of str
    properties : dict of str to str
        All, including reserved names.
    flag, sys_flag, reconsume_times : int
    born_timestamp, store_timestamp : int
        Milliseconds since the epoch.
    born_host, store_host : str
        ``"ip:port"``, or ``"[v6]:port"``.
    prepared_transaction_offset : int
    body_crc : int
        As stored, 31 bits.
    msg_id : str
        The store's id.
    uniq_key : str or None
        The client's id.

    Notes
    -----
    Source: ``common/message/MessageExt.java``.
    """

    cdef Slice slice
    cdef Record record
    cdef int64_t max_body
    cdef tuple log_paths         # directories of its log; None: without one
    cdef dict _properties        # kept from the second access on
    cdef bint asked
    cdef bint renamed            # shown under another topic than the record's
    cdef object _topic
    cdef Slice pinned            # target of buffers given out before detach()
    cdef int64_t exports

    def __cinit__(self):
        self.slice.data = NO_RECORD
        self.max_body = 64 << 20

    def __init__(self):
        raise TypeError("messages come from a store or from decode_record")

    def __dealloc__(self):
        slice_release(&self.slice)
        slice_release(&self.pinned)

    def __getbuffer__(self, Py_buffer *view, int flags):
        with cython.critical_section(self):
            PyBuffer_FillInfo(view, self, <void *>(self.slice.data + self.record.body_at),
                              self.record.body_length, True, flags)
            self.exports += 1

    def __releasebuffer__(self, Py_buffer *view):
        self.unpin()

    cdef void unpin(self) noexcept:
        """Release the bytes that a buffer has read."""
        with cython.critical_section(self):
            self.exports -= 1
            if self.exports == 0:
                slice_release(&self.pinned)

    cdef int intact(self) except -1:
        """Raise if bytes just read from a mapped record are lost: its file was truncated."""
        check(slice_lost(&self.slice), NULL, "")
        return 0

    @property
    @cython.critical_section
    def topic(self):
        if self._topic is None:
            topic = text_of(self.slice.data + self.record.topic_at, self.record.topic_length)
            self.intact()
            self._topic = topic
        return self._topic

    @property
    def queue_id(self):
        return self.record.queue_id

    @property
    def queue_offset(self):
        return self.record.queue_offset

    @property
    def physical_offset(self):
        return self.record.physical_offset

    @property
    def store_size(self):
        return self.record.size

    @property
    def flag(self):
        return self.record.flag

    @property
    def sys_flag(self):
        return self.record.sys_flag

    @property
    def born_timestamp(self):
        return self.record.born_timestamp

    @property
    def store_timestamp(self):
        return self.record.store_timestamp

    @property
    def reconsume_times(self):
        return self.record.reconsume_times

    @property
    def prepared_transaction_offset(self):
        return self.record.prepared_transaction_offset

    @property
    def body_crc(self):
        return self.record.body_crc

    @property
    @cython.critical_section
    def born_host(self):
        host = host_text(self.slice.data + self.record.born_host_at,
                         self.record.sys_flag & SYS_BORN_HOST_V6 != 0)
        self.intact()
        return host

    @property
    @cython.critical_section
    def store_host(self):
        host = host_text(self.slice.data + self.record.store_host_at,
                         self.record.sys_flag & SYS_STORE_HOST_V6 != 0)
        self.intact()
        return host

    @property
    @cython.critical_section
    def msg_id(self):
        found = message_id(self.slice.data + self.record.store_host_at,
                           self.record.sys_flag & SYS_STORE_HOST_V6 != 0,
                           self.record.physical_offset)
        self.intact()
        return found

    @property
    def body(self):
        cdef bytes stored
        with cython.critical_section(self):
            stored = PyBytes_FromStringAndSize(
                self.slice.data + self.record.body_at, self.record.body_length)
            self.intact()
        if self.record.sys_flag & SYS_COMPRESSED:
            try:
                return bodies.inflate(stored, self.record.sys_flag, self.max_body)
            except errors.StoreCorruptError as error:
                raise errors.StoreCorruptError(
                    logfiles.log_file(self.log_paths, self.record.physical_offset),
                    self.record.physical_offset, error.reason) from None
        return stored

    @property
    def raw_body(self):
        with cython.critical_section(self):
            self.intact()                    # later reads through the view are not checked
        return memoryview(self)

    @property
    @cython.critical_section
    def properties(self):
        cdef Property entry
        cdef int64_t at = 0
        cdef dict found
        if self._properties is not None:
            return dict(self._properties)
        found = {}
        while property_next(self.slice.data + self.record.properties_at,
                            self.record.properties_length, &at, &entry):
            found[name_text(entry.name, entry.name_length)] = text_of(
                entry.value, entry.value_length)
        self.intact()
        if not self.asked:                   # most are read once, and need no copy
            self.asked = True
            return found
        self._properties = found
        return dict(found)

    @property
    def tags(self):
        return message_property(self, b"TAGS", 4)

    @property
    def keys(self):
        keys = message_property(self, b"KEYS", 4)
        if keys is None:
            return ()
        return tuple([key for key in keys.split(" ") if key])

    @property
    def uniq_key(self):
        return message_property(self, b"UNIQ_KEY", 8)

    @cython.critical_section
    def detach(self):
        """Copy the record and release its file.

        Returns
        -------
        Message
            This message.  An existing ``raw_body`` stays valid, and holds the file until it
            is released.
        """
        cdef char *copy
        if self.slice.file == NULL:
            return self
        copy = <char *>malloc(<size_t>self.record.size)
        if copy == NULL:
            raise MemoryError()
        memcpy(copy, self.slice.data, <size_t>self.record.size)
        if slice_lost(&self.slice) < 0:
            free(copy)
            self.intact()
        if self.exports:
            self.pinned = self.slice
            memset(&self.slice, 0, sizeof(Slice))
        else:
            slice_release(&self.slice)
        self.slice.data = self.slice.owned = copy
        self.slice.length = self.record.size
        return self

    @cython.critical_section
    def __reduce__(self):
        cdef bytes stored = PyBytes_FromStringAndSize(self.slice.data, self.record.size)
        self.intact()
        if self.renamed:
            return message_from_bytes, (stored, self.max_body, self._topic, self.record.queue_id)
        return message_from_bytes, (stored, self.max_body)

    def __eq__(self, other):
        cdef Message b
        if not isinstance(other, Message):
            return NotImplemented
        b = <Message>other
        with cython.critical_section(self, b):
            equal = self.record.size == b.record.size and memcmp(
                self.slice.data, b.slice.data, <size_t>self.record.size) == 0
            self.intact()
            b.intact()
        return equal

    def __hash__(self):
        return hash((self.record.physical_offset, self.record.size, self.record.body_crc))

    def __repr__(self):
        return (f"<Message {self.topic}/{self.queue_id}@{self.queue_offset} "
                f"{self.record.body_length} bytes, tags={self.tags!r}, keys={self.keys!r}>")


@cython.critical_section
cdef object message_property(Message message, const char *name, int64_t length):
    cdef Property found
    value = None
    if property_find(message.slice.data + message.record.properties_at,
                     message.record.properties_length, name, length, &found):
        value = text_of(found.value, found.value_length)
    message.intact()
    return value


cdef Message message_of(Found *found, int64_t max_body, tuple log_paths):
    """Make a message that takes over the hold of ``found``."""
    cdef Message message = Message.__new__(Message)
    message.slice = found.slice
    message.record = found.record
    message.max_body = max_body
    message.log_paths = log_paths
    memset(&found.slice, 0, sizeof(Slice))
    return message


cdef Message message_renamed(Message message, object topic, object queue_id):
    """See ``Core.renamed``; nobody else has the message yet."""
    if queue_id is not None:
        message.record.queue_id = queue_id
    message._topic = <str?>topic
    message.renamed = True
    return message


def message_from_bytes(bytes data, int64_t max_body, topic=None, queue_id=None):
    """Make a message from the bytes of its record, for pickle."""
    cdef Message made
    cdef Found found
    cdef int64_t field
    cdef int64_t length = len(data)
    memset(&found, 0, sizeof(Found))
    if record_parse(data, length, length, &found.record, &field) != length:
        raise errors.StoreCorruptError(
            logfiles.NO_FILE, 0, record_field_name(field).decode("ascii"))
    found.slice.owned = <char *>malloc(<size_t>length)
    if found.slice.owned == NULL:
        raise MemoryError()
    memcpy(found.slice.owned, <const char *>data, <size_t>length)
    found.slice.data = found.slice.owned
    found.slice.length = length
    made = message_of(&found, max_body, None)
    return made if topic is None else message_renamed(made, topic, queue_id)
