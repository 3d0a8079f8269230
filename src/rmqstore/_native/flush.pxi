# The two flushing activities: the commit log, by itself or for callers that wait for the
# disk (group commit), and the consume queues with the checkpoint.
#
# A failed sync is final: a second one may succeed without the bytes being on the disk.
#
# Source: store/CommitLog.java FlushRealTimeService, GroupCommitService;
#         store/DefaultMessageStore.java FlushConsumeQueueService

cdef bint is_passing(int64_t status) noexcept nogil:
    """No descriptors or memory were left to open a file: no sync was asked for yet."""
    return status == -EMFILE or status == -ENFILE or status == -ENOMEM or status == E_NO_MEMORY


cdef int64_t flush_log_now(Store *store) noexcept nogil:
    """Force the log up to its wrote position; 0 or the status that broke the store."""
    cdef int64_t target, rc, now
    pthread_mutex_lock(&store.flush_mutex)
    rc = atomic_get(&store.failed)
    if rc == 0:
        target = log_newest(store, &now)
        if target > atomic_get(&store.log.flushed):
            KILL_POINT("before-log-sync")
            rc = file_set_flush(&store.log, target)
            KILL_POINT("after-log-sync")
            atomic_set(&store.unflushed, min(rc, 0))
            if rc < 0 and not is_passing(rc):
                store_broke(store, rc, "commitlog", "the commit log cannot be forced to the disk")
            elif rc >= 0:
                atomic_add(&store.syncs_log, rc)
                atomic_raise(&store.physic_timestamp, now)
                rc = 0
                # Seen by who waits: the flushed position itself is set file by file.
                atomic_set_strict(&store.log.flushed, atomic_peek(&store.log.flushed))
                gate_open(&store.durable)
                wakeups_ring(&store.wakeups, atomic_peek(&store.log.flushed))
                if store.settings.sync_flush:
                    worker_wake(&store.reput)
    pthread_mutex_unlock(&store.flush_mutex)
    return rc


cdef int64_t log_newest(Store *store, int64_t *store_timestamp) noexcept nogil:
    """The wrote position, and the store time of the record that ends there."""
    cdef int64_t wrote
    pthread_mutex_lock(&store.put_lock)
    wrote = atomic_peek(&store.log.wrote)
    store_timestamp[0] = store.last_store_timestamp
    pthread_mutex_unlock(&store.put_lock)
    return wrote


cdef void *flush_log_run(void *argument) noexcept nogil:
    cdef Store *store = <Store *>argument
    cdef int64_t calls, served, dirty, now
    served = 0
    while not atomic_get(&store.stopping):
        calls = atomic_get_strict(&store.flush_log.calls)
        dirty = atomic_get(&store.log.wrote) - atomic_get(&store.log.flushed)
        now = monotonic_ns()
        if dirty > 0 and atomic_get(&store.failed) == 0 and (
                calls != served
                or dirty >= store.settings.flush_least_pages_log * 4096
                or now - store.thorough_log_at >= store.settings.flush_thorough_log):
            store.thorough_log_at = now
            flush_log_now(store)
        served = calls
        worker_sleep(&store.flush_log, &store.stopping, 0, calls,
                     store.settings.flush_interval_log)
    store_drop(store)
    return NULL


cdef void check_names(Store *store) noexcept nogil:
    """A broker started by mistake deletes files before it asks for the lock: do not go on then.

    What is written to a file without a name is lost with the process.
    """
    cdef MappedFile *file
    cdef IndexFile *index
    pthread_mutex_lock(&store.put_lock)
    file = store.current
    if file != NULL:
        mapped_file_hold(file)
    pthread_mutex_unlock(&store.put_lock)
    if file != NULL and mapped_file_unlinked(file) != 0:
        store_broke(store, E_REMOVED, "commitlog",
                    "the log's file was removed by somebody else while the store was open")
    mapped_file_release(file)
    index = index_set_hold(&store.indexes, 0)
    if index != NULL and index_unlinked(index) != 0:
        store_broke(store, E_REMOVED, "index",
                    "the index file was removed by somebody else while the store was open")
    index_close(index)


cdef int64_t wait_durable(Store *store, int64_t stop, int64_t until_ns) noexcept nogil:
    """Wait until the log is on the disk up to ``stop``: one sync serves all who wait."""
    cdef int64_t rc
    if atomic_get(&store.log.flushed) >= stop or PLANTED("ack-before-sync"):
        return 0
    worker_call(&store.flush_log)
    rc = gate_wait(&store.durable, &store.log.flushed, stop, &store.failed, until_ns)
    return E_FAILED if rc < 0 and rc != E_TIMEOUT else rc


cdef int64_t wait_visible(Store *store, int64_t stop, int64_t until_ns) noexcept nogil:
    """Wait until everything below ``stop`` is dispatched: 0, E_TIMEOUT or what broke the store.

    Where dispatch waits for disk space, it is given the time of a few tries.
    """
    if atomic_get(&store.dispatched) >= stop:
        return 0
    if atomic_get(&store.stalled) != 0:
        until_ns = min(until_ns, monotonic_ns() + STALLED_NS)
    if store.settings.sync_flush and atomic_get(&store.log.flushed) < stop:
        worker_call(&store.flush_log)
    worker_wake(&store.reput)
    return gate_wait(&store.visible, &store.dispatched, stop, &store.failed, until_ns)


