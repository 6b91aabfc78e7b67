// Exponentials of vectors, where a loop would be over the lanes of one.
#ifndef POPC_VECTOR_EXP_H
#define POPC_VECTOR_EXP_H

#include "simd.h"

// e**x for x <= 0 and NaN, 0 where it would be less than 2e-38: 2**n by powers of two, and twice 2**r,
// |r| <= 1 / 2, by a minimax polynomial that is off by 2e-9.  The error grows with x, which is
// multiplied by a float: 1.2 units in the last place above -1, 5 above -20, 20 in all.
static inline Floats exp_of_below(Floats x) {
    const float log2e = 1.44269504088896341f;
    // 1.5 * 2**23, and what becomes the exponent of 2**(n - 1): what is added to it is rounded to an
    // integer, which its low bits hold.
    const Floats shift = all_of(12582912.0f + 126);
    const Floats bounded = all_at_least(all_of(-87.336544f), x);
    const Floats shifted = bounded * log2e + shift;
    const Floats r = bounded * log2e - (shifted - shift), square = r * r;
    const Floats high = r * (2 * 1.535329939e-4f) + 2 * 1.339895185e-3f;
    const Floats middle = r * (2 * 9.618437849e-3f) + 2 * 5.550332367e-2f;
    const Floats low = r * (2 * 2.402264774e-1f) + 2 * 6.931471825e-1f;
    const Floats p = ((high * square + middle) * square + low) * r + 2.0f;
    return p * (Floats)((Mask)shifted << 23);
}

// x / (1 + e**(-alpha x)): where that exponential is beyond all floats, 2**n is infinite, and the result
// 0.  The error grows with x, as above: results are off by up to 2.4 units in the last place above -2, and
// by 30 at -25, where they are below 1e-9.
static inline Floats swish_of(Floats x, Floats alpha) {
    const Floats shift = all_of(12582912.0f + 127);  // as above
    const Floats power = x * (alpha * -1.44269504088896341f);
    const Floats bounded = all_at_most(all_of(128.0f), all_at_least(all_of(-126.0f), power));
    const Floats shifted = bounded + shift;
    const Floats r = bounded - (shifted - shift), square = r * r;
    const Floats high = r * 1.535329939e-4f + 1.339895185e-3f;
    const Floats middle = r * 9.618437849e-3f + 5.550332367e-2f;
    const Floats low = r * 2.402264774e-1f + 6.931471825e-1f;
    const Floats p = ((high * square + middle) * square + low) * r + 1.0f;
    return x * (1.0f / (p * (Floats)((Mask)shifted << 23) + 1.0f));
}

#endif
