# Sizes, positions and counters.
#
# Source: store/StoreStatsService.java

cdef tuple sizes_of(OpenStore engine):
    cdef Store *store = engine.entered_as_listed()
    sizes = (store.log.file_size, store.table.file_size, store.indexes.slot_num,
             store.indexes.entry_num, store.table.ext.file_size)
    store_leave(store)
    return sizes


cdef dict stats_of(OpenStore engine):
    cdef Store *store = engine.entered()
    cdef Figures *figures = &store.figures
    wrote = atomic_get(&store.log.wrote)
    dispatched = atomic_get(&store.dispatch.dispatched)
    flushed = atomic_get(&store.log.flushed)
    found = dict(
        wrote_position=wrote, flushed_position=flushed,
        dispatched_position=dispatched, dispatch_behind_bytes=max(0, wrote - dispatched),
        commit_log_syncs=atomic_get(&store.flush.syncs_log),
        consume_queue_syncs=atomic_get(&store.flush.syncs_queue),
        topics=atomic_get(&store.table.topics), queues=atomic_get(&store.table.queues),
        index_files=index_set_count(&store.indexes),
        held_deleted_bytes=atomic_get(&store.deleted.bytes),
        skipped_records=atomic_get(&store.dispatch.skipped),
        scanned_records=atomic_get(&store.view.scanned_records),
        scanned_bytes=atomic_get(&store.view.scanned_bytes))
    if store.writable:
        newest = atomic_get(&store.writer.last_store_timestamp)
        found.update(
            flush_behind_bytes=max(0, wrote - flushed),
            dispatch_behind_ms=0 if dispatched >= wrote else max(
                0, newest - atomic_get(&store.dispatch.logics_timestamp)),
            put_calls=sum([atomic_get(&figures.put_times[at]) for at in range(PUT_TIMES)]))
    store_leave(store)
    return found


cdef dict figures_of(OpenStore engine):
    """Counters of puts and gets, and rates a second over three spans, oldest sample last."""
    cdef Store *store = engine.entered()
    cdef Figures *figures = &store.figures
    cdef RateSample first
    cdef RateSample last
    cdef double seconds
    rates = []
    for span in (10, 60, 600):
        if rate_samples(figures, span, &first, &last):
            seconds = (last.at_ns - first.at_ns) / 1e9
            rates.append(((last.put - first.put) / seconds, (last.found - first.found) / seconds,
                          (last.missed - first.missed) / seconds,
                          (last.transferred - first.transferred) / seconds))
    found = dict(
        opened_at=figures.opened_at, put_records=atomic_get(&figures.put_records),
        put_bytes=atomic_get(&figures.put_bytes), put_failed=atomic_get(&figures.put_failed),
        put_times=[atomic_get(&figures.put_times[at]) for at in range(PUT_TIMES)],
        put_most_ns=atomic_get(&figures.put_most_ns),
        get_found=atomic_get(&figures.get_found), get_missed=atomic_get(&figures.get_missed),
        get_transferred=atomic_get(&figures.get_transferred),
        get_most_ns=atomic_get(&figures.get_most_ns),
        behind_most=atomic_get(&figures.behind_most), rates=rates,
        log_first=log_first(store))
    store_leave(store)
    return found
