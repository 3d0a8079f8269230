# Results of the writing methods, and the statuses of `get`.

cdef tuple STATUSES = tuple(types.GetStatus)


@cython.final
@cython.no_gc
@cython.freelist(256)
cdef class PutResult:
    """Position and ids of a stored message.

    Attributes
    ----------
    queue_id, queue_offset : int
        Queue of the topic, and position in it; of a batch, its first message's.
    physical_offset : int
        Byte of the commit log at which the record begins; of a batch, its first message's.
    store_timestamp : int
        Milliseconds since the epoch.
    msg_id : str
        The store's message id.
    uniq_key : str or None
        The client's message id.
    count : int
        Number of messages: 1, or the batch's.
    status : PutStatus
        ``PUT_OK``; ``FLUSH_DISK_TIMEOUT`` in an error's result.

    Notes
    -----
    Source: ``store/AppendMessageResult.java``.
    """

    cdef AppendResult appended
    cdef int64_t stop            # end of the last record
    cdef int32_t _queue_id
    cdef int32_t _status
    cdef int64_t _count
    cdef bint v6
    cdef bint generated
    cdef char host[HOST_V6_BYTES]
    cdef char key[UNIQUE_KEY_BYTES]
    cdef object given_key

    def __init__(self):
        raise TypeError("made by put")

    @property
    def queue_id(self):
        return self._queue_id

    @property
    def queue_offset(self):
        return self.appended.queue_offset

    @property
    def physical_offset(self):
        return self.appended.physical_offset

    @property
    def store_timestamp(self):
        return self.appended.store_timestamp

    @property
    def count(self):
        return self._count

    @property
    def status(self):
        return types.PutStatus(self._status)

    @property
    def msg_id(self):
        return message_id(self.host, self.v6, self.appended.physical_offset)

    @property
    def uniq_key(self):
        if self.generated:
            return PyUnicode_DecodeUTF8(self.key, UNIQUE_KEY_BYTES, NULL)
        return self.given_key

    def __repr__(self):
        return (f"PutResult(queue_id={self.queue_id}, queue_offset={self.queue_offset}, "
                f"physical_offset={self.physical_offset}, msg_id={self.msg_id!r}, "
                f"uniq_key={self.uniq_key!r})")


cdef PutResult result_of(Message message):
    """Result of a stored message's put."""
    cdef PutResult result = PutResult.__new__(PutResult)
    result.v6 = message.record.sys_flag & SYS_STORE_HOST_V6 != 0
    with cython.critical_section(message):
        memcpy(result.host, message.slice.data + message.record.store_host_at,
               HOST_V6_BYTES if result.v6 else HOST_V4_BYTES)
        message.intact()
    result.appended.physical_offset = message.record.physical_offset
    result.appended.queue_offset = message.record.queue_offset
    result.appended.store_timestamp = message.record.store_timestamp
    result.stop = message.record.physical_offset + message.record.size
    result._queue_id = message.record.queue_id
    result._count = 1
    result.given_key = message.uniq_key
    return result


@cython.final
cdef class Memory:
    """Memory of the core, exported by the buffer protocol and freed with the last view."""

    cdef char *data
    cdef int64_t length

    def __cinit__(self):
        self.data = NULL

    def __init__(self):
        raise TypeError("made by the core")

    def __dealloc__(self):
        free(self.data)

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.data, self.length, False, flags)

    def __len__(self):
        return self.length


cdef Memory memory_of(void *data, int64_t length):
    """Take over malloc'ed bytes."""
    cdef Memory memory = Memory.__new__(Memory)
    memory.data = <char *>data
    memory.length = length
    return memory


cdef Memory memory_new(int64_t length):
    cdef void *data = malloc_dense(<size_t>max(length, 1))
    if data == NULL:
        raise MemoryError()
    return memory_of(data, length)


@cython.final
cdef class PutManyResult:
    """Positions of the rows stored by a put_many.

    Attributes
    ----------
    count : int
        Rows stored.
    physical_offset, queue_offset : numpy.ndarray
        Shape ``(count,)``, int64: byte of the commit log, and position in the queue.
    queue_id : numpy.ndarray
        Shape ``(count,)``, int32.
    """

    cdef int64_t _count
    cdef int64_t stop
    cdef Memory _physical_offset
    cdef Memory _queue_offset
    cdef Memory _queue_id

    def __init__(self):
        raise TypeError("made by put_many")

    @property
    def count(self):
        return self._count

    @property
    def physical_offset(self):
        return arrays.int64_array(self._physical_offset, self._count)

    @property
    def queue_offset(self):
        return arrays.int64_array(self._queue_offset, self._count)

    @property
    def queue_id(self):
        return arrays.int32_array(self._queue_id, self._count)

    def __len__(self):
        return self._count

    def __repr__(self):
        return f"PutManyResult(count={self._count})"
