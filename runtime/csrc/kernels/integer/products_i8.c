// Matrix products of bytes less their zero points, in int32, and what follows them.
#include <stdlib.h>

#include "word_panels.h"
#include "../support/fits.h"
#include "../support/chunks.h"

// Columns are divided only where there are few rows: each of their chunks packs the rows again.
enum {
    CHUNK_ROWS = 4 * BYTE_ROWS,
    FEW_CHUNKS = 4,
    // Rows from which on words are multiplied: of fewer, what they take is that weights are read.
    WORDS_FROM = 8,
};

// A matrix of bytes.
typedef struct {
    const uint8_t *data;
    int64_t line, along;  // bytes from row to row (column to column), and along the sum
    int64_t batch[MAX_RANK];
} Operand;

typedef struct {
    BytePanels panels;
    int64_t m;
    int64_t batch, right_batch;  // products, and different right matrices
    int batch_rank;
    int64_t batch_dims[MAX_RANK], out_batch[MAX_RANK], residual_batch[MAX_RANK];
    Operand left, right;
    char *out;
    const char *residual;  // NULL: there is none
    int64_t out_row, residual_row;
    bool takes_lines;  // of the left matrix, which need not be packed
    int64_t flipped_line;  // bytes of a line that is copied, because its bytes are flipped; or 0
    bool in_words;  // then lines are copied, and both matrices become words
    int64_t chunk_rows, right_bytes;
    int8_t *packed;  // the right matrix, if it is constant
    int64_t row_chunks, column_chunks, chunk_panels;
} State;

typedef struct {
    const State *state;
    const Run *run;
    int8_t *right;
} Job;

static int64_t batch_offset(const State *state, const int64_t *strides, int64_t number) {
    int64_t offset = 0;
    for (int axis = state->batch_rank - 1; axis >= 0; axis--) {
        offset += number % state->batch_dims[axis] * strides[axis];
        number /= state->batch_dims[axis];
    }
    return offset;
}

static void pack_right(const State *state, int8_t *packed, int64_t chunk) {
    const int64_t number = chunk / state->panels.panels, panel = chunk % state->panels.panels;
    const Operand *right = &state->right;
    const uint8_t *from = right->data + batch_offset(state, right->batch, number) +
                          panel * BYTE_COLUMNS * right->line;
    packed += number * state->right_bytes;
    if (state->in_words)
        ISA(pack_word_panel)(
            &state->panels, from, right->line, right->along, panel, (int16_t *)packed);
    else
        ISA(pack_panel)(&state->panels, from, right->line, right->along, panel, packed);
}

// -- preparing ------------------------------------------------------------------------------------

static Operand operand_of(const Tensor *tensor, int line, int along) {
    Operand operand = {
        .data = (const uint8_t *)tensor->data,
        .line = tensor->strides[line],
        .along = tensor->strides[along],
    };
    for (int axis = 0; axis < tensor->rank - 2; axis++)
        operand.batch[axis] = tensor->dims[axis] == 1 ? 0 : tensor->strides[axis];
    return operand;
}

static bool has_rows(const Tensor *tensor) {
    const int column = tensor->rank - 1;
    return tensor->dims[column] == 1 || tensor->strides[column] == item_size(tensor->dtype);
}

static bool read_operands(State *state, Params *params, bool *constant) {
    Tensor left = next_tensor(params), right = next_tensor(params), out = next_tensor(params);
    Tensor residual = maybe_tensor(params);
    const int rank = out.rank, row = rank - 2, column = rank - 1;
    if (params->bad || !factors_fit(&left, &right, &out)) return false;
    if (!residual_fits(&residual, &out)) return false;
    if (!has_rows(&out) || (residual.data && !has_rows(&residual))) return false;
    state->m = out.dims[row];
    state->panels.n = out.dims[column];
    state->panels.k = left.dims[column];
    state->left = operand_of(&left, row, column);
    state->right = operand_of(&right, column, row);
    state->out = out.data;
    state->out_row = out.strides[row];
    state->residual = residual.data;
    state->residual_row = residual.strides[row];
    state->batch = 1;
    state->batch_rank = row;
    bool repeated = true;
    for (int axis = 0; axis < row; axis++) {
        state->batch *= state->batch_dims[axis] = out.dims[axis];
        state->out_batch[axis] = out.strides[axis];
        state->residual_batch[axis] = residual.strides[axis];
        if (state->right.batch[axis] && out.dims[axis] > 1) repeated = false;
    }
    state->right_batch = repeated ? 1 : state->batch;
    *constant = right.constant;
    return ISA(read_panels)(
        &state->panels, params, &left, &right, out.dtype, state->m, state->panels.n);
}

