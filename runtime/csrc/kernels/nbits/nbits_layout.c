// Where the parts of a matrix of few bits lie, and zero points in the order in which they are read.
#include <stdlib.h>

#include "../matmul/gemm.h"
#include "nbits.h"

enum { BLOCK_STEP = 16 };  // what blocks are multiples of: whole words

bool ISA(lay_out_bits)(
    PackedBits *bits, const Tensor *numbers, const Tensor *scales, int64_t rows, int64_t k,
    int64_t width, int64_t block) {
    if (width != 2 && width != 4 && width != 8) return false;
    if (block < BLOCK_STEP || block > MOST_BYTES || block % BLOCK_STEP) return false;
    const int64_t blocks = ceil_div(k, block);
    int64_t count, bytes;
    if (__builtin_mul_overflow(rows, blocks, &count) ||
        __builtin_mul_overflow(count, block / 8 * width, &bytes))
        return false;
    *bits = (PackedBits){
        .packed = (const float *)numbers->data,
        .scales = (const float *)scales->data,
        .rows = rows,
        .k = k,
        .blocks = blocks,
        .block = block,
        .words = blocks * (block / 32 * width + block % 32 * width / 32),
        .width = (int)width,
    };
    return holds(numbers, U8, bytes) && (intptr_t)numbers->data % 4 == 0 &&
           holds(scales, F32, count);
}

static bool zeros_fit(const PackedBits *bits, const Tensor *zero) {
    const int64_t row_bytes = ceil_div(bits->blocks * bits->width, 8);
    return zero->constant &&
           (holds(zero, F32, bits->rows * bits->blocks) || holds(zero, U8, bits->rows * row_bytes));
}

bool ISA(pack_zeros)(PackedBits *bits, const Tensor *zero, bool in_panels, void **memory) {
    if (!zeros_fit(bits, zero)) return false;
    const int64_t panels = ceil_div(bits->rows, PANEL_COLUMNS), count = panels * bits->blocks;
    const bool floats = zero->dtype == F32;
    const size_t size = floats ? sizeof(float) : 1;
    char *offsets = *memory = calloc((size_t)(count * PANEL_COLUMNS + LANES), size);
    if (!offsets) return false;
    const int64_t row_bytes = ceil_div(bits->blocks * bits->width, 8);
    const int middle = 1 << (bits->width - 1), mask = 2 * middle - 1;
    for (int64_t row = 0; row < bits->rows; row++) {
        for (int64_t block = 0; block < bits->blocks; block++) {
            const int64_t panel = row / PANEL_COLUMNS * bits->blocks + block;
            const int64_t to = in_panels ? panel * PANEL_COLUMNS + row % PANEL_COLUMNS
                                         : row * bits->blocks + block;
            const int64_t place = block * bits->width;
            if (floats) {
                const float value = ((const float *)zero->data)[row * bits->blocks + block];
                ((float *)offsets)[to] = value - (float)middle;
            } else {
                const uint8_t byte = (uint8_t)zero->data[row * row_bytes + place / 8];
                offsets[to] = (char)((byte >> place % 8 & mask) - middle);
            }
        }
    }
    if (floats)
        bits->float_offsets = (const float *)offsets;
    else
        bits->offsets = (const int8_t *)offsets;
    return true;
}
