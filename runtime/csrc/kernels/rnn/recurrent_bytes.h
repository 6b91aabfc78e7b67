// Recurrent layers whose weights are bytes.
#ifndef POPC_RECURRENT_BYTES_H
#define POPC_RECURRENT_BYTES_H

#include "../integer/byte_panels.h"
#include "recurrent.h"

// One of the two matrices of all directions.
struct ByteWeights {
    BytePanels panels;
    const int8_t *from, *zero;  // [directions][rows][k], [directions][rows]; no zero: 0
    const float *scale;  // [directions][rows]
    int8_t *packed;
    int64_t size;  // bytes of a direction
    float *scales;  // [directions][columns], in the order of products
    int32_t *zeros;  // the same
    bool has_zeros;  // one of them is not 0
};

// Reads scales and zero points of both matrices.  False if they do not fit or are not constant, or if
// memory is exhausted.
bool ISA(read_byte_weights)(State *state, Params *params, const Tensor *w, const Tensor *r);
void ISA(release_byte_weights)(State *state);

// False if memory is exhausted.
bool ISA(pack_byte_weights)(State *state);

// Floats of memory for so many rows of bytes.
int64_t ISA(byte_row_floats)(int64_t rows, int64_t k);

// Rows of floats become bytes in `memory`.
void ISA(quantize_rows)(
    const ByteWeights *weights, const float *from, int64_t row, int64_t rows, float *memory);

// out = rows by columns first .. end - 1 of direction `d`, plus `bias`, if there is one.
void ISA(multiply_bytes)(
    const ByteWeights *weights, int64_t d, float *memory, int64_t rows, int64_t first, int64_t end,
    const float *bias, float *out, int64_t out_row);

#endif
