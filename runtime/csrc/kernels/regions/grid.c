// Elements at positions that a grid gives, between which they are blended.  Arithmetic is that of
// kernels/image.py.
#include <math.h>
#include <stdlib.h>

#include "../../kernel.h"
#include "../support/simd.h"
#include "../support/sizes.h"

// Taps of a cubic along an axis, and those of three axes together.  Positions whose places are found at
// once, for all channels: 48 KiB of indices and weights.  Elements of a chunk: see sizes.h.
enum { MOST_AXES = 3, MOST_TAPS = 4, MOST_CORNERS = 64, POSITIONS = 64, SAMPLED_WORK = 1 << 14 };

typedef enum { NEAREST, LINEAR, CUBIC } Mode;
typedef enum { ZEROS, BORDER, REFLECTION } Padding;

typedef struct {
    const float *x, *grid;
    float *out;
    int64_t images, channels, positions, blocks, unit;
    int axes;
    int64_t sizes[MOST_AXES], plane;
    Mode mode;
    Padding padding;
    bool align_corners;
} Grid;

// Of a block of positions: which elements count, and how much.
typedef struct {
    int64_t index[MOST_CORNERS][POSITIONS];
    float weight[MOST_CORNERS][POSITIONS];
} Corners;

// Whether there is a result for each position of the grid, for all channels.
static bool is_sampled(const Tensor *x, const Tensor *grid, const Tensor *out) {
    const int axes = x->rank - 2;
    if (axes < 1 || axes > MOST_AXES || out->rank != x->rank || element_count(x) <= 0 ||
        element_count(out) <= 0 || out->dims[0] != x->dims[0] || out->dims[1] != x->dims[1])
        return false;
    return holds(x, F32, element_count(x)) && holds(out, F32, element_count(out)) &&
           holds(grid, F32, element_count(out) / out->dims[1] * axes);
}

static void *prepare(Params *params, Needs *needs) {
    Grid *state = calloc(1, sizeof(Grid));
    if (!state) return NULL;
    const Tensor x = next_tensor(params), grid = next_tensor(params), out = next_tensor(params);
    state->mode = (Mode)next_int(params);
    state->padding = (Padding)next_int(params);
    state->align_corners = next_int(params) != 0;
    state->axes = x.rank - 2;
    const bool known = state->mode <= CUBIC && state->padding <= REFLECTION;
    if (params->bad || !known || !is_sampled(&x, &grid, &out)) {
        free(state);
        return NULL;
    }
    state->x = (const float *)x.data;
    state->grid = (const float *)grid.data;
    state->out = (float *)out.data;
    state->images = x.dims[0];
    state->channels = x.dims[1];
    state->plane = 1;
    for (int i = 0; i < state->axes; i++) state->plane *= state->sizes[i] = x.dims[i + 2];
    state->positions = element_count(&out) / (state->images * state->channels);
    state->blocks = ceil_div(state->positions, POSITIONS);
    state->unit = SAMPLED_WORK / (POSITIONS * state->channels) + 1;
    needs->own = sizeof(Corners);
    return state;
}

// Mirrored at the edges until it lies between them.
static float reflected(float x, float low, float high) {
    if (high - low <= 0) return low;
    if (!(x < low || x > high)) return x;
    const float period = 2 * (high - low);
    float distance = fmodf(x - low, period);
    if (distance < 0) distance += period;
    const float back = period - distance;
    return (distance < back ? distance : back) + low;
}

static float in_bounds(const Grid *state, float x, float low, float high, int64_t length) {
    if (state->padding == REFLECTION) return reflected(x, low, high);
    if (state->padding == ZEROS || (x >= low && x <= high)) return x;
    const float above = x < 0 ? 0 : x;
    return above > (float)(length - 1) ? (float)(length - 1) : above;
}

static int weights_of(Mode mode, float fraction, float *weights) {
    if (mode == NEAREST) {
        weights[0] = 1;
        return 1;
    }
    const float rest = 1 - fraction;
    if (mode == LINEAR) {
        weights[0] = rest;
        weights[1] = fraction;
        return 2;
    }
    const float a = -0.75f, first = fraction + 1, last = 2 - fraction;
    weights[0] = ((a * first - 5 * a) * first + 8 * a) * first - 4 * a;
    weights[1] = ((a + 2) * fraction - (a + 3)) * fraction * fraction + 1;
    weights[2] = ((a + 2) * rest - (a + 3)) * rest * rest + 1;
    weights[3] = ((a * last - 5 * a) * last + 8 * a) * last - 4 * a;
    return 4;
}

