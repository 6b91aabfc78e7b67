// Floats become bytes by a scale and a zero point that their own range decides.
#include <math.h>
#include <stdlib.h>

#include "../../kernel.h"
#include "../integer/byte_steps.h"
#include "../support/sizes.h"

enum { CHUNK = 1 << 14 };  // elements: see sizes.h

typedef struct {
    const float *x;
    uint8_t *y;
    float *scale;  // NULL: nobody wants it
    uint8_t *zero;  // likewise
    int64_t count, chunks;
} State;

typedef struct { float least, most; } Range;

typedef struct {
    const State *state;
    Range *ranges;
    Quantizer by;
} Job;

static void *prepare(Params *params, Needs *needs) {
    const Tensor x = next_tensor(params), y = next_tensor(params);
    const Tensor scale = maybe_tensor(params), zero = maybe_tensor(params);
    const bool known = x.dtype == F32 && y.dtype == U8 && is_contiguous(&x) && is_contiguous(&y) &&
                       element_count(&x) == element_count(&y) && may_hold(&scale, F32, 1) &&
                       may_hold(&zero, U8, 1);
    State *state = params->bad || !known ? NULL : calloc(1, sizeof(State));
    if (!state) return NULL;
    state->x = (const float *)x.data;
    reads_anywhere(needs, &state->x);
    state->y = (uint8_t *)y.data;
    writes_anywhere(needs, &state->y);
    state->scale = (float *)scale.data;
    state->zero = (uint8_t *)zero.data;
    state->count = element_count(&x);
    state->chunks = ceil_div(state->count, CHUNK);
    needs->shared = state->chunks * (int64_t)sizeof(Range);
    return state;
}

typedef struct {
    const float *x;
    uint8_t *y;
    int64_t count;
} Part;

static Part part_of(const State *state, int64_t chunk) {
    const int64_t first = chunk * CHUNK;
    return (Part){state->x + first, state->y + first, lesser(state->count - first, CHUNK)};
}

// What is undefined goes into the range: maxima and minima drop it, so it is looked for besides.
static void range_chunk(void *context, int64_t chunk, int thread) {
    (void)thread;
    enum { SIDE_BY_SIDE = 4 };  // extremes, of which each waits for the one before
    const Job *job = context;
    const Part part = part_of(job->state, chunk);
    const float *x = part.x;
    Floats lowest[SIDE_BY_SIDE] = {{0}}, highest[SIDE_BY_SIDE] = {{0}};
    Mask missing = {0};
    int64_t i = 0;
    for (; i + SIDE_BY_SIDE * LANES <= part.count; i += SIDE_BY_SIDE * LANES)
        for (int k = 0; k < SIDE_BY_SIDE; k++) {
            const Floats v = load(x + i + k * LANES);
            lowest[k] = all_at_most(v, lowest[k]);
            highest[k] = all_at_least(v, highest[k]);
            missing |= v != v;
        }
    float least = 0, most = 0;
    int undefined = 0;
    for (int k = 0; k < SIDE_BY_SIDE; k++)
        for (int lane = 0; lane < LANES; lane++) {
            least = lowest[k][lane] < least ? lowest[k][lane] : least;
            most = highest[k][lane] > most ? highest[k][lane] : most;
            undefined |= missing[lane];
        }
    for (; i < part.count; i++) {
        least = x[i] < least ? x[i] : least;
        most = x[i] > most ? x[i] : most;
        undefined |= x[i] != x[i];
    }
    job->ranges[chunk] = undefined ? (Range){NAN, NAN} : (Range){least, most};
}

static void quantize_chunk(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Job *job = context;
    const Part part = part_of(job->state, chunk);
    const Quantizer by = job->by;
    quantize_line(&by, U8, part.x, (char *)part.y, part.count);
}

static void choose_scale(Job *job) {
    float least = 0, most = 0;
    for (int64_t i = 0; i < job->state->chunks; i++) {
        const Range range = job->ranges[i];
        least = range.least < least || range.least != range.least ? range.least : least;
        most = range.most > most || range.most != range.most ? range.most : most;
    }
    const float scale = least == most ? 1 : (most - least) / 255, shift = -(least / scale);
    const float zero = shift > 255 ? 255 : shift > 0 ? __builtin_rintf(shift) : 0;  // undefined: 0
    job->by = (Quantizer){scale, inverse_of(scale), 0 - zero, 255 - zero, zero, 1};
}

static Failure run_dynamic(const void *argument, const Run *run) {
    const State *state = argument;
    Job job = {.state = state, .ranges = (Range *)run->shared};
    share_chunks(run, state->chunks, range_chunk, &job);
    choose_scale(&job);
    if (state->scale) *state->scale = job.by.scale;
    if (state->zero) *state->zero = (uint8_t)(int32_t)job.by.zero;
    share_chunks(run, state->chunks, quantize_chunk, &job);
    return OK;
}

const Kernel ISA(DYNAMIC_BYTES)[] = {
    {"DynamicQuantize_u8", prepare, run_dynamic, NULL},
    {NULL, NULL, NULL, NULL},
};
