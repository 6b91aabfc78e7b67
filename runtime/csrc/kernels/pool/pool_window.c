// Pooling: the largest element, or the mean, of each window.
#include <math.h>
#include <stdlib.h>

#include "../conv/window.h"
#include "pool_planes.h"

enum { CHUNK = 1 << 17 };  // elements of windows

typedef struct {
    Conv conv;  // without weights: `groups` channels, each by itself
    Strips strips;  // NULL: windows are not read where they lie
    int64_t lines, bands;  // of results in a chunk, and chunks of a channel
    int64_t *offsets;
    int64_t unit;
    bool maximum;
    const float *factors;  // of a mean: one over the number of elements of each window
} Pool;

typedef struct {
    const Pool *pool;
    const Run *run;
} Job;

static void release(void *argument) {
    Pool *pool = argument;
    free(pool->offsets);
    free(pool->strips.strips);
    free(pool);
}

static bool plan(Pool *pool, Needs *needs) {
    Conv *conv = &pool->conv;
    pool->unit = ceil_div(CHUNK, conv->pixels * conv->window);
    images_lie_anywhere(needs, conv);
    reads_anywhere(needs, &conv->w);  // which only says how large a window is
    if (!ISA(has_pool_planes)(conv)) {
        needs->own = sweep_floats(conv) * (int64_t)sizeof(float);
        return true;
    }
    pool->lines = band_lines(conv, CHUNK);
    pool->bands = ceil_div(conv->result[1], pool->lines);
    return ISA(plan_strips)(&pool->strips, conv);
}

static void *prepare(Params *params, Needs *needs) {
    Pool *pool = calloc(1, sizeof(Pool));
    if (!pool) return NULL;
    Conv *conv = &pool->conv;
    if (!ISA(read_conv)(conv, params) ||
        !(pool->offsets = malloc((size_t)conv->window * sizeof(int64_t)))) {
        release(pool);
        return NULL;
    }
    pool->maximum = next_int(params) != 0;
    const Tensor factors = maybe_tensor(params);
    pool->factors = (const float *)factors.data;
    if (params->bad || !may_hold(&factors, F32, conv->pixels)) {
        release(pool);
        return NULL;
    }
    conv->outside = pool->maximum ? -INFINITY : 0;
    for (int64_t tap = 0; tap < conv->window; tap++)
        pool->offsets[tap] = ISA(tap_offset)(conv, tap);
    if (plan(pool, needs)) return pool;
    release(pool);
    return NULL;
}

INLINE Floats take_larger(Floats total, Floats part, const float *weights, int64_t tap) {
    (void)weights, (void)tap;
    return larger_of(total, part);
}

INLINE Floats add(Floats total, Floats part, const float *weights, int64_t tap) {
    (void)weights, (void)tap;
    return total + part;
}

static void largest(const Pool *pool, const float *from, float *to, int64_t count) {
    const int64_t window = pool->conv.window, part = sweep_part(window);
    for (int64_t at = 0; at < count && !pool_is_stopped(); at += part) {
        const Sweep sweep = {from + at, NULL, pool->offsets, window, to + at};
        sweep_slice(&sweep, lesser(part, count - at), all_of(-INFINITY), take_larger);
    }
}

static void sums(const Pool *pool, const float *from, float *to, int64_t count) {
    const int64_t window = pool->conv.window, part = sweep_part(window);
    for (int64_t at = 0; at < count && !pool_is_stopped(); at += part) {
        const Sweep sweep = {from + at, NULL, pool->offsets, window, to + at};
        sweep_slice(&sweep, lesser(part, count - at), (Floats){0}, add);
    }
}

static void pool_channel(const Pool *pool, int64_t channel, float *plane) {
    const Conv *conv = &pool->conv;
    const int64_t slice = conv->result[1] * conv->result[2];
    float *results = sweep_results(conv, plane), *y = conv->y + channel * conv->pixels;
    ISA(lay_out_channel)(
        conv,
        conv->x + channel / conv->groups * conv->x_batch + channel % conv->groups * conv->x_channel,
        plane);
    for (int64_t d = 0; d < conv->result[0]; d++) {
        const float *from = plane + d * conv->phase[1] * conv->phase[2];
        (pool->maximum ? largest : sums)(pool, from, results, sweep_count(conv));
        keep_lines(conv, results, y + d * slice);
    }
    if (pool->factors)
        for (int64_t i = 0; i < conv->pixels; i++) y[i] *= pool->factors[i];
}

static void some_channels(void *context, int64_t chunk, int thread) {
    const Job *job = context;
    const Pool *pool = job->pool;
    const Conv *conv = &pool->conv;
    int64_t end = (chunk + 1) * pool->unit;
    if (end > conv->batch * conv->groups) end = conv->batch * conv->groups;
    end_plane(conv, (float *)job->run->own[thread]);
    for (int64_t channel = chunk * pool->unit; channel < end; channel++)
        pool_channel(pool, channel, (float *)job->run->own[thread]);
}

static void some_bands(void *context, int64_t chunk, int thread) {
    const Pool *pool = ((const Job *)context)->pool;
    const Conv *conv = &pool->conv;
    const int64_t all = conv->batch * conv->groups, first = chunk / pool->bands * pool->unit;
    const int64_t begin = chunk % pool->bands * pool->lines;
    const int64_t end = lesser(begin + pool->lines, conv->result[1]);
    (void)thread;
    for (int64_t channel = first; channel < lesser(first + pool->unit, all); channel++)
        ISA(pool_band)(&pool->strips, pool->maximum, pool->factors, channel, begin, end);
}

static Failure run_pool(const void *argument, const Run *run) {
    const Pool *pool = argument;
    Job job = {pool, run};
    const int64_t channels = pool->conv.batch * pool->conv.groups;
    const int64_t chunks = ceil_div(channels, pool->unit);
    if (pool->strips.strips)
        share_chunks(run, chunks * pool->bands, some_bands, &job);
    else
        share_chunks(run, chunks, some_channels, &job);
    return OK;
}

const Kernel ISA(POOLS)[] = {
    {"Pool_f32", prepare, run_pool, release},
    {NULL, NULL, NULL, NULL},
};
