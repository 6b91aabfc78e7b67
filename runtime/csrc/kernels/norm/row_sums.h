// Sums, extremes and the spread of rows of floats that lie side by side.
#ifndef POPC_ROW_SUMS_H
#define POPC_ROW_SUMS_H

#include <math.h>

#include "../support/simd.h"

// What a row is reduced by: how a vector, or a number, is added to what there is, how vectors are put
// together, and what number they come to.  Each is a constant wherever a row is: nothing is called.
typedef Floats (*VectorStep)(Floats total, Floats v);
typedef float (*NumberStep)(float total, float v);

// Vectors first, and what is left afterwards.
INLINE float reduce_row(
    const float *x, int64_t n, const float start, const VectorStep add, const VectorStep join,
    float (*const finish)(Floats total), const NumberStep add_one) {
    float total = start;
    int64_t i = 0;
    if (n >= LANES) {
        Floats a[4];
        for (int k = 0; k < 4; k++) a[k] = all_of(start);
        for (; i + 4 * LANES <= n; i += 4 * LANES)
            for (int k = 0; k < 4; k++) a[k] = add(a[k], load(x + i + k * LANES));
        for (; i + LANES <= n; i += LANES) a[0] = add(a[0], load(x + i));
        for (int other = 1; other < 4; other++) a[0] = join(a[0], a[other]);
        total = finish(a[0]);
    }
    for (; i < n; i++) total = add_one(total, x[i]);
    return total;
}

INLINE Floats vector_plus_square(Floats total, Floats v) { return total + v * v; }
INLINE float plus(float total, float v) { return total + v; }
INLINE float plus_square(float total, float v) { return total + v * v; }

// A NaN stays.
INLINE Floats vector_larger(Floats total, Floats v) {
    return select_of(total != total, total, all_at_least(total, v));
}
INLINE Floats vector_smaller(Floats total, Floats v) {
    return select_of(total != total, total, all_at_most(total, v));
}
INLINE float larger(float total, float v) { return v > total || v != v ? v : total; }
INLINE float smaller(float total, float v) { return v < total || v != v ? v : total; }

// Any number of what a NaN is among.
INLINE Floats vector_peak(Floats total, Floats v) { return all_at_least(total, v); }
INLINE float peak(float total, float v) { return v > total ? v : total; }

INLINE float highest_lane(Floats values) { return OVER_LANES(values, vector_peak); }
INLINE float largest_lane(Floats values) { return OVER_LANES(values, vector_larger); }
INLINE float smallest_lane(Floats values) { return OVER_LANES(values, vector_smaller); }

static inline float sum(const float *x, int64_t n) {
    return reduce_row(x, n, 0.0f, plus_of, plus_of, sum_of, plus);
}
static inline float sum_of_squares(const float *x, int64_t n) {
    return reduce_row(x, n, 0.0f, vector_plus_square, plus_of, sum_of, plus_square);
}
static inline float largest(const float *x, int64_t n) {
    return reduce_row(x, n, -INFINITY, vector_larger, vector_larger, largest_lane, larger);
}
static inline float peak_of(const float *x, int64_t n) {
    return reduce_row(x, n, -INFINITY, vector_peak, vector_peak, highest_lane, peak);
}
static inline float smallest(const float *x, int64_t n) {
    return reduce_row(x, n, INFINITY, vector_smaller, vector_smaller, smallest_lane, smaller);
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
