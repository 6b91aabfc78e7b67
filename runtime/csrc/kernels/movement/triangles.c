// Triangles of matrices: what lies on the other side of a diagonal becomes zero.
#include <stdlib.h>
#include <string.h>

#include "../../kernel.h"
#include "../support/simd.h"
#include "../support/sizes.h"

typedef struct {
    const char *from;
    char *to;  // which may be the same
    const char *diagonal;  // an int64; NULL: 0
    int64_t rows, columns, size, lines, unit;
    bool upper;
} Triangle;

enum { WORK = 1 << 14 };  // elements of a chunk: see sizes.h

static void *prepare(Params *params, Needs *needs) {
    const Tensor from = next_tensor(params), to = next_tensor(params);
    const Tensor diagonal = maybe_tensor(params);
    Triangle *triangle = calloc(1, sizeof(Triangle));
    if (!triangle) return NULL;
    triangle->upper = next_int(params) != 0;
    const bool placed = !diagonal.data || (diagonal.dtype == I64 && element_count(&diagonal) == 1);
    const bool alike = has_shape_of(&from, &to) && item_size(from.dtype) == item_size(to.dtype);
    if (params->bad || to.rank < 2 || !alike || !is_contiguous(&from) || !is_contiguous(&to) ||
        !placed || element_count(&to) == 0) {
        free(triangle);
        return NULL;
    }
    triangle->from = from.data;
    triangle->to = to.data;
    reads_anywhere(needs, &triangle->from);
    writes_anywhere(needs, &triangle->to);
    triangle->diagonal = diagonal.data;
    triangle->rows = to.dims[to.rank - 2];
    triangle->columns = to.dims[to.rank - 1];
    triangle->size = item_size(to.dtype);
    triangle->lines = element_count(&to) / triangle->columns;
    triangle->unit = ceil_div(WORK, triangle->columns);
    return triangle;
}

// Without what lies below diagonal number `diagonal`, or above it.
static void make_lines(void *context, int64_t chunk, int thread) {
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
        const int64_t begin = triangle->upper ? place : 0, kept = triangle->upper ? columns : place;
        char *row = triangle->to + line * columns * size;
        const char *source = triangle->from + line * columns * size;
        memset(row, 0, (size_t)(begin * size));
        if (source != row)
            memcpy(row + begin * size, source + begin * size, (size_t)((kept - begin) * size));
        memset(row + kept * size, 0, (size_t)((columns - kept) * size));
    }
}

static Failure run_triangle(const void *state, const Run *run) {
    const Triangle *triangle = state;
    const int64_t chunks = ceil_div(triangle->lines, triangle->unit);
    share_chunks(run, chunks, make_lines, (void *)triangle);
    return OK;
}

const Kernel ISA(TRIANGLES)[] = {
    {"Triangle", prepare, run_triangle, NULL},
    {NULL, NULL, NULL, NULL},
};
