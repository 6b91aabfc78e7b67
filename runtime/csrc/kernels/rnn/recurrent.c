// RNN, LSTM and GRU.
//
// Gates have the order of ONNX: input, output, forget, cell; or update, reset, hidden.
#include "recurrent.h"

#include <stdlib.h>
#include <string.h>

#include "../matmul/gemm.h"
#include "../support/math.h"

static void release(void *argument) {
    State *state = argument;
    free(state->packed_w);
    free(state->packed_r);
    free(state->bias_sums);
    free(state);
}

static void read_functions(State *state, Params *params) {
    for (int64_t d = 0; d < state->directions && d < 2; d++)
        for (int i = 0; i < 3; i++) {
            Function *function = &state->functions[d][i];
            function->loop = ISA(activation_loop)(next_int(params));
            for (int k = 0; k < MAX_PARAMETERS; k++) function->parameters[k] = next_float(params);
        }
}

static bool has_functions(const State *state) {
    const int count = state->gates == RNN ? 1 : state->gates == GRU ? 2 : 3;
    if (state->usual) return state->gates != RNN;
    for (int64_t d = 0; d < state->directions; d++)
        for (int i = 0; i < count; i++)
            if (!state->functions[d][i].loop) return false;
    return true;
}

// Whether an operand is absent, or has at least as many elements as are used.
static bool covers(const Tensor *tensor, DType dtype, int64_t count) {
    return !tensor->data || (tensor->dtype == dtype && is_contiguous(tensor) && count >= 0 &&
                             element_count(tensor) >= count);
}

// `more`: h, c, peepholes, attention, lengths, then results: all states, the last h and c, and the
// states and gates that are kept.
static bool are_sized(const State *state, const Tensor *bias, const Tensor *more) {
    const int64_t cells = size_of(state->directions, state->batch, state->hidden);
    const int64_t rows = size_of(state->gates, state->directions, state->hidden);
    const int64_t states = state->gates == LSTM ? 2 : 1;
    const int64_t kept = state->gates == LSTM ? 5 : state->gates == GRU ? 3 + state->reset_late : 0;
    const int64_t counts[] = {
        cells,
        cells,
        size_of(state->directions, 3, state->hidden),
        size_of(state->steps, state->batch, 1),
        state->batch,
        size_of(cells, state->steps, 1),
        cells,
        cells,
        size_of(cells, state->steps + 1, states),
        size_of(cells, state->steps, kept)};
    for (int i = 0; i < 10; i++)
        if (!covers(&more[i], i == 4 ? I32 : F32, counts[i])) return false;
    return covers(bias, F32, size_of(2, rows, 1));
}

static bool are_weights(const State *state, const Tensor *x, const Tensor *w, const Tensor *r) {
    const int64_t rows = size_of(state->gates, state->directions, state->hidden);
    return holds(x, F32, size_of(state->steps, state->batch, state->width)) &&
           holds(w, F32, size_of(rows, state->width, 1)) && state->hidden > 0 &&
           holds(r, F32, size_of(rows, state->hidden, 1));
}

static bool read_operands(State *state, Params *params) {
    const Tensor x = next_tensor(params), w = next_tensor(params), r = next_tensor(params);
    const Tensor bias = maybe_tensor(params);
    if (params->bad || x.rank != 3 || w.rank != 3 || r.rank != 3) return false;
    *state = (State){
        .steps = x.dims[0],
        .batch = x.dims[1],
        .width = x.dims[2],
        .directions = w.dims[0],
        .hidden = r.dims[2],
        .x = (const float *)x.data,
        .w = (const float *)w.data,
        .r = (const float *)r.data,
        .bias = (const float *)bias.data,
        .is_packed = w.constant && r.constant && (!bias.data || bias.constant),
    };
    const float **given[] = {&state->h, &state->c, &state->peepholes, &state->attention};
    float **wanted[] = {
        &state->y, &state->last_h, &state->last_c, &state->kept_states, &state->kept_gates};
    Tensor more[10];
    for (int i = 0; i < 10; i++) more[i] = maybe_tensor(params);
    for (int i = 0; i < 4; i++) *given[i] = (const float *)more[i].data;
    state->lengths = (const int32_t *)more[4].data;
    for (int i = 0; i < 5; i++) *wanted[i] = (float *)more[5 + i].data;
    state->gates = (int)next_int(params);
    state->reset_late = next_int(params) != 0;
    state->backward[0] = next_int(params) != 0;
    state->backward[1] = true;
    state->usual = next_int(params) != 0;
    state->input_forget = next_int(params) != 0;
    state->clip = (float)next_float(params);
    read_functions(state, params);
    const bool known = state->gates == RNN || state->gates == LSTM || state->gates == GRU;
    return !params->bad && state->directions >= 0 && state->directions <= 2 && known &&
           are_weights(state, &x, &w, &r) && are_sized(state, &bias, more) && has_functions(state);
}

