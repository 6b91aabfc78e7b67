// Maxima and means of windows in planes, a block of results at a time: see ../conv/planes.h.
#ifndef POPC_POOL_PLANES_H
#define POPC_POOL_PLANES_H

#include "../conv/planes.h"

bool ISA(has_pool_planes)(const Conv *conv);

// Rows first .. end - 1 of a channel of the result: maxima, or sums, times `factors`, one for each result
// of a channel, if there are some.
void ISA(pool_band)(
    const Strips *strips, bool maximum, const float *factors, int64_t channel, int64_t first,
    int64_t end);

#endif
