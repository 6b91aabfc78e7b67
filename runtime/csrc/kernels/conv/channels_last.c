// Depthwise convolutions and pooling of channels-last tensors: vectors hold channels.
//
// What is not channels-last is turned, before or after.
#include <math.h>
#include <stdlib.h>

#include "channels_last.h"
#include "depthwise_rows.h"
#include "limits.h"
#include "turned.h"
#include "../support/partial.h"

// Tiles have 8 sums at least, as many as are under way at once: see direct.h.
#if VECTOR_BYTES == 32
enum { MOST_VECTORS = 2 };
#else
enum { MOST_VECTORS = 4 };
#endif
enum {
    PIXELS = 4,  // of a tile
    BATCH = 8,  // tiles that some channels are computed of, one after the other
    CHUNK_WORK = 1 << 16,  // multiplications
    FIRST_CACHE = 8192,  // floats: 32 KiB
    SECOND_CACHE = 1 << 15,  // a quarter of Zen 3's
    LEAST_BLOCK = 2,  // vectors of channels: the last one reaches back, to its own block
};

typedef enum { WEIGHTED, LARGEST, SUM } Mode;

typedef struct {
    Conv conv;  // of copies where there are some
    Turned x, y, residual;
    bool in_rows;  // computed so
    bool depthwise;  // in rows, which these are
    Rows rows;
    Source source;
    Mode mode;
    float *weights;  // [tap][channel of a group][channel]
    float *outside;
    const float *factors;  // of a mean: one over the number of elements of each window
    int64_t channels;
    int64_t unit;  // batches, or rows, of a chunk
    int64_t blocks;  // of the channels, if it is rows
    int64_t packed;  // bytes of scratch before weights that are not constant
} State;

typedef struct {
    const State *state;
    const Run *run;
    Conv conv;
    const float *weights;
    const Turned *turned;  // what is copied
} Job;

static void release(void *argument) {
    State *state = argument;
    free(state->weights);
    free(state->outside);
    free(state);
}

static void pack_weights(const State *state, float *to) {
    const int64_t window = state->conv.window, in = state->conv.in;
    for (int64_t tap = 0; tap < window; tap++)
        for (int64_t i = 0; i < in; i++)
            for (int64_t c = 0; c < state->channels; c++)
                *to++ = state->conv.w[(c * in + i) * window + tap];
}

static bool plan(State *state, Params *params, Needs *needs) {
    Conv *conv = &state->conv;
    const int64_t unit = sizeof(float);
    if (!ISA(read_strided_conv)(conv, params) || conv->in != conv->out || conv->packed)
        return false;
    state->channels = conv->groups * conv->in;
    needs->shared = plan_copies(conv, &state->x, &state->y, &state->residual) * unit;
    // What is copied is no longer read where the convolution has it.
    void *x = &conv->x, *y = &conv->y, *residual = &conv->epilogue.residual;
    reads_anywhere(needs, state->x.data ? &state->x.data : x);
    reads_anywhere(needs, state->residual.data ? &state->residual.data : residual);
    writes_anywhere(needs, state->y.data ? &state->y.data : y);
    state->source = source_of(conv);
    state->unit = ceil_div(CHUNK_WORK, conv->window * state->channels * PIXELS * BATCH);
    state->outside = malloc((size_t)(state->channels * unit));
    if (!state->outside) return false;
    state->source.outside = state->outside;
    needs->own = conv->window * PIXELS * BATCH * (int64_t)sizeof(float *);
    return true;
}

// The lines under a window and that of the result stay in the first cache while rows go by; in the second
// one, where two rows read so little that this is fast enough.
static void plan_rows(State *state) {
    const Conv *conv = &state->conv;
    const bool two = state->depthwise && state->rows.two;
    const int64_t under = two ? conv->taps[1] + state->rows.shift : conv->taps[1];
    const int64_t lines = under * conv->size[2] + (two ? 2 : 1) * conv->result[2];
    int64_t most = (two ? SECOND_CACHE : FIRST_CACHE) / lines / LANES;
    if (most < LEAST_BLOCK) most = LEAST_BLOCK;
    state->blocks = ceil_div(ceil_div(state->channels, LANES), most);
    state->unit = ceil_div(
        CHUNK_WORK * state->blocks, conv->window * conv->in * state->channels * conv->result[2]);
    if (two) state->unit = padded(state->unit, 2 * state->rows.rows_apart);
}

