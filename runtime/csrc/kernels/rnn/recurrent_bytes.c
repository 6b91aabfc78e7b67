// Recurrent layers whose weights are bytes.  What they are multiplied by is rounded to bytes too: the
// input by the range of each sequence, states by that of each row.
#include "recurrent_bytes.h"

#include <math.h>
#include <stdlib.h>

#include "../support/math.h"

enum { LINE = 64 };  // bytes that lines of rows are whole multiples of

// Rows of bytes, with what makes them floats again: (byte - zero) * scale.
typedef struct {
    uint8_t *data;
    int64_t line;  // bytes
    float *scales;
    int32_t *zeros;
    int32_t *sums;  // of the bytes less their zero points, where weights have zero points
} ByteRows;

int64_t ISA(byte_row_floats)(int64_t rows, int64_t k) { return rows * (padded(k, LINE) / 4 + 3); }

static ByteRows rows_at(float *memory, int64_t rows, int64_t k) {
    int32_t *zeros = (int32_t *)(memory + rows);
    return (ByteRows){(uint8_t *)(zeros + 2 * rows), padded(k, LINE), memory, zeros, zeros + rows};
}

// -- preparing ------------------------------------------------------------------------------------

static bool read_weights(
    ByteWeights *weights, Params *params, const Tensor *matrix, int64_t columns) {
    const Tensor scale = next_tensor(params), zero = maybe_tensor(params);
    const int64_t rows = matrix->dims[0] * matrix->dims[1];
    BytePanels *panels = &weights->panels;
    *panels = (BytePanels){.n = columns, .k = matrix->dims[2]};
    panels->tile = ISA(byte_tile)(FASTEST);
    panels->is_ordered = ISA(is_of_pairs)(panels->tile);
    panels->groups = ceil_div(panels->k, 4);
    panels->panels = ceil_div(columns, BYTE_COLUMNS);
    weights->from = (const int8_t *)matrix->data;
    weights->scale = (const float *)scale.data;
    weights->zero = (const int8_t *)zero.data;
    weights->size = padded(matrix_bytes(panels), 64);
    return matrix->constant && holds(&scale, F32, rows) && scale.constant &&
           may_hold(&zero, I8, rows) && (!zero.data || zero.constant);
}

bool ISA(read_byte_weights)(State *state, Params *params, const Tensor *w, const Tensor *r) {
    const int64_t columns = state->gates * padded(state->hidden, PANEL_COLUMNS);
    state->bytes = calloc(2, sizeof(ByteWeights));
    return state->bytes && state->gates == LSTM && state->is_packed &&
           read_weights(&state->bytes[0], params, w, columns) &&
           read_weights(&state->bytes[1], params, r, columns) && !params->bad;
}

void ISA(release_byte_weights)(State *state) {
    for (int i = 0; state->bytes && i < 2; i++) {
        free(state->bytes[i].packed);
        free(state->bytes[i].scales);
        free(state->bytes[i].zeros);
    }
    free(state->bytes);
}

// The weights of a direction in the order of products, `lines` of memory.
static void pack_direction(const State *state, ByteWeights *weights, int64_t d, int8_t *lines) {
    const BytePanels *panels = &weights->panels;
    const int64_t k = panels->k, columns = panels->n;
    int8_t *matrix = weights->packed + d * weights->size;
    float *scales = weights->scales + d * columns;
    int32_t *zeros = weights->zeros + d * columns;
    for (int64_t row = 0; row < state->gates * state->hidden; row++) {
        const int64_t from = d * state->gates * state->hidden + row;
        const int64_t unit = row % state->hidden, lane = unit % PANEL_COLUMNS;
        const int64_t column = column_of(state, (int)(row / state->hidden), unit - lane) + lane;
        memcpy(lines + column * k, weights->from + from * k, (size_t)k);
        scales[column] = weights->scale[from];
        zeros[column] = weights->zero ? weights->zero[from] : 0;
        if (zeros[column]) weights->has_zeros = true;
    }
    for (int64_t panel = 0; panel < panels->panels; panel++)
        ISA(pack_panel)(
            panels, (const uint8_t *)lines + panel * BYTE_COLUMNS * k, k, 1, panel, matrix);
}

