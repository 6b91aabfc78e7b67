// Discrete Fourier transforms of lines of real or complex numbers, in double precision.
//
// Lengths are taken apart into their prime factors; a factor takes as many operations for each
// number as it is large.
#include <complex.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../kernel.h"
#include "simd.h"

typedef double complex Number;

typedef struct {
    Tensor x, y;  // the last dimension: 1 for real numbers, 2 for complex ones
    const float *window;  // what a line is multiplied by, or NULL
    int axis;
    int64_t length, lines, unit, read;  // `read`: how many numbers of a line there are
    bool inverse, onesided;
    Number roots[];  // exp(-2 pi i k / length)
} Fourier;

enum { TRANSFORMED = 1 << 12 };

static void fill_roots(Fourier *state) {
    const double step = -2 * acos(-1.0) / (double)state->length;
    for (int64_t k = 0; k < state->length; k++)
        state->roots[k] = cos(step * (double)k) + I * sin(step * (double)k);
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
    return weighted && length > 0 && length < (1ll << 40) && y->dims[axis] <= length &&
           x->dims[last] >= 1 && x->dims[last] <= 2 && y->dims[last] >= 1 && y->dims[last] <= 2 &&
           element_count(y) > 0;
}

static void *prepare(Params *params, Needs *needs) {
    const Tensor x = next_tensor(params), y = next_tensor(params), window = maybe_tensor(params);
    const int axis = (int)next_int(params);
    const int64_t length = next_int(params), inverse = next_int(params);
    const int64_t onesided = next_int(params);
    const bool fits = !params->bad && are_lines(&x, &y, &window, axis, length);
    const size_t size = sizeof(Fourier) + (size_t)(fits ? length : 0) * sizeof(Number);
    Fourier *state = fits ? calloc(1, size) : NULL;
    if (!state) return NULL;
    state->x = x;
    state->y = y;
    state->window = (const float *)window.data;
    state->axis = axis;
    state->length = length;
    state->inverse = inverse != 0;
    state->onesided = onesided != 0;
    const int64_t given = x.dims[axis], half = length / 2 + 1;
    const int64_t most = state->inverse && state->onesided ? half : length;
    state->read = given < most ? given : most;
    state->lines = element_count(&y) / (y.dims[axis] * y.dims[y.rank - 1]);
    state->unit = (TRANSFORMED + length - 1) / length;
    needs->own = 4 * length * (int64_t)sizeof(Number);
    fill_roots(state);
    return state;
}

static int64_t some_factor(int64_t n) {
    if (n % 4 == 0) return 4;
    for (int64_t p = 2; p * p <= n; p++)
        if (n % p == 0) return p;
    return n;
}

// By hand: products in C look for infinities.
static inline Number product(Number a, Number b) {
    return CMPLX(
        creal(a) * creal(b) - cimag(a) * cimag(b), creal(a) * cimag(b) + cimag(a) * creal(b));
}

// to[r * m] = the sum of parts[q] times the root of order p to the power of q * r.
static inline void few(const Fourier *state, const Number *parts, Number *to, int64_t p, int64_t m) {
    if (p == 2) {
        to[0] = parts[0] + parts[1];
        to[m] = parts[0] - parts[1];
        return;
    }
    if (p == 4) {
        const Number even = parts[0] + parts[2], odd = parts[1] + parts[3];
        const Number difference = parts[0] - parts[2], other = parts[1] - parts[3];
        const Number turned = CMPLX(cimag(other), -creal(other));
        to[0] = even + odd;
        to[m] = difference + turned;
        to[2 * m] = even - odd;
        to[3 * m] = difference - turned;
        return;
    }
    const int64_t step = state->length / p;
    for (int64_t r = 0; r < p; r++) {
        Number total = parts[0];
        for (int64_t q = 1, at = r; q < p; q++, at = at + r < p ? at + r : at + r - p)
            total += product(state->roots[at * step], parts[q]);
        to[r * m] = total;
    }
}

