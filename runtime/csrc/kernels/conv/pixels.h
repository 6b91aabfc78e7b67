// Windows of channels-last tensors, as pointers: what a tap of an output reads is a run of floats,
// or a run of constants if it lies outside of the input.
#ifndef POPC_PIXELS_H
#define POPC_PIXELS_H

#include "conv.h"

// Where windows read: the input, or a copy of it.
typedef struct {
    const float *data;  // known when the convolution runs
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

// A walk over the pixels of an image, in their order.
typedef struct {
    int64_t index[AXES];  // of the next one
    int64_t last[AXES];  // places in the source where windows that lie inside may begin
    Pixel pixel;
} Walk;

// Begins at pixel number `first`.
static inline Walk walk_from(const Conv *conv, const Source *source, int64_t first) {
    Walk walk;
    for (int axis = AXES - 1; axis >= 0; axis--) {
        walk.index[axis] = first % conv->result[axis];
        first /= conv->result[axis];
        walk.last[axis] = source->size[axis] - 1 - (source->taps[axis] - 1) * conv->dilation[axis];
    }
    walk.pixel = pixel_at(conv, source, walk.index);
    return walk;
}

// Whether the windows of the next `count` pixels lie inside, if those are of one line.
static inline bool lies_inside(const Conv *conv, const Walk *walk, int64_t count) {
    const Pixel *pixel = &walk->pixel;
    const int64_t end = pixel->at[2] + (count - 1) * conv->stride[2];
    bool inside = (pixel->at[2] >= 0) & (end <= walk->last[2]);
    for (int axis = 0; axis < AXES - 1; axis++)
        inside &= (pixel->at[axis] >= 0) & (pixel->at[axis] <= walk->last[axis]);
    return inside;
}

// Goes by `count` pixels of one line.
static inline void pass_pixels(const Conv *conv, const Source *source, Walk *walk, int64_t count) {
    walk->index[2] += count;
    if (walk->index[2] < conv->result[2]) {
        walk->pixel.at[2] += count * conv->stride[2];
        walk->pixel.from += count * conv->stride[2] * source->axis[2];
        walk->pixel.y += count * conv->y_axis[2];
        walk->pixel.residual += count * conv->residual_axis[2];
        return;
    }
    walk->index[2] = 0;
    if (++walk->index[1] == conv->result[1]) {
        walk->index[1] = 0;
        walk->index[0]++;
    }
    walk->pixel = pixel_at(conv, source, walk->index);
}

// The next `count` pixels.  Whether all their windows lie inside.
static inline bool walk_pixels(
    const Conv *conv, const Source *source, Walk *walk, int64_t count, Pixel *pixels) {
    bool inside = true;
    while (count > 0) {
        const int64_t rest = conv->result[2] - walk->index[2], some = lesser(count, rest);
        Pixel pixel = walk->pixel;
        inside &= lies_inside(conv, walk, some);
        for (int64_t p = 0; p < some; p++) {
            *pixels++ = pixel;
            pixel.at[2] += conv->stride[2];
            pixel.from += conv->stride[2] * source->axis[2];
            pixel.y += conv->y_axis[2];
            pixel.residual += conv->residual_axis[2];
        }
        pass_pixels(conv, source, walk, some);
        count -= some;
    }
    return inside;
}

// Pixels number first .. first + count - 1 of an image.  Whether all their windows lie inside.
static inline bool find_pixels(
    const Conv *conv, const Source *source, int64_t first, int count, Pixel *pixels) {
    Walk walk = walk_from(conv, source, first);
    return walk_pixels(conv, source, &walk, count, pixels);
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
    Source source = {.batch = conv->x_batch};
    for (int axis = 0; axis < AXES; axis++) {
        source.axis[axis] = conv->x_axis[axis];
        source.size[axis] = conv->size[axis];
        source.before[axis] = conv->before[axis];
        source.taps[axis] = conv->taps[axis];
    }
    return source;
}

#endif
