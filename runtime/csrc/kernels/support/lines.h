// Lines along an axis, [outer][length][inner].  Where they are short, or few lie side by side, lines of
// several outer indices are put side by side in a panel, [length][columns], so that vectors are full.
#ifndef POPC_LINES_H
#define POPC_LINES_H

#include <stdbool.h>

#include "runs.h"
#include "simd.h"
#include "sizes.h"
#include "squares.h"

enum {
    SHORT_LINE = 32,  // elements: longer lines fill vectors by themselves, unless they are narrow
    FULL_BESIDE = 128,  // bytes of a line, or of lines side by side, that need no others
    PANEL_COLUMNS = 128,  // at most, of a panel
    PANEL_BYTES = 1 << 14,  // that stay in the first cache, but for the least columns
    MOST_PANEL_BYTES = 1 << 18,
};

#define ELEMENT uint8_t
#include "lines_in.h"
#define ELEMENT uint16_t
#include "lines_in.h"
#define ELEMENT uint32_t
#include "lines_in.h"
#define ELEMENT uint64_t
#include "lines_in.h"

// Whether lines are better read from panels than where they lie, as those of `full` elements are.
static inline bool want_panels(
    int64_t outer, int64_t length, int64_t inner, int64_t size, int64_t full) {
    const int64_t beside = inner == 1 ? length : inner;
    const bool are_full = beside * size >= FULL_BESIDE && (inner > 1 || length >= full);
    return !are_full && outer > 1 && length > 1 && inner > 0;
}

// How many outer indices a panel of whole lines has; 0 if there are no panels.
static inline int64_t outers_of_panel(
    int64_t outer, int64_t length, int64_t inner, int64_t size, int64_t full) {
    if (!want_panels(outer, length, inner, size, full)) return 0;
    if (length > MOST_PANEL_BYTES / VECTOR_BYTES) return 0;
    const int64_t columns = greater(PANEL_BYTES / (length * size), VECTOR_BYTES / size);
    return lesser(outer, greater(1, lesser(columns, PANEL_COLUMNS) / inner));
}

// Narrow elements by larger squares, where there are so many.
static inline void bytes_to_columns(
    const char *from, int64_t apart, char *to, int64_t to_apart, int64_t lines, int64_t n) {
    if (lines >= 16 && n >= 16)
        turn_bytes((const uint8_t *)from, apart, (uint8_t *)to, to_apart, lines, n);
    else
        to_columns_uint8_t(from, apart, to, to_apart, lines, n);
}

static inline void halves_to_columns(
    const char *from, int64_t apart, char *to, int64_t to_apart, int64_t lines, int64_t n) {
    if (lines >= 8 && n >= 8)
        turn_halves(from, apart, to, to_apart, lines, n);
    else
        to_columns_uint16_t(from, apart, to, to_apart, lines, n);
}

// Columns of `n` runs of `run` bytes each, less than 128, from `outers` places that are `apart` bytes
// from each other; rows of the panel are `row` bytes apart.
static inline void fill_panel(
    const char *from, int64_t apart, int64_t outers, int64_t n, int64_t run, char *panel,
    int64_t row) {
    switch (run) {
        case 1: bytes_to_columns(from, apart, panel, row, outers, n); return;
        case 2: halves_to_columns(from, apart, panel, row, outers, n); return;
        case 4: to_columns_uint32_t(from, apart, panel, row, outers, n); return;
        case 8: to_columns_uint64_t(from, apart, panel, row, outers, n); return;
    }
    for (int64_t j = 0; j < outers; j++)
        copy_runs(from + j * apart, run, panel + j * run, row, n, run);
}

// The same back to where they belong.
static inline void empty_panel(
    const char *panel, int64_t row, char *to, int64_t apart, int64_t outers, int64_t n,
    int64_t run) {
    switch (run) {
        case 1: to_lines_uint8_t(panel, row, to, apart, outers, n); return;
        case 2: to_lines_uint16_t(panel, row, to, apart, outers, n); return;
        case 4: to_lines_uint32_t(panel, row, to, apart, outers, n); return;
        case 8: to_lines_uint64_t(panel, row, to, apart, outers, n); return;
    }
    for (int64_t j = 0; j < outers; j++)
        copy_runs(panel + j * run, row, to + j * apart, run, n, run);
}

#endif
