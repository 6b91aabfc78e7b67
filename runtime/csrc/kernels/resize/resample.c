// Resized axes: elements picked at given offsets, or weighted sums of a few of them.
#include <stdlib.h>
#include <string.h>

#include "../../kernel.h"
#include "../support/simd.h"
#include "../support/sizes.h"

enum { RESAMPLE_WORK = 1 << 14 };  // elements read, or products: see sizes.h

// -- elements at the sums of one offset of each axis ----------------------------------------------

typedef struct {
    const char *x;
    char *out;
    int rank;
    int64_t dims[MAX_RANK], strides[MAX_RANK];  // of the result
    const int64_t *offsets[MAX_RANK];  // bytes, for each index of the axis
    int64_t size, lines, unit;
    bool runs;  // what lies side by side stays so: the last axis is not resized
} Pick;

// Whether offsets are those of elements of `x`.
static bool are_inside(const Pick *pick, const Tensor *x) {
    int64_t first = 0, last = 0, low = 0, high = 0;
    for (int axis = 0; axis < x->rank; axis++) {
        const int64_t span = x->dims[axis] > 0 ? (x->dims[axis] - 1) * x->strides[axis] : 0;
        *(span < 0 ? &low : &high) += span;
    }
    for (int axis = 0; axis < pick->rank; axis++) {
        int64_t least = 0, most = 0;
        for (int64_t i = 0; i < pick->dims[axis]; i++) {
            const int64_t offset = pick->offsets[axis][i];
            if (offset < -MOST_BYTES || offset > MOST_BYTES) return false;
            if (i == 0 || offset < least) least = offset;
            if (i == 0 || offset > most) most = offset;
        }
        first += least;
        last += most;
    }
    return item_size(x->dtype) == pick->size && element_count(x) > 0 && first >= low &&
           last <= high;
}

// x, out, whose last axis lies side by side, offsets of each axis
static void *prepare_pick(Params *params, Needs *needs) {
    const Tensor x = next_tensor(params), out = next_tensor(params);
    Pick *pick = calloc(1, sizeof(Pick));
    if (!pick) return NULL;
    pick->x = x.data;
    reads_anywhere(needs, &pick->x);
    pick->out = out.data;
    writes_anywhere(needs, &pick->out);
    pick->rank = out.rank;
    pick->size = item_size(out.dtype);
    pick->lines = 1;
    for (int axis = 0; axis < out.rank; axis++) {
        const Tensor offsets = next_tensor(params);
        pick->offsets[axis] = (const int64_t *)(void *)offsets.data;
        pick->dims[axis] = out.dims[axis];
        pick->strides[axis] = out.strides[axis];
        if (axis < out.rank - 1) pick->lines *= out.dims[axis];
        if (!holds(&offsets, I64, out.dims[axis]) || !are_apart(&offsets, &out)) params->bad = true;
    }
    const int64_t length = out.rank ? out.dims[out.rank - 1] : 0;
    pick->runs = true;
    for (int64_t i = 0; i < length && !params->bad; i++)
        pick->runs &= pick->offsets[out.rank - 1][i] == i * pick->size;
    pick->unit = length > 0 ? ceil_div(RESAMPLE_WORK, length) : 1;
    const bool dense = length == 1 || (length > 0 && out.strides[out.rank - 1] == pick->size);
    if (!params->bad && dense && are_inside(pick, &x)) return pick;
    free(pick);
    return NULL;
}

#define PICK_LINE(TYPE)                                                                        \
    static void pick_##TYPE(char *to, const char *x, const int64_t *offsets, int64_t count) {  \
        for (int64_t i = 0; i < count; i++) ((TYPE *)to)[i] = *(const TYPE *)(x + offsets[i]); \
    }

PICK_LINE(uint8_t)
PICK_LINE(uint16_t)
PICK_LINE(uint32_t)
PICK_LINE(uint64_t)

static void pick_line(const Pick *pick, int64_t line) {
    const int last = pick->rank - 1;
    const int64_t count = pick->dims[last], *offsets = pick->offsets[last];
    char *to = pick->out;
    const char *x = pick->x;
    for (int axis = last - 1; axis >= 0; axis--) {
        const int64_t index = line % pick->dims[axis];
        x += pick->offsets[axis][index];
        to += index * pick->strides[axis];
        line /= pick->dims[axis];
    }
    if (pick->runs) {
        memcpy(to, x, (size_t)(count * pick->size));
        return;
    }
    switch (pick->size) {
        case 1: pick_uint8_t(to, x, offsets, count); break;
        case 2: pick_uint16_t(to, x, offsets, count); break;
        case 4: pick_uint32_t(to, x, offsets, count); break;
        default: pick_uint64_t(to, x, offsets, count); break;
    }
}

static void some_picks(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Pick *pick = context;
    const int64_t end = (chunk + 1) * pick->unit;
    for (int64_t line = chunk * pick->unit; line < end && line < pick->lines; line++)
        pick_line(pick, line);
}

static Failure run_pick(const void *state, const Run *run) {
    const Pick *pick = state;
    share_chunks(run, ceil_div(pick->lines, pick->unit), some_picks, (void *)pick);
    return OK;
}

// -- weighted sums along one axis: [outer][length][inner] to [outer][resized][inner] --------------

typedef struct {
    const float *x, *weights;  // weights: [resized][taps]
    const int64_t *indices;
    float *out;
    int64_t outer, length, inner, resized, taps, unit;
    int32_t *places;  // where the axis is the last one: [taps][resized], and
    float *shares;  // the weights in the same order
} Resample;

