// Pooling of planes, or of images, one row after another: maxima with their places, maxima of types that
// have no kernel of their own, and norms.
#include <math.h>
#include <stdlib.h>

#include "../../kernel.h"
#include "../support/simd.h"
#include "../support/sizes.h"

enum { AXES = 3, POOLED_WORK = 1 << 15 };  // taps of a chunk: see sizes.h

typedef struct {
    int64_t size, out, taps, stride, dilation, begin;
    int64_t place;  // what the number of an element grows by along the axis
} Axis;

typedef struct {
    const char *x;
    char *y;
    int64_t *places;  // of the maxima, or NULL
    DType dtype;
    int64_t planes, unit;
    int64_t power;  // of a norm
    int64_t channels;  // elements of a pixel, which lie side by side: of maxima without places
    Axis axes[AXES];  // those of the rows are the last
} Pool;

static bool is_axis(const Axis *axis) {
    const int64_t most = 1ll << 30;  // so that places of taps do not overflow
    return axis->size > 0 && axis->size < most && axis->out > 0 && axis->out < most &&
           axis->taps > 0 && axis->taps < most && axis->stride > 0 && axis->stride < most &&
           axis->dilation > 0 && axis->dilation < most && axis->begin > -most && axis->begin < most;
}

static void *prepare(Params *params, Needs *needs) {
    Pool *pool = calloc(1, sizeof(Pool));
    if (!pool) return NULL;
    const Tensor x = next_tensor(params), y = next_tensor(params), places = maybe_tensor(params);
    pool->power = next_int(params);
    const int64_t channels = pool->channels = next_int(params);
    int64_t size = 1, results = 1, work = 1;
    bool fits = true;
    for (int i = 0; i < AXES; i++) {
        int64_t *const words[] = {&pool->axes[i].size,     &pool->axes[i].out,
                                  &pool->axes[i].taps,     &pool->axes[i].stride,
                                  &pool->axes[i].dilation, &pool->axes[i].begin,
                                  &pool->axes[i].place};
        for (int k = 0; k < 7; k++) *words[k] = next_int(params);
        fits = fits && is_axis(&pool->axes[i]);
        size = size_of(size, pool->axes[i].size, 1);
        results = size_of(results, pool->axes[i].out, 1);
        work = size_of(work, pool->axes[i].out, pool->axes[i].taps);
    }
    size = size_of(size, channels, 1);
    work = size_of(work, channels, 1);
    fits = fits && !params->bad && work > 0 && size > 0 && element_count(&x) % size == 0;
    pool->planes = fits ? element_count(&x) / size : 0;
    results = size_of(pool->planes, results, channels);
    fits = fits && holds(&x, x.dtype, element_count(&x)) && holds(&y, x.dtype, results) &&
           (!places.data || holds(&places, I64, results));
    if (!fits) {
        free(pool);
        return NULL;
    }
    pool->x = x.data;
    reads_anywhere(needs, &pool->x);
    pool->y = y.data;
    writes_anywhere(needs, &pool->y);
    pool->places = (int64_t *)places.data;
    pool->dtype = x.dtype;
    pool->unit = ceil_div(POOLED_WORK, work);
    return pool;
}

// One tap of a row: elements of the result first .. end - 1 get the `count` from `x` on, `step`
// after each other.  `place` is the number of the first, which grows by `next`.
typedef struct { int64_t first, count, x, step, place, next; } Tap;

typedef void (*TapFn)(const Pool *pool, const Tap *tap, const char *x, char *y, int64_t *places);

// Which elements of the result a tap of an axis belongs to: those whose element exists.
static void reach(const Axis *axis, int64_t tap, int64_t *first, int64_t *end) {
    const int64_t offset = tap * axis->dilation - axis->begin;
    *first = offset < 0 ? ceil_div(-offset, axis->stride) : 0;
    const int64_t last = axis->size - 1 - offset;
    *end = last < 0 ? 0 : last / axis->stride + 1;
    if (*end > axis->out) *end = axis->out;
}

static void tap_row(
    const Pool *pool, const int64_t *at, const int64_t *tap, const char *x, char *y,
    int64_t *places, TapFn work) {
    const Axis *row = &pool->axes[AXES - 1];
    int64_t element = 0, place = 0;
    for (int i = 0; i < AXES - 1; i++) {
        const Axis *axis = &pool->axes[i];
        const int64_t index = at[i] * axis->stride + tap[i] * axis->dilation - axis->begin;
        if (index < 0 || index >= axis->size) return;
        element = (element + index) * pool->axes[i + 1].size;
        place += index * axis->place;
    }
    int64_t first, end;
    reach(row, tap[AXES - 1], &first, &end);
    if (first >= end) return;
    const int64_t start = first * row->stride + tap[AXES - 1] * row->dilation - row->begin;
    const Tap one = {
        first,
        end - first,
        element + start,
        row->stride,
        place + start * row->place,
        row->stride * row->place};
    work(pool, &one, x, y, places);
}

