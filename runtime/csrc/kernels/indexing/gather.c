// Rows of a tensor by their numbers.
#include <stdlib.h>
#include <string.h>

#include "../../kernel.h"
#include "../support/simd.h"
#include "../support/sizes.h"

enum { CHUNK_BYTES = 1 << 16 };  // which take a microsecond or two in the second cache

typedef struct {
    const char *data;
    char *to;
    Tensor indices;
    int64_t outer, rows, bytes, count;  // [outer][rows][bytes] and `count` indices
    int64_t unit;  // rows of a chunk
} Gather;

static void *prepare_gather(Params *params, Needs *needs) {
    const Tensor data = next_tensor(params), indices = next_tensor(params);
    const Tensor to = next_tensor(params);
    const int axis = (int)next_int(params);
    Gather *gather = calloc(1, sizeof(Gather));
    const int64_t rows = axis >= 0 && axis < data.rank ? data.dims[axis] : 0;
    // Elements of the result are those of the data, with indices in the place of rows.
    if (!gather || params->bad || axis < 0 || axis >= data.rank || !are_indices(&indices) ||
        !are_apart(&indices, &to) || !is_contiguous(&data) || !is_contiguous(&to) ||
        item_size(data.dtype) != item_size(to.dtype) ||
        element_count(&to) != (rows ? element_count(&data) / rows * element_count(&indices) : 0)) {
        free(gather);
        return NULL;
    }
    gather->data = data.data;
    gather->indices = indices;
    gather->to = to.data;
    gather->outer = 1;
    gather->rows = data.dims[axis];
    gather->bytes = item_size(data.dtype);
    for (int i = 0; i < axis; i++) gather->outer *= data.dims[i];
    for (int i = axis + 1; i < data.rank; i++) gather->bytes *= data.dims[i];
    gather->count = element_count(&indices);
    gather->unit = CHUNK_BYTES / (gather->bytes + 1) + 1;
    reads_anywhere(needs, &gather->data);
    writes_anywhere(needs, &gather->to);
    return gather;
}

// Rows begin .. end - 1 of the result.  `bytes` may be a constant.
INLINE void gather_rows(const Gather *given, int64_t begin, int64_t end, const int64_t bytes) {
    const Gather gather = *given;  // which the bytes that are written do not change
    int64_t block = begin / gather.count, number = begin % gather.count;
    for (int64_t place = begin; place < end; place++) {
        const int64_t row = block * gather.rows + place_at(&gather.indices, number, gather.rows);
        memcpy(gather.to + place * bytes, gather.data + row * bytes, (size_t)bytes);
        if (++number == gather.count) number = 0, block++;
    }
}

static void some_rows(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Gather *gather = context;
    const int64_t begin = chunk * gather->unit, all = gather->outer * gather->count;
    const int64_t end = begin + gather->unit < all ? begin + gather->unit : all;
    switch (gather->bytes) {
        case 1: gather_rows(gather, begin, end, 1); break;
        case 2: gather_rows(gather, begin, end, 2); break;
        case 4: gather_rows(gather, begin, end, 4); break;
        case 8: gather_rows(gather, begin, end, 8); break;
        default: gather_rows(gather, begin, end, gather->bytes);
    }
}

static Failure run_gather(const void *argument, const Run *run) {
    const Gather *gather = argument;
    for (int64_t i = 0; i < gather->count; i++)
        if (place_at(&gather->indices, i, gather->rows) < 0) return INDEX_OUTSIDE;
    const int64_t all = gather->outer * gather->count;
    share_chunks(run, ceil_div(all, gather->unit), some_rows, (void *)gather);
    return OK;
}

const Kernel ISA(GATHERS)[] = {
    {"Gather", prepare_gather, run_gather, NULL},
    {NULL, NULL, NULL, NULL},
};
