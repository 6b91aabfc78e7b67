#include "shift.h"

#include <stdlib.h>

// True if one of the buffers that decide over what a node takes over dies in its step.
static bool is_taken(const Shift *shift, const int64_t *left, int64_t take) {
    for (int64_t c = shift->choices.starts[take]; c < shift->choices.starts[take + 1]; c++)
        if (left[shift->choices.items[c]] == 1) return true;
    return false;
}

Outcome measure_steps(const Shift *shift, int64_t *steps) {
    const Lists reads = shift->reads, takes = shift->takes;
    const int64_t nodes = shift->nodes, all = reads.starts[nodes];
    int64_t live = shift->first_live;
    int64_t *const left = malloc((size_t)(shift->buffers + 1) * sizeof(int64_t));
    if (!left) return NO_MEMORY;
    for (int64_t buffer = 0; buffer < shift->buffers; buffer++) left[buffer] = shift->stays[buffer];
    for (int64_t i = 0; i < all; i++) left[reads.items[i]]++;
    for (int64_t place = 0; place < nodes; place++) {
        const int64_t node = shift->order[place];
        steps[place] = live + shift->rise[node];
        for (int64_t take = takes.starts[node]; take < takes.starts[node + 1]; take++)
            if (is_taken(shift, left, take)) steps[place] -= takes.items[take];
        live += shift->made[node];
        for (int64_t i = reads.starts[node]; i < reads.starts[node + 1]; i++)
            if (--left[reads.items[i]] == 0) live -= shift->frees[reads.items[i]];
    }
    free(left);
    return DONE;
}
