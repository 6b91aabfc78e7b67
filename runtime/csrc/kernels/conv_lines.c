// Convolutions of many narrow images, as matrix products: weights [out][in * taps] times windows
// [in * taps][pixels], which are read where they lie.
//
// A thread lays out an image once for each tap of the last axis, so that what a tap reads for
// neighbouring pixels lies side by side, be they in one line of the result or in two.
#include <stdlib.h>
#include <string.h>

#include "conv.h"

typedef int32_t Mask __attribute__((vector_size(VECTOR_BYTES)));

typedef struct {
    Conv conv;
    const float *x_end;
    int64_t k;  // in * window
    int64_t rows;  // of the weights that are multiplied at once
    int64_t copy;  // floats of a channel for one tap of the last axis
    int64_t image;  // floats of all channels and taps
    int64_t vectors;  // of the pixels of an image
    int64_t images;  // of a chunk
    int64_t *offsets;  // of each of the k numbers of a window, from the place of its pixel
    Mask *masks;  // of a channel for each tap of the last axis: what is not outside
    float *packed;  // constant weights, group after group
    int64_t packed_group;  // floats
} State;

typedef struct {
    const State *state;
    const Run *run;
    const float *weights;
} Job;

// -- preparing ------------------------------------------------------------------------------------

static void release(void *argument) {
    State *state = argument;
    free(state->packed);
    free(state->offsets);
    free(state->masks);
    free(state);
}

static int rows_of(const State *state, int64_t first) {
    const int64_t rest = state->conv.out - first;
    return (int)(rest < state->rows ? rest : state->rows);
}

static void pack_weights(const State *state, float *to, int64_t group) {
    const Conv *conv = &state->conv;
    to += group * state->packed_group;
    for (int64_t i = 0; i < conv->out; i += state->rows, to += TILE_ROWS * state->k)
        ISA(pack_panels)(
            to, conv->w + (group * conv->out + i) * state->k, state->k, 1, rows_of(state, i), state->k,
            TILE_ROWS);
}

// Without masks, images are laid out line by line.
static bool make_masks(State *state) {
    const Conv *conv = &state->conv;
    const int64_t width = conv->result[2], vectors = ceil_div(state->copy, LANES);
    if (conv->stride[1] != 1 || conv->stride[2] != 1 || conv->size[2] != width || !conv->contiguous)
        return true;
    state->masks = aligned_alloc(64, (size_t)padded(conv->taps[2] * vectors * VECTOR_BYTES, 64));
    for (int64_t i = 0; state->masks && i < conv->taps[2] * vectors * LANES; i++) {
        const int64_t tap = i / (vectors * LANES), place = i % (vectors * LANES);
        const int64_t row = place / width - conv->before[1];
        const int64_t column = place % width + tap * conv->dilation[2] - conv->before[2];
        const bool inside = row >= 0 && row < conv->size[1] && column >= 0 && column < conv->size[2];
        state->masks[i / LANES][i % LANES] = inside ? -1 : 0;
    }
    return state->masks != NULL;
}

static bool allocate(State *state) {
    const Conv *conv = &state->conv;
    state->offsets = malloc((size_t)state->k * sizeof(int64_t));
    if (!state->offsets || !make_masks(state)) return false;
    for (int64_t i = 0; i < state->k; i++) {
        const int64_t channel = i / conv->window, tap = i % conv->window;
        const int64_t row = tap / conv->taps[2] * conv->dilation[1];
        const int64_t line = row % conv->stride[1] * conv->phase[1] + row / conv->stride[1];
        state->offsets[i] = (tap % conv->taps[2] * conv->in + channel) * state->copy +
                            line * conv->result[2];
    }
    if (!conv->constant) return true;
    state->packed =
        aligned_alloc(64, (size_t)padded(state->packed_group * conv->groups, 16) * sizeof(float));
    for (int64_t group = 0; state->packed && group < conv->groups; group++)
        pack_weights(state, state->packed, group);
    return state->packed != NULL;
}

static int64_t input_floats(const State *state) {
    return padded(state->images * state->image + LANES, 16);
}

