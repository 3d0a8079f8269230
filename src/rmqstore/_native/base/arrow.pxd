"""Structs of the Arrow C data interface, and the operations on them that the core needs.

The holder of a struct calls its ``release`` once, which sets it to NULL.  A struct is moved by
copying its bytes and setting ``release`` of the source to NULL.

Source: Apache Arrow, "The Arrow C data interface" and "The Arrow C stream interface".
"""
from libc.stdint cimport int64_t, uint8_t
from libc.stddef cimport size_t


cdef enum:
    ARROW_FLAG_DICTIONARY_ORDERED = 1
    ARROW_FLAG_NULLABLE = 2
    ARROW_FLAG_MAP_KEYS_SORTED = 4


cdef struct ArrowSchema:
    const char *format           # type, as in the specification
    const char *name             # NULL: none
    const char *metadata         # NULL: none
    int64_t flags
    int64_t n_children
    ArrowSchema **children
    ArrowSchema *dictionary      # type of the values; `format` is then that of the indices
    void (*release)(ArrowSchema *schema) noexcept nogil
    void *private_data


cdef struct ArrowArray:
    int64_t length               # rows
    int64_t null_count           # -1: not counted
    int64_t offset               # rows of the buffers before the first of this array
    int64_t n_buffers
    int64_t n_children
    const void **buffers         # the first one is the validity bitmap, NULL: no row is null
    ArrowArray **children
    ArrowArray *dictionary
    void (*release)(ArrowArray *array) noexcept nogil
    void *private_data


cdef struct ArrowArrayStream:
    # 0 or an errno; at the end of the stream get_next returns an array whose release is NULL.
    int (*get_schema)(ArrowArrayStream *stream, ArrowSchema *out) noexcept nogil
    int (*get_next)(ArrowArrayStream *stream, ArrowArray *out) noexcept nogil
    const char *(*get_last_error)(ArrowArrayStream *stream) noexcept nogil
    void (*release)(ArrowArrayStream *stream) noexcept nogil
    void *private_data


cdef inline void arrow_release_schema(ArrowSchema *schema) noexcept nogil:
    if schema.release != NULL:
        schema.release(schema)


cdef inline void arrow_release_array(ArrowArray *array) noexcept nogil:
    if array.release != NULL:
        array.release(array)


cdef inline void arrow_release_stream(ArrowArrayStream *stream) noexcept nogil:
    if stream.release != NULL:
        stream.release(stream)


cdef inline void arrow_move_schema(ArrowSchema *source, ArrowSchema *into) noexcept nogil:
    """REQUIRES: ``into`` holds no array or schema of its own."""
    into[0] = source[0]
    source.release = NULL


cdef inline void arrow_move_array(ArrowArray *source, ArrowArray *into) noexcept nogil:
    """REQUIRES: ``into`` holds no array or schema of its own."""
    into[0] = source[0]
    source.release = NULL


cdef inline const ArrowSchema *schema_child(
    const ArrowSchema *schema, int64_t number,
) noexcept nogil:
    """Child ``index``; NULL if the producer left it out."""
    return schema.children[number] if schema.children != NULL else NULL


cdef inline const ArrowArray *array_child(
    const ArrowArray *array, int64_t number,
) noexcept nogil:
    """As ``schema_child``."""
    return array.children[number] if array.children != NULL else NULL


cdef inline bint arrow_bit(const uint8_t *bits, int64_t index) noexcept nogil:
    """Bit of a bitmap, lowest bit of a byte first."""
    return bits[index >> 3] >> (index & 7) & 1
