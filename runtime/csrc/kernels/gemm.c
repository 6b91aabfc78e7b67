#include "gemm.h"

#include <string.h>

void ISA(pack_panels)(
    float *to, const float *from, int64_t row, int64_t column, int64_t rows, int64_t k, int width) {
    for (int64_t first = 0; first < rows; first += width, to += k * width) {
        const float *panel = from + first * row;
        const int count = rows - first < width ? (int)(rows - first) : width;
        if (row == 1) {  // the numbers of one line of a panel are neighbours
            for (int64_t p = 0; p < k; p++) {
                memcpy(to + p * width, panel + p * column, (size_t)count * sizeof(float));
                memset(to + p * width + count, 0, (size_t)(width - count) * sizeof(float));
            }
            continue;
        }
        // Few lines at a time, so that what is written stays in the first cache.
        for (int64_t begin = 0; begin < k; begin += 16) {
            const int64_t end = begin + 16 < k ? begin + 16 : k;
            for (int i = 0; i < count; i++)
                for (int64_t p = begin; p < end; p++)
                    to[p * width + i] = panel[i * row + p * column];
            for (int i = count; i < width; i++)
                for (int64_t p = begin; p < end; p++) to[p * width + i] = 0;
        }
    }
}

// `rows` is a constant wherever this is called, so that the sums stay in registers.
static inline __attribute__((always_inline)) void multiply_rows(
    const float *left, const float *right, int64_t depth, float *out, int64_t out_row, const int rows,
    bool add) {
    Floats sums[TILE_ROWS][2];
    for (int i = 0; i < rows; i++) {
        sums[i][0] = add ? load(out + i * out_row) : (Floats){0};
        sums[i][1] = add ? load(out + i * out_row + LANES) : (Floats){0};
    }
    for (int64_t p = 0; p < depth; p++) {
        const Floats low = load(right), high = load(right + LANES);
#pragma GCC unroll 16
        for (int i = 0; i < rows; i++) {
            sums[i][0] += left[i] * low;
            sums[i][1] += left[i] * high;
        }
        left += TILE_ROWS;
        right += TILE_COLUMNS;
    }
    for (int i = 0; i < rows; i++) {
        store(out + i * out_row, sums[i][0]);
        store(out + i * out_row + LANES, sums[i][1]);
    }
}

static void multiply_full(
    const float *left, const float *right, int64_t depth, float *out, int64_t out_row, int rows,
    bool add) {
#define CASE(N)                                                        \
    case N:                                                            \
        multiply_rows(left, right, depth, out, out_row, N, add);       \
        break;
    switch (rows) {
        CASE(1)
        CASE(2)
        CASE(3)
        CASE(4)
        CASE(5)
#if VECTOR_BYTES != 32
        CASE(6)
        CASE(7)
#endif
#if VECTOR_BYTES == 64
        CASE(8)
        CASE(9)
        CASE(10)
        CASE(11)
#endif
        default:
            multiply_rows(left, right, depth, out, out_row, TILE_ROWS, add);
    }
#undef CASE
}

void ISA(multiply_tile)(
    const float *left, const float *right, int64_t depth, Place out, int rows, int columns, bool add) {
    if (columns == TILE_COLUMNS) {
        multiply_full(left, right, depth, out.data, out.row, rows, add);
        return;
    }
    float block[TILE_ROWS * TILE_COLUMNS] __attribute__((aligned(64)));
    const size_t bytes = (size_t)columns * sizeof(float);
    for (int i = 0; add && i < rows; i++)
        memcpy(block + i * TILE_COLUMNS, out.data + i * out.row, bytes);
    multiply_full(left, right, depth, block, TILE_COLUMNS, rows, add);
    for (int i = 0; i < rows; i++)
        memcpy(out.data + i * out.row, block + i * TILE_COLUMNS, bytes);
}

// `panels` is a constant wherever this is called: so many sums are in flight at once.
static inline __attribute__((always_inline)) void multiply_some(
    const float *left, const float *right, int64_t k, float *out, const int panels) {
    Floats sums[8] = {{0}};
    for (int64_t p = 0; p < k; p++) {
        const float factor = left[p];
#pragma GCC unroll 8
        for (int i = 0; i < 2 * panels; i++) {
            const float *panel = right + (i / 2) * k * TILE_COLUMNS + p * TILE_COLUMNS;
            sums[i] += factor * load(panel + (i % 2) * LANES);
        }
    }
    for (int i = 0; i < 2 * panels; i++) store(out + i * LANES, sums[i]);
}

void ISA(multiply_row)(const float *left, const float *right, int64_t k, float *out, int64_t columns) {
    int64_t j = 0;
    for (; j + 4 * TILE_COLUMNS <= columns; j += 4 * TILE_COLUMNS)
        multiply_some(left, right + j * k, k, out + j, 4);
    for (; j < columns; j += TILE_COLUMNS) {
        float part[TILE_COLUMNS];
        multiply_some(left, right + j * k, k, part, 1);
        const int64_t width = columns - j < TILE_COLUMNS ? columns - j : TILE_COLUMNS;
        memcpy(out + j, part, (size_t)width * sizeof(float));
    }
}

void ISA(finish)(const Epilogue *epilogue, Place out, int64_t rows, int64_t columns) {
    static const int64_t steps[] = {sizeof(float), sizeof(float)};
    for (int64_t i = 0; i < rows; i++) {
        float *line = out.data + i * out.row;
        if (epilogue->row_bias) {
            const float bias = epilogue->row_bias[out.first_row + i];
            for (int64_t j = 0; j < columns; j++) line[j] += bias;
        }
        if (epilogue->column_bias) {
            const float *bias = epilogue->column_bias + out.first_column;
            for (int64_t j = 0; j < columns; j++) line[j] += bias[j];
        }
        if (epilogue->residual) {
            const float *residual = epilogue->residual +
                                    (out.first_row + i) * epilogue->residual_row + out.first_column;
            for (int64_t j = 0; j < columns; j++) line[j] += residual[j];
        }
        if (epilogue->activation) {
            char *in[] = {(char *)line};
            epilogue->activation((char *)line, in, steps, columns, epilogue->parameters);
        }
    }
}

void ISA(next_activation)(Params *params, Epilogue *epilogue) {
    epilogue->activation = ISA(activation_loop)(next_int(params));
    for (int i = 0; i < MAX_PARAMETERS; i++) epilogue->parameters[i] = next_float(params);
}

void ISA(multiply_panels)(
    const float *left, const float *right, int64_t k, Place out, int64_t rows, int64_t columns,
    const Epilogue *epilogue) {
    for (int64_t done = 0; done == 0 || done < k; done += DEPTH) {
        const int64_t depth = k - done < DEPTH ? k - done : DEPTH;
        for (int64_t j = 0; j < columns; j += TILE_COLUMNS) {
            const int width = columns - j < TILE_COLUMNS ? (int)(columns - j) : TILE_COLUMNS;
            for (int64_t i = 0; i < rows; i += TILE_ROWS) {
                const int height = rows - i < TILE_ROWS ? (int)(rows - i) : TILE_ROWS;
                Place tile = {out.data + i * out.row + j, out.row, out.first_row + i,
                              out.first_column + j};
                ISA(multiply_tile)(
                    left + i * k + done * TILE_ROWS, right + j * k + done * TILE_COLUMNS, depth, tile,
                    height, width, done > 0);
                if (epilogue && done + depth == k) ISA(finish)(epilogue, tile, height, width);
            }
        }
    }
}