// to[k] = the sum of from[j * step] * root ** (j * k) for j, k < n; `spare` has room for n numbers,
// `parts` for the largest factor.
static void transform(
    const Fourier *state, const Number *from, int64_t step, Number *to, Number *spare,
    Number *parts, int64_t n) {
    const int64_t p = some_factor(n), m = n / p, stride = state->length / n;
    if (m == 1) {
        for (int64_t q = 0; q < p; q++) parts[q] = from[q * step];
        few(state, parts, to, p, 1);
        return;
    }
    for (int64_t q = 0; q < p; q++)
        transform(state, from + q * step, step * p, spare + q * m, to + q * m, parts, m);
    for (int64_t k = 0; k < m; k++) {
        parts[0] = spare[k];
        for (int64_t q = 1; q < p; q++)
            parts[q] = product(state->roots[q * k * stride], spare[q * m + k]);
        few(state, parts, to + k, p, m);
    }
}

// The inverse is that of the conjugate, conjugated.
static void read_line(const Fourier *state, const char *x, Number *line) {
    const int64_t n = state->length, step = state->x.strides[state->axis];
    const int last = state->x.rank - 1;
    const bool complex_numbers = state->x.dims[last] == 2;
    for (int64_t i = 0; i < n; i++) line[i] = 0;
    for (int64_t i = 0; i < state->read; i++) {
        const double real = *(const float *)(x + i * step);
        const double imaginary =
            complex_numbers ? *(const float *)(x + i * step + state->x.strides[last]) : 0;
        const double factor = state->window ? state->window[i] : 1;
        line[i] = factor * real + I * (factor * (state->inverse ? -imaginary : imaginary));
    }
    if (!state->inverse || !state->onesided) return;
    line[0] = creal(line[0]);
    if (n % 2 == 0) line[n / 2] = creal(line[n / 2]);
    for (int64_t i = n / 2 + 1; i < n; i++) line[i] = conj(line[n - i]);
}

static void write_line(const Fourier *state, const Number *line, char *y) {
    const int64_t step = state->y.strides[state->axis];
    const int last = state->y.rank - 1;
    const double scale = state->inverse ? 1.0 / (double)state->length : 1;
    for (int64_t i = 0; i < state->y.dims[state->axis]; i++) {
        *(float *)(y + i * step) = (float)(creal(line[i]) * scale);
        if (state->y.dims[last] == 1) continue;
        const double imaginary = state->inverse ? -cimag(line[i]) : cimag(line[i]);
        *(float *)(y + i * step + state->y.strides[last]) = (float)(imaginary * scale);
    }
}

typedef struct {
    const Fourier *state;
    const Run *run;
} Job;

static void some_lines(void *context, int64_t chunk, int thread) {
    const Job *job = context;
    const Fourier *state = job->state;
    Number *line = (Number *)job->run->own[thread];
    Number *result = line + state->length, *spare = result + state->length;
    Number *parts = spare + state->length;
    int64_t end = (chunk + 1) * state->unit;
    if (end > state->lines) end = state->lines;
    for (int64_t number = chunk * state->unit; number < end; number++) {
        int64_t rest = number, from = 0, to = 0;
        for (int axis = state->y.rank - 2; axis >= 0; axis--) {
            if (axis == state->axis) continue;
            const int64_t index = rest % state->y.dims[axis];
            rest /= state->y.dims[axis];
            from += index * state->x.strides[axis];
            to += index * state->y.strides[axis];
        }
        read_line(state, state->x.data + from, line);
        transform(state, line, 1, result, spare, parts, state->length);
        write_line(state, result, state->y.data + to);
    }
}

static Failure run_fourier(const void *argument, const Run *run) {
    const Fourier *state = argument;
    Job job = {state, run};
    share_chunks(run, (state->lines + state->unit - 1) / state->unit, some_lines, &job);
    return OK;
}

const Kernel ISA(TRANSFORMS)[] = {
    {"Fourier_f32", prepare, run_fourier, NULL},
    {NULL, NULL, NULL, NULL},
};
