# Read-ahead: pieces of the log are read, and their records checked, before the caller needs them.
#
# The thread lives only during a call that has entered the store: it is started when the call
# begins and has ended when it returns, so it needs no life cycle. Pieces that were read by then
# are kept for the next call.
#
# A piece begins at a record and has only whole, checked records, so a caller that enters it at
# its beginning need not check them again.

cdef enum:
    AHEAD_PIECES = 4
    AHEAD_BYTES = 256 << 10      # small enough to stay in the cache until used
    AHEAD_WORTH = 1 << 20        # bytes from which a thread pays off
    AHEAD_RECORD_MOST = 4 << 20  # larger records are left to the caller
    AHEAD_WAIT_NS = 1000000000

cdef struct Piece:
    char *buffer
    int64_t room
    int64_t start                # log offset
    int64_t length               # of its records; 0: something the caller must handle


cdef struct ReadAhead:
    Lock lock
    pthread_cond_t changed
    pthread_t thread
    int64_t fork_generation
    bint running
    bint stopping
    FileSet *log
    int64_t next                 # log offset of the next piece
    int64_t stop
    int64_t filled               # pieces read since the beginning
    int64_t used                 # pieces released
    bint lent                    # the caller is using piece ``used``
    Piece pieces[AHEAD_PIECES]


cdef ReadAhead *read_ahead_new(FileSet *log) noexcept nogil:
    """NULL without memory."""
    cdef ReadAhead *ahead = <ReadAhead *>calloc(1, sizeof(ReadAhead))
    cdef int64_t i
    if ahead == NULL:
        return NULL
    lock_init(&ahead.lock, LOCK_READ_AHEAD)
    cond_init_monotonic(&ahead.changed)
    ahead.log = log
    ahead.fork_generation = fork_generation
    for i in range(AHEAD_PIECES):
        ahead.pieces[i].room = AHEAD_BYTES
        ahead.pieces[i].buffer = <char *>malloc(AHEAD_BYTES)
        if ahead.pieces[i].buffer == NULL:
            read_ahead_free(ahead)
            return NULL
    return ahead


cdef void read_ahead_free(ReadAhead *ahead) noexcept nogil:
    """REQUIRES: it is not running. In a forked child, do not touch what the thread may be using."""
    cdef int64_t i
    if ahead == NULL or ahead.fork_generation != fork_generation:
        return
    for i in range(AHEAD_PIECES):
        free(ahead.pieces[i].buffer)
    lock_destroy(&ahead.lock)
    pthread_cond_destroy(&ahead.changed)
    free(ahead)


cdef int64_t piece_check(
    const Piece *piece, int64_t length, int64_t file_size, int64_t stop, int64_t *following,
) noexcept nogil:
    """How many of the bytes read are whole, good records, and where the next piece begins.

    0 if the first record is not; ``following`` is then ``stop``, or, if it is only longer than
    the piece, ``-size``.
    """
    cdef Record record
    cdef int64_t field, rc, room
    cdef int64_t at = 0
    following[0] = stop
    while at < length and piece.start + at < stop:
        room = file_size - (piece.start + at) % file_size
        rc = record_parse(piece.buffer + at, length - at, room, &record, &field)
        if rc == 0:                          # a blank
            following[0] = piece.start + at + room
            return at + RECORD_BLANK_BYTES
        if rc == E_NOT_FOUND:                # extends beyond the piece, which ends here
            following[0] = piece.start + at if at else -<int64_t>record.size
            return at
        if rc < 0 or record_check(
                piece.buffer + at, &record, piece.start + at, CHECK_CRC) != FIELD_NONE:
            return at
        at += rc
        following[0] = piece.start + at
    return at


