// A fixed number of bins from regions that are known at run time: averages or largest corners of
// points between elements, or maxima of elements.  Arithmetic is that of kernels/regions.py.
#include <math.h>
#include <stdlib.h>

#include "../../kernel.h"
#include "../support/extremes.h"
#include "../support/simd.h"

typedef struct {
    const float *x, *regions;  // [images][channels][height][width]
    const int64_t *images_of;  // of each region; NULL: the region has it in front
    float *out;  // [regions][channels][bins[0]][bins[1]]
    int64_t images, channels, sizes[2], bins[2], count, ratio;
    float scale, offset;
    bool at_least_one;  // whether regions are taken as one element wide at least
    bool maximum;
    int64_t capacity[2];  // points along each axis
} Regions;

// A point along one axis: between which elements, and what they count.
typedef struct {
    int64_t bin, low, high;
    float low_weight, high_weight;
    bool inside;
} Point;

typedef struct {
    Point *points;
    int64_t count, per_bin;
} Line;

static const float FAR = 1e9f;  // where an infinite edge is taken to be

// More points of a bin, or more bins, are not counted: their product must be an integer.
static const int64_t MOST_POINTS = 1ll << 36, MOST_BINS = 1ll << 26;

// Regions have four edges, behind the number of their image if that is not given elsewhere.
static bool are_regions(
    const Tensor *x, const Tensor *regions, const Tensor *numbers, const Tensor *out,
    bool numbered) {
    if (x->rank != 4 || out->rank != 4 || regions->rank != 2) return false;
    const int64_t count = regions->dims[0], bins[] = {out->dims[2], out->dims[3]};
    const bool placed = numbered ? holds(numbers, I64, count) : !numbers->data;
    return placed && are_apart(numbers, out) && are_apart(regions, out) &&
           holds(regions, F32, size_of(count, numbered ? 4 : 5, 1)) &&
           holds(x, F32, element_count(x)) && element_count(x) > 0 && out->dims[0] == count &&
           holds(out, F32, element_count(out)) && out->dims[1] == x->dims[1] && bins[0] > 0 &&
           bins[0] < MOST_BINS && bins[1] > 0 && bins[1] < MOST_BINS;
}

static void *prepare(Params *params, bool numbered) {
    Regions *state = calloc(1, sizeof(Regions));
    if (!state) return NULL;
    const Tensor x = next_tensor(params), regions = next_tensor(params);
    const Tensor numbers = maybe_tensor(params), out = next_tensor(params);
    if (params->bad || !are_regions(&x, &regions, &numbers, &out, numbered)) {
        free(state);
        return NULL;
    }
    *state = (Regions){
        .x = (const float *)x.data,
        .regions = (const float *)regions.data,
        .images_of = (const int64_t *)numbers.data,
        .out = (float *)out.data,
        .images = x.dims[0],
        .channels = x.dims[1],
        .sizes = {x.dims[2], x.dims[3]},
        .bins = {out.dims[2], out.dims[3]},
        .count = out.dims[0],
        .scale = (float)next_float(params),
    };
    return state;
}

// -- points between elements ----------------------------------------------------------------------

static void *prepare_align(Params *params, Needs *needs) {
    Regions *state = prepare(params, true);
    if (!state) return NULL;
    state->offset = (float)next_float(params);
    state->ratio = next_int(params);
    state->at_least_one = next_int(params) != 0;
    state->maximum = next_int(params) != 0;
    if (params->bad || state->ratio > MOST_POINTS) {
        free(state);
        return NULL;
    }
    for (int i = 0; i < 2; i++) {
        const int64_t near = 2 * state->sizes[i] + 8, few = 4 * state->bins[i];
        const int64_t asked = state->ratio > 0 ? state->bins[i] * state->ratio : 0;
        state->capacity[i] = near > few ? near : few;
        if (asked > state->capacity[i]) state->capacity[i] = asked;
        needs->own += state->capacity[i] * (int64_t)sizeof(Point);
    }
    return state;
}

// Regions far larger than the map have few points that may count: numbers first .. stop - 1.
static void relevant(
    double start, double bin_size, int64_t bins, int64_t per_bin, int64_t length, int64_t *first,
    int64_t *stop) {
    const int64_t total = bins * per_bin;
    *first = 0;
    *stop = total;
    if (bin_size <= 0 || total <= 4 * bins) return;
    const double step = bin_size / (double)per_bin;
    const double low = floor((-1 - start) / step) - 1;
    const double high = ceil(((double)length - start) / step) + 1;
    *first = low > 0 ? (low < (double)total ? (int64_t)low : total) : 0;
    *stop = high < (double)total ? (high > 0 ? (int64_t)high : 0) : total;
    if (*stop < *first) *stop = *first;
}

