// Matrix products of bytes less their zero points, in int32, and what follows them.
#include <stdlib.h>

#include "byte_epilogue.h"
#include "gemm.h"

// Columns are divided only where there are few rows: each of their chunks packs the rows again.
enum { CHUNK_ROWS = 4 * BYTE_ROWS, FEW_CHUNKS = 4 };

// A matrix of bytes: zero points of its rows (left) or columns (right), and what makes its bytes
// those of a panel.
typedef struct {
    const uint8_t *data;
    int64_t line, along;  // bytes from row to row (column to column), and along the sum
    int64_t batch[MAX_RANK];
    const uint8_t *zero;  // NULL: zero
    int64_t zero_line;
    bool is_signed;
    uint8_t flip;  // 128 if the panel wants the other kind of bytes
} Operand;

typedef struct {
    int64_t m, n, k, groups, panels;
    int64_t batch, right_batch;  // products, and different right matrices
    int batch_rank;
    int64_t batch_dims[MAX_RANK], out_batch[MAX_RANK], residual_batch[MAX_RANK];
    Operand left, right;
    char *out;
    const char *residual;  // NULL: there is none
    int64_t out_row, residual_row;
    bool has_right_zero;  // those of panels, which differ from those of the operand
    ByteEpilogue epilogue;
    ByteTile tile;
    int8_t *packed;  // the right matrix, if it is constant; its sums lie behind it
    int64_t row_chunks, column_chunks, chunk_panels;
} State;

typedef struct {
    const State *state;
    const Run *run;
    int8_t *right;
} Job;

// -- operands -------------------------------------------------------------------------------------

static int64_t batch_offset(const State *state, const int64_t *strides, int64_t number) {
    int64_t offset = 0;
    for (int axis = state->batch_rank - 1; axis >= 0; axis--) {
        offset += number % state->batch_dims[axis] * strides[axis];
        number /= state->batch_dims[axis];
    }
    return offset;
}

// The zero point of a line, for the bytes that panels hold.
static int32_t zero_of(const Operand *operand, int64_t line) {
    int32_t zero = 0;
    if (operand->zero) {
        const uint8_t byte = operand->zero[line * operand->zero_line];
        zero = operand->is_signed ? (int8_t)byte : byte;
    }
    if (!operand->flip) return zero;
    return operand->is_signed ? zero + 128 : zero - 128;
}

// One line of a panel; gives its sum.  The last three are constants.
static inline __attribute__((always_inline)) int32_t pack_line(
    const uint8_t *line, int64_t k, uint8_t flip, uint8_t *to, int64_t along, const int width,
    const bool as_signed) {
    int64_t p = 0;
    for (; along == 1 && p + 4 <= k; p += 4) {
        uint32_t group;
        memcpy(&group, line + p, sizeof(group));
        group ^= flip * 0x01010101u;
        memcpy(to + p * width, &group, sizeof(group));
    }
    for (; p < k; p++) to[p / 4 * 4 * width + p % 4] = line[p * along] ^ flip;
    int32_t sum = 0;
    for (p = 0; p < k; p++) {
        const uint8_t byte = line[p * along] ^ flip;
        sum += as_signed ? (int8_t)byte : byte;
    }
    return sum;
}

// Lines that lie side by side: four numbers of each become a group.  The last two are constants.
static inline __attribute__((always_inline)) void pack_side_by_side(
    const uint8_t *from, int64_t along, int64_t lines, int64_t k, uint8_t flip, uint8_t *to,
    int32_t *sums, const int width, const bool as_signed) {
    for (int64_t p = 0; p < k; p += 4, to += 4 * width) {
        const uint8_t *numbers[4];
        uint32_t kept[4];
        for (int q = 0; q < 4; q++) {
            kept[q] = p + q < k ? 255 : 0;
            numbers[q] = from + (kept[q] ? p + q : p) * along;
        }
        for (int64_t i = 0; i < lines; i++) {
            uint32_t group = 0;
            int32_t sum = 0;
            for (int q = 0; q < 4; q++) {
                const uint8_t byte = (uint8_t)((numbers[q][i] ^ flip) & kept[q]);
                group |= (uint32_t)byte << 8 * q;
                sum += as_signed ? (int8_t)byte : byte;
            }
            memcpy(to + 4 * i, &group, sizeof(group));
            sums[i] += sum;
        }
    }
}

// Packs up to `width` lines, and adds up each of them.
static inline __attribute__((always_inline)) void pack(
    const Operand *operand, const uint8_t *from, int64_t lines, int64_t k, const int width,
    const bool as_signed, uint8_t *to, int32_t *sums) {
    const int64_t last = ceil_div(k, 4) - 1;
    if (lines < width)
        memset(to, 0, (size_t)((last + 1) * width * 4));
    else if (k % 4)
        memset(to + last * width * 4, 0, (size_t)width * 4);
    memset(sums, 0, (size_t)width * sizeof(int32_t));
    const uint8_t flip = operand->flip;
    const int64_t along = operand->along;
    if (operand->line == 1 && along != 1) {
        if (lines == width)
            pack_side_by_side(from, along, width, k, flip, to, sums, width, as_signed);
        else
            pack_side_by_side(from, along, lines, k, flip, to, sums, width, as_signed);
        return;
    }
    for (int64_t i = 0; i < lines; i++) {
        const uint8_t *line = from + i * operand->line;
        sums[i] = along == 1 ? pack_line(line, k, flip, to + i * 4, 1, width, as_signed)
                             : pack_line(line, k, flip, to + i * 4, along, width, as_signed);
    }
}

