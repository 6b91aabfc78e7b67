// Transposed convolutions: results whose places have the same remainders by the strides are a phase.
// Each of them adds up the same taps, of neighbouring elements of the input, so that a phase is a
// convolution that moves by one element.
#ifndef POPC_TRANSPOSED_H
#define POPC_TRANSPOSED_H

#include "copies.h"

// The limits are known to popc_runtime/native/transposed.py.
enum { MOST_PHASES = 256, MOST_TAPS = 1 << 12 };

// Which element a result reads, from that of the same number on, and what it is multiplied with.
typedef struct { int64_t shift[AXES], weights; } Tap;

typedef struct {
    int64_t first[AXES];  // where its first result lies
    Tap *tap;
    int64_t taps;
    int64_t weights;  // floats from the weights of some channels to those of the phase
    int64_t *offsets;  // of the numbers of a window, from the place of a result in the copies
} Phase;

// An image with what is outside of it, and how it is copied.
typedef struct {
    Conv conv;
    Copies copies;
} Lines;

typedef struct {
    Conv conv;  // whose gradient this is: it reads the result, and gives the input
    int64_t in, out;  // channels of a group of the input, and of the result
    const float *input;
    int64_t phases[AXES], count;  // of each axis, and all of them
    Phase phase[MOST_PHASES];
    Tap *taps;  // of all phases
    int64_t joined;  // phases that are multiplied together, because they have the same windows
    int64_t made;  // phases whose sums are there at the same time: those of a line, or all
    int64_t grid[AXES];  // results of a phase, at most
    // Results of a phase read the elements of the same number and of those `low` .. low + reach - 1
    // behind it.
    int64_t low[AXES], reach[AXES];
    int64_t block[AXES], blocks[AXES];  // results of a phase that are made together
    bool in_place;  // the input is read where it lies
    Lines *lines;  // which is copied like this otherwise: a slice of it, for a block
    int64_t kinds;  // one for all blocks, or one for each
    int64_t slice;  // floats of a copy of all channels
    int64_t channels, parts;  // of the result that are made together, and how many times
    int64_t rows, tiles;  // of weights of these that are multiplied at once, and how many times
    int64_t depth;  // channels of the input that are multiplied at once
    int64_t *offsets;
    int64_t packed_part, packed_group;  // floats of the weights of such channels, and of a group
    float *packed;  // those that are constant
    bool early;  // all blocks are copied before any is multiplied
} Transposed;

// The tensors result, w [in][out of a group][taps], input; two that are absent; groups, strides,
// dilations and pads; the activation; the bias.  False if they do not fit together, or memory is
// exhausted.
bool ISA(plan_transposed)(Transposed *state, Params *params, const Needs *needs);
void ISA(release_transposed)(Transposed *state);

// The weights of a tile: number ((group * parts + part) * bundles + bundle) * tiles + tile.
void ISA(pack_transposed)(const Transposed *state, int64_t number, float *packed);

// Phases that are multiplied together.
static inline int64_t bundles(const Transposed *state) { return state->count / state->joined; }

static inline int64_t channels_of(const Transposed *state, int64_t part) {
    return lesser(state->out - part * state->channels, state->channels);
}

// Lines of weights of a part.
static inline int64_t rows_of(const Transposed *state, int64_t part) {
    return channels_of(state, part) * state->joined;
}

static inline int64_t weight_tiles(const Transposed *state) {
    return state->conv.groups * state->parts * bundles(state) * state->tiles;
}

static inline int64_t blocks_of(const Transposed *state) {
    int64_t blocks = state->conv.batch * state->conv.groups;
    for (int axis = 0; axis < AXES; axis++) blocks *= state->blocks[axis];
    return blocks;
}

// Floats of the copies of a block; vectors read a little beyond its results.
static inline int64_t copied_floats(const Transposed *state) {
    return state->in_place ? 0 : padded(state->reach[0] * state->slice + LANES, 16);
}

#endif
