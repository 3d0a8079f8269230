# The two flush activities: commit log, periodic or for waiting callers (group commit); consume
# queues and checkpoint.
#
# A failed sync is final: a retry may succeed although the bytes are not on the disk.
#
# Source: store/CommitLog.java FlushRealTimeService, GroupCommitService;
#         store/DefaultMessageStore.java FlushConsumeQueueService

cdef int64_t flush_log_now(Store *store) noexcept nogil:
    """Force the log up to its wrote position; 0 or the status that failed the store."""
    cdef int64_t target, rc, now
    lock_take(&store.flush.log_lock)
    rc = atomic_get(&store.failed)
    if rc == 0:
        target = log_newest(store, &now)
        if target > atomic_get(&store.log.flushed):
            KILL_POINT("before-log-sync")
            rc = file_set_flush(&store.log, target)
            KILL_POINT("after-log-sync")
            atomic_set(&store.flush.unflushed, min(rc, 0))
            if rc < 0 and not is_passing(rc):
                store_set_failed(
                    store, rc, set_directory(&store.log, 0),
                    "the commit log cannot be forced to the disk")
            elif rc >= 0:
                atomic_add(&store.flush.syncs_log, rc)
                atomic_raise(&store.flush.physic_timestamp, now)
                rc = 0
                # For the waiters: the set's own flushed position moves file by file.
                atomic_set_strict(&store.log.flushed, atomic_peek(&store.log.flushed))
                gate_open(&store.flush.durable)
                wakeups_ring(&store.flush.wakeups, atomic_peek(&store.log.flushed))
                if store.settings.sync_flush:
                    worker_wake(&store.dispatch.worker)
    lock_give(&store.flush.log_lock)
    return rc


cdef int64_t log_newest(Store *store, int64_t *store_timestamp) noexcept nogil:
    """Wrote position, and store time of the record that ends at it."""
    cdef int64_t wrote
    lock_take(&store.writer.put_lock)
    wrote = atomic_peek(&store.log.wrote)
    store_timestamp[0] = atomic_peek(&store.writer.last_store_timestamp)
    lock_give(&store.writer.put_lock)
    return wrote


cdef void *flush_log_run(void *argument) noexcept nogil:
    cdef Store *store = <Store *>argument
    cdef int64_t calls, served, dirty, now
    served = 0
    while True:
        worker_sleep(&store.flush.log_worker, &store.stopping, 0, served,
                     store.settings.flush_interval_log)
        if atomic_get(&store.stopping):
            break
        calls = atomic_get_strict(&store.flush.log_worker.calls)
        dirty = atomic_get(&store.log.wrote) - atomic_get(&store.log.flushed)
        now = monotonic_ns()
        if dirty > 0 and atomic_get(&store.failed) == 0 and (
                calls != served
                or dirty >= store.settings.flush_least_pages_log * 4096
                or now - store.flush.thorough_log_at >= store.settings.flush_thorough_log):
            store.flush.thorough_log_at = now
            flush_log_now(store)
        served = calls
    store_drop(store)
    return NULL


cdef int64_t wait_durable(Store *store, int64_t stop, int64_t until_ns) noexcept nogil:
    """Wait until the log is on the disk up to ``stop``: one sync serves all waiters."""
    cdef int64_t rc
    if atomic_get(&store.log.flushed) >= stop:
        return 0
    worker_call(&store.flush.log_worker)
    rc = gate_wait(&store.flush.durable, &store.log.flushed, stop, &store.failed, until_ns)
    return E_FAILED if rc < 0 and rc != E_TIMEOUT else rc


cdef enum:
    VISIBLE_SPINS = 200          # checks before a sleep, about 4 us: the dispatch of a few records


cdef int64_t wait_visible(Store *store, int64_t stop, int64_t until_ns) noexcept nogil:
    """Wait until everything below ``stop`` is dispatched: 0, E_TIMEOUT or the store's failure.

    At most STALLED_NS while dispatch waits for disk space.
    """
    cdef int64_t spins = 0
    if atomic_get(&store.dispatch.dispatched) >= stop:
        return 0
    if atomic_get(&store.dispatch.stalled) != 0:
        until_ns = min(until_ns, monotonic_ns() + STALLED_NS)
    if store.settings.sync_flush and atomic_get(&store.log.flushed) < stop:
        worker_call(&store.flush.log_worker)
    worker_wake(&store.dispatch.worker)
    while spins < VISIBLE_SPINS and atomic_get(&store.dispatch.dispatched) < stop:
        cpu_pause()
        spins += 1
    return gate_wait(&store.dispatch.visible, &store.dispatch.dispatched, stop, &store.failed,
                     until_ns)


