// Convolutions of bytes of one channel by one channel: vectors hold channels.  Sums are floats, which
// are exact as long as windows are small.
#include <stdlib.h>

#include "depthwise_i8.h"
#include "words_i8.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

enum {
    MOST_TAPS = (1 << 24) / (255 * 255),  // whose sums are integers that floats hold
    HALVES = BYTE_COLUMNS / LANES,
};

typedef struct {
    ByteConv conv;
    int64_t channels, panels;
    float *weights;  // those that are constant, less their zero points: [panel][tap][BYTE_COLUMNS]
    int64_t packed_bytes;
    int64_t pixel_chunks;
    ByteLanes lanes;  // without weights: the processor or the problem does not have the form
    WordConv words;  // if the products are those of words
} State;

typedef struct {
    const State *state;
    const Run *run;
    const float *weights;
    const uint8_t *x, *outside;
    uint8_t *copy;
} Job;

static void release(void *argument) {
    State *state = argument;
    free(state->weights);
    free(state->lanes.weights);
    ISA(release_words)(&state->words);
    free(state);
}

// -- preparing ------------------------------------------------------------------------------------

static void pack_weights(const State *state, float *to) {
    const ByteConv *conv = &state->conv;
    memset(to, 0, (size_t)state->packed_bytes);
    for (int64_t c = 0; c < state->channels; c++) {
        float *panel = to + c / BYTE_COLUMNS * conv->window * BYTE_COLUMNS + c % BYTE_COLUMNS;
        const int32_t zero = zero_point(&conv->panels.right, c);
        for (int64_t tap = 0; tap < conv->window; tap++) {
            const uint8_t byte = conv->w[c * conv->window + tap];
            const int32_t weight = conv->panels.right.is_signed ? (int8_t)byte : byte;
            panel[tap * BYTE_COLUMNS] = (float)(weight - zero);
        }
    }
}

// Lanes hold many channels, of weights without zero points; floats those of whole panels.  Of others words
// take 0.1 to 0.8 of the time.
static bool wants_words(const ByteConv *conv) {
    const bool in_lanes = conv->constant && !conv->panels.has_right_zero;
    return in_lanes ? conv->groups <= LANES : conv->groups % BYTE_COLUMNS != 0;
}

static void *prepare(Params *params, Needs *needs) {
    State *state = calloc(1, sizeof(State));
    if (!state) return NULL;
    ByteConv *conv = &state->conv;
    if (!ISA(read_byte_conv)(conv, params) || conv->in != 1 || conv->panels.n != 1 ||
        conv->window > MOST_TAPS) {
        release(state);
        return NULL;
    }
    byte_images_lie_anywhere(needs, conv);
    if (conv->panels.form == FASTEST && wants_words(conv)) conv->panels.in_words = true;
    if (conv->panels.in_words) {
        if (ISA(plan_words)(&state->words, conv, needs)) return state;
        release(state);
        return NULL;
    }
    ISA(plan_byte_copy)(conv);
    state->channels = conv->groups;
    state->panels = ceil_div(state->channels, BYTE_COLUMNS);
    state->packed_bytes = state->panels * conv->window * BYTE_COLUMNS * (int64_t)sizeof(float);
    state->pixel_chunks = ceil_div(conv->pixels, CHUNK_PIXELS);
    needs->shared = conv->copy_bytes + padded(state->channels, 64);
    if (ISA(plan_lanes)(&state->lanes, conv, state->channels)) {
        needs->own = TILES_BYTES + state->lanes.woven_bytes;
        return state;
    }
    // Packed weights are those less their zero points.
    if (conv->constant && conv->panels.right.is_final) {
        state->weights = aligned_alloc(64, (size_t)padded(state->packed_bytes, 64));
        if (!state->weights) {
            release(state);
            return NULL;
        }
        pack_weights(state, state->weights);
    }
    if (!state->weights) needs->shared += state->packed_bytes;
    needs->own = TILES_BYTES + CHUNK_PIXELS * conv->window * (int64_t)sizeof(uint8_t *);
    return state;
}

// -- running --------------------------------------------------------------------------------------