static void find_points(const Regions *state, int axis, float start, float extent, Line *line) {
    const int64_t bins = state->bins[axis], length = state->sizes[axis];
    const float bin_size = extent / (float)bins;
    const double whole = ceil((double)bin_size);
    line->per_bin = state->ratio > 0 ? state->ratio
                    : whole > 0      ? whole < (double)MOST_POINTS ? (int64_t)whole : MOST_POINTS
                                     : 0;
    const int64_t per_bin = line->per_bin > 1 ? line->per_bin : 1;
    int64_t first, stop;
    relevant(start, bin_size, bins, line->per_bin, length, &first, &stop);
    if (stop - first > state->capacity[axis]) stop = first + state->capacity[axis];
    line->count = stop - first;
    for (int64_t i = first; i < stop; i++) {
        Point *point = &line->points[i - first];
        point->bin = i / per_bin;
        float place = start + (float)point->bin * bin_size;
        place = place + ((float)(i % per_bin) + 0.5f) * bin_size / (float)per_bin;
        point->inside = place >= -1 && place <= (float)length;
        place = place > 0 ? place : 0;
        place = place < (float)(length - 1) ? place : (float)(length - 1);
        point->low = (int64_t)floorf(place);
        point->high = point->low + 1 < length ? point->low + 1 : length - 1;
        const float fraction = place - (float)point->low;
        point->low_weight = point->inside ? 1 - fraction : 0;
        point->high_weight = point->inside ? fraction : 0;
    }
}

static void average_bins(const Regions *state, const Line *lines, const float *plane, float *out) {
    const int64_t width = state->sizes[1], size = state->bins[0] * state->bins[1];
    for (int64_t i = 0; i < size; i++) out[i] = 0;
    for (int64_t i = 0; i < lines[0].count; i++) {
        const Point *row = &lines[0].points[i];
        if (!row->inside) continue;
        if (pool_is_stopped()) return;
        const float *low = plane + row->low * width, *high = plane + row->high * width;
        for (int64_t j = 0; j < lines[1].count; j++) {
            const Point *column = &lines[1].points[j];
            if (!column->inside) continue;
            const float a = row->low_weight * low[column->low] +
                            row->high_weight * high[column->low];
            const float b = row->low_weight * low[column->high] +
                            row->high_weight * high[column->high];
            out[row->bin * state->bins[1] + column->bin] += column->low_weight * a +
                                                            column->high_weight * b;
        }
    }
    const float points = (float)lines[0].per_bin * (float)lines[1].per_bin;
    for (int64_t i = 0; i < size && points > 0; i++) out[i] *= 1.0f / points;
}

// The largest weighted corner of a point.
static float largest_corner(
    const Point *row, const Point *column, const float *plane, int64_t width) {
    const float *low = plane + row->low * width, *high = plane + row->high * width;
    const float a = low[column->low] * (row->low_weight * column->low_weight);
    const float b = low[column->high] * (row->low_weight * column->high_weight);
    const float c = high[column->low] * (row->high_weight * column->low_weight);
    const float d = high[column->high] * (row->high_weight * column->high_weight);
    const float left = LARGER(a, c), right = LARGER(b, d);
    return LARGER(left, right);
}

// Points `begin` .. `end` - 1 of a bin; points that are left out count as zero.
static bool points_of(const Line *line, int64_t bin, int64_t *begin, int64_t *end) {
    while (*begin < line->count && line->points[*begin].bin < bin) ++*begin;
    for (*end = *begin; *end < line->count && line->points[*end].bin == bin;) ++*end;
    return *end - *begin < line->per_bin || *end == *begin;
}

static void largest_bins(const Regions *state, const Line *lines, const float *plane, float *out) {
    int64_t top = 0, bottom, done = 0;
    for (int64_t i = 0; i < state->bins[0] && !pool_is_stopped(); i++) {
        const bool zero_row = points_of(&lines[0], i, &top, &bottom);
        int64_t left = 0, right;
        for (int64_t j = 0; j < state->bins[1]; j++) {
            float best = points_of(&lines[1], j, &left, &right) || zero_row ? 0 : -INFINITY;
            for (int64_t p = top; p < bottom && !is_stopped_after(right - left, &done); p++)
                for (int64_t q = left; q < right; q++) {
                    const float corner = largest_corner(
                        &lines[0].points[p], &lines[1].points[q], plane, state->sizes[1]);
                    best = LARGER(best, corner);
                }
            out[i * state->bins[1] + j] = best;
        }
    }
}

