// Elementary functions of doubles, without branches, so that loops over them become vector code.  For
// usual operands only, which a macro beside each function tells; `guarded.h` leaves others to the C
// library.  Polynomials: Taylor, and Cephes (atan).
//
// The largest errors in units in the last place, of two million operands each against the C library's
// long doubles: exp 1.0, log and log1p 0.8, atan 1.2, sine, cosine and cosh 1.5, asinh 1.7, acosh and
// expm1 1.8, atanh 2.0, acos 2.1, sinh 2.2, asin 2.4, tanh 2.5, tan 2.9.
#ifndef POPC_WIDE_H
#define POPC_WIDE_H

#include <math.h>

#include "bits.h"

// 1.5 * 2**52: what is added to it is rounded to an integer, which the low bits of the sum hold.
#define WIDE_SHIFT 6755399441055744.0

// 2**n of the integer n in the low bits of such a sum.  Unsigned: of sums out of range this is computed,
// too, and not used.
static inline double wide_power_of_two(double shifted) {
    const uint64_t exponent = (uint64_t)as_wide_bits(shifted) << 52;
    return as_double((int64_t)(exponent + (uint64_t)as_wide_bits(1.0)));
}

#define TERM(P, X, C) (P) = __builtin_fma(P, X, C)

// e**x = (1 + p) 2**n where |ln (1 + p)| <= ln 2 / 2: gives p and 2**n, for |x| < 700.
static inline double wide_exp_parts(double x, double *power) {
    const double shifted = __builtin_fma(x, 1.4426950408889634, WIDE_SHIFT);
    const double n = shifted - WIDE_SHIFT;
    double r = __builtin_fma(n, -0x1.62e42fefa39efp-1, x);
    r = __builtin_fma(n, -0x1.abc9e3b39803fp-56, r);
    double p = 1.0 / 6227020800.0;
    TERM(p, r, 1.0 / 479001600.0);
    TERM(p, r, 1.0 / 39916800.0);
    TERM(p, r, 1.0 / 3628800.0);
    TERM(p, r, 1.0 / 362880.0);
    TERM(p, r, 1.0 / 40320.0);
    TERM(p, r, 1.0 / 5040.0);
    TERM(p, r, 1.0 / 720.0);
    TERM(p, r, 1.0 / 120.0);
    TERM(p, r, 1.0 / 24.0);
    TERM(p, r, 1.0 / 6.0);
    TERM(p, r, 0.5);
    *power = wide_power_of_two(shifted);
    return __builtin_fma(p * r, r, r);
}

// |x| < 700
static inline double wide_exp(double x) {
    double power;
    const double p = wide_exp_parts(x, &power);
    return __builtin_fma(p, power, power);
}

static inline double wide_expm1(double x) {
    double power;
    const double p = wide_exp_parts(x, &power);
    return __builtin_fma(p, power, power - 1);
}

static inline double wide_sinh(double x) {
    const double e = wide_expm1(__builtin_fabs(x));
    return __builtin_copysign(0.5 * (e + e / (e + 1)), x);
}

static inline double wide_cosh(double x) {
    const double e = wide_exp(__builtin_fabs(x));
    return 0.5 * (e + 1 / e);
}

static inline double wide_tanh(double x) {
    const double size = __builtin_fabs(x);
    const double e = wide_expm1(-2 * (size < 30 ? size : 30));
    return __builtin_copysign(e / (e + 2), x);
}

// x = (1 + f) 2**n for normal x > 0, where 1 + f is between the roots of 1 / 2 and 2: gives f and n.
static inline double wide_log_parts(double x, double *n) {
    const int64_t bits = as_wide_bits(x), least = 0x3fe6a09e00000000;  // about the root of 1 / 2
    const uint64_t moved = (uint64_t)(bits - least) + ((uint64_t)1024 << 52);
    *n = as_double((int64_t)(moved >> 52 | (uint64_t)0x433 << 52)) - (0x1p52 + 1024);
    return as_double((int64_t)((moved & 0xfffffffffffff) + (uint64_t)least)) - 1;
}

