// Deformable convolutions: a block of windows is collected, each tap from a place of its own, and
// multiplied by the weights.  Arithmetic is that of kernels/conv_deform.py.
#include <math.h>
#include <stdlib.h>

#include "../../kernel.h"
#include "../support/simd.h"
#include "../support/sizes.h"

// Windows that are collected at once; rows of weights that are multiplied at once: the sums of both
// fill the registers of the smallest processor.  Planes of more than LARGEST elements are left to numpy,
// as are windows that move by more than FAR at a time.
enum { POSITIONS = 2 * LANES, ROWS = 6, CORNERS = 4, LARGEST = 1 << 30, FAR = 1 << 28 };

typedef struct { int64_t size, kernel, out, stride, begin, dilation; } Axis;

typedef struct {
    const float *x, *weights, *offsets, *bias, *mask;
    float *out;
    int64_t images, channels, outputs;
    int64_t groups, regions;  // of channels: with weights of their own; with offsets of their own
    Axis axes[2];
    int64_t plane, taps, positions, blocks;
} Deform;

// Of a block of positions and a tap: what lies around them, and how much that counts.
typedef struct {
    int32_t index[CORNERS][POSITIONS];
    float weight[CORNERS][POSITIONS], scale[POSITIONS];
} Corners;

static bool read_axes(
    Deform *state, Params *params, const Tensor *x, const Tensor *w, const Tensor *out) {
    for (int i = 0; i < 2; i++) {
        Axis *axis = &state->axes[i];
        axis->size = x->dims[i + 2];
        axis->kernel = w->dims[i + 2];
        axis->out = out->dims[i + 2];
        axis->stride = next_int(params);
        axis->begin = next_int(params);
        axis->dilation = next_int(params);
        if (axis->stride < 0 || axis->stride > FAR || axis->dilation < 0 || axis->dilation > FAR ||
            axis->begin < -FAR || axis->begin > FAR)
            return false;
    }
    return true;
}

static bool has_images(const Tensor *x, const Tensor *w, const Tensor *out) {
    if (x->rank != 4 || w->rank != 4 || out->rank != 4) return false;
    if (element_count(x) <= 0 || element_count(w) <= 0 || element_count(out) <= 0) return false;
    return holds(x, F32, element_count(x)) && holds(w, F32, element_count(w)) &&
           holds(out, F32, element_count(out)) && out->dims[0] == x->dims[0] &&
           out->dims[1] == w->dims[0] && x->dims[2] * x->dims[3] <= LARGEST;
}

// Whether channels are divided as the weights are, and there is an offset for each tap.
static bool fits(
    Deform *state, const Tensor *w, const Tensor *offsets, const Tensor *bias, const Tensor *mask) {
    const int64_t groups = state->groups, regions = state->regions;
    if (groups <= 0 || regions <= 0 || state->channels % groups || state->channels % regions ||
        state->outputs % groups || w->dims[1] != state->channels / groups)
        return false;
    state->taps = w->dims[2] * w->dims[3];
    state->positions = state->axes[0].out * state->axes[1].out;
    const int64_t count = size_of(state->images * regions, state->taps, state->positions);
    return count > 0 && count <= INT64_MAX / 2 && holds(offsets, F32, 2 * count) &&
           (!mask->data || holds(mask, F32, count)) &&
           (!bias->data || holds(bias, F32, state->outputs));
}