bool ISA(pack_byte_weights)(State *state) {
    for (int i = 0; i < 2; i++) {
        ByteWeights *weights = &state->bytes[i];
        const int64_t columns = weights->panels.n, all = state->directions * columns;
        int8_t *lines = calloc((size_t)columns, (size_t)weights->panels.k + 1);
        weights->packed = aligned_alloc(64, (size_t)(state->directions * weights->size + 64));
        weights->scales = calloc((size_t)all, sizeof(float));
        weights->zeros = calloc((size_t)all, sizeof(int32_t));
        const bool fits = lines && weights->packed && weights->scales && weights->zeros;
        for (int64_t d = 0; fits && d < state->directions; d++)
            pack_direction(state, weights, d, lines);
        free(lines);
        if (!fits) return false;
    }
    return true;
}

// -- rounding -------------------------------------------------------------------------------------

// With 0; the most is undefined if a number is, or is infinite.
static ByteRange range_of(const float *x, int64_t count) {
    Floats least = {0}, most = {0}, taint = {0};
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        const Floats some = load(x + i);
        least = all_at_most(least, some);
        most = all_at_least(most, some);
        taint += some * 0.0f;
    }
    if (i < count) {
        float last[LANES] = {0};
        memcpy(last, x + i, (size_t)(count - i) * sizeof(float));
        const Floats some = load(last);
        least = all_at_most(least, some);
        most = all_at_least(most, some);
        taint += some * 0.0f;
    }
    ByteRange range = {0, 0};
    for (int lane = 0; lane < LANES; lane++) {
        range.least = least[lane] < range.least ? least[lane] : range.least;
        range.most = most[lane] > range.most ? most[lane] : range.most;
    }
    if (sum_of(taint) != 0) range.most = NAN;
    return range;
}

void ISA(find_ranges)(const State *state, ByteRange *ranges) {
    for (int64_t b = 0; b < state->rows; b++) {
        ByteRange all = {0, 0};
        for (int64_t step = 0; step < state->steps && !is_over(state, b, step); step++) {
            const float *x = state->x + (step * state->batch + b) * state->width;
            const ByteRange some = range_of(x, state->width);
            all.least = some.least < all.least ? some.least : all.least;
            if (!(some.most <= all.most)) all.most = some.most;
            if (some.most != some.most) break;
        }
        ranges[b] = all;
    }
}

static void round_row(const float *x, int64_t count, uint8_t *to, float scale, float zero) {
    INDEPENDENT_FOR (int64_t i = 0; i < count; i++) {
        const int32_t steps = (int32_t)(__builtin_rintf(x[i] / scale) + zero);
        to[i] = (uint8_t)(steps > 255 ? 255 : steps);
    }
}

// A row becomes bytes; a range that is too small for a scale is nothing.
static void quantize_row(
    const float *x, int64_t k, ByteRange range, const ByteRows *rows, int64_t row, bool with_sum) {
    enum { STEPS = 255 };
    uint8_t *to = rows->data + row * rows->line;
    const float width = range.most - range.least;
    rows->sums[row] = 0;
    if (!(width >= 1e-30f && width <= 3e38f)) {
        memset(to, 0, (size_t)rows->line);
        rows->scales[row] = width < 1e-30f ? 0 : NAN;
        rows->zeros[row] = 0;
        return;
    }
    const float scale = width / STEPS, zero = __builtin_rintf(-range.least / scale);
    rows->scales[row] = scale;
    rows->zeros[row] = (int32_t)zero;
    round_row(x, k, to, scale, zero);
    memset(to + k, 0, (size_t)(padded(k, 4) - k));
    int32_t sum = 0;
    for (int64_t i = 0; with_sum && i < k; i++) sum += to[i];
    rows->sums[row] = sum - (int32_t)k * (int32_t)zero;
}