static int64_t matrix_bytes(const State *state) {
    return state->panels * BYTE_COLUMNS * (state->groups + 1) * 4;
}

static int32_t *column_sums(const State *state, int8_t *matrix) {
    return (int32_t *)(matrix + state->panels * BYTE_COLUMNS * state->groups * 4);
}

static void pack_right(const State *state, int8_t *packed, int64_t chunk) {
    const int64_t number = chunk / state->panels, panel = chunk % state->panels;
    int8_t *matrix = packed + number * matrix_bytes(state);
    const int64_t first = panel * BYTE_COLUMNS, rest = state->n - first;
    const uint8_t *from = state->right.data + first * state->right.line +
                          batch_offset(state, state->right.batch, number);
    pack(
        &state->right, from, rest < BYTE_COLUMNS ? rest : BYTE_COLUMNS, state->k, BYTE_COLUMNS, true,
        (uint8_t *)matrix + first * state->groups * 4, column_sums(state, matrix) + first);
}

// -- preparing ------------------------------------------------------------------------------------

static bool is_byte(DType dtype) { return dtype == I8 || dtype == U8; }

// The zero points of an operand: none, one, or one for each line along `axis`.
static bool read_zero(Operand *operand, const Tensor *zero, int64_t lines) {
    if (!zero->data) return true;
    if (zero->rank != 1 || (zero->dims[0] != 1 && zero->dims[0] != lines)) return false;
    operand->zero = (const uint8_t *)zero->data;
    operand->zero_line = zero->dims[0] == 1 ? 0 : zero->strides[0];
    return true;
}

