// Convolutions 3 x 3 that move by one element, by Winograd's F(4 x 4, 3 x 3).
//
// Memory is channels last inside of the kernel: operands that are not are turned before and after.  A
// chunk is a block of tiles of 4 x 4 results: its elements are transformed to 36 matrices [tiles][in],
// which are multiplied by 36 matrices of weights, [in][out], and the products transformed to results.
// All of that stays in the second cache.
#include <stdlib.h>
#include <string.h>

#include "../support/fits.h"
#include "../matmul/gemm.h"
#include "../support/squares.h"
#include "winograd.h"

enum { CACHED = 1 << 18 };  // floats of a block, before and after the products

// An image in memory: [batch][rows][columns][channels], distances in floats.
typedef struct {
    float *data;
    int64_t image, row, column, channel;
} Image;

typedef struct {
    int64_t batch, in, out, height, width;  // of the input
    int64_t before[2], result[2], tiles[2];
    Image x, y, residual;
    const float *w;
    bool turn_x, turn_y;
    Epilogue epilogue;
    int64_t all_tiles, block, wide;  // tiles; tiles of a chunk; `out`, padded
    bool in_panels;  // the weights (format/panels.py)
    float *packed;  // constant weights, transformed
    float *nothing;  // zeros: what lies outside of an image
} State;

typedef struct {
    const State *state;
    const Run *run;
    Image x, y;
    const float *weights;
} Job;

// -- preparing ------------------------------------------------------------------------------------

static Image image_of(const Tensor *tensor) {
    const int64_t unit = sizeof(float);
    return (Image){
        (float *)tensor->data, tensor->strides[0] / unit, tensor->strides[2] / unit,
        tensor->strides[3] / unit, tensor->strides[1] / unit};
}

static Image channels_last(float *data, const int64_t *size, int64_t channels) {
    return (Image){data, size[0] * size[1] * channels, size[1] * channels, channels, 1};
}

// Whether channels lie side by side; or, if they are to be turned, the pixels of each.
static bool is_laid_out(const Tensor *image, bool turned) {
    const int64_t unit = sizeof(float), *dims = image->dims, *strides = image->strides;
    if (!turned) return strides[1] == unit;
    return (dims[3] == 1 || strides[3] == unit) && (dims[2] == 1 || strides[2] == dims[3] * unit);
}

static bool read_state(State *state, Params *params, bool *constant) {
    const Tensor x = next_tensor(params), w = next_tensor(params), y = next_tensor(params);
    const Tensor bias = maybe_tensor(params), residual = maybe_tensor(params);
    for (int axis = 0; axis < 2; axis++) state->before[axis] = next_int(params);
    ISA(next_activation)(params, &state->epilogue);
    if (params->bad || x.rank != 4 || !channels_fit(&x, &w, &y, &residual, 1)) return false;
    if (x.dtype != F32 || w.dtype != F32 || y.dtype != F32) return false;
    if (w.dims[2] != TAP || w.dims[3] != TAP || !may_hold(&bias, F32, w.dims[0])) return false;
    state->batch = x.dims[0];
    state->in = x.dims[1];
    state->out = y.dims[1];
    state->height = x.dims[2];
    state->width = x.dims[3];
    state->x = image_of(&x);
    state->y = image_of(&y);
    if (residual.data) state->residual = image_of(&residual);
    state->turn_x = state->x.channel != 1;
    state->turn_y = state->y.channel != 1;
    if (!is_laid_out(&x, state->turn_x) || !is_laid_out(&y, state->turn_y)) return false;
    if (residual.data && !is_laid_out(&residual, state->turn_y)) return false;
    state->w = (const float *)w.data;
    state->epilogue.row_bias = (const float *)bias.data;
    *constant = w.constant;
    state->in_panels = w.packed;
    state->all_tiles = state->batch;
    for (int axis = 0; axis < 2; axis++) {
        const int64_t before = state->before[axis];
        if (before < -INT32_MAX || before > INT32_MAX) return false;
        state->result[axis] = y.dims[2 + axis];
        state->tiles[axis] = ceil_div(state->result[axis], RESULT);
        state->all_tiles *= state->tiles[axis];
    }
    return state->in >= LANES && state->all_tiles > 0 && is_contiguous(&w);
}

