// Dense and grouped convolutions, straight from the pixels of a channels-last input.
//
// A tile is a few pixels by a few vectors of output channels, and stays in registers while the
// numbers of its windows, one by one, are multiplied with vectors of weights.  An input with other
// strides is copied first, with its padding, so that the taps of a line are one run.
#include <stdlib.h>

#include "pixels.h"

#if VECTOR_BYTES == 32
enum { MOST_VECTORS = 2 };
#else
enum { MOST_VECTORS = 4 };
#endif
enum {
    WIDTH = MOST_VECTORS * LANES,  // channels of a panel of weights
    MOST_PIXELS = VECTOR_BYTES == 32 ? 6 : 12,
    FEW_PIXELS = 6,  // of tiles with more than two vectors
    BLOCK_FLOATS = 1 << 16,  // of the input that all panels of weights go by
    CHUNKS = 16,  // as many as are worth having
};

typedef struct {
    Conv conv;
    Source source;
    int64_t run;  // floats that a tap of `source` reads
    int64_t k, panels;  // numbers of a window; panels of a group
    int64_t pixel_group, panel_group;  // of a chunk
    bool copied;  // the input
    int64_t copy_floats, packed_floats;
    float *packed, *outside;
} State;

typedef struct {
    const State *state;
    const Run *run;
    const float *weights;
    Source source;
    float *copy, *unpacked;
} Job;

static void release(void *argument) {
    State *state = argument;
    free(state->packed);
    free(state->outside);
    free(state);
}

// -- preparing ------------------------------------------------------------------------------------

// Weights [out][in][taps] of a panel become [tap][in][WIDTH], with zeros for channels beyond `out`.
static void pack_panel(const State *state, int64_t number, float *to) {
    const Conv *conv = &state->conv;
    const int64_t group = number / state->panels, first = number % state->panels * WIDTH;
    const float *from = conv->w + (group * conv->out + first) * conv->in * conv->window;
    const int64_t rest = conv->out - first, count = rest < WIDTH ? rest : WIDTH;
    for (int64_t tap = 0; tap < conv->window; tap++)
        for (int64_t c = 0; c < conv->in; c++, to += WIDTH)
            for (int64_t o = 0; o < WIDTH; o++)
                to[o] = o < count ? from[(o * conv->in + c) * conv->window + tap] : 0;
}

// The input is copied if channels do not lie side by side, or if so few do that joining the taps of
// a line is worth it.
static void plan_source(State *state) {
    const Conv *conv = &state->conv;
    Source *source = &state->source;
    *source = source_of(conv);
    const bool aside = conv->x_channel == 1 || conv->groups * conv->in == 1;
    const bool joins = conv->groups == 1 && conv->dilation[2] == 1;
    state->run = conv->in;
    state->copied = !aside || (joins && conv->in < 8 && conv->taps[2] > 1);
    if (!state->copied) return;
    int64_t step = conv->groups * conv->in;
    for (int axis = AXES - 1; axis >= 0; axis--) {
        source->size[axis] = (conv->result[axis] - 1) * conv->stride[axis] +
                             (conv->taps[axis] - 1) * conv->dilation[axis] + 1;
        source->before[axis] = 0;
        source->axis[axis] = step;
        step *= source->size[axis];
    }
    source->batch = step;
    state->copy_floats = padded(step * conv->batch, 16);
    if (!joins) return;
    state->run *= conv->taps[2];
    source->taps[2] = 1;
}

static void plan_chunks(State *state) {
    const Conv *conv = &state->conv;
    int64_t pixels = ceil_div(BLOCK_FLOATS, conv->in);
    if (pixels < 8 * MOST_PIXELS) pixels = 8 * MOST_PIXELS;
    const int64_t blocks = ceil_div(conv->pixels, pixels);
    state->pixel_group = ceil_div(conv->pixels, blocks);
    const int64_t parts = ceil_div(CHUNKS, blocks * conv->batch * conv->groups);
    state->panel_group = ceil_div(state->panels, parts < state->panels ? parts : state->panels);
}

