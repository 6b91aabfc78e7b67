// Whether work goes on.
#ifndef POPC_WATCH_H
#define POPC_WATCH_H

#include <stdatomic.h>
#include <stdbool.h>

#include "pool.h"

// Only the thread that hands work out looks, between chunks of its own; helpers see what it has found.
struct Watch {
    int (*look)(void *context);  // nonzero: to stop
    void *context;
    int done;  // parts of a chunk since it has looked
    atomic_bool stopped;
};

// Looks now; whether to stop.
bool watch_looks(Watch *watch);

#endif
