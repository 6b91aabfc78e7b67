// One instruction takes the larger one of two numbers, but drops what is undefined.  That is looked for
// besides, and where there is some, maxima are found again with care.
#ifndef POPC_UNDEFINED_H
#define POPC_UNDEFINED_H

#include <stdbool.h>

#include "simd.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
typedef __mmask16 Marks;
static inline Marks undefined_of(Floats a, Floats b) {
    return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_UNORD_Q);
}
static inline bool is_marked(Marks marks) { return marks != 0; }
#elif defined(__AVX2__)
typedef Mask Marks;
static inline Marks undefined_of(Floats a, Floats b) {
    return (Mask)_mm256_cmp_ps((__m256)a, (__m256)b, _CMP_UNORD_Q);
}
static inline bool is_marked(Marks marks) { return _mm256_movemask_ps((__m256)marks) != 0; }
#else
typedef Mask Marks;
static inline Marks undefined_of(Floats a, Floats b) { return (a != a) | (b != b); }
static inline bool is_marked(Marks marks) {
    int32_t any = 0;
    for (int lane = 0; lane < LANES; lane++) any |= marks[lane];
    return any != 0;
}
#endif

// With care, what is undefined in either stays.
INLINE Floats larger_one(Floats a, Floats b, const bool careful) {
    return careful ? larger_of(b, a) : all_at_least(a, b);
}

#endif
