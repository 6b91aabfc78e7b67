// Matrix products of floats: out[b] = left[b] right[b], then an epilogue.
#include <stdlib.h>
#include <string.h>

#include "../support/fits.h"
#include "operands.h"
#include "product_groups.h"
#include "right_panels.h"

// PANELS_AT_ONCE: of the left matrix, that a thread packs, see sizes.h.  NARROW: columns.
enum { BLOCK_ROWS = BLOCK_TILES * TILE_ROWS, PANELS_AT_ONCE = 8, NARROW = 64 };

typedef struct {
    int64_t m, n, k;
    int64_t batch;
    int batch_rank;
    int64_t batch_dims[MAX_RANK];
    int64_t left_batch[MAX_RANK], right_batch[MAX_RANK], out_batch[MAX_RANK],
        residual_batch[MAX_RANK];
    const float *left;
    const void *right;
    DType right_type;  // F32, or of constants a half
    int64_t left_row, left_column, right_row, right_column, out_row;
    float *out;
    const float *packed;  // the right matrix, if it is constant and the same for the whole batch
    const uint16_t *halves;  // instead of `packed`, of few rows
    void *own;  // where either lies, unless it is stored so
    Epilogue epilogue;
    int64_t row_group, column_group;  // rows and columns of a chunk, when the batch is one product
    bool tall;  // all chunks use all columns, and each packs its own rows
    bool narrow;  // columns are few: rows are read where they lie
    bool packs_early;  // several chunks use the same columns, which are packed before any of them
} State;

// The operands of one product of a batch.
typedef struct {
    const float *left, *right;
    float *out;
    Epilogue epilogue;
} Product;

static Product product_of(const State *state, int64_t number) {
    Product product = {state->left, (const float *)state->right, state->out, state->epilogue};
    for (int axis = state->batch_rank - 1; axis >= 0; axis--) {
        const int64_t index = number % state->batch_dims[axis];
        number /= state->batch_dims[axis];
        product.left += index * state->left_batch[axis];
        product.right += index * state->right_batch[axis];
        product.out += index * state->out_batch[axis];
        if (product.epilogue.residual)
            product.epilogue.residual += index * state->residual_batch[axis];
    }
    return product;
}

// -- preparing ------------------------------------------------------------------------------------

static void read_batch(State *state, const Tensor *const operands[4]) {
    int64_t *strides[] = {
        state->left_batch, state->right_batch, state->out_batch, state->residual_batch};
    for (int axis = 0; axis < state->batch_rank; axis++) {
        state->batch *= state->batch_dims[axis] = operands[2]->dims[axis];
        for (int i = 0; i < 4; i++)
            strides[i][axis] = operands[i]->data ? stride_of(operands[i], axis) : 0;
    }
}

// All operands have the rank of `out`; batch dimensions of 1 are repeated.
static bool read_operands(State *state, Params *params, bool *constant) {
    Tensor left = next_tensor(params), right = next_tensor(params), out = next_tensor(params);
    Tensor bias = maybe_tensor(params), residual = maybe_tensor(params);
    ISA(next_activation)(params, &state->epilogue);
    const int rank = out.rank, row = rank - 2, column = rank - 1;
    if (params->bad || !factors_fit(&left, &right, &out)) return false;
    if (left.dtype != F32 || out.dtype != F32 || !is_right_type(&right)) return false;
    if (!may_hold(&bias, F32, out.dims[column])) return false;
    if (!residual_fits(&residual, &out)) return false;
    *state = (State){
        .m = out.dims[row],
        .n = out.dims[column],
        .k = left.dims[column],
        .batch = 1,
        .batch_rank = row,
        .left = (const float *)left.data,
        .right = right.data,
        .right_type = right.dtype,
        .out = (float *)out.data,
        .left_row = stride_of(&left, row),
        .left_column = stride_of(&left, column),
        .right_row = stride_of(&right, row),
        .right_column = stride_of(&right, column),
        .out_row = out.dims[row] == 1 ? out.dims[column] : stride_of(&out, row),
        .epilogue = state->epilogue,
    };
    if (!has_lines(&out) || (residual.data && !has_lines(&residual))) return false;
    read_batch(state, (const Tensor *const[]){&left, &right, &out, &residual});
    state->epilogue.column_bias = (const float *)bias.data;
    state->epilogue.residual = (const float *)residual.data;
    state->epilogue.residual_row = residual.data ? stride_of(&residual, row) : 0;
    *constant = right.constant && !is_batched(state->right_batch, row);
    if (right.packed) state->packed = (const float *)right.data;
    return right.dtype == F32 ? *constant || !right.packed : *constant && !right.packed;
}

