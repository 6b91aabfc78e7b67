// Bytes that are live in every order: what popc/schedule/bound.py defines.
#pragma once

#include "shift.h"

typedef struct {
    const Shift *problem;  // with an order that its constraints allow
    Lists makes;  // of each node, buffers
    const int64_t *weights, *freed_with;  // of each buffer
    const int64_t *chosen;  // buffers: those that are looked at together are made near each other
    int64_t count;  // of these
    const int64_t *initial;  // buffers that are there from the start
    int64_t initial_count;
} Bound;

// Adds for each node the bytes of the chosen buffers that are live while it runs in any order.
Outcome add_certain_bytes(const Bound *bound, int64_t *live);
