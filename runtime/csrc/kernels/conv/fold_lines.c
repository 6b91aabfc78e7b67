// The sums of windows that overlap: a transposed convolution from the products of each tap with all
// pixels, [N][M][taps][pixels].
#include "fold.h"

enum { MOST_PHASES = 16 };

// Elements `phase`, `phase` + stride, ... of a line of the result.
typedef struct {
    float *line;
    int64_t phase, count;
} Phase;

// What one tap adds to a phase: result i * stride + phase is pixel i + shift.
static void add_tap(const Fold *fold, const float *pixels, int64_t tap, Phase to) {
    const int64_t step = fold->stride[1];
    const int64_t shift = (to.phase + fold->before[1] - tap * fold->dilation[1]) / step;
    const int64_t first = shift < 0 ? -shift : 0;
    const int64_t end = lesser(to.count, fold->pixels[1] - shift);
    if (first < end) add_run(to.line + first, pixels + first + shift, end - first);
}

static void fold_phase(const Fold *fold, const float *products, int64_t row, float bias, Phase to) {
    const int64_t plane = fold->pixels[0] * fold->pixels[1];
    for (int64_t i = 0; i < to.count; i++) to.line[i] = bias;
    for (int64_t tap = 0; tap < fold->taps[0]; tap++) {
        const int64_t place = row + fold->before[0] - tap * fold->dilation[0];
        const int64_t from = place / fold->stride[0];
        if (place % fold->stride[0] || place < 0 || from >= fold->pixels[0]) continue;
        const float *pixels = products + tap * fold->taps[1] * plane + from * fold->pixels[1];
        for (int64_t across = 0; across < fold->taps[1]; across++)
            if ((to.phase + fold->before[1] - across * fold->dilation[1]) % fold->stride[1] == 0)
                add_tap(fold, pixels + across * plane, across, to);
    }
}

static void fold_plane(const Fold *fold, int64_t number, float *scratch) {
    const int64_t step = fold->stride[1], width = fold->size[1];
    const int64_t each = padded(ceil_div(width, step), LANES);
    const float *products = fold->products +
                            number * fold->window * fold->pixels[0] * fold->pixels[1];
    const float bias = fold->bias ? fold->bias[number % fold->channels] : 0;
    float *out = fold->out + number * fold->size[0] * width;
    for (int64_t row = 0; row < fold->size[0]; row++) {
        float *line = out + row * width;
        const float *lines[MOST_PHASES];
        for (int64_t phase = 0; phase < step; phase++) {
            const int64_t count = width > phase ? ceil_div(width - phase, step) : 0;
            const Phase to = {step == 1 ? line : scratch + phase * each, phase, count};
            lines[phase] = to.line;
            fold_phase(fold, products, row, bias, to);
        }
        if (step > 1) weave_lines(lines, step, line, width);
    }
    const Place place = {out, fold->size[0] * width, 0, 0};
    ISA(finish)(&fold->epilogue, place, 1, fold->size[0] * width);
}

static void *prepare_lines(Params *params, Needs *needs) {
    Fold *fold = calloc(1, sizeof(Fold));
    if (!fold) return NULL;
    static const int axes[] = {0, 1, 4, 2};
    if (!ISA(read_fold)(fold, params, axes) || fold->stride[1] > MOST_PHASES) {
        free(fold);
        return NULL;
    }
    const int64_t each = padded(ceil_div(fold->size[1], fold->stride[1]), LANES);
    needs->own = fold->stride[1] * each * (int64_t)sizeof(float);
    return fold;
}

typedef struct {
    const Fold *fold;
    const Run *run;
} Job;

static void some_planes(void *context, int64_t chunk, int thread) {
    const Job *job = context;
    const Fold *fold = job->fold;
    const int64_t unit = planes_of_chunk(fold), end = (chunk + 1) * unit;
    for (int64_t plane = chunk * unit; plane < end && plane < fold->batch * fold->channels; plane++)
        fold_plane(fold, plane, (float *)job->run->own[thread]);
}

static Failure run_lines(const void *state, const Run *run) {
    const Fold *fold = state;
    Job job = {fold, run};
    share_chunks(run, chunks_of(fold), some_planes, &job);
    return OK;
}

const Kernel ISA(FOLDED_LINES)[] = {
    {"FoldLines_f32", prepare_lines, run_lines, NULL},
    {NULL, NULL, NULL, NULL},
};
