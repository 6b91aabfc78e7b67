// Softmax, normalisation and reductions of rows: [rows][length], contiguous, or with `inner`
// columns behind each other, [rows][length][inner].
#include <stdlib.h>
#include <string.h>

#include "../../kernel.h"
#include "../support/math.h"
#include "row_sums.h"
#include "../support/sizes.h"
#include "../support/vector_exp.h"

typedef struct {
    int64_t rows, length, inner;
    const float *x;
    float *y;
    const float *scale, *bias;  // of a normalisation: one number for each element of a row
    float *mean, *inverse;  // of each row, if they are wanted
    double epsilon;
    int64_t unit;  // rows of a chunk
    int64_t blocks;  // of columns, in a row of softmax
    int64_t all;  // rows that softmax turns into columns, if they are short
} Rows;

enum { ROW_WORK = 16384 };  // elements that are worth another thread
enum {
    COLUMN_BLOCK = 128,  // that softmax goes down together: lines of 512 bytes
    SHORT_ROW = 32,  // elements: fewer leave much of their vectors empty
};

// `reduces`: the result has one element for each row and column.
static bool read_rows(Rows *rows, Params *params, bool reduces) {
    Tensor x = next_tensor(params), y = next_tensor(params);
    rows->rows = next_int(params);
    rows->length = next_int(params);
    rows->inner = next_int(params);
    rows->x = (const float *)x.data;
    rows->y = (float *)y.data;
    const int64_t size = size_of(rows->length, rows->inner, 1);
    const int64_t all = size_of(rows->rows, rows->length, rows->inner);
    const int64_t results = reduces ? size_of(rows->rows, rows->inner, 1) : all;
    if (params->bad || all <= 0 || !holds(&x, F32, all) || !holds(&y, F32, results)) return false;
    rows->unit = ceil_div(ROW_WORK, size);
    return true;
}

static void *prepare_any(Params *params, Needs *needs, bool reduces) {
    Rows *rows = calloc(1, sizeof(Rows));
    if (!rows || !read_rows(rows, params, reduces)) {
        free(rows);
        return NULL;
    }
    reads_anywhere(needs, &rows->x);
    writes_anywhere(needs, &rows->y);
    return rows;
}

static void *prepare(Params *params, Needs *needs) { return prepare_any(params, needs, false); }

static void *prepare_reduction(Params *params, Needs *needs) {
    return prepare_any(params, needs, true);
}

static void *prepare_norm(Params *params, Needs *needs) {
    Rows *rows = prepare(params, needs);
    if (!rows) return NULL;
    Tensor tensors[4];
    for (int i = 0; i < 4; i++) tensors[i] = maybe_tensor(params);
    rows->scale = (const float *)tensors[0].data;
    rows->bias = (const float *)tensors[1].data;
    rows->mean = (float *)tensors[2].data;
    rows->inverse = (float *)tensors[3].data;
    rows->epsilon = next_float(params);
    bool fits = !params->bad && rows->inner == 1;
    for (int i = 0; i < 4; i++)
        fits = fits && may_hold(&tensors[i], F32, i < 2 ? rows->length : rows->rows);
    if (fits) return rows;
    free(rows);
    return NULL;
}

typedef void (*RowFn)(const Rows *rows, int64_t row);

typedef struct {
    const Rows *rows;
    RowFn work;
} Job;

static void some_rows(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Job *job = context;
    int64_t end = (chunk + 1) * job->rows->unit;
    if (end > job->rows->rows) end = job->rows->rows;
    for (int64_t row = chunk * job->rows->unit; row < end; row++) job->work(job->rows, row);
}

static void for_rows(const Rows *rows, const Run *run, RowFn work) {
    Job job = {rows, work};
    share_chunks(run, ceil_div(rows->rows, rows->unit), some_rows, &job);
}

// -- softmax --------------------------------------------------------------------------------------

