// Places of the largest or smallest elements along an axis, [outer][length][inner].
#include "../support/extremes.h"

#include <math.h>
#include <stdlib.h>

#include "../../kernel.h"
#include "../support/lines.h"

// Elements of a chunk: see sizes.h.  Lines side by side that are gone through at once, and elements of a
// line: a compiler makes vectors of them, for the widest of which 64 bytes are one.
enum { EXTREME_WORK = 1 << 14, LINES = PANEL_COLUMNS, STRIPS = 64 };

typedef struct Extremes Extremes;

// Finds the places for `width` lines that lie side by side, the first at `from`, elements of which are
// `step` apart.
typedef void (*FindFn)(
    const Extremes *state, const char *from, int64_t step, int64_t width, int64_t *places);

struct Extremes {
    const char *x;
    int64_t *places;
    int64_t size, outer, length, inner;
    int64_t outers;  // of a panel, 0 if there are none: see support/lines.h
    int64_t blocks, unit;  // of lines, in all of an outer index or panels, and those of a chunk
    bool largest, backwards;
    FindFn find;
};

// NaN is before everything.
#define GOES_BEFORE(V, T) (((largest ? (V) > (T) : (V) < (T)) | ((V) != (V))) & ((T) == (T)))

static int64_t in_long_line(const float *x, int64_t n, bool backwards, bool largest);

// The place of what comes first in a line, and among equals the first, or the last if `backwards`.

#define TYPE float
#include "extremes_in.h"
#define TYPE double
#include "extremes_in.h"
#define TYPE int8_t
#include "extremes_in.h"
#define TYPE uint8_t
#include "extremes_in.h"
#define TYPE int16_t
#include "extremes_in.h"
#define TYPE uint16_t
#include "extremes_in.h"
#define TYPE int32_t
#include "extremes_in.h"
#define TYPE uint32_t
#include "extremes_in.h"
#define TYPE int64_t
#include "extremes_in.h"
#define TYPE uint64_t
#include "extremes_in.h"

// -- lines of floats ------------------------------------------------------------------------------

// Vectors that do not wait for each other: a comparison and its choice take four cycles or so.
enum { SIDE_BY_SIDE = 4, STRIP = SIDE_BY_SIDE * LANES };

static inline bool any_of(Mask mask) {
    int64_t parts[VECTOR_BYTES / 8], any = 0;
    memcpy(parts, &mask, sizeof(parts));
    for (int i = 0; i < VECTOR_BYTES / 8; i++) any |= parts[i];
    return any != 0;
}

// The extreme of a line of at least a strip; the last strip may overlap another.  NaN if there is one.
INLINE float extreme_in_strips(const float *x, int64_t n, const bool largest) {
    Floats best[SIDE_BY_SIDE];
    Mask nans = {0};
    UNROLLED_FOR (int v = 0; v < SIDE_BY_SIDE; v++) best[v] = load(x + v * LANES);
    for (int64_t i = 0; i < n; i += STRIP) {
        const float *strip = x + (i + STRIP <= n ? i : n - STRIP);
        UNROLLED_FOR (int v = 0; v < SIDE_BY_SIDE; v++) {
            const Floats one = load(strip + v * LANES);
            best[v] = largest ? all_at_least(one, best[v]) : all_at_most(one, best[v]);
            nans |= one != one;
        }
    }
    if (any_of(nans)) return NAN;
    for (int v = 1; v < SIDE_BY_SIDE; v++)
        best[0] = largest ? all_at_least(best[v], best[0]) : all_at_most(best[v], best[0]);
    float parts[LANES], first;
    store(parts, best[0]);
    first = parts[0];
    for (int lane = 1; lane < LANES; lane++)
        first = (largest ? parts[lane] > first : parts[lane] < first) ? parts[lane] : first;
    return first;
}

// Whether `vectors` vectors hold a number.
INLINE bool hold(const float *strip, float wanted, const int vectors) {
    const Floats number = all_of(wanted);
    Mask found = {0};
    UNROLLED_FOR (int v = 0; v < vectors; v++) found |= load(strip + v * LANES) == number;
    return any_of(found);
}

