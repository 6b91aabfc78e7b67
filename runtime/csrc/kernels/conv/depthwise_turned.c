#include "depthwise_turned.h"

#include <stdlib.h>

#include "depthwise_planes.h"
#include "lanes.h"
#include "../support/chunks.h"
#include "../support/partial.h"

enum {
    IMAGE_FLOATS = 1 << 15,  // of a chunk: a quarter of Zen 3's second cache
    TURNED_RESULTS = 128,  // that are turned back at once: these stay in the first cache
    FEW_CHUNKS = 8,
    WIDEST = 1 << 16,  // columns under a line of results
};

// What a chunk works on.
typedef struct {
    const TurnedPlanes *planes;
    const Conv *conv;
    int64_t channel, count;  // the first, and how many there are
    const float *x;
    float *y;
    const float *residual;
    float *image, *results, *added;
} Chunk;

// Columns under the windows of a line.
static int64_t padded_width(const Conv *conv) {
    return (conv->result[2] - 1) * conv->stride[2] + (conv->taps[2] - 1) * conv->dilation[2] + 1;
}

// Whether lines are better read where they lie, if there is code for it: where they fill vectors.  Of
// more than three taps, which are shifted out of vectors, long lines that are neither dilated nor left
// out are, and all of channels that leave many lanes empty.
static bool are_lines_long(const Conv *conv) {
    const int64_t taps = conv->taps[2], width = conv->result[2];
    const int64_t empty = padded(conv->groups, LANES) - conv->groups;
    if (taps == 3 || 8 * empty > conv->groups) return width >= LANES;
    if (conv->stride[2] > 1 || conv->dilation[2] > 1) return false;
    return width >= (taps == 5 ? 40 : 48);
}

bool ISA(turning_wins)(const Conv *conv) {
    const bool flat = conv->taps[0] == 1 && conv->size[0] == 1 && conv->result[0] == 1;
    const bool lies = conv->x_axis[2] == 1 && conv->before[2] >= 0 && conv->before[1] >= 0;
    if (!flat || !lies || conv->groups < LANES || !ISA(has_depthwise_rows)(conv)) return false;
    return padded_width(conv) <= WIDEST &&
           !(ISA(has_depthwise_planes)(conv) && are_lines_long(conv));
}

static void pack_block(const Conv *conv, int64_t block, float *to) {
    for (int64_t tap = 0; tap < conv->window; tap++)
        for (int64_t lane = 0; lane < LANES; lane++) {
            const int64_t channel = lesser(block * LANES + lane, conv->groups - 1);
            *to++ = conv->w[channel * conv->window + tap];
        }
}

// The convolution of what is turned: lines have their borders, columns do not.
static void plan_inner(Conv *inner, const Conv *conv) {
    *inner = *conv;
    inner->batch = 1;
    inner->groups = LANES;
    inner->before[2] = 0;
    inner->size[2] = padded_width(conv);
    inner->x_channel = inner->y_channel = inner->residual_channel = 1;
    inner->x_axis[2] = inner->y_axis[2] = LANES;
    inner->x_axis[1] = inner->size[2] * LANES;
    inner->y_axis[1] = inner->result[2] * LANES;
    for (int axis = 0; axis < AXES; axis++) inner->residual_axis[axis] = inner->y_axis[axis];
}

// Lines of the input under so many lines of results.
static int64_t lines_below(const Conv *conv, int64_t count) {
    const int64_t all = (count - 1) * conv->stride[1] + (conv->taps[1] - 1) * conv->dilation[1] + 1;
    return lesser(all, conv->size[1]);
}

