// Floats become bytes: quotients by a scale that are rounded as a division would round them.
#ifndef POPC_BYTE_STEPS_H
#define POPC_BYTE_STEPS_H

#include "../../tensor.h"
#include "products_i8.h"
#include "../support/partial.h"

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

enum { BYTE_HALVES = BYTE_COLUMNS / LANES };

// Quotients up to MOST_STEPS, of two terms of up to twice that, are off by less than DOUBT after six
// roundings.  A float that is added to WHOLE becomes an integer, which the low bits of the sum hold.
#define MOST_STEPS 256.0f
#define DOUBT 0x1p-12f
#define WHOLE 0x1.8p23f

enum { LARGER_SIZE = 0xB };  // of two numbers without their signs

// Products with scales between this and its reciprocal, or with their reciprocals, are rounded once.
#define MOST_SCALE 0x1p60f

typedef int8_t Bytes __attribute__((vector_size(LANES)));

// Rounds floats to multiples of a scale: round(clip(x / scale, low, high)) + zero,
// where x may be multiplied before.
typedef struct {
    float scale;  // 0: there is none
    float inverse;  // 0: quotients are divisions
    float low, high, zero;
    float factor;  // of what is rounded; 1 for none
} Quantizer;

// A number that is rounded before it goes into a sum: compilers make one operation of both.
static inline Floats rounded(Floats values) {
#if defined(__AVX512F__)
    __asm__("" : "+v"(values));
#elif defined(__AVX2__)
    __asm__("" : "+x"(values));
#elif defined(__aarch64__)
    __asm__("" : "+w"(values));
#endif
    return values;
}

// NaN becomes the lower limit.  Compilers do not see that it is one instruction for each limit.
static inline Floats clipped(Floats values, float low, float high) {
#if defined(__AVX512F__)
    const __m512 above = _mm512_max_ps((__m512)values, _mm512_set1_ps(low));
    return (Floats)_mm512_min_ps(_mm512_set1_ps(high), above);
#elif defined(__AVX2__)
    const __m256 above = _mm256_max_ps((__m256)values, _mm256_set1_ps(low));
    return (Floats)_mm256_min_ps(_mm256_set1_ps(high), above);
#else
    const Ints kept = values >= low;
    const Floats above = (Floats)(((Ints)all_of(low) & ~kept) | ((Ints)values & kept));
    const Ints beyond = above > high;
    return (Floats)(((Ints)all_of(high) & beyond) | ((Ints)above & ~beyond));
#endif
}

static inline Floats whole(Floats values) {
#if defined(__clang__)
    return __builtin_elementwise_roundeven(values);
#else
    Floats result;
    for (int lane = 0; lane < LANES; lane++) result[lane] = __builtin_rintf(values[lane]);
    return result;
#endif
}

// a + b * c, rounded once: what is missing to a quotient would be lost otherwise.
static inline Floats plus_product(Floats a, Floats b, Floats c) {
#if defined(__AVX512F__)
    return (Floats)_mm512_fmadd_ps((__m512)b, (__m512)c, (__m512)a);
#elif defined(__FMA__)
    return (Floats)_mm256_fmadd_ps((__m256)b, (__m256)c, (__m256)a);
#elif defined(__aarch64__)
    return (Floats)vfmaq_f32((float32x4_t)a, (float32x4_t)b, (float32x4_t)c);
#else
#error "there is no product and sum in one"
#endif
}

// The low bytes of integers.  gcc moves them one by one where the processor has no such conversion.
static inline Bytes low_bytes(Ints values) {
#if defined(__AVX2__) && !defined(__AVX512F__)
    const __m256i first_bytes = _mm256_setr_epi64x(0x0C080400, 0, 0x0C080400, 0);
    const __m256i low = _mm256_shuffle_epi8((__m256i)values, first_bytes);
    return (Bytes)_mm_cvtsi128_si64(
        _mm_unpacklo_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1)));
#else
    return __builtin_convertvector(values, Bytes);
#endif
}

static inline bool all_true(Mask mask) {
#if defined(__AVX512F__)
    return _mm512_movepi32_mask((__m512i)mask) == 0xFFFF;
#elif defined(__AVX2__)
    return _mm256_movemask_ps((__m256)mask) == 0xFF;
#else
    return (mask[0] & mask[1] & mask[2] & mask[3]) != 0;
#endif
}

// Numbers whose size is less than a limit.
static inline Mask within(Floats values, float limit) {
    return (values < limit) & (values > -limit);
}

// The quotient as a division would round it, to an integer: a product with the reciprocal, and twice
// what is missing.  Operands are clipped rather than quotients; what that changes is rounded away.
static inline Floats steps_of(const Quantizer *by, Floats values) {
    if (by->scale == 1) return whole(clipped(values, by->low, by->high));
    if (by->inverse == 0) return whole(clipped(values / by->scale, by->low, by->high));
    const Floats kept = clipped(values, by->low * by->scale, by->high * by->scale);
    const Floats less = all_of(-by->scale), inverse = all_of(by->inverse);
    Floats quotient = kept * inverse;
    for (int i = 0; i < 2; i++)
        quotient = plus_product(quotient, plus_product(kept, quotient, less), inverse);
    return whole(quotient);
}

// round(clip(scaled / scale, low, high)) + WHOLE, from a quotient that is nearly the exact one.
// `known` loses those that lie so close between two integers that they may be rounded to the other.
static inline Floats near_steps(const Quantizer *by, Floats quotients, Mask *known) {
    const Floats kept = clipped(quotients, by->low, by->high), shifted = kept + WHOLE;
    *known &= within(kept - (shifted - WHOLE), 0.5f - DOUBT);
    return shifted;
}

