// Operands of attention, wherever they lie.
#ifndef POPC_HEADS_H
#define POPC_HEADS_H

#include "../../tensor.h"

// [batch][head][row][column]; strides in elements.
typedef struct {
    char *data;  // NULL: there is none
    DType dtype;
    int64_t strides[4];
} Heads;

static inline Heads next_heads(Params *params, Tensor *tensor) {
    *tensor = maybe_tensor(params);
    Heads heads = {tensor->data, tensor->dtype, {0}};
    params->bad |= tensor->data && tensor->rank != 4;
    for (int axis = 0; tensor->rank == 4 && axis < 4; axis++)
        heads.strides[axis] = tensor->strides[axis] / item_size(tensor->dtype);
    return heads;
}

// Whether the operand is there, and of these sizes.
static inline bool are_heads(
    const Tensor *tensor, int64_t batch, int64_t heads, int64_t rows, int64_t columns) {
    return tensor->data && tensor->rank == 4 && tensor->dims[0] == batch &&
           tensor->dims[1] == heads && tensor->dims[2] == rows && tensor->dims[3] == columns;
}

typedef struct {
    int64_t batch, heads, group, rows, keys, depth, width;  // `group`: query heads of a key head
} HeadSizes;

// By queries, keys and values behind each other; `params` are bad if those cannot be told.
static inline HeadSizes head_sizes(const Tensor *q, Params *params) {
    const Tensor *k = q + 1, *v = q + 2;
    params->bad |= k->dims[1] <= 0;
    if (params->bad) return (HeadSizes){0};
    return (HeadSizes){q->dims[0], k->dims[1], q->dims[1] / k->dims[1], q->dims[2], k->dims[2],
                       q->dims[3], v->dims[3]};
}

// Whether queries, keys and values, or their gradients, behind each other are there, and of these sizes.
static inline bool have_sizes(const Tensor *q, const HeadSizes *sizes) {
    return are_heads(q, sizes->batch, sizes->heads * sizes->group, sizes->rows, sizes->depth) &&
           are_heads(q + 1, sizes->batch, sizes->heads, sizes->keys, sizes->depth) &&
           are_heads(q + 2, sizes->batch, sizes->heads, sizes->keys, sizes->width);
}

#endif
