// LSTM and GRU with their usual functions: sigmoid for gates, tanh for the rest.
//
// Gates have the order of ONNX: input, output, forget, cell; or update, reset, hidden.
#include <stdlib.h>
#include <string.h>

#include "gemm.h"
#include "math.h"

enum { LSTM = 4, GRU = 3 };  // numbers of gates

typedef struct {
    int gates;
    bool reset_late;  // a GRU's reset gate applies to the product with the state
    int64_t steps, batch, width, hidden, directions;
    bool backward[2];
    const float *x, *w, *r, *bias, *h, *c;
    const int32_t *lengths;  // steps of each sequence; NULL: all of them
    float *y, *last_h, *last_c;
    float *packed_w, *packed_r;  // of all directions
    float *bias_sums;  // what is added to the products of the input
    int64_t packed_w_size, packed_r_size;  // floats of a direction
} State;

static void release(void *argument) {
    State *state = argument;
    free(state->packed_w);
    free(state->packed_r);
    free(state->bias_sums);
    free(state);
}

static bool read_operands(State *state, Params *params) {
    const Tensor x = next_tensor(params), w = next_tensor(params), r = next_tensor(params);
    const Tensor bias = next_tensor(params), h = next_tensor(params), c = next_tensor(params);
    const Tensor lengths = next_tensor(params);
    const Tensor y = next_tensor(params), last_h = next_tensor(params), last_c = next_tensor(params);
    if (params->bad || x.rank != 3 || w.rank != 3 || r.rank != 3) return false;
    *state = (State){
        .gates = (int)next_int(params),
        .reset_late = next_int(params) != 0,
        .steps = x.dims[0],
        .batch = x.dims[1],
        .width = x.dims[2],
        .directions = w.dims[0],
        .hidden = r.dims[2],
        .x = (const float *)x.data,
        .w = (const float *)w.data,
        .r = (const float *)r.data,
        .bias = (const float *)bias.data,
        .h = (const float *)h.data,
        .c = (const float *)c.data,
        .lengths = (const int32_t *)lengths.data,
        .y = (float *)y.data,
        .last_h = (float *)last_h.data,
        .last_c = (float *)last_c.data,
    };
    state->backward[0] = next_int(params) != 0;
    state->backward[1] = true;
    return !params->bad && state->directions <= 2 && w.constant && r.constant;
}

static bool pack(State *state) {
    const int64_t rows = state->gates * state->hidden;
    state->packed_w_size = padded(padded(rows, TILE_COLUMNS) * state->width, 16);
    state->packed_r_size =
        padded(state->gates * padded(state->hidden, TILE_COLUMNS) * state->hidden, 16);
    const size_t unit = (size_t)state->directions * sizeof(float);
    state->packed_w = aligned_alloc(64, (size_t)state->packed_w_size * unit);
    state->packed_r = aligned_alloc(64, (size_t)state->packed_r_size * unit);
    state->bias_sums = calloc((size_t)rows, unit);
    if (!state->packed_w || !state->packed_r || !state->bias_sums) return false;
    for (int64_t d = 0; d < state->directions; d++) {
        const float *w = state->w + d * rows * state->width, *r = state->r + d * rows * state->hidden;
        ISA(pack_panels)(
            state->packed_w + d * state->packed_w_size, w, state->width, 1, rows, state->width,
            TILE_COLUMNS);
        // Gates one after the other: a GRU multiplies the last one by itself.
        for (int gate = 0; gate < state->gates; gate++)
            ISA(pack_panels)(
                state->packed_r + d * state->packed_r_size +
                    gate * padded(state->hidden, TILE_COLUMNS) * state->hidden,
                r + gate * state->hidden * state->hidden, state->hidden, 1, state->hidden,
                state->hidden, TILE_COLUMNS);
        const float *bias = state->bias ? state->bias + d * 2 * rows : NULL;
        for (int64_t i = 0; bias && i < rows; i++) {
            const bool late = state->reset_late && i >= 2 * state->hidden;
            state->bias_sums[d * rows + i] = bias[i] + (late ? 0 : bias[rows + i]);
        }
    }
    return true;
}

