// The gradient of attention.  With the softmax P of the scores, which is computed again, the
// gradient G of the result O, and S the scores before the softmax:
//
//     dV = P^T G        dP = G V^T        dS = P (dP - rowsum(G O))        dQ = dS K, dK = dS^T Q
//
// Each thread does all query heads of a key head, in blocks of rows.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../matmul/gemm.h"
#include "../norm/row_sums.h"
#include "../support/math.h"
#include "heads.h"

// Scores of the rows that are done at once, half of the second cache of Zen 3 (256 KiB); however long
// rows are, there are enough of them for the products with packed operands to be fast.
enum { SCORES = 1 << 16, FEWEST_ROWS = 32 };

typedef struct {
    HeadSizes sizes;
    Heads q, k, v, given, out, dq, dk, dv, bias;
    float scale;
    int64_t block;  // rows that are done at once
    int64_t left_floats, right_floats;
} State;

typedef struct {
    const State *state;
    const Run *run;
} Job;

// A matrix somewhere in memory.
typedef struct {
    float *data;
    int64_t row, column;
} Matrix;

static Matrix turned(Matrix matrix) { return (Matrix){matrix.data, matrix.column, matrix.row}; }

static Matrix matrix_of(const Heads *heads, int64_t image, int64_t head, int64_t row) {
    const int64_t *s = heads->strides;
    return (Matrix){(float *)heads->data + image * s[0] + head * s[1] + row * s[2], s[2], s[3]};
}

// -- preparing ------------------------------------------------------------------------------------

// Whether operands, in their order, have the sizes of `state`.
static bool operands_fit(const State *state, const Tensor *tensors) {
    const HeadSizes *sizes = &state->sizes;
    const int64_t batch = sizes->batch, heads = sizes->heads * sizes->group, rows = sizes->rows;
    bool fits = !tensors[8].data || are_heads(&tensors[8], batch, heads, rows, sizes->keys);
    for (int i = 0; i < 9; i++) fits = fits && tensors[i].dtype == F32;
    fits = fits && have_sizes(tensors, sizes) && have_sizes(tensors + 5, sizes);
    for (int i = 3; i < 5; i++)
        fits = fits && are_heads(&tensors[i], batch, heads, rows, sizes->width);
    for (int i = 0; i < 3; i++) fits = fits && element_count(&tensors[i]) > 0;
    // Rows of results are made as wholes.
    for (int i = 5; i < 8; i++)
        fits = fits && (tensors[i].dims[3] == 1 || tensors[i].strides[3] == (int64_t)sizeof(float));
    return fits;
}

static bool read_state(State *state, Params *params) {
    Tensor tensors[9];
    Heads *read[] = {&state->q,  &state->k,  &state->v,  &state->given, &state->out,
                     &state->dq, &state->dk, &state->dv, &state->bias};
    for (int i = 0; i < 9; i++) *read[i] = next_heads(params, &tensors[i]);
    state->scale = (float)next_float(params);
    state->sizes = head_sizes(tensors, params);
    return !params->bad && operands_fit(state, tensors);
}

static void *prepare(Params *params, Needs *needs) {
    State *state = calloc(1, sizeof(State));
    if (!state) return NULL;
    if (!read_state(state, params)) {
        free(state);
        return NULL;
    }
    state->block = greater(FEWEST_ROWS, SCORES / greater(state->sizes.keys, 1));
    state->block = lesser(state->block, state->sizes.rows);
    const int64_t r = padded(state->block, TILE_ROWS), t = padded(state->sizes.keys, TILE_ROWS);
    const int64_t inner = greater(state->sizes.depth, state->sizes.width);
    state->left_floats =
        padded(greater(r * greater(inner, state->sizes.keys), t * state->block), 16);
    state->right_floats = padded(
        greater(
            padded(state->sizes.keys, TILE_COLUMNS) * inner,
            padded(inner, TILE_COLUMNS) * greater(state->sizes.keys, state->block)),
        16);
    const int64_t scores = padded(state->block * state->sizes.keys, 16);
    needs->own = (state->left_floats + state->right_floats + 2 * scores) * (int64_t)sizeof(float);
    return state;
}

// -- running --------------------------------------------------------------------------------------

// out[m][n] = (or, if `add`, +=) left[m][k] right[k][n]; rows of `out` are contiguous.
static void multiply(
    const State *state, float *own, Matrix left, Matrix right, Matrix out, int64_t m, int64_t n,
    int64_t k, bool add) {
    float *lefts = own, *rights = own + state->left_floats;
    ISA(pack_panels)(lefts, left.data, left.row, left.column, m, k, TILE_ROWS);
    ISA(pack_panels)(rights, right.data, right.column, right.row, n, k, TILE_COLUMNS);
    for (int64_t done = 0; done < k; done += DEPTH) {
        const int64_t depth = k - done < DEPTH ? k - done : DEPTH;
        for (int64_t j = 0; j < n; j += TILE_COLUMNS) {
            const int columns = n - j < TILE_COLUMNS ? (int)(n - j) : TILE_COLUMNS;
            for (int64_t i = 0; i < m; i += TILE_ROWS) {
                const int rows = m - i < TILE_ROWS ? (int)(m - i) : TILE_ROWS;
                const Place place = {out.data + i * out.row + j, out.row, i, j};
                ISA(multiply_tile)(
                    lefts + i * k + done * TILE_ROWS, rights + j * k + done * TILE_COLUMNS, depth,
                    place, rows, columns, add || done > 0, NO_ENDING);
            }
        }
    }
}