// ln x for normal x > 0; `missing` is what x lacks, relative to it.
static inline double wide_log_of(double x, double missing) {
    double n;
    const double f = wide_log_parts(x, &n), s = f / (2 + f), z = s * s;
    double p = 1.0 / 23;
    TERM(p, z, 1.0 / 21);
    TERM(p, z, 1.0 / 19);
    TERM(p, z, 1.0 / 17);
    TERM(p, z, 1.0 / 15);
    TERM(p, z, 1.0 / 13);
    TERM(p, z, 1.0 / 11);
    TERM(p, z, 1.0 / 9);
    TERM(p, z, 1.0 / 7);
    TERM(p, z, 1.0 / 5);
    TERM(p, z, 1.0 / 3);
    // f - s (f - 2 z p) is exact in its largest part.
    const double low = __builtin_fma(n, 0x1.abc9e3b39803fp-56, missing);
    return __builtin_fma(n, 0x1.62e42fefa39efp-1, f - (s * (f - 2 * z * p) - low));
}

static inline double wide_log(double x) { return wide_log_of(x, 0); }

// x > -1
static inline double wide_log1p(double x) {
    const double sum = 1 + x, large = x > 1 ? x : 1, small = x > 1 ? 1 : x;
    return wide_log_of(sum, (small - (sum - large)) / sum);
}

static inline double wide_asinh(double x) {
    const double size = __builtin_fabs(x), square = size * size;
    return __builtin_copysign(wide_log1p(size + square / (1 + __builtin_sqrt(1 + square))), x);
}

static inline double wide_acosh(double x) {
    const double t = x - 1;
    return wide_log1p(t + __builtin_sqrt(t * (t + 2)));
}

static inline double wide_atanh(double x) {
    const double size = __builtin_fabs(x);
    return __builtin_copysign(0.5 * wide_log1p(2 * size / (1 - size)), x);
}

// a ** b for normal a > 0, which becomes a float: infinite or 0 where that would be.  Logarithm and power
// of two have half of the terms that doubles need.
static inline double wide_pow(double a, double b) {
    double n;
    const double f = wide_log_parts(a, &n), s = f / (2 + f), z = s * s;
    double p = 2.0 / 13;
    TERM(p, z, 2.0 / 11);
    TERM(p, z, 2.0 / 9);
    TERM(p, z, 2.0 / 7);
    TERM(p, z, 2.0 / 5);
    TERM(p, z, 2.0 / 3);
    const double log = __builtin_fma(p * z, s, 2 * s);
    const double power = b * __builtin_fma(log, 1.4426950408889634, n);
    const double bounded = power > 400 ? 400 : power < -400 ? -400 : power;
    const double shifted = bounded + WIDE_SHIFT, r = (bounded - (shifted - WIDE_SHIFT)) * M_LN2;
    double e = 1.0 / 40320.0;
    TERM(e, r, 1.0 / 5040.0);
    TERM(e, r, 1.0 / 720.0);
    TERM(e, r, 1.0 / 120.0);
    TERM(e, r, 1.0 / 24.0);
    TERM(e, r, 1.0 / 6.0);
    TERM(e, r, 0.5);
    TERM(e, r, 1.0);
    TERM(e, r, 1.0);
    return e * wide_power_of_two(shifted);
}

// Less of pi / 2 by multiples: the rest, and what the sum of multiple and WIDE_SHIFT has.
static inline double wide_turn(double x, int64_t *turns) {
    const double shifted = __builtin_fma(x, 0.6366197723675814, WIDE_SHIFT);
    const double n = shifted - WIDE_SHIFT;
    *turns = as_wide_bits(shifted);
    const double r = __builtin_fma(n, -0x1.921fb54442d18p0, x);
    return __builtin_fma(n, -0x1.1a62633145c07p-54, r);
}