// A vector of the taps of `count` output channels from `first` on, zeros beyond them.
static void load_taps(
    const State *state, int64_t first, int64_t count, int64_t channel, Floats *taps) {
    if (state->in_panels) {  // [panel][tap][in][PANEL_COLUMNS]
        const int64_t column = first % PANEL_COLUMNS, lines = TAP * TAP * state->in;
        const float *w = state->w + (first - column) * lines + channel * PANEL_COLUMNS + column;
        for (int tap = 0; tap < TAP * TAP; tap++)
            taps[tap] = load(w + tap * state->in * PANEL_COLUMNS);
        return;
    }
    for (int tap = 0; tap < TAP * TAP; tap++) taps[tap] = (Floats){0};
    for (int lane = 0; lane < LANES && lane < count; lane++) {
        const float *w = state->w + ((first + lane) * state->in + channel) * TAP * TAP;
        for (int tap = 0; tap < TAP * TAP; tap++) taps[tap][lane] = w[tap];
    }
}

// The weights of a panel of output channels: [point][panel][in][PANEL_COLUMNS].
static void transform_panel(const State *state, float *to, int64_t panel) {
    const int64_t first = panel * PANEL_COLUMNS, point = state->wide * state->in;
    to += first * state->in;
    for (int64_t channel = 0; channel < state->in; channel++, to += PANEL_COLUMNS)
        for (int part = 0; part < PANEL_COLUMNS; part += LANES) {
            Floats taps[TAP * TAP], lines[SPAN * TAP], points[POINTS];
            load_taps(state, first + part, state->out - first - part, channel, taps);
            for (int i = 0; i < TAP; i++) transform_weight_line(taps + i, TAP, lines + i, TAP);
            for (int i = 0; i < SPAN; i++)
                transform_weight_line(lines + i * TAP, 1, points + i * SPAN, 1);
            for (int i = 0; i < POINTS; i++) store(to + i * point + part, points[i]);
        }
}

static void release(void *argument) {
    State *state = argument;
    free(state->packed);
    free(state->nothing);
    free(state);
}

// Threads get blocks of equal size, whole panels of rows as far as there are enough tiles.
static void choose_block(State *state) {
    int64_t most = CACHED / (POINTS * (state->in + state->wide)) / TILE_ROWS * TILE_ROWS;
    if (most < 2 * TILE_ROWS) most = 2 * TILE_ROWS;
    if (most > 8 * TILE_ROWS) most = 8 * TILE_ROWS;
    const int64_t chunks = ceil_div(state->all_tiles, most);
    state->block = padded(ceil_div(state->all_tiles, chunks), TILE_ROWS);
    if (state->block > state->all_tiles) state->block = state->all_tiles;
}

static int64_t turned_floats(const State *state, bool input) {
    if (input) return state->turn_x ? state->batch * state->height * state->width * state->in : 0;
    return state->turn_y ? state->batch * state->result[0] * state->result[1] * state->out : 0;
}

// Of a thread: elements of a panel, transformed ones in panels, products, results of a tile.
static int64_t packed_floats(const State *state) {
    return POINTS * padded(state->block, TILE_ROWS) * state->in;
}
static int64_t product_floats(const State *state) { return POINTS * state->block * state->wide; }
static int64_t line_floats(const State *state) {
    return padded(POINTS * TILE_ROWS * state->in, 16);
}

static void *prepare(Params *params, Needs *needs) {
    State *state = calloc(1, sizeof(State));
    if (!state) return NULL;
    bool constant = false;
    if (!read_state(state, params, &constant)) {
        release(state);
        return NULL;
    }
    state->wide = padded(state->out, PANEL_COLUMNS);
    const int64_t weights = POINTS * state->wide * state->in;
    state->nothing = calloc((size_t)state->in, sizeof(float));
    if (constant) state->packed = aligned_alloc(64, (size_t)weights * sizeof(float));
    if (!state->nothing || (constant && !state->packed)) {
        release(state);
        return NULL;
    }
    for (int64_t panel = 0; constant && panel < state->wide / PANEL_COLUMNS; panel++)
        transform_panel(state, state->packed, panel);
    choose_block(state);
    const int64_t size = sizeof(float);
    needs->shared = (padded(turned_floats(state, true), 16) +
                     padded(turned_floats(state, false), 16) + (constant ? 0 : weights)) *
                    size;
    needs->own = (line_floats(state) + padded(packed_floats(state), 16) + product_floats(state) +
                  RESULT * RESULT * state->wide) *
                 size;
    return state;
}

// -- turning --------------------------------------------------------------------------------------

enum { TURNED = 16 };  // channels of a chunk: a line of the cache

