// Elementary functions of floats, without branches, so that loops over them become vector code.
// Polynomials: Cephes (exp, log, asin, atan), and minimax fits.
//
// The largest errors in units in the last place, found with AVX2 against the C library's doubles on
// every 97th float whose result is normal: exp 1.03, log 0.78, tanh 4.3, sigmoid 2.3, softplus 1.6,
// erf 1.02, sine and cosine 1.5, asin 2.3, acos 1.1, atan 2.7.  The normal distribution is off by 12
// above -5, and by 66 far out, where it is below 1e-28: its exponent is rounded before it is taken.
#ifndef POPC_MATH_H
#define POPC_MATH_H

#include <math.h>

#include "bits.h"

// x, or `high` > 0 where x is larger; an undefined x becomes either.  Minima of integers, which order
// floats of one sign: comparisons of floats that follow each other become many masks.
static inline float at_most(float high, float x) {
    const int32_t a = as_bits(x), b = as_bits(high);
    return as_float(a < b ? a : b);
}

// x, or `low` < 0 where x is smaller; the same of what is undefined.
static inline float at_least(float low, float x) {
    const uint32_t a = (uint32_t)as_bits(x), b = (uint32_t)as_bits(low);
    return as_float((int32_t)(a < b ? a : b));
}

// e**x = p 2**n where |ln p| <= ln 2 / 2: gives p, by a polynomial of degree 7, and n.  `bounded` is x
// between the bounds of n.
static inline float exp_parts(float x, float bounded, int32_t *n) {
    const float shift = 12582912.0f;  // 1.5 * 2**23: what is added to it is rounded to an integer
    const float shifted = bounded * 1.44269504088896341f + shift;
    const float whole = shifted - shift;
    float r = x - whole * 0.693359375f;
    r = r - whole * -2.12194440e-4f;
    const float square = r * r;  // terms in pairs: a chain of all of them is what loops wait for
    const float high = 1.9875691500e-4f * r + 1.3981999507e-3f;
    const float middle = 8.3334519073e-3f * r + 4.1665795894e-2f;
    const float low = 1.6666665459e-1f * r + 5.0000001201e-1f;
    const float p = (high * square + middle) * square + low;
    *n = as_bits(shifted) - as_bits(shift);
    return p * square + r + 1.0f;
}

// 2**n; anything for the n that NaN has.
static inline float power_of_two(int32_t n) {
    return as_float((int32_t)((uint32_t)(n + 127) << 23));
}

// e**x; 2**n in two steps, so that results that are subnormal are right.
static inline float fast_exp(float x) {
    int32_t n;
    const float p = exp_parts(x, at_most(89.0f, at_least(-104.0f, x)), &n);
    const int32_t half = n >> 1;
    const float result = p * power_of_two(half) * power_of_two(n - half);
    return x < -104.0f ? 0.0f : result;
}

// e**x for x <= 0 and NaN: 0 where it would be less than 2e-38.
static inline float exp_below(float x) {
    int32_t n;
    const float p = exp_parts(x, at_least(-87.0f, x), &n);
    const float result = p * power_of_two(n);
    return x < -87.0f ? 0.0f : result;
}

// ln((1 + r) 2**n) where sqrt(1/2) <= 1 + r < sqrt(2).  Sums of two products name the one that is
// not rounded: left to the compiler, it is one in vectors and the other in what they leave over.
static inline float log_of_parts(float r, float n) {
    const float z = r * r;
    float p = 7.0376836292e-2f;
    p = p * r + -1.1514610310e-1f;
    p = p * r + 1.1676998740e-1f;
    p = p * r + -1.2420140846e-1f;
    p = p * r + 1.4249322787e-1f;
    p = p * r + -1.6668057665e-1f;
    p = p * r + 2.0000714765e-1f;
    p = p * r + -2.4999993993e-1f;
    p = p * r + 3.3333331174e-1f;
    const float y = __builtin_fmaf(-0.5f, z, __builtin_fmaf(n, -2.12194440e-4f, p * r * z));
    return __builtin_fmaf(n, 0.693359375f, r + y);
}

