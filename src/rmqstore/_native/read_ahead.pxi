# Pieces of the log read ahead by a thread of their own, for a walk that copies what it reads.
#
# The thread lives only while its caller is inside a call that has entered the store: it is
# started when the call begins and has ended when the call returns, so it needs no life cycle.
# What it has read by then is kept for the next call.
#
# Source: ours

cdef enum:
    AHEAD_PIECES = 4
    AHEAD_BYTES = 256 << 10      # small enough to stay in the cache until it is used
    AHEAD_TAIL = 64 << 10        # room in front, for what is left of the piece before
    AHEAD_WAIT_NS = 1000000000

cdef struct Piece:
    char *buffer                 # AHEAD_TAIL bytes, then the piece
    int64_t start                # log offset
    int64_t length               # 0 or less: it could not be read


cdef struct ReadAhead:
    pthread_mutex_t mutex
    pthread_cond_t changed
    pthread_t thread
    int64_t fork_generation
    bint running
    bint stopping
    FileSet *log
    int64_t next                 # log offset of the next piece
    int64_t stop
    int64_t filled               # pieces read since the beginning
    int64_t used                 # pieces taken and let go of
    bint lent                    # the piece numbered ``used`` is the caller's now
    Piece pieces[AHEAD_PIECES]


cdef ReadAhead *read_ahead_new(FileSet *log) noexcept nogil:
    """NULL without memory."""
    cdef ReadAhead *ahead = <ReadAhead *>calloc(1, sizeof(ReadAhead))
    cdef int64_t i
    if ahead == NULL:
        return NULL
    pthread_mutex_init(&ahead.mutex, NULL)
    cond_init_monotonic(&ahead.changed)
    ahead.log = log
    ahead.fork_generation = fork_generation
    for i in range(AHEAD_PIECES):
        ahead.pieces[i].buffer = <char *>malloc(AHEAD_TAIL + AHEAD_BYTES)
        if ahead.pieces[i].buffer == NULL:
            read_ahead_free(ahead)
            return NULL
    return ahead


cdef void read_ahead_free(ReadAhead *ahead) noexcept nogil:
    """REQUIRES: it is not running. A child of a fork leaves alone what a thread may be in."""
    cdef int64_t i
    if ahead == NULL or ahead.fork_generation != fork_generation:
        return
    for i in range(AHEAD_PIECES):
        free(ahead.pieces[i].buffer)
    pthread_mutex_destroy(&ahead.mutex)
    pthread_cond_destroy(&ahead.changed)
    free(ahead)


cdef void *read_ahead_run(void *argument) noexcept nogil:
    """The thread: one piece after the other, while there is room for them."""
    cdef ReadAhead *ahead = <ReadAhead *>argument
    cdef MappedFile *file = NULL
    cdef Piece *piece
    cdef int64_t at, length, filled, rc
    pthread_mutex_lock(&ahead.mutex)
    while not ahead.stopping:
        if ahead.filled - ahead.used == AHEAD_PIECES or ahead.next >= ahead.stop:
            cond_wait_ns(&ahead.changed, &ahead.mutex, AHEAD_WAIT_NS)
            continue
        at = ahead.next
        filled = ahead.filled
        piece = &ahead.pieces[filled % AHEAD_PIECES]
        length = min(<int64_t>AHEAD_BYTES, ahead.log.file_size - at % ahead.log.file_size)
        pthread_mutex_unlock(&ahead.mutex)
        rc = file_set_hold(ahead.log, at, &file)
        if rc == 0:
            rc = sys_read(file.fd, piece.buffer + AHEAD_TAIL, length, at - file.start)
            mapped_file_release(file)
        pthread_mutex_lock(&ahead.mutex)
        if ahead.filled != filled or ahead.next != at:
            continue                         # sent elsewhere meanwhile
        piece.start = at
        piece.length = rc
        ahead.filled += 1
        ahead.next = at + rc if rc == length else ahead.stop
        pthread_cond_broadcast(&ahead.changed)
    pthread_mutex_unlock(&ahead.mutex)
    return NULL


cdef void read_ahead_start(ReadAhead *ahead) noexcept nogil:
    """Start the thread; without one everything is read when it is needed."""
    if ahead == NULL or ahead.running:
        return
    ahead.stopping = False
    ahead.running = thread_start(&ahead.thread, "rmq-ahead", read_ahead_run, ahead) == 0


cdef void read_ahead_end(ReadAhead *ahead) noexcept nogil:
    """End the thread and wait for it: for no longer than a piece takes."""
    if ahead == NULL or not ahead.running:
        return
    pthread_mutex_lock(&ahead.mutex)
    ahead.stopping = True
    pthread_cond_broadcast(&ahead.changed)
    pthread_mutex_unlock(&ahead.mutex)
    pthread_join(ahead.thread, NULL)
    ahead.running = False


cdef Piece *read_ahead_take(ReadAhead *ahead, int64_t start, int64_t stop) noexcept nogil:
    """The piece that begins at ``start``, waited for; read_ahead_taken makes it the caller's.

    NULL where the thread is elsewhere or could not read it: it is sent behind the piece at
    ``start``, which the caller reads for himself.
    """
    cdef Piece *piece = NULL
    cdef int64_t file_size = ahead.log.file_size
    pthread_mutex_lock(&ahead.mutex)
    while ahead.running and ahead.filled == ahead.used + ahead.lent \
            and ahead.next == start and start < ahead.stop:
        cond_wait_ns(&ahead.changed, &ahead.mutex, AHEAD_WAIT_NS)
    if ahead.filled > ahead.used + ahead.lent:
        piece = &ahead.pieces[(ahead.used + ahead.lent) % AHEAD_PIECES]
        if piece.start != start or piece.length <= 0:
            piece = NULL
    if piece == NULL:
        # What is being read right now is passed over: numbers go on by a whole round.
        ahead.filled += AHEAD_PIECES
        ahead.used = ahead.filled
        ahead.lent = False
        ahead.next = start + min(<int64_t>AHEAD_BYTES, file_size - start % file_size)
        ahead.stop = stop
        pthread_cond_broadcast(&ahead.changed)
    pthread_mutex_unlock(&ahead.mutex)
    return piece


cdef void read_ahead_taken(ReadAhead *ahead) noexcept nogil:
    """The caller has copied what he needs of the piece before, which is let go of."""
    pthread_mutex_lock(&ahead.mutex)
    ahead.used += ahead.lent
    ahead.lent = True
    pthread_cond_broadcast(&ahead.changed)
    pthread_mutex_unlock(&ahead.mutex)
