// Transposed convolutions: results whose places have the same remainders by the strides are a phase.
// Each of them adds up the same taps, of neighbouring elements of the input, so that a phase is a
// convolution that moves by one element.
#ifndef POPC_TRANSPOSED_H
#define POPC_TRANSPOSED_H

#include "copies.h"

// The limits are known to popc_runtime/native/transposed.py.
enum { MOST_PHASES = 64, MOST_TAPS = 1 << 12 };

typedef struct {
    int64_t first[AXES];  // where its first result lies
    int64_t k;  // numbers of a window
    int64_t weights;  // floats from the weights of a group to those of the phase
    int64_t *offsets;  // of the numbers of a window, from the place of a result in the copies
} Phase;

typedef struct {
    Conv conv;  // whose gradient this is: it reads the result, and gives the input
    int64_t in, out;  // channels of a group of the input, and of the result
    int64_t rows, tiles;  // channels that are multiplied at once, and how many times
    int64_t phases[AXES], count;  // of each axis, and all of them
    Phase phase[MOST_PHASES];
    int64_t grid[AXES];  // results of a phase, at most
    // Results of a phase read the elements of the same number and of those `low` .. low + reach - 1
    // behind it.
    int64_t low[AXES], reach[AXES];
    int64_t block[AXES], blocks[AXES];  // results of a phase that are made together
    bool in_place;  // the input is read where it lies
    Conv lines;  // which is copied like this otherwise: a slice of it, for a block
    Copies copies;
    int64_t slice;  // floats of a copy of all channels
    int64_t *offsets;
    int64_t packed_group;  // floats of the weights of a group
    float *packed;  // those that are constant
    int64_t group;  // tiles of a chunk
    bool early;  // all blocks are copied before any is multiplied
} Transposed;

// The tensors result, w [in][out of a group][taps], input; two that are absent; groups, strides,
// dilations and pads; the activation; the bias.  False if they do not fit together, or memory is
// exhausted.
bool ISA(plan_transposed)(Transposed *state, Params *params);
void ISA(release_transposed)(Transposed *state);

// The weights of a tile of a phase of a group: number ((group * phases) + phase) * tiles + tile.
void ISA(pack_transposed)(const Transposed *state, int64_t number, float *packed);

static inline int tile_rows(const Transposed *state, int64_t tile) {
    return (int)lesser(state->out - tile * state->rows, state->rows);
}

// Floats of the copies of a block; vectors read a little beyond its results.
static inline int64_t copied_floats(const Transposed *state) {
    return state->in_place ? 0 : padded(state->reach[0] * state->slice + LANES, 16);
}

#endif
