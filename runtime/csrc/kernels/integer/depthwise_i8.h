// Convolutions of bytes of one channel by one channel: what their two forms share.
#ifndef POPC_DEPTHWISE_I8_H
#define POPC_DEPTHWISE_I8_H

#include "byte_images.h"

// A form for processors that multiply bytes four at a time: vectors hold numbers of one column of
// windows, four of each channel, and are made once for all windows of a line that have the column.
typedef struct {
    int64_t lines, quads;  // of a window, and fours of them
    int64_t blocks;  // of channels
    int64_t woven_bytes;  // of the columns of a run of windows
    int8_t *weights;  // [block][column][quad][WOVEN_BYTES]
    int32_t *sums;  // of the weights of each channel; part of the block of `weights`
} ByteLanes;

// Plans for a convolution with constant weights; false if it does not have the form.
bool ISA(plan_lanes)(ByteLanes *lanes, const ByteConv *conv, int64_t channels);

// Computes one line of results.  `scratch` is TILES_BYTES + woven_bytes; `outside` surrounds the
// input, and is as long as all channels.
void ISA(lanes_line)(
    const ByteLanes *lanes, const ByteConv *conv, const uint8_t *x, const uint8_t *outside,
    int64_t line, char *scratch);

#endif
