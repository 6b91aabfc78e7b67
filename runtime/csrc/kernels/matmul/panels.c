// Packing of matrices into panels: see gemm.h.
#include "gemm.h"
#include "../support/squares.h"

enum { PANELS_AT_ONCE = 4 };

typedef float LooseTwo __attribute__((vector_size(8), aligned(4), may_alias));

// Neighbours in a line of a panel that are neighbours in the matrix.
INLINE void copy_lines(float *to, const float *from, int64_t column, int64_t k, const int width) {
    for (int64_t p = 0; p < k; p++, to += width, from += column)
        __builtin_memcpy(to, from, (size_t)width * sizeof(float));
}

// The same of several panels: long lines of the matrix are read once, where a panel alone would read a
// part of each, far from the one before.
INLINE void copy_panels(float *to, const float *from, int64_t column, int64_t k, const int width) {
    for (int64_t p = 0; p < k; p++, to += width, from += column)
        UNROLLED_FOR (int panel = 0; panel < PANELS_AT_ONCE; panel++)
            __builtin_memcpy(
                to + panel * k * width, from + panel * width, (size_t)width * sizeof(float));
}

// Four lines of a panel from four rows, or, if `two`, from two.
INLINE void turn_four(float *to, const float *from, int64_t row, int width, const bool two) {
    Four lines[] = {
        load_four(from), load_four(from + row), load_four(from + (two ? 0 : 2 * row)),
        load_four(from + (two ? row : 3 * row))};
    turn_square(lines);
    for (int p = 0; p < 4; p++) {
        if (two)
            *(LooseTwo *)(to + p * width) =
                (LooseTwo)__builtin_shufflevector(lines[p], lines[p], 0, 1);
        else
            store_four(to + p * width, lines[p]);
    }
}

// The same of four rows for as many lines as a vector holds: all its quarters at once.
#define LOW(N) N, N + LANES, N + 1, N + LANES + 1
#define HIGH(N) N + 2, N + LANES + 2, N + 3, N + LANES + 3
#define FIRST(N) N, N + 1, N + LANES, N + LANES + 1
#define SECOND(N) N + 2, N + 3, N + LANES + 2, N + LANES + 3
#define PUT(N)                             \
    *(LooseFour *)(to + (N + p) * width) = \
        __builtin_shufflevector(line, line, N, N + 1, N + 2, N + 3);
#if VECTOR_BYTES == 64
#define QUARTERS(P) P(0), P(4), P(8), P(12)
#define PUT_ALL PUT(0) PUT(4) PUT(8) PUT(12)
#elif VECTOR_BYTES == 32
#define QUARTERS(P) P(0), P(4)
#define PUT_ALL PUT(0) PUT(4)
#else
#define QUARTERS(P) P(0)
#define PUT_ALL PUT(0)
#endif
INLINE void turn_lines(float *to, const float *from, int64_t row, int width) {
    const Floats a = load(from), b = load(from + row);
    const Floats c = load(from + 2 * row), d = load(from + 3 * row);
    const Floats ab = __builtin_shufflevector(a, b, QUARTERS(LOW));
    const Floats ab_high = __builtin_shufflevector(a, b, QUARTERS(HIGH));
    const Floats cd = __builtin_shufflevector(c, d, QUARTERS(LOW));
    const Floats cd_high = __builtin_shufflevector(c, d, QUARTERS(HIGH));
    const Floats lines[] = {
        __builtin_shufflevector(ab, cd, QUARTERS(FIRST)),
        __builtin_shufflevector(ab, cd, QUARTERS(SECOND)),
        __builtin_shufflevector(ab_high, cd_high, QUARTERS(FIRST)),
        __builtin_shufflevector(ab_high, cd_high, QUARTERS(SECOND))};
    for (int p = 0; p < 4; p++) {
        const Floats line = lines[p];
        PUT_ALL
    }
}

// A whole panel of rows whose numbers are neighbours.
INLINE void turn_panel(float *to, const float *from, int64_t row, int64_t k, const int width) {
    int64_t p = 0;
    for (; p + LANES <= k; p += LANES) {
        float *line = to + p * width;
        int i = 0;
        for (; i + 4 <= width; i += 4) turn_lines(line + i, from + i * row + p, row, width);
        for (int q = 0; i < width && q < LANES; q += 4)
            turn_four(line + q * width + i, from + i * row + p + q, row, width, true);
    }
    for (; p + 4 <= k; p += 4) {
        float *line = to + p * width;
        int i = 0;
        for (; i + 4 <= width; i += 4) turn_four(line + i, from + i * row + p, row, width, false);
        if (i < width) turn_four(line + i, from + i * row + p, row, width, true);
    }
    for (; p < k; p++)
        for (int i = 0; i < width; i++) to[p * width + i] = from[i * row + p];
}

// A panel that lacks rows, or whose numbers are nobody's neighbours; `width` is a constant.
INLINE void pack_some(
    float *to, const float *from, int64_t row, int64_t column, int count, int64_t k,
    const int width) {
    int64_t p = 0;
    for (; column == 1 && p + 4 <= k; p += 4) {
        float *line = to + p * width;
        __builtin_memset(line, 0, (size_t)(4 * width) * sizeof(float));
        int i = 0;
        for (; i + 4 <= count; i += 4) turn_four(line + i, from + i * row + p, row, width, false);
        for (; i < count; i++)
            for (int j = 0; j < 4; j++) line[j * width + i] = from[i * row + p + j];
    }
    for (; p < k; p++) {
        float *line = to + p * width;
        const float *source = from + p * column;
        __builtin_memset(line, 0, (size_t)width * sizeof(float));
        for (int i = 0; i < count; i++) line[i] = source[i * row];
    }
}

// `width` is a constant wherever this is called.
INLINE void pack_all(
    float *to, const float *from, int64_t row, int64_t column, int64_t rows, int64_t k,
    const int width) {
    int64_t first = 0;
    for (; row == 1 && first + PANELS_AT_ONCE * width <= rows; first += PANELS_AT_ONCE * width) {
        copy_panels(to, from + first, column, k, width);
        to += PANELS_AT_ONCE * k * width;
    }
    for (; first < rows; first += width, to += k * width) {
        const float *panel = from + first * row;
        const int count = rows - first < width ? (int)(rows - first) : width;
        if (count < width || (row != 1 && column != 1))
            pack_some(to, panel, row, column, count, k, width);
        else if (row == 1)
            copy_lines(to, panel, column, k, width);
        else
            turn_panel(to, panel, row, k, width);
    }
}

void ISA(pack_panels)(
    float *to, const float *from, int64_t row, int64_t column, int64_t rows, int64_t k, int width) {
    if (width == TILE_ROWS)
        pack_all(to, from, row, column, rows, k, TILE_ROWS);
    else if (width == PANEL_COLUMNS)
        pack_all(to, from, row, column, rows, k, PANEL_COLUMNS);
    else
        pack_all(to, from, row, column, rows, k, TILE_COLUMNS);
}