static bool take_memory(State *state) {
    const int64_t rows = state->gates * state->hidden;
    state->packed_w_size = padded(padded(rows, PANEL_COLUMNS) * state->width, 16);
    state->packed_r_size =
        padded(state->gates * padded(state->hidden, PANEL_COLUMNS) * state->hidden, 16);
    const size_t unit = (size_t)state->directions * sizeof(float);
    state->packed_w = aligned_alloc(64, padded((int64_t)((size_t)state->packed_w_size * unit), 64));
    state->packed_r = aligned_alloc(64, padded((int64_t)((size_t)state->packed_r_size * unit), 64));
    state->bias_sums = calloc((size_t)rows, unit);
    return state->packed_w && state->packed_r && state->bias_sums;
}

// The weights of a direction as products want them.
static void pack(const State *state, int64_t d) {
    const int64_t rows = state->gates * state->hidden;
    const float *w = state->w + d * rows * state->width, *r = state->r + d * rows * state->hidden;
    ISA(pack_panels)(
        state->packed_w + d * state->packed_w_size, w, state->width, 1, rows, state->width,
        PANEL_COLUMNS);
    // Gates one after the other: a GRU multiplies the last one by itself.
    for (int gate = 0; gate < state->gates; gate++)
        ISA(pack_panels)(
            state->packed_r + d * state->packed_r_size +
                gate * padded(state->hidden, PANEL_COLUMNS) * state->hidden,
            r + gate * state->hidden * state->hidden, state->hidden, 1, state->hidden,
            state->hidden, PANEL_COLUMNS);
    const float *bias = state->bias ? state->bias + d * 2 * rows : NULL;
    for (int64_t i = 0; bias && i < rows; i++) {
        const bool late = state->reset_late && i >= 2 * state->hidden;
        state->bias_sums[d * rows + i] = bias[i] + (late ? 0 : bias[rows + i]);
    }
}

// Floats of scratch of a direction: products of the input, of the state, and two states.
static int64_t own_floats(const State *state) {
    const int64_t rows = state->gates * state->hidden;
    return padded(state->steps * state->batch * rows, 16) + padded(state->batch * rows, 16) +
           4 * padded(state->batch * state->hidden, 16) +
           padded(padded(state->steps * state->batch, TILE_ROWS) * state->width, 16) + 64;
}

static void *prepare(Params *params, Needs *needs) {
    State *state = calloc(1, sizeof(State));
    if (!state) return NULL;
    if (!read_operands(state, params)) {
        free(state);
        return NULL;
    }
    if (!take_memory(state)) {
        release(state);
        return NULL;
    }
    for (int64_t d = 0; state->is_packed && d < state->directions; d++) pack(state, d);
    needs->shared = state->directions * own_floats(state) * (int64_t)sizeof(float);
    return state;
}

static Memory memory_of(const State *state, float *at) {
    const int64_t rows = state->gates * state->hidden;
    Memory memory;
    memory.shares = at;
    at += padded(state->steps * state->batch * rows, 16);
    memory.products = at;
    at += padded(state->batch * rows, 16);
    float **states[] = {&memory.h, &memory.c, &memory.reset, &memory.spare};
    for (int i = 0; i < 4; i++) {
        *states[i] = at;
        at += padded(state->batch * state->hidden, 16);
    }
    memory.panels = at;
    return memory;
}

// products[b][first .. ] of gates first .. end - 1 with `h`.
void ISA(multiply_gates)(
    const State *state, const float *r, const float *h, float *products, int first, int end) {
    const int64_t hidden = state->hidden, rows = state->gates * hidden;
    const int64_t gate_size = padded(hidden, PANEL_COLUMNS) * hidden;
    for (int gate = first; gate < end; gate++)
        for (int64_t b = 0; b < state->batch; b++)
            ISA(multiply_row)(
                h + b * hidden, r + gate * gate_size, hidden, products + b * rows + gate * hidden,
                hidden);
}

// -- steps of LSTM and GRU with sigmoid for gates and tanh for the rest ---------------------------

