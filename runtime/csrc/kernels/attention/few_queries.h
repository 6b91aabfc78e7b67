// Attention of so few queries that packing keys and values would cost more than their products.
//
// Scores are [key][TILE_COLUMNS], of which the first `count` columns are queries.
#ifndef POPC_FEW_QUERIES_H
#define POPC_FEW_QUERIES_H

#include "../matmul/gemm.h"

enum {
    FEW_QUERIES = 4,  // of a head and its group: packing keys would cost more than their products
    WHOLE_LINE = 64 / LANES,  // vectors: heads are mostly this wide, and lines are read once
};

static inline float dot_of_lines(const float *a, const float *b, int64_t n) {
    Floats sums[2] = {{0}};
    int64_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        sums[0] += load(a + i) * load(b + i);
        sums[1] += load(a + i + LANES) * load(b + i + LANES);
    }
    for (; i + LANES <= n; i += LANES) sums[0] += load(a + i) * load(b + i);
    float total = sum_of(sums[0] + sums[1]);
    for (; i < n; i++) total += a[i] * b[i];
    return total;
}

// The scores of queries [count][depth] with keys [n][depth] that lie `row` floats apart.
static inline void score_lines(
    const float *queries, int count, const float *keys, int64_t row, int64_t n, int64_t depth,
    float *scores) {
    memset(scores, 0, (size_t)(n * TILE_COLUMNS) * sizeof(float));
    for (int64_t i = 0; i < n; i++)
        for (int c = 0; c < count; c++)
            scores[i * TILE_COLUMNS + c] = dot_of_lines(queries + c * depth, keys + i * row, depth);
}

// Adds `vectors` vectors of values, weighted; a constant wherever this is called.
INLINE void add_vectors(
    const float *weights, const float *values, int64_t row, int64_t n, float *sums,
    const int vectors) {
    Floats totals[WHOLE_LINE] = {{0}};
    for (int64_t i = 0; i < n; i++)
        UNROLLED_FOR (int j = 0; j < vectors; j++)
            totals[j] += weights[i * TILE_COLUMNS] * load(values + i * row + j * LANES);
    for (int j = 0; j < vectors; j++)
        for (int lane = 0; lane < LANES; lane++)
            sums[(j * LANES + lane) * TILE_COLUMNS] += totals[j][lane];
}

// Adds values [n][width], weighted, to sums [width][TILE_COLUMNS].
static inline void add_lines(
    const float *weights, int count, const float *values, int64_t row, int64_t n, int64_t width,
    float *sums) {
    for (int c = 0; c < count; c++) {
        int64_t j = 0;
        for (; VECTOR_BYTES >= 32 && j + WHOLE_LINE * LANES <= width; j += WHOLE_LINE * LANES)
            add_vectors(weights + c, values + j, row, n, sums + j * TILE_COLUMNS + c, WHOLE_LINE);
        for (; VECTOR_BYTES < 64 && j + 4 * LANES <= width; j += 4 * LANES)
            add_vectors(weights + c, values + j, row, n, sums + j * TILE_COLUMNS + c, 4);
        for (; j + LANES <= width; j += LANES)
            add_vectors(weights + c, values + j, row, n, sums + j * TILE_COLUMNS + c, 1);
        for (; j < width; j++) {
            float total = 0;
            for (int64_t i = 0; i < n; i++)
                total += weights[i * TILE_COLUMNS + c] * values[i * row + j];
            sums[j * TILE_COLUMNS + c] += total;
        }
    }
}

#endif