static void *prepare(Params *params, Needs *needs) {
    State *state = calloc(1, sizeof(State));
    if (!state) return NULL;
    Conv *conv = &state->conv;
    if (!ISA(read_strided_conv)(conv, params) || conv->out == 0) {
        release(state);
        return NULL;
    }
    plan_source(state);
    state->k = conv->in * conv->window;
    state->panels = ceil_div(conv->out, WIDTH);
    state->packed_floats = conv->groups * state->panels * state->k * WIDTH;
    plan_chunks(state);
    state->outside = calloc((size_t)state->run, sizeof(float));
    if (conv->constant)
        state->packed = aligned_alloc(64, (size_t)state->packed_floats * sizeof(float));
    if (!state->outside || (conv->constant && !state->packed)) {
        release(state);
        return NULL;
    }
    state->source.outside = state->outside;
    if (conv->constant)
        for (int64_t i = 0; i < conv->groups * state->panels; i++)
            pack_panel(state, i, state->packed + i * state->k * WIDTH);
    const int64_t packed_now = conv->constant ? 0 : state->packed_floats;
    needs->shared = (state->copy_floats + packed_now) * (int64_t)sizeof(float);
    return state;
}

static void pack(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Job *job = context;
    pack_panel(job->state, chunk, job->unpacked + chunk * job->state->k * WIDTH);
}

// Three channels of an image, pixel by pixel.
static void weave(
    float *restrict to, const float *restrict a, const float *restrict b, const float *restrict c,
    int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        to[3 * i] = a[i];
        to[3 * i + 1] = b[i];
        to[3 * i + 2] = c[i];
    }
}

// One line of the copy: its pixels, those of the padding included.
static void copy_line(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Job *job = context;
    const Conv *conv = &job->state->conv;
    const Source *source = &job->source;
    const int64_t channels = conv->groups * conv->in, width = source->size[2];
    const int64_t h = chunk % source->size[1], rest = chunk / source->size[1];
    const int64_t row = h - conv->before[1], slice = rest % source->size[0] - conv->before[0];
    const int64_t image = rest / source->size[0];
    float *to = job->copy + chunk * width * channels;
    memset(to, 0, (size_t)(width * channels) * sizeof(float));
    if (row < 0 || row >= conv->size[1] || slice < 0 || slice >= conv->size[0]) return;
    const float *from = conv->x + image * conv->x_batch + slice * conv->x_axis[0] + row * conv->x_axis[1];
    const int64_t shift = conv->before[2], first = shift > 0 ? shift : 0;
    const int64_t end = conv->size[2] + shift < width ? conv->size[2] + shift : width;
    to += first * channels;
    from += (first - shift) * conv->x_axis[2];
    if (channels == 3 && conv->x_axis[2] == 1) {
        weave(to, from, from + conv->x_channel, from + 2 * conv->x_channel, end - first);
        return;
    }
    for (int64_t c = 0; c < channels; c++)
        for (int64_t i = 0; i < end - first; i++)
            to[i * channels + c] = from[c * conv->x_channel + i * conv->x_axis[2]];
}

// -- a tile ---------------------------------------------------------------------------------------

// What a tile is made of.
typedef struct {
    const Conv *conv;
    const Source *source;
    int64_t run;
    const float *image;  // of the source, from the first channel of the group on
    const float *weights;  // the panel
    Pixel pixels[MOST_PIXELS];
    bool inside;  // all their windows
    float bias[WIDTH];
    const float *residual;  // of the first channel; NULL if there is none
    float *y;
    int channels;  // that there are
} Tile;

static inline Floats relu(Floats value) {
    const __typeof__(value < 0.0f) below = value < 0.0f;
    return (Floats)((__typeof__(below))value & ~below);
}

