// Reductions along any axes, of any strides and most element types.
#include <stdlib.h>

#include "../../kernel.h"
#include "../support/lines.h"
#include "folds.h"

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
    int64_t outers, inner;  // of a panel, 0 if what is reduced is read where it lies: see lines.h
    Operation operation;
    DType dtype;
    StepFn step;
    int64_t blocks, unit;  // and how many of them a chunk has
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
}

// Blocks of neighbours in the result, which lie in one line or are the columns of a panel.
static void cut_blocks(Reduce *reduce, int64_t size) {
    const int last = reduce->reduced - 1;
    const int64_t inner = reduce->kept == 2 ? reduce->kept_dims[1] : 1;
    const bool side_by_side = inner == 1 || reduce->kept_strides[1] == size;
    int64_t width = lesser(reduce->kept_dims[reduce->kept - 1], BLOCK);
    if (reduce->kept <= 2 && side_by_side && reduce->strides[last] == inner * size &&
        want_panels(reduce->kept_dims[0], reduce->dims[last], inner, size, SHORT_LINE)) {
        reduce->inner = inner;
        reduce->outers = lesser(reduce->kept_dims[0], greater(1, PANEL_COLUMNS / inner));
        reduce->blocks = ceil_div(reduce->kept_dims[0], reduce->outers);
        width = reduce->outers * inner;
    } else {
        reduce->blocks_of_line = ceil_div(reduce->kept_dims[reduce->kept - 1], BLOCK);
        reduce->blocks = reduce->lines * reduce->blocks_of_line;
    }
    reduce->unit = ceil_div(REDUCE_WORK, width * reduce->count);
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
    cut_blocks(reduce, item_size(x.dtype));
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

// A block: where its first element is, and where its result belongs.
typedef struct {
    const char *from;
    int64_t width, place;
    const Value *shifts;
    Value *sums;
} Block;

// A line of each neighbour, where it lies.
static bool sum_lines(
    const Reduce *reduce, const Block *block, Step step, const char *from, int64_t *done) {
    const int last = reduce->reduced - 1;
    Fold fold = {
        .width = block->width,
        .along = reduce->strides[last],
        .across = reduce->kept_strides[reduce->kept - 1],
        .shifts = block->shifts,
        .sums = block->sums};
    for (int64_t i = 0; i < reduce->dims[last]; i += MOST_AT_ONCE) {
        fold.from = from + i * fold.along;
        fold.n = lesser(reduce->dims[last] - i, MOST_AT_ONCE);
        if (is_stopped_after(fold.width * fold.n, done)) return false;
        reduce->step(&fold, step);
    }
    return true;
}

// The same from panels, of as many rows as fit.
static bool sum_panels(
    const Reduce *reduce, const Block *block, Step step, const char *from, int64_t *done) {
    const int last = reduce->reduced - 1;
    const int64_t along = reduce->strides[last], size = along / reduce->inner;
    char panel[PANEL_BYTES] __attribute__((aligned(64)));
    Fold fold = {
        .from = panel,
        .width = block->width,
        .along = block->width * size,
        .across = size,
        .shifts = block->shifts,
        .sums = block->sums};
    const int64_t most = PANEL_BYTES / fold.along;
    for (int64_t i = 0; i < reduce->dims[last]; i += most) {
        fold.n = lesser(reduce->dims[last] - i, most);
        if (is_stopped_after(fold.width * fold.n, done)) return false;
        fill_panel(
            from + i * along, reduce->kept_strides[0], fold.width / reduce->inner, fold.n, along,
            panel, fold.along);
        reduce->step(&fold, step);
    }
    return true;
}

static void sum_block(const Reduce *reduce, const Block *block, Step step) {
    const Value start = first_value(reduce->dtype, step);
    for (int64_t b = 0; b < block->width; b++) block->sums[b] = start;
    int64_t done = 0;
    for (int64_t turn = 0; turn < reduce->turns; turn++) {
        const char *from = block->from +
                           offset_of(turn, reduce->reduced - 1, reduce->dims, reduce->strides);
        const bool goes_on = reduce->outers ? sum_panels(reduce, block, step, from, &done)
                                            : sum_lines(reduce, block, step, from, &done);
        if (!goes_on) return;
    }
}

static void logs_of(double *sums, int64_t width) {
    bool usual = true;
    for (int64_t b = 0; b < width; b++) usual &= sums[b] > 0x1p-1000 && sums[b] < 0x1p1000;
    if (usual)
        for (int64_t b = 0; b < width; b++) sums[b] = wide_log(sums[b]);
    else
        for (int64_t b = 0; b < width; b++) sums[b] = log(sums[b]);
}

// What a sum is made into is made of a number of the type, as ONNX defines it: if that is too large,
// it is infinite.
static void finish_reals(const Reduce *reduce, const double *shifts, double *sums, int64_t width) {
    const double count = (double)reduce->count;
    if (reduce->dtype == F32 && reduce->operation != LOG_SUM_EXP)
        for (int64_t b = 0; b < width; b++) sums[b] = (float)sums[b];
    switch (reduce->operation) {
        case L2:
            for (int64_t b = 0; b < width; b++) sums[b] = sqrt(sums[b]);
            break;
        case LOG_SUM: logs_of(sums, width); break;
        case LOG_SUM_EXP:
            logs_of(sums, width);
            for (int64_t b = 0; b < width; b++) sums[b] += shifts[b];
            break;
        case MEAN:
            for (int64_t b = 0; b < width; b++) sums[b] /= count;
            break;
        default: break;
    }
}

// The low bytes of whole numbers: memory is little-endian.
INLINE void store_wholes(char *to, const int64_t *sums, int64_t width, const int64_t size) {
    for (int64_t b = 0; b < width; b++) memcpy(to + b * size, sums + b, (size_t)size);
}

static void store_block(const Reduce *reduce, Value *values, int64_t place, int64_t width) {
    int64_t *const sums = wholes_of(values);
    const int64_t size = item_size(reduce->dtype);
    char *to = reduce->out + place * size;
    if (reduce->dtype == F32) {
        for (int64_t b = 0; b < width; b++) ((float *)to)[b] = (float)reals_of(values)[b];
        return;
    }
    if (is_half(reduce->dtype))
        for (int64_t b = 0; b < width; b++) sums[b] = turned_half((int16_t)sums[b]);
    else if (reduce->dtype != F64 && reduce->operation == MEAN)
        for (int64_t b = 0; b < width; b++) sums[b] /= reduce->count;
    switch (size) {
        case 1: store_wholes(to, sums, width, 1); break;
        case 2: store_wholes(to, sums, width, 2); break;
        case 4: store_wholes(to, sums, width, 4); break;
        default: store_wholes(to, sums, width, 8); break;
    }
}

static Block block_of(const Reduce *reduce, int64_t number) {
    const int last = reduce->kept - 1;
    const int64_t length = reduce->kept_dims[last];
    if (reduce->outers) {
        const int64_t first = number * reduce->outers;
        const int64_t outers = lesser(reduce->outers, reduce->kept_dims[0] - first);
        return (Block){
            .from = reduce->x + first * reduce->kept_strides[0],
            .width = outers * reduce->inner,
            .place = first * reduce->inner};
    }
    const int64_t line = number / reduce->blocks_of_line;
    const int64_t start = number % reduce->blocks_of_line * BLOCK;
    return (Block){
        .from = reduce->x + start * reduce->kept_strides[last] +
                offset_of(line, last, reduce->kept_dims, reduce->kept_strides),
        .width = lesser(length - start, BLOCK),
        .place = line * length + start};
}

static void reduce_block(const Reduce *reduce, int64_t number) {
    Value sums[BLOCK], shifts[BLOCK];
    Block block = block_of(reduce, number);
    block.sums = sums;
    sum_block(reduce, &block, first_step(reduce->operation));
    if (reduce->operation == LOG_SUM_EXP) {
        for (int64_t b = 0; b < block.width; b++)
            shifts[b].real = isinf(sums[b].real) ? 0 : sums[b].real;
        block.shifts = shifts;
        sum_block(reduce, &block, ADD_EXP);
    }
    if (is_real(reduce->dtype)) finish_reals(reduce, reals_of(shifts), reals_of(sums), block.width);
    store_block(reduce, sums, block.place, block.width);
}

static void some_blocks(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Reduce *reduce = context;
    const int64_t end = lesser((chunk + 1) * reduce->unit, reduce->blocks);
    for (int64_t block = chunk * reduce->unit; block < end; block++) reduce_block(reduce, block);
}

static Failure run_reduce(const void *state, const Run *run) {
    const Reduce *reduce = state;
    share_chunks(run, ceil_div(reduce->blocks, reduce->unit), some_blocks, (void *)reduce);
    return OK;
}

const Kernel ISA(REDUCTIONS)[] = {
    {"Reduce", prepare, run_reduce, NULL},
    {NULL, NULL, NULL, NULL},
};
