// Elements at positions that a grid gives, between which they are blended.  Arithmetic is that of
// kernels/image.py.
#include <math.h>
#include <stdlib.h>

#include "../../kernel.h"
#include "../support/simd.h"
#include "../support/sizes.h"

// Taps of a cubic along an axis, and those of three axes together.  Positions whose places are found at
// once, for all channels: 34 KiB of indices and weights.  Elements of a chunk: see sizes.h; finding a
// place takes as long as FINDING of them.  Planes of more than LARGEST elements are left to numpy.
enum { MOST_AXES = 3, MOST_TAPS = 4, MOST_CORNERS = 64, POSITIONS = 64, SAMPLED_WORK = 1 << 14 };
enum { FINDING = 4, LARGEST = 1 << 30 };

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

// Of a block of positions, along one axis: which elements count, and how much.
typedef struct {
    int32_t step[MOST_TAPS][POSITIONS];
    float share[MOST_TAPS][POSITIONS];
} Taps;

// The same of all axes.
typedef struct {
    Taps taps;
    int32_t index[MOST_CORNERS][POSITIONS];
    float weight[MOST_CORNERS][POSITIONS];
} Corners;

// Whether there is a result for each position of the grid, for all channels.
static bool is_sampled(const Tensor *x, const Tensor *grid, const Tensor *out) {
    const int axes = x->rank - 2;
    if (axes < 1 || axes > MOST_AXES || out->rank != x->rank || element_count(x) <= 0 ||
        element_count(out) <= 0 || out->dims[0] != x->dims[0] || out->dims[1] != x->dims[1])
        return false;
    if (element_count(x) / x->dims[0] / x->dims[1] > LARGEST) return false;
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
    reads_anywhere(needs, &state->x);
    writes_anywhere(needs, &state->out);
    state->images = x.dims[0];
    state->channels = x.dims[1];
    state->plane = 1;
    for (int i = 0; i < state->axes; i++) state->plane *= state->sizes[i] = x.dims[i + 2];
    state->positions = element_count(&out) / (state->images * state->channels);
    state->blocks = ceil_div(state->positions, POSITIONS);
    const int64_t block = lesser(state->positions, POSITIONS);
    state->unit = SAMPLED_WORK / (block * (state->channels + FINDING)) + 1;
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

// Positions along an axis, brought between its ends.
static void bound_places(const Grid *state, float *x, int64_t count, int64_t length) {
    const float low = state->align_corners ? 0.0f : -0.5f;
    const float high = (float)length - (state->align_corners ? 1.0f : 0.5f);
    const float last = (float)(length - 1);
    if (state->padding == REFLECTION)
        for (int64_t p = 0; p < count; p++) x[p] = reflected(x[p], low, high);
    if (state->padding == BORDER)
        for (int64_t p = 0; p < count; p++) {
            const float above = x[p] < 0 ? 0 : x[p], within = above > last ? last : above;
            x[p] = (x[p] >= low && x[p] <= high) ? x[p] : within;
        }
}

static void find_cubic_shares(float share[][POSITIONS], int64_t count) {
    const float a = -0.75f;
    for (int64_t p = 0; p < count; p++) {
        const float fraction = share[0][p], rest = 1 - fraction;
        const float first = fraction + 1, last = 2 - fraction;
        share[0][p] = ((a * first - 5 * a) * first + 8 * a) * first - 4 * a;
        share[1][p] = ((a + 2) * fraction - (a + 3)) * fraction * fraction + 1;
        share[2][p] = ((a + 2) * rest - (a + 3)) * rest * rest + 1;
        share[3][p] = ((a * last - 5 * a) * last + 8 * a) * last - 4 * a;
    }
}

// How much each tap counts, by how far positions are behind the first, or second, one; their number.
static int find_shares(Mode mode, float share[][POSITIONS], int64_t count) {
    if (mode == CUBIC) {
        find_cubic_shares(share, count);
        return MOST_TAPS;
    }
    for (int64_t p = 0; p < count && mode == NEAREST; p++) share[0][p] = 1;
    if (mode == NEAREST) return 1;
    for (int64_t p = 0; p < count; p++) {
        share[1][p] = share[0][p];
        share[0][p] = 1 - share[0][p];
    }
    return 2;
}

// What a tap reads.  What is not a number comes to the first element.
static void find_steps(
    const Grid *state, float *restrict place, float *restrict share, int32_t *restrict step,
    int64_t count, int64_t length) {
    const float end = (float)length, last = (float)(length - 1);
    if (state->padding == ZEROS)
        for (int64_t p = 0; p < count; p++)
            share[p] *= (place[p] >= 0 && place[p] < end) ? 1.0f : 0.0f;
    bound_places(state, place, count, length);
    for (int64_t p = 0; p < count; p++) {
        const float above = place[p] > 0 ? place[p] : 0;
        step[p] = (int32_t)(above < end ? above : last);
    }
}

// The elements of one axis that positions read, with their weights; their number.
static int find_taps(
    const Grid *state, const float *grid, int64_t count, int64_t length, Taps *taps) {
    const float low = state->align_corners ? 0.0f : -0.5f;
    const float high = (float)length - (state->align_corners ? 1.0f : 0.5f);
    const float scale = (high - low) / 2;
    float x[POSITIONS], place[POSITIONS];
    for (int64_t p = 0; p < count; p++) x[p] = low + (grid[p * state->axes] + 1) * scale;
    for (int64_t p = 0; p < count && state->mode == NEAREST; p++) x[p] = rintf(x[p]);
    if (state->mode != CUBIC) bound_places(state, x, count, length);
    for (int64_t p = 0; p < count; p++) {
        const float base = floorf(x[p]);
        taps->share[0][p] = x[p] - base;
        x[p] = base;
    }
    const int number = find_shares(state->mode, taps->share, count);
    for (int i = 0; i < number; i++) {
        const float shift = (float)(i - (state->mode == CUBIC));
        for (int64_t p = 0; p < count; p++) place[p] = x[p] + shift;
        find_steps(state, place, taps->share[i], taps->step[i], count, length);
    }
    return number;
}

// Every element so far followed by every tap of one more axis.
static void extend_corners(
    Corners *corners, int found, const Taps *taps, int number, int32_t length, int64_t count) {
    for (int i = found - 1; i >= 0; i--)
        for (int k = number - 1; k >= 0; k--) {
            const int to = i * number + k;
            for (int64_t p = 0; p < count; p++) {
                corners->index[to][p] = corners->index[i][p] * length + taps->step[k][p];
                corners->weight[to][p] = corners->weight[i][p] * taps->share[k][p];
            }
        }
}

// The number of corners.
static int find_corners(const Grid *state, const float *grid, int64_t count, Corners *corners) {
    Taps *taps = &corners->taps;
    const int last = state->axes - 1;
    int found = find_taps(state, grid + last, count, state->sizes[0], taps);
    for (int k = 0; k < found; k++)
        for (int64_t p = 0; p < count; p++) {
            corners->index[k][p] = taps->step[k][p];
            corners->weight[k][p] = taps->share[k][p];
        }
    for (int axis = 1; axis < state->axes; axis++) {
        const int32_t length = (int32_t)state->sizes[axis];
        const int number = find_taps(state, grid + last - axis, count, length, taps);
        extend_corners(corners, found, taps, number, length, count);
        found *= number;
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
