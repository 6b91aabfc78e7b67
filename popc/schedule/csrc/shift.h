// Local search over orders: what popc/schedule/shift.py defines.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lists.h"

typedef enum { DONE, NO_MEMORY, INTERRUPTED, HAS_CYCLE, UNFIT } Outcome;

// An order that is to be improved, and how far; see `ShiftLimits` and `OrderingProblem` in Python.
typedef struct {
    int64_t nodes, buffers;
    Lists later;  // of each node, those that wait for it
    Lists reads;  // of each node, buffers
    Lists takes;  // of each node, bytes; and of each of these, the buffers that decide
    Lists choices;
    Lists ties;  // of each node, the others
    const int64_t *frees, *stays;  // of each buffer
    const int64_t *made, *ranks, *rise, *counted;  // of each node
    const int64_t *shuffled;  // the nodes in the order in which they are tried
    int64_t *order;
    int64_t first_live, most_moves, window, most_idle, most_work;
    int keeps_peak;
    int (*is_over)(void *caller);  // asked now and then: 1 if time is up, -1 after an exception
    void *caller;
    int64_t moves, work;  // how many have been made, how much it took
} Shift;

Outcome shift_blocks(Shift *shift);

// True if a search has to end: for its work, or its caller, who is asked at some of the questions.
bool is_over(const Shift *shift, int64_t *questions, Outcome *outcome);

// The bytes live in each step of the order, as popc/schedule/measures.py defines them.
Outcome measure_steps(const Shift *shift, int64_t *steps);

// Orders all nodes: of those that are ready the one of the highest rank, then of the lowest level,
// then, if it is to be greedy, that changes the live bytes by the least, then the latest.
Outcome order_nodes(Shift *problem, const int64_t *levels, bool is_greedy);
