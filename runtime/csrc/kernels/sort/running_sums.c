// Along an axis, [outer][length][inner]: running sums and products, and the gradient of the latter.
#include <stdlib.h>

#include "../../kernel.h"
#include "../support/lines.h"

enum {
    ORDER_WORK = 1 << 13,  // elements, each of which waits for the one before: see sizes.h
    MOST_LINES = 256,  // that lie side by side, whose totals stay in the first cache
};

typedef struct Sums Sums;

// Neighbouring lines, from `line` on.
typedef void (*LineFn)(const Sums *sums, int64_t line, int64_t lines);

// Lines side by side, of which the first elements are given; others follow `step` elements apart.
typedef void (*AccumulateFn)(
    const Sums *sums, const char *x, char *out, int64_t step, int64_t lines);

struct Sums {
    const char *x, *grad;  // the gradient of products has one of the result
    char *out;
    int64_t outer, length, inner;
    bool backwards, exclusive, product;
    LineFn along;
    AccumulateFn accumulate;
    int64_t size;
    int64_t unit;  // lines of a chunk
    int64_t outers;  // of a panel, 0 if there are none: see lines.h
    Tensor shape, axis;  // an axis that is read on every run, or absent
};

static int64_t count_lines(const Sums *sums) { return sums->outer * sums->inner; }

static void some_lines(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Sums *sums = context;
    const int64_t lines = count_lines(sums), end = (chunk + 1) * sums->unit;
    for (int64_t line = chunk * sums->unit, count; line < end && line < lines; line += count) {
        count = lesser(lesser(end, lines) - line, sums->inner - line % sums->inner);
        count = lesser(count, MOST_LINES);
        sums->along(sums, line, count);
    }
}

static Failure run_lines(const Sums *sums, const Run *run) {
    share_chunks(run, ceil_div(count_lines(sums), sums->unit), some_lines, (void *)sums);
    return OK;
}

// Sums and products of integers wrap around: they are computed without signs.

#define TYPE float
#define WORK float
#include "accumulated.h"
#define TYPE double
#define WORK double
#include "accumulated.h"
#define TYPE int32_t
#define WORK uint32_t
#include "accumulated.h"
#define TYPE int64_t
#define WORK uint64_t
#include "accumulated.h"

static AccumulateFn accumulation(DType dtype) {
    switch (dtype) {
        case F32: return accumulate_float;
        case F64: return accumulate_double;
        case I32: return accumulate_int32_t;
        case I64: return accumulate_int64_t;
        default: return NULL;
    }
}

static void accumulate_lines(const Sums *sums, int64_t line, int64_t lines) {
    const int64_t i = line / sums->inner, j = line % sums->inner, n = sums->length;
    if (n == 0) return;
    const int64_t place = ((i * n + (sums->backwards ? n - 1 : 0)) * sums->inner + j) * sums->size;
    const int64_t step = sums->backwards ? -sums->inner : sums->inner;
    sums->accumulate(sums, sums->x + place, sums->out + place, step, lines);
}

typedef struct {
    const Sums *sums;
    const Run *run;
} Job;

static void some_panels(void *context, int64_t chunk, int thread) {
    const Job *job = context;
    const Sums *sums = job->sums;
    char *panel = job->run->own[thread];
    const int64_t n = sums->length, run = sums->inner * sums->size, apart = n * run;
    const int64_t row = sums->outers * run, begin = chunk * sums->outers;
    const int64_t outers = lesser(sums->outers, sums->outer - begin);
    fill_panel(sums->x + begin * apart, apart, outers, n, run, panel, row);
    char *first = sums->backwards ? panel + (n - 1) * row : panel;
    const int64_t columns = sums->outers * sums->inner;
    sums->accumulate(
        sums, first, first, sums->backwards ? -columns : columns, outers * sums->inner);
    empty_panel(panel, row, sums->out + begin * apart, apart, outers, n, run);
}

