// Arithmetic of sizes and of places.
//
// Work is handed out in chunks, which takes 0.6 us (Zen 3, two threads): a chunk should take some
// microseconds.  Kernels name how much that is (..._WORK), mostly 1 << 13 to 1 << 15 elements, fewer
// where an element takes long.  More in a chunk leaves threads waiting for the last one.
#ifndef POPC_SIZES_H
#define POPC_SIZES_H

#include <stdint.h>

static inline int64_t lesser(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t greater(int64_t a, int64_t b) { return a > b ? a : b; }

static inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static inline int64_t padded(int64_t count, int64_t unit) { return ceil_div(count, unit) * unit; }

#endif
