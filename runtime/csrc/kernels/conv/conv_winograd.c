// Convolutions 3 x 3 that move by one element, by Winograd's F(4 x 4, 3 x 3).
//
// Memory is channels last inside of the kernel: operands that are not are turned before and after.  A
// chunk is a block of tiles of 4 x 4 results: its elements are transformed to 36 matrices [tiles][in],
// which stay in the second cache while strips of channels of the result go by.  A strip multiplies
// them by 36 matrices of weights, [in][strip], and transforms the products to results.  Of few blocks
// all elements are transformed first, and threads share the strips.
#include <math.h>
#include <stdlib.h>

#include "../support/chunks.h"
#include "../support/fits.h"
#include "../matmul/gemm.h"
#include "../support/squares.h"
#include "winograd_tiles.h"

enum {
    CACHED = 1 << 16,  // floats of the elements of a block: half of the second cache of Zen 3
    FEW_CHUNKS = 4,  // that a few threads do not share evenly
};

typedef struct {
    Tiling tiling;
    Image x, y, residual;
    const float *w;
    int64_t w_strides[4];  // in floats
    bool turn_x, turn_y;
    Epilogue epilogue;
    int64_t blocks, strips,
        parts;  // of tiles; of channels of the result; what strips are divided into
    bool early;  // all elements are transformed before
    bool in_panels;  // the weights (format/panels.py)
    float *packed;  // constant weights, transformed
} State;

typedef struct {
    const State *state;
    const Run *run;
    Image x, y;
    const float *weights;
    float *elements;  // of all blocks, if they are transformed early
} Job;

// -- preparing ------------------------------------------------------------------------------------

static Image image_of(const Tensor *tensor) {
    const int64_t unit = sizeof(float);
    return (Image){
        (float *)tensor->data, tensor->strides[0] / unit, tensor->strides[2] / unit,
        tensor->strides[3] / unit, tensor->strides[1] / unit};
}

// Whether channels lie side by side; or, if they are to be turned, the pixels of each.
static bool is_laid_out(const Tensor *image, bool turned) {
    const int64_t unit = sizeof(float), *dims = image->dims, *strides = image->strides;
    if (!turned) return strides[1] == unit;
    return (dims[3] == 1 || strides[3] == unit) && (dims[2] == 1 || strides[2] == dims[3] * unit);
}

static bool read_operands(State *state, Params *params, bool *constant) {
    Tiling *tiling = &state->tiling;
    const Tensor x = next_tensor(params), w = next_tensor(params), y = next_tensor(params);
    const Tensor bias = maybe_tensor(params), residual = maybe_tensor(params);
    for (int axis = 0; axis < 2; axis++) tiling->before[axis] = next_int(params);
    ISA(next_activation)(params, &state->epilogue);
    if (params->bad || x.rank != 4 || !channels_fit(&x, &w, &y, &residual, 1)) return false;
    if (x.dtype != F32 || w.dtype != F32 || y.dtype != F32) return false;
    if (w.dims[2] != TAP || w.dims[3] != TAP || !may_hold(&bias, F32, w.dims[0])) return false;
    tiling->batch = x.dims[0];
    tiling->in = x.dims[1];
    tiling->out = y.dims[1];
    tiling->height = x.dims[2];
    tiling->width = x.dims[3];
    for (int axis = 0; axis < 2; axis++) tiling->result[axis] = y.dims[2 + axis];
    state->x = image_of(&x);
    state->y = image_of(&y);
    if (residual.data) state->residual = image_of(&residual);
    state->turn_x = state->x.channel != 1;
    state->turn_y = state->y.channel != 1;
    if (!is_laid_out(&x, state->turn_x) || !is_laid_out(&y, state->turn_y)) return false;
    if (residual.data && !is_laid_out(&residual, state->turn_y)) return false;
    state->w = (const float *)w.data;
    for (int axis = 0; axis < 4; axis++)
        state->w_strides[axis] = w.strides[axis] / (int64_t)sizeof(float);
    state->epilogue.row_bias = (const float *)bias.data;
    *constant = w.constant;
    state->in_panels = w.packed;
    return is_contiguous(&w) || !w.packed;
}

static bool read_state(State *state, Params *params, bool *constant) {
    Tiling *tiling = &state->tiling;
    if (!read_operands(state, params, constant)) return false;
    tiling->all_tiles = tiling->batch;
    for (int axis = 0; axis < 2; axis++) {
        const int64_t before = tiling->before[axis];
        if (before < -INT32_MAX || before > INT32_MAX) return false;
        tiling->tiles[axis] = ceil_div(tiling->result[axis], RESULT);
        tiling->all_tiles *= tiling->tiles[axis];
    }
    tiling->wide = padded(tiling->out, PANEL_COLUMNS);
    return tiling->in >= LANES && tiling->all_tiles > 0 && tiling->out > 0;
}

