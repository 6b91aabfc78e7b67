// Products of matrices of float64, of any strides: left rows by packed panels of right columns.
#include <stdlib.h>

#include "../support/fits.h"
#include "../../kernel.h"
#include "../support/simd.h"
#include "../support/sizes.h"

typedef double Doubles __attribute__((vector_size(VECTOR_BYTES)));
typedef double LooseDoubles __attribute__((vector_size(VECTOR_BYTES), aligned(8), may_alias));

// Eight sums are under way: two products begin in each cycle, and each takes four.  A slice of a panel
// is 8 KiB with AVX2, that of the rows of a chunk 64 KiB.
enum { WIDE = VECTOR_BYTES / 8, COLUMNS = 2 * WIDE, ROWS = 4, CHUNK_ROWS = 64, SLICE = 128 };

typedef struct {
    const char *left, *right;
    char *out;
    int64_t m, n, k;
    int64_t left_row, left_along, right_along, right_column, out_row, out_column;
    int rank;
    int64_t dims[MAX_RANK], left_batch[MAX_RANK], right_batch[MAX_RANK], out_batch[MAX_RANK];
    int64_t batch, row_chunks, panels;
} State;

typedef struct {
    const State *state;
    const Run *run;
} Job;

static void *prepare(Params *params, Needs *needs) {
    const Tensor left = next_tensor(params), right = next_tensor(params);
    const Tensor out = next_tensor(params);
    State *state = calloc(1, sizeof(State));
    if (!state) return NULL;
    if (params->bad || !factors_fit(&left, &right, &out) || left.dtype != F64 ||
        right.dtype != F64 || out.dtype != F64) {
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
    state->panels = ceil_div(state->n, COLUMNS);
    needs->own = (state->k + 1) * COLUMNS * (int64_t)sizeof(double);
    return state;
}

static void pack_panel(const State *state, const char *right, int64_t columns, double *panel) {
    for (int64_t p = 0; p < state->k; p++, panel += COLUMNS)
        for (int64_t j = 0; j < COLUMNS; j++)
            panel[j] = j < columns ? *(const double *)(right + p * state->right_along +
                                                       j * state->right_column)
                                   : 0;
}

// `rows` rows of a panel's columns; rows that are not there are the last one again.  Sums of slices
// are added up: fewer roundings follow each other.
static void multiply_rows(
    const State *state, const char *left, const double *panel, int64_t rows, int64_t columns,
    char *out) {
    Doubles totals[ROWS][2] = {{{0}}};
    const char *lines[ROWS];
    for (int64_t i = 0; i < ROWS; i++)
        lines[i] = left + (i < rows ? i : rows - 1) * state->left_row;
    for (int64_t start = 0; start < state->k; start += SLICE) {
        const int64_t end = start + SLICE < state->k ? start + SLICE : state->k;
        Doubles sums[ROWS][2] = {{{0}}};
        for (int64_t p = start; p < end; p++, panel += COLUMNS) {
            const Doubles first = *(const LooseDoubles *)panel;
            const Doubles second = *(const LooseDoubles *)(panel + WIDE);
            UNROLLED_FOR (int i = 0; i < ROWS; i++) {
                const double value = *(const double *)(lines[i] + p * state->left_along);
                sums[i][0] += first * value;
                sums[i][1] += second * value;
            }
        }
        UNROLLED_FOR (int i = 0; i < ROWS; i++) {
            totals[i][0] += sums[i][0];
            totals[i][1] += sums[i][1];
        }
    }
    for (int64_t i = 0; i < rows; i++) {
        double line[COLUMNS];
        memcpy(line, totals[i], sizeof(line));
        for (int64_t j = 0; j < columns; j++)
            *(double *)(out + i * state->out_row + j * state->out_column) = line[j];
    }
}

static void product_chunk(void *context, int64_t chunk, int thread) {
    const Job *job = context;
    const State *state = job->state;
    const int64_t panel = chunk % state->panels, rest = chunk / state->panels;
    const int64_t first = rest % state->row_chunks * CHUNK_ROWS, column = panel * COLUMNS;
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
    const int64_t columns = state->n - column < COLUMNS ? state->n - column : COLUMNS;
    const int64_t rows = state->m - first < CHUNK_ROWS ? state->m - first : CHUNK_ROWS;
    double *packed = (double *)(void *)job->run->own[thread];
    pack_panel(state, right, columns, packed);
    for (int64_t i = 0; i < rows && !pool_is_stopped(); i += ROWS)
        multiply_rows(
            state, left + i * state->left_row, packed, rows - i < ROWS ? rows - i : ROWS, columns,
            out + i * state->out_row);
}

static Failure run_products(const void *argument, const Run *run) {
    const State *state = argument;
    Job job = {state, run};
    share_chunks(run, state->batch * state->row_chunks * state->panels, product_chunk, &job);
    return OK;
}

const Kernel ISA(DOUBLE_PRODUCTS)[] = {
    {"Product_f64", prepare, run_products, NULL},
    {NULL, NULL, NULL, NULL},
};
