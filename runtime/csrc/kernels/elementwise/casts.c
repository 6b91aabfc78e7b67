// Conversions between element types, as numpy has them on x86: floats to integers toward zero, wider
// integers by dropping high bits.  One side is always a type that maps compute with.
#include "../support/bits.h"
#include "loops.h"

#if defined(__F16C__)
#include <immintrin.h>
#endif

typedef struct { uint16_t bits; } Half;
typedef struct { uint16_t bits; } Brain;

INLINE float from_half(Half x) {
    _Float16 value;
    memcpy(&value, &x, sizeof(value));
    return (float)value;
}

INLINE Half to_half(float x) {
    const _Float16 value = (_Float16)x;
    Half half;
    memcpy(&half, &value, sizeof(half));
    return half;
}

INLINE float from_brain(Brain x) { return as_float((int32_t)((uint32_t)x.bits << 16)); }

// To nearest even; nans keep their sign.
INLINE Brain to_brain(float x) {
    const uint32_t bits = (uint32_t)as_bits(x);
    const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    const uint32_t nan = bits >> 16 | 0x40;
    return (Brain){(uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? nan : rounded)};
}

// By way of a float whose last bit is set if anything was cut off: it is rounded only once.
INLINE Half double_to_half(double x) {
    const float near = (float)x;
    if ((double)near == x || x != x) return to_half(near);
    uint32_t bits = (uint32_t)as_bits(near);
    if (__builtin_fabs((double)near) > __builtin_fabs(x)) bits--;
    return to_half(as_float((int32_t)(bits | 1)));
}

#define FLOAT float
#include "to_integers.h"
#define FLOAT double
#include "to_integers.h"

