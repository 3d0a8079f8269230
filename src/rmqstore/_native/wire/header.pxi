# Header of a frame, in both forms, parsed in one pass.
#
# Source: remoting/protocol/RemotingCommand.java headerDecode, RocketMQSerializable.java

cdef enum:
    WIRE_FIELDS_MAX = 1024       # in one header
    WIRE_LANGUAGES = 12
    LANGUAGE_MAX = 32            # bytes of a name; longer names are OTHER
    BINARY_HEAD_BYTES = 17       # code, language, version, opaque, flag, length of the remark

cdef struct WireField:
    WireText name
    WireText value               # length -1: null, or an object or array


cdef struct Header:
    int32_t code
    int32_t opaque
    int32_t flag
    int32_t version
    int32_t language_number      # -1: ``language`` has its name
    WireText language
    WireText remark
    WireField *fields            # extFields, in order; reused for the next header
    int64_t field_count
    int64_t field_room
    const char *problem          # the refusal


cdef inline bint header_refuse(Header *into, const char *problem) noexcept nogil:
    into.problem = problem
    return False


cdef void header_clear(Header *into) noexcept nogil:
    into.code = into.opaque = into.flag = into.version = 0
    into.language_number = 7                 # OTHER
    into.language.length = into.remark.length = -1
    into.language.escaped = into.remark.escaped = False
    into.field_count = 0
    into.problem = NULL


cdef WireField *header_field(Header *into) noexcept nogil:
    """Room for one more field; NULL: too many, or no memory."""
    cdef WireField *grown
    if into.field_count == WIRE_FIELDS_MAX:
        return NULL
    grown = <WireField *>array_with_room(
        into.fields, &into.field_room, into.field_count, sizeof(WireField))
    if grown == NULL:
        return NULL
    into.fields = grown
    into.field_count += 1
    return &grown[into.field_count - 1]


cdef const char *header_fields(const char *at, const char *end, Header *into) noexcept nogil:
    """Parse the object extFields; the byte after it, or NULL."""
    cdef WireField *field
    cdef int kind = 0
    into.field_count = 0
    at = wire_space(at + 1, end)
    if at < end and at[0] == c'}':
        return at + 1
    while True:
        field = header_field(into)
        if field == NULL:
            return NULL
        at = wire_name(at, end, &field.name)
        if at == NULL:
            return NULL
        at = wire_value(at, end, 2, &field.value, &kind)
        if at == NULL:
            return NULL
        at = wire_space(at, end)
        if at >= end or (at[0] != c',' and at[0] != c'}'):
            return NULL
        if at[0] == c'}':
            return at + 1
        at += 1


cdef bint header_number(const WireText *text, int kind, int32_t *into) noexcept nogil:
    """Read a number, also from a text; null is 0."""
    cdef char[400] memory
    cdef WireText digits = text[0]
    cdef Text plain
    cdef int64_t value = 0
    if kind == WIRE_IS_NULL:
        into[0] = 0
        return True
    if text.escaped and text.length <= 120:
        text_init(&plain, memory, 400)
        digits.length = wire_text_add(&plain, text)
        digits.data = memory
        digits.escaped = False
    if (kind != WIRE_IS_NUMBER and kind != WIRE_IS_TEXT) \
            or not wire_int(&digits, INT32_MIN, INT32_MAX, &value):
        return False
    into[0] = <int32_t>value
    return True


cdef bint header_member(
    const WireText *name, const WireText *value, int kind, Header *into,
) noexcept nogil:
    """Take one member other than extFields; False if invalid."""
    cdef int64_t number = 0
    if wire_is(name, b"code", 4):
        return header_number(value, kind, &into.code)
    if wire_is(name, b"opaque", 6):
        return header_number(value, kind, &into.opaque)
    if wire_is(name, b"flag", 4):
        return header_number(value, kind, &into.flag)
    if wire_is(name, b"version", 7):
        return header_number(value, kind, &into.version)
    if wire_is(name, b"remark", 6):
        into.remark = value[0]
        return kind != WIRE_IS_NESTED
    if wire_is(name, b"language", 8):
        into.language = value[0]
        into.language_number = -1
        if kind != WIRE_IS_TEXT or value.length > LANGUAGE_MAX:
            into.language.length = -1
            into.language_number = 7
            if kind == WIRE_IS_NUMBER and wire_int(value, 0, WIRE_LANGUAGES - 1, &number):
                into.language_number = <int32_t>number
        return kind != WIRE_IS_NESTED
    return True


