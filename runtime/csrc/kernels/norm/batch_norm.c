// Normalisation by statistics of the batch and its gradient, [images][channels][pixels]; and the
// gradients of softmax, row by row.
#include <math.h>
#include <stdlib.h>

#include "../../kernel.h"
#include "../support/math.h"
#include "../support/simd.h"
#include "../support/sizes.h"

typedef struct {
    int64_t images, channels, pixels;
    bool training;  // of the gradient: mean and variance depend on x
    double epsilon;
    const float *dy, *x, *scale, *bias, *given_mean, *given_variance;
    float *out, *first, *second;  // y, mean and variance; or the gradients of x, scale and bias
} Batch;

static void *prepare(Params *params, bool gradient) {
    Batch *batch = calloc(1, sizeof(Batch));
    if (!batch) return NULL;
    batch->images = next_int(params);
    batch->channels = next_int(params);
    batch->pixels = next_int(params);
    batch->training = next_int(params) != 0;
    batch->epsilon = next_float(params);
    const float **given[] = {&batch->dy,   &batch->x,          &batch->scale,
                             &batch->bias, &batch->given_mean, &batch->given_variance};
    float **wanted[] = {&batch->out, &batch->first, &batch->second};
    Tensor tensors[9];
    for (int i = 0; i < 9; i++) tensors[i] = maybe_tensor(params);
    for (int i = 0; i < 6; i++) *given[i] = (const float *)tensors[i].data;
    for (int i = 0; i < 3; i++) *wanted[i] = (float *)tensors[6 + i].data;
    const int64_t size = size_of(batch->images, batch->channels, batch->pixels);
    bool fits = !params->bad && size > 0 && batch->x && batch->scale;
    for (int i = 0; i < 9; i++)
        fits = fits && may_hold(&tensors[i], F32, i < 2 || i == 6 ? size : batch->channels);
    fits = fits && (gradient ? batch->dy && batch->given_mean && batch->given_variance
                             : batch->bias && batch->out);
    if (fits) return batch;
    free(batch);
    return NULL;
}

static void *prepare_training(Params *params, Needs *needs) {
    (void)needs;
    return prepare(params, false);
}

static void *prepare_gradient(Params *params, Needs *needs) {
    (void)needs;
    return prepare(params, true);
}

typedef enum { PLAIN, SQUARES, PRODUCTS } Kind;

// Sums over a channel: of x - shift, of its squares, or of its products with y.
INLINE double sum_channel(
    const Batch *batch, int64_t channel, const float *x, const float *y, float shift,
    const Kind kind) {
    const int64_t n = batch->pixels;
    double total = 0;
    for (int64_t image = 0; image < batch->images; image++) {
        const int64_t place = (image * batch->channels + channel) * n;
        Floats sums[2] = {{0}, {0}};
        float rest = 0;
        int64_t i = 0;
        for (; i + 2 * LANES <= n; i += 2 * LANES)
            for (int k = 0; k < 2; k++) {
                const Floats v = load(x + place + i + k * LANES) - shift;
                sums[k] += kind == PLAIN     ? v
                           : kind == SQUARES ? v * v
                                             : v * load(y + place + i + k * LANES);
            }
        for (; i < n; i++) {
            const float v = x[place + i] - shift;
            rest += kind == PLAIN ? v : kind == SQUARES ? v * v : v * y[place + i];
        }
        total += sum_of(sums[0] + sums[1]) + rest;
    }
    return total;
}

static void normalize_channel(void *context, int64_t channel, int thread) {
    (void)thread;
    const Batch *batch = context;
    const double count = (double)(batch->images * batch->pixels);
    const float mean = (float)(sum_channel(batch, channel, batch->x, NULL, 0, PLAIN) / count);
    const float variance =
        (float)(sum_channel(batch, channel, batch->x, NULL, mean, SQUARES) / count);
    if (batch->first) batch->first[channel] = mean;
    if (batch->second) batch->second[channel] = variance;
    if (!batch->out) return;
    const float factor = batch->scale[channel] / sqrtf(variance + (float)batch->epsilon);
    const float bias = batch->bias[channel];
    for (int64_t image = 0; image < batch->images; image++) {
        const int64_t place = (image * batch->channels + channel) * batch->pixels;
        const float *x = batch->x + place;
        float *y = batch->out + place;
        INDEPENDENT_FOR (int64_t i = 0; i < batch->pixels; i++)
            y[i] = (x[i] - mean) * factor + bias;
    }
}

