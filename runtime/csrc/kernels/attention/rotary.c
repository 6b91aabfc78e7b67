// Rotation of pairs of elements of the last dimension, by angles that are given.
#include <stdlib.h>
#include <string.h>

#include "../../kernel.h"
#include "../support/simd.h"
#include "../support/sizes.h"

typedef struct {
    const float *x;
    float *y;
    Tensor cosine, sine;  // of the shape of x, but for the last dimension: one for each pair
    int64_t rows, length, pairs, unit;
    bool interleaved;
} Rotary;

enum { ROTATED_ELEMENTS = 1 << 14 };  // of a chunk: see sizes.h

// Whether a table has a line for each row of x.
static bool is_table(const Tensor *table, const Tensor *x) {
    if (!table->data || table->dtype != F32 || table->rank != x->rank) return false;
    for (int axis = 0; axis < x->rank - 1; axis++)
        if (table->dims[axis] != x->dims[axis]) return false;
    return true;
}

static void *prepare(Params *params, Needs *needs) {
    const Tensor x = next_tensor(params), y = next_tensor(params);
    Rotary *state = calloc(1, sizeof(Rotary));
    if (!state) return NULL;
    state->cosine = next_tensor(params);
    state->sine = next_tensor(params);
    state->interleaved = next_int(params) != 0;
    const int last = x.rank - 1;
    const int64_t count = element_count(&x);
    if (params->bad || last < 0 || count == 0 || !is_table(&state->cosine, &x) ||
        !is_table(&state->sine, &x) || state->cosine.dims[last] != state->sine.dims[last] ||
        !holds(&x, F32, count) || !holds(&y, F32, count)) {
        free(state);
        return NULL;
    }
    state->x = (const float *)x.data;
    reads_anywhere(needs, &state->x);
    reads_anywhere(needs, &state->cosine.data);
    reads_anywhere(needs, &state->sine.data);
    state->y = (float *)y.data;
    writes_anywhere(needs, &state->y);
    state->length = x.dims[last];
    state->rows = element_count(&x) / state->length;
    state->pairs = state->cosine.dims[last];
    state->unit = ceil_div(ROTATED_ELEMENTS, state->length);
    if (2 * state->pairs <= state->length) return state;
    free(state);
    return NULL;
}

static const char *row_of(const Tensor *table, int64_t row) {
    const char *at = table->data;
    for (int axis = table->rank - 2; axis >= 0; axis--) {
        at += row % table->dims[axis] * table->strides[axis];
        row /= table->dims[axis];
    }
    return at;
}

// Elements `step` after each other, the second of each pair `apart` from the first.
INLINE void rotate(
    const float *x, float *y, const char *cosine, const char *sine, int64_t pairs,
    const int64_t step, const int64_t apart, const int64_t cosine_step, const int64_t sine_step) {
    INDEPENDENT_FOR (int64_t i = 0; i < pairs; i++) {
        const float c = *(const float *)(cosine + i * cosine_step);
        const float s = *(const float *)(sine + i * sine_step);
        const float a = x[i * step], b = x[i * step + apart];
        y[i * step] = a * c - b * s;
        y[i * step + apart] = a * s + b * c;
    }
}

static void rotate_row(const Rotary *state, int64_t row) {
    const float *x = state->x + row * state->length;
    float *y = state->y + row * state->length;
    const char *cosine = row_of(&state->cosine, row), *sine = row_of(&state->sine, row);
    const int64_t pairs = state->pairs, last = state->cosine.rank - 1, size = sizeof(float);
    const int64_t c = state->cosine.strides[last], s = state->sine.strides[last];
    const bool plain = c == size && s == size;
    if (state->interleaved)
        rotate(x, y, cosine, sine, pairs, 2, 1, c, s);
    else if (plain)
        rotate(x, y, cosine, sine, pairs, 1, pairs, size, size);
    else
        rotate(x, y, cosine, sine, pairs, 1, pairs, c, s);
    const int64_t rest = state->length - 2 * pairs;
    if (rest && x != y) memcpy(y + 2 * pairs, x + 2 * pairs, (size_t)(rest * size));
}

static void some_rows(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Rotary *state = context;
    int64_t end = (chunk + 1) * state->unit;
    if (end > state->rows) end = state->rows;
    for (int64_t row = chunk * state->unit; row < end; row++) rotate_row(state, row);
}

static Failure run_rotary(const void *argument, const Run *run) {
    const Rotary *state = argument;
    const int64_t chunks = ceil_div(state->rows, state->unit);
    share_chunks(run, chunks, some_rows, (void *)state);
    return OK;
}

const Kernel ISA(ROTATIONS)[] = {
    {"Rotary_f32", prepare, run_rotary, NULL},
    {NULL, NULL, NULL, NULL},
};
