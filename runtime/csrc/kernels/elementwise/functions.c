// Maps of float32 that fewer programs need, most of them by functions of doubles.
#include "guarded.h"
#include "../support/math.h"
#include "remainders.h"

// clang-format off
#define UNARY(_)                                                              \
    _(Cube, 2, x * x * x) _(Sign, 1, x != x ? x : (float)((x > 0) - (x < 0))) \
    _(Softsign, 3, x / (1 + __builtin_fabsf(x)))
// Name, which operands are usual, what they become, and what others do.
#define WIDE(_)                                                \
    _(Acos, SIZE(x) < 1, fast_acos(x), acosf(x))               \
    _(Acosh, x > 1 && x < 0x1p120f, wide_acosh(x), acoshf(x))  \
    _(Asin, SIZE(x) < 1, fast_asin(x), asinf(x))               \
    _(Asinh, SIZE(x) < 0x1p120f, wide_asinh(x), asinhf(x))     \
    _(Atan, SIZE(x) < 0x1p120f, fast_atan(x), atanf(x))        \
    _(Atanh, SIZE(x) < 1, wide_atanh(x), atanhf(x))            \
    _(Cos, SIZE(x) < 0x1p15f, fast_cos(x), cosf(x))            \
    _(Cosh, SIZE(x) < 600, wide_cosh(x), coshf(x))             \
    _(Expm1, SIZE(x) < 600, wide_expm1(x), expm1f(x))          \
    _(Log1p, x > -1 && x < 0x1p120f, wide_log1p(x), log1pf(x)) \
    _(Sin, SIZE(x) < 0x1p15f, fast_sin(x), sinf(x))            \
    _(Sinh, SIZE(x) < 600, wide_sinh(x), sinhf(x))             \
    _(Tan, SIZE(x) < 0x1p20, wide_tan(x), tanf(x))
#define SIZE(X) __builtin_fabsf(X)
// Bounds that no operand of a usual quotient or power is near.
#define IN_RANGE(X) (SIZE(X) > 0x1p-120f && SIZE(X) < 0x1p120f)
#define BINARY(_) \
    _(FMod, 30, fmodf(a, b)) _(Mod, 30, float_modulo(a, b))
#define WIDE_BINARY(_)                                                   \
    _(Atan2, IN_RANGE(a) && IN_RANGE(b), fast_atan2(a, b), atan2f(a, b)) \
    _(Pow, a > 0x1p-120f && a < 0x1p120f && SIZE(b) < 0x1p120f, wide_pow(a, b), powf(a, b))
#define TESTS(_) _(IsNaN, 1, x != x) _(IsInf, 1, __builtin_fabsf(x) == INFINITY)
// clang-format on

#define MAKE_UNARY(NAME, COST, E) UNARY_MAP(NAME##_f32, float, float, COST, E)
#define MAKE_BINARY(NAME, COST, E) BINARY_MAP(NAME##_f32, float, float, COST, E)
#define MAKE_TEST(NAME, COST, E) UNARY_MAP(NAME##_f32, float, uint8_t, COST, E)
#define LIST(NAME, COST, E) ENTRY(NAME##_f32)

#define MAKE_WIDE(NAME, USUAL, FAST, EXACT) GUARDED_UNARY(NAME##_f32, float, 20, USUAL, FAST, EXACT)
#define MAKE_WIDE_BINARY(NAME, USUAL, FAST, EXACT) \
    GUARDED_BINARY(NAME##_f32, float, 40, USUAL, FAST, EXACT)
#define LIST_WIDE(NAME, USUAL, FAST, EXACT) ENTRY(NAME##_f32)

UNARY(MAKE_UNARY)
WIDE(MAKE_WIDE)
WIDE_BINARY(MAKE_WIDE_BINARY)
BINARY(MAKE_BINARY)
TESTS(MAKE_TEST)

const Kernel ISA(FUNCTIONS)[] = {
    UNARY(LIST) WIDE(LIST_WIDE) BINARY(LIST) WIDE_BINARY(LIST_WIDE)
        TESTS(LIST){NULL, NULL, NULL, NULL},
};
