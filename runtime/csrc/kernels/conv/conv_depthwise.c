// Convolutions of one channel by one channel: blocks of lines that are read where they lie; of other
// windows, lines that are swept one by one, or, where these are short, whole copies of the image for each
// tap.  A window that is the whole image is a product of two lines.
#include <stdlib.h>

#include "copies.h"
#include "depthwise_planes.h"
#include "depthwise_turned.h"
#include "window.h"

enum { SHORT = 32 };  // columns of a line

// Floats of the copies of an image: many more are larger than what they are made of.
enum { MOST_COPIED = 1 << 20 };

enum { CHUNK = 1 << 17 };  // products

typedef struct {
    Conv conv;
    bool whole;  // the window is the image
    Strips strips;  // NULL: windows are not read where they lie
    int64_t lines, bands;  // of results in a chunk, and chunks of a channel
    bool turns;  // planes
    TurnedPlanes turned;
    bool is_short;  // lines
    Copies copies;
    int64_t *offsets;  // of each tap
    int64_t unit;  // channels of a chunk
} State;

typedef struct {
    const State *state;
    const Run *run;
} Job;

static void release(void *argument) {
    State *state = argument;
    free(state->offsets);
    free(state->strips.strips);
    ISA(free_copies)(&state->copies);
    ISA(release_turned_planes)(&state->turned);
    free(state);
}

static bool is_whole(const Conv *conv) {
    for (int axis = 0; axis < AXES; axis++) {
        // Taps that lie apart reach beyond an image of as many elements.
        const bool apart = conv->taps[axis] > 1 && conv->dilation[axis] > 1;
        if (apart || conv->before[axis] || conv->size[axis] != conv->taps[axis]) return false;
    }
    return conv->plain && conv->pixels == 1;
}

static void *prepare(Params *params, Needs *needs) {
    State *state = calloc(1, sizeof(State));
    if (!state) return NULL;
    Conv *conv = &state->conv;
    if (!ISA(read_conv)(conv, params) || conv->in != 1 ||
        !(state->offsets = malloc((size_t)conv->window * sizeof(int64_t)))) {
        release(state);
        return NULL;
    }
    state->unit = ceil_div(CHUNK, conv->pixels * conv->window);
    images_lie_anywhere(needs, conv);
    if ((state->whole = is_whole(conv))) return state;
    if ((state->turns = ISA(turning_wins)(conv))) {
        if (ISA(plan_turned_planes)(&state->turned, conv, needs)) return state;
        release(state);
        return NULL;
    }
    if (ISA(has_depthwise_planes)(conv)) {
        state->lines = band_lines(conv, CHUNK);
        state->bands = ceil_div(conv->result[1], state->lines);
        if (ISA(plan_strips)(&state->strips, conv)) return state;
        release(state);
        return NULL;
    }
    // Copies that are made line by line take longer than they save.
    const int64_t floats =
        size_of(conv->taps[2], conv->stride[1] * conv->phase[1], conv->result[2]);
    state->is_short = conv->result[2] < SHORT && floats >= 0 && floats <= MOST_COPIED &&
                      ISA(prepare_copies)(&state->copies, conv) && state->copies.masks;
    for (int64_t tap = 0; tap < conv->window; tap++)
        state->offsets[tap] = state->is_short ? ISA(copied_offset)(&state->copies, 1, 0, tap)
                                              : ISA(tap_offset)(conv, tap);
    const int64_t copied = conv->taps[2] * state->copies.floats + LANES;
    needs->own = (state->is_short ? copied : sweep_floats(conv)) * (int64_t)sizeof(float);
    return state;
}

static float product_of_lines(const float *x, const float *w, int64_t count) {
    Floats totals = {0};
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) totals += load(x + i) * load(w + i);
    float total = i ? sum_of(totals) : 0;
    for (; i < count; i++) total += x[i] * w[i];
    return total;
}

// Of an image.
static void some_products(void *context, int64_t chunk, int thread) {
    const State *state = ((const Job *)context)->state;
    const Conv *conv = &state->conv;
    const int64_t all = conv->groups * conv->out, chunks = ceil_div(all, state->unit);
    const int64_t image = chunk / chunks, first = chunk % chunks * state->unit;
    const int64_t end = lesser(first + state->unit, all);
    float *y = conv->y + image * all;
    (void)thread;
    for (int64_t i = first; i < end && !pool_is_stopped(); i++)
        y[i] = product_of_lines(
            conv->x + image * conv->x_batch + i / conv->out * conv->x_channel,
            conv->w + i * conv->window, conv->window);
    Epilogue epilogue = conv->epilogue;
    epilogue.column_bias = epilogue.row_bias;
    epilogue.row_bias = NULL;
    if (epilogue.residual) epilogue.residual += image * all;
    ISA(finish)(&epilogue, (Place){y + first, all, 0, first}, 1, end - first);
}

INLINE Floats add_weighted(Floats total, Floats part, const float *weights, int64_t tap) {
    return total + weights[tap] * part;
}

