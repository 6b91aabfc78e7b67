// Products of one matrix, turned, with one or two others: out[i] = left^T right[i].  These are gradients of
// weights that stand side by side, as those of a recurrent layer.  The left matrix is larger than a cache: a
// thread packs a part of it once for both, and uses it at once.
#include <stdlib.h>

#include "../support/chunks.h"
#include "gemm.h"

enum {
    MOST = 2,  // right matrices
    // Rows of results that a thread makes at once, and what they are a multiple of: panels are packed so.
    GROUP = BLOCK_TILES * TILE_ROWS,
    UNIT = 4 * TILE_ROWS,
    FEW_CHUNKS = 8,
    LINE = 16,  // floats of a line of a cache
};

typedef struct {
    const float *right;  // [k][n]
    float *out;  // [m][n]
    int64_t n, right_row, out_row;
    int64_t place;  // of its panels, in floats
} Part;

typedef struct {
    const float *left;  // [k][m]
    int64_t k, m, left_row;
    int64_t depth, slices;  // of k: what is packed of the left matrix at once
    int64_t group;  // rows of a chunk
    int64_t count;
    Part parts[MOST];
} State;

typedef struct {
    const State *state;
    const Run *run;
} Job;

// -- preparing ------------------------------------------------------------------------------------

// Whether numbers of a row lie side by side, and there are some.
static bool has_lines(const Tensor *matrix) {
    return matrix->data && matrix->dtype == F32 && matrix->rank == 2 && element_count(matrix) > 0 &&
           (matrix->dims[1] == 1 || matrix->strides[1] == (int64_t)sizeof(float));
}

static int64_t row_of(const Tensor *matrix) {
    return matrix->dims[0] == 1 ? 0 : matrix->strides[0] / (int64_t)sizeof(float);
}

// The left matrix, then right ones, each with its result; the second one may be absent.  The number of
// floats of all panels; -1 if operands do not fit.
static int64_t read_operands(State *state, Params *params) {
    const Tensor left = next_tensor(params);
    if (!has_lines(&left)) return -1;
    state->left = (const float *)left.data;
    state->k = left.dims[0];
    state->m = left.dims[1];
    state->left_row = row_of(&left);
    int64_t floats = 0;
    for (int i = 0; i < MOST; i++) {
        const Tensor right = maybe_tensor(params), out = maybe_tensor(params);
        if (params->bad) return -1;
        if (i > 0 && !right.data) continue;
        if (!has_lines(&right) || !has_lines(&out) || right.dims[0] != state->k ||
            out.dims[0] != state->m || out.dims[1] != right.dims[1])
            return -1;
        state->parts[state->count++] = (Part){(const float *)right.data,
                                              (float *)out.data,
                                              right.dims[1],
                                              row_of(&right),
                                              row_of(&out),
                                              floats};
        const int64_t size = size_of(padded(right.dims[1], TILE_COLUMNS), state->k, 1);
        if (size < 0 || size > MOST_BYTES) return -1;
        floats += size;
    }
    return floats;
}

static void *prepare(Params *params, Needs *needs) {
    State *state = calloc(1, sizeof(State));
    const int64_t floats = state ? read_operands(state, params) : -1;
    if (floats < 0) {
        free(state);
        return NULL;
    }
    state->depth = ceil_div(state->k, greater((state->k + DEPTH / 2) / DEPTH, 1));
    state->slices = ceil_div(state->k, state->depth);
    double columns = 0;
    for (int64_t i = 0; i < state->count; i++) columns += (double)state->parts[i].n;
    const double products = (double)(state->m * state->k) * columns;
    const int64_t chunks = chunks_for(needs, products, FEW_CHUNKS);
    state->group = lesser(padded(ceil_div(state->m, chunks), UNIT), GROUP);
    needs->shared = floats * (int64_t)sizeof(float);
    needs->own = state->group * state->depth * (int64_t)sizeof(float);
    return state;
}

// -- running --------------------------------------------------------------------------------------

static int64_t depth_of(const State *state, int64_t slice) {
    return lesser(state->k - slice * state->depth, state->depth);
}

static float *panels_of(const Job *job, const Part *part, int64_t slice) {
    const int64_t line = padded(part->n, TILE_COLUMNS);
    return (float *)job->run->shared + part->place + slice * job->state->depth * line;
}

static void pack_slice(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Job *job = context;
    const State *state = job->state;
    const Part *part = &state->parts[chunk / state->slices];
    const int64_t slice = chunk % state->slices;
    const float *from = part->right + slice * state->depth * part->right_row;
    ISA(pack_panels)(
        panels_of(job, part, slice), from, 1, part->right_row, part->n, depth_of(state, slice),
        TILE_COLUMNS);
}

// All rows of a chunk by a panel, and a look at the next one, which is far away.
static void multiply_panel(
    const float *left, const float *right, int64_t depth, Place out, int64_t rows, int columns,
    bool add) {
    const int64_t panel = depth * TILE_COLUMNS;
    const int64_t share = padded(ceil_div(panel, ceil_div(rows, TILE_ROWS)), LINE);
    const float *next = right + panel;
    for (int64_t i = 0; i < rows; i += TILE_ROWS, next += share) {
        for (int64_t p = 0; p < share; p += LINE) __builtin_prefetch(next + p, 0, 2);
        const Place tile = {out.data + i * out.row, out.row, 0, 0};
        ISA(multiply_tile)(
            left + i * depth, right, depth, tile, (int)lesser(rows - i, TILE_ROWS), columns, add,
            NO_ENDING);
    }
}

static void multiply_rows(void *context, int64_t chunk, int thread) {
    const Job *job = context;
    const State *state = job->state;
    float *left = (float *)job->run->own[thread];
    const int64_t first = chunk * state->group, rows = lesser(state->m - first, state->group);
    for (int64_t slice = 0; slice < state->slices && !pool_is_stopped(); slice++) {
        const int64_t depth = depth_of(state, slice);
        const float *from = state->left + slice * state->depth * state->left_row + first;
        ISA(pack_panels)(left, from, 1, state->left_row, rows, depth, TILE_ROWS);
        for (const Part *part = state->parts; part < state->parts + state->count; part++) {
            const float *right = panels_of(job, part, slice);
            for (int64_t j = 0; j < part->n; j += TILE_COLUMNS) {
                const Place out = {part->out + first * part->out_row + j, part->out_row, 0, 0};
                multiply_panel(
                    left, right + j * depth, depth, out, rows,
                    (int)lesser(part->n - j, TILE_COLUMNS), slice > 0);
            }
        }
    }
}

static Failure run_products(const void *argument, const Run *run) {
    const State *state = argument;
    Job job = {state, run};
    share_chunks(run, state->count * state->slices, pack_slice, &job);
    share_chunks(run, ceil_div(state->m, state->group), multiply_rows, &job);
    return OK;
}

const Kernel ISA(COMMON_LEFT)[] = {
    {"CommonLeft_f32", prepare, run_products, NULL},
    {NULL, NULL, NULL, NULL},
};
