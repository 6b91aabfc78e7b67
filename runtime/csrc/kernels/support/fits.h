// Whether shapes of operands fit together: records may come from archives that lie.
#ifndef POPC_FITS_H
#define POPC_FITS_H

#include "../../tensor.h"

// Absent, or of the shape of `y` and float32.
static inline bool residual_fits(const Tensor *residual, const Tensor *y) {
    return !residual->data || (residual->dtype == F32 && has_shape_of(residual, y));
}

// Those of a convolution, which have 3 axes or more.  Sizes along the others and pads are free:
// whatever lies outside of the input is not read.
static inline bool channels_fit(
    const Tensor *x, const Tensor *w, const Tensor *y, const Tensor *residual, int64_t groups) {
    return w->rank == x->rank && y->rank == x->rank && groups >= 1 && x->dims[0] == y->dims[0] &&
           x->dims[1] % groups == 0 && w->dims[1] == x->dims[1] / groups &&
           y->dims[1] == w->dims[0] && w->dims[0] % groups == 0 && element_count(w) > 0 &&
           element_count(y) > 0 && residual_fits(residual, y);
}

// What moves the windows of a convolution along an axis.  `plane`, which is 1 before the first axis,
// becomes the number of elements that they can read.
static inline bool window_fits(
    int64_t stride, int64_t dilation, int64_t before, int64_t taps, int64_t results,
    int64_t *plane) {
    const bool small = stride >= 1 && stride <= INT32_MAX && dilation >= 1 &&
                       dilation <= INT32_MAX && before >= -INT32_MAX && before <= INT32_MAX;
    int64_t moved, window;
    return small && !__builtin_mul_overflow(results, stride, &moved) &&
           !__builtin_mul_overflow(taps, dilation, &window) && moved <= MOST_BYTES &&
           window <= MOST_BYTES && !__builtin_mul_overflow(*plane, moved + window, plane) &&
           *plane <= MOST_BYTES;
}

// Those of a product; batch dimensions of 1 of the factors are repeated.
static inline bool factors_fit(const Tensor *left, const Tensor *right, const Tensor *out) {
    const int rank = out->rank, row = rank - 2, column = rank - 1;
    if (rank < 2 || left->rank != rank || right->rank != rank || element_count(out) == 0)
        return false;
    for (int axis = 0; axis < row; axis++) {
        const int64_t count = out->dims[axis];
        if (left->dims[axis] != 1 && left->dims[axis] != count) return false;
        if (right->dims[axis] != 1 && right->dims[axis] != count) return false;
    }
    return left->dims[row] == out->dims[row] && right->dims[column] == out->dims[column] &&
           left->dims[column] == right->dims[row];
}

#endif
