// Products of rows with matrices that they choose, of floats or of numbers of few bits: the rows of each
// expert are brought together and multiplied at once, sixteen rows of its matrix at a time.  Of an expert
// that nobody has chosen nothing is read.
#include <stdlib.h>
#include <string.h>

#include "../attention/few_queries.h"
#include "../matmul/gemm.h"
#include "../nbits/nbits.h"

enum { CHUNK = 1 << 17 };  // products of a chunk of a single row

typedef struct {
    int64_t rows, depth, width, experts;
    int64_t whole;  // numbers of a row that ends with a whole block
    const float *left;
    int64_t left_row;
    Tensor choice;
    const float *weights;  // [experts][width][depth]; NULL: they are `bits`
    PackedBits *bits;  // of each expert
    void **offsets;  // where zero points of each expert lie that were packed here
    const float *bias;  // [experts][width], or NULL
    float *out;
    int64_t group;  // columns of a chunk
} Experts;

// What a run finds out: all in memory that threads share.
typedef struct {
    const Experts *state;
    const Run *run;
    float *left, *sums;  // rows of the experts, one after another; sums of their blocks
    int64_t *begins, *order, *active;  // first row of an expert, number of a row, experts with rows
    int64_t *chosen;  // the expert of each row
    int64_t count;  // of those
} Job;

static int64_t blocks_of(const Experts *state) { return state->bits ? state->bits->blocks : 0; }

// -- preparing ------------------------------------------------------------------------------------

static void release(void *argument) {
    Experts *state = argument;
    for (int64_t e = 0; state->offsets && e < state->experts; e++) free(state->offsets[e]);
    free(state->offsets);
    free(state->bits);
    free(state);
}

// Floats of a thread: words and scales that were turned, a panel as floats, and part of a result.
static int64_t own_floats(const Experts *state) {
    const int64_t turned = state->bits ? state->bits->words + state->bits->blocks : 0;
    return (turned + state->whole + FEW_ROWS) * PANEL_COLUMNS;
}

static bool read_rows(Experts *state, Params *params, Tensor *out) {
    const Tensor left = next_tensor(params);
    state->choice = next_tensor(params);
    const Tensor bias = maybe_tensor(params);
    *out = next_tensor(params);
    if (params->bad || left.rank != 2 || out->rank != 2 || left.dtype != F32) return false;
    state->rows = left.dims[0];
    state->depth = state->whole = left.dims[1];
    state->width = out->dims[1];
    if (state->rows < 1 || state->depth < 1 || state->width < 1) return false;
    if (state->depth > 1 && left.strides[1] != (int64_t)sizeof(float)) return false;
    state->left = (const float *)left.data;
    state->left_row = left.strides[0] / (int64_t)sizeof(float);
    state->bias = (const float *)bias.data;
    state->out = (float *)out->data;
    return are_indices(&state->choice) && element_count(&state->choice) == state->rows &&
           holds(out, F32, state->rows * state->width) && are_apart(&state->choice, out) &&
           may_hold(&bias, F32, state->experts * state->width);
}

static void finish_preparing(Experts *state, Needs *needs) {
    const int64_t panels = CHUNK / state->depth / PANEL_COLUMNS;
    state->group = (panels < 1 ? 1 : panels) * PANEL_COLUMNS;
    reads_anywhere(needs, &state->left);
    writes_anywhere(needs, &state->out);
    needs->own = own_floats(state) * (int64_t)sizeof(float);
    const int64_t floats = state->rows * (state->whole + blocks_of(state));
    needs->shared = (2 * state->experts + 1 + 2 * state->rows) * (int64_t)sizeof(int64_t) +
                    floats * (int64_t)sizeof(float);
}

static void *prepare_floats(Params *params, Needs *needs) {
    Experts *state = calloc(1, sizeof(Experts));
    if (!state) return NULL;
    const Tensor weights = next_tensor(params);
    Tensor out;
    state->experts = weights.rank == 3 ? weights.dims[0] : 0;
    state->weights = (const float *)weights.data;
    if (params->bad || state->experts < 1 || !read_rows(state, params, &out) ||
        !holds(&weights, F32, state->experts * state->width * state->depth)) {
        release(state);
        return NULL;
    }
    finish_preparing(state, needs);
    return state;
}