// The sum of e**(x - peak) over a row, with its terms in `y` unless that is NULL.  What is undefined
// makes it undefined, whatever the peak is then.
static float sum_of_powers(const float *x, float *y, int64_t n, float peak) {
    Floats total = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        const Floats power = exp_of_below(load(x + i) - peak);
        if (y) store(y + i, power);
        total += power;
    }
    if (i < n) {
        float line[LANES];  // of which what is missing has the power 0
        store(line, all_of(-INFINITY));
        memcpy(line, x + i, (size_t)(n - i) * sizeof(float));
        const Floats power = exp_of_below(load(line) - peak);
        store(line, power);
        if (y) memcpy(y + i, line, (size_t)(n - i) * sizeof(float));
        total += power;
    }
    return sum_of(total);
}

static void softmax_row(const Rows *rows, int64_t row) {
    const int64_t n = rows->length;
    const float *x = rows->x + row * n;
    float *y = rows->y + row * n;
    const float factor = 1.0f / sum_of_powers(x, y, n, peak_of(x, n));
    for (int64_t i = 0; i < n; i++) y[i] *= factor;
}

static void log_softmax_row(const Rows *rows, int64_t row) {
    const int64_t n = rows->length;
    const float *x = rows->x + row * n;
    float *y = rows->y + row * n;
    const float peak = peak_of(x, n), shift = logf(sum_of_powers(x, NULL, n, peak));
    for (int64_t i = 0; i < n; i++) y[i] = (x[i] - peak) - shift;
}

// A block of columns counts as a row: of those behind each other, or of short rows, which are turned.
static void *prepare_softmax(Params *params, Needs *needs) {
    Rows *rows = prepare(params, needs);
    if (!rows) return NULL;
    if (rows->inner > 1) {
        rows->blocks = ceil_div(rows->inner, COLUMN_BLOCK);
        const int64_t width = ceil_div(rows->inner, rows->blocks);
        rows->rows *= rows->blocks;
        rows->unit = ceil_div(ROW_WORK, width * rows->length);
    } else if (rows->length < SHORT_ROW) {
        rows->all = rows->rows;
        rows->rows = ceil_div(rows->all, COLUMN_BLOCK);
        rows->unit = ceil_div(ROW_WORK, COLUMN_BLOCK * rows->length);
    }
    return rows;
}

static void column_peaks(const float *x, int64_t stride, int64_t n, float *peaks, int64_t count) {
    for (int64_t j = 0; j < count; j++) peaks[j] = x[j];
    for (int64_t i = 1; i < n; i++)
        for (int64_t j = 0; j < count; j++) {
            const float v = x[i * stride + j], peak = peaks[j];
            peaks[j] = v > peak || v != v ? v : peak;
        }
}

// A block of columns, which is one of the rows.
typedef struct {
    const float *x;
    float *y;
    int64_t count;
} Columns;

static Columns columns_of(const Rows *rows, int64_t row) {
    const int64_t begin = row % rows->blocks * COLUMN_BLOCK, rest = rows->inner - begin;
    const int64_t place = row / rows->blocks * rows->length * rows->inner + begin;
    return (Columns){rows->x + place, rows->y + place, lesser(rest, COLUMN_BLOCK)};
}

typedef void (*ColumnsFn)(Columns columns, int64_t stride, int64_t n);

static void softmax_down(Columns columns, int64_t stride, int64_t n) {
    const float *x = columns.x;
    float *y = columns.y, peaks[COLUMN_BLOCK], totals[COLUMN_BLOCK] = {0};
    const int64_t count = columns.count;
    column_peaks(x, stride, n, peaks, count);
    for (int64_t i = 0; i < n; i++)
        INDEPENDENT_FOR (int64_t j = 0; j < count; j++) {
            const float value = exp_below(x[i * stride + j] - peaks[j]);
            y[i * stride + j] = value;
            totals[j] += value;
        }
    for (int64_t j = 0; j < count; j++) totals[j] = 1.0f / totals[j];
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < count; j++) y[i * stride + j] *= totals[j];
}

static void log_softmax_down(Columns columns, int64_t stride, int64_t n) {
    const float *x = columns.x;
    float *y = columns.y, peaks[COLUMN_BLOCK], totals[COLUMN_BLOCK] = {0};
    const int64_t count = columns.count;
    column_peaks(x, stride, n, peaks, count);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < count; j++) totals[j] += exp_below(x[i * stride + j] - peaks[j]);
    for (int64_t j = 0; j < count; j++) totals[j] = logf(totals[j]);
    for (int64_t i = 0; i < n; i++)
        INDEPENDENT_FOR (int64_t j = 0; j < count; j++)
            y[i * stride + j] = (x[i * stride + j] - peaks[j]) - totals[j];
}