// A vector of the taps of `count` output channels from `first` on, zeros beyond them.
static void load_taps(
    const State *state, int64_t first, int64_t count, int64_t channel, Floats *taps) {
    if (state->in_panels) {  // [panel][tap][in][PANEL_COLUMNS]
        const int64_t column = first % PANEL_COLUMNS, lines = TAP * TAP * state->tiling.in;
        const float *w = state->w + (first - column) * lines + channel * PANEL_COLUMNS + column;
        for (int tap = 0; tap < TAP * TAP; tap++)
            taps[tap] = load(w + tap * state->tiling.in * PANEL_COLUMNS);
        return;
    }
    const int64_t *strides = state->w_strides;
    for (int tap = 0; tap < TAP * TAP; tap++) taps[tap] = (Floats){0};
    for (int lane = 0; lane < LANES && lane < count; lane++) {
        const float *w = state->w + (first + lane) * strides[0] + channel * strides[1];
        for (int i = 0; i < TAP; i++)
            for (int j = 0; j < TAP; j++)
                taps[i * TAP + j][lane] = w[i * strides[2] + j * strides[3]];
    }
}

// The weights of a panel of output channels: [point][panel][in][PANEL_COLUMNS].
static void transform_panel(const State *state, float *to, int64_t panel) {
    const int64_t first = panel * PANEL_COLUMNS, point = state->tiling.wide * state->tiling.in;
    to += first * state->tiling.in;
    for (int64_t channel = 0; channel < state->tiling.in; channel++, to += PANEL_COLUMNS)
        for (int part = 0; part < PANEL_COLUMNS; part += LANES) {
            Floats taps[TAP * TAP], lines[SPAN * TAP], points[POINTS];
            load_taps(state, first + part, state->tiling.out - first - part, channel, taps);
            for (int i = 0; i < TAP; i++) transform_weight_line(taps + i, TAP, lines + i, TAP);
            for (int i = 0; i < SPAN; i++)
                transform_weight_line(lines + i * TAP, 1, points + i * SPAN, 1);
            for (int i = 0; i < POINTS; i++) store(to + i * point + part, points[i]);
        }
}

static void release(void *argument) {
    State *state = argument;
    free(state->packed);
    free((float *)state->tiling.nothing);
    free(state);
}

// Threads get blocks of equal size, whole panels of rows as far as there are enough tiles, and share
// their strips where there are few.
static void choose_blocks(State *state, const Needs *needs) {
    Tiling *tiling = &state->tiling;
    const double products = (double)tiling->all_tiles * POINTS * (double)(tiling->in * tiling->out);
    const int64_t wanted = chunks_for(needs, products, FEW_CHUNKS);
    state->strips = ceil_div(tiling->out, STRIP);
    int64_t most = CACHED / (POINTS * tiling->in) / TILE_ROWS * TILE_ROWS;
    if (most < 4 * TILE_ROWS) most = 4 * TILE_ROWS;
    if (most > 8 * TILE_ROWS) most = 8 * TILE_ROWS;
    const int64_t shared = lesser(ceil_div(wanted, state->strips), tiling->all_tiles / TILE_ROWS);
    const int64_t blocks = greater(ceil_div(tiling->all_tiles, most), shared);
    tiling->block = padded(ceil_div(tiling->all_tiles, blocks), TILE_ROWS);
    tiling->block = lesser(tiling->block, tiling->all_tiles);
    tiling->elements = apart(tiling->block * tiling->in);
    state->blocks = ceil_div(tiling->all_tiles, tiling->block);
    state->parts = lesser(state->strips, ceil_div(wanted, state->blocks));
    state->early = state->parts > 1;
}

static int64_t turned_floats(const State *state, bool input) {
    const Tiling *tiling = &state->tiling;
    if (input)
        return state->turn_x ? tiling->batch * tiling->height * tiling->width * tiling->in : 0;
    return state->turn_y ? tiling->batch * tiling->result[0] * tiling->result[1] * tiling->out : 0;
}

// Of a block.
static int64_t element_floats(const State *state) { return POINTS * state->tiling.elements; }
static int64_t product_floats(const State *state) { return POINTS * STRIP * state->tiling.block; }

static int64_t weight_floats(const State *state) {
    return POINTS * state->tiling.wide * state->tiling.in;
}

// Of elements that are made before all products.
static int64_t early_floats(const State *state) {
    return state->early ? state->blocks * element_floats(state) : 0;
}

static void *prepare(Params *params, Needs *needs) {
    State *state = calloc(1, sizeof(State));
    if (!state) return NULL;
    bool constant = false;
    if (!read_state(state, params, &constant)) {
        release(state);
        return NULL;
    }
    state->tiling.nothing = calloc((size_t)state->tiling.in, sizeof(float));
    if (constant) state->packed = aligned_alloc(64, (size_t)weight_floats(state) * sizeof(float));
    if (!state->tiling.nothing || (constant && !state->packed)) {
        release(state);
        return NULL;
    }
    for (int64_t panel = 0; constant && panel < state->tiling.wide / PANEL_COLUMNS; panel++)
        transform_panel(state, state->packed, panel);
    choose_blocks(state, needs);
    const int64_t size = sizeof(float);
    needs->shared = (padded(turned_floats(state, true), 16) +
                     padded(turned_floats(state, false), 16) + early_floats(state) +
                     (constant ? 0 : weight_floats(state))) *
                    size;
    needs->own = (product_floats(state) + (state->early ? 0 : element_floats(state))) * size;
    reads_anywhere(needs, &state->x.data);
    reads_anywhere(needs, &state->residual.data);
    writes_anywhere(needs, &state->y.data);
    return state;
}

