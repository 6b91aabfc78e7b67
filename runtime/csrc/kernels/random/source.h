// Where random numbers come from: numpy's generators, in numpy's order.
//
// A source is four words that popc_runtime/kernels/core/random_state.py keeps current: the address of
// a generator's state, of the functions of numpy that draw from it, and of its interface.  Seeding
// changes them, so they are read when a kernel runs.  Numbers are drawn by one thread: each follows
// from the one before.
#ifndef POPC_RANDOM_SOURCE_H
#define POPC_RANDOM_SOURCE_H

#include <stdint.h>

#include "../../kernel.h"

typedef struct {
    void *state;
    uint32_t (*next_uint32)(void *state);
    double (*next_double)(void *state);
    void *interface;
} Source;

static inline const Source *next_source(Params *params) {
    const Source *source = (const Source *)(intptr_t)next_int(params);
    if (!source) params->bad = true;
    return source;
}

static inline void draw_floats(const Source *source, float *to, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        to[i] = (float)(source->next_uint32(source->state) >> 8) * 0x1p-24f;
}

static inline void draw_doubles(const Source *source, double *to, int64_t count) {
    for (int64_t i = 0; i < count; i++) to[i] = source->next_double(source->state);
}

#endif
