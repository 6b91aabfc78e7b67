// Pooling: the largest element, or the mean, of each window.
#include <math.h>
#include <stdlib.h>

#include "conv.h"

typedef struct {
    Conv conv;  // without weights: `groups` channels, each by itself
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
    free(pool);
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
    pool->factors = (const float *)next_tensor(params).data;
    conv->outside = pool->maximum ? -INFINITY : 0;
    for (int64_t tap = 0; tap < conv->window; tap++) pool->offsets[tap] = ISA(tap_offset)(conv, tap);
    pool->unit = ceil_div(1 << 17, conv->pixels * conv->window);
    needs->own = (conv->plane + 2 * TILE_COLUMNS) * (int64_t)sizeof(float);
    return pool;
}

static Floats larger(Floats a, Floats b) {
    const __typeof__(b > a) take = (b > a) | (b != b);
    return (Floats)(((__typeof__(take))b & take) | ((__typeof__(take))a & ~take));
}

static void pool_line(
    const Pool *pool, const float *from, const float *factors, float *to, int64_t count) {
    for (int64_t j = 0; j < count; j += LANES) {
        Floats total = pool->maximum ? all_of(-INFINITY) : (Floats){0};
        for (int64_t tap = 0; tap < pool->conv.window; tap++) {
            const Floats element = load(from + pool->offsets[tap] + j);
            total = pool->maximum ? larger(total, element) : total + element;
        }
        float rest[LANES];
        store(rest, total);
        const int64_t n = count - j < LANES ? count - j : LANES;
        for (int64_t i = 0; i < n; i++) to[j + i] = factors ? rest[i] * factors[j + i] : rest[i];
    }
}

static void some_channels(void *context, int64_t chunk, int thread) {
    const Job *job = context;
    const Pool *pool = job->pool;
    const Conv *conv = &pool->conv;
    float *plane = (float *)job->run->own[thread];
    int64_t end = (chunk + 1) * pool->unit;
    if (end > conv->batch * conv->groups) end = conv->batch * conv->groups;
    for (int64_t channel = chunk * pool->unit; channel < end; channel++) {
        ISA(lay_out_channel)(
            conv,
            conv->x + channel / conv->groups * conv->x_batch + channel % conv->groups * conv->x_channel,
            plane);
        for (int64_t line = 0; line < conv->result[0] * conv->result[1]; line++) {
            const int64_t row = line / conv->result[1] * conv->phase[1] + line % conv->result[1];
            const int64_t first = line * conv->result[2];
            pool_line(
                pool, plane + row * conv->phase[2], pool->factors ? pool->factors + first : NULL,
                conv->y + channel * conv->pixels + first, conv->result[2]);
        }
    }
}

static Failure run_pool(const void *argument, const Run *run) {
    const Pool *pool = argument;
    Job job = {pool, run};
    const int64_t channels = pool->conv.batch * pool->conv.groups;
    share_chunks(run, ceil_div(channels, pool->unit), some_channels, &job);
    return OK;
}

const Kernel ISA(POOLS)[] = {
    {"Pool_f32", prepare, run_pool, release},
    {NULL, NULL, NULL, NULL},
};
