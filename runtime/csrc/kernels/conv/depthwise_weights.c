// The gradient of the weights of a convolution of one channel by one channel: products of the gradient
// of the result with copies of the input, one for each tap.
#include <stdlib.h>
#include <string.h>

#include "copies.h"

// Taps that share a gradient that has been read: 3 x 3, whose sums fit 16 registers.  Products of a
// chunk, which take some ten microseconds.
enum { TAPS_AT_ONCE = 9, CHUNK_WORK = 1 << 18 };

typedef struct {
    Conv conv;  // whose `y` is the gradient of the result, and `w` what is to be computed
    Copies copies;
    int64_t *offsets;  // of each tap
    int64_t unit;  // channels of a chunk
    int32_t last[LANES];  // a mask of the last vector of the pixels: those that there are
} State;

typedef struct {
    const State *state;
    const Run *run;
} Job;

static void release(void *argument) {
    State *state = argument;
    free(state->offsets);
    ISA(free_copies)(&state->copies);
    free(state);
}

static int64_t copied_floats(const State *state) {
    return padded(state->conv.taps[2] * state->copies.floats + LANES, 16);
}

static void *prepare(Params *params, Needs *needs) {
    State *state = calloc(1, sizeof(State));
    if (!state) return NULL;
    Conv *conv = &state->conv;
    if (!ISA(read_conv)(conv, params) || conv->in != 1 ||
        !ISA(prepare_copies)(&state->copies, conv) ||
        !(state->offsets = malloc((size_t)conv->window * sizeof(int64_t)))) {
        release(state);
        return NULL;
    }
    for (int64_t tap = 0; tap < conv->window; tap++)
        state->offsets[tap] = ISA(copied_offset)(&state->copies, 1, 0, tap);
    for (int lane = 0; lane < LANES; lane++)
        state->last[lane] = lane < conv->pixels % LANES ? -1 : 0;
    state->unit = ceil_div(CHUNK_WORK, conv->batch * conv->pixels * conv->window * conv->out);
    needs->own = (copied_floats(state) + conv->out * conv->window * LANES) * (int64_t)sizeof(float);
    return state;
}

// `count` is a constant wherever this is called, so that the sums stay in registers.
INLINE void add_products(
    const State *state, const float *copies, const int64_t *offsets, const float *y, Floats *sums,
    const int count) {
    const int64_t pixels = state->conv.pixels;
    Floats total[TAPS_AT_ONCE];
    for (int tap = 0; tap < count; tap++) total[tap] = sums[tap];
    int64_t i = 0;
    for (; i + LANES <= pixels; i += LANES) {
        const Floats gradient = load(y + i);
        for (int tap = 0; tap < count; tap++)
            total[tap] += load(copies + offsets[tap] + i) * gradient;
    }
    if (i < pixels) {
        float rest[LANES] = {0};
        memcpy(rest, y + i, (size_t)(pixels - i) * sizeof(float));
        Mask last;
        memcpy(&last, state->last, sizeof(last));
        for (int tap = 0; tap < count; tap++) {
            const Mask there = (Mask)load(copies + offsets[tap] + i) & last;
            total[tap] += (Floats)there * load(rest);
        }
    }
    for (int tap = 0; tap < count; tap++) sums[tap] = total[tap];
}

static void add_taps(
    const State *state, const float *copies, const float *y, Floats *sums, int64_t *done) {
    const int64_t window = state->conv.window, *offsets = state->offsets;
    int64_t tap = 0;
    for (; tap + TAPS_AT_ONCE <= window; tap += TAPS_AT_ONCE) {
        if (is_stopped_after(TAPS_AT_ONCE * state->conv.pixels, done)) return;
        add_products(state, copies, offsets + tap, y, sums + tap, TAPS_AT_ONCE);
    }
    for (; tap + 3 <= window; tap += 3)
        add_products(state, copies, offsets + tap, y, sums + tap, 3);
    for (; tap < window; tap++) add_products(state, copies, offsets + tap, y, sums + tap, 1);
}

static void channel_weights(const State *state, int64_t group, float *copies, Floats *sums) {
    const Conv *conv = &state->conv;
    memset(sums, 0, (size_t)(conv->out * conv->window) * sizeof(Floats));
    int64_t done = 0;
    for (int64_t image = 0; image < conv->batch; image++) {
        ISA(copy_channels)(
            &state->copies, conv->x + image * conv->x_batch + group * conv->x_channel, 1, copies);
        const float *y = conv->y + (image * conv->groups + group) * conv->out * conv->pixels;
        for (int64_t i = 0; i < conv->out; i++) {
            if (is_stopped_after(conv->pixels, &done)) return;
            add_taps(state, copies, y + i * conv->pixels, sums + i * conv->window, &done);
        }
    }
    float *weights = (float *)conv->w + group * conv->out * conv->window;
    for (int64_t i = 0; i < conv->out * conv->window; i++) weights[i] = sum_of(sums[i]);
}

static void some_channels(void *context, int64_t chunk, int thread) {
    const Job *job = context;
    const State *state = job->state;
    float *copies = (float *)job->run->own[thread];
    Floats *sums = (Floats *)(copies + copied_floats(state));
    const int64_t end = (chunk + 1) * state->unit, groups = state->conv.groups;
    for (int64_t group = chunk * state->unit; group < end && group < groups; group++)
        channel_weights(state, group, copies, sums);
}

static Failure run_depthwise(const void *argument, const Run *run) {
    const State *state = argument;
    Job job = {state, run};
    share_chunks(run, ceil_div(state->conv.groups, state->unit), some_channels, &job);
    return OK;
}

const Kernel ISA(DEPTHWISE_WEIGHTS)[] = {
    {"DepthwiseConvWeights_f32", prepare, run_depthwise, release},
    {NULL, NULL, NULL, NULL},
};