typedef struct {
    const Regions *state;
    const Run *run;
} Job;

static float edge(const Regions *state, float value) {
    const float moved = value * state->scale - state->offset;
    if (moved != moved) return 0;
    return moved == INFINITY ? FAR : moved == -INFINITY ? -FAR : moved;
}

static void align_region(void *context, int64_t number, int thread) {
    const Job *job = context;
    const Regions *state = job->state;
    const float *box = state->regions + 4 * number;
    Line lines[2];
    lines[0].points = (Point *)job->run->own[thread];
    lines[1].points = lines[0].points + state->capacity[0];
    for (int axis = 0; axis < 2; axis++) {
        const float start = edge(state, box[1 - axis]);
        float extent = edge(state, box[3 - axis]) - start;
        if (state->at_least_one && extent < 1) extent = 1;
        find_points(state, axis, start, extent, &lines[axis]);
    }
    const int64_t plane = state->sizes[0] * state->sizes[1], size = state->bins[0] * state->bins[1];
    const float *image = state->x + state->images_of[number] * state->channels * plane;
    for (int64_t channel = 0; channel < state->channels; channel++)
        (state->maximum ? largest_bins : average_bins)(
            state, lines, image + channel * plane,
            state->out + (number * state->channels + channel) * size);
}

static Failure run_align(const void *argument, const Run *run) {
    const Regions *state = argument;
    for (int64_t i = 0; i < state->count; i++)
        if (state->images_of[i] < 0 || state->images_of[i] >= state->images) return INDEX_OUTSIDE;
    Job job = {state, run};
    share_chunks(run, state->count, align_region, &job);
    return OK;
}

// -- maxima of elements ---------------------------------------------------------------------------

static void *prepare_maxima(Params *params, Needs *needs) {
    (void)needs;
    return prepare(params, false);
}

// Halves are rounded away from zero.
static float rounded(const Regions *state, float value) {
    const float scaled = value * state->scale;
    return truncf(scaled + copysignf(0.5f, scaled));
}

static int64_t within(float place, int64_t length) {
    return place > 0 ? (place < (float)length ? (int64_t)place : length) : 0;
}

// Bin `bin` of those between elements `first` and `last`, both included.
static void bin_edges(
    const Regions *state, int axis, float first, float last, int64_t bin, int64_t *begin,
    int64_t *end) {
    const float extent = last - first + 1;
    const float size = (extent > 1 ? extent : 1) / (float)state->bins[axis];
    *begin = within(floorf((float)bin * size) + first, state->sizes[axis]);
    *end = within(ceilf((float)(bin + 1) * size) + first, state->sizes[axis]);
}

static void pool_region(void *context, int64_t number, int thread) {
    (void)thread;
    const Regions *state = ((const Job *)context)->state;
    const float *region = state->regions + 5 * number;
    float corners[4];
    for (int i = 0; i < 4; i++) corners[i] = rounded(state, region[i + 1]);
    const int64_t width = state->sizes[1], plane = state->sizes[0] * width;
    const float *image = state->x + (int64_t)region[0] * state->channels * plane;
    float *out = state->out + number * state->channels * state->bins[0] * state->bins[1];
    int64_t done = 0;
    for (int64_t channel = 0; channel < state->channels; channel++, image += plane)
        for (int64_t i = 0; i < state->bins[0] && !pool_is_stopped(); i++)
            for (int64_t j = 0; j < state->bins[1]; j++) {
                int64_t top, bottom, left, right;
                bin_edges(state, 0, corners[1], corners[3], i, &top, &bottom);
                bin_edges(state, 1, corners[0], corners[2], j, &left, &right);
                float best = top < bottom && left < right ? -INFINITY : 0;
                for (int64_t a = top; a < bottom && !is_stopped_after(right - left, &done); a++)
                    for (int64_t b = left; b < right; b++)
                        best = LARGER(best, image[a * width + b]);
                *out++ = best;
            }
}

static Failure run_maxima(const void *argument, const Run *run) {
    const Regions *state = argument;
    for (int64_t i = 0; i < state->count; i++) {
        const float image = state->regions[5 * i];
        if (!(image >= 0 && (double)image < (double)state->images)) return INDEX_OUTSIDE;
    }
    Job job = {state, run};
    share_chunks(run, state->count, pool_region, &job);
    return OK;
}

const Kernel ISA(REGIONS)[] = {
    {"RoiAlign_f32", prepare_align, run_align, NULL},
    {"MaxRoiPool_f32", prepare_maxima, run_maxima, NULL},
    {NULL, NULL, NULL, NULL},
};