static int64_t in_long_line(const float *x, int64_t n, bool backwards, bool largest) {
    if (n < STRIP) return in_line_float(x, n, backwards, largest);
    const float best = largest ? extreme_in_strips(x, n, true) : extreme_in_strips(x, n, false);
    if (best != best || backwards) return place_float(x, best, n, backwards);
    int64_t i = 0;
    while (i + STRIP <= n && !hold(x + i, best, SIDE_BY_SIDE)) i += STRIP;
    while (i + LANES <= n && !hold(x + i, best, 1)) i += LANES;
    while (x[i] != best) i++;
    return i;
}

static FindFn finding(DType dtype) {
    switch (dtype) {
        case F32: return find_float;
        case F64: return find_double;
        case I8: return find_int8_t;
        case BOOL:
        case U8: return find_uint8_t;
        case I16: return find_int16_t;
        case U16: return find_uint16_t;
        case I32: return find_int32_t;
        case U32: return find_uint32_t;
        case I64: return find_int64_t;
        case U64: return find_uint64_t;
        default: return NULL;
    }
}

static void cut_lines(Extremes *state, Needs *needs) {
    state->outers = outers_of_panel(state->outer, state->length, state->inner, state->size, STRIPS);
    const int64_t columns = state->outers ? state->outers * state->inner
                                          : lesser(state->inner, LINES);
    state->blocks = state->outers ? ceil_div(state->outer, state->outers)
                                  : ceil_div(state->inner, LINES);
    if (columns) state->unit = ceil_div(EXTREME_WORK, columns * state->length);
    if (state->outers) needs->own = columns * state->length * state->size;
}

// x, places {outer, length, inner, largest, backwards}
static void *prepare(Params *params, Needs *needs) {
    const Tensor x = next_tensor(params), places = next_tensor(params);
    Extremes *state = calloc(1, sizeof(Extremes));
    if (!state) return NULL;
    state->x = x.data;
    state->places = (int64_t *)places.data;
    state->size = item_size(x.dtype);
    state->outer = next_int(params);
    state->length = next_int(params);
    state->inner = next_int(params);
    state->largest = next_int(params) != 0;
    state->backwards = next_int(params) != 0;
    state->find = finding(x.dtype);
    const int64_t lines = size_of(state->outer, state->inner, 1);
    const bool fits = !params->bad && state->find && state->length > 0 && lines >= 0 &&
                      state->length <= INT32_MAX && holds(&places, I64, lines) &&
                      holds(&x, x.dtype, size_of(state->outer, state->length, state->inner));
    if (!fits) {
        free(state);
        return NULL;
    }
    state->unit = 1;
    reads_anywhere(needs, &state->x);
    writes_anywhere(needs, &state->places);
    cut_lines(state, needs);
    return state;
}

static void find_block(const Extremes *state, int64_t block) {
    const int64_t outer = block / state->blocks, start = block % state->blocks * LINES;
    const int64_t first = outer * state->length * state->inner + start;
    state->find(
        state, state->x + first * state->size, state->inner, lesser(state->inner - start, LINES),
        state->places + outer * state->inner + start);
}

static void find_panel(const Extremes *state, int64_t number, char *panel) {
    const int64_t first = number * state->outers, run = state->inner * state->size;
    const int64_t outers = lesser(state->outers, state->outer - first), apart = state->length * run;
    fill_panel(
        state->x + first * apart, apart, outers, state->length, run, panel, state->outers * run);
    state->find(
        state, panel, state->outers * state->inner, outers * state->inner,
        state->places + first * state->inner);
}

typedef struct {
    const Extremes *state;
    const Run *run;
} Job;

static int64_t pieces_of(const Extremes *state) {
    return state->outers ? state->blocks : state->outer * state->blocks;
}

static void some_pieces(void *context, int64_t chunk, int thread) {
    const Job *job = context;
    const Extremes *state = job->state;
    const int64_t end = lesser((chunk + 1) * state->unit, pieces_of(state));
    for (int64_t piece = chunk * state->unit; piece < end; piece++)
        if (state->outers)
            find_panel(state, piece, job->run->own[thread]);
        else
            find_block(state, piece);
}

static Failure run_extremes(const void *argument, const Run *run) {
    const Extremes *state = argument;
    Job job = {state, run};
    share_chunks(run, ceil_div(pieces_of(state), state->unit), some_pieces, &job);
    return OK;
}

const Kernel ISA(EXTREMES)[] = {
    {"ArgExtreme", prepare, run_extremes, NULL},
    {NULL, NULL, NULL, NULL},
};
