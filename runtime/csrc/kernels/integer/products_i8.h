// Products of bytes: packed panels, and the tiles that multiply two of them.
//
// Numbers lie in groups of four along the sum, [k / 4][rows or columns][4]; what is missing is zero.
// The left panel holds unsigned bytes and the right one signed bytes, whatever the operands are:
// 128 is added or taken away where they are not, and the zero points with it.
#ifndef POPC_PRODUCTS_I8_H
#define POPC_PRODUCTS_I8_H

#include <stdbool.h>

#include "../support/simd.h"

typedef int32_t Ints __attribute__((vector_size(VECTOR_BYTES)));
typedef int32_t LooseInts __attribute__((vector_size(VECTOR_BYTES), aligned(1), may_alias));

// Rows and columns of a tile.  Its sums stay in registers: 12 x 2 of 32 with AVX-512, and 4 x 2 of 16
// with AVX2, whose products take registers of their own.
#if VECTOR_BYTES == 64
enum { BYTE_ROWS = 12 };
#else
enum { BYTE_ROWS = 4 };
#endif
enum { BYTE_COLUMNS = 2 * LANES };

// Rows of a left operand: packed in a panel, or where they lie, each in whole groups.
typedef struct {
    const uint8_t *data;
    int64_t line;  // bytes from row to row where they lie; 0: packed
} ByteLines;

// The groups of a right panel: `in_pairs` that products of pairs hold, and the others (pair_order.h).
typedef struct {
    int32_t in_pairs;
    int32_t groups[];
} GroupOrder;

// A right operand.
typedef struct {
    const int8_t *data;
    int64_t groups;
    const GroupOrder *order;  // NULL: tiles take groups as they come
    bool is_narrow;  // there is nothing in the second vector of columns
} BytePanel;

// out[BYTE_ROWS][BYTE_COLUMNS] = left * right; only the first `rows` rows are wanted.
typedef void (*ByteTile)(ByteLines left, BytePanel right, int32_t *out, int64_t rows);

// How a tile is computed; the numbers are those of ByteForm in
// popc_runtime/native/encoders/integer.py.
typedef enum { FASTEST, PORTABLE, WIDE, VNNI, PAIRS, WORDS } ByteForm;

// NULL if this processor has no such form.
ByteTile ISA(byte_tile)(ByteForm form);

// Whether a tile uses products of four bytes.
bool ISA(is_vnni)(ByteTile tile);

// Whether a tile needs the order of groups.
bool ISA(is_of_pairs)(ByteTile tile);

#endif
