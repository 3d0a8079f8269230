# Columns of a batch as they grow, and their Arrow arrays and types.
#
# Source: Apache Arrow, "Columnar format" and "The Arrow C data interface"

cdef enum:
    LAYOUT_INT32
    LAYOUT_INT64
    LAYOUT_TEXT                  # offsets of 32 bits and bytes: utf8 and binary
    LAYOUT_LIST                  # of texts
    LAYOUT_MAP                   # of text to text

    ARROW_BUFFERS_MAX = 3
    GROWING_FIRST = 4096

# A growing buffer; handed over to Arrow when a batch is done.
cdef struct Growing:
    char *data
    int64_t length
    int64_t room
    int64_t usual                # length in batches before


# Concatenated texts, and the end of each.
cdef struct Texts:
    Growing ends                 # int32: 0, and the end of each
    Growing bytes


cdef struct OutputColumn:
    int64_t field                # number of the column
    int64_t layout
    Growing values               # of the integers
    Texts texts                  # of texts; the strings in the lists; the names in the maps
    Texts seconds                # the values in the maps
    Growing ends                 # int32: the end of each row's list or map
    Growing validity             # a bit per row, from the first null on
    int64_t nulls


# Memory owned by an exported array.
cdef struct ArrowOwned:
    const void *buffers[ARROW_BUFFERS_MAX]
    int64_t rooms[ARROW_BUFFERS_MAX]
    ArrowArray **children
    int64_t child_count


cdef struct ArrowOwnedType:
    ArrowSchema **children
    int64_t child_count


cdef inline int64_t growing_room(Growing *growing, int64_t more) noexcept nogil:
    """Make room for ``more`` bytes."""
    cdef char *grown
    cdef int64_t room
    if likely(growing.length + more <= growing.room):
        return 0
    room = output_room(max(max(growing.room * 2, growing.length + more),
                           max(growing.usual, <int64_t>GROWING_FIRST)))
    grown = output_take(room)
    if grown == NULL:
        grown = <char *>realloc(growing.data, <size_t>room)
        if grown == NULL:
            return E_NO_MEMORY
    elif growing.data != NULL:
        memcpy(grown, growing.data, <size_t>growing.length)
        output_give(growing.data, growing.room)
    growing.data = grown
    growing.room = room
    return 0


cdef inline void growing_free(Growing *growing) noexcept nogil:
    output_give(growing.data, growing.room)
    growing.data = NULL
    growing.length = growing.room = 0


cdef inline int64_t growing_put_i32(Growing *growing, int64_t value) noexcept nogil:
    cdef int32_t narrow = <int32_t>value
    if growing_room(growing, 4) < 0:
        return E_NO_MEMORY
    memcpy(growing.data + growing.length, &narrow, 4)
    growing.length += 4
    return 0


cdef inline int64_t growing_put_i64(Growing *growing, int64_t value) noexcept nogil:
    if growing_room(growing, 8) < 0:
        return E_NO_MEMORY
    memcpy(growing.data + growing.length, &value, 8)
    growing.length += 8
    return 0


cdef inline int64_t texts_begin(Texts *texts) noexcept nogil:
    """Write the 0 before the first end."""
    return growing_put_i32(&texts.ends, 0) if texts.ends.length == 0 else 0


cdef inline int64_t texts_put(Texts *texts, const char *data, int64_t length) noexcept nogil:
    """Append a text.  REQUIRES: texts_begin was called."""
    if growing_room(&texts.bytes, length) < 0:
        return E_NO_MEMORY
    if length:                               # ``data`` may be NULL if empty
        memcpy(texts.bytes.data + texts.bytes.length, data, <size_t>length)
        texts.bytes.length += length
    return growing_put_i32(&texts.ends, texts.bytes.length)


cdef inline int64_t growing_last_i32(const Growing *growing) noexcept nogil:
    """Last number.  REQUIRES: there is one."""
    cdef int32_t value
    memcpy(&value, growing.data + growing.length - 4, 4)
    return value


cdef inline void texts_cut(Texts *texts, int64_t count) noexcept nogil:
    """Keep the first ``count`` texts."""
    texts.ends.length = (count + 1) * 4
    texts.bytes.length = growing_last_i32(&texts.ends)


