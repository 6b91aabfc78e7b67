// Windows that slide over a single channel: depthwise convolutions and pooling.
//
// A channel lies in a plane (see conv.h).  Results are made for all places of a plane from the first
// window to the last one, those between two lines included: nobody looks at them, and vectors need
// not begin anew in each line.
#ifndef POPC_WINDOW_H
#define POPC_WINDOW_H

#include "conv.h"

enum { SWEEP = 8 * LANES };  // results that are made at once

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

// to[i] = STEP over all taps, `VECTORS` vectors at a time, as long as `WHILE`; `STEP` changes
// `total[v]` by `part` of tap number `tap`.
#define SWEEP_LOOP(VECTORS, WHILE, START, STEP)                                \
    for (; WHILE; i += VECTORS * LANES) {                                      \
        Floats total[VECTORS];                                                 \
        for (int v = 0; v < VECTORS; v++) total[v] = START;                    \
        for (int64_t tap = 0; tap < window; tap++) {                           \
            const float *source = from + offsets[tap] + i;                     \
            _Pragma("GCC unroll 8") for (int v = 0; v < VECTORS; v++) {        \
                const Floats part = load(source + v * LANES);                  \
                STEP;                                                          \
            }                                                                  \
        }                                                                      \
        for (int v = 0; v < VECTORS; v++) store(to + i + v * LANES, total[v]); \
    }
// What is left in the end takes one step more, of four vectors if they are enough: fewer would take
// as long, because each sum waits for the one before it.
#define SWEEP_LOOPS(START, STEP)                      \
    int64_t i = 0;                                    \
    SWEEP_LOOP(8, i + 4 * LANES < count, START, STEP) \
    SWEEP_LOOP(4, i < count, START, STEP)

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