// Sine and cosine where |x| <= pi / 4.
static inline double wide_sine_of(double r) {
    const double z = r * r;
    double p = 1.0 / 355687428096000.0;
    TERM(p, z, -1.0 / 1307674368000.0);
    TERM(p, z, 1.0 / 6227020800.0);
    TERM(p, z, -1.0 / 39916800.0);
    TERM(p, z, 1.0 / 362880.0);
    TERM(p, z, -1.0 / 5040.0);
    TERM(p, z, 1.0 / 120.0);
    TERM(p, z, -1.0 / 6.0);
    return __builtin_fma(p * z, r, r);
}

static inline double wide_cosine_of(double r) {
    const double z = r * r;
    double p = 1.0 / 20922789888000.0;
    TERM(p, z, -1.0 / 87178291200.0);
    TERM(p, z, 1.0 / 479001600.0);
    TERM(p, z, -1.0 / 3628800.0);
    TERM(p, z, 1.0 / 40320.0);
    TERM(p, z, -1.0 / 720.0);
    TERM(p, z, 1.0 / 24.0);
    TERM(p, z, -0.5);
    return __builtin_fma(p, z, 1.0);
}

// That of the quarter that is `turns` mod 4.
static inline double wide_quarter(double r, int64_t turns) {
    const double sine = wide_sine_of(r), cosine = wide_cosine_of(r);
    const double value = turns & 1 ? cosine : sine;
    return turns & 2 ? -value : value;
}

// |x| < 2**20
static inline double wide_sin(double x) {
    int64_t turns;
    const double r = wide_turn(x, &turns);
    return wide_quarter(r, turns);
}

static inline double wide_cos(double x) {
    int64_t turns;
    const double r = wide_turn(x, &turns);
    return wide_quarter(r, turns + 1);
}

static inline double wide_tan(double x) {
    int64_t turns;
    const double r = wide_turn(x, &turns);
    return wide_quarter(r, turns) / wide_quarter(r, turns + 1);
}

// Of y / x for y >= 0 and x >= 0, not both of them 0.
static inline double wide_atan_of(double y, double x) {
    const bool steep = y > 2.414213562373095 * x, middle = !steep && y > 0.66 * x;
    const double above = steep ? -x : middle ? y - x : y, below = steep ? y : middle ? y + x : x;
    const double t = above / below, z = t * t;
    const double start = steep ? M_PI_2 : middle ? M_PI_4 : 0;
    double p = -8.750608600031904122785e-1, q = z + 2.485846490142306297962e1;
    TERM(p, z, -1.615753718733365076637e1);
    TERM(p, z, -7.500855792314704667340e1);
    TERM(p, z, -1.228866684490136173410e2);
    TERM(p, z, -6.485021904942025371773e1);
    TERM(q, z, 1.650270098316988542046e2);
    TERM(q, z, 4.328810604912902668951e2);
    TERM(q, z, 4.853903996359136964868e2);
    TERM(q, z, 1.945506571482613964425e2);
    return start + __builtin_fma(t, z * p / q, t);
}

static inline double wide_atan(double x) {
    return __builtin_copysign(wide_atan_of(__builtin_fabs(x), 1), x);
}

static inline double wide_atan2(double y, double x) {
    const double angle = wide_atan_of(__builtin_fabs(y), __builtin_fabs(x));
    return __builtin_copysign(x < 0 ? M_PI - angle : angle, y);
}

// |x| <= 1
static inline double wide_asin(double x) {
    return __builtin_copysign(
        wide_atan_of(__builtin_fabs(x), __builtin_sqrt((1 - x) * (1 + x))), x);
}

static inline double wide_acos(double x) {
    const double angle = wide_atan_of(__builtin_sqrt((1 - x) * (1 + x)), __builtin_fabs(x));
    return x < 0 ? M_PI - angle : angle;
}

#endif
