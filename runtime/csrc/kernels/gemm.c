#include "gemm.h"

#include <string.h>

#include "squares.h"

typedef float LooseTwo __attribute__((vector_size(8), aligned(4), may_alias));

// Neighbours in a line of a panel that are neighbours in the matrix.
INLINE void copy_lines(
    float *to, const float *from, int64_t column, int64_t k, const int width) {
    for (int64_t p = 0; p < k; p++, to += width, from += column)
        __builtin_memcpy(to, from, (size_t)width * sizeof(float));
}

// Four lines of a panel from four rows, or, if `two`, from two.
INLINE void turn_four(
    float *to, const float *from, int64_t row, int width, const bool two) {
    Four lines[] = {
        load_four(from), load_four(from + row), load_four(from + (two ? 0 : 2 * row)),
        load_four(from + (two ? row : 3 * row))};
    turn_square(lines);
    for (int p = 0; p < 4; p++) {
        if (two)
            *(LooseTwo *)(to + p * width) = (LooseTwo)__builtin_shufflevector(lines[p], lines[p], 0, 1);
        else
            store_four(to + p * width, lines[p]);
    }
}

// The same of four rows for as many lines as a vector holds: all its quarters at once.
#define LOW(N) N, N + LANES, N + 1, N + LANES + 1
#define HIGH(N) N + 2, N + LANES + 2, N + 3, N + LANES + 3
#define FIRST(N) N, N + 1, N + LANES, N + LANES + 1
#define SECOND(N) N + 2, N + 3, N + LANES + 2, N + LANES + 3
#define PUT(N) \
    *(LooseFour *)(to + (N + p) * width) = __builtin_shufflevector(line, line, N, N + 1, N + 2, N + 3);
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
INLINE void turn_lines(
    float *to, const float *from, int64_t row, int width) {
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
INLINE void turn_panel(
    float *to, const float *from, int64_t row, int64_t k, const int width) {
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

void ISA(pack_panels)(
    float *to, const float *from, int64_t row, int64_t column, int64_t rows, int64_t k, int width) {
    for (int64_t first = 0; first < rows; first += width, to += k * width) {
        const float *panel = from + first * row;
        const int count = rows - first < width ? (int)(rows - first) : width;
        const bool some = count < width || (row != 1 && column != 1);
        if (some && width == TILE_ROWS)
            pack_some(to, panel, row, column, count, k, TILE_ROWS);
        else if (some)
            pack_some(to, panel, row, column, count, k, TILE_COLUMNS);
        else if (row == 1 && width == TILE_ROWS)
            copy_lines(to, panel, column, k, TILE_ROWS);
        else if (row == 1)
            copy_lines(to, panel, column, k, TILE_COLUMNS);
        else if (width == TILE_ROWS)
            turn_panel(to, panel, row, k, TILE_ROWS);
        else
            turn_panel(to, panel, row, k, TILE_COLUMNS);
    }
}

// Weights beyond this many floats are not in a near cache, and are asked for ahead of their use.
enum { FAR = 1 << 17 };

// What a tile asks the memory for, while it multiplies: a line or two for each number of its depth.
typedef struct {
    const float *at;
    int64_t step;  // floats
} Ahead;

// `rows` and `vectors` are constants wherever this is called, so that the sums stay in registers.
INLINE void multiply_rows(
    const float *left, const float *right, int64_t depth, float *out, int64_t out_row, const int rows,
    const int vectors, bool add, Ahead ahead) {
    Floats sums[TILE_ROWS][2];
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < vectors; v++)
            sums[i][v] = add ? load(out + i * out_row + v * LANES) : (Floats){0};
    for (int64_t p = 0; p < depth; p++) {
        __builtin_prefetch(ahead.at, 0, 2);
        if (TILE_COLUMNS > 16) __builtin_prefetch(ahead.at + ahead.step / 2, 0, 2);
        ahead.at += ahead.step;
        const Floats low = load(right), high = vectors > 1 ? load(right + LANES) : low;
#pragma GCC unroll 16
        for (int i = 0; i < rows; i++) {
            sums[i][0] += left[i] * low;
            if (vectors > 1) sums[i][1] += left[i] * high;
        }
        left += TILE_ROWS;
        right += TILE_COLUMNS;
    }
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < vectors; v++) store(out + i * out_row + v * LANES, sums[i][v]);
}

