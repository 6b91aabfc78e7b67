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

// -- by scales and zero points that are operands --------------------------------------------------

// Of TYPE, by the steps of result, element, scale and zero point.
#define LOOP_BY(NAME, TYPE, EXPRESSION)                                                          \
    INLINE void NAME##_steps(                                                                    \
        char *out, char *const *in, int64_t s0, int64_t s1, int64_t s2, int64_t s3, int64_t n) { \
        const char *first = in[0], *second = in[1], *third = in[2];                              \
        INDEPENDENT_FOR (int64_t i = 0; i < n; i++) {                                            \
            const float x = *(const float *)(const void *)(first + i * s1);                      \
            const float p0 = *(const float *)(const void *)(second + i * s2);                    \
            const float p1 = *(const float *)(const void *)(third + i * s3);                     \
            *(TYPE *)(void *)(out + i * s0) = (TYPE)(EXPRESSION);                                \
        }                                                                                        \
    }                                                                                            \
    static void NAME(                                                                            \
        char *out, char *const *in, const int64_t *steps, int64_t n, const double *p) {          \
        (void)p;                                                                                 \
        const int64_t size = sizeof(TYPE), one = sizeof(float);                                  \
        const int64_t s2 = steps[2], s3 = steps[3];                                              \
        if (steps[0] == size && steps[1] == one && s2 == 0 && s3 == 0)                           \
            NAME##_steps(out, in, size, one, 0, 0, n);                                           \
        else if (steps[0] == size && steps[1] == one && s2 == one && s3 == one)                  \
            NAME##_steps(out, in, size, one, one, one, n);                                       \
        else                                                                                     \
            NAME##_steps(out, in, steps[0], steps[1], s2, s3, n);                                \
    }                                                                                            \
    PREPARE(NAME, 3, 4, F32, DTYPE_OF(TYPE))
LOOP_BY(QuantizeBy_i8, int8_t, QUANTIZED(-128, 127))
LOOP_BY(QuantizeBy_u8, uint8_t, QUANTIZED(0, 255))
LOOP_BY(QuantizeBy_i16, int16_t, QUANTIZED(-32768, 32767))
LOOP_BY(QuantizeBy_u16, uint16_t, QUANTIZED(0, 65535))
LOOP_BY(DequantizeBy_f32, float, (x - p1) * p0)

// clang-format off
const Kernel ISA(QUANTIZED_MAPS)[] = {
    ENTRY(Quantize_i8) ENTRY(Quantize_u8)
    ENTRY(QuantizeBy_i8) ENTRY(QuantizeBy_u8) ENTRY(QuantizeBy_i16) ENTRY(QuantizeBy_u16)
    ENTRY(DequantizeBy_f32)
    {NULL, NULL, NULL, NULL},
};
// clang-format on