// A part of a tensor without gaps, one of `count`.
static Tensor part_of(const Tensor *tensor, int64_t count, int64_t index) {
    Tensor part = *tensor;
    if (!part.data) return part;
    const int64_t size = element_count(tensor) / count;
    part.data += index * size * item_size(part.dtype);
    part.rank = 1;
    part.dims[0] = size;
    part.strides[0] = item_size(part.dtype);
    return part;
}

static bool divides(const Tensor *tensor, int64_t count) {
    return !tensor->data || (is_contiguous(tensor) && element_count(tensor) % count == 0);
}

static bool read_bits(Experts *state, const Tensor *packed, const Tensor *scale, Params *params) {
    const Tensor zero = maybe_tensor(params);
    const int64_t width = next_int(params), block = next_int(params), count = state->experts;
    if (params->bad || !divides(packed, count) || !divides(scale, count) || !divides(&zero, count))
        return false;
    state->bits = calloc((size_t)count, sizeof(PackedBits));
    state->offsets = calloc((size_t)count, sizeof(void *));
    if (!state->bits || !state->offsets) return false;
    for (int64_t e = 0; e < count; e++) {
        const Tensor numbers = part_of(packed, count, e), scales = part_of(scale, count, e);
        const Tensor points = part_of(&zero, count, e);
        PackedBits *bits = &state->bits[e];
        if (!ISA(lay_out_bits)(bits, &numbers, &scales, state->width, state->depth, width, block))
            return false;
        if (zero.data && !ISA(pack_zeros)(bits, &points, true, &state->offsets[e])) return false;
    }
    state->whole = state->bits->blocks * block;
    return true;
}

static void *prepare_bits(Params *params, Needs *needs) {
    Experts *state = calloc(1, sizeof(Experts));
    if (!state) return NULL;
    const Tensor packed = next_tensor(params), scale = next_tensor(params);
    Tensor out;
    state->experts = packed.rank == 4 ? packed.dims[0] : 0;
    if (params->bad || state->experts < 1 || !read_rows(state, params, &out) ||
        !read_bits(state, &packed, &scale, params)) {
        release(state);
        return NULL;
    }
    finish_preparing(state, needs);
    return state;
}

// -- running --------------------------------------------------------------------------------------

// Brings rows of the same expert together; whether all experts exist.  Choices are read once.
static bool sort_rows(Job *job) {
    const Experts *state = job->state;
    int64_t *const next =
        job->active;  // place of an expert's next row, until it is known who has any
    memset(job->begins, 0, (size_t)(state->experts + 1) * sizeof(int64_t));
    for (int64_t r = 0; r < state->rows; r++) {
        const int64_t e = job->chosen[r] = index_at(&state->choice, r);
        if (e < 0 || e >= state->experts) return false;
        job->begins[e + 1]++;
    }
    for (int64_t e = 0; e < state->experts; e++) {
        job->begins[e + 1] += job->begins[e];
        next[e] = job->begins[e];
    }
    for (int64_t r = 0; r < state->rows; r++) job->order[next[job->chosen[r]]++] = r;
    for (int64_t e = 0; e < state->experts; e++)
        if (job->begins[e + 1] > job->begins[e]) job->active[job->count++] = e;
    return true;
}

static void copy_row(void *context, int64_t place, int thread) {
    (void)thread;
    const Job *job = context;
    const Experts *state = job->state;
    float *const to = job->left + place * state->whole;
    memcpy(
        to, state->left + job->order[place] * state->left_row,
        (size_t)state->depth * sizeof(float));
    memset(to + state->depth, 0, (size_t)(state->whole - state->depth) * sizeof(float));
    if (!state->bits) return;
    const int64_t blocks = state->bits->blocks, block = state->bits->block;
    for (int64_t b = 0; b < blocks; b++) {
        float sum = 0;
        for (int64_t p = 0; p < block; p++) sum += to[b * block + p];
        job->sums[place * blocks + b] = sum;
    }
}

