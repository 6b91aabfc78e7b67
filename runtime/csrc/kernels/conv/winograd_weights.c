// The gradient of the weights of convolutions 3 x 3 that move by one element, by Winograd's algorithm:
// what the sums of F(4 x 4, 3 x 3) are linear in.
//
// Tiles of 6 x 6 elements and of 4 x 4 gradients of the result are transformed to 36 matrices each,
// [tiles][in] and panels [tiles][out]; 36 products add them up over tiles, and are transformed to 3 x 3
// weights.  That is a quarter of the products.  Many tiles are done in groups.
#include <stdlib.h>
#include <string.h>

#include "../support/fits.h"
#include "../matmul/gemm.h"
#include "../support/squares.h"
#include "winograd_tiles.h"

enum {
    GROUP = 256,  // tiles whose matrices are there at once
    BLOCK_PANELS = 4,  // of gradients, whose sums stay in the second cache: 220 KiB with AVX-512
    TURNED = 16,  // channels of a chunk: a line of the cache
    FEW_TILES = 8,  // of a chunk
};

typedef struct {
    Tiling tiling;
    Image x, dy;
    bool turn_x, turn_dy;  // channels do not lie side by side
    float *w;
    int64_t rows, panels;  // of channels of the gradient that are multiplied at once
    int64_t strips, blocks;  // of channels of the input, and of panels
    int64_t group, groups;  // of tiles
    int64_t *offsets;  // of tiles in a matrix
} State;

typedef struct {
    const State *state;
    const Run *run;
    Image x, dy;
    float *elements, *left, *sums;
    int64_t first, count;  // tiles of this group
} Job;

// -- preparing ------------------------------------------------------------------------------------

static void release(void *argument) {
    State *state = argument;
    free(state->offsets);
    free((float *)state->tiling.nothing);
    free(state);
}

static bool read_image(Image *image, bool *turned, const Tensor *tensor) {
    const int64_t unit = sizeof(float), *dims = tensor->dims, *strides = tensor->strides;
    *image = (Image){
        (float *)tensor->data, strides[0] / unit, strides[2] / unit, strides[3] / unit,
        strides[1] / unit};
    *turned = strides[1] != unit;
    if (!*turned) return true;
    return (dims[3] == 1 || strides[3] == unit) && (dims[2] == 1 || strides[2] == dims[3] * unit);
}

static bool read_state(State *state, Params *params) {
    Tiling *tiling = &state->tiling;
    const Tensor x = next_tensor(params), w = next_tensor(params), dy = next_tensor(params);
    for (int axis = 0; axis < 2; axis++) tiling->before[axis] = next_int(params);
    const Tensor none = {0};
    if (params->bad || x.rank != 4 || !channels_fit(&x, &w, &dy, &none, 1)) return false;
    if (x.dtype != F32 || w.dtype != F32 || dy.dtype != F32 || !is_contiguous(&w)) return false;
    if (w.dims[2] != TAP || w.dims[3] != TAP || w.packed) return false;
    if (!read_image(&state->x, &state->turn_x, &x) || !read_image(&state->dy, &state->turn_dy, &dy))
        return false;
    tiling->batch = x.dims[0];
    tiling->in = x.dims[1];
    tiling->out = dy.dims[1];
    tiling->height = x.dims[2];
    tiling->width = x.dims[3];
    tiling->form = SQUARES;
    tiling->parts = 1;
    for (int axis = 0; axis < 2; axis++) {
        tiling->dilation[axis] = 1;
        tiling->result[axis] = dy.dims[2 + axis];
    }
    state->w = (float *)w.data;
    if (tiling->in % LANES != 0 || tiling->out % LANES != 0 || element_count(&x) == 0) return false;
    return ISA(divide_image)(tiling);
}

// Of the sums of a chunk: [point][rows of a block][TILE_COLUMNS].
static int64_t sum_floats(const State *state) {
    return POINTS * BLOCK_PANELS * state->rows * TILE_COLUMNS;
}

static int64_t pixels_of(const State *state, bool input) {
    const Tiling *tiling = &state->tiling;
    return input ? tiling->height * tiling->width : tiling->result[0] * tiling->result[1];
}

static int64_t turned_floats(const State *state, bool input) {
    const Tiling *tiling = &state->tiling;
    if (!(input ? state->turn_x : state->turn_dy)) return 0;
    return tiling->batch * pixels_of(state, input) * (input ? tiling->in : tiling->out);
}

static int64_t left_floats(const State *state) {
    return POINTS * state->panels * state->group * TILE_ROWS;
}

