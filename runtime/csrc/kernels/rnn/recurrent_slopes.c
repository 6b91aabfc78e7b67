// An LSTM with the standard's functions back through time: the gradients of the arguments of its gates,
// of all steps, and of its first states.
//
// Rows of a batch do not know of each other, so that each thread does all steps of some; R is packed
// once for all of them.
#include <stdlib.h>

#include "../support/fits.h"
#include "../matmul/gemm.h"

enum { GATES = 4, KEPT = 5, MOST_ROWS = 24 };  // rows: of a thread, two tiles with AVX-512

typedef struct {
    int64_t steps, batch, hidden, directions;
    int64_t chunk, chunks;  // rows of a thread, and how many such parts a direction has
    bool backward[2];
    bool first;  // the gradient of the first h is wanted, not only what it takes to come there
    const float *r;  // [directions][GATES * hidden][hidden]
    const float
        *gates;  // [KEPT][directions][steps][batch][hidden]: i, o, f, c, tanh of the cell state
    const float *cells;  // [directions][steps + 1][batch][hidden], in the order of time
    const float *given;  // of the result: [steps][directions][batch][hidden]; or NULL
    float *rows;  // [directions][steps][batch][GATES * hidden]: of the gates' arguments
    float *dh, *dc;  // [directions][batch][hidden]: of the last states, and then of the first
} State;

typedef struct {
    const State *state;
    const Run *run;
    float *packed;
} Job;

// -- preparing ------------------------------------------------------------------------------------

static bool are_sized(const State *state, const Tensor *tensors) {
    const int64_t cells = size_of(state->directions, state->batch, state->hidden);
    const int64_t counts[] = {
        size_of(GATES * state->hidden, state->directions, state->hidden),
        size_of(cells, state->steps, KEPT),
        size_of(cells, state->steps + 1, 1),
        size_of(cells, state->steps, 1),
        size_of(cells, state->steps, GATES),
        cells,
        cells};
    for (int i = 0; i < 7; i++)
        if (counts[i] <= 0 ||
            !(i == 3 ? may_hold(&tensors[i], F32, counts[i]) : holds(&tensors[i], F32, counts[i])))
            return false;
    return true;
}

// R, the kept gates, the cell states, the gradient of the result?, results: the gradients of gates, of h
// and of c; steps; whether each direction goes backward, and whether the gradient of the first h is wanted.
static bool read_state(State *state, Params *params) {
    Tensor tensors[7];
    for (int i = 0; i < 7; i++) tensors[i] = maybe_tensor(params);
    state->steps = next_int(params);
    for (int d = 0; d < 2; d++) state->backward[d] = next_int(params) != 0;
    state->first = next_int(params) != 0;
    if (params->bad || tensors[5].rank != 3 || state->steps < 1 || state->steps > INT32_MAX)
        return false;
    state->directions = tensors[5].dims[0];
    state->batch = tensors[5].dims[1];
    state->hidden = tensors[5].dims[2];
    state->r = (const float *)tensors[0].data;
    state->gates = (const float *)tensors[1].data;
    state->cells = (const float *)tensors[2].data;
    state->given = (const float *)tensors[3].data;
    state->rows = (float *)tensors[4].data;
    state->dh = (float *)tensors[5].data;
    state->dc = (float *)tensors[6].data;
    return state->directions >= 1 && state->directions <= 2 && are_sized(state, tensors);
}

static int64_t packed_floats(const State *state) {
    return padded(state->hidden, WHOLE_COLUMNS) * GATES * state->hidden;
}

static void *prepare(Params *params, Needs *needs) {
    State *state = calloc(1, sizeof(State));
    if (!state) return NULL;
    if (!read_state(state, params)) {
        free(state);
        return NULL;
    }
    state->chunks = ceil_div(state->batch, MOST_ROWS);
    if (state->batch > TILE_ROWS) state->chunks = greater(state->chunks, 2);
    state->chunk = ceil_div(state->batch, state->chunks);
    state->chunks = ceil_div(state->batch, state->chunk);
    const int64_t size = sizeof(float);
    needs->shared = state->directions * packed_floats(state) * size;
    needs->own = padded(state->chunk, TILE_ROWS) * GATES * state->hidden * size;
    return state;
}

