// Nodes that may as well run together become one: what popc/schedule/simplify.py defines.
#pragma once

#include "shift.h"

enum { MERGED_COLUMNS = 14 };

typedef struct { int64_t *items, count, room; } Numbers;

// What is left.  Lists are two columns, where each list begins and all items: of each node the
// nodes that it was made of, those that wait for it, the buffers that it reads and makes.  Then, of
// each node, how many it waits for, and its rise; where its takeovers begin, the bytes of each of
// these, and the buffers that decide, which are two columns.
typedef struct {
    const Shift *problem;
    Lists later;  // of each node, those that wait for it; in place of those of the problem
    Lists makes;  // of each node, buffers
    const int64_t *weights;  // of each buffer
    Numbers columns[MERGED_COLUMNS];
} Merge;

Outcome merge_nodes(Merge *merge);

// Drops the links of `later` that follow from others.  Those that are left, of each node in the
// order of the places of their targets, are written to `starts` and `items`.  `order` holds all
// nodes as their constraints allow.
Outcome reduce_links(
    Lists later, int64_t nodes, const int64_t *order, int64_t *starts, int64_t *items);
