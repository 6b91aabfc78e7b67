// Triangles of matrices that are set to zero, in place.
#include <stdlib.h>
#include <string.h>

#include "../../kernel.h"
#include "../support/simd.h"
#include "../support/sizes.h"

typedef struct {
    char *data;
    const char *diagonal;  // an int64; NULL: 0
    int64_t rows, columns, size, lines, unit;
    bool upper;
} Triangle;

enum { CLEARED_ELEMENTS = 1 << 16 };  // of a chunk: rows are only looked at, and partly cleared

static void *prepare(Params *params, Needs *needs) {
    (void)needs;
    const Tensor data = next_tensor(params), diagonal = maybe_tensor(params);
    Triangle *triangle = calloc(1, sizeof(Triangle));
    if (!triangle) return NULL;
    triangle->upper = next_int(params) != 0;
    const bool placed = !diagonal.data || (diagonal.dtype == I64 && element_count(&diagonal) == 1);
    if (params->bad || data.rank < 2 || !is_contiguous(&data) || !placed ||
        element_count(&data) == 0) {
        free(triangle);
        return NULL;
    }
    triangle->data = data.data;
    triangle->diagonal = diagonal.data;
    triangle->rows = data.dims[data.rank - 2];
    triangle->columns = data.dims[data.rank - 1];
    triangle->size = item_size(data.dtype);
    triangle->lines = element_count(&data) / triangle->columns;
    triangle->unit = ceil_div(CLEARED_ELEMENTS, triangle->columns);
    return triangle;
}

// What lies below diagonal number `diagonal`, or above it.
static void clear_lines(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Triangle *triangle = context;
    const int64_t columns = triangle->columns, size = triangle->size;
    int64_t diagonal = 0, end = (chunk + 1) * triangle->unit;
    if (triangle->diagonal) memcpy(&diagonal, triangle->diagonal, sizeof(diagonal));
    // No matrix is so large that more would make a difference, nor do sums overflow then.
    const int64_t most = triangle->rows + columns;
    diagonal = diagonal > most ? most : diagonal < -most ? -most : diagonal;
    if (end > triangle->lines) end = triangle->lines;
    for (int64_t line = chunk * triangle->unit; line < end; line++) {
        int64_t place = line % triangle->rows + diagonal + (triangle->upper ? 0 : 1);
        place = place < 0 ? 0 : place > columns ? columns : place;
        char *row = triangle->data + line * columns * size;
        if (triangle->upper)
            memset(row, 0, (size_t)(place * size));
        else
            memset(row + place * size, 0, (size_t)((columns - place) * size));
    }
}

static Failure run_triangle(const void *state, const Run *run) {
    const Triangle *triangle = state;
    const int64_t chunks = ceil_div(triangle->lines, triangle->unit);
    share_chunks(run, chunks, clear_lines, (void *)triangle);
    return OK;
}

const Kernel ISA(TRIANGLES)[] = {
    {"ClearTriangle", prepare, run_triangle, NULL},
    {NULL, NULL, NULL, NULL},
};