// Sixteen rows of a matrix as floats, [depth][PANEL_COLUMNS].
static const float *panel_of(const Experts *state, int64_t e, int64_t first, float *own) {
    if (!state->bits) {
        const int64_t rest = state->width - first;
        const float *from = state->weights + (e * state->width + first) * state->depth;
        ISA(pack_panels)(
            own, from, state->depth, 1, lesser(rest, PANEL_COLUMNS), state->depth, PANEL_COLUMNS);
        return own;
    }
    const PackedBits *bits = &state->bits[e];
    float *const to = own + (bits->words + bits->blocks) * PANEL_COLUMNS;
    const Turned turned = ISA(turn_bits)(bits, first, own);
    ISA(expand_bits)(bits, &turned, to);
    return to;
}

// A single row times sixteen rows of a matrix.
static void multiply_single(
    const Job *job, int64_t e, int64_t place, int64_t first, float *own, float *part) {
    const Experts *state = job->state;
    const float *left = job->left + place * state->whole;
    if (state->bits) {
        const Turned turned = ISA(turn_bits)(&state->bits[e], first, own);
        const float *sums = job->sums + place * state->bits->blocks;
        ISA(multiply_bits)(&state->bits[e], &turned, left, sums, part);
        return;
    }
    const float *from = state->weights + (e * state->width + first) * state->depth;
    for (int64_t c = 0; c < lesser(state->width - first, PANEL_COLUMNS); c++)
        part[c] = dot_of_lines(left, from + c * state->depth, state->depth);
}

// Writes rows of a part to where they belong.
static void put_rows(
    const Job *job, int64_t e, int64_t place, int64_t rows, int64_t first, const float *part) {
    const Experts *state = job->state;
    const int64_t columns = lesser(state->width - first, PANEL_COLUMNS);
    const float *bias = state->bias ? state->bias + e * state->width + first : NULL;
    for (int64_t r = 0; r < rows; r++) {
        float *const to = state->out + job->order[place + r] * state->width + first;
        const float *from = part + r * PANEL_COLUMNS;
        for (int64_t c = 0; c < columns; c++) to[c] = bias ? from[c] + bias[c] : from[c];
    }
}

static void multiply_panel(const Job *job, int64_t e, int64_t first, float *own) {
    const Experts *state = job->state;
    float *const part = own + own_floats(state) - FEW_ROWS * PANEL_COLUMNS;
    const int64_t begin = job->begins[e], end = job->begins[e + 1];
    const int64_t columns = lesser(state->width - first, PANEL_COLUMNS);
    if (end - begin == 1) {
        multiply_single(job, e, begin, first, own, part);
        put_rows(job, e, begin, 1, first, part);
        return;
    }
    const float *right = panel_of(state, e, first, own);
    for (int64_t place = begin; place < end; place += FEW_ROWS) {
        const int64_t rows = lesser(end - place, FEW_ROWS);
        const float *left = job->left + place * state->whole;
        const Place out = {part, PANEL_COLUMNS, 0, 0};
        if (rows == 1)
            ISA(multiply_row)(left, right, state->depth, part, columns);
        else
            ISA(multiply_few)(left, state->whole, right, state->depth, out, rows, columns);
        put_rows(job, e, place, rows, first, part);
    }
}

static void some_columns(void *context, int64_t chunk, int thread) {
    const Job *job = context;
    const Experts *state = job->state;
    const int64_t across = ceil_div(state->width, state->group);
    const int64_t e = job->active[chunk / across], first = chunk % across * state->group;
    const int64_t end = lesser(first + state->group, state->width);
    float *const own = (float *)job->run->own[thread];
    for (int64_t j = first; j < end; j += PANEL_COLUMNS) multiply_panel(job, e, j, own);
}

static Failure run_experts(const void *argument, const Run *run) {
    const Experts *state = argument;
    Job job = {.state = state, .run = run};
    job.begins = (int64_t *)run->shared;
    job.active = job.begins + state->experts + 1;
    job.order = job.active + state->experts;
    job.chosen = job.order + state->rows;
    job.left = (float *)(job.chosen + state->rows);
    job.sums = job.left + state->rows * state->whole;
    if (!sort_rows(&job)) return INDEX_OUTSIDE;
    share_chunks(run, state->rows, copy_row, &job);
    const int64_t across = ceil_div(state->width, state->group);
    share_chunks(run, job.count * across, some_columns, &job);
    return OK;
}

const Kernel ISA(EXPERTS)[] = {
    {"ExpertBits_f32", prepare_bits, run_experts, release},
    {"Experts_f32", prepare_floats, run_experts, release},
    {NULL, NULL, NULL, NULL},
};