static bool pack_constant(State *state, int64_t bytes) {
    state->packed = aligned_alloc(64, (size_t)padded(bytes + 64, 64));
    for (int64_t i = 0; state->packed && i < state->right_batch * state->panels.panels; i++)
        pack_right(state, state->packed, i);
    return state->packed != NULL;
}

static void plan_chunks(State *state, const Needs *needs) {
    const BytePanels *panels = &state->panels;
    state->row_chunks = ceil_div(state->m, state->chunk_rows);
    const double products = (double)(state->batch * state->m) * (double)(panels->n * panels->k) /
                            BYTES_AT_ONCE;
    const int64_t wanted =
        ceil_div(chunks_for(needs, products, FEW_CHUNKS), state->batch * state->row_chunks);
    state->chunk_panels = ceil_div(panels->panels, wanted);
    state->column_chunks = ceil_div(panels->panels, state->chunk_panels);
}

static void *prepare(Params *params, Needs *needs) {
    State *state = calloc(1, sizeof(State));
    bool constant = false;
    if (!state || !read_operands(state, params, &constant)) {
        free(state);
        return NULL;
    }
    reads_anywhere(needs, &state->left.data);
    reads_anywhere(needs, &state->residual);
    writes_anywhere(needs, &state->out);
    const BytePanels *panels = &state->panels;
    state->in_words = panels->in_words && (state->m >= WORDS_FROM || panels->form == WORDS);
    state->chunk_rows = state->in_words ? WORD_BLOCK : CHUNK_ROWS;
    state->right_bytes = state->in_words ? word_matrix_bytes(panels) : matrix_bytes(panels);
    plan_chunks(state, needs);
    const int64_t bytes = state->right_batch * state->right_bytes;
    if (constant && (!state->in_words || panels->right.is_final)) {
        if (!pack_constant(state, bytes)) {
            free(state);
            return NULL;
        }
    } else {
        needs->shared = bytes;
    }
    if (state->in_words) {
        needs->own = WORD_BLOCK * word_line(panels) * (int64_t)sizeof(int16_t);
        return state;
    }
    state->takes_lines = takes_lines(&state->panels) && state->left.along == 1 &&
                         state->panels.k % 4 == 0 && state->left.line != 0;
    if (state->takes_lines && state->panels.left.flip) {
        state->flipped_line = padded(state->panels.k, 64);
        needs->own = CHUNK_ROWS * state->flipped_line;
    }
    if (!state->takes_lines) needs->own = row_bytes(&state->panels, CHUNK_ROWS);
    return state;
}

static void release(void *argument) {
    State *state = argument;
    free(state->packed);
    free(state);
}

// -- running --------------------------------------------------------------------------------------

static void pack_chunk(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Job *job = context;
    pack_right(job->state, job->right, chunk);
}

// Rows by panels of words.
static void multiply_as_words(
    const State *state, const uint8_t *from, int64_t first, const int16_t *matrix, int64_t part,
    BytePlace place, int16_t *own) {
    const BytePanels *panels = &state->panels;
    const ByteSide *side = &panels->left;
    const int64_t k = panels->k, line = word_line(panels), start = 0;
    const int16_t *lines[WORD_BLOCK];
    for (int64_t i = 0; i < WORD_BLOCK; i++) {
        lines[i] = own + lesser(i, place.rows - 1) * line;
        if (i >= place.rows) continue;
        int16_t *to = own + i * line;
        to[k] = 0;
        ISA(widen_bytes)(
            from + i * state->left.line, state->left.along, k, side->is_signed,
            zero_point(side, first + i), to, 1);
    }
    WordTile tile = {.offsets = &start, .runs = 1, .pairs = ceil_div(k, 2)};
    const int64_t last = lesser((part + 1) * state->chunk_panels, panels->panels);
    for (int64_t panel = part * state->chunk_panels; panel < last; panel++) {
        if (pool_is_stopped()) return;
        const int64_t column = panel * BYTE_COLUMNS;
        BytePlace there = place;
        there.columns = lesser(panels->n - column, BYTE_COLUMNS);
        there.data += column * item_size(panels->epilogue.type);
        if (there.residual) there.residual += column * (int64_t)sizeof(float);
        tile.right = matrix + panel * word_place(2 * tile.pairs, 0);
        ISA(multiply_word_panel)(panels, tile, lines, column, there);
    }
}

