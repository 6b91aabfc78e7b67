// Normalisation of [images][channels][pixels]: over groups of channels, by given statistics, and by
// the squares of neighbouring channels.
#include <stdlib.h>

#include "../../kernel.h"
#include "row_sums.h"
#include "../support/sizes.h"

typedef struct {
    int64_t images, channels, pixels;
    int64_t width;  // channels of a group; those that a sum of squares has
    const float *x, *scale, *bias, *mean, *variance;  // the last four: of each channel
    float *y;
    double epsilon, alpha, beta, offset;
    int64_t rows, unit;  // what is computed at once, and how many of them a chunk has
    bool spread;  // a row is an image, whose elements each have a factor
} Groups;

// Elements of a chunk: see sizes.h.  Floats that are added up as such before their sum goes to a double,
// which keeps errors near those of numpy's sums by pairs.
enum { GROUP_WORK = 16384, SUM_BLOCK = 256 };

// Of few pixels a channel fills no vectors; with several images it is worth while to repeat its factors.
enum { FEW_PIXELS = 64, MANY_IMAGES = 4 };

static void *read_groups(Params *params, Needs *needs, int operands) {
    Groups *groups = calloc(1, sizeof(Groups));
    if (!groups) return NULL;
    const float **given[] = {
        &groups->x, &groups->scale, &groups->bias, &groups->mean, &groups->variance};
    Tensor tensors[6];
    for (int i = 0; i <= operands; i++) tensors[i] = next_tensor(params);
    for (int i = 0; i < operands; i++) *given[i] = (const float *)tensors[i].data;
    groups->y = (float *)tensors[operands].data;
    groups->images = next_int(params);
    groups->channels = next_int(params);
    groups->pixels = next_int(params);
    groups->width = next_int(params);
    const int64_t size = size_of(groups->images, groups->channels, groups->pixels);
    bool fits = !params->bad && size > 0 && groups->width > 0;
    for (int i = 0; i <= operands; i++)
        fits = fits && holds(&tensors[i], F32, i % operands ? groups->channels : size);
    if (!fits) {
        free(groups);
        return NULL;
    }
    reads_anywhere(needs, &groups->x);
    writes_anywhere(needs, &groups->y);
    return groups;
}

// Rows of `size` elements.
static void *with_rows(Groups *groups, Params *params, int64_t rows, int64_t size) {
    groups->rows = rows;
    groups->unit = ceil_div(GROUP_WORK, size);
    if (!params->bad) return groups;
    free(groups);
    return NULL;
}

typedef struct Job Job;
typedef void (*RowFn)(const Job *job, int64_t row);

struct Job {
    const Groups *groups;
    RowFn work;
    const float *factors, *shifts;  // of each channel, where statistics are given
};

static void some_rows(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Job *job = context;
    int64_t end = (chunk + 1) * job->groups->unit;
    if (end > job->groups->rows) end = job->groups->rows;
    for (int64_t row = chunk * job->groups->unit; row < end; row++) job->work(job, row);
}

static Failure run_rows(const Run *run, Job job) {
    const Groups *groups = job.groups;
    share_chunks(run, ceil_div(groups->rows, groups->unit), some_rows, &job);
    return OK;
}

// -- groups of channels ---------------------------------------------------------------------------

static void *prepare_group(Params *params, Needs *needs) {
    Groups *groups = read_groups(params, needs, 3);
    if (!groups) return NULL;
    groups->epsilon = next_float(params);
    if (groups->channels % groups->width) {
        free(groups);
        return NULL;
    }
    const int64_t size = groups->width * groups->pixels;
    return with_rows(groups, params, groups->images * groups->channels / groups->width, size);
}

static float mean_of(const float *x, int64_t n) {
    double total = 0;
    for (int64_t begin = 0; begin < n; begin += SUM_BLOCK)
        total += sum(x + begin, n - begin < SUM_BLOCK ? n - begin : SUM_BLOCK);
    return (float)(total / (double)n);
}

static void normalize_group(const Job *job, int64_t row) {
    const Groups *groups = job->groups;
    const int64_t n = groups->pixels, size = groups->width * n;
    const int64_t channel = row * groups->width % groups->channels;
    const float *x = groups->x + row * size;
    float *y = groups->y + row * size;
    const float mean = mean_of(x, size);
    const float variance = centred_squares(x, size, mean) / (float)size;
    const float inverse = 1.0f / sqrtf(variance + (float)groups->epsilon);
    for (int64_t i = 0; i < groups->width; i++) {
        const float factor = groups->scale[channel + i] * inverse, bias = groups->bias[channel + i];
        const float *from = x + i * n;
        float *to = y + i * n;
        INDEPENDENT_FOR (int64_t j = 0; j < n; j++) to[j] = (from[j] - mean) * factor + bias;
    }
}

static Failure run_group(const void *state, const Run *run) {
    return run_rows(run, (Job){state, normalize_group, NULL, NULL});
}

// -- given statistics -----------------------------------------------------------------------------

