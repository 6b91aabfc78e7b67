#include "strided.h"

// Of so many rows and vectors; whether the numbers of a column of the tile lie `beside` each other.  These
// are constants, so that sums stay in registers; registers for addresses are few.
INLINE void multiply_rows(
    const LeftTiles *left, const float *from, const float *right, int64_t k, float *out, bool add,
    const int rows, const int vectors, const bool beside) {
    enum { TOGETHER = 3 };  // rows that have an address in common
    const float *bases[(TILE_ROWS + TOGETHER - 1) / TOGETHER];
    const int64_t row = beside ? 1 : left->row, column = left->column;
    UNROLLED_FOR (int i = 0; i < rows; i += TOGETHER) bases[i / TOGETHER] = from + i * row;
    Floats sums[TILE_ROWS][2];
    UNROLLED_FOR (int i = 0; i < rows; i++)
        UNROLLED_FOR (int v = 0; v < vectors; v++)
            sums[i][v] = add ? load(out + i * TILE_COLUMNS + v * LANES) : (Floats){0};
    for (int64_t p = 0; p < k; p++, from += column, right += TILE_COLUMNS) {
        Floats line[2];
        UNROLLED_FOR (int v = 0; v < vectors; v++) line[v] = load(right + v * LANES);
        UNROLLED_FOR (int i = 0; i < rows; i++) {
            const float number = beside ? from[i] : bases[i / TOGETHER][i % TOGETHER * row];
            UNROLLED_FOR (int v = 0; v < vectors; v++) sums[i][v] += number * line[v];
        }
        if (!beside)
            UNROLLED_FOR (int i = 0; i < rows; i += TOGETHER) bases[i / TOGETHER] += column;
    }
    UNROLLED_FOR (int i = 0; i < rows; i++)
        UNROLLED_FOR (int v = 0; v < vectors; v++)
            store(out + i * TILE_COLUMNS + v * LANES, sums[i][v]);
}

#define ROWS(N, VECTORS, BESIDE) \
    multiply_rows(&left, left.data, right, k, out, add, N, VECTORS, BESIDE)
#define CASE_BESIDE(N, VECTORS) \
    case N: ROWS(N, VECTORS, true); break;
#define CASE_APART(N, VECTORS) \
    case N: ROWS(N, VECTORS, false); break;

// All rows, `vectors` wide.
#define MULTIPLY(NAME, VECTORS, CASE, BESIDE)                                             \
    static void NAME(                                                                     \
        LeftTiles left, const float *right, int64_t k, float *out, int64_t m, bool add) { \
        for (; m >= TILE_ROWS; m -= TILE_ROWS) {                                          \
            ROWS(TILE_ROWS, VECTORS, BESIDE);                                             \
            left.data += left.tile;                                                       \
            out += TILE_ROWS * TILE_COLUMNS;                                              \
        }                                                                                 \
        switch (m) {                                                                      \
            ROW_CASES(CASE, VECTORS)                                                      \
            default: break;                                                               \
        }                                                                                 \
    }
MULTIPLY(wide_beside, 2, CASE_BESIDE, true)
MULTIPLY(narrow_beside, 1, CASE_BESIDE, true)
MULTIPLY(wide_apart, 2, CASE_APART, false)
MULTIPLY(narrow_apart, 1, CASE_APART, false)

void ISA(multiply_strided)(
    LeftTiles left, const float *right, int64_t k, float *out, int64_t m, int lanes, bool add) {
    const bool narrow = lanes <= LANES;
    if (left.row == 1 && narrow)
        narrow_beside(left, right, k, out, m, add);
    else if (left.row == 1)
        wide_beside(left, right, k, out, m, add);
    else if (narrow)
        narrow_apart(left, right, k, out, m, add);
    else
        wide_apart(left, right, k, out, m, add);
}