static void *prepare(Params *params, Needs *needs) {
    Deform *state = calloc(1, sizeof(Deform));
    if (!state) return NULL;
    const Tensor x = next_tensor(params), w = next_tensor(params), offsets = next_tensor(params);
    const Tensor bias = maybe_tensor(params), mask = maybe_tensor(params);
    const Tensor out = next_tensor(params);
    state->groups = next_int(params);
    state->regions = next_int(params);
    bool known = !params->bad && has_images(&x, &w, &out) &&
                 read_axes(state, params, &x, &w, &out) && !params->bad;
    if (known) {
        state->images = x.dims[0];
        state->channels = x.dims[1];
        state->outputs = w.dims[0];
        known = fits(state, &w, &offsets, &bias, &mask);
        needs->own = size_of(state->channels, state->taps, POSITIONS * sizeof(float));
    }
    if (!known || needs->own <= 0) {
        needs->own = 0;
        free(state);
        return NULL;
    }
    state->x = (const float *)x.data;
    state->weights = (const float *)w.data;
    state->offsets = (const float *)offsets.data;
    state->bias = (const float *)bias.data;
    state->mask = (const float *)mask.data;
    state->out = (float *)out.data;
    state->plane = x.dims[2] * x.dims[3];
    state->blocks = ceil_div(state->positions, POSITIONS);
    needs->own += (int64_t)sizeof(Corners);
    return state;
}

// -- windows --------------------------------------------------------------------------------------

// Along an axis: both ends of the cells that positions lie in; what lies outside counts nothing.
static void find_ends(
    const double *position, int64_t count, int64_t size, int32_t step[2][POSITIONS],
    float share[2][POSITIONS]) {
    const double end = (double)size;
    for (int64_t p = 0; p < count; p++) {
        const double low = floor(position[p]), high = low + 1;
        const float fraction = (float)(position[p] - low);
        const bool has_low = low >= 0 && low < end, has_high = high >= 0 && high < end;
        step[0][p] = (int32_t)(has_low ? low : 0);
        step[1][p] = (int32_t)(has_high ? high : 0);
        share[0][p] = has_low ? 1 - fraction : 0;
        share[1][p] = has_high ? fraction : 0;
    }
}

// Where the windows of a block begin, down and across.
static void find_windows(
    const Deform *state, int64_t first, int64_t count, double begins[2][POSITIONS]) {
    const Axis *down = &state->axes[0], *across = &state->axes[1];
    for (int64_t p = 0; p < count; p++) {
        begins[0][p] = (double)((first + p) / across->out * down->stride - down->begin);
        begins[1][p] = (double)((first + p) % across->out * across->stride - across->begin);
    }
}

static void find_corners(
    const Deform *state, int64_t number, int64_t first, int64_t count, double begins[2][POSITIONS],
    Corners *corners) {
    const Axis *axes = state->axes;
    const float *offsets = state->offsets + 2 * number * state->positions + first;
    const float *mask = state->mask ? state->mask + number * state->positions + first : NULL;
    const int64_t tap = number % state->taps;
    const int64_t taps[2] = {tap / axes[1].kernel, tap % axes[1].kernel};
    int32_t step[2][2][POSITIONS];
    float share[2][2][POSITIONS];
    for (int i = 0; i < 2; i++) {
        double position[POSITIONS];
        const double shift = (double)(taps[i] * axes[i].dilation);
        for (int64_t p = 0; p < count; p++)
            position[p] = begins[i][p] + shift + (double)offsets[i * state->positions + p];
        find_ends(position, count, axes[i].size, step[i], share[i]);
    }
    const int32_t width = (int32_t)axes[1].size;
    for (int i = 0; i < CORNERS; i++)
        for (int64_t p = 0; p < count; p++) {
            corners->index[i][p] = step[0][i / 2][p] * width + step[1][i % 2][p];
            corners->weight[i][p] = share[0][i / 2][p] * share[1][i % 2][p];
        }
    for (int64_t p = 0; p < POSITIONS; p++) corners->scale[p] = !mask || p >= count ? 1 : mask[p];
    for (int i = 0; i < CORNERS; i++)
        for (int64_t p = count; p < POSITIONS; p++) {
            corners->index[i][p] = 0;
            corners->weight[i][p] = 0;
        }
}

