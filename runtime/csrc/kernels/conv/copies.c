#include "copies.h"

#include <stdlib.h>

static bool make_masks(Copies *copies) {
    const Conv *conv = copies->conv;
    const int64_t width = conv->result[2], vectors = ceil_div(copies->floats, LANES);
    if (conv->stride[1] != 1 || conv->stride[2] != 1 || conv->size[2] != width || !conv->contiguous)
        return true;
    copies->masks = aligned_alloc(64, (size_t)padded(conv->taps[2] * vectors * VECTOR_BYTES, 64));
    for (int64_t i = 0; copies->masks && i < conv->taps[2] * vectors * LANES; i++) {
        const int64_t tap = i / (vectors * LANES), place = i % (vectors * LANES);
        const int64_t row = place / width - conv->before[1];
        const int64_t column = place % width + tap * conv->dilation[2] - conv->before[2];
        const bool inside = row >= 0 && row < conv->size[1] && column >= 0 &&
                            column < conv->size[2];
        copies->masks[i / LANES][i % LANES] = inside ? -1 : 0;
    }
    return copies->masks != NULL;
}

static const float *end_of(const Copies *copies) { return copies->conv->x + copies->length; }

bool ISA(prepare_copies)(Copies *copies, const Conv *conv) {
    *copies = (Copies){.conv = conv, .floats = conv->stride[1] * conv->phase[1] * conv->result[2]};
    const int64_t channels = conv->batch * conv->groups * conv->in;
    copies->length = conv->contiguous ? channels * conv->size[1] * conv->size[2] : 0;
    const bool plane = conv->size[0] == 1 && conv->taps[0] == 1 && conv->result[0] == 1;
    return plane && conv->before[0] == 0 && make_masks(copies);
}

void ISA(free_copies)(Copies *copies) { free(copies->masks); }

int64_t ISA(copied_offset)(const Copies *copies, int64_t channels, int64_t channel, int64_t tap) {
    const Conv *conv = copies->conv;
    const int64_t row = tap / conv->taps[2] * conv->dilation[1];
    const int64_t line = row % conv->stride[1] * conv->phase[1] + row / conv->stride[1];
    return (tap % conv->taps[2] * channels + channel) * copies->floats + line * conv->result[2];
}

// Columns first .. end - 1 of a line of the result read elements from `source` on with one tap of the
// last axis, and the others what lies outside.
typedef struct { int64_t first, end, source; } Columns;

static Columns columns_of(const Conv *conv, int64_t tap) {
    const int64_t stride = conv->stride[2], shift = tap * conv->dilation[2] - conv->before[2];
    int64_t first = shift < 0 ? ceil_div(-shift, stride) : 0;
    int64_t end = conv->size[2] > shift ? ceil_div(conv->size[2] - shift, stride) : 0;
    if (first > conv->result[2]) first = conv->result[2];
    if (end > conv->result[2]) end = conv->result[2];
    if (end < first) end = first;
    return (Columns){first, end, first * stride + shift};
}

// Few floats, mostly; the value is no constant, so that no call of memset comes out of it.
static inline void fill(float *to, int64_t count, float value) {
    for (; count >= LANES; count -= LANES, to += LANES) store(to, all_of(value));
    for (int64_t i = 0; i < count; i++) to[i] = value;
}

// Any convolution: line by line.
static void copy_lines(const Copies *copies, const float *channel, Columns columns, float *to) {
    const Conv *conv = copies->conv;
    const int64_t hop = conv->stride[2] * conv->x_axis[2], width = conv->result[2];
    const int64_t count = columns.end - columns.first;
    const float *end = end_of(copies);
    for (int64_t phase = 0; phase < conv->stride[1]; phase++)
        for (int64_t i = 0; i < conv->phase[1]; i++, to += width) {
            const int64_t row = i * conv->stride[1] + phase - conv->before[1];
            if (row < 0 || row >= conv->size[1]) {
                fill(to, width, conv->outside);
                continue;
            }
            const float *from = channel + row * conv->x_axis[1] + columns.source * conv->x_axis[2];
            fill(to, columns.first, conv->outside);
            int64_t j = 0;
            if (hop == 1) {
                copy_floats(to + columns.first, from, count);
                j = count;
            }
            for (; hop == 2 && j < count && from + 2 * (j + LANES) <= end; j += LANES)
                store(
                    to + columns.first + j,
                    even_of(load(from + 2 * j), load(from + 2 * j + LANES)));
            for (; j < count; j++) to[columns.first + j] = from[j * hop];
            fill(to + columns.end, width - columns.end, conv->outside);
        }
}

// All channels for one tap, if lines of the result are as long as those of the input, which lie one
// behind the other: whole images with what is outside masked.
static void copy_masked(
    const Copies *copies, const float *image, int64_t channels, int64_t tap, float *to) {
    const Conv *conv = copies->conv;
    const Mask *masks = copies->masks + tap * ceil_div(copies->floats, LANES);
    const int64_t width = conv->result[2], shift = tap * conv->dilation[2] - conv->before[2];
    const int64_t before = shift - conv->before[1] * width,
                  after = padded(copies->floats, LANES) + before;
    const Columns columns = columns_of(conv, tap);
    const float *end = end_of(copies);
    for (int64_t c = 0; c < channels; c++, image += conv->x_channel, to += copies->floats) {
        if (image + before < conv->x || image + after > end) {
            copy_lines(copies, image, columns, to);
            continue;
        }
        for (int64_t i = 0; i < copies->floats; i += LANES) {
            const Mask found = (Mask)load(image + before + i) & masks[i / LANES];
            store(to + i, (Floats)found);
        }
    }
}

// What stores write beyond the end of a channel is overwritten by the next one.  Vectors of pixels read
// beyond the last one, and must not find subnormal numbers there, which are slow.
void ISA(copy_channels)(const Copies *copies, const float *image, int64_t channels, float *to) {
    const Conv *conv = copies->conv;
    for (int64_t tap = 0; tap < conv->taps[2]; tap++, to += channels * copies->floats) {
        if (copies->masks) {
            copy_masked(copies, image, channels, tap, to);
            continue;
        }
        const Columns columns = columns_of(conv, tap);
        for (int64_t c = 0; c < channels; c++)
            copy_lines(copies, image + c * conv->x_channel, columns, to + c * copies->floats);
    }
    store(to, (Floats){0});
}