// Whether rows are read where they lie, for few columns or a single one, which is not packed.
static bool reads_rows(const State *state) { return state->left_column == 1 || state->k == 1; }
static bool is_column(const State *state) { return state->n == 1 && state->narrow; }

// Whether rows are few enough to be read where they lie.
static bool is_few(const State *state) {
    return state->batch == 1 && state->m <= FEW_ROWS && reads_rows(state);
}

// Whether a single row, or two of a batch, meet each number of their right matrix where it lies.
static bool reads_lines(const State *state) {
    return state->m <= (state->batch > 1 ? 2 : 1) && reads_rows(state) && !state->packed &&
           !state->halves && state->right_column == 1;
}

// Floats of the left matrix that are packed before all else.
static int64_t early_rows(const State *state) {
    return state->tall || state->narrow ? 0 : padded(padded(state->m, TILE_ROWS) * state->k, 16);
}

static void release(void *argument) {
    State *state = argument;
    free(state->own);
    free(state);
}

// Packs the right matrix.  Halves that few rows meet stay halves: reading them takes the time.
static bool pack_constant(State *state) {
    const bool half = state->right_type != F32 && state->batch == 1 && state->m <= HALF_ROWS;
    const RightMatrix right = {state->right,        state->right_type, state->right_row,
                               state->right_column, state->k,          state->n};
    state->own = ISA(pack_right)(&right, half);
    if (half)
        state->halves = state->own;
    else
        state->packed = state->own;
    state->narrow = state->narrow && !half;
    return state->own != NULL;
}

static void *prepare(Params *params, Needs *needs) {
    State *state = calloc(1, sizeof(State));
    bool constant = false;
    if (!state || !read_operands(state, params, &constant) || state->m == 0 || state->n == 0 ||
        state->k == 0) {
        free(state);
        return NULL;
    }
    const int64_t most = state->batch == 1 ? NARROW : 2 * WHOLE_COLUMNS;
    state->narrow = state->n <= most && reads_rows(state);
    choose_groups(
        needs, state->m, state->n, state->k, is_few(state), &state->row_group,
        &state->column_group);
    if (!constant && reads_lines(state)) state->column_group = columns_of_lines(state->n);
    state->packs_early = !constant && state->row_group < state->m;
    state->tall = !state->narrow && state->column_group >= state->n && state->row_group < state->m;
    const int64_t right_floats = padded(state->n, PANEL_COLUMNS) * state->k;
    const int64_t left_floats = padded(state->m, TILE_ROWS) * state->k;
    const bool column = is_column(state) && state->right_type == F32;
    if (constant && !column && !state->packed && !pack_constant(state)) {
        release(state);
        return NULL;
    }
    if (state->batch > 1) {
        const int64_t block = lesser(right_floats, BLOCK_COLUMNS * state->k);
        needs->own = (left_floats + (constant && !column ? 0 : block)) * (int64_t)sizeof(float);
    } else {
        const int64_t early = state->packs_early ? right_floats : 0;
        needs->shared = (early_rows(state) + early) * (int64_t)sizeof(float);
        const int64_t late = constant || early ? 0 : state->column_group * state->k;
        needs->own = (state->tall ? BLOCK_ROWS * state->k : late) * (int64_t)sizeof(float);
    }
    if (is_column(state)) needs->own = padded(state->k, 16) * (int64_t)sizeof(float);
    reads_anywhere(needs, &state->left);
    reads_anywhere(needs, &state->right);
    reads_anywhere(needs, &state->epilogue.residual);
    writes_anywhere(needs, &state->out);
    return state;
}

// -- many products: each thread makes whole ones --------------------------------------------------

typedef struct {
    const State *state;
    const Run *run;
} Job;

