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

// Which lanes of a vector are in memory.
#if defined(__AVX512F__)
typedef __mmask16 Lanes;
#elif defined(__AVX2__)
typedef Mask Lanes;
#else
typedef struct { int first, end; } Lanes;
#endif

// Lanes `first` .. `end` - 1, of which some or all may not exist.
static inline Lanes lanes_between(int64_t first, int64_t end) {
    const int low = first < 0 ? 0 : first > LANES ? LANES : (int)first;
    const int high = end > LANES ? LANES : end < low ? low : (int)end;
#if defined(__AVX512F__)
    return (Lanes)((1u << high) - (1u << low));
#elif defined(__AVX2__)
    const __m256i before = first_lanes(low);
    return (Lanes)_mm256_andnot_si256(before, first_lanes(high));
#else
    return (Lanes){low, high};
#endif
}

// These lanes, and `others`; `from` is where lane 0 would be.
static inline Floats load_lanes(const float *from, Lanes lanes, Floats others) {
#if defined(__AVX512F__)
    return (Floats)_mm512_mask_loadu_ps((__m512)others, lanes, from);
#elif defined(__AVX2__)
    return select_of(lanes, (Floats)_mm256_maskload_ps(from, (__m256i)lanes), others);
#else
    for (int lane = lanes.first; lane < lanes.end; lane++) others[lane] = from[lane];
    return others;
#endif
}

// Stores as many, of which there are fewer than lanes.
static inline void store_some(float *to, Floats values, int64_t count) {
#if defined(__AVX512F__)
    _mm512_mask_storeu_ps(to, (__mmask16)((1u << count) - 1), (__m512)values);
#elif defined(__AVX2__)
    __m128 rest = _mm256_castps256_ps128((__m256)values);  // a masked store takes 12 cycles on Zen
    if (count & 4) {
        _mm_storeu_ps(to, rest);
        rest = _mm256_extractf128_ps((__m256)values, 1);
        to += 4;
    }
    if (count & 2) {
        _mm_storel_pi((__m64 *)(void *)to, rest);
        rest = _mm_movehl_ps(rest, rest);
        to += 2;
    }
    if (count & 1) _mm_store_ss(to, rest);
#else
    memcpy(to, &values, (size_t)count * sizeof(float));
#endif
}

#endif
