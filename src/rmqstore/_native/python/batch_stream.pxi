# Arrow stream of batches that a generator makes.
#
# Source: Apache Arrow, "The Arrow PyCapsule interface"

@cython.final
cdef class BatchStream:
    """Batches of a generator, which ends when the stream is released."""

    cdef ScanPass typed          # has the type, and the text of errors
    cdef object batches

    def __cinit__(self, ScanPass typed, batches):
        self.typed = typed
        self.batches = batches

    def stream(self):
        """Return the batches: a capsule as from ``__arrow_c_stream__``."""
        cdef ArrowArrayStream *stream = <ArrowArrayStream *>calloc(1, sizeof(ArrowArrayStream))
        if stream == NULL:
            raise MemoryError()
        Py_INCREF(self)
        stream.get_schema = made_get_schema
        stream.get_next = made_get_next
        stream.get_last_error = made_get_last_error
        stream.release = made_release
        stream.private_data = <void *>self
        return PyCapsule_New(stream, b"arrow_array_stream", stream_capsule_free)


cdef int made_get_schema(ArrowArrayStream *stream, ArrowSchema *into) noexcept with gil:
    cdef BatchStream made = <BatchStream>stream.private_data
    if batch_type(&made.typed.scan.batch, into) < 0:
        arrow_release_schema(into)
        return ENOMEM
    return 0


cdef int made_get_next(ArrowArrayStream *stream, ArrowArray *into) noexcept with gil:
    cdef BatchStream made = <BatchStream>stream.private_data
    cdef ColumnBatch batch
    memset(into, 0, sizeof(ArrowArray))
    try:
        batch = next(made.batches, None)
        if batch is not None:
            arrow_move_array(&batch.array, into)
        return 0
    except BaseException as error:
        made.typed.last_error = f"{type(error).__name__}: {error}".encode()
        if isinstance(error, MemoryError):
            return ENOMEM
        return getattr(error, "errno", None) or EIO


cdef const char *made_get_last_error(ArrowArrayStream *stream) noexcept with gil:
    return pass_last_error(<PyObject *>(<BatchStream>stream.private_data).typed)


cdef void made_release(ArrowArrayStream *stream) noexcept nogil:
    # The generator's end closes it, whatever exception is on its way.
    inflated_free(<PyObject *>stream.private_data)
    stream.release = NULL
