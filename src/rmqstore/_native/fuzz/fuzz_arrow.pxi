# Arrow arrays for the fuzzer: every layout that an argument may have, with invalid lengths,
# offsets, views, indices and counts.
#
# The interface does not carry the size of most buffers.  So their lengths follow from plausible
# lengths, and errors that only the size would reveal are not generated.

cdef enum:
    FUZZ_ARRAYS = 4              # lists, their items, and the values of a dictionary
    FUZZ_BLOCKS = 2              # data buffers of views
    FUZZ_ROWS = 6

cdef struct FuzzArrow:
    ArrowSchema[FUZZ_ARRAYS] schemas
    ArrowArray[FUZZ_ARRAYS] arrays
    ArrowSchema *schema_children[FUZZ_ARRAYS]
    ArrowArray *array_children[FUZZ_ARRAYS]
    const void *buffers[FUZZ_ARRAYS][8]
    char formats[FUZZ_ARRAYS][32]
    int64_t count

cdef const char *FUZZ_FORMATS[32]
FUZZ_FORMATS[:] = [
    b"u", b"U", b"z", b"Z", b"vu", b"vz", b"+l", b"+L", b"u", b"z", b"w:3", b"w:0",
    b"c", b"C", b"s", b"S", b"i", b"I", b"l", b"L", b"n", b"vu", b"+l", b"U",
    b"g", b"+s", b"w:-1", b"w:", b"v", b"", b"w:99999999999999999999", b"uu",
]


cdef void fuzz_keep_schema(ArrowSchema *schema) noexcept nogil:
    schema.release = NULL


cdef void fuzz_keep_array(ArrowArray *array) noexcept nogil:
    array.release = NULL


cdef const char *fuzz_noise(Fuzz *fuzz, int64_t length) noexcept nogil:
    """Bytes of the seed, some changed."""
    cdef char *at = fuzz_take(fuzz, length)
    cdef int64_t i
    cdef int64_t start = fuzz_below(fuzz, fuzz.length)
    if at != NULL:
        for i in range(length):
            at[i] = fuzz.data[(start + i) % fuzz.length] if fuzz.length else 97
        if length and fuzz_one_in(fuzz, 4):
            at[fuzz_below(fuzz, length)] = <char>fuzz_below(fuzz, 256)
    return at


cdef int64_t fuzz_offsets_end(const char *at, int64_t rows, bint wide) noexcept nogil:
    """The last of ``rows`` + 1 offsets; -1 if one is negative or less than the one before."""
    cdef IntLayout layout
    cdef int64_t row, value
    cdef int64_t end = 0
    offset_layout(&layout, wide)
    for row in range(rows + 1):
        value = native_int(at + row * layout.width, &layout)
        if value < end:
            return -1
        end = value
    return end


cdef int64_t fuzz_arrow_offsets(
    Fuzz *fuzz, ArrowArray *array, int64_t rows, bint wide,
) noexcept nogil:
    """Offsets from one row to the next; the last one, -1 if they are invalid."""
    cdef int64_t width = 8 if wide else 4
    cdef char *at = fuzz_take(fuzz, width * (rows + 1))
    cdef int64_t i, end
    cdef int64_t value = fuzz_below(fuzz, 4)
    cdef int64_t bad = fuzz_below(fuzz, rows + 1) if fuzz_one_in(fuzz, 3) else -1
    cdef int32_t narrow
    for i in range(rows + 1):
        end = fuzz_value(fuzz) if i == bad else value
        narrow = <int32_t>end
        memcpy(at + width * i, <const void *>&end if wide else <const void *>&narrow,
               <size_t>width)
        value += fuzz_below(fuzz, 12)
    array.buffers[1] = at
    return fuzz_offsets_end(at + width * array.offset, array.length, wide)


