// Products of one row, and of a few, with packed panels.  What they take is the time in which the panels
// come from memory, which is read fastest at several places: what looks ahead in the processor stops
// at the end of each page.
#include <string.h>

#include "gemm.h"
#include "../support/partial.h"

enum {
    // Floats of a right matrix that is not in a near cache (512 KiB: the second cache of Zen 3), and is
    // asked for: so many lines ahead.
    FAR = 1 << 17,
    AHEAD = 16,
    ALL_AHEAD = 64,  // lines of all panels together that a few rows ask for ahead, if they are far
    VECTORS = 8,  // of a row, at once
    ROW_PANELS = VECTORS * LANES / PANEL_COLUMNS,
    FEW_PANELS = FEW_COLUMNS / PANEL_COLUMNS,
};

// `panels` and `far` are constants wherever this is called: so many sums are in flight at once.
INLINE void multiply_some(
    const float *left, const float *right, int64_t k, float *out, const int panels,
    const bool far) {
    const int vectors = panels * PANEL_COLUMNS / LANES;
    const int64_t panel = k * PANEL_COLUMNS;
    Floats sums[VECTORS] = {{0}};
    for (int64_t p = 0; p < k; p++, right += PANEL_COLUMNS) {
        const float factor = left[p];
#pragma GCC unroll 8
        for (int i = 0; far && i < panels; i++)
            __builtin_prefetch(right + i * panel + AHEAD * PANEL_COLUMNS);
#pragma GCC unroll 8
        for (int i = 0; i < vectors; i++) {
            const int column = i * LANES;
            const float *from = right + column / PANEL_COLUMNS * panel + column % PANEL_COLUMNS;
            sums[i] += factor * load(from);
        }
    }
    for (int i = 0; i < vectors; i++) store(out + i * LANES, sums[i]);
}

#define ROW_CASE(N) \
    case N: multiply_some(left, right + j * k, k, part, N, false); break;

void ISA(multiply_row)(
    const float *left, const float *right, int64_t k, float *out, int64_t columns) {
    enum { WIDTH = ROW_PANELS * PANEL_COLUMNS };
    const bool far = k * columns > FAR;
    int64_t j = 0;
    for (; j + WIDTH <= columns; j += WIDTH) {
        if (far)
            multiply_some(left, right + j * k, k, out + j, ROW_PANELS, true);
        else
            multiply_some(left, right + j * k, k, out + j, ROW_PANELS, false);
    }
    if (j == columns) return;
    float part[WIDTH];
    switch (ceil_div(columns - j, PANEL_COLUMNS)) {
        ROW_CASE(1)
#if VECTOR_BYTES > 16
        ROW_CASE(2)
        ROW_CASE(3)
#endif
#if VECTOR_BYTES > 32
        ROW_CASE(4)
        ROW_CASE(5)
        ROW_CASE(6)
        ROW_CASE(7)
#endif
        default: multiply_some(left, right + j * k, k, part, ROW_PANELS, false);
    }
    memcpy(out + j, part, (size_t)(columns - j) * sizeof(float));
}

// The first `count` of them, which may be all or none.
INLINE void store_first(float *to, Floats values, int64_t count) {
    if (count >= LANES)
        store(to, values);
    else if (count > 0)
        store_some(to, values, count);
}

