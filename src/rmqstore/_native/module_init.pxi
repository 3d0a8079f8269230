# What happens once, when the module is loaded.

cdef tuple STATUSES = tuple(types.GetStatus)
FAULTS = bool(FAULTS_BUILT)

pthread_mutex_init(&open_stores_mutex, NULL)
pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child)


cdef int init_unique_keys() except -1:
    """The address of this machine as the client takes it, and a number of this process's own."""
    from random import SystemRandom
    unique_keys_init(&unique_keys, 0x7F000001, <uint32_t>SystemRandom().getrandbits(32))
    return 0


register_error("rmqstore.java", _replace_as_java)
init_unique_keys()
atexit.register(_at_exit)
