// Reductions along any axes, of any strides and most element types.
#include <stdlib.h>

#include "../../kernel.h"
#include "folds.h"
#include "../support/sizes.h"

// The order is that of _REDUCTIONS in popc_runtime/native/reductions.py.
typedef enum { L1, L2, LOG_SUM, LOG_SUM_EXP, MAX, MEAN, MIN, PROD, SUM, SUM_SQUARE } Operation;
typedef enum { ADD, ADD_ABS, ADD_SQUARE, ADD_EXP, MULTIPLY, LEAST, GREATEST } Step;

// Elements that are put together by a chunk of work, at least.
enum { REDUCE_WORK = 1 << 14 };

// Elements of a line after which somebody may want to stop.
enum { MOST_AT_ONCE = 1 << 20 };

// Combines what is reduced for some neighbours in the result.
typedef void (*StepFn)(const Fold *fold, Step step);

typedef struct {
    const char *x;
    char *out;
    int kept, reduced;  // ranks; the last dimensions are those of blocks and of inner loops
    int64_t kept_dims[MAX_RANK], kept_strides[MAX_RANK];
    int64_t dims[MAX_RANK], strides[MAX_RANK];
    int64_t blocks_of_line, lines, turns, count;
    Operation operation;
    DType dtype;
    StepFn step;
    int64_t unit;
} Reduce;

static bool is_real(DType dtype) { return dtype == F32 || dtype == F64; }

// What changes nothing when it is combined with others.
static Value first_value(DType dtype, Step step) {
    Value start = {.whole = 0};
    if (is_real(dtype)) {
        start.real = step == MULTIPLY ? 1 : 0;
        if (step == LEAST) start.real = INFINITY;
        if (step == GREATEST) start.real = -INFINITY;
    } else {
        start.whole = step == MULTIPLY;
        if (step == LEAST) start.whole = INT64_MAX;
        if (step == GREATEST) start.whole = INT64_MIN;
    }
    return start;
}

#define TYPE float
#include "real_folds.h"
#define TYPE double
#include "real_folds.h"
#define TYPE int8_t
#include "whole_folds.h"
#define TYPE uint8_t
#include "whole_folds.h"
#define TYPE int16_t
#include "whole_folds.h"
#define TYPE uint16_t
#include "whole_folds.h"
#define TYPE int32_t
#include "whole_folds.h"
#define TYPE uint32_t
#include "whole_folds.h"
#define TYPE int64_t
#include "whole_folds.h"
#include "half_folds.h"

static StepFn step_of(DType dtype) {
    switch (dtype) {
        case F32: return step_float;
        case F16: return step_f16;
        case BF16: return step_bf16;
        case F64: return step_double;
        case I8: return step_int8_t;
        case BOOL:
        case U8: return step_uint8_t;
        case I16: return step_int16_t;
        case U16: return step_uint16_t;
        case I32: return step_int32_t;
        case U32: return step_uint32_t;
        case I64: return step_int64_t;
        default: return NULL;
    }
}

static bool is_half(DType dtype) { return dtype == F16 || dtype == BF16; }

// Whether the results of integers are integers on the way, and those of truth values are such.
static bool is_known(DType dtype, Operation operation) {
    if (dtype == BOOL || is_half(dtype)) return operation == MAX || operation == MIN;
    return is_real(dtype) || (operation != L2 && operation != LOG_SUM && operation != LOG_SUM_EXP);
}

static Step first_step(Operation operation) {
    static const Step steps[] = {ADD_ABS, ADD_SQUARE, ADD,      GREATEST, GREATEST,
                                 ADD,     LEAST,      MULTIPLY, ADD,      ADD_SQUARE};
    return steps[operation];
}

static void split_dims(Reduce *reduce, const Tensor *x, const Tensor *out) {
    reduce->lines = reduce->turns = reduce->count = 1;
    int before = -1;  // the kind of the axis before, 1 if it is kept
    for (int axis = 0; axis < x->rank; axis++) {
        if (x->dims[axis] == 1) continue;
        const bool kept = out->dims[axis] == x->dims[axis];
        int *const rank = kept ? &reduce->kept : &reduce->reduced;
        int64_t *const dims = kept ? reduce->kept_dims : reduce->dims;
        int64_t *const strides = kept ? reduce->kept_strides : reduce->strides;
        const bool joins = before == kept && strides[*rank - 1] == x->strides[axis] * x->dims[axis];
        if (!joins) dims[(*rank)++] = 1;
        dims[*rank - 1] *= x->dims[axis];
        strides[*rank - 1] = x->strides[axis];
        if (!kept) reduce->count *= x->dims[axis];
        before = kept;
    }
    if (reduce->kept == 0) reduce->kept_dims[reduce->kept++] = 1;
    if (reduce->reduced == 0) reduce->dims[reduce->reduced++] = 1;
    for (int i = 0; i < reduce->kept - 1; i++) reduce->lines *= reduce->kept_dims[i];
    for (int i = 0; i < reduce->reduced - 1; i++) reduce->turns *= reduce->dims[i];
    reduce->blocks_of_line = ceil_div(reduce->kept_dims[reduce->kept - 1], BLOCK);
}

// Whether `out` keeps each axis of `x`, or has one element along it.
static bool is_reduced(const Tensor *x, const Tensor *out) {
    if (x->rank != out->rank || x->dtype != out->dtype || !is_contiguous(out)) return false;
    for (int axis = 0; axis < x->rank; axis++)
        if (out->dims[axis] != 1 && out->dims[axis] != x->dims[axis]) return false;
    return element_count(x) > 0;
}

