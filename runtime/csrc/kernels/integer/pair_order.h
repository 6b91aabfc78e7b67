// Which groups of a right panel the processor can multiply in pairs.
//
// Without VNNI the fast product of bytes adds two products in 16 bits, and saturates.  An unsigned
// byte times a signed one, twice, always fits if the two signed ones add up to -128 .. 128.  Groups
// of which that is true for every column are multiplied first, in pairs; the others are widened.
// Of trained weights about two groups in three fit.
#ifndef POPC_PAIR_ORDER_H
#define POPC_PAIR_ORDER_H

#include "products_i8.h"

// Bytes of the order of a panel, a multiple of 64.
int64_t ISA(order_bytes)(int64_t groups);

// Finds it for a panel of [groups][BYTE_COLUMNS][4] numbers.
void ISA(find_order)(const int8_t *panel, int64_t groups, GroupOrder *order);

#endif
