// Convolutions of bytes less their zero points, in int32, and what follows them: products of windows,
// gathered row by row, and packed weights; or those of words.
#include <stdlib.h>

#include "words_i8.h"
#include "../support/chunks.h"

enum {
    FEW_CHUNKS = 4,  // fewer chunks of pixels are divided by channels, too: see products_i8.c
    FEW_CHANNELS = 12,  // of a group; more are as fast as bytes, if weights have no zero points
};

typedef struct {
    ByteConv conv;
    int8_t *packed;  // the weights of all groups, if they are constant
    int64_t chunk_pixels, pixel_chunks, chunk_panels, panel_chunks;
    WordConv words;  // if the products are those of words
} State;

typedef struct {
    const State *state;
    const Run *run;
    const int8_t *weights;
    int8_t *unpacked;
    const uint8_t *x;
    uint8_t *copy;
} Job;

static void release(void *argument) {
    State *state = argument;
    free(state->packed);
    ISA(release_words)(&state->words);
    free(state);
}

// -- preparing ------------------------------------------------------------------------------------

static void plan_chunks(State *state, const Needs *needs) {
    const int64_t blocks = ceil_div(state->conv.pixels, CHUNK_PIXELS);
    state->chunk_pixels = padded(ceil_div(state->conv.pixels, blocks), BYTE_ROWS);
    state->pixel_chunks = ceil_div(state->conv.pixels, state->chunk_pixels);
    const int64_t planes = state->conv.batch * state->conv.groups;
    const double products = (double)(planes * state->conv.pixels) *
                            (double)(state->conv.panels.n * state->conv.panels.k) / BYTES_AT_ONCE;
    const int64_t wanted =
        ceil_div(chunks_for(needs, products, FEW_CHUNKS), planes * state->pixel_chunks);
    state->chunk_panels = ceil_div(state->conv.panels.panels, wanted);
    state->panel_chunks = ceil_div(state->conv.panels.panels, state->chunk_panels);
}

static int64_t line_bytes(const ByteConv *conv) { return padded(conv->panels.k, 64); }

// Bytes of windows, or of columns of weights, before they are packed.
static int64_t lines_bytes(const ByteConv *conv) { return BYTE_COLUMNS * line_bytes(conv); }

// Bytes of the windows of a chunk.
static int64_t windows_bytes(const ByteConv *conv) {
    if (takes_lines(&conv->panels)) return CHUNK_PIXELS * line_bytes(conv);
    return padded(row_bytes(&conv->panels, CHUNK_PIXELS), 64);
}

// Packs a panel of weights [out][in][taps], whose windows are [tap][in] here.
static void pack_weights(const ByteConv *conv, int64_t number, uint8_t *lines, int8_t *packed) {
    const BytePanels *panels = &conv->panels;
    const int64_t group = number / panels->panels, panel = number % panels->panels;
    const int64_t first = panel * BYTE_COLUMNS, k = panels->k, line = line_bytes(conv);
    const int64_t count = lesser(panels->n - first, BYTE_COLUMNS);
    const uint8_t *from = conv->w + (group * panels->n + first) * k;
    for (int64_t column = 0; column < count; column++, from += k)
        for (int64_t tap = 0; tap < conv->window; tap++)
            for (int64_t c = 0; c < conv->in; c++)
                lines[column * line + tap * conv->in + c] = from[c * conv->window + tap];
    ISA(pack_panel)(panels, lines, line, 1, panel, packed + group * matrix_bytes(panels));
}

// Whether there is memory for the weights, which are constant.
static bool pack_constant(State *state) {
    uint8_t *lines = malloc((size_t)lines_bytes(&state->conv));
    state->packed = aligned_alloc(
        64, (size_t)padded(state->conv.groups * matrix_bytes(&state->conv.panels) + 64, 64));
    for (int64_t i = 0;
         lines && state->packed && i < state->conv.groups * state->conv.panels.panels; i++)
        pack_weights(&state->conv, i, lines, state->packed);
    free(lines);
    return lines && state->packed;
}

