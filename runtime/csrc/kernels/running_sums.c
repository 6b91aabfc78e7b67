// Along an axis, [outer][length][inner]: running sums and products, and the gradient of the latter.
#include <stdlib.h>

#include "../kernel.h"
#include "simd.h"

enum { ORDER_WORK = 1 << 13 };

typedef struct Sums Sums;

typedef void (*LineFn)(const Sums *sums, int64_t line);

struct Sums {
    const char *x;
    char *out;
    int64_t outer, length, inner;
    bool backwards, exclusive, product;
    LineFn along;
    int64_t unit;  // lines of a chunk
    Tensor shape, axis;  // an axis that is read on every run, or absent
};

static int64_t count_lines(const Sums *sums) { return sums->outer * sums->inner; }

static void some_lines(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Sums *sums = context;
    const int64_t lines = count_lines(sums), end = (chunk + 1) * sums->unit;
    for (int64_t line = chunk * sums->unit; line < end && line < lines; line++) sums->along(sums, line);
}

static Failure run_lines(const Sums *sums, const Run *run) {
    share_chunks(run, (count_lines(sums) + sums->unit - 1) / sums->unit, some_lines, (void *)sums);
    return OK;
}

// Sums and products of integers wrap around: they are computed without signs.
#define ACCUMULATE(TYPE, WORK)                                                                    \
    static void accumulate_##TYPE(const Sums *sums, int64_t line) {                               \
        const int64_t i = line / sums->inner, j = line % sums->inner;                             \
        const int64_t n = sums->length, first = sums->backwards ? n - 1 : 0;                      \
        const int64_t step = sums->backwards ? -sums->inner : sums->inner;                        \
        const int64_t start = (i * n + first) * sums->inner + j;                                  \
        const TYPE *x = (const TYPE *)sums->x + start;                                            \
        TYPE *out = (TYPE *)sums->out + start;                                                    \
        WORK total = sums->product ? 1 : 0;                                                       \
        for (int64_t k = 0; k < n; k++, x += k < n ? step : 0, out += k < n ? step : 0) {         \
            const WORK value = (WORK)*x, before = total;                                          \
            if (sums->product) total = total * value;                                             \
            else total = k ? total + value : value;                                               \
            *out = (TYPE)(sums->exclusive ? before : total);                                      \
        }                                                                                         \
    }

ACCUMULATE(float, float)
ACCUMULATE(double, double)
ACCUMULATE(int32_t, uint32_t)
ACCUMULATE(int64_t, uint64_t)

static LineFn accumulation(DType dtype) {
    switch (dtype) {
        case F32: return accumulate_float;
        case F64: return accumulate_double;
        case I32: return accumulate_int32_t;
        case I64: return accumulate_int64_t;
        default: return NULL;
    }
}

// The sizes before, along and behind the axis that is chosen now; false if there is no such axis.
static bool choose_axis(Sums *sums) {
    const Tensor *axis = &sums->axis, *shape = &sums->shape;
    int64_t chosen =
        axis->dtype == I64 ? *(const int64_t *)axis->data : *(const int32_t *)axis->data;
    if (chosen < 0) chosen += shape->rank;
    if (chosen < 0 || chosen >= shape->rank) return false;
    sums->outer = sums->inner = 1;
    for (int i = 0; i < shape->rank; i++) {
        if (i < chosen) sums->outer *= shape->dims[i];
        if (i > chosen) sums->inner *= shape->dims[i];
    }
    sums->length = shape->dims[chosen];
    return true;
}

static Failure run_accumulate(const void *state, const Run *run) {
    const Sums *sums = state;
    if (!sums->axis.data) return run_lines(sums, run);
    Sums chosen = *sums;
    return choose_axis(&chosen) ? run_lines(&chosen, run) : INDEX_OUTSIDE;
}