static void softmax_columns(const Rows *rows, int64_t row) {
    softmax_down(columns_of(rows, row), rows->inner, rows->length);
}

static void log_softmax_columns(const Rows *rows, int64_t row) {
    log_softmax_down(columns_of(rows, row), rows->inner, rows->length);
}

// Short rows side by side, so that vectors are full: a block of them.
static void turned_rows(const Rows *rows, int64_t block, ColumnsFn work) {
    const int64_t n = rows->length, first = block * COLUMN_BLOCK;
    const int64_t count = lesser(rows->all - first, COLUMN_BLOCK);
    const float *x = rows->x + first * n;
    float *y = rows->y + first * n, turned[SHORT_ROW * COLUMN_BLOCK];
    for (int64_t j = 0; j < count; j++)
        for (int64_t i = 0; i < n; i++) turned[i * COLUMN_BLOCK + j] = x[j * n + i];
    work((Columns){turned, turned, count}, COLUMN_BLOCK, n);
    for (int64_t j = 0; j < count; j++)
        for (int64_t i = 0; i < n; i++) y[j * n + i] = turned[i * COLUMN_BLOCK + j];
}

static void softmax_short(const Rows *rows, int64_t block) {
    turned_rows(rows, block, softmax_down);
}

static void log_softmax_short(const Rows *rows, int64_t block) {
    turned_rows(rows, block, log_softmax_down);
}

static Failure run_softmax(const void *state, const Run *run) {
    const Rows *rows = state;
    const RowFn whole = rows->all ? softmax_short : softmax_row;
    for_rows(rows, run, rows->inner == 1 ? whole : softmax_columns);
    return OK;
}
static Failure run_log_softmax(const void *state, const Run *run) {
    const Rows *rows = state;
    const RowFn whole = rows->all ? log_softmax_short : log_softmax_row;
    for_rows(rows, run, rows->inner == 1 ? whole : log_softmax_columns);
    return OK;
}

// -- normalisation --------------------------------------------------------------------------------

static void scale_row(const Rows *rows, int64_t row, const float *x, float mean, float inverse) {
    float *y = rows->y + row * rows->length;
    const float *scale = rows->scale, *bias = rows->bias;
    if (scale && bias) {
        for (int64_t i = 0; i < rows->length; i++)
            y[i] = (x[i] - mean) * inverse * scale[i] + bias[i];
    } else if (scale) {
        for (int64_t i = 0; i < rows->length; i++) y[i] = (x[i] - mean) * inverse * scale[i];
    } else {
        for (int64_t i = 0; i < rows->length; i++)
            y[i] = (x[i] - mean) * inverse + (bias ? bias[i] : 0);
    }
    if (rows->mean) rows->mean[row] = mean;
    if (rows->inverse) rows->inverse[row] = inverse;
}

static void layer_norm_row(const Rows *rows, int64_t row) {
    const int64_t n = rows->length;
    const float *x = rows->x + row * n;
    const float mean = sum(x, n) / (float)n;
    const float variance = centred_squares(x, n, mean) / (float)n;
    scale_row(rows, row, x, mean, 1.0f / sqrtf(variance + (float)rows->epsilon));
}

static void rms_norm_row(const Rows *rows, int64_t row) {
    const int64_t n = rows->length;
    const float *x = rows->x + row * n;
    scale_row(
        rows, row, x, 0, 1.0f / sqrtf(sum_of_squares(x, n) / (float)n + (float)rows->epsilon));
}

static Failure run_layer_norm(const void *state, const Run *run) {
    for_rows(state, run, layer_norm_row);
    return OK;
}
static Failure run_rms_norm(const void *state, const Run *run) {
    for_rows(state, run, rms_norm_row);
    return OK;
}

// -- reductions -----------------------------------------------------------------------------------

