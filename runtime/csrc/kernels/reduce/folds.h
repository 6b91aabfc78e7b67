// Loops of reductions, for reduce.c: elements `n` times `along` bytes apart, for each of `width`
// neighbours in the result, which lie `across` bytes apart, from `from` on into `sums`.
#ifndef POPC_FOLDS_H
#define POPC_FOLDS_H

#include "../support/extremes.h"

#define APPLY(V, OPERATION, ALONG)                                            \
    for (int64_t b = 0; b < width; b++) {                                     \
        const char *at = from + b * across;                                   \
        double strips[STRIPS];                                                \
        for (int s = 0; s < STRIPS; s++) strips[s] = start;                   \
        int64_t i = 0;                                                        \
        for (; i + STRIPS <= n; i += STRIPS)                                  \
            for (int s = 0; s < STRIPS; s++) {                                \
                const double v = V(at + (i + s) * (ALONG));                   \
                strips[s] = OPERATION(strips[s], v);                          \
            }                                                                 \
        for (; i < n; i++) {                                                  \
            const double v = V(at + i * (ALONG));                             \
            strips[0] = OPERATION(strips[0], v);                              \
        }                                                                     \
        double total = sums[b].real;                                          \
        for (int s = 0; s < STRIPS; s++) total = OPERATION(total, strips[s]); \
        sums[b].real = total;                                                 \
    }
// The same where neighbours in the result lie side by side: all of them, one element after another.
#define APPLY_ACROSS(TYPE, V, OPERATION)                              \
    {                                                                 \
        double totals[BLOCK];                                         \
        for (int64_t b = 0; b < width; b++) totals[b] = sums[b].real; \
        for (int64_t i = 0; i < n; i++) {                             \
            const char *at = from + i * along;                        \
            for (int64_t b = 0; b < width; b++) {                     \
                const double v = V(at + b * (int64_t)sizeof(TYPE));   \
                totals[b] = OPERATION(totals[b], v);                  \
            }                                                         \
        }                                                             \
        for (int64_t b = 0; b < width; b++) sums[b].real = totals[b]; \
    }
#define APPLY_EITHER(TYPE, V, OPERATION)                \
    if (across == (int64_t)sizeof(TYPE) && width > 1) { \
        APPLY_ACROSS(TYPE, V, OPERATION)                \
    } else if (along == (int64_t)sizeof(TYPE)) {        \
        APPLY(V, OPERATION, (int64_t)sizeof(TYPE))      \
    } else {                                            \
        APPLY(V, OPERATION, along)                      \
    }
// Extremes of numbers side by side, without making them wider.
#define REAL_EXTREME(TYPE, V, OPERATION)                                                          \
    if (along == (int64_t)sizeof(TYPE) && n >= EXTREME_STRIPS) {                                  \
        for (int64_t b = 0; b < width; b++) {                                                     \
            const TYPE *at = (const TYPE *)(from + b * across);                                   \
            TYPE strips[EXTREME_STRIPS];                                                          \
            memcpy(strips, at, sizeof(strips));                                                   \
            int64_t i = EXTREME_STRIPS;                                                           \
            for (; i + EXTREME_STRIPS <= n; i += EXTREME_STRIPS)                                  \
                for (int s = 0; s < EXTREME_STRIPS; s++) {                                        \
                    const TYPE v = at[i + s], t = strips[s];                                      \
                    strips[s] = OPERATION(t, v);                                                  \
                }                                                                                 \
            for (; i < n; i++) strips[0] = OPERATION(strips[0], at[i]);                           \
            double total = sums[b].real;                                                          \
            for (int s = 0; s < EXTREME_STRIPS; s++) total = OPERATION(total, (double)strips[s]); \
            sums[b].real = total;                                                                 \
        }                                                                                         \
    } else                                                                                        \
        APPLY_EITHER(TYPE, V, OPERATION)
