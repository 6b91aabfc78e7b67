// Convolutions: their problem in numbers, and the input as it is laid out for them.
//
// Sizes have three axes; those that a convolution lacks are 1.  A window reads the padded input at
// o * stride + t * dilation for output o and tap t.  The padded input is kept in `stride` phases per
// axis, so that what neighbouring outputs read lies side by side whatever the stride is.
#ifndef POPC_CONV_H
#define POPC_CONV_H

#include <string.h>

#include "gemm.h"

enum { AXES = 3 };

typedef struct {
    int64_t batch, groups;
    int64_t in, out;  // channels of a group
    int64_t size[AXES], taps[AXES], result[AXES], stride[AXES], dilation[AXES], before[AXES];
    int64_t phase[AXES];  // size of a phase of the padded input
    int64_t pixels;  // of a channel of the result
    int64_t window;  // taps of a window
    int64_t plane;  // floats of a channel of the padded input, in phases
    const float *x, *w;
    float *y;
    int64_t x_batch, x_channel, x_axis[AXES];  // strides of the input, in floats
    bool plain;  // elements of a channel lie one behind the other
    Epilogue epilogue;
    bool constant;  // the weights
    float outside;  // what the input is surrounded with
} Conv;

// A copy of few floats, mostly; the parts of the last copies overlap.
static inline void copy_floats(float *to, const float *from, int64_t count) {
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) store(to + i, load(from + i));
    if (i == count) return;
    if (count >= LANES) {
        store(to + count - LANES, load(from + count - LANES));
    } else if (LANES == 16 && count >= 8) {
        memcpy(to, from, 8 * sizeof(float));
        memcpy(to + count - 8, from + count - 8, 8 * sizeof(float));
    } else if (LANES >= 8 && count >= 4) {
        memcpy(to, from, 4 * sizeof(float));
        memcpy(to + count - 4, from + count - 4, 4 * sizeof(float));
    } else {
        for (; i < count; i++) to[i] = from[i];
    }
}

// Reads the tensors x, w, y, bias, residual; spatial rank; stride, dilation, pads before of each
// axis; groups; the activation.
bool ISA(read_conv)(Conv *conv, Params *params);

// Where tap number `tap` of the window begins to read in a plane.
int64_t ISA(tap_offset)(const Conv *conv, int64_t tap);

// Copies one channel of the input into phases, surrounded by `outside`.
void ISA(lay_out_channel)(const Conv *conv, const float *channel, float *plane);

#endif