// The rows where they lie, or packed in memory of a thread.
static LeftRows left_rows(
    const State *state, const uint8_t *from, int64_t first, int64_t rows, void *own) {
    const BytePanels *panels = &state->panels;
    const Operand *left = &state->left;
    if (state->flipped_line) {
        uint8_t *to = own;
        if (left->line == panels->k) {  // one line
            memcpy(to, from, (size_t)(rows * panels->k));
            flip_line(panels, to, rows * panels->k);
            return (LeftRows){own, NULL, first, panels->k};
        }
        for (int64_t i = 0; i < rows; i++, to += state->flipped_line, from += left->line) {
            memcpy(to, from, (size_t)panels->k);
            flip_line(panels, to, panels->k);
        }
        return (LeftRows){own, NULL, first, state->flipped_line};
    }
    if (state->takes_lines) return (LeftRows){(uint8_t *)from, NULL, first, left->line};
    const LeftRows packed = rows_in(panels, own, first, rows);
    ISA(pack_rows)(panels, from, left->line, left->along, 0, rows, packed);
    return packed;
}

static void product_chunk(void *context, int64_t chunk, int thread) {
    const Job *job = context;
    const State *state = job->state;
    const BytePanels *panels = &state->panels;
    const int64_t part = chunk % state->column_chunks, rest = chunk / state->column_chunks;
    const int64_t number = rest / state->row_chunks,
                  first = rest % state->row_chunks * state->chunk_rows;
    const int64_t rows = lesser(state->m - first, state->chunk_rows);
    const uint8_t *from = state->left.data + batch_offset(state, state->left.batch, number) +
                          first * state->left.line;
    BytePlace place = {
        .data = state->out + batch_offset(state, state->out_batch, number) + first * state->out_row,
        .row = state->out_row,
        .residual_row = state->residual_row,
        .rows = rows,
    };
    if (state->residual)
        place.residual = state->residual + batch_offset(state, state->residual_batch, number) +
                         first * state->residual_row;
    int8_t *matrix = job->right + (state->right_batch == 1 ? 0 : number) * state->right_bytes;
    char *own = job->run->own[thread];
    if (state->in_words) {
        multiply_as_words(state, from, first, (const int16_t *)matrix, part, place, (int16_t *)own);
        return;
    }
    const LeftRows left = left_rows(state, from, first, rows, own);
    const int64_t last = lesser((part + 1) * state->chunk_panels, panels->panels);
    for (int64_t panel = part * state->chunk_panels; panel < last; panel++) {
        if (pool_is_stopped()) return;
        BytePlace there = place;
        there.data += panel * BYTE_COLUMNS * item_size(panels->epilogue.type);
        if (there.residual) there.residual += panel * BYTE_COLUMNS * (int64_t)sizeof(float);
        ISA(multiply_panel)(panels, matrix, panel, left, 0, there);
    }
}

static Failure run_products(const void *argument, const Run *run) {
    const State *state = argument;
    Job job = {state, run, state->packed ? state->packed : (int8_t *)run->shared};
    if (!state->packed)
        share_chunks(run, state->right_batch * state->panels.panels, pack_chunk, &job);
    share_chunks(run, state->batch * state->row_chunks * state->column_chunks, product_chunk, &job);
    return OK;
}

const Kernel ISA(BYTE_PRODUCTS)[] = {
    {"Product_i8", prepare, run_products, release},
    {NULL, NULL, NULL, NULL},
};
