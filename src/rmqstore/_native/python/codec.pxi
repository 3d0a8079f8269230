# The codec by itself: crc32, string_hash, encode_record, decode_record.
#
# Source: common/UtilAll.java crc32, java.lang.String.hashCode, store/CommitLog.java,
#         common/message/MessageDecoder.java

def crc32(data, value=0):
    """Return the CRC-32 of ``data``, as zlib's.

    Parameters
    ----------
    data : bytes-like
    value : int, optional
        Checksum of the preceding bytes; 0 without any.

    Returns
    -------
    int
        0 to 2**32 - 1. A record's BODYCRC is it ``& 0x7FFFFFFF``.

    Raises
    ------
    TypeError
        ``data`` is no C-contiguous buffer.

    Notes
    -----
    Source: ``common/UtilAll.java crc32``.
    """
    cdef Py_buffer view
    cdef uint32_t crc
    if value is ZERO:
        crc = 0
    else:
        crc = <uint32_t>(value & 0xFFFFFFFF)
    if PyBytes_CheckExact(data) and PyBytes_GET_SIZE(data) < 65536:
        return crc32_update(crc, PyBytes_AS_STRING(data), <size_t>PyBytes_GET_SIZE(data))
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    if view.len < 65536:
        crc = crc32_update(crc, view.buf, <size_t>view.len)
    else:
        with nogil:
            crc = crc32_update(crc, view.buf, <size_t>view.len)
    PyBuffer_Release(&view)
    return crc


def _crc32_kernels():
    """Names of the kernels that this processor can run, for tests."""
    names = ["portable"]
    if crc32_has_clmul():
        names.append("clmul")
    if crc32_has_wide():
        names.append("wide")
    return names


def _crc32_with(str kernel, const unsigned char[::1] data, uint32_t value=0):
    """CRC-32 by one kernel, for tests."""
    cdef const void *at = &data[0] if data.shape[0] else NULL
    if kernel not in _crc32_kernels():
        raise arguments.wrong_value("kernel", f"one of {_crc32_kernels()}", kernel)
    if kernel == "wide":
        return crc32_wide(value, at, <size_t>data.shape[0])
    if kernel == "clmul":
        return crc32_clmul(value, at, <size_t>data.shape[0])
    return crc32_portable(value, at, <size_t>data.shape[0])


def foreign_text(str name):
    """Text of the refusal of a name that no log or queue file has, with the remedy."""
    cdef bytes encoded = fsencode(name)
    return foreign_name_text(encoded).decode("ascii")


def string_hash(text):
    """Return Java's ``String.hashCode`` of ``text``.

    Parameters
    ----------
    text : str

    Returns
    -------
    int
        Signed, 32 bits; over UTF-16 code units.

    Raises
    ------
    TypeError
        ``text`` is no str.

    Notes
    -----
    Source: ``java.lang.String.hashCode``.
    """
    cdef int64_t length = 0
    cdef const char *data
    cdef uint32_t hash = 0
    try:
        data = utf8_of("text", text, &length)
    except ValueError:                       # lone surrogates have a hash, but no UTF-8
        for low, high in zip(*[iter(text.encode("utf-16-le", "surrogatepass"))] * 2):
            hash = 31 * hash + <uint32_t>(low | high << 8)
        return <int32_t>hash
    return java_hash_utf8(data, length, 0)