cdef bint header_parse_json(const char *data, int64_t length, Header *into) noexcept nogil:
    """Parse a JSON header; False with ``problem`` if invalid."""
    cdef const char *end = data + length
    cdef const char *at = wire_space(data, end)
    cdef WireText name
    cdef WireText value
    cdef int kind = 0
    header_clear(into)
    if at >= end or at[0] != c'{':
        return header_refuse(into, b"it is no JSON object")
    at = wire_space(at + 1, end)
    if at < end and at[0] == c'}':
        at += 1
    else:
        while True:
            at = wire_name(at, end, &name)
            if at == NULL:
                return header_refuse(into, b"a name is no JSON")
            at = wire_space(at, end)
            if at < end and at[0] == c'{' and wire_is(&name, b"extFields", 9):
                at = header_fields(at, end, into)
            else:
                at = wire_value(at, end, 1, &value, &kind)
                if at != NULL and wire_is(&name, b"extFields", 9):
                    into.field_count = 0
                    if kind != WIRE_IS_NULL:
                        return header_refuse(into, b"extFields is no object")
                elif at != NULL and not header_member(&name, &value, kind, into):
                    return header_refuse(into, b"a member is of another type")
            if at == NULL:
                return header_refuse(into, b"a value is no JSON, too deep, or one of too many")
            at = wire_space(at, end)
            if at >= end or (at[0] != c',' and at[0] != c'}'):
                return header_refuse(into, b"the JSON object does not end")
            at += 1
            if (at - 1)[0] == c'}':
                break
    if wire_space(at, end) != end:
        return header_refuse(into, b"more follows the JSON object")
    return True


cdef bint binary_text(
    const char *at, const char *end, int64_t length, WireText *into,
) noexcept nogil:
    into.data = at
    into.length = length
    into.escaped = False
    return 0 <= length <= end - at


cdef bint header_parse_binary(const char *data, int64_t length, Header *into) noexcept nogil:
    """Parse a ROCKETMQ header; False with ``problem`` if invalid."""
    cdef const char *at = data + BINARY_HEAD_BYTES
    cdef const char *end = data + length
    cdef WireField *field
    cdef int64_t size
    header_clear(into)
    if length < BINARY_HEAD_BYTES + 4:
        return header_refuse(into, b"it is too short")
    into.code = get_i16(data)
    into.language_number = <unsigned char>data[2]
    if into.language_number >= WIRE_LANGUAGES:
        into.language_number = 7
    into.version = get_i16(data + 3)
    into.opaque = get_i32(data + 5)
    into.flag = get_i32(data + 9)
    size = get_i32(data + 13)
    if size > 0:
        if not binary_text(at, end - 4, size, &into.remark):
            return header_refuse(into, b"the remark does not end")
        at += size
    size = get_i32(at)
    at += 4
    if size > end - at:
        return header_refuse(into, b"the fields do not end")
    if size > 0:
        end = at + size
        while at < end:
            field = header_field(into)
            if field == NULL:
                return header_refuse(into, b"it has too many fields")
            if end - at < 2 or not binary_text(at + 2, end, get_i16(at), &field.name):
                return header_refuse(into, b"a name does not end")
            at += 2 + field.name.length
            if end - at < 4 or not binary_text(at + 4, end, get_i32(at), &field.value):
                return header_refuse(into, b"a value does not end")
            at += 4 + field.value.length
    return True