// The expressions for each type of results, from a float and from an integer.
// clang-format off
#define FROM_FLOAT(_, FLOAT, W)                             \
    _(FLOAT, W, i8, int8_t, (int8_t)FLOAT##_to_i32(x))      \
    _(FLOAT, W, u8, uint8_t, (uint8_t)FLOAT##_to_i32(x))    \
    _(FLOAT, W, i16, int16_t, (int16_t)FLOAT##_to_i32(x))   \
    _(FLOAT, W, u16, uint16_t, (uint16_t)FLOAT##_to_i32(x)) \
    _(FLOAT, W, i32, int32_t, FLOAT##_to_i32(x))            \
    _(FLOAT, W, u32, uint32_t, FLOAT##_to_u32(x))           \
    _(FLOAT, W, i64, int64_t, FLOAT##_to_i64(x))            \
    _(FLOAT, W, u64, uint64_t, FLOAT##_to_u64(x))           \
    _(FLOAT, W, b8, uint8_t, x != 0)                        \
    _(FLOAT, W, bf16, Brain, to_brain((float)x))
#define FROM_INTEGER(_, TYPE, W)                \
    _(TYPE, W, f32, float, (float)x)            \
    _(TYPE, W, f64, double, (double)x)          \
    _(TYPE, W, f16, Half, to_half((float)x))    \
    _(TYPE, W, bf16, Brain, to_brain((float)x)) \
    _(TYPE, W, i8, uint8_t, (uint8_t)x)         \
    _(TYPE, W, i16, uint16_t, (uint16_t)x)      \
    _(TYPE, W, i32, uint32_t, (uint32_t)x)      \
    _(TYPE, W, b8, uint8_t, x != 0)
#define MAKE(FROM, W, NAME, TO, E) UNARY_LOOP(W##_##NAME, FROM, TO, E)
// clang-format on

FROM_FLOAT(MAKE, float, f32)
FROM_FLOAT(MAKE, double, f64)
FROM_INTEGER(MAKE, int64_t, i64)
FROM_INTEGER(MAKE, uint64_t, u64)
UNARY_LOOP(f32_f64, float, double, x)
UNARY_LOOP(f64_f32, double, float, (float)x)
UNARY_LOOP(f64_f16, double, Half, double_to_half(x))
UNARY_LOOP(bf16_f32, Brain, float, from_brain(x))
UNARY_LOOP(i8_i64, int8_t, int64_t, x)
UNARY_LOOP(u8_i64, uint8_t, int64_t, x)
UNARY_LOOP(i16_i64, int16_t, int64_t, x)
UNARY_LOOP(u16_i64, uint16_t, int64_t, x)
UNARY_LOOP(i16_f32, int16_t, float, x)
UNARY_LOOP(u16_f32, uint16_t, float, x)
UNARY_LOOP(i32_i64, int32_t, int64_t, x)
UNARY_LOOP(i32_f32, int32_t, float, (float)x)
UNARY_LOOP(i32_f64, int32_t, double, x)
UNARY_LOOP(i8_f32, int8_t, float, x)
UNARY_LOOP(i8_f64, int8_t, double, x)
UNARY_LOOP(u8_f32, uint8_t, float, x)
UNARY_LOOP(u8_f64, uint8_t, double, x)
UNARY_LOOP(b8_f32, uint8_t, float, x != 0)
UNARY_LOOP(b8_f64, uint8_t, double, x != 0)
UNARY_LOOP(u32_i64, uint32_t, int64_t, x)
UNARY_LOOP(b8_i64, uint8_t, int64_t, x != 0)
UNARY_LOOP(f16_f32_rest, Half, float, from_half(x))
UNARY_LOOP(f32_f16_rest, float, Half, to_half(x))

// gcc does not turn conversions of single halves into vector code.
#if defined(__F16C__)
static void f16_f32(char *out, char *const *in, const int64_t *steps, int64_t n, const double *p) {
    int64_t i = 0;
#if defined(__AVX512F__)
    if (steps[0] == 4 && steps[1] == 2)
        for (; i + 16 <= n; i += 16)
            _mm512_storeu_ps(
                (float *)(out + 4 * i),
                _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(in[0] + 2 * i))));
#endif
    if (steps[0] == 4 && steps[1] == 2)
        for (; i + 8 <= n; i += 8)
            _mm256_storeu_ps(
                (float *)(out + 4 * i),
                _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(in[0] + 2 * i))));
    char *const rest = in[0] + i * steps[1];
    f16_f32_rest(out + i * steps[0], &rest, steps, n - i, p);
}

static void f32_f16(char *out, char *const *in, const int64_t *steps, int64_t n, const double *p) {
    int64_t i = 0;
#if defined(__AVX512F__)
    if (steps[0] == 2 && steps[1] == 4)
        for (; i + 16 <= n; i += 16)
            _mm256_storeu_si256(
                (__m256i *)(out + 2 * i),
                _mm512_cvtps_ph(_mm512_loadu_ps((const float *)(in[0] + 4 * i)), 0));
#endif
    if (steps[0] == 2 && steps[1] == 4)
        for (; i + 8 <= n; i += 8)
            _mm_storeu_si128(
                (__m128i *)(out + 2 * i),
                _mm256_cvtps_ph(_mm256_loadu_ps((const float *)(in[0] + 4 * i)), 0));
    char *const rest = in[0] + i * steps[1];
    f32_f16_rest(out + i * steps[0], &rest, steps, n - i, p);
}
#else
#define f16_f32 f16_f32_rest
#define f32_f16 f32_f16_rest
#endif

#define TO_ALL(W)                                                                        \
    [F32] = W##_f32, [F64] = W##_f64, [F16] = W##_f16, [BF16] = W##_bf16, [I8] = W##_i8, \
    [I16] = W##_i16, [I32] = W##_i32, [BOOL] = W##_b8
#define f32_f32 NULL
#define f64_f64 NULL

MapLoop ISA(conversion_loop)(DType from, DType to) {
    static const MapLoop loops[13][13] = {
        [F32] =
            {TO_ALL(f32), [U8] = f32_u8, [U16] = f32_u16, [U32] = f32_u32, [I64] = f32_i64,
             [U64] = f32_u64},
        [F64] =
            {TO_ALL(f64), [U8] = f64_u8, [U16] = f64_u16, [U32] = f64_u32, [I64] = f64_i64,
             [U64] = f64_u64},
        [I64] = {TO_ALL(i64), [U8] = i64_i8, [U16] = i64_i16, [U32] = i64_i32},
        [U64] = {TO_ALL(u64), [U8] = u64_i8, [U16] = u64_i16, [U32] = u64_i32},
        [F16] = {[F32] = f16_f32},
        [BF16] = {[F32] = bf16_f32},
        [I8] = {[I64] = i8_i64, [F32] = i8_f32, [F64] = i8_f64},
        [U8] = {[I64] = u8_i64, [F32] = u8_f32, [F64] = u8_f64},
        [I16] = {[I64] = i16_i64, [F32] = i16_f32},
        [U16] = {[I64] = u16_i64, [F32] = u16_f32},
        [I32] = {[I64] = i32_i64, [F32] = i32_f32, [F64] = i32_f64},
        [U32] = {[I64] = u32_i64},
        [BOOL] = {[I64] = b8_i64, [F32] = b8_f32, [F64] = b8_f64},
    };
    return loops[from][to];
}

UNARY_MAP(Copy_f32, float, float, 1, x)
UNARY_MAP(Copy_f64, double, double, 1, x)
UNARY_MAP(Copy_i64, int64_t, int64_t, 1, x)
UNARY_MAP(Copy_u64, uint64_t, uint64_t, 1, x)

// clang-format off
const Kernel ISA(COPIES)[] = {
    ENTRY(Copy_f32) ENTRY(Copy_f64) ENTRY(Copy_i64) ENTRY(Copy_u64)
    {NULL, NULL, NULL, NULL},
};
// clang-format on