#define CASE(N, VECTORS)                                                    \
    case N:                                                                 \
        multiply_rows(left, right, depth, out, out_row, N, VECTORS, add, ahead); \
        break;
#if VECTOR_BYTES == 64
#define MORE_CASES(V) CASE(6, V) CASE(7, V) CASE(8, V) CASE(9, V) CASE(10, V) CASE(11, V)
#elif VECTOR_BYTES == 32
#define MORE_CASES(V)
#else
#define MORE_CASES(V) CASE(6, V) CASE(7, V)
#endif
// A tile that is `VECTORS` vectors wide, all of which are written.
#define MULTIPLY(NAME, VECTORS)                                                                  \
    static void NAME(                                                                            \
        const float *left, const float *right, int64_t depth, float *out, int64_t out_row,       \
        int rows, bool add, Ahead ahead) {                                                       \
        switch (rows) {                                                                          \
            CASE(1, VECTORS)                                                                     \
            CASE(2, VECTORS)                                                                     \
            CASE(3, VECTORS)                                                                     \
            CASE(4, VECTORS)                                                                     \
            CASE(5, VECTORS)                                                                     \
            MORE_CASES(VECTORS)                                                                  \
            default:                                                                             \
                multiply_rows(left, right, depth, out, out_row, TILE_ROWS, VECTORS, add, ahead); \
        }                                                                                        \
    }

MULTIPLY(multiply_full, 2)
MULTIPLY(multiply_half, 1)

static void multiply_one(
    const float *left, const float *right, int64_t depth, Place out, int rows, int columns, bool add,
    Ahead ahead) {
    if (columns == TILE_COLUMNS) {
        multiply_full(left, right, depth, out.data, out.row, rows, add, ahead);
        return;
    }
    if (columns == LANES) {
        multiply_half(left, right, depth, out.data, out.row, rows, add, ahead);
        return;
    }
    float block[TILE_ROWS * TILE_COLUMNS] __attribute__((aligned(64)));
    const int width = columns <= LANES ? LANES : TILE_COLUMNS;
    for (int i = 0; add && i < rows; i++)
        copy_floats(block + i * width, out.data + i * out.row, columns);
    if (width == LANES)
        multiply_half(left, right, depth, block, width, rows, add, ahead);
    else
        multiply_full(left, right, depth, block, width, rows, add, ahead);
    for (int i = 0; i < rows; i++) copy_floats(out.data + i * out.row, block + i * width, columns);
}

void ISA(multiply_tile)(
    const float *left, const float *right, int64_t depth, Place out, int rows, int columns, bool add) {
    const Ahead ahead = {left + 64 * TILE_ROWS, TILE_ROWS};
    multiply_one(left, right, depth, out, rows, columns, add, ahead);
}

// `panels` and `far` are constants wherever this is called: so many sums are in flight at once.
INLINE void multiply_some(
    const float *left, const float *right, int64_t k, float *out, const int panels, const bool far) {
    Floats sums[8] = {{0}};
    for (int64_t p = 0; p < k; p++) {
        const float factor = left[p];
#pragma GCC unroll 4
        for (int i = 0; far && i < panels; i++) {
            const float *panel = right + i * k * TILE_COLUMNS + p * TILE_COLUMNS;
            __builtin_prefetch(panel + 16 * TILE_COLUMNS);
            __builtin_prefetch(panel + 16 * TILE_COLUMNS + 16);
        }
#pragma GCC unroll 8
        for (int i = 0; i < 2 * panels; i++) {
            const float *panel = right + (i / 2) * k * TILE_COLUMNS + p * TILE_COLUMNS;
            sums[i] += factor * load(panel + (i % 2) * LANES);
        }
    }
    for (int i = 0; i < 2 * panels; i++) store(out + i * LANES, sums[i]);
}

