#include "planes.h"

#include <stdlib.h>

bool ISA(has_planes)(const Conv *conv) {
    const int64_t taps = conv->taps[2], stride = conv->stride[2];
    const bool square = conv->taps[1] == taps && conv->stride[1] == stride;
    const bool dilated = conv->dilation[1] > 1 || conv->dilation[2] > 1;
    return square && taps > 1 && taps <= MOST_TAPS && (stride == 1 || stride == 2) &&
           (stride == 1 || !dilated) && conv->taps[0] == 1 && conv->result[0] == 1 &&
           conv->before[0] == 0 && conv->x_axis[2] == 1 &&
           conv->result[2] <= MOST_STRIPS * (int64_t)LANES;
}

// From a column on, of so many vectors.
static void plan_strip(const Conv *conv, Strip *strip, int64_t first, int vectors) {
    const int64_t width = conv->result[2], taps = conv->taps[2], stride = conv->stride[2];
    const int64_t size = conv->size[2], left = first * stride - conv->before[2];
    strip->first = first;
    strip->vectors = vectors;
    strip->count = lesser(width - first, vectors * LANES);
    const int64_t loads = strip->vectors * stride;  // of a tap
    const bool dilated = conv->dilation[2] > 1;
    const int64_t end = left + loads * LANES + (LANES > 8 ? 0 : taps - 1);
    strip->whole = strip->count == STRIP_VECTORS * LANES && left >= 0 && end <= size && !dilated;
    const bool by_tap = LANES <= 8 || dilated;
    Lanes *lanes = strip->lanes;
    for (int64_t tap = 0; tap < (by_tap ? taps : stride); tap += stride)
        for (int64_t i = 0; i < loads + !by_tap; i++) {
            const int64_t column = left + tap * conv->dilation[2] + i * LANES;
            *lanes++ = lanes_between(-column, size - column);
        }
}

// Of a strip that begins where so many columns are left: a last half vector is one of its own.
static int vectors_of(int64_t left, bool many) {
    const bool half = many && HALF_STRIPS && left > LANES && 2 * left <= 3 * LANES;
    return left > LANES && !half ? STRIP_VECTORS : 1;
}

bool ISA(plan_strips)(Strips *strips, const Conv *conv) {
    const int64_t width = conv->result[2], most = ceil_div(width, STRIP_VECTORS * LANES) + 1;
    strips->conv = conv;
#if VECTOR_BYTES == 16
    strips->strips = calloc((size_t)most, sizeof(Strip));
#else
    const int64_t bytes = padded(most * (int64_t)sizeof(Strip), VECTOR_BYTES);
    strips->strips = aligned_alloc(VECTOR_BYTES, (size_t)bytes);
#endif
    if (!strips->strips) return false;
    strips->count = 0;
    for (int64_t first = 0; first < width;) {
        Strip *strip = &strips->strips[strips->count++];
        plan_strip(
            conv, strip, first,
            vectors_of(width - first, conv->taps[2] > 3 && conv->stride[2] == 1));
        first += strip->count;
    }
    return true;
}

// Lines of the input that a block of so many lines reads, from the first of its rows on.
static void find_lines(
    const Conv *conv, const float *channel, int64_t row, int64_t lines, Block *block) {
    const int64_t stride = conv->stride[1], dilation = conv->dilation[1];
    const int64_t count = (lines - 1) * stride + conv->taps[1];
    for (int64_t i = 0; i < count; i++) {
        const int64_t line = row * stride - conv->before[1] + i * dilation;
        const bool there = line >= 0 && line < conv->size[1];
        block->lines[i] = there ? channel + line * conv->x_axis[1] : NULL;
    }
}

// How many of the blocks of `rows` are tall.  All lines of a block are made, though some be cut off; one
// of a tall block takes nine tenths of the time.
static int64_t tall_blocks(int64_t rows) {
    enum { USUAL = 10 * BLOCK_LINES, TALL = 9 * TALL_LINES };
    int64_t best = 0, least = ceil_div(rows, BLOCK_LINES) * USUAL;
    for (int64_t most = ceil_div(rows, TALL_LINES), tall = greater(1, most - BLOCK_LINES);
         tall <= most; tall++) {
        const int64_t rest = greater(0, rows - tall * TALL_LINES);
        const int64_t takes = tall * TALL + ceil_div(rest, BLOCK_LINES) * USUAL;
        if (takes >= least) continue;
        best = tall;
        least = takes;
    }
    return best;
}

// A strip after the other.
static void make_strips(
    const Strips *strips, Block *block, int64_t row, BlockFn make, void *context) {
    const Conv *conv = strips->conv;
    for (int64_t i = 0; i < strips->count; i++) {
        const Strip *strip = &strips->strips[i];
        block->strip = strip;
        block->column = strip->first * conv->stride[2] - conv->before[2];
        block->place = row * conv->result[2] + strip->first;
        make(block, context);
    }
}

void ISA(for_blocks)(
    const Strips *strips, const float *channel, int64_t first, int64_t end, Makers makers,
    void *context) {
    const Conv *conv = strips->conv;
    const int64_t apart = conv->dilation[1];
    Block block = {.dilation = conv->dilation[2], .y_row = apart * conv->result[2]};
    int64_t done = 0;
    for (int64_t start = first; start < lesser(first + apart, end); start++) {
        int64_t left = ceil_div(end - start, apart);
        int64_t tall = makers.tall ? tall_blocks(left) : 0;
        for (int64_t row = start, lines; row < end; row += lines * apart, left -= lines, tall--) {
            lines = tall > 0 ? TALL_LINES : BLOCK_LINES;
            find_lines(conv, channel, row, lines, &block);
            block.rows = (int)lesser(lines, left);
            make_strips(strips, &block, row, tall > 0 ? makers.tall : makers.usual, context);
            if (is_stopped_after(conv->window * lines * STRIP_VECTORS * strips->count, &done))
                return;
        }
    }
}