// Some rows by the only column, whose numbers `scratch` has room for.
static void multiply_rows(
    const State *state, const Product *product, int64_t first, int64_t rows, float *scratch) {
    const float *right = state->packed ? state->packed : product->right;
    const int64_t step = state->packed ? PANEL_COLUMNS : state->right_row;
    if (step != 1 && state->k > 1) {
        for (int64_t p = 0; p < state->k; p++) scratch[p] = right[p * step];
        right = scratch;
    }
    const Place out = {product->out + first * state->out_row, state->out_row, first, 0};
    ISA(multiply_column)(
        product->left + first * state->left_row, state->left_row, right, state->k, out, rows);
    ISA(finish)(&product->epilogue, out, rows, 1);
}

static void batch_chunk(void *context, int64_t chunk, int thread) {
    const Job *job = context;
    const State *state = job->state;
    const Product product = product_of(state, chunk);
    float *left = (float *)job->run->own[thread];
    float *own_right = left + padded(state->m, TILE_ROWS) * state->k;
    if (is_column(state)) {
        multiply_rows(state, &product, 0, state->m, left);
        return;
    }
    if (reads_lines(state)) {
        const Place out = {product.out, state->out_row, 0, 0};
        for (int64_t i = 0; i < state->m; i++)
            ISA(multiply_unpacked_row)(
                product.left + i * state->left_row, product.right, state->right_row, state->k,
                out.data + i * out.row, state->n);
        ISA(finish)(&product.epilogue, out, state->m, state->n);
        return;
    }
    if (!state->narrow)
        ISA(pack_panels)(
            left, product.left, state->left_row, state->left_column, state->m, state->k, TILE_ROWS);
    for (int64_t j = 0; j < state->n; j += BLOCK_COLUMNS) {
        const int64_t width = state->n - j < BLOCK_COLUMNS ? state->n - j : BLOCK_COLUMNS;
        const float *right = state->packed + j * state->k;
        if (!state->packed) {
            ISA(pack_panels)(
                own_right, product.right + j * state->right_column, state->right_column,
                state->right_row, width, state->k, PANEL_COLUMNS);
            right = own_right;
        }
        const Place out = {product.out + j, state->out_row, 0, j};
        if (state->narrow)
            ISA(multiply_narrow)(
                product.left, state->left_row, right, state->k, out, state->m, width,
                &product.epilogue);
        else
            ISA(multiply_panels)(left, right, state->k, out, state->m, width, &product.epilogue);
    }
}

// -- one product: threads share it ----------------------------------------------------------------

static int64_t left_packs(const State *state) {
    return state->tall || state->narrow ? 0 : ceil_div(state->m, PANELS_AT_ONCE * TILE_ROWS);
}

static float *early_columns(const Job *job) {
    return (float *)job->run->shared + early_rows(job->state);
}

static void pack_left(const State *state, int64_t first, int64_t rows, float *to) {
    ISA(pack_panels)(
        to, state->left + first * state->left_row, state->left_row, state->left_column, rows,
        state->k, TILE_ROWS);
}

static void pack_right(const State *state, int64_t first, int64_t columns, float *to) {
    ISA(pack_panels)(
        to, (const float *)state->right + first * state->right_column, state->right_column,
        state->right_row, columns, state->k, PANEL_COLUMNS);
}

// Panels of rows and, behind them, those of columns.
static void pack_some(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Job *job = context;
    const State *state = job->state;
    if (chunk >= left_packs(state)) {
        const int64_t j = (chunk - left_packs(state)) * BLOCK_COLUMNS;
        pack_right(
            state, j, lesser(state->n - j, BLOCK_COLUMNS), early_columns(job) + j * state->k);
        return;
    }
    const int64_t first = chunk * PANELS_AT_ONCE * TILE_ROWS;
    const int64_t rows = lesser(state->m - first, PANELS_AT_ONCE * TILE_ROWS);
    pack_left(state, first, rows, (float *)job->run->shared + first * state->k);
}

// Few rows by columns that stayed halves.
static void multiply_halves(
    const State *state, const float *left, int64_t step, Place out, int64_t columns) {
    ISA(multiply_half_panels)(
        left, step, state->halves + out.first_column * state->k, state->right_type == BF16,
        state->k, out, (int)state->m, columns, &state->epilogue);
}

