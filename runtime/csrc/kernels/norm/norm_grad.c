// Gradients of layer and RMS normalisation.
//
// With z = (x - mean) / deviation and g = dy * scale: dx = (g - mean(g) - z mean(g z)) / deviation,
// dscale = sum of dy z, dbias = sum of dy.  Blocks of rows have sums of their own, which are added
// up in order.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../../kernel.h"
#include "../support/simd.h"
#include "../support/sizes.h"

// Elements of a block, which is a chunk: see sizes.h.  Each keeps sums for all columns, which are added
// up when all are through: so many at most.
enum { NORM_WORK = 1 << 14, MOST_BLOCKS = 32 };

typedef struct {
    int64_t rows, length;
    bool centred;
    double epsilon;
    const float *dy, *x, *scale, *mean, *inverse;  // of each row, if they are known
    float *dx, *dscale, *dbias;  // NULL: not wanted
    int64_t unit, blocks;  // rows of a block
} Norm;

typedef struct {
    const Norm *norm;
    float *sums;  // [blocks][2][length]
} Job;

static void *prepare(Params *params, Needs *needs) {
    Norm *norm = calloc(1, sizeof(Norm));
    if (!norm) return NULL;
    norm->rows = next_int(params);
    norm->length = next_int(params);
    norm->centred = next_int(params) != 0;
    norm->epsilon = next_float(params);
    const float **given[] = {&norm->dy, &norm->x, &norm->scale, &norm->mean, &norm->inverse};
    float **wanted[] = {&norm->dx, &norm->dscale, &norm->dbias};
    Tensor tensors[8];
    for (int i = 0; i < 8; i++) tensors[i] = maybe_tensor(params);
    for (int i = 0; i < 5; i++) *given[i] = (const float *)tensors[i].data;
    for (int i = 0; i < 3; i++) *wanted[i] = (float *)tensors[5 + i].data;
    const int64_t size = size_of(norm->rows, norm->length, 1);
    const int64_t sizes[] = {size,       size, norm->length, norm->rows,
                             norm->rows, size, norm->length, norm->length};
    bool fits = !params->bad && size > 0 && norm->dy && norm->x;
    for (int i = 0; i < 8; i++) fits = fits && may_hold(&tensors[i], F32, sizes[i]);
    if (!fits) {
        free(norm);
        return NULL;
    }
    norm->unit = ceil_div(NORM_WORK, norm->length);
    if (norm->unit * MOST_BLOCKS < norm->rows) norm->unit = ceil_div(norm->rows, MOST_BLOCKS);
    norm->blocks = ceil_div(norm->rows, norm->unit);
    needs->shared = norm->blocks * 2 * norm->length * (int64_t)sizeof(float);
    return norm;
}

static float sum_with(const float *x, int64_t n, float mean, bool squared) {
    Floats a = {0}, b = {0};
    const Floats shift = all_of(mean);
    float rest = 0;
    int64_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        const Floats low = load(x + i) - shift, high = load(x + i + LANES) - shift;
        a += squared ? low * low : low;
        b += squared ? high * high : high;
    }
    for (; i < n; i++) {
        const float value = x[i] - mean;
        rest += squared ? value * value : value;
    }
    return sum_of(a + b) + rest;
}

static void statistics(const Norm *norm, int64_t row, float *mean, float *inverse) {
    const float *x = norm->x + row * norm->length;
    const float n = (float)norm->length;
    if (norm->inverse && (norm->mean || !norm->centred)) {
        *mean = norm->centred ? norm->mean[row] : 0;
        *inverse = norm->inverse[row];
        return;
    }
    *mean = norm->centred ? sum_with(x, norm->length, 0, false) / n : 0;
    *inverse = 1.0f / sqrtf(sum_with(x, norm->length, *mean, true) / n + (float)norm->epsilon);
}

static void one_row(const Norm *norm, int64_t row, float *sums) {
    const int64_t n = norm->length;
    const float *dy = norm->dy + row * n, *x = norm->x + row * n, *scale = norm->scale;
    float mean, inverse;
    statistics(norm, row, &mean, &inverse);
    Floats slopes = {0}, offsets = {0};
    float slope = 0, offset = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        const Floats d = load(dy + i), z = (load(x + i) - mean) * inverse;
        const Floats g = scale ? d * load(scale + i) : d;
        store(sums + i, load(sums + i) + d * z);
        store(sums + n + i, load(sums + n + i) + d);
        slopes += g * z;
        offsets += g;
    }
    for (; i < n; i++) {
        const float z = (x[i] - mean) * inverse, g = scale ? dy[i] * scale[i] : dy[i];
        sums[i] += dy[i] * z;
        sums[n + i] += dy[i];
        slope += g * z;
        offset += g;
    }
    if (!norm->dx) return;
    slope = (sum_of(slopes) + slope) / (float)n;
    offset = norm->centred ? (sum_of(offsets) + offset) / (float)n : 0;
    float *dx = norm->dx + row * n;
    const float factor = inverse * slope;
    INDEPENDENT_FOR (i = 0; i < n; i++) {
        const float g = scale ? dy[i] * scale[i] : dy[i];
        dx[i] = (g - offset - (x[i] - mean) * factor) * inverse;
    }
}

static void some_rows(void *context, int64_t block, int thread) {
    (void)thread;
    const Job *job = context;
    const Norm *norm = job->norm;
    float *sums = job->sums + block * 2 * norm->length;
    memset(sums, 0, (size_t)(2 * norm->length) * sizeof(float));
    int64_t end = (block + 1) * norm->unit;
    if (end > norm->rows) end = norm->rows;
    for (int64_t row = block * norm->unit; row < end; row++) one_row(norm, row, sums);
}

static Failure run_norm(const void *state, const Run *run) {
    const Norm *norm = state;
    Job job = {norm, (float *)run->shared};
    share_chunks(run, norm->blocks, some_rows, &job);
    for (int64_t block = 1; block < norm->blocks; block++)
        for (int64_t i = 0; i < 2 * norm->length; i++)
            job.sums[i] += job.sums[block * 2 * norm->length + i];
    const size_t bytes = (size_t)norm->length * sizeof(float);
    if (norm->dscale) memcpy(norm->dscale, job.sums, bytes);
    if (norm->dbias) memcpy(norm->dbias, job.sums + norm->length, bytes);
    return OK;
}

const Kernel ISA(NORM_GRADIENTS)[] = {
    {"NormGrad_f32", prepare, run_norm, NULL},
    {NULL, NULL, NULL, NULL},
};