static void copy_chunk(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Job *job = context;
    ISA(copy_byte_line)(&job->state->conv, job->copy, chunk);
}

// What the taps of a window read: channel 0 of a pixel, or what is outside.
static void find_runs(
    const ByteConv *conv, const uint8_t *image, const uint8_t *outside, int64_t pixel,
    const uint8_t **runs) {
    int64_t at[AXES];
    window_at(conv, pixel, at);
    for (int64_t i = 0; i < conv->taps[0]; i++) {
        const int64_t depth = at[0] + i * conv->dilation[0];
        for (int64_t j = 0; j < conv->taps[1]; j++) {
            const int64_t row = at[1] + j * conv->dilation[1];
            const bool there = depth >= 0 && depth < conv->size[0] && row >= 0 &&
                               row < conv->size[1];
            const uint8_t *line = image + depth * conv->x_axis[0] + row * conv->x_axis[1];
            for (int64_t k = 0; k < conv->taps[2]; k++) {
                const int64_t column = at[2] + k * conv->dilation[2];
                const bool inside = there && column >= 0 && column < conv->size[2];
                *runs++ = inside ? line + column * conv->x_axis[2] : outside;
            }
        }
    }
}

// Compilers widen bytes one by one.
static inline Floats widened(const uint8_t *from, const bool is_signed) {
#if defined(__AVX512F__)
    const __m128i bytes = _mm_loadu_si128((const __m128i *)from);
    const __m512i numbers = is_signed ? _mm512_cvtepi8_epi32(bytes) : _mm512_cvtepu8_epi32(bytes);
    return (Floats)_mm512_cvtepi32_ps(numbers);
#elif defined(__AVX2__)
    const __m128i bytes = _mm_loadl_epi64((const __m128i *)from);
    const __m256i numbers = is_signed ? _mm256_cvtepi8_epi32(bytes) : _mm256_cvtepu8_epi32(bytes);
    return (Floats)_mm256_cvtepi32_ps(numbers);
#else
    typedef int8_t Signed __attribute__((vector_size(LANES)));
    typedef uint8_t Unsigned __attribute__((vector_size(LANES)));
    Unsigned bytes;
    memcpy(&bytes, from, sizeof(bytes));
    return is_signed ? __builtin_convertvector((Signed)bytes, Floats)
                     : __builtin_convertvector(bytes, Floats);
#endif
}

// The sums of a panel of channels of one pixel.  The last two are constants.
INLINE void add_up(
    const uint8_t *const *runs, int64_t channel, int64_t channels, const float *weights,
    int64_t window, int32_t *to, const bool whole, const bool is_signed) {
    Floats sums[HALVES] = {{0}};
    for (int64_t tap = 0; tap < window; tap++, weights += BYTE_COLUMNS) {
        uint8_t few[BYTE_COLUMNS];
        const uint8_t *from = runs[tap] + channel;
        if (!whole) from = memcpy(few, from, (size_t)channels);
        for (int h = 0; h < HALVES; h++)
            sums[h] += widened(from + h * LANES, is_signed) * load(weights + h * LANES);
    }
    for (int h = 0; h < HALVES; h++)
        *(LooseInts *)(to + h * LANES) = __builtin_convertvector(sums[h], Ints);
}

static void sums_of(
    const uint8_t *const *runs, const Part *part, const float *weights, int64_t window,
    bool is_signed, int32_t *to) {
    const int64_t channel = part->column, channels = part->columns;
    const bool whole = channels == BYTE_COLUMNS;
    if (whole && !is_signed)
        add_up(runs, channel, channels, weights, window, to, true, false);
    else if (whole)
        add_up(runs, channel, channels, weights, window, to, true, true);
    else
        add_up(runs, channel, channels, weights, window, to, false, is_signed);
}

static void find_base(const State *state, const Part *part, const float *weights, ByteColumns *to) {
    const BytePanels *panels = &state->conv.panels;
    const int32_t zero = zero_point(&panels->left, 0);
    for (int64_t j = 0; j < part->columns; j++) {
        float sum = 0;
        for (int64_t tap = 0; tap < state->conv.window; tap++)
            sum += weights[tap * BYTE_COLUMNS + j];
        const uint32_t bias = panels->bias ? (uint32_t)panels->bias[part->column + j] : 0;
        to->base[j] = (int32_t)((uint32_t)(zero * (int32_t)sum) - bias);
    }
    ISA(find_columns)(&panels->epilogue, part->column, part->columns, to);
}

