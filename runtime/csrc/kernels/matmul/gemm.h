// The heart of matrix products: packed panels and the tile that multiplies two of them.
//
// The left matrix is packed into panels of TILE_ROWS rows, [k][TILE_ROWS] each, the right one into
// panels of PANEL_COLUMNS columns, [k][PANEL_COLUMNS] each; what is missing at the end is zero.  How
// wide the latter are is part of the format of archives, and the same for all processors: a tile
// reads a panel, two neighbouring ones, or half of one.
#ifndef POPC_GEMM_H
#define POPC_GEMM_H

#include "../elementwise/maps.h"
#include "../support/sizes.h"

// Sums of a tile, two vectors of its right lines and a number of its left ones are in registers: 24 + 3
// of 32 with AVX-512, 12 + 3 of 16 with AVX2, 16 + 3 of 32 elsewhere.  Tiles of 6 x 16 reach all of the
// 100 GF/s that a core of Zen 3 has; clang does not keep those of 4 x 24 in registers (43 GF/s).
#if VECTOR_BYTES == 64
enum { TILE_ROWS = 12 };
#elif VECTOR_BYTES == 32
enum { TILE_ROWS = 6 };
#else
enum { TILE_ROWS = 8 };
#endif
// CASE(N, WITH) for every number of rows of a tile that is not whole.
#if VECTOR_BYTES == 64
#define ROW_CASES(CASE, WITH)  \
    FIVE_ROW_CASES(CASE, WITH) \
    CASE(6, WITH)              \
    CASE(7, WITH)              \
    CASE(8, WITH)              \
    CASE(9, WITH)              \
    CASE(10, WITH)             \
    CASE(11, WITH)
#elif VECTOR_BYTES == 32
#define ROW_CASES(CASE, WITH) FIVE_ROW_CASES(CASE, WITH)
#else
#define ROW_CASES(CASE, WITH)  \
    FIVE_ROW_CASES(CASE, WITH) \
    CASE(6, WITH)              \
    CASE(7, WITH)
#endif
#define FIVE_ROW_CASES(CASE, WITH) \
    CASE(1, WITH)                  \
    CASE(2, WITH)                  \
    CASE(3, WITH)                  \
    CASE(4, WITH)                  \
    CASE(5, WITH)
enum {
    TILE_COLUMNS = 2 * LANES,
    PANEL_COLUMNS = 16,
    // What is divided between tiles and threads: whole panels and whole tiles.
    WHOLE_COLUMNS = TILE_COLUMNS > PANEL_COLUMNS ? TILE_COLUMNS : PANEL_COLUMNS,
    // Rows that are multiplied without being packed, by so many columns at once: 24 sums with AVX-512,
    // and 12.  They take about as long as a single row, which waits for memory; packed, four rows took
    // half as long again.
    FEW_ROWS = VECTOR_BYTES == 64 ? 6 : 3,
    FEW_COLUMNS = VECTOR_BYTES == 64 ? 4 * PANEL_COLUMNS : 2 * PANEL_COLUMNS,
    // Lines of panels that are multiplied in one turn of a loop: where tiles are small, counting would
    // take the place of products.
    AT_ONCE = VECTOR_BYTES == 32 ? 2 : 1,
    // About: of products that are made at once, so that a panel stays in the first cache.  It is 16 KiB
    // of 16 columns, half of the cache.
    DEPTH = 256,
    // Of both matrices what is used in turn: with their results they stay in the second cache.  With
    // AVX2 that is 96 + 128 + 48 KiB, of the 512 that Zen 3 has, of 256 at least elsewhere.
    BLOCK_TILES = 16,
    BLOCK_COLUMNS = 8 * TILE_COLUMNS,
};

// Two vectors of columns of the right matrix.
typedef struct {
    const float *data;
    int64_t line;  // floats from line to line
    int64_t second;  // floats from the first vector to the second one
} PanelColumns;

// From line `line` of column `column` on, of packed panels.
static inline PanelColumns panel_columns(
    const float *right, int64_t k, int64_t column, int64_t line) {
    const int64_t panel = column / PANEL_COLUMNS * PANEL_COLUMNS;
    return (PanelColumns){
        right + panel * k + line * PANEL_COLUMNS + (column - panel), PANEL_COLUMNS,
        TILE_COLUMNS > PANEL_COLUMNS ? k * PANEL_COLUMNS : LANES};
}

