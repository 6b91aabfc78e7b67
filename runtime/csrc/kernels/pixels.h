// Windows of channels-last tensors, as pointers: what a tap of an output reads is a run of floats,
// or a run of constants if it lies outside of the input.
#ifndef POPC_PIXELS_H
#define POPC_PIXELS_H

#include "conv.h"

// Where windows read: the input, or a copy of it.
typedef struct {
    const float *data;
    const float *outside;  // a run of what the input is surrounded with
    int64_t batch, axis[AXES];  // strides, in floats
    int64_t size[AXES], before[AXES];
    int64_t taps[AXES];
} Source;

// An output: where its window begins, and where it lies.
typedef struct {
    int64_t at[AXES];  // in the source; may lie outside
    int64_t y, residual;  // floats from the start of the image
} Pixel;

static inline void find_pixels(
    const Conv *conv, const Source *source, int64_t first, int count, Pixel *pixels) {
    int64_t index[AXES], rest = first;
    for (int axis = AXES - 1; axis >= 0; axis--) {
        index[axis] = rest % conv->result[axis];
        rest /= conv->result[axis];
    }
    for (int p = 0; p < count; p++) {
        Pixel pixel = {{0}, 0, 0};
        for (int axis = 0; axis < AXES; axis++) {
            pixel.at[axis] = index[axis] * conv->stride[axis] - source->before[axis];
            pixel.y += index[axis] * conv->y_axis[axis];
            pixel.residual += index[axis] * conv->residual_axis[axis];
        }
        pixels[p] = pixel;
        for (int axis = AXES - 1; axis >= 0; axis--) {
            if (++index[axis] < conv->result[axis]) break;
            index[axis] = 0;
        }
    }
}

// What a tap reads for each of `count` pixels of an image that begins at `image`.
static inline void find_runs(
    const Conv *conv, const Source *source, const float *image, const int64_t *tap,
    const Pixel *pixels, int count, const float **runs) {
    int64_t shift[AXES];
    for (int axis = 0; axis < AXES; axis++) shift[axis] = tap[axis] * conv->dilation[axis];
    for (int p = 0; p < count; p++) {
        const int64_t d = pixels[p].at[0] + shift[0], h = pixels[p].at[1] + shift[1];
        const int64_t w = pixels[p].at[2] + shift[2];
        const bool inside = (uint64_t)d < (uint64_t)source->size[0] &&
                            (uint64_t)h < (uint64_t)source->size[1] &&
                            (uint64_t)w < (uint64_t)source->size[2];
        runs[p] = inside ? image + d * source->axis[0] + h * source->axis[1] + w * source->axis[2]
                         : source->outside;
    }
}

// The tap after `tap`; false behind the last one.
static inline bool next_tap(const Source *source, int64_t *tap) {
    for (int axis = AXES - 1; axis >= 0; axis--) {
        if (++tap[axis] < source->taps[axis]) return true;
        tap[axis] = 0;
    }
    return false;
}

static inline Source source_of(const Conv *conv) {
    Source source = {.data = conv->x, .batch = conv->x_batch};
    for (int axis = 0; axis < AXES; axis++) {
        source.axis[axis] = conv->x_axis[axis];
        source.size[axis] = conv->size[axis];
        source.before[axis] = conv->before[axis];
        source.taps[axis] = conv->taps[axis];
    }
    return source;
}

#endif
