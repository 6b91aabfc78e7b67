// Elementary functions of floats, without branches, so that loops over them become vector code.
// Errors are a few units in the last place.  Polynomials: Cephes (exp, log), and minimax fits.
#ifndef POPC_MATH_H
#define POPC_MATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline float as_float(int32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static inline int32_t as_bits(float value) {
    int32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

// e**x: x = n ln 2 + r, |r| <= ln 2 / 2; a polynomial of degree 6 in r; 2**n in two steps, so that
// results that are subnormal are right.
static inline float fast_exp(float x) {
    float clipped = x < 89.0f ? x : 89.0f;  // also of NaN
    clipped = clipped < -104.0f ? -104.0f : clipped;
    float n = __builtin_rintf(clipped * 1.44269504088896341f);
    float r = clipped - n * 0.693359375f;
    r = r - n * -2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    int32_t whole = (int32_t)n;
    int32_t half = whole >> 1;
    float result = p * as_float((half + 127) << 23) * as_float((whole - half + 127) << 23);
    return x != x ? x : result;
}

// e**x for x <= 0 and NaN, for weights that are added up: 0 where it would be less than 2e-38.
static inline float exp_below(float x) {
    float n = __builtin_rintf((x > -87.0f ? x : -87.0f) * 1.44269504088896341f);  // also of NaN
    float r = x - n * 0.693359375f;
    r = r - n * -2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    float result = p * as_float(((int32_t)n + 127) << 23);
    return x < -87.0f ? 0.0f : result;
}

// ln x: x = 2**n m, sqrt(1/2) <= m < sqrt(2).
static inline float fast_log(float x) {
    float scaled = x < 1.17549435e-38f ? x * 8388608.0f : x;
    float shift = x < 1.17549435e-38f ? -23.0f : 0.0f;
    int32_t bits = as_bits(scaled);
    int32_t exponent = (bits >> 23) - 126;
    float m = as_float((bits & 0x007fffff) | 0x3f000000);
    int32_t low = m < 0.707106781186547524f;
    float n = (float)(exponent - low) + shift;
    float r = (low ? m + m : m) - 1.0f;
    float z = r * r;
    float p = 7.0376836292e-2f;
    p = p * r + -1.1514610310e-1f;
    p = p * r + 1.1676998740e-1f;
    p = p * r + -1.2420140846e-1f;
    p = p * r + 1.4249322787e-1f;
    p = p * r + -1.6668057665e-1f;
    p = p * r + 2.0000714765e-1f;
    p = p * r + -2.4999993993e-1f;
    p = p * r + 3.3333331174e-1f;
    float y = p * r * z + n * -2.12194440e-4f - 0.5f * z;
    float result = r + y + n * 0.693359375f;
    result = x == INFINITY ? x : result;
    result = x == 0 ? -INFINITY : result;
    return x < 0 || x != x ? NAN : result;
}

// tanh x as a rational function of degree 13 by 6 (coefficients: Eigen); beyond 7.9 it is 1.
static inline float fast_tanh(float x) {
    float c = x > 7.90531110763549805f ? 7.90531110763549805f : x;
    c = c < -7.90531110763549805f ? -7.90531110763549805f : c;
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
    return __builtin_fabsf(x) < 4e-4f ? x : result;
}

// Sigmoid where an absolute error of 1e-7 is good enough: for gates.
static inline float gate_sigmoid(float x) { return 0.5f + 0.5f * fast_tanh(0.5f * x); }

static inline float fast_sigmoid(float x) {
    float e = fast_exp(-__builtin_fabsf(x));
    float low = e / (1.0f + e);
    float high = 1.0f / (1.0f + e);
    return x < 0 ? low : high;
}

// 1 - erf x for x >= 0, with a relative error below 1.2e-7 before rounding (Numerical Recipes, 6.2).
static inline float fast_erfc(float x) {
    float t = 1.0f / (1.0f + 0.5f * x);
    float p = 0.17087277f;
    p = p * t + -0.82215223f;
    p = p * t + 1.48851587f;
    p = p * t + -1.13520398f;
    p = p * t + 0.27886807f;
    p = p * t + -0.18628806f;
    p = p * t + 0.09678418f;
    p = p * t + 0.37409196f;
    p = p * t + 1.00002368f;
    p = p * t + -1.26551223f;
    float power = p - x * x;
    return t * fast_exp(power > -87.0f ? power : -87.0f);  // subnormal numbers are slow
}

// erf x: near 0 the Taylor series (error below 1e-8 for |x| < 0.9).
static inline float fast_erf(float x) {
    float z = x * x;
    float p = 1.6462114365889246e-6f;
    p = p * z + -1.4925650358406252e-5f;
    p = p * z + 1.2055332981789664e-4f;
    p = p * z + -8.5483270234508528e-4f;
    p = p * z + 5.2239776254421878e-3f;
    p = p * z + -2.6866170645131252e-2f;
    p = p * z + 1.1283791670955126e-1f;
    p = p * z + -3.7612638903183753e-1f;
    p = p * z + 1.1283791670955126f;
    float size = __builtin_fabsf(x);
    float large = __builtin_copysignf(1.0f - fast_erfc(size), x);
    float result = size < 0.9f ? p * x : large;
    return x != x ? x : result;
}

// The normal distribution function, accurate also where it is small.
static inline float fast_normal(float x) {
    float half = 0.5f * fast_erfc(__builtin_fabsf(x) * 0.70710678118654752f);
    float result = x < 0 ? half : 1.0f - half;
    return x != x ? x : result;
}

#endif
