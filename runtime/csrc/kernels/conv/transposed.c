#include "transposed.h"

#include <stdlib.h>

#include "../support/fits.h"

enum {
    BLOCK_FLOATS = 1 << 16,  // of copies, a quarter of the second cache of Zen 4
    MOST_COPIED = 1 << 24,  // more are refused
};

// -- phases ---------------------------------------------------------------------------------------

// Whether results of a phase add up a tap, of which elements, and where its weights lie.
static bool find_tap(
    const Conv *conv, const Phase *phase, int64_t tap, int64_t *shift, int64_t *weights) {
    *weights = 0;
    for (int axis = AXES - 1; axis >= 0; axis--) {
        const int64_t place = tap % conv->taps[axis];
        const int64_t distance = phase->first[axis] + conv->before[axis] -
                                 place * conv->dilation[axis];
        if (distance % conv->stride[axis]) return false;
        shift[axis] = distance / conv->stride[axis];
        *weights += place * conv->w_axis[axis];
        tap /= conv->taps[axis];
    }
    return true;
}

static bool find_phases(Transposed *state) {
    const Conv *conv = &state->conv;
    state->count = 1;
    for (int axis = 0; axis < AXES; axis++) {
        state->phases[axis] = lesser(conv->stride[axis], conv->size[axis]);
        state->grid[axis] = ceil_div(conv->size[axis], conv->stride[axis]);
        if (state->phases[axis] > MOST_PHASES) return false;
        state->count *= state->phases[axis];
    }
    if (state->count > MOST_PHASES || conv->window > MOST_TAPS) return false;
    for (int64_t i = 0; i < state->count; i++) {
        int64_t rest = i;
        for (int axis = AXES - 1; axis >= 0; axis--) {
            state->phase[i].first[axis] = rest % state->phases[axis];
            rest /= state->phases[axis];
        }
    }
    return true;
}

// What is read beside the elements of the same number, and how many numbers windows have.
static void find_reach(Transposed *state) {
    const Conv *conv = &state->conv;
    int64_t high[AXES] = {0}, shift[AXES], weights;
    bool found = false;
    for (int axis = 0; axis < AXES; axis++) state->low[axis] = 0;
    state->packed_group = 0;
    for (Phase *phase = state->phase; phase < state->phase + state->count; phase++) {
        phase->weights = state->packed_group;
        for (int64_t tap = 0; tap < conv->window; tap++) {
            if (!find_tap(conv, phase, tap, shift, &weights)) continue;
            phase->k += state->in;
            for (int axis = 0; axis < AXES; axis++) {
                state->low[axis] = found ? lesser(state->low[axis], shift[axis]) : shift[axis];
                high[axis] = found ? greater(high[axis], shift[axis]) : shift[axis];
            }
            found = true;
        }
        state->packed_group += state->tiles * TILE_ROWS * phase->k;
    }
    for (int axis = 0; axis < AXES; axis++) state->reach[axis] = high[axis] - state->low[axis] + 1;
}

static bool copies_fit(const Transposed *state) {
    for (int axis = 0; axis < AXES; axis++)
        if (state->reach[axis] > MOST_COPIED) return false;
    return size_of(state->in, state->reach[0], state->reach[2]) > 0;
}

// -- blocks ---------------------------------------------------------------------------------------

// A block has copies that stay in the cache, and as many vectors as are multiplied at once, if it can.
static void choose_blocks(Transposed *state) {
    const int64_t lines = state->in * state->reach[0] * state->reach[2];
    const int64_t most = BLOCK_FLOATS / lines;
    int64_t columns = state->grid[2], rows = most / columns - (state->reach[1] - 1);
    if (rows < 1) {
        const int64_t wide = most / state->reach[1] / TILE_COLUMNS * TILE_COLUMNS;
        columns = lesser(columns, greater(wide, TILE_COLUMNS));
        rows = 1;
    }
    rows = lesser(rows, state->grid[1]);
    rows = ceil_div(state->grid[1], ceil_div(state->grid[1], rows));
    const int64_t unit = TILE_COLUMNS / lesser(columns & -columns, TILE_COLUMNS);
    if (rows < state->grid[1] && rows > unit) rows = rows / unit * unit;
    const int64_t block[AXES] = {1, rows, columns};
    for (int axis = 0; axis < AXES; axis++) {
        state->block[axis] = block[axis];
        state->blocks[axis] = ceil_div(state->grid[axis], block[axis]);
    }
}

static bool reads_in_place(const Transposed *state) {
    const Conv *conv = &state->conv;
    bool same = conv->y_axis[2] == 1;
    for (int axis = 0; axis < AXES; axis++)
        same &= state->reach[axis] == 1 && state->low[axis] == 0 &&
                state->grid[axis] == conv->result[axis];
    const bool follow = state->block[1] == 1 || conv->y_axis[1] == conv->result[2];
    const int64_t last = state->grid[1] % state->block[1] * state->block[2];
    const bool whole = state->grid[2] % state->block[2] == 0;
    return same && follow && whole && state->block[1] * state->block[2] % TILE_COLUMNS == 0 &&
           last % TILE_COLUMNS == 0;
}

