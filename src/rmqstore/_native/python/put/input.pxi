# Rows of a call on Python's side: their columns, and errors of refused rows.

cdef Limits limits_of(const Store *store) noexcept nogil:
    cdef Limits limits
    limits.now = store_millis(store)
    limits.max_message_size = store.settings.max_message_size
    limits.file_size = store.log.file_size
    limits.record_checksum = store.settings.record_checksum
    limits.multi_dispatch = store.settings.multi_dispatch
    limits.light_queues = store.settings.light_queues
    limits.store_host_v6 = store.settings.store_host_length == HOST_V6_BYTES
    return limits


cdef object size_error(const Limits *limits, str where, int problem, int64_t size):
    """Exception for ROW_PROPERTIES_TOO_LARGE or ROW_TOO_LARGE."""
    if problem == ROW_PROPERTIES_TOO_LARGE:
        return illegal(
            f"{where}: the properties take {size} bytes; with keys, tags and unique key they may "
            f"take {PROPERTIES_MAX_BYTES}", types.PutStatus.PROPERTIES_SIZE_EXCEEDED)
    room = limits.file_size - RECORD_BLANK_BYTES
    if limits.max_message_size <= room:
        return illegal(f"{where}: the record takes {size} bytes; it may take "
                       f"{limits.max_message_size}, which is max_message_size")
    return illegal(f"{where}: the record takes {size} bytes; it may take {room}, as a commit log "
                   f"file has {limits.file_size}")


cdef int check_size(const Limits *limits, int problem, int64_t size) except -1:
    """Raise for a message that is too large."""
    if problem != ROW_GOOD:
        raise size_error(limits, "properties" if problem == ROW_PROPERTIES_TOO_LARGE else "body",
                         problem, size)
    return 0


cdef int check_row_size(const Limits *limits, const Row *row) except -1:
    cdef int64_t size = 0
    cdef int problem = row_size_problem(limits, row, &size)
    return check_size(limits, problem, size)


cdef object light_error(const Limits *limits, const Row *row, str where):
    """Exception for ROW_BAD_LIGHT."""
    cdef Span name = first_bad_name(limits, row, row.multi_dropped)
    text = text_of(name.data, min(name.length, 200))
    if topic_name_writable(name.data, name.length) and name.length > LIGHT_PREFIX_BYTES:
        return illegal(f"{where}: INNER_MULTI_DISPATCH names the light queue {text!r}, which needs "
                       "enable_lmq")
    return illegal(f"{where}: INNER_MULTI_DISPATCH must name topics, each {TOPIC_RULE}, "
                   f"got {text!r}")


cdef int64_t first_bad_topic(const ColumnView *column, int64_t rows) noexcept nogil:
    """First row without a valid topic name; -1: none."""
    cdef const Span *name
    cdef const Span *last = NULL
    cdef int64_t row
    for row in range(rows):
        name = column_span(column, row)
        if (last == NULL or last.data != name.data or last.length != name.length) \
                and not topic_name_writable(name.data, name.length):
            return row
        last = name
    return -1


cdef int64_t first_bad_text(const ColumnView *column, int64_t rows) noexcept nogil:
    """First row whose text is not allowed in a property; -1: none."""
    cdef const char *data = NULL
    cdef const char *last = NULL
    cdef int64_t length = 0
    cdef int64_t row
    for row in range(rows):
        if column_get(column, row, &data, &length) and data != last and length > 0:
            if text_is_bad(data, length):
                return row
            last = data
    return -1


cdef int64_t first_split_tags(const ColumnView *column, int64_t rows) noexcept nogil:
    """First row whose tags no filter would match; -1: none."""
    cdef const char *data = NULL
    cdef const char *last = NULL
    cdef int64_t length = 0
    cdef int64_t row
    for row in range(rows):
        if column_get(column, row, &data, &length) and data != last and length > 0:
            if tags_are_split(data, length):
                return row
            last = data
    return -1


cdef int check_topics(ColumnInput column) except -1:
    """Raise for the first invalid topic."""
    cdef const Span *name
    cdef int64_t row
    with nogil:
        row = first_bad_topic(&column.view, column.rows if column.rows >= 0 else 1)
    if row >= 0:
        name = column_span(&column.view, row)
        text = text_of(name.data, min(name.length, 200))
        raise illegal(f"{column.subject(row if column.rows >= 0 else -1)} must be {TOPIC_RULE}, "
                      f"got {text!r}")
    return 0


cdef ColumnInput check_property(ColumnInput column):
    """Raise for the first row whose text is not allowed in a property."""
    cdef int64_t row
    with nogil:
        row = first_bad_text(&column.view, column.rows if column.rows >= 0 else 1)
    if row >= 0:
        raise illegal(f"{column.subject(row if column.rows >= 0 else -1)} must not contain "
                      f"{SEPARATORS}")
    return column