static void convolve_slice(
    const State *state, const float *from, const float *weights, float *to, int64_t count) {
    const int64_t window = state->conv.window, part = sweep_part(window);
    for (int64_t at = 0; at < count && !pool_is_stopped(); at += part) {
        const Sweep sweep = {from + at, weights, state->offsets, window, to + at};
        sweep_slice(&sweep, lesser(part, count - at), (Floats){0}, add_weighted);
    }
}

static void convolve_copies(
    const State *state, const float *copies, const float *weights, float *y) {
    const int64_t pixels = state->conv.pixels, window = state->conv.window;
    int64_t done = 0;
    for (int64_t i = 0; i < pixels; i += LANES) {
        if (is_stopped_after(window, &done)) return;
        Floats total = {0};
        for (int64_t tap = 0; tap < window; tap++)
            total += load(copies + state->offsets[tap] + i) * weights[tap];
        if (i + LANES <= pixels) {
            store(y + i, total);
            continue;
        }
        float rest[LANES];
        store(rest, total);
        copy_floats(y + i, rest, pixels - i);
    }
}

static void convolve_slices(
    const State *state, const float *plane, const float *weights, float *y, float *results) {
    const Conv *conv = &state->conv;
    const int64_t slice = conv->result[1] * conv->result[2];
    for (int64_t d = 0; d < conv->result[0]; d++) {
        convolve_slice(
            state, plane + d * conv->phase[1] * conv->phase[2], weights, results,
            sweep_count(conv));
        keep_lines(conv, results, y + d * slice);
    }
}

static void convolve_channel(
    const State *state, int64_t channel, const float *plane, float *results) {
    const Conv *conv = &state->conv;
    const int64_t group = channel / conv->out % conv->groups;
    const int64_t number = group * conv->out + channel % conv->out;
    const float *weights = conv->w + number * conv->window;
    float *y = conv->y + channel * conv->pixels;
    if (state->is_short)
        convolve_copies(state, plane, weights, y);
    else
        convolve_slices(state, plane, weights, y, results);
    Epilogue epilogue = conv->epilogue;
    if (epilogue.row_bias) epilogue.row_bias += number;
    if (epilogue.residual) epilogue.residual += channel * conv->pixels;
    ISA(finish)(&epilogue, (Place){y, conv->pixels, 0, 0}, 1, conv->pixels);
}

static void some_channels(void *context, int64_t chunk, int thread) {
    const Job *job = context;
    const State *state = job->state;
    const Conv *conv = &state->conv;
    const int64_t all = conv->batch * conv->groups * conv->out;
    int64_t end = (chunk + 1) * state->unit;
    if (end > all) end = all;
    float *plane = (float *)job->run->own[thread], *results = sweep_results(conv, plane);
    int64_t laid_out = -1;
    if (!state->is_short) end_plane(conv, plane);
    for (int64_t channel = chunk * state->unit; channel < end; channel++) {
        const int64_t source = channel / conv->out;  // several outputs may have one input
        if (source != laid_out) {
            const float *x = conv->x + source / conv->groups * conv->x_batch +
                             source % conv->groups * conv->x_channel;
            if (state->is_short)
                ISA(copy_channels)(&state->copies, x, 1, plane);
            else
                ISA(lay_out_channel)(conv, x, plane);
            laid_out = source;
        }
        convolve_channel(state, channel, plane, results);
    }
}

static void some_bands(void *context, int64_t chunk, int thread) {
    const State *state = ((const Job *)context)->state;
    const Conv *conv = &state->conv;
    const int64_t all = conv->batch * conv->groups * conv->out, first = chunk / state->bands;
    const int64_t begin = chunk % state->bands * state->lines;
    const int64_t end = lesser(begin + state->lines, conv->result[1]);
    (void)thread;
    for (int64_t i = first * state->unit; i < lesser((first + 1) * state->unit, all); i++)
        ISA(convolve_band)(&state->strips, i, i % (conv->groups * conv->out), begin, end);
}

static void turned_chunk(void *context, int64_t chunk, int thread) {
    const Job *job = context;
    const State *state = job->state;
    ISA(convolve_turned)(&state->turned, &state->conv, chunk, job->run->own[thread]);
}

static Failure run_depthwise(const void *argument, const Run *run) {
    const State *state = argument;
    const Conv *conv = &state->conv;
    Job job = {state, run};
    const int64_t chunks = ceil_div(conv->batch * conv->groups * conv->out, state->unit);
    if (state->whole)
        share_chunks(
            run, conv->batch * ceil_div(conv->groups * conv->out, state->unit), some_products,
            &job);
    else if (state->turns)
        share_chunks(run, ISA(turned_chunks)(&state->turned, conv), turned_chunk, &job);
    else if (state->strips.strips)
        share_chunks(run, chunks * state->bands, some_bands, &job);
    else
        share_chunks(run, chunks, some_channels, &job);
    return OK;
}

const Kernel ISA(DEPTHWISE)[] = {
    {"DepthwiseConv_f32", prepare, run_depthwise, release},
    {NULL, NULL, NULL, NULL},
};
