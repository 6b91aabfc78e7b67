// The fewest bytes live when a node begins, in any order: what popc/schedule/flow.py defines.
#pragma once

#include "bound.h"

// For each of some nodes, the bytes of buffers; `chosen` of the bound is not looked at.
Outcome find_least_bytes(const Bound *bound, const int64_t *nodes, int64_t count, int64_t *bytes);
