# Sizes, positions and counters.
#
# Source: store/StoreStatsService.java

cdef tuple sizes_of(OpenStore engine):
    cdef Store *store = engine.entered()
    sizes = (store.log.file_size, store.table.file_size, store.indexes.slot_num,
             store.indexes.entry_num)
    store_leave(store)
    return sizes


cdef dict stats_of(OpenStore engine):
    cdef Store *store = engine.entered()
    wrote = atomic_get(&store.log.wrote)
    dispatched = atomic_get(&store.dispatch.dispatched)
    found = dict(
        wrote_position=wrote, flushed_position=atomic_get(&store.log.flushed),
        dispatched_position=dispatched, dispatch_behind_bytes=max(0, wrote - dispatched),
        commit_log_syncs=atomic_get(&store.flush.syncs_log),
        consume_queue_syncs=atomic_get(&store.flush.syncs_queue),
        topics=atomic_get(&store.table.topics), queues=atomic_get(&store.table.queues),
        index_files=index_set_count(&store.indexes),
        skipped_records=atomic_get(&store.dispatch.skipped),
        scanned_records=atomic_get(&store.view.scanned_records),
        scanned_bytes=atomic_get(&store.view.scanned_bytes))
    store_leave(store)
    return found
