// RNN, LSTM and GRU.
//
// Gates have the order of ONNX: input, output, forget, cell; or update, reset, hidden.
#include "recurrent_bytes.h"
#include "recurrent_parts.h"

#include <stdlib.h>
#include <string.h>

enum {
    BLOCK_ROWS = 96,  // of the input, about, that are multiplied at once: 16 tiles with AVX2
    // Rows that take as long as one, which waits for weights; products of bytes that take as long as one.
    WAITING_ROWS = 2,
    BYTE_PRODUCTS = 4,
};

static void release(void *argument) {
    ISA(release_weights)(argument);
    free(argument);
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

static bool are_weights(
    const State *state, const Tensor *x, const Tensor *w, const Tensor *r, DType type) {
    const int64_t rows = size_of(state->gates, state->directions, state->hidden);
    return holds(x, F32, size_of(state->steps, state->batch, state->width)) &&
           holds(w, type, size_of(rows, state->width, 1)) && state->hidden > 0 &&
           holds(r, type, size_of(rows, state->hidden, 1));
}

static bool read_operands(State *state, Params *params, DType type) {
    const Tensor x = next_tensor(params), w = next_tensor(params), r = next_tensor(params);
    const Tensor bias = maybe_tensor(params);
    if (params->bad || x.rank != 3 || w.rank != 3 || r.rank != 3) return false;
    *state = (State){
        .steps = x.dims[0],
        .batch = x.dims[1],
        .rows = x.dims[1],
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
    return !params->bad && state->directions >= 1 && state->directions <= 2 && known &&
           state->batch > 0 && are_weights(state, &x, &w, &r, type) &&
           are_sized(state, &bias, more) && has_functions(state) &&
           (type == F32 || ISA(read_byte_weights)(state, params, &w, &r));
}

// Two directions are two threads; a single one has several in each step, if that pays.  False if there
// is more than memory can be addressed with.
static bool divide(State *state) {
    state->wide = padded(state->hidden, PANEL_COLUMNS);
    state->in_place = state->usual && state->kept_states && state->wide == state->hidden;
    const int64_t columns = state->gates * state->wide;
    const int64_t rows = state->batch + BLOCK_ROWS + TILE_ROWS;
    const int64_t sizes[] = {size_of(rows, columns, 1), size_of(rows, state->width, 1)};
    for (int i = 0; i < 2; i++)
        if (sizes[i] < 0 || sizes[i] > MOST_BYTES) return false;
    const int64_t busy = state->batch < WAITING_ROWS ? WAITING_ROWS : state->batch;
    const int64_t work = size_of(busy, columns, state->hidden) / (state->bytes ? BYTE_PRODUCTS : 1);
    const bool several = state->directions == 1 && state->usual && work >= STEP_WORK;
    const int64_t parts = !several ? 1 : work < 2 * STEP_WORK ? 2 : work / STEP_WORK;
    state->chunk = padded(ceil_div(state->wide, parts), PANEL_COLUMNS);
    state->chunks = ceil_div(state->wide, state->chunk);
    return true;
}

static int64_t block_steps(const State *state) {
    return lesser(ceil_div(BLOCK_ROWS, state->rows), state->steps);
}

// Where the parts of a direction's memory begin, in floats, and how many it has.
typedef enum {
    SHARES,
    PRODUCTS,
    H,
    NEXT,
    C,
    RESET,
    SPARE,
    PANELS,
    INPUT,
    TAKEN,
    RANGES,
    PARTS
} Part;

static void lay_out(const State *state, int64_t places[PARTS + 1]) {
    const int64_t columns = state->gates * state->wide, cells = state->rows * state->wide;
    const int64_t rows = block_steps(state) * state->rows;
    const int64_t panels = padded(state->rows, TILE_ROWS), input = padded(rows, TILE_ROWS);
    const bool bytes = state->bytes != NULL;
    const int64_t sizes[PARTS] = {
        [SHARES] = rows * columns,
        [PRODUCTS] = state->rows * columns,
        [H] = cells,
        [NEXT] = cells,
        [C] = cells,
        [RESET] = cells,
        [SPARE] = cells,
        [PANELS] = bytes ? ISA(byte_row_floats)(state->rows, state->hidden)
                         : panels * state->hidden,
        [INPUT] = bytes ? ISA(byte_row_floats)(rows, state->width) : input * state->width,
        [TAKEN] = state->rows < state->batch ? rows * state->width : 0,
        [RANGES] = bytes ? 2 * state->rows : 0};
    places[0] = 0;
    for (int part = 0; part < PARTS; part++)
        places[part + 1] = places[part] + padded(sizes[part], 16);
}

static void *prepare_of(Params *params, Needs *needs, DType type) {
    State *state = calloc(1, sizeof(State));
    if (!state) return NULL;
    if (!read_operands(state, params, type) || !divide(state) || !ISA(take_weights)(state)) {
        release(state);
        return NULL;
    }
    reads_anywhere(needs, &state->x);
    float **written[] = {&state->y, &state->last_h, &state->last_c};
    for (int i = 0; i < 3; i++) writes_anywhere(needs, written[i]);
    for (int64_t parts = 1; parts <= ISA(most_parts)(state); parts++) {
        const State part = ISA(part_of)(state, parts, 0);
        int64_t places[PARTS + 1];
        lay_out(&part, places);
        needs->shared = greater(
            needs->shared, state->directions * parts * places[PARTS] * (int64_t)sizeof(float));
    }
    return state;
}

static void *prepare(Params *params, Needs *needs) { return prepare_of(params, needs, F32); }

static void *prepare_bytes(Params *params, Needs *needs) { return prepare_of(params, needs, I8); }

static Memory memory_of(const State *state, float *at) {
    int64_t places[PARTS + 1];
    lay_out(state, places);
    return (Memory){
        .shares = at + places[SHARES],
        .products = at + places[PRODUCTS],
        .h = at + places[H],
        .next = at + places[NEXT],
        .c = at + places[C],
        .next_c = at + places[C],
        .reset = at + places[RESET],
        .spare = at + places[SPARE],
        .panels = at + places[PANELS],
        .input = at + places[INPUT],
        .taken = at + places[TAKEN],
        .ranges = (ByteRange *)(at + places[RANGES])};
}

// -- all steps ------------------------------------------------------------------------------------

typedef struct {
    const State *state;
    const Run *run;
    const Memory *memory;
    int64_t direction, rows;  // of the input
    int64_t parts;  // of the batch
} Job;

// Products of some rows of the input with a part of the weights.
static void project_some(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Job *job = context;
    const State *state = job->state;
    const int64_t columns = state->gates * state->wide, part = state->gates * state->chunk;
    const int64_t first = chunk * part, count = lesser(columns - first, part);
    const float *bias = state->bias_sums + job->direction * columns;
    const Epilogue epilogue = {.column_bias = bias + first};
    const Place out = {job->memory->shares + first, columns, 0, 0};
    const float *w = state->packed_w + job->direction * state->packed_w_size;
    if (state->bytes) {
        ISA(multiply_bytes)(
            &state->bytes[0], job->direction, job->memory->input, job->rows, first, first + count,
            bias, out.data, columns);
        return;
    }
    ISA(multiply_panels)(
        job->memory->input, w + first * state->width, state->width, out, job->rows, count,
        &epilogue);
}

static void project(Job *job, int64_t step, int64_t steps) {
    const State *state = job->state;
    const int64_t width = state->width, all = state->batch * width, some = state->rows * width;
    const float *x = state->x + step * all;
    job->rows = steps * state->rows;
    if (some < all) {
        for (int64_t i = 0; i < steps; i++)
            copy_floats(job->memory->taken + i * some, x + i * all, some);
        x = job->memory->taken;
    }
    if (state->bytes)
        ISA(quantize_input)(state, x, step, steps, job->memory->ranges, job->memory->input);
    else
        ISA(pack_panels)(job->memory->input, x, width, 1, job->rows, width, TILE_ROWS);
    share_chunks(job->run, state->chunks, project_some, job);
}

// Rows of units as they are kept here, from rows of the layer's operand, or zeros.
static void take_rows(const State *state, float *to, const float *from) {
    memset(to, 0, (size_t)(state->rows * state->wide) * sizeof(float));
    for (int64_t b = 0; from && b < state->rows; b++)
        copy_floats(to + b * state->wide, from + b * state->hidden, state->hidden);
}

static void give_rows(const State *state, float *to, const float *from) {
    for (int64_t b = 0; to && b < state->rows; b++)
        copy_floats(to + b * state->hidden, from + b * state->wide, state->hidden);
}

// Where states after `count` steps lie for the gradient: in the order of time, all h before all c.
static float *place_of(const State *state, int64_t d, int64_t count, bool is_c) {
    const int64_t size = state->batch * state->hidden, places = state->steps + 1;
    const int64_t place = d * places + (state->backward[d] ? state->steps - count : count);
    return state->kept_states + (is_c ? state->directions * places + place : place) * size;
}

// Before a step: where its states go.
static void place_states(const State *state, Memory *memory, int64_t d, int64_t count) {
    if (!state->in_place) return;
    memory->next = place_of(state, d, count, false);
    if (state->gates == LSTM) memory->next_c = place_of(state, d, count, true);
}

// After a step, unless it has done so.
static void keep_states(const State *state, const Memory *memory, int64_t d, int64_t count) {
    if (!state->kept_states || state->in_place) return;
    give_rows(state, place_of(state, d, count, false), memory->h);
    if (state->gates == LSTM) give_rows(state, place_of(state, d, count, true), memory->c);
}

// What lies beyond the end of a sequence is zero.
static void write_step(const State *state, const Memory *memory, float *y, int64_t step) {
    give_rows(state, y, memory->h);
    for (int64_t b = 0; state->lengths && b < state->rows; b++)
        if (is_over(state, b, step))
            memset(y + b * state->hidden, 0, (size_t)state->hidden * sizeof(float));
}

static void run_step(
    const Job *job, Memory *memory, int64_t step, const float *shares, bool begins) {
    const State *state = job->state;
    const int64_t d = job->direction, size = state->batch * state->hidden;
    const float *r = state->halves ? NULL : state->packed_r + d * state->packed_r_size;
    const float *late = state->bias && state->reset_late ? state->late_bias + d * state->wide
                                                         : NULL;
    const Step now = {state, memory, r, shares, late, step, d, begins};
    if (state->usual) {
        ISA(usual_step)(&now, job->run);
        float *before = memory->h;
        memory->h = memory->next;
        memory->next = before;
        memory->c = memory->next_c;
    } else {
        ISA(any_step)(&now);
    }
    if (state->y) write_step(state, memory, state->y + (step * state->directions + d) * size, step);
}

// A direction is a chain of steps, blocks of which are multiplied with the input at once.
static void run_direction(void *context, int64_t number, int thread) {
    (void)thread;
    Job job = *(const Job *)context;
    const int64_t d = number / job.parts;
    const State part = ISA(part_of)(job.state, job.parts, number % job.parts), *state = &part;
    if (part.rows < 1) return;
    int64_t places[PARTS + 1];
    const State largest = ISA(part_of)(job.state, job.parts, 0);
    lay_out(&largest, places);
    Memory memory = memory_of(&largest, (float *)job.run->shared + number * places[PARTS]);
    job.state = state;
    job.memory = &memory;
    job.direction = d;
    const int64_t size = state->batch * state->hidden, row = state->gates * state->wide;
    const int64_t block = block_steps(&largest);
    place_states(state, &memory, d, 0);
    if (state->in_place) memory.h = memory.next, memory.c = memory.next_c;
    take_rows(state, memory.h, state->h ? state->h + d * size : NULL);
    take_rows(state, memory.c, state->c ? state->c + d * size : NULL);
    keep_states(state, &memory, d, 0);
    if (state->bytes) ISA(find_ranges)(state, memory.ranges);
    for (int64_t done = 0; done < state->steps; done += block) {
        const int64_t steps = lesser(block, state->steps - done);
        const int64_t first = state->backward[d] ? state->steps - done - steps : done;
        project(&job, first, steps);
        for (int64_t i = 0; i < steps; i++) {
            if (pool_is_stopped()) return;
            const int64_t place = state->backward[d] ? steps - 1 - i : i;
            place_states(state, &memory, d, done + i + 1);
            const bool begins = !state->h && done + i == 0;
            const float *shares = memory.shares + place * state->rows * row;
            run_step(&job, &memory, first + place, shares, begins);
            keep_states(state, &memory, d, done + i + 1);
        }
    }
    give_rows(state, state->last_h ? state->last_h + d * size : NULL, memory.h);
    give_rows(state, state->last_c ? state->last_c + d * size : NULL, memory.c);
}

static void pack_direction(void *context, int64_t d, int thread) {
    (void)thread;
    ISA(pack_weights)(((const Job *)context)->state, d);
}

static Failure run_recurrent(const void *argument, const Run *run) {
    Job job = {.state = argument, .run = run};
    job.parts = ISA(part_count)(job.state, run->threads);
    if (!job.state->is_packed) share_chunks(run, job.state->directions, pack_direction, &job);
    share_chunks(run, job.state->directions * job.parts, run_direction, &job);
    return OK;
}

const Kernel ISA(RECURRENT)[] = {
    {"Recurrent_f32", prepare, run_recurrent, release},
    {"Recurrent_i8", prepare_bytes, run_recurrent, release},
    {NULL, NULL, NULL, NULL},
};
