// Maps of float32 that few programs need; with the functions of the C library, one by one.
#include "loops.h"
#include "math.h"
#include "remainders.h"

#define UNARY(_)                                                                                  \
    _(Acos, 30, acosf(x)) _(Acosh, 30, acoshf(x)) _(Asin, 30, asinf(x)) _(Asinh, 30, asinhf(x))   \
    _(Atan, 30, atanf(x)) _(Atanh, 30, atanhf(x)) _(Cos, 30, cosf(x)) _(Cosh, 30, coshf(x)) _(Cube, 2, x * x * x)       \
    _(Expm1, 30, expm1f(x)) _(Log1p, 30, log1pf(x))                                               \
    _(Sign, 1, x != x ? x : (float)((x > 0) - (x < 0)))                                           \
    _(Sin, 30, sinf(x)) _(Sinh, 30, sinhf(x)) _(Softsign, 3, x / (1 + __builtin_fabsf(x)))        \
    _(Tan, 30, tanf(x))
#define BINARY(_)                                                                                 \
    _(Atan2, 40, atan2f(a, b)) _(FMod, 30, fmodf(a, b)) _(Mod, 30, float_modulo(a, b))            \
    _(Pow, 60, powf(a, b))
#define TESTS(_) _(IsNaN, 1, x != x) _(IsInf, 1, __builtin_fabsf(x) == INFINITY)

#define MAKE_UNARY(NAME, COST, E) UNARY_MAP(NAME##_f32, float, float, COST, E)
#define MAKE_BINARY(NAME, COST, E) BINARY_MAP(NAME##_f32, float, float, COST, E)
#define MAKE_TEST(NAME, COST, E) UNARY_MAP(NAME##_f32, float, uint8_t, COST, E)
#define LIST(NAME, COST, E) ENTRY(NAME##_f32)

UNARY(MAKE_UNARY)
BINARY(MAKE_BINARY)
TESTS(MAKE_TEST)

const Kernel ISA(FUNCTIONS)[] = {
    UNARY(LIST) BINARY(LIST) TESTS(LIST){NULL, NULL, NULL, NULL},
};
