// Right matrices that stay float16 or bfloat16: half the memory to read, which is what bounds products
// of few rows.  Numbers become floats in registers; sums are those of the same matrix in float32.
#ifndef POPC_HALF_PANELS_H
#define POPC_HALF_PANELS_H

#include "gemm.h"

enum {
    HALF_ROWS = 6
};  // of the left matrix at most: more take longer to multiply than weights to read

// Packs a matrix whose element (p, j) is from[p * row + j * column], in elements, into panels of
// PANEL_COLUMNS columns, as `pack_panels` does with floats.
void ISA(pack_half_panels)(
    uint16_t *to, const uint16_t *from, int64_t row, int64_t column, int64_t k, int64_t columns);

// As many floats, from float16 or, if `brain`, bfloat16.
void ISA(widen)(float *to, const uint16_t *from, int64_t count, bool brain);

// All of out[rows][columns], where row i of the left matrix is left[i], left[i + step], ...; at most
// HALF_ROWS rows.
void ISA(multiply_half_panels)(
    const float *left, int64_t step, const uint16_t *right, bool brain, int64_t k, Place out,
    int rows, int64_t columns, const Epilogue *epilogue);

#endif