// How a slice of the input is copied.
static bool plan_lines(Transposed *state) {
    const Conv *conv = &state->conv;
    Conv *lines = &state->lines;
    int64_t step = 1;
    lines->contiguous = state->blocks[1] == 1 && state->blocks[2] == 1 && conv->result[0] == 1;
    for (int axis = AXES - 1; axis >= 0; axis--) {
        lines->size[axis] = axis ? conv->result[axis] : 1;
        lines->taps[axis] = axis ? state->reach[axis] : 1;
        lines->result[axis] = state->block[axis];
        lines->stride[axis] = lines->dilation[axis] = 1;
        lines->before[axis] = axis ? -state->low[axis] : 0;
        lines->x_axis[axis] = conv->y_axis[axis];
        lines->phase[axis] = state->block[axis] + state->reach[axis] - 1;
        lines->contiguous &= conv->result[axis] == 1 || conv->y_axis[axis] == step;
        step *= conv->result[axis];
    }
    lines->contiguous &= conv->y_channel == step;
    lines->contiguous &= conv->batch == 1 || conv->y_batch == step * conv->groups * conv->out;
    lines->batch = conv->batch;
    lines->groups = conv->groups;
    lines->in = state->in;
    lines->x = conv->y;
    lines->x_batch = conv->y_batch;
    lines->x_channel = conv->y_channel;
    if (!ISA(prepare_copies)(&state->copies, lines)) return false;
    state->slice = size_of(state->reach[2], state->in, state->copies.floats);
    const int64_t floats = size_of(state->slice, state->reach[0], 1);
    return floats > 0 && floats <= MOST_COPIED;
}

static bool find_offsets(Transposed *state) {
    const Conv *conv = &state->conv;
    const int64_t all = size_of(state->in, conv->window, 1);
    int64_t *next = state->offsets = all > 0 ? malloc((size_t)all * sizeof(int64_t)) : NULL;
    if (!next) return false;
    for (Phase *phase = state->phase; phase < state->phase + state->count; phase++) {
        int64_t shift[AXES], weights;
        phase->offsets = next;
        for (int64_t tap = 0; tap < conv->window; tap++) {
            if (!find_tap(conv, phase, tap, shift, &weights)) continue;
            for (int axis = 0; axis < AXES; axis++) shift[axis] -= state->low[axis];
            const int64_t copied = shift[1] * state->reach[2] + shift[2];
            for (int64_t c = 0; c < state->in; c++)
                *next++ = state->in_place
                              ? c * conv->y_channel
                              : shift[0] * state->slice +
                                    ISA(copied_offset)(&state->copies, state->in, c, copied);
        }
    }
    return true;
}

// -- all of it ------------------------------------------------------------------------------------

void ISA(pack_transposed)(const Transposed *state, int64_t number, float *packed) {
    const Conv *conv = &state->conv;
    const int64_t tile = number % state->tiles, rest = number / state->tiles;
    const int64_t group = rest / state->count;
    const Phase *phase = state->phase + rest % state->count;
    float *to = packed + group * state->packed_group + phase->weights + tile * TILE_ROWS * phase->k;
    const float *from = conv->w + group * state->in * conv->w_out + tile * state->rows * conv->w_in;
    for (int64_t tap = 0; tap < conv->window; tap++) {
        int64_t shift[AXES], weights;
        if (!find_tap(conv, phase, tap, shift, &weights)) continue;
        ISA(pack_panels)(
            to, from + weights, conv->w_in, conv->w_out, tile_rows(state, tile), state->in,
            TILE_ROWS);
        to += state->in * TILE_ROWS;
    }
}

static bool pack_constant(Transposed *state) {
    const Conv *conv = &state->conv;
    if (!conv->constant) return true;
    const int64_t floats = padded(state->packed_group * conv->groups + 1, 16);
    state->packed = aligned_alloc(64, (size_t)floats * sizeof(float));
    for (int64_t i = 0; state->packed && i < conv->groups * state->count * state->tiles; i++)
        ISA(pack_transposed)(state, i, state->packed);
    return state->packed;
}

bool ISA(plan_transposed)(Transposed *state, Params *params) {
    Conv *conv = &state->conv;
    if (!ISA(read_turned_conv)(conv, params) || conv->packed) return false;
    const Tensor bias = maybe_tensor(params);
    state->in = conv->out;
    state->out = conv->in;
    if (params->bad || !conv->contiguous || conv->epilogue.row_bias || conv->epilogue.residual ||
        size_of(conv->batch, conv->size[0], conv->size[1] * conv->size[2]) <= 0 ||
        !may_hold(&bias, F32, conv->groups * state->out) || !find_phases(state))
        return false;
    conv->epilogue.row_bias = (const float *)bias.data;
    state->rows = even_rows(state->out);
    state->tiles = ceil_div(state->out, state->rows);
    find_reach(state);
    if (!copies_fit(state)) return false;
    choose_blocks(state);
    state->in_place = reads_in_place(state);
    return plan_lines(state) && find_offsets(state) && pack_constant(state);
}

void ISA(release_transposed)(Transposed *state) {
    free(state->offsets);
    free(state->packed);
    ISA(free_copies)(&state->copies);
}
