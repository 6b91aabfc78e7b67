// Direct convolutions: their input, and their tiles.  A tile is a few pixels by a few vectors of output
// channels, whose sums stay in registers while the numbers of the windows, one by one, are multiplied
// with vectors of weights.
#ifndef POPC_DIRECT_H
#define POPC_DIRECT_H

#include "limits.h"
#include "pixels.h"

// Of a tile.  Two instructions multiply at once and take four cycles, so that eight sums at least have
// to be under way, and all of them have to be in registers.
enum {
    MOST_VECTORS = VECTOR_BYTES == 32 ? 3 : 4,
    MOST_PIXELS = 12,  // of a tile of one vector: 12 sums, its weights and an element
    MOST_WIDTH = MOST_VECTORS * LANES
};

// Whether the first two vectors of a strip are those of a panel: registers for addresses are few.
enum { PAIRS = VECTOR_BYTES == 32 };

// What windows read: the input, or a copy of it whose channels lie side by side, with its padding.
typedef struct {
    Source source;
    int64_t window, run;  // taps of the source, and floats that each reads
    int64_t joined;  // taps of a line whose runs follow each other, where they lie inside
    int64_t (*taps)[AXES];  // where each is
    int64_t *distances;  // from the first one, in floats
    float *outside;
    bool copied;
    int64_t copy_floats;  // of the whole input
    // Or a slab of it is copied before so many lines of results are made, which find it in the first
    // cache; 0 if not.
    int64_t slab;
} Input;

// Lines of pixels that are like one become one in `conv`.  False if memory is exhausted.
bool ISA(plan_input)(Conv *conv, Input *input, Needs *needs);
void ISA(release_input)(Input *input);

// Weights [out][in][taps] of a panel of a group become [tap][in][PANEL_COLUMNS].
void ISA(pack_weights_panel)(const Conv *conv, int64_t number, float *packed);

// Parts of the copy, each of which can be made by itself.
int64_t ISA(input_parts)(const Conv *conv, const Input *input);
void ISA(copy_part)(const Conv *conv, const Input *input, int64_t number, float *copy);
static inline int64_t line_floats(const Input *input) { return input->source.axis[1]; }

// Lines of the input under so many lines of results.
static inline int64_t lines_under(const Conv *conv, int64_t results) {
    return (results - 1) * conv->stride[1] + (conv->taps[1] - 1) * conv->dilation[1] + 1;
}

static inline int64_t slab_floats(const Conv *conv, const Input *input) {
    return input->slab ? lines_under(conv, input->slab) * line_floats(input) : 0;
}

// Copies what pixels first .. end - 1 of results of an image, which are whole lines, read.  Returns where
// the image would begin.
const float *ISA(copy_slab)(
    const Conv *conv, const Input *input, int64_t image, int64_t first, int64_t end, float *slab);

// Some vectors of output channels of an image.
typedef struct {
    const float *weights;  // of the first vector, [tap][in][PANEL_COLUMNS]
    int64_t apart[MOST_VECTORS];  // those of each vector from these
    const float *bias;  // the same
    const float *residual;  // of the first channel; NULL if there is none
    float *y;
    int vectors, channels;  // channels that there are
    // Tiles ask for what is needed next, so many bytes for each of their pixels.
    const char *ahead;
    int64_t ahead_place;  // from where on
    int64_t ahead_pixel, ahead_line;  // the latter divided by lines of weights, in 65536ths
} Strip;

typedef struct {
    const Conv *conv;
    const Input *input;
    Limits limits;
    int64_t first, end;  // numbers of the window that are multiplied
    float *partial;  // the sums of those before, or of these if they are not the last ones
    const float *image;  // of the input or its copy, from the first channel of the group on
    bool even;  // all windows lie inside, and each at the same distance from the one before
    int64_t distance, from;  // then; where the first begins
    bool inside;  // all their windows, if they are not even
    Pixel pixels[MOST_PIXELS];
    int64_t y[MOST_PIXELS], residual[MOST_PIXELS];  // where pixels lie
    // Tiles that are made one behind the other, if they are even: distances from one to the next.
    int64_t repeats, next_from, next_y, next_residual;
    int64_t next_ahead;  // in bytes
    const Strip *strip;
    bool expected;  // whether the tile before has asked for the results
    const char *ahead;  // what is needed next: so many bytes for each line of weights
    int64_t ahead_step;
} Tile;

// The most pixels of a tile of so many vectors.
int ISA(most_pixels)(int vectors);

// Makes a tile of so many pixels, and its repetitions; where they lie changes with each.
void ISA(make_tiles)(Tile *tile, int pixels);

#endif
