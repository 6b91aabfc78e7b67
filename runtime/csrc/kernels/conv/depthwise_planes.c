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
    const Block *block, const Channel *channel, const int V, const bool whole, const int R,
    Floats totals[TALL_LINES][STRIP_VECTORS]) {
    const Floats low = all_of(channel->limits.low), high = all_of(channel->limits.high);
    UNROLLED_FOR (int r = 0; r < R; r++) {
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

// Sums of a strip of one vector are two each, of the even and of the odd taps of a line: a sum waits for
// the one before.
INLINE void make_block(const Block *block, const Channel *channel, const int R, const Form form) {
    const int K = form.taps, S = form.stride, V = form.vectors;
    const float *weights = channel->weights;
    const bool few = K == 3 && LANES == 16;  // they stay in registers
    Floats held[9];
    UNROLLED_FOR (int i = 0; i < 9 && few; i++) held[i] = once(all_of(weights[i]));
    Floats totals[TALL_LINES][STRIP_VECTORS];
    UNROLLED_FOR (int r = 0; r < R; r++)
        UNROLLED_FOR (int v = 0; v < STRIP_VECTORS; v++)
            totals[r][v] = all_of(v < V ? channel->bias : 0);
    UNROLLED_FOR (int i = 0; i < (R - 1) * S + K; i++) {
        if (!block->lines[i]) continue;
        const float *line = block->lines[i] + block->column;
        const Cells cells = read_cells(block, form, line);
        UNROLLED_FOR (int k = 0; k < K; k++) {
            Floats parts[STRIP_VECTORS];
            UNROLLED_FOR (int v = 0; v < V; v++) parts[v] = tap_of(block, form, line, &cells, k, v);
            UNROLLED_FOR (int r = 0; r < R; r++) {
                const int tap = i - r * S;  // of the window that has the line
                if (tap < 0 || tap >= K) continue;
                const int at = tap * K + k;
                const Floats weight = few ? held[at] : all_of(weights[at]);
                UNROLLED_FOR (int v = 0; v < V; v++)
                    totals[r][V > 1 ? v : k % 2] += weight * parts[v];
            }
        }
    }
    UNROLLED_FOR (int r = 0; r < R && V == 1; r++) totals[r][0] += totals[r][1];
    end_block(block, channel, V, form.how == WHOLE, R, totals);
}

#if defined(__AVX512F__)
// Of a strip that fills half a vector at most: products of half vectors take half as long.
INLINE void make_half_block(const Block *block, const Channel *channel, const int R, const int K) {
    const float *weights = channel->weights;
    __m256 totals[TALL_LINES][2];
    UNROLLED_FOR (int r = 0; r < R; r++) {
        totals[r][0] = _mm256_set1_ps(channel->bias);
        totals[r][1] = _mm256_setzero_ps();
    }
    UNROLLED_FOR (int i = 0; i < R - 1 + K; i++) {
        if (!block->lines[i]) continue;
        const float *line = block->lines[i] + block->column;
        const __m512 cells = (__m512)load_lanes(line, block->strip->lanes[0], all_of(0));
        const __m256i low = _mm256_castps_si256(_mm512_castps512_ps256(cells));
        const __m256i high = _mm256_castps_si256(_mm512_extractf32x8_ps(cells, 1));
        UNROLLED_FOR (int k = 0; k < K; k++) {
            const __m256 part = half_shifted(low, high, k);
            UNROLLED_FOR (int r = 0; r < R; r++)
                if (i - r >= 0 && i - r < K)
                    totals[r][k % 2] = _mm256_fmadd_ps(
                        _mm256_set1_ps(weights[(i - r) * K + k]), part, totals[r][k % 2]);
        }
    }
    Floats whole[TALL_LINES][STRIP_VECTORS];
    UNROLLED_FOR (int r = 0; r < R; r++)
        whole[r][0] = (Floats)_mm512_zextps256_ps512(totals[r][0] + totals[r][1]);
    end_block(block, channel, 1, false, R, whole);
}
#endif

#define PART(NAME, R, ...)                                                                   \
    static __attribute__((noinline)) void NAME(const Block *block, const Channel *channel) { \
        make_block(block, channel, R, (Form){__VA_ARGS__, 0});                               \
    }
#define FORMS_OF(NAME, R, K, S)                                   \
    PART(whole_##NAME, R, K, S, 2, WHOLE)                         \
    PART(narrow_##NAME, R, K, S, 1, CUT)                          \
    PART(cut_##NAME, R, K, S, 2, CUT)                             \
    static void block_##NAME(const Block *block, void *context) { \
        const Strip *strip = block->strip;                        \
        if (strip->whole)                                         \
            whole_##NAME(block, context);                         \
        else if (strip->vectors > 1)                              \
            cut_##NAME(block, context);                           \
        else if (S == 1 && 2 * strip->count <= LANES)             \
            HALF(NAME)(block, context);                           \
        else                                                      \
            narrow_##NAME(block, context);                        \
    }
#define BLOCKS(K, S) FORMS_OF(K##_##S, BLOCK_LINES, K, S)
#define DILATED_BLOCKS(K)                                                               \
    PART(dilated_narrow_##K, BLOCK_LINES, K, 1, 1, DILATED)                             \
    PART(dilated_##K, BLOCK_LINES, K, 1, 2, DILATED)                                    \
    static void dilated_block_##K(const Block *block, void *context) {                  \
        (block->strip->vectors > 1 ? dilated_##K : dilated_narrow_##K)(block, context); \
    }
#if defined(__AVX512F__)
#define HALF(NAME) half_##NAME
#define HALF_BLOCK(NAME, R, K)                         \
    static __attribute__((noinline)) void half_##NAME( \
        const Block *block, const Channel *channel) {  \
        make_half_block(block, channel, R, K);         \
    }
HALF_BLOCK(3_1, BLOCK_LINES, 3)
HALF_BLOCK(5_1, BLOCK_LINES, 5)
HALF_BLOCK(7_1, BLOCK_LINES, 7)
HALF_BLOCK(tall_5, TALL_LINES, 5)
HALF_BLOCK(tall_7, TALL_LINES, 7)
#define half_3_2 narrow_3_2
#define half_5_2 narrow_5_2
#define half_7_2 narrow_7_2
FORMS_OF(tall_5, TALL_LINES, 5, 1)
FORMS_OF(tall_7, TALL_LINES, 7, 1)
static const BlockFn TALL[] = {NULL, block_tall_5, block_tall_7};
#else
#define HALF(NAME) narrow_##NAME
static const BlockFn TALL[] = {NULL, NULL, NULL};
#endif

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
    const int64_t taps = conv->taps[2] / 2 - 1;
    const Makers makers = {MAKE[taps][kind], kind == 1 ? TALL[taps] : NULL};
    ISA(for_blocks)(strips, x, first, end, makers, &work);
    if (!work.limits.activation) return;
    activate(epilogue, work.y + first * conv->result[2], (end - first) * conv->result[2]);
}
