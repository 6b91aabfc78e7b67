// Sums and extremes along an axis of floats, computed in float: see norm/rows.h.
#include "../norm/row_sums.h"
#include "../norm/rows.h"
#include "../support/partial.h"

enum {
    BLOCK = 512,  // columns of a piece
    SIDE_BY_SIDE = 4,  // vectors of them that go down together
};

static void *prepare(Params *params, Needs *needs) {
    return prepare_rows(params, needs, true, BLOCK);
}

// What columns come to by one step, from `start` on.
INLINE void fold_columns(
    const Columns *columns, int64_t n, const float start, const VectorStep step) {
    const int64_t count = columns->count, apart = columns->step;
    int64_t j = 0;
    for (; j + SIDE_BY_SIDE * LANES <= count; j += SIDE_BY_SIDE * LANES) {
        Floats totals[SIDE_BY_SIDE];
        UNROLLED_FOR (int k = 0; k < SIDE_BY_SIDE; k++) totals[k] = all_of(start);
        for (int64_t i = 0; i < n; i++)
            UNROLLED_FOR (int k = 0; k < SIDE_BY_SIDE; k++)
                totals[k] = step(totals[k], load(columns->x + i * apart + j + k * LANES));
        UNROLLED_FOR (int k = 0; k < SIDE_BY_SIDE; k++)
            store(columns->y + j + k * LANES, totals[k]);
    }
    for (; j < count; j += LANES) {
        Floats total = all_of(start);
        for (int64_t i = 0; i < n; i++)
            total = step(total, load_some(columns->x + i * apart + j, count - j));
        if (count - j >= LANES)
            store(columns->y + j, total);
        else
            store_some(columns->y + j, total, count - j);
    }
}

INLINE void fold_piece(
    const Rows *rows, int64_t piece, float *panel, const float start, const VectorStep step,
    float (*const along)(const float *x, int64_t n), const bool is_mean) {
    const int64_t n = rows->length, inner = rows->inner;
    Columns columns;
    if (rows->outers) {
        read_panel(rows, piece, 0, n, panel);
        const int64_t count = rows_of_panel(rows, piece) * inner, row = rows->outers * inner;
        columns = (Columns){panel, rows->y + piece * row, row, count};
    } else if (inner == 1) {
        const float total = along(rows->x + piece * n, n);
        rows->y[piece] = is_mean ? total / (float)n : total;
        return;
    } else {
        columns = columns_of(rows, piece, BLOCK);
        columns.y = rows->y + piece / rows->blocks * inner + piece % rows->blocks * BLOCK;
    }
    fold_columns(&columns, n, start, step);
    if (is_mean)
        for (int64_t j = 0; j < columns.count; j++) columns.y[j] /= (float)n;
}

#define REDUCTION(NAME, START, STEP, ALONG, IS_MEAN)                          \
    static void NAME##_piece(const Rows *rows, int64_t piece, float *panel) { \
        fold_piece(rows, piece, panel, START, STEP, ALONG, IS_MEAN);          \
    }                                                                         \
    static Failure run_##NAME(const void *state, const Run *run) {            \
        return for_pieces(state, run, NAME##_piece);                          \
    }

REDUCTION(sum, 0, plus_of, sum, false)
REDUCTION(mean, 0, plus_of, sum, true)
REDUCTION(max, -INFINITY, vector_larger, largest, false)
REDUCTION(min, INFINITY, vector_smaller, smallest, false)
REDUCTION(square, 0, vector_plus_square, sum_of_squares, false)

const Kernel ISA(ROW_REDUCTIONS)[] = {
    {"ReduceSum_f32", prepare, run_sum, NULL},          {"ReduceMean_f32", prepare, run_mean, NULL},
    {"ReduceMax_f32", prepare, run_max, NULL},          {"ReduceMin_f32", prepare, run_min, NULL},
    {"ReduceSumSquare_f32", prepare, run_square, NULL}, {NULL, NULL, NULL, NULL},
};
