// Recurrent layers: what steps of any kind are given.
#ifndef POPC_RECURRENT_H
#define POPC_RECURRENT_H

#include "../matmul/gemm.h"

// Rows that halves are kept for: more take longer to multiply than weights to read.
enum { HALVES_UP_TO = 3 };

enum { RNN = 1, GRU = 3, LSTM = 4 };  // numbers of gates

typedef struct {
    MapLoop loop;
    double parameters[MAX_PARAMETERS];
} Function;

typedef struct ByteWeights ByteWeights;  // see recurrent_bytes.h

typedef struct { float least, most; } ByteRange;  // of what becomes bytes, with 0

typedef struct {
    int gates;
    bool reset_late;  // a GRU's reset gate applies to the product with the state
    bool usual;  // sigmoid for gates, tanh for the rest, and nothing beyond bias and states
    bool input_forget;  // an LSTM forgets what it does not take in
    bool is_packed;  // the weights do not change
    float clip;  // of what functions are applied to; 0: none
    int64_t steps, batch, width, hidden, directions;
    int64_t rows;  // of the batch: all, or those of a thread, which operands begin with then
    int64_t
        wide;  // `hidden`, up to a whole panel: as many units are computed, the last ones of zeros
    int64_t chunk, chunks;  // units of a thread in a step, and how many such parts there are
    bool backward[2];
    Function functions[2][3];  // of each direction
    const float *x, *w, *r, *bias, *h, *c;
    const float *peepholes, *attention;
    const int32_t *lengths;  // steps of each sequence; NULL: all of them
    float *y, *last_h, *last_c;
    float *kept_states, *kept_gates;  // for the gradient; or NULL
    bool in_place;  // steps put states where they are kept
    float *packed_w, *packed_r;  // of all directions
    uint16_t *halves;  // what `packed_r` holds, in float16; NULL: it is needed as it is
    ByteWeights *bytes;  // W and R; NULL: they are floats
    float *bias_sums;  // what is added to the products of the input
    float *late_bias;  // [directions][wide]: to the product that a late reset gate applies to
    int64_t packed_w_size, packed_r_size;  // floats of a direction
} State;

// The memory of one direction.  Gates of shares and products lie as their weights do: see `column_of`.
typedef struct {
    float *shares;  // [some steps][rows][gates * wide]
    float *products;  // [rows][gates * wide]
    float *h, *c;  // the states, [rows][wide]
    float *next, *next_c;  // where a step of usual layers puts them; `c` may be the same
    float *reset, *spare;  // [rows][wide]
    float *panels;  // of the state, or of the reset state; or its bytes
    float *input;  // the same of some steps of the input
    float *taken;  // these, if they are not all rows
    ByteRange *ranges;  // of sequences of the input, if it becomes bytes
} Memory;

// One step of a direction.
typedef struct {
    const State *state;
    const Memory *memory;
    const float *r;  // packed
    const float *shares;  // of this step
    const float *late_bias;  // of the product that a late reset gate applies to, or NULL
    int64_t time, direction;
    bool begins;  // the state is zero, and so are its products
} Step;

// The first of the gates that are multiplied together with this one, and the end of those: usual
// layers go by the units of a panel, all gates of which are neighbours.  What needs another state,
// the candidates of a GRU that are reset before, is a product of its own.
static inline void group_of(const State *state, int gate, int *first, int *end) {
    const bool early = state->gates == GRU && !state->reset_late;
    *first = !state->usual ? gate : early && gate == 2 ? 2 : 0;
    *end = !state->usual ? gate + 1 : early && gate < 2 ? 2 : state->gates;
}

// Where a gate of the units of a panel stands in shares, products and weights.
static inline int64_t column_of(const State *state, int gate, int64_t unit) {
    int first, end;
    group_of(state, gate, &first, &end);
    return first * state->wide + unit * (end - first) + (gate - first) * PANEL_COLUMNS;
}

// Memory of the weights; they are packed if they do not change.  False if memory is exhausted.
bool ISA(take_weights)(State *state);
void ISA(release_weights)(State *state);

// Packs the weights of a direction.
void ISA(pack_weights)(const State *state, int64_t d);

// The state, for products with it: what is packed of it is the same for all columns.
void ISA(pack_state)(const State *state, const float *h, float *panels);

// Of the products with it, columns first .. end - 1 of all rows.
void ISA(multiply_state)(const Step *now, const float *h, int64_t first, int64_t end);

// A step of an LSTM or a GRU with the standard's functions.
void ISA(usual_step)(const Step *now, const Run *run);

// A step of any layer.
void ISA(any_step)(const Step *now);

// Whether sequence `b` has come to its end, or in the other direction has not begun.
static inline bool is_over(const State *state, int64_t b, int64_t step) {
    return state->lengths && step >= state->lengths[b];
}

#endif