#define PLUS(a, b) ((a) + (b))
#define TIMES(a, b) ((a) * (b))

// Integers wrap around: sums and products are computed without signs.
#define WHOLE_PLUS(a, b) ((int64_t)((uint64_t)(a) + (uint64_t)(b)))
#define WHOLE_TIMES(a, b) ((int64_t)((uint64_t)(a) * (uint64_t)(b)))
// In one loop, for which order does not matter: gcc 12 makes wrong code of strips of bytes.
#define FOLD_WHOLE(V, OPERATION, ALONG)        \
    for (int64_t i = 0; i < n; i++) {          \
        const int64_t v = V(at + i * (ALONG)); \
        total = OPERATION(total, v);           \
    }
#define WHOLE_ACROSS(TYPE, V, OPERATION)                               \
    {                                                                  \
        int64_t totals[BLOCK];                                         \
        for (int64_t b = 0; b < width; b++) totals[b] = sums[b].whole; \
        for (int64_t i = 0; i < n; i++) {                              \
            const char *at = from + i * along;                         \
            for (int64_t b = 0; b < width; b++) {                      \
                const int64_t v = V(at + b * (int64_t)sizeof(TYPE));   \
                totals[b] = OPERATION(totals[b], v);                   \
            }                                                          \
        }                                                              \
        for (int64_t b = 0; b < width; b++) sums[b].whole = totals[b]; \
    }
// Extremes need no wider numbers.
#define EXTREME(TYPE, OPERATION)                                                             \
    for (int64_t b = 0; b < width; b++) {                                                    \
        const char *at = from + b * across;                                                  \
        TYPE total = *(const TYPE *)at;                                                      \
        if (along == (int64_t)sizeof(TYPE))                                                  \
            for (int64_t i = 0; i < n; i++) total = OPERATION(total, ((const TYPE *)at)[i]); \
        else                                                                                 \
            for (int64_t i = 0; i < n; i++)                                                  \
                total = OPERATION(total, *(const TYPE *)(at + i * along));                   \
        sums[b].whole = OPERATION(sums[b].whole, (int64_t)total);                            \
    }
#define EXTREME_ACROSS(TYPE, OPERATION)                                                  \
    {                                                                                    \
        TYPE totals[BLOCK];                                                              \
        memcpy(totals, from, (size_t)width * sizeof(TYPE));                              \
        for (int64_t i = 1; i < n; i++) {                                                \
            const TYPE *at = (const TYPE *)(from + i * along);                           \
            for (int64_t b = 0; b < width; b++) totals[b] = OPERATION(totals[b], at[b]); \
        }                                                                                \
        for (int64_t b = 0; b < width; b++)                                              \
            sums[b].whole = OPERATION(sums[b].whole, (int64_t)totals[b]);                \
    }
#define EXTREME_EITHER(TYPE, OPERATION)               \
    if (across == (int64_t)sizeof(TYPE) && width > 1) \
        EXTREME_ACROSS(TYPE, OPERATION)               \
    else                                              \
        EXTREME(TYPE, OPERATION)
#define WHOLE_EITHER(TYPE, V, OPERATION)              \
    if (across == (int64_t)sizeof(TYPE) && width > 1) \
        WHOLE_ACROSS(TYPE, V, OPERATION)              \
    else                                              \
        APPLY_WHOLE(TYPE, V, OPERATION)
#define APPLY_WHOLE(TYPE, V, OPERATION)                     \
    for (int64_t b = 0; b < width; b++) {                   \
        const char *at = from + b * across;                 \
        int64_t total = sums[b].whole;                      \
        if (along == (int64_t)sizeof(TYPE)) {               \
            FOLD_WHOLE(V, OPERATION, (int64_t)sizeof(TYPE)) \
        } else {                                            \
            FOLD_WHOLE(V, OPERATION, along)                 \
        }                                                   \
        sums[b].whole = total;                              \
    }

#endif
