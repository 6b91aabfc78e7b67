// Convolutions as matrix products: weights [out][in * taps] times windows [in * taps][pixels], where
// panels of windows are collected just before they are multiplied.
#include <stdlib.h>
#include <string.h>

#include "conv.h"

enum { PIXEL_PANELS = 4 };  // panels of a chunk: their slices stay in the second cache

typedef struct {
    Conv conv;
    int64_t k;  // in * window
    bool direct;  // windows are single pixels: the input is read where it lies
    float *packed;  // constant weights, group after group
    int64_t packed_group;  // floats
    int64_t *offsets;  // of each of the k numbers of a window, from the place of its pixel
    int64_t input_floats;  // of the laid out input
    int64_t row_group;  // output channels of a chunk
} State;

typedef struct {
    const State *state;
    const Run *run;
    const float *weights;
    float *input;
} Job;

static int64_t padded(int64_t count, int64_t unit) { return ceil_div(count, unit) * unit; }

// -- preparing ------------------------------------------------------------------------------------

static bool reads_in_place(const Conv *conv) {
    if (!conv->plain) return false;
    for (int axis = 0; axis < AXES; axis++)
        if (conv->stride[axis] != 1 || conv->before[axis] || conv->size[axis] != conv->result[axis])
            return false;
    return conv->window == 1;
}

static void pack_weights(const State *state, float *to, int64_t group) {
    const Conv *conv = &state->conv;
    ISA(pack_panels)(
        to + group * state->packed_group, conv->w + group * conv->out * state->k, state->k, 1,
        conv->out, state->k, TILE_ROWS);
}

static void choose_rows(State *state) {
    // Channels are divided among chunks only where there are few pixels.
    const Conv *conv = &state->conv;
    const int64_t columns = ceil_div(conv->pixels, PIXEL_PANELS * TILE_COLUMNS);
    const int64_t chunks = columns * conv->batch * conv->groups;
    const int64_t work = state->k * conv->out * conv->pixels;
    int64_t wanted = chunks >= 8 ? 1 : 8 / chunks;
    if (wanted > work / (1 << 19)) wanted = work / (1 << 19);
    const int64_t panels = ceil_div(conv->out, TILE_ROWS);
    if (wanted > panels) wanted = panels;
    if (wanted < 1) wanted = 1;
    state->row_group = ceil_div(panels, wanted) * TILE_ROWS;
}

static void release(void *argument) {
    State *state = argument;
    free(state->packed);
    free(state->offsets);
    free(state);
}

static bool allocate(State *state) {
    const Conv *conv = &state->conv;
    state->offsets = malloc((size_t)state->k * sizeof(int64_t));
    if (!state->offsets) return false;
    const int64_t plane = state->direct ? conv->x_channel : conv->plane;
    for (int64_t i = 0; i < state->k; i++)
        state->offsets[i] =
            i / conv->window * plane + (state->direct ? 0 : ISA(tap_offset)(conv, i % conv->window));
    if (!conv->constant) return true;
    state->packed =
        aligned_alloc(64, (size_t)padded(state->packed_group * conv->groups, 16) * sizeof(float));
    for (int64_t group = 0; state->packed && group < conv->groups; group++)
        pack_weights(state, state->packed, group);
    return state->packed != NULL;
}

static void *prepare(Params *params, Needs *needs) {
    State *state = calloc(1, sizeof(State));
    if (!state) return NULL;
    Conv *conv = &state->conv;
    if (!ISA(read_conv)(conv, params)) {
        free(state);
        return NULL;
    }
    state->k = conv->in * conv->window;
    state->direct = reads_in_place(conv);
    state->packed_group = padded(conv->out, TILE_ROWS) * state->k;
    if (!allocate(state)) {
        release(state);
        return NULL;
    }
    choose_rows(state);
    // What is read and written beyond the end of a panel is never used.
    state->input_floats =
        state->direct ? 0
                      : padded(conv->batch * conv->groups * conv->in * conv->plane + TILE_COLUMNS, 16);
    const int64_t weights = conv->constant ? 0 : state->packed_group * conv->groups;
    const int64_t depth = state->k < DEPTH ? state->k : DEPTH;
    needs->shared = (state->input_floats + weights) * (int64_t)sizeof(float);
    needs->own = (PIXEL_PANELS * depth + 2) * TILE_COLUMNS * (int64_t)sizeof(float);
    return state;
}

// -- running --------------------------------------------------------------------------------------

