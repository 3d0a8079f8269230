# Further queues of a put message: names from Python, and refusals.
#
# Source: store/MultiDispatch.java; common/MixAll.java isLmq

cdef str LIGHT_RULE = (
    "1 to 122 of [%|a-zA-Z0-9_-], or as many after '%LMQ%'")


cdef bytes light_names(object lite_topics):
    """Names of light queues with commas, each once; empty without any."""
    cdef Span name
    cdef bytes full
    cdef dict names = {}
    if isinstance(lite_topics, (str, bytes)):
        raise arguments.wrong_type("lite_topics", "an iterable of str", lite_topics)
    try:
        items = iter(lite_topics)
    except TypeError:
        raise arguments.wrong_type("lite_topics", "an iterable of str", lite_topics) from None
    for item in items:
        name.data = utf8_of("lite_topics", item, &name.length)
        full = name.data[:name.length]
        if not name_is_light(name.data, name.length):
            full = b"%LMQ%" + full
        if len(full) == LIGHT_PREFIX_BYTES or not topic_name_writable(full, len(full)):
            raise illegal(f"lite_topics must be {LIGHT_RULE}, got {arguments.shown(item)}")
        names[full] = None
    return b",".join(names)


cdef int check_multi(OpenStore engine, int64_t status) except -1:
    """Raise unless the further queues of a message exist."""
    if status < 0:
        raise write_error(engine.store, engine._path, status)
    return 0
