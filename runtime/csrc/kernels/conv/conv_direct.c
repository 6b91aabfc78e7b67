// Dense and grouped convolutions, straight from the pixels of a channels-last input.
//
// Channels of the result are divided into strips of one to four vectors, and pixels into tiles
// (direct.h).  Weights lie in panels of PANEL_COLUMNS channels (gemm.h), which have zeros beyond the
// channels that there are: as archives store them, or packed here.  An input with other strides is
// copied first, with its padding, so that the taps of a line are one run: all, or some lines at a time.
#include <stdlib.h>

#include "../support/chunks.h"
#include "direct.h"

enum {
    SLICE = 1024,  // numbers of a long window that all pixels of a block go by before the next ones
    FEW_PIXELS = 256,  // that strips of weights, from far away, are worth being asked for
    // Of the input that all strips go by, or of strips that a tile goes by: 256 KiB, half of the second
    // cache of Zen 3.
    BLOCK_FLOATS = 1 << 16,
    MANY_WEIGHTS = 1 << 17,  // that are not worth being read by each thread: all of that cache
    SHORT_RUN = 32,  // floats that a tap reads side by side; each pixel of a tile has an address
    MOST_BESIDE = 16,  // strips that a block of pixels goes by before the next one
    FEW_CHUNKS = 16,  // see chunks.h
    MOST_REPEATED = 16,  // tiles, one behind the other
    REPEATED_FLOATS = 1 << 12,  // of the input that these read: half of the first cache
};

typedef struct {
    Conv conv;
    Input input;
    Limits limits;
    int64_t k, vectors, strips;  // numbers of a window; vectors of channels and strips of a group
    int64_t panels;  // of weights of a group
    int64_t blocks, parts;  // of pixels and of strips
    int64_t beside;  // strips that a tile goes by before the next one does
    int64_t slices;  // of a window
    int64_t most_repeated;  // tiles that a strip goes by before the next one does
    bool expected;  // whether each tile asks for where the next one will write
    int64_t packed_floats;
    float *own;  // weights that are packed when this is prepared
    const float *packed;  // NULL: they are packed before each run
} State;

typedef struct {
    const State *state;
    const Run *run;
    const float *weights;
    Input input;
    float *copy, *unpacked;
} Job;

static void release(void *argument) {
    State *state = argument;
    free(state->own);
    ISA(release_input)(&state->input);
    free(state);
}

// -- preparing ------------------------------------------------------------------------------------

// The first vector of a strip; the end of the last one for the number behind it.
static int64_t first_vector(const State *state, int64_t strip) {
    if (!PAIRS || state->strips == 1 || strip == state->strips)
        return state->vectors * strip / state->strips;
    // Strips begin with panels, but for one in the middle if one more is wanted than there are pairs.
    const int64_t middle = state->vectors < 2 * state->strips && state->vectors % 2 == 0
                               ? state->strips / 2
                               : state->strips;
    return 2 * strip - (strip >= middle) - (strip > middle);
}

// Where a vector of channels begins in the panels of its group.
static int64_t place_of(const State *state, int64_t vector) {
    const int64_t column = vector * LANES % PANEL_COLUMNS;
    return (vector * LANES - column) * state->k + column;
}

// How the work is divided.  Sums are the same however that is done.
static void plan_chunks(State *state, const Needs *needs) {
    const Conv *conv = &state->conv;
    const bool few = conv->pixels <= FEW_PIXELS;
    const bool narrow = VECTOR_BYTES == 32 || conv->pixels <= FEW_PIXELS / 2;
    const int64_t planes = conv->batch * conv->groups;
    const double products = (double)(planes * conv->pixels) * (double)(conv->out * state->k);
    const int64_t wanted = ceil_div(chunks_for(needs, products, FEW_CHUNKS), planes);
    state->vectors = ceil_div(conv->out, LANES);
    state->strips = narrow ? (few ? greater(1, state->vectors / 2) : ceil_div(state->vectors, 2))
                           : ceil_div(state->vectors, MOST_VECTORS);
    state->panels = ceil_div(conv->out, PANEL_COLUMNS);
    // Tiles of three vectors, of four pixels, take a sixth longer than one of two and one of one, of six
    // and twelve; where pixels are few, weights count.  Two threads take half of the strips each.
    if (few && state->strips > 1) state->strips = lesser(padded(state->strips, 2), state->vectors);
    state->blocks = ceil_div(conv->pixels, greater(BLOCK_FLOATS / conv->in, 8 * MOST_PIXELS));
    state->parts = 1;
    if (few || state->vectors * LANES * state->k > MANY_WEIGHTS)
        state->parts = lesser(state->strips, ceil_div(wanted, state->blocks));
    if (2 * state->blocks * state->parts < wanted || state->parts == 1)
        state->blocks = greater(
            state->blocks,
            lesser(ceil_div(wanted, state->parts), conv->pixels / (2 * MOST_PIXELS)));
    if (state->input.slab) {
        state->input.slab = lesser(state->input.slab, ceil_div(conv->result[1], state->blocks));
        state->blocks = ceil_div(conv->result[1], state->input.slab);
    }
    state->beside =
        few ? 1 : greater(1, BLOCK_FLOATS * state->strips / (state->k * LANES * state->vectors));
    state->beside = lesser(state->beside, lesser(state->strips, MOST_BESIDE));
    state->slices = state->beside == 1 ? greater(1, state->k / SLICE) : 1;
    const int64_t read = state->k / conv->taps[2] * MOST_PIXELS / 2;  // by a tile
    state->most_repeated =
        state->slices > 1 ? 1 : lesser(1 + REPEATED_FLOATS / (read + 1), MOST_REPEATED);
    state->expected = state->beside == state->strips && state->slices == 1 && conv->y_channel == 1;
}

