// Windows that slide over the lines of a plane, which are read where they lie: see conv_planes.c.
//
// A strip is one or two vectors of neighbouring results, a block a few lines of a strip.  What a line of
// the input holds for a strip is read once, and used for all results of the block that lie over it.
#ifndef POPC_PLANES_H
#define POPC_PLANES_H

#include "../support/partial.h"
#include "conv.h"

enum {
    BLOCK_LINES = 4,  // of results
    TALL_LINES =
        7,  // of taller blocks, where there are registers for them and windows have many taps
    STRIP_VECTORS = 2,
    HALF_STRIPS = LANES == 16,  // whether strips of half a vector take less time
    MOST_TAPS = 7,  // of a window, along a line and across
    MOST_STRIDE = 2,
    MOST_LINES = (BLOCK_LINES - 1) * MOST_STRIDE + MOST_TAPS,  // of the input under a block
    STRIP_LOADS = (MOST_TAPS + 1) * STRIP_VECTORS,  // at most
    MOST_STRIPS = 1 << 16,
};

typedef struct {
    int64_t first, count;  // results
    int vectors;
    bool whole;  // all lanes are results, and what their windows read lies inside of the input
    Lanes lanes[STRIP_LOADS];  // what does, of each vector that is loaded
} Strip;

typedef struct {
    const Conv *conv;
    int64_t count;
    Strip *strips;
} Strips;

// What is made of a block.  Lines of the input that lie outside of it are NULL.
typedef struct {
    const Strip *strip;
    const float *lines[MOST_LINES];
    int64_t column;  // of the first tap of the first result of the strip
    int64_t dilation;  // along a line
    int rows;
    int64_t y_row;  // floats between rows of the block
    int64_t place;  // in a channel of the result
} Block;

typedef void (*BlockFn)(const Block *block, void *context);

// Whether windows are squares of at most so many taps, which move by one element, or by two, alike in
// both directions; those of one may be dilated.
bool ISA(has_planes)(const Conv *conv);

// False if memory is exhausted.  The strips are the caller's to free.
bool ISA(plan_strips)(Strips *strips, const Conv *conv);

// Makes blocks, and taller ones unless that is NULL.
typedef struct { BlockFn usual, tall; } Makers;

// Blocks of the rows first .. end - 1 of a channel of the result.
void ISA(for_blocks)(
    const Strips *strips, const float *channel, int64_t first, int64_t end, Makers makers,
    void *context);

// Lines of results that a chunk of work has, if a channel has more than enough for one.
static inline int64_t band_lines(const Conv *conv, int64_t work) {
    const int64_t unit = BLOCK_LINES * conv->dilation[1];
    const int64_t lines = ceil_div(work, conv->result[2] * conv->window);
    return lesser(padded(conv->result[1], unit), padded(lines, unit));
}

// How a strip is read: without looking at what lies outside of the input, or looking, or tap by tap.
typedef enum { WHOLE, CUT, DILATED } Reading;

// What is known when code is made: taps and stride of the windows, along a line and across; vectors of the
// strip; and what is outside.
typedef struct {
    int taps, stride, vectors;
    Reading how;
    float outside;
} Form;

INLINE Floats read_vector(const Block *block, const Form form, const float *from, const int i) {
    return form.how == WHOLE ? load_once(from)
                             : load_lanes(from, block->strip->lanes[i], all_of(form.outside));
}

#if defined(__AVX512F__)
// Vectors one behind the other that hold a line of the input under a strip: all taps are shifted out of
// them, because vectors that are not aligned take longer to load.
enum { CELLS = STRIP_VECTORS + 1 };
typedef struct { Floats even[CELLS], odd[CELLS]; } Cells;

// Lanes `by` and behind of `a`, and then those of `b`.
INLINE Floats shifted(Floats a, Floats b, const int by) {
#define SHIFTED(BY) \
    case BY: return (Floats)_mm512_alignr_epi32((__m512i)b, (__m512i)a, BY);
    switch (by) {
        SHIFTED(1)
        SHIFTED(2)
        SHIFTED(3)
        SHIFTED(4)
        SHIFTED(5)
        SHIFTED(6)
        default: return a;
    }
#undef SHIFTED
}

// The same of halves of a vector.
INLINE __m256 half_shifted(__m256i low, __m256i high, const int by) {
#define SHIFTED(BY) \
    case BY: return _mm256_castsi256_ps(_mm256_alignr_epi32(high, low, BY));
    switch (by) {
        SHIFTED(1)
        SHIFTED(2)
        SHIFTED(3)
        SHIFTED(4)
        SHIFTED(5)
        SHIFTED(6)
        default: return _mm256_castsi256_ps(low);
    }
#undef SHIFTED
}

INLINE Cells read_cells(const Block *block, const Form form, const float *line) {
    Cells cells;
    if (form.how == DILATED) return cells;
    Form last = form;  // of the last vector few lanes are read
    last.how = CUT;
    UNROLLED_FOR (int v = 0; v <= form.vectors; v++) {
        const Form these = v < form.vectors ? form : last;
        const int i = v * form.stride;
        const Floats a = read_vector(block, these, line + i * LANES, i);
        cells.even[v] = a;
        if (form.stride == 1) continue;
        const Floats b = v < form.vectors ? read_vector(block, these, line + (i + 1) * LANES, i + 1)
                                          : a;
        cells.even[v] = even_of(a, b);
        cells.odd[v] = odd_of(a, b);
    }
    return cells;
}

// What tap `k` reads of a line, for vector `v` of a strip.
INLINE Floats tap_of(
    const Block *block, const Form form, const float *line, const Cells *cells, const int k,
    const int v) {
    if (form.how == DILATED)
        return read_vector(
            block, form, line + k * block->dilation + v * LANES, k * form.vectors + v);
    const Floats *from = k % form.stride ? cells->odd : cells->even;
    return shifted(from[v], from[v + 1], k / form.stride);
}
#else
typedef struct { int none; } Cells;

INLINE Cells read_cells(const Block *block, const Form form, const float *line) {
    (void)block, (void)form, (void)line;
    return (Cells){0};
}

INLINE Floats tap_of(
    const Block *block, const Form form, const float *line, const Cells *cells, const int k,
    const int v) {
    const int S = form.stride, even = k / S * S, place = even * form.vectors + v * S;
    const float *from = line + even * (form.how == WHOLE ? 1 : block->dilation) + S * v * LANES;
    (void)cells;
    const Floats a = read_vector(block, form, from, place);
    if (S == 1) return a;
    const Floats b = read_vector(block, form, from + LANES, place + 1);
    return k % S ? odd_of(a, b) : even_of(a, b);
}
#endif

#endif