static void *prepare_depthwise(Params *params, Needs *needs) {
    State *state = calloc(1, sizeof(State));
    if (!state) return NULL;
    const bool fits = plan(state, params, needs);
    state->depthwise = fits && ISA(has_depthwise_rows)(&state->conv);
    state->in_rows = state->depthwise || (fits && ISA(has_group_rows)(&state->conv));
    if (!fits || (!state->in_rows && state->conv.in != 1)) {  // tiles are of single channels
        release(state);
        return NULL;
    }
    const int64_t numbers = state->conv.in * state->conv.window;
    const int64_t bytes = state->channels * numbers * (int64_t)sizeof(float);
    memset(state->outside, 0, (size_t)state->channels * sizeof(float));
    if (state->depthwise) {
        state->rows = ISA(plan_depthwise_rows)(&state->conv);
        needs->own = state->rows.bytes;
    }
    if (state->in_rows) plan_rows(state);
    if (!state->conv.constant) {
        state->packed = needs->shared;
        needs->shared += bytes;
    } else if ((state->weights = malloc((size_t)bytes))) {
        pack_weights(state, state->weights);
    } else {
        release(state);
        return NULL;
    }
    return state;
}

static void *prepare_pool(Params *params, Needs *needs) {
    State *state = calloc(1, sizeof(State));
    if (!state) return NULL;
    if (!plan(state, params, needs) || state->conv.in != 1) {
        release(state);
        return NULL;
    }
    reads_anywhere(needs, &state->conv.w);  // which only says how large a window is
    state->mode = next_int(params) != 0 ? LARGEST : SUM;
    const Tensor factors = maybe_tensor(params);
    state->factors = (const float *)factors.data;
    if (params->bad || !may_hold(&factors, F32, state->conv.pixels)) {
        release(state);
        return NULL;
    }
    for (int64_t c = 0; c < state->channels; c++)
        state->outside[c] = state->mode == LARGEST ? -INFINITY : 0;
    state->in_rows = state->mode == LARGEST && ISA(has_maxima)(&state->conv);
    if (state->in_rows) {
        plan_rows(state);
        needs->own = ISA(maxima_bytes)(&state->conv);
    }
    return state;
}

// -- a tile: a few pixels -------------------------------------------------------------------------

typedef struct {
    const State *state;
    const Conv *conv;
    const float *weights;
    const float **runs;  // [tap][PIXELS]
    const float *residual;
    float *y;
    const float *factors;  // of the pixels
    const Limits *limits;
    Pixel pixels[PIXELS];
    int count;
} Tile;

// `V` vectors of channels from `c` on, of which those from `from` on are wanted.
INLINE void make_channels(const Tile *tile, int64_t c, const int V, const Mode mode, int64_t from) {
    const State *state = tile->state;
    const Epilogue *epilogue = &tile->conv->epilogue;
    const int64_t window = tile->conv->window, channels = state->channels;
    const Floats start = mode == LARGEST ? all_of(-INFINITY) : (Floats){0};
    Floats totals[PIXELS][MOST_VECTORS];
    for (int p = 0; p < PIXELS; p++)
        for (int v = 0; v < V; v++) totals[p][v] = start;
    for (int64_t tap = 0; tap < window; tap++) {
        Floats weights[MOST_VECTORS];
        if (mode == WEIGHTED)
            for (int v = 0; v < V; v++)
                weights[v] = load(tile->weights + tap * channels + c + v * LANES);
        for (int p = 0; p < PIXELS; p++) {
            const float *run = tile->runs[tap * PIXELS + p] + c;
            for (int v = 0; v < V; v++) {
                const Floats part = load(run + v * LANES);
                if (mode == WEIGHTED) totals[p][v] += weights[v] * part;
                if (mode == SUM) totals[p][v] += part;
                if (mode == LARGEST) totals[p][v] = larger_of(totals[p][v], part);
            }
        }
    }
    for (int p = 0; p < tile->count; p++)
        for (int v = 0; v < V; v++) {
            const int64_t at = c + v * LANES;
            Floats total = totals[p][v];
            if (tile->factors) total *= tile->factors[p];
            if (epilogue->row_bias) total += load(epilogue->row_bias + at);
            if (tile->residual) total += load(tile->residual + tile->pixels[p].residual + at);
            total = limited(total, tile->limits);
            store_from(tile->y + tile->pixels[p].y + at, total, from - at);
        }
}