// Finds the weights, if they are constant, or packs them.  False if memory is exhausted, or if panels
// of archives, which do not end with a group, are not those of groups.
static bool find_weights(State *state) {
    const Conv *conv = &state->conv;
    state->packed_floats = conv->groups * state->panels * PANEL_COLUMNS * state->k;
    if (conv->packed) {
        state->packed = conv->w;
        return (conv->groups == 1 || conv->out % PANEL_COLUMNS == 0) &&
               (uintptr_t)conv->w % 64 == 0;
    }
    if (!conv->constant) return true;
    state->packed = state->own = aligned_alloc(64, (size_t)state->packed_floats * sizeof(float));
    for (int64_t i = 0; state->own && i < conv->groups * state->panels; i++)
        ISA(pack_weights_panel)(conv, i, state->own);
    return state->own;
}

static void *prepare(Params *params, Needs *needs) {
    State *state = calloc(1, sizeof(State));
    if (!state) return NULL;
    Conv *conv = &state->conv;
    if (!ISA(read_turned_conv)(conv, params) || conv->out == 0) {
        release(state);
        return NULL;
    }
    state->limits = limits_of(&conv->epilogue);
    state->k = conv->in * conv->window;
    const bool there = ISA(plan_input)(conv, &state->input, needs);
    plan_chunks(state, needs);
    if (!there || !find_weights(state)) {
        release(state);
        return NULL;
    }
    const int64_t packed_now = state->packed ? 0 : state->packed_floats;
    if (state->slices > 1)
        needs->own = ceil_div(conv->pixels, state->blocks) * MOST_WIDTH * (int64_t)sizeof(float);
    needs->own += slab_floats(conv, &state->input) * (int64_t)sizeof(float);
    needs->shared = (state->input.copy_floats + packed_now) * (int64_t)sizeof(float);
    return state;
}

static void copy_part(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Job *job = context;
    ISA(copy_part)(&job->state->conv, &job->state->input, chunk, job->copy);
}

static void pack(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Job *job = context;
    ISA(pack_weights_panel)(&job->state->conv, chunk, job->unpacked);
}

// -- running --------------------------------------------------------------------------------------

// What a chunk computes.
typedef struct {
    int64_t image, group;
    int64_t first, end;  // pixels
    int64_t strip, last;  // strips strip .. last - 1
    bool whole;  // other blocks come first, before other strips do
} Part;

static Part part_of(const State *state, int64_t chunk) {
    const Conv *conv = &state->conv;
    const int64_t block = chunk % state->blocks, rest = chunk / state->blocks;
    const int64_t number = rest % state->parts, plane = rest / state->parts;
    Part part = {
        .image = plane / conv->groups,
        .group = plane % conv->groups,
        .first = conv->pixels * block / state->blocks,
        .end = conv->pixels * (block + 1) / state->blocks,
        .strip = state->strips * number / state->parts,
        .last = state->strips * (number + 1) / state->parts,
    };
    if (state->input.slab) {
        part.first = block * state->input.slab * conv->result[2];
        part.end = lesser(conv->pixels, part.first + state->input.slab * conv->result[2]);
    }
    part.whole = part.last - part.strip <= state->beside && state->slices == 1;
    return part;
}

