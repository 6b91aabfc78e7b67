// Exponentials of vectors, where a loop would be over the lanes of one.
#ifndef POPC_VECTOR_EXP_H
#define POPC_VECTOR_EXP_H

#include "simd.h"

// As exp_below of math.h: e**x for x <= 0 and NaN, 0 where it would be less than 2e-38.
static inline Floats exp_of_below(Floats x) {
    const Floats shift =
        all_of(12582912.0f);  // 1.5 * 2**23: what is added to it becomes an integer
    const Floats shifted = all_at_least(all_of(-87.0f), x) * 1.44269504088896341f + shift;
    const Floats whole = shifted - shift;
    const Floats r = x - whole * 0.693359375f - whole * -2.12194440e-4f;
    const Floats square = r * r;
    const Floats high = r * 1.9875691500e-4f + 1.3981999507e-3f;
    const Floats middle = r * 8.3334519073e-3f + 4.1665795894e-2f;
    const Floats low = r * 1.6666665459e-1f + 5.0000001201e-1f;
    const Floats p = ((high * square + middle) * square + low) * square + r + 1.0f;
    const Mask power = ((Mask)shifted - (Mask)shift + 127) << 23;
    return (Floats)((Mask)(p * (Floats)power) & ~(Mask)(x < -87.0f));
}

#endif
