// Squares of four by four floats, turned.
#ifndef POPC_SQUARES_H
#define POPC_SQUARES_H

typedef float Four __attribute__((vector_size(16)));
typedef float LooseFour __attribute__((vector_size(16), aligned(4), may_alias));

static inline Four load_four(const float *from) { return *(const LooseFour *)from; }
static inline void store_four(float *to, Four values) { *(LooseFour *)to = values; }

// Rows become columns.
static inline __attribute__((always_inline)) void turn_square(Four rows[4]) {
    const Four ab = __builtin_shufflevector(rows[0], rows[1], 0, 4, 1, 5);
    const Four ab_high = __builtin_shufflevector(rows[0], rows[1], 2, 6, 3, 7);
    const Four cd = __builtin_shufflevector(rows[2], rows[3], 0, 4, 1, 5);
    const Four cd_high = __builtin_shufflevector(rows[2], rows[3], 2, 6, 3, 7);
    rows[0] = __builtin_shufflevector(ab, cd, 0, 1, 4, 5);
    rows[1] = __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
    rows[2] = __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5);
    rows[3] = __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7);
}

#endif