// `rows`, `panels` and `far` are constants wherever this is called, and `columns` unless it is one of
// fewer than the panels have.
INLINE void multiply_wide(
    const float *left, int64_t left_row, const float *right, int64_t k, float *out, int64_t out_row,
    int64_t columns, const int rows, const int panels, const bool far) {
    const int vectors = panels * PANEL_COLUMNS / LANES;
    const int64_t panel = k * PANEL_COLUMNS;
    Floats sums[FEW_ROWS][VECTORS];
    UNROLLED_FOR (int i = 0; i < rows; i++)
        UNROLLED_FOR (int v = 0; v < vectors; v++) sums[i][v] = (Floats){0};
    for (int64_t p = 0; p < k; p++, left++, right += PANEL_COLUMNS) {
        Floats line[VECTORS];
        UNROLLED_FOR (int i = 0; far && i < panels; i++)
            __builtin_prefetch(right + i * panel + ALL_AHEAD / panels * PANEL_COLUMNS);
        UNROLLED_FOR (int v = 0; v < vectors; v++) {
            const int column = v * LANES;
            line[v] = load(right + column / PANEL_COLUMNS * panel + column % PANEL_COLUMNS);
        }
        UNROLLED_FOR (int i = 0; i < rows; i++)
            UNROLLED_FOR (int v = 0; v < vectors; v++) sums[i][v] += left[i * left_row] * line[v];
    }
    UNROLLED_FOR (int i = 0; i < rows; i++)
        UNROLLED_FOR (int v = 0; v < vectors; v++)
            store_first(out + i * out_row + v * LANES, sums[i][v], columns - v * LANES);
}

#define FEW_CASE(N, COLUMNS, PANELS, FAR_AWAY)                                               \
    case N:                                                                                  \
        multiply_wide(left, left_row, right, k, out, out_row, COLUMNS, N, PANELS, FAR_AWAY); \
        break;
#if VECTOR_BYTES == 64
#define MORE_CASES(COLUMNS, PANELS, FAR_AWAY) \
    FEW_CASE(3, COLUMNS, PANELS, FAR_AWAY)    \
    FEW_CASE(4, COLUMNS, PANELS, FAR_AWAY)    \
    FEW_CASE(5, COLUMNS, PANELS, FAR_AWAY)
#else
#define MORE_CASES(COLUMNS, PANELS, FAR_AWAY)
#endif
#define FEW_CASES(COLUMNS, PANELS, FAR_AWAY)                                                  \
    switch (rows) {                                                                           \
        FEW_CASE(2, COLUMNS, PANELS, FAR_AWAY)                                                \
        MORE_CASES(COLUMNS, PANELS, FAR_AWAY)                                                 \
        default:                                                                              \
            multiply_wide(                                                                    \
                left, left_row, right, k, out, out_row, COLUMNS, FEW_ROWS, PANELS, FAR_AWAY); \
    }
#define FEW_FUNCTION(NAME, PANELS, FAR_AWAY)                                            \
    static void NAME(                                                                   \
        const float *left, int64_t left_row, const float *right, int64_t k, float *out, \
        int64_t out_row, int64_t rows) {                                                \
        FEW_CASES(PANELS * PANEL_COLUMNS, PANELS, FAR_AWAY)                             \
    }
FEW_FUNCTION(multiply_far_rows, FEW_PANELS, true)
FEW_FUNCTION(multiply_near_rows, FEW_PANELS, false)
FEW_FUNCTION(multiply_panel_rows, 1, true)

static void multiply_part_rows(
    const float *left, int64_t left_row, const float *right, int64_t k, float *out, int64_t out_row,
    int64_t rows, int64_t columns) {
    FEW_CASES(columns, 1, true)
}

void ISA(multiply_few)(
    const float *left, int64_t left_row, const float *right, int64_t k, Place out, int64_t rows,
    int64_t columns) {
    const bool far = k * columns > FAR;
    int64_t j = 0;
    for (; j + FEW_COLUMNS <= columns; j += FEW_COLUMNS) {
        if (far)
            multiply_far_rows(left, left_row, right + j * k, k, out.data + j, out.row, rows);
        else
            multiply_near_rows(left, left_row, right + j * k, k, out.data + j, out.row, rows);
    }
    for (; j + PANEL_COLUMNS <= columns; j += PANEL_COLUMNS)
        multiply_panel_rows(left, left_row, right + j * k, k, out.data + j, out.row, rows);
    if (j < columns)
        multiply_part_rows(
            left, left_row, right + j * k, k, out.data + j, out.row, rows, columns - j);
}
