// Blocks of as many lines as a vector has lanes, turned.
#ifndef POPC_LANES_H
#define POPC_LANES_H

#include "../support/squares.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

// Number `at` and three more of every fourth line from `rows` on, one behind the other.
INLINE Floats fours_of(const float *const *rows, int64_t at) {
#if defined(__AVX512F__)
    const __m512 two = _mm512_insertf32x4(
        _mm512_castps128_ps512((__m128)load_four(rows[0] + at)), (__m128)load_four(rows[4] + at),
        1);
    const __m512 three = _mm512_insertf32x4(two, (__m128)load_four(rows[8] + at), 2);
    return (Floats)_mm512_insertf32x4(three, (__m128)load_four(rows[12] + at), 3);
#elif defined(__AVX2__)
    const __m256 one = _mm256_castps128_ps256((__m128)load_four(rows[0] + at));
    return (Floats)_mm256_insertf128_ps(one, (__m128)load_four(rows[4] + at), 1);
#else
    return (Floats)load_four(rows[0] + at);
#endif
}

// The squares of four by four of four vectors, turned.
INLINE void turn_fours(Floats *rows) {
#if defined(__AVX512F__)
    const __m512 a = _mm512_unpacklo_ps((__m512)rows[0], (__m512)rows[1]);
    const __m512 b = _mm512_unpackhi_ps((__m512)rows[0], (__m512)rows[1]);
    const __m512 c = _mm512_unpacklo_ps((__m512)rows[2], (__m512)rows[3]);
    const __m512 d = _mm512_unpackhi_ps((__m512)rows[2], (__m512)rows[3]);
    rows[0] = (Floats)_mm512_unpacklo_pd((__m512d)a, (__m512d)c);
    rows[1] = (Floats)_mm512_unpackhi_pd((__m512d)a, (__m512d)c);
    rows[2] = (Floats)_mm512_unpacklo_pd((__m512d)b, (__m512d)d);
    rows[3] = (Floats)_mm512_unpackhi_pd((__m512d)b, (__m512d)d);
#elif defined(__AVX2__)
    const __m256 a = _mm256_unpacklo_ps((__m256)rows[0], (__m256)rows[1]);
    const __m256 b = _mm256_unpackhi_ps((__m256)rows[0], (__m256)rows[1]);
    const __m256 c = _mm256_unpacklo_ps((__m256)rows[2], (__m256)rows[3]);
    const __m256 d = _mm256_unpackhi_ps((__m256)rows[2], (__m256)rows[3]);
    rows[0] = (Floats)_mm256_unpacklo_pd((__m256d)a, (__m256d)c);
    rows[1] = (Floats)_mm256_unpackhi_pd((__m256d)a, (__m256d)c);
    rows[2] = (Floats)_mm256_unpacklo_pd((__m256d)b, (__m256d)d);
    rows[3] = (Floats)_mm256_unpackhi_pd((__m256d)b, (__m256d)d);
#else
    turn_square((Four *)rows);
#endif
}

// columns[j][i] = rows[i][at + j]
INLINE void turn_lanes(const float *const *rows, int64_t at, Floats *columns) {
    UNROLLED_FOR (int four = 0; four < LANES; four += 4) {
        UNROLLED_FOR (int i = 0; i < 4; i++) columns[four + i] = fours_of(rows + i, at + four);
        turn_fours(columns + four);
    }
}

#endif
