# at: the message at an offset of the log.
#
# Source: store/DefaultMessageStore.java lookMessageByOffset

cdef object message_at(OpenStore engine, object physical_offset):
    cdef int64_t offset = int_argument("physical_offset", physical_offset, 0, INT64_MOST)
    cdef Store *store = engine.entered()
    cdef Found found
    cdef int64_t rc, field
    cdef bint lacks
    try:                                     # an error names files, which a close frees
        with nogil:
            log_refresh(store)
            rc = log_record(store, offset, 0, &found, &field)
            if rc == E_CORRUPT and not_recovered(store, offset):
                rc = E_NOT_FOUND
            if rc > 0 and (record_is_filler(&found.record)
                           or is_left_out(store, found.slice.data, &found.record)):
                slice_release(&found.slice)
                rc = E_NOT_FOUND
            lacks = (rc == E_NOT_FOUND or rc == E_REMOVED) and log_lacks(store, offset)
        if rc == E_CORRUPT:
            raise corrupt_record(engine._path, &store.log, offset, field)
        if rc == 0 or rc == E_NOT_FOUND or rc == E_REMOVED:
            raise errors.MessageNotFoundError(
                f"{engine._path}: no message at {offset}"
                + (": its log file is missing between others; put it back from a copy"
                   if lacks else ""))
        if rc < 0:
            raise unreadable_error(store, NULL, rc, engine._path)
    finally:
        store_leave(store)
    return message_of(&found, engine.max_body, engine.log_paths)


cdef bytes record_at(OpenStore engine, object physical_offset):
    """Bytes of the record at an offset of the log."""
    cdef Message message = message_at(engine, physical_offset)
    return message.slice.data[:message.record.size]
