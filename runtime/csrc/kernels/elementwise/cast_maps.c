// Conversions from one type to another in one loop; casts.c has them for all others, by way of a third.
#include "loops.h"

// From a type to integers of any sign, whose bits are the same, and to floats.
// clang-format off
#define CASTS_OF(_, S, T, X)                                    \
    _(S##_i8, T, int8_t, (int8_t)(X))                           \
    _(S##_i16, T, int16_t, (int16_t)(X))                        \
    _(S##_i32, T, int32_t, (int32_t)(X))                        \
    _(S##_i64, T, int64_t, (int64_t)(X))                        \
    _(S##_f32, T, float, (float)(X))                            \
    _(S##_f64, T, double, (double)(X))
#define CASTS(_)                                                \
    CASTS_OF(_, i8, int8_t, x) CASTS_OF(_, u8, uint8_t, x)      \
    CASTS_OF(_, i16, int16_t, x) CASTS_OF(_, u16, uint16_t, x)  \
    CASTS_OF(_, i32, int32_t, x) CASTS_OF(_, u32, uint32_t, x)  \
    CASTS_OF(_, i64, int64_t, x) CASTS_OF(_, b8, uint8_t, x != 0) \
    _(i8_b8, int8_t, uint8_t, x != 0) _(u8_b8, uint8_t, uint8_t, x != 0) \
    _(i16_b8, int16_t, uint8_t, x != 0) _(u16_b8, uint16_t, uint8_t, x != 0) \
    _(i32_b8, int32_t, uint8_t, x != 0) _(u32_b8, uint32_t, uint8_t, x != 0) \
    _(i64_b8, int64_t, uint8_t, x != 0) _(f32_b8, float, uint8_t, x != 0)                           \
    _(f32_f64, float, double, x) _(f64_f32, double, float, (float)x)
#define MAKE_CAST(NAME, FROM, TO, E) UNARY_MAP(Cast_##NAME, FROM, TO, 1, E)
#define ENTRY_CAST(NAME, FROM, TO, E) ENTRY(Cast_##NAME)

CASTS(MAKE_CAST)

const Kernel ISA(CASTS)[] = {
    CASTS(ENTRY_CAST)
    {NULL, NULL, NULL, NULL},
};
// clang-format on
