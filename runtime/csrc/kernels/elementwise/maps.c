// Maps of the types that most programs compute with.
#include "loops.h"
#include "../support/math.h"

// What each map computes: name, cost, expression.
// clang-format off
#define FLOAT_UNARY(_)                                                     \
    _(Abs, 1, __builtin_fabsf(x))                                          \
    _(Ceil, 1, __builtin_ceilf(x))                                         \
    _(Celu, 12, x > 0 ? x : p0 * (fast_exp((x > 0 ? 0 : x) / p0) - 1.0f))  \
    _(Clip, 1, (x < p0 ? p0 : x) > p1 ? p1 : (x < p0 ? p0 : x))            \
    _(Elu, 12, x > 0 ? x : p0 * (exp_below(x > 0 ? 0 : x) - 1.0f))         \
    _(Erf, 16, fast_erf(x))                                                \
    _(Exp, 8, fast_exp(x))                                                 \
    _(FakeQuantize, 4, ({                                                  \
          float q = __builtin_rintf(x / p0);                               \
          q = q >= p1 ? q : p1;                                            \
          (q > p2 ? p2 : q) * p0;                                          \
      }))                                                                  \
    _(Floor, 1, __builtin_floorf(x))                                       \
    _(Gelu, 18, x * fast_normal(x))                                        \
    _(GeluTanh, 14,                                                        \
      x * fast_sigmoid(1.5957691216057308f * (x + 0.044715f * x * x * x))) \
    _(HardSigmoid, 2, ({                                                   \
          float y = p0 * x + p1;                                           \
          y = y < 0 ? 0 : y;                                               \
          y > 1 ? 1 : y;                                                   \
      }))                                                                  \
    _(HardSwish, 3, ({                                                     \
          float y = x * 0.16666666666666666f + 0.5f;                       \
          y = y < 0 ? 0 : y;                                               \
          x * (y > 1 ? 1 : y);                                             \
      }))                                                                  \
    _(LeakyRelu, 2, x < 0 ? p0 * x : x)                                    \
    _(Log, 10, fast_log(x))                                                \
    _(Mish, 14, ({                                                         \
          const float e = fast_exp(x > 20 ? 20 : x), n = e * (e + 2);      \
          x * (n / (n + 2));                                               \
      }))                                                                  \
    _(Neg, 1, -x)                                                          \
    _(Reciprocal, 2, 1.0f / x)                                             \
    _(Relu, 1, x < 0 ? 0 : x)                                              \
    _(Round, 1, __builtin_rintf(x))                                        \
    _(Selu, 12, p1 * (x > 0 ? x : p0 * (fast_exp(x > 0 ? 0 : x) - 1.0f)))  \
    _(Shrink, 2, x < -p1 ? x + p0 : x > p1 ? x - p0 : 0)                   \
    _(Sigmoid, 10, fast_sigmoid(x))                                        \
    _(Softplus, 16, fast_softplus(x))                                      \
    _(Sqrt, 2, __builtin_sqrtf(x))                                         \
    _(Square, 1, x * x)                                                    \
    _(Swish, 11, x * fast_sigmoid(p0 * x))                                 \
    _(Tanh, 12, fast_tanh(x))                                              \
    _(ThresholdedRelu, 1, x > p0 ? x : 0)

#define FLOAT_BINARY(_)                \
    _(Add, 1, a + b)                   \
    _(Div, 2, a / b)                   \
    _(Max, 1, a > b || a != a ? a : b) \
    _(Min, 1, a < b || a != a ? a : b) \
    _(Mul, 1, a * b)                   \
    _(PRelu, 2, a < 0 ? a * b : a)     \
    _(Sub, 1, a - b)

// Unsigned, so that results that are too large wrap around as numpy's do.
#define INTEGER_BINARY(_) \
    _(Add, 1, a + b)      \
    _(Mul, 1, a * b)      \
    _(Sub, 1, a - b)

#define COMPARISONS(_)           \
    _(Equal, 1, a == b)          \
    _(Greater, 1, a > b)         \
    _(GreaterOrEqual, 1, a >= b) \
    _(Less, 1, a < b)            \
    _(LessOrEqual, 1, a <= b)

#define LOGICAL(_)    \
    _(And, 1, a && b) \
    _(Equal, 1, !a == !b) \
    _(Or, 1, a || b)  \
    _(Xor, 1, !a != !b)
// clang-format on

