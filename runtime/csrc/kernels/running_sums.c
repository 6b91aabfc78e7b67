// Along an axis, [outer][length][inner]: running sums and products.
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

const Kernel ISA(RUNNING_SUMS)[] = {
    {"Accumulate", prepare_accumulate, run_accumulate, NULL},
    {NULL, NULL, NULL, NULL},
};
