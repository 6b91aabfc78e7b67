// What products of matrices take.
#ifndef POPC_OPERANDS_H
#define POPC_OPERANDS_H

#include "../../tensor.h"

static inline int64_t stride_of(const Tensor *tensor, int axis) {
    return tensor->dims[axis] == 1 ? 0 : tensor->strides[axis] / item_size(tensor->dtype);
}

// Halves are read only to be packed.
static inline bool is_right_type(const Tensor *right) {
    const bool half = right->dtype == F16 || right->dtype == BF16;
    return right->dtype == F32 || (half && right->constant && !right->packed);
}

// Whether numbers of a row lie side by side.
static inline bool has_lines(const Tensor *matrix) {
    const int column = matrix->rank - 1;
    return matrix->dims[column] == 1 || matrix->strides[column] == (int64_t)sizeof(float);
}

// Whether there is more than one matrix.
static inline bool is_batched(const int64_t *strides, int rank) {
    for (int axis = 0; axis < rank; axis++)
        if (strides[axis]) return true;
    return false;
}

#endif