static void lay_out(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Job *job = context;
    const Conv *conv = &job->state->conv;
    const int64_t channels = conv->groups * conv->in;
    const float *channel =
        conv->x + chunk / channels * conv->x_batch + chunk % channels * conv->x_channel;
    ISA(lay_out_channel)(conv, channel, job->input + chunk * conv->plane);
}

static void pack_group(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Job *job = context;
    pack_weights(job->state, (float *)job->weights, chunk);
}

// Pixels of a panel whose windows lie side by side.
typedef struct {
    int start, count;
    int64_t place;
} Stretch;

static int find_stretches(const State *state, int64_t first, int count, Stretch *stretches) {
    const Conv *conv = &state->conv;
    if (state->direct) {
        stretches[0] = (Stretch){0, count, first};
        return 1;
    }
    int found = 0;
    for (int done = 0; done < count;) {
        const int64_t pixel = first + done;
        const int64_t column = pixel % conv->result[2], line = pixel / conv->result[2];
        const int64_t row = line % conv->result[1], slice = line / conv->result[1];
        int64_t length = conv->result[2] - column;
        if (length > count - done) length = count - done;
        const int64_t place = (slice * conv->phase[1] + row) * conv->phase[2] + column;
        stretches[found++] = (Stretch){done, (int)length, place};
        done += (int)length;
    }
    return found;
}

// Numbers begin .. end - 1 of the windows of up to TILE_COLUMNS pixels.
static void collect(
    const State *state, const float *input, int64_t first, int count, int64_t begin, int64_t end,
    float *to) {
    Stretch stretches[TILE_COLUMNS];
    const int found = find_stretches(state, first, count, stretches);
    const bool whole = found == 1 && count == TILE_COLUMNS;
    for (int64_t i = begin; i < end; i++, to += TILE_COLUMNS) {
        const float *from = input + state->offsets[i];
        if (whole) {
            const float *source = from + stretches[0].place;
            store(to, load(source));
            store(to + LANES, load(source + LANES));
        } else if (state->direct) {
            memcpy(to, from + first, (size_t)count * sizeof(float));
        } else {
            for (int s = 0; s < found; s++) {
                const float *source = from + stretches[s].place;
                for (int j = 0; j < stretches[s].count; j += LANES)
                    store(to + stretches[s].start + j, load(source + j));
            }
        }
    }
}

static void convolve(void *context, int64_t chunk, int thread) {
    const Job *job = context;
    const State *state = job->state;
    const Conv *conv = &state->conv;
    const int64_t columns = ceil_div(conv->pixels, PIXEL_PANELS * TILE_COLUMNS);
    const int64_t row_groups = ceil_div(conv->out, state->row_group);
    const int64_t first = chunk % columns * PIXEL_PANELS * TILE_COLUMNS;
    const int64_t top = chunk / columns % row_groups * state->row_group;
    const int64_t plane = chunk / columns / row_groups;  // number of the group, image by image
    const int64_t group = plane % conv->groups;
    const int64_t width = conv->pixels - first < PIXEL_PANELS * TILE_COLUMNS
                              ? conv->pixels - first
                              : PIXEL_PANELS * TILE_COLUMNS;
    const int64_t height = conv->out - top < state->row_group ? conv->out - top : state->row_group;
    const float *input = state->direct
                             ? conv->x + plane / conv->groups * conv->x_batch +
                                   group * conv->in * conv->x_channel
                             : job->input + plane * conv->in * conv->plane;
    const float *left = job->weights + group * state->packed_group + top * state->k;
    Epilogue epilogue = conv->epilogue;
    if (epilogue.row_bias) epilogue.row_bias += group * conv->out;
    if (epilogue.residual) epilogue.residual += plane * conv->out * conv->pixels;
    const Place out = {
        conv->y + (plane * conv->out + top) * conv->pixels + first, conv->pixels, top, first};
    float *windows = (float *)job->run->own[thread];
    for (int64_t done = 0; done < state->k; done += DEPTH) {
        const int64_t depth = state->k - done < DEPTH ? state->k - done : DEPTH;
        const bool last = done + depth == state->k;
        for (int64_t j = 0; j < width; j += TILE_COLUMNS) {
            const int count = width - j < TILE_COLUMNS ? (int)(width - j) : TILE_COLUMNS;
            collect(state, input, first + j, count, done, done + depth, windows + j * depth);
        }
        for (int64_t i = 0; i < height; i += TILE_ROWS) {
            const int rows = height - i < TILE_ROWS ? (int)(height - i) : TILE_ROWS;
            for (int64_t j = 0; j < width; j += TILE_COLUMNS) {
                const int count = width - j < TILE_COLUMNS ? (int)(width - j) : TILE_COLUMNS;
                const Place tile = {
                    out.data + i * out.row + j, out.row, out.first_row + i, out.first_column + j};
                ISA(multiply_tile)(
                    left + i * state->k + done * TILE_ROWS, windows + j * depth, depth, tile, rows,
                    count, done > 0);
                if (last) ISA(finish)(&epilogue, tile, rows, count);
            }
        }
    }
}