cdef ColumnInput check_tags(ColumnInput column):
    """Raise for the first row whose text is not allowed as tags."""
    cdef int64_t row
    check_property(column)
    with nogil:
        row = first_split_tags(&column.view, column.rows if column.rows >= 0 else 1)
    if row >= 0:
        raise illegal(f"{column.subject(row if column.rows >= 0 else -1)} must not contain "
                      f"{TAG_SEPARATOR}")
    return column


@cython.final
cdef class RowInput:
    """Rows as read by C, and every borrowed object."""

    cdef Rows rows
    cdef dict columns            # ColumnInput by name, as in put_table
    cdef ColumnInput queue       # chooses the queue
    cdef int choice              # QUEUE_...
    cdef ArrowOwner owner
    cdef int64_t first_row       # in the whole table
    cdef Memory topics
    cdef Memory queue_ids
    cdef Memory hosts

    def __cinit__(self):
        self.columns = {}
        self.rows.same = NO_ROW

    cdef const ColumnView *view(self, str name) except NULL:
        """View of a column; ABSENT without one."""
        if name not in self.columns:
            return &NO_COLUMN
        return &(<ColumnInput>self.columns[name]).view

    cdef int point_at_texts(self) except -1:
        """Set the pointers to the columns of bytes; scalar values go to ``same``."""
        self.rows.topic = self.view("topic")
        self.rows.body = self.view("body")
        self.rows.properties = self.view("properties")
        self.rows.keys = self.view("keys")
        self.rows.tags = self.view("tags")
        self.rows.unique = self.view("uniq_key")
        self.rows.one_topic = self.rows.topic.kind == COLUMN_SCALAR
        self.rows.same.topic = self.rows.topic.scalar
        if self.rows.body.kind == COLUMN_SCALAR:
            self.rows.same.body = self.rows.body.scalar
        if self.rows.properties.kind == COLUMN_SCALAR:
            self.rows.same.properties = self.rows.properties.scalar
        if self.rows.keys.kind == COLUMN_SCALAR:
            self.rows.same.keys = self.rows.keys.scalar
        if self.rows.tags.kind == COLUMN_SCALAR:
            self.rows.same.tags = self.rows.tags.scalar
        if self.rows.unique.kind == COLUMN_SCALAR:
            self.rows.same.unique = self.rows.unique.scalar
        return 0

    cdef str where(self, str name, int64_t row):
        """Column and row for errors, even if the column is absent."""
        cdef ColumnInput body = self.columns.get("body") or self.columns["raw_body"]
        cdef ColumnInput column = self.columns.get(name)
        if column is None:
            return f"{body.kind} '{name}', row {body.first_row + row}"
        return column.where(row if column.rows >= 0 else -1)

    cdef str shown(self, str name, int64_t row):
        """A row of a text column, quoted for errors."""
        cdef const char *data = NULL
        cdef int64_t length = 0
        if not column_get(self.view(name), row, &data, &length):
            return "null"
        return arguments.shown(text_of(data, length))

    cdef int check(self, const Limits *limits) except -1:
        """Raise for the first illegal row; the message names column and row."""
        cdef int problem = ROW_GOOD
        cdef int64_t size = 0
        cdef int64_t row
        with nogil:
            row = rows_check(limits, &self.rows, &problem, &size)
        return 0 if row < 0 else self.refuse(limits, row, problem, size)

    cdef int refuse(
        self, const Limits *limits, int64_t row, int problem, int64_t size,
    ) except -1:
        cdef StoreProperties mapped
        cdef Property *entry
        cdef Row bad = self.rows.same
        if problem == ROW_NO_BODY:
            where = self.where("body" if "body" in self.columns else "raw_body", row)
            raise ValueError(f"{where}: no value (null); each row has a body")
        if problem == ROW_BODIES_DIFFER:
            raise ValueError(f"{self.where('body', row)}: not the body that column 'raw_body' "
                             "holds")
        if problem in (ROW_PROPERTIES_TOO_LARGE, ROW_TOO_LARGE):
            raise size_error(limits, self.where(
                "body" if problem == ROW_TOO_LARGE else "properties", row), problem, size)
        rows_get(&self.rows, row, &bad)
        if problem == ROW_BAD_LIGHT:
            row_join_map(limits, &self.rows, &bad)
            raise light_error(limits, &bad, self.where("properties", row))
        store_properties(bad.properties.data, bad.properties.length, &mapped)
        name, stored, entry = "uniq_key", "UNIQ_KEY", &mapped.unique_key
        if problem == ROW_OTHER_TAGS:
            name, stored, entry = "tags", "TAGS", &mapped.tags
        elif problem == ROW_OTHER_KEYS:
            name, stored, entry = "keys", "KEYS", &mapped.keys
        text = arguments.shown(text_of(entry.value, entry.value_length))
        raise ValueError(f"{self.where(name, row)}: {self.shown(name, row)}, but column "
                         f"'properties' has {stored} {text}")
