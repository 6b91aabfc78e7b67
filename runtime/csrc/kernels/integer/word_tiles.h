// Products of bytes that have become words: two words by two, added up in 32 bits, are one instruction
// of most processors, and nothing saturates.
#ifndef POPC_WORD_TILES_H
#define POPC_WORD_TILES_H

#include "products_i8.h"

// Rows of a tile: 12 sums with AVX2, 24 with AVX-512, whose products take registers of their own.
#if VECTOR_BYTES == 64
enum { WORD_ROWS = 12 };
#else
enum { WORD_ROWS = 6 };
#endif

// A tile of WORD_ROWS rows by BYTE_COLUMNS columns.
typedef struct {
    const int16_t *const *lines;  // of the rows; there are WORD_ROWS of them
    const int64_t *offsets;  // in each line, of runs of words that lie side by side
    int64_t runs, pairs;  // and of two words in each run
    const int16_t *right;  // [run][pair][BYTE_COLUMNS][2]
    bool woven;  // columns have words of their own, two of them side by side; runs are such pairs
    int64_t first;  // then: words to the first column
    int32_t *sums;  // [WORD_ROWS][BYTE_COLUMNS]
} WordTile;

// Makes the first `rows` rows, and maybe others, of the first `columns` columns.
void ISA(multiply_words)(const WordTile *tile, int64_t rows, int64_t columns);

// Bytes that lie `step` apart, less `zero`, as words.
void ISA(widen_bytes)(
    const uint8_t *from, int64_t step, int64_t count, bool is_signed, int32_t zero, int16_t *to,
    int64_t to_step);

// Words that stand for columns lie in pairs: the place of number `k` of a column.
static inline int64_t word_place(int64_t k, int64_t column) {
    return (k / 2 * BYTE_COLUMNS + column) * 2 + k % 2;
}

#endif
