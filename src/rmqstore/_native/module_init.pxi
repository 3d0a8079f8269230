# What happens once, when the module is loaded.

cdef tuple STATUSES = tuple(types.GetStatus)
FAULTS = bool(FAULTS_BUILT)
PLANTS = bool(PLANTS_BUILT)


def planted(str name):
    """Whether a known defect is put back, in a build that can; see ``faults.pxd``."""
    return bool(PLANTED(name.encode()))


def fault_counts():
    """Calls of the kind that RMQ_FAIL_AT names so far, and how many of them were made to fail."""
    return FAULTS_PASSED(), FAULTS_FAILED()


pthread_mutex_init(&open_stores_mutex, NULL)
pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child)


cdef int init_random() except -1:
    """Numbers of this process's own: in unique keys, and of what hashes start with."""
    from random import SystemRandom
    global place_seed
    unique_keys_init(&unique_keys, 0x7F000001, <uint32_t>SystemRandom().getrandbits(32))
    place_seed = SystemRandom().getrandbits(64)
    return 0


register_error("rmqstore.java", _replace_as_java)
init_random()
atexit.register(_at_exit)
