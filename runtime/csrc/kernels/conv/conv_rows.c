// Convolutions of few output channels whose rows fill vectors: weights [out][in * taps] times windows
// [in * taps][pixels], which are read where they lie.
//
// Collecting windows takes as long as multiplying them by a dozen channels.  Here the input is laid out
// once, with its rims, and a vector of neighbouring pixels of a row reads one of it for each number of a
// window.  The last vector of a row overlaps the one before, whose results it makes once more: nothing
// is masked, and tiles take two vectors wherever these are.
#include <stdlib.h>
#include <string.h>

#include "../support/chunks.h"
#include "filters.h"

enum {
    FEW_CHUNKS = 8,
    MOST_PAIRS = 4
};  // pairs of vectors that a tile of channels is made of at once

typedef struct {
    Conv conv;
    int64_t k;  // in * window
    Filters filters;
    bool in_place;  // there are no rims
    int64_t vectors;  // of a row of the result
    int64_t lines, bands;  // rows of the result in a chunk; chunks of an image
    int64_t *offsets;  // of each of the k numbers of a window, from the place of its pixel
    int64_t input_floats;  // of the laid out input
} State;

typedef struct {
    const State *state;
    const Run *run;
    const float *weights, *input;  // the latter NULL: read in place
} Job;

// -- preparing ------------------------------------------------------------------------------------

static void release(void *argument) {
    State *state = argument;
    ISA(free_filters)(&state->filters);
    free(state->offsets);
    free(state);
}

static bool has_no_rims(const Conv *conv) {
    if (conv->x_axis[2] != 1) return false;
    for (int axis = 0; axis < AXES; axis++)
        if (conv->stride[axis] != 1 || conv->before[axis] || conv->phase[axis] > conv->size[axis])
            return false;
    return true;
}

// Where the number of a channel that tap `tap` reads lies in an input that is read in place.
static int64_t place_of(const Conv *conv, int64_t tap) {
    int64_t place = 0;
    for (int axis = AXES - 1; axis >= 0; axis--) {
        place += tap % conv->taps[axis] * conv->dilation[axis] * conv->x_axis[axis];
        tap /= conv->taps[axis];
    }
    return place;
}

static bool allocate(State *state) {
    const Conv *conv = &state->conv;
    const int64_t plane = state->in_place ? conv->x_channel : conv->plane;
    state->offsets = malloc((size_t)state->k * sizeof(int64_t));
    if (!state->offsets) return false;
    for (int64_t i = 0; i < state->k; i++) {
        const int64_t tap = i % conv->window;
        const int64_t place = state->in_place ? place_of(conv, tap) : ISA(tap_offset)(conv, tap);
        state->offsets[i] = i / conv->window * plane + place;
    }
    return ISA(prepare_filters)(&state->filters, conv, even_rows(conv->out));
}

// Rows of a result of three axes are those of all its slices.
static int64_t rows_of_result(const Conv *conv) { return conv->result[0] * conv->result[1]; }

static void choose_bands(State *state, const Needs *needs) {
    const Conv *conv = &state->conv;
    const int64_t planes = conv->batch * conv->groups, rows = rows_of_result(conv);
    const double work = (double)(state->k * conv->out) * (double)(conv->pixels * planes);
    const int64_t wanted = ceil_div(chunks_for(needs, work, FEW_CHUNKS), planes);
    state->lines = ceil_div(rows, lesser(wanted, rows));
    state->bands = ceil_div(rows, state->lines);
}

static void *prepare(Params *params, Needs *needs) {
    State *state = calloc(1, sizeof(State));
    if (!state) return NULL;
    Conv *conv = &state->conv;
    if (!ISA(read_conv)(conv, params) || conv->result[2] < LANES || conv->pixels == 0) {
        free(state);
        return NULL;
    }
    state->k = conv->in * conv->window;
    state->in_place = has_no_rims(conv);
    state->vectors = ceil_div(conv->result[2], LANES);
    if (!allocate(state)) {
        release(state);
        return NULL;
    }
    choose_bands(state, needs);
    const int64_t channels = conv->batch * conv->groups * conv->in;
    state->input_floats = state->in_place ? 0 : padded(channels * conv->plane, 16);
    const int64_t floats = state->input_floats + filter_floats(&state->filters);
    needs->shared = floats * (int64_t)sizeof(float);
    images_lie_anywhere(needs, conv);
    return state;
}

// -- running --------------------------------------------------------------------------------------

