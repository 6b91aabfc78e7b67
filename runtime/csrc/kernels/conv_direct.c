// Dense and grouped convolutions, straight from the pixels of a channels-last input.
//
// Channels of the result are divided into panels of one to four vectors, whose weights lie side by
// side, and pixels into tiles (direct.h).  An input with other strides is copied first, with its
// padding, so that the taps of a line are one run.
#include <math.h>
#include <stdlib.h>

#include "direct.h"

enum {
    LONG_WINDOW = 3072,  // two panels of more numbers and more than two vectors fill the second cache
    FEW_PIXELS = 256,  // that panels of weights, which come from far away, are worth being asked for
    BLOCK_FLOATS = 1 << 16,  // of the input that all panels go by, or of panels that a tile goes by
    MANY_WEIGHTS = 1 << 17,  // that are not worth being read by each thread
    CHUNKS = 16,  // as many as are worth having
};

typedef struct {
    Conv conv;
    Source source;
    Limits limits;
    int64_t run;  // floats that a tap of `source` reads
    int64_t window;  // taps of `source`
    int64_t k, vectors, panels;  // numbers of a window; vectors of channels and panels of a group
    int64_t blocks, parts;  // of pixels and of panels
    int64_t beside;  // panels that a tile goes by before the next one does
    bool copied;  // the input
    int64_t copy_floats, packed_floats;
    float *packed, *outside;
    int64_t *distances;  // of the taps of `source` from the first
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
    free(state->distances);
    free(state);
}

// -- preparing ------------------------------------------------------------------------------------

// The first vector of a panel; the end of the last one for the number behind it.
static int64_t first_vector(const State *state, int64_t panel) {
    return state->vectors * panel / state->panels;
}

// Weights [out][in][taps] of a panel become [tap][in][channels], with zeros beyond `out`.
static void pack_panel(const State *state, int64_t number, float *packed) {
    const Conv *conv = &state->conv;
    const int64_t group = number / state->panels, panel = number % state->panels;
    const int64_t first = first_vector(state, panel) * LANES;
    const int64_t width = first_vector(state, panel + 1) * LANES - first;
    const int64_t rest = conv->out - first, count = rest < width ? rest : width;
    const float *from = conv->w + (group * conv->out + first) * conv->in * conv->window;
    float *to = packed + (group * state->vectors * LANES + first) * state->k;
    for (int64_t tap = 0; tap < conv->window; tap++)
        for (int64_t c = 0; c < conv->in; c++, to += width)
            for (int64_t o = 0; o < width; o++)
                to[o] = o < count ? from[(o * conv->in + c) * conv->window + tap] : 0;
}

// Pixels that follow those of the last axis at the same distances belong to it; whether `count` lines
// of these strides do.
static bool append_lines(Conv *conv, int64_t count, int64_t x, int64_t y, int64_t residual) {
    const int64_t length = conv->size[2];
    if (count == 1) return true;
    if (length == 1) {
        conv->x_axis[2] = x;
        conv->y_axis[2] = y;
        conv->residual_axis[2] = residual;
    } else if (
        x != length * conv->x_axis[2] || y != length * conv->y_axis[2] ||
        residual != length * conv->residual_axis[2]) {
        return false;
    }
    conv->size[2] = conv->result[2] = length * count;
    return true;
}

// Lines of pixels, and images, that lie one behind the other become one, if windows are single pixels.
static void join_lines(Conv *conv) {
    if (conv->window != 1) return;
    for (int axis = 0; axis < AXES; axis++)
        if (conv->stride[axis] != 1 || conv->before[axis] != 0 || conv->size[axis] != conv->result[axis])
            return;
    for (int axis = AXES - 2; axis >= 0; axis--) {
        if (!append_lines(
                conv, conv->size[axis], conv->x_axis[axis], conv->y_axis[axis],
                conv->residual_axis[axis]))
            return;
        conv->size[axis] = conv->result[axis] = 1;
    }
    if (!append_lines(conv, conv->batch, conv->x_batch, conv->y_batch, conv->residual_batch)) return;
    conv->pixels *= conv->batch;
    conv->batch = 1;
}

