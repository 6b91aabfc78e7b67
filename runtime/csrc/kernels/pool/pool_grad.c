// Gradients of pooling, and maxima of squares of 2 x 2.
//
// The gradient of a maximum goes to the first element of its window that equals it; if none does,
// because it is NaN, to the last one.
#include <stdlib.h>
#include <string.h>

#include "../../kernel.h"
#include "../support/fits.h"
#include "../support/simd.h"
#include "../support/sizes.h"

enum { AXES = 3, POOL_WORK = 1 << 15 };  // elements and taps of a chunk: see sizes.h

typedef struct {
    int64_t channels;  // of all images
    int64_t size[AXES], taps[AXES], result[AXES], stride[AXES], dilation[AXES], before[AXES];
    int64_t elements, windows, window;  // of a channel, and taps of a window
    const float *dy, *x, *y, *factors;
    float *dx;
    int64_t unit;  // channels of a chunk
} PoolGrad;

// Operands, in the order of their words, that a kernel needs.
typedef enum { DY = 1, X = 2, Y = 4, DX = 8 } Needed;

static bool operands_fit(const PoolGrad *pool, const Tensor *tensors, int needed) {
    const int64_t elements = size_of(pool->channels, pool->elements, 1);
    const int64_t windows = size_of(pool->channels, pool->windows, 1);
    bool fits = elements > 0 && windows > 0 && may_hold(&tensors[4], F32, pool->windows);
    for (int i = 0; i < 4; i++)
        if (needed & 1 << i)
            fits = fits && holds(&tensors[i], F32, 1 << i & (X | DX) ? elements : windows);
    return fits;
}

static bool read_pool(PoolGrad *pool, Params *params, int needed) {
    Tensor tensors[5];
    for (int i = 0; i < 5; i++) tensors[i] = maybe_tensor(params);
    pool->dy = (const float *)tensors[0].data;
    pool->x = (const float *)tensors[1].data;
    pool->y = (const float *)tensors[2].data;
    pool->dx = (float *)tensors[3].data;
    pool->factors = (const float *)tensors[4].data;
    pool->channels = next_int(params);
    pool->elements = pool->windows = 1;
    pool->window = 1;
    int64_t plane = 1;
    for (int axis = 0; axis < AXES; axis++) {
        pool->size[axis] = next_int(params);
        pool->taps[axis] = next_int(params);
        pool->result[axis] = next_int(params);
        pool->stride[axis] = next_int(params);
        pool->dilation[axis] = next_int(params);
        pool->before[axis] = next_int(params);
        pool->elements = size_of(pool->elements, pool->size[axis], 1);
        pool->windows = size_of(pool->windows, pool->result[axis], 1);
        pool->window = size_of(pool->window, pool->taps[axis], 1);
        if (pool->window <= 0 || pool->windows <= 0 || pool->elements <= 0) return false;
        if (!window_fits(
                pool->stride[axis], pool->dilation[axis], pool->before[axis], pool->taps[axis],
                pool->result[axis], &plane)) {
            return false;
        }
    }
    const int64_t work = size_of(pool->windows, pool->window, 1);
    pool->unit = work >= 0 && pool->elements + work < POOL_WORK
                     ? POOL_WORK / (pool->elements + work + 1) + 1
                     : 1;
    return !params->bad && operands_fit(pool, tensors, needed);
}

static void *prepare(Params *params, int needed) {
    PoolGrad *pool = calloc(1, sizeof(PoolGrad));
    if (pool && read_pool(pool, params, needed)) return pool;
    free(pool);
    return NULL;
}

static void *prepare_mean(Params *params, Needs *needs) {
    (void)needs;
    return prepare(params, DY | DX);
}

static void *prepare_maximum(Params *params, Needs *needs) {
    (void)needs;
    return prepare(params, DY | X | Y | DX);
}