static Strip strip_of(const Job *job, const Part *part, int64_t number, float *missing) {
    const State *state = job->state;
    const Conv *conv = &state->conv;
    const Epilogue *epilogue = &conv->epilogue;
    const int64_t vector = first_vector(state, number);
    const int64_t width = first_vector(state, number + 1) * LANES - vector * LANES;
    const int64_t channel = part->group * conv->out + vector * LANES;
    const int64_t start = place_of(state, vector);
    Strip strip = {
        .weights = job->weights + part->group * state->panels * PANEL_COLUMNS * state->k + start,
        .bias = missing,
        .y = conv->y + part->image * conv->y_batch + channel * conv->y_channel,
        .vectors = (int)(width / LANES),
        .channels = (int)lesser(conv->out - vector * LANES, width),
    };
    for (int v = 0; v < strip.vectors; v++) strip.apart[v] = place_of(state, vector + v) - start;
    if (epilogue->row_bias && strip.channels == width)
        strip.bias = epilogue->row_bias + channel;
    else if (epilogue->row_bias)
        copy_floats(missing, epilogue->row_bias + channel, strip.channels);
    if (epilogue->residual)
        strip.residual = epilogue->residual + part->image * conv->residual_batch +
                         channel * conv->residual_channel;
    return strip;
}

// All tiles of a block together ask for the strip that comes next, or each for where the next one will
// write.  `place`: of this strip among those that a tile goes by.
static void look_ahead(
    const Job *job, const Part *part, const Tile *tile, int64_t number, int64_t place,
    Strip *strip) {
    const State *state = job->state;
    const Conv *conv = &state->conv;
    const int64_t bytes = (tile->end - tile->first) * strip->vectors * VECTOR_BYTES;
    const int64_t next = number + state->beside;
    strip->ahead_pixel = 0;
    strip->ahead = (const char *)strip->weights;
    if (state->expected) {
        strip->ahead_pixel = conv->y_axis[2] * (int64_t)sizeof(float) / state->beside;
        strip->ahead = (const char *)(conv->y + part->image * conv->y_batch);
        strip->ahead_place = place * strip->ahead_pixel;
    } else if (next < state->strips || tile->end < state->k) {
        strip->ahead_pixel = bytes / (part->whole ? conv->pixels : part->end - part->first);
        const int64_t vector = first_vector(state, number);
        const int64_t distance = place_of(state, first_vector(state, next)) -
                                 place_of(state, vector);
        strip->ahead =
            (const char *)(strip->weights +
                           (tile->end < state->k ? tile->end * PANEL_COLUMNS : distance));
    }
    strip->ahead_line = strip->ahead_pixel * 65536 / (tile->end - tile->first);
}

// What a tile of a block asks for, `position` bytes from the first on: numbers of a slice lie together
// within a panel.
static const char *ahead_of(const State *state, const Tile *tile, int64_t position) {
    if (state->slices == 1) return tile->strip->ahead + position;
    const int64_t line = PANEL_COLUMNS * sizeof(float), slice = (tile->end - tile->first) * line;
    return tile->strip->ahead + position / slice * (state->k * line) + position % slice;
}

// The pixels of a tile, and how many tiles of as many follow in this line, whose windows lie
// inside.
typedef struct { int pixels, repeats; } Share;

// Pixels of a line from here on whose windows lie inside.
static int64_t pixels_inside(const Conv *conv, const Walk *walk) {
    if (!lies_inside(conv, walk, 1)) return 0;
    const int64_t line = conv->result[2] - walk->index[2], stride = conv->stride[2];
    const int64_t space = walk->last[2] - walk->pixel.at[2];
    return lesser(line, (stride == 1 ? space : space / stride) + 1);
}

// What comes next, if `rest` are left.  Where runs are short, tiles do not go over the ends of long
// lines, so that most of them are even.
static Share next_share(const State *state, const Walk *walk, int64_t rest, int64_t highest) {
    const Conv *conv = &state->conv;
    const int64_t length = conv->result[2], line = length - walk->index[2];
    if (state->input.run < SHORT_RUN && length >= 3 * highest && line < rest) rest = line;
    const int64_t tiles = ceil_div(rest, highest), pixels = ceil_div(rest, tiles);
    const int64_t as_high = rest - tiles * (pixels - 1);  // others have a pixel less
    Share share = {(int)pixels, 1};
    if (as_high == 1 || state->most_repeated == 1) return share;
    const int64_t inside = pixels_inside(conv, walk) / pixels;
    share.repeats = (int)greater(1, lesser(lesser(as_high, inside), state->most_repeated));
    return share;
}

// Finds the next pixels.
static void find_tile(const Job *job, Walk *walk, Tile *tile, Share share) {
    const Conv *conv = &job->state->conv;
    const Source *source = &job->input.source;
    const int count = share.pixels;
    tile->even = walk->index[2] + count <= conv->result[2] && lies_inside(conv, walk, count);
    tile->repeats = share.repeats;
    if (!tile->even) {
        tile->inside = walk_pixels(conv, source, walk, count, tile->pixels);
        for (int p = 0; p < count; p++) {
            tile->y[p] = tile->pixels[p].y;
            tile->residual[p] = tile->pixels[p].residual;
        }
        return;
    }
    tile->next_from = count * tile->distance;
    tile->next_y = count * conv->y_axis[2];
    tile->next_residual = count * conv->residual_axis[2];
    pass_pixels(conv, source, walk, count * share.repeats);
}