static void channel_gradient(void *context, int64_t channel, int thread) {
    (void)thread;
    const Batch *batch = context;
    const float mean = batch->given_mean[channel];
    const float inverse = 1.0f / sqrtf(batch->given_variance[channel] + (float)batch->epsilon);
    const float plain = (float)sum_channel(batch, channel, batch->dy, NULL, 0, PLAIN);
    const float product = (float)sum_channel(batch, channel, batch->x, batch->dy, mean, PRODUCTS) *
                          inverse;
    if (batch->first) batch->first[channel] = product;
    if (batch->second) batch->second[channel] = plain;
    if (!batch->out) return;
    const float factor = batch->scale[channel] * inverse;
    const float share = batch->training ? -factor / (float)(batch->images * batch->pixels) : 0;
    const float slope = share * product * inverse, offset = share * plain;
    for (int64_t image = 0; image < batch->images; image++) {
        const int64_t place = (image * batch->channels + channel) * batch->pixels;
        const float *x = batch->x + place, *dy = batch->dy + place;
        float *dx = batch->out + place;
        if (batch->training) {
            INDEPENDENT_FOR (int64_t i = 0; i < batch->pixels; i++)
                dx[i] = dy[i] * factor + ((x[i] - mean) * slope + offset);
        } else {
            INDEPENDENT_FOR (int64_t i = 0; i < batch->pixels; i++) dx[i] = dy[i] * factor;
        }
    }
}

static Failure run_training(const void *state, const Run *run) {
    share_chunks(run, ((const Batch *)state)->channels, normalize_channel, (void *)state);
    return OK;
}
static Failure run_gradient(const void *state, const Run *run) {
    share_chunks(run, ((const Batch *)state)->channels, channel_gradient, (void *)state);
    return OK;
}

// -- gradients of softmax -------------------------------------------------------------------------

typedef struct {
    int64_t rows, length, unit;
    const float *dy, *y;  // `y` is the softmax, or its logarithm
    float *dx;
    bool logarithm;
} SoftmaxGrad;

static void *prepare_softmax(Params *params, Needs *needs) {
    (void)needs;
    SoftmaxGrad *grad = calloc(1, sizeof(SoftmaxGrad));
    if (!grad) return NULL;
    const Tensor dy = next_tensor(params), y = next_tensor(params), dx = next_tensor(params);
    grad->dy = (const float *)dy.data;
    grad->y = (const float *)y.data;
    grad->dx = (float *)dx.data;
    grad->rows = next_int(params);
    grad->length = next_int(params);
    grad->logarithm = next_int(params) != 0;
    const int64_t size = size_of(grad->rows, grad->length, 1);
    if (!params->bad && size > 0 && holds(&dy, F32, size) && holds(&y, F32, size) &&
        holds(&dx, F32, size)) {
        grad->unit = ceil_div(1 << 13, grad->length);
        return grad;
    }
    free(grad);
    return NULL;
}

static void softmax_row(const SoftmaxGrad *grad, int64_t row) {
    const int64_t n = grad->length;
    const float *dy = grad->dy + row * n, *y = grad->y + row * n;
    float *dx = grad->dx + row * n, total = 0;
    Floats sums = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        sums += grad->logarithm ? load(dy + i) : load(dy + i) * load(y + i);
    for (; i < n; i++) total += grad->logarithm ? dy[i] : dy[i] * y[i];
    total += sum_of(sums);
    if (grad->logarithm) {
        INDEPENDENT_FOR (i = 0; i < n; i++) dx[i] = dy[i] - fast_exp(y[i]) * total;
    } else {
        INDEPENDENT_FOR (i = 0; i < n; i++) dx[i] = (dy[i] - total) * y[i];
    }
}

static void some_rows(void *context, int64_t chunk, int thread) {
    (void)thread;
    const SoftmaxGrad *grad = context;
    int64_t end = (chunk + 1) * grad->unit;
    if (end > grad->rows) end = grad->rows;
    for (int64_t row = chunk * grad->unit; row < end; row++) softmax_row(grad, row);
}

static Failure run_softmax(const void *state, const Run *run) {
    const SoftmaxGrad *grad = state;
    share_chunks(run, ceil_div(grad->rows, grad->unit), some_rows, (void *)grad);
    return OK;
}

const Kernel ISA(BATCH_NORMS)[] = {
    {"BatchNormTraining_f32", prepare_training, run_training, NULL},
    {"BatchNormGrad_f32", prepare_gradient, run_gradient, NULL},
    {"SoftmaxGrad_f32", prepare_softmax, run_softmax, NULL},
    {NULL, NULL, NULL, NULL},
};