bool ISA(plan_turned_planes)(TurnedPlanes *planes, const Conv *conv, Needs *needs) {
    Conv *inner = &planes->inner;
    plan_inner(inner, conv);
    planes->rows = ISA(plan_depthwise_rows)(inner);
    planes->blocks = ceil_div(conv->groups, LANES);
    const int64_t height = conv->result[1], unit = 2 * planes->rows.rows_apart;
    const int64_t fit = greater(1, IMAGE_FLOATS / (inner->x_axis[1] * conv->stride[1]));
    const double products = (double)(conv->batch * conv->groups) *
                            (double)(conv->pixels * conv->window);
    const int64_t chunks = chunks_for(needs, products, FEW_CHUNKS);
    const int64_t bands =
        greater(ceil_div(height, fit), lesser(height, chunks / (conv->batch * planes->blocks)));
    planes->lines = lesser(height, padded(ceil_div(height, bands), unit));
    planes->bands = ceil_div(height, planes->lines);
    planes->step = lesser(planes->lines, padded(ceil_div(TURNED_RESULTS, conv->result[2]), unit));
    planes->image = (lines_below(conv, planes->lines) * inner->size[2] + 1) * LANES;
    planes->part = padded(planes->step * conv->result[2], LANES) * LANES;
    const int64_t weights = (conv->window + 1) * LANES;  // and biases
    const int64_t floats = planes->image + 2 * planes->part + weights;
    needs->own = floats * (int64_t)sizeof(float) + planes->rows.bytes;
    planes->outside = calloc(LANES, sizeof(float));
    if (!conv->constant || !planes->outside) return planes->outside;
    const int64_t block = conv->window * LANES;
    planes->weights = malloc((size_t)(planes->blocks * block) * sizeof(float));
    for (int64_t i = 0; planes->weights && i < planes->blocks; i++)
        pack_block(conv, i, planes->weights + i * block);
    return planes->weights;
}

void ISA(release_turned_planes)(TurnedPlanes *planes) {
    free(planes->weights);
    free(planes->outside);
}

int64_t ISA(turned_chunks)(const TurnedPlanes *planes, const Conv *conv) {
    return conv->batch * planes->blocks * planes->bands;
}

// -- turning --------------------------------------------------------------------------------------

// Where turned pixels go: lines of `width`, of which each begins `gap` floats behind the last one.
typedef struct { int64_t width, gap; } Target;

// LANES pixels from number `at` of the lines on.
INLINE void turn_pixels(
    const float *const *rows, int64_t at, const Target *target, int64_t first, float *to) {
    Floats columns[LANES];
    turn_lanes(rows, at, columns);
    int64_t column = first % target->width;
    to += first * LANES + first / target->width * target->gap;
    UNROLLED_FOR (int i = 0; i < LANES; i++) {
        store(to, columns[i]);
        to += LANES;
        if (++column == target->width) {
            column = 0;
            to += target->gap;
        }
    }
}

// `count` pixels of channels `apart` floats from each other: those beyond the last channel are like it.
static void turn_run(
    const Chunk *chunk, const float *from, int64_t apart, int64_t count, const Target *target,
    float *to) {
    const float *rows[LANES];
    float few[LANES * LANES];
    for (int64_t i = 0; i < LANES; i++) rows[i] = from + lesser(i, chunk->count - 1) * apart;
    if (count >= LANES) {
        for (int64_t at = 0; at < count; at += LANES) {
            const int64_t first = lesser(at, count - LANES);
            turn_pixels(rows, first, target, first, to);
        }
        return;
    }
    for (int64_t i = 0; i < LANES; i++) copy_floats(few + i * LANES, rows[i], count);
    for (int64_t pixel = 0; pixel < count; pixel++) {
        float *pixel_to = to + pixel * LANES + pixel / target->width * target->gap;
        for (int64_t i = 0; i < LANES; i++) pixel_to[i] = few[i * LANES + pixel];
    }
}

// Lines `first` .. `end` - 1 of the input, with their borders.
static void turn_lines(const Chunk *chunk, int64_t first, int64_t end) {
    const Conv *conv = chunk->conv, *inner = &chunk->planes->inner;
    const int64_t width = inner->size[2], left = lesser(conv->before[2], width);
    const int64_t inside = lesser(conv->size[2], width - left), right = width - left - inside;
    const Target target = {conv->size[2], (width - conv->size[2]) * LANES};
    for (int64_t i = 0; i < end - first; i++) {
        float *line = chunk->image + i * inner->x_axis[1];
        memset(line, 0, (size_t)(left * LANES) * sizeof(float));
        memset(line + (left + inside) * LANES, 0, (size_t)(right * LANES) * sizeof(float));
    }
    float *to = chunk->image + left * LANES;
    const float *from = chunk->x + first * conv->x_axis[1];
    if (inside == conv->size[2] && conv->x_axis[1] == conv->size[2]) {
        turn_run(chunk, from, conv->x_channel, (end - first) * inside, &target, to);
        return;
    }
    for (int64_t i = first; i < end; i++, from += conv->x_axis[1], to += inner->x_axis[1])
        turn_run(chunk, from, conv->x_channel, inside, &target, to);
}