cdef void wait_for_earlier_puts(Store *store) noexcept nogil:
    """Wait until earlier puts are visible, but not for records that cannot be dispatched."""
    cdef int64_t wrote = atomic_get_strict(&store.log.wrote)
    if atomic_get(&store.dispatch.dispatched) < wrote:
        wait_visible(store, wrote, monotonic_ns() + VISIBLE_WAIT_NS)


cdef bint dispatch_is_stalled(Store *store) noexcept nogil:
    """Whether messages in the log wait for disk space in their queues."""
    return store.writable and atomic_get(&store.dispatch.stalled) != 0 \
        and atomic_get(&store.dispatch.dispatched) < atomic_get(&store.log.wrote)


# Selection of the queues to force to the disk.
cdef enum:
    FLUSH_DUE                    # queues with enough dirty pages
    FLUSH_ALL


cdef int64_t flush_queues_now(Store *store, int which) noexcept nogil:
    """Force queues and index to the disk; FLUSH_ALL: the log before them, the checkpoint after.

    The checkpoint never claims more than is on the disk.
    """
    cdef int64_t rc = 0
    cdef int64_t dispatched, last_record, timestamp
    cdef bint thorough = which == FLUSH_ALL
    lock_take(&store.flush.queues_lock)
    last_record = dispatched_position(store, &dispatched, &timestamp)
    if thorough:
        rc = flush_log_now(store)
    if rc == 0:
        rc = atomic_get(&store.failed)
    if rc == 0:
        KILL_POINT("before-queue-sync")
        rc = flush_each_queue(store, 0 if thorough else store.settings.flush_least_pages_queue)
        if rc < 0 and not is_passing(rc):
            store_set_failed(
                store, rc, "consumequeue", "a consume queue cannot be forced to the disk")
    if rc == 0:
        KILL_POINT("before-index-sync")
        rc = flush_indexed_log(store) if thorough else 0
        if rc == 0:
            rc = index_set_flush(&store.indexes, not thorough, atomic_get(&store.log.flushed))
        if rc < 0 and not is_passing(rc):
            store_set_failed(store, rc, "index", "an index file cannot be forced to the disk")
        rc = min(rc, 0)
    if rc == 0 and thorough:
        KILL_POINT("before-checkpoint")
        rc = checkpoint_write(store, dispatched, last_record, timestamp, MARK_OPEN)
        KILL_POINT("after-checkpoint")
        if rc < 0 and not is_passing(rc):
            store_set_failed(store, rc, "checkpoint", "the checkpoint cannot be written")
    lock_give(&store.flush.queues_lock)
    return rc


cdef int64_t flush_indexed_log(Store *store) noexcept nogil:
    """Force the log up to the index's end: the index on the disk is never ahead of the log."""
    if index_set_end(&store.indexes) < atomic_get(&store.log.flushed):
        return 0
    return flush_log_now(store)


cdef int64_t dispatched_position(
    Store *store, int64_t *dispatched, int64_t *timestamp,
) noexcept nogil:
    """Last dispatched record, the offset after it, and its store time."""
    cdef int64_t last_record
    dispatch_lock_take(store)
    last_record = store.dispatch.last_record
    dispatched[0] = atomic_get(&store.dispatch.dispatched)
    timestamp[0] = atomic_get(&store.dispatch.logics_timestamp)
    lock_give(&store.dispatch.lock)
    return last_record


cdef int64_t flush_each_queue(Store *store, int64_t least_pages) noexcept nogil:
    """Force the queues, each one's units in consumequeue_ext first."""
    cdef Queue *queue = first_queue(&store.table)
    cdef int64_t dirty, rc, wrote
    while queue != NULL:
        wrote = atomic_get(&queue.files.wrote)
        dirty = wrote - atomic_get(&queue.files.flushed)
        if dirty > 0 and dirty >= least_pages * 4096:
            rc = queue_ext_flush(queue)
            if rc >= 0:
                atomic_add(&store.flush.syncs_queue, rc)
                rc = file_set_flush(&queue.files, wrote)
            if rc >= 0:
                atomic_add(&store.flush.syncs_queue, rc)
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
        calls = atomic_get_strict(&store.flush.queue_worker.calls)
        now = monotonic_ns()
        sample_rates(&store.figures)
        guard_install()                      # first again, if another was installed
        disk_check(store)
        thorough = now - store.flush.thorough_queue_at >= store.settings.flush_thorough_queue
        thorough = thorough and last_thorough != atomic_get(&store.dispatch.dispatched)
        if atomic_get(&store.failed) == 0 and (
                thorough or last != atomic_get(&store.dispatch.dispatched)):
            last = atomic_get(&store.dispatch.dispatched)
            if thorough:
                store.flush.thorough_queue_at = now
                last_thorough = last
            flush_queues_now(store, FLUSH_ALL if thorough else FLUSH_DUE)
        worker_sleep(&store.flush.queue_worker, &store.stopping, 0, calls,
                     store.settings.flush_interval_queue)
    store_drop(store)
    return NULL