static void turn_input(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Job *job = context;
    const State *state = job->state;
    const int64_t groups = ceil_div(state->in, TURNED);
    const int64_t image = chunk / groups, first = chunk % groups * TURNED;
    const int64_t count = state->in - first < TURNED ? state->in - first : TURNED;
    const int64_t pixels = state->height * state->width;
    turn(
        state->x.data + image * state->x.image + first * state->x.channel, state->x.channel,
        job->x.data + image * pixels * state->in + first, state->in, count, pixels);
}

static void turn_result(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Job *job = context;
    const State *state = job->state;
    const int64_t groups = ceil_div(state->out, TURNED);
    const int64_t image = chunk / groups, first = chunk % groups * TURNED;
    const int64_t count = state->out - first < TURNED ? state->out - first : TURNED;
    const int64_t pixels = state->result[0] * state->result[1];
    float *y = state->y.data + image * state->y.image + first * state->y.channel;
    Epilogue epilogue = state->epilogue;
    if (state->residual.data) {
        epilogue.residual = state->residual.data + image * state->residual.image;
        epilogue.residual_row = state->residual.channel;
    }
    // The residual may lie where the result does.
    float part[TURNED * 64];
    for (int64_t pixel = 0; pixel < pixels; pixel += 64) {
        const int64_t width = pixels - pixel < 64 ? pixels - pixel : 64;
        turn(
            job->y.data + (image * pixels + pixel) * state->out + first, state->out, part, 64,
            width, count);
        ISA(finish)(&epilogue, (Place){part, 64, first, pixel}, count, width);
        for (int64_t i = 0; i < count; i++)
            copy_floats(y + i * state->y.channel + pixel, part + i * 64, width);
    }
}

// -- running --------------------------------------------------------------------------------------

typedef struct {
    int64_t image, row, column;  // of its first result
} Tile;

static Tile find_tile(const State *state, int64_t tile) {
    const int64_t lines = tile / state->tiles[1];
    return (Tile){
        lines / state->tiles[0], lines % state->tiles[0] * RESULT, tile % state->tiles[1] * RESULT};
}

static void transform_weights(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Job *job = context;
    transform_panel(job->state, (float *)job->weights, chunk);
}

INLINE void transform_some(const float *const *from, int64_t channel, float *to, int64_t point) {
    Floats d[POINTS];
#pragma GCC unroll 6
    for (int i = 0; i < SPAN; i++) {
        for (int j = 0; j < SPAN; j++) d[i * SPAN + j] = load(from[i * SPAN + j] + channel);
    }
    Floats lines[POINTS];
#pragma GCC unroll 6
    for (int j = 0; j < SPAN; j++) transform_input_line(d + j, lines + j, SPAN);
#pragma GCC unroll 6
    for (int i = 0; i < SPAN; i++) {
        Floats points[SPAN];
        transform_input_line(lines + i * SPAN, points, 1);
        for (int j = 0; j < SPAN; j++) store(to + (i * SPAN + j) * point + channel, points[j]);
    }
}

// The elements of a tile to one row of each of 36 matrices, `point` apart.
static void transform_tile(const Job *job, int64_t number, float *to, int64_t point) {
    const State *state = job->state;
    const Tile tile = find_tile(state, number);
    const float *from[POINTS];
    for (int i = 0; i < POINTS; i++) {
        const int64_t row = tile.row + i / SPAN - state->before[0];
        const int64_t column = tile.column + i % SPAN - state->before[1];
        const bool inside = row >= 0 && row < state->height && column >= 0 && column < state->width;
        from[i] = inside ? job->x.data + tile.image * job->x.image + row * job->x.row +
                               column * job->x.column
                         : state->nothing;
    }
    int64_t channel = 0;
    for (; channel + LANES <= state->in; channel += LANES) transform_some(from, channel, to, point);
    if (channel < state->in) transform_some(from, state->in - LANES, to, point);
}

// Results of a tile, all channels: [RESULT][RESULT][wide].
static void transform_products(const State *state, const float *products, float *results) {
    const int64_t point = state->block * state->wide;
    for (int64_t channel = 0; channel < state->out; channel += LANES) {
        Floats lines[RESULT * SPAN], m[POINTS];
#pragma GCC unroll 6
        for (int i = 0; i < POINTS; i++) m[i] = load(products + i * point + channel);
#pragma GCC unroll 6
        for (int j = 0; j < SPAN; j++) transform_result_line(m + j, SPAN, lines + j, SPAN);
#pragma GCC unroll 4
        for (int i = 0; i < RESULT; i++) {
            Floats line[RESULT];
            transform_result_line(lines + i * SPAN, 1, line, 1);
            for (int j = 0; j < RESULT; j++)
                store(results + (i * RESULT + j) * state->wide + channel, line[j]);
        }
    }
}

