// Parts of a batch: see recurrent_parts.h.
#include "recurrent_parts.h"

enum {
    LEAST_ROWS = 4,  // of a part
    MOST_WEIGHTS = 1 << 18,  // that stay in the second cache of each thread: 1 MB
    MOST_PARTS = 8,
};

int64_t ISA(most_parts)(const State *state) {
    const int64_t parts = lesser(state->batch / LEAST_ROWS, MOST_PARTS);
    const int64_t weights = state->packed_r_size + state->packed_w_size;
    return weights > MOST_WEIGHTS || parts < 1 ? 1 : parts;
}

int64_t ISA(part_count)(const State *state, int threads) {
    const int64_t work = state->steps * state->rows * state->gates * state->wide * state->hidden;
    const int64_t worth = lesser(threads / state->directions, work / STEP_WORK);
    return greater(lesser(worth, ISA(most_parts)(state)), 1);
}

State ISA(part_of)(const State *whole, int64_t parts, int64_t number) {
    State part = *whole;
    if (parts == 1) return part;
    const int64_t rows = ceil_div(whole->batch, parts), first = number * rows;
    part.rows = lesser(whole->batch - first, rows);
    part.chunk = whole->wide;
    part.chunks = 1;
    part.x += first * whole->width;
    const float **given[] = {&part.h, &part.c};
    for (int i = 0; i < 2; i++)
        if (*given[i]) *given[i] += first * whole->hidden;
    float **wanted[] = {&part.y, &part.last_h, &part.last_c, &part.kept_states, &part.kept_gates};
    for (int i = 0; i < 5; i++)
        if (*wanted[i]) *wanted[i] += first * whole->hidden;
    if (part.attention) part.attention += first;
    if (part.lengths) part.lengths += first;
    return part;
}