static void *prepare(Params *params, Needs *needs) {
    State *state = calloc(1, sizeof(State));
    if (!state) return NULL;
    Conv *conv = &state->conv;
    if (!ISA(read_conv)(conv, params) || conv->result[0] != 1 || conv->taps[0] != 1 ||
        conv->size[0] != 1 || conv->before[0] != 0) {
        free(state);
        return NULL;
    }
    state->x_end = conv->x + conv->batch * conv->groups * conv->in * conv->size[1] * conv->size[2];
    state->k = conv->in * conv->window;
    state->rows = even_rows(conv->out);
    state->packed_group = ceil_div(conv->out, state->rows) * TILE_ROWS * state->k;
    state->copy = conv->stride[1] * conv->phase[1] * conv->result[2];
    state->image = conv->in * conv->taps[2] * state->copy;
    state->vectors = ceil_div(conv->pixels, LANES);
    // A tile has two vectors, which may be those of two images.
    state->images = 1 + state->vectors % 2;
    if (!allocate(state)) {
        release(state);
        return NULL;
    }
    const int64_t size = sizeof(float);
    needs->shared = conv->constant ? 0 : state->packed_group * conv->groups * size;
    needs->own = (input_floats(state) + conv->out * TILE_COLUMNS) * size;
    return state;
}

// -- laying out -----------------------------------------------------------------------------------

// Columns first .. end - 1 of a line of the result read elements from `source` on with one tap of the
// last axis, and the others what lies outside.
typedef struct {
    int64_t first, end, source;
} Columns;

static Columns columns_of(const Conv *conv, int64_t tap) {
    const int64_t stride = conv->stride[2], shift = tap * conv->dilation[2] - conv->before[2];
    int64_t first = shift < 0 ? ceil_div(-shift, stride) : 0;
    int64_t end = conv->size[2] > shift ? ceil_div(conv->size[2] - shift, stride) : 0;
    if (first > conv->result[2]) first = conv->result[2];
    if (end > conv->result[2]) end = conv->result[2];
    if (end < first) end = first;
    return (Columns){first, end, first * stride + shift};
}

// Few floats, mostly; the value is no constant, so that no call of memset comes out of it.
static inline void fill(float *to, int64_t count, float value) {
    for (; count >= LANES; count -= LANES, to += LANES) store(to, all_of(value));
    for (int64_t i = 0; i < count; i++) to[i] = value;
}

// Any convolution: line by line.
static void lay_out_lines(const Conv *conv, const float *channel, Columns columns, float *to) {
    const int64_t hop = conv->stride[2] * conv->x_axis[2], width = conv->result[2];
    const int64_t count = columns.end - columns.first;
    for (int64_t phase = 0; phase < conv->stride[1]; phase++)
        for (int64_t i = 0; i < conv->phase[1]; i++, to += width) {
            const int64_t row = i * conv->stride[1] + phase - conv->before[1];
            if (row < 0 || row >= conv->size[1]) {
                fill(to, width, conv->outside);
                continue;
            }
            const float *from =
                channel + row * conv->x_axis[1] + columns.source * conv->x_axis[2];
            fill(to, columns.first, conv->outside);
            if (hop == 1)
                copy_floats(to + columns.first, from, count);
            else
                for (int64_t j = 0; j < count; j++) to[columns.first + j] = from[j * hop];
            fill(to + columns.end, width - columns.end, conv->outside);
        }
}

// All channels for one tap, if lines of the result are as long as those of the input, which lie one
// behind the other: whole images with what is outside masked.
static void lay_out_masked(const State *state, const float *image, int64_t tap, float *to) {
    const Conv *conv = &state->conv;
    const Mask *masks = state->masks + tap * ceil_div(state->copy, LANES);
    const int64_t width = conv->result[2], shift = tap * conv->dilation[2] - conv->before[2];
    const int64_t before = shift - conv->before[1] * width, after = padded(state->copy, LANES) + before;
    const Columns columns = columns_of(conv, tap);
    for (int64_t c = 0; c < conv->in; c++, image += conv->x_channel, to += state->copy) {
        if (image + before < conv->x || image + after > state->x_end) {
            lay_out_lines(conv, image, columns, to);
            continue;
        }
        for (int64_t i = 0; i < state->copy; i += LANES) {
            const Mask found = (Mask)load(image + before + i) & masks[i / LANES];
            store(to + i, (Floats)found);
        }
    }
}