// A few rows need no packing, and their chunks share nothing.
static void few_chunk(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Job *job = context;
    const State *state = job->state;
    const int64_t j = chunk * state->column_group;
    const int64_t width = state->n - j < state->column_group ? state->n - j : state->column_group;
    const Place out = {state->out + j, state->out_row, 0, j};
    if (state->halves) {
        multiply_halves(state, state->left, 1, out, width);
        return;
    }
    const float *right = state->packed + j * state->k;
    if (reads_lines(state))
        ISA(multiply_unpacked_row)(
            state->left, (const float *)state->right + j, state->right_row, state->k, out.data,
            width);
    else if (state->m == 1)
        ISA(multiply_row)(state->left, right, state->k, out.data, width);
    else
        ISA(multiply_few)(state->left, state->left_row, right, state->k, out, state->m, width);
    ISA(finish)(&state->epilogue, out, state->m, width);
}

static void single_chunk(void *context, int64_t chunk, int thread) {
    const Job *job = context;
    const State *state = job->state;
    const int64_t down = ceil_div(state->m, state->row_group);
    const int64_t j = chunk / down * state->column_group, i = chunk % down * state->row_group;
    const int64_t width = state->n - j < state->column_group ? state->n - j : state->column_group;
    const int64_t height = state->m - i < state->row_group ? state->m - i : state->row_group;
    const Place out = {state->out + i * state->out_row + j, state->out_row, i, j};
    const float *left = (float *)job->run->shared + i * state->k;
    if (state->halves) {
        multiply_halves(state, left, TILE_ROWS, out, width);
        return;
    }
    const float *right = state->packed + j * state->k;
    if (state->packs_early) {
        right = early_columns(job) + j * state->k;
    } else if (!state->packed) {
        right = (const float *)job->run->own[thread];
        pack_right(state, j, width, (float *)job->run->own[thread]);
    }
    if (state->narrow)
        ISA(multiply_narrow)(
            state->left + i * state->left_row, state->left_row, right, state->k, out, height, width,
            &state->epilogue);
    else
        ISA(multiply_panels)(left, right, state->k, out, height, width, &state->epilogue);
}

// Rows that are used once do not leave the second cache between packing and use.
static void tall_chunk(void *context, int64_t chunk, int thread) {
    const Job *job = context;
    const State *state = job->state;
    float *left = (float *)job->run->own[thread];
    const float *right = state->packed ? state->packed : early_columns(job);
    const int64_t first = chunk * state->row_group,
                  end = lesser(first + state->row_group, state->m);
    for (int64_t i = first; i < end; i += BLOCK_ROWS) {
        const int64_t height = end - i < BLOCK_ROWS ? end - i : BLOCK_ROWS;
        const Place out = {state->out + i * state->out_row, state->out_row, i, 0};
        pack_left(state, i, height, left);
        ISA(multiply_panels)(left, right, state->k, out, height, state->n, &state->epilogue);
    }
}

static void column_chunk(void *context, int64_t chunk, int thread) {
    const Job *job = context;
    const State *state = job->state;
    const Product product = product_of(state, 0);
    const int64_t first = chunk * state->row_group;
    multiply_rows(
        state, &product, first, lesser(state->m - first, state->row_group),
        (float *)job->run->own[thread]);
}

static Failure run_product(const void *argument, const Run *run) {
    const State *state = argument;
    Job job = {state, run};
    if (state->batch > 1) {
        const bool small = state->batch * state->m * state->n * state->k < 1 << 17;
        pool_run(small ? 1 : run->threads, state->batch, batch_chunk, &job);
        return OK;
    }
    if (is_column(state)) {
        share_chunks(run, ceil_div(state->m, state->row_group), column_chunk, &job);
        return OK;
    }
    const bool lies = state->packed || (state->halves && state->m == 1) || reads_lines(state);
    if (is_few(state) && lies) {
        share_chunks(run, ceil_div(state->n, state->column_group), few_chunk, &job);
        return OK;
    }
    const int64_t columns = ceil_div(state->n, BLOCK_COLUMNS);
    share_chunks(run, left_packs(state) + (state->packs_early ? columns : 0), pack_some, &job);
    const int64_t all = ceil_div(state->m, state->row_group) *
                        ceil_div(state->n, state->column_group);
    share_chunks(run, all, state->tall ? tall_chunk : single_chunk, &job);
    return OK;
}

const Kernel ISA(PRODUCTS)[] = {
    {"Product_f32", prepare, run_product, release},
    {NULL, NULL, NULL, NULL},
};