// Columns side by side, a vector of them at a time.
static void sum_columns(const Rows *rows, int64_t row, float factor) {
    const float *x = rows->x + row * rows->length * rows->inner;
    float *y = rows->y + row * rows->inner;
    int64_t j = 0;
    for (; j + 4 * LANES <= rows->inner; j += 4 * LANES) {  // lines of the cache side by side
        Floats totals[4] = {{0}, {0}, {0}, {0}};
        for (int64_t i = 0; i < rows->length; i++)
            for (int k = 0; k < 4; k++) totals[k] += load(x + i * rows->inner + j + k * LANES);
        for (int k = 0; k < 4; k++) store(y + j + k * LANES, totals[k] * factor);
    }
    for (; j + LANES <= rows->inner; j += LANES) {
        Floats total = {0};
        for (int64_t i = 0; i < rows->length; i++) total += load(x + i * rows->inner + j);
        store(y + j, total * factor);
    }
    for (; j < rows->inner; j++) {
        float total = 0;
        for (int64_t i = 0; i < rows->length; i++) total += x[i * rows->inner + j];
        y[j] = total * factor;
    }
}

INLINE void reduce_columns(const Rows *rows, int64_t row, const NumberStep add) {
    const float *x = rows->x + row * rows->length * rows->inner;
    float *y = rows->y + row * rows->inner;
    memcpy(y, x, (size_t)rows->inner * sizeof(float));
    for (int64_t i = 1; i < rows->length; i++)
        for (int64_t j = 0; j < rows->inner; j++) y[j] = add(y[j], x[i * rows->inner + j]);
}

static void largest_columns(const Rows *rows, int64_t row) { reduce_columns(rows, row, larger); }
static void smallest_columns(const Rows *rows, int64_t row) { reduce_columns(rows, row, smaller); }

static void sum_row(const Rows *rows, int64_t row) {
    if (rows->inner == 1)
        rows->y[row] = sum(rows->x + row * rows->length, rows->length);
    else
        sum_columns(rows, row, 1);
}

static void mean_row(const Rows *rows, int64_t row) {
    const float factor = 1.0f / (float)rows->length;
    if (rows->inner == 1)
        rows->y[row] = sum(rows->x + row * rows->length, rows->length) / (float)rows->length;
    else
        sum_columns(rows, row, factor);
}

static void max_row(const Rows *rows, int64_t row) {
    if (rows->inner == 1)
        rows->y[row] = largest(rows->x + row * rows->length, rows->length);
    else
        largest_columns(rows, row);
}

static void min_row(const Rows *rows, int64_t row) {
    if (rows->inner == 1)
        rows->y[row] = smallest(rows->x + row * rows->length, rows->length);
    else
        smallest_columns(rows, row);
}

static void square_row(const Rows *rows, int64_t row) {
    rows->y[row] = sum_of_squares(rows->x + row * rows->length, rows->length);
}

static Failure run_sum(const void *state, const Run *run) {
    for_rows(state, run, sum_row);
    return OK;
}
static Failure run_mean(const void *state, const Run *run) {
    for_rows(state, run, mean_row);
    return OK;
}
static Failure run_max(const void *state, const Run *run) {
    for_rows(state, run, max_row);
    return OK;
}
static Failure run_min(const void *state, const Run *run) {
    for_rows(state, run, min_row);
    return OK;
}
static Failure run_square(const void *state, const Run *run) {
    for_rows(state, run, square_row);
    return OK;
}

const Kernel ISA(ROWS)[] = {
    {"Softmax_f32", prepare_softmax, run_softmax, NULL},
    {"LogSoftmax_f32", prepare_softmax, run_log_softmax, NULL},
    {"LayerNorm_f32", prepare_norm, run_layer_norm, NULL},
    {"RmsNorm_f32", prepare_norm, run_rms_norm, NULL},
    {"ReduceSum_f32", prepare_reduction, run_sum, NULL},
    {"ReduceMean_f32", prepare_reduction, run_mean, NULL},
    {"ReduceMax_f32", prepare_reduction, run_max, NULL},
    {"ReduceMin_f32", prepare_reduction, run_min, NULL},
    {"ReduceSumSquare_f32", prepare_reduction, run_square, NULL},
    {NULL, NULL, NULL, NULL},
};