// A vector of pixels: what its windows begin with, and its results.
typedef struct {
    const float *from;
    float *to;
} Vector;

static Vector vector_of(
    const State *state, const float *input, float *results, int64_t row, int64_t number) {
    const Conv *conv = &state->conv;
    const int64_t width = conv->result[2], column = lesser(number * LANES, width - LANES);
    const int64_t slice = row / conv->result[1], line = row % conv->result[1];
    const int64_t place = state->in_place ? slice * conv->x_axis[0] + line * conv->x_axis[1]
                                          : (slice * conv->phase[1] + line) * conv->phase[2];
    return (Vector){input + place + column, results + row * width + column};
}

// Some pairs of vectors, the last of which may be a single one.
typedef struct {
    Vector vectors[2 * MOST_PAIRS];
    int64_t count;
} Group;

static Group group_of(
    const State *state, const float *input, float *results, int64_t top, int64_t first,
    int64_t count) {
    Group group = {.count = lesser(count - first, 2 * MOST_PAIRS)};
    for (int64_t i = 0; i < group.count; i++) {
        const int64_t row = top + (first + i) / state->vectors;
        group.vectors[i] = vector_of(state, input, results, row, (first + i) % state->vectors);
    }
    return group;
}

// All channels of a group, a tile of them after the other.
static void multiply(
    const State *state, const float *weights, const Group *group, const Epilogue *epilogue,
    bool ends) {
    const int64_t pixels = state->conv.pixels, out = state->conv.out, rows = state->filters.rows;
    for (int64_t i = 0; i < out; i += rows, weights += TILE_ROWS * state->k) {
        const int64_t ahead = greater(lesser(out - i - rows, rows), 0);
        Ending ending = {NULL, ends && epilogue->relu};
        if (ends && epilogue->row_bias) ending.bias = epilogue->row_bias + i;
        for (int64_t v = 0; v < group->count; v += 2) {
            const Vector *pair = group->vectors + v;
            const bool both = v + 1 < group->count;
            const float *const right[] = {pair[0].from, both ? pair[1].from : NULL};
            float *to = pair[0].to + i * pixels;
            expect(to + rows * pixels, pixels, ahead, both ? TILE_COLUMNS : LANES);
            ISA(multiply_lines)(
                weights, right, state->offsets, state->k, to, pixels,
                both ? pair[1].to - pair[0].to : 0, (int)lesser(out - i, rows), false, ending);
        }
    }
}

static void convolve(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Job *job = context;
    const State *state = job->state;
    const Conv *conv = &state->conv;
    const int64_t plane = chunk / state->bands, group = plane % conv->groups;
    const int64_t top = chunk % state->bands * state->lines;
    const int64_t count = lesser(rows_of_result(conv) - top, state->lines) * state->vectors;
    const float *input = first_channel_of(conv, job->input, plane);
    const float *weights = job->weights + group * state->filters.group;
    float *results = conv->y + plane * conv->out * conv->pixels;
    Epilogue epilogue = conv->epilogue;
    if (epilogue.row_bias) epilogue.row_bias += group * conv->out;
    if (epilogue.residual) epilogue.residual += plane * conv->out * conv->pixels;
    const bool ends = !epilogue.residual && !epilogue.activation;
    for (int64_t v = 0; v < count && !pool_is_stopped(); v += 2 * MOST_PAIRS) {
        const Group some = group_of(state, input, results, top, v, count);
        multiply(state, weights, &some, &epilogue, ends);
    }
    const int64_t first = top * conv->result[2];
    const Place out = {results + first, conv->pixels, 0, first};
    if (!ends) ISA(finish)(&epilogue, out, conv->out, count / state->vectors * conv->result[2]);
}

static Failure run_rows(const void *argument, const Run *run) {
    const State *state = argument;
    const Conv *conv = &state->conv;
    const int64_t planes = conv->batch * conv->groups;
    float *input = state->in_place ? NULL : (float *)run->shared;
    float *memory = (float *)run->shared + state->input_floats;
    Job job = {state, run, ISA(packed_filters)(&state->filters, run, memory), input};
    if (input) ISA(lay_out_input)(conv, run, input);
    share_chunks(run, planes * state->bands, convolve, &job);
    return OK;
}

const Kernel ISA(ROW_CONVOLUTIONS)[] = {
    {"ConvRows_f32", prepare, run_rows, release},
    {NULL, NULL, NULL, NULL},
};
