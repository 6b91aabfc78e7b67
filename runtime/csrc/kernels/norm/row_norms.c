// Normalisation of rows of floats, by their mean and variance or by their squares: see rows.h.
#include "row_sums.h"
#include "rows.h"

typedef struct {
    Rows rows;
    const float *scale, *bias;  // one number for each element of a row
    float *mean, *inverse;  // of each row, if they are wanted
    float epsilon;
} Norm;

static void *prepare(Params *params, Needs *needs) {
    Norm *norm = calloc(1, sizeof(Norm));
    if (!norm || !read_rows(&norm->rows, params, false)) {
        free(norm);
        return NULL;
    }
    Tensor tensors[4];
    for (int i = 0; i < 4; i++) tensors[i] = maybe_tensor(params);
    norm->scale = (const float *)tensors[0].data;
    norm->bias = (const float *)tensors[1].data;
    norm->mean = (float *)tensors[2].data;
    norm->inverse = (float *)tensors[3].data;
    norm->epsilon = (float)next_float(params);
    const Rows *rows = &norm->rows;
    bool fits = !params->bad && rows->inner == 1;
    for (int i = 0; i < 4; i++)
        fits = fits && may_hold(&tensors[i], F32, i < 2 ? rows->length : rows->rows);
    if (!fits) {
        free(norm);
        return NULL;
    }
    reads_anywhere(needs, &norm->rows.x);
    writes_anywhere(needs, &norm->rows.y);
    needs->own = cut_rows(&norm->rows, COLUMN_BLOCK);
    return norm;
}

static void keep_statistics(const Norm *norm, int64_t row, float mean, float inverse) {
    if (norm->mean) norm->mean[row] = mean;
    if (norm->inverse) norm->inverse[row] = inverse;
}

// -- rows -----------------------------------------------------------------------------------------

static void scale_row(const Norm *norm, int64_t row, const float *x, float mean, float inverse) {
    const int64_t n = norm->rows.length;
    float *y = norm->rows.y + row * n;
    const float *scale = norm->scale, *bias = norm->bias;
    if (scale && bias) {
        for (int64_t i = 0; i < n; i++) y[i] = (x[i] - mean) * inverse * scale[i] + bias[i];
    } else if (scale) {
        for (int64_t i = 0; i < n; i++) y[i] = (x[i] - mean) * inverse * scale[i];
    } else {
        for (int64_t i = 0; i < n; i++) y[i] = (x[i] - mean) * inverse + (bias ? bias[i] : 0);
    }
    keep_statistics(norm, row, mean, inverse);
}

INLINE void norm_row(const Norm *norm, int64_t row, const bool centred) {
    const int64_t n = norm->rows.length;
    const float *x = norm->rows.x + row * n, mean = centred ? sum(x, n) / (float)n : 0;
    const float squares = centred ? centred_squares(x, n, mean) : sum_of_squares(x, n);
    scale_row(norm, row, x, mean, 1.0f / sqrtf(squares / (float)n + norm->epsilon));
}

// -- short rows, as columns -----------------------------------------------------------------------

INLINE void norm_columns(
    const Norm *norm, float *panel, int64_t first, int64_t count, const bool centred) {
    const int64_t n = norm->rows.length, step = norm->rows.outers;
    float means[PANEL_COLUMNS] = {0}, inverses[PANEL_COLUMNS] = {0};
    if (centred) {
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < count; j++) means[j] += panel[i * step + j];
        for (int64_t j = 0; j < count; j++) means[j] /= (float)n;
    }
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < count; j++) {
            const float value = panel[i * step + j] - means[j];
            inverses[j] += value * value;
        }
    for (int64_t j = 0; j < count; j++)
        inverses[j] = 1.0f / sqrtf(inverses[j] / (float)n + norm->epsilon);
    for (int64_t i = 0; i < n; i++) {
        const float scale = norm->scale ? norm->scale[i] : 1, bias = norm->bias ? norm->bias[i] : 0;
        float *line = panel + i * step;
        for (int64_t j = 0; j < count; j++)
            line[j] = (line[j] - means[j]) * inverses[j] * scale + bias;
    }
    for (int64_t j = 0; j < count; j++) keep_statistics(norm, first + j, means[j], inverses[j]);
}

INLINE void norm_piece(const Rows *rows, int64_t piece, float *panel, const bool centred) {
    const Norm *norm = (const Norm *)(const void *)rows;  // its first member
    if (!rows->outers) {
        norm_row(norm, piece, centred);
        return;
    }
    read_panel(rows, piece, 0, rows->length, panel);
    norm_columns(norm, panel, piece * rows->outers, rows_of_panel(rows, piece), centred);
    write_panel(rows, piece, panel);
}

static void layer_norm_piece(const Rows *rows, int64_t piece, float *panel) {
    norm_piece(rows, piece, panel, true);
}
static void rms_norm_piece(const Rows *rows, int64_t piece, float *panel) {
    norm_piece(rows, piece, panel, false);
}

static Failure run_layer_norm(const void *state, const Run *run) {
    return for_pieces(state, run, layer_norm_piece);
}
static Failure run_rms_norm(const void *state, const Run *run) {
    return for_pieces(state, run, rms_norm_piece);
}

const Kernel ISA(ROW_NORMS)[] = {
    {"LayerNorm_f32", prepare, run_layer_norm, NULL},
    {"RmsNorm_f32", prepare, run_rms_norm, NULL},
    {NULL, NULL, NULL, NULL},
};