static void turn_back(const Chunk *chunk, float *to, int64_t count) {
    for (int64_t at = 0; at < count; at += LANES) {
        const int64_t first = count < LANES ? 0 : lesser(at, count - LANES);
        const float *rows[LANES];
        Floats columns[LANES];
        for (int64_t i = 0; i < LANES; i++) rows[i] = chunk->results + (first + i) * LANES;
        turn_lanes(rows, 0, columns);
        for (int64_t i = 0; i < chunk->count; i++) {
            float *line = to + i * chunk->conv->pixels + first;
            if (count < LANES)
                store_some(line, columns[i], count);
            else
                store(line, columns[i]);
        }
    }
}

// Lines `first` .. `end` - 1 of the results.
static void make_lines(
    const Chunk *chunk, Conv *inner, const float *weights, int64_t first, int64_t end,
    void *scratch) {
    const TurnedPlanes *planes = chunk->planes;
    const Conv *conv = chunk->conv;
    const int64_t width = conv->result[2], count = (end - first) * width;
    inner->y = chunk->results - first * inner->y_axis[1];
    if (chunk->residual) {
        const Target target = {count, 0};
        turn_run(
            chunk, chunk->residual + first * width, conv->pixels, count, &target, chunk->added);
        inner->epilogue.residual = chunk->added - first * inner->y_axis[1];
    }
    ISA(convolve_depthwise_rows)(
        &planes->rows, inner, weights, planes->outside, first, end, 0, LANES, scratch);
    turn_back(chunk, chunk->y + first * width, count);
}

void ISA(convolve_turned)(const TurnedPlanes *planes, const Conv *conv, int64_t chunk, char *own) {
    const int64_t band = chunk % planes->bands, block = chunk / planes->bands % planes->blocks;
    const int64_t image = chunk / planes->bands / planes->blocks, channel = block * LANES;
    const int64_t plane = image * conv->groups + channel;
    const float *residual = conv->epilogue.residual, *bias = conv->epilogue.row_bias;
    Chunk work = {
        planes,
        conv,
        channel,
        lesser(LANES, conv->groups - channel),
        conv->x + image * conv->x_batch + channel * conv->x_channel,
        conv->y + plane * conv->pixels,
        residual ? residual + plane * conv->pixels : NULL,
        (float *)own,
        NULL,
        NULL};
    work.results = work.image + planes->image;
    work.added = work.results + planes->part;
    float *weights = work.added + planes->part, *biases = weights + conv->window * LANES;
    if (!planes->weights) pack_block(conv, block, weights);
    const float *packed = planes->weights ? planes->weights + block * conv->window * LANES
                                          : weights;
    Conv inner = planes->inner;
    for (int64_t i = 0; bias && i < LANES; i++)
        biases[i] = bias[channel + lesser(i, work.count - 1)];
    inner.epilogue.row_bias = bias ? biases : NULL;
    const int64_t first = band * planes->lines,
                  end = lesser(first + planes->lines, conv->result[1]);
    const int64_t top = first * conv->stride[1] - conv->before[1];
    const int64_t begin = lesser(greater(0, top), conv->size[1]);
    const int64_t reach = (end - first - 1) * conv->stride[1] +
                          (conv->taps[1] - 1) * conv->dilation[1];
    turn_lines(&work, begin, greater(begin, lesser(conv->size[1], top + reach + 1)));
    inner.x = work.image - begin * inner.x_axis[1];
    for (int64_t line = first; line < end && !pool_is_stopped(); line += planes->step)
        make_lines(&work, &inner, packed, line, lesser(line + planes->step, end), biases + LANES);
}
