// What loops of reductions put together: elements `n` times `along` bytes apart, for each of `width`
// neighbours in the result, which lie `across` bytes apart, from `from` on.
#ifndef POPC_FOLDS_H
#define POPC_FOLDS_H

#include <math.h>

#include "../norm/row_sums.h"
#include "../support/extremes.h"
#include "../support/simd.h"
#include "../support/wide.h"

// Neighbours in the result that are reduced together, whose totals are 2 KiB of doubles; chains of a
// sum: two vectors of doubles with AVX2; and chains of an extreme of floats: eight vectors.
enum { BLOCK = 256, STRIPS = 8, EXTREME_STRIPS = 64 };

typedef union {
    double real;
    int64_t whole;
} Value;

// As plain arrays: compilers make no vectors of unions.
INLINE double *reals_of(Value *values) { return &values->real; }
INLINE int64_t *wholes_of(Value *values) { return &values->whole; }

typedef struct {
    const char *from;
    int64_t width, n, along, across;
    const Value *shifts;  // what exponents are less, for each neighbour; of those only
    Value *sums;
} Fold;

// Each is a constant wherever a loop is given it: nothing is called.
typedef double (*RealOf)(const char *from, const Fold *fold, int64_t neighbour);
typedef double (*RealStep)(double total, double value);
typedef int64_t (*WholeOf)(const char *from);
typedef int64_t (*WholeStep)(int64_t total, int64_t value);

INLINE double real_plus(double a, double b) { return a + b; }
INLINE double times(double a, double b) { return a * b; }
INLINE double lesser_real(double a, double b) { return LESSER(a, b); }
INLINE double larger_real(double a, double b) { return LARGER(a, b); }

// Integers wrap around: sums and products are computed without signs.
INLINE int64_t whole_plus(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
INLINE int64_t whole_times(int64_t a, int64_t b) { return (int64_t)((uint64_t)a * (uint64_t)b); }
INLINE int64_t lesser_whole(int64_t a, int64_t b) { return LESSER(a, b); }
INLINE int64_t larger_whole(int64_t a, int64_t b) { return LARGER(a, b); }

// e**x: for numbers that are not far above zero.
static inline double exp_of(double x) {
    const double value = wide_exp(x < -700 ? -700 : x > 700 ? 700 : x);
    return x < -700 ? 0 : x > 700 ? (double)INFINITY : value;
}

#endif
