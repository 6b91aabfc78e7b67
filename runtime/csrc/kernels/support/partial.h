// Vectors of which only the first lanes are in memory.
#ifndef POPC_PARTIAL_H
#define POPC_PARTIAL_H

#include "simd.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#if defined(__AVX2__) && !defined(__AVX512F__)
static inline __m256i first_lanes(int64_t count) {
    const __m256i places = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)count), places);
}
#endif

// The first `count` floats, which may be none or more than there are lanes, and zeros.
static inline Floats load_some(const float *from, int64_t count) {
    if (count >= LANES) return load(from);
    if (count <= 0) return (Floats){0};
#if defined(__AVX512F__)
    return (Floats)_mm512_maskz_loadu_ps((__mmask16)((1u << count) - 1), from);
#elif defined(__AVX2__)
    return (Floats)_mm256_maskload_ps(from, first_lanes(count));
#else
    float few[LANES] = {0};
    memcpy(few, from, (size_t)count * sizeof(float));
    return load(few);
#endif
}

// Stores as many, of which there are fewer than lanes.
static inline void store_some(float *to, Floats values, int64_t count) {
#if defined(__AVX512F__)
    _mm512_mask_storeu_ps(to, (__mmask16)((1u << count) - 1), (__m512)values);
#elif defined(__AVX2__)
    _mm256_maskstore_ps(to, first_lanes(count), (__m256)values);
#else
    memcpy(to, &values, (size_t)count * sizeof(float));
#endif
}

#endif
