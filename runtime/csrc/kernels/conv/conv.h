// Convolutions: their problem in numbers, and the input as it is laid out for them.
//
// Sizes have three axes; those that a convolution lacks are 1.  A window reads the padded input at
// o * stride + t * dilation for output o and tap t.  The padded input is kept in `stride` phases per
// axis, so that what neighbouring outputs read lies side by side whatever the stride is.
#ifndef POPC_CONV_H
#define POPC_CONV_H

#include "../matmul/gemm.h"

enum { AXES = 3 };  // depth, height, width; of images of fewer the first are 1

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
    bool contiguous;  // the whole input
    int64_t y_batch, y_channel, y_axis[AXES];  // those of the result
    int64_t residual_batch, residual_channel, residual_axis[AXES];
    Epilogue epilogue;
    int64_t w_out, w_in, w_axis[AXES];  // those of the weights
    bool w_plain;  // these lie one behind the other
    bool constant;  // the weights
    bool packed;  // which lie in panels then (format/panels.py)
    float outside;  // what the input is surrounded with
} Conv;

// Reads the tensors x, w, y, bias, residual; groups; stride, dilation, pads before of each axis; the
// activation.  All may have any strides; weights may be packed.
bool ISA(read_turned_conv)(Conv *conv, Params *params);

// The same, if the weights lie one behind the other.
bool ISA(read_strided_conv)(Conv *conv, Params *params);

// The same, if the result and the residual are contiguous, and weights are not packed.
bool ISA(read_conv)(Conv *conv, Params *params);

// The images may lie elsewhere in each run.
static inline void images_lie_anywhere(Needs *needs, Conv *conv) {
    reads_anywhere(needs, &conv->x);
    reads_anywhere(needs, &conv->epilogue.residual);
    writes_anywhere(needs, &conv->y);
}

// Where tap number `tap` of the window begins to read in a plane.
int64_t ISA(tap_offset)(const Conv *conv, int64_t tap);

// Copies one channel of the input into phases, surrounded by `outside`.
void ISA(lay_out_channel)(const Conv *conv, const float *channel, float *plane);

// All channels of the input, one plane behind the other.
void ISA(lay_out_input)(const Conv *conv, const Run *run, float *planes);

// The first channel of an image and group: among `planes`, or where the input lies if there are none.
static inline const float *first_channel_of(const Conv *conv, const float *planes, int64_t number) {
    if (planes) return planes + number * conv->in * conv->plane;
    return conv->x + number / conv->groups * conv->x_batch +
           number % conv->groups * conv->in * conv->x_channel;
}

#endif
