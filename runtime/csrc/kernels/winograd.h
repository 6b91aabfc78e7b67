// The transforms of F(4 x 4, 3 x 3): 4 x 4 results of a 3 x 3 convolution from 6 x 6 elements with 36
// products instead of 144.  Interpolation is at 0, 1, -1, 2, -2 and infinity.
#ifndef POPC_WINOGRAD_H
#define POPC_WINOGRAD_H

#include "simd.h"

enum { TAP = 3, RESULT = 4, SPAN = RESULT + TAP - 1, POINTS = SPAN * SPAN };


// One line of elements: from + i * step.
INLINE void transform_input_line(const Floats *d, Floats *to, int step) {
    const Floats a = d[4 * step] - 4 * d[2 * step], b = d[3 * step] - 4 * d[step];
    const Floats c = d[4 * step] - d[2 * step], e = 2 * (d[3 * step] - d[step]);
    to[0] = 4 * d[0] - 5 * d[2 * step] + d[4 * step];
    to[step] = a + b;
    to[2 * step] = a - b;
    to[3 * step] = c + e;
    to[4 * step] = c - e;
    to[5 * step] = 4 * d[step] - 5 * d[3 * step] + d[5 * step];
}

// Six sums to four results, `step` apart on either side.
INLINE void transform_result_line(const Floats *m, int step, Floats *to, int to_step) {
    const Floats a = m[step] + m[2 * step], b = m[step] - m[2 * step];
    const Floats c = m[3 * step] + m[4 * step], e = m[3 * step] - m[4 * step];
    to[0] = m[0] + a + c;
    to[to_step] = b + 2 * e;
    to[2 * to_step] = a + 4 * c;
    to[3 * to_step] = b + 8 * e + m[5 * step];
}

// Three weights to six.
INLINE void transform_weight_line(const Floats *g, int step, Floats *to, int to_step) {
    const Floats outer = g[0] + g[2 * step], far = g[0] + 4 * g[2 * step];
    to[0] = g[0] * 0.25f;
    to[to_step] = (outer + g[step]) * (-1.0f / 6);
    to[2 * to_step] = (outer - g[step]) * (-1.0f / 6);
    to[3 * to_step] = (far + 2 * g[step]) * (1.0f / 24);
    to[4 * to_step] = (far - 2 * g[step]) * (1.0f / 24);
    to[5 * to_step] = g[2 * step];
}

#endif