// The elements of one axis that a position reads, with their weights; their number.
static int taps_of(
    const Grid *state, float position, int64_t length, int64_t *index, float *weights) {
    const float low = state->align_corners ? 0.0f : -0.5f;
    const float high = (float)length - (state->align_corners ? 1.0f : 0.5f);
    float x = low + (position + 1) * ((high - low) / 2);
    if (state->mode == NEAREST) x = rintf(x);
    if (state->mode != CUBIC) x = in_bounds(state, x, low, high, length);
    const float base = floorf(x);
    const int count = weights_of(state->mode, x - base, weights);
    for (int i = 0; i < count; i++) {
        float place = base + (float)(i - (state->mode == CUBIC));
        if (state->padding == ZEROS)
            weights[i] *= place >= 0 && place < (float)length;
        else
            place = in_bounds(state, place, low, high, length);
        // What is not a number comes to the first element.
        index[i] = place > 0 ? (place < (float)length ? (int64_t)place : length - 1) : 0;
    }
    return count;
}

// The number of corners.
static int find_corners(const Grid *state, const float *grid, int64_t count, Corners *corners) {
    int found = 0;
    for (int64_t p = 0; p < count; p++) {
        int64_t index[MOST_CORNERS] = {0};
        float weight[MOST_CORNERS] = {1};
        found = 1;
        for (int axis = 0; axis < state->axes; axis++) {
            int64_t step[MOST_TAPS];
            float share[MOST_TAPS];
            const int64_t length = state->sizes[axis];
            const float position = grid[p * state->axes + state->axes - 1 - axis];
            const int taps = taps_of(state, position, length, step, share);
            for (int i = found - 1; i >= 0; i--)
                for (int k = taps - 1; k >= 0; k--) {
                    index[i * taps + k] = index[i] * length + step[k];
                    weight[i * taps + k] = axis ? weight[i] * share[k] : share[k];
                }
            found *= taps;
        }
        for (int i = 0; i < found; i++) {
            corners->index[i][p] = index[i];
            corners->weight[i][p] = weight[i];
        }
    }
    return found;
}

static void blend(
    const Grid *state, const Corners *corners, int found, const float *x, float *out,
    int64_t count) {
    for (int64_t p = 0; p < count && state->mode == NEAREST; p++)
        out[p] = corners->weight[0][p] != 0 ? x[corners->index[0][p]] : 0;
    if (state->mode == NEAREST) return;
    float totals[POSITIONS];
    for (int64_t p = 0; p < count; p++) totals[p] = x[corners->index[0][p]] * corners->weight[0][p];
    for (int i = 1; i < found; i++)
        for (int64_t p = 0; p < count; p++)
            totals[p] += x[corners->index[i][p]] * corners->weight[i][p];
    for (int64_t p = 0; p < count; p++) out[p] = totals[p];
}

typedef struct {
    const Grid *state;
    const Run *run;
} Job;

static void some_blocks(void *context, int64_t chunk, int thread) {
    const Job *job = context;
    const Grid *state = job->state;
    Corners *corners = (Corners *)job->run->own[thread];
    int64_t end = (chunk + 1) * state->unit;
    if (end > state->images * state->blocks) end = state->images * state->blocks;
    for (int64_t block = chunk * state->unit; block < end; block++) {
        const int64_t image = block / state->blocks, first = block % state->blocks * POSITIONS;
        const int64_t count = lesser(state->positions - first, POSITIONS);
        const float *grid = state->grid + (image * state->positions + first) * state->axes;
        const int found = find_corners(state, grid, count, corners);
        for (int64_t channel = 0; channel < state->channels; channel++) {
            const int64_t plane = image * state->channels + channel;
            blend(
                state, corners, found, state->x + plane * state->plane,
                state->out + plane * state->positions + first, count);
        }
    }
}

static Failure run_grid(const void *argument, const Run *run) {
    const Grid *state = argument;
    Job job = {state, run};
    const int64_t blocks = state->images * state->blocks;
    share_chunks(run, ceil_div(blocks, state->unit), some_blocks, &job);
    return OK;
}

const Kernel ISA(GRIDS)[] = {
    {"GridSample_f32", prepare, run_grid, NULL},
    {NULL, NULL, NULL, NULL},
};
