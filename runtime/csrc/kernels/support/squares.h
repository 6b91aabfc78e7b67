// Squares of four by four floats, and of sixteen by sixteen bytes, turned.
#ifndef POPC_SQUARES_H
#define POPC_SQUARES_H

#include "simd.h"

#include <stdint.h>

typedef float Four __attribute__((vector_size(16)));
typedef float LooseFour __attribute__((vector_size(16), aligned(4), may_alias));

static inline Four load_four(const float *from) { return *(const LooseFour *)from; }
static inline void store_four(float *to, Four values) { *(LooseFour *)to = values; }

// Rows become columns.
INLINE void turn_square(Four rows[4]) {
    const Four ab = __builtin_shufflevector(rows[0], rows[1], 0, 4, 1, 5);
    const Four ab_high = __builtin_shufflevector(rows[0], rows[1], 2, 6, 3, 7);
    const Four cd = __builtin_shufflevector(rows[2], rows[3], 0, 4, 1, 5);
    const Four cd_high = __builtin_shufflevector(rows[2], rows[3], 2, 6, 3, 7);
    rows[0] = __builtin_shufflevector(ab, cd, 0, 1, 4, 5);
    rows[1] = __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
    rows[2] = __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5);
    rows[3] = __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7);
}

// Numbers of two lines in turn.
static inline void weave_two(const float *a, const float *b, float *to, int64_t count) {
    int64_t i = 0;
    for (; i + 4 <= count; i += 4) {
        const Four first = load_four(a + i), second = load_four(b + i);
        store_four(to + 2 * i, __builtin_shufflevector(first, second, 0, 4, 1, 5));
        store_four(to + 2 * i + 4, __builtin_shufflevector(first, second, 2, 6, 3, 7));
    }
    for (; i < count; i++) {
        to[2 * i] = a[i];
        to[2 * i + 1] = b[i];
    }
}

// A square that is cut off at the end of rows or of columns.
static inline void turn_corner(
    const float *square, int64_t row, float *turned, int64_t to_row, int64_t rows,
    int64_t columns) {
    for (int64_t a = 0; a < 4 && a < rows; a++)
        for (int64_t b = 0; b < 4 && b < columns; b++) turned[b * to_row + a] = square[a * row + b];
}

// to[j][i] = from[i][j].  Lines of the cache are written whole: there may be no room for more of them
// than for one of each row.
static inline void turn(
    const float *from, int64_t row, float *to, int64_t to_row, int64_t rows, int64_t columns) {
    enum { LINE = 16 };
    if (rows == 2 && to_row == 2) {
        weave_two(from, from + row, to, columns);
        return;
    }
    for (int64_t top = 0; top < rows; top += LINE)
        for (int64_t j = 0; j < columns; j += 4)
            for (int64_t i = top; i < top + LINE && i < rows; i += 4) {
                const float *square = from + i * row + j;
                float *turned = to + j * to_row + i;
                if (i + 4 > rows || j + 4 > columns) {
                    turn_corner(square, row, turned, to_row, rows - i, columns - j);
                    continue;
                }
                Four lines[4];
                for (int a = 0; a < 4; a++) lines[a] = load_four(square + a * row);
                turn_square(lines);
                for (int a = 0; a < 4; a++) store_four(turned + a * to_row, lines[a]);
            }
}

typedef uint16_t Eight __attribute__((vector_size(16)));
typedef uint16_t LooseEight __attribute__((vector_size(16), aligned(1), may_alias));

// Pairs of lines four apart are woven, three times.
INLINE void turn_square_of_halves(const char *from, int64_t row, char *to, int64_t to_row) {
    Eight lines[8], woven[8];
    UNROLLED_FOR (int i = 0; i < 8; i++) lines[i] = *(const LooseEight *)(from + i * row);
    UNROLLED_FOR (int times = 0; times < 3; times++) {
        UNROLLED_FOR (int i = 0; i < 4; i++) {
            const Eight a = lines[i], b = lines[i + 4];
            woven[2 * i] = __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
            woven[2 * i + 1] = __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
        }
        UNROLLED_FOR (int i = 0; i < 8; i++) lines[i] = woven[i];
    }
    UNROLLED_FOR (int i = 0; i < 8; i++) *(LooseEight *)(to + i * to_row) = lines[i];
}

// to[j][i] = from[i][j] of at least eight by eight elements of 16 bits, whose rows are bytes apart, so
// that lines of 64 bytes are written whole; the last squares reach back, and write again what is there.
static inline void turn_halves(
    const char *from, int64_t row, char *to, int64_t to_row, int64_t rows, int64_t columns) {
    enum { SIDE = 8, LINE = 32, SIZE = 2 };
    for (int64_t top = 0; top < rows; top += LINE)
        for (int64_t left = 0; left < columns; left += SIDE) {
            const int64_t j = left + SIDE > columns ? columns - SIDE : left;
            for (int64_t at = top; at < top + LINE && at < rows; at += SIDE) {
                const int64_t i = at + SIDE > rows ? rows - SIDE : at;
                turn_square_of_halves(
                    from + i * row + j * SIZE, row, to + j * to_row + i * SIZE, to_row);
            }
        }
}

typedef uint8_t Sixteen __attribute__((vector_size(16)));
typedef uint8_t LooseSixteen __attribute__((vector_size(16), aligned(1), may_alias));

// Pairs of lines eight apart are woven, four times.
INLINE void turn_square_of_bytes(const uint8_t *from, int64_t row, uint8_t *to, int64_t to_row) {
    Sixteen lines[16], woven[16];
    UNROLLED_FOR (int i = 0; i < 16; i++) lines[i] = *(const LooseSixteen *)(from + i * row);
    UNROLLED_FOR (int times = 0; times < 4; times++) {
        UNROLLED_FOR (int i = 0; i < 8; i++) {
            const Sixteen a = lines[i], b = lines[i + 8];
            woven[2 * i] = __builtin_shufflevector(
                a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
            woven[2 * i + 1] = __builtin_shufflevector(
                a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
        }
        UNROLLED_FOR (int i = 0; i < 16; i++) lines[i] = woven[i];
    }
    UNROLLED_FOR (int i = 0; i < 16; i++) *(LooseSixteen *)(to + i * to_row) = lines[i];
}

// to[j][i] = from[i][j]; the last squares reach back, and write again what is there.
static inline void turn_bytes(
    const uint8_t *from, int64_t row, uint8_t *to, int64_t to_row, int64_t rows, int64_t columns) {
    if (rows < 16 || columns < 16) {
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < columns; j++) to[j * to_row + i] = from[i * row + j];
        return;
    }
    for (int64_t top = 0; top < rows; top += 16)
        for (int64_t left = 0; left < columns; left += 16) {
            const int64_t i = top + 16 > rows ? rows - 16 : top;
            const int64_t j = left + 16 > columns ? columns - 16 : left;
            turn_square_of_bytes(from + i * row + j, row, to + j * to_row + i, to_row);
        }
}

#endif