// The sizes before, along and behind the axis that is chosen now; false if there is no such axis.
static bool choose_axis(Sums *sums) {
    const Tensor *shape = &sums->shape;
    const int64_t chosen = place_at(&sums->axis, 0, shape->rank);
    if (chosen < 0) return false;
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
    if (sums->outers) {
        Job job = {sums, run};
        share_chunks(run, ceil_div(sums->outer, sums->outers), some_panels, &job);
        return OK;
    }
    if (!sums->axis.data) return run_lines(sums, run);
    Sums chosen = *sums;
    return choose_axis(&chosen) ? run_lines(&chosen, run) : INDEX_OUTSIDE;
}

// Operands, and {outer, length, inner, backwards, exclusive}; gives how many elements they have, or -1.
static int64_t read_lines(Sums *sums, const Tensor *x, const Tensor *out, Params *params) {
    sums->x = x->data;
    sums->out = out->data;
    sums->outer = next_int(params);
    sums->length = next_int(params);
    sums->inner = next_int(params);
    sums->backwards = next_int(params) != 0;
    sums->exclusive = next_int(params) != 0;
    sums->size = item_size(x->dtype);
    sums->unit = sums->length > 0 ? ceil_div(ORDER_WORK, sums->length) : 1;
    // Whole lines of the cache go by; where the axis is chosen by each run it may be any.
    if (sums->inner > 1) sums->unit = greater(sums->unit, MOST_LINES);
    const int64_t count = size_of(sums->outer, sums->length, sums->inner);
    return holds(x, x->dtype, count) && holds(out, x->dtype, count) ? count : -1;
}

// x, out, {lines}, whether they are multiplied, an axis that is read on every run?
static void *prepare_accumulate(Params *params, Needs *needs) {
    const Tensor x = next_tensor(params), out = next_tensor(params);
    Sums *sums = calloc(1, sizeof(Sums));
    if (!sums) return NULL;
    const int64_t count = read_lines(sums, &x, &out, params);
    sums->along = accumulate_lines;
    sums->accumulate = accumulation(x.dtype);
    sums->product = next_int(params) != 0;
    sums->shape = x;
    sums->axis = maybe_tensor(params);
    reads_anywhere(needs, &sums->x);
    writes_anywhere(needs, &sums->out);
    const bool chosen = are_indices(&sums->axis) && element_count(&sums->axis) == 1;
    if (params->bad || (!chosen && sums->axis.data) || !sums->accumulate || count < 0) {
        free(sums);
        return NULL;
    }
    if (!chosen && count > 0) {
        sums->outers =
            outers_of_panel(sums->outer, sums->length, sums->inner, sums->size, SHORT_LINE);
        needs->own = sums->outers * sums->inner * sums->length * sums->size;
    }
    return sums;
}

// -- the gradient of products ----------------------------------------------------------------------

#define TYPE float
#include "product_slope.h"
#define TYPE double
#include "product_slope.h"

// grad, x, out {outer, length, inner, backwards, exclusive}
static void *prepare_slope(Params *params, Needs *needs) {
    (void)needs;
    const Tensor grad = next_tensor(params), x = next_tensor(params), out = next_tensor(params);
    Sums *sums = calloc(1, sizeof(Sums));
    if (!sums) return NULL;
    sums->grad = grad.data;
    if (x.dtype == F32) sums->along = slope_float;
    if (x.dtype == F64) sums->along = slope_double;
    const int64_t count = read_lines(sums, &x, &out, params);
    if (!params->bad && sums->along && count > 0 && holds(&grad, x.dtype, count)) return sums;
    free(sums);
    return NULL;
}

const Kernel ISA(RUNNING_SUMS)[] = {
    {"Accumulate", prepare_accumulate, run_accumulate, NULL},
    {"CumProdGrad", prepare_slope, run_accumulate, NULL},
    {NULL, NULL, NULL, NULL},
};
