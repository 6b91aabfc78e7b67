// Tensors as kernels see them, and the parameters that a kernel is prepared with.
#ifndef POPC_TENSOR_H
#define POPC_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MAX_RANK 8  // instructions on tensors of more are left to numpy

// The order is that of _DTYPES in popc_runtime/native/record.py.
typedef enum { F32, F64, F16, BF16, I8, U8, I16, U16, I32, U32, I64, U64, BOOL } DType;

typedef struct {
    char *data;  // NULL: the operand is absent
    DType dtype;
    bool constant;  // its contents are final when the kernel is prepared
    bool packed;  // and lie in panels (format/panels.py), whatever its strides say
    int rank;
    int64_t dims[MAX_RANK];
    int64_t strides[MAX_RANK];  // in bytes
} Tensor;

// A cursor over the numbers of a record.  Reading past the end sets `bad` and gives zeros.
typedef struct {
    const int64_t *at;
    const int64_t *end;
    bool bad;
} Params;

static inline int64_t next_int(Params *params) {
    if (params->at >= params->end) {
        params->bad = true;
        return 0;
    }
    return *params->at++;
}

static inline double next_float(Params *params) {
    union {
        int64_t bits;
        double value;
    } number = {next_int(params)};
    return number.value;
}

// More than memory can be addressed with: sums and products of a few sizes below it do not overflow.
#define MOST_BYTES (INT64_C(1) << 48)

// Whether no size that is computed of a tensor overflows: its bytes, where an axis without elements
// does not hide the others, and how far it reaches.
static inline bool is_addressable(const Tensor *tensor, int64_t item) {
    int64_t bytes = item, reach = 0;
    for (int axis = 0; axis < tensor->rank; axis++) {
        const int64_t dim = tensor->dims[axis], stride = tensor->strides[axis];
        int64_t span;
        if (dim < 0 || dim > MOST_BYTES || stride < -MOST_BYTES || stride > MOST_BYTES)
            return false;
        if (__builtin_mul_overflow(bytes, dim ? dim : 1, &bytes) || bytes > MOST_BYTES)
            return false;
        if (__builtin_mul_overflow(dim ? dim - 1 : 0, stride < 0 ? -stride : stride, &span) ||
            __builtin_add_overflow(reach, span, &reach) || reach > MOST_BYTES) {
            return false;
        }
    }
    return true;
}

static inline int64_t item_size(DType dtype) {
    static const int8_t sizes[] = {4, 8, 2, 2, 1, 1, 2, 2, 4, 4, 8, 8, 1};
    return sizes[dtype];
}

// The words may be any: what is no tensor sets `bad`, and is absent.
static inline Tensor maybe_tensor(Params *params) {
    Tensor tensor = {0};
    tensor.data = (char *)(intptr_t)next_int(params);
    const int64_t dtype = next_int(params);
    const int64_t state = next_int(params);
    tensor.constant = state != 0;
    tensor.packed = state == 2;
    const int64_t rank = next_int(params);
    bool fits = dtype >= F32 && dtype <= BOOL && rank >= 0 && rank <= MAX_RANK;
    tensor.dtype = fits ? (DType)dtype : F32;
    tensor.rank = fits ? (int)rank : 0;
    for (int axis = 0; axis < tensor.rank; axis++) tensor.dims[axis] = next_int(params);
    for (int axis = 0; axis < tensor.rank; axis++) tensor.strides[axis] = next_int(params);
    fits = fits && is_addressable(&tensor, item_size(tensor.dtype));
    if (fits && !params->bad) return tensor;
    params->bad = true;
    return (Tensor){0};
}

// The same of an operand that must be there.
static inline Tensor next_tensor(Params *params) {
    const Tensor tensor = maybe_tensor(params);
    if (!tensor.data) params->bad = true;
    return tensor;
}

static inline int64_t element_count(const Tensor *tensor) {
    int64_t count = 1;
    for (int axis = 0; axis < tensor->rank; axis++) count *= tensor->dims[axis];
    return count;
}

// Whether no byte is one of both.  What says where to read or to write is looked at before a result is
// written, and again afterwards: it must not lie where the result does.
static inline bool are_apart(const Tensor *a, const Tensor *b) {
    const Tensor *both[] = {a, b};
    intptr_t low[2], high[2];
    for (int i = 0; i < 2; i++) {
        const Tensor *one = both[i];
        if (!one->data || element_count(one) == 0) return true;
        low[i] = high[i] = (intptr_t)one->data;
        for (int axis = 0; axis < one->rank; axis++) {
            const int64_t span = (one->dims[axis] - 1) * one->strides[axis];
            *(span < 0 ? &low[i] : &high[i]) += span;
        }
        high[i] += item_size(one->dtype);
    }
    return high[0] <= low[1] || high[1] <= low[0];
}

static inline bool is_contiguous(const Tensor *tensor) {
    int64_t expected = item_size(tensor->dtype);
    for (int axis = tensor->rank - 1; axis >= 0; axis--) {
        if (tensor->dims[axis] != 1 && tensor->strides[axis] != expected) return false;
        expected *= tensor->dims[axis];
    }
    return true;
}

// The product of three sizes; -1 if one of them is negative, or it is too large.
static inline int64_t size_of(int64_t a, int64_t b, int64_t c) {
    int64_t size;
    if (a < 0 || b < 0 || c < 0) return -1;
    if (__builtin_mul_overflow(a, b, &size) || __builtin_mul_overflow(size, c, &size)) return -1;
    return size;
}

// Whether an operand is there, and is `count` elements of a type without gaps.
static inline bool holds(const Tensor *tensor, DType dtype, int64_t count) {
    return tensor->data && tensor->dtype == dtype && is_contiguous(tensor) &&
           element_count(tensor) == count;
}

// The same, or absent.
static inline bool may_hold(const Tensor *tensor, DType dtype, int64_t count) {
    return !tensor->data || holds(tensor, dtype, count);
}

// Indices: any number of them, without gaps.
static inline bool are_indices(const Tensor *tensor) {
    return tensor->data && (tensor->dtype == I32 || tensor->dtype == I64) && is_contiguous(tensor);
}

static inline int64_t index_at(const Tensor *indices, int64_t i) {
    return indices->dtype == I64 ? ((const int64_t *)(const void *)indices->data)[i]
                                 : ((const int32_t *)(const void *)indices->data)[i];
}

// The place among `size` that an index names, which counts from the end if it is below zero; -1 if it
// lies outside.
static inline int64_t place_at(const Tensor *indices, int64_t i, int64_t size) {
    const int64_t index = index_at(indices, i), place = index < 0 ? index + size : index;
    return place < 0 || place >= size ? -1 : place;
}

static inline bool has_shape_of(const Tensor *a, const Tensor *b) {
    if (a->rank != b->rank) return false;
    for (int axis = 0; axis < a->rank; axis++)
        if (a->dims[axis] != b->dims[axis]) return false;
    return true;
}

#endif
