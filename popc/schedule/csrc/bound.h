// Bytes that are live in every order: what popc/schedule/bound.py defines.
#pragma once

#include "shift.h"

typedef struct {
    int64_t nodes, buffers, leaders;
    Lists later, makes, reads;  // of each node: those that wait for it, buffers, leaders
    Lists parts;  // of each leader, the buffers that are freed with it
    const int64_t *order;  // of the nodes, as their constraints allow
    const int64_t *weights, *initial;  // of each buffer
    const int64_t *stays;  // of each leader
} Bound;

// Adds for each node the bytes of the buffers that are live while it runs in any order.
Outcome add_certain_bytes(const Bound *bound, int64_t *live);