// One panel of channels of some pixels of an image.
static void panel_of(const Job *job, const uint8_t *const *runs, const Part *part, char *tiles) {
    const State *state = job->state;
    const ByteConv *conv = &state->conv;
    const float *weights = job->weights + part->column * conv->window;
    ByteColumns columns = {.base = {0}};
    find_base(state, part, weights, &columns);
    BytePlace place = ISA(open_part)(conv, part, tiles);
    for (int64_t i = 0; i < part->count; i += BYTE_ROWS) {
        int32_t tile[BYTE_ROWS * BYTE_COLUMNS] __attribute__((aligned(64)));
        place.rows = lesser(part->count - i, BYTE_ROWS);
        for (int64_t j = 0; j < place.rows; j++, runs += conv->window)
            sums_of(
                runs, part, weights, conv->window, conv->panels.left.is_signed,
                tile + j * BYTE_COLUMNS);
        ISA(finish_bytes)(&conv->panels.epilogue, &columns, tile, NULL, place);
        place.data += BYTE_ROWS * place.row;
        if (place.residual) place.residual += BYTE_ROWS * place.residual_row;
    }
    ISA(close_part)(conv, part, tiles);
}

static void pixels_chunk(void *context, int64_t chunk, int thread) {
    const Job *job = context;
    const State *state = job->state;
    const ByteConv *conv = &state->conv;
    const int64_t number = chunk / state->pixel_chunks;
    const int64_t first = chunk % state->pixel_chunks * CHUNK_PIXELS;
    const int64_t count = lesser(conv->pixels - first, CHUNK_PIXELS);
    const uint8_t *image = job->x + number * conv->x_batch;
    char *tiles = job->run->own[thread];
    const uint8_t **runs = (const uint8_t **)(tiles + TILES_BYTES);
    for (int64_t i = 0; i < count; i++)
        find_runs(conv, image, job->outside, first + i, runs + i * conv->window);
    for (int64_t panel = 0; panel < state->panels && !pool_is_stopped(); panel++) {
        const int64_t column = panel * BYTE_COLUMNS;
        const Part part = {
            number, first, count, column, lesser(state->channels - column, BYTE_COLUMNS)};
        panel_of(job, runs, &part, tiles);
    }
}

static void lines_chunk(void *context, int64_t chunk, int thread) {
    const Job *job = context;
    const State *state = job->state;
    ISA(lanes_line)(
        &state->lanes, &state->conv, job->x, job->outside, chunk, job->run->own[thread]);
}

static Failure run_depthwise(const void *argument, const Run *run) {
    const State *state = argument;
    const ByteConv *conv = &state->conv;
    if (conv->panels.in_words) {
        ISA(run_words)(&state->words, conv, run);
        return OK;
    }
    char *shared = run->shared;
    Job job = {state, run, state->weights, conv->x, NULL, NULL};
    if (conv->copy_bytes) {
        job.x = job.copy = (uint8_t *)shared;
        share_chunks(run, copied_lines(conv), copy_chunk, &job);
    }
    shared += conv->copy_bytes;
    job.outside = memset(shared, outside_of(conv), (size_t)state->channels);
    if (state->lanes.weights) {
        const int64_t lines = conv->batch * conv->result[0] * conv->result[1];
        share_chunks(run, lines, lines_chunk, &job);
        return OK;
    }
    if (!state->weights) {
        float *weights = (float *)(shared + padded(state->channels, 64));
        pack_weights(state, weights);
        job.weights = weights;
    }
    share_chunks(run, conv->batch * state->pixel_chunks, pixels_chunk, &job);
    return OK;
}

const Kernel ISA(BYTE_DEPTHWISE)[] = {
    {"Depthwise_i8", prepare, run_depthwise, release},
    {NULL, NULL, NULL, NULL},
};
