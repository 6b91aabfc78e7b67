// Normalisation of float64: of rows and of groups of channels by their own statistics, and by given ones.
#include <math.h>
#include <stdlib.h>

#include "../../kernel.h"
#include "../support/simd.h"
#include "../support/sizes.h"

// Elements of a chunk: see sizes.h.  Chains of a sum: four vectors of doubles with AVX2.
enum { NORM_WORK = 1 << 13, STRIPS = 16 };

// A row has `width` channels of `pixels` elements each, with a scale and a bias; rows begin again with the
// first channel after every `channels`.
typedef struct {
    const double *x;
    double *y;
    const double *scale, *bias;  // NULL: 1, and 0
    const double *given_mean, *given_variance;  // of each channel, or NULL
    void *mean, *inverse;  // of each row, if they are wanted
    bool narrow;  // these are floats
    int64_t rows, width, pixels, channels;
    double epsilon;
    bool centred;
    int64_t unit;  // rows of a chunk
} Norm;

static void *finished(Norm *norm, Needs *needs, bool fits) {
    if (!fits) {
        free(norm);
        return NULL;
    }
    norm->unit = ceil_div(NORM_WORK, norm->width * norm->pixels);
    reads_anywhere(needs, &norm->x);
    writes_anywhere(needs, &norm->y);
    return norm;
}

// x, y {rows, length, 1}, scale?, bias?, mean?, inverse? {epsilon}
static void *prepare_rows(Params *params, Needs *needs, bool centred) {
    Norm *norm = calloc(1, sizeof(Norm));
    if (!norm) return NULL;
    const Tensor x = next_tensor(params), y = next_tensor(params);
    const int64_t rows = next_int(params), length = next_int(params), inner = next_int(params);
    Tensor others[4];
    for (int i = 0; i < 4; i++) others[i] = maybe_tensor(params);
    const DType statistics = others[2].data ? others[2].dtype : others[3].dtype;
    *norm = (Norm){
        .x = (const double *)x.data,
        .y = (double *)y.data,
        .scale = (const double *)others[0].data,
        .bias = (const double *)others[1].data,
        .mean = others[2].data,
        .inverse = others[3].data,
        .narrow = statistics == F32,
        .rows = rows,
        .width = length,
        .pixels = 1,
        .channels = length,
        .epsilon = next_float(params),
        .centred = centred};
    const int64_t size = size_of(rows, length, inner);
    bool fits = !params->bad && inner == 1 && size > 0 && holds(&x, F64, size) &&
                holds(&y, F64, size);
    for (int i = 0; i < 2; i++) fits = fits && may_hold(&others[i], F64, length);
    for (int i = 2; i < 4; i++) fits = fits && may_hold(&others[i], norm->narrow ? F32 : F64, rows);
    return finished(norm, needs, fits);
}

static void *prepare_layer(Params *params, Needs *needs) {
    return prepare_rows(params, needs, true);
}
static void *prepare_rms(Params *params, Needs *needs) {
    return prepare_rows(params, needs, false);
}

// x, scale, bias, (mean, variance,) y {images, channels, pixels, channels of a group} {epsilon}
static void *prepare_channels(Params *params, Needs *needs, int operands) {
    Norm *norm = calloc(1, sizeof(Norm));
    if (!norm) return NULL;
    Tensor tensors[6];
    for (int i = 0; i <= operands; i++) tensors[i] = next_tensor(params);
    const int64_t images = next_int(params), channels = next_int(params);
    const int64_t pixels = next_int(params), width = next_int(params);
    const int64_t size = size_of(images, channels, pixels);
    bool fits = !params->bad && size > 0 && width > 0 && channels % width == 0;
    for (int i = 0; i <= operands; i++)
        fits = fits && holds(&tensors[i], F64, i % operands ? channels : size);
    *norm = (Norm){
        .x = (const double *)tensors[0].data,
        .y = (double *)tensors[operands].data,
        .scale = (const double *)tensors[1].data,
        .bias = (const double *)tensors[2].data,
        .given_mean = operands > 3 ? (const double *)tensors[3].data : NULL,
        .given_variance = operands > 3 ? (const double *)tensors[4].data : NULL,
        .rows = fits ? images * (channels / width) : 0,
        .width = width,
        .pixels = pixels,
        .channels = channels,
        .epsilon = next_float(params),
        .centred = true};
    return finished(norm, needs, fits && !params->bad);
}

static void *prepare_group(Params *params, Needs *needs) {
    return prepare_channels(params, needs, 3);
}
static void *prepare_batch(Params *params, Needs *needs) {
    Norm *norm = prepare_channels(params, needs, 5);
    if (!norm) return NULL;
    needs->shared = 2 * norm->channels * (int64_t)sizeof(double);
    if (norm->pixels == 1) {  // a row has one element of each channel
        norm->rows /= norm->channels / norm->width;
        norm->width = norm->channels;
        norm->unit = ceil_div(NORM_WORK, norm->width);
    }
    return norm;
}