static void lstm_step(const Step *now) {
    const State *state = now->state;
    const Memory *memory = now->memory;
    const int64_t n = state->hidden, rows = 4 * n;
    ISA(multiply_gates)(state, now->r, memory->h, memory->products, 0, 4);
    for (int64_t b = 0; b < state->batch; b++) {
        if (is_over(state, b, now->time)) continue;
        const float *s = now->shares + b * rows, *p = memory->products + b * rows;
        float *h = memory->h + b * n, *c = memory->c + b * n;
        INDEPENDENT_FOR (int64_t j = 0; j < n; j++) {
            const float input = fast_sigmoid(s[j] + p[j]);
            const float output = fast_sigmoid(s[n + j] + p[n + j]);
            const float forget = fast_sigmoid(s[2 * n + j] + p[2 * n + j]);
            const float cell = forget * c[j] + input * fast_tanh(s[3 * n + j] + p[3 * n + j]);
            c[j] = cell;
            h[j] = output * fast_tanh(cell);
        }
    }
}

// The products of candidates with the state, n behind the gates, times the reset gate: before that a bias.
static void reset_products(const float *gates, float *products, const float *bias, int64_t n) {
    float *candidates = products + 2 * n;
    if (bias) {
        INDEPENDENT_FOR (int64_t j = 0; j < n; j++) candidates[j] += bias[j];
    }
    INDEPENDENT_FOR (int64_t j = 0; j < n; j++)
        candidates[j] *= fast_sigmoid(gates[n + j] + products[n + j]);
}

static void gru_step(const Step *now) {
    const State *state = now->state;
    const Memory *memory = now->memory;
    const int64_t n = state->hidden, rows = 3 * n;
    ISA(multiply_gates)(state, now->r, memory->h, memory->products, 0, state->reset_late ? 3 : 2);
    if (!state->reset_late) {
        for (int64_t b = 0; b < state->batch; b++) {
            const float *s = now->shares + b * rows + n, *p = memory->products + b * rows + n;
            const float *h = memory->h + b * n;
            float *reset = memory->reset + b * n;
            INDEPENDENT_FOR (int64_t j = 0; j < n; j++) reset[j] = fast_sigmoid(s[j] + p[j]) * h[j];
        }
        ISA(multiply_gates)(state, now->r, memory->reset, memory->products, 2, 3);
    }
    for (int64_t b = 0; b < state->batch; b++) {
        if (is_over(state, b, now->time)) continue;
        const float *s = now->shares + b * rows;
        float *p = memory->products + b * rows, *h = memory->h + b * n;
        if (state->reset_late) reset_products(s, p, now->late_bias, n);
        INDEPENDENT_FOR (int64_t j = 0; j < n; j++) {
            const float update = fast_sigmoid(s[j] + p[j]);
            const float candidate = fast_tanh(s[2 * n + j] + p[2 * n + j]);
            h[j] = candidate + update * (h[j] - candidate);
        }
    }
}

static void usual_step(const Step *now) { (now->state->gates == LSTM ? lstm_step : gru_step)(now); }

// -- all steps ------------------------------------------------------------------------------------

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

// The state after `count` steps, for the gradient; in the order of time.
static void keep_states(const State *state, const Memory *memory, int64_t d, int64_t count) {
    if (!state->kept_states) return;
    const int64_t size = state->batch * state->hidden, places = state->steps + 1;
    const int64_t place = d * places + (state->backward[d] ? state->steps - count : count);
    float *h = state->kept_states + place * size;
    memcpy(h, memory->h, (size_t)size * sizeof(float));
    if (state->gates != LSTM) return;
    memcpy(h + state->directions * places * size, memory->c, (size_t)size * sizeof(float));
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
    if (!state->is_packed) pack(state, d);
    project(state, &memory, d);
    start(memory.h, state->h ? state->h + d * size : NULL, size);
    start(memory.c, state->c ? state->c + d * size : NULL, size);
    const float *r = state->packed_r + d * state->packed_r_size;
    const bool late = state->bias && state->reset_late;
    const float *late_bias = late ? state->bias + (2 * d + 1) * rows + 2 * state->hidden : NULL;
    keep_states(state, &memory, d, 0);
    for (int64_t i = 0; i < state->steps; i++) {
        const int64_t step = state->backward[d] ? state->steps - 1 - i : i;
        const float *shares = memory.shares + step * state->batch * rows;
        const Step now = {state, &memory, r, shares, late_bias, step, d};
        (state->usual ? usual_step : ISA(any_step))(&now);
        keep_states(state, &memory, d, i + 1);
        if (state->y)
            write_step(state, &memory, state->y + (step * state->directions + d) * size, step);
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
