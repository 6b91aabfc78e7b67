// A span is a few results of a row, or of two of them, by a vector of channels.  Each vector of the input
// that lies under its windows is read once for each part of a line of taps, and multiplied by the weights
// of all taps of the part that read it.  Where windows are dilated, results of a span are as far from
// each other as they have to be to share what they read; where windows move by more than two such
// elements, they share nothing.
#include "depthwise_rows.h"

#include "rows.h"

enum {
    MOST = 8,  // results of a span in a row: sums, weights and a cell have to be in 16 registers
    PAIRED_TAPS = 3,  // of a line, for which rows go two by two if there are 32 registers
    MOST_PART = 7,
    FEWEST = 4,  // results of a row, of which sums are worth being made side by side
};

// A line of the input, and its weights for the windows of each row that it lies under, or NULL.
typedef struct {
    const float *begin;
    int64_t column;  // of its first tap, if taps are lines of their own
    const float *weights[2];
    const float *first;  // the first cell of a span
    const float **cells;  // all of them, if some lie outside
} Line;

typedef struct {
    const Rows *rows;
    const Conv *conv;
    int64_t first, end;  // channels
    int64_t count;  // lines
    Line *lines;
    bool inside;  // all cells, of as many channels as a vector has
    int64_t step;  // floats between cells
    const float **all_cells;  // of all lines
    Limits limits;
    Ends ends[2];
} Span;

