// Convolutions of groups of few channels, and maxima, of channels-last tensors, a row of results at a time.
#ifndef POPC_CHANNELS_LAST_H
#define POPC_CHANNELS_LAST_H

#include "pixels.h"

// Whether a convolution of groups, all of whose tensors are channels-last, can be computed in rows.
bool ISA(has_group_rows)(const Conv *conv);

// Channels first .. end - 1 of row number `row` of all results, where `first` is a multiple of LANES,
// and `end` too if it is not the number of all.  weights: [tap][channel of a group][channel]; outside:
// a zero for each channel.
void ISA(convolve_group_row)(
    const Conv *conv, const float *weights, const float *outside, int64_t row, int64_t first,
    int64_t end);

// Whether the maxima of windows can be computed in rows, and the bytes of scratch that takes.
bool ISA(has_maxima)(const Conv *conv);
int64_t ISA(maxima_bytes)(const Conv *conv);

// Channels of a row as above: the largest elements under its windows.
void ISA(largest_row)(const Conv *conv, int64_t row, int64_t first, int64_t end, float *scratch);

#endif
