// Numbers of 2, 4 or 8 bits that become floats.
#include "nbits.h"

#include <string.h>

#include "../matmul/gemm.h"

enum {
    VECTORS = PANEL_COLUMNS / LANES > 0 ? PANEL_COLUMNS / LANES : 1,  // of a line of a panel
    CHAINS = LANES == 16 ? 4 : 2,  // sums in flight
};
typedef uint32_t Words __attribute__((vector_size(VECTOR_BYTES)));

Turned ISA(turn_bits)(const PackedBits *bits, int64_t first, float *to) {
    const int64_t rest = bits->rows - first, rows = rest < PANEL_COLUMNS ? rest : PANEL_COLUMNS;
    float *const scales = to + bits->words * PANEL_COLUMNS;
    const float *from = bits->packed + first * bits->words;
    ISA(pack_panels)(to, from, bits->words, 1, rows, bits->words, PANEL_COLUMNS);
    ISA(pack_panels)(
        scales, bits->scales + first * bits->blocks, bits->blocks, 1, rows, bits->blocks,
        PANEL_COLUMNS);
    return (Turned){
        to, scales, bits->offsets ? bits->offsets + first * bits->blocks : NULL,
        bits->float_offsets ? bits->float_offsets + first * bits->blocks : NULL,
        from + rows * bits->words};
}

// Numbers less the middle of their range, so that the most significant bit is a sign.
INLINE Words signed_words(const float *from, const int width) {
    const uint32_t signs = width == 8 ? 0x80808080 : width == 4 ? 0x88888888 : 0xAAAAAAAA;
    Words words;
    memcpy(&words, from, sizeof(words));
    return words ^ signs;
}

// Number `place` of each word; `width` and `place` are constants wherever this is called.
INLINE Floats number_of(Words words, const int width, const int place) {
#if VECTOR_BYTES == 64
    if (width < 8) {  // instructions look at four bits of an index
        const Floats four = {0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1};
        const Floats two = {0, 1, -2, -1, 0, 1, -2, -1, 0, 1, -2, -1, 0, 1, -2, -1};
        const Words index = words >> (uint32_t)(place * width);
        return _mm512_permutexvar_ps((__m512i)index, width == 4 ? four : two);
    }
#endif
    const Mask moved = (Mask)(words << (uint32_t)(32 - width - place * width));
    return __builtin_convertvector(moved >> (32 - width), Floats);
}

// Zero points of a block, less the middle of the range.
INLINE Floats offset_of(const Turned *panel, int64_t block, int column) {
    const int64_t place = block * PANEL_COLUMNS + column;
    if (panel->float_offsets) return load(panel->float_offsets + place);
    return floats_of_bytes(panel->offsets + place);
}

// `width` and `shifted` (whether there are zero points) are constants wherever this is called.
INLINE void multiply_row(
    const PackedBits *bits, const Turned *panel, const float *left, const float *sums, float *out,
    const int width, const bool shifted) {
    enum { LINE = 16 };  // words of a line of memory
    const int count = 32 / width;
    const int64_t words = bits->block / count;
    const float *line = panel->words, *next = panel->next;
    Floats totals[VECTORS] = {{0}};
    for (int64_t block = 0; block < bits->blocks; block++) {
        Floats parts[VECTORS][CHAINS];
        UNROLLED_FOR (int v = 0; v < VECTORS; v++)
            UNROLLED_FOR (int c = 0; c < CHAINS; c++) parts[v][c] = (Floats){0};
        for (int64_t word = 0; word < words; word++, line += PANEL_COLUMNS, next += LINE) {
            __builtin_prefetch(next);
            UNROLLED_FOR (int v = 0; v < VECTORS; v++) {
                const Words numbers = signed_words(line + v * LANES, width);
                UNROLLED_FOR (int i = 0; i < count; i++)
                    parts[v][i % CHAINS] += left[i] * number_of(numbers, width, i);
            }
            left += count;
        }
        UNROLLED_FOR (int v = 0; v < VECTORS; v++) {
            Floats part = parts[v][0] + parts[v][1];
            UNROLLED_FOR (int c = 2; c < CHAINS; c += 2) part += parts[v][c] + parts[v][c + 1];
            if (shifted) part -= offset_of(panel, block, v * LANES) * sums[block];
            totals[v] += part * load(panel->scales + block * PANEL_COLUMNS + v * LANES);
        }
    }
    UNROLLED_FOR (int v = 0; v < VECTORS; v++) store(out + v * LANES, totals[v]);
}

// Numbers of one word of each row, those that there are.
INLINE void expand_word(
    const PackedBits *bits, const Turned *panel, int64_t word, float *to, const int width,
    const bool shifted) {
    const int count = 32 / width;
    const int64_t first = word * count;
    UNROLLED_FOR (int v = 0; v < VECTORS; v++) {
        const int column = v * LANES;
        const Words numbers = signed_words(panel->words + word * PANEL_COLUMNS + column, width);
        int64_t block = first / bits->block;
        Floats scale = load(panel->scales + block * PANEL_COLUMNS + column);
        Floats offset = shifted ? offset_of(panel, block, column) : (Floats){0};
        UNROLLED_FOR (int i = 0; i < count; i++) {
            if (first + i >= bits->k) break;
            if (bits->groups) {
                block = bits->groups[first + i];
                scale = load(panel->scales + block * PANEL_COLUMNS + column);
                if (shifted) offset = offset_of(panel, block, column);
            }
            Floats number = number_of(numbers, width, i);
            if (shifted) number -= offset;
            store(to + (first + i) * PANEL_COLUMNS + column, number * scale);
        }
    }
}

INLINE void expand_some(
    const PackedBits *bits, const Turned *panel, float *to, const int width, const bool shifted) {
    for (int64_t word = 0; word * (32 / width) < bits->k; word++)
        expand_word(bits, panel, word, to, width, shifted);
}

// Calls a function for each width, with zero points and without.
#define EACH_WIDTH(FUNCTION, ...)                                \
    const bool shifted = panel->offsets || panel->float_offsets; \
    switch (bits->width + shifted) {                             \
        case 2: FUNCTION(__VA_ARGS__, 2, false); break;          \
        case 3: FUNCTION(__VA_ARGS__, 2, true); break;           \
        case 4: FUNCTION(__VA_ARGS__, 4, false); break;          \
        case 5: FUNCTION(__VA_ARGS__, 4, true); break;           \
        case 8: FUNCTION(__VA_ARGS__, 8, false); break;          \
        default: FUNCTION(__VA_ARGS__, 8, true);                 \
    }

void ISA(multiply_bits)(
    const PackedBits *bits, const Turned *panel, const float *left, const float *sums, float *out) {
    EACH_WIDTH(multiply_row, bits, panel, left, sums, out)
}

void ISA(expand_bits)(const PackedBits *bits, const Turned *panel, float *to) {
    EACH_WIDTH(expand_some, bits, panel, to)
}
