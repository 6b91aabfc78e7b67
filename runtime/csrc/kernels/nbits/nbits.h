// Matrices that are stored in 2, 4 or 8 bits a number.
#ifndef POPC_NBITS_H
#define POPC_NBITS_H

#include "../../tensor.h"
#include "../support/simd.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

// A vector of bytes with signs, as floats.  gcc would move them one by one.
static inline Floats floats_of_bytes(const int8_t *from) {
#if defined(__AVX512F__)
    const __m128i bytes = _mm_loadu_si128((const __m128i_u *)from);
    return (Floats)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
#elif defined(__AVX2__)
    const __m128i bytes = _mm_loadu_si64(from);
    return (Floats)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
#else
    typedef int8_t Bytes __attribute__((vector_size(LANES)));
    Bytes bytes;
    memcpy(&bytes, from, sizeof(bytes));
    return __builtin_convertvector(bytes, Floats);
#endif
}

// Rows of numbers, low bits of each word first.  A number less its zero point, times its scale, is what
// it stands for; both are those of its block.
typedef struct {
    const float *packed;  // words, moved as if they were floats
    const float *scales;  // [rows][blocks]
    const int32_t *groups;  // the block of each number of a row, or NULL: they follow each other
    const int8_t
        *offsets;  // zero points less the middle of the range, [blocks][16] for 16 rows, or NULL
    const float *float_offsets;  // the same, instead of `offsets`
    int64_t rows, k, blocks, block;  // numbers of a row, its blocks, numbers of a block
    int64_t words;  // of a row
    int width;  // bits of a number
} PackedBits;

// Sixteen rows side by side.
typedef struct {
    const float *words;  // [words][16]
    const float *scales;  // [blocks][16]
    const int8_t *offsets;  // [blocks][16], or NULL
    const float *float_offsets;
    const float *next;  // words that will be turned after these
} Turned;

// What is stored of `rows` rows of `k` numbers; false if it does not fit.  The operands lie without gaps.
bool ISA(lay_out_bits)(
    PackedBits *bits, const Tensor *numbers, const Tensor *scales, int64_t rows, int64_t k,
    int64_t width, int64_t block);

// Zero points, which are final, less the middle of the range: in panels like those of scales, or in the
// order of scales.  They lie in `memory`, which is to be freed, whether they fit or not.
bool ISA(pack_zeros)(PackedBits *bits, const Tensor *zero, bool in_panels, void **memory);

// Rows from `first` on, a multiple of 16, in `to`, which has room for words and scales of 16 rows.
Turned ISA(turn_bits)(const PackedBits *bits, int64_t first, float *to);

// out[16] = what the rows stand for, times left, which is zero behind the last number; `sums` are those
// of its blocks.  Without groups.
void ISA(multiply_bits)(
    const PackedBits *bits, const Turned *panel, const float *left, const float *sums, float *out);

// What the rows stand for: a panel [k][16].
void ISA(expand_bits)(const PackedBits *bits, const Turned *panel, float *to);

#endif
