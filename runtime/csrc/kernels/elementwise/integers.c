// Maps of integers: of 64 bits, which hold all others.  Results wrap around when they are stored.
#include "loops.h"

// Division by zero gives what numpy's kernels give: see _divide in kernels/elementwise.py.
// clang-format off
#define BOTH(_, T)                          \
    _(T, Add, 1, (uint64_t)a + (uint64_t)b) \
    _(T, Sub, 1, (uint64_t)a - (uint64_t)b) \
    _(T, Mul, 2, (uint64_t)a * (uint64_t)b) \
    _(T, Max, 1, a > b ? a : b)             \
    _(T, Min, 1, a < b ? a : b)             \
    _(T, BitwiseAnd, 1, a & b)              \
    _(T, BitwiseOr, 1, a | b)               \
    _(T, BitwiseXor, 1, a ^ b)              \
    _(T, ShiftLeft, 1, (uint64_t)b < 64 ? (uint64_t)a << (b & 63) : 0)
#define COMPARED(_, T)              \
    _(T, Greater, 1, a > b)         \
    _(T, GreaterOrEqual, 1, a >= b) \
    _(T, Less, 1, a < b)            \
    _(T, LessOrEqual, 1, a <= b)
#define SINGLE(_, T)              \
    _(T, Neg, 1, 0 - (uint64_t)x) \
    _(T, BitwiseNot, 1, ~x)
// clang-format on

// The least number divided by -1 is itself; the processor would trap.
static inline int64_t quotient(int64_t a, int64_t b) {
    if (b == 0) return 0;
    return b == -1 ? (int64_t)(0 - (uint64_t)a) : a / b;
}

static inline int64_t remainder_of(int64_t a, int64_t b) { return b == 0 || b == -1 ? 0 : a % b; }

static inline int64_t modulo(int64_t a, int64_t b) {
    const int64_t rest = remainder_of(a, b);
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

typedef int64_t i64;
typedef uint64_t u64;
#define MAKE_BINARY(T, NAME, COST, E) BINARY_MAP(NAME##_wide_##T, T, T, COST, E)
#define MAKE_COMPARED(T, NAME, COST, E) BINARY_MAP(NAME##_wide_##T, T, uint8_t, COST, E)
#define MAKE_UNARY(T, NAME, COST, E) UNARY_MAP(NAME##_wide_##T, T, T, COST, E)
#define MAKE_ALL(T) BOTH(MAKE_BINARY, T) COMPARED(MAKE_COMPARED, T) SINGLE(MAKE_UNARY, T)

MAKE_ALL(i64)
MAKE_ALL(u64)
MAKE_UNARY(i64, Abs, 1, x < 0 ? 0 - (uint64_t)x : (uint64_t)x)
MAKE_UNARY(i64, Sign, 1, (x > 0) - (x < 0))
MAKE_UNARY(i64, Relu, 1, x < 0 ? 0 : x)
MAKE_BINARY(i64, ShiftRight, 1, (uint64_t)b < 64 ? a >> (b & 63) : a < 0 ? -1 : 0)
MAKE_COMPARED(u64, Equal, 1, a == b)
MAKE_UNARY(u64, Abs, 1, x)
MAKE_UNARY(u64, Sign, 1, x != 0)
MAKE_BINARY(u64, ShiftRight, 1, b < 64 ? a >> (b & 63) : 0)
MAKE_BINARY(i64, Div, 16, quotient(a, b))
MAKE_BINARY(i64, Mod, 16, modulo(a, b))
MAKE_BINARY(i64, FMod, 16, remainder_of(a, b))
#define TYPE i64
#define WRAPPED u64
#define POWERS Pow_wide_i64
#include "powers.h"
PREPARE(Pow_wide_i64, 2, 30, I64, I64)
MAKE_BINARY(u64, Div, 16, b ? a / b : 0)
MAKE_BINARY(u64, Mod, 16, b ? a % b : 0)
MAKE_BINARY(u64, FMod, 16, b ? a % b : 0)

#define LIST(T, NAME, COST, E) ENTRY(NAME##_wide_##T)
#define LIST_ALL(T) BOTH(LIST, T) COMPARED(LIST, T) SINGLE(LIST, T)

// clang-format off
const Kernel ISA(INTEGERS)[] = {
    LIST_ALL(i64) LIST_ALL(u64) ENTRY(Div_wide_i64) ENTRY(Mod_wide_i64)
    ENTRY(FMod_wide_i64) ENTRY(Div_wide_u64) ENTRY(Mod_wide_u64) ENTRY(FMod_wide_u64)
    ENTRY(Pow_wide_i64) ENTRY(Abs_wide_i64) ENTRY(Sign_wide_i64) ENTRY(Relu_wide_i64)
    ENTRY(ShiftRight_wide_i64)
    ENTRY(Equal_wide_u64) ENTRY(Abs_wide_u64) ENTRY(Sign_wide_u64) ENTRY(ShiftRight_wide_u64)
    {NULL, NULL, NULL, NULL},
};
// clang-format on
