// Cores that threads run on.
#ifndef POPC_CORES_H
#define POPC_CORES_H

// The number of the one that this thread runs on; below 0 where the system does not tell.
int core_of_thread(void);

// Moves this thread to another of those that it may run on, if there is one.
void leave_core(int core);

#endif
