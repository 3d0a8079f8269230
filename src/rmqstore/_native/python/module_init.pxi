# Initialisation, run once when the module is loaded.

FAULTS = bool(FAULTS_BUILT)


def fault_counts():
    """Calls so far of the kind named by RMQ_FAIL_AT, and the number that failed."""
    return FAULTS_PASSED(), FAULTS_FAILED()


def _take_over_plan(event, arguments):
    """Audit hook, in builds with faults only: Python changes the environment."""
    cdef bytes name, value
    if event == "os.putenv":
        name, value = arguments
        rmq_set_plan(name, value)
    elif event == "os.unsetenv":
        name = arguments[0]
        rmq_set_plan(name, NULL)


rmq_load_plans()
if FAULTS:
    addaudithook(_take_over_plan)
lock_init(&open_stores_lock, LOCK_OPEN_STORES)
turns_init()
pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child)


cdef int init_random() except -1:
    """Set this process's random numbers: for unique keys, and hash seeds."""
    global offset_hash_seed, topic_hash_seed
    cdef bytes some = urandom(20)
    unique_keys_init(&unique_keys, 0x7F000001, int.from_bytes(some[:4], "big"))
    offset_hash_seed = int.from_bytes(some[4:12], "big")
    topic_hash_seed = int.from_bytes(some[12:], "big")
    return 0


register_error("rmqstore.java", _replace_as_java)
init_random()
atexit.register(_at_exit)
