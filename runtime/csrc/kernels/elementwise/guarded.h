// Maps by functions that are for usual operands only; the C library has the others.  What an element
// becomes depends on nothing else.
#ifndef POPC_GUARDED_H
#define POPC_GUARDED_H

#include "../support/elements.h"
#include "loops.h"
#include "../support/wide.h"

enum { GUARDED = 128 };  // elements that are looked at together

#define INTEGER_AS_WIDE_AS(TYPE) \
    __typeof__(_Generic((TYPE){0}, float: (int32_t)0, double: (int64_t)0))

// Whole blocks are computed, whatever the rest of the last one is.
#define GUARDED_UNARY(NAME, TYPE, COST, USUAL, FAST, EXACT)                                       \
    static void NAME(                                                                             \
        char *out, char *const *in, const int64_t *steps, int64_t n, const double *p) {           \
        (void)p;                                                                                  \
        TYPE xs[GUARDED] = {0}, ys[GUARDED];                                                      \
        for (int64_t begin = 0; begin < n; begin += GUARDED) {                                    \
            const int64_t count = n - begin < GUARDED ? n - begin : GUARDED, size = sizeof(TYPE); \
            copy_elements((char *)xs, size, in[0] + begin * steps[1], steps[1], count, size);     \
            INTEGER_AS_WIDE_AS(TYPE) unusual = 0;                                                 \
            for (int64_t i = 0; i < GUARDED; i++) {                                               \
                const TYPE x = xs[i];                                                             \
                unusual |= !(USUAL);                                                              \
                ys[i] = (TYPE)(FAST);                                                             \
            }                                                                                     \
            for (int64_t i = 0; unusual && i < count; i++) {                                      \
                const TYPE x = xs[i];                                                             \
                if (!(USUAL)) ys[i] = EXACT;                                                      \
            }                                                                                     \
            copy_elements(out + begin * steps[0], steps[0], (const char *)ys, size, count, size); \
        }                                                                                         \
    }                                                                                             \
    PREPARE(NAME, 1, COST, DTYPE_OF(TYPE), DTYPE_OF(TYPE))

#define GUARDED_BINARY(NAME, TYPE, COST, USUAL, FAST, EXACT)                                      \
    static void NAME(                                                                             \
        char *out, char *const *in, const int64_t *steps, int64_t n, const double *p) {           \
        (void)p;                                                                                  \
        TYPE as[GUARDED] = {0}, bs[GUARDED] = {0}, ys[GUARDED];                                   \
        for (int64_t begin = 0; begin < n; begin += GUARDED) {                                    \
            const int64_t count = n - begin < GUARDED ? n - begin : GUARDED, size = sizeof(TYPE); \
            copy_elements((char *)as, size, in[0] + begin * steps[1], steps[1], count, size);     \
            copy_elements((char *)bs, size, in[1] + begin * steps[2], steps[2], count, size);     \
            INTEGER_AS_WIDE_AS(TYPE) unusual = 0;                                                 \
            for (int64_t i = 0; i < GUARDED; i++) {                                               \
                const TYPE a = as[i], b = bs[i];                                                  \
                unusual |= !(USUAL);                                                              \
                ys[i] = (TYPE)(FAST);                                                             \
            }                                                                                     \
            for (int64_t i = 0; unusual && i < count; i++) {                                      \
                const TYPE a = as[i], b = bs[i];                                                  \
                if (!(USUAL)) ys[i] = EXACT;                                                      \
            }                                                                                     \
            copy_elements(out + begin * steps[0], steps[0], (const char *)ys, size, count, size); \
        }                                                                                         \
    }                                                                                             \
    PREPARE(NAME, 2, COST, DTYPE_OF(TYPE), DTYPE_OF(TYPE))

#endif
