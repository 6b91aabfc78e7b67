// Sums, extremes and the spread of rows of floats that lie side by side.
#ifndef POPC_ROW_SUMS_H
#define POPC_ROW_SUMS_H

#include <math.h>

#include "simd.h"

// All operations on a row take vectors first and what is left afterwards.
#define REDUCTION(NAME, START, VECTOR, SCALAR)                                   \
    static inline float NAME(const float *x, int64_t n) {                        \
        float total = START;                                                     \
        int64_t i = 0;                                                           \
        if (n >= 4 * LANES) {                                                    \
            Floats a[4];                                                         \
            for (int k = 0; k < 4; k++) a[k] = all_of(START);                    \
            for (; i + 4 * LANES <= n; i += 4 * LANES)                           \
                for (int k = 0; k < 4; k++) {                                    \
                    const Floats v = load(x + i + k * LANES);                    \
                    VECTOR;                                                      \
                }                                                                \
            float parts[4 * LANES];                                              \
            for (int k = 0; k < 4; k++) store(parts + k * LANES, a[k]);          \
            for (int k = 0; k < 4 * LANES; k++) {                                \
                const float v = parts[k];                                        \
                MERGE_##NAME;                                                    \
            }                                                                    \
        }                                                                        \
        for (; i < n; i++) {                                                     \
            const float v = x[i];                                                \
            SCALAR;                                                              \
        }                                                                        \
        return total;                                                            \
    }

#define MERGE_sum total += v
#define MERGE_sum_of_squares total += v
#define MERGE_largest total = v > total || v != v ? v : total
#define MERGE_smallest total = v < total || v != v ? v : total

REDUCTION(sum, 0.0f, a[k] += v, total += v)
REDUCTION(sum_of_squares, 0.0f, a[k] += v * v, total += v * v)
// A NaN stays: it is not less than anything, and once in `total` nothing is larger than it.
REDUCTION(largest, -INFINITY, {
    const __typeof__(v > a[k]) take = (v > a[k]) | (v != v);
    a[k] = (Floats)(((__typeof__(take))v & take) | ((__typeof__(take))a[k] & ~take));
}, total = v > total || v != v ? v : total)
REDUCTION(smallest, INFINITY, {
    const __typeof__(v < a[k]) take = (v < a[k]) | (v != v);
    a[k] = (Floats)(((__typeof__(take))v & take) | ((__typeof__(take))a[k] & ~take));
}, total = v < total || v != v ? v : total)

// The variance is taken from centred values, so that a large mean costs no accuracy.
static inline float centred_squares(const float *x, int64_t n, float mean) {
    float block[256];
    double total = 0;
    for (int64_t begin = 0; begin < n; begin += 256) {
        const int64_t count = n - begin < 256 ? n - begin : 256;
        for (int64_t i = 0; i < count; i++) block[i] = x[begin + i] - mean;
        total += sum_of_squares(block, count);
    }
    return (float)total;
}

#endif
