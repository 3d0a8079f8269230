# Deflation of bodies from compress_above on, before they are laid out, without a lock and without
# the GIL except for the call.
#
# Source: client/impl/producer/DefaultMQProducerImpl.java tryToCompressMessage

cdef object deflated(object config, object body, int64_t length, str where):
    """A body in stored form."""
    if length > config.max_body_size:
        raise illegal(f"{where} has {length} bytes, which could not be inflated again: "
                      f"max_body_size is {config.max_body_size}")
    return bodies.deflate(body)


cdef int deflate_rows(Store *store, object config, RowInput input, ColumnInput body) except -1:
    """Deflate the bodies of put_many that are long enough."""
    cdef int64_t above = max(1, store.settings.compress_above)
    cdef const Span *given = <const Span *>body.view.rows
    cdef Span *spans = NULL
    cdef char *flags = NULL
    cdef int64_t row
    cdef object packed
    if body.view.kind == COLUMN_SCALAR and body.view.scalar.length >= above:
        packed = deflated(config, PyBytes_FromStringAndSize(
            body.view.scalar.data, body.view.scalar.length), body.view.scalar.length,
            body.where(-1))
        body.owners.append(packed)
        body.set_scalar(PyBytes_AS_STRING(packed), PyBytes_GET_SIZE(packed))
        input.rows.same.sys_flag = SYS_COMPRESSED
    if body.view.kind != COLUMN_SPANS:
        return 0
    for row in range(body.rows):
        if given[row].length < above:
            continue
        if spans == NULL:
            body.take_memory(body.rows, 1, &flags)
            memset(flags, 0, <size_t>body.rows)
            body.take_spans(body.rows, &spans)
            memcpy(spans, given, <size_t>body.rows * sizeof(Span))
            input.rows.compressed = flags
        packed = deflated(config, PyBytes_FromStringAndSize(given[row].data, given[row].length),
                          given[row].length, body.where(row))
        body.owners.append(packed)
        spans[row].data = PyBytes_AS_STRING(packed)
        spans[row].length = PyBytes_GET_SIZE(packed)
        flags[row] = True
    return 0
