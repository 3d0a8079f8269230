# Columns exported by the Arrow C data interface.
#
# Source: Apache Arrow, "The Arrow PyCapsule interface"

cdef void schema_capsule_free(object capsule) noexcept:
    cdef ArrowSchema *schema = <ArrowSchema *>PyCapsule_GetPointer(capsule, b"arrow_schema")
    arrow_release_schema(schema)
    free(schema)


cdef void array_capsule_free(object capsule) noexcept:
    cdef ArrowArray *array = <ArrowArray *>PyCapsule_GetPointer(capsule, b"arrow_array")
    arrow_release_array(array)
    free(array)


cdef void stream_capsule_free(object capsule) noexcept:
    cdef ArrowArrayStream *stream = <ArrowArrayStream *>PyCapsule_GetPointer(
        capsule, b"arrow_array_stream")
    arrow_release_stream(stream)
    free(stream)


@cython.final
cdef class ColumnBatch:
    """Rows of a scan, handed over once by the Arrow C data interface."""

    cdef ArrowArray array
    cdef ArrowSchema schema
    cdef int64_t rows
    cdef int64_t bytes           # upper bound for the columns

    def __init__(self):
        raise TypeError("made by a scan")

    def __dealloc__(self):
        arrow_release_array(&self.array)
        arrow_release_schema(&self.schema)

    def __len__(self):
        return self.rows

    @property
    def nbytes(self):
        """Upper bound for the bytes of the columns."""
        return self.bytes

    @cython.critical_section
    def __arrow_c_array__(self, requested_schema=None):
        """Hand the columns over, once, as capsules of type and array."""
        cdef ArrowArray *array
        cdef ArrowSchema *schema
        if self.array.release == NULL:
            raise ValueError("the columns of this batch were handed over before")
        array = <ArrowArray *>calloc(1, sizeof(ArrowArray))
        schema = <ArrowSchema *>calloc(1, sizeof(ArrowSchema))
        if array == NULL or schema == NULL:
            free(array)
            free(schema)
            raise MemoryError()
        arrow_move_array(&self.array, array)
        arrow_move_schema(&self.schema, schema)
        return (PyCapsule_New(schema, b"arrow_schema", schema_capsule_free),
                PyCapsule_New(array, b"arrow_array", array_capsule_free))
