// Blocks of tiles of a Winograd convolution: 36 matrices [tile][in] of their transformed elements, and
// what a strip of channels of the result makes of them.
#ifndef POPC_WINOGRAD_TILES_H
#define POPC_WINOGRAD_TILES_H

#include "limits.h"
#include "winograd.h"

enum { STRIP = WHOLE_COLUMNS };  // channels of a result that are made at once

// An image in memory: [batch][rows][columns][channels], distances in floats.
typedef struct {
    float *data;
    int64_t image, row, column, channel;
} Image;

typedef struct {
    int64_t batch, in, out, height, width;  // of the input
    int64_t before[2], result[2], tiles[2];
    int64_t all_tiles, block, wide;  // tiles; tiles of a block at most; `out` in whole panels
    int64_t elements;  // floats from one of the 36 matrices of a block to the next
    const float *nothing;  // zeros: what lies outside of an image
} Tiling;

typedef struct {
    int64_t image, row, column;  // of its first result
    int rows, columns;  // results that there are
} Tile;

static inline Tile find_tile(const Tiling *tiling, int64_t number) {
    const int64_t line = number / tiling->tiles[1];
    Tile tile = {
        line / tiling->tiles[0], line % tiling->tiles[0] * RESULT,
        number % tiling->tiles[1] * RESULT, 0, 0};
    tile.rows = (int)lesser(tiling->result[0] - tile.row, RESULT);
    tile.columns = (int)lesser(tiling->result[1] - tile.column, RESULT);
    return tile;
}

// What a strip is made of, and where it goes; images have their channels last.
typedef struct {
    const Tiling *tiling;
    const float *elements,
        *weights;  // of the block; of all channels, [point][panel][in][PANEL_COLUMNS]
    float *products;  // scratch: [tile][point][STRIP]
    int64_t first, count;  // tiles of the block
    Image y, residual;  // without data: there is none
    const float *bias;  // of all channels; NULL: there is none
    const Epilogue *epilogue;
    Limits limits;
} Strip;

static inline Image channels_last(float *data, const int64_t *size, int64_t channels) {
    return (Image){data, size[0] * size[1] * channels, size[1] * channels, channels, 1};
}

// From one matrix to the next: an odd number of lines of the cache, so that the 36 vectors of a tile
// do not get into each other's way.
static inline int64_t apart(int64_t floats) { return padded(floats, 16) | 16; }

// Tiles first .. first + count - 1 of all, to rows row .. of the matrices of a block.
void ISA(transform_elements)(
    const Tiling *tiling, const Image *x, int64_t first, int64_t count, float *elements,
    int64_t row);

// The results of a strip, from `channel` on.
void ISA(make_strip)(const Strip *strip, int64_t channel);

#endif