// Whether windows are squares of 2 x 2 side by side.
static bool are_squares(const PoolGrad *pool) {
    bool fits = pool->size[0] == pool->result[0] && pool->taps[0] == 1;
    for (int axis = 1; axis < AXES; axis++)
        fits = fits && pool->taps[axis] == 2 && pool->stride[axis] == 2 &&
               pool->before[axis] == 0 && pool->result[axis] == pool->size[axis] / 2;
    return fits;
}

static void *prepare_squares(Params *params, int needed) {
    PoolGrad *pool = prepare(params, needed);
    if (!pool || are_squares(pool)) return pool;
    free(pool);
    return NULL;
}

static void *prepare_maxima_of_squares(Params *params, Needs *needs) {
    (void)needs;
    return prepare_squares(params, X | Y);
}

static void *prepare_squares_grad(Params *params, Needs *needs) {
    (void)needs;
    return prepare_squares(params, DY | X | Y | DX);
}

// Where the taps of window `place` that lie inside begin and end, and the element of tap 0.
typedef struct { int64_t begin, end, origin; } Span;

static Span find_span(const PoolGrad *pool, int axis, int64_t place) {
    const int64_t origin = place * pool->stride[axis] - pool->before[axis];
    const int64_t step = pool->dilation[axis], size = pool->size[axis];
    Span span = {0, pool->taps[axis], origin};
    if (origin < 0) span.begin = ceil_div(-origin, step);
    if (origin + (span.end - 1) * step >= size) span.end = ceil_div(size - origin, step);
    if (span.end < span.begin) span.end = span.begin;
    return span;
}

typedef void (*WindowFn)(const PoolGrad *pool, int64_t channel, const Span *spans, int64_t window);

static void spread_window(
    const PoolGrad *pool, int64_t channel, const Span *spans, int64_t window) {
    const float share = pool->dy[channel * pool->windows + window] *
                        (pool->factors ? pool->factors[window] : 1.0f);
    float *dx = pool->dx + channel * pool->elements;
    for (int64_t a = spans[0].begin; a < spans[0].end; a++)
        for (int64_t b = spans[1].begin; b < spans[1].end; b++) {
            const int64_t row = (spans[0].origin + a * pool->dilation[0]) * pool->size[1] +
                                spans[1].origin + b * pool->dilation[1];
            float *line = dx + row * pool->size[2] + spans[2].origin;
            for (int64_t c = spans[2].begin; c < spans[2].end; c++)
                line[c * pool->dilation[2]] += share;
        }
}

// From the last tap to the first, so that the first that equals the maximum is what stays.
static void give_to_first(
    const PoolGrad *pool, int64_t channel, const Span *spans, int64_t window) {
    const float *x = pool->x + channel * pool->elements;
    const float peak = pool->y[channel * pool->windows + window];
    int64_t chosen = -1;
    for (int64_t a = spans[0].end; a-- > spans[0].begin;)
        for (int64_t b = spans[1].end; b-- > spans[1].begin;) {
            const int64_t row = (spans[0].origin + a * pool->dilation[0]) * pool->size[1] +
                                spans[1].origin + b * pool->dilation[1];
            const int64_t first = row * pool->size[2] + spans[2].origin;
            for (int64_t c = spans[2].end; c-- > spans[2].begin;) {
                const int64_t place = first + c * pool->dilation[2];
                chosen = chosen < 0 || x[place] == peak ? place : chosen;
            }
        }
    if (chosen >= 0)
        pool->dx[channel * pool->elements + chosen] += pool->dy[channel * pool->windows + window];
}

INLINE void all_windows(const PoolGrad *pool, int64_t channel, WindowFn work) {
    memset(pool->dx + channel * pool->elements, 0, (size_t)pool->elements * sizeof(float));
    int64_t window = 0, done = 0;
    Span spans[AXES];
    for (int64_t i = 0; i < pool->result[0]; i++) {
        spans[0] = find_span(pool, 0, i);
        for (int64_t j = 0; j < pool->result[1]; j++) {
            spans[1] = find_span(pool, 1, j);
            for (int64_t k = 0; k < pool->result[2]; k++, window++) {
                if (is_stopped_after(pool->window, &done)) return;
                spans[2] = find_span(pool, 2, k);
                work(pool, channel, spans, window);
            }
        }
    }
}

