// Discrete Fourier transforms of lines of real or complex numbers, in double precision.
//
// Lengths are taken apart into their prime factors; a factor takes as many operations for each
// number as it is large.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../../kernel.h"
#include "../support/simd.h"
#include "../support/sizes.h"

typedef struct { double re, im; } Root;

typedef struct {
    Tensor x, y;  // the last dimension: 1 for real numbers, 2 for complex ones
    const float *window;  // what a line is multiplied by, or NULL
    int axis;
    int64_t length, lines, unit, read;  // `read`: how many numbers of a line there are
    bool inverse, onesided;
    bool together;  // many lines are transformed at once
    Root roots[];  // exp(-2 pi i k / length)
} Fourier;

typedef double Doubles __attribute__((vector_size(VECTOR_BYTES)));

enum {
    TRANSFORMED = 1 << 12,  // numbers of the lines of a chunk: see sizes.h
    TOGETHER = sizeof(Doubles) / sizeof(double),  // lines, one in each place of a vector
    // Numbers of such a line.  A guess: four buffers of a vector's lines have to fit the third cache.
    MOST_TOGETHER = 1 << 15
};

static void fill_roots(Fourier *state) {
    const double step = -2 * acos(-1.0) / (double)state->length;
    for (int64_t k = 0; k < state->length; k++)
        state->roots[k] = (Root){cos(step * (double)k), sin(step * (double)k)};
}

// What is read lies in x, what is written in y, and all else about them is the same.
static bool are_lines(
    const Tensor *x, const Tensor *y, const Tensor *window, int axis, int64_t length) {
    const int last = x->rank - 1;
    if (x->rank != y->rank || axis < 0 || axis >= last || x->dtype != F32 || y->dtype != F32)
        return false;
    for (int i = 0; i < last; i++)
        if (i != axis && x->dims[i] != y->dims[i]) return false;
    const int64_t given = x->dims[axis] < length ? x->dims[axis] : length;
    const bool weighted = !window->data || (window->rank == 1 && window->dims[0] >= given &&
                                            window->dtype == F32 && is_contiguous(window));
    // All of the results, or half of them, each in a place of its own: so what the kernel needs is no
    // more than they have.
    const bool apart = y->dims[axis] == 1 || y->strides[axis] != 0;
    return weighted && apart && length > 0 && y->dims[axis] <= length &&
           y->dims[axis] > length / 2 && x->dims[last] >= 1 && x->dims[last] <= 2 &&
           y->dims[last] >= 1 && y->dims[last] <= 2 && element_count(y) > 0;
}

static void *prepare(Params *params, Needs *needs) {
    const Tensor x = next_tensor(params), y = next_tensor(params), window = maybe_tensor(params);
    const int axis = (int)next_int(params);
    const int64_t length = next_int(params), inverse = next_int(params);
    const int64_t onesided = next_int(params);
    const bool fits = !params->bad && are_lines(&x, &y, &window, axis, length);
    const size_t size = sizeof(Fourier) + (size_t)(fits ? length : 0) * sizeof(Root);
    Fourier *state = fits ? calloc(1, size) : NULL;
    if (!state) return NULL;
    state->x = x;
    state->y = y;
    reads_anywhere(needs, &state->x.data);
    writes_anywhere(needs, &state->y.data);
    state->window = (const float *)window.data;
    state->axis = axis;
    state->length = length;
    state->inverse = inverse != 0;
    state->onesided = onesided != 0;
    const int64_t given = x.dims[axis], half = length / 2 + 1;
    const int64_t most = state->inverse && state->onesided ? half : length;
    state->read = lesser(given, most);
    state->lines = element_count(&y) / (y.dims[axis] * y.dims[y.rank - 1]);
    state->together = state->lines > 1 && length <= MOST_TOGETHER;
    state->unit = ceil_div(TRANSFORMED, length);
    if (state->together) state->unit = padded(state->unit, TOGETHER);
    const int64_t at_once = state->together ? TOGETHER : 1;
    needs->own = 4 * length * at_once * (int64_t)sizeof(Root);
    fill_roots(state);
    return state;
}

static int64_t some_factor(int64_t n) {
    if (n % 4 == 0) return 4;
    for (int64_t p = 2; p * p <= n; p++)
        if (n % p == 0) return p;
    return n;
}

// Where a line begins in one of the tensors.
static int64_t place_of(const Fourier *state, const Tensor *tensor, int64_t number) {
    int64_t place = 0;
    for (int axis = state->y.rank - 2; axis >= 0; axis--) {
        if (axis == state->axis) continue;
        place += number % state->y.dims[axis] * tensor->strides[axis];
        number /= state->y.dims[axis];
    }
    return place;
}

enum { LARGE_FACTOR = 1 << 9 };  // a sum of so many products is some microseconds

#define REAL double
#include "fourier_lines.h"
#undef REAL
#define REAL Doubles
#include "fourier_lines.h"
#undef REAL

typedef struct {
    const Fourier *state;
    const Run *run;
} Job;

static void some_lines(void *context, int64_t chunk, int thread) {
    const Job *job = context;
    const Fourier *state = job->state;
    const int64_t begin = chunk * state->unit, most = begin + state->unit;
    const int64_t end = lesser(most, state->lines);
    if (state->together)
        do_lines_Doubles(state, begin, end, job->run->own[thread]);
    else
        do_lines_double(state, begin, end, job->run->own[thread]);
}

static Failure run_fourier(const void *argument, const Run *run) {
    const Fourier *state = argument;
    Job job = {state, run};
    share_chunks(run, ceil_div(state->lines, state->unit), some_lines, &job);
    return OK;
}

const Kernel ISA(TRANSFORMS)[] = {
    {"Fourier_f32", prepare, run_fourier, NULL},
    {NULL, NULL, NULL, NULL},
};
