"""Named kill points and failures of system calls, compiled in with RMQSTORE_FAULTS only.

``RMQ_KILL_AT=name:count`` ends the process by SIGKILL at the ``count``-th pass of the point
``name``.  ``RMQ_FAIL_AT=call:count:errno`` makes the ``count``-th call of that kind fail, and, with
a ``+`` after the errno, every later one.  ``RMQ_HOLD_AT=name:descriptor`` makes each pass of the
point ``name`` wait for a byte of that pipe, or for its end.  Release builds contain none of this.

The environment is read when the module is loaded; an audit hook applies later changes by Python,
as ``getenv`` in one thread and ``setenv`` in another is a race.
"""


cdef extern from *:
    """
    #ifdef RMQSTORE_FAULTS
    #include <signal.h>
    #include <stdlib.h>
    #include <string.h>
    #include <unistd.h>
    enum { RMQ_FAIL_AT, RMQ_HOLD_AT, RMQ_KILL_AT, RMQ_PLANS };
    static const char *const rmq_plan_names[RMQ_PLANS] = {
        "RMQ_FAIL_AT", "RMQ_HOLD_AT", "RMQ_KILL_AT"
    };
    static char *rmq_plans[RMQ_PLANS];
    /* Replaced plans are not freed: threads may be reading them. */
    static void rmq_set_plan(const char *name, const char *value) {
        for (int i = 0; i < RMQ_PLANS; i++)
            if (strcmp(name, rmq_plan_names[i]) == 0)
                __atomic_store_n(&rmq_plans[i], value ? strdup(value) : NULL, __ATOMIC_SEQ_CST);
    }
    static void rmq_load_plans(void) {
        for (int i = 0; i < RMQ_PLANS; i++)
            rmq_set_plan(rmq_plan_names[i], getenv(rmq_plan_names[i]));
    }
    static const char *rmq_plan(int which) {
        return __atomic_load_n(&rmq_plans[which], __ATOMIC_SEQ_CST);
    }
    static long rmq_fault_passed = 0, rmq_fault_failed = 0, rmq_kill_passed = 0;
    static int rmq_fault(const char *call) {
        const char *plan = rmq_plan(RMQ_FAIL_AT);
        size_t length = strlen(call);
        char *rest;
        long count, passed, number;
        if (plan == NULL || strncmp(plan, call, length) != 0 || plan[length] != ':') return 0;
        count = strtol(plan + length + 1, &rest, 10);
        number = *rest == ':' ? strtol(rest + 1, &rest, 10) : 5;
        passed = __atomic_add_fetch(&rmq_fault_passed, 1, __ATOMIC_SEQ_CST);
        if (passed != count && !(passed > count && *rest == '+')) return 0;
        __atomic_add_fetch(&rmq_fault_failed, 1, __ATOMIC_SEQ_CST);
        return (int)number;
    }
    static void rmq_hold(const char *name) {
        const char *plan = rmq_plan(RMQ_HOLD_AT);
        size_t length = strlen(name);
        char byte;
        if (plan == NULL || strncmp(plan, name, length) != 0 || plan[length] != ':') return;
        if (read(atoi(plan + length + 1), &byte, 1) < 0) return;
    }
    static void rmq_kill_point(const char *name) {
        const char *plan = rmq_plan(RMQ_KILL_AT);
        size_t length = strlen(name);
        if (plan == NULL || strncmp(plan, name, length) != 0 || plan[length] != ':') return;
        if (__atomic_add_fetch(&rmq_kill_passed, 1, __ATOMIC_SEQ_CST)
            == strtol(plan + length + 1, NULL, 10)) {
            kill(getpid(), SIGKILL);
            for (;;) pause();
        }
    }
    #define FAULT(call) rmq_fault(call)
    #define FAULTS_PASSED() __atomic_load_n(&rmq_fault_passed, __ATOMIC_SEQ_CST)
    #define FAULTS_FAILED() __atomic_load_n(&rmq_fault_failed, __ATOMIC_SEQ_CST)
    #define KILL_POINT(name) (rmq_hold(name), rmq_kill_point(name))
    #define FAULTS_BUILT 1
    #else
    #define FAULT(call) ((void)(call), 0)
    #define FAULTS_PASSED() 0L
    #define FAULTS_FAILED() 0L
    #define KILL_POINT(name) ((void)(name))
    #define FAULTS_BUILT 0
    #define rmq_set_plan(name, value) ((void)(name), (void)(value))
    #define rmq_load_plans() ((void)0)
    #endif
    """
    void rmq_load_plans() noexcept
    void rmq_set_plan(const char *name, const char *value) noexcept
    int FAULT(const char *call) noexcept nogil
    long FAULTS_PASSED() noexcept nogil      # calls of the planned kind so far
    long FAULTS_FAILED() noexcept nogil      # failed calls among them
    void KILL_POINT(const char *name) noexcept nogil
    bint FAULTS_BUILT
