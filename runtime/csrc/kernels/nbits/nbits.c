// Products of floats with a matrix that is stored in 2, 4 or 8 bits a number: each block of a row has a
// scale, and perhaps a zero point.  Rows of it are the columns of the result.  What is stored is all that
// is read from memory: sixteen rows at a time are turned, so that a vector of words holds some numbers of
// each, and become floats in registers if there is one row on the left, else in the second cache.
#include <stdlib.h>
#include <string.h>

#include "../matmul/gemm.h"
#include "nbits_bytes.h"
#include "../support/chunks.h"

enum {
    ROW_CHUNK = 1 << 17,  // products of a chunk of a single row
    MOST_CHUNKS = 64,  // of a few rows: enough for any number of threads
    FEW_CHUNKS = 16,  // fewer chunks of columns than these are divided into rows too
    PANELS_AT_ONCE = 8,  // of rows, for which weights are decoded once
};

typedef struct {
    int64_t m, left_row;
    const float *left;
    float *out;
    Epilogue epilogue;
    PackedBits bits;
    bool rounded;  // the left factor is rounded to bytes before
    ByteForm form;  // how bytes are multiplied then; PORTABLE: as floats
    void *offsets;  // where zero points lie that were packed here
    int64_t column_group, row_group;  // of a chunk
} State;

// -- preparing ------------------------------------------------------------------------------------

static bool is_of_bytes(const State *state) { return state->rounded && state->form != PORTABLE; }

static bool is_power_of_two(int64_t number) { return (number & (number - 1)) == 0; }

// Whether the left factor is rounded, and how it is multiplied.
static bool read_form(State *state, Params *params) {
    const int64_t rounded = next_int(params), form = next_int(params);
    if (params->bad || form < FASTEST || form > WORDS) return false;
    state->rounded = rounded != 0;
    state->form = (ByteForm)form;
    if (!state->rounded) return true;
    if (state->bits.groups || !is_power_of_two(state->bits.block)) return false;
    if (form == FASTEST && !ISA(has_byte_form)(FASTEST)) state->form = PORTABLE;
    return state->form == PORTABLE || ISA(has_byte_form)(state->form);
}

static bool read_operands(State *state, Params *params, Tensor *zero) {
    const Tensor left = next_tensor(params), packed = next_tensor(params);
    const Tensor scale = next_tensor(params);
    *zero = maybe_tensor(params);
    const Tensor groups = maybe_tensor(params), bias = maybe_tensor(params);
    const Tensor out = next_tensor(params);
    const int64_t width = next_int(params), block = next_int(params);
    if (params->bad || left.rank != 2 || packed.rank != 3 || out.rank != 2) return false;
    const int64_t m = left.dims[0], k = left.dims[1], n = packed.dims[0];
    if (m < 1 || k < 1 || n < 1 || left.dtype != F32 || !holds(&out, F32, m * n)) return false;
    if (out.dims[0] != m || (k > 1 && left.strides[1] != (int64_t)sizeof(float))) return false;
    *state = (State){
        .m = m,
        .left_row = left.strides[0] / (int64_t)sizeof(float),
        .left = (const float *)left.data,
        .out = (float *)out.data,
    };
    if (!ISA(lay_out_bits)(&state->bits, &packed, &scale, n, k, width, block)) return false;
    state->epilogue.column_bias = (const float *)bias.data;
    state->bits.groups = (const int32_t *)groups.data;
    return may_hold(&groups, I32, k) && are_apart(&groups, &out) && may_hold(&bias, F32, n) &&
           read_form(state, params);
}

static bool is_row(const State *state) { return state->m == 1 && !state->bits.groups; }

static bool is_few(const State *state) { return state->m <= FEW_ROWS; }

static void choose_groups(State *state, const Needs *needs) {
    const int64_t n = state->bits.rows, unit = is_few(state) ? PANEL_COLUMNS : WHOLE_COLUMNS;
    const int64_t units = ceil_div(n, unit);
    int64_t across = units;
    if (is_few(state) || is_of_bytes(state)) {
        across = n * state->bits.k / ROW_CHUNK * (is_few(state) ? 1 : state->m / FEW_ROWS);
        across = across < 1 ? 1 : across > MOST_CHUNKS ? MOST_CHUNKS : across;
    }
    state->column_group = ceil_div(units, across < units ? across : units) * unit;
    state->row_group = state->m;
    const double products = (double)(state->m * n) * (double)state->bits.k;
    const int64_t wanted = chunks_for(needs, products, FEW_CHUNKS);
    if (is_few(state) || is_of_bytes(state) || units >= wanted) return;
    const int64_t most = ceil_div(state->m, PANELS_AT_ONCE * TILE_ROWS);
    const int64_t down = ceil_div(wanted, units);
    state->row_group = ceil_div(ceil_div(state->m, down < most ? down : most), TILE_ROWS) *
                       TILE_ROWS;
}

