// Elements of a few lines in turn.
#ifndef POPC_WEAVE_H
#define POPC_WEAVE_H

#include "../support/simd.h"
#include "../support/squares.h"

// to[i * across + phase] is lines[phase][i], or 0 where a line is NULL.
static inline void weave_lines(
    const float *const *lines, int64_t across, float *to, int64_t columns) {
    if (across == 1 && lines[0]) {
        copy_floats(to, lines[0], columns);
        return;
    }
    if (across == 2 && lines[0] && lines[1]) {
        weave_two(lines[0], lines[1], to, columns / 2);
        if (columns % 2) to[columns - 1] = lines[0][columns / 2];
        return;
    }
    for (int64_t phase = 0; phase < across; phase++) {
        const float *from = lines[phase];
        for (int64_t i = phase, j = 0; i < columns; i += across, j++) to[i] = from ? from[j] : 0;
    }
}

#endif
