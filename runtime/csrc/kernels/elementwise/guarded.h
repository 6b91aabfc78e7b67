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

#define TYPE float
#include "guarded_loops.h"
#define TYPE double
#include "guarded_loops.h"

#define GUARDED_LOOP(NAME, FORM, TYPE)                                                       \
    static void NAME(                                                                        \
        char *out, char *const *in, const int64_t *steps, int64_t n, const double *p) {      \
        (void)p;                                                                             \
        guarded_##FORM##_##TYPE(out, in, steps, n, NAME##_usual, NAME##_fast, NAME##_exact); \
    }
#define GUARDED_UNARY(NAME, TYPE, COST, USUAL, FAST, EXACT)   \
    INLINE bool NAME##_usual(TYPE x) { return USUAL; }        \
    INLINE TYPE NAME##_fast(TYPE x) { return (TYPE)(FAST); }  \
    static inline TYPE NAME##_exact(TYPE x) { return EXACT; } \
    GUARDED_LOOP(NAME, unary, TYPE)                           \
    PREPARE(NAME, 1, COST, DTYPE_OF(TYPE), DTYPE_OF(TYPE))
#define GUARDED_BINARY(NAME, TYPE, COST, USUAL, FAST, EXACT)          \
    INLINE bool NAME##_usual(TYPE a, TYPE b) { return USUAL; }        \
    INLINE TYPE NAME##_fast(TYPE a, TYPE b) { return (TYPE)(FAST); }  \
    static inline TYPE NAME##_exact(TYPE a, TYPE b) { return EXACT; } \
    GUARDED_LOOP(NAME, binary, TYPE)                                  \
    PREPARE(NAME, 2, COST, DTYPE_OF(TYPE), DTYPE_OF(TYPE))

#endif