static inline float fast_log(float x) {
    const float scaled = x < 1.17549435e-38f ? x * 8388608.0f : x;
    const float shift = x < 1.17549435e-38f ? -23.0f : 0.0f;
    const int32_t bits = as_bits(scaled);
    const int32_t exponent = (bits >> 23) - 126;
    const float m = as_float((bits & 0x007fffff) | 0x3f000000);
    const int32_t low = m < 0.707106781186547524f;
    float result = log_of_parts((low ? m + m : m) - 1.0f, (float)(exponent - low) + shift);
    result = x == INFINITY ? x : result;
    result = x == 0 ? -INFINITY : result;
    return x < 0 || x != x ? NAN : result;
}

// ln(1 + x) for 0 <= x <= 1 and NaN.
static inline float log_above_one(float x) {
    const int32_t high = x > 0.414213562373095049f;
    return log_of_parts(high ? 0.5f * x - 0.5f : x, (float)high);
}

// tanh x as a rational function of degree 13 by 6 (coefficients: Eigen); beyond 7.9 it is 1.
static inline float fast_tanh(float x) {
    const float c = at_least(-7.90531110763549805f, at_most(7.90531110763549805f, x));
    float z = c * c;
    float p = -2.76076847742355e-16f;
    p = p * z + 2.00018790482477e-13f;
    p = p * z + -8.60467152213735e-11f;
    p = p * z + 5.12229709037114e-08f;
    p = p * z + 1.48572235717979e-05f;
    p = p * z + 6.37261928875436e-04f;
    p = p * z + 4.89352455891786e-03f;
    float q = 1.19825839466702e-06f;
    q = q * z + 1.18534705686654e-04f;
    q = q * z + 2.26843463243900e-03f;
    q = q * z + 4.89352518554385e-03f;
    float result = c * p / q;
    return __builtin_fabsf(x) >= 4e-4f ? result : x;  // also of NaN
}

// 1 / (1 + e**-x).  Where e**-x is beyond all floats, 2**n is infinite, and the result 0.
static inline float fast_sigmoid(float x) {
    int32_t n;
    const float minus = -87.0f > -x ? -87.0f : -x;  // and NaN stays: one instruction
    const float p = exp_parts(minus, at_most(89.0f, minus), &n);
    return 1.0f / (1.0f + p * power_of_two(n));
}

// ln(1 + e**x)
static inline float fast_softplus(float x) {
    return (x > 0 ? x : 0) + log_above_one(exp_below(-__builtin_fabsf(x)));
}

// erf x: by two polynomials, one of them in the exponent (Juffa).
static inline float fast_erf(float x) {
    const float size = __builtin_fabsf(x), square = x * x;
    float near = -5.96761703e-4f;
    near = near * square + 4.99119423e-3f;
    near = near * square + -2.67681349e-2f;
    near = near * square + 1.12819925e-1f;
    near = near * square + -3.76125336e-1f;
    near = near * square + 1.28379166e-1f;
    const float t = at_most(4.0f, size);
    float far = -1.72853470e-5f;
    far = far * t + 3.83197126e-4f;
    far = far * t + -3.88396438e-3f;
    far = far * t + 2.42546219e-2f;
    far = far * t + -1.06777877e-1f;
    far = far * t + -6.34846687e-1f;
    far = far * t + -1.28717512e-1f;
    far = __builtin_copysignf(1.0f - exp_below(far * t - t), x);
    return size > 0.927734375f ? far : near * x + x;
}

// The normal distribution function, accurate also where it is small: its density times a rational
// function, which is within 5e-9 of their quotient up to 13, where the density vanishes.
static inline float fast_normal(float x) {
    const float size = at_most(14.0f, __builtin_fabsf(x));
    const float square = size * size;
    const float p = (0.0040201675f * square + (0.0399840312f * size + 0.1813063616f)) * square +
                    (0.4356858154f * size + 0.5f);
    const float q =
        ((0.0100769222f * size + 0.1002324845f) * square + (0.4643792781f * size + 1.1944826166f)) *
            square +
        (1.6692565497f * size + 1.0f);
    const float half = exp_below(-0.5f * square) * (p / q);
    const float result = x < 0 ? half : 1.0f - half;
    return x != x ? x : result;
}

