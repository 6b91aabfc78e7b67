// Recurrent layers: what steps of any kind are given.
#ifndef POPC_RECURRENT_H
#define POPC_RECURRENT_H

#include "../elementwise/maps.h"

enum { RNN = 1, GRU = 3, LSTM = 4 };  // numbers of gates

typedef struct {
    MapLoop loop;
    double parameters[MAX_PARAMETERS];
} Function;

typedef struct {
    int gates;
    bool reset_late;  // a GRU's reset gate applies to the product with the state
    bool usual;  // sigmoid for gates, tanh for the rest, and nothing beyond bias and states
    bool input_forget;  // an LSTM forgets what it does not take in
    bool is_packed;  // the weights do not change
    float clip;  // of what functions are applied to; 0: none
    int64_t steps, batch, width, hidden, directions;
    bool backward[2];
    Function functions[2][3];  // of each direction
    const float *x, *w, *r, *bias, *h, *c;
    const float *peepholes, *attention;
    const int32_t *lengths;  // steps of each sequence; NULL: all of them
    float *y, *last_h, *last_c;
    float *kept_states, *kept_gates;  // for the gradient; or NULL
    float *packed_w, *packed_r;  // of all directions
    float *bias_sums;  // what is added to the products of the input
    int64_t packed_w_size, packed_r_size;  // floats of a direction
} State;

// The memory of one direction.
typedef struct {
    float *shares;  // [steps][batch][gates * hidden]
    float *products;  // [batch][gates * hidden]
    float *h, *c, *reset, *spare;  // [batch][hidden]
    float *panels;  // of the input
} Memory;

// One step of a direction.
typedef struct {
    const State *state;
    const Memory *memory;
    const float *r;  // packed
    const float *shares;  // of this step
    const float *late_bias;  // of the product that a late reset gate applies to, or NULL
    int64_t time, direction;
} Step;

// products[b] of gates first .. end - 1 with `h`.
void ISA(multiply_gates)(
    const State *state, const float *r, const float *h, float *products, int first, int end);

// A step of any layer.
void ISA(any_step)(const Step *now);

// Whether sequence `b` has come to its end, or in the other direction has not begun.
static inline bool is_over(const State *state, int64_t b, int64_t step) {
    return state->lengths && step >= state->lengths[b];
}

#endif