void ISA(quantize_input)(
    const State *state, const float *x, int64_t step, int64_t steps, const ByteRange *ranges,
    float *memory) {
    const ByteWeights *weights = &state->bytes[0];
    const int64_t count = state->rows, k = weights->panels.k;
    const ByteRows to = rows_at(memory, steps * count, k);
    for (int64_t i = 0; i < steps * count; i++) {
        const bool over = is_over(state, i % count, step + i / count);
        const ByteRange range = over ? (ByteRange){0, 0} : ranges[i % count];
        quantize_row(x + i * k, k, range, &to, i, weights->has_zeros);
    }
}

void ISA(quantize_states)(const State *state, const float *h, float *memory) {
    const ByteWeights *weights = &state->bytes[1];
    const int64_t k = weights->panels.k;
    const ByteRows to = rows_at(memory, state->rows, k);
    for (int64_t i = 0; i < state->rows; i++) {
        const float *row = h + i * state->wide;
        quantize_row(row, k, range_of(row, k), &to, i, weights->has_zeros);
    }
}

// -- products -------------------------------------------------------------------------------------

static inline Ints load_ints(const int32_t *from) { return *(const LooseInts *)from; }

// Sums of a row of a tile become floats.
INLINE void finish_row(
    const int32_t *tile, const int32_t *sums, const int32_t *zeros, const float *scales,
    const float *bias, float scale, int32_t zero, int32_t row_sum, float *out,
    const bool with_zeros) {
    UNROLLED_FOR (int j = 0; j < BYTE_COLUMNS; j += LANES) {
        Ints sum = load_ints(tile + j) - zero * load_ints(sums + j);
        if (with_zeros) sum -= row_sum * load_ints(zeros + j);
        const Floats factor = scale * load(scales + j);
        store(out + j, __builtin_convertvector(sum, Floats) * factor + load(bias + j));
    }
}

void ISA(multiply_bytes)(
    const ByteWeights *weights, int64_t d, float *memory, int64_t rows, int64_t first, int64_t end,
    const float *bias, float *out, int64_t out_row) {
    static const float nothing[BYTE_COLUMNS] = {0};
    const BytePanels *panels = &weights->panels;
    const ByteRows left = rows_at(memory, rows, panels->k);
    const int8_t *matrix = weights->packed + d * weights->size;
    for (int64_t j = first; j < end; j += BYTE_COLUMNS) {
        const int64_t panel = j / BYTE_COLUMNS, column = d * panels->n + j;
        const BytePanel right = {
            matrix + j * panels->groups * 4, panels->groups,
            panels->is_ordered ? order_of(panels, matrix, panel) : NULL, panels->n - j <= LANES};
        const int32_t *sums = column_sums(panels, matrix) + j, *zeros = weights->zeros + column;
        const float *scales = weights->scales + column, *added = bias ? bias + j : nothing;
        for (int64_t i = 0; i < rows; i += BYTE_ROWS) {
            int32_t tile[BYTE_ROWS * BYTE_COLUMNS] __attribute__((aligned(64)));
            const int64_t count = lesser(rows - i, BYTE_ROWS);
            panels->tile((ByteLines){left.data + i * left.line, left.line}, right, tile, count);
            for (int64_t row = i; row < i + count; row++) {
                const int32_t *line = tile + (row - i) * BYTE_COLUMNS;
                float *to = out + row * out_row + (j - first);
                if (weights->has_zeros)
                    finish_row(
                        line, sums, zeros, scales, added, left.scales[row], left.zeros[row],
                        left.sums[row], to, true);
                else
                    finish_row(
                        line, sums, zeros, scales, added, left.scales[row], left.zeros[row], 0, to,
                        false);
            }
        }
    }
}
