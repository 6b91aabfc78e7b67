// Copies of elements at any distance from each other.
#ifndef POPC_ELEMENTS_H
#define POPC_ELEMENTS_H

#include "simd.h"

// `size`, at most 8, is a constant wherever this is called: loops become vector code.
INLINE void copy_elements(
    char *to, int64_t to_step, const char *from, int64_t from_step, int64_t n, const int64_t size) {
    if (to_step == size && from_step == size) {
        memcpy(to, from, (size_t)(n * size));
    } else if (to_step == size && from_step == 0) {
        uint64_t value = 0;
        memcpy(&value, from, (size_t)size);
        for (int64_t i = 0; i < n; i++) memcpy(to + i * size, &value, (size_t)size);
    } else {
        for (int64_t i = 0; i < n; i++)
            memcpy(to + i * to_step, from + i * from_step, (size_t)size);
    }
}

#endif