// Fewer channels than a vector has.
INLINE void make_few(const Tile *tile, const Mode mode) {
    const Epilogue *epilogue = &tile->conv->epilogue;
    const int64_t channels = tile->state->channels, window = tile->conv->window;
    Floats totals[PIXELS];
    for (int p = 0; p < PIXELS; p++) totals[p] = mode == LARGEST ? all_of(-INFINITY) : (Floats){0};
    for (int64_t tap = 0; tap < window; tap++) {
        Floats weights = {0};
        if (mode == WEIGHTED) weights = load_some(tile->weights + tap * channels, channels);
        for (int p = 0; p < PIXELS; p++) {
            const Floats part = load_some(tile->runs[tap * PIXELS + p], channels);
            if (mode == WEIGHTED) totals[p] += weights * part;
            if (mode == SUM) totals[p] += part;
            if (mode == LARGEST) totals[p] = larger_of(totals[p], part);
        }
    }
    for (int p = 0; p < tile->count; p++) {
        const Pixel *pixel = &tile->pixels[p];
        Floats total = totals[p];
        if (tile->factors) total *= tile->factors[p];
        if (epilogue->row_bias) total += load_some(epilogue->row_bias, channels);
        if (tile->residual) total += load_some(tile->residual + pixel->residual, channels);
        total = limited(total, tile->limits);
        store_some(tile->y + pixel->y, total, channels);
    }
}

// The same channels of all tiles, before the next ones: their inputs and weights stay near.
INLINE void make_batch(
    const Tile *tiles, int count, int64_t c, const int V, const Mode mode, int64_t from) {
    for (int i = 0; i < count; i++) make_channels(tiles + i, c, V, mode, from);
}

INLINE void make_tiles(const State *state, const Tile *tiles, int count, const Mode mode) {
    const int64_t channels = state->channels;
    if (channels < LANES) {
        for (int i = 0; i < count; i++) make_few(tiles + i, mode);
        return;
    }
    int64_t c = 0;
    for (; c + MOST_VECTORS * LANES <= channels; c += MOST_VECTORS * LANES) {
        if (pool_is_stopped()) return;
        make_batch(tiles, count, c, MOST_VECTORS, mode, c);
    }
    if (c == channels) return;
    // The last vectors reach back, but write nothing twice: the residual may be the result.
    const int64_t vectors = ceil_div(channels - c, LANES);
    if (vectors * LANES > channels) {
        for (; c + LANES <= channels; c += LANES) make_batch(tiles, count, c, 1, mode, c);
        make_batch(tiles, count, channels - LANES, 1, mode, c);
        return;
    }
    const int64_t back = channels - vectors * LANES;
    if (vectors == 1) make_batch(tiles, count, back, 1, mode, c);
    if (vectors == 2) make_batch(tiles, count, back, 2, mode, c);
#if VECTOR_BYTES != 32
    if (vectors == 3) make_batch(tiles, count, back, 3, mode, c);
    if (vectors == 4) make_batch(tiles, count, back, 4, mode, c);
#endif
}

static void activate_tile(const Tile *tile) {
    for (int p = 0; p < tile->count; p++)
        activate(&tile->conv->epilogue, tile->y + tile->pixels[p].y, tile->state->channels);
}

// Tile number `number` of all, and what its windows read.
static void begin_tile(const Job *job, int64_t number, Tile *tile, const float **runs) {
    const State *state = job->state;
    const Conv *conv = &job->conv;
    const int64_t tiles = ceil_div(conv->pixels, PIXELS);
    const int64_t image = number / tiles, first = number % tiles * PIXELS;
    const int64_t rest = conv->pixels - first;
    const float *residual = conv->epilogue.residual;
    tile->state = state;
    tile->conv = conv;
    tile->weights = job->weights;
    tile->runs = runs;
    tile->y = conv->y + image * conv->y_batch;
    tile->count = rest < PIXELS ? (int)rest : PIXELS;
    tile->residual = residual ? residual + image * conv->residual_batch : NULL;
    tile->factors = state->factors ? state->factors + first : NULL;
    const bool inside = find_pixels(conv, &state->source, first, tile->count, tile->pixels);
    for (int p = tile->count; p < PIXELS; p++) tile->pixels[p] = tile->pixels[0];
    const float *from = conv->x + image * conv->x_batch;
    int64_t tap[AXES] = {0};
    do {
        find_runs(conv, &state->source, from, tap, tile->pixels, PIXELS, inside, runs);
        runs += PIXELS;
    } while (next_tap(&state->source, tap));
}

