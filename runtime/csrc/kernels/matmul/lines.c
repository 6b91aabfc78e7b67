#include "gemm.h"

// `rows` and `vectors` are constants wherever this is called, so that the sums stay in registers.
INLINE void multiply_rows(
    const float *left, const float *const *right, const int64_t *offsets, int64_t depth, float *out,
    int64_t out_row, int64_t out_second, const int rows, const int vectors, bool add,
    Ending ending) {
    const float *first = right[0], *second = right[1];
    Floats sums[TILE_ROWS][2];
    UNROLLED_FOR (int i = 0; i < rows; i++)
        UNROLLED_FOR (int v = 0; v < vectors; v++)
            sums[i][v] = add ? load(out + i * out_row + v * out_second) : (Floats){0};
    for (int64_t p = 0; p < depth; p++, left += TILE_ROWS) {
        const int64_t offset = offsets[p];
        const Floats low = load(first + offset), high = vectors > 1 ? load(second + offset) : low;
        __builtin_prefetch(left + 32 * TILE_ROWS);
        UNROLLED_FOR (int i = 0; i < rows; i++) {
            sums[i][0] += left[i] * low;
            if (vectors > 1) sums[i][1] += left[i] * high;
        }
    }
    if (ending.bias || ending.relu) end_rows(ending, rows, vectors, sums);
    UNROLLED_FOR (int i = 0; i < rows; i++)
        UNROLLED_FOR (int v = 0; v < vectors; v++)
            store(out + i * out_row + v * out_second, sums[i][v]);
}

#define CASE(N, VECTORS)                                                                     \
    case N:                                                                                  \
        multiply_rows(                                                                       \
            left, right, offsets, depth, out, out_row, out_second, N, VECTORS, add, ending); \
        break;
#define MULTIPLY(NAME, VECTORS)                                                                \
    static void NAME(                                                                          \
        const float *left, const float *const *right, const int64_t *offsets, int64_t depth,   \
        float *out, int64_t out_row, int64_t out_second, int rows, bool add, Ending ending) {  \
        switch (rows) {                                                                        \
            ROW_CASES(CASE, VECTORS)                                                           \
            default:                                                                           \
                multiply_rows(                                                                 \
                    left, right, offsets, depth, out, out_row, out_second, TILE_ROWS, VECTORS, \
                    add, ending);                                                              \
        }                                                                                      \
    }

MULTIPLY(multiply_two, 2)
MULTIPLY(multiply_one, 1)

void ISA(multiply_lines)(
    const float *left, const float *const *right, const int64_t *offsets, int64_t depth, float *out,
    int64_t out_row, int64_t out_second, int rows, bool add, Ending ending) {
    if (right[1])
        multiply_two(left, right, offsets, depth, out, out_row, out_second, rows, add, ending);
    else
        multiply_one(left, right, offsets, depth, out, out_row, out_second, rows, add, ending);
}