static int64_t common_divisor(int64_t a, int64_t b) {
    while (b) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

bool ISA(has_depthwise_rows)(const Conv *conv) {
    return conv->in == 1 && conv->out == 1 && conv->groups > 0 && conv->result[2] >= FEWEST;
}

Rows ISA(plan_depthwise_rows)(const Conv *conv) {
    Rows rows;
    const int64_t common = common_divisor(conv->stride[2], conv->dilation[2]);
    const int64_t moved = conv->stride[2] / common;  // by so many cells
    const int64_t between = conv->dilation[2] / common;  // neighbours that share
    const int64_t both = common_divisor(conv->stride[1], conv->dilation[1]);
    rows.rows_apart = conv->dilation[1] / both;
    rows.shift = conv->stride[1] / both;
    const bool pairs = VECTOR_BYTES == 64 && conv->taps[2] == PAIRED_TAPS &&
                       rows.shift < conv->taps[1];
    // With 16 registers, three taps of a dilated line share less than it takes to find their cells.
    const bool pays = VECTOR_BYTES == 64 || between == 1 || conv->taps[2] > PAIRED_TAPS;
    rows.shares = moved <= 2 && (pairs || (pays && conv->result[2] >= FEWEST * between));
    rows.two = rows.shares && pairs;
    rows.stride = rows.shares ? (int)moved : 1;
    rows.apart = rows.shares ? between : 1;
    rows.cell = rows.shares ? conv->dilation[2] : conv->stride[2];
    rows.cells = rows.shares ? (MOST - 1) * rows.stride + conv->taps[2] : MOST;
    rows.lines = conv->taps[0] * (conv->taps[1] + (rows.two ? rows.shift : 0)) *
                 (rows.shares ? 1 : conv->taps[2]);
    rows.bytes = rows.lines * ((int64_t)sizeof(Line) + rows.cells * (int64_t)sizeof(float *));
    return rows;
}

// -- spans ----------------------------------------------------------------------------------------

INLINE int64_t width_of(const Span *span, const bool few) {
    if (!few) return LANES;
    const int64_t count = span->end - span->first;
    if (count <= 0 || count >= LANES) __builtin_unreachable();  // checked once, not at each load
    return count;
}

// What is known when code is made: the distance of results, how many there are in a row, whether all cells
// lie inside, and whether there are fewer channels than lanes.
typedef struct {
    int stride, results;
    bool inside, few;
} Form;

// Adds `K` taps of a line, from number `tap` on, to the results of the rows `zero` and `one`.
INLINE void add_taps(
    const Span *span, const Line *line, int64_t tap, int64_t c, const int K, const Form form,
    const bool zero, const bool one, Floats (*totals)[MOST]) {
    const int S = form.stride, P = form.results;
    const int64_t width = width_of(span, form.few);
    int64_t channels = span->conv->groups, step = span->step;
    // Compilers would keep all multiples of these from line to line, and have no registers for them.
    __asm__("" : "+r"(channels), "+r"(step));
    const int64_t at = tap * channels + c;
    Floats weights[2][MOST_PART];
    UNROLLED_FOR (int k = 0; k < K; k++) {
        if (zero) weights[0][k] = load_some(line->weights[0] + at + k * channels, width);
        if (one) weights[1][k] = load_some(line->weights[1] + at + k * channels, width);
    }
    const float *first = line->first + tap * step + c;
    UNROLLED_FOR (int cell = 0; cell < (P - 1) * S + K; cell++) {
        const float *from = form.inside ? first + cell * step : line->cells[tap + cell] + c;
        const Floats part = form.few ? load_some(from, width) : load_once(from);
        UNROLLED_FOR (int k = 0; k < K; k++) {
            const int place = cell - k;  // of the window that has the cell as tap k
            if (place < 0 || place % S || place / S >= P) continue;
            if (zero) totals[0][place / S] += weights[0][k] * part;
            if (one) totals[1][place / S] += weights[1][k] * part;
        }
    }
}

// Lines whose `K` taps are added at once.
INLINE void add_lines(
    const Span *span, int64_t c, const int K, const Form form, Floats (*totals)[MOST]) {
    for (const Line *line = span->lines; line < span->lines + span->count; line++)
        add_taps(span, line, 0, c, K, form, true, false, totals);
}

// The same for two rows.
INLINE void add_shared_lines(
    const Span *span, int64_t c, const int K, const Form form, Floats (*totals)[MOST]) {
    for (const Line *line = span->lines; line < span->lines + span->count; line++)
        if (line->weights[0] && line->weights[1])
            add_taps(span, line, 0, c, K, form, true, true, totals);
        else if (line->weights[0])
            add_taps(span, line, 0, c, K, form, true, false, totals);
        else
            add_taps(span, line, 0, c, K, form, false, true, totals);
}

// Taps of a line that are added at once, of `left` ones: any number of them is a sum of such.
static inline int64_t part_of(int64_t left) {
    static const int8_t parts[] = {0, 1, 1, 3, 1, 5, 3, 7, 5, 3, 7, 3, 7, 5};
    return left < 14 ? parts[left] : 7;
}

// Lines of any taps, part by part.
INLINE void add_parts(const Span *span, int64_t c, const Form form, Floats (*totals)[MOST]) {
    const int64_t taps = span->conv->taps[2];
    for (const Line *line = span->lines; line < span->lines + span->count; line++)
        for (int64_t tap = 0, part; tap < taps; tap += part) {
            part = part_of(taps - tap);
            if (part == 1)
                add_taps(span, line, tap, c, 1, form, true, false, totals);
            else if (part == 3)
                add_taps(span, line, tap, c, 3, form, true, false, totals);
            else if (part == 5)
                add_taps(span, line, tap, c, 5, form, true, false, totals);
            else
                add_taps(span, line, tap, c, 7, form, true, false, totals);
        }
}

// A vector of channels from `c` on, of which those from `from` on are wanted, of `R` rows and lines of `K`
// taps, or of any.
INLINE void make_channels(
    const Span *span, const int R, const int K, const Form form, int64_t c, int64_t from) {
    const Epilogue *epilogue = &span->conv->epilogue;
    const int64_t width = width_of(span, form.few);
    const int P = form.results;
    Floats totals[2][MOST];
    const Floats start = epilogue->row_bias ? load_some(epilogue->row_bias + c, width)
                                            : (Floats){0};
    UNROLLED_FOR (int r = 0; r < R; r++)
        UNROLLED_FOR (int p = 0; p < P; p++) totals[r][p] = start;
    if (R == 2)
        add_shared_lines(span, c, K, form, totals);
    else if (K > 0)
        add_lines(span, c, K, form, totals);
    else
        add_parts(span, c, form, totals);
    UNROLLED_FOR (int r = 0; r < R; r++)
        store_channels(&span->ends[r], &span->limits, totals[r], P, form.few, width, c, from);
}

// The last vector reaches back, but writes nothing twice: the residual may be the result.
INLINE void make_span(
    const Span *span, const int R, const int K, const int S, const int P, const bool inside) {
    const Form form = {S, P, inside, false};
    int64_t c = span->first;
    if (!inside && span->conv->groups < LANES) {
        make_channels(span, R, K, (Form){S, P, false, true}, c, c);
        return;
    }
    for (; c + LANES <= span->end; c += LANES) make_channels(span, R, K, form, c, c);
    if (c < span->end) make_channels(span, R, K, form, span->end - LANES, c);
}

#define SPAN(R, K, S, P)                                                                 \
    static __attribute__((noinline)) void span_##R##_##K##_##S##_##P(const Span *span) { \
        if (span->inside)                                                                \
            make_span(span, R, K, S, P, true);                                           \
        else                                                                             \
            make_span(span, R, K, S, P, false);                                          \
    }