// The softmax of one row of scaled scores with their bias; rows that see no key are zero.
static void weigh(float *x, int64_t n, float scale, const float *bias, int64_t step) {
    if (bias) {
        for (int64_t i = 0; i < n; i++) x[i] = x[i] * scale + bias[i * step];
    } else {
        for (int64_t i = 0; i < n; i++) x[i] *= scale;
    }
    const float peak = largest(x, n);
    if (peak == -INFINITY) {
        memset(x, 0, (size_t)n * sizeof(float));
        return;
    }
    for (int64_t i = 0; i < n; i++) x[i] = fast_exp(x[i] - peak);
    const float factor = 1.0f / sum(x, n);
    for (int64_t i = 0; i < n; i++) x[i] *= factor;
}

static float dot(const float *a, int64_t a_step, const float *b, int64_t b_step, int64_t n) {
    Floats totals = {0};
    float total = 0;
    int64_t i = 0;
    for (; a_step == 1 && b_step == 1 && i + LANES <= n; i += LANES)
        totals += load(a + i) * load(b + i);
    for (; i < n; i++) total += a[i * a_step] * b[i * b_step];
    return sum_of(totals) + total;
}

// Rows first .. first + rows - 1 of a query head.
static void some_rows(
    const State *state, float *own, int64_t image, int64_t kv_head, int64_t head, int64_t first,
    bool add) {
    const int64_t keys = state->sizes.keys, depth = state->sizes.depth, width = state->sizes.width;
    const int64_t rows = lesser(state->sizes.rows - first, state->block);
    const Matrix q = matrix_of(&state->q, image, head, first);
    const Matrix given = matrix_of(&state->given, image, head, first);
    const Matrix result = matrix_of(&state->out, image, head, first);
    const Matrix k = matrix_of(&state->k, image, kv_head, 0);
    const Matrix v = matrix_of(&state->v, image, kv_head, 0);
    float *memory = own + state->left_floats + state->right_floats;
    const Matrix p = {memory, keys, 1};
    const Matrix ds = {memory + padded(state->block * keys, 16), keys, 1};
    multiply(state, own, q, turned(k), p, rows, keys, depth, false);
    for (int64_t i = 0; i < rows; i++) {
        const Matrix bias = matrix_of(&state->bias, image, head, first + i);
        weigh(
            p.data + i * keys, keys, state->scale, state->bias.data ? bias.data : NULL,
            bias.column);
    }
    multiply(
        state, own, turned(p), given, matrix_of(&state->dv, image, kv_head, 0), keys, width, rows,
        add);
    multiply(state, own, given, turned(v), ds, rows, keys, width, false);
    for (int64_t i = 0; i < rows; i++) {
        const float shared =
            dot(given.data + i * given.row, given.column, result.data + i * result.row,
                result.column, width);
        const float *weights = p.data + i * keys;
        float *slopes = ds.data + i * keys;
        for (int64_t j = 0; j < keys; j++)
            slopes[j] = weights[j] * (slopes[j] - shared) * state->scale;
    }
    multiply(
        state, own, ds, k, matrix_of(&state->dq, image, head, first), rows, depth, keys, false);
    multiply(
        state, own, turned(ds), q, matrix_of(&state->dk, image, kv_head, 0), keys, depth, rows,
        add);
}

static void one_head(void *context, int64_t chunk, int thread) {
    const Job *job = context;
    const State *state = job->state;
    const int64_t image = chunk / state->sizes.heads, kv_head = chunk % state->sizes.heads;
    float *own = (float *)job->run->own[thread];
    bool add = false;
    for (int64_t member = 0; member < state->sizes.group; member++)
        for (int64_t first = 0; first < state->sizes.rows; first += state->block) {
            if (pool_is_stopped()) return;
            const int64_t head = kv_head * state->sizes.group + member;
            some_rows(state, own, image, kv_head, head, first, add);
            add = true;
        }
}

static Failure run_gradient(const void *argument, const Run *run) {
    const State *state = argument;
    Job job = {state, run};
    share_chunks(run, state->sizes.batch * state->sizes.heads, one_head, &job);
    return OK;
}

const Kernel ISA(ATTENTION_GRADIENTS)[] = {
    {"AttentionGrad_f32", prepare, run_gradient, NULL},
    {NULL, NULL, NULL, NULL},
};