static int64_t kept_sums(const State *state) {
    return state->groups == 1 ? 0 : state->strips * state->blocks * sum_floats(state);
}

static void *prepare(Params *params, Needs *needs) {
    State *state = calloc(1, sizeof(State));
    if (!state) return NULL;
    if (!read_state(state, params)) {
        release(state);
        return NULL;
    }
    Tiling *tiling = &state->tiling;
    state->groups = ceil_div(tiling->all_tiles, GROUP);
    state->group = ceil_div(tiling->all_tiles, state->groups);
    state->rows = even_rows(tiling->out);
    state->panels = ceil_div(tiling->out, state->rows);
    state->strips = ceil_div(tiling->in, TILE_COLUMNS);
    state->blocks = ceil_div(state->panels, BLOCK_PANELS);
    tiling->elements = apart(state->group * tiling->in);
    tiling->nothing = calloc((size_t)tiling->in, sizeof(float));
    state->offsets = malloc((size_t)state->group * sizeof(int64_t));
    if (!tiling->nothing || !state->offsets) {
        release(state);
        return NULL;
    }
    for (int64_t i = 0; i < state->group; i++) state->offsets[i] = i * tiling->in;
    const int64_t size = sizeof(float), line = POINTS * tiling->out;
    needs->shared = (padded(turned_floats(state, true), 16) +
                     padded(turned_floats(state, false), 16) + POINTS * tiling->elements +
                     padded(left_floats(state), 16) + kept_sums(state)) *
                    size;
    needs->own = greater(line, state->groups == 1 ? sum_floats(state) : 0) * size;
    return state;
}

// -- transforming ---------------------------------------------------------------------------------

static void turn_image(void *context, int64_t chunk, int thread, bool input) {
    (void)thread;
    const Job *job = context;
    const State *state = job->state;
    const int64_t channels = input ? state->tiling.in : state->tiling.out;
    const int64_t parts = ceil_div(channels, TURNED), pixels = pixels_of(state, input);
    const int64_t image = chunk / parts, first = chunk % parts * TURNED;
    const Image *from = input ? &state->x : &state->dy, *to = input ? &job->x : &job->dy;
    turn(
        from->data + image * from->image + first * from->channel, from->channel,
        to->data + image * to->image + first, channels, lesser(channels - first, TURNED), pixels);
}

static void turn_input(void *context, int64_t chunk, int thread) {
    turn_image(context, chunk, thread, true);
}

static void turn_gradient(void *context, int64_t chunk, int thread) {
    turn_image(context, chunk, thread, false);
}

static void transform_input(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Job *job = context;
    const int64_t first = chunk * FEW_TILES, count = lesser(job->count - first, FEW_TILES);
    ISA(transform_elements)(
        &job->state->tiling, &job->x, job->first + first, count, job->elements, first);
}

// The 36 points of a vector of channels, `apart` floats from one to the next.
static void transform_some(
    const Image *dy, const Tile *tile, const float *from, float *to, int64_t distance) {
    Floats lines[POINTS];
    for (int j = 0; j < RESULT; j++) {
        Floats y[RESULT], made[SPAN];
        for (int i = 0; i < RESULT; i++)
            y[i] = i < tile->rows && j < tile->columns ? load(from + i * dy->row + j * dy->column)
                                                       : (Floats){0};
        transform_gradient_line(y, made);
        for (int i = 0; i < SPAN; i++) lines[i * RESULT + j] = made[i];
    }
    for (int i = 0; i < SPAN; i++) {
        Floats points[SPAN];
        transform_gradient_line(lines + i * RESULT, points);
        for (int j = 0; j < SPAN; j++, to += distance) store(to, points[j]);
    }
}

// Channels side by side first, and then by panels.
static void transform_gradient(void *context, int64_t number, int thread) {
    const Job *job = context;
    const State *state = job->state;
    const Tiling *tiling = &state->tiling;
    const Tile tile = find_tile(tiling, job->first + number, SQUARES);
    const Image *dy = &job->dy;
    const float *from = dy->data + tile.image * dy->image + tile.row * dy->row +
                        tile.column * dy->column;
    float *line = (float *)job->run->own[thread];
    for (int64_t channel = 0; channel < tiling->out; channel += LANES)
        transform_some(dy, &tile, from + channel, line + channel, tiling->out);
    float *to = job->left + number * TILE_ROWS;
    for (int point = 0; point < POINTS; point++, line += tiling->out)
        for (int64_t first = 0; first < tiling->out; first += state->rows) {
            copy_floats(to, line + first, lesser(tiling->out - first, state->rows));
            to += job->count * TILE_ROWS;
        }
}