cdef inline int64_t texts_count(const Texts *texts) noexcept nogil:
    return max(texts.ends.length // 4 - 1, 0)


cdef int64_t column_begin(OutputColumn *column) noexcept nogil:
    """Prepare for the first row of a batch."""
    cdef int64_t rc = 0
    if column.layout >= LAYOUT_TEXT:
        rc = texts_begin(&column.texts)
    if rc == 0 and column.layout == LAYOUT_MAP:
        rc = texts_begin(&column.seconds)
    if rc == 0 and column.layout >= LAYOUT_LIST:
        rc = growing_put_i32(&column.ends, 0)
    return rc


cdef void output_column_free(OutputColumn *column) noexcept nogil:
    growing_free(&column.values)
    growing_free(&column.texts.ends)
    growing_free(&column.texts.bytes)
    growing_free(&column.seconds.ends)
    growing_free(&column.seconds.bytes)
    growing_free(&column.ends)
    growing_free(&column.validity)
    column.nulls = 0


cdef void column_expect(OutputColumn *column, const OutputColumn *like) noexcept nogil:
    """Expect as much of the next batch as another pass does."""
    column.values.usual = like.values.usual
    column.texts.ends.usual = like.texts.ends.usual
    column.texts.bytes.usual = like.texts.bytes.usual
    column.seconds.ends.usual = like.seconds.ends.usual
    column.seconds.bytes.usual = like.seconds.bytes.usual
    column.ends.usual = like.ends.usual


cdef int64_t column_put_valid(OutputColumn *column, int64_t row, bint valid) noexcept nogil:
    """Note whether a row has a value.  The bitmap is created at the first row without one."""
    cdef int64_t whole
    cdef Growing *bits = &column.validity
    if valid and column.nulls == 0:
        return 0
    whole = (row >> 3) + 1
    if bits.length < whole:
        if growing_room(bits, whole - bits.length) < 0:
            return E_NO_MEMORY
        # Rows before the first null all have values.
        memset(bits.data + bits.length, 0xFF if column.nulls == 0 else 0,
               <size_t>(whole - bits.length))
        if column.nulls == 0:
            bits.data[row >> 3] = <char>((1 << (row & 7)) - 1)
        bits.length = whole
    if valid:
        bits.data[row >> 3] |= <char>(1 << (row & 7))
    else:
        bits.data[row >> 3] &= <char>~(1 << (row & 7))
        column.nulls += 1
    return 0


cdef void column_take_back(OutputColumn *column, int64_t row) noexcept nogil:
    """Remove the value of the last row, ``row``."""
    if column.layout == LAYOUT_INT32:
        column.values.length = row * 4
    elif column.layout == LAYOUT_INT64:
        column.values.length = row * 8
    elif column.layout == LAYOUT_TEXT:
        texts_cut(&column.texts, row)
    else:
        column.ends.length = (row + 1) * 4
        texts_cut(&column.texts, growing_last_i32(&column.ends))
        if column.layout == LAYOUT_MAP:
            texts_cut(&column.seconds, growing_last_i32(&column.ends))
    if column.nulls and not column.validity.data[row >> 3] & <char>(1 << (row & 7)):
        column.nulls -= 1                    # at 0 the bitmap is not exported, and is recreated
        if column.nulls == 0:
            column.validity.length = 0
        else:
            column.validity.data[row >> 3] |= <char>(1 << (row & 7))


cdef void release_owned_array(ArrowArray *array) noexcept nogil:
    """``ArrowArray.release`` of arrays exported here."""
    cdef ArrowOwned *owned = <ArrowOwned *>array.private_data
    cdef int64_t i
    for i in range(owned.child_count):
        if owned.children[i] != NULL:
            arrow_release_array(owned.children[i])
            free(owned.children[i])
    free(owned.children)
    for i in range(ARROW_BUFFERS_MAX):
        output_give(<char *>owned.buffers[i], owned.rooms[i])
    free(owned)
    array.release = NULL


cdef int64_t array_begin(
    ArrowArray *array, int64_t length, int64_t buffers, int64_t children,
) noexcept nogil:
    """Make an array without buffers; children are allocated and empty."""
    cdef ArrowOwned *owned = <ArrowOwned *>calloc(1, sizeof(ArrowOwned))
    cdef int64_t i
    memset(array, 0, sizeof(ArrowArray))
    if owned == NULL:
        return E_NO_MEMORY
    array.length = length
    array.n_buffers = buffers
    array.buffers = owned.buffers
    array.private_data = owned
    array.release = release_owned_array
    if children:
        owned.children = <ArrowArray **>calloc(<size_t>children, sizeof(ArrowArray *))
        if owned.children == NULL:
            return E_NO_MEMORY
        owned.child_count = children
        for i in range(children):
            owned.children[i] = <ArrowArray *>calloc(1, sizeof(ArrowArray))
            if owned.children[i] == NULL:
                return E_NO_MEMORY
        array.children = owned.children
        array.n_children = children
    return 0


cdef int64_t array_take(ArrowArray *array, int64_t index, Growing *growing) noexcept nogil:
    """Hand a buffer over to an array; never NULL, as readers may not expect that."""
    cdef ArrowOwned *owned = <ArrowOwned *>array.private_data
    if growing.data == NULL and growing_room(growing, 1) < 0:
        return E_NO_MEMORY
    owned.buffers[index] = growing.data
    owned.rooms[index] = growing.room
    growing.usual = min(max(growing.length, growing.usual - growing.usual // 8),
                        <int64_t>KEPT_LARGEST)
    growing.data = NULL
    growing.length = growing.room = 0
    return 0


cdef int64_t array_of_texts(ArrowArray *array, Texts *texts) noexcept nogil:
    cdef int64_t rc = array_begin(array, texts_count(texts), 3, 0)
    if rc == 0:
        rc = array_take(array, 1, &texts.ends)
    if rc == 0:
        rc = array_take(array, 2, &texts.bytes)
    return rc


cdef int64_t column_export(OutputColumn *column, int64_t rows, ArrowArray *array) noexcept nogil:
    """Hand the column's memory over as an array.  On failure the caller releases ``array``."""
    cdef int64_t rc
    cdef ArrowArray *entries
    if column.layout == LAYOUT_TEXT:
        rc = array_of_texts(array, &column.texts)
    elif column.layout == LAYOUT_LIST:
        rc = array_begin(array, rows, 2, 1)
        if rc == 0:
            rc = array_take(array, 1, &column.ends)
        if rc == 0:
            rc = array_of_texts(array.children[0], &column.texts)
    elif column.layout == LAYOUT_MAP:
        rc = array_begin(array, rows, 2, 1)
        if rc == 0:
            rc = array_take(array, 1, &column.ends)
        if rc == 0:
            entries = array.children[0]
            rc = array_begin(entries, texts_count(&column.texts), 1, 2)
            if rc == 0:
                rc = array_of_texts(entries.children[0], &column.texts)
            if rc == 0:
                rc = array_of_texts(entries.children[1], &column.seconds)
    else:
        rc = array_begin(array, rows, 2, 0)
        if rc == 0:
            rc = array_take(array, 1, &column.values)
    if rc == 0 and column.nulls:
        array.null_count = column.nulls
        rc = array_take(array, 0, &column.validity)
    output_column_free(column)
    return rc


cdef void release_owned_type(ArrowSchema *schema) noexcept nogil:
    """``ArrowSchema.release`` of types exported here."""
    cdef ArrowOwnedType *owned = <ArrowOwnedType *>schema.private_data
    cdef int64_t i
    for i in range(owned.child_count):
        if owned.children[i] != NULL:
            arrow_release_schema(owned.children[i])
            free(owned.children[i])
    free(owned.children)
    free(owned)
    schema.release = NULL


cdef int64_t type_begin(
    ArrowSchema *schema, const char *name, const char *format, int64_t flags, int64_t children,
) noexcept nogil:
    """Make a type; ``name`` and ``format`` are constants.  Children are allocated and empty."""
    cdef ArrowOwnedType *owned = <ArrowOwnedType *>calloc(1, sizeof(ArrowOwnedType))
    cdef int64_t i
    memset(schema, 0, sizeof(ArrowSchema))
    if owned == NULL:
        return E_NO_MEMORY
    schema.format = format
    schema.name = name
    schema.flags = flags
    schema.private_data = owned
    schema.release = release_owned_type
    if children:
        owned.children = <ArrowSchema **>calloc(<size_t>children, sizeof(ArrowSchema *))
        if owned.children == NULL:
            return E_NO_MEMORY
        owned.child_count = children
        for i in range(children):
            owned.children[i] = <ArrowSchema *>calloc(1, sizeof(ArrowSchema))
            if owned.children[i] == NULL:
                return E_NO_MEMORY
        schema.children = owned.children
        schema.n_children = children
    return 0


cdef int64_t type_of_column(
    ArrowSchema *schema, const char *name, const char *format, int64_t layout,
) noexcept nogil:
    """Type of a column.  On failure the caller releases ``schema``."""
    cdef int64_t rc
    cdef ArrowSchema *entries
    if layout == LAYOUT_LIST:
        rc = type_begin(schema, name, b"+l", ARROW_FLAG_NULLABLE, 1)
        if rc == 0:
            rc = type_begin(schema.children[0], b"item", b"u", ARROW_FLAG_NULLABLE, 0)
        return rc
    if layout == LAYOUT_MAP:
        rc = type_begin(schema, name, b"+m", ARROW_FLAG_NULLABLE, 1)
        if rc == 0:
            entries = schema.children[0]
            rc = type_begin(entries, b"entries", b"+s", 0, 2)
            if rc == 0:
                rc = type_begin(entries.children[0], b"key", b"u", 0, 0)
            if rc == 0:
                rc = type_begin(entries.children[1], b"value", b"u", ARROW_FLAG_NULLABLE, 0)
        return rc
    return type_begin(schema, name, format, ARROW_FLAG_NULLABLE, 0)
