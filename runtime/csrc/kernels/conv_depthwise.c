// Convolutions of one channel by one channel.
#include <stdlib.h>

#include "window.h"

typedef struct {
    Conv conv;
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
    free(state);
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
    for (int64_t tap = 0; tap < conv->window; tap++)
        state->offsets[tap] = ISA(tap_offset)(conv, tap);
    state->unit = ceil_div(1 << 17, conv->pixels * conv->window);
    needs->own = sweep_floats(conv) * (int64_t)sizeof(float);
    return state;
}

static void convolve_slice(
    const State *state, const float *from, const float *weights, float *to, int64_t count) {
    const int64_t window = state->conv.window, *offsets = state->offsets;
    SWEEP_LOOPS((Floats){0}, total[v] += weights[tap] * part)
}

static void convolve_channel(const State *state, int64_t channel, const float *plane, float *results) {
    const Conv *conv = &state->conv;
    const int64_t group = channel / conv->out % conv->groups;
    const int64_t number = group * conv->out + channel % conv->out;
    const int64_t slice = conv->result[1] * conv->result[2];
    float *y = conv->y + channel * conv->pixels;
    for (int64_t d = 0; d < conv->result[0]; d++) {
        convolve_slice(
            state, plane + d * conv->phase[1] * conv->phase[2], conv->w + number * conv->window, results,
            sweep_count(conv));
        keep_lines(conv, results, y + d * slice);
    }
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
    end_plane(conv, plane);
    for (int64_t channel = chunk * state->unit; channel < end; channel++) {
        const int64_t source = channel / conv->out;  // several outputs may have one input
        if (source != laid_out) {
            const float *x = conv->x + source / conv->groups * conv->x_batch +
                             source % conv->groups * conv->x_channel;
            ISA(lay_out_channel)(conv, x, plane);
            laid_out = source;
        }
        convolve_channel(state, channel, plane, results);
    }
}

static Failure run_depthwise(const void *argument, const Run *run) {
    const State *state = argument;
    const Conv *conv = &state->conv;
    Job job = {state, run};
    share_chunks(
        run, ceil_div(conv->batch * conv->groups * conv->out, state->unit), some_channels, &job);
    return OK;
}

const Kernel ISA(DEPTHWISE)[] = {
    {"DepthwiseConv_f32", prepare, run_depthwise, release},
    {NULL, NULL, NULL, NULL},
};
