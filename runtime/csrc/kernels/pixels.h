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
    int64_t from;  // the same as a distance in floats
    int64_t y, residual;  // floats from the start of the image
} Pixel;

static inline Pixel pixel_at(const Conv *conv, const Source *source, const int64_t *index) {
    Pixel pixel = {{0}, 0, 0, 0};
    for (int axis = 0; axis < AXES; axis++) {
        pixel.at[axis] = index[axis] * conv->stride[axis] - source->before[axis];
        pixel.from += pixel.at[axis] * source->axis[axis];
        pixel.y += index[axis] * conv->y_axis[axis];
        pixel.residual += index[axis] * conv->residual_axis[axis];
    }
    return pixel;
}

// Pixels number first .. first + count - 1 of an image.  Whether all their windows lie inside.
static inline bool find_pixels(
    const Conv *conv, const Source *source, int64_t first, int count, Pixel *pixels) {
    int64_t index[AXES], last[AXES], rest = first;
    for (int axis = AXES - 1; axis >= 0; axis--) {
        index[axis] = rest % conv->result[axis];
        rest /= conv->result[axis];
        last[axis] = source->size[axis] - 1 - (source->taps[axis] - 1) * conv->dilation[axis];
    }
    const int64_t step = conv->stride[2] * source->axis[2];
    Pixel pixel = pixel_at(conv, source, index);
    bool inside = true;
    for (int p = 0; p < count; p++) {
        pixels[p] = pixel;
        for (int axis = 0; axis < AXES; axis++)
            inside &= (pixel.at[axis] >= 0) & (pixel.at[axis] <= last[axis]);
        if (++index[2] < conv->result[2]) {
            pixel.at[2] += conv->stride[2];
            pixel.from += step;
            pixel.y += conv->y_axis[2];
            pixel.residual += conv->residual_axis[2];
        } else {
            index[2] = 0;
            if (++index[1] == conv->result[1]) {
                index[1] = 0;
                index[0]++;
            }
            pixel = pixel_at(conv, source, index);
        }
    }
    return inside;
}

// What a tap reads for each of `count` pixels of an image that begins at `image`.
static inline void find_runs(
    const Conv *conv, const Source *source, const float *image, const int64_t *tap,
    const Pixel *pixels, int count, bool inside, const float **runs) {
    int64_t shift[AXES], distance = 0;
    for (int axis = 0; axis < AXES; axis++) {
        shift[axis] = tap[axis] * conv->dilation[axis];
        distance += shift[axis] * source->axis[axis];
    }
    if (inside) {
        for (int p = 0; p < count; p++) runs[p] = image + (pixels[p].from + distance);
        return;
    }
    for (int p = 0; p < count; p++) {
        bool there = true;
        for (int axis = 0; axis < AXES; axis++)
            there &= (uint64_t)(pixels[p].at[axis] + shift[axis]) < (uint64_t)source->size[axis];
        runs[p] = there ? image + (pixels[p].from + distance) : source->outside;
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
