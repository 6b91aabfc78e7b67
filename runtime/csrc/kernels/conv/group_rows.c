// Convolutions of groups of as few channels as a vector holds several of, of channels-last tensors, a row of
// results at a time.
//
// A span is a few neighbours in a row, by a vector of channels.  Each vector of the input that lies
// under its windows is read once for each channel of a group, which is spread over the lanes of its
// group, and multiplied by the weights of all taps that read it.
#include "rows.h"

enum {
    FEWEST = 4,  // results of a span
    MOST = 8,  // likewise: sums, weights and a cell have to be in 16 registers
    MOST_ROWS = 7,  // of a window
    COLUMNS = 3,
    MOST_CELLS = (MOST - 1) * 2 + COLUMNS,  // of the input, under the windows of a span
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
    Ends ends;
} Span;

bool ISA(has_group_rows)(const Conv *conv) {
    const int64_t stride = conv->stride[2];
    const bool grouped = conv->in == conv->out && (conv->in == 4 || conv->in == 8);
    return grouped && conv->groups * conv->out >= LANES && conv->taps[2] == COLUMNS &&
           conv->taps[0] == 1 && conv->result[0] == 1 && conv->before[0] == 0 &&
           conv->taps[1] <= MOST_ROWS && conv->dilation[2] == 1 && (stride == 1 || stride == 2) &&
           conv->result[2] >= FEWEST;
}

// Lane `I` of every four, and of every eight, lanes in all of them.
#define FOUR(N, I) N + I, N + I, N + I, N + I
#define EIGHT(N, I) FOUR(N, I), FOUR(N, I)
#if VECTOR_BYTES == 64
#define OF_FOUR(I) FOUR(0, I), FOUR(4, I), FOUR(8, I), FOUR(12, I)
#define OF_EIGHT(I) EIGHT(0, I), EIGHT(8, I)
#elif VECTOR_BYTES == 32
#define OF_FOUR(I) FOUR(0, I), FOUR(4, I)
#else
#define OF_FOUR(I) FOUR(0, I)
#endif
#define SPREAD(LANES_OF, I) \
    case I: return __builtin_shufflevector(cell, cell, LANES_OF(I));

INLINE Floats spread_of_four(Floats cell, int number) {
    switch (number) {
        SPREAD(OF_FOUR, 0)
        SPREAD(OF_FOUR, 1)
        SPREAD(OF_FOUR, 2)
        default: return __builtin_shufflevector(cell, cell, OF_FOUR(3));
    }
}

#if VECTOR_BYTES == 64
INLINE Floats spread_of_eight(Floats cell, int number) {
    switch (number) {
        SPREAD(OF_EIGHT, 0)
        SPREAD(OF_EIGHT, 1)
        SPREAD(OF_EIGHT, 2)
        SPREAD(OF_EIGHT, 3)
        SPREAD(OF_EIGHT, 4)
        SPREAD(OF_EIGHT, 5)
        SPREAD(OF_EIGHT, 6)
        default: return __builtin_shufflevector(cell, cell, OF_EIGHT(7));
    }
}
#endif

// What channel number `number` of each group of `G` is multiplied with, for a vector of channels from
// `c` on.
INLINE Floats read_cell(const float *cell, int64_t c, int number, const int G) {
    if (G == 4) return spread_of_four(load(cell + c), number);
#if VECTOR_BYTES == 64
    return spread_of_eight(load(cell + c), number);
#else
    return all_of(cell[c / G * G + number]);
#endif
}