// Where the pixels of an even tile lie.
static void place_tile(const Conv *conv, const Pixel *first, int count, Tile *tile) {
    tile->from = first->from;
    for (int p = 0; p < count; p++) {
        tile->y[p] = first->y + p * conv->y_axis[2];
        tile->residual[p] = first->residual + p * conv->residual_axis[2];
    }
}

// A block of pixels by strips first .. first + count - 1.
static void make_block(
    const Job *job, const Part *part, Tile *tile, const Strip *strips, int64_t count,
    float *partial) {
    const State *state = job->state;
    int vectors = 0;
    for (int64_t i = 0; i < count; i++)
        if (strips[i].vectors > vectors) vectors = strips[i].vectors;
    const int64_t highest = ISA(most_pixels)(vectors);
    Walk walk = walk_from(&state->conv, &job->input.source, part->first);
    Share share;
    for (int64_t first = part->first; first < part->end; first += share.pixels * share.repeats) {
        const Pixel pixel = walk.pixel;
        share = next_share(state, &walk, part->end - first, highest);
        find_tile(job, &walk, tile, share);
        const int64_t behind = pixel.y + share.pixels * state->conv.y_axis[2];
        for (int64_t i = 0; i < count; i++) {
            const Strip *strip = strips + i;
            tile->strip = strip;
            tile->partial = partial + (first - part->first) * strip->vectors * LANES;
            tile->ahead_step = share.pixels * strip->ahead_line / 65536;
            tile->next_ahead = share.pixels * (state->expected
                                                   ? state->conv.y_axis[2] * (int64_t)sizeof(float)
                                                   : strip->ahead_pixel);
            tile->ahead = ahead_of(
                state, tile,
                state->expected
                    ? behind * (int64_t)sizeof(float) + share.pixels * strip->ahead_place
                    : (part->whole ? first : first - part->first) * strip->ahead_pixel);
            if (tile->even) place_tile(&state->conv, &pixel, share.pixels, tile);
            ISA(make_tiles)(tile, share.pixels);
        }
    }
}

static void convolve(void *context, int64_t chunk, int thread) {
    const Job *job = context;
    const State *state = job->state;
    const Conv *conv = &state->conv;
    const Part part = part_of(state, chunk);
    float missing[MOST_WIDTH] = {0}, *own = (float *)job->run->own[thread],
          *partial = own + slab_floats(conv, &job->input);
    Tile tile = {
        .conv = conv,
        .input = &job->input,
        .limits = state->limits,
        .image = job->input.source.data + part.image * job->input.source.batch +
                 part.group * conv->in,
        .distance = conv->stride[2] * job->input.source.axis[2],
        .expected = state->expected,
    };
    if (job->input.slab)
        tile.image = ISA(copy_slab)(conv, &job->input, part.image, part.first, part.end, own);
    for (int64_t first = part.strip; first < part.last; first += state->beside) {
        const int64_t count = lesser(state->beside, part.last - first);
        Strip strips[MOST_BESIDE];
        for (int64_t i = 0; i < count; i++) strips[i] = strip_of(job, &part, first + i, missing);
        for (int64_t slice = 0; slice < state->slices; slice++) {
            if (pool_is_stopped()) return;
            tile.first = state->k * slice / state->slices;
            tile.end = state->k * (slice + 1) / state->slices;
            for (int64_t i = 0; i < count; i++)
                look_ahead(job, &part, &tile, first + i, i, &strips[i]);
            make_block(job, &part, &tile, strips, count, partial);
        }
    }
}

static Failure run_direct(const void *argument, const Run *run) {
    const State *state = argument;
    const Conv *conv = &state->conv;
    Job job = {state, run, state->packed, state->input, (float *)run->shared, NULL};
    if (!state->packed) {
        job.weights = job.unpacked = (float *)run->shared + state->input.copy_floats;
        share_chunks(run, conv->groups * state->panels, pack, &job);
    }
    const bool copied = state->input.copied && !state->input.slab;
    job.input.source.data = copied ? job.copy : conv->x;
    if (copied) share_chunks(run, ISA(input_parts)(conv, &state->input), copy_part, &job);
    share_chunks(run, conv->batch * conv->groups * state->blocks * state->parts, convolve, &job);
    return OK;
}

const Kernel ISA(DIRECT_CONVOLUTIONS)[] = {
    {"ConvDirect_f32", prepare, run_direct, release},
    {NULL, NULL, NULL, NULL},
};