cdef bint dispatch_is_stalled(Store *store) noexcept nogil:
    """Whether there are messages in the log that wait for disk space to get into their queues."""
    return store.writable and atomic_get(&store.stalled) != 0 \
        and atomic_get(&store.dispatched) < atomic_get(&store.log.wrote)


cdef int64_t flush_queues_now(Store *store, bint thorough) noexcept nogil:
    """Force the queues, all of their bytes or those with enough dirty pages.

    Thorough also forces the index and writes the checkpoint and the watermark, which never
    say more than what is on the disk by then.
    """
    cdef int64_t rc = 0
    cdef int64_t dispatched, last_record, timestamp
    pthread_mutex_lock(&store.queue_flush_mutex)
    last_record = dispatched_position(store, &dispatched, &timestamp)
    if thorough and PLANTED("checkpoint-before-queues"):
        checkpoint_write(store, dispatched, last_record, timestamp, False)
    if thorough:
        rc = flush_log_now(store)
    if rc == 0:
        rc = atomic_get(&store.failed)
    if rc == 0:
        KILL_POINT("before-queue-sync")
        rc = flush_each_queue(store, 0 if thorough else store.settings.flush_least_pages_queue)
        if rc < 0 and not is_passing(rc):
            store_broke(store, rc, "consumequeue", "a consume queue cannot be forced to the disk")
    if rc == 0:
        KILL_POINT("before-index-sync")
        rc = flush_indexed_log(store) if thorough else 0
        if rc == 0:
            rc = index_set_flush(&store.indexes,
                                 not thorough or PLANTED("index-not-synced-at-close"),
                                 atomic_get(&store.log.flushed))
        if rc < 0 and not is_passing(rc):
            store_broke(store, rc, "index", "an index file cannot be forced to the disk")
        rc = min(rc, 0)
    if rc == 0 and thorough:
        KILL_POINT("before-checkpoint")
        rc = checkpoint_write(store, dispatched, last_record, timestamp, False)
        KILL_POINT("after-checkpoint")
        if rc < 0 and not is_passing(rc):
            store_broke(store, rc, "checkpoint", "the checkpoint cannot be written")
    pthread_mutex_unlock(&store.queue_flush_mutex)
    return rc


cdef int64_t flush_indexed_log(Store *store) noexcept nogil:
    """Force the log as far as the index has come, for that never to be ahead of it."""
    if index_set_end(&store.indexes) < atomic_get(&store.log.flushed) or PLANTED("a18"):
        return 0
    return flush_log_now(store)


cdef int64_t dispatched_position(
    Store *store, int64_t *dispatched, int64_t *timestamp,
) noexcept nogil:
    """The last record that was dispatched, the offset behind it, and its store time."""
    cdef int64_t last_record
    pthread_mutex_lock(&store.dispatch_mutex)
    last_record = store.last_record
    dispatched[0] = atomic_get(&store.dispatched)
    timestamp[0] = atomic_get(&store.logics_timestamp)
    pthread_mutex_unlock(&store.dispatch_mutex)
    return last_record


cdef int64_t flush_each_queue(Store *store, int64_t least_pages) noexcept nogil:
    cdef Queue *queue = first_queue(&store.table)
    cdef int64_t dirty, rc
    while queue != NULL:
        dirty = atomic_get(&queue.files.wrote) - atomic_get(&queue.files.flushed)
        if dirty > 0 and dirty >= least_pages * 4096:
            rc = file_set_flush(&queue.files, atomic_get(&queue.files.wrote))
            if rc >= 0:
                atomic_add(&store.syncs_queue, rc)
                rc = queue_sync_names(queue)
            if rc < 0:
                return rc
        queue = next_queue(queue)
    return 0


cdef void *flush_queue_run(void *argument) noexcept nogil:
    cdef Store *store = <Store *>argument
    cdef int64_t calls, now
    cdef int64_t last = -1
    cdef int64_t last_thorough = -1
    cdef bint thorough
    while not atomic_get(&store.stopping):
        calls = atomic_get_strict(&store.flush_queue.calls)
        now = monotonic_ns()
        guard_install()                      # in front again, whoever came since
        if atomic_get(&store.failed) == 0:
            check_names(store)
        thorough = now - store.thorough_queue_at >= store.settings.flush_thorough_queue
        thorough = thorough and last_thorough != atomic_get(&store.dispatched)
        if atomic_get(&store.failed) == 0 and (thorough or last != atomic_get(&store.dispatched)):
            last = atomic_get(&store.dispatched)
            if thorough:
                store.thorough_queue_at = now
                last_thorough = last
            flush_queues_now(store, thorough)
        worker_sleep(&store.flush_queue, &store.stopping, 0, calls,
                     store.settings.flush_interval_queue)
    store_drop(store)
    return NULL
