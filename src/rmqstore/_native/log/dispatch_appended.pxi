# Dispatch of columns and batches by the thread that has just appended them: nothing is parsed.
#
# Their encoding notes the tags code and the hashes of the keys.  If the log is dispatched up to
# them, and nobody else is dispatching, their units and index entries are written at once.  The
# first message that needs more (a system call, a wait, a parse) and all after it are left to
# reput_here, as this caller may hold the GIL.
#
# Source: store/DefaultMessageStore.java DispatchRequest, doDispatch

cdef enum:
    SLOTS_AHEAD = 16             # messages ahead of which an index slot is prefetched


cdef inline void encoded_note_dispatch(Encoded *message, DispatchRequest *request) noexcept nogil:
    """Note the tags code and the keys of a message with the topic and properties of ``request``."""
    cdef int64_t at = -1
    cdef int32_t count = 0
    cdef int32_t key_hash
    if unlikely(request.topic.schedule or not encoded_is_queued(message)
                or request.properties.multi_offset.value_length > 0):
        return
    message.tags_code = <int32_t>tags_code(&request.properties.tags)
    key_hash = next_key_hash(NULL, NULL, request, &at)
    while key_hash != KEYLESS:
        if count == KEYS_NOTED:
            return
        message.key_hashes[count] = key_hash
        count += 1
        key_hash = next_key_hash(NULL, NULL, request, &at)
    message.key_count = count


cdef inline bint index_takes_keys(
    IndexSet *indexes, const Encoded *message, int64_t physical_offset,
) noexcept nogil:
    """Whether a message's keys, which are not in the index yet, need no system call."""
    cdef Index *last = indexes.last
    cdef int32_t i
    if unlikely(last == NULL or atomic_get(&indexes.waiting) != 0
                or not index_has_room(last, message.key_count)
                or physical_offset < max(atomic_peek(&last.end_phy_offset), indexes.known_end)):
        return False
    for i in range(message.key_count):
        if unlikely(not index_slot_is_zeroed(last, index_slot(last, message.key_hashes[i]))):
            return False
    return True


cdef inline bint dispatch_message(
    Store *store, Queue *queue, const Encoded *message, const AppendResult *appended,
) noexcept nogil:
    """Write a message's unit and index entries; False: its record must be parsed."""
    cdef bint indexed = store.indexes.enabled
    cdef int32_t i
    if unlikely(message.key_count == KEYS_UNNOTED
                or appended.physical_offset < queue.topic.deleted_before
                or ext_is_written(queue)
                or (indexed and not index_takes_keys(
                    &store.indexes, message, appended.physical_offset))):
        return False
    if unlikely(not queue_append_unit(queue, appended.queue_offset, appended.physical_offset,
                                      message.size, message.tags_code)):
        return False
    store.recovery.units_written += 1
    for i in range(message.key_count if indexed else 0):
        if unlikely(index_put(store.indexes.last, message.key_hashes[i],
                              appended.physical_offset, appended.store_timestamp) < 0):
            return False
    return True


cdef int64_t dispatch_messages(
    Store *store, const Append *append, int64_t count,
) noexcept nogil:
    """Dispatch appended messages, in order; the number.  REQUIRES: the turn and the lock."""
    cdef const Encoded *message = append.messages
    cdef const AppendResult *appended = append.appended
    cdef const Encoded *ahead
    cdef int64_t at = atomic_peek(&store.dispatch.dispatched)
    cdef int64_t done = 0
    while done < count and appended[done].physical_offset == at:
        ahead = &message[done + SLOTS_AHEAD]
        if done + SLOTS_AHEAD < count and ahead.key_count > 0 and store.indexes.last != NULL:
            prefetch(index_slot(store.indexes.last, ahead.key_hashes[0]))
        if not dispatch_message(store, append.queues[done], &message[done], &appended[done]):
            break
        at += message[done].size
        done += 1
    if done:
        dispatch_passed(store, appended[done - 1].physical_offset, at,
                        appended[done - 1].store_timestamp)
        atomic_set_strict(&store.dispatch.dispatched, at)
    return done


cdef bint dispatch_appended(Store *store, const Append *append, int64_t count) noexcept nogil:
    """Dispatch the first ``count`` messages, appended with APPEND_QUIET, without a wait.

    False if some are left: to reput_here, which parses.  With SYNC_FLUSH dispatch follows the
    flushed position.
    """
    cdef int64_t done = 0
    if store.settings.sync_flush or store.settings.log_only:
        return True
    if likely(atomic_get(&store.dispatch.stalled) == 0 and lock_try(&store.dispatch.turn)):
        if likely(lock_try(&store.dispatch.lock)):
            done = dispatch_messages(store, append, count)
            lock_give(&store.dispatch.lock)
        lock_give(&store.dispatch.turn)
    if likely(done > 0):
        gate_open(&store.dispatch.visible)
        wakeups_ring(&store.dispatch.wakeups, append.appended[done - 1].physical_offset
                     + append.messages[done - 1].size)
    return done == count