// -- products -------------------------------------------------------------------------------------

// Sums of a block of panels by a strip of the input's channels become weights.
static void give_weights(
    const State *state, const float *sums, int64_t row, int64_t rows, int64_t column) {
    const Tiling *tiling = &state->tiling;
    const int64_t point = BLOCK_PANELS * state->rows * TILE_COLUMNS;
    const int64_t columns = lesser(tiling->in - column, TILE_COLUMNS);
    for (int64_t i = 0; i < rows; i++, sums += TILE_COLUMNS) {
        float taps[TAP * TAP * TILE_COLUMNS];
        for (int64_t at = 0; at < columns; at += LANES) {
            Floats lines[TAP * SPAN], made[TAP];
            for (int b = 0; b < SPAN; b++) {
                Floats m[SPAN];
                for (int a = 0; a < SPAN; a++) m[a] = load(sums + (a * SPAN + b) * point + at);
                transform_slope_line(m, made);
                for (int a = 0; a < TAP; a++) lines[a * SPAN + b] = made[a];
            }
            for (int a = 0; a < TAP; a++) {
                transform_slope_line(lines + a * SPAN, made);
                for (int b = 0; b < TAP; b++)
                    store(taps + (a * TAP + b) * TILE_COLUMNS + at, made[b]);
            }
        }
        turn(
            taps, TILE_COLUMNS, state->w + ((row + i) * tiling->in + column) * TAP * TAP, TAP * TAP,
            TAP * TAP, columns);
    }
}

static void multiply(void *context, int64_t chunk, int thread) {
    const Job *job = context;
    const State *state = job->state;
    const Tiling *tiling = &state->tiling;
    const int64_t column = chunk % state->strips * TILE_COLUMNS;
    const int64_t first = chunk / state->strips * BLOCK_PANELS * state->rows;
    const int64_t rows = lesser(tiling->out - first, BLOCK_PANELS * state->rows);
    const int64_t second = column + LANES < tiling->in ? LANES : 0;  // or sums that are not used
    float *sums = state->groups == 1 ? (float *)job->run->own[thread]
                                     : job->sums + chunk * sum_floats(state);
    for (int64_t point = 0; point < POINTS && !pool_is_stopped(); point++) {
        const float *right = job->elements + point * tiling->elements + column;
        const float *const vectors[] = {right, right + second};
        const float *left = job->left +
                            (point * state->panels + first / state->rows) * job->count * TILE_ROWS;
        float *out = sums + point * BLOCK_PANELS * state->rows * TILE_COLUMNS;
        for (int64_t i = 0; i < rows; i += state->rows, left += job->count * TILE_ROWS)
            ISA(multiply_lines)(
                left, vectors, state->offsets, job->count, out + i * TILE_COLUMNS, TILE_COLUMNS,
                LANES, (int)lesser(rows - i, state->rows), job->first > 0, NO_ENDING);
    }
    if (job->first + job->count == tiling->all_tiles)
        give_weights(state, sums, first, rows, column);
}

static Failure run_weights(const void *argument, const Run *run) {
    const State *state = argument;
    const Tiling *tiling = &state->tiling;
    const int64_t size[] = {tiling->height, tiling->width};
    float *turned_x = (float *)run->shared;
    float *turned_dy = turned_x + padded(turned_floats(state, true), 16);
    Job job = {state, run, state->x, state->dy, .elements = turned_dy};
    job.elements += padded(turned_floats(state, false), 16);
    job.left = job.elements + POINTS * tiling->elements;
    job.sums = job.left + padded(left_floats(state), 16);
    if (state->turn_x) {
        job.x = channels_last(turned_x, size, tiling->in);
        share_chunks(run, tiling->batch * ceil_div(tiling->in, TURNED), turn_input, &job);
    }
    if (state->turn_dy) {
        job.dy = channels_last(turned_dy, tiling->result, tiling->out);
        share_chunks(run, tiling->batch * ceil_div(tiling->out, TURNED), turn_gradient, &job);
    }
    for (; job.first < tiling->all_tiles; job.first += state->group) {
        job.count = lesser(tiling->all_tiles - job.first, state->group);
        share_chunks(run, ceil_div(job.count, FEW_TILES), transform_input, &job);
        share_chunks(run, job.count, transform_gradient, &job);
        share_chunks(run, state->strips * state->blocks, multiply, &job);
    }
    return OK;
}

const Kernel ISA(WINOGRAD_WEIGHTS)[] = {
    {"WinogradConvWeights_f32", prepare, run_weights, release},
    {NULL, NULL, NULL, NULL},
};