cdef void piece_read(
    Piece *piece, FileSet *log, int64_t stop, int64_t *following,
) noexcept nogil:
    """Fill a piece whose start is set."""
    cdef MappedFile *file = NULL
    cdef char *grown
    cdef int64_t rest = log.file_size - piece.start % log.file_size
    cdef int64_t rc
    piece.length = 0
    following[0] = stop
    if file_set_hold(log, piece.start, &file) < 0:
        return
    while True:
        rc = mapped_file_copy(file, piece.buffer, piece.start - file.start, min(piece.room, rest))
        if rc <= 0:
            break
        piece.length = piece_check(piece, rc, log.file_size, stop, following)
        if piece.length or following[0] >= 0:
            break
        rc = -following[0]                   # the size of the record
        following[0] = stop
        if rc <= piece.room or rc > min(rest, <int64_t>AHEAD_RECORD_MOST):
            break
        grown = <char *>malloc(<size_t>rc)
        if grown == NULL:
            break
        free(piece.buffer)
        piece.buffer = grown
        piece.room = rc
    mapped_file_release(file)


cdef void *read_ahead_run(void *argument) noexcept nogil:
    """The thread: fill one piece after the other, while there is room."""
    cdef ReadAhead *ahead = <ReadAhead *>argument
    cdef Piece *piece
    cdef int64_t at, stop, filled
    cdef int64_t following = 0
    lock_take(&ahead.lock)
    while not ahead.stopping:
        if ahead.filled - ahead.used == AHEAD_PIECES or ahead.next >= ahead.stop:
            cond_wait_ns(&ahead.changed, &ahead.lock.mutex, AHEAD_WAIT_NS)
            continue
        at = ahead.next
        stop = ahead.stop
        filled = ahead.filled
        piece = &ahead.pieces[filled % AHEAD_PIECES]
        lock_give(&ahead.lock)
        piece.start = at
        piece_read(piece, ahead.log, stop, &following)
        lock_take(&ahead.lock)
        if ahead.filled != filled or ahead.next != at:
            continue                         # redirected meanwhile
        ahead.filled += 1
        ahead.next = following
        pthread_cond_broadcast(&ahead.changed)
    lock_give(&ahead.lock)
    return NULL


cdef void read_ahead_start(ReadAhead *ahead) noexcept nogil:
    """Start the thread; if that fails, everything is read synchronously."""
    if ahead == NULL or ahead.running:
        return
    ahead.stopping = False
    ahead.running = thread_start(&ahead.thread, "rmq-ahead", read_ahead_run, ahead) == 0


cdef void read_ahead_end(ReadAhead *ahead) noexcept nogil:
    """End the thread and wait for it, at most as long as a piece takes."""
    if ahead == NULL or not ahead.running:
        return
    lock_take(&ahead.lock)
    ahead.stopping = True
    pthread_cond_broadcast(&ahead.changed)
    lock_give(&ahead.lock)
    pthread_join(ahead.thread, NULL)
    ahead.running = False


cdef Piece *read_ahead_take(ReadAhead *ahead, int64_t start, int64_t stop) noexcept nogil:
    """The piece that begins at ``start``, waiting for it; the one taken before is released.

    The thread is redirected if it is elsewhere. NULL if there is no good record, or if the thread
    does not run: the caller reads by itself.
    """
    cdef Piece *piece
    cdef Piece *found = NULL
    cdef bint sent = False
    lock_take(&ahead.lock)
    ahead.used += ahead.lent
    ahead.lent = False
    while ahead.running and start < stop:
        if ahead.filled > ahead.used:
            piece = &ahead.pieces[ahead.used % AHEAD_PIECES]
            if piece.start == start:
                found = piece if piece.length else NULL
                break
        elif ahead.next == start and ahead.stop == stop:
            cond_wait_ns(&ahead.changed, &ahead.lock.mutex, AHEAD_WAIT_NS)
            continue
        if sent:
            break
        # Skip the piece being read right now: numbers advance by a whole round.
        ahead.filled += AHEAD_PIECES
        ahead.used = ahead.filled
        ahead.next = start
        ahead.stop = stop
        sent = True
        pthread_cond_broadcast(&ahead.changed)
    ahead.lent = found != NULL
    pthread_cond_broadcast(&ahead.changed)
    lock_give(&ahead.lock)
    return found