// The input is copied if channels do not lie side by side, or if so few do that joining the taps of
// a line is worth it.
static void plan_source(State *state) {
    Conv *conv = &state->conv;
    Source *source = &state->source;
    const bool aside = conv->x_channel == 1 || conv->groups * conv->in == 1;
    const bool joins = conv->groups == 1 && conv->dilation[2] == 1;
    state->copied = !aside || (joins && conv->in < 8 && conv->taps[2] > 1);
    if (!state->copied) join_lines(conv);
    *source = source_of(conv);
    state->run = conv->in;
    state->window = conv->window;
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
    state->window /= conv->taps[2];
    source->taps[2] = 1;
}

static void find_distances(State *state) {
    int64_t tap[AXES] = {0};
    for (int64_t t = 0; t < state->window; t++) {
        int64_t distance = 0;
        for (int axis = 0; axis < AXES; axis++)
            distance += tap[axis] * state->conv.dilation[axis] * state->source.axis[axis];
        state->distances[t] = distance;
        next_tap(&state->source, tap);
    }
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

// How the work is divided.  Sums are the same however that is done.
static void plan_chunks(State *state) {
    const Conv *conv = &state->conv;
    const bool few = conv->pixels <= FEW_PIXELS;
    const int64_t widest = state->k > LONG_WINDOW ? 2 : MOST_VECTORS;
    const int64_t wanted = ceil_div(CHUNKS, conv->batch * conv->groups);
    state->vectors = ceil_div(conv->out, LANES);
    state->panels = ceil_div(state->vectors, widest);
    // Two threads take half of them each.
    if (few && state->panels > 1) state->panels = least(padded(state->panels, 2), state->vectors);
    state->blocks = ceil_div(conv->pixels, most(BLOCK_FLOATS / conv->in, 8 * MOST_PIXELS));
    state->parts = 1;
    if (few || state->vectors * LANES * state->k > MANY_WEIGHTS)
        state->parts = least(state->panels, ceil_div(wanted, state->blocks));
    if (2 * state->blocks * state->parts < wanted || state->parts == 1)
        state->blocks = most(
            state->blocks, least(ceil_div(wanted, state->parts), conv->pixels / (2 * MOST_PIXELS)));
    state->beside = few ? 1 : least(state->panels, most(1, BLOCK_FLOATS / (state->k * widest * LANES)));
}

static void plan_limits(State *state) {
    const Epilogue *epilogue = &state->conv.epilogue;
    state->limits = (Limits){-INFINITY, INFINITY, epilogue->activation};
    if (epilogue->relu) state->limits.low = 0;
    if (epilogue->activation != ISA(clip_loop)()) return;
    state->limits =
        (Limits){(float)epilogue->parameters[0], (float)epilogue->parameters[1], NULL};
}

static bool allocate(State *state) {
    state->outside = calloc((size_t)state->run, sizeof(float));
    state->distances = malloc((size_t)state->window * sizeof(int64_t));
    if (state->conv.constant)
        state->packed = aligned_alloc(64, (size_t)state->packed_floats * sizeof(float));
    return state->outside && state->distances && (state->packed || !state->conv.constant);
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
    plan_limits(state);
    state->k = conv->in * conv->window;
    plan_chunks(state);
    state->packed_floats = padded(conv->groups * state->vectors * state->k * LANES, 16);
    if (!allocate(state)) {
        release(state);
        return NULL;
    }
    find_distances(state);
    state->source.outside = state->outside;
    if (conv->constant)
        for (int64_t i = 0; i < conv->groups * state->panels; i++)
            pack_panel(state, i, state->packed);
    const int64_t packed_now = conv->constant ? 0 : state->packed_floats;
    needs->shared = (state->copy_floats + packed_now) * (int64_t)sizeof(float);
    return state;
}

static void pack(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Job *job = context;
    pack_panel(job->state, chunk, job->unpacked);
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

// -- running --------------------------------------------------------------------------------------

// What a chunk computes.
typedef struct {
    int64_t image, group;
    int64_t first, end;  // pixels
    int64_t panel, last;  // panels panel .. last - 1
} Part;

static Part part_of(const State *state, int64_t chunk) {
    const Conv *conv = &state->conv;
    const int64_t block = chunk % state->blocks, rest = chunk / state->blocks;
    const int64_t number = rest % state->parts, plane = rest / state->parts;
    return (Part){
        .image = plane / conv->groups,
        .group = plane % conv->groups,
        .first = conv->pixels * block / state->blocks,
        .end = conv->pixels * (block + 1) / state->blocks,
        .panel = state->panels * number / state->parts,
        .last = state->panels * (number + 1) / state->parts,
    };
}

// Pixels first .. first + count - 1 by the channels of one panel.  `missing`: room for their bias.
static void make_panel(
    const Job *job, const Part *part, Tile *tile, int64_t panel, int64_t first, int count,
    float *missing) {
    const State *state = job->state;
    const Conv *conv = &state->conv;
    const Epilogue *epilogue = &conv->epilogue;
    const int64_t vector = first_vector(state, panel), vectors = first_vector(state, panel + 1) - vector;
    const int64_t rest = conv->out - vector * LANES;
    const int64_t channel = part->group * conv->out + vector * LANES;
    const int64_t panel_floats = vectors * LANES * state->k;
    tile->channels = (int)least(rest, vectors * LANES);
    tile->weights = job->weights + (part->group * state->vectors + vector) * LANES * state->k;
    tile->bias = missing;
    if (epilogue->row_bias && tile->channels == vectors * LANES)
        tile->bias = epilogue->row_bias + channel;
    else if (epilogue->row_bias)
        copy_floats(missing, epilogue->row_bias + channel, tile->channels);
    tile->y = conv->y + part->image * conv->y_batch + channel * conv->y_channel;
    if (epilogue->residual)
        tile->residual = epilogue->residual + part->image * conv->residual_batch +
                         channel * conv->residual_channel;
    const int64_t pixels = part->end - part->first;
    tile->ahead = (const char *)tile->weights;
    tile->ahead_step = 0;
    tile->expected = state->beside == state->panels && conv->y_channel == 1;
    if (panel + state->beside < state->panels) {
        // Each tile asks for some of the panel that comes next.
        tile->ahead = (const char *)(tile->weights + state->beside * panel_floats +
                                     panel_floats * (first - part->first) / pixels);
        tile->ahead_step = vectors * VECTOR_BYTES * count / pixels;
    } else if (tile->expected) {
        // Where the next tile will write.
        const int64_t bytes = count * conv->y_axis[2] * (int64_t)sizeof(float);
        tile->ahead = (const char *)(conv->y + part->image * conv->y_batch + tile->next) +
                      bytes * (panel % state->beside) / state->beside;
        tile->ahead_step = bytes / (state->beside * state->k);
    }
    ISA(make_tile)(tile, count, (int)vectors);
}

// How many pixels, from number `first` on, are the next tile: lines are divided if they are long.
static int tile_pixels(const Conv *conv, const Walk *walk, int64_t rest, int64_t highest) {
    const int64_t line = conv->result[2] - walk->index[2];
    if (conv->result[2] >= 3 * highest && line < rest) rest = line;
    return (int)ceil_div(rest, ceil_div(rest, highest));
}

static void convolve(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Job *job = context;
    const State *state = job->state;
    const Conv *conv = &state->conv;
    const Part part = part_of(state, chunk);
    const int64_t highest = ISA(most_pixels)((int)ceil_div(state->vectors, state->panels));
    float missing[MOST_WIDTH] = {0};
    Tile tile = {
        .conv = conv,
        .source = &job->source,
        .distances = state->distances,
        .window = state->window,
        .run = state->run,
        .limits = state->limits,
        .image = job->source.data + part.image * job->source.batch + part.group * conv->in,
    };
    for (int64_t panel = part.panel; panel < part.last; panel += state->beside) {
        const int64_t last = least(panel + state->beside, part.last);
        Walk walk = walk_from(conv, &job->source, part.first);
        int count;
        for (int64_t first = part.first; first < part.end; first += count) {
            count = tile_pixels(conv, &walk, part.end - first, highest);
            tile.inside = walk_pixels(conv, &job->source, &walk, count, tile.pixels);
            tile.next = walk.pixel.y;
            for (int64_t i = panel; i < last; i++)
                make_panel(job, &part, &tile, i, first, count, missing);
        }
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
    share_chunks(
        run, conv->batch * conv->groups * state->blocks * state->parts, convolve, &job);
    return OK;
}

const Kernel ISA(DIRECT_CONVOLUTIONS)[] = {
    {"ConvDirect_f32", prepare, run_direct, release},
    {NULL, NULL, NULL, NULL},
};