static void *prepare_batch(Params *params, Needs *needs) {
    Groups *groups = read_groups(params, needs, 5);
    if (!groups) return NULL;
    groups->epsilon = next_float(params);
    groups->spread = groups->pixels == 1 ||
                     (groups->pixels < FEW_PIXELS && groups->images >= MANY_IMAGES);
    const int64_t image = groups->channels * groups->pixels;
    const int64_t numbers = groups->channels + (groups->spread ? image : 0);
    needs->shared = 2 * numbers * (int64_t)sizeof(float);
    if (groups->spread) return with_rows(groups, params, groups->images, image);
    return with_rows(groups, params, groups->images * groups->channels, groups->pixels);
}

static void scale_row(const Job *job, int64_t row) {
    const Groups *groups = job->groups;
    const int64_t n = groups->pixels, channels = groups->channels;
    const int64_t size = groups->spread ? channels * n : n;
    const float *x = groups->x + row * size;
    float *y = groups->y + row * size;
    if (groups->spread) {
        INDEPENDENT_FOR (int64_t i = 0; i < size; i++)
            y[i] = x[i] * job->factors[i] + job->shifts[i];
        return;
    }
    const float factor = job->factors[row % channels], shift = job->shifts[row % channels];
    INDEPENDENT_FOR (int64_t i = 0; i < size; i++) y[i] = x[i] * factor + shift;
}

static Failure run_batch(const void *state, const Run *run) {
    const Groups *groups = state;
    float *factors = (float *)run->shared, *shifts = factors + groups->channels;
    for (int64_t i = 0; i < groups->channels; i++) {
        factors[i] = groups->scale[i] / sqrtf(groups->variance[i] + (float)groups->epsilon);
        shifts[i] = groups->bias[i] - groups->mean[i] * factors[i];
    }
    if (groups->spread) {
        const float *const by_channel[] = {factors, shifts};
        float *const spread[] = {
            shifts + groups->channels, shifts + groups->channels * (groups->pixels + 1)};
        for (int k = 0; k < 2; k++)
            for (int64_t i = 0; i < groups->channels; i++)
                for (int64_t j = 0; j < groups->pixels; j++)
                    spread[k][i * groups->pixels + j] = by_channel[k][i];
        factors = spread[0];
        shifts = spread[1];
    }
    return run_rows(run, (Job){groups, scale_row, factors, shifts});
}

// -- neighbouring channels ------------------------------------------------------------------------

static void *prepare_neighbours(Params *params, Needs *needs) {
    Groups *groups = read_groups(params, needs, 1);
    if (!groups) return NULL;
    groups->alpha = next_float(params);
    groups->beta = next_float(params);
    groups->offset = next_float(params);
    const int64_t seen = lesser(groups->width, groups->channels);
    return with_rows(groups, params, groups->images * groups->channels, seen * groups->pixels);
}

// x / (offset + alpha / width * sum of squares) ** beta; three quarters by square roots.
static void divide_by_power(
    const Groups *groups, const float *x, const float *squares, float *y, int64_t n) {
    const float factor = (float)groups->alpha / (float)groups->width;
    const float offset = (float)groups->offset, beta = (float)groups->beta;
    if (groups->beta == 0.75) {
        INDEPENDENT_FOR (int64_t i = 0; i < n; i++) {
            const float root = sqrtf(squares[i] * factor + offset);
            y[i] = x[i] / (root * sqrtf(root));
        }
        return;
    }
    for (int64_t i = 0; i < n; i++) y[i] = x[i] / powf(squares[i] * factor + offset, beta);
}

// Of an even number of channels, one more is after the own one.
static void divide_row(const Job *job, int64_t row) {
    const Groups *groups = job->groups;
    enum { BLOCK = 256 };  // pixels whose sums stay in the first cache
    const int64_t n = groups->pixels, channels = groups->channels, channel = row % channels;
    const int64_t below = (groups->width - 1) / 2, above = groups->width / 2;
    const int64_t first = channel > below ? channel - below : 0;
    const int64_t last = channel + above < channels ? channel + above : channels - 1;
    const float *image = groups->x + (row - channel) * n;
    for (int64_t begin = 0; begin < n; begin += BLOCK) {
        const int64_t count = n - begin < BLOCK ? n - begin : BLOCK;
        float squares[BLOCK] = {0};
        for (int64_t other = first; other <= last; other++) {
            const float *from = image + other * n + begin;
            for (int64_t i = 0; i < count; i++) squares[i] += from[i] * from[i];
        }
        divide_by_power(
            groups, image + channel * n + begin, squares, groups->y + row * n + begin, count);
    }
}

static Failure run_neighbours(const void *state, const Run *run) {
    return run_rows(run, (Job){state, divide_row, NULL, NULL});
}

const Kernel ISA(GROUP_NORMS)[] = {
    {"GroupNorm_f32", prepare_group, run_group, NULL},
    {"BatchNorm_f32", prepare_batch, run_batch, NULL},
    {"Lrn_f32", prepare_neighbours, run_neighbours, NULL},
    {NULL, NULL, NULL, NULL},
};
