// Softmax and its logarithm along an axis of floats: see rows.h.
#include <string.h>

#include "rows.h"

#include "../support/math.h"
#include "../support/vector_exp.h"
#include "row_sums.h"

static void *prepare(Params *params, Needs *needs) {
    return prepare_rows(params, needs, false, COLUMN_BLOCK);
}

// -- rows -----------------------------------------------------------------------------------------

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

// -- columns --------------------------------------------------------------------------------------

static void column_peaks(const Columns *columns, int64_t n, float *peaks) {
    const int64_t count = columns->count;
    for (int64_t j = 0; j < count; j++) peaks[j] = columns->x[j];
    for (int64_t i = 1; i < n; i++)
        for (int64_t j = 0; j < count; j++) {
            const float v = columns->x[i * columns->step + j], peak = peaks[j];
            peaks[j] = v > peak || v != v ? v : peak;
        }
}

static void softmax_down(Columns columns, int64_t n) {
    const float *x = columns.x;
    float *y = columns.y, peaks[COLUMN_BLOCK], totals[COLUMN_BLOCK] = {0};
    const int64_t count = columns.count, step = columns.step;
    column_peaks(&columns, n, peaks);
    for (int64_t i = 0; i < n; i++)
        INDEPENDENT_FOR (int64_t j = 0; j < count; j++) {
            const float value = exp_below(x[i * step + j] - peaks[j]);
            y[i * step + j] = value;
            totals[j] += value;
        }
    for (int64_t j = 0; j < count; j++) totals[j] = 1.0f / totals[j];
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < count; j++) y[i * step + j] *= totals[j];
}

static void log_softmax_down(Columns columns, int64_t n) {
    const float *x = columns.x;
    float *y = columns.y, peaks[COLUMN_BLOCK], totals[COLUMN_BLOCK] = {0};
    const int64_t count = columns.count, step = columns.step;
    column_peaks(&columns, n, peaks);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < count; j++) totals[j] += exp_below(x[i * step + j] - peaks[j]);
    for (int64_t j = 0; j < count; j++) totals[j] = logf(totals[j]);
    for (int64_t i = 0; i < n; i++)
        INDEPENDENT_FOR (int64_t j = 0; j < count; j++)
            y[i * step + j] = (x[i * step + j] - peaks[j]) - totals[j];
}

// -- pieces ---------------------------------------------------------------------------------------

INLINE void do_piece(
    const Rows *rows, int64_t piece, float *panel,
    void (*const along)(const Rows *rows, int64_t row),
    void (*const down)(Columns columns, int64_t n)) {
    if (rows->outers) {
        const int64_t row = rows->outers * rows->inner;
        const int64_t count = rows_of_panel(rows, piece) * rows->inner;
        read_panel(rows, piece, 0, rows->length, panel);
        down((Columns){panel, panel, row, count}, rows->length);
        write_panel(rows, piece, panel);
    } else if (rows->inner == 1) {
        along(rows, piece);
    } else {
        down(columns_of(rows, piece, COLUMN_BLOCK), rows->length);
    }
}

static void softmax_piece(const Rows *rows, int64_t piece, float *panel) {
    do_piece(rows, piece, panel, softmax_row, softmax_down);
}
static void log_softmax_piece(const Rows *rows, int64_t piece, float *panel) {
    do_piece(rows, piece, panel, log_softmax_row, log_softmax_down);
}

static Failure run_softmax(const void *state, const Run *run) {
    return for_pieces(state, run, softmax_piece);
}
static Failure run_log_softmax(const void *state, const Run *run) {
    return for_pieces(state, run, log_softmax_piece);
}

const Kernel ISA(SOFTMAXES)[] = {
    {"Softmax_f32", prepare, run_softmax, NULL},
    {"LogSoftmax_f32", prepare, run_log_softmax, NULL},
    {NULL, NULL, NULL, NULL},
};
