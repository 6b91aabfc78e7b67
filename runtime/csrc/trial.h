// Whether a program runs on one thread or on all.
#ifndef POPC_TRIAL_H
#define POPC_TRIAL_H

#include <stdbool.h>
#include <stdint.h>

// What some runs of a program tell about threads.  Waking one costs some tens of microseconds, which
// is more than a short program gains.  Results do not depend on how many there are.
typedef struct {
    int runs;  // since the trial began; first those that are timed, by turns on all threads and on one
    int rest;  // runs behind those, until the next trial
    bool alone;  // on one thread meanwhile
    int64_t best[2];  // nanoseconds: on one thread, on all; 0: not known
} Trial;

// Whether the next run is one on a single thread.
bool trial_is_alone(const Trial *trial);

// Tells how long that run has taken; `helped`: another thread took part, or there was nothing for it.
void trial_note(Trial *trial, int64_t nanoseconds, bool helped);

#endif
