// The gradient of a convolution's weights, as matrix products: gradients of the result
// [out][pixels of all images] times windows [pixels of all images][taps * in].
//
// The input is laid out with its channels last, so that a window is a few runs of neighbours.  Where
// these fill vectors, they are multiplied where they lie; others are copied into panels before.
#include <stdlib.h>
#include <string.h>

#include "conv.h"
#include "../support/squares.h"

enum {
    CHANNELS = 16,  // of the input that are laid out at once
    SPAN = 256,  // pixels whose vectors stay in the first cache
};

// Neighbours in a row of a panel that are neighbours in the input, too.
typedef struct {
    int start, count;
    int64_t offset;  // of the first, from the place of its pixel
} Stretch;

typedef struct {
    Conv conv;  // whose `y` is the gradient of the result, and `w` what is to be computed
    int64_t k;  // pixels of all images
    int64_t columns;  // taps * in
    int64_t panels;  // of columns
    int64_t parts, part;  // of the pixels, which have sums of their own, and how many each has
    int64_t channels;  // of the input
    int64_t rows;  // of the gradients of the result that are multiplied at once
    bool in_place;  // a vector of columns is channels of a single tap
    int64_t *places;  // of the pixels of a few images, in floats; NULL if not in place
    int64_t images;  // as many
    Stretch *stretches;  // of a group, panel after panel
    int64_t *first_stretch;  // of each panel, and the end
    int64_t input_floats, left_floats;
} State;

typedef struct {
    const State *state;
    const Run *run;
    float *input, *left, *sums;
} Job;

// -- preparing ------------------------------------------------------------------------------------

static void release(void *argument) {
    State *state = argument;
    free(state->stretches);
    free(state->first_stretch);
    free(state->places);
    free(state);
}

// From the place of the first pixel of all.
static int64_t place_of(const State *state, int64_t pixel) {
    const Conv *conv = &state->conv;
    const int64_t image = pixel / conv->pixels, column = pixel % conv->pixels % conv->result[2];
    const int64_t line = pixel % conv->pixels / conv->result[2];
    const int64_t row = line % conv->result[1], slice = line / conv->result[1];
    return image * conv->plane + (slice * conv->phase[1] + row) * conv->phase[2] + column;
}

static bool find_places(State *state) {
    const Conv *conv = &state->conv;
    state->in_place = conv->in % LANES == 0;
    state->images = conv->pixels < SPAN ? SPAN / conv->pixels : 1;
    const int64_t count = state->images * conv->pixels;
    state->places = malloc((size_t)count * sizeof(int64_t));
    for (int64_t i = 0; state->places && i < count; i++)
        state->places[i] = place_of(state, i) * state->channels;
    return state->places != NULL;
}

static bool find_stretches(State *state) {
    const Conv *conv = &state->conv;
    state->stretches = malloc((size_t)state->columns * sizeof(Stretch));
    state->first_stretch = malloc((size_t)(state->panels + 1) * sizeof(int64_t));
    if (!state->stretches || !state->first_stretch) return false;
    int64_t found = 0;
    for (int64_t panel = 0; panel < state->panels; panel++) {
        state->first_stretch[panel] = found;
        int64_t column = panel * TILE_COLUMNS;
        const int64_t end = column + TILE_COLUMNS < state->columns ? column + TILE_COLUMNS
                                                                   : state->columns;
        while (column < end) {
            const int64_t channel = column % conv->in;
            int64_t count = conv->in - channel;
            if (count > end - column) count = end - column;
            const Stretch next = {
                (int)(column - panel * TILE_COLUMNS), (int)count,
                ISA(tap_offset)(conv, column / conv->in) * state->channels + channel};
            Stretch *last = found > state->first_stretch[panel] ? &state->stretches[found - 1]
                                                                : NULL;
            if (last && last->offset + last->count == next.offset)
                last->count += next.count;  // the next tap, of a single group
            else
                state->stretches[found++] = next;
            column += count;
        }
    }
    state->first_stretch[state->panels] = found;
    return true;
}

