// Rows of floats that become bytes, in the order in which they meet numbers of few bits.
#include <float.h>

#include "../support/sizes.h"
#include "nbits_bytes.h"

enum { RANGE = 127 };  // of the rounded numbers, to both sides

typedef struct { float step, inverse; } Rounding;

// The largest number of a block becomes RANGE.  A block whose steps are too small for a reciprocal
// becomes zero.  Without its sign, what is no number is larger than all others as an integer, too.
static Rounding rounding_of(const float *left, int64_t count) {
    uint32_t most = 0;
    for (int64_t i = 0; i < count; i++) {
        uint32_t number;
        memcpy(&number, left + i, sizeof(number));
        number &= INT32_MAX;
        most = number > most ? number : most;
    }
    float largest;
    memcpy(&largest, &most, sizeof(largest));
    const float inverse = (float)RANGE / largest;
    return (Rounding){largest / RANGE, inverse <= FLT_MAX ? inverse : 0};
}

// The sum of the numbers, which go to `to`.  What is no number becomes zero here; its step is none.
static int32_t round_block(const float *left, int64_t count, float inverse, int8_t *to) {
    int32_t sum = 0;
    for (int64_t i = 0; i < count; i++) {
        const float steps = __builtin_rintf(left[i] * inverse);
        const int32_t number = steps >= -RANGE && steps <= RANGE ? (int32_t)steps : 0;
        to[i] = (int8_t)number;
        sum += number;
    }
    return sum;
}

void ISA(round_floats)(const PackedBits *bits, const float *left, float *to) {
    for (int64_t first = 0; first < bits->k; first += bits->block) {
        const int64_t count = lesser(bits->block, bits->k - first);
        const Rounding by = rounding_of(left + first, count);
        for (int64_t i = first; i < first + count; i++)
            to[i] = __builtin_rintf(left[i] * by.inverse) * by.step;
    }
}

static int planes_of(const PackedBits *bits) { return 8 / bits->width; }

static int64_t vectors_of(const PackedBits *bits) { return ceil_div(bits->words, LANES); }

// Bytes of what meets a vector of numbers: planes of bytes, their sums and scales.
static int64_t line_of(const PackedBits *bits) { return (planes_of(bits) + 2) * VECTOR_BYTES; }

int64_t ISA(rounded_bytes)(const PackedBits *bits) {
    const int64_t sums = padded(bits->blocks, LANES) * (int64_t)sizeof(float);
    return vectors_of(bits) * line_of(bits) + sums;
}

int64_t ISA(rounding_bytes)(const PackedBits *bits) {
    return vectors_of(bits) * VECTOR_BYTES * planes_of(bits) +
           bits->blocks * (int64_t)sizeof(float);
}

// A line from the numbers of its words, which are those of lanes.
INLINE void weave_line(
    const PackedBits *bits, const int8_t *numbers, const float *steps, int64_t first_word, char *to,
    const int planes) {
    const int shift = block_shift(bits);
    for (int j = 0; j < VECTOR_BYTES; j++)
        for (int p = 0; p < planes; p++) to[p * VECTOR_BYTES + j] = numbers[j * planes + p];
    int32_t sums[LANES];
    float scales[LANES];
    for (int lane = 0; lane < LANES; lane++) {
        int32_t sum = 0;
        for (int i = 0; i < 4 * planes; i++) sum += numbers[lane * 4 * planes + i];
        sums[lane] = -sum * (1 << (8 / planes - 1));
        const int64_t block = (first_word + lane) >> shift;
        scales[lane] = block < bits->blocks ? steps[block] : 0;
    }
    memcpy(to + planes * VECTOR_BYTES, sums, sizeof(sums));
    memcpy(to + (planes + 1) * VECTOR_BYTES, scales, sizeof(scales));
}

void ISA(round_bytes)(const PackedBits *bits, const float *left, char *scratch, char *to) {
    const int planes = planes_of(bits);
    const int64_t vectors = vectors_of(bits), count = vectors * VECTOR_BYTES * planes;
    const int64_t line = line_of(bits);
    int8_t *const numbers = (int8_t *)scratch;
    float *const steps = (float *)(scratch + count), *const sums = (float *)(to + vectors * line);
    memset(sums, 0, (size_t)padded(bits->blocks, LANES) * sizeof(float));
    memset(numbers + bits->k, 0, (size_t)(count - bits->k));
    for (int64_t block = 0; block < bits->blocks; block++) {
        const int64_t first = block * bits->block, some = lesser(bits->block, bits->k - first);
        const Rounding by = rounding_of(left + first, some);
        const int32_t sum = round_block(left + first, some, by.inverse, numbers + first);
        steps[block] = by.step;
        sums[block] = by.step * (float)sum;
    }
    for (int64_t v = 0; v < vectors; v++) {
        const int8_t *from = numbers + v * VECTOR_BYTES * planes;
        switch (planes) {
            case 1: weave_line(bits, from, steps, v * LANES, to + v * line, 1); break;
            case 2: weave_line(bits, from, steps, v * LANES, to + v * line, 2); break;
            default: weave_line(bits, from, steps, v * LANES, to + v * line, 4);
        }
    }
}