// Windows of more taps than anybody uses are left where somebody wants to stop.
static inline bool is_end_of_many(int64_t i, int64_t j, int64_t k) {
    enum { MANY = 63 };
    return (k & MANY) == MANY || (k == 0 && ((j & MANY) == MANY || (j == 0 && (i & MANY) == MANY)));
}

// The taps of a row, the last first: of equal maxima the first is kept.
static void pool_row(
    const Pool *pool, const int64_t *at, const char *x, char *y, int64_t *places, TapFn work) {
    const Axis *axes = pool->axes;
    int64_t tap[AXES];
    for (tap[0] = axes[0].taps - 1; tap[0] >= 0; tap[0]--)
        for (tap[1] = axes[1].taps - 1; tap[1] >= 0; tap[1]--)
            for (tap[2] = axes[2].taps - 1; tap[2] >= 0; tap[2]--) {
                if (is_end_of_many(tap[0], tap[1], tap[2]) && pool_is_stopped()) return;
                tap_row(pool, at, tap, x, y, places, work);
            }
}

typedef void (*MaximaFn)(const char *from, char *to, int64_t count, int64_t step);

typedef void (*EndFn)(const Pool *pool, char *y, int64_t *places, int64_t count);

// What is done with each tap of a row, before the first of them, and after the last; the last two
// may be NULL.
typedef struct {
    TapFn tap;
    EndFn start, end;
    MaximaFn larger;  // of maxima without places; NULL for others
} Steps;

typedef struct {
    const Pool *pool;
    const Steps *steps;
    const Run *run;
} Job;

// A tap of `count` pixels of a row.
static void larger_of_tap(const Job *job, const char *from, char *to, int64_t count) {
    const int64_t channels = job->pool->channels, item = item_size(job->pool->dtype) * channels;
    const int64_t stride = job->pool->axes[AXES - 1].stride;
    if (channels == 1 || stride == 1) {
        job->steps->larger(from, to, count * channels, stride);
        return;
    }
    for (int64_t i = 0; i < count; i++)
        job->steps->larger(from + i * stride * item, to + i * item, channels, 1);
}

// Maxima of a row, first over all axes but the last: each of these rows is read once.
static void maxima_of_row(
    const Job *job, const int64_t *at, const char *x, char *y, char *upright) {
    const Pool *pool = job->pool;
    const Axis *axes = pool->axes, *row = &axes[AXES - 1];
    const int64_t channels = pool->channels, item = item_size(pool->dtype) * channels;
    job->steps->start(pool, upright, NULL, row->size * channels);
    job->steps->start(pool, y, NULL, row->out * channels);
    for (int64_t i = 0; i < axes[0].taps; i++) {
        const int64_t depth = at[0] * axes[0].stride + i * axes[0].dilation - axes[0].begin;
        if (depth < 0 || depth >= axes[0].size) continue;
        for (int64_t j = 0; j < axes[1].taps; j++) {
            if (is_end_of_many(i, j, 0) && pool_is_stopped()) return;
            const int64_t line = at[1] * axes[1].stride + j * axes[1].dilation - axes[1].begin;
            if (line < 0 || line >= axes[1].size) continue;
            const int64_t first = (depth * axes[1].size + line) * row->size;
            job->steps->larger(x + first * item, upright, row->size * channels, 1);
        }
    }
    for (int64_t tap = 0; tap < row->taps; tap++) {
        if (is_end_of_many(0, 0, tap) && pool_is_stopped()) return;
        int64_t first, end;
        reach(row, tap, &first, &end);
        if (first >= end) continue;
        const int64_t start = first * row->stride + tap * row->dilation - row->begin;
        larger_of_tap(job, upright + start * item, y + first * item, end - first);
    }
}

static void pool_plane(const Job *job, int64_t plane, int thread) {
    const Pool *pool = job->pool;
    const Axis *axes = pool->axes;
    const int64_t item = item_size(pool->dtype) * pool->channels, width = axes[2].out;
    const char *x = pool->x + plane * axes[0].size * axes[1].size * axes[2].size * item;
    int64_t row = plane * axes[0].out * axes[1].out, at[AXES] = {0};
    for (at[0] = 0; at[0] < axes[0].out; at[0]++)
        for (at[1] = 0; at[1] < axes[1].out; at[1]++, row++) {
            if (pool_is_stopped()) return;
            char *y = pool->y + row * width * item;
            if (job->steps->larger) {
                maxima_of_row(job, at, x, y, job->run->own[thread]);
                continue;
            }
            int64_t *places = pool->places ? pool->places + row * width : NULL;
            job->steps->start(pool, y, places, width);
            pool_row(pool, at, x, y, places, job->steps->tap);
            const int64_t size = axes[0].size * axes[1].size * axes[2].size;
            for (int64_t i = 0; places && i < width; i++) places[i] += plane * size;
            if (job->steps->end) job->steps->end(pool, y, places, width);
        }
}

static void some_planes(void *context, int64_t chunk, int thread) {
    const Job *job = context;
    int64_t end = (chunk + 1) * job->pool->unit;
    if (end > job->pool->planes) end = job->pool->planes;
    for (int64_t plane = chunk * job->pool->unit; plane < end; plane++)
        pool_plane(job, plane, thread);
}

