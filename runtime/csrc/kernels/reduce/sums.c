// Sums: of rows that were taken by their numbers, and of all elements of each channel.
#include <stdlib.h>
#include <string.h>

#include "../../kernel.h"
#include "../support/simd.h"
#include "../support/sizes.h"

// -- rows that were taken by their numbers --------------------------------------------------------

typedef struct {
    const float *grad;
    float *out;
    Tensor indices;
    int64_t outer, rows, width, count;
} Scatter;

static void *prepare_scatter(Params *params, Needs *needs) {
    (void)needs;
    Scatter *scatter = calloc(1, sizeof(Scatter));
    if (!scatter) return NULL;
    const Tensor grad = next_tensor(params), indices = next_tensor(params);
    const Tensor out = next_tensor(params);
    scatter->grad = (const float *)grad.data;
    scatter->indices = indices;
    scatter->count = element_count(&indices);
    scatter->out = (float *)out.data;
    scatter->outer = next_int(params);
    scatter->rows = next_int(params);
    scatter->width = next_int(params);
    const int64_t given = size_of(scatter->outer, scatter->count, scatter->width);
    const int64_t all = size_of(scatter->outer, scatter->rows, scatter->width);
    if (!params->bad && given >= 0 && all >= 0 && are_indices(&indices) &&
        holds(&grad, F32, given) && holds(&out, F32, all)) {
        return scatter;
    }
    free(scatter);
    return NULL;
}

static Failure run_scatter(const void *state, const Run *run) {
    (void)run;
    const Scatter *scatter = state;
    const int64_t width = scatter->width, size = scatter->rows * width;
    const float *grad = scatter->grad;
    memset(scatter->out, 0, (size_t)(scatter->outer * size) * sizeof(float));
    for (int64_t i = 0; i < scatter->outer; i++)
        for (int64_t j = 0; j < scatter->count; j++, grad += width) {
            const int64_t row = place_at(&scatter->indices, j, scatter->rows);
            if (row < 0) return INDEX_OUTSIDE;
            float *to = scatter->out + i * size + row * width;
            INDEPENDENT_FOR (int64_t k = 0; k < width; k++) to[k] += grad[k];
        }
    return OK;
}

// -- channels: [outer][channels][inner] -----------------------------------------------------------

enum { SUM_WORK = 1 << 14 };  // elements of a chunk: see sizes.h

typedef struct {
    int64_t outer, channels, inner;
    const float *x;
    float *y;
    int64_t unit;  // channels of a chunk
} Channels;

static void *prepare_channels(Params *params, Needs *needs) {
    (void)needs;
    Channels *channels = calloc(1, sizeof(Channels));
    if (!channels) return NULL;
    const Tensor x = next_tensor(params), y = next_tensor(params);
    channels->x = (const float *)x.data;
    channels->y = (float *)y.data;
    channels->outer = next_int(params);
    channels->channels = next_int(params);
    channels->inner = next_int(params);
    const int64_t all = size_of(channels->outer, channels->channels, channels->inner);
    if (!params->bad && all > 0 && holds(&x, F32, all) && holds(&y, F32, channels->channels)) {
        const int64_t size = all / channels->channels;
        channels->unit = ceil_div(SUM_WORK, size);
        return channels;
    }
    free(channels);
    return NULL;
}

static void some_channels(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Channels *channels = context;
    const int64_t n = channels->inner;
    int64_t end = (chunk + 1) * channels->unit;
    if (end > channels->channels) end = channels->channels;
    for (int64_t channel = chunk * channels->unit; channel < end; channel++) {
        Floats low = {0}, high = {0};
        float rest = 0;
        for (int64_t i = 0; i < channels->outer; i++) {
            const float *x = channels->x + (i * channels->channels + channel) * n;
            int64_t j = 0;
            for (; j + 2 * LANES <= n; j += 2 * LANES) {
                low += load(x + j);
                high += load(x + j + LANES);
            }
            for (; j < n; j++) rest += x[j];
        }
        channels->y[channel] = sum_of(low + high) + rest;
    }
}

static Failure run_channels(const void *state, const Run *run) {
    const Channels *channels = state;
    share_chunks(
        run, ceil_div(channels->channels, channels->unit), some_channels, (void *)channels);
    return OK;
}

const Kernel ISA(SUMS)[] = {
    {"GatherGrad_f32", prepare_scatter, run_scatter, NULL},
    {"ChannelSums_f32", prepare_channels, run_channels, NULL},
    {NULL, NULL, NULL, NULL},
};
