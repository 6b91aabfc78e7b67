// How one product is divided among threads.
#ifndef POPC_PRODUCT_GROUPS_H
#define POPC_PRODUCT_GROUPS_H

#include "../support/chunks.h"
#include "gemm.h"

enum { MEDIUM_ROWS = 256 };  // up to which every chunk has all rows

// About as many chunks as keep threads busy, none smaller than is worth a thread.  Few rows stay
// together, so that every thread reads columns of its own, and reads them once.  Of many rows, blocks of
// columns come first; rows are divided too, but not so far that packed columns are used for few.
static inline void choose_groups(
    const Needs *needs, int64_t m, int64_t n, int64_t k, bool few, int64_t *rows,
    int64_t *columns) {
    const double products = (double)m * (double)n * (double)k;
    const int64_t most = m == 1 ? 64 : chunks_for(needs, products, m <= MEDIUM_ROWS ? 16 : 32);
    int64_t chunks = m * n * k / (m == 1 ? 1 << 17 : 1 << 18);
    chunks = chunks < 1 ? 1 : chunks > most ? most : chunks;
    const int64_t unit = few ? FEW_COLUMNS : WHOLE_COLUMNS;
    const int64_t column_panels = ceil_div(n, unit), row_panels = ceil_div(m, TILE_ROWS);
    const int64_t blocks = ceil_div(n, BLOCK_COLUMNS);
    int64_t across = m <= MEDIUM_ROWS && blocks < chunks ? chunks : blocks;
    if (across > column_panels) across = column_panels;
    int64_t down = ceil_div(chunks, across);
    if (down > (row_panels + 3) / 4) down = (row_panels + 3) / 4;
    if (across * down < chunks) across = ceil_div(chunks, down);
    if (across > column_panels) across = column_panels;
    *columns = ceil_div(column_panels, across) * unit;
    *rows = ceil_div(row_panels, down) * TILE_ROWS;
}

// Columns of a chunk of lines that are read where they lie: long stretches, but for two threads.
static inline int64_t columns_of_lines(int64_t n) {
    enum { LONG = 512 };
    return lesser(padded(ceil_div(n, 2), WHOLE_COLUMNS), LONG);
}

#endif
