// Products of matrices of float64 and of integers, of any strides: left rows by packed panels of right
// columns.  Those of integers wrap around.
#include <stdlib.h>

#include "../support/fits.h"
#include "../../kernel.h"
#include "../support/simd.h"
#include "../support/sizes.h"

// Eight sums are under way: two products begin in each cycle, and each takes four.  A slice of a panel
// is 8 KiB with AVX2, that of the rows of a chunk 64 KiB.
enum { PANEL_BYTES = 2 * VECTOR_BYTES, ROWS = 4, CHUNK_ROWS = 64, SLICE = 128 };

typedef struct State State;

typedef void (*PackFn)(const State *state, const char *right, int64_t columns, char *panel);
typedef void (*MultiplyFn)(
    const State *state, const char *left, const char *panel, int64_t rows, int64_t columns,
    char *out);

struct State {
    PackFn pack;
    MultiplyFn multiply;
    int64_t size, columns;  // bytes of an element, and how many a line of a panel has
    const char *left, *right;
    char *out;
    int64_t m, n, k;
    int64_t left_row, left_along, right_along, right_column, out_row, out_column;
    int rank;
    int64_t dims[MAX_RANK], left_batch[MAX_RANK], right_batch[MAX_RANK], out_batch[MAX_RANK];
    int64_t batch, row_chunks, panels;
};

typedef struct {
    const State *state;
    const Run *run;
} Job;

#define TYPE double
#include "plain_product.h"
#define TYPE uint32_t
#include "plain_product.h"
#define TYPE uint64_t
#include "plain_product.h"

static void choose_loops(State *state, DType dtype) {
    if (dtype == F64) {
        state->pack = pack_panel_double;
        state->multiply = multiply_rows_double;
    } else if (item_size(dtype) == 4) {
        state->pack = pack_panel_uint32_t;
        state->multiply = multiply_rows_uint32_t;
    } else {
        state->pack = pack_panel_uint64_t;
        state->multiply = multiply_rows_uint64_t;
    }
    state->size = item_size(dtype);
    state->columns = PANEL_BYTES / state->size;
}

static bool is_known(DType dtype) {
    return dtype == F64 || dtype == I32 || dtype == U32 || dtype == I64 || dtype == U64;
}

static void say_needs(State *state, Needs *needs) {
    needs->own = (state->k + 1) * PANEL_BYTES;
    reads_anywhere(needs, &state->left);
    reads_anywhere(needs, &state->right);
    writes_anywhere(needs, &state->out);
}

static void *prepare(Params *params, Needs *needs) {
    const Tensor left = next_tensor(params), right = next_tensor(params);
    const Tensor out = next_tensor(params);
    State *state = calloc(1, sizeof(State));
    if (!state) return NULL;
    if (params->bad || !factors_fit(&left, &right, &out) || !is_known(out.dtype) ||
        left.dtype != out.dtype || right.dtype != out.dtype) {
        free(state);
        return NULL;
    }
    const int row = out.rank - 2, column = out.rank - 1;
    *state = (State){
        .left = left.data,
        .right = right.data,
        .out = out.data,
        .m = out.dims[row],
        .n = out.dims[column],
        .k = left.dims[column],
        .left_row = left.strides[row],
        .left_along = left.strides[column],
        .right_along = right.strides[row],
        .right_column = right.strides[column],
        .out_row = out.strides[row],
        .out_column = out.strides[column],
        .rank = row,
        .batch = 1,
    };
    for (int axis = 0; axis < row; axis++) {
        state->batch *= state->dims[axis] = out.dims[axis];
        state->out_batch[axis] = out.strides[axis];
        state->left_batch[axis] = left.dims[axis] == 1 ? 0 : left.strides[axis];
        state->right_batch[axis] = right.dims[axis] == 1 ? 0 : right.strides[axis];
    }
    state->row_chunks = ceil_div(state->m, CHUNK_ROWS);
    choose_loops(state, out.dtype);
    state->panels = ceil_div(state->n, state->columns);
    say_needs(state, needs);
    return state;
}

static void product_chunk(void *context, int64_t chunk, int thread) {
    const Job *job = context;
    const State *state = job->state;
    const int64_t panel = chunk % state->panels, rest = chunk / state->panels;
    const int64_t first = rest % state->row_chunks * CHUNK_ROWS, column = panel * state->columns;
    const char *left = state->left + first * state->left_row;
    const char *right = state->right + column * state->right_column;
    char *out = state->out + first * state->out_row + column * state->out_column;
    int64_t number = rest / state->row_chunks;
    for (int axis = state->rank - 1; axis >= 0; axis--) {
        const int64_t index = number % state->dims[axis];
        number /= state->dims[axis];
        left += index * state->left_batch[axis];
        right += index * state->right_batch[axis];
        out += index * state->out_batch[axis];
    }
    const int64_t columns = lesser(state->n - column, state->columns);
    const int64_t rows = state->m - first < CHUNK_ROWS ? state->m - first : CHUNK_ROWS;
    char *packed = job->run->own[thread];
    state->pack(state, right, columns, packed);
    for (int64_t i = 0; i < rows && !pool_is_stopped(); i += ROWS)
        state->multiply(
            state, left + i * state->left_row, packed, rows - i < ROWS ? rows - i : ROWS, columns,
            out + i * state->out_row);
}

static Failure run_products(const void *argument, const Run *run) {
    const State *state = argument;
    Job job = {state, run};
    share_chunks(run, state->batch * state->row_chunks * state->panels, product_chunk, &job);
    return OK;
}

const Kernel ISA(PLAIN_PRODUCTS)[] = {
    {"Product_plain", prepare, run_products, NULL},
    {NULL, NULL, NULL, NULL},
};
