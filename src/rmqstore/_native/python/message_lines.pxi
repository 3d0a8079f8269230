# Messages as bytes: JSON lines, CSV, and formats.

cdef tuple BODY_FORMS = ("auto", "utf8", "base64", "hex", "json", "none")
cdef tuple CSV_FORMS = ("auto", "utf8", "base64", "hex", "none")
cdef frozenset FORMAT_LETTERS = frozenset("tqopkgsSRTMBiuhJ")

# A message appended to ``writer.text``.
ctypedef int64_t (*PutLine)(LineWriter *writer, const LineInput *line) noexcept nogil


cdef int line_writer_open(LineWriter *writer, str body, tuple forms, bint local) except -1:
    """Initialise the writer, freed by the caller."""
    arguments.one_of("body", body, forms)
    if line_writer_init(
            writer, BODY_FORMS.index(body), TIMES_LOCAL if local else TIMES_UTC) < 0:
        line_writer_free(writer)
        raise MemoryError()
    return 0


cdef bytes lines_of(list messages, LineWriter *writer, list values, list failed, PutLine put_line,
                    bint wants_body):
    """Messages as lines; ``values`` are JSON bodies, None for any other.

    ``failed`` gets the messages whose bodies cannot be inflated, which are written as stored, and
    the reason; None: that is raised.
    """
    cdef tuple held = tuple(messages)        # independent of changes to the list
    cdef int64_t count = len(held)
    cdef list keep = []
    cdef int64_t i
    cdef int64_t pinned = 0
    cdef int64_t rc = 0
    cdef LineInput *lines
    values = None if values is None else list(values)
    if values is not None and len(values) != count:
        raise ValueError(f"values must have {count} items, got {len(values)}")
    lines = <LineInput *>calloc(<size_t>max(count, 1), sizeof(LineInput))
    if lines == NULL:
        raise MemoryError()
    try:
        for i in range(count):
            # As for a buffer given out: detach() in another thread keeps the record's bytes.
            (<Message?>held[i]).exports += 1
            pinned += 1
        for i in range(count):
            line_input(<Message>held[i], None if values is None else values[i], keep, failed,
                       wants_body, writer.body_form, &lines[i])
        with nogil:
            for i in range(count):
                rc = put_line(writer, &lines[i])
                if rc < 0:
                    break
        if rc < 0:
            raise MemoryError()
        for i in range(count):
            (<Message>held[i]).intact()
        return PyBytes_FromStringAndSize(writer.text.data, writer.text.length)
    finally:
        free(lines)
        for i in range(pinned):
            (<Message>held[i]).unpin()


cdef int line_input(Message message, bytes value, list keep, list failed, bint wants_body,
                    int64_t body_form, LineInput *line) except -1:
    """Point to the parts of the line; ``keep`` keeps those alive that the message does not own."""
    cdef bytes body
    cdef bytes text
    line.data = message.slice.data
    line.record = &message.record
    line.body = message.slice.data + message.record.body_at
    line.body_length = message.record.body_length
    if value is not None:
        keep.append(value)
        line.json = PyBytes_AS_STRING(value)
        line.json_length = PyBytes_GET_SIZE(value)
    if wants_body and message.record.sys_flag & SYS_COMPRESSED:
        try:
            body = message.body
        except errors.StoreError as error:
            if failed is None:
                raise
            failed.append((message, error))
            text = getattr(error, "reason", str(error)).encode()
            keep.append(text)
            line.error = PyBytes_AS_STRING(text)
            line.error_length = PyBytes_GET_SIZE(text)
            body = bytes(message.raw_body)
        keep.append(body)
        line.body = PyBytes_AS_STRING(body)
        line.body_length = PyBytes_GET_SIZE(body)
    if wants_body and body_form == BODY_UTF8 and utf8_error(line.body, line.body_length) >= 0:
        text = line.body[:line.body_length].decode("utf-8", "replace").encode()
        keep.append(text)
        line.text = PyBytes_AS_STRING(text)
        line.text_length = PyBytes_GET_SIZE(text)
    return 0


