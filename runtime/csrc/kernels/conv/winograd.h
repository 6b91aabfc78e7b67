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

// One line of elements.
INLINE void transform_input_line(const Floats *d, Floats *to) {
    const Floats a = d[4] - FAR2 * d[2], b = NEAR * (d[3] - FAR2 * d[1]);
    const Floats c = d[4] - NEAR2 * d[2], e = FAR * (d[3] - NEAR2 * d[1]);
    to[0] = NEAR2 * FAR2 * d[0] - (NEAR2 + FAR2) * d[2] + d[4];
    to[1] = a + b;
    to[2] = a - b;
    to[3] = c + e;
    to[4] = c - e;
    to[5] = NEAR2 * FAR2 * d[1] - (NEAR2 + FAR2) * d[3] + d[5];
}

// Six sums to four results.
INLINE void transform_result_line(const Floats *m, Floats *to) {
    const Floats a = m[1] + m[2], b = NEAR * (m[1] - m[2]);
    const Floats c = m[3] + m[4], e = FAR * (m[3] - m[4]);
    to[0] = m[0] + a + c;
    to[1] = b + e;
    to[2] = NEAR2 * a + FAR2 * c;
    to[3] = NEAR2 * b + FAR2 * e + m[5];
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

// The same two from the other side, for gradients: four gradients of results to those of six sums.
INLINE void transform_gradient_line(const Floats *y, Floats *to) {
    const Floats even = y[0] + NEAR2 * y[2], odd = NEAR * (y[1] + NEAR2 * y[3]);
    const Floats far_even = y[0] + FAR2 * y[2], far_odd = FAR * (y[1] + FAR2 * y[3]);
    to[0] = y[0];
    to[1] = even + odd;
    to[2] = even - odd;
    to[3] = far_even + far_odd;
    to[4] = far_even - far_odd;
    to[5] = y[3];
}

// Gradients of six weights to those of three.
INLINE void transform_slope_line(const Floats *m, Floats *to) {
    const float of_near = 1 / (2 * NEAR2 * (NEAR2 - FAR2)),
                of_far = 1 / (2 * FAR2 * (FAR2 - NEAR2));
    const Floats near = of_near * (m[1] + m[2]), far = of_far * (m[3] + m[4]);
    to[0] = m[0] * (1 / (NEAR2 * FAR2)) + near + far;
    to[1] = of_near * NEAR * (m[1] - m[2]) + of_far * FAR * (m[3] - m[4]);
    to[2] = NEAR2 * near + FAR2 * far + m[5];
}

#endif