cdef void fuzz_arrow_views(Fuzz *fuzz, ArrowArray *array, int64_t rows) noexcept nogil:
    """Views with inline bytes or into one of the blocks; any number may be wrong."""
    cdef char *at = fuzz_take(fuzz, VIEW_BYTES * rows)
    cdef char *sizes
    cdef int64_t row, size
    cdef int64_t blocks = fuzz_below(fuzz, FUZZ_BLOCKS + 1)
    cdef int32_t[4] view
    cdef int64_t[FUZZ_BLOCKS] lengths
    for row in range(blocks):
        lengths[row] = fuzz_below(fuzz, 64)
        array.buffers[2 + row] = fuzz_noise(fuzz, lengths[row])
    for row in range(rows):
        memset(view, 0, sizeof(view))
        view[0] = <int32_t>fuzz_below(fuzz, 24)
        if view[0] > VIEW_INLINE:
            view[2] = <int32_t>fuzz_below(fuzz, blocks)
            size = lengths[view[2]] if blocks else 0
            view[3] = <int32_t>fuzz_below(fuzz, size - view[0] + 1)
        if fuzz_one_in(fuzz, 6):
            view[fuzz_below(fuzz, 4)] = <int32_t>fuzz_value(fuzz)
        memcpy(at + VIEW_BYTES * row, view, VIEW_BYTES)
    sizes = fuzz_take(fuzz, 8 * blocks)
    memcpy(sizes, lengths, <size_t>(8 * blocks))
    array.buffers[1] = at
    array.buffers[2 + blocks] = sizes
    array.n_buffers = 3 + blocks


