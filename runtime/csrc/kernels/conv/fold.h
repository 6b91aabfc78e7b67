// Transposed convolutions as products of all pixels with all taps, whose windows are then added up.
#ifndef POPC_FOLD_H
#define POPC_FOLD_H

#include <stdlib.h>

#include "../matmul/gemm.h"
#include "../movement/weave.h"
#include "../support/fits.h"

enum { PLANE_AXES = 2 };

typedef struct {
    const float *products;
    float *out;  // [batch][channels][size]
    int64_t batch, channels, window;
    int64_t pixels[PLANE_AXES], taps[PLANE_AXES], size[PLANE_AXES];
    int64_t stride[PLANE_AXES], dilation[PLANE_AXES], before[PLANE_AXES];
    const float *bias;
    Epilogue epilogue;
} Fold;

// Reads products, out [N, M, rows, columns], bias; stride, dilation, pads before of both axes; the
// activation.  `axes` says which axes of the products, of six, are N, M, and the first ones of the
// pixels and of the taps.  Whether they fit together.
bool ISA(read_fold)(Fold *fold, Params *params, const int axes[4]);

// Planes of the result that add up numbers enough for a thread.
static inline int64_t planes_of_chunk(const Fold *fold) {
    enum { CHUNK_FLOATS = 1 << 13 };
    return ceil_div(CHUNK_FLOATS, fold->pixels[0] * fold->pixels[1] * fold->window);
}

static inline int64_t chunks_of(const Fold *fold) {
    return ceil_div(fold->batch * fold->channels, planes_of_chunk(fold));
}

// to[i] += from[i]
INLINE void add_run(float *to, const float *from, const int64_t count) {
    typedef float Four __attribute__((vector_size(16), aligned(4), may_alias));
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) store(to + i, load(to + i) + load(from + i));
    for (; LANES > 4 && i + 4 <= count; i += 4) *(Four *)(to + i) += *(const Four *)(from + i);
    for (; i < count; i++) to[i] += from[i];
}

#endif
