#define _GNU_SOURCE
#include "cores.h"

#ifdef __linux__
#include <sched.h>

int core_of_thread(void) { return sched_getcpu(); }

// The system moves a thread at once that may no longer run where it does.  Later it may run everywhere
// again: what others do on these cores is for the system to know.
void leave_core(int core) {
    cpu_set_t all, others;
    if (core < 0 || core >= CPU_SETSIZE || sched_getaffinity(0, sizeof(all), &all)) return;
    others = all;
    CPU_CLR(core, &others);
    if (CPU_COUNT(&others) && !sched_setaffinity(0, sizeof(others), &others))
        sched_setaffinity(0, sizeof(all), &all);
}

#else

int core_of_thread(void) { return -1; }

void leave_core(int core) { (void)core; }

#endif
