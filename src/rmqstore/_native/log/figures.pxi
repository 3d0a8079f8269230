# Counters of an open store's puts and gets, and their rates.
#
# Source: store/StoreStatsService.java

cdef enum:
    PUT_TIMES = 13               # classes of put durations
    RATE_SAMPLES = 601           # a second apart: rates over 10, 60 and 600 seconds
    SAMPLE_NS = 1000000000

# Upper bounds of the classes but the last, in ms, exclusive; the first is "less than 1".
cdef int64_t[PUT_TIMES - 1] PUT_TIME_ENDS
PUT_TIME_ENDS[:] = [1, 10, 50, 100, 200, 500, 1000, 2000, 3000, 4000, 5000, 10000]


# Counters at one moment.
cdef struct RateSample:
    int64_t at_ns                # monotonic; 0: not taken yet
    int64_t put
    int64_t found
    int64_t missed
    int64_t transferred


cdef struct Figures:
    int64_t opened_at            # ms since the epoch
    atomic_i64 put_records       # written under the put lock
    atomic_i64 put_bytes         # the same
    atomic_i64 put_failed        # calls that stored nothing
    atomic_i64[PUT_TIMES] put_times   # calls, by duration
    atomic_i64 put_most_ns
    atomic_i64 get_found         # get calls with messages
    atomic_i64 get_missed
    atomic_i64 get_transferred   # messages
    atomic_i64 get_most_ns
    atomic_i64 behind_most       # largest backlog of dispatch, bytes
    atomic_i64 sampled           # samples taken; the newest is at (sampled - 1) % RATE_SAMPLES
    RateSample[RATE_SAMPLES] samples  # written by one thread, read beside it


cdef inline void count_put(Figures *figures, int64_t records, int64_t size) noexcept nogil:
    """Count records in the log.  Under the put lock: the only writer."""
    atomic_set(&figures.put_records, atomic_peek(&figures.put_records) + records)
    atomic_set(&figures.put_bytes, atomic_peek(&figures.put_bytes) + size)


cdef inline void note_most(atomic_i64 *most, int64_t value) noexcept nogil:
    """Raise a maximum; of two concurrent raises, the lower may win."""
    if unlikely(value > atomic_peek(most)):
        atomic_set(most, value)


cdef inline void count_put_time(Figures *figures, int64_t ns) noexcept nogil:
    """Count a call by its duration, to the tick of the coarse clock: a few milliseconds."""
    cdef int64_t at = 0
    if unlikely(ns >= 1000000):
        note_most(&figures.put_most_ns, ns)
        while at < PUT_TIMES - 1 and ns >= PUT_TIME_ENDS[at] * 1000000:
            at += 1
    atomic_add(&figures.put_times[at], 1)


cdef inline void count_get(Figures *figures, int64_t messages, int64_t ns) noexcept nogil:
    if messages:
        atomic_add(&figures.get_found, 1)
        atomic_add(&figures.get_transferred, messages)
    else:
        atomic_add(&figures.get_missed, 1)
    note_most(&figures.get_most_ns, ns)


cdef void sample_rates(Figures *figures) noexcept nogil:
    """Take a sample if the last one is a second old; called by one thread."""
    cdef int64_t count = atomic_peek(&figures.sampled)
    cdef int64_t now = monotonic_ns()
    cdef RateSample *sample
    if count and now - figures.samples[(count - 1) % RATE_SAMPLES].at_ns < SAMPLE_NS:
        return
    sample = &figures.samples[count % RATE_SAMPLES]
    sample.at_ns = now
    sample.put = atomic_get(&figures.put_records)
    sample.found = atomic_get(&figures.get_found)
    sample.missed = atomic_get(&figures.get_missed)
    sample.transferred = atomic_get(&figures.get_transferred)
    atomic_set(&figures.sampled, count + 1)


cdef bint rate_samples(
    const Figures *figures, int64_t seconds, RateSample *first, RateSample *last,
) noexcept nogil:
    """Newest sample, and the sample ``seconds`` before it; False if there are too few."""
    cdef int64_t count
    for _ in range(8):                       # again if the oldest was overwritten meanwhile
        count = atomic_get(&figures.sampled)
        if count <= seconds or seconds >= RATE_SAMPLES:
            return False
        last[0] = figures.samples[(count - 1) % RATE_SAMPLES]
        first[0] = figures.samples[(count - 1 - seconds) % RATE_SAMPLES]
        if atomic_get(&figures.sampled) < count + RATE_SAMPLES - 1 - seconds:
            return last.at_ns > first.at_ns
    return False