// The reciprocal of a scale; 0 where what is missing to a quotient might not be a float.
static inline float inverse_of(float scale) {
    return scale > 1 / MOST_SCALE && scale < MOST_SCALE ? 1 / scale : 0;
}

static inline Bytes bytes_of(const Quantizer *by, Floats values) {
    if (by->factor != 1) values = rounded(values * by->factor);
    const Ints steps = __builtin_convertvector(steps_of(by, values) + by->zero, Ints);
    return low_bytes(steps);
}

// The bytes of two vectors of quotients that are nearly exact.  False where one of them lies so close
// between two integers that it may be rounded to the other one.  Packing does what clipping does.
#if defined(__AVX512F__)
static inline bool near_bytes(
    const Quantizer *by, DType type, const Floats *quotients, Bytes *bytes) {
    const __m512 first = (__m512)quotients[0], second = (__m512)quotients[1];
    const __m512i steps[] = {_mm512_cvtps_epi32(first), _mm512_cvtps_epi32(second)};
    const __m512 missing = _mm512_range_ps(
        _mm512_sub_ps(first, _mm512_cvtepi32_ps(steps[0])),
        _mm512_sub_ps(second, _mm512_cvtepi32_ps(steps[1])), LARGER_SIZE);
    if (_mm512_cmp_ps_mask(missing, _mm512_set1_ps(0.5f - DOUBT), _CMP_NLT_UQ)) return false;
    const __m512i words = _mm512_adds_epi16(
        _mm512_packs_epi32(steps[0], steps[1]), _mm512_set1_epi16((int16_t)by->zero));
    const __m512i packed = type == I8 ? _mm512_packs_epi16(words, words)
                                      : _mm512_packus_epi16(words, words);
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 0, 0, 0, 0, 0, 0, 0, 0);
    const __m256i ordered = _mm512_castsi512_si256(_mm512_permutexvar_epi32(order, packed));
    memcpy(bytes, &ordered, sizeof(ordered));
    return true;
}
#elif defined(__AVX2__)
static inline bool near_bytes(
    const Quantizer *by, DType type, const Floats *quotients, Bytes *bytes) {
    const __m256 first = (__m256)quotients[0], second = (__m256)quotients[1];
    const __m256i steps[] = {_mm256_cvtps_epi32(first), _mm256_cvtps_epi32(second)};
    const __m256 sign = _mm256_set1_ps(-0.0f);
    const __m256 missing = _mm256_max_ps(
        _mm256_andnot_ps(sign, _mm256_sub_ps(first, _mm256_cvtepi32_ps(steps[0]))),
        _mm256_andnot_ps(sign, _mm256_sub_ps(second, _mm256_cvtepi32_ps(steps[1]))));
    if (_mm256_movemask_ps(_mm256_cmp_ps(missing, _mm256_set1_ps(0.5f - DOUBT), _CMP_NLT_UQ)))
        return false;
    const __m256i words = _mm256_adds_epi16(
        _mm256_packs_epi32(steps[0], steps[1]), _mm256_set1_epi16((int16_t)by->zero));
    const __m256i packed = type == I8 ? _mm256_packs_epi16(words, words)
                                      : _mm256_packus_epi16(words, words);
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 0, 0, 0, 0);
    const __m128i ordered = _mm256_castsi256_si128(_mm256_permutevar8x32_epi32(packed, order));
    memcpy(bytes, &ordered, sizeof(ordered));
    return true;
}
#else
static inline bool near_bytes(
    const Quantizer *by, DType type, const Floats *quotients, Bytes *bytes) {
    (void)type;
    Mask known = (Mask){0} - 1;
    for (int h = 0; h < BYTE_HALVES; h++) {
        const Ints steps = (Ints)near_steps(by, quotients[h], &known);
        bytes[h] = __builtin_convertvector(steps + (int32_t)by->zero, Bytes);
    }
    return all_true(known);
}
#endif

static inline void put_bytes(const Bytes *bytes, char *to, int64_t columns) {
    if (columns == BYTE_COLUMNS) {
        for (int h = 0; h < BYTE_HALVES; h++) memcpy(to + h * LANES, &bytes[h], LANES);
        return;
    }
#if defined(__AVX512BW__)
    const __m256i whole = _mm256_loadu_si256((const __m256i *)bytes);
    _mm256_mask_storeu_epi8(to, (1u << columns) - 1, whole);
#else
    memcpy(to, bytes, (size_t)columns);
#endif
}

// Bytes of a line of floats: by products with the reciprocal, and with care where they are in doubt.
static inline void quantize_line(
    const Quantizer *by, DType type, const float *x, char *to, int64_t count) {
    for (int64_t i = 0; i < count; i += BYTE_COLUMNS) {
        const int64_t some = count - i < BYTE_COLUMNS ? count - i : BYTE_COLUMNS;
        Floats values[BYTE_HALVES], quotients[BYTE_HALVES];
        Bytes bytes[BYTE_HALVES];
        for (int h = 0; h < BYTE_HALVES; h++) {
            values[h] = load_some(x + i + h * LANES, some - h * LANES);
            quotients[h] = values[h] * by->inverse;
        }
        if (by->inverse == 0 || !near_bytes(by, type, quotients, bytes))
            for (int h = 0; h < BYTE_HALVES; h++) bytes[h] = bytes_of(by, values[h]);
        put_bytes(bytes, to + i, some);
    }
}

#endif