#define MAKE_FLOAT_UNARY(NAME, COST, E) UNARY_MAP(NAME##_f32, float, float, COST, E)
#define MAKE_FLOAT_BINARY(NAME, COST, E) BINARY_MAP(NAME##_f32, float, float, COST, E)
#define MAKE_I32_BINARY(NAME, COST, E) BINARY_MAP(NAME##_i32, uint32_t, uint32_t, COST, E)
#define MAKE_I64_BINARY(NAME, COST, E) BINARY_MAP(NAME##_i64, uint64_t, uint64_t, COST, E)
#define MAKE_F32_COMPARISON(NAME, COST, E) BINARY_MAP(NAME##_f32, float, uint8_t, COST, E)
#define MAKE_I32_COMPARISON(NAME, COST, E) BINARY_MAP(NAME##_i32, int32_t, uint8_t, COST, E)
#define MAKE_I64_COMPARISON(NAME, COST, E) BINARY_MAP(NAME##_i64, int64_t, uint8_t, COST, E)
#define MAKE_LOGICAL(NAME, COST, E) BINARY_MAP(NAME##_b8, uint8_t, uint8_t, COST, E)

FLOAT_UNARY(MAKE_FLOAT_UNARY)
FLOAT_BINARY(MAKE_FLOAT_BINARY)
INTEGER_BINARY(MAKE_I32_BINARY)
INTEGER_BINARY(MAKE_I64_BINARY)
COMPARISONS(MAKE_F32_COMPARISON)
COMPARISONS(MAKE_I32_COMPARISON)
COMPARISONS(MAKE_I64_COMPARISON)
LOGICAL(MAKE_LOGICAL)
UNARY_MAP(Not_b8, uint8_t, uint8_t, 1, !x)
// The product, rounded first.  Parameter: zero point.
#define REQUANTIZED(LOW, HIGH)                                                      \
    ({                                                                              \
        const float scaled = a * b;                                                 \
        const float above = scaled >= (LOW) - p0 ? scaled : (LOW) - p0;             \
        (int32_t)(__builtin_rintf(above > (HIGH) - p0 ? (HIGH) - p0 : above) + p0); \
    })
BINARY_MAP(Requantize_i8, float, int8_t, 3, REQUANTIZED(-128, 127))
BINARY_MAP(Requantize_u8, float, uint8_t, 3, REQUANTIZED(0, 255))
// Parameters: scale, zero point.
#define DEQUANTIZED ((float)x - p1) * p0
UNARY_MAP(Dequantize_i8, int8_t, float, 2, DEQUANTIZED)
UNARY_MAP(Dequantize_u8, uint8_t, float, 2, DEQUANTIZED)
UNARY_MAP(Dequantize_i32, int32_t, float, 2, DEQUANTIZED)
#define NAME Where_8
#define TYPE uint8_t
#include "where.h"
PREPARE(Where_8, 3, 1, ANY_TYPE(1), ANY_TYPE(1))
#define NAME Where_16
#define TYPE uint16_t
#include "where.h"
PREPARE(Where_16, 3, 1, ANY_TYPE(2), ANY_TYPE(2))
#define NAME Where_32
#define TYPE uint32_t
#include "where.h"
PREPARE(Where_32, 3, 1, ANY_TYPE(4), ANY_TYPE(4))
#define NAME Where_64
#define TYPE uint64_t
#include "where.h"
PREPARE(Where_64, 3, 1, ANY_TYPE(8), ANY_TYPE(8))

#define ENTRY_F32(NAME, COST, E) ENTRY(NAME##_f32)
#define ENTRY_I32(NAME, COST, E) ENTRY(NAME##_i32)
#define ENTRY_I64(NAME, COST, E) ENTRY(NAME##_i64)
#define ENTRY_B8(NAME, COST, E) ENTRY(NAME##_b8)

// clang-format off
const Kernel ISA(MAPS)[] = {
    FLOAT_UNARY(ENTRY_F32) FLOAT_BINARY(ENTRY_F32) INTEGER_BINARY(ENTRY_I32)
    INTEGER_BINARY(ENTRY_I64) COMPARISONS(ENTRY_F32) COMPARISONS(ENTRY_I32)
    COMPARISONS(ENTRY_I64) LOGICAL(ENTRY_B8) ENTRY(Not_b8)
    ENTRY(Requantize_i8) ENTRY(Requantize_u8)
    ENTRY(Dequantize_i8) ENTRY(Dequantize_u8) ENTRY(Dequantize_i32)
    ENTRY(Where_8) ENTRY(Where_16) ENTRY(Where_32) ENTRY(Where_64)
    {NULL, NULL, NULL, NULL},
};
// clang-format on

#define LOOP_F32(NAME, COST, E) NAME##_f32,

MapLoop ISA(activation_loop)(int64_t number) {
    static const MapLoop loops[] = {NULL, FLOAT_UNARY(LOOP_F32)};
    const int64_t count = sizeof(loops) / sizeof(*loops);
    return number > 0 && number < count ? loops[number] : NULL;
}

MapLoop ISA(relu_loop)(void) { return Relu_f32; }
MapLoop ISA(clip_loop)(void) { return Clip_f32; }

MapLoop ISA(hard_swish_loop)(void) { return HardSwish_f32; }
MapLoop ISA(swish_loop)(void) { return Swish_f32; }
