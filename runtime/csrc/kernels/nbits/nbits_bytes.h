// Products of numbers of few bits with a factor that is rounded to bytes, where a model permits it.
//
// Each block of a row is rounded to multiples of the 127th part of its largest number, to the nearest
// one, of two that are as near to the even one.
#ifndef POPC_NBITS_BYTES_H
#define POPC_NBITS_BYTES_H

#include "../integer/products_i8.h"
#include "../matmul/gemm.h"
#include "nbits.h"

// The block of word w is w >> this.
static inline int block_shift(const PackedBits *bits) {
    return __builtin_ctzll((uint64_t)(bits->block * bits->width / 32));
}

// Whether this processor has such a form; others multiply what `round_floats` gives.
bool ISA(has_byte_form)(ByteForm form);

// A row that is rounded, as floats.
void ISA(round_floats)(const PackedBits *bits, const float *left, float *to);

// The same as bytes in the order in which they meet numbers, with the sums and scales of blocks.
void ISA(round_bytes)(const PackedBits *bits, const float *left, char *scratch, char *to);

// Bytes that it takes, and that of its scratch memory.
int64_t ISA(rounded_bytes)(const PackedBits *bits);
int64_t ISA(rounding_bytes)(const PackedBits *bits);

// Columns of the product of `m` rounded rows.  Zero points lie in the order of scales, [rows][blocks], with
// room for a vector behind them.
void ISA(multiply_rounded)(
    const PackedBits *bits, ByteForm form, const char *left, int64_t m, Place out, int64_t columns);

#endif