// Panels of bytes have columns of one group only, which few channels leave empty; words join groups:
// 0.1 to 0.95 of the time.
static bool has_narrow_groups(const ByteConv *conv) {
    const bool few = conv->panels.has_right_zero || conv->in <= FEW_CHANNELS;
    return conv->groups > 1 && conv->panels.n <= LANES && few;
}

static void *prepare(Params *params, Needs *needs) {
    State *state = calloc(1, sizeof(State));
    if (!state) return NULL;
    if (!ISA(read_byte_conv)(&state->conv, params)) {
        release(state);
        return NULL;
    }
    byte_images_lie_anywhere(needs, &state->conv);
    if (state->conv.panels.form == FASTEST && has_narrow_groups(&state->conv))
        state->conv.panels.in_words = true;
    if (state->conv.panels.in_words) {
        if (ISA(plan_words)(&state->words, &state->conv, needs)) return state;
        release(state);
        return NULL;
    }
    ISA(plan_byte_copy)(&state->conv);
    plan_chunks(state, needs);
    if (state->conv.constant && !pack_constant(state)) {
        release(state);
        return NULL;
    }
    needs->shared = state->conv.copy_bytes;
    if (!state->conv.constant)
        needs->shared += state->conv.groups * matrix_bytes(&state->conv.panels);
    // Windows, packed windows, a panel of results and one of residuals
    needs->own = lines_bytes(&state->conv) + windows_bytes(&state->conv) + TILES_BYTES;
    return state;
}

// -- running --------------------------------------------------------------------------------------

static void weights_chunk(void *context, int64_t chunk, int thread) {
    const Job *job = context;
    pack_weights(&job->state->conv, chunk, (uint8_t *)job->run->own[thread], job->unpacked);
}

static void copy_chunk(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Job *job = context;
    ISA(copy_byte_line)(&job->state->conv, job->copy, chunk);
}

// A copy of few bytes, mostly, whose parts overlap: a call takes longer.
INLINE void copy_few(uint8_t *to, const uint8_t *from, int64_t count) {
    if (count > 32) {
        memcpy(to, from, (size_t)count);
    } else if (count >= 16) {
        memcpy(to, from, 16);
        memcpy(to + count - 16, from + count - 16, 16);
    } else if (count >= 8) {
        memcpy(to, from, 8);
        memcpy(to + count - 8, from + count - 8, 8);
    } else {
        for (int64_t i = 0; i < count; i++) to[i] = from[i];
    }
}

// The taps of a window in one line of the input.
static uint8_t *gather_line(
    const ByteConv *conv, const uint8_t *line, int64_t at, uint8_t outside, uint8_t *to) {
    const int64_t in = conv->in, taps = conv->taps[2], size = conv->size[2];
    if (conv->dilation[2] == 1 && conv->x_axis[2] == in && at >= 0 && at + taps <= size) {
        copy_few(to, line + at * in, taps * in);
        return to + taps * in;
    }
    for (int64_t tap = 0; tap < taps; tap++, at += conv->dilation[2], to += in) {
        if (at >= 0 && at < size)
            copy_few(to, line + at * conv->x_axis[2], in);
        else
            memset(to, outside, (size_t)in);
    }
    return to;
}

// The window that begins at a place of an image.
static void gather_window(
    const ByteConv *conv, const uint8_t *image, const int64_t *at, uint8_t outside, uint8_t *to) {
    const size_t width = (size_t)(conv->taps[2] * conv->in);
    for (int64_t i = 0; i < conv->taps[0]; i++) {
        const int64_t depth = at[0] + i * conv->dilation[0];
        for (int64_t j = 0; j < conv->taps[1]; j++) {
            const int64_t row = at[1] + j * conv->dilation[1];
            if (depth < 0 || depth >= conv->size[0] || row < 0 || row >= conv->size[1]) {
                memset(to, outside, width);
                to += width;
                continue;
            }
            const uint8_t *line = image + depth * conv->x_axis[0] + row * conv->x_axis[1];
            to = gather_line(conv, line, at[2], outside, to);
        }
    }
}

