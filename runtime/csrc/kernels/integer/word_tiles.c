#include "word_tiles.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

// What two words of each lane of both add up to when they are multiplied.
static inline Ints pair_products(Ints a, Ints b) {
#if defined(__AVX512BW__)
    return (Ints)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
    return (Ints)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#else
    return (a << 16 >> 16) * (b << 16 >> 16) + (a >> 16) * (b >> 16);
#endif
}

static inline int32_t pair_at(const int16_t *from) {
    int32_t pair;
    memcpy(&pair, from, sizeof(pair));
    return pair;
}

static inline Ints pairs_at(const int16_t *from) { return *(const LooseInts *)from; }

// `rows` and `vectors` are constants, so that sums stay in registers.
INLINE void store_sums(
    const WordTile *tile, const Ints (*sums)[2], const int rows, const int vectors) {
    UNROLLED_FOR (int i = 0; i < rows; i++)
        UNROLLED_FOR (int v = 0; v < vectors; v++)
            *(LooseInts *)(tile->sums + i * BYTE_COLUMNS + v * LANES) = sums[i][v];
}

INLINE void multiply_rows(const WordTile *tile, const int rows, const int vectors) {
    Ints sums[WORD_ROWS][2] = {{{0}}};
    const int16_t *right = tile->right;
    for (int64_t run = 0; run < tile->runs; run++) {
        const int16_t *from[WORD_ROWS];
        UNROLLED_FOR (int i = 0; i < rows; i++) from[i] = tile->lines[i] + tile->offsets[run];
        for (int64_t pair = 0; pair < tile->pairs; pair++, right += 2 * BYTE_COLUMNS) {
            Ints numbers[2];
            UNROLLED_FOR (int v = 0; v < vectors; v++) numbers[v] = pairs_at(right + v * 2 * LANES);
            UNROLLED_FOR (int i = 0; i < rows; i++) {
                const Ints left = pair_at(from[i] + 2 * pair) - (Ints){0};
                UNROLLED_FOR (int v = 0; v < vectors; v++)
                    sums[i][v] += pair_products(left, numbers[v]);
            }
        }
    }
    store_sums(tile, sums, rows, vectors);
}

INLINE void multiply_lanes(const WordTile *tile, const int vectors) {
    Ints sums[WORD_ROWS][2] = {{{0}}};
    const int16_t *right = tile->right;
    for (int64_t run = 0; run < tile->runs; run++, right += 2 * BYTE_COLUMNS) {
        const int64_t offset = tile->offsets[run] + tile->first;
        Ints numbers[2];
        UNROLLED_FOR (int v = 0; v < vectors; v++) numbers[v] = pairs_at(right + v * 2 * LANES);
        UNROLLED_FOR (int i = 0; i < WORD_ROWS; i++)
            UNROLLED_FOR (int v = 0; v < vectors; v++)
                sums[i][v] +=
                    pair_products(pairs_at(tile->lines[i] + offset + v * 2 * LANES), numbers[v]);
    }
    store_sums(tile, sums, WORD_ROWS, vectors);
}

void ISA(multiply_words)(const WordTile *tile, int64_t rows, int64_t columns) {
    const bool few = rows <= WORD_ROWS / 2, narrow = columns <= LANES;
    if (tile->woven && narrow)
        multiply_lanes(tile, 1);
    else if (tile->woven)
        multiply_lanes(tile, 2);
    else if (few && narrow)
        multiply_rows(tile, WORD_ROWS / 2, 1);
    else if (few)
        multiply_rows(tile, WORD_ROWS / 2, 2);
    else if (narrow)
        multiply_rows(tile, WORD_ROWS, 1);
    else
        multiply_rows(tile, WORD_ROWS, 2);
}

INLINE void widen(
    const uint8_t *from, int64_t step, int64_t count, const bool is_signed, int32_t zero,
    int16_t *to, int64_t to_step) {
    for (int64_t i = 0; i < count; i++)
        to[i * to_step] = (int16_t)((is_signed ? (int8_t)from[i * step] : from[i * step]) - zero);
}

void ISA(widen_bytes)(
    const uint8_t *from, int64_t step, int64_t count, bool is_signed, int32_t zero, int16_t *to,
    int64_t to_step) {
    const bool beside = step == 1 && to_step == 1;
    if (beside && is_signed)
        widen(from, 1, count, true, zero, to, 1);
    else if (beside)
        widen(from, 1, count, false, zero, to, 1);
    else if (is_signed)
        widen(from, step, count, true, zero, to, to_step);
    else
        widen(from, step, count, false, zero, to, to_step);
}
