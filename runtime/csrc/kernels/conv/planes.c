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

static void plan_strip(const Conv *conv, Strip *strip, int64_t first) {
    const int64_t width = conv->result[2], taps = conv->taps[2], stride = conv->stride[2];
    const int64_t size = conv->size[2], left = first * stride - conv->before[2];
    strip->first = first;
    strip->vectors = width - first > LANES ? STRIP_VECTORS : 1;
    strip->count = lesser(width - first, strip->vectors * LANES);
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

bool ISA(plan_strips)(Strips *strips, const Conv *conv) {
    strips->conv = conv;
    strips->count = ceil_div(conv->result[2], STRIP_VECTORS * LANES);
#if VECTOR_BYTES == 16
    strips->strips = calloc((size_t)strips->count, sizeof(Strip));
#else
    const int64_t bytes = padded(strips->count * (int64_t)sizeof(Strip), VECTOR_BYTES);
    strips->strips = aligned_alloc(VECTOR_BYTES, (size_t)bytes);
#endif
    if (!strips->strips) return false;
    for (int64_t i = 0; i < strips->count; i++)
        plan_strip(conv, &strips->strips[i], i * STRIP_VECTORS * LANES);
    return true;
}

// Lines of the input that a block reads, from the first of its rows on.
static void find_lines(const Conv *conv, const float *channel, int64_t row, Block *block) {
    const int64_t stride = conv->stride[1], dilation = conv->dilation[1];
    const int64_t count = (BLOCK_LINES - 1) * stride + conv->taps[1];
    for (int64_t i = 0; i < count; i++) {
        const int64_t line = row * stride - conv->before[1] + i * dilation;
        const bool there = line >= 0 && line < conv->size[1];
        block->lines[i] = there ? channel + line * conv->x_axis[1] : NULL;
    }
}

void ISA(for_blocks)(
    const Strips *strips, const float *channel, int64_t first, int64_t end, BlockFn make,
    void *context) {
    const Conv *conv = strips->conv;
    const int64_t apart = conv->dilation[1], stride = conv->stride[2];
    Block block = {.dilation = conv->dilation[2], .y_row = apart * conv->result[2]};
    int64_t done = 0;
    for (int64_t start = first; start < lesser(first + apart, end); start++)
        for (int64_t row = start; row < end; row += BLOCK_LINES * apart) {
            find_lines(conv, channel, row, &block);
            block.rows = (int)lesser(BLOCK_LINES, ceil_div(end - row, apart));
            for (int64_t i = 0; i < strips->count; i++) {
                const Strip *strip = &strips->strips[i];
                block.strip = strip;
                block.column = strip->first * stride - conv->before[2];
                block.place = row * conv->result[2] + strip->first;
                make(&block, context);
                if (is_stopped_after(conv->window * BLOCK_LINES * STRIP_VECTORS, &done)) return;
            }
        }
}