static void spread_channels(const PoolGrad *pool, int64_t channel, int64_t channels) {
    for (int64_t i = 0; i < channels; i++) all_windows(pool, channel + i, spread_window);
}
static void choose_in_channels(const PoolGrad *pool, int64_t channel, int64_t channels) {
    for (int64_t i = 0; i < channels; i++) all_windows(pool, channel + i, give_to_first);
}

// -- squares of 2 x 2, each element in one at most ------------------------------------------------
//
// Four squares at a time: of one pair of lines, or, where lines have two, of two pairs.

typedef float Four __attribute__((vector_size(16)));
typedef float LooseFour __attribute__((vector_size(16), aligned(4), may_alias));
typedef int32_t FourMask __attribute__((vector_size(16)));

static inline Four load_four(const float *from) { return *(const LooseFour *)from; }
static inline void store_four(float *to, Four values) { *(LooseFour *)to = values; }
static inline Four choose(FourMask mask, Four a, Four b) {
    return (Four)(((FourMask)a & mask) | ((FourMask)b & ~mask));
}
static inline Four larger(Four a, Four b) { return choose((a > b) | (a != a), a, b); }

// The elements of four squares.
typedef struct { Four upper_left, upper_right, lower_left, lower_right; } Squares;

static inline Squares load_squares(const float *first, const float *second, int64_t width) {
    const Four a = load_four(first), b = load_four(second);
    const Four c = load_four(first + width), d = load_four(second + width);
    return (Squares){
        __builtin_shufflevector(a, b, 0, 2, 4, 6), __builtin_shufflevector(a, b, 1, 3, 5, 7),
        __builtin_shufflevector(c, d, 0, 2, 4, 6), __builtin_shufflevector(c, d, 1, 3, 5, 7)};
}

static inline void store_pair(float *first, float *second, Four left, Four right) {
    store_four(first, __builtin_shufflevector(left, right, 0, 4, 1, 5));
    store_four(second, __builtin_shufflevector(left, right, 2, 6, 3, 7));
}

static inline void four_maxima(const PoolGrad *pool, int64_t first, int64_t second, int64_t to) {
    const Squares x = load_squares(pool->x + first, pool->x + second, pool->size[2]);
    const Four high = larger(x.upper_left, x.upper_right),
               low = larger(x.lower_left, x.lower_right);
    store_four((float *)pool->y + to, larger(high, low));
}

static inline void four_choices(const PoolGrad *pool, int64_t first, int64_t second, int64_t to) {
    const int64_t width = pool->size[2];
    const Squares x = load_squares(pool->x + first, pool->x + second, width);
    const Four peak = load_four(pool->y + to), dy = load_four(pool->dy + to), zero = {0};
    const FourMask a = x.upper_left == peak, b = ~a & (x.upper_right == peak);
    const FourMask c = ~(a | b) & (x.lower_left == peak);
    float *dx = pool->dx;
    store_pair(dx + first, dx + second, choose(a, dy, zero), choose(b, dy, zero));
    store_pair(
        dx + first + width, dx + second + width, choose(c, dy, zero), choose(a | b | c, zero, dy));
}

static inline void one_maximum(const PoolGrad *pool, int64_t place, int64_t to) {
    const float *x = pool->x + place, *below = x + pool->size[2];
    const float high = x[0] > x[1] || x[0] != x[0] ? x[0] : x[1];
    const float low = below[0] > below[1] || below[0] != below[0] ? below[0] : below[1];
    ((float *)pool->y)[to] = high > low || high != high ? high : low;
}

