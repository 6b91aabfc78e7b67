// The gradient of the weights of a convolution of one channel by one channel, as products of lines.
#include <stdlib.h>
#include <string.h>

#include "conv.h"

typedef struct {
    Conv conv;
    int64_t *offsets;  // of each tap
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
    const State *state = job->state;
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
    const State *state = argument;
    Job job = {state, run};
    share_chunks(run, state->conv.groups, channel_weights, &job);
    return OK;
}

const Kernel ISA(DEPTHWISE_WEIGHTS)[] = {
    {"DepthwiseConvWeights_f32", prepare, run_depthwise, release},
    {NULL, NULL, NULL, NULL},
};