def json_lines(list messages, str body, *, bint local=False, list values=None, list failed=None):
    """Return messages as JSON: an object a line, without blanks, in UTF-8.

    Parameters
    ----------
    messages : list of Message
    body : {"auto", "utf8", "base64", "hex", "json", "none"}
        Form of bodies; ``"auto"``: text if UTF-8, else base64.
    local : bool, optional
        Times are in this machine's zone, not in UTC.
    values : list of bytes or None, optional
        With ``"json"``, for each message its body if that is a JSON value, written as it
        is; None otherwise, for ``"auto"``.
    failed : list, optional
        Gets each message whose body cannot be inflated, with the error; it is written as stored,
        with the reason as ``body_error``, in CSV and formats after a mark.  By default raised.

    Returns
    -------
    bytes

    Raises
    ------
    ValueError
        ``body`` is none of these.
    StoreError
        A compressed body cannot be inflated, without ``failed``; bytes of a record are gone.
    """
    cdef LineWriter writer
    line_writer_open(&writer, body, BODY_FORMS, local)
    try:
        return lines_of(messages, &writer, values, failed, put_json_line, body != "none")
    finally:
        line_writer_free(&writer)


def csv_lines(list messages, str body, *, bint local=False, list failed=None):
    """Return messages as lines of CSV, which end in a line feed; as :func:`json_lines`.

    A cell with a comma, a quote or a line break is quoted.  ``body`` is not
    ``"json"``.
    """
    cdef LineWriter writer
    line_writer_open(&writer, body, CSV_FORMS, local)
    try:
        return lines_of(messages, &writer, None, failed, put_csv_line, body != "none")
    finally:
        line_writer_free(&writer)


def csv_heading(str body):
    """Return the line that names the columns of :func:`csv_lines`."""
    cdef LineWriter writer
    line_writer_open(&writer, body, CSV_FORMS, False)
    try:
        if put_csv_heading(&writer) < 0:
            raise MemoryError()
        return PyBytes_FromStringAndSize(writer.text.data, writer.text.length)
    finally:
        line_writer_free(&writer)


def format_lines(list messages, list pieces, str body, *, bint local=False, list values=None,
                 list failed=None):
    """Return messages by a format, concatenated; as :func:`json_lines`.

    Parameters
    ----------
    messages : list of Message
    pieces : list of bytes or str
        Bytes are written as they are.  A str is the letter of a field: t topic, q queue id,
        o queue offset, p physical offset, k keys, g tags, s body, S size of the body, R size of
        the record, T store time, M store time in ms, B born time, i message id, u unique key,
        h properties as JSON, J all of it as JSON.
    body : {"auto", "utf8", "base64", "hex", "json", "none"}
        Form of the body in ``s`` and ``J``; ``s`` with ``"auto"``: its bytes as they are.
    """
    cdef LineWriter writer
    line_writer_open(&writer, body, BODY_FORMS, local)
    try:
        pieces = list(pieces)                # a copy that no other thread changes
        take_pieces(&writer, pieces)
        # A body without a field for it is not inflated.
        letters = {one for one in pieces if isinstance(one, str)}
        asked = "S" in letters or (body != "none" and not letters.isdisjoint("sJ"))
        return lines_of(messages, &writer, values, failed, put_formatted, asked)
    finally:
        line_writer_free(&writer)


cdef int take_pieces(LineWriter *writer, list pieces) except -1:
    """Point to the pieces, which the caller keeps alive."""
    cdef FormatPiece *piece
    cdef bytes text
    writer.pieces = <FormatPiece *>calloc(<size_t>max(len(pieces), 1), sizeof(FormatPiece))
    if writer.pieces == NULL:
        raise MemoryError()
    for one in pieces:
        piece = &writer.pieces[writer.piece_count]
        if isinstance(one, str):
            if one not in FORMAT_LETTERS:
                raise ValueError(f"pieces must be bytes or letters of fields, got {one!r}")
            piece.letter = <char>ord(one)
        else:
            text = one
            piece.text = PyBytes_AS_STRING(text)
            piece.length = PyBytes_GET_SIZE(text)
        writer.piece_count += 1
    return 0
