#include "gemm.h"

#include <string.h>

enum { AHEAD_OF_FEW = 128 };  // lines that a single panel of rows asks for before it uses them

// What a tile asks the memory for, while it multiplies: a line or two for each number of its depth.
typedef struct {
    const float *at;
    int64_t step;  // floats
    int64_t second;  // floats to the other line
} Ahead;

// Adds the products of a line of either panel.
INLINE void multiply_line(
    const float *left, const float *right, int64_t second, const int rows, const int vectors,
    Floats (*sums)[2]) {
    const Floats low = load(right), high = vectors > 1 ? load(right + second) : low;
    UNROLLED_FOR (int i = 0; i < rows; i++) {
        sums[i][0] += left[i] * low;
        if (vectors > 1) sums[i][1] += left[i] * high;
    }
}

// `rows` and `vectors` are constants wherever this is called, so that the sums stay in registers.
INLINE void multiply_rows(
    const float *left, PanelColumns right, int64_t depth, float *out, int64_t out_row,
    const int rows, const int vectors, bool add, Ending ending, Ahead ahead) {
    Floats sums[TILE_ROWS][2];
    UNROLLED_FOR (int i = 0; i < rows; i++)
        UNROLLED_FOR (int v = 0; v < vectors; v++)
            sums[i][v] = add ? load(out + i * out_row + v * LANES) : (Floats){0};
    int64_t p = 0;
    for (; p + AT_ONCE <= depth; p += AT_ONCE) {
        __builtin_prefetch(ahead.at, 0, 2);
        if (TILE_COLUMNS > 16) __builtin_prefetch(ahead.at + ahead.second, 0, 2);
        if (AT_ONCE > 1) __builtin_prefetch(ahead.at + ahead.step, 0, 2);
        ahead.at += AT_ONCE * ahead.step;
        UNROLLED_FOR (int line = 0; line < AT_ONCE; line++)
            multiply_line(
                left + line * TILE_ROWS, right.data + line * right.line, right.second, rows,
                vectors, sums);
        left += AT_ONCE * TILE_ROWS;
        right.data += AT_ONCE * right.line;
    }
    if (AT_ONCE > 1 && p < depth)
        multiply_line(left, right.data, right.second, rows, vectors, sums);
    if (ending.bias || ending.relu) end_rows(ending, rows, vectors, sums);
    UNROLLED_FOR (int i = 0; i < rows; i++)
        UNROLLED_FOR (int v = 0; v < vectors; v++) store(out + i * out_row + v * LANES, sums[i][v]);
}

#define CASE(N, VECTORS) \
    case N: multiply_rows(left, right, depth, out, out_row, N, VECTORS, add, ending, ahead); break;
// A tile that is `VECTORS` vectors wide, all of which are written.
#define MULTIPLY(NAME, VECTORS)                                                                \
    static void NAME(                                                                          \
        const float *left, PanelColumns right, int64_t depth, float *out, int64_t out_row,     \
        int rows, bool add, Ending ending, Ahead ahead) {                                      \
        switch (rows) {                                                                        \
            ROW_CASES(CASE, VECTORS)                                                           \
            default:                                                                           \
                multiply_rows(                                                                 \
                    left, right, depth, out, out_row, TILE_ROWS, VECTORS, add, ending, ahead); \
        }                                                                                      \
    }

MULTIPLY(multiply_full, 2)
MULTIPLY(multiply_half, 1)

static void multiply_one(
    const float *left, PanelColumns right, int64_t depth, Place out, int rows, int columns,
    bool add, Ending ending, Ahead ahead) {
    if (columns == TILE_COLUMNS) {
        multiply_full(left, right, depth, out.data, out.row, rows, add, ending, ahead);
        return;
    }
    if (columns == LANES) {
        multiply_half(left, right, depth, out.data, out.row, rows, add, ending, ahead);
        return;
    }
    float block[TILE_ROWS * TILE_COLUMNS] __attribute__((aligned(64)));
    const int width = columns <= LANES ? LANES : TILE_COLUMNS;
    for (int i = 0; add && i < rows; i++)
        copy_floats(block + i * width, out.data + i * out.row, columns);
    if (width == LANES)
        multiply_half(left, right, depth, block, width, rows, add, ending, ahead);
    else
        multiply_full(left, right, depth, block, width, rows, add, ending, ahead);
    for (int i = 0; i < rows; i++) copy_floats(out.data + i * out.row, block + i * width, columns);
}

void ISA(multiply_tile)(
    const float *left, const float *right, int64_t depth, Place out, int rows, int columns,
    bool add, Ending ending) {
    const PanelColumns lines = {right, TILE_COLUMNS, LANES};
    const Ahead ahead = {left + 64 * TILE_ROWS, TILE_ROWS, TILE_ROWS / 2};
    multiply_one(left, lines, depth, out, rows, columns, add, ending, ahead);
}

// What is added to one line of a result, and Relu.
static void finish_line(
    const Epilogue *epilogue, float *line, int64_t row, int64_t first, int64_t columns) {
    const float row_bias = epilogue->row_bias ? epilogue->row_bias[row] : 0;
    const float *column_bias = epilogue->column_bias ? epilogue->column_bias + first : NULL;
    const float *residual =
        epilogue->residual ? epilogue->residual + row * epilogue->residual_row + first : NULL;
    int64_t j = 0;
    for (; j + LANES <= columns; j += LANES) {
        Floats sum = load(line + j) + row_bias;
        if (column_bias) sum += load(column_bias + j);
        if (residual) sum += load(residual + j);
        store(line + j, epilogue->relu ? relu_of(sum) : sum);
    }
    for (; j < columns; j++) {
        float sum = line[j] + row_bias;
        if (column_bias) sum += column_bias[j];
        if (residual) sum += residual[j];
        line[j] = epilogue->relu && sum < 0 ? 0 : sum;
    }
}

