// The remainder with the sign of the divisor, as numpy has it.
#ifndef POPC_REMAINDERS_H
#define POPC_REMAINDERS_H

#include <math.h>

#define MODULO(NAME, FLOAT, FMOD, COPYSIGN)                      \
    static inline FLOAT NAME(FLOAT a, FLOAT b) {                 \
        const FLOAT rest = FMOD(a, b);                           \
        if (rest == 0) return b == 0 ? rest : COPYSIGN(rest, b); \
        return (rest < 0) != (b < 0) ? rest + b : rest;          \
    }
MODULO(float_modulo, float, fmodf, copysignf)
MODULO(double_modulo, double, fmod, copysign)
#undef MODULO

#endif