static void choose_parts(State *state) {
    // The pixels are divided only where there are few panels, and sums are cheap to add.
    const Conv *conv = &state->conv;
    const int64_t chunks = state->panels * conv->groups;
    const int64_t work = conv->out * state->columns * conv->groups * state->k;
    int64_t parts = chunks >= 6 ? 1 : ceil_div(6, chunks);
    if (parts > work / (1 << 19)) parts = work / (1 << 19);
    if (parts > state->k / 256) parts = state->k / 256;
    if (parts < 1) parts = 1;
    state->part = ceil_div(state->k, parts);
    state->parts = ceil_div(state->k, state->part);
}

// Of the packed gradients of a group.
static int64_t left_floats(const State *state) {
    return ceil_div(state->conv.out, state->rows) * TILE_ROWS * state->k;
}

static void *prepare(Params *params, Needs *needs) {
    State *state = calloc(1, sizeof(State));
    if (!state) return NULL;
    Conv *conv = &state->conv;
    if (!ISA(read_conv)(conv, params)) {
        free(state);
        return NULL;
    }
    state->k = conv->batch * conv->pixels;
    state->columns = conv->in * conv->window;
    state->panels = ceil_div(state->columns, TILE_COLUMNS);
    state->channels = conv->groups * conv->in;
    state->rows = even_rows(conv->out);
    if (!find_stretches(state) || !find_places(state)) {
        release(state);
        return NULL;
    }
    choose_parts(state);
    // What is copied beyond the end of a stretch is overwritten, or belongs to no column.
    state->input_floats = padded(conv->batch * conv->plane * state->channels + TILE_COLUMNS, 16);
    state->left_floats = padded(conv->groups * left_floats(state), 16);
    const int64_t sums = state->parts * conv->groups * conv->out * state->panels * TILE_COLUMNS;
    needs->shared = (state->input_floats + state->left_floats + sums) * (int64_t)sizeof(float);
    const int64_t block = (DEPTH + 1) * TILE_COLUMNS, planes = CHANNELS * conv->plane;
    needs->own = (block > planes ? block : planes) * (int64_t)sizeof(float);
    return state;
}

// -- running --------------------------------------------------------------------------------------

static void clear_places(float *to, int64_t places, int64_t step, int64_t count) {
    for (int64_t place = 0; place < places; place++, to += step)
        for (int64_t i = 0; i < count; i++) to[i] = 0;
}

// Channels of an image whose lines are runs: line by line.
static void turn_lines(const State *state, const float *from, int64_t count, float *to) {
    const Conv *conv = &state->conv;
    const int64_t step = state->channels, width = conv->phase[2];
    const int64_t shift = conv->before[2], skipped = shift < 0 ? -shift : 0;
    const int64_t first = shift > width ? width : shift > 0 ? shift : 0;
    int64_t length = conv->size[2] - skipped;
    if (length > width - first) length = width - first;
    if (length < 0) length = 0;
    for (int64_t line = 0; line < conv->phase[0] * conv->phase[1]; line++, to += width * step) {
        const int64_t slice = line / conv->phase[1] - conv->before[0];
        const int64_t row = line % conv->phase[1] - conv->before[1];
        if (slice < 0 || slice >= conv->size[0] || row < 0 || row >= conv->size[1]) {
            clear_places(to, width, step, count);
            continue;
        }
        clear_places(to, first, step, count);
        turn(
            from + slice * conv->x_axis[0] + row * conv->x_axis[1] + skipped, conv->x_channel,
            to + first * step, step, count, length);
        clear_places(to + (first + length) * step, width - first - length, step, count);
    }
}

