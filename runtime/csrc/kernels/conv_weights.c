// The gradient of a convolution's weights, as matrix products: gradients of the result
// [out][pixels of all images] times windows [pixels of all images][taps * in].
//
// The input is laid out with its channels last, so that a window is a few runs of neighbours, which
// are copied into panels just before they are multiplied.
#include <stdlib.h>
#include <string.h>

#include "conv.h"

enum { CHANNELS = 8 };  // of the input that are laid out at once

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
    free(state);
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
        const int64_t end =
            column + TILE_COLUMNS < state->columns ? column + TILE_COLUMNS : state->columns;
        while (column < end) {
            const int64_t channel = column % conv->in;
            int64_t count = conv->in - channel;
            if (count > end - column) count = end - column;
            state->stretches[found++] = (Stretch){
                (int)(column - panel * TILE_COLUMNS), (int)count,
                ISA(tap_offset)(conv, column / conv->in) * state->channels + channel};
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
    if (!find_stretches(state)) {
        release(state);
        return NULL;
    }
    choose_parts(state);
    // What is copied beyond the end of a stretch is overwritten, or belongs to no column.
    state->input_floats = padded(conv->batch * conv->plane * state->channels + TILE_COLUMNS, 16);
    state->left_floats = padded(conv->groups * padded(conv->out, TILE_ROWS) * state->k, 16);
    const int64_t sums =
        state->parts * conv->groups * conv->out * state->panels * TILE_COLUMNS;
    needs->shared = (state->input_floats + state->left_floats + sums) * (int64_t)sizeof(float);
    const int64_t block = (DEPTH + 1) * TILE_COLUMNS, planes = CHANNELS * conv->plane;
    needs->own = (block > planes ? block : planes) * (int64_t)sizeof(float);
    return state;
}

// -- running --------------------------------------------------------------------------------------

static void lay_out(void *context, int64_t chunk, int thread) {
    const Job *job = context;
    const State *state = job->state;
    const Conv *conv = &state->conv;
    const int64_t blocks = ceil_div(state->channels, CHANNELS);
    const int64_t image = chunk / blocks, first = chunk % blocks * CHANNELS;
    const int count = (int)(state->channels - first < CHANNELS ? state->channels - first : CHANNELS);
    float *planes = (float *)job->run->own[thread];
    for (int i = 0; i < count; i++)
        ISA(lay_out_channel)(
            conv, conv->x + image * conv->x_batch + (first + i) * conv->x_channel,
            planes + i * conv->plane);
    float *to = job->input + image * conv->plane * state->channels + first;
    if (count == CHANNELS) {
        for (int64_t place = 0; place < conv->plane; place++, to += state->channels)
            for (int i = 0; i < CHANNELS; i++) to[i] = planes[i * conv->plane + place];
    } else {
        for (int64_t place = 0; place < conv->plane; place++, to += state->channels)
            for (int i = 0; i < count; i++) to[i] = planes[i * conv->plane + place];
    }
}