def encode_record(topic, body, *, queue_id=0, queue_offset=0, physical_offset=0, flag=0,
                  sys_flag=0, born_timestamp=0, born_host="127.0.0.1:0", store_timestamp=0,
                  store_host="127.0.0.1:0", reconsume_times=0, prepared_transaction_offset=0,
                  properties=b"", record_checksum=False):
    """Return the bytes of one commit log record.

    Parameters
    ----------
    topic : str
        At most 127 bytes of UTF-8.
    body : bytes-like
    queue_id, flag, sys_flag, reconsume_times : int, optional
        32 bits.  The bits of ``sys_flag`` for IPv6 follow the hosts.
    queue_offset, physical_offset, prepared_transaction_offset : int, optional
        64 bits.
    born_timestamp, store_timestamp : int, datetime or str, optional
        Milliseconds since the epoch.
    born_host, store_host : str, optional
        ``"ip:port"`` or ``"[v6]:port"``.
    properties : bytes or mapping of str to str, optional
        The stored string, or a mapping from which it is made.
    record_checksum : bool, optional
        End the record with RocketMQ 5's checksum of the whole record, the property ``__CRC32#``,
        which replaces a checksum at the end of ``properties``.

    Returns
    -------
    bytes

    Raises
    ------
    TypeError, ValueError
        An argument has a wrong type or value; the message names it.

    Notes
    -----
    Source: ``store/CommitLog.java MessageExtEncoder``.
    """
    cdef Encoded message
    cdef Py_buffer view
    cdef int64_t length = 0
    cdef bytes record
    cdef int64_t at, put_at, stored_at
    memset(&message, 0, sizeof(Encoded))
    message.topic = utf8_of("topic", topic, &length)
    message.topic_length = length
    if length > TOPIC_MAX_BYTES:
        raise ValueError(f"topic must take at most {TOPIC_MAX_BYTES} bytes, got {length}")
    message.queue_id = <int32_t>int_argument("queue_id", queue_id, -0x80000000, 0x7FFFFFFF)
    message.flag = <int32_t>int_argument("flag", flag, -0x80000000, 0x7FFFFFFF)
    message.sys_flag = <int32_t>int_argument("sys_flag", sys_flag, -0x80000000, 0x7FFFFFFF)
    message.reconsume_times = <int32_t>int_argument(
        "reconsume_times", reconsume_times, -0x80000000, 0x7FFFFFFF)
    message.prepared_transaction_offset = int_argument(
        "prepared_transaction_offset", prepared_transaction_offset, INT64_LEAST, INT64_MOST)
    put_at = int_argument("queue_offset", queue_offset, INT64_LEAST, INT64_MOST)
    at = int_argument("physical_offset", physical_offset, INT64_LEAST, INT64_MOST)
    message.born_timestamp = times.to_millis(born_timestamp, name="born_timestamp")
    stored_at = times.to_millis(store_timestamp, name="store_timestamp")
    message.sys_flag &= ~(SYS_BORN_HOST_V6 | SYS_STORE_HOST_V6)
    if host_bytes("born_host", born_host, message.born_host) == HOST_V6_BYTES:
        message.sys_flag |= SYS_BORN_HOST_V6
    if host_bytes("store_host", store_host, message.store_host) == HOST_V6_BYTES:
        message.sys_flag |= SYS_STORE_HOST_V6
    stored = stored_properties(properties)
    if record_checksum:
        stored = CHECKSUM_PROPERTY.sub(b"", stored)
        if stored and not stored.endswith(b"\x02"):
            stored += b"\x02"
        stored += bytes(CHECKSUM_PROPERTY_BYTES)     # filled in when the record is complete
        message.checksum = True
    message.properties = stored
    message.properties_length = len(stored)
    if message.properties_length > PROPERTIES_MAX_BYTES:
        raise ValueError(f"properties must take at most {PROPERTIES_MAX_BYTES} bytes, got "
                         f"{message.properties_length}")
    PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
    try:
        message.body = bytes_of(&view)
        message.body_length = view.len
        if encoded_size(&message) > 0x7FFFFFFF:
            raise ValueError(
                f"the record takes {encoded_size(&message)} bytes; it may take 2147483647")
        message.size = <int32_t>encoded_size(&message)
        message.body_crc = record_body_crc(message.body, message.body_length)
        record = PyBytes_FromStringAndSize(NULL, message.size)
        record_write(PyBytes_AS_STRING(record), &message, at, put_at, stored_at)
    finally:
        PyBuffer_Release(&view)
    return record


# The checksum of an earlier record, as the last property.
CHECKSUM_PROPERTY = compile_pattern(rb"(?s)(?:\A|(?<=\x02))__CRC32#\x01[^\x02]*\x02?\Z")


cdef bytes stored_properties(object properties):
    """The stored string: unchanged, or made from a mapping, including reserved names."""
    if isinstance(properties, (bytes, bytearray, memoryview)):
        return bytes(properties)
    if not isinstance(properties, Mapping):
        raise arguments.wrong_type("properties", "bytes or a mapping of str to str", properties)
    entries = []
    for name, value in properties.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise TypeError(f"properties must map str to str, got {name!r}: {value!r}")
        if "\x01" in name or "\x02" in name or "\x01" in value or "\x02" in value:
            raise ValueError("properties must not contain \\x01 or \\x02, got "
                             f"{name!r}: {value!r}")
        entries.append(f"{name}\x01{value}")
    return "\x02".join(entries).encode("utf-8")


def decode_record(buffer, at=0, *, check_crc=True):
    """Return the message whose record begins at ``buffer[at]``; its bytes are copied.

    Parameters
    ----------
    buffer : bytes-like
    at : int, optional
        Byte at which the record begins.
    check_crc : bool, optional
        Check the body against its CRC, and the whole record if it carries a checksum.

    Returns
    -------
    Message

    Raises
    ------
    StoreCorruptError
        No complete record begins at ``at``; the message names the field.
    TypeError, ValueError
        ``buffer`` is no C-contiguous buffer, ``at`` is not in it.

    Notes
    -----
    Source: ``common/message/MessageDecoder.java decode``.
    """
    cdef Py_buffer view
    cdef Record record
    cdef int64_t rc, field, start
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        start = int_argument("at", at, 0, view.len)
        rc = record_parse(<const char *>view.buf + start, view.len - start, view.len - start,
                          &record, &field)
        if rc > 0:
            field = record_check(<const char *>view.buf + start, &record, -1, check_crc)
            if field == FIELD_NONE:
                return record_copy(<const char *>view.buf + start, rc, &record)
        if rc == 0:
            raise errors.StoreCorruptError(logfiles.NO_FILE, start, "a blank, not a record")
        raise errors.StoreCorruptError(
            logfiles.NO_FILE, start, record_field_name(field).decode("ascii"))
    finally:
        PyBuffer_Release(&view)


cdef Message record_copy(const char *data, int64_t size, const Record *record):
    """A message that owns a copy of a parsed record."""
    cdef Found found
    memset(&found, 0, sizeof(Found))
    found.record = record[0]
    found.slice.owned = <char *>malloc(<size_t>size)
    if found.slice.owned == NULL:
        raise MemoryError()
    memcpy(found.slice.owned, data, <size_t>size)
    found.slice.data = found.slice.owned
    found.slice.length = size
    return message_of(&found, 64 << 20, None)
