// Floats become bytes by a scale and a zero point that their own range decides.
#include <math.h>
#include <stdlib.h>

#include "../../kernel.h"
#include "../support/simd.h"
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
    float scale, zero;
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
    state->y = (uint8_t *)y.data;
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

// What is undefined goes into the range.
static void range_chunk(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Job *job = context;
    const Part part = part_of(job->state, chunk);
    const float *x = part.x;
    float least = 0, most = 0;
    int undefined = 0;
    for (int64_t i = 0; i < part.count; i++) {
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
    const float scale = job->scale, zero = job->zero, low = 0 - zero, high = 255 - zero;
    for (int64_t i = 0; i < part.count; i++) {
        float steps = part.x[i] / scale;
        steps = steps == steps ? steps : low;  // undefined: 0
        steps = steps < low ? low : steps;
        steps = steps > high ? high : steps;
        part.y[i] = (uint8_t)(int32_t)(__builtin_rintf(steps) + zero);
    }
}

static void choose_scale(Job *job) {
    float least = 0, most = 0;
    for (int64_t i = 0; i < job->state->chunks; i++) {
        const Range range = job->ranges[i];
        least = range.least < least || range.least != range.least ? range.least : least;
        most = range.most > most || range.most != range.most ? range.most : most;
    }
    job->scale = least == most ? 1 : (most - least) / 255;
    const float zero = -(least / job->scale);
    job->zero = zero > 255 ? 255 : zero > 0 ? __builtin_rintf(zero) : 0;  // 0 if undefined
}

static Failure run_dynamic(const void *argument, const Run *run) {
    const State *state = argument;
    Job job = {.state = state, .ranges = (Range *)run->shared};
    share_chunks(run, state->chunks, range_chunk, &job);
    choose_scale(&job);
    const uint8_t zero = (uint8_t)(int32_t)job.zero;
    if (state->scale) *state->scale = job.scale;
    if (state->zero) *state->zero = zero;
    job.zero = zero;
    share_chunks(run, state->chunks, quantize_chunk, &job);
    return OK;
}

const Kernel ISA(DYNAMIC_BYTES)[] = {
    {"DynamicQuantize_u8", prepare, run_dynamic, NULL},
    {NULL, NULL, NULL, NULL},
};
