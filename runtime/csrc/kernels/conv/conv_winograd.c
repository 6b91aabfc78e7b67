// Convolutions that move by one element, by Winograd's algorithm: 3 x 3 by F(4 x 4, 3 x 3), those along
// one axis by F(6, 3) or F(4, 5).
//
// Memory is channels last inside of the kernel: operands that are not are turned before and after.  A
// chunk is a block of tiles of results: its elements are transformed to a matrix [tiles][in] for each
// point, 36 or 8, which stay in the second cache while strips of channels of the result go by.  A strip
// multiplies them by as many matrices of weights, [in][strip], and transforms the products to results.
// Of few blocks all elements are transformed first, and threads share the strips.
//
// More than five taps are divided into parts of four.  A tile has four results, so that the second part
// reads the elements of the next tile as the first one reads its own: rows of a matrix [tiles][in] that
// are `in` apart and `parts` * `in` long.
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
    MOST_TAPS = 32,  // along one axis
};

typedef struct {
    Tiling tiling;
    Image x, y, residual;
    Taps taps;
    bool down;  // taps lie in a column: rows and columns change places
    bool turn_x, turn_y, turn_residual;
    bool
        ends_late;  // what follows is done by whoever turns the result, whose residual lies as it does
    Epilogue epilogue;
    int64_t blocks, strips,
        parts;  // of tiles; of channels of the result; what strips are divided into
    bool early;  // all elements are transformed before
    float *packed;  // constant weights, transformed
} State;

typedef struct {
    const State *state;
    const Run *run;
    Image x, y;
    const float *weights;
    float *elements;  // of all blocks, if they are transformed early
    Image residual;
} Job;

// -- preparing ------------------------------------------------------------------------------------

static int64_t floats(int64_t bytes) { return bytes / (int64_t)sizeof(float); }

static void swap(int64_t *a, int64_t *b) {
    const int64_t kept = *a;
    *a = *b;
    *b = kept;
}

// The same image, with rows for its columns if `down`.
static Image directed(Image image, bool down) {
    if (down) swap(&image.row, &image.column);
    return image;
}

static Image image_of(const Tensor *tensor, bool down) {
    const int64_t *strides = tensor->strides;
    const Image image = {
        (float *)tensor->data, floats(strides[0]), floats(strides[2]), floats(strides[3]),
        floats(strides[1])};
    return directed(image, down);
}

// Whether channels lie side by side; or, if they are to be turned, the pixels of each.
static bool is_laid_out(const Tensor *image, bool turned) {
    const int64_t unit = sizeof(float), *dims = image->dims, *strides = image->strides;
    if (!turned) return strides[1] == unit;
    return (dims[3] == 1 || strides[3] == unit) && (dims[2] == 1 || strides[2] == dims[3] * unit);
}

// What tiles there are for weights of these sizes; says no if there are none.
static bool choose_form(State *state, const Tensor *w) {
    Tiling *tiling = &state->tiling;
    const int64_t rows = w->dims[2], columns = w->dims[3], taps = rows * columns;
    tiling->form = SQUARES;
    tiling->parts = 1;
    if (rows == TAP && columns == TAP) return true;
    if ((rows != 1 && columns != 1) || taps < SHORT_TAPS || taps > MOST_TAPS) return false;
    state->down = columns == 1;
    tiling->form = taps == SHORT_TAPS ? ROWS_OF_SIX : ROWS_OF_FOUR;
    if (taps > LONG_TAPS) tiling->parts = 1 + ceil_div(taps - LONG_TAPS, RESULT);
    return true;
}

// Rows and columns as tiles lie.
static void read_sizes(State *state, const Tensor *x, const Tensor *y) {
    Tiling *tiling = &state->tiling;
    tiling->batch = x->dims[0];
    tiling->in = x->dims[1];
    tiling->out = y->dims[1];
    tiling->height = x->dims[2];
    tiling->width = x->dims[3];
    for (int axis = 0; axis < 2; axis++) tiling->result[axis] = y->dims[2 + axis];
    tiling->wide = padded(tiling->out, PANEL_COLUMNS);
    if (!state->down) return;
    swap(&tiling->height, &tiling->width);
    swap(tiling->result, tiling->result + 1);
    swap(tiling->before, tiling->before + 1);
    swap(tiling->dilation, tiling->dilation + 1);
}