static Operand operand_of(const Tensor *tensor, int line, int along, bool as_signed) {
    Operand operand = {
        .data = (const uint8_t *)tensor->data,
        .line = tensor->strides[line],
        .along = tensor->strides[along],
        .is_signed = tensor->dtype == I8,
        .flip = (tensor->dtype == I8) == as_signed ? 0 : 128,
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
    Tensor left_zero = next_tensor(params), right_zero = next_tensor(params);
    Tensor residual = next_tensor(params);
    state->tile = ISA(byte_tile)((ByteForm)next_int(params));
    const int rank = out.rank, row = rank - 2, column = rank - 1;
    if (params->bad || !state->tile || rank < 2 || left.rank != rank || right.rank != rank) return false;
    if (!is_byte(left.dtype) || !is_byte(right.dtype)) return false;
    if (!has_rows(&out) || (residual.data && !has_rows(&residual))) return false;
    if (!ISA(read_byte_epilogue)(&state->epilogue, params, out.dtype, out.dims[column])) return false;
    state->m = out.dims[row];
    state->n = out.dims[column];
    state->k = left.dims[column];
    state->groups = ceil_div(state->k, 4);
    state->panels = ceil_div(state->n, BYTE_COLUMNS);
    state->left = operand_of(&left, row, column, false);
    state->right = operand_of(&right, column, row, true);
    state->has_right_zero = right_zero.data || state->right.flip;
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
    return read_zero(&state->left, &left_zero, state->m) &&
           read_zero(&state->right, &right_zero, state->n);
}

static void *prepare(Params *params, Needs *needs) {
    State *state = calloc(1, sizeof(State));
    bool constant = false;
    if (!state || !read_operands(state, params, &constant)) {
        free(state);
        return NULL;
    }
    state->row_chunks = ceil_div(state->m, CHUNK_ROWS);
    const int64_t wanted = ceil_div(FEW_CHUNKS, state->batch * state->row_chunks);
    state->chunk_panels = ceil_div(state->panels, wanted);
    state->column_chunks = ceil_div(state->panels, state->chunk_panels);
    const int64_t bytes = state->right_batch * matrix_bytes(state);
    if (constant) {
        state->packed = aligned_alloc(64, (size_t)padded(bytes + 64, 64));
        if (!state->packed) {
            free(state);
            return NULL;
        }
        for (int64_t i = 0; i < state->right_batch * state->panels; i++)
            pack_right(state, state->packed, i);
    } else {
        needs->shared = bytes;
    }
    needs->own = CHUNK_ROWS * (state->groups + 1) * 4;
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

// What the zero points of both sides take off a tile: sum (a - za) (b - zb), of which the tile has
// sum a b.  Sums wrap around, as numpy's do.
static void find_zeros(
    const State *state, const int32_t *right_sums, int64_t column, int64_t columns,
    ByteColumns *found) {
    const uint32_t zero = state->left.zero_line ? 0 : (uint32_t)zero_of(&state->left, 0);
    for (int64_t j = 0; j < columns; j++)
        found->base[j] = (int32_t)(zero * (uint32_t)right_sums[j]);
    for (int64_t j = 0; state->has_right_zero && j < columns; j++)
        found->zeros[j] = zero_of(&state->right, column + j);
}

// Zero points that rows have of their own.
static void take_row_zeros(
    const State *state, int32_t *tile, const int32_t *right_sums, int64_t row, int64_t rows) {
    for (int64_t i = 0; i < rows; i++) {
        const uint32_t zero = (uint32_t)zero_of(&state->left, row + i);
        for (int64_t j = 0; j < BYTE_COLUMNS; j++)
            tile[i * BYTE_COLUMNS + j] = (int32_t)((uint32_t)tile[i * BYTE_COLUMNS + j] -
                                                   zero * (uint32_t)right_sums[j]);
    }
}

// Packs rows `first` to `end`, and finds what zero points of columns are multiplied with.
static void pack_left(
    const State *state, int64_t number, int64_t first, int64_t end, uint8_t *left, int32_t *rests) {
    const uint8_t *from = state->left.data + batch_offset(state, state->left.batch, number);
    const int64_t tile_bytes = BYTE_ROWS * state->groups * 4;
    for (int64_t i = first; i < end; i += BYTE_ROWS, left += tile_bytes, rests += BYTE_ROWS) {
        const int64_t rows = end - i < BYTE_ROWS ? end - i : BYTE_ROWS;
        pack(
            &state->left, from + i * state->left.line, rows, state->k, BYTE_ROWS, false, left,
            rests);
        for (int64_t j = 0; j < rows; j++)
            rests[j] = (int32_t)((uint32_t)rests[j] -
                                 (uint32_t)state->k * (uint32_t)zero_of(&state->left, i + j));
    }
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// Rows of one panel of the right matrix: those of `place`, from `row`, which are packed in `left`.
static void multiply_panel(
    const State *state, int8_t *matrix, int64_t panel, const uint8_t *left, const int32_t *rests,
    int64_t row, BytePlace place) {
    const int64_t column = panel * BYTE_COLUMNS, rows = place.rows;
    const int32_t *right_sums = column_sums(state, matrix) + column;
    ByteColumns columns = {{0}, {0}, {0}, {0}};
    place.columns = least(state->n - column, BYTE_COLUMNS);
    place.data += column * item_size(state->epilogue.type);
    if (place.residual) place.residual += column * 4;
    find_zeros(state, right_sums, column, place.columns, &columns);
    ISA(find_columns)(&state->epilogue, column, place.columns, &columns);
    for (int64_t i = 0; i < rows; i += BYTE_ROWS) {
        int32_t tile[BYTE_ROWS * BYTE_COLUMNS] __attribute__((aligned(64)));
        state->tile(
            left + i * state->groups * 4, matrix + column * state->groups * 4, state->groups, tile);
        place.rows = least(rows - i, BYTE_ROWS);
        if (state->left.zero_line) take_row_zeros(state, tile, right_sums, row + i, place.rows);
        ISA(finish_bytes)(
            &state->epilogue, &columns, tile, state->has_right_zero ? rests + i : NULL, place);
        place.data += BYTE_ROWS * place.row;
        if (place.residual) place.residual += BYTE_ROWS * place.residual_row;
    }
}

static void product_chunk(void *context, int64_t chunk, int thread) {
    const Job *job = context;
    const State *state = job->state;
    const int64_t part = chunk % state->column_chunks, rest = chunk / state->column_chunks;
    const int64_t number = rest / state->row_chunks, first = rest % state->row_chunks * CHUNK_ROWS;
    const int64_t end = least(first + CHUNK_ROWS, state->m);
    uint8_t *left = (uint8_t *)job->run->own[thread];
    int32_t *rests = (int32_t *)(left + CHUNK_ROWS * state->groups * 4);
    pack_left(state, number, first, end, left, rests);
    BytePlace place = {
        .data = state->out + batch_offset(state, state->out_batch, number) + first * state->out_row,
        .row = state->out_row,
        .residual_row = state->residual_row,
        .rows = end - first,
    };
    if (state->residual)
        place.residual = state->residual + batch_offset(state, state->residual_batch, number) +
                         first * state->residual_row;
    int8_t *matrix = job->right + (state->right_batch == 1 ? 0 : number) * matrix_bytes(state);
    const int64_t last = least((part + 1) * state->chunk_panels, state->panels);
    for (int64_t panel = part * state->chunk_panels; panel < last; panel++)
        multiply_panel(state, matrix, panel, left, rests, first, place);
}

static Failure run_products(const void *argument, const Run *run) {
    const State *state = argument;
    Job job = {state, run, state->packed ? state->packed : (int8_t *)run->shared};
    if (!state->packed) share_chunks(run, state->right_batch * state->panels, pack_chunk, &job);
    share_chunks(run, state->batch * state->row_chunks * state->column_chunks, product_chunk, &job);
    return OK;
}

const Kernel ISA(BYTE_PRODUCTS)[] = {
    {"Product_i8", prepare, run_products, release},
    {NULL, NULL, NULL, NULL},
};
