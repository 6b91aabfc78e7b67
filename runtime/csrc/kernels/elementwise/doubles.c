// Maps of float64.
#include <math.h>

#include "guarded.h"
#include "remainders.h"

// clang-format off
#define UNARY(_)                                                                              \
    _(Abs, 1, __builtin_fabs(x)) _(Ceil, 1, ceil(x)) _(Cube, 2, x * x * x) _(Erf, 40, erf(x)) \
    _(Floor, 1, floor(x)) _(Neg, 1, -x) _(Reciprocal, 4, 1 / x) _(Relu, 1, x < 0 ? 0 : x)     \
    _(Round, 1, rint(x)) _(Sign, 1, x != x ? x : (double)((x > 0) - (x < 0)))                 \
    _(Sqrt, 8, sqrt(x)) _(Square, 1, x * x)
// Name, which operands are usual, what they become, and what others do.
#define WIDE(_)                                                          \
    _(Acos, SIZE(x) < 1, wide_acos(x), acos(x))                          \
    _(Acosh, x > 1 && x < 0x1p400, wide_acosh(x), acosh(x))              \
    _(Asin, SIZE(x) < 1, wide_asin(x), asin(x))                          \
    _(Asinh, SIZE(x) < 0x1p400, wide_asinh(x), asinh(x))                 \
    _(Atan, SIZE(x) < 0x1p400, wide_atan(x), atan(x))                    \
    _(Atanh, SIZE(x) < 1, wide_atanh(x), atanh(x))                       \
    _(Cos, SIZE(x) < 0x1p20, wide_cos(x), cos(x))                        \
    _(Cosh, SIZE(x) < 600, wide_cosh(x), cosh(x))                        \
    _(Exp, SIZE(x) < 600, wide_exp(x), exp(x))                           \
    _(Expm1, SIZE(x) < 600, wide_expm1(x), expm1(x))                     \
    _(Log, x > 0x1p-1000 && x < 0x1p1000, wide_log(x), log(x))           \
    _(Log1p, x > -1 && x < 0x1p400, wide_log1p(x), log1p(x))             \
    _(Sigmoid, SIZE(x) < 600, 1 / (1 + wide_exp(-x)), 1 / (1 + exp(-x))) \
    _(Sin, SIZE(x) < 0x1p20, wide_sin(x), sin(x))                        \
    _(Sinh, SIZE(x) < 600, wide_sinh(x), sinh(x))                        \
    _(Tan, SIZE(x) < 0x1p20, wide_tan(x), tan(x))                        \
    _(Tanh, x == x, wide_tanh(x), x)
#define SIZE(X) __builtin_fabs(X)
#define BINARY(_)                                                                       \
    _(Add, 1, a + b) _(Atan2, 40, atan2(a, b)) _(Div, 4, a / b) _(FMod, 30, fmod(a, b)) \
    _(Max, 1, a > b || a != a ? a : b) _(Min, 1, a < b || a != a ? a : b)               \
    _(Mod, 30, double_modulo(a, b)) _(Mul, 1, a * b) _(Pow, 60, pow(a, b)) _(Sub, 1, a - b)
#define TESTS(_) _(IsNaN, 1, x != x) _(IsInf, 1, __builtin_fabs(x) == INFINITY)
#define COMPARED(_)                                                                         \
    _(Equal, 1, a == b) _(Greater, 1, a > b) _(GreaterOrEqual, 1, a >= b) _(Less, 1, a < b) \
    _(LessOrEqual, 1, a <= b)
// clang-format on

#define MAKE_UNARY(NAME, COST, E) UNARY_MAP(NAME##_f64, double, double, COST, E)
#define MAKE_BINARY(NAME, COST, E) BINARY_MAP(NAME##_f64, double, double, COST, E)
#define MAKE_TEST(NAME, COST, E) UNARY_MAP(NAME##_f64, double, uint8_t, COST, E)
#define MAKE_COMPARED(NAME, COST, E) BINARY_MAP(NAME##_f64, double, uint8_t, COST, E)
#define LIST(NAME, COST, E) ENTRY(NAME##_f64)

#define MAKE_WIDE(NAME, USUAL, FAST, EXACT) \
    GUARDED_UNARY(NAME##_f64, double, 30, USUAL, FAST, EXACT)
#define LIST_WIDE(NAME, USUAL, FAST, EXACT) ENTRY(NAME##_f64)

UNARY(MAKE_UNARY)
WIDE(MAKE_WIDE)
BINARY(MAKE_BINARY)
TESTS(MAKE_TEST)
COMPARED(MAKE_COMPARED)

const Kernel ISA(DOUBLES)[] = {
    UNARY(LIST) WIDE(LIST_WIDE) BINARY(LIST) TESTS(LIST) COMPARED(LIST){NULL, NULL, NULL, NULL},
};