// The tables of a last axis, tap by tap; they lie behind the state.
static void turn_tables(Resample *state) {
    const int64_t terms = state->resized * state->taps;
    state->places = (int32_t *)(state + 1);
    state->shares = (float *)(state->places + terms);
    for (int64_t i = 0; i < state->resized; i++)
        for (int64_t tap = 0; tap < state->taps; tap++) {
            const int64_t from = i * state->taps + tap, to = tap * state->resized + i;
            state->places[to] = (int32_t)state->indices[from];
            state->shares[to] = state->weights[from];
        }
    state->unit = ceil_div(RESAMPLE_WORK, terms);
}

// x, indices, weights, out {outer, length, inner}
static void *prepare_resample(Params *params, Needs *needs) {
    const Tensor x = next_tensor(params), indices = next_tensor(params);
    const Tensor weights = next_tensor(params), out = next_tensor(params);
    const int64_t terms = element_count(&indices);
    const int64_t tables = size_of(terms, sizeof(int32_t) + sizeof(float), 1);
    if (params->bad || tables <= 0) return NULL;
    Resample *state = calloc(1, sizeof(Resample) + (size_t)tables);
    if (!state) return NULL;
    state->x = (const float *)(void *)x.data;
    reads_anywhere(needs, &state->x);
    state->indices = (const int64_t *)(void *)indices.data;
    state->weights = (const float *)(void *)weights.data;
    state->out = (float *)(void *)out.data;
    writes_anywhere(needs, &state->out);
    state->outer = next_int(params);
    state->length = next_int(params);
    state->inner = next_int(params);
    state->resized = indices.dims[0];
    state->taps = indices.dims[1];
    const int64_t work = size_of(state->inner, state->taps, 1);
    state->unit = work > 0 ? ceil_div(RESAMPLE_WORK, work) : 1;
    const int64_t given = size_of(state->outer, state->length, state->inner);
    const int64_t wanted = size_of(state->outer, state->resized, state->inner);
    bool fits = !params->bad && indices.rank == 2 && work > 0 && given > 0 && wanted > 0 &&
                holds(&x, F32, given) && holds(&out, F32, wanted) && holds(&indices, I64, terms) &&
                are_apart(&indices, &out) && holds(&weights, F32, terms);
    for (int64_t i = 0; fits && i < terms; i++)
        fits = state->indices[i] >= 0 && state->indices[i] < state->length;
    if (fits && state->inner == 1 && state->length <= INT32_MAX) turn_tables(state);
    if (fits) return state;
    free(state);
    return NULL;
}

static void resample_row(const Resample *state, int64_t row) {
    const int64_t place = row % state->resized, inner = state->inner;
    const int64_t *indices = state->indices + place * state->taps;
    const float *weights = state->weights + place * state->taps;
    const float *x = state->x + row / state->resized * state->length * inner;
    float *out = state->out + row * inner;
    if (inner == 1) {
        float sum = 0;
        for (int64_t tap = 0; tap < state->taps; tap++) sum += weights[tap] * x[indices[tap]];
        *out = sum;
        return;
    }
    int64_t done = 0;
    for (int64_t tap = 0; tap < state->taps; tap++) {
        if (is_stopped_after(inner, &done)) return;
        const float *from = x + indices[tap] * inner;
        const float weight = weights[tap];
        if (tap == 0)
            for (int64_t i = 0; i < inner; i++) out[i] = weight * from[i];
        else
            INDEPENDENT_FOR (int64_t i = 0; i < inner; i++) out[i] += weight * from[i];
    }
}

// A line of the last axis: each tap of all places.
static void resample_line(const Resample *state, int64_t line) {
    const float *x = state->x + line * state->length;
    float *out = state->out + line * state->resized;
    const int64_t count = state->resized;
    int64_t done = 0;
    for (int64_t tap = 0; tap < state->taps; tap++) {
        if (is_stopped_after(count, &done)) return;
        const int32_t *places = state->places + tap * count;
        const float *shares = state->shares + tap * count;
        if (tap == 0)
            INDEPENDENT_FOR (int64_t i = 0; i < count; i++) out[i] = shares[i] * x[places[i]];
        else
            INDEPENDENT_FOR (int64_t i = 0; i < count; i++) out[i] += shares[i] * x[places[i]];
    }
}

static void some_lines(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Resample *state = context;
    const int64_t end = (chunk + 1) * state->unit;
    for (int64_t line = chunk * state->unit; line < end && line < state->outer; line++)
        resample_line(state, line);
}

static void some_rows(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Resample *state = context;
    const int64_t end = (chunk + 1) * state->unit, rows = state->outer * state->resized;
    for (int64_t row = chunk * state->unit; row < end && row < rows; row++)
        resample_row(state, row);
}

static Failure run_resample(const void *argument, const Run *run) {
    const Resample *state = argument;
    if (state->places) {
        share_chunks(run, ceil_div(state->outer, state->unit), some_lines, (void *)state);
        return OK;
    }
    const int64_t rows = state->outer * state->resized;
    share_chunks(run, ceil_div(rows, state->unit), some_rows, (void *)state);
    return OK;
}

const Kernel ISA(RESAMPLINGS)[] = {
    {"Pick", prepare_pick, run_pick, NULL},
    {"Resample_f32", prepare_resample, run_resample, NULL},
    {NULL, NULL, NULL, NULL},
};
