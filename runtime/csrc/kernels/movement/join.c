// Tensors that lie side by side in the rows of a whole: joined, or parted again, all of them in one pass.
#include <stdlib.h>
#include <string.h>

#include "../../kernel.h"
#include "../support/runs.h"
#include "../support/simd.h"
#include "../support/sizes.h"

// Bytes of rows that stay in the first cache while one part after another goes by, and of a chunk, which
// take a microsecond or two.
enum { BLOCK_BYTES = 1 << 14, CHUNK_BYTES = 1 << 16 };

typedef struct {
    char *data;  // NULL: not wanted
    int64_t apart, bytes;  // from row to row, and of a row
} Part;

typedef struct {
    char *whole;
    int64_t rows, apart, bytes;
    int64_t block, unit;  // rows of a block, and of a chunk
    bool joins;  // to the whole, or from it
    int64_t element;  // bytes of each of a few parts that take turns; 0 if they do not
    int64_t count;
    Part parts[];
} Join;

// Bytes of a row of a matrix whose elements lie side by side in it; -1 if it is none.
static int64_t bytes_of_row(const Tensor *matrix, int64_t rows) {
    const int64_t size = item_size(matrix->dtype);
    if (matrix->rank != 2 || matrix->dims[0] != rows || matrix->dims[1] < 1) return -1;
    if (matrix->dims[1] > 1 && matrix->strides[1] != size) return -1;
    return matrix->dims[1] * size;
}

// Each part is its number of elements in a row, and a matrix that may be absent.
static bool read_parts(Join *join, Params *params, int64_t size) {
    int64_t bytes = 0;
    for (int64_t i = 0; i < join->count; i++) {
        const int64_t width = next_int(params);
        const Tensor matrix = maybe_tensor(params);
        if (params->bad || width < 1 || width > join->bytes / size) return false;
        join->parts[i] = (Part){matrix.data, matrix.strides[0], width * size};
        bytes += width * size;
        const bool fits = bytes <= join->bytes && item_size(matrix.dtype) == size &&
                          bytes_of_row(&matrix, join->rows) == width * size;
        if (matrix.data ? !fits : join->joins || bytes > join->bytes) return false;
    }
    return bytes == join->bytes;
}

// The size of elements that two to four dense parts have one of in each row of a dense whole, or 0.
static int64_t turn_of(const Join *join) {
    const int64_t bytes = join->parts[0].bytes;
    if (join->count < 2 || join->count > 4 || join->apart != join->bytes || bytes > 8) return 0;
    for (int64_t i = 0; i < join->count; i++) {
        const Part *part = &join->parts[i];
        if (!part->data || part->bytes != bytes || part->apart != bytes) return 0;
    }
    return bytes & (bytes - 1) ? 0 : bytes;
}

static void *prepare(Params *params, Needs *needs) {
    const bool joins = next_int(params) != 0;
    const Tensor whole = next_tensor(params);
    const int64_t count = next_int(params), size = item_size(whole.dtype);
    if (params->bad || count < 1 || count > params->end - params->at || whole.rank != 2)
        return NULL;
    Join *join = calloc(1, sizeof(Join) + (size_t)count * sizeof(Part));
    if (!join) return NULL;
    join->joins = joins;
    join->count = count;
    join->whole = whole.data;
    join->rows = whole.dims[0];
    join->apart = whole.strides[0];
    join->bytes = bytes_of_row(&whole, join->rows);
    if (join->rows < 1 || join->bytes < 0 || !read_parts(join, params, size)) {
        free(join);
        return NULL;
    }
    join->block = greater(1, BLOCK_BYTES / join->bytes);
    join->unit = padded(ceil_div(CHUNK_BYTES, join->bytes), join->block);
    join->element = turn_of(join);
    reads_anywhere(needs, &join->whole);
    for (int64_t i = 0; i < count; i++) reads_anywhere(needs, &join->parts[i].data);
    return join;
}

#define TYPE uint8_t
#include "turns.h"
#define TYPE Run2
#include "turns.h"
#define TYPE Run4
#include "turns.h"
#define TYPE Run8
#include "turns.h"

static void take_turns(const Join *join, int64_t begin, int64_t rows) {
    char *whole = join->whole + begin * join->bytes, *parts[4];
    for (int64_t i = 0; i < join->count; i++)
        parts[i] = join->parts[i].data + begin * join->element;
    switch (join->element) {
        case 1: turns_uint8_t(whole, parts, join->count, join->joins, rows); break;
        case 2: turns_Run2(whole, parts, join->count, join->joins, rows); break;
        case 4: turns_Run4(whole, parts, join->count, join->joins, rows); break;
        default: turns_Run8(whole, parts, join->count, join->joins, rows); break;
    }
}

static void copy_block(const Join *join, int64_t begin, int64_t rows) {
    char *at = join->whole + begin * join->apart;
    for (int64_t i = 0; i < join->count; i++) {
        const Part *part = &join->parts[i];
        char *lies = part->data + begin * part->apart;
        if (part->data && join->joins)
            copy_runs(lies, part->apart, at, join->apart, rows, part->bytes);
        else if (part->data)
            copy_runs(at, join->apart, lies, part->apart, rows, part->bytes);
        at += part->bytes;
    }
}

static void some_rows(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Join *join = context;
    const int64_t begin = chunk * join->unit, end = lesser(begin + join->unit, join->rows);
    if (join->element) {
        take_turns(join, begin, end - begin);
        return;
    }
    for (int64_t row = begin; row < end; row += join->block)
        copy_block(join, row, lesser(join->block, end - row));
}

static Failure run_join(const void *state, const Run *run) {
    const Join *join = state;
    share_chunks(run, ceil_div(join->rows, join->unit), some_rows, (void *)join);
    return OK;
}

const Kernel ISA(JOINS)[] = {
    {"Join", prepare, run_join, NULL},
    {NULL, NULL, NULL, NULL},
};