static void *prepare(Params *params, Needs *needs) {
    const Tensor x = next_tensor(params), out = next_tensor(params);
    const int64_t operation = next_int(params);
    Reduce *reduce = calloc(1, sizeof(Reduce));
    if (!reduce || params->bad || !is_reduced(&x, &out) || operation < L1 ||
        operation > SUM_SQUARE || !step_of(x.dtype) || !is_known(x.dtype, (Operation)operation)) {
        free(reduce);
        return NULL;
    }
    reduce->x = x.data;
    reduce->out = out.data;
    reduce->dtype = x.dtype;
    reduce->operation = (Operation)operation;
    reduce->step = step_of(x.dtype);
    split_dims(reduce, &x, &out);
    reduce->unit = ceil_div(REDUCE_WORK, BLOCK * reduce->count);
    reads_anywhere(needs, &reduce->x);
    writes_anywhere(needs, &reduce->out);
    return reduce;
}

static int64_t offset_of(int64_t number, int rank, const int64_t *dims, const int64_t *strides) {
    int64_t offset = 0;
    for (int axis = rank - 1; axis >= 0; axis--) {
        offset += number % dims[axis] * strides[axis];
        number /= dims[axis];
    }
    return offset;
}

static void sum_block(
    const Reduce *reduce, const char *from, int64_t width, Step step, const Value *shifts,
    Value *sums) {
    const Value start = first_value(reduce->dtype, step);
    for (int64_t b = 0; b < width; b++) sums[b] = start;
    const int last = reduce->reduced - 1;
    Fold fold = {
        .width = width,
        .along = reduce->strides[last],
        .across = reduce->kept_strides[reduce->kept - 1],
        .shifts = shifts,
        .sums = sums};
    int64_t done = 0;
    for (int64_t turn = 0; turn < reduce->turns; turn++) {
        const char *line = from + offset_of(turn, last, reduce->dims, reduce->strides);
        for (int64_t i = 0; i < reduce->dims[last]; i += MOST_AT_ONCE) {
            fold.from = line + i * fold.along;
            fold.n = lesser(reduce->dims[last] - i, MOST_AT_ONCE);
            if (is_stopped_after(width * fold.n, &done)) return;
            reduce->step(&fold, step);
        }
    }
}

// What a sum is made into is made of a number of the type, as ONNX defines it: if that is too large,
// it is infinite.
static void finish_reals(const Reduce *reduce, const Value *shifts, Value *sums, int64_t width) {
    const bool rounds = reduce->dtype == F32 && reduce->operation != LOG_SUM_EXP;
    for (int64_t b = 0; b < width; b++) {
        double *sum = &sums[b].real;
        if (rounds) *sum = (float)*sum;
        switch (reduce->operation) {
            case L2: *sum = sqrt(*sum); break;
            case LOG_SUM: *sum = log(*sum); break;
            case LOG_SUM_EXP: *sum = log(*sum) + shifts[b].real; break;
            case MEAN: *sum /= (double)reduce->count; break;
            default: break;
        }
    }
}

static void store_block(const Reduce *reduce, const Value *sums, int64_t place, int64_t width) {
    for (int64_t b = 0; b < width; b++, place++) {
        Value value = sums[b];
        if (reduce->dtype == F64) {
            ((double *)reduce->out)[place] = value.real;
        } else if (reduce->dtype == F32) {
            ((float *)reduce->out)[place] = (float)value.real;
        } else {
            if (reduce->operation == MEAN) value.whole /= reduce->count;
            if (is_half(reduce->dtype)) value.whole = turned_half((int16_t)value.whole);
            const int64_t size = item_size(reduce->dtype);
            memcpy(reduce->out + place * size, &value.whole, (size_t)size);  // little-endian
        }
    }
}

static void reduce_block(const Reduce *reduce, int64_t block) {
    const int64_t line = block / reduce->blocks_of_line;
    const int64_t start = block % reduce->blocks_of_line * BLOCK;
    const int last = reduce->kept - 1;
    const int64_t length = reduce->kept_dims[last];
    const int64_t width = length - start < BLOCK ? length - start : BLOCK;
    const char *from = reduce->x + start * reduce->kept_strides[last] +
                       offset_of(line, last, reduce->kept_dims, reduce->kept_strides);
    Value sums[BLOCK], shifts[BLOCK];
    sum_block(reduce, from, width, first_step(reduce->operation), NULL, sums);
    if (reduce->operation == LOG_SUM_EXP) {
        for (int64_t b = 0; b < width; b++) shifts[b].real = isinf(sums[b].real) ? 0 : sums[b].real;
        sum_block(reduce, from, width, ADD_EXP, shifts, sums);
    }
    if (is_real(reduce->dtype)) finish_reals(reduce, shifts, sums, width);
    store_block(reduce, sums, line * length + start, width);
}

static void some_blocks(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Reduce *reduce = context;
    int64_t end = (chunk + 1) * reduce->unit;
    if (end > reduce->lines * reduce->blocks_of_line) end = reduce->lines * reduce->blocks_of_line;
    for (int64_t block = chunk * reduce->unit; block < end; block++) reduce_block(reduce, block);
}

static Failure run_reduce(const void *state, const Run *run) {
    const Reduce *reduce = state;
    const int64_t blocks = reduce->lines * reduce->blocks_of_line;
    share_chunks(run, ceil_div(blocks, reduce->unit), some_blocks, (void *)reduce);
    return OK;
}

const Kernel ISA(REDUCTIONS)[] = {
    {"Reduce", prepare, run_reduce, NULL},
    {NULL, NULL, NULL, NULL},
};