static void some_tiles(void *context, int64_t chunk, int thread) {
    const Job *job = context;
    const State *state = job->state;
    const Conv *conv = &job->conv;
    const Limits limits = limits_of(&conv->epilogue);
    const int64_t all = ceil_div(conv->pixels, PIXELS) * conv->batch;
    const float **runs = (const float **)job->run->own[thread];
    int64_t end = (chunk + 1) * state->unit * BATCH;
    if (end > all) end = all;
    for (int64_t first = chunk * state->unit * BATCH; first < end; first += BATCH) {
        if (pool_is_stopped()) return;
        Tile tiles[BATCH];
        const int count = end - first < BATCH ? (int)(end - first) : BATCH;
        for (int i = 0; i < count; i++) {
            begin_tile(job, first + i, tiles + i, runs + i * conv->window * PIXELS);
            tiles[i].limits = &limits;
        }
        if (state->mode == WEIGHTED) make_tiles(state, tiles, count, WEIGHTED);
        if (state->mode == LARGEST) make_tiles(state, tiles, count, LARGEST);
        if (state->mode == SUM) make_tiles(state, tiles, count, SUM);
        if (limits.activation)
            for (int i = 0; i < count; i++) activate_tile(tiles + i);
    }
}

static int64_t rows_of(const Conv *conv) { return conv->batch * conv->result[0] * conv->result[1]; }

static void some_rows(void *context, int64_t chunk, int thread) {
    const Job *job = context;
    const State *state = job->state;
    const int64_t rows = rows_of(&job->conv);
    float *scratch = (float *)job->run->own[thread];
    const int64_t block = chunk % state->blocks, part = chunk / state->blocks;
    const int64_t vectors = ceil_div(state->channels, LANES);
    const int64_t first = vectors * block / state->blocks * LANES;
    const int64_t next = vectors * (block + 1) / state->blocks * LANES;
    const int64_t last = lesser(next, state->channels);
    const int64_t begin = part * state->unit, end = lesser(rows, begin + state->unit);
    const float *weights = job->weights, *outside = state->outside;
    if (state->depthwise)
        ISA(convolve_depthwise_rows)(
            &state->rows, &job->conv, weights, outside, begin, end, first, last, scratch);
    for (int64_t row = begin; row < end && !state->depthwise && !pool_is_stopped(); row++)
        if (state->mode == LARGEST)
            ISA(largest_row)(&job->conv, row, first, last, scratch);
        else
            ISA(convolve_group_row)(&job->conv, weights, outside, row, first, last);
}

// -- other memory formats -------------------------------------------------------------------------

static void turn_some(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Job *job = context;
    const bool out = job->turned == &job->state->y;
    turn_line(job->turned, job->state->channels, chunk, (float *)job->run->shared, out);
}

static void turn_all(Job *job, const Turned *turned) {
    if (!turned->data) return;
    job->turned = turned;
    const int64_t lines = job->conv.batch * turned->size[0] * turned->size[1];
    share_chunks(job->run, lines, turn_some, job);
}

static Failure run_windows(const void *argument, const Run *run) {
    const State *state = argument;
    Job job = {state, run, state->conv, state->weights, NULL};
    float *shared = (float *)run->shared;
    if (state->x.data) job.conv.x = shared + state->x.scratch;
    if (state->y.data) job.conv.y = shared + state->y.scratch;
    if (state->residual.data) job.conv.epilogue.residual = shared + state->residual.scratch;
    if (state->mode == WEIGHTED && !state->conv.constant) {
        pack_weights(state, (float *)(run->shared + state->packed));
        job.weights = (const float *)(run->shared + state->packed);
    }
    turn_all(&job, &state->x);
    turn_all(&job, &state->residual);
    const int64_t tiles = ceil_div(state->conv.pixels, PIXELS) * state->conv.batch;
    const int64_t rows = rows_of(&state->conv);
    if (state->in_rows)
        share_chunks(run, ceil_div(rows, state->unit) * state->blocks, some_rows, &job);
    else
        share_chunks(run, ceil_div(tiles, state->unit * BATCH), some_tiles, &job);
    turn_all(&job, &state->y);
    return OK;
}

const Kernel ISA(CHANNELS_LAST)[] = {
    {"DepthwiseLast_f32", prepare_depthwise, run_windows, release},
    {"PoolLast_f32", prepare_pool, run_windows, release},
    {NULL, NULL, NULL, NULL},
};