// x, out {outer, length, inner, backwards, exclusive, product}, axis?
static void *prepare_accumulate(Params *params, Needs *needs) {
    (void)needs;
    const Tensor x = next_tensor(params), out = next_tensor(params);
    Sums *sums = calloc(1, sizeof(Sums));
    if (!sums) return NULL;
    sums->x = x.data;
    sums->out = out.data;
    sums->along = accumulation(x.dtype);
    sums->outer = next_int(params);
    sums->length = next_int(params);
    sums->inner = next_int(params);
    sums->unit = sums->length > 0 ? (ORDER_WORK + sums->length - 1) / sums->length : 1;
    sums->backwards = next_int(params) != 0;
    sums->exclusive = next_int(params) != 0;
    sums->product = next_int(params) != 0;
    sums->shape = x;
    sums->axis = maybe_tensor(params);
    const bool known = !sums->axis.data || holds(&sums->axis, I32, 1) || holds(&sums->axis, I64, 1);
    const int64_t count = size_of(sums->outer, sums->length, sums->inner);
    if (!params->bad && known && sums->along && holds(&x, x.dtype, count) && holds(&out, x.dtype, count))
        return sums;
    free(sums);
    return NULL;
}

// -- the gradient of products ----------------------------------------------------------------------

typedef struct {
    const char *grad, *x;
    char *out;
    int64_t outer, length, inner, unit;
    bool wide, backwards, exclusive;
} Slope;

// Of one line: first the sums over later places, then times what is before; no factor is divided by.
#define SLOPE(TYPE)                                                                              \
    static void slope_##TYPE(const Slope *slope, int64_t line) {                                 \
        const int64_t i = line / slope->inner, j = line % slope->inner, n = slope->length;       \
        const int64_t first = slope->backwards ? n - 1 : 0;                                      \
        const int64_t step = slope->backwards ? -slope->inner : slope->inner;                    \
        const int64_t start = (i * n + first) * slope->inner + j;                                \
        const TYPE *g = (const TYPE *)(const void *)slope->grad + start;                         \
        const TYPE *x = (const TYPE *)(const void *)slope->x + start;                            \
        TYPE *out = (TYPE *)(void *)slope->out + start, later = 0, before = 1;                   \
        for (int64_t k = n - 1; k >= 0; k--) {                                                   \
            const TYPE below = k + 1 < n ? x[(k + 1) * step] * later : 0;                        \
            const int64_t place = slope->exclusive ? k + 1 : k;                                  \
            later = place < n ? g[place * step] + below : below;                                 \
            out[k * step] = later;                                                               \
        }                                                                                        \
        for (int64_t k = 0; k < n; k++) {                                                        \
            out[k * step] *= before;                                                             \
            before *= x[k * step];                                                               \
        }                                                                                        \
    }

SLOPE(float)
SLOPE(double)

static void some_slopes(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Slope *slope = context;
    const int64_t lines = slope->outer * slope->inner, end = (chunk + 1) * slope->unit;
    for (int64_t line = chunk * slope->unit; line < end && line < lines; line++) {
        if (slope->wide) slope_double(slope, line);
        else slope_float(slope, line);
    }
}

static Failure run_slopes(const void *state, const Run *run) {
    const Slope *slope = state;
    const int64_t lines = slope->outer * slope->inner;
    share_chunks(run, (lines + slope->unit - 1) / slope->unit, some_slopes, (void *)slope);
    return OK;
}

// grad, x, out {outer, length, inner, backwards, exclusive}
static void *prepare_slope(Params *params, Needs *needs) {
    (void)needs;
    const Tensor grad = next_tensor(params), x = next_tensor(params), out = next_tensor(params);
    Slope *slope = calloc(1, sizeof(Slope));
    if (!slope) return NULL;
    *slope = (Slope){.grad = grad.data, .x = x.data, .out = out.data, .wide = x.dtype == F64};
    slope->outer = next_int(params);
    slope->length = next_int(params);
    slope->inner = next_int(params);
    slope->backwards = next_int(params) != 0;
    slope->exclusive = next_int(params) != 0;
    const int64_t count = size_of(slope->outer, slope->length, slope->inner);
    const bool fits = !params->bad && (x.dtype == F32 || x.dtype == F64) && count > 0 &&
                      holds(&x, x.dtype, count) && holds(&grad, x.dtype, count) &&
                      holds(&out, x.dtype, count);
    if (!fits) {
        free(slope);
        return NULL;
    }
    slope->unit = (ORDER_WORK + slope->length - 1) / slope->length;
    return slope;
}

const Kernel ISA(RUNNING_SUMS)[] = {
    {"Accumulate", prepare_accumulate, run_accumulate, NULL},
    {"CumProdGrad", prepare_slope, run_slopes, NULL},
    {NULL, NULL, NULL, NULL},
};
