# Receiving side of a connection: bytes in, requests and answers to plain sends out.
#
# Source: remoting/netty/NettyDecoder.java, NettyRemotingAbstract.java processRequestCommand

cdef enum:
    READ_BYTES = 64 << 10        # room for one read
    READ_LEAST = 16 << 10        # with less room, the buffer is enlarged
    READ_MAX = 256 << 10         # of one read: many clients send large frames at a time
    COPIED_MAX = 1 << 20         # bytes of a frame, after which there is room for all of it

cdef tuple LANGUAGES = ("JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER",
                        "HTTP", "GO", "PHP", "OMS")

# Beginnings of HTTP requests.
cdef frozenset HTTP_BEGINS = frozenset(
    (b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"PATC", b"CONN", b"PRI "))


cdef str other_protocol(Memory block, int64_t at):
    """Text for bytes of another protocol, which are no frame; else None."""
    cdef bytes begin = block.data[at:at + 4]
    if begin in HTTP_BEGINS:
        return "HTTP is not spoken here; the page and /metrics have a port of their own (--metrics)"
    if begin[:2] == b"\x16\x03":
        return "a handshake of TLS, for which there is no certificate"
    return None


@cython.final
cdef class FrameReader:
    """Bytes received on one connection and not handled yet; used by its loop's thread.

    ``request_type``: called for each request with code, fields, body, opaque, flag, language,
    version, remark.
    """

    cdef object request_type
    cdef Memory block            # None while nothing is kept
    cdef int64_t start           # of the kept bytes
    cdef int64_t stop
    cdef Frame frame
    cdef SendHosts hosts
    cdef Text scratch
    cdef Text now                # answers ready to be written
    cdef Text late               # answers that wait for the disk
    cdef int64_t late_stop       # up to this log offset
    cdef int64_t long_way        # frames not for ClientSends
    cdef int64_t sent            # plain sends of the last read

    def __cinit__(self, request_type):
        self.request_type = request_type
        memset(&self.frame, 0, sizeof(Frame))
        memset(&self.hosts, 0, sizeof(SendHosts))
        text_init(&self.scratch, NULL, 0)
        text_init(&self.now, NULL, 0)
        text_init(&self.late, NULL, 0)

    def __dealloc__(self):
        free(self.frame.header.fields)
        text_free(&self.scratch)
        text_free(&self.now)
        text_free(&self.late)

    def set_hosts(self, born_host, store_host):
        """Set the hosts of records and message ids: ``"ip:port"`` of the client, and ours."""
        memset(&self.hosts, 0, sizeof(SendHosts))
        self.hosts.born_v6 = host_bytes("born_host", born_host, self.hosts.born) == HOST_V6_BYTES
        self.hosts.store_v6 = host_bytes(
            "store_host", store_host, self.hosts.store) == HOST_V6_BYTES
        self.hosts.known = True

    def get_buffer(self, hint=-1):
        """Room for a read, to be followed by ``received`` with the number of bytes.

        Yields to a local client that sends without waiting for answers: its next sends come with
        this read, and their answers with one write.
        """
        cdef int64_t kept = self.stop - self.start
        cdef int64_t room = kept + READ_BYTES
        cdef Memory larger
        if self.sent > 1:
            with nogil:
                sched_yield()
        self.sent = 0
        if self.block is None or self.block.length - self.stop < READ_LEAST:
            # A frame's length is trusted only as its bytes come, and in full before copies of them
            # take long: untouched memory costs nothing yet, where pages are small.
            if self.frame.size > room:
                room = max(room, 2 * kept) if kept < COPIED_MAX else self.frame.size
                # With room for a read after it: not enlarged again at the frame's end.
                room = min(room, self.frame.size) + READ_LEAST
            larger = memory_of(malloc(<size_t>room), room)
            if larger.data == NULL:
                raise MemoryError()
            if kept:
                memcpy(larger.data, self.block.data + self.start, <size_t>kept)
            self.block = larger
            self.start = 0
            self.stop = kept
        return memoryview(self.block)[self.stop:self.stop + READ_MAX]

    def received(self, int64_t count):
        """Add ``count`` bytes in the last room given."""
        if self.block is None or not 0 <= count <= self.block.length - self.stop:
            raise ValueError(f"{count} bytes are more than there was room for")
        self.stop += count

    @property
    def kept(self):
        """Bytes of frames not taken yet."""
        return self.stop - self.start

    def take(self, ClientSends sends=None):
        """Next request for Python, None without one.  ValueError: the bytes are no frame.

        With ``sends``, plain sends before it are stored, and answered in ``answers``.  One-way
        commits of known offsets are skipped.
        """
        cdef Store *store = NULL if sends is None else sends.engine.store
        if store == NULL or store_enter(store) < 0:
            return self.take_next(None)
        try:
            return self.take_next(sends)
        finally:
            if sends.undispatched:
                sends.undispatched = False
                with nogil:
                    reput_here(store)
            store_leave(store)

    cdef object take_next(self, ClientSends sends):
        """See ``take``; with ``sends`` inside their store."""
        cdef Header *header = &self.frame.header
        cdef int64_t rc = 0
        while True:
            if self.start < self.stop:
                rc = frame_next(self.block.data + self.start, self.stop - self.start, &self.frame)
            else:
                rc = 0
                self.frame.size = 0
            if rc > 0 and sends is not None and not self.long_way and not header.flag & 1 and (
                    header.code == CODE_SEND_V2 or header.code == CODE_SEND
                    or header.code == CODE_SEND_BATCH):
                if header.code == CODE_SEND_BATCH and sends.run.count:
                    self.store_run(sends)
                    continue
                if run_take(sends.engine.store, &sends.run, &self.frame, &self.hosts,
                            &sends.names, self.start):
                    self.start += self.frame.size
                    self.sent += 1
                    if sends.run.count >= RUN_MAX or sends.run.whole:
                        self.store_run(sends)
                    continue
            if sends is not None and sends.run.count:
                self.store_run(sends)
                continue
            if rc > 0 and sends is not None and sends.offsets is not None \
                    and header.code == CODE_UPDATE_OFFSET and header.flag & 3 == FLAG_ONEWAY \
                    and not self.long_way and is_known_offset(header, sends.offsets):
                sends.requests_offset += 1
                self.start += self.frame.size
                continue
            if rc == 0:
                if self.start == self.stop:
                    self.block = None
                    self.start = self.stop = 0
                return None
            if rc < 0:
                raise ValueError(other_protocol(self.block, self.start) or (
                    f"{self.frame.problem.decode()} {self.frame.bad_length}"))
            request = self.request()
            self.start += self.frame.size
            if self.long_way:
                self.long_way -= 1
            return request

    cdef int store_run(self, ClientSends sends) except -1:
        """Append the run and note the answers; requests that were not stored are left to Python."""
        cdef SendRun *run = &sends.run
        cdef Send *send
        cdef int64_t i, last
        cdef int64_t good = 0
        cdef bint sync = False
        try:
            good = sends_store(sends)
            sync = sends.unflushed
            for i in range(good):
                send = &run.sends[i]
                if sync and send.waits and not send.oneway:
                    last = send.first + send.count - 1
                    self.late_stop = run.appended[last].physical_offset + run.messages[last].size
                    if send_answer(&self.late, run, send, &self.hosts, &sends.names) < 0:
                        raise MemoryError()
                elif not send.oneway and send_answer(
                        &self.now, run, send, &self.hosts, &sends.names) < 0:
                    raise MemoryError()
        finally:
            if good < run.send_count:
                self.start = run.sends[good].frame
                self.long_way = run.send_count - good
            run_clear(run)
        return 0

    def answers(self):
        """Frames of answers ready to be written, which are then forgotten."""
        if self.now.length == 0:
            return b""
        out = PyBytes_FromStringAndSize(self.now.data, self.now.length)
        text_reset(&self.now)
        return out

    def late_answers(self):
        """Answers that wait for the disk: the log offset, and their frames; or None."""
        if self.late.length == 0:
            return None
        out = PyBytes_FromStringAndSize(self.late.data, self.late.length)
        text_reset(&self.late)
        return self.late_stop, out

    cdef str text(self, const WireText *text):
        """Text as Java decodes it."""
        if not text.escaped and utf8_error(text.data, text.length) < 0:
            return PyUnicode_DecodeUTF8(text.data, text.length, NULL)
        self.scratch.length = 0
        if wire_text_add(&self.scratch, text) < 0:
            raise MemoryError()
        return PyUnicode_DecodeUTF8(self.scratch.data, self.scratch.length, NULL)

    cdef object request(self):
        """Request of the last parsed frame."""
        cdef Header *header = &self.frame.header
        cdef const WireField *field
        cdef dict fields = {}
        cdef int64_t i
        for i in range(header.field_count):
            field = &header.fields[i]
            name = usual_name(&field.name)
            if name is None:
                name = self.text(&field.name)
            if field.value.length >= 0:
                fields[name] = self.text(&field.value)
            else:
                fields.pop(name, None)
        language = LANGUAGES[header.language_number] if header.language_number >= 0 \
            else self.text(&header.language)
        remark = self.text(&header.remark) if header.remark.length >= 0 else None
        return self.request_type(
            header.code, fields,
            PyBytes_FromStringAndSize(self.frame.body, self.frame.body_length), header.opaque,
            header.flag, language, header.version, remark)


cdef inline void text_reset(Text *text) noexcept nogil:
    """Empty a text, and free its memory if it was large."""
    text.length = 0
    if text.room > READ_BYTES:
        text_free(text)
        text_init(text, NULL, 0)
