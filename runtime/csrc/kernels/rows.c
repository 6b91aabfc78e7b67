// Softmax, normalisation and reductions of rows: [rows][length], contiguous, or with `inner`
// columns behind each other, [rows][length][inner].
#include <stdlib.h>
#include <string.h>

#include "../kernel.h"
#include "math.h"
#include "simd.h"

typedef struct {
    int64_t rows, length, inner;
    const float *x;
    float *y;
    const float *scale, *bias;  // of a normalisation: one number for each element of a row
    float *mean, *inverse;  // of each row, if they are wanted
    double epsilon;
    int64_t unit;  // rows of a chunk
} Rows;

enum { ROW_WORK = 16384 };  // elements that are worth another thread

// All operations on a row take vectors first and what is left afterwards.
#define REDUCTION(NAME, START, VECTOR, SCALAR)                                   \
    static float NAME(const float *x, int64_t n) {                               \
        float total = START;                                                     \
        int64_t i = 0;                                                           \
        if (n >= 4 * LANES) {                                                    \
            Floats a[4];                                                         \
            for (int k = 0; k < 4; k++) a[k] = all_of(START);                    \
            for (; i + 4 * LANES <= n; i += 4 * LANES)                           \
                for (int k = 0; k < 4; k++) {                                    \
                    const Floats v = load(x + i + k * LANES);                    \
                    VECTOR;                                                      \
                }                                                                \
            float parts[4 * LANES];                                              \
            for (int k = 0; k < 4; k++) store(parts + k * LANES, a[k]);          \
            for (int k = 0; k < 4 * LANES; k++) {                                \
                const float v = parts[k];                                        \
                MERGE_##NAME;                                                    \
            }                                                                    \
        }                                                                        \
        for (; i < n; i++) {                                                     \
            const float v = x[i];                                                \
            SCALAR;                                                              \
        }                                                                        \
        return total;                                                            \
    }

#define MERGE_sum total += v
#define MERGE_sum_of_squares total += v
#define MERGE_largest total = v > total || v != v ? v : total
#define MERGE_smallest total = v < total || v != v ? v : total

REDUCTION(sum, 0.0f, a[k] += v, total += v)
REDUCTION(sum_of_squares, 0.0f, a[k] += v * v, total += v * v)
// A NaN stays: it is not less than anything, and once in `total` nothing is larger than it.
REDUCTION(largest, -INFINITY, {
    const __typeof__(v > a[k]) take = (v > a[k]) | (v != v);
    a[k] = (Floats)(((__typeof__(take))v & take) | ((__typeof__(take))a[k] & ~take));
}, total = v > total || v != v ? v : total)
REDUCTION(smallest, INFINITY, {
    const __typeof__(v < a[k]) take = (v < a[k]) | (v != v);
    a[k] = (Floats)(((__typeof__(take))v & take) | ((__typeof__(take))a[k] & ~take));
}, total = v < total || v != v ? v : total)

static bool read_rows(Rows *rows, Params *params) {
    Tensor x = next_tensor(params), y = next_tensor(params);
    rows->rows = next_int(params);
    rows->length = next_int(params);
    rows->inner = next_int(params);
    rows->x = (const float *)x.data;
    rows->y = (float *)y.data;
    const int64_t size = rows->length * rows->inner;
    rows->unit = size ? (ROW_WORK + size - 1) / size : 1;
    return !params->bad && rows->rows > 0 && rows->length > 0 && rows->inner > 0;
}

static void *prepare(Params *params, Needs *needs) {
    (void)needs;
    Rows *rows = calloc(1, sizeof(Rows));
    if (rows && read_rows(rows, params)) return rows;
    free(rows);
    return NULL;
}

static void *prepare_norm(Params *params, Needs *needs) {
    Rows *rows = prepare(params, needs);
    if (!rows) return NULL;
    rows->scale = (const float *)next_tensor(params).data;
    rows->bias = (const float *)next_tensor(params).data;
    rows->mean = (float *)next_tensor(params).data;
    rows->inverse = (float *)next_tensor(params).data;
    rows->epsilon = next_float(params);
    if (!params->bad) return rows;
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
    share_chunks(run, (rows->rows + rows->unit - 1) / rows->unit, some_rows, &job);
}

// -- softmax --------------------------------------------------------------------------------------

static void softmax_row(const Rows *rows, int64_t row) {
    const int64_t n = rows->length;
    const float *x = rows->x + row * n;
    float *y = rows->y + row * n;
    const float peak = largest(x, n);
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) y[i] = fast_exp(x[i] - peak);
    const float factor = 1.0f / sum(y, n);
    for (int64_t i = 0; i < n; i++) y[i] *= factor;
}

static void log_softmax_row(const Rows *rows, int64_t row) {
    const int64_t n = rows->length;
    const float *x = rows->x + row * n;
    float *y = rows->y + row * n;
    const float peak = largest(x, n);
    float block[256], total = 0;
    for (int64_t begin = 0; begin < n; begin += 256) {
        const int64_t count = n - begin < 256 ? n - begin : 256;
        for (int64_t i = 0; i < count; i++) block[i] = fast_exp(x[begin + i] - peak);
        total += sum(block, count);
    }
    const float shift = logf(total);
    for (int64_t i = 0; i < n; i++) y[i] = (x[i] - peak) - shift;
}

static Failure run_softmax(const void *state, const Run *run) {
    for_rows(state, run, softmax_row);
    return OK;
}
static Failure run_log_softmax(const void *state, const Run *run) {
    for_rows(state, run, log_softmax_row);
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

// The variance is taken from centred values, so that a large mean costs no accuracy.
static float centred_squares(const float *x, int64_t n, float mean) {
    float block[256], total = 0;
    for (int64_t begin = 0; begin < n; begin += 256) {
        const int64_t count = n - begin < 256 ? n - begin : 256;
        for (int64_t i = 0; i < count; i++) block[i] = x[begin + i] - mean;
        total += sum_of_squares(block, count);
    }
    return total;
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
    scale_row(rows, row, x, 0, 1.0f / sqrtf(sum_of_squares(x, n) / (float)n + (float)rows->epsilon));
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

#define COLUMNS(NAME, CONDITION)                                            \
    static void NAME(const Rows *rows, int64_t row) {                       \
        const float *x = rows->x + row * rows->length * rows->inner;        \
        float *y = rows->y + row * rows->inner;                             \
        memcpy(y, x, (size_t)rows->inner * sizeof(float));                  \
        for (int64_t i = 1; i < rows->length; i++)                          \
            for (int64_t j = 0; j < rows->inner; j++) {                     \
                const float v = x[i * rows->inner + j], t = y[j];           \
                y[j] = CONDITION ? v : t;                                   \
            }                                                               \
    }

COLUMNS(largest_columns, v > t || v != v)
COLUMNS(smallest_columns, v < t || v != v)

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
    {"Softmax_f32", prepare, run_softmax, NULL},
    {"LogSoftmax_f32", prepare, run_log_softmax, NULL},
    {"LayerNorm_f32", prepare_norm, run_layer_norm, NULL},
    {"RmsNorm_f32", prepare_norm, run_rms_norm, NULL},
    {"ReduceSum_f32", prepare, run_sum, NULL},
    {"ReduceMean_f32", prepare, run_mean, NULL},
    {"ReduceMax_f32", prepare, run_max, NULL},
    {"ReduceMin_f32", prepare, run_min, NULL},
    {"ReduceSumSquare_f32", prepare, run_square, NULL},
    {NULL, NULL, NULL, NULL},
};