// Less of pi / 2 by multiples, for |x| < 2**15; and how many, in the low bits.
static inline float less_turns(float x, int32_t *turns) {
    const float shift = 12582912.0f, shifted = __builtin_fmaf(x, 0.636619772f, shift);
    const float n = shifted - shift;
    *turns = as_bits(shifted);
    const float r = __builtin_fmaf(n, -1.57079637050628662f, x);
    return __builtin_fmaf(n, 1.71512451e-15f, __builtin_fmaf(n, 4.37113900018624283e-8f, r));
}

// Sine of r and a number of quarters, |r| <= pi / 4.
static inline float sine_of(float r, int32_t turns) {
    const float z = r * r;
    float s = 2.75573192e-6f, c = -2.75573192e-7f;
    s = s * z + -1.98412698e-4f;
    s = s * z + 8.33333333e-3f;
    s = s * z + -1.66666667e-1f;
    c = c * z + 2.48015873e-5f;
    c = c * z + -1.38888889e-3f;
    c = c * z + 4.16666667e-2f;
    c = c * z + -0.5f;
    const float value = turns & 1 ? c * z + 1.0f : s * z * r + r;
    return as_float(as_bits(value) ^ (int32_t)((uint32_t)(turns & 2) << 30));
}

// |x| < 2**15
static inline float fast_sin(float x) {
    int32_t turns;
    const float r = less_turns(x, &turns);
    return sine_of(r, turns);
}

static inline float fast_cos(float x) {
    int32_t turns;
    const float r = less_turns(x, &turns);
    return sine_of(r, turns + 1);
}

// Arcus sine of r, where z = r * r and |r| <= 1 / 2 (Cephes, as what follows).
static inline float sine_arc(float r, float z) {
    float p = 4.2163199048e-2f;
    p = p * z + 2.4181311049e-2f;
    p = p * z + 4.5470025998e-2f;
    p = p * z + 7.4953002686e-2f;
    p = p * z + 1.6666752422e-1f;
    return p * z * r + r;
}

// |x| <= 1
static inline float fast_asin(float x) {
    const float size = __builtin_fabsf(x), half = 0.5f * (1 - size);
    const bool large = size > 0.5f;
    const float z = large ? half : size * size;
    const float arc = sine_arc(large ? __builtin_sqrtf(half) : size, z);
    const float result = large ? 1.57079637f - (2 * arc + 4.37113883e-8f) : arc;
    return __builtin_copysignf(result, x);
}

static inline float fast_acos(float x) {
    const float size = __builtin_fabsf(x), half = 0.5f * (1 - size);
    const bool large = size > 0.5f;
    const float z = large ? half : size * size;
    const float arc = sine_arc(large ? __builtin_sqrtf(half) : x, z);
    const float far = x < 0 ? 3.14159274f - (2 * arc + 8.74227766e-8f) : 2 * arc;
    return large ? far : 1.57079637f - (arc + 4.37113883e-8f);
}

// Of y / x for y >= 0 and x >= 0, not both of them 0.
static inline float arc_of(float y, float x) {
    const bool steep = y > 2.414213562373095f * x, middle = !steep && y > 0.4142135623730950f * x;
    const float above = steep ? -x : middle ? y - x : y, below = steep ? y : middle ? y + x : x;
    const float t = above / below, z = t * t;
    float p = 8.05374449538e-2f;
    p = p * z + -1.38776856032e-1f;
    p = p * z + 1.99777106478e-1f;
    p = p * z + -3.33329491539e-1f;
    return (steep ? 1.57079637f : middle ? 0.785398185f : 0) + (p * z * t + t);
}

static inline float fast_atan(float x) {
    return __builtin_copysignf(arc_of(__builtin_fabsf(x), 1), x);
}

static inline float fast_atan2(float y, float x) {
    const float angle = arc_of(__builtin_fabsf(y), __builtin_fabsf(x));
    return __builtin_copysignf(x < 0 ? 3.14159274f - (angle + 8.74227766e-8f) : angle, y);
}

#endif
