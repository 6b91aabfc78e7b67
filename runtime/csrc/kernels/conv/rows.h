// Spans of channels-last results: a few of a line, or of two, by a vector of channels.
#ifndef POPC_ROWS_H
#define POPC_ROWS_H

#include "channels_last.h"
#include "limits.h"
#include "../support/partial.h"

// Where results of a line go, `step` floats apart from each other, and what is added to them.
typedef struct {
    float *y;
    const float *residual;
    int64_t y_step, residual_step;
} Ends;

// A vector of channels from `c` on, of which those from `from` on are wanted; or `width` of them, if
// these are `few`.
INLINE void store_channels(
    const Ends *ends, const Limits *limits, const Floats *totals, const int P, const bool few,
    int64_t width, int64_t c, int64_t from) {
    const Floats low = all_of(limits->low), high = all_of(limits->high);
    const bool swishes = limits->swishes;  // compilers do not know that stores change nothing here
    UNROLLED_FOR (int p = 0; p < P; p++) {
        Floats total = totals[p];
        if (ends->residual) total += load_some(ends->residual + c + p * ends->residual_step, width);
        total = swishes ? hard_swish_of(total) : within(total, low, high);
        if (few)
            store_some(ends->y + c + p * ends->y_step, total, width);
        else
            store_from(ends->y + c + p * ends->y_step, total, from - c);
    }
}

// Where row number `row` of all results begins.
static inline Ends ends_of_row(const Conv *conv, int64_t row) {
    const int64_t h = row % conv->result[1], rest = row / conv->result[1];
    const int64_t d = rest % conv->result[0], image = rest / conv->result[0];
    const float *residual = conv->epilogue.residual;
    if (residual)
        residual += image * conv->residual_batch + d * conv->residual_axis[0] +
                    h * conv->residual_axis[1];
    return (Ends){
        conv->y + image * conv->y_batch + d * conv->y_axis[0] + h * conv->y_axis[1], residual,
        conv->y_axis[2], conv->residual_axis[2]};
}

// Applies any other activation than limits to `count` channels of a row.
static inline void activate_row(const Conv *conv, float *y, int64_t count) {
    const bool whole = conv->y_axis[2] == count;
    const int64_t length = whole ? conv->result[2] * count : count;
    for (int64_t at = 0; at < (whole ? 1 : conv->result[2]); at++)
        activate(&conv->epilogue, y + at * conv->y_axis[2], length);
}

#endif
