// How many chunks work is divided into that does not divide itself: by the threads that there will be.
#ifndef POPC_CHUNKS_H
#define POPC_CHUNKS_H

#include "../../kernel.h"
#include "sizes.h"

// Of bytes that take the time of a product of floats.
enum { BYTES_AT_ONCE = 4 };

// `few`: as many as two threads share evenly, or more where a chunk repeats little.  More threads get more
// of them, in proportion, as long as each has products of some two microseconds.
static inline int64_t chunks_for(const Needs *needs, double products, int64_t few) {
    enum { PRODUCTS = 1 << 17 };
    const double most = (double)few * (double)greater(needs->threads, 2) / 2;
    const double worth = products / PRODUCTS;
    return greater(few, (int64_t)(worth < most ? worth : most));
}

#endif
