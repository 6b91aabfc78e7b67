// Convolutions of many narrow images, as matrix products: weights [out][in * taps] times windows
// [in * taps][pixels], which are read where they lie.
//
// A thread lays out an image once for each tap of the last axis, so that what a tap reads for
// neighbouring pixels lies side by side, be they in one line of the result or in two.
#include <stdlib.h>
#include <string.h>

#include "copies.h"
#include "filters.h"

typedef struct {
    Conv conv;
    int64_t k;  // in * window
    Filters filters;
    Copies copies;
    int64_t image;  // floats of all channels and taps
    int64_t vectors;  // of the pixels of an image
    int64_t images;  // of a chunk
    int64_t *offsets;  // of each of the k numbers of a window, from the place of its pixel
} State;

typedef struct {
    const State *state;
    const Run *run;
    const float *weights;
} Job;

// -- preparing ------------------------------------------------------------------------------------

static void release(void *argument) {
    State *state = argument;
    ISA(free_filters)(&state->filters);
    free(state->offsets);
    ISA(free_copies)(&state->copies);
    free(state);
}

static bool allocate(State *state) {
    const Conv *conv = &state->conv;
    state->offsets = malloc((size_t)state->k * sizeof(int64_t));
    if (!state->offsets) return false;
    for (int64_t i = 0; i < state->k; i++)
        state->offsets[i] =
            ISA(copied_offset)(&state->copies, conv->in, i / conv->window, i % conv->window);
    return ISA(prepare_filters)(&state->filters, conv, even_rows(conv->out));
}

static int64_t input_floats(const State *state) {
    return padded(state->images * state->image + LANES, 16);
}

static void *prepare(Params *params, Needs *needs) {
    State *state = calloc(1, sizeof(State));
    if (!state) return NULL;
    Conv *conv = &state->conv;
    if (!ISA(read_conv)(conv, params) || !ISA(prepare_copies)(&state->copies, conv)) {
        free(state);
        return NULL;
    }
    state->k = conv->in * conv->window;
    state->image = conv->in * conv->taps[2] * state->copies.floats;
    state->vectors = ceil_div(conv->pixels, LANES);
    // A tile has two vectors, which may be those of two images.
    state->images = 1 + state->vectors % 2;
    if (!allocate(state)) {
        release(state);
        return NULL;
    }
    const int64_t size = sizeof(float);
    needs->shared = filter_floats(&state->filters) * size;
    needs->own = (input_floats(state) + conv->out * TILE_COLUMNS) * size;
    images_lie_anywhere(needs, conv);
    return state;
}

// -- running --------------------------------------------------------------------------------------

// What a vector of a tile is: pixels of an image.
typedef struct {
    int64_t plane;  // number of the image and group
    int64_t first, count;  // pixels
} Part;

static void finish_part(const State *state, Part part, int64_t group, float *sums) {
    const Conv *conv = &state->conv;
    Epilogue epilogue = conv->epilogue;
    if (epilogue.row_bias) epilogue.row_bias += group * conv->out;
    if (epilogue.residual) epilogue.residual += part.plane * conv->out * conv->pixels;
    const Place place = {sums, TILE_COLUMNS, 0, part.first};
    ISA(finish)(&epilogue, place, conv->out, part.count);
    float *to = conv->y + part.plane * conv->out * conv->pixels + part.first;
    for (int64_t i = 0; i < conv->out; i++, to += conv->pixels, sums += TILE_COLUMNS)
        copy_floats(to, sums, part.count);
}

static void multiply_tile(
    const State *state, const float *weights, const float *const *right, float *sums) {
    const Conv *conv = &state->conv;
    for (int64_t done = 0; done < state->k; done += DEPTH) {
        const int64_t depth = state->k - done < DEPTH ? state->k - done : DEPTH;
        const float *panel = weights + done * TILE_ROWS;
        for (int64_t i = 0; i < conv->out; i += state->filters.rows, panel += TILE_ROWS * state->k)
            ISA(multiply_lines)(
                panel, right, state->offsets + done, depth, sums + i * TILE_COLUMNS, TILE_COLUMNS,
                LANES, (int)lesser(conv->out - i, state->filters.rows), done > 0, NO_ENDING);
    }
}

static void convolve(void *context, int64_t chunk, int thread) {
    const Job *job = context;
    const State *state = job->state;
    const Conv *conv = &state->conv;
    const int64_t group = chunk % conv->groups, first = chunk / conv->groups * state->images;
    const int64_t images = lesser(conv->batch - first, state->images);
    const float *weights = job->weights + group * state->filters.group;
    float *input = (float *)job->run->own[thread], *sums = input + input_floats(state);
    for (int64_t i = 0; i < images; i++)
        ISA(copy_channels)(
            &state->copies,
            conv->x + (first + i) * conv->x_batch + group * conv->in * conv->x_channel, conv->in,
            input + i * state->image);
    const int64_t vectors = images * state->vectors;
    int64_t done = 0;
    for (int64_t v = 0; v < vectors; v += 2) {
        const float *right[2];
        Part parts[2];
        const int count = vectors - v < 2 ? 1 : 2;
        right[1] = NULL;
        for (int h = 0; h < count; h++) {
            const int64_t number = v + h, image = number / state->vectors;
            const int64_t pixel = number % state->vectors * LANES, left = conv->pixels - pixel;
            right[h] = input + image * state->image + pixel;
            parts[h] = (Part){(first + image) * conv->groups + group, pixel, lesser(left, LANES)};
        }
        if (is_stopped_after(state->k * conv->out, &done)) return;
        multiply_tile(state, weights, right, sums);
        for (int h = 0; h < count; h++) finish_part(state, parts[h], group, sums + h * LANES);
    }
}

static Failure run_lines(const void *argument, const Run *run) {
    const State *state = argument;
    const Conv *conv = &state->conv;
    Job job = {state, run, ISA(packed_filters)(&state->filters, run, (float *)run->shared)};
    share_chunks(run, conv->groups * ceil_div(conv->batch, state->images), convolve, &job);
    return OK;
}

const Kernel ISA(LINE_CONVOLUTIONS)[] = {
    {"ConvLines_f32", prepare, run_lines, release},
    {NULL, NULL, NULL, NULL},
};
