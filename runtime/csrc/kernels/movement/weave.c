// Elements of a few tensors in turn along the last two axes: a tensor from its phases.
#include <stdlib.h>
#include <string.h>

#include "../../kernel.h"
#include "../support/sizes.h"
#include "weave.h"

// Phases of a result: strides up to 4 in both directions.  Floats of a chunk: see sizes.h.
enum { MOST_PHASES = 16, CHUNK_FLOATS = 1 << 15 };

typedef struct {
    float *out;  // [planes][rows][columns]
    int64_t planes, rows, columns;
    int64_t down, across;  // phases of rows, and of columns
    const float *phases[MOST_PHASES];  // row by row; NULL: zeros
} Weave;

typedef struct { const Weave *weave; } Job;

static int64_t ceil_part(int64_t count, int64_t first, int64_t step) {
    return count > first ? ceil_div(count - first, step) : 0;
}

static void *prepare(Params *params, Needs *needs) {
    Weave *weave = calloc(1, sizeof(Weave));
    if (!weave) return NULL;
    const Tensor out = next_tensor(params);
    weave->down = next_int(params);
    weave->across = next_int(params);
    const int64_t count = size_of(weave->down, weave->across, 1);
    bool fits = out.rank >= 2 && holds(&out, F32, element_count(&out)) && weave->down > 0 &&
                weave->across > 0 && count > 0 && count <= MOST_PHASES && element_count(&out) > 0;
    weave->out = (float *)out.data;
    writes_anywhere(needs, &weave->out);
    weave->rows = fits ? out.dims[out.rank - 2] : 0;
    weave->columns = fits ? out.dims[out.rank - 1] : 0;
    weave->planes = fits ? element_count(&out) / (weave->rows * weave->columns) : 0;
    for (int64_t i = 0; fits && i < count; i++) {
        const Tensor phase = maybe_tensor(params);
        const int64_t rows = ceil_part(weave->rows, i / weave->across, weave->down);
        const int64_t columns = ceil_part(weave->columns, i % weave->across, weave->across);
        fits = !phase.data || holds(&phase, F32, size_of(weave->planes, rows, columns));
        weave->phases[i] = (const float *)phase.data;
    }
    if (fits && !params->bad) return weave;
    free(weave);
    return NULL;
}

static void weave_plane(const Weave *weave, int64_t plane) {
    float *to = weave->out + plane * weave->rows * weave->columns;
    for (int64_t row = 0; row < weave->rows; row++, to += weave->columns) {
        const int64_t phase = row % weave->down;
        const int64_t rows = ceil_part(weave->rows, phase, weave->down);
        const float *lines[MOST_PHASES];
        for (int64_t i = 0; i < weave->across; i++) {
            const float *from = weave->phases[phase * weave->across + i];
            const int64_t width = ceil_part(weave->columns, i, weave->across);
            lines[i] = from ? from + (plane * rows + row / weave->down) * width : NULL;
        }
        weave_lines(lines, weave->across, to, weave->columns);
    }
}

static int64_t planes_of_chunk(const Weave *weave) {
    const int64_t floats = weave->rows * weave->columns;
    return ceil_div(CHUNK_FLOATS, floats);
}

static void some_planes(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Weave *weave = ((const Job *)context)->weave;
    const int64_t unit = planes_of_chunk(weave), end = (chunk + 1) * unit;
    for (int64_t plane = chunk * unit; plane < end && plane < weave->planes; plane++)
        weave_plane(weave, plane);
}

static Failure run_weave(const void *state, const Run *run) {
    const Weave *weave = state;
    Job job = {weave};
    const int64_t unit = planes_of_chunk(weave);
    share_chunks(run, ceil_div(weave->planes, unit), some_planes, &job);
    return OK;
}

const Kernel ISA(WEAVES)[] = {
    {"Weave_f32", prepare, run_weave, NULL},
    {NULL, NULL, NULL, NULL},
};
