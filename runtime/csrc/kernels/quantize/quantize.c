// Floats become bytes by a scale and a zero point.
#include "../elementwise/loops.h"
#include "../integer/byte_steps.h"

// Saturated before rounding: the limits are integers.  NaN becomes the lowest one, as in FakeQuantize.
// Parameters: scale, zero point.
#define QUANTIZED(LOW, HIGH)                                                        \
    ({                                                                              \
        const float scaled = x / p0;                                                \
        const float above = scaled >= (LOW) - p1 ? scaled : (LOW) - p1;             \
        (int32_t)(__builtin_rintf(above > (HIGH) - p1 ? (HIGH) - p1 : above) + p1); \
    })
UNARY_LOOP(Spread_i8, float, int8_t, QUANTIZED(-128, 127))
UNARY_LOOP(Spread_u8, float, uint8_t, QUANTIZED(0, 255))

// Lines whose elements lie side by side are quantised by vectors, what is left over too.
#define QUANTIZE(NAME, OTHERS, TYPE, DTYPE, LOW, HIGH)                                         \
    static void NAME(                                                                          \
        char *out, char *const *in, const int64_t *steps, int64_t n, const double *p) {        \
        if (steps[0] != sizeof(TYPE) || steps[1] != sizeof(float)) {                           \
            OTHERS(out, in, steps, n, p);                                                      \
            return;                                                                            \
        }                                                                                      \
        const float scale = (float)p[0], zero = (float)p[1];                                   \
        const Quantizer by = {scale, inverse_of(scale), (LOW) - zero, (HIGH) - zero, zero, 1}; \
        quantize_line(&by, DTYPE, (const float *)in[0], out, n);                               \
    }                                                                                          \
    PREPARE(NAME, 1, 3, F32, DTYPE_OF(TYPE))
QUANTIZE(Quantize_i8, Spread_i8, int8_t, I8, -128, 127)
QUANTIZE(Quantize_u8, Spread_u8, uint8_t, U8, 0, 255)

// clang-format off
const Kernel ISA(QUANTIZED_MAPS)[] = {
    ENTRY(Quantize_i8) ENTRY(Quantize_u8)
    {NULL, NULL, NULL, NULL},
};
// clang-format on
