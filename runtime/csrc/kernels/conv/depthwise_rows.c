// Depthwise convolutions of channels-last tensors, a row of results at a time.
//
// A span is a few neighbours in a row, by a vector of channels.  Each vector of the input that lies
// under its windows is read once and multiplied by the weights of all taps that read it.
#include "channels_last.h"
#include "limits.h"

enum {
    FEWEST = 4,  // results of a span
    MOST = 8,  // likewise: sums, weights and a cell have to be in 16 registers
    MOST_ROWS = 7,  // of a window
    MOST_COLUMNS = 5,  // likewise: there is code for 3 and for 5
    MOST_CELLS = (MOST - 1) * 2 + MOST_COLUMNS,  // of the input, under the windows of a span
};

typedef struct {
    const Conv *conv;
    int64_t first, end;  // channels
    int rows;  // of the windows, as far as they lie inside of the input
    const float *weights[MOST_ROWS];
    bool inside;  // all cells of these rows
    const float *lines[MOST_ROWS];  // the first cell of each row
    const float *cells[MOST_ROWS][MOST_CELLS];  // if some lie outside
    Limits limits;
    const float *residual;
    float *y;
} Span;

bool ISA(has_rows)(const Conv *conv) {
    const int64_t stride = conv->stride[2], columns = conv->taps[2];
    return conv->groups >= LANES && conv->taps[0] == 1 && conv->result[0] == 1 &&
           conv->before[0] == 0 && conv->taps[1] <= MOST_ROWS && (columns == 3 || columns == 5) &&
           conv->dilation[2] == 1 && (stride == 1 || stride == 2) && conv->result[2] >= FEWEST;
}

// A vector of channels from `c` on, of which those from `from` on are wanted.
INLINE void make_channels(
    const Span *span, const int K, const int S, const int P, const bool inside, int64_t c,
    int64_t from) {
    const Conv *conv = span->conv;
    const Epilogue *epilogue = &conv->epilogue;
    const int64_t channels = conv->groups, step = conv->x_axis[2];
    Floats totals[MOST];
    const Floats start = epilogue->row_bias ? load(epilogue->row_bias + c) : (Floats){0};
    UNROLLED_FOR (int p = 0; p < P; p++) totals[p] = start;
    for (int row = 0; row < span->rows; row++) {
        Floats weights[MOST_COLUMNS];
        UNROLLED_FOR (int k = 0; k < K; k++)
            weights[k] = load(span->weights[row] + k * channels + c);
        const float *line = span->lines[row] + c;
        UNROLLED_FOR (int cell = 0; cell < (P - 1) * S + K; cell++) {
            const Floats part = load_once(inside ? line + cell * step : span->cells[row][cell] + c);
            UNROLLED_FOR (int k = 0; k < K; k++) {
                const int place = cell - k;  // of the window that has the cell as tap k
                if (place >= 0 && place % S == 0 && place / S < P)
                    totals[place / S] += weights[k] * part;
            }
        }
    }
    const Floats low = all_of(span->limits.low), high = all_of(span->limits.high);
    const bool swishes = span->limits.swishes;
    const int64_t y_step = conv->y_axis[2], residual_step = conv->residual_axis[2];
    const float *residual = span->residual ? span->residual + c : NULL;
    float *y = span->y + c;
    UNROLLED_FOR (int p = 0; p < P; p++) {
        Floats total = totals[p];
        if (residual) total += load(residual + p * residual_step);
        total = swishes ? hard_swish_of(total) : within(total, low, high);
        store_from(y + p * y_step, total, from - c);
    }
}

// The last vector reaches back, but writes nothing twice: the residual may be the result.
INLINE void make_span(const Span *span, const int K, const int S, const int P, const bool inside) {
    int64_t c = span->first;
    for (; c + LANES <= span->end; c += LANES) make_channels(span, K, S, P, inside, c, c);
    if (c < span->end) make_channels(span, K, S, P, inside, span->end - LANES, c);
}

#define SPAN(K, S, P)                                                              \
    static __attribute__((noinline)) void span_##K##_##S##_##P(const Span *span) { \
        if (span->inside)                                                          \
            make_span(span, K, S, P, true);                                        \
        else                                                                       \
            make_span(span, K, S, P, false);                                       \
    }
