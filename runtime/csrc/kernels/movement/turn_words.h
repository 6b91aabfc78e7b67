// Lines of 32 bits an element that become columns, by squares of eight.
#ifndef POPC_TURN_WORDS_H
#define POPC_TURN_WORDS_H

#include "../support/simd.h"

enum { WORD_SIDE = 8 };

#if defined(__AVX2__)
typedef float EightWords __attribute__((vector_size(32)));
typedef float LooseEightWords __attribute__((vector_size(32), aligned(1), may_alias));

INLINE void turn_square_of_words(const char *from, int64_t row, char *to, int64_t to_row) {
    EightWords lines[8], pairs[8], fours[8];
    UNROLLED_FOR (int i = 0; i < 4; i++) {  // halves of lines that are four apart
        const EightWords a = *(const LooseEightWords *)(from + i * row);
        const EightWords b = *(const LooseEightWords *)(from + (i + 4) * row);
        lines[i] = __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11);
        lines[i + 4] = __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15);
    }
    UNROLLED_FOR (int i = 0; i < 8; i += 2) {
        pairs[i] = __builtin_shufflevector(lines[i], lines[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
        pairs[i + 1] = __builtin_shufflevector(lines[i], lines[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
    }
    UNROLLED_FOR (int h = 0; h < 8; h += 4)
        UNROLLED_FOR (int i = 0; i < 2; i++) {
            const EightWords a = pairs[h + i], b = pairs[h + i + 2];
            fours[h + 2 * i] = __builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13);
            fours[h + 2 * i + 1] = __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15);
        }
    UNROLLED_FOR (int i = 0; i < 8; i++) *(LooseEightWords *)(to + i * to_row) = fours[i];
}

// to[j][i] = from[i][j] of at least eight by eight elements, whose rows are bytes apart, so that lines of
// 64 bytes are written whole; the last squares reach back, and write again what is there.
static inline void turn_words(
    const char *from, int64_t row, char *to, int64_t to_row, int64_t rows, int64_t columns) {
    enum { LINE = 16, SIZE = 4 };
    for (int64_t top = 0; top < rows; top += LINE)
        for (int64_t left = 0; left < columns; left += WORD_SIDE) {
            const int64_t j = left + WORD_SIDE > columns ? columns - WORD_SIDE : left;
            for (int64_t at = top; at < top + LINE && at < rows; at += WORD_SIDE) {
                const int64_t i = at + WORD_SIDE > rows ? rows - WORD_SIDE : at;
                turn_square_of_words(
                    from + i * row + j * SIZE, row, to + j * to_row + i * SIZE, to_row);
            }
        }
}
#endif

#endif