// Some of the channels of a residual, one after the other.
static inline Floats residual_part(const Tile *tile, int p, int channel, int count) {
    const float *from = tile->residual + tile->pixels[p].residual;
    const int64_t step = tile->conv->residual_channel;
    if (step == 1 && count == LANES) return load(from + channel);
    float part[LANES] = {0};
    for (int c = 0; c < count; c++) part[c] = from[(channel + c) * step];
    return load(part);
}

// Sums that are not stored as they are: an activation, a result with other strides, few channels.
static __attribute__((noinline)) void keep_sums(
    const Tile *tile, int pixels, int width, float *sums) {
    const Conv *conv = tile->conv;
    const Epilogue *epilogue = &conv->epilogue;
    static const int64_t steps[] = {sizeof(float), sizeof(float)};
    if (epilogue->activation) {
        char *in[] = {(char *)sums};
        epilogue->activation((char *)sums, in, steps, pixels * width, epilogue->parameters);
    }
    if (conv->y_channel == 1) {
        for (int p = 0; p < pixels; p++)
            copy_floats(tile->y + tile->pixels[p].y, sums + p * width, tile->channels);
        return;
    }
    for (int c = 0; c < tile->channels; c++)
        for (int p = 0; p < pixels; p++)
            tile->y[tile->pixels[p].y + c * conv->y_channel] = sums[p * width + c];
}

static inline __attribute__((always_inline)) void finish_tile(
    const Tile *tile, const int P, const int V, Floats (*sums)[MOST_VECTORS]) {
    const Conv *conv = tile->conv;
    const bool plain =
        conv->y_channel == 1 && tile->channels == V * LANES && !conv->epilogue.activation;
    float kept[MOST_PIXELS * MOST_VECTORS * LANES];
    for (int v = 0; v < V; v++) {
        const Floats bias = load(tile->bias + v * LANES);
        const int rest = tile->channels - v * LANES, count = rest < LANES ? rest : LANES;
        for (int p = 0; p < P; p++) {
            Floats sum = sums[p][v] + bias;
            if (tile->residual) sum += residual_part(tile, p, v * LANES, count);
            if (conv->epilogue.relu) sum = relu(sum);
            store(plain ? tile->y + tile->pixels[p].y + v * LANES : kept + (p * V + v) * LANES, sum);
        }
    }
    if (!plain) keep_sums(tile, P, V * LANES, kept);
}

static inline __attribute__((always_inline)) void make_tile(const Tile *tile, const int P, const int V) {
    Floats sums[MOST_PIXELS][MOST_VECTORS];
    const float *weights = tile->weights;
    int64_t tap[AXES] = {0};
    for (int p = 0; p < P; p++)
        for (int v = 0; v < V; v++) sums[p][v] = (Floats){0};
    do {
        const float *runs[MOST_PIXELS];
        find_runs(
            tile->conv, tile->source, tile->image, tap, tile->pixels, P, tile->inside, runs);
        for (int64_t c = 0; c < tile->run; c++, weights += WIDTH) {
            Floats right[MOST_VECTORS];
            for (int v = 0; v < V; v++) right[v] = *(const Floats *)(weights + v * LANES);
            for (int p = 0; p < P; p++)
                for (int v = 0; v < V; v++) sums[p][v] += runs[p][c] * right[v];
        }
    } while (next_tap(tile->source, tap));
    finish_tile(tile, P, V, sums);
}

#define TILE(P, V) \
    static __attribute__((noinline)) void tile_##P##_##V(const Tile *tile) { make_tile(tile, P, V); }
#define TILES(V) TILE(1, V) TILE(2, V) TILE(3, V) TILE(4, V) TILE(5, V) TILE(6, V)
#define MORE_TILES(V) TILE(7, V) TILE(8, V) TILE(9, V) TILE(10, V) TILE(11, V) TILE(12, V)
#define NAMES(V) tile_1_##V, tile_2_##V, tile_3_##V, tile_4_##V, tile_5_##V, tile_6_##V
#define MORE_NAMES(V) tile_7_##V, tile_8_##V, tile_9_##V, tile_10_##V, tile_11_##V, tile_12_##V

typedef void (*MakeTile)(const Tile *tile);

