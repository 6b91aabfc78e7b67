// A tile of a direct convolution: a few pixels by a few vectors of output channels, which stay in
// registers while the numbers of their windows, one by one, are multiplied with vectors of weights.
#ifndef POPC_DIRECT_H
#define POPC_DIRECT_H

#include "pixels.h"

// Of a tile.  Two instructions multiply at once and take four cycles, so that eight sums at least have
// to be under way, and all of them have to be in registers.
enum { MOST_VECTORS = VECTOR_BYTES == 32 ? 3 : 4, MOST_PIXELS = 12, MOST_WIDTH = MOST_VECTORS * LANES };

// What is done with sums: values below `low` become `low`, those above `high` become `high`.
typedef struct {
    float low, high;
    MapLoop activation;  // any other one, or NULL
} Limits;

typedef struct {
    const Conv *conv;
    const Source *source;
    const int64_t *distances;  // from the first tap to each, in floats
    int64_t window, run;  // taps of the source, and floats that each reads
    Limits limits;
    const float *image;  // of the source, from the first channel of the group on
    Pixel pixels[MOST_PIXELS];
    bool inside;  // all their windows
    int64_t next;  // where the pixel behind them is written
    // The same for a panel of weights: [tap][in][channels], padded to whole vectors.
    const float *weights, *bias;
    const char *ahead;  // what is needed next, so much of it for each line of weights
    int64_t ahead_step;
    bool expected;  // whether the tile before has asked for the results
    const float *residual;  // of the first channel; NULL if there is none
    float *y;
    int channels;  // that there are
} Tile;

// The most pixels of a tile of so many vectors.
int ISA(most_pixels)(int vectors);

void ISA(make_tile)(const Tile *tile, int pixels, int vectors);

#endif
