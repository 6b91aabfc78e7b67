// Blocks of tiles of a Winograd convolution: matrices [tile][in] of their transformed elements, one for
// each point, and what a strip of channels of the result makes of them.
#ifndef POPC_WINOGRAD_TILES_H
#define POPC_WINOGRAD_TILES_H

#include "limits.h"
#include "winograd.h"
#include "winograd_line.h"

enum { STRIP = WHOLE_COLUMNS };  // channels of a result that are made at once

// An image in memory: [batch][rows][columns][channels], distances in floats.
typedef struct {
    float *data;
    int64_t image, row, column, channel;
} Image;

// Results of a tile: 4 x 4, of 3 x 3 taps; or some of a row, of 5 or 3 taps.
typedef enum { SQUARES, ROWS_OF_FOUR, ROWS_OF_SIX } Form;

static inline int points_of(Form form) { return form == SQUARES ? POINTS : LINE_POINTS; }
static inline int rows_of(Form form) { return form == SQUARES ? RESULT : 1; }
static inline int columns_of(Form form) { return form == ROWS_OF_SIX ? 6 : RESULT; }

// Elements `dilation` apart make an image of their own, which is divided into tiles.
typedef struct {
    Form form;
    int64_t points;  // products of a tile
    int64_t batch, in, out, height, width;  // of the input
    int64_t before[2], dilation[2], result[2], tiles[2];
    int64_t in_turn[2];  // tiles whose elements lie as far apart as results do: `tiles` / dilation
    int64_t parts;  // of the taps of a row: each reads the elements of the tile that comes next
    int64_t all_tiles, block, wide;  // tiles; tiles of a block at most; `out` in whole panels
    int64_t elements;  // floats from the matrix of a point of a block to the next
    const float *nothing;  // zeros: what lies outside of an image
} Tiling;

// Those that the last tiles of a block read beside their own.
static inline int64_t tiles_ahead(const Tiling *tiling) { return tiling->parts - 1; }
// Numbers that are added up for a product of a point.
static inline int64_t depth_of(const Tiling *tiling) { return tiling->parts * tiling->in; }

typedef struct {
    int64_t image, row, column;  // of its first result
    int rows, columns;  // results that there are
} Tile;

// The first result of tile `number` of an axis, and how many it has of `most`.
static inline int64_t find_results(
    const Tiling *tiling, int axis, int64_t number, int most, int *count) {
    const int64_t dilation = tiling->dilation[axis], size = tiling->result[axis];
    int64_t first = number * most;
    if (dilation > 1)
        first = number / tiling->in_turn[axis] + number % tiling->in_turn[axis] * most * dilation;
    const int64_t left = first < size ? ceil_div(size - first, dilation) : 0;
    *count = (int)lesser(left, most);
    return first;
}

INLINE Tile find_tile(const Tiling *tiling, int64_t number, const Form form) {
    const int64_t line = number / tiling->tiles[1];
    Tile tile = {.image = line / tiling->tiles[0]};
    tile.row = find_results(tiling, 0, line % tiling->tiles[0], rows_of(form), &tile.rows);
    tile.column =
        find_results(tiling, 1, number % tiling->tiles[1], columns_of(form), &tile.columns);
    return tile;
}

// What a strip is made of, and where it goes; images have their channels last.
typedef struct {
    const Tiling *tiling;
    const float *elements,
        *weights;  // of the block; of all channels, [point][panel][part][in][PANEL_COLUMNS]
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

// From one matrix to the next: an odd number of lines of the cache, so that the vectors of a tile do not
// get into each other's way.
static inline int64_t apart(int64_t floats) { return padded(floats, 16) | 16; }

// Divides the results into tiles; says no if there are none, or too many.
bool ISA(divide_image)(Tiling *tiling);

// Tiles first .. first + count - 1 of all, to rows row .. of the matrices of a block.
void ISA(transform_elements)(
    const Tiling *tiling, const Image *x, int64_t first, int64_t count, float *elements,
    int64_t row);

// The results of a strip, from `channel` on.
void ISA(make_strip)(const Strip *strip, int64_t channel);

// Weights in memory: [out][in][taps], distances in floats; or in panels, [panel][tap][in][PANEL_COLUMNS].
typedef struct {
    const float *data;
    int64_t out, in, rows, columns;  // distances; of taps
    int64_t taps;  // in all
    bool in_panels;
} Taps;

// The weights of a panel of output channels: [point][panel][part][in][PANEL_COLUMNS].
void ISA(transform_panel)(const Tiling *tiling, const Taps *weights, float *to, int64_t panel);

#endif