#define NAME(R, K, S, P) span_##R##_##K##_##S##_##P,
#define EACH(_, R, K, S) \
    _(R, K, S, 1)        \
    _(R, K, S, 2)        \
    _(R, K, S, 3) _(R, K, S, 4) _(R, K, S, 5) _(R, K, S, 6) _(R, K, S, 7) _(R, K, S, 8)
#define SPANS(R, K) EACH(SPAN, R, K, 1) EACH(SPAN, R, K, 2)
#define NAMES(R, K)                                    \
    {                                                  \
        {EACH(NAME, R, K, 1)}, { EACH(NAME, R, K, 2) } \
    }

typedef void (*MakeSpan)(const Span *span);
typedef MakeSpan MakeSpans[2][MOST];  // of neighbours one cell and two apart

SPANS(1, 0)
SPANS(1, 1)
SPANS(1, 3)
SPANS(1, 5)
SPANS(1, 7)
static const MakeSpans OF_ANY = NAMES(1, 0), OF_1 = NAMES(1, 1), OF_3 = NAMES(1, 3),
                       OF_5 = NAMES(1, 5), OF_7 = NAMES(1, 7);
#if VECTOR_BYTES == 64
SPANS(2, 3)
static const MakeSpans OF_TWO_ROWS = NAMES(2, 3);
#endif

static const MakeSpan *spans_of(const Rows *rows, int64_t taps, bool two) {
    static const MakeSpans *const of_few[] = {NULL, &OF_1, NULL, &OF_3, NULL, &OF_5, NULL, &OF_7};
#if VECTOR_BYTES == 64
    if (two) return OF_TWO_ROWS[rows->stride - 1];
#endif
    (void)two;
    const MakeSpans *few = !rows->shares ? &OF_1 : taps <= MOST_PART ? of_few[taps] : NULL;
    return (few ? *few : OF_ANY)[rows->stride - 1];
}

// -- rows -----------------------------------------------------------------------------------------

// `count` cells of a line from a column on.
static void find_cells_of_line(
    const Line *line, int64_t column, const Span *span, int64_t count, const float *outside) {
    const float **restrict to = line->cells, *from = line->first;
    const uint64_t size = (uint64_t)span->conv->size[2];
    const int64_t step = span->step, by = span->rows->cell;
    for (int64_t i = 0; i < count; i++)
        to[i] = (uint64_t)(column + i * by) < size ? from + i * step : outside;
}

// Cells of the windows from result `first` of a row on; those outside of the input are zeros.
static void find_cells(Span *span, const float *outside, int64_t first, int count) {
    const Rows *rows = span->rows;
    const Conv *conv = span->conv;
    const int64_t left = first * conv->stride[2] - conv->before[2], step = conv->x_axis[2];
    const int64_t reach = (conv->taps[2] - 1) * conv->dilation[2];
    const int64_t last = left + (count - 1) * rows->stride * rows->cell + reach;
    for (Line *line = span->lines; line < span->lines + span->count; line++)
        line->first = line->begin + (left + line->column) * step;
    span->inside = left >= 0 && last < conv->size[2] && conv->groups >= LANES;
    if (span->inside) return;
    const int64_t cells = (count - 1) * rows->stride + (rows->shares ? conv->taps[2] : 1);
    for (const Line *line = span->lines; line < span->lines + span->count; line++)
        find_cells_of_line(line, left + line->column, span, cells, outside);
}

// Makes lines of all taps of the last one.
static void part_taps(Span *span) {
    const Conv *conv = span->conv;
    Line line = span->lines[span->count - 1];
    for (int64_t tap = 1; tap < conv->taps[2]; tap++) {
        line.column += conv->dilation[2];
        line.weights[0] += conv->groups;
        span->lines[span->count++] = line;
    }
}

