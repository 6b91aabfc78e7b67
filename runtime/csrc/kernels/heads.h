// Operands of attention, wherever they lie.
#ifndef POPC_HEADS_H
#define POPC_HEADS_H

#include "../tensor.h"

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

#endif
