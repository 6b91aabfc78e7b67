// The transforms of F(4, 5) and F(6, 3): results of a convolution along one axis from 8 elements with 8
// products instead of 20 or 18.  Polynomials are interpolated at 0, 1/2, -1/2, 1, -1, 7/4, -7/4 and
// infinity: all constants of elements and of results are floats.  Of other points between 7/16 and 5/2
// none had a smaller error; it is two to four times that of sums of products.
#ifndef POPC_WINOGRAD_LINE_H
#define POPC_WINOGRAD_LINE_H

#include "../support/simd.h"

enum { LINE_POINTS = 8, LONG_TAPS = 5, SHORT_TAPS = 3 };

// The points, their squares, and the symmetric functions of these.
#define LOW 0.5f
#define MIDDLE 1.0f
#define HIGH 1.75f
#define LOW2 (LOW * LOW)
#define MIDDLE2 (MIDDLE * MIDDLE)
#define HIGH2 (HIGH * HIGH)
#define ALL1 (LOW2 + MIDDLE2 + HIGH2)
#define ALL2 (LOW2 * MIDDLE2 + LOW2 * HIGH2 + MIDDLE2 * HIGH2)
#define ALL3 (LOW2 * MIDDLE2 * HIGH2)

// Values at the points `p` and -p, of squares `others` beside that of p.
INLINE void transform_pair(const Floats *d, float p, float sum, float product, Floats *to) {
    const Floats even = d[6] - sum * d[4] + product * d[2];
    const Floats odd = p * (d[5] - sum * d[3] + product * d[1]);
    to[0] = even + odd;
    to[1] = even - odd;
}

// Eight elements.
INLINE void transform_line(const Floats *d, Floats *to) {
    to[0] = d[6] - ALL1 * d[4] + ALL2 * d[2] - ALL3 * d[0];
    transform_pair(d, LOW, MIDDLE2 + HIGH2, MIDDLE2 * HIGH2, to + 1);
    transform_pair(d, MIDDLE, LOW2 + HIGH2, LOW2 * HIGH2, to + 3);
    transform_pair(d, HIGH, LOW2 + MIDDLE2, LOW2 * MIDDLE2, to + 5);
    to[7] = d[7] - ALL1 * d[5] + ALL2 * d[3] - ALL3 * d[1];
}

// Eight sums to `count` results, four or six.
INLINE void transform_sums(const Floats *m, const int count, Floats *to) {
    Floats even[3], odd[3];
    const float points[] = {LOW, MIDDLE, HIGH};
    UNROLLED_FOR (int i = 0; i < 3; i++) {
        even[i] = m[2 * i + 1] + m[2 * i + 2];
        odd[i] = points[i] * (m[2 * i + 1] - m[2 * i + 2]);
    }
    to[0] = m[0] + even[0] + even[1] + even[2];
    to[1] = odd[0] + odd[1] + odd[2];
    to[2] = LOW2 * even[0] + MIDDLE2 * even[1] + HIGH2 * even[2];
    to[3] = LOW2 * odd[0] + MIDDLE2 * odd[1] + HIGH2 * odd[2];
    if (count == 6) {
        to[4] = LOW2 * LOW2 * even[0] + MIDDLE2 * MIDDLE2 * even[1] + HIGH2 * HIGH2 * even[2];
        to[5] = LOW2 * LOW2 * odd[0] + MIDDLE2 * MIDDLE2 * odd[1] + HIGH2 * HIGH2 * odd[2];
    }
    to[count - 1] += m[7];
}

// Values of the polynomial of `taps` weights, three or five, over the products of the differences of
// points.
INLINE void transform_taps(const Floats *g, const int taps, Floats *to) {
    const float points[] = {LOW, MIDDLE, HIGH}, squares[] = {LOW2, MIDDLE2, HIGH2};
    const float over[] = {
        1 / (2 * LOW2 * (LOW2 - MIDDLE2) * (LOW2 - HIGH2)),
        1 / (2 * MIDDLE2 * (MIDDLE2 - LOW2) * (MIDDLE2 - HIGH2)),
        1 / (2 * HIGH2 * (HIGH2 - LOW2) * (HIGH2 - MIDDLE2))};
    to[0] = g[0] * (-1 / ALL3);
    UNROLLED_FOR (int i = 0; i < 3; i++) {
        const float p = points[i], p2 = squares[i];
        const Floats even = taps == LONG_TAPS ? g[0] + p2 * g[2] + p2 * p2 * g[4]
                                              : g[0] + p2 * g[2];
        const Floats odd = taps == LONG_TAPS ? p * (g[1] + p2 * g[3]) : p * g[1];
        to[2 * i + 1] = (even + odd) * over[i];
        to[2 * i + 2] = (even - odd) * over[i];
    }
    to[7] = g[taps - 1];
}

#endif