// The lines that the windows of a row read, and of the one that follows if it has `two`, without those
// outside of the input.
static void find_lines(Span *span, const float *weights, int64_t row, bool two) {
    const Conv *conv = span->conv;
    const Rows *rows = span->rows;
    const int64_t h = row % conv->result[1], rest = row / conv->result[1];
    const int64_t slice = rest % conv->result[0] * conv->stride[0] - conv->before[0];
    const float *image = conv->x + rest / conv->result[0] * conv->x_batch;
    const int64_t of_line = conv->taps[2] * conv->groups, shift = two ? rows->shift : 0;
    span->count = 0;
    for (int64_t a = 0; a < conv->taps[0]; a++, weights += conv->taps[1] * of_line) {
        const int64_t depth = slice + a * conv->dilation[0];
        if (depth < 0 || depth >= conv->size[0]) continue;
        for (int64_t tap = 0; tap < conv->taps[1] + shift; tap++) {
            const int64_t at = h * conv->stride[1] - conv->before[1] + tap * conv->dilation[1];
            if (at < 0 || at >= conv->size[1]) continue;
            const float *image_line = image + depth * conv->x_axis[0] + at * conv->x_axis[1];
            const float *zero = tap < conv->taps[1] ? weights + tap * of_line : NULL;
            const float *one = two && tap >= shift ? weights + (tap - shift) * of_line : NULL;
            span->lines[span->count++] = (Line){image_line, 0, {zero, one}, NULL, NULL};
            if (!rows->shares) part_taps(span);
        }
    }
}

static void make_rows(
    Span *span, const float *weights, const float *outside, int64_t row, bool two) {
    const Conv *conv = span->conv;
    const Rows *rows = span->rows;
    const int64_t width = conv->result[2], apart = rows->apart;
    const MakeSpan *make = spans_of(rows, conv->taps[2], two);
    const Ends ends[2] = {
        ends_of_row(conv, row), ends_of_row(conv, two ? row + rows->rows_apart : row)};
    find_lines(span, weights, row, two);
    for (int64_t i = 0; i < span->count; i++)
        span->lines[i].cells = span->all_cells + i * rows->cells;
    for (int64_t phase = 0; phase < lesser(apart, width); phase++) {
        const int64_t results = ceil_div(width - phase, apart), spans = ceil_div(results, MOST);
        for (int64_t i = 0; i < spans; i++) {
            const int64_t begin = results * i / spans, at = phase + begin * apart;
            const int count = (int)(results * (i + 1) / spans - begin);
            find_cells(span, outside, at, count);
            for (int r = 0; r < (two ? 2 : 1); r++) {
                Ends *end = &span->ends[r];
                end->y = ends[r].y + at * ends[r].y_step;
                end->residual = ends[r].residual;
                if (end->residual) end->residual += at * ends[r].residual_step;
            }
            make[count - 1](span);
        }
    }
    if (!span->limits.activation) return;
    for (int r = 0; r < (two ? 2 : 1); r++)
        activate_row(conv, ends[r].y + span->first, span->end - span->first);
}

void ISA(convolve_depthwise_rows)(
    const Rows *rows, const Conv *conv, const float *weights, const float *outside, int64_t from,
    int64_t to, int64_t first, int64_t end, void *scratch) {
    Span span = {.rows = rows, .conv = conv, .first = first, .end = end, .lines = scratch};
    span.all_cells = (const float **)(span.lines + rows->lines);
    span.limits = limits_of(&conv->epilogue);
    span.step = rows->cell * conv->x_axis[2];
    for (int r = 0; r < 2; r++) {
        span.ends[r].y_step = conv->y_axis[2] * rows->apart;
        span.ends[r].residual_step = conv->residual_axis[2] * rows->apart;
    }
    const int64_t height = conv->result[1], apart = rows->rows_apart;
    while (from < to && !pool_is_stopped()) {
        const int64_t slice = lesser(to, (from / height + 1) * height);
        const int64_t next = rows->two ? lesser(slice, from + 2 * apart) : from + 1;
        for (int64_t row = from; row < lesser(next, from + apart); row++)
            make_rows(&span, weights, outside, row, rows->two && row + apart < next);
        from = next;
    }
}
