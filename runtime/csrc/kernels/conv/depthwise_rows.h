// Depthwise convolutions of channels-last tensors, one or two rows of results at a time.
#ifndef POPC_DEPTHWISE_ROWS_H
#define POPC_DEPTHWISE_ROWS_H

#include "conv.h"

// How results of a row share what they read.
typedef struct {
    bool shares;  // whether they do
    int stride;  // cells that neighbours of a span are apart, of which a span reads each once
    int64_t cell;  // elements of the input from a cell to the next
    int64_t apart;  // results of a row that are neighbours in a span
    int64_t cells;  // of a line under a span, at most
    bool two;  // rows at a time
    int64_t rows_apart, shift;  // these, and their windows, in taps
    int64_t lines;  // of the input under them
    int64_t bytes;  // of scratch
} Rows;

bool ISA(has_depthwise_rows)(const Conv *conv);
Rows ISA(plan_depthwise_rows)(const Conv *conv);

// Channels first .. end - 1 of rows number from .. to - 1 of all results, where `first` is a multiple of
// LANES, and `end` too if it is not the number of all.  weights: [tap][channel]; outside: a zero for each
// channel.
void ISA(convolve_depthwise_rows)(
    const Rows *rows, const Conv *conv, const float *weights, const float *outside, int64_t from,
    int64_t to, int64_t first, int64_t end, void *scratch);

#endif