static void release(void *argument) {
    State *state = argument;
    free(state->offsets);
    free(state);
}

// Floats of a row that ends with its last block.
static int64_t whole_row(const State *state) { return state->bits.blocks * state->bits.block; }

// Floats of the left factor in the order in which they are multiplied, and of what is summed of it.
static int64_t left_floats(const State *state) {
    if (is_row(state)) return whole_row(state) + state->bits.blocks;
    return is_few(state) ? 0 : padded(state->m, TILE_ROWS) * state->bits.k;
}

static void *prepare(Params *params, Needs *needs) {
    State *state = calloc(1, sizeof(State));
    Tensor zero = {0};
    if (!state || !read_operands(state, params, &zero)) {
        free(state);
        return NULL;
    }
    const bool in_panels = !is_of_bytes(state);
    if (zero.data && !ISA(pack_zeros)(&state->bits, &zero, in_panels, &state->offsets)) {
        release(state);
        return NULL;
    }
    choose_groups(state, needs);
    reads_anywhere(needs, &state->left);
    writes_anywhere(needs, &state->out);
    const PackedBits *bits = &state->bits;
    if (is_of_bytes(state)) {
        needs->own = ISA(rounding_bytes)(bits);
        needs->shared = state->m * ISA(rounded_bytes)(bits);
        return state;
    }
    const int64_t turned = (bits->words + bits->blocks) * PANEL_COLUMNS;
    const int64_t expanded =
        is_row(state) ? 0 : bits->k * (is_few(state) ? PANEL_COLUMNS : WHOLE_COLUMNS);
    needs->own = (turned + expanded) * (int64_t)sizeof(float);
    needs->shared = (left_floats(state) + (state->rounded ? state->m * bits->k : 0)) *
                    (int64_t)sizeof(float);
    return state;
}

// -- running --------------------------------------------------------------------------------------

typedef struct {
    const State *state;
    const Run *run;
    const float *left, *sums;  // of a single row, and of its blocks
} Job;

static int64_t at_most(int64_t count, int64_t most) { return count < most ? count : most; }

static void row_chunk(void *context, int64_t chunk, int thread) {
    const Job *job = context;
    const State *state = job->state;
    const int64_t n = state->bits.rows, first = chunk * state->column_group;
    const int64_t end = at_most(first + state->column_group, n);
    for (int64_t j = first; j < end; j += PANEL_COLUMNS) {
        float part[PANEL_COLUMNS];
        const Turned panel = ISA(turn_bits)(&state->bits, j, (float *)job->run->own[thread]);
        ISA(multiply_bits)(&state->bits, &panel, job->left, job->sums, part);
        memcpy(state->out + j, part, (size_t)at_most(n - j, PANEL_COLUMNS) * sizeof(float));
    }
    const Place out = {state->out + first, n, 0, first};
    ISA(finish)(&state->epilogue, out, 1, end - first);
}

static void run_row(const State *state, const Run *run, int64_t chunks) {
    const PackedBits *bits = &state->bits;
    float *left = (float *)run->shared, *sums = left + whole_row(state);
    memcpy(left, state->left, (size_t)bits->k * sizeof(float));
    memset(left + bits->k, 0, (size_t)(whole_row(state) - bits->k) * sizeof(float));
    for (int64_t block = 0; block < bits->blocks; block++) {
        float sum = 0;
        for (int64_t p = 0; p < bits->block; p++) sum += left[block * bits->block + p];
        sums[block] = sum;
    }
    Job job = {state, run, left, sums};
    share_chunks(run, chunks, row_chunk, &job);
}

// Columns from `first` on as floats, in panels, which lie behind what was turned.
static const float *expand(const State *state, int64_t first, int64_t end, float *own) {
    const PackedBits *bits = &state->bits;
    float *const to = own + (bits->words + bits->blocks) * PANEL_COLUMNS;
    for (int64_t j = first; j < end; j += PANEL_COLUMNS) {
        const Turned panel = ISA(turn_bits)(bits, j, own);
        ISA(expand_bits)(bits, &panel, to + (j - first) * bits->k);
    }
    return to;
}

