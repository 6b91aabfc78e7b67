// Sums, extremes and the spread of rows of floats that lie side by side.
#ifndef POPC_ROW_SUMS_H
#define POPC_ROW_SUMS_H

#include <math.h>

#include "../support/partial.h"

// What a row is reduced by: how a vector is added to what there is, how vectors are put together, and
// what number they come to.  Each is a constant wherever a row is: nothing is called.
typedef Floats (*VectorStep)(Floats total, Floats v);

// The last vector has `start`, which changes nothing, in the lanes behind the row.
INLINE float reduce_row(
    const float *x, int64_t n, const float start, const VectorStep add, const VectorStep join,
    float (*const finish)(Floats total)) {
    const Floats none = all_of(start);
    Floats total = none;
    int64_t i = 0;
    if (n >= 4 * LANES) {
        Floats a[4];
        for (int k = 0; k < 4; k++) a[k] = none;
        for (; i + 4 * LANES <= n; i += 4 * LANES)
            for (int k = 0; k < 4; k++) a[k] = add(a[k], load(x + i + k * LANES));
        total = join(join(a[0], a[1]), join(a[2], a[3]));
    }
    for (; i + LANES <= n; i += LANES) total = add(total, load(x + i));
    if (i < n) total = add(total, load_lanes(x + i, lanes_between(0, n - i), none));
    return finish(total);
}

INLINE Floats vector_plus_square(Floats total, Floats v) { return total + v * v; }

// A NaN stays.
INLINE Floats vector_larger(Floats total, Floats v) {
    return select_of(total != total, total, all_at_least(total, v));
}
INLINE Floats vector_smaller(Floats total, Floats v) {
    return select_of(total != total, total, all_at_most(total, v));
}

// Any number of what a NaN is among.
INLINE Floats vector_peak(Floats total, Floats v) { return all_at_least(total, v); }

INLINE float highest_lane(Floats values) { return OVER_LANES(values, vector_peak); }
INLINE float largest_lane(Floats values) { return OVER_LANES(values, vector_larger); }
INLINE float smallest_lane(Floats values) { return OVER_LANES(values, vector_smaller); }

static inline float sum(const float *x, int64_t n) {
    return reduce_row(x, n, 0.0f, plus_of, plus_of, sum_of);
}
static inline float sum_of_squares(const float *x, int64_t n) {
    return reduce_row(x, n, 0.0f, vector_plus_square, plus_of, sum_of);
}
static inline float largest(const float *x, int64_t n) {
    return reduce_row(x, n, -INFINITY, vector_larger, vector_larger, largest_lane);
}
static inline float peak_of(const float *x, int64_t n) {
    return reduce_row(x, n, -INFINITY, vector_peak, vector_peak, highest_lane);
}
static inline float smallest(const float *x, int64_t n) {
    return reduce_row(x, n, INFINITY, vector_smaller, vector_smaller, smallest_lane);
}

// The variance is taken from centred values, so that a large mean costs no accuracy.
static inline float centred_squares(const float *x, int64_t n, float mean) {
    double total = 0;
    for (int64_t begin = 0; begin < n; begin += 16 * LANES) {
        const int64_t count = n - begin < 16 * LANES ? n - begin : 16 * LANES;
        Floats sums[2] = {{0}, {0}};
        float rest = 0;
        int64_t i = begin;
        for (; i + 2 * LANES <= begin + count; i += 2 * LANES)
            for (int k = 0; k < 2; k++) {
                const Floats centred = load(x + i + k * LANES) - mean;
                sums[k] += centred * centred;
            }
        for (; i + LANES <= begin + count; i += LANES) {
            const Floats centred = load(x + i) - mean;
            sums[0] += centred * centred;
        }
        for (; i < begin + count; i++) rest += (x[i] - mean) * (x[i] - mean);
        total += sum_of(sums[0] + sums[1]) + rest;
    }
    return (float)total;
}

#endif
