// The lowest peak of all orders: what popc/schedule/exact.py defines.
#pragma once

#include "shift.h"

// The search is over when `work` is above `most_work`, or when `is_over` of the problem says so.
typedef struct {
    Shift *problem;  // whose `order` becomes the nodes in the order found
    int64_t peak, bound;  // what is known to be needed, and what is to be undercut
    int64_t placed;  // nodes of the order found; -1 if there is none
    int64_t lower;  // no order has a lower peak
} Exact;

Outcome search_exactly(Exact *exact);
