// Maxima of channels-last windows, a row of results at a time: first over the lines under the windows,
// column by column, and then over columns.
#include <math.h>

#include "../support/undefined.h"
#include "channels_last.h"

enum {
    MOST_LINES = 64,  // under a window
    VECTORS = LANES > 8 ? 2 : 4,  // of channels, that go by together
};

bool ISA(has_maxima)(const Conv *conv) {
    const Epilogue *epilogue = &conv->epilogue;
    return conv->groups >= LANES && conv->taps[0] * conv->taps[1] <= MOST_LINES &&
           !epilogue->row_bias && !epilogue->residual && !epilogue->relu && !epilogue->activation;
}

int64_t ISA(maxima_bytes)(const Conv *conv) {
    return conv->size[2] * VECTORS * LANES * (int64_t)sizeof(float);
}

// A block of `V` vectors of channels of a row.
typedef struct {
    const Conv *conv;
    const float *lines[MOST_LINES];  // those inside of the input, from the block on
    int count;
    int64_t columns;  // that windows read
    float *largest;  // of each column: [column][V][LANES]
    float *y;
} Block;

// Maxima over `L` lines, or all of them.  Whether there is anything undefined.
INLINE bool over_lines(const Block *block, const int V, const int L, const bool careful) {
    const int64_t step = block->conv->x_axis[2];
    const int count = L ? L : block->count;
    Marks marks = undefined_of((Floats){0}, (Floats){0});
    for (int64_t column = 0; column < block->columns; column++) {
        float *to = block->largest + column * V * LANES;
        for (int v = 0; v < V; v++) {
            const int64_t at = column * step + v * LANES;
            Floats total = count ? load(block->lines[0] + at) : all_of(-INFINITY);
            if (!careful && count == 1) marks |= undefined_of(total, total);
            for (int line = 1; line < count; line++) {
                const Floats part = load(block->lines[line] + at);
                if (!careful) marks |= undefined_of(line == 1 ? total : part, part);
                total = larger_one(total, part, careful);
            }
            store(to + v * LANES, total);
        }
    }
    return is_marked(marks);
}

// Maxima over `K` columns, or as many as a window has inside of the input.
INLINE void over_columns(
    const Block *block, int64_t result, const int V, const int K, const bool careful) {
    const Conv *conv = block->conv;
    const int64_t begin = result * conv->stride[2] - conv->before[2], step = conv->dilation[2];
    const int64_t taps = K ? K : conv->taps[2];
    float *y = block->y + result * conv->y_axis[2];
    Floats totals[VECTORS];
    for (int v = 0; v < V; v++) totals[v] = all_of(-INFINITY);
    for (int64_t tap = 0; tap < taps; tap++) {
        const int64_t column = begin + tap * step;
        if (!K && (column < 0 || column >= conv->size[2])) continue;
        const float *from = block->largest + column * V * LANES;
        for (int v = 0; v < V; v++)
            totals[v] = larger_one(totals[v], load(from + v * LANES), careful);
    }
    for (int v = 0; v < V; v++) store(y + v * LANES, totals[v]);
}

INLINE void results_of(const Block *block, const int V, const int K, const bool careful) {
    const Conv *conv = block->conv;
    const int64_t reach = (conv->taps[2] - 1) * conv->dilation[2];
    for (int64_t result = 0; result < conv->result[2]; result++) {
        const int64_t begin = result * conv->stride[2] - conv->before[2];
        if (K && begin >= 0 && begin + reach < conv->size[2])
            over_columns(block, result, V, K, careful);
        else
            over_columns(block, result, V, 0, careful);
    }
}

// The usual numbers of lines and columns are constants.
INLINE void make_block(const Block *block, const int V) {
    const int64_t taps = block->conv->taps[2];
    bool careful;
    if (block->count == 2)
        careful = over_lines(block, V, 2, false);
    else if (block->count == 3)
        careful = over_lines(block, V, 3, false);
    else
        careful = over_lines(block, V, 0, false);
    if (careful) {
        over_lines(block, V, 0, true);
        results_of(block, V, 0, true);
    } else if (taps == 2) {
        results_of(block, V, 2, false);
    } else if (taps == 3) {
        results_of(block, V, 3, false);
    } else {
        results_of(block, V, 0, false);
    }
}

// Lines of a row's windows that lie inside of the input.
static void find_lines(const Conv *conv, int64_t row, Block *block) {
    const int64_t h = row % conv->result[1], rest = row / conv->result[1];
    const int64_t d = rest % conv->result[0], image = rest / conv->result[0];
    const float *from = conv->x + image * conv->x_batch;
    block->y = conv->y + image * conv->y_batch + d * conv->y_axis[0] + h * conv->y_axis[1];
    block->count = 0;
    for (int64_t i = 0; i < conv->taps[0]; i++) {
        const int64_t depth = d * conv->stride[0] - conv->before[0] + i * conv->dilation[0];
        for (int64_t j = 0; j < conv->taps[1]; j++) {
            const int64_t line = h * conv->stride[1] - conv->before[1] + j * conv->dilation[1];
            if (depth < 0 || depth >= conv->size[0] || line < 0 || line >= conv->size[1]) continue;
            block->lines[block->count++] = from + depth * conv->x_axis[0] + line * conv->x_axis[1];
        }
    }
}

static void pass_channels(Block *block, int64_t count) {
    for (int line = 0; line < block->count; line++) block->lines[line] += count;
    block->y += count;
}

void ISA(largest_row)(const Conv *conv, int64_t row, int64_t first, int64_t end, float *scratch) {
    const int64_t last = (conv->result[2] - 1) * conv->stride[2] - conv->before[2] +
                         (conv->taps[2] - 1) * conv->dilation[2];
    Block block = {.conv = conv, .columns = lesser(conv->size[2], last + 1), .largest = scratch};
    find_lines(conv, row, &block);
    pass_channels(&block, first);
    int64_t rest = end - first;
    for (; rest >= VECTORS * LANES; rest -= VECTORS * LANES) {
        make_block(&block, VECTORS);
        pass_channels(&block, VECTORS * LANES);
    }
    while (rest > 0) {  // the last vector reaches back
        if (rest < LANES) pass_channels(&block, rest - LANES);
        make_block(&block, 1);
        pass_channels(&block, LANES);
        rest -= LANES;
    }
}