static void read_taps(State *state, const Tensor *w) {
    const int64_t *strides = w->strides;
    state->taps = (Taps){
        (const float *)w->data, floats(strides[0]),      floats(strides[1]), floats(strides[2]),
        floats(strides[3]),     w->dims[2] * w->dims[3], w->packed};
    if (state->down) swap(&state->taps.rows, &state->taps.columns);
}

static bool read_state(State *state, Params *params, bool *constant) {
    Tiling *tiling = &state->tiling;
    const Tensor x = next_tensor(params), w = next_tensor(params), y = next_tensor(params);
    const Tensor bias = maybe_tensor(params), residual = maybe_tensor(params);
    for (int axis = 0; axis < 2; axis++) {
        tiling->dilation[axis] = next_int(params);
        tiling->before[axis] = next_int(params);
    }
    ISA(next_activation)(params, &state->epilogue);
    if (params->bad || x.rank != 4 || !channels_fit(&x, &w, &y, &residual, 1)) return false;
    if (x.dtype != F32 || w.dtype != F32 || y.dtype != F32) return false;
    if (!choose_form(state, &w) || !may_hold(&bias, F32, w.dims[0])) return false;
    read_sizes(state, &x, &y);
    read_taps(state, &w);
    state->x = image_of(&x, state->down);
    state->y = image_of(&y, state->down);
    if (residual.data) state->residual = image_of(&residual, state->down);
    state->turn_x = state->x.channel != 1;
    state->turn_y = state->y.channel != 1;
    if (!is_laid_out(&x, state->turn_x) || !is_laid_out(&y, state->turn_y)) return false;
    const bool apart = residual.data && state->residual.channel != 1;  // channels of the residual
    if (residual.data && !is_laid_out(&residual, apart)) return false;
    state->ends_late = state->turn_y && (apart || !residual.data);
    state->turn_residual = apart && !state->turn_y;
    state->epilogue.row_bias = (const float *)bias.data;
    *constant = w.constant;
    if (w.packed && !is_contiguous(&w)) return false;
    return tiling->in >= LANES && tiling->out > 0 && ISA(divide_image)(tiling);
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
    const int64_t points = tiling->points;
    const double products = (double)(tiling->all_tiles * points) *
                            (double)(depth_of(tiling) * tiling->out);
    const int64_t wanted = chunks_for(needs, products, FEW_CHUNKS);
    state->strips = ceil_div(tiling->out, STRIP);
    int64_t most = CACHED / (points * tiling->in) / TILE_ROWS * TILE_ROWS;
    if (most < 4 * TILE_ROWS) most = 4 * TILE_ROWS;
    if (most > 8 * TILE_ROWS) most = 8 * TILE_ROWS;
    const int64_t shared = lesser(ceil_div(wanted, state->strips), tiling->all_tiles / TILE_ROWS);
    const int64_t blocks = greater(ceil_div(tiling->all_tiles, most), shared);
    tiling->block = padded(ceil_div(tiling->all_tiles, blocks), TILE_ROWS);
    tiling->block = lesser(tiling->block, tiling->all_tiles);
    tiling->elements = apart((tiling->block + tiles_ahead(tiling)) * tiling->in);
    state->blocks = ceil_div(tiling->all_tiles, tiling->block);
    state->parts = lesser(state->strips, ceil_div(wanted, state->blocks));
    state->early = state->parts > 1;
}

static int64_t input_floats(const State *state) {
    const Tiling *tiling = &state->tiling;
    return tiling->batch * tiling->height * tiling->width * tiling->in;
}

static int64_t result_floats(const State *state) {
    const Tiling *tiling = &state->tiling;
    return tiling->batch * tiling->result[0] * tiling->result[1] * tiling->out;
}

// Of images that are turned: the input; and the result, or a residual.
static int64_t turned_input(const State *state) {
    return state->turn_x ? padded(input_floats(state), 16) : 0;
}

static int64_t turned_result(const State *state) {
    return state->turn_y || state->turn_residual ? padded(result_floats(state), 16) : 0;
}

// Of a block.
static int64_t element_floats(const State *state) {
    return state->tiling.points * state->tiling.elements;
}

static int64_t product_floats(const State *state) {
    return state->tiling.points * STRIP * state->tiling.block;
}

