"""Locks of the core, in the order in which a thread may take them.

A thread that holds a lock takes only locks listed below it; it may try any lock.  Debug builds
count each thread's locks and abort on a wrong order.
"""
from rmqstore._native.base.posix cimport pthread_mutex_t


cdef extern from *:
    """
    #include <pthread.h>
    #include <stdio.h>
    #include <stdlib.h>

    enum {
        LOCK_OPEN_STORES,    /* the list of open stores; held over a fork */
        LOCK_OBJECT,         /* an Index or ConsumeQueue: one caller at a time */
        LOCK_DERIVE,         /* "r": complete the queues from the log, once */
        LOCK_INDEX_CHECK,    /* "r": check index files that are new */
        LOCK_QUEUED,         /* up to where every record is known to be in a queue */
        LOCK_TIMES,          /* store times of the log's files */
        LOCK_REFRESH,        /* "r": list the files of log and queues again */
        LOCK_FLUSH_QUEUES,   /* one flush of queues, index and checkpoint */
        LOCK_FLUSH_LOG,      /* one flush of the log */
        LOCK_PUT,            /* an append: current, last_store_timestamp, each next_offset, room */
        LOCK_REPUT,          /* the turn of the thread that dispatches */
        LOCK_DISPATCH,       /* a batch of dispatch, or the deletion of a topic */
        LOCK_PREPARE,        /* next_file, and the blocks of the log's files */
        LOCK_INDEXES,        /* which index files there are */
        LOCK_TOPICS,         /* entering topics and queues */
        LOCK_KEYLESS,        /* ranges without keys */
        LOCK_FILES,          /* of one log or queue: which files there are */
        LOCK_OPEN_FILES,     /* which files of all sets are open */
        LOCK_FAILURE,        /* the note of what failed the store */
        LOCK_GATE,           /* callers that wait for a position */
        LOCK_TURNS,          /* which threads wait for a turn */
        LOCK_WAKEUPS,        /* event loops that wait for a position */
        LOCK_WORKER,         /* sleep and wake-up of a thread */
        LOCKS
    };

    typedef struct {
        pthread_mutex_t mutex;
        int rank;
    } rmq_lock;

    #ifdef RMQSTORE_DEBUG
    static __thread int locks_held[LOCKS];

    static void lock_check(const rmq_lock *lock) {
        for (int rank = lock->rank; rank < LOCKS; rank++) {
            if (locks_held[rank]) {
                fprintf(stderr, "lock order: %d taken while holding %d\\n", lock->rank, rank);
                abort();
            }
        }
    }
    #define LOCK_HELD(lock, more) (locks_held[(lock)->rank] += (more))
    #else
    #define lock_check(lock) ((void)0)
    #define LOCK_HELD(lock, more) ((void)0)
    #endif

    static inline void lock_init(rmq_lock *lock, int rank) {
        pthread_mutex_init(&lock->mutex, NULL);
        lock->rank = rank;
    }
    static inline void lock_destroy(rmq_lock *lock) { pthread_mutex_destroy(&lock->mutex); }
    static inline void lock_take(rmq_lock *lock) {
        lock_check(lock);
        pthread_mutex_lock(&lock->mutex);
        LOCK_HELD(lock, 1);
    }
    static inline int lock_try(rmq_lock *lock) {
        if (pthread_mutex_trylock(&lock->mutex) != 0) return 0;
        LOCK_HELD(lock, 1);
        return 1;
    }
    static inline void lock_give(rmq_lock *lock) {
        LOCK_HELD(lock, -1);
        pthread_mutex_unlock(&lock->mutex);
    }
    """
    int LOCK_OPEN_STORES, LOCK_OBJECT, LOCK_DERIVE, LOCK_INDEX_CHECK, LOCK_QUEUED, LOCK_TIMES
    int LOCK_REFRESH, LOCK_FLUSH_QUEUES, LOCK_FLUSH_LOG, LOCK_PUT, LOCK_REPUT, LOCK_DISPATCH
    int LOCK_PREPARE, LOCK_INDEXES, LOCK_TOPICS, LOCK_KEYLESS, LOCK_FILES, LOCK_OPEN_FILES
    int LOCK_FAILURE, LOCK_GATE, LOCK_TURNS, LOCK_WAKEUPS, LOCK_WORKER
    ctypedef struct Lock "rmq_lock":
        pthread_mutex_t mutex
    void lock_init(Lock *lock, int rank) noexcept nogil
    void lock_destroy(Lock *lock) noexcept nogil
    void lock_take(Lock *lock) noexcept nogil
    bint lock_try(Lock *lock) noexcept nogil
    void lock_give(Lock *lock) noexcept nogil
