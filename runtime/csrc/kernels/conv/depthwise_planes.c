#include "depthwise_planes.h"

#include "limits.h"

typedef struct {
    const float *weights;
    float bias;
    Limits limits;
    const float *residual;  // of the channel, like the result
    float *y;
} Channel;

// A vector that compilers would otherwise make anew wherever it is used.
INLINE Floats once(Floats values) {
#if defined(__AVX512F__)
    __asm__("" : "+v"(values));
#endif
    return values;
}

INLINE void end_block(
    const Block *block, const Channel *channel, const int V, const bool whole,
    Floats totals[BLOCK_LINES][STRIP_VECTORS]) {
    const Floats low = all_of(channel->limits.low), high = all_of(channel->limits.high);
    UNROLLED_FOR (int r = 0; r < BLOCK_LINES; r++) {
        if (r == block->rows) return;
        const int64_t place = block->place + r * block->y_row;
        UNROLLED_FOR (int v = 0; v < V; v++) {
            const int64_t at = place + v * LANES, count = block->strip->count - v * LANES;
            Floats total = totals[r][v];
            if (channel->residual)
                total += whole ? load(channel->residual + at)
                               : load_some(channel->residual + at, count);
            total = channel->limits.swishes ? hard_swish_of(total) : within(total, low, high);
            if (whole || count >= LANES)
                store(channel->y + at, total);
            else
                store_some(channel->y + at, total, count);
        }
    }
}

INLINE void make_block(const Block *block, const Channel *channel, const Form form) {
    const int K = form.taps, S = form.stride, V = form.vectors;
    const float *weights = channel->weights;
    const bool few = K == 3 && LANES == 16;  // they stay in registers
    Floats held[9];
    UNROLLED_FOR (int i = 0; i < 9 && few; i++) held[i] = once(all_of(weights[i]));
    Floats totals[BLOCK_LINES][STRIP_VECTORS];
    UNROLLED_FOR (int r = 0; r < BLOCK_LINES; r++)
        UNROLLED_FOR (int v = 0; v < V; v++) totals[r][v] = all_of(channel->bias);
    UNROLLED_FOR (int i = 0; i < (BLOCK_LINES - 1) * S + K; i++) {
        if (!block->lines[i]) continue;
        const float *line = block->lines[i] + block->column;
        const Cells cells = read_cells(block, form, line);
        UNROLLED_FOR (int k = 0; k < K; k++) {
            Floats parts[STRIP_VECTORS];
            UNROLLED_FOR (int v = 0; v < V; v++) parts[v] = tap_of(block, form, line, &cells, k, v);
            UNROLLED_FOR (int r = 0; r < BLOCK_LINES; r++) {
                const int tap = i - r * S;  // of the window that has the line
                if (tap < 0 || tap >= K) continue;
                const int at = tap * K + k;
                const Floats weight = few ? held[at] : all_of(weights[at]);
                UNROLLED_FOR (int v = 0; v < V; v++) totals[r][v] += weight * parts[v];
            }
        }
    }
    end_block(block, channel, V, form.how == WHOLE, totals);
}

#define PART(NAME, ...)                                                                      \
    static __attribute__((noinline)) void NAME(const Block *block, const Channel *channel) { \
        make_block(block, channel, (Form){__VA_ARGS__, 0});                                  \
    }
#define BLOCKS(K, S)                                                 \
    PART(whole_##K##_##S, K, S, 2, WHOLE)                            \
    PART(narrow_##K##_##S, K, S, 1, CUT)                             \
    PART(cut_##K##_##S, K, S, 2, CUT)                                \
    static void block_##K##_##S(const Block *block, void *context) { \
        const Strip *strip = block->strip;                           \
        if (strip->whole)                                            \
            whole_##K##_##S(block, context);                         \
        else if (strip->vectors > 1)                                 \
            cut_##K##_##S(block, context);                           \
        else                                                         \
            narrow_##K##_##S(block, context);                        \
    }
#define DILATED_BLOCKS(K)                                                               \
    PART(dilated_narrow_##K, K, 1, 1, DILATED)                                          \
    PART(dilated_##K, K, 1, 2, DILATED)                                                 \
    static void dilated_block_##K(const Block *block, void *context) {                  \
        (block->strip->vectors > 1 ? dilated_##K : dilated_narrow_##K)(block, context); \
    }

BLOCKS(3, 1)
BLOCKS(3, 2)
BLOCKS(5, 1)
BLOCKS(5, 2)
BLOCKS(7, 1)
BLOCKS(7, 2)
DILATED_BLOCKS(3)
DILATED_BLOCKS(5)
DILATED_BLOCKS(7)

bool ISA(has_depthwise_planes)(const Conv *conv) {
    return conv->taps[2] % 2 == 1 && ISA(has_planes)(conv);
}

void ISA(convolve_band)(
    const Strips *strips, int64_t channel, int64_t number, int64_t first, int64_t end) {
    static const BlockFn MAKE[][MOST_STRIDE + 1] = {
        {dilated_block_3, block_3_1, block_3_2},
        {dilated_block_5, block_5_1, block_5_2},
        {dilated_block_7, block_7_1, block_7_2}};
    const Conv *conv = strips->conv;
    const Epilogue *epilogue = &conv->epilogue;
    const int64_t source = channel / conv->out;  // several outputs may have one input
    const float *x = conv->x + source / conv->groups * conv->x_batch +
                     source % conv->groups * conv->x_channel;
    const float bias = epilogue->row_bias ? epilogue->row_bias[number] : 0;
    Channel work = {
        conv->w + number * conv->window, bias, limits_of(epilogue), NULL,
        conv->y + channel * conv->pixels};
    if (epilogue->residual) work.residual = epilogue->residual + channel * conv->pixels;
    const int64_t kind = conv->dilation[2] > 1 ? 0 : conv->stride[2];
    ISA(for_blocks)(strips, x, first, end, MAKE[conv->taps[2] / 2 - 1][kind], &work);
    if (!work.limits.activation) return;
    activate(epilogue, work.y + first * conv->result[2], (end - first) * conv->result[2]);
}