// A vector of channels from `c` on, of which those from `from` on are wanted.
INLINE void make_channels(
    const Span *span, const int G, const int S, const int P, const bool inside, int64_t c,
    int64_t from) {
    const Conv *conv = span->conv;
    const Epilogue *epilogue = &conv->epilogue;
    const int64_t channels = conv->groups * G, step = conv->x_axis[2];
    Floats totals[MOST];
    const Floats start = epilogue->row_bias ? load(epilogue->row_bias + c) : (Floats){0};
    UNROLLED_FOR (int p = 0; p < P; p++) totals[p] = start;
    for (int row = 0; row < span->rows; row++) {
        const float *line = span->lines[row];
        UNROLLED_FOR (int number = 0; number < G; number++) {
            Floats weights[COLUMNS];
            UNROLLED_FOR (int k = 0; k < COLUMNS; k++)
                weights[k] = load(span->weights[row] + (k * G + number) * channels + c);
            UNROLLED_FOR (int cell = 0; cell < (P - 1) * S + COLUMNS; cell++) {
                const float *at = inside ? line + cell * step : span->cells[row][cell];
                const Floats part = read_cell(at, c, number, G);
                UNROLLED_FOR (int k = 0; k < COLUMNS; k++) {
                    const int place = cell - k;  // of the window that has the cell as tap k
                    if (place >= 0 && place % S == 0 && place / S < P)
                        totals[place / S] += weights[k] * part;
                }
            }
        }
    }
    store_channels(&span->ends, &span->limits, totals, P, false, LANES, c, from);
}

// The last vector reaches back, but writes nothing twice: the residual may be the result.
INLINE void make_span(const Span *span, const int G, const int S, const int P, const bool inside) {
    int64_t c = span->first;
    for (; c + LANES <= span->end; c += LANES) make_channels(span, G, S, P, inside, c, c);
    if (c < span->end) make_channels(span, G, S, P, inside, span->end - LANES, c);
}

#define SPAN(G, S, P)                                                              \
    static __attribute__((noinline)) void span_##G##_##S##_##P(const Span *span) { \
        if (span->inside)                                                          \
            make_span(span, G, S, P, true);                                        \
        else                                                                       \
            make_span(span, G, S, P, false);                                       \
    }
#define SPANS(G, S) SPAN(G, S, 4) SPAN(G, S, 5) SPAN(G, S, 6) SPAN(G, S, 7) SPAN(G, S, 8)
#define NAMES(G, S)                                                                  \
    {span_##G##_##S##_4, span_##G##_##S##_5, span_##G##_##S##_6, span_##G##_##S##_7, \
     span_##G##_##S##_8}

SPANS(4, 1)
SPANS(4, 2)
SPANS(8, 1)
SPANS(8, 2)

typedef void (*MakeSpan)(const Span *span);
typedef MakeSpan MakeSpans[2][MOST - FEWEST + 1];  // of strides 1 and 2

static const MakeSpans OF_FOUR_CHANNELS = {NAMES(4, 1), NAMES(4, 2)};
static const MakeSpans OF_EIGHT_CHANNELS = {NAMES(8, 1), NAMES(8, 2)};

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
    const int64_t line = conv->taps[2] * conv->in * conv->out * conv->groups;
    span->rows = 0;
    for (int64_t tap = 0; tap < conv->taps[1]; tap++) {
        const int64_t at = h * conv->stride[1] - conv->before[1] + tap * conv->dilation[1];
        if (at < 0 || at >= conv->size[1]) continue;
        begins[span->rows] = image + at * conv->x_axis[1];
        span->weights[span->rows++] = weights + tap * line;
    }
}

void ISA(convolve_group_row)(
    const Conv *conv, const float *weights, const float *outside, int64_t row, int64_t first,
    int64_t end) {
    const int64_t image = row / conv->result[1], h = row % conv->result[1];
    const int64_t width = conv->result[2], spans = ceil_div(width, MOST);
    const MakeSpan *make =
        (conv->in == 4 ? OF_FOUR_CHANNELS : OF_EIGHT_CHANNELS)[conv->stride[2] - 1];
    const float *begins[MOST_ROWS];
    const Ends ends = ends_of_row(conv, row);
    Span span = {.conv = conv, .first = first, .end = end};
    span.limits = limits_of(&conv->epilogue);
    find_lines(conv, weights, conv->x + image * conv->x_batch, h, begins, &span);
    for (int64_t i = 0; i < spans; i++) {
        const int64_t at = width * i / spans;
        const int count = (int)(width * (i + 1) / spans - at);
        find_cells(conv, outside, at, count, begins, &span);
        span.ends = ends;
        span.ends.y += at * ends.y_step;
        if (ends.residual) span.ends.residual += at * ends.residual_step;
        make[count - FEWEST](&span);
    }
    if (span.limits.activation) activate_row(conv, ends.y + first, end - first);
}