// -- turning --------------------------------------------------------------------------------------

enum { TURNED = 16 };  // channels of a chunk: a line of the cache

static void turn_input(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Job *job = context;
    const State *state = job->state;
    const int64_t groups = ceil_div(state->tiling.in, TURNED);
    const int64_t image = chunk / groups, first = chunk % groups * TURNED;
    const int64_t count = state->tiling.in - first < TURNED ? state->tiling.in - first : TURNED;
    const int64_t pixels = state->tiling.height * state->tiling.width;
    turn(
        state->x.data + image * state->x.image + first * state->x.channel, state->x.channel,
        job->x.data + image * pixels * state->tiling.in + first, state->tiling.in, count, pixels);
}

static void turn_result(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Job *job = context;
    const State *state = job->state;
    const int64_t groups = ceil_div(state->tiling.out, TURNED);
    const int64_t image = chunk / groups, first = chunk % groups * TURNED;
    const int64_t count = state->tiling.out - first < TURNED ? state->tiling.out - first : TURNED;
    const int64_t pixels = state->tiling.result[0] * state->tiling.result[1];
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
            job->y.data + (image * pixels + pixel) * state->tiling.out + first, state->tiling.out,
            part, 64, width, count);
        ISA(finish)(&epilogue, (Place){part, 64, first, pixel}, count, width);
        for (int64_t i = 0; i < count; i++)
            copy_floats(y + i * state->y.channel + pixel, part + i * 64, width);
    }
}

// -- running --------------------------------------------------------------------------------------

static void transform_weights(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Job *job = context;
    transform_panel(job->state, (float *)job->weights, chunk);
}

// Some tiles of a block.
static void transform_early(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Job *job = context;
    const Tiling *tiling = &job->state->tiling;
    const int64_t first = chunk * TILE_ROWS, end = lesser(first + TILE_ROWS, tiling->all_tiles);
    float *elements = job->elements + first / tiling->block * element_floats(job->state);
    // Blocks are of whole panels of rows: none ends within these.
    ISA(transform_elements)(tiling, &job->x, first, end - first, elements, first % tiling->block);
}

static void convolve(void *context, int64_t chunk, int thread) {
    const Job *job = context;
    const State *state = job->state;
    const Tiling *tiling = &state->tiling;
    const int64_t block = chunk / state->parts, part = chunk % state->parts;
    float *products = (float *)job->run->own[thread], *own = products + product_floats(state);
    Strip strip = {
        .tiling = tiling,
        .elements = state->early ? job->elements + block * element_floats(state) : own,
        .weights = job->weights,
        .products = products,
        .first = block * tiling->block,
        .y = job->y,
        .epilogue = &state->epilogue,
        .limits = {false, -INFINITY, INFINITY, NULL, false},
    };
    strip.count = lesser(tiling->all_tiles - strip.first, tiling->block);
    if (!state->turn_y) {  // else what follows is done by whoever turns it
        strip.residual = state->residual;
        strip.bias = state->epilogue.row_bias;
        strip.limits = limits_of(&state->epilogue);
    }
    if (!state->early) ISA(transform_elements)(tiling, &job->x, strip.first, strip.count, own, 0);
    const int64_t last = state->strips * (part + 1) / state->parts;
    for (int64_t i = state->strips * part / state->parts; i < last && !pool_is_stopped(); i++)
        ISA(make_strip)(&strip, i * STRIP);
}

static Failure run_winograd(const void *argument, const Run *run) {
    const State *state = argument;
    const Tiling *tiling = &state->tiling;
    const int64_t size[] = {tiling->height, tiling->width};
    float *turned_x = (float *)run->shared;
    float *turned_y = turned_x + padded(turned_floats(state, true), 16);
    float *elements = turned_y + padded(turned_floats(state, false), 16);
    float *weights = elements + early_floats(state);
    Job job = {state, run, state->x, state->y, state->packed ? state->packed : weights, elements};
    if (!state->packed) share_chunks(run, tiling->wide / PANEL_COLUMNS, transform_weights, &job);
    if (state->turn_x) {
        job.x = channels_last(turned_x, size, tiling->in);
        share_chunks(run, tiling->batch * ceil_div(tiling->in, TURNED), turn_input, &job);
    }
    if (state->turn_y) job.y = channels_last(turned_y, tiling->result, tiling->out);
    if (state->early)
        share_chunks(run, ceil_div(tiling->all_tiles, TILE_ROWS), transform_early, &job);
    share_chunks(run, state->blocks * state->parts, convolve, &job);
    if (state->turn_y)
        share_chunks(run, tiling->batch * ceil_div(tiling->out, TURNED), turn_result, &job);
    return OK;
}

const Kernel ISA(WINOGRAD)[] = {
    {"WinogradConv_f32", prepare, run_winograd, release},
    {NULL, NULL, NULL, NULL},
};
