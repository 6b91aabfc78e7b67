// Depthwise convolutions of planes, a block of results at a time: see planes.h.
#ifndef POPC_DEPTHWISE_PLANES_H
#define POPC_DEPTHWISE_PLANES_H

#include "planes.h"

bool ISA(has_depthwise_planes)(const Conv *conv);

// Rows first .. end - 1 of a channel of the result, of which `number` names weights and bias.
void ISA(convolve_band)(
    const Strips *strips, int64_t channel, int64_t number, int64_t first, int64_t end);

#endif