// The sum of numbers less `shift`, or of the squares of these.
INLINE double sum_of_doubles(const double *x, int64_t n, double shift, const bool squares) {
    double strips[STRIPS] = {0}, total = 0;
    int64_t i = 0;
    for (; i + STRIPS <= n; i += STRIPS)
        for (int s = 0; s < STRIPS; s++) {
            const double value = x[i + s] - shift;
            strips[s] += squares ? value * value : value;
        }
    for (; i < n; i++) total += squares ? (x[i] - shift) * (x[i] - shift) : x[i] - shift;
    for (int s = 0; s < STRIPS; s++) total += strips[s];
    return total;
}

// Elements that each have a scale and a bias of their own.
static void scale_elements(
    const double *x, double *y, int64_t n, double mean, double inverse, const double *scale,
    const double *bias) {
    if (scale && bias) {
        INDEPENDENT_FOR (int64_t i = 0; i < n; i++)
            y[i] = (x[i] - mean) * inverse * scale[i] + bias[i];
    } else if (scale) {
        INDEPENDENT_FOR (int64_t i = 0; i < n; i++) y[i] = (x[i] - mean) * inverse * scale[i];
    } else {
        INDEPENDENT_FOR (int64_t i = 0; i < n; i++)
            y[i] = (x[i] - mean) * inverse + (bias ? bias[i] : 0);
    }
}

static void scale_channel(
    const double *x, double *y, int64_t n, double mean, double factor, double bias) {
    INDEPENDENT_FOR (int64_t i = 0; i < n; i++) y[i] = (x[i] - mean) * factor + bias;
}

static void keep(const Norm *norm, void *numbers, int64_t row, double number) {
    if (numbers && norm->narrow)
        ((float *)numbers)[row] = (float)number;
    else if (numbers)
        ((double *)numbers)[row] = number;
}

static void norm_row(const Norm *norm, int64_t row) {
    const int64_t width = norm->width, pixels = norm->pixels, n = width * pixels;
    const int64_t first = row * width % norm->channels;
    const double *x = norm->x + row * n;
    double *y = norm->y + row * n;
    const double mean = norm->centred ? sum_of_doubles(x, n, 0, false) / (double)n : 0;
    const double variance = sum_of_doubles(x, n, mean, true) / (double)n;
    const double inverse = 1 / sqrt(variance + norm->epsilon);
    keep(norm, norm->mean, row, mean);
    keep(norm, norm->inverse, row, inverse);
    if (pixels == 1) {
        const double *scale = norm->scale ? norm->scale + first : NULL;
        const double *bias = norm->bias ? norm->bias + first : NULL;
        scale_elements(x, y, n, mean, inverse, scale, bias);
        return;
    }
    for (int64_t i = 0; i < width; i++)
        scale_channel(
            x + i * pixels, y + i * pixels, pixels, mean, norm->scale[first + i] * inverse,
            norm->bias[first + i]);
}

typedef struct {
    const Norm *norm;
    const double *factors, *shifts;  // of each channel, where statistics are given
} Job;

static void scale_row(const Job *job, int64_t row) {
    const Norm *norm = job->norm;
    const int64_t width = norm->width, pixels = norm->pixels;
    const int64_t first = row * width % norm->channels;
    const double *x = norm->x + row * width * pixels, *factors = job->factors + first;
    const double *shifts = job->shifts + first;
    double *y = norm->y + row * width * pixels;
    if (pixels == 1)
        scale_elements(x, y, width, 0, 1, factors, shifts);
    else
        for (int64_t i = 0; i < width; i++)
            scale_channel(x + i * pixels, y + i * pixels, pixels, 0, factors[i], shifts[i]);
}

static void some_rows(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Job *job = context;
    const Norm *norm = job->norm;
    const int64_t end = lesser((chunk + 1) * norm->unit, norm->rows);
    for (int64_t row = chunk * norm->unit; row < end; row++)
        if (job->factors)
            scale_row(job, row);
        else
            norm_row(norm, row);
}

static Failure run_norm(const void *state, const Run *run) {
    const Norm *norm = state;
    Job job = {norm, NULL, NULL};
    share_chunks(run, ceil_div(norm->rows, norm->unit), some_rows, &job);
    return OK;
}

static Failure run_batch(const void *state, const Run *run) {
    const Norm *norm = state;
    double *factors = (double *)(void *)run->shared, *shifts = factors + norm->channels;
    for (int64_t i = 0; i < norm->channels; i++) {
        factors[i] = norm->scale[i] / sqrt(norm->given_variance[i] + norm->epsilon);
        shifts[i] = norm->bias[i] - norm->given_mean[i] * factors[i];
    }
    Job job = {norm, factors, shifts};
    share_chunks(run, ceil_div(norm->rows, norm->unit), some_rows, &job);
    return OK;
}

const Kernel ISA(DOUBLE_NORMS)[] = {
    {"LayerNorm_f64", prepare_layer, run_norm, NULL},
    {"RmsNorm_f64", prepare_rms, run_norm, NULL},
    {"GroupNorm_f64", prepare_group, run_norm, NULL},
    {"BatchNorm_f64", prepare_batch, run_batch, NULL},
    {NULL, NULL, NULL, NULL},
};
