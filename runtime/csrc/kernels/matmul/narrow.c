// Products of few columns, whose left rows are read where they lie: packing them would take as long as
// the few products that each number has part in.
#include "gemm.h"

void ISA(multiply_narrow)(
    const float *left, int64_t left_row, const float *right, int64_t k, Place out, int64_t rows,
    int64_t columns, const Epilogue *epilogue) {
    for (int64_t i = 0; i < rows; i += FEW_ROWS, left += FEW_ROWS * left_row) {
        const Place part = {out.data + i * out.row, out.row, 0, 0};
        const int64_t height = lesser(rows - i, FEW_ROWS);
        if (height == 1)
            ISA(multiply_row)(left, right, k, part.data, columns);
        else
            ISA(multiply_few)(left, left_row, right, k, part, height, columns);
    }
    ISA(finish)(epilogue, out, rows, columns);
}

enum { AT_ONCE_ROWS = 4 };

// The sums of `rows` rows by one column; `rows` is a constant wherever this is called.
INLINE void sum_rows(
    const float *left, int64_t left_row, const float *right, int64_t k, float *out, int64_t out_row,
    const int rows) {
    Floats sums[AT_ONCE_ROWS];
    float rests[AT_ONCE_ROWS];
    UNROLLED_FOR (int i = 0; i < rows; i++) sums[i] = (Floats){0}, rests[i] = 0;
    int64_t p = 0;
    for (; p + LANES <= k; p += LANES) {
        const Floats line = load(right + p);
        UNROLLED_FOR (int i = 0; i < rows; i++) sums[i] += load(left + i * left_row + p) * line;
    }
    for (; p < k; p++)
        UNROLLED_FOR (int i = 0; i < rows; i++) rests[i] += left[i * left_row + p] * right[p];
    UNROLLED_FOR (int i = 0; i < rows; i++)
        out[i * out_row] = k < LANES ? rests[i] : sum_of(sums[i]) + rests[i];
}

void ISA(multiply_column)(
    const float *left, int64_t left_row, const float *right, int64_t k, Place out, int64_t rows) {
    int64_t i = 0;
    for (; i + AT_ONCE_ROWS <= rows; i += AT_ONCE_ROWS)
        sum_rows(
            left + i * left_row, left_row, right, k, out.data + i * out.row, out.row, AT_ONCE_ROWS);
    for (; i < rows; i++)
        sum_rows(left + i * left_row, left_row, right, k, out.data + i * out.row, out.row, 1);
}

// Lines of the right matrix, weighted, are added to the result; `rows` is a constant.
INLINE void add_lines(
    const float *left, const float *right, int64_t row, float *out, int64_t columns,
    const int rows) {
    int64_t j = 0;
    for (; j + LANES <= columns; j += LANES) {
        Floats total = load(out + j);
        UNROLLED_FOR (int i = 0; i < rows; i++) total += left[i] * load(right + i * row + j);
        store(out + j, total);
    }
    for (; j < columns; j++)
        for (int i = 0; i < rows; i++) out[j] += left[i] * right[i * row + j];
}

void ISA(multiply_unpacked_row)(
    const float *left, const float *right, int64_t row, int64_t k, float *out, int64_t columns) {
    enum { LINES = 8 };
    for (int64_t j = 0; j < columns; j++) out[j] = 0;
    int64_t p = 0;
    for (; p + LINES <= k; p += LINES)
        add_lines(left + p, right + p * row, row, out, columns, LINES);
    for (; p < k; p++) add_lines(left + p, right + p * row, row, out, columns, 1);
}