static void lay_out(void *context, int64_t chunk, int thread) {
    const Job *job = context;
    const State *state = job->state;
    const Conv *conv = &state->conv;
    const int64_t blocks = ceil_div(state->channels, CHANNELS);
    const int64_t image = chunk / blocks, first = chunk % blocks * CHANNELS;
    const int64_t count = state->channels - first < CHANNELS ? state->channels - first : CHANNELS;
    const float *from = conv->x + image * conv->x_batch + first * conv->x_channel;
    float *to = job->input + image * conv->plane * state->channels + first;
    if (conv->stride[0] * conv->stride[1] * conv->stride[2] == 1 && conv->x_axis[2] == 1) {
        turn_lines(state, from, count, to);
        return;
    }
    float *planes = (float *)job->run->own[thread];
    for (int64_t i = 0; i < count; i++)
        ISA(lay_out_channel)(conv, from + i * conv->x_channel, planes + i * conv->plane);
    turn(planes, conv->plane, to, state->channels, count, conv->plane);
}

// Panels of `rows` outputs, [pixels of all images][TILE_ROWS] each.
static void pack_gradients(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Job *job = context;
    const State *state = job->state;
    const Conv *conv = &state->conv;
    const int64_t panels = ceil_div(conv->out, state->rows);
    const int64_t panel = chunk % panels, group = chunk / panels % conv->groups;
    const int64_t image = chunk / panels / conv->groups;
    const int64_t rest = conv->out - panel * state->rows;
    const int64_t channel = group * conv->out + panel * state->rows;
    ISA(pack_panels)(
        job->left + (group * panels + panel) * TILE_ROWS * state->k +
            image * conv->pixels * TILE_ROWS,
        conv->y + (image * conv->groups * conv->out + channel) * conv->pixels, conv->pixels, 1,
        lesser(rest, state->rows), conv->pixels, TILE_ROWS);
}

// The columns of one panel for `count` neighbouring pixels.
static float *copy_line(
    const Stretch *stretches, int64_t found, const float *from, int64_t step, int64_t count,
    float *to) {
    if (found == 1 && stretches->count == TILE_COLUMNS) {
        from += stretches->offset;
        for (int64_t i = 0; i < count; i++, from += step, to += TILE_COLUMNS) {
            store(to, load(from));
            store(to + LANES, load(from + LANES));
        }
        return to;
    }
    for (int64_t i = 0; i < count; i++, from += step, to += TILE_COLUMNS)
        for (int64_t s = 0; s < found; s++)
            for (int j = 0; j < stretches[s].count; j += LANES)
                store(to + stretches[s].start + j, load(from + stretches[s].offset + j));
    return to;
}

// Pixels begin .. end - 1 of all images.
static void collect(
    const State *state, const float *input, int64_t panel, int64_t begin, int64_t end, float *to) {
    const Conv *conv = &state->conv;
    const Stretch *stretches = state->stretches + state->first_stretch[panel];
    const int64_t found = state->first_stretch[panel + 1] - state->first_stretch[panel];
    // What is left of earlier kernels must not be multiplied: subnormal numbers are slow.
    const int wide = state->columns <= LANES ? LANES : TILE_COLUMNS;
    const Stretch *last = stretches + found - 1;
    if (last->start + padded(last->count, LANES) < wide)
        memset(to, 0, (size_t)((end - begin) * TILE_COLUMNS) * sizeof(float));
    while (begin < end) {
        int64_t count = conv->result[2] - begin % conv->pixels % conv->result[2];
        if (count > end - begin) count = end - begin;
        const float *from = input + place_of(state, begin) * state->channels;
        to = copy_line(stretches, found, from, state->channels, count, to);
        begin += count;
    }
}

// Where the columns of a panel begin for the pixel at place 0.
static void find_vectors(
    const State *state, const float *input, int64_t panel, const float **vectors) {
    for (int v = 0; v < 2; v++) {
        int64_t column = panel * TILE_COLUMNS + v * LANES;
        if (column >= state->columns) column -= LANES;  // whose sums are not used
        vectors[v] = input + column % state->conv.in +
                     ISA(tap_offset)(&state->conv, column / state->conv.in) * state->channels;
    }
}