// A line of columns: what a tap reads of a channel.
static void blend(const Corners *restrict corners, const float *restrict x, float *restrict line) {
    for (int p = 0; p < POSITIONS; p++) {
        float total = x[corners->index[0][p]] * corners->weight[0][p];
        for (int i = 1; i < CORNERS; i++) total += x[corners->index[i][p]] * corners->weight[i][p];
        line[p] = total * corners->scale[p];
    }
}

static void collect(
    const Deform *state, int64_t image, int64_t first, int64_t count, Corners *corners,
    float *columns) {
    const int64_t channels = state->channels / state->regions;
    double begins[2][POSITIONS];
    find_windows(state, first, count, begins);
    for (int64_t region = 0; region < state->regions; region++)
        for (int64_t tap = 0; tap < state->taps; tap++) {
            const int64_t number = (image * state->regions + region) * state->taps + tap;
            find_corners(state, number, first, count, begins, corners);
            for (int64_t c = region * channels; c < (region + 1) * channels; c++) {
                const float *x = state->x + (image * state->channels + c) * state->plane;
                blend(corners, x, columns + (c * state->taps + tap) * POSITIONS);
            }
        }
}

// -- products -------------------------------------------------------------------------------------

// Rows of weights by the columns of a block; rows that are not there are the last one again.
static void multiply_rows(
    const float *weights, int64_t length, int64_t rows, const float *columns,
    float out[ROWS][POSITIONS]) {
    Floats sums[ROWS][2] = {{{0}}};
    const float *lines[ROWS];
    for (int64_t i = 0; i < ROWS; i++) lines[i] = weights + lesser(i, rows - 1) * length;
    for (int64_t k = 0; k < length; k++, columns += POSITIONS) {
        const Floats first = load(columns), second = load(columns + LANES);
        UNROLLED_FOR (int i = 0; i < ROWS; i++) {
            const Floats weight = all_of(lines[i][k]);
            sums[i][0] += first * weight;
            sums[i][1] += second * weight;
        }
    }
    for (int i = 0; i < ROWS; i++) {
        store(out[i], sums[i][0]);
        store(out[i] + LANES, sums[i][1]);
    }
}

static void multiply(
    const Deform *state, int64_t image, int64_t first, int64_t count, const float *columns) {
    const int64_t rows = state->outputs / state->groups;
    const int64_t length = state->channels / state->groups * state->taps;
    float sums[ROWS][POSITIONS];
    for (int64_t group = 0; group < state->groups; group++)
        for (int64_t row = 0; row < rows; row += ROWS) {
            const int64_t output = group * rows + row, there = lesser(rows - row, ROWS);
            multiply_rows(
                state->weights + output * length, length, there,
                columns + group * length * POSITIONS, sums);
            for (int64_t i = 0; i < there; i++) {
                const int64_t line = image * state->outputs + output + i;
                const float bias = state->bias ? state->bias[output + i] : 0;
                float *to = state->out + line * state->positions + first;
                for (int64_t p = 0; p < count; p++) to[p] = sums[i][p] + bias;
            }
        }
}

typedef struct {
    const Deform *state;
    const Run *run;
} Job;

static void one_block(void *context, int64_t chunk, int thread) {
    const Job *job = context;
    const Deform *state = job->state;
    Corners *corners = (Corners *)job->run->own[thread];
    float *columns = (float *)(corners + 1);
    const int64_t image = chunk / state->blocks, first = chunk % state->blocks * POSITIONS;
    const int64_t count = lesser(state->positions - first, POSITIONS);
    collect(state, image, first, count, corners, columns);
    multiply(state, image, first, count, columns);
}

static Failure run_deform(const void *argument, const Run *run) {
    const Deform *state = argument;
    Job job = {state, run};
    share_chunks(run, state->images * state->blocks, one_block, &job);
    return OK;
}

const Kernel ISA(DEFORMED)[] = {
    {"DeformConv_f32", prepare, run_deform, NULL},
    {NULL, NULL, NULL, NULL},
};
