// Products of a left matrix that lies anywhere, packed or not, with a panel of columns.
#ifndef POPC_STRIDED_H
#define POPC_STRIDED_H

#include "gemm.h"

// Rows in tiles of TILE_ROWS, in floats.
typedef struct {
    const float *data;
    int64_t row, column, tile;  // from row to row of a tile, along the sum, from tile to tile
} LeftTiles;

static inline LeftTiles packed_tiles(const float *panels, int64_t k) {
    return (LeftTiles){panels, 1, TILE_ROWS, k * TILE_ROWS};
}

static inline LeftTiles tiles_of(const float *data, int64_t row, int64_t column) {
    return (LeftTiles){data, row, column, row * TILE_ROWS};
}

// out[m][TILE_COLUMNS] = left right[k][TILE_COLUMNS], or if `add` what is added to it; at least the
// first `lanes` columns: a vector, or all.
void ISA(multiply_strided)(
    LeftTiles left, const float *right, int64_t k, float *out, int64_t m, int lanes, bool add);

#endif