void ISA(finish)(const Epilogue *epilogue, Place out, int64_t rows, int64_t columns) {
    static const int64_t steps[] = {sizeof(float), sizeof(float)};
    const bool adds = epilogue->row_bias || epilogue->column_bias || epilogue->residual;
    for (int64_t i = 0; i < rows; i++) {
        float *line = out.data + i * out.row;
        if (adds || epilogue->relu)
            finish_line(epilogue, line, out.first_row + i, out.first_column, columns);
        if (epilogue->activation) {
            char *in[] = {(char *)line};
            epilogue->activation((char *)line, in, steps, columns, epilogue->parameters);
        }
    }
}

void ISA(next_activation)(Params *params, Epilogue *epilogue) {
    epilogue->activation = ISA(activation_loop)(next_int(params));
    for (int i = 0; i < MAX_PARAMETERS; i++) epilogue->parameters[i] = next_float(params);
    epilogue->relu = epilogue->activation == ISA(relu_loop)();
    if (epilogue->relu) epilogue->activation = NULL;
}

// Columns of a tile, which stay in the first cache while all rows go by.  They ask for `next`, those
// behind them, a little at a time: memory that is far away is as fast as that.
static void multiply_columns(
    const float *left, int64_t left_panel, PanelColumns right, int64_t depth, const float *next,
    Place out, int64_t rows, int columns, bool add) {
    const int64_t tiles = ceil_div(rows, TILE_ROWS), step = ceil_div(PANEL_COLUMNS, tiles);
    const float *const end = next + depth * PANEL_COLUMNS;
    for (int64_t i = 0; i < rows; i += TILE_ROWS, left += left_panel) {
        const int height = rows - i < TILE_ROWS ? (int)(rows - i) : TILE_ROWS;
        const int64_t below = i + TILE_ROWS, left_over = rows - below;
        const Place tile = {out.data + i * out.row, out.row, 0, 0};
        if (!add)
            expect(out.data + below * out.row, out.row, lesser(left_over, TILE_ROWS), columns);
        const Ahead ahead = {next, next < end ? step : 0, right.second};
        multiply_one(left, right, depth, tile, height, columns, add, NO_ENDING, ahead);
        next += step * depth;
    }
}

// The same for a single panel of rows, which uses each of the right matrix once.
static void multiply_few(
    const float *left, PanelColumns right, int64_t depth, const float *next, Place out, int rows,
    int columns) {
    const int64_t first = depth > AHEAD_OF_FEW ? depth - AHEAD_OF_FEW : 0;
    const Ahead same = {right.data + AHEAD_OF_FEW * right.line, right.line, right.second};
    if (first) multiply_one(left, right, first, out, rows, columns, false, NO_ENDING, same);
    right.data += first * right.line;
    const Ahead other = {next, right.line, right.second};
    multiply_one(
        left + first * TILE_ROWS, right, depth - first, out, rows, columns, first > 0, NO_ENDING,
        other);
}

// As many columns as stay in the second cache, and their results with them.
static void multiply_block(
    const float *left, const float *right, int64_t k, Place out, int64_t rows, int64_t columns,
    const Epilogue *epilogue) {
    const bool few = rows <= TILE_ROWS;  // nothing has to stay anywhere
    const int64_t slices = few || k < DEPTH ? 1 : (k + DEPTH / 2) / DEPTH;
    const int64_t most = ceil_div(k, slices);
    for (int64_t done = 0; done == 0 || done < k; done += most) {
        const int64_t depth = k - done < most ? k - done : most;
        for (int64_t j = 0; j < columns; j += TILE_COLUMNS) {
            const PanelColumns panel = panel_columns(right, k, j, done);
            const float *next = panel_columns(right, k, j + TILE_COLUMNS, done).data;
            if (!few &&
                j + TILE_COLUMNS >= columns)  // the next slice of this block, or the next block
                next = done + depth < k ? panel_columns(right, k, 0, done + depth).data
                                        : right + columns * k;
            const Place part = {out.data + j, out.row, 0, 0};
            const int width = columns - j < TILE_COLUMNS ? (int)(columns - j) : TILE_COLUMNS;
            if (few)
                multiply_few(left, panel, k, next, part, (int)rows, width);
            else
                multiply_columns(
                    left + done * TILE_ROWS, k * TILE_ROWS, panel, depth, next, part, rows, width,
                    done > 0);
        }
    }
    if (epilogue) ISA(finish)(epilogue, out, rows, columns);
}

void ISA(multiply_panels)(
    const float *left, const float *right, int64_t k, Place out, int64_t rows, int64_t columns,
    const Epilogue *epilogue) {
    for (int64_t j = 0; j < columns; j += BLOCK_COLUMNS) {
        const int64_t width = lesser(columns - j, BLOCK_COLUMNS);
        for (int64_t i = 0; i < rows; i += BLOCK_TILES * TILE_ROWS) {
            if (pool_is_stopped()) return;
            const int64_t below = rows - i;
            const int64_t height = below < BLOCK_TILES * TILE_ROWS ? below
                                                                   : BLOCK_TILES * TILE_ROWS;
            const Place block = {
                out.data + i * out.row + j, out.row, out.first_row + i, out.first_column + j};
            multiply_block(left + i * k, right + j * k, k, block, height, width, epilogue);
        }
    }
}