// What stores write beyond the end of a channel is overwritten by the next one.
static void lay_out(const State *state, const float *image, float *to) {
    const Conv *conv = &state->conv;
    for (int64_t tap = 0; tap < conv->taps[2]; tap++) {
        float *copies = to + tap * conv->in * state->copy;
        if (state->masks) {
            lay_out_masked(state, image, tap, copies);
            continue;
        }
        const Columns columns = columns_of(conv, tap);
        for (int64_t c = 0; c < conv->in; c++)
            lay_out_lines(conv, image + c * conv->x_channel, columns, copies + c * state->copy);
    }
}

// -- running --------------------------------------------------------------------------------------

static void pack_group(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Job *job = context;
    pack_weights(job->state, (float *)job->weights, chunk);
}

// What a vector of a tile is: pixels of an image.
typedef struct {
    int64_t plane;  // number of the image and group
    int64_t first, count;  // pixels
} Part;

static void finish_part(const State *state, Part part, int64_t group, float *sums) {
    const Conv *conv = &state->conv;
    Epilogue epilogue = conv->epilogue;
    if (epilogue.row_bias) epilogue.row_bias += group * conv->out;
    if (epilogue.residual) epilogue.residual += part.plane * conv->out * conv->pixels;
    const Place place = {sums, TILE_COLUMNS, 0, part.first};
    ISA(finish)(&epilogue, place, conv->out, part.count);
    float *to = conv->y + part.plane * conv->out * conv->pixels + part.first;
    for (int64_t i = 0; i < conv->out; i++, to += conv->pixels, sums += TILE_COLUMNS)
        copy_floats(to, sums, part.count);
}

static void multiply_tile(
    const State *state, const float *weights, const float *const *right, float *sums) {
    const Conv *conv = &state->conv;
    for (int64_t done = 0; done < state->k; done += DEPTH) {
        const int64_t depth = state->k - done < DEPTH ? state->k - done : DEPTH;
        const float *panel = weights + done * TILE_ROWS;
        for (int64_t i = 0; i < conv->out; i += state->rows, panel += TILE_ROWS * state->k)
            ISA(multiply_lines)(
                panel, right, state->offsets + done, depth, sums + i * TILE_COLUMNS,
                TILE_COLUMNS, rows_of(state, i), done > 0);
    }
}

static void convolve(void *context, int64_t chunk, int thread) {
    const Job *job = context;
    const State *state = job->state;
    const Conv *conv = &state->conv;
    const int64_t group = chunk % conv->groups, first = chunk / conv->groups * state->images;
    const int64_t rest = conv->batch - first, images = rest < state->images ? rest : state->images;
    const float *weights = job->weights + group * state->packed_group;
    float *input = (float *)job->run->own[thread], *sums = input + input_floats(state);
    for (int64_t i = 0; i < images; i++)
        lay_out(
            state, conv->x + (first + i) * conv->x_batch + group * conv->in * conv->x_channel,
            input + i * state->image);
    // Vectors read beyond the last pixel; what they find must be a number that is quickly multiplied.
    fill(input + images * state->image, LANES, conv->outside);
    const int64_t vectors = images * state->vectors;
    for (int64_t v = 0; v < vectors; v += 2) {
        const float *right[2];
        Part parts[2];
        const int count = vectors - v < 2 ? 1 : 2;
        for (int h = 0; h < 2; h++) {
            const int64_t number = v + (h < count ? h : 0), image = number / state->vectors;
            const int64_t pixel = number % state->vectors * LANES, left = conv->pixels - pixel;
            right[h] = input + image * state->image + pixel;
            parts[h] = (Part){(first + image) * conv->groups + group, pixel, left < LANES ? left : LANES};
        }
        multiply_tile(state, weights, right, sums);
        for (int h = 0; h < count; h++) finish_part(state, parts[h], group, sums + h * LANES);
    }
}

static Failure run_lines(const void *argument, const Run *run) {
    const State *state = argument;
    const Conv *conv = &state->conv;
    Job job = {state, run, state->packed ? state->packed : (const float *)run->shared};
    if (!state->packed) share_chunks(run, conv->groups, pack_group, &job);
    share_chunks(run, conv->groups * ceil_div(conv->batch, state->images), convolve, &job);
    return OK;
}

const Kernel ISA(LINE_CONVOLUTIONS)[] = {
    {"ConvLines_f32", prepare, run_lines, release},
    {NULL, NULL, NULL, NULL},
};
