// Maps of integers of up to 32 bits, in vectors of their own width; integers.c has them for all others.
// Arithmetic is unsigned inside, so that results wrap around.
#include "loops.h"

// Quotients, toward zero, are exact by way of a float of twice as many bits: what is no integer differs
// from the next one by more than rounding does.  What divides by zero gives `OF_ZERO`, and the least
// number divided by -1 is itself.
#define QUOTIENT(WIDE, T, OF_ZERO) \
    (b == 0 ? (T)(OF_ZERO) : b == -1 ? (T)(0 - (uint32_t)a) : (T)((WIDE)a / (WIDE)b))
#define REST(WIDE, T) \
    (b == 0 || b == -1 ? (T)0 : (T)((uint32_t)a - (uint32_t)(T)((WIDE)a / (WIDE)b) * (uint32_t)b))
#define UNSIGNED_QUOTIENT(WIDE, T) (b == 0 ? (T)0 : (T)((WIDE)a / (WIDE)b))
#define UNSIGNED_REST(WIDE, T) \
    (b == 0 ? (T)0 : (T)(a - (uint32_t)(T)((WIDE)a / (WIDE)b) * (uint32_t)b))

// With the sign of the divisor.
#define MODULO(WIDE, T)                                            \
    ({                                                             \
        const T rest = REST(WIDE, T);                              \
        (T)(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest); \
    })

// clang-format off
#define BINARY_OF(_, T, S)                             \
    _(BitwiseAnd_##S, T, 1, a & b)                     \
    _(BitwiseOr_##S, T, 1, a | b)                      \
    _(BitwiseXor_##S, T, 1, a ^ b)                     \
    _(Max_##S, T, 1, a > b ? a : b)                    \
    _(Min_##S, T, 1, a < b ? a : b)
#define DIVIDED(_, T, S, WIDE, OF_ZERO)                \
    _(DivNarrow_##S, T, 4, QUOTIENT(WIDE, T, OF_ZERO)) \
    _(Mod_##S, T, 5, MODULO(WIDE, T))                  \
    _(FMod_##S, T, 5, REST(WIDE, T))
#define ARITHMETIC(_, T, S)                            \
    _(Add_##S, T, 1, (uint32_t)a + (uint32_t)b)        \
    _(Sub_##S, T, 1, (uint32_t)a - (uint32_t)b)        \
    _(Mul_##S, T, 1, (uint32_t)a * (uint32_t)b)
#define COMPARED(_, T, S)                              \
    _(Equal_##S, T, 1, a == b)                         \
    _(Greater_##S, T, 1, a > b)                        \
    _(GreaterOrEqual_##S, T, 1, a >= b)                \
    _(Less_##S, T, 1, a < b)                           \
    _(LessOrEqual_##S, T, 1, a <= b)
#define UNARY_OF(_, T, S)                              \
    _(Neg_##S, T, 1, (T)(0 - (uint32_t)x))             \
    _(BitwiseNot_##S, T, 1, (T)~x)
#define SIGNED(_, T, S)                                \
    _(Abs_##S, T, 1, (T)(x < 0 ? 0 - (uint32_t)x : (uint32_t)x)) \
    _(Sign_##S, T, 1, (x > 0) - (x < 0))               \
    _(Relu_##S, T, 1, x < 0 ? 0 : x)

#define UNSIGNED(_, T, S, WIDE)                        \
    _(Div_##S, T, 4, UNSIGNED_QUOTIENT(WIDE, T))       \
    _(Mod_##S, T, 5, UNSIGNED_REST(WIDE, T))           \
    _(FMod_##S, T, 5, UNSIGNED_REST(WIDE, T))          \
    _(ShiftLeft_##S, T, 1, b < 32 ? (uint32_t)a << (b & 31) : 0) \
    _(ShiftRight_##S, T, 1, b < 32 ? (uint32_t)a >> (b & 31) : 0)
#define UNSIGNED_UNARY(_, T, S)                        \
    _(Abs_##S, T, 1, x) _(Sign_##S, T, 1, x != 0)

#define FOR_ALL(EACH, _)                               \
    EACH(_, int8_t, i8) EACH(_, uint8_t, u8) EACH(_, int16_t, i16) EACH(_, uint16_t, u16) \
    EACH(_, uint32_t, u32)
#define ALL_BINARY(_)                                  \
    FOR_ALL(BINARY_OF, _) FOR_ALL(ARITHMETIC, _) BINARY_OF(_, int32_t, i32) \
    DIVIDED(_, int32_t, i32, double, INT32_MIN) DIVIDED(_, int16_t, i16, float, 0) \
    DIVIDED(_, int8_t, i8, float, 0) UNSIGNED(_, uint8_t, u8, float) \
    UNSIGNED(_, uint16_t, u16, float) UNSIGNED(_, uint32_t, u32, double)
#define ALL_UNARY(_)                                   \
    FOR_ALL(UNARY_OF, _) UNARY_OF(_, int32_t, i32)     \
    SIGNED(_, int32_t, i32) SIGNED(_, int16_t, i16) SIGNED(_, int8_t, i8) \
    UNSIGNED_UNARY(_, uint8_t, u8) UNSIGNED_UNARY(_, uint16_t, u16) \
    UNSIGNED_UNARY(_, uint32_t, u32)
#define ALL_COMPARED(_) FOR_ALL(COMPARED, _)

#define MAKE_BINARY(NAME, T, COST, E) BINARY_MAP(NAME, T, T, COST, E)
#define MAKE_UNARY(NAME, T, COST, E) UNARY_MAP(NAME, T, T, COST, E)
#define MAKE_COMPARED(NAME, T, COST, E) BINARY_MAP(NAME, T, uint8_t, COST, E)
ALL_BINARY(MAKE_BINARY)
ALL_UNARY(MAKE_UNARY)
ALL_COMPARED(MAKE_COMPARED)

#define TYPE int32_t
#define WRAPPED uint32_t
#define POWERS Pow_i32
#include "powers.h"
PREPARE(Pow_i32, 2, 20, I32, I32)

#define LIST(NAME, T, COST, E) ENTRY(NAME)
const Kernel ISA(NARROW_INTEGERS)[] = {
    ALL_BINARY(LIST) ALL_UNARY(LIST) ALL_COMPARED(LIST) ENTRY(Pow_i32)
    {NULL, NULL, NULL, NULL},
};
// clang-format on
