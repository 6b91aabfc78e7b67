// Parts of a batch: threads with rows of their own wait for nobody from step to step, but each reads all
// weights.
#ifndef POPC_RECURRENT_PARTS_H
#define POPC_RECURRENT_PARTS_H

#include "recurrent.h"

// Products of a step that are worth two threads: 2.6 microseconds, where handing them out takes 0.6.
enum { STEP_WORK = 1 << 17 };

// Into how many parts a batch may be divided, and into how many a run with so many threads divides it.
int64_t ISA(most_parts)(const State *state);
int64_t ISA(part_count)(const State *state, int threads);

// A part of the rows, as if they were all: operands begin with them.
State ISA(part_of)(const State *whole, int64_t parts, int64_t number);

#endif
