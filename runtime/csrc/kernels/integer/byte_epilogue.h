// What follows the sums of products of bytes while a tile of them is in the cache: zero points,
// a scale, rounding to multiples, a bias, a residual, an activation, and bytes again.
#ifndef POPC_BYTE_EPILOGUE_H
#define POPC_BYTE_EPILOGUE_H

#include "../elementwise/maps.h"
#include "byte_steps.h"

// What rounds scaled sums, if nothing comes between: none, or one that is too coarse or too fine.
typedef enum { NO_ROUNDING, MULTIPLES, BYTES } FirstRounding;

// In this order.  Numbers of columns lie one behind the other, or one number serves all.
typedef struct {
    DType type;  // of the result: I32 (nothing follows the zero points), F32, I8 or U8
    const float *scale, *bias;  // NULL: there is none
    int64_t scale_step, bias_step;  // floats from column to column
    Quantizer rounding;  // back to floats
    MapLoop activation;  // NULL: there is none
    double parameters[MAX_PARAMETERS];
    Quantizer quantizer;  // of a result of bytes
    FirstRounding first;
} ByteEpilogue;

// What the rows of a tile have in common.
typedef struct {
    int32_t base[BYTE_COLUMNS];  // is subtracted from sums
    int32_t zeros[BYTE_COLUMNS];  // times what a row has in `rests` too
    float scale[BYTE_COLUMNS], bias[BYTE_COLUMNS];
    float quotient[BYTE_COLUMNS];  // nearly the scale by that of what rounds first
    float shift[BYTE_COLUMNS];  // nearly the bias by that, if bytes are what rounds first
    bool has_quotients;
} ByteColumns;

// Where part of a result goes: rows x columns of it.
typedef struct {
    char *data;
    int64_t row;  // bytes from row to row; columns lie side by side
    const char *residual;  // NULL: there is none
    int64_t residual_row;
    int64_t rows, columns;
} BytePlace;

// Reads scale and bias, the rounding (scale, low, high), the activation, and the scale, zero
// point and factor of a result of `type`, which has so many columns.
bool ISA(read_byte_epilogue)(ByteEpilogue *epilogue, Params *params, DType type, int64_t columns);

// The scales and biases of up to BYTE_COLUMNS columns.
void ISA(find_columns)(
    const ByteEpilogue *epilogue, int64_t first, int64_t columns, ByteColumns *found);

// Finishes a tile, which is overwritten.  `rests` may be NULL: no column has a zero point.
void ISA(finish_bytes)(
    const ByteEpilogue *epilogue, const ByteColumns *columns, int32_t *tile, const int32_t *rests,
    BytePlace place);

#endif