cdef int64_t fuzz_arrow_add(Fuzz *fuzz, FuzzArrow *tree, int64_t depth) noexcept nogil:
    """One array and its children; its number."""
    cdef int64_t number = tree.count
    cdef ArrowSchema *schema = &tree.schemas[number]
    cdef ArrowArray *array = &tree.arrays[number]
    cdef const char *code
    cdef int64_t rows, end, child
    cdef int width
    tree.count += 1
    code = FUZZ_FORMATS[fuzz_below(fuzz, 24) if not fuzz_one_in(fuzz, 12) else
                        fuzz_below(fuzz, 32)]
    copy_text(tree.formats[number], 32, code)
    schema.format = tree.formats[number]
    schema.release = fuzz_keep_schema
    array.release = fuzz_keep_array
    array.buffers = tree.buffers[number]
    array.length = fuzz_below(fuzz, FUZZ_ROWS + 1)
    array.offset = fuzz_below(fuzz, 4) if fuzz_one_in(fuzz, 3) else 0
    rows = array.length + array.offset
    array.n_buffers = 2
    if not fuzz_one_in(fuzz, 3):
        array.buffers[0] = fuzz_noise(fuzz, (rows + 7) // 8)
        array.null_count = -1 if fuzz_one_in(fuzz, 2) else fuzz_below(fuzz, array.length + 1)
    width = integer_width(code[0]) if strlen(code) == 1 else 0
    if width:
        array.buffers[1] = fuzz_noise(fuzz, width * rows)
        if fuzz_one_in(fuzz, 3) and tree.count < FUZZ_ARRAYS:
            if fuzz_one_in(fuzz, 2) and rows:        # more likely to be valid
                memset(<void *>array.buffers[1], 0, <size_t>(width * rows))
            child = fuzz_arrow_add(fuzz, tree, depth + 1)
            schema.dictionary = &tree.schemas[child]
            array.dictionary = &tree.arrays[child] if not fuzz_one_in(fuzz, 16) else NULL
    elif code[0] == c'v':
        fuzz_arrow_views(fuzz, array, rows)
    elif code[0] == c'w':
        array.buffers[1] = fuzz_noise(fuzz, 3 * rows)
    elif code[0] == c'+':
        fuzz_arrow_offsets(fuzz, array, rows, code[1] == c'L')
        if tree.count < FUZZ_ARRAYS and depth < 2:
            child = fuzz_arrow_add(fuzz, tree, depth + 1)
            tree.schema_children[number] = &tree.schemas[child]
            tree.array_children[number] = &tree.arrays[child]
            schema.n_children = array.n_children = 1
            schema.children = &tree.schema_children[number]
            array.children = &tree.array_children[number]
            if fuzz_one_in(fuzz, 16):
                array.children = NULL
            if fuzz_one_in(fuzz, 16):
                schema.children = NULL
            if fuzz_one_in(fuzz, 16):
                tree.array_children[number] = NULL
            if fuzz_one_in(fuzz, 16):
                tree.schema_children[number] = NULL
    elif code[0] in (c'u', c'U', c'z', c'Z'):
        array.n_buffers = 3
        end = fuzz_arrow_offsets(fuzz, array, rows, code[0] in (c'U', c'Z'))
        if 0 <= end <= FUZZ_ROOM:
            array.buffers[2] = fuzz_noise(fuzz, end)
    fuzz_arrow_spoil(fuzz, schema, array)
    return number


cdef void fuzz_arrow_spoil(Fuzz *fuzz, ArrowSchema *schema, ArrowArray *array) noexcept nogil:
    """In one array of three, set one number or pointer that contradicts the others."""
    cdef int64_t kind = fuzz_below(fuzz, 30)
    if kind == 0:
        array.length = -1 - fuzz_below(fuzz, 2) * INT64_MAX
    elif kind == 1:
        array.offset = -1 - fuzz_below(fuzz, 2) * INT64_MAX
    elif kind == 2:
        array.length = INT64_MAX - fuzz_below(fuzz, 2) * array.offset
    elif kind == 3:
        array.null_count = fuzz_value(fuzz)
    elif kind == 4:                          # of views, the last one holds the sizes
        array.n_buffers = fuzz_below(fuzz, min(array.n_buffers, 3))
    elif kind == 5:
        array.buffers[fuzz_below(fuzz, array.n_buffers)] = NULL
    elif kind == 6:
        array.buffers = NULL
    elif kind == 7:
        array.release = NULL
    elif kind == 8:
        schema.format = NULL
    elif kind == 9 and array.length == 0:
        array.offset = INT64_MAX >> fuzz_below(fuzz, 8)
    elif kind == 10:
        array.n_buffers = -fuzz_below(fuzz, 3)


cdef int64_t fuzz_arrow_read(Fuzz *fuzz, ColumnInput column) noexcept nogil:
    """Read every byte of every row of an accepted column."""
    cdef const char *data = NULL
    cdef int64_t length = 0
    cdef int64_t row, i
    cdef uint64_t sum = 0
    for row in range(column.rows):
        if column.view.kind == COLUMN_INTEGERS:
            sum += <uint64_t>column_get_int(&column.view, row)
        elif column_get(&column.view, row, &data, &length):
            if length < 0:
                return fuzz_broke(fuzz, "a row of less than no bytes")
            if data == NULL:
                return fuzz_broke(fuzz, "a row of bytes that are nowhere")
            for i in range(length):
                sum += <uint64_t>data[i]
    fuzz.state ^= sum
    return FUZZ_TAKEN


cdef int64_t fuzz_arrow(Fuzz *fuzz) except -2:
    """One array, passed as an argument that accepts random kinds."""
    cdef FuzzArrow tree
    cdef ColumnInput column
    cdef int accept = <int>fuzz_below(fuzz, 16)
    memset(&tree, 0, sizeof(FuzzArrow))
    fuzz_arrow_add(fuzz, &tree, 0)
    column = ColumnInput("fuzzed", "what the fuzzer says", fuzz_one_in(fuzz, 2))
    try:
        take_values(column, &tree.schemas[0], &tree.arrays[0], accept)
    except (TypeError, ValueError):
        return FUZZ_REFUSED
    if column.rows != tree.arrays[0].length:
        return fuzz_broke(fuzz, "another number of rows than the array's")
    return fuzz_arrow_read(fuzz, column)