static void few_chunk(void *context, int64_t chunk, int thread) {
    const Job *job = context;
    const State *state = job->state;
    const int64_t n = state->bits.rows, k = state->bits.k, first = chunk * state->column_group;
    const int64_t end = at_most(first + state->column_group, n);
    for (int64_t j = first; j < end; j += PANEL_COLUMNS) {
        const int64_t stop = at_most(j + PANEL_COLUMNS, end);
        const float *right = expand(state, j, stop, (float *)job->run->own[thread]);
        const Place out = {state->out + j, n, 0, j};
        if (state->m == 1)
            ISA(multiply_row)(state->left, right, k, out.data, stop - j);
        else
            ISA(multiply_few)(state->left, state->left_row, right, k, out, state->m, stop - j);
        ISA(finish)(&state->epilogue, out, state->m, stop - j);
    }
}

static void pack_chunk(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Job *job = context;
    const State *state = job->state;
    const int64_t k = state->bits.k, first = chunk * PANELS_AT_ONCE * TILE_ROWS;
    ISA(pack_panels)(
        (float *)job->run->shared + first * k, state->left + first * state->left_row,
        state->left_row, 1, at_most(state->m - first, PANELS_AT_ONCE * TILE_ROWS), k, TILE_ROWS);
}

static void many_chunk(void *context, int64_t chunk, int thread) {
    const Job *job = context;
    const State *state = job->state;
    const int64_t n = state->bits.rows, k = state->bits.k;
    const int64_t down = ceil_div(state->m, state->row_group);
    const int64_t j = chunk / down * state->column_group, i = chunk % down * state->row_group;
    const int64_t width = at_most(n - j, state->column_group);
    const float *right = expand(state, j, j + width, (float *)job->run->own[thread]);
    const Place out = {state->out + i * n + j, n, i, j};
    ISA(multiply_panels)(
        (const float *)job->run->shared + i * k, right, k, out,
        at_most(state->m - i, state->row_group), width, &state->epilogue);
}

static void round_row_chunk(void *context, int64_t row, int thread) {
    const Job *job = context;
    const State *state = job->state;
    const float *left = state->left + row * state->left_row;
    if (is_of_bytes(state)) {
        char *const to = job->run->shared + row * ISA(rounded_bytes)(&state->bits);
        ISA(round_bytes)(&state->bits, left, job->run->own[thread], to);
    } else {
        float *const floats = (float *)job->run->shared + left_floats(state);
        ISA(round_floats)(&state->bits, left, floats + row * state->bits.k);
    }
}

static void bytes_chunk(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Job *job = context;
    const State *state = job->state;
    const int64_t n = state->bits.rows, first = chunk * state->column_group;
    const int64_t columns = at_most(n - first, state->column_group);
    const Place out = {state->out + first, n, 0, first};
    ISA(multiply_rounded)(&state->bits, state->form, job->run->shared, state->m, out, columns);
    ISA(finish)(&state->epilogue, out, state->m, columns);
}

static void run_floats(const State *state, const Run *run, int64_t across) {
    Job job = {state, run, NULL, NULL};
    if (is_row(state)) {
        run_row(state, run, across);
    } else if (is_few(state)) {
        share_chunks(run, across, few_chunk, &job);
    } else {
        share_chunks(run, ceil_div(state->m, PANELS_AT_ONCE * TILE_ROWS), pack_chunk, &job);
        share_chunks(run, across * ceil_div(state->m, state->row_group), many_chunk, &job);
    }
}

static Failure run_product(const void *argument, const Run *run) {
    State state = *(const State *)argument;
    const PackedBits *bits = &state.bits;
    for (int64_t p = 0; bits->groups && p < bits->k; p++)
        if (bits->groups[p] < 0 || bits->groups[p] >= bits->blocks) return INDEX_OUTSIDE;
    const int64_t across = ceil_div(bits->rows, state.column_group);
    Job job = {&state, run, NULL, NULL};
    if (state.rounded) share_chunks(run, state.m, round_row_chunk, &job);
    if (is_of_bytes(&state)) {
        share_chunks(run, across, bytes_chunk, &job);
        return OK;
    }
    if (state.rounded) {
        state.left = (const float *)run->shared + left_floats(&state);
        state.left_row = bits->k;
    }
    run_floats(&state, run, across);
    return OK;
}

const Kernel ISA(PACKED_PRODUCTS)[] = {
    {"ProductBits_f32", prepare, run_product, release},
    {NULL, NULL, NULL, NULL},
};