void ISA(multiply_row)(const float *left, const float *right, int64_t k, float *out, int64_t columns) {
    const bool far = k * columns > FAR;
    int64_t j = 0;
    for (; j + 4 * TILE_COLUMNS <= columns; j += 4 * TILE_COLUMNS) {
        if (far)
            multiply_some(left, right + j * k, k, out + j, 4, true);
        else
            multiply_some(left, right + j * k, k, out + j, 4, false);
    }
    if (j == columns) return;
    float part[4 * TILE_COLUMNS];
    switch (ceil_div(columns - j, TILE_COLUMNS)) {
        case 1: multiply_some(left, right + j * k, k, part, 1, false); break;
        case 2: multiply_some(left, right + j * k, k, part, 2, false); break;
        case 3: multiply_some(left, right + j * k, k, part, 3, false); break;
        default: multiply_some(left, right + j * k, k, part, 4, false);
    }
    memcpy(out + j, part, (size_t)(columns - j) * sizeof(float));
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
        if (epilogue->relu) {
            const __typeof__(sum < 0.0f) below = sum < 0.0f;
            sum = (Floats)((__typeof__(below))sum & ~below);
        }
        store(line + j, sum);
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

// One panel of the right matrix, which stays in the first cache while all rows go by.  They ask for
// `next`, the panel behind it, a little at a time: memory that is far away is as fast as that.
static void multiply_panel(
    const float *left, int64_t left_panel, const float *right, int64_t depth, const float *next,
    Place out, int64_t rows, int columns, bool add) {
    const int64_t tiles = ceil_div(rows, TILE_ROWS), step = ceil_div(TILE_COLUMNS, tiles);
    const float *const end = next + depth * TILE_COLUMNS;
    for (int64_t i = 0; i < rows; i += TILE_ROWS, left += left_panel) {
        const int height = rows - i < TILE_ROWS ? (int)(rows - i) : TILE_ROWS;
        const int64_t below = i + TILE_ROWS, left_over = rows - below;
        const Place tile = {out.data + i * out.row, out.row, 0, 0};
        if (!add)
            expect(
                out.data + below * out.row, out.row, left_over < TILE_ROWS ? left_over : TILE_ROWS,
                columns);
        multiply_one(
            left, right, depth, tile, height, columns, add, (Ahead){next, next < end ? step : 0});
        next += step * depth;
    }
}

// As many columns as stay in the second cache, and their results with them.
static void multiply_block(
    const float *left, const float *right, int64_t k, Place out, int64_t rows, int64_t columns,
    const Epilogue *epilogue) {
    // A single panel of rows uses each of the right matrix once: nothing has to stay anywhere.
    const int64_t slices = rows <= TILE_ROWS || k < DEPTH ? 1 : (k + DEPTH / 2) / DEPTH;
    const int64_t most = ceil_div(k, slices);
    for (int64_t done = 0; done == 0 || done < k; done += most) {
        const int64_t depth = k - done < most ? k - done : most;
        for (int64_t j = 0; j < columns; j += TILE_COLUMNS) {
            const float *panel = right + j * k + done * TILE_COLUMNS, *next = panel + k * TILE_COLUMNS;
            if (rows <= TILE_ROWS)
                next = panel + 128 * TILE_COLUMNS;
            else if (j + TILE_COLUMNS >= columns)  // the next slice of this block, or the next block
                next = done + depth < k ? right + (done + depth) * TILE_COLUMNS : right + columns * k;
            const Place part = {out.data + j, out.row, 0, 0};
            const int width = columns - j < TILE_COLUMNS ? (int)(columns - j) : TILE_COLUMNS;
            multiply_panel(
                left + done * TILE_ROWS, k * TILE_ROWS, panel, depth, next, part, rows, width,
                done > 0);
        }
    }
    if (epilogue) ISA(finish)(epilogue, out, rows, columns);
}

void ISA(multiply_panels)(
    const float *left, const float *right, int64_t k, Place out, int64_t rows, int64_t columns,
    const Epilogue *epilogue) {
    for (int64_t j = 0; j < columns; j += BLOCK_PANELS * TILE_COLUMNS) {
        const int64_t rest = columns - j;
        const int64_t width = rest < BLOCK_PANELS * TILE_COLUMNS ? rest : BLOCK_PANELS * TILE_COLUMNS;
        for (int64_t i = 0; i < rows; i += BLOCK_TILES * TILE_ROWS) {
            const int64_t below = rows - i;
            const int64_t height = below < BLOCK_TILES * TILE_ROWS ? below : BLOCK_TILES * TILE_ROWS;
            const Place block = {
                out.data + i * out.row + j, out.row, out.first_row + i, out.first_column + j};
            multiply_block(left + i * k, right + j * k, k, block, height, width, epilogue);
        }
    }
}
