// Floats and their bits.
#ifndef POPC_BITS_H
#define POPC_BITS_H

#include <stdint.h>
#include <string.h>

static inline float as_float(int32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static inline int32_t as_bits(float value) {
    int32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static inline double as_double(int64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static inline int64_t as_wide_bits(double value) {
    int64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

#endif