TILES(1)
TILES(2)
#if VECTOR_BYTES == 32
static const MakeTile MAKE[MOST_VECTORS][MOST_PIXELS] = {{NAMES(1)}, {NAMES(2)}};
#else
TILES(3)
TILES(4)
MORE_TILES(1)
MORE_TILES(2)
static const MakeTile MAKE[MOST_VECTORS][MOST_PIXELS] = {
    {NAMES(1), MORE_NAMES(1)}, {NAMES(2), MORE_NAMES(2)}, {NAMES(3)}, {NAMES(4)}};
#endif

// -- running --------------------------------------------------------------------------------------

// Pixels first .. end - 1 by the channels of one panel, in tiles of about the same size.
static void make_panel(const State *state, Tile *tile, int64_t first, int64_t end) {
    const int vectors = (int)ceil_div(tile->channels, LANES);
    const int64_t most = vectors <= 2 ? MOST_PIXELS : FEW_PIXELS;
    const int64_t tiles = ceil_div(end - first, most), count = end - first;
    for (int64_t i = 0; i < tiles; i++) {
        const int64_t from = first + count * i / tiles, to = first + count * (i + 1) / tiles;
        tile->inside = find_pixels(
            &state->conv, tile->source, from, (int)(to - from), tile->pixels);
        MAKE[vectors - 1][to - from - 1](tile);
    }
}

static void convolve(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Job *job = context;
    const State *state = job->state;
    const Conv *conv = &state->conv;
    const int64_t blocks = ceil_div(conv->pixels, state->pixel_group);
    const int64_t parts = ceil_div(state->panels, state->panel_group);
    const int64_t first = chunk % blocks * state->pixel_group;
    const int64_t part = chunk / blocks % parts, plane = chunk / blocks / parts;
    const int64_t image = plane / conv->groups, group = plane % conv->groups;
    const int64_t end = first + state->pixel_group;
    const int64_t last = (part + 1) * state->panel_group;
    for (int64_t panel = part * state->panel_group; panel < last && panel < state->panels; panel++) {
        const int64_t channel = group * conv->out + panel * WIDTH, rest = conv->out - panel * WIDTH;
        const Epilogue *epilogue = &conv->epilogue;
        Tile tile = {
            .conv = conv,
            .source = &job->source,
            .run = state->run,
            .image = job->source.data + image * job->source.batch + group * conv->in,
            .weights = job->weights + (group * state->panels + panel) * state->k * WIDTH,
            .residual = epilogue->residual ? epilogue->residual + image * conv->residual_batch +
                                                 channel * conv->residual_channel
                                           : NULL,
            .y = conv->y + image * conv->y_batch + channel * conv->y_channel,
            .channels = (int)(rest < WIDTH ? rest : WIDTH),
        };
        if (epilogue->row_bias)
            copy_floats(tile.bias, epilogue->row_bias + channel, tile.channels);
        make_panel(state, &tile, first, end < conv->pixels ? end : conv->pixels);
    }
}

static Failure run_direct(const void *argument, const Run *run) {
    const State *state = argument;
    const Conv *conv = &state->conv;
    Job job = {state, run, state->packed, state->source, (float *)run->shared, NULL};
    if (!conv->constant) {
        job.weights = job.unpacked = (float *)run->shared + state->copy_floats;
        share_chunks(run, conv->groups * state->panels, pack, &job);
    }
    if (state->copied) {
        job.source.data = job.copy;
        share_chunks(
            run, conv->batch * job.source.size[0] * job.source.size[1], copy_line, &job);
    }
    const int64_t blocks = ceil_div(conv->pixels, state->pixel_group);
    const int64_t parts = ceil_div(state->panels, state->panel_group);
    share_chunks(run, conv->batch * conv->groups * blocks * parts, convolve, &job);
    return OK;
}

const Kernel ISA(DIRECT_CONVOLUTIONS)[] = {
    {"ConvDirect_f32", prepare, run_direct, release},
    {NULL, NULL, NULL, NULL},
};
