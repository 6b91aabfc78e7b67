// What a line of the input holds under windows is found once for all results that lie over it.
#include "pool_planes.h"

#include <math.h>

#include "../support/undefined.h"

typedef struct {
    const float *factors;
    float *y;
} Target;

typedef enum { SUM, FAST_MAXIMUM, MAXIMUM } Kind;

INLINE Floats joined(Floats a, Floats b, const Kind kind) {
    return kind == SUM ? a + b : larger_one(a, b, kind == MAXIMUM);
}

INLINE void end_block(
    const Block *block, const Target *target, const Form form,
    Floats totals[BLOCK_LINES][STRIP_VECTORS]) {
    UNROLLED_FOR (int r = 0; r < BLOCK_LINES; r++) {
        if (r == block->rows) return;
        const int64_t place = block->place + r * block->y_row;
        UNROLLED_FOR (int v = 0; v < form.vectors; v++) {
            const int64_t at = place + v * LANES, count = block->strip->count - v * LANES;
            Floats total = totals[r][v];
            if (target->factors) total *= load_some(target->factors + at, count);
            if (form.how == WHOLE || count >= LANES)
                store(target->y + at, total);
            else
                store_some(target->y + at, total, count);
        }
    }
}

// Whether the block has to be made with care.
INLINE bool make_block(const Block *block, const Target *target, const Form form, const Kind kind) {
    const int K = form.taps, S = form.stride, V = form.vectors;
    Floats totals[BLOCK_LINES][STRIP_VECTORS];
    Marks marks = undefined_of((Floats){0}, (Floats){0});
    UNROLLED_FOR (int r = 0; r < BLOCK_LINES; r++)
        UNROLLED_FOR (int v = 0; v < V; v++) totals[r][v] = all_of(form.outside);
    UNROLLED_FOR (int i = 0; i < (BLOCK_LINES - 1) * S + K; i++) {
        if (!block->lines[i]) continue;
        const float *line = block->lines[i] + block->column;
        const Cells cells = read_cells(block, form, line);
        UNROLLED_FOR (int v = 0; v < V; v++) {
            Floats under = tap_of(block, form, line, &cells, 0, v), last = under;
            UNROLLED_FOR (int k = 1; k < K; k++) {
                const Floats part = tap_of(block, form, line, &cells, k, v);
                if (kind == FAST_MAXIMUM && (k % 2 || k == K - 1))
                    marks |= undefined_of(last, part);
                under = joined(under, part, kind);
                last = part;
            }
            UNROLLED_FOR (int r = 0; r < BLOCK_LINES; r++) {
                const int tap = i - r * S;  // of the window that has the line
                if (tap >= 0 && tap < K) totals[r][v] = joined(totals[r][v], under, kind);
            }
        }
    }
    if (kind == FAST_MAXIMUM && is_marked(marks)) return true;
    end_block(block, target, form, totals);
    return false;
}

#define PART(NAME, KIND, ...)                                                              \
    static __attribute__((noinline)) bool NAME(const Block *block, const Target *target) { \
        return make_block(block, target, (Form){__VA_ARGS__}, KIND);                       \
    }
#define FORMS(NAME, KIND, K, S, OUTSIDE)                                      \
    PART(whole_##NAME##_##K##_##S, KIND, K, S, 2, WHOLE, OUTSIDE)             \
    PART(cut_##NAME##_##K##_##S, KIND, K, S, 2, CUT, OUTSIDE)                 \
    PART(narrow_##NAME##_##K##_##S, KIND, K, S, 1, CUT, OUTSIDE)              \
    INLINE bool NAME##_##K##_##S(const Block *block, const Target *target) {  \
        const Strip *strip = block->strip;                                    \
        if (strip->whole) return whole_##NAME##_##K##_##S(block, target);     \
        if (strip->vectors > 1) return cut_##NAME##_##K##_##S(block, target); \
        return narrow_##NAME##_##K##_##S(block, target);                      \
    }
#define BLOCKS(K, S)                                                           \
    FORMS(sum, SUM, K, S, 0)                                                   \
    FORMS(fast, FAST_MAXIMUM, K, S, -INFINITY)                                 \
    FORMS(maximum, MAXIMUM, K, S, -INFINITY)                                   \
    static void sums_##K##_##S(const Block *block, void *context) {            \
        sum_##K##_##S(block, context);                                         \
    }                                                                          \
    static void maxima_##K##_##S(const Block *block, void *context) {          \
        if (fast_##K##_##S(block, context)) maximum_##K##_##S(block, context); \
    }

BLOCKS(2, 1)
BLOCKS(2, 2)
BLOCKS(3, 1)
BLOCKS(3, 2)
BLOCKS(5, 1)
BLOCKS(5, 2)

// Of sums and maxima, and of strides 1 and 2.
static const BlockFn OF_2[2][2] = {{sums_2_1, sums_2_2}, {maxima_2_1, maxima_2_2}};
static const BlockFn OF_3[2][2] = {{sums_3_1, sums_3_2}, {maxima_3_1, maxima_3_2}};
static const BlockFn OF_5[2][2] = {{sums_5_1, sums_5_2}, {maxima_5_1, maxima_5_2}};

bool ISA(has_pool_planes)(const Conv *conv) {
    const int64_t taps = conv->taps[2];
    return (taps == 2 || taps == 3 || taps == 5) && conv->dilation[1] == 1 &&
           conv->dilation[2] == 1 && ISA(has_planes)(conv);
}

void ISA(pool_band)(
    const Strips *strips, bool maximum, const float *factors, int64_t channel, int64_t first,
    int64_t end) {
    const Conv *conv = strips->conv;
    const int64_t taps = conv->taps[2];
    const float *x = conv->x + channel / conv->groups * conv->x_batch +
                     channel % conv->groups * conv->x_channel;
    Target target = {factors, conv->y + channel * conv->pixels};
    const BlockFn(*make)[2] = taps == 2 ? OF_2 : taps == 3 ? OF_3 : OF_5;
    const Makers makers = {make[maximum][conv->stride[2] - 1], NULL};
    ISA(for_blocks)(strips, x, first, end, makers, &target);
}