// What all rows of the gradients are multiplied with: `depth` pixels from `done` on.
static void multiply_rows(
    const State *state, const float *left, const float *windows, const float *const *vectors,
    const int64_t *places, int64_t depth, float *sums, bool add) {
    const Conv *conv = &state->conv;
    const int64_t row = state->panels * TILE_COLUMNS;
    for (int64_t i = 0; i < conv->out; i += state->rows, left += TILE_ROWS * state->k) {
        const int rows = (int)(conv->out - i < state->rows ? conv->out - i : state->rows);
        if (state->in_place)
            ISA(multiply_lines)(
                left, vectors, places, depth, sums + i * row, row, LANES, rows, add, NO_ENDING);
        else
            ISA(multiply_tile)(
                left, windows, depth, (Place){sums + i * row, row, 0, 0}, rows,
                state->columns <= LANES ? LANES : TILE_COLUMNS, add, NO_ENDING);
    }
}

static void multiply(void *context, int64_t chunk, int thread) {
    const Job *job = context;
    const State *state = job->state;
    const Conv *conv = &state->conv;
    const int64_t panel = chunk % state->panels, group = chunk / state->panels % conv->groups;
    const int64_t part = chunk / state->panels / conv->groups;
    const int64_t begin = part * state->part, row = state->panels * TILE_COLUMNS;
    const int64_t end = begin + state->part < state->k ? begin + state->part : state->k;
    const float *left = job->left + group * left_floats(state);
    const float *input = job->input + group * conv->in;
    float *sums = job->sums + (part * conv->groups + group) * conv->out * row +
                  panel * TILE_COLUMNS;
    float *windows = (float *)job->run->own[thread];
    const int64_t span = state->images * conv->pixels, most = state->in_place ? SPAN : DEPTH;
    int64_t depth;
    for (int64_t done = begin; done < end && !pool_is_stopped(); done += depth) {
        depth = end - done < most ? end - done : most;
        const float *vectors[2] = {NULL, NULL};
        const int64_t at = done % span;
        if (state->in_place) {
            if (depth > span - at) depth = span - at;
            find_vectors(
                state, input + done / span * state->images * conv->plane * state->channels, panel,
                vectors);
        } else {
            collect(state, input, panel, done, done + depth, windows);
        }
        multiply_rows(
            state, left + done * TILE_ROWS, windows, vectors, state->places + at, depth, sums,
            done > begin);
    }
}

// The weights of one output, from all parts.
static void store_weights(void *context, int64_t output, int thread) {
    (void)thread;
    const Job *job = context;
    const State *state = job->state;
    const Conv *conv = &state->conv;
    const int64_t row = state->panels * TILE_COLUMNS, size = conv->groups * conv->out * row;
    float *sums = job->sums + output * row;
    for (int64_t part = 1; part < state->parts; part++)
        for (int64_t j = 0; j < state->columns; j++) sums[j] += sums[part * size + j];
    float *to = (float *)conv->w + output * state->columns;
    for (int64_t channel = 0; channel < conv->in; channel++)
        for (int64_t tap = 0; tap < conv->window; tap++) *to++ = sums[tap * conv->in + channel];
}

static Failure run_weights(const void *argument, const Run *run) {
    const State *state = argument;
    const Conv *conv = &state->conv;
    float *shared = (float *)run->shared;
    Job job = {
        state, run, shared, shared + state->input_floats,
        shared + state->input_floats + state->left_floats};
    share_chunks(run, conv->batch * ceil_div(state->channels, CHANNELS), lay_out, &job);
    share_chunks(
        run, conv->batch * conv->groups * ceil_div(conv->out, state->rows), pack_gradients, &job);
    share_chunks(run, state->parts * conv->groups * state->panels, multiply, &job);
    const Run alone = {1, run->shared, {run->own[0]}};
    const bool small = conv->groups * conv->out * state->columns * state->parts < 1 << 13;
    share_chunks(small ? &alone : run, conv->groups * conv->out, store_weights, &job);
    return OK;
}

const Kernel ISA(CONVOLUTION_WEIGHTS)[] = {
    {"ConvWeights_f32", prepare, run_weights, release},
    {NULL, NULL, NULL, NULL},
};