// Rows of tiles of about the same height: one of few rows takes longer than its share.
static inline int64_t even_rows(int64_t rows) { return ceil_div(rows, ceil_div(rows, TILE_ROWS)); }

// What happens to a part of the result before it is left alone, in this order.
typedef struct {
    const float *row_bias;  // one number for each row
    const float *column_bias;  // one for each column
    const float *residual;  // like the result, with its own distance between rows
    int64_t residual_row;
    MapLoop activation;  // NULL: there is none
    bool relu;  // the activation is Relu, and `activation` NULL
    double parameters[MAX_PARAMETERS];
} Epilogue;

// Where part of a result goes.
typedef struct {
    float *data;
    int64_t row;  // floats from row to row
    int64_t first_row, first_column;  // of this part, for the epilogue
} Place;

// What a tile does with its sums before it writes them: adds one number to each row, or none, and
// takes Relu.
typedef struct {
    const float *bias;
    bool relu;
} Ending;

#define NO_ENDING ((Ending){NULL, false})

INLINE void end_rows(Ending ending, const int rows, const int vectors, Floats (*sums)[2]) {
    UNROLLED_FOR (int i = 0; i < rows; i++) {
        const float bias = ending.bias ? ending.bias[i] : 0;
        UNROLLED_FOR (int v = 0; v < vectors; v++) {
            sums[i][v] += bias;
            if (ending.relu) sums[i][v] = relu_of(sums[i][v]);
        }
    }
}

// Asks for what comes next: lines of a result lie too far apart for the processor to guess it.
static inline void expect(const float *from, int64_t row, int64_t rows, int64_t columns) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j += 16) __builtin_prefetch(from + i * row + j, 1);
}

// Packs `rows` rows (columns of the right matrix: swap the strides) into panels of `width`.
void ISA(pack_panels)(
    float *to, const float *from, int64_t row, int64_t column, int64_t rows, int64_t k, int width);

// out = left * right of a panel of rows and TILE_COLUMNS columns, [depth][TILE_COLUMNS], with `depth`
// numbers to add up; if `add`, added to out.
void ISA(multiply_tile)(
    const float *left, const float *right, int64_t depth, Place out, int rows, int columns,
    bool add, Ending ending);

// A tile of which two vectors of columns lie anywhere: line p of the right matrix is right[0] +
// offsets[p] and right[1] + offsets[p].  There is one if right[1] is NULL.  The sums of the second one go
// `out_second` floats beside those of the first.
void ISA(multiply_lines)(
    const float *left, const float *const *right, const int64_t *offsets, int64_t depth, float *out,
    int64_t out_row, int64_t out_second, int rows, bool add, Ending ending);

// out[columns] = left[k] * right, from packed panels: for products of a single row.
void ISA(multiply_row)(
    const float *left, const float *right, int64_t k, float *out, int64_t columns);

// The same from a matrix whose lines lie `row` floats apart.
void ISA(multiply_unpacked_row)(
    const float *left, const float *right, int64_t row, int64_t k, float *out, int64_t columns);

// Up to FEW_ROWS rows from packed panels, two at least, whose numbers lie side by side; from row to row
// it is `left_row` floats.
void ISA(multiply_few)(
    const float *left, int64_t left_row, const float *right, int64_t k, Place out, int64_t rows,
    int64_t columns);

// The same for any number of rows, and few columns, and what follows.
void ISA(multiply_narrow)(
    const float *left, int64_t left_row, const float *right, int64_t k, Place out, int64_t rows,
    int64_t columns, const Epilogue *epilogue);

// The same by a single column, whose numbers lie side by side.
void ISA(multiply_column)(
    const float *left, int64_t left_row, const float *right, int64_t k, Place out, int64_t rows);

// Applies `epilogue` to rows x columns of a result.
void ISA(finish)(const Epilogue *epilogue, Place out, int64_t rows, int64_t columns);

// Reads an epilogue's activation: its number and three parameters.
void ISA(next_activation)(Params *params, Epilogue *epilogue);

// All of out[rows][columns] from packed panels; `k` numbers to add up, panels of `left` and `right`
// that lie behind each other.  Threads may call it for different parts.
void ISA(multiply_panels)(
    const float *left, const float *right, int64_t k, Place out, int64_t rows, int64_t columns,
    const Epilogue *epilogue);

#endif
