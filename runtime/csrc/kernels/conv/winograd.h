// The transforms of F(4 x 4, 3 x 3): 4 x 4 results of a 3 x 3 convolution from 6 x 6 elements with 36
// products instead of 144.  Polynomials are interpolated at 0, 5/8, -5/8, 3/2, -3/2 and infinity: all
// constants of elements and of results are floats, and their powers stay near 1, so that results are
// four times as near to sums of products as with the usual 0, 1, -1, 2, -2.
#ifndef POPC_WINOGRAD_H
#define POPC_WINOGRAD_H

#include "../support/simd.h"

enum { TAP = 3, RESULT = 4, SPAN = RESULT + TAP - 1, POINTS = SPAN * SPAN };

// The points 5/8 and 3/2.
#define NEAR 0.625f
#define FAR 1.5f
#define NEAR2 (NEAR * NEAR)
#define FAR2 (FAR * FAR)

// One line of elements, `step` apart on either side.
INLINE void transform_input_line(const Floats *d, Floats *to, int step) {
    const Floats a = d[4 * step] - FAR2 * d[2 * step], b = NEAR * (d[3 * step] - FAR2 * d[step]);
    const Floats c = d[4 * step] - NEAR2 * d[2 * step], e = FAR * (d[3 * step] - NEAR2 * d[step]);
    to[0] = NEAR2 * FAR2 * d[0] - (NEAR2 + FAR2) * d[2 * step] + d[4 * step];
    to[step] = a + b;
    to[2 * step] = a - b;
    to[3 * step] = c + e;
    to[4 * step] = c - e;
    to[5 * step] = NEAR2 * FAR2 * d[step] - (NEAR2 + FAR2) * d[3 * step] + d[5 * step];
}

// Six sums to four results.
INLINE void transform_result_line(const Floats *m, int step, Floats *to, int to_step) {
    const Floats a = m[step] + m[2 * step], b = NEAR * (m[step] - m[2 * step]);
    const Floats c = m[3 * step] + m[4 * step], e = FAR * (m[3 * step] - m[4 * step]);
    to[0] = m[0] + a + c;
    to[to_step] = b + e;
    to[2 * to_step] = NEAR2 * a + FAR2 * c;
    to[3 * to_step] = NEAR2 * b + FAR2 * e + m[5 * step];
}

// Three weights to six: the values of their polynomial, over the products of the differences of points.
INLINE void transform_weight_line(const Floats *g, int step, Floats *to, int to_step) {
    const Floats near = g[0] + NEAR2 * g[2 * step], far = g[0] + FAR2 * g[2 * step];
    const float of_near = 1 / (2 * NEAR2 * (NEAR2 - FAR2)),
                of_far = 1 / (2 * FAR2 * (FAR2 - NEAR2));
    to[0] = g[0] * (1 / (NEAR2 * FAR2));
    to[to_step] = (near + NEAR * g[step]) * of_near;
    to[2 * to_step] = (near - NEAR * g[step]) * of_near;
    to[3 * to_step] = (far + FAR * g[step]) * of_far;
    to[4 * to_step] = (far - FAR * g[step]) * of_far;
    to[5 * to_step] = g[2 * step];
}

#endif