static void write_tile(const Job *job, int64_t number, float *results) {
    const State *state = job->state;
    const Tile tile = find_tile(state, number);
    const int64_t rest = state->result[1] - tile.column, columns = rest < RESULT ? rest : RESULT;
    Epilogue epilogue = state->epilogue;
    epilogue.column_bias = epilogue.row_bias;
    epilogue.row_bias = NULL;
    for (int64_t i = 0; i < RESULT && tile.row + i < state->result[0]; i++) {
        float *line = results + i * RESULT * state->wide;
        float *y = job->y.data + tile.image * job->y.image + (tile.row + i) * job->y.row +
                   tile.column * job->y.column;
        if (state->residual.data) {
            epilogue.residual = state->residual.data + tile.image * state->residual.image +
                                (tile.row + i) * state->residual.row +
                                tile.column * state->residual.column;
            epilogue.residual_row = state->residual.column;
        }
        const Place place = {line, state->wide, 0, 0};
        if (!state->turn_y) ISA(finish)(&epilogue, place, columns, state->out);
        for (int64_t j = 0; j < columns; j++)
            copy_floats(y + j * job->y.column, line + j * state->wide, state->out);
    }
}

static void multiply_points(const Job *job, const float *left, float *products, int64_t tiles) {
    const State *state = job->state;
    const int64_t panels = padded(state->block, TILE_ROWS) * state->in;
    for (int64_t i = 0; i < POINTS; i++) {
        const Place out = {products + i * state->block * state->wide, state->wide, 0, 0};
        ISA(multiply_panels)(
            left + i * panels, job->weights + i * state->wide * state->in, state->in, out, tiles,
            state->wide, NULL);
    }
}

static void convolve(void *context, int64_t chunk, int thread) {
    const Job *job = context;
    const State *state = job->state;
    const int64_t first = chunk * state->block, rest = state->all_tiles - first;
    const int64_t tiles = rest < state->block ? rest : state->block;
    float *lines = (float *)job->run->own[thread];
    float *left = lines + line_floats(state);
    float *products = left + padded(packed_floats(state), 16);
    float *results = products + product_floats(state);
    const int64_t point = TILE_ROWS * state->in,
                  panels = padded(state->block, TILE_ROWS) * state->in;
    for (int64_t i = 0; i < tiles; i += TILE_ROWS) {
        const int64_t count = tiles - i < TILE_ROWS ? tiles - i : TILE_ROWS;
        for (int64_t j = 0; j < count; j++)
            transform_tile(job, first + i + j, lines + j * state->in, point);
        for (int64_t p = 0; p < POINTS; p++)
            ISA(pack_panels)(
                left + p * panels + i * state->in, lines + p * point, state->in, 1, count,
                state->in, TILE_ROWS);
    }
    multiply_points(job, left, products, tiles);
    for (int64_t i = 0; i < tiles; i++) {
        transform_products(state, products + i * state->wide, results);
        write_tile(job, first + i, results);
    }
}

static Failure run_winograd(const void *argument, const Run *run) {
    const State *state = argument;
    const int64_t size[] = {state->height, state->width};
    float *turned_x = (float *)run->shared;
    float *turned_y = turned_x + padded(turned_floats(state, true), 16);
    float *weights = turned_y + padded(turned_floats(state, false), 16);
    Job job = {state, run, state->x, state->y, state->packed ? state->packed : weights};
    if (!state->packed) share_chunks(run, state->wide / PANEL_COLUMNS, transform_weights, &job);
    if (state->turn_x) {
        job.x = channels_last(turned_x, size, state->in);
        share_chunks(run, state->batch * ceil_div(state->in, TURNED), turn_input, &job);
    }
    if (state->turn_y) job.y = channels_last(turned_y, state->result, state->out);
    share_chunks(run, ceil_div(state->all_tiles, state->block), convolve, &job);
    if (state->turn_y)
        share_chunks(run, state->batch * ceil_div(state->out, TURNED), turn_result, &job);
    return OK;
}

const Kernel ISA(WINOGRAD)[] = {
    {"WinogradConv_f32", prepare, run_winograd, release},
    {NULL, NULL, NULL, NULL},
};