static Failure run_steps(const Pool *pool, const Run *run, const Steps *steps) {
    Job job = {pool, steps, run};
    share_chunks(run, ceil_div(pool->planes, pool->unit), some_planes, &job);
    return OK;
}

// -- maxima ---------------------------------------------------------------------------------------

typedef struct { float first, second; } FloatPair;
typedef struct { double first, second; } DoublePair;
#define FIRST_OF(P) \
    _Generic((P), FloatPair: first_float, DoublePair: first_double, uint16_t: first_byte)(P)
#define IS_NAN(A) ((A) != (A))  // no integer is
static inline float first_float(FloatPair pair) { return pair.first; }
static inline double first_double(DoublePair pair) { return pair.first; }
static inline uint8_t first_byte(uint16_t pair) { return (uint8_t)pair; }

#define TYPE float
#define PAIR FloatPair
#define LEAST -INFINITY
#include "maxima.h"
#define TYPE double
#define PAIR DoublePair
#define LEAST -(double)INFINITY
#include "maxima.h"
#define TYPE int8_t
#define PAIR uint16_t
#define LEAST INT8_MIN
#include "maxima.h"
#define TYPE uint8_t
#define PAIR uint16_t
#define LEAST 0
#include "maxima.h"

static void locate(const Pool *pool, const Tap *tap, const char *x, char *y, int64_t *places) {
    (void)pool;
    const float *from = (const float *)x + tap->x;
    float *to = (float *)y + tap->first;
    int64_t *where = places + tap->first;
    for (int64_t i = 0; i < tap->count; i++) {
        const float v = from[i * tap->step];
        const bool larger = (v >= to[i]) | (v != v);
        to[i] = larger ? v : to[i];
        where[i] = larger ? tap->place + i * tap->next : where[i];
    }
}

static Failure run_maxima(const void *state, const Run *run) {
    static const Steps floats = {NULL, start_float, NULL, larger_float};
    static const Steps doubles = {NULL, start_double, NULL, larger_double};
    static const Steps bytes = {NULL, start_int8_t, NULL, larger_int8_t};
    static const Steps unsigned_bytes = {NULL, start_uint8_t, NULL, larger_uint8_t};
    static const Steps located = {locate, start_float, NULL, NULL};
    const Pool *pool = state;
    if (pool->places) return run_steps(pool, run, &located);
    switch (pool->dtype) {
        case F64: return run_steps(pool, run, &doubles);
        case I8: return run_steps(pool, run, &bytes);
        case U8: return run_steps(pool, run, &unsigned_bytes);
        default: return run_steps(pool, run, &floats);
    }
}

static void *prepare_maxima(Params *params, Needs *needs) {
    Pool *pool = prepare(params, needs);
    if (!pool) return NULL;
    const DType dtype = pool->dtype;
    const bool known = dtype == F32 || dtype == F64 || dtype == I8 || dtype == U8;
    needs->own = pool->axes[AXES - 1].size * pool->channels * item_size(dtype);
    if (known && (!pool->places || (dtype == F32 && pool->channels == 1))) return pool;
    free(pool);
    return NULL;
}

// -- norms ----------------------------------------------------------------------------------------

static void *prepare_norm(Params *params, Needs *needs) {
    Pool *pool = prepare(params, needs);
    if (!pool || (pool->dtype == F32 && !pool->places && pool->channels == 1)) return pool;
    free(pool);
    return NULL;
}

static void start_norm(const Pool *pool, char *y, int64_t *places, int64_t count) {
    (void)pool, (void)places;
    for (int64_t i = 0; i < count; i++) ((float *)y)[i] = 0;
}

static void add_powers(const Pool *pool, const Tap *tap, const char *x, char *y, int64_t *places) {
    (void)places;
    const float *from = (const float *)x + tap->x, power = (float)pool->power;
    float *to = (float *)y + tap->first;
    for (int64_t i = 0; i < tap->count; i++) {
        const float v = fabsf(from[i * tap->step]);
        to[i] += pool->power == 2 ? v * v : pool->power == 1 ? v : powf(v, power);
    }
}

static void take_root(const Pool *pool, char *y, int64_t *places, int64_t count) {
    (void)places;
    float *values = (float *)y;
    const float root = (float)(1.0 / (double)pool->power);
    for (int64_t i = 0; pool->power > 1 && i < count; i++)
        values[i] = pool->power == 2 ? sqrtf(values[i]) : powf(values[i], root);
}

static Failure run_norm(const void *state, const Run *run) {
    static const Steps steps = {add_powers, start_norm, take_root, NULL};
    return run_steps(state, run, &steps);
}

const Kernel ISA(POOLED_ROWS)[] = {
    {"MaxPoolRows", prepare_maxima, run_maxima, NULL},
    {"NormPool_f32", prepare_norm, run_norm, NULL},
    {NULL, NULL, NULL, NULL},
};
