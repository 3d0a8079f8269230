# Fuzzer, as called by the fault campaigns.

ctypedef int64_t (*FuzzStep)(Fuzz *fuzz) noexcept nogil

cdef struct FuzzTarget:
    const char *name
    FuzzStep make                # mutates the seed
    FuzzStep run                 # FUZZ_TAKEN, FUZZ_REFUSED or FUZZ_BROKEN; NULL: needs the GIL

cdef FuzzTarget[10] fuzz_table
fuzz_table[0] = FuzzTarget(b"record", fuzz_record_make, fuzz_record)
fuzz_table[1] = FuzzTarget(b"find", fuzz_record_make, fuzz_find)
fuzz_table[2] = FuzzTarget(b"index", fuzz_index_make, fuzz_index)
fuzz_table[3] = FuzzTarget(b"queue", fuzz_queue_make, fuzz_queue)
fuzz_table[4] = FuzzTarget(b"checkpoint", fuzz_checkpoint_make, fuzz_checkpoint)
fuzz_table[5] = FuzzTarget(b"text", fuzz_text_make, fuzz_text)
fuzz_table[6] = FuzzTarget(b"name", fuzz_text_make, fuzz_name)
fuzz_table[7] = FuzzTarget(b"arrow", fuzz_text_make, NULL)
fuzz_table[8] = FuzzTarget(b"filter", fuzz_text_make, fuzz_filter)
fuzz_table[9] = FuzzTarget(b"frame", fuzz_frame_make, fuzz_frame)


cdef FuzzTarget *fuzz_target(str name) except NULL:
    cdef int64_t i
    cdef bytes wanted = name.encode()
    for i in range(10):
        if strcmp(fuzz_table[i].name, wanted) == 0:
            return &fuzz_table[i]
    raise arguments.wrong_value("target", "a target of the fuzzer", name)


cdef int fuzz_start(Fuzz *fuzz, list seeds) except -1:
    """Allocate memory and set the seeds, which the caller keeps alive."""
    cdef int64_t i
    if fuzz_init(fuzz) < 0:
        raise MemoryError()
    fuzz.seeds = <const char **>calloc(len(seeds), sizeof(char *))
    fuzz.seed_lengths = <int64_t *>calloc(len(seeds), sizeof(int64_t))
    if fuzz.seeds == NULL or fuzz.seed_lengths == NULL:
        raise MemoryError()
    for i in range(len(seeds)):
        if not PyBytes_Check(seeds[i]) or len(seeds[i]) > FUZZ_ROOM:
            raise ValueError(f"a seed is bytes, of which there may be {FUZZ_ROOM}")
        fuzz.seeds[i] = PyBytes_AS_STRING(seeds[i])
        fuzz.seed_lengths[i] = PyBytes_GET_SIZE(seeds[i])
    fuzz.seed_count = len(seeds)
    return 0


def _fuzz(str target, list seeds not None, uint64_t seed, int64_t first, int64_t count):
    """Run ``count`` inputs from number ``first`` on; the number accepted.

    The same target, seeds, seed and number make the same input.  AssertionError names an input
    for which the parser breaks a promise; touching a byte outside of it ends the process.
    """
    cdef FuzzTarget *table = fuzz_target(target)
    cdef Fuzz fuzz
    cdef int64_t number = first
    cdef int64_t rc = 0
    cdef int64_t taken = 0
    try:
        fuzz_start(&fuzz, seeds)
        if table.run != NULL:
            with nogil:
                for number in range(first, first + count):
                    fuzz_begin(&fuzz, seed, number)
                    table.make(&fuzz)
                    rc = table.run(&fuzz)
                    taken += rc
                    if rc < 0:
                        break
        else:
            for number in range(first, first + count):
                fuzz_begin(&fuzz, seed, number)
                table.make(&fuzz)
                rc = fuzz_arrow(&fuzz)
                taken += rc
                if rc < 0:
                    break
    finally:
        fuzz_end(&fuzz)
    if rc < 0:
        promise = fuzz.broken.decode() if fuzz.broken != NULL else "another status"
        raise AssertionError(f"{target}, seed {seed}, input {number}: {promise}")
    return taken


def _fuzz_input(str target, list seeds not None, uint64_t seed, int64_t number):
    """The input that ``_fuzz`` makes for that number."""
    cdef FuzzTarget *table = fuzz_target(target)
    cdef Fuzz fuzz
    try:
        fuzz_start(&fuzz, seeds)
        fuzz_begin(&fuzz, seed, number)
        table.make(&fuzz)
        return PyBytes_FromStringAndSize(fuzz.data, fuzz.length)
    finally:
        fuzz_end(&fuzz)