// Panels of outputs, [pixels of all images][TILE_ROWS] each.
static void pack_gradients(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Job *job = context;
    const State *state = job->state;
    const Conv *conv = &state->conv;
    const int64_t panels = ceil_div(conv->out, TILE_ROWS);
    const int64_t panel = chunk % panels, group = chunk / panels % conv->groups;
    const int64_t image = chunk / panels / conv->groups;
    const int64_t rest = conv->out - panel * TILE_ROWS;
    const int64_t channel = group * conv->out + panel * TILE_ROWS;
    ISA(pack_panels)(
        job->left + (group * panels + panel) * TILE_ROWS * state->k +
            image * conv->pixels * TILE_ROWS,
        conv->y + (image * conv->groups * conv->out + channel) * conv->pixels, conv->pixels, 1,
        rest < TILE_ROWS ? rest : TILE_ROWS, conv->pixels, TILE_ROWS);
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
    while (begin < end) {
        const int64_t image = begin / conv->pixels, pixel = begin % conv->pixels;
        const int64_t column = pixel % conv->result[2], line = pixel / conv->result[2];
        const int64_t row = line % conv->result[1], slice = line / conv->result[1];
        int64_t count = conv->result[2] - column;
        if (count > end - begin) count = end - begin;
        const int64_t place = (slice * conv->phase[1] + row) * conv->phase[2] + column;
        const float *from = input + (image * conv->plane + place) * state->channels;
        to = copy_line(stretches, found, from, state->channels, count, to);
        begin += count;
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
    const float *left = job->left + group * padded(conv->out, TILE_ROWS) * state->k;
    float *sums = job->sums + (part * conv->groups + group) * conv->out * row + panel * TILE_COLUMNS;
    float *windows = (float *)job->run->own[thread];
    for (int64_t done = begin; done < end; done += DEPTH) {
        const int64_t depth = end - done < DEPTH ? end - done : DEPTH;
        collect(state, job->input + group * conv->in, panel, done, done + depth, windows);
        for (int64_t i = 0; i < conv->out; i += TILE_ROWS) {
            const int rows = conv->out - i < TILE_ROWS ? (int)(conv->out - i) : TILE_ROWS;
            ISA(multiply_tile)(
                left + i * state->k + done * TILE_ROWS, windows, depth,
                (Place){sums + i * row, row, 0, 0}, rows, TILE_COLUMNS, done > begin);
        }
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
        for (int64_t tap = 0; tap < conv->window; tap++)
            *to++ = sums[tap * conv->in + channel];
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
        run, conv->batch * conv->groups * ceil_div(conv->out, TILE_ROWS), pack_gradients, &job);
    share_chunks(run, state->parts * conv->groups * state->panels, multiply, &job);
    const Run alone = {1, run->shared, {run->own[0]}};
    const bool small = conv->groups * conv->out * state->columns * state->parts < 1 << 13;
    share_chunks(small ? &alone : run, conv->groups * conv->out, store_weights, &job);
    return OK;
}

// -- one channel by one channel -------------------------------------------------------------------

typedef struct {
    Conv conv;
    int64_t *offsets;  // of each tap
} Depthwise;

static void release_depthwise(void *argument) {
    Depthwise *state = argument;
    free(state->offsets);
    free(state);
}

static void *prepare_depthwise(Params *params, Needs *needs) {
    Depthwise *state = calloc(1, sizeof(Depthwise));
    if (!state) return NULL;
    Conv *conv = &state->conv;
    if (!ISA(read_conv)(conv, params) || conv->in != 1 ||
        !(state->offsets = malloc((size_t)conv->window * sizeof(int64_t)))) {
        release_depthwise(state);
        return NULL;
    }
    for (int64_t tap = 0; tap < conv->window; tap++)
        state->offsets[tap] = ISA(tap_offset)(conv, tap);
    needs->own = conv->plane * (int64_t)sizeof(float);
    return state;
}

static float multiply_lines(const Conv *conv, const float *plane, const float *y) {
    const int64_t lines = conv->result[0] * conv->result[1], width = conv->result[2];
    Floats sums = {0};
    float rest = 0;
    for (int64_t line = 0; line < lines; line++, y += width) {
        const float *x =
            plane + (line / conv->result[1] * conv->phase[1] + line % conv->result[1]) * conv->phase[2];
        int64_t j = 0;
        for (; j + LANES <= width; j += LANES) sums += load(x + j) * load(y + j);
        for (; j < width; j++) rest += x[j] * y[j];
    }
    return sum_of(sums) + rest;
}

static void channel_weights(void *context, int64_t group, int thread) {
    const Job *job = context;
    const Depthwise *state = (const Depthwise *)job->state;
    const Conv *conv = &state->conv;
    float *plane = (float *)job->run->own[thread];
    float *weights = (float *)conv->w + group * conv->out * conv->window;
    memset(weights, 0, (size_t)(conv->out * conv->window) * sizeof(float));
    for (int64_t image = 0; image < conv->batch; image++) {
        ISA(lay_out_channel)(
            conv, conv->x + image * conv->x_batch + group * conv->x_channel, plane);
        for (int64_t i = 0; i < conv->out; i++) {
            const int64_t channel = (image * conv->groups + group) * conv->out + i;
            for (int64_t tap = 0; tap < conv->window; tap++)
                weights[i * conv->window + tap] += multiply_lines(
                    conv, plane + state->offsets[tap], conv->y + channel * conv->pixels);
        }
    }
}

static Failure run_depthwise(const void *argument, const Run *run) {
    const Depthwise *state = argument;
    Job job = {argument, run, NULL, NULL, NULL};
    share_chunks(run, state->conv.groups, channel_weights, &job);
    return OK;
}

const Kernel ISA(CONVOLUTION_WEIGHTS)[] = {
    {"ConvWeights_f32", prepare, run_weights, release},
    {"DepthwiseConvWeights_f32", prepare_depthwise, run_depthwise, release_depthwise},
    {NULL, NULL, NULL, NULL},
};