// -- running --------------------------------------------------------------------------------------

static void pack(void *context, int64_t d, int thread) {
    (void)thread;
    const Job *job = context;
    const State *state = job->state;
    const int64_t n = state->hidden;
    ISA(pack_panels)(
        job->packed + d * packed_floats(state), state->r + d * GATES * n * n, 1, n, n, GATES * n,
        PANEL_COLUMNS);
}

// The units of a row: `kept` from gate to gate is `apart`.
static void make_slopes(
    const float *kept, int64_t apart, const float *cell, const float *given, float *dh, float *dc,
    float *to, int64_t n) {
    const float *input = kept, *output = kept + apart, *forget = output + apart;
    const float *wanted = forget + apart, *shown = wanted + apart;
    float *to_output = to + n, *to_forget = to_output + n, *to_wanted = to_forget + n;
    if (given)
        INDEPENDENT_FOR (int64_t j = 0; j < n; j++) dh[j] += given[j];
    INDEPENDENT_FOR (int64_t j = 0; j < n; j++) {
        const float i = input[j], o = output[j], f = forget[j], g = wanted[j], t = shown[j];
        const float slope = dc[j] + dh[j] * o * (1 - t * t);
        to[j] = slope * g * i * (1 - i);
        to_output[j] = dh[j] * t * o * (1 - o);
        to_forget[j] = slope * cell[j] * f * (1 - f);
        to_wanted[j] = slope * i * (1 - g * g);
        dc[j] = slope * f;
    }
}

// What comes back through R: rows by packed panels.
static void multiply(
    const State *state, const float *rows, const float *packed, float *panels, float *dh,
    int64_t count) {
    const int64_t n = state->hidden, k = GATES * n;
    const Place out = {dh, n, 0, 0};
    const bool whole = n % PANEL_COLUMNS == 0;
    if (count == 1 && whole) {
        ISA(multiply_row)(rows, packed, k, dh, n);
    } else if (count <= FEW_ROWS && whole) {
        ISA(multiply_few)(rows, k, packed, k, out, count, n);
    } else {
        ISA(pack_panels)(panels, rows, k, 1, count, k, TILE_ROWS);
        ISA(multiply_panels)(panels, packed, k, out, count, n, NULL);
    }
}

// All steps of some rows of a direction.
static void go_back(void *context, int64_t number, int thread) {
    const Job *job = context;
    const State *state = job->state;
    const int64_t n = state->hidden, d = number / state->chunks;
    const int64_t first = number % state->chunks * state->chunk;
    const int64_t count = lesser(state->batch - first, state->chunk);
    const int64_t apart = state->directions * state->steps * state->batch * n;
    float *dh = state->dh + (d * state->batch + first) * n;
    float *dc = state->dc + (d * state->batch + first) * n;
    for (int64_t step = state->steps - 1; step >= 0 && !pool_is_stopped(); step--) {
        const bool back = state->backward[d];
        const int64_t time = back ? state->steps - 1 - step : step;
        const int64_t row = (d * state->steps + time) * state->batch + first;
        const int64_t before = d * (state->steps + 1) + (back ? time + 1 : time);
        const int64_t result = (time * state->directions + d) * state->batch + first;
        for (int64_t b = 0; b < count; b++)
            make_slopes(
                state->gates + (row + b) * n, apart,
                state->cells + (before * state->batch + first + b) * n,
                state->given ? state->given + (result + b) * n : NULL, dh + b * n, dc + b * n,
                state->rows + (row + b) * GATES * n, n);
        if (step == 0 && !state->first) return;
        multiply(
            state, state->rows + row * GATES * n, job->packed + d * packed_floats(state),
            (float *)job->run->own[thread], dh, count);
    }
}

static Failure run_slopes(const void *argument, const Run *run) {
    const State *state = argument;
    Job job = {state, run, (float *)run->shared};
    share_chunks(run, state->directions, pack, &job);
    share_chunks(run, state->directions * state->chunks, go_back, &job);
    return OK;
}

const Kernel ISA(RECURRENT_SLOPES)[] = {
    {"LstmSlopes_f32", prepare, run_slopes, NULL},
    {NULL, NULL, NULL, NULL},
};