#define SPANS(K, S) SPAN(K, S, 4) SPAN(K, S, 5) SPAN(K, S, 6) SPAN(K, S, 7) SPAN(K, S, 8)
#define NAMES(K, S)                                                                  \
    {span_##K##_##S##_4, span_##K##_##S##_5, span_##K##_##S##_6, span_##K##_##S##_7, \
     span_##K##_##S##_8}

SPANS(3, 1)
SPANS(3, 2)
SPANS(5, 1)
SPANS(5, 2)

typedef void (*MakeSpan)(const Span *span);

static const MakeSpan MAKE[2][2][MOST - FEWEST + 1] = {
    {NAMES(3, 1), NAMES(3, 2)}, {NAMES(5, 1), NAMES(5, 2)}};

// Cells of the windows from result `first` of a row on; those outside of the input are zeros.
static void find_cells(
    const Conv *conv, const float *outside, int64_t first, int count, const float **begins,
    Span *span) {
    const int64_t left = first * conv->stride[2] - conv->before[2], step = conv->x_axis[2];
    const int cells = (count - 1) * (int)conv->stride[2] + (int)conv->taps[2];
    span->inside = left >= 0 && left + cells <= conv->size[2];
    for (int row = 0; row < span->rows; row++) {
        span->lines[row] = begins[row] + left * step;
        for (int cell = 0; cell < cells && !span->inside; cell++) {
            const bool there = (uint64_t)(left + cell) < (uint64_t)conv->size[2];
            span->cells[row][cell] = there ? span->lines[row] + cell * step : outside;
        }
    }
}

// The lines that the windows of row `h` of an image read, without those outside of it.
static void find_lines(
    const Conv *conv, const float *weights, const float *image, int64_t h, const float **begins,
    Span *span) {
    span->rows = 0;
    for (int64_t tap = 0; tap < conv->taps[1]; tap++) {
        const int64_t at = h * conv->stride[1] - conv->before[1] + tap * conv->dilation[1];
        if (at < 0 || at >= conv->size[1]) continue;
        begins[span->rows] = image + at * conv->x_axis[1];
        span->weights[span->rows++] = weights + tap * conv->taps[2] * conv->groups;
    }
}

static void activate(const Conv *conv, float *y, int64_t count) {
    static const int64_t steps[] = {sizeof(float), sizeof(float)};
    const bool whole = conv->y_axis[2] == count;
    const int64_t length = whole ? conv->result[2] * count : count;
    for (int64_t at = 0; at < (whole ? 1 : conv->result[2]); at++, y += conv->y_axis[2]) {
        char *in[] = {(char *)y};
        conv->epilogue.activation((char *)y, in, steps, length, conv->epilogue.parameters);
    }
}

void ISA(convolve_row)(
    const Conv *conv, const float *weights, const float *outside, int64_t row, int64_t first,
    int64_t end) {
    const int64_t image = row / conv->result[1], h = row % conv->result[1];
    const int64_t width = conv->result[2], spans = ceil_div(width, MOST);
    const MakeSpan *make = MAKE[conv->taps[2] == 5][conv->stride[2] == 2];
    const float *residual = conv->epilogue.residual, *begins[MOST_ROWS];
    float *y = conv->y + image * conv->y_batch + h * conv->y_axis[1];
    if (residual) residual += image * conv->residual_batch + h * conv->residual_axis[1];
    Span span;
    span.conv = conv;
    span.first = first;
    span.end = end;
    span.limits = limits_of(&conv->epilogue);
    find_lines(conv, weights, conv->x + image * conv->x_batch, h, begins, &span);
    for (int64_t i = 0; i < spans; i++) {
        const int64_t at = width * i / spans;
        const int count = (int)(width * (i + 1) / spans - at);
        find_cells(conv, outside, at, count, begins, &span);
        span.y = y + at * conv->y_axis[2];
        span.residual = residual ? residual + at * conv->residual_axis[2] : NULL;
        make[count - FEWEST](&span);
    }
    if (span.limits.activation) activate(conv, y + first, end - first);
}
