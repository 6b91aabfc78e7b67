// Maps of float64, with the functions of the C library.
#include <math.h>

#include "loops.h"
#include "remainders.h"

#define UNARY(_)                                                                                  \
    _(Abs, 1, __builtin_fabs(x)) _(Acos, 40, acos(x)) _(Acosh, 40, acosh(x))                      \
    _(Asin, 40, asin(x)) _(Asinh, 40, asinh(x)) _(Atan, 40, atan(x)) _(Atanh, 40, atanh(x))       \
    _(Ceil, 1, ceil(x)) _(Cos, 40, cos(x)) _(Cosh, 40, cosh(x)) _(Cube, 2, x * x * x) _(Erf, 40, erf(x))                \
    _(Exp, 30, exp(x)) _(Expm1, 40, expm1(x)) _(Floor, 1, floor(x)) _(Log, 30, log(x))            \
    _(Log1p, 40, log1p(x)) _(Neg, 1, -x) _(Reciprocal, 4, 1 / x) _(Relu, 1, x < 0 ? 0 : x)        \
    _(Round, 1, rint(x)) _(Sign, 1, x != x ? x : (double)((x > 0) - (x < 0)))                     \
    _(Sin, 40, sin(x)) _(Sinh, 40, sinh(x)) _(Sqrt, 8, sqrt(x)) _(Square, 1, x * x)               \
    _(Tan, 40, tan(x)) _(Tanh, 40, tanh(x))
#define BINARY(_)                                                                                 \
    _(Add, 1, a + b) _(Atan2, 40, atan2(a, b)) _(Div, 4, a / b) _(FMod, 30, fmod(a, b))           \
    _(Max, 1, a > b || a != a ? a : b) _(Min, 1, a < b || a != a ? a : b)                         \
    _(Mod, 30, double_modulo(a, b)) _(Mul, 1, a * b) _(Pow, 60, pow(a, b)) _(Sub, 1, a - b)
#define TESTS(_) _(IsNaN, 1, x != x) _(IsInf, 1, __builtin_fabs(x) == INFINITY)
#define COMPARED(_)                                                                               \
    _(Equal, 1, a == b) _(Greater, 1, a > b) _(GreaterOrEqual, 1, a >= b) _(Less, 1, a < b)       \
    _(LessOrEqual, 1, a <= b)

#define MAKE_UNARY(NAME, COST, E) UNARY_MAP(NAME##_f64, double, double, COST, E)
#define MAKE_BINARY(NAME, COST, E) BINARY_MAP(NAME##_f64, double, double, COST, E)
#define MAKE_TEST(NAME, COST, E) UNARY_MAP(NAME##_f64, double, uint8_t, COST, E)
#define MAKE_COMPARED(NAME, COST, E) BINARY_MAP(NAME##_f64, double, uint8_t, COST, E)
#define LIST(NAME, COST, E) ENTRY(NAME##_f64)

UNARY(MAKE_UNARY)
BINARY(MAKE_BINARY)
TESTS(MAKE_TEST)
COMPARED(MAKE_COMPARED)

const Kernel ISA(DOUBLES)[] = {
    UNARY(LIST) BINARY(LIST) TESTS(LIST) COMPARED(LIST){NULL, NULL, NULL, NULL},
};