static int64_t weight_floats(const State *state) {
    return state->tiling.points * state->tiling.wide * depth_of(&state->tiling);
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
        ISA(transform_panel)(&state->tiling, &state->taps, state->packed, panel);
    choose_blocks(state, needs);
    const int64_t size = sizeof(float);
    needs->shared = (turned_input(state) + turned_result(state) + early_floats(state) +
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

// Some channels of an image, which has its channels last then.
static void turn_image(
    const Image *from, const Image *to, int64_t channels, int64_t pixels, int64_t chunk) {
    const int64_t groups = ceil_div(channels, TURNED);
    const int64_t image = chunk / groups, first = chunk % groups * TURNED;
    turn(
        from->data + image * from->image + first * from->channel, from->channel,
        to->data + image * pixels * channels + first, channels, lesser(channels - first, TURNED),
        pixels);
}

static void turn_input(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Job *job = context;
    const Tiling *tiling = &job->state->tiling;
    turn_image(&job->state->x, &job->x, tiling->in, tiling->height * tiling->width, chunk);
}

static void turn_residual(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Job *job = context;
    const Tiling *tiling = &job->state->tiling;
    const int64_t pixels = tiling->result[0] * tiling->result[1];
    turn_image(&job->state->residual, &job->residual, tiling->out, pixels, chunk);
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
    Epilogue epilogue = {0};
    if (state->ends_late) epilogue = state->epilogue;
    if (state->ends_late && state->residual.data) {
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
    ISA(transform_panel)(&job->state->tiling, &job->state->taps, (float *)job->weights, chunk);
}

// Some tiles of a block.
static void transform_early(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Job *job = context;
    const Tiling *tiling = &job->state->tiling;
    const int64_t first = chunk * TILE_ROWS, end = lesser(first + TILE_ROWS, tiling->all_tiles);
    float *elements = job->elements + first / tiling->block * element_floats(job->state);
    // Blocks are of whole panels of rows: none ends within these.
    const bool last = end % tiling->block == 0 || end == tiling->all_tiles;
    const int64_t count = end - first + (last ? tiles_ahead(tiling) : 0);
    ISA(transform_elements)(tiling, &job->x, first, count, elements, first % tiling->block);
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
    if (!state->ends_late) {
        strip.residual = job->residual;
        strip.bias = state->epilogue.row_bias;
        strip.limits = limits_of(&state->epilogue);
    }
    if (!state->early) {
        const int64_t count = strip.count + tiles_ahead(tiling);
        ISA(transform_elements)(tiling, &job->x, strip.first, count, own, 0);
    }
    const int64_t last = state->strips * (part + 1) / state->parts;
    for (int64_t i = state->strips * part / state->parts; i < last && !pool_is_stopped(); i++)
        ISA(make_strip)(&strip, i * STRIP);
}

static Failure run_winograd(const void *argument, const Run *run) {
    const State *state = argument;
    const Tiling *tiling = &state->tiling;
    const int64_t *result = tiling->result;
    const int64_t size[] = {
        state->down ? tiling->width : tiling->height, state->down ? tiling->height : tiling->width};
    const int64_t turned[] = {result[state->down ? 1 : 0], result[state->down ? 0 : 1]};
    float *turned_x = (float *)run->shared;
    float *turned_y = turned_x + turned_input(state);
    float *elements = turned_y + turned_result(state);
    float *weights = elements + early_floats(state);
    Job job = {
        state,          run, state->x, state->y, state->packed ? state->packed : weights, elements,
        state->residual};
    if (!state->packed) share_chunks(run, tiling->wide / PANEL_COLUMNS, transform_weights, &job);
    if (state->turn_x) {
        job.x = directed(channels_last(turned_x, size, tiling->in), state->down);
        share_chunks(run, tiling->batch * ceil_div(tiling->in, TURNED), turn_input, &job);
    }
    const Image aside = directed(channels_last(turned_y, turned, tiling->out), state->down);
    const int64_t outs = tiling->batch * ceil_div(tiling->out, TURNED);
    if (state->turn_y) job.y = aside;
    if (state->turn_residual) {
        job.residual = aside;
        share_chunks(run, outs, turn_residual, &job);
    }
    if (state->early)
        share_chunks(run, ceil_div(tiling->all_tiles, TILE_ROWS), transform_early, &job);
    share_chunks(run, state->blocks * state->parts, convolve, &job);
    if (state->turn_y) share_chunks(run, outs, turn_result, &job);
    return OK;
}

const Kernel ISA(WINOGRAD)[] = {
    {"WinogradConv_f32", prepare, run_winograd, release},
    {NULL, NULL, NULL, NULL},
};
