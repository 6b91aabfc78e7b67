// Tensors of other memory formats than a kernel works with: they are copied before, or after.
#ifndef POPC_TURNED_H
#define POPC_TURNED_H

#include "conv.h"
#include "../support/squares.h"

// An image in memory: its distances, in floats.
typedef struct { int64_t batch, channel, axis[AXES]; } Layout;

// A tensor that is not channels-last, and where its copy, which is, lies in scratch.
typedef struct {
    float *data;  // NULL: it is
    Layout layout;
    const int64_t *size;
    int64_t scratch;  // floats
} Turned;

// Plans a copy of a tensor in `scratch`, and writes down what is read and written instead.
static inline int64_t plan_copy(
    const Conv *conv, Turned *turned, const void *data, const int64_t *size, int64_t scratch,
    int64_t *batch, int64_t *channel, int64_t *axes) {
    const int64_t channels = conv->groups * conv->in;
    if (!data || *channel == 1 || channels == 1) return scratch;
    turned->data = (float *)data;
    turned->size = size;
    turned->scratch = scratch;
    turned->layout = (Layout){*batch, *channel, {axes[0], axes[1], axes[2]}};
    int64_t step = channels;
    for (int axis = AXES - 1; axis >= 0; axis--) {
        axes[axis] = step;
        step *= size[axis];
    }
    *batch = step;
    *channel = 1;
    return scratch + padded(conv->batch * step, 16);
}

// Plans those that the images of a convolution need.  The floats that they have.
static inline int64_t plan_copies(Conv *c, Turned *x, Turned *y, Turned *residual) {
    int64_t end = plan_copy(c, x, c->x, c->size, 0, &c->x_batch, &c->x_channel, c->x_axis);
    end = plan_copy(c, y, c->y, c->result, end, &c->y_batch, &c->y_channel, c->y_axis);
    return plan_copy(
        c, residual, c->epilogue.residual, c->result, end, &c->residual_batch, &c->residual_channel,
        c->residual_axis);
}

// A line of pixels, to its copy or from there.
static inline void turn_line(
    const Turned *turned, int64_t channels, int64_t line, float *scratch, bool back) {
    const Layout *layout = &turned->layout;
    const int64_t width = turned->size[2], rows = turned->size[1];
    const int64_t image = line / rows / turned->size[0], d = line / rows % turned->size[0];
    float *there = turned->data + image * layout->batch + d * layout->axis[0] +
                   line % rows * layout->axis[1];
    float *here = scratch + turned->scratch + line * width * channels;
    const bool planes = layout->axis[2] == 1 || width == 1;
    if (planes && back) {
        turn(here, channels, there, layout->channel, width, channels);
    } else if (planes) {
        turn(there, layout->channel, here, channels, channels, width);
    } else {
        for (int64_t p = 0; p < width; p++)
            for (int64_t c = 0; c < channels; c++, here++) {
                float *one = there + p * layout->axis[2] + c * layout->channel;
                *(back ? one : here) = *(back ? here : one);
            }
    }
}

#endif
