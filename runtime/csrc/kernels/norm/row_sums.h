// Sums, extremes and the spread of rows of floats that lie side by side.
#ifndef POPC_ROW_SUMS_H
#define POPC_ROW_SUMS_H

#include <math.h>

#include "../support/simd.h"

// All operations on a row take vectors first and what is left afterwards.  FOLD adds vector `v` to the
// first of four, and FINISH what that has come to.
#define REDUCTION(NAME, START, VECTOR, FOLD, FINISH, SCALAR)  \
    static inline float NAME(const float *x, int64_t n) {     \
        float total = START;                                  \
        int64_t i = 0;                                        \
        if (n >= LANES) {                                     \
            Floats a[4];                                      \
            for (int k = 0; k < 4; k++) a[k] = all_of(START); \
            for (; i + 4 * LANES <= n; i += 4 * LANES)        \
                for (int k = 0; k < 4; k++) {                 \
                    const Floats v = load(x + i + k * LANES); \
                    VECTOR;                                   \
                }                                             \
            for (; i + LANES <= n; i += LANES) {              \
                const int k = 0;                              \
                const Floats v = load(x + i);                 \
                VECTOR;                                       \
            }                                                 \
            for (int other = 1; other < 4; other++) {         \
                const int k = 0;                              \
                const Floats v = a[other];                    \
                FOLD;                                         \
            }                                                 \
            FINISH;                                           \
        }                                                     \
        for (; i < n; i++) {                                  \
            const float v = x[i];                             \
            SCALAR;                                           \
        }                                                     \
        return total;                                         \
    }

// A NaN stays: it is not less than anything, and once in `total` nothing is larger than it.
#define TAKE_IF(LESS)                                                                     \
    {                                                                                     \
        const __typeof__(v LESS a[k]) take = (v LESS a[k]) | (v != v);                    \
        a[k] = (Floats)(((__typeof__(take))v & take) | ((__typeof__(take))a[k] & ~take)); \
    }
#define TAKE_ONE_IF(LESS) total = v LESS total || v != v ? v : total
#define TAKE_LANES_IF(LESS)                        \
    {                                              \
        float parts[LANES];                        \
        store(parts, a[0]);                        \
        for (int lane = 0; lane < LANES; lane++) { \
            const float v = parts[lane];           \
            TAKE_ONE_IF(LESS);                     \
        }                                          \
    }

REDUCTION(sum, 0.0f, a[k] += v, a[k] += v, total = sum_of(a[0]), total += v)
REDUCTION(sum_of_squares, 0.0f, a[k] += v * v, a[k] += v, total = sum_of(a[0]), total += v * v)
REDUCTION(largest, -INFINITY, TAKE_IF(>), TAKE_IF(>), TAKE_LANES_IF(>), TAKE_ONE_IF(>))
REDUCTION(smallest, INFINITY, TAKE_IF(<), TAKE_IF(<), TAKE_LANES_IF(<), TAKE_ONE_IF(<))

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
        for (; i < begin + count; i++) rest += (x[i] - mean) * (x[i] - mean);
        total += sum_of(sums[0] + sums[1]) + rest;
    }
    return (float)total;
}

#endif