static inline void one_choice(const PoolGrad *pool, int64_t place, int64_t to) {
    const int64_t width = pool->size[2];
    const float *x = pool->x + place;
    const float peak = pool->y[to], g = pool->dy[to];
    float *dx = pool->dx + place;
    const int a = x[0] == peak, b = !a && x[1] == peak, c = !a && !b && x[width] == peak;
    dx[0] = a ? g : 0;
    dx[1] = b ? g : 0;
    dx[width] = c ? g : 0;
    dx[width + 1] = a || b || c ? 0 : g;
}

// Lines of squares, of as many channels as lie behind each other.
typedef void (*FourSquares)(const PoolGrad *pool, int64_t first, int64_t second, int64_t to);
typedef void (*OneSquare)(const PoolGrad *pool, int64_t place, int64_t to);

INLINE void for_squares(
    const PoolGrad *pool, int64_t channel, int64_t channels, const FourSquares four,
    const OneSquare square) {
    const int64_t width = pool->size[2], half = pool->result[2];
    const int64_t lines = channels * pool->result[1];
    const bool even = pool->size[1] % 2 == 0;
    int64_t to = channel * pool->windows;
    for (int64_t line = 0; line < lines; line++, to += half) {
        const int64_t from = (channel + line / pool->result[1]) * pool->elements +
                             line % pool->result[1] * 2 * width;
        int64_t j = 0;
        for (; j + 4 <= half; j += 4) four(pool, from + 2 * j, from + 2 * j + 4, to + j);
        if (half == 2 && width == 4 && even && line + 1 < lines) {
            four(pool, from, from + 2 * width, to);
            line++, to += half, j = half;
        }
        for (; j < half; j++) square(pool, from + 2 * j, to + j);
    }
}

static void maxima_of_squares(const PoolGrad *pool, int64_t channel, int64_t channels) {
    for_squares(pool, channel, channels, four_maxima, one_maximum);
}
static void choices_in_squares(const PoolGrad *pool, int64_t channel, int64_t channels) {
    for_squares(pool, channel, channels, four_choices, one_choice);
}

static void choose_in_squares(const PoolGrad *pool, int64_t channel, int64_t channels) {
    float *dx = pool->dx + channel * pool->elements;
    if (pool->size[2] % 2 || pool->size[1] % 2)
        memset(dx, 0, (size_t)(channels * pool->elements) * sizeof(float));
    choices_in_squares(pool, channel, channels);
}

// -- running --------------------------------------------------------------------------------------

typedef void (*ChannelsFn)(const PoolGrad *pool, int64_t channel, int64_t channels);

typedef struct {
    const PoolGrad *pool;
    ChannelsFn work;
} Job;

static void some_channels(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Job *job = context;
    const int64_t begin = chunk * job->pool->unit;
    job->work(job->pool, begin, lesser(job->pool->channels - begin, job->pool->unit));
}

static Failure for_channels(const PoolGrad *pool, const Run *run, ChannelsFn work) {
    Job job = {pool, work};
    share_chunks(run, ceil_div(pool->channels, pool->unit), some_channels, &job);
    return OK;
}

static Failure run_mean(const void *state, const Run *run) {
    return for_channels(state, run, spread_channels);
}
static Failure run_maximum(const void *state, const Run *run) {
    return for_channels(state, run, choose_in_channels);
}
static Failure run_squares(const void *state, const Run *run) {
    return for_channels(state, run, maxima_of_squares);
}
static Failure run_squares_grad(const void *state, const Run *run) {
    return for_channels(state, run, choose_in_squares);
}

const Kernel ISA(POOL_GRADIENTS)[] = {
    {"AveragePoolGrad_f32", prepare_mean, run_mean, NULL},
    {"MaxPoolGrad_f32", prepare_maximum, run_maximum, NULL},
    {"MaxOfSquares_f32", prepare_maxima_of_squares, run_squares, NULL},
    {"MaxOfSquaresGrad_f32", prepare_squares_grad, run_squares_grad, NULL},
    {NULL, NULL, NULL, NULL},
};
