#include "transposed.h"

#include <stdlib.h>

#include "../support/fits.h"
#include "../support/chunks.h"

enum {
    BLOCK_FLOATS = 1 << 16,  // of copies, a quarter of the second cache of Zen 4
    MOST_COPIED = 1 << 24,  // more are refused
    MOST_KINDS = 64,  // of blocks whose masks are worth having
    SUM_FLOATS = 1 << 13,  // that are woven while they are in the first cache
    WEIGHT_FLOATS = 1 << 16,  // that stay in the second one while all results of a block go by
    FEW_ROWS_OF_WEIGHTS =
        8,  // what these multiply comes from the second cache as fast as from there
    WINDOW_FLOATS = 6 << 10,  // so it has to be in the first one
    FEW_CHUNKS = 8,  // blocks that threads cannot share evenly: channels are shared, too
    CHUNK_PRODUCTS = 1 << 17,  // of a chunk at least: 2 us
};

// -- phases ---------------------------------------------------------------------------------------

// Whether results of a phase add up a tap.
static bool find_tap(const Conv *conv, const Phase *phase, int64_t number, Tap *tap) {
    tap->weights = 0;
    for (int axis = AXES - 1; axis >= 0; axis--) {
        const int64_t place = number % conv->taps[axis];
        const int64_t distance = phase->first[axis] + conv->before[axis] -
                                 place * conv->dilation[axis];
        if (distance % conv->stride[axis]) return false;
        tap->shift[axis] = distance / conv->stride[axis];
        tap->weights += place * conv->w_axis[axis];
        number /= conv->taps[axis];
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

// The taps of all phases: each belongs to one of them at most.
static bool find_taps(Transposed *state) {
    const Conv *conv = &state->conv;
    Tap *next = state->taps = malloc((size_t)conv->window * sizeof(Tap));
    if (!next) return false;
    for (Phase *phase = state->phase; phase < state->phase + state->count; phase++) {
        phase->tap = next;
        for (int64_t number = 0; number < conv->window; number++)
            if (next < state->taps + conv->window && find_tap(conv, phase, number, next)) next++;
        phase->taps = next - phase->tap;
    }
    for (int axis = 0; axis < AXES; axis++) {
        int64_t low = state->taps->shift[axis], high = low;
        for (const Tap *tap = state->taps; tap < next; tap++) {
            low = lesser(low, tap->shift[axis]);
            high = greater(high, tap->shift[axis]);
        }
        state->low[axis] = next > state->taps ? low : 0;
        state->reach[axis] = next > state->taps ? high - low + 1 : 1;
    }
    return true;
}

// Phases have the same windows if a window is whole strides long, and begins where one does.
static void join_phases(Transposed *state) {
    const Conv *conv = &state->conv;
    bool same = true;
    for (int axis = 0; axis < AXES; axis++)
        same &= conv->dilation[axis] == 1 && conv->before[axis] % conv->stride[axis] == 0 &&
                conv->taps[axis] % conv->stride[axis] == 0;
    state->joined = same ? state->count : 1;
    state->made = same ? state->count : state->phases[2];
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
    const int64_t rows = state->grid[1] - (state->blocks[1] - 1) * state->block[1];
    const int64_t columns = state->grid[2] - (state->blocks[2] - 1) * state->block[2];
    return same && follow && rows * columns >= LANES;
}

// How channels of the result are divided, which are multiplied with all that is in a block: for the
// threads that `needs` tells of, or for two.
static void choose_parts(Transposed *state, const Needs *needs) {
    const int64_t lines = state->count / state->made, blocks = blocks_of(state);
    int64_t numbers = 0;  // of all windows
    for (int64_t i = 0; i < state->count; i++) numbers += state->phase[i].taps * state->in;
    const int64_t most =
        lesser(SUM_FLOATS / (state->made * TILE_COLUMNS), WEIGHT_FLOATS / (numbers / lines + 1));
    const int64_t finest = ceil_div(state->out * state->joined, greater(TILE_ROWS, state->joined));
    state->parts = lesser(ceil_div(state->out, greater(most, 1)), finest);
    const int64_t results = state->block[1] * state->block[2];
    const double products = (double)blocks * (double)results * (double)numbers * (double)state->out;
    const int64_t chunks = needs ? chunks_for(needs, products, FEW_CHUNKS) : FEW_CHUNKS;
    state->early = blocks < chunks && products >= 2 * CHUNK_PRODUCTS;
    if (state->early) {
        const int64_t wanted = lesser(chunks, (int64_t)(products / CHUNK_PRODUCTS));
        state->parts = greater(state->parts, lesser(ceil_div(wanted, blocks * lines), finest));
    }
    if (2 * state->parts > finest) state->parts = finest;
    state->channels = ceil_div(state->out, state->parts);
    state->parts = ceil_div(state->out, state->channels);
    state->rows = even_rows(rows_of(state, 0));
    state->tiles = ceil_div(rows_of(state, 0), state->rows);
}

// How many channels of the input are multiplied at once, which sums depend on, and where weights lie.
static void choose_depth(Transposed *state, bool few) {
    const int64_t reach = state->reach[0] * state->reach[1] * state->reach[2];
    int64_t most = 1;  // taps
    state->packed_part = 0;
    for (int64_t i = 0; i < state->count; i += state->joined) {
        Phase *phase = state->phase + i;
        most = greater(most, phase->taps);
        phase->weights = state->packed_part;
        state->packed_part += state->tiles * TILE_ROWS * phase->taps * state->in;
    }
    state->packed_group = state->parts * state->packed_part;
    state->depth = few ? WINDOW_FLOATS / (reach * TILE_COLUMNS) : DEPTH / most;
    state->depth = lesser(greater(state->depth, 1), state->in);
}

// How a slice of the input is copied.
static Conv lines_of(const Transposed *state) {
    const Conv *conv = &state->conv;
    Conv lines = {
        .batch = conv->batch,
        .groups = conv->groups,
        .in = state->in,
        .x = conv->y,
        .x_batch = conv->y_batch,
        .x_channel = conv->y_channel,
        .contiguous = true};
    int64_t step = 1;
    for (int axis = AXES - 1; axis >= 0; axis--) {
        lines.size[axis] = axis ? conv->result[axis] : 1;
        lines.taps[axis] = axis ? state->reach[axis] : 1;
        lines.result[axis] = state->block[axis];
        lines.stride[axis] = lines.dilation[axis] = 1;
        lines.before[axis] = axis ? -state->low[axis] : 0;
        lines.x_axis[axis] = conv->y_axis[axis];
        lines.phase[axis] = state->block[axis] + state->reach[axis] - 1;
        lines.contiguous &= conv->result[axis] == 1 || conv->y_axis[axis] == step;
        step *= conv->result[axis];
    }
    lines.contiguous &= conv->y_channel == step && conv->result[0] == 1;
    lines.contiguous &= conv->batch == 1 || conv->y_batch == step * conv->groups * state->in;
    lines.contiguous &= state->blocks[2] == 1 && state->blocks[1] <= MOST_KINDS;
    return lines;
}

static bool plan_lines(Transposed *state) {
    Conv conv = lines_of(state);
    const int64_t kinds = conv.contiguous ? state->blocks[1] : 1;
    state->lines = calloc((size_t)kinds, sizeof(Lines));
    if (!state->lines) return false;
    for (; state->kinds < kinds; state->kinds++, conv.before[1] -= state->block[1]) {
        Lines *lines = state->lines + state->kinds;
        lines->conv = conv;
        if (!ISA(prepare_copies)(&lines->copies, &lines->conv)) return false;
    }
    state->slice = size_of(state->reach[2], state->in, state->lines->copies.floats);
    const int64_t floats = size_of(state->slice, state->reach[0], 1);
    return floats > 0 && floats <= MOST_COPIED;
}

static int64_t offset_of(const Transposed *state, const Tap *tap, int64_t channel) {
    if (state->in_place) return channel * state->conv.y_channel;
    int64_t shift[AXES];
    for (int axis = 0; axis < AXES; axis++) shift[axis] = tap->shift[axis] - state->low[axis];
    const int64_t number = shift[1] * state->reach[2] + shift[2];
    return shift[0] * state->slice +
           ISA(copied_offset)(&state->lines->copies, state->in, channel, number);
}

// Some channels, tap by tap, then the next ones.
static bool find_offsets(Transposed *state) {
    const int64_t all = size_of(state->in, state->conv.window, 1);
    int64_t *next = state->offsets = all > 0 ? malloc((size_t)all * sizeof(int64_t)) : NULL;
    if (!next) return false;
    for (int64_t i = 0; i < state->count; i += state->joined) {
        Phase *phase = state->phase + i;
        phase->offsets = next;
        for (int64_t first = 0; first < state->in; first += state->depth)
            for (const Tap *tap = phase->tap; tap < phase->tap + phase->taps; tap++)
                for (int64_t c = first; c < lesser(first + state->depth, state->in); c++)
                    *next++ = offset_of(state, tap, c);
    }
    return true;
}

// -- weights --------------------------------------------------------------------------------------

// Lines `row` .. row + count - 1 by tap number `tap`, from the weights of some channels.
static void pack_tap(
    const Transposed *state, const Phase *phase, int64_t tap, const float *from, int64_t row,
    int64_t count, int64_t channels, float *to) {
    const int64_t w_in = state->conv.w_in, w_out = state->conv.w_out;
    if (state->joined == 1) {
        const float *first = from + phase->tap[tap].weights + row * w_in;
        ISA(pack_panels)(to, first, w_in, w_out, count, channels, TILE_ROWS);
        return;
    }
    for (int64_t i = 0; i < count; i++, row++) {
        const float *one = from + phase[row % state->joined].tap[tap].weights +
                           row / state->joined * w_in;
        for (int64_t c = 0; c < channels; c++) to[c * TILE_ROWS + i] = one[c * w_out];
    }
}

void ISA(pack_transposed)(const Transposed *state, int64_t number, float *packed) {
    const Conv *conv = &state->conv;
    const int64_t tile = number % state->tiles, all = number / state->tiles;
    const int64_t part = all / bundles(state) % state->parts;
    const int64_t group = all / bundles(state) / state->parts, row = tile * state->rows;
    const int64_t count = lesser(state->rows, rows_of(state, part) - row);
    const Phase *phase = state->phase + all % bundles(state) * state->joined;
    if (count <= 0) return;
    float *to = packed + group * state->packed_group + part * state->packed_part + phase->weights +
                tile * TILE_ROWS * phase->taps * state->in;
    const float *from = conv->w + group * state->in * conv->w_out +
                        part * state->channels * conv->w_in;
    for (int64_t first = 0; first < state->in; first += state->depth) {
        const int64_t channels = lesser(state->depth, state->in - first);
        for (int64_t tap = 0; tap < phase->taps; tap++, to += channels * TILE_ROWS)
            pack_tap(state, phase, tap, from + first * conv->w_out, row, count, channels, to);
    }
}

static bool pack_constant(Transposed *state) {
    const Conv *conv = &state->conv;
    if (!conv->constant) return true;
    const int64_t floats = padded(state->packed_group * conv->groups + 1, 16);
    state->packed = aligned_alloc(64, (size_t)floats * sizeof(float));
    for (int64_t i = 0; state->packed && i < weight_tiles(state); i++)
        ISA(pack_transposed)(state, i, state->packed);
    return state->packed;
}

// -- all of it ------------------------------------------------------------------------------------

bool ISA(plan_transposed)(Transposed *state, Params *params, const Needs *needs) {
    Conv *conv = &state->conv;
    if (!ISA(read_turned_conv)(conv, params) || conv->packed) return false;
    const Tensor bias = maybe_tensor(params);
    state->in = conv->out;
    state->out = conv->in;
    state->input = conv->y;
    if (params->bad || !conv->contiguous || conv->epilogue.row_bias || conv->epilogue.residual ||
        size_of(conv->batch, conv->size[0], conv->size[1] * conv->size[2]) <= 0 ||
        !may_hold(&bias, F32, conv->groups * state->out) || !find_phases(state) ||
        !find_taps(state) || !copies_fit(state))
        return false;
    conv->epilogue.row_bias = (const float *)bias.data;
    join_phases(state);
    choose_blocks(state);
    choose_parts(state, NULL);
    const bool few = rows_of(state, 0) <= FEW_ROWS_OF_WEIGHTS;
    choose_parts(state, needs);
    choose_depth(state, few);
    state->in_place = reads_in_place(state);
    return plan_lines(state) && find_offsets(state) && pack_constant(state);
}

void ISA(release_transposed)(Transposed *state) {
    for (int64_t i = 0; i < state->kinds; i++) ISA(free_copies)(&state->lines[i].copies);
    free(state->lines);
    free(state->taps);
    free(state->offsets);
    free(state->packed);
}