// Floats of scratch of a direction: products of the input, of the state, and two states.
static int64_t own_floats(const State *state) {
    const int64_t rows = state->gates * state->hidden;
    return padded(state->steps * state->batch * rows, 16) + padded(state->batch * rows, 16) +
           3 * padded(state->batch * state->hidden, 16) +
           padded(padded(state->steps * state->batch, TILE_ROWS) * state->width, 16) + 64;
}

static void *prepare(Params *params, Needs *needs) {
    State *state = calloc(1, sizeof(State));
    if (!state) return NULL;
    if (!read_operands(state, params)) {
        free(state);
        return NULL;
    }
    if (!pack(state)) {
        release(state);
        return NULL;
    }
    needs->shared = state->directions * own_floats(state) * (int64_t)sizeof(float);
    return state;
}

// The memory of one direction.
typedef struct {
    float *shares;  // [steps][batch][gates * hidden]
    float *products;  // [batch][gates * hidden]
    float *h, *c, *reset;  // [batch][hidden]
    float *panels;  // of the input
} Memory;

static Memory memory_of(const State *state, float *at) {
    const int64_t rows = state->gates * state->hidden;
    Memory memory;
    memory.shares = at;
    at += padded(state->steps * state->batch * rows, 16);
    memory.products = at;
    at += padded(state->batch * rows, 16);
    float **states[] = {&memory.h, &memory.c, &memory.reset};
    for (int i = 0; i < 3; i++) {
        *states[i] = at;
        at += padded(state->batch * state->hidden, 16);
    }
    memory.panels = at;
    return memory;
}

// products[b][first .. ] of gates first .. end - 1 with `h`.
static void multiply_gates(
    const State *state, const float *r, const float *h, float *products, int first, int end) {
    const int64_t hidden = state->hidden, rows = state->gates * hidden;
    const int64_t gate_size = padded(hidden, TILE_COLUMNS) * hidden;
    for (int gate = first; gate < end; gate++)
        for (int64_t b = 0; b < state->batch; b++)
            ISA(multiply_row)(
                h + b * hidden, r + gate * gate_size, hidden, products + b * rows + gate * hidden,
                hidden);
}

// Whether sequence `b` has come to its end, or in the other direction has not begun.
static bool is_over(const State *state, int64_t b, int64_t step) {
    return state->lengths && step >= state->lengths[b];
}

static void lstm_step(
    const State *state, const Memory *memory, const float *r, const float *shares, int64_t step) {
    const int64_t n = state->hidden, rows = 4 * n;
    multiply_gates(state, r, memory->h, memory->products, 0, 4);
    for (int64_t b = 0; b < state->batch; b++) {
        if (is_over(state, b, step)) continue;
        const float *s = shares + b * rows, *p = memory->products + b * rows;
        float *h = memory->h + b * n, *c = memory->c + b * n;
#pragma GCC ivdep
        for (int64_t j = 0; j < n; j++) {
            const float input = gate_sigmoid(s[j] + p[j]);
            const float output = gate_sigmoid(s[n + j] + p[n + j]);
            const float forget = gate_sigmoid(s[2 * n + j] + p[2 * n + j]);
            const float cell = forget * c[j] + input * fast_tanh(s[3 * n + j] + p[3 * n + j]);
            c[j] = cell;
            h[j] = output * fast_tanh(cell);
        }
    }
}

