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

// Of each sequence of the input, over its steps.
void ISA(find_ranges)(const State *state, ByteRange *ranges);

// Rows of some steps of the input become bytes in `memory`, by the ranges of their sequences; those
// behind the end of a sequence are nothing.
void ISA(quantize_input)(
    const State *state, const float *x, int64_t step, int64_t steps, const ByteRange *ranges,
    float *memory);

// Rows of the state do, each by its own range.
void ISA(quantize_states)(const State *state, const float *h, float *memory);

// out = rows by columns first .. end - 1 of direction `d`, plus `bias`, if there is one.
void ISA(multiply_bytes)(
    const ByteWeights *weights, int64_t d, float *memory, int64_t rows, int64_t first, int64_t end,
    const float *bias, float *out, int64_t out_row);

#endif