static Failure run_conv(const void *argument, const Run *run) {
    const State *state = argument;
    const Conv *conv = &state->conv;
    Job job = {state, run, state->packed, (float *)run->shared};
    if (!conv->constant) {
        job.weights = (float *)run->shared + state->input_floats;
        share_chunks(run, conv->groups, pack_group, &job);
    }
    if (!state->direct) share_chunks(run, conv->batch * conv->groups * conv->in, lay_out, &job);
    const int64_t columns = ceil_div(conv->pixels, PIXEL_PANELS * TILE_COLUMNS);
    const int64_t rows = ceil_div(conv->out, state->row_group);
    share_chunks(run, conv->batch * conv->groups * rows * columns, convolve, &job);
    return OK;
}

// -- one channel by one channel -------------------------------------------------------------------

typedef struct {
    Conv conv;
    int64_t *offsets;  // of each tap
    int64_t unit;  // channels of a chunk
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
    const int64_t work = conv->pixels * conv->window;
    state->unit = ceil_div(1 << 17, work);
    needs->own = (conv->plane + 2 * TILE_COLUMNS) * (int64_t)sizeof(float);
    return state;
}

// Outputs of one line, `count` of them, from `from`.
static void convolve_line(
    const Depthwise *state, const float *from, const float *weights, float *to, int64_t count) {
    const int64_t window = state->conv.window;
    for (int64_t j = 0; j < count; j += TILE_COLUMNS) {
        Floats low = {0}, high = {0};
        for (int64_t tap = 0; tap < window; tap++) {
            const float *source = from + state->offsets[tap] + j;
            low += weights[tap] * load(source);
            high += weights[tap] * load(source + LANES);
        }
        if (count - j >= TILE_COLUMNS) {
            store(to + j, low);
            store(to + j + LANES, high);
        } else {
            float rest[TILE_COLUMNS];
            store(rest, low);
            store(rest + LANES, high);
            memcpy(to + j, rest, (size_t)(count - j) * sizeof(float));
        }
    }
}

static void convolve_channels(void *context, int64_t chunk, int thread) {
    const Job *job = context;
    const Depthwise *state = (const Depthwise *)job->state;
    const Conv *conv = &state->conv;
    const int64_t all = conv->batch * conv->groups * conv->out;
    int64_t end = (chunk + 1) * state->unit;
    if (end > all) end = all;
    float *plane = (float *)job->run->own[thread];
    int64_t laid_out = -1;
    for (int64_t channel = chunk * state->unit; channel < end; channel++) {
        const int64_t source = channel / conv->out;  // several outputs may have one input
        const int64_t group = source % conv->groups;
        if (source != laid_out) {
            const float *x = conv->x + source / conv->groups * conv->x_batch + group * conv->x_channel;
            ISA(lay_out_channel)(conv, x, plane);
            laid_out = source;
        }
        const int64_t number = group * conv->out + channel % conv->out;
        Epilogue epilogue = conv->epilogue;
        if (epilogue.row_bias) epilogue.row_bias += number;
        if (epilogue.residual) epilogue.residual += channel * conv->pixels;
        const int64_t lines = conv->result[0] * conv->result[1], width = conv->result[2];
        for (int64_t line = 0; line < lines; line++) {
            const int64_t row = line / conv->result[1] * conv->phase[1] + line % conv->result[1];
            float *to = conv->y + channel * conv->pixels + line * width;
            convolve_line(state, plane + row * conv->phase[2], conv->w + number * conv->window, to, width);
            const Place out = {to, conv->pixels, 0, line * width};
            ISA(finish)(&epilogue, out, 1, width);
        }
    }
}

static Failure run_depthwise(const void *argument, const Run *run) {
    const Depthwise *state = argument;
    const Conv *conv = &state->conv;
    Job job = {argument, run, NULL, NULL};
    share_chunks(
        run, ceil_div(conv->batch * conv->groups * conv->out, state->unit), convolve_channels, &job);
    return OK;
}

const Kernel ISA(CONVOLUTIONS)[] = {
    {"Conv_f32", prepare, run_conv, release},
    {"DepthwiseConv_f32", prepare_depthwise, run_depthwise, release_depthwise},
    {NULL, NULL, NULL, NULL},
};