static void gru_step(
    const State *state, const Memory *memory, const float *r, const float *shares, const float *late,
    int64_t step) {
    const int64_t n = state->hidden, rows = 3 * n;
    multiply_gates(state, r, memory->h, memory->products, 0, state->reset_late ? 3 : 2);
    if (!state->reset_late) {
        for (int64_t b = 0; b < state->batch; b++) {
            const float *s = shares + b * rows + n, *p = memory->products + b * rows + n;
            for (int64_t j = 0; j < n; j++)
                memory->reset[b * n + j] = gate_sigmoid(s[j] + p[j]) * memory->h[b * n + j];
        }
        multiply_gates(state, r, memory->reset, memory->products, 2, 3);
    }
    for (int64_t b = 0; b < state->batch; b++) {
        if (is_over(state, b, step)) continue;
        const float *s = shares + b * rows, *p = memory->products + b * rows;
        float *h = memory->h + b * n;
#pragma GCC ivdep
        for (int64_t j = 0; j < n; j++) {
            const float update = gate_sigmoid(s[j] + p[j]);
            float product = p[2 * n + j];
            if (state->reset_late)
                product = gate_sigmoid(s[n + j] + p[n + j]) * (product + (late ? late[j] : 0));
            const float candidate = fast_tanh(s[2 * n + j] + product);
            h[j] = candidate + update * (h[j] - candidate);
        }
    }
}

typedef struct {
    const State *state;
    const Run *run;
} Job;

static void project(const State *state, const Memory *memory, int64_t d) {
    const int64_t rows = state->gates * state->hidden, all = state->steps * state->batch;
    Epilogue epilogue = {.column_bias = state->bias_sums + d * rows};
    ISA(pack_panels)(memory->panels, state->x, state->width, 1, all, state->width, TILE_ROWS);
    const Place out = {memory->shares, rows, 0, 0};
    ISA(multiply_panels)(
        memory->panels, state->packed_w + d * state->packed_w_size, state->width, out, all, rows,
        &epilogue);
}

static void start(float *to, const float *from, int64_t count) {
    if (from)
        memcpy(to, from, (size_t)count * sizeof(float));
    else
        memset(to, 0, (size_t)count * sizeof(float));
}

// What lies beyond the end of a sequence is zero.
static void write_step(const State *state, const Memory *memory, float *y, int64_t step) {
    for (int64_t b = 0; b < state->batch; b++) {
        const bool over = is_over(state, b, step);
        start(y + b * state->hidden, over ? NULL : memory->h + b * state->hidden, state->hidden);
    }
}

// A direction is a chain of steps: one thread does it all.
static void run_direction(void *context, int64_t d, int thread) {
    (void)thread;
    const Job *job = context;
    const State *state = job->state;
    const int64_t size = state->batch * state->hidden, rows = state->gates * state->hidden;
    const Memory memory = memory_of(state, (float *)job->run->shared + d * own_floats(state));
    project(state, &memory, d);
    start(memory.h, state->h ? state->h + d * size : NULL, size);
    start(memory.c, state->c ? state->c + d * size : NULL, size);
    const float *r = state->packed_r + d * state->packed_r_size;
    const float *late = state->bias ? state->bias + (2 * d + 1) * rows + 2 * state->hidden : NULL;
    for (int64_t i = 0; i < state->steps; i++) {
        const int64_t step = state->backward[d] ? state->steps - 1 - i : i;
        const float *shares = memory.shares + step * state->batch * rows;
        if (state->gates == LSTM)
            lstm_step(state, &memory, r, shares, step);
        else
            gru_step(state, &memory, r, shares, late, step);
        if (state->y) write_step(state, &memory, state->y + (step * state->directions + d) * size, step);
    }
    if (state->last_h) memcpy(state->last_h + d * size, memory.h, (size_t)size * sizeof(float));
    if (state->last_c) memcpy(state->last_c + d * size, memory.c, (size_t)size * sizeof(float));
}

static Failure run_recurrent(const void *argument, const Run *run) {
    Job job = {argument, run};
    share_chunks(run, job.state->directions, run_direction, &job);
    return OK;
}

const Kernel ISA(RECURRENT)[] = {
    {"Recurrent_f32", prepare, run_recurrent, release},
    {NULL, NULL, NULL, NULL},
};