// Windows of pixels that follow each other, in lines of memory.
static void gather_windows(
    const ByteConv *conv, const uint8_t *image, int64_t first, int64_t count, uint8_t *lines) {
    const uint8_t outside = outside_of(conv);
    const int64_t line = line_bytes(conv);
    int64_t at[AXES], left = conv->result[2] - first % conv->result[2];  // pixels of this row
    window_at(conv, first, at);
    for (int64_t i = 0; i < count; i++, lines += line) {
        gather_window(conv, image, at, outside, lines);
        at[2] += conv->stride[2];
        if (--left > 0) continue;
        window_at(conv, first + i + 1, at);
        left = conv->result[2];
    }
}

// The windows of so many pixels, packed if they have to be.
static LeftRows windows_of(
    const ByteConv *conv, const uint8_t *image, int64_t first, int64_t count, uint8_t *lines,
    uint8_t *own) {
    const int64_t line = line_bytes(conv);
    if (takes_lines(&conv->panels)) {
        gather_windows(conv, image, first, count, own);
        for (int64_t i = 0; i < count; i++, own += line) {
            flip_line(&conv->panels, own, conv->panels.k);
            memset(own + conv->panels.k, 0, (size_t)(conv->panels.groups * 4 - conv->panels.k));
        }
        return (LeftRows){own - count * line, NULL, 0, line};
    }
    const LeftRows rows = rows_in(&conv->panels, own, 0, count);
    for (int64_t i = 0; i < count; i += BYTE_ROWS) {
        const int64_t some = lesser(count - i, BYTE_ROWS);
        gather_windows(conv, image, first + i, some, lines);
        ISA(pack_rows)(&conv->panels, lines, line, 1, i, some, rows);
    }
    return rows;
}

static void pixels_chunk(void *context, int64_t chunk, int thread) {
    const Job *job = context;
    const State *state = job->state;
    const ByteConv *conv = &state->conv;
    const BytePanels *panels = &conv->panels;
    const int64_t share = chunk % state->panel_chunks;
    chunk /= state->panel_chunks;
    const int64_t first = chunk % state->pixel_chunks * state->chunk_pixels;
    chunk /= state->pixel_chunks;
    const int64_t group = chunk % conv->groups, number = chunk / conv->groups;
    const int64_t count = lesser(conv->pixels - first, state->chunk_pixels);
    char *own = job->run->own[thread], *packed = own + lines_bytes(conv);
    char *tiles = packed + windows_bytes(conv);
    const uint8_t *image = job->x + number * conv->x_batch + group * conv->in;
    const int8_t *matrix = job->weights + group * matrix_bytes(panels);
    const LeftRows rows = windows_of(conv, image, first, count, (uint8_t *)own, (uint8_t *)packed);
    const int64_t last = lesser((share + 1) * state->chunk_panels, panels->panels);
    for (int64_t panel = share * state->chunk_panels; panel < last; panel++) {
        if (pool_is_stopped()) return;
        const int64_t column = panel * BYTE_COLUMNS;
        const Part part = {
            number, first, count, group * panels->n + column,
            lesser(panels->n - column, BYTE_COLUMNS)};
        ISA(multiply_panel)(
            panels, matrix, panel, rows, group * panels->n, ISA(open_part)(conv, &part, tiles));
        ISA(close_part)(conv, &part, tiles);
    }
}

static Failure run_conv(const void *argument, const Run *run) {
    const State *state = argument;
    if (state->conv.panels.in_words) {
        ISA(run_words)(&state->words, &state->conv, run);
        return OK;
    }
    Job job = {.state = state, .run = run, .weights = state->packed, .x = state->conv.x};
    if (state->conv.copy_bytes) {
        job.x = job.copy = (uint8_t *)run->shared;
        share_chunks(run, copied_lines(&state->conv), copy_chunk, &job);
    }
    if (!state->packed) {
        job.weights = job.unpacked = (int8_t *)run->shared + state->conv.copy_bytes;
        share_chunks(run, state->conv.groups * state->conv.panels.panels, weights_chunk, &job);
    }
    const int64_t blocks = state->pixel_chunks * state->panel_chunks;
    share_chunks(run, state->conv.batch * state->conv.groups * blocks, pixels_chunk, &job);
    return OK;
}

const Kernel ISA(BYTE_CONVOLUTIONS)[] = {
    {"Conv_i8", prepare, run_conv, release},
    {NULL, NULL, NULL, NULL},
};
