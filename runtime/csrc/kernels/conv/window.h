// Windows that slide over a single channel: depthwise convolutions and pooling.
//
// A channel lies in a plane (see conv.h).  Results are made for all places of a plane from the first
// window to the last one, those between two lines included: nobody looks at them, and vectors need
// not begin anew in each line.
#ifndef POPC_WINDOW_H
#define POPC_WINDOW_H

#include "../support/sizes.h"
#include "conv.h"

enum { SWEEP = 8 * LANES };  // results that are made at once: 8 sums under way, see direct.h

// Places from the first window of a slice to its last one.
static inline int64_t sweep_count(const Conv *conv) {
    return (conv->result[1] - 1) * conv->phase[2] + conv->result[2];
}

// Floats of scratch: a plane, as much as is read beyond it, and the results of a slice.
static inline int64_t sweep_floats(const Conv *conv) {
    return ceil_div(conv->plane, SWEEP) * SWEEP + SWEEP +
           ceil_div(sweep_count(conv), SWEEP) * SWEEP;
}

static inline float *sweep_results(const Conv *conv, float *scratch) {
    return scratch + ceil_div(conv->plane, SWEEP) * SWEEP + SWEEP;
}

// What a tap of a window does to a total; `weights` are those of the window, if it has any.  It is a
// constant wherever a slice is given it: nothing is called.
typedef Floats (*SweepStep)(Floats total, Floats part, const float *weights, int64_t tap);

typedef struct {
    const float *from, *weights;
    const int64_t *offsets;  // of the taps of a window
    int64_t window;
    float *to;
} Sweep;

// to[i] over all taps, some vectors at a time, as long as `i` is below `end`.
INLINE int64_t sweep_vectors(
    const Sweep *sweep, int64_t i, int64_t end, Floats start, const SweepStep step,
    const int vectors) {
    const float *from = sweep->from, *weights = sweep->weights;
    const int64_t *offsets = sweep->offsets, window = sweep->window;
    float *to = sweep->to;
    for (; i < end; i += vectors * LANES) {
        Floats total[SWEEP / LANES];
        for (int v = 0; v < vectors; v++) total[v] = start;
        for (int64_t tap = 0; tap < window; tap++) {
            const float *source = from + offsets[tap] + i;
            UNROLLED_FOR (int v = 0; v < vectors; v++)
                total[v] = step(total[v], load(source + v * LANES), weights, tap);
        }
        for (int v = 0; v < vectors; v++) store(to + i + v * LANES, total[v]);
    }
    return i;
}

// What is left in the end takes one step more, of four vectors if they are enough: fewer would take
// as long, because each sum waits for the one before it.
INLINE void sweep_slice(const Sweep *sweep, int64_t count, Floats start, const SweepStep step) {
    const int64_t i = sweep_vectors(sweep, 0, count - 4 * LANES, start, step, SWEEP / LANES);
    sweep_vectors(sweep, i, count, start, step, 4);
}

// How much of a slice is swept before somebody may want to stop: whole steps of some milliseconds.
static inline int64_t sweep_part(int64_t window) {
    return (((int64_t)1 << 22) / window / SWEEP + 1) * SWEEP;
}

// What is read beyond the plane: zeros, because subnormal numbers, which may be there, are slow.
static inline void end_plane(const Conv *conv, float *plane) {
    float *end = plane + conv->plane;
    memset(end, 0, (size_t)(sweep_results(conv, plane) - end) * sizeof(float));
}

// The results of a slice, without those between lines.
static inline void keep_lines(const Conv *conv, const float *from, float *to) {
    const int64_t width = conv->result[2];
    for (int64_t line = 0; line < conv->result[1]; line++)
        copy_floats(to + line * width, from + line * conv->phase[2], width);
}

#endif
