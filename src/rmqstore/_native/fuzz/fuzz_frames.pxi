# Frames for the fuzzer: found, parsed, and read as sends.

cdef int64_t fuzz_frame_make(Fuzz *fuzz) noexcept nogil:
    """Mutate a frame; mostly with correct lengths, so that the rest is read."""
    cdef int64_t length
    fuzz_field(fuzz, 0, 4)
    fuzz_field(fuzz, 4, 4)
    fuzz_field(fuzz, 5, 3)
    if fuzz.length > 29 and fuzz.data[4] == 1:      # a binary header: its lengths
        fuzz_field(fuzz, 21, 4)
        fuzz_field(fuzz, 25, 4)
        fuzz_field(fuzz, 29, 2)
    fuzz_mutate_some(fuzz, 6)
    if fuzz.length < 8:
        return 0
    if not fuzz_one_in(fuzz, 8):
        put_i32(fuzz.data, <int32_t>(fuzz.length - 4))
    length = get_i32(fuzz.data + 4) & 0xFFFFFF
    if length > fuzz.length - 8 and not fuzz_one_in(fuzz, 4):
        put_i32(fuzz.data + 4, (get_i32(fuzz.data + 4) & <int32_t>0x01000000)
                | <int32_t>(fuzz.length - 8))
    return 0


cdef bint fuzz_text_inside(const WireText *text, const char *data, int64_t length) noexcept nogil:
    return text.length < 0 or (
        data <= text.data and text.data - data <= length - text.length)


cdef int64_t fuzz_send(Fuzz *fuzz, const Frame *frame) noexcept nogil:
    """Read as a send does: its fields, its properties, the messages of a batch."""
    cdef SendRequest request
    cdef BatchItem item
    cdef Text plain
    cdef Text stored
    cdef int64_t at = 0
    cdef int64_t before = 0
    cdef int64_t rc = FUZZ_TAKEN
    if send_parse(&frame.header, &request):
        text_init(&plain, NULL, 0)
        text_init(&stored, NULL, 0)
        wire_text_add(&plain, &request.fields[SEND_PROPERTIES])
        if plain.length and utf8_error(plain.data, plain.length) >= 0:
            rc = fuzz_broke(fuzz, b"a text that is no UTF-8")
        batch_properties(plain.data, plain.length, &request)
        if send_properties(plain.data, plain.length, b"c", 1, &stored, &request) > 0 \
                and stored.length > plain.length + 10:
            rc = fuzz_broke(fuzz, b"properties from nowhere")
        text_free(&plain)
        text_free(&stored)
    while at < frame.body_length and batch_next(frame.body, frame.body_length, &at, &item):
        if at <= before or at > frame.body_length or item.body < frame.body + before:
            return fuzz_broke(fuzz, b"a message of a batch outside of it")
        before = at
    return rc


cdef int64_t fuzz_frame(Fuzz *fuzz) noexcept nogil:
    """Find a frame in bytes that end where the input ends."""
    cdef const char *data = fuzz_place(fuzz, fuzz.data, fuzz.length)
    cdef Frame frame
    cdef Text plain
    cdef const WireField *field
    cdef int64_t i
    cdef int64_t rc
    memset(&frame, 0, sizeof(Frame))
    rc = frame_next(data, fuzz.length, &frame)
    if rc < 0:
        if frame.problem == NULL:
            rc = fuzz_broke(fuzz, b"refused without a reason")
        else:
            rc = FUZZ_REFUSED
    elif rc == 0:
        if frame.size and frame.size <= fuzz.length and fuzz.length >= 8:
            rc = fuzz_broke(fuzz, b"complete, and not taken")
    else:
        rc = FUZZ_TAKEN
        text_init(&plain, NULL, 0)
        if frame.size > fuzz.length or frame.body - data + frame.body_length != frame.size:
            rc = fuzz_broke(fuzz, b"a body outside of its frame")
        for i in range(frame.header.field_count):
            field = &frame.header.fields[i]
            if not fuzz_text_inside(&field.name, data, fuzz.length) \
                    or not fuzz_text_inside(&field.value, data, fuzz.length):
                rc = fuzz_broke(fuzz, b"a field outside of its frame")
            plain.length = 0
            wire_text_add(&plain, &field.value)
            if plain.length and utf8_error(plain.data, plain.length) >= 0:
                rc = fuzz_broke(fuzz, b"a text that is no UTF-8")
        if not fuzz_text_inside(&frame.header.remark, data, fuzz.length) \
                or not fuzz_text_inside(&frame.header.language, data, fuzz.length):
            rc = fuzz_broke(fuzz, b"a text outside of its frame")
        text_free(&plain)
        if rc == FUZZ_TAKEN:
            rc = fuzz_send(fuzz, &frame)
    free(frame.header.fields)
    return rc
