// Convolutions as matrix products: weights [out][in * taps] times windows [in * taps][pixels], where
// panels of windows are collected just before they are multiplied.
#include <stdlib.h>
#include <string.h>

#include "filters.h"
#include "../support/chunks.h"

// Panels of a chunk: their slices stay in the second cache.  Of short windows there are more, so that
// results are written in longer runs.
enum { PIXEL_PANELS = 4, MOST_PANELS = 16 };
// Tiles of rows for which collecting windows takes longer than it saves; floats of an input beyond which
// it does not, as a copy asks memory for more at once than products do.  For more tiles the input has to
// be in the second cache, and windows are not to come from too many places.
enum { FEW_TILES = 8, MOST_FLOATS = 3 << 20, NEAR_FLOATS = 3 << 17, NEAR_PLACES = 512 };
enum { SHORT_WINDOW = 64, FEW_CHUNKS = 8 };

typedef struct {
    Conv conv;
    int64_t k;  // in * window
    bool direct;  // windows are single pixels: the input is read where it lies
    bool by_lines;  // windows need not be collected where they are in one line
    Filters filters;
    int64_t *offsets;  // of each of the k numbers of a window, from the place of its pixel
    int64_t input_floats;  // of the laid out input
    int64_t column_group;  // pixels of a chunk
    int64_t row_group;  // output channels of a chunk
    bool early;  // several chunks use the same windows, which are collected before any of them
    int64_t panels_size;  // floats of all windows of a group of an image
} State;

typedef struct {
    const State *state;
    const Run *run;
    const float *weights, *input;  // the latter NULL: read in place
    float *windows;  // those collected early
} Job;

// -- preparing ------------------------------------------------------------------------------------

static bool reads_in_place(const Conv *conv) {
    if (!conv->plain) return false;
    for (int axis = 0; axis < AXES; axis++)
        if (conv->stride[axis] != 1 || conv->before[axis] || conv->size[axis] != conv->result[axis])
            return false;
    return conv->window == 1;
}

// Pixels are divided among chunks, and channels too where there are few pixels.
static void choose_groups(State *state, const Needs *needs) {
    const Conv *conv = &state->conv;
    const int64_t planes = conv->batch * conv->groups;
    const bool few = conv->pixels <= 2 * PIXEL_PANELS * TILE_COLUMNS && planes == 1;
    const int64_t work = state->k * conv->out * conv->pixels;
    const int64_t all = chunks_for(needs, (double)work * (double)planes, FEW_CHUNKS);
    const int64_t pixels = PIXEL_PANELS * TILE_COLUMNS,
                  spare = conv->pixels * planes / (all * pixels);
    const int64_t more =
        greater(1, lesser(lesser(MOST_PANELS / PIXEL_PANELS, spare), SHORT_WINDOW / state->k));
    state->column_group = few ? pixels / 2 : more * pixels;
    const int64_t chunks = ceil_div(conv->pixels, state->column_group) * planes;
    int64_t wanted = 8 * chunks >= 3 * all ? 1 : all / chunks;
    if (wanted > work / (1 << 19)) wanted = work / (1 << 19);
    const int64_t panels = ceil_div(conv->out, TILE_ROWS);
    if (wanted > panels) wanted = panels;
    if (wanted < 1) wanted = 1;
    state->row_group = ceil_div(panels, wanted) * TILE_ROWS;
    state->early = state->row_group < conv->out;
    state->panels_size = state->early ? padded(conv->pixels, TILE_COLUMNS) * state->k : 0;
}

static void release(void *argument) {
    State *state = argument;
    ISA(free_filters)(&state->filters);
    free(state->offsets);
    free(state);
}

static bool allocate(State *state) {
    const Conv *conv = &state->conv;
    state->offsets = malloc((size_t)state->k * sizeof(int64_t));
    if (!state->offsets) return false;
    const int64_t plane = state->direct ? conv->x_channel : conv->plane;
    for (int64_t i = 0; i < state->k; i++)
        state->offsets[i] = i / conv->window * plane +
                            (state->direct ? 0 : ISA(tap_offset)(conv, i % conv->window));
    return ISA(prepare_filters)(&state->filters, conv, TILE_ROWS);
}

static bool is_read_by_lines(const State *state) {
    const Conv *conv = &state->conv;
    const int64_t floats = conv->in * conv->size[0] * conv->size[1] * conv->size[2];
    if (conv->out <= FEW_TILES * TILE_ROWS) return floats <= MOST_FLOATS;
    return floats <= NEAR_FLOATS && state->k <= NEAR_PLACES;
}

static void *prepare(Params *params, Needs *needs) {
    State *state = calloc(1, sizeof(State));
    if (!state) return NULL;
    Conv *conv = &state->conv;
    if (!ISA(read_conv)(conv, params)) {
        free(state);
        return NULL;
    }
    state->k = conv->in * conv->window;
    state->direct = reads_in_place(conv);
    state->by_lines = is_read_by_lines(state);
    if (!allocate(state)) {
        release(state);
        return NULL;
    }
    choose_groups(state, needs);
    // What is read and written beyond the end of a panel is never used.
    state->input_floats =
        state->direct
            ? 0
            : padded(conv->batch * conv->groups * conv->in * conv->plane + TILE_COLUMNS, 16);
    const int64_t weights = filter_floats(&state->filters);
    const int64_t depth = lesser(state->k, DEPTH);
    const int64_t windows = state->early ? conv->batch * conv->groups * state->panels_size + 64 : 0;
    needs->shared = (state->input_floats + weights + windows) * (int64_t)sizeof(float);
    needs->own = state->early
                     ? 0
                     : (state->column_group * depth + 2 * TILE_COLUMNS) * (int64_t)sizeof(float);
    images_lie_anywhere(needs, conv);
    return state;
}

// -- running --------------------------------------------------------------------------------------

// Pixels of a panel whose windows lie side by side.
typedef struct {
    int start, count;
    int64_t place;
} Stretch;

static int find_stretches(const State *state, int64_t first, int count, Stretch *stretches) {
    const Conv *conv = &state->conv;
    if (state->direct) {
        stretches[0] = (Stretch){0, count, first};
        return 1;
    }
    int found = 0;
    for (int done = 0; done < count;) {
        const int64_t pixel = first + done;
        const int64_t column = pixel % conv->result[2], line = pixel / conv->result[2];
        const int64_t row = line % conv->result[1], slice = line / conv->result[1];
        int64_t length = conv->result[2] - column;
        if (length > count - done) length = count - done;
        const int64_t place = (slice * conv->phase[1] + row) * conv->phase[2] + column;
        stretches[found++] = (Stretch){done, (int)length, place};
        done += (int)length;
    }
    return found;
}

// Numbers begin .. end - 1 of the windows of up to TILE_COLUMNS pixels.
static void collect(
    const State *state, const float *input, int64_t first, int count, int64_t begin, int64_t end,
    float *to) {
    Stretch stretches[TILE_COLUMNS];
    const int found = find_stretches(state, first, count, stretches);
    const bool whole = found == 1 && count == TILE_COLUMNS;
    // What is left of earlier kernels must not be multiplied: subnormal numbers are slow.
    if (count < TILE_COLUMNS) memset(to, 0, (size_t)((end - begin) * TILE_COLUMNS) * sizeof(float));
    for (int64_t i = begin; i < end; i++, to += TILE_COLUMNS) {
        const float *from = input + state->offsets[i];
        if (whole) {
            const float *source = from + stretches[0].place;
            store(to, load(source));
            store(to + LANES, load(source + LANES));
        } else if (state->direct) {
            copy_floats(to, from + first, count);
        } else {
            for (int s = 0; s < found; s++) {
                const float *source = from + stretches[s].place;
                for (int j = 0; j < stretches[s].count; j += LANES)
                    store(to + stretches[s].start + j, load(source + j));
            }
        }
    }
}

// Panels of one slice of the windows lie one behind the other, slice after slice.
static void collect_early(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Job *job = context;
    const State *state = job->state;
    const int64_t pixels = state->conv.pixels, all = padded(pixels, TILE_COLUMNS);
    const int64_t slices = ceil_div(state->k, DEPTH);
    const int64_t plane = chunk / slices, done = chunk % slices * DEPTH;
    const int64_t depth = state->k - done < DEPTH ? state->k - done : DEPTH;
    const float *input = first_channel_of(&state->conv, job->input, plane);
    float *windows = job->windows + plane * state->panels_size + done * all;
    for (int64_t j = 0; j < pixels; j += TILE_COLUMNS) {
        const int count = pixels - j < TILE_COLUMNS ? (int)(pixels - j) : TILE_COLUMNS;
        // The last store may reach into the next panel, which the same thread fills afterwards, or
        // into the next slice, which it must not.
        float last[TILE_COLUMNS * 2];
        float *to = windows + j * depth;
        collect(state, input, j, count, done, done + depth - 1, to);
        collect(state, input, j, count, done + depth - 1, done + depth, last);
        memcpy(to + (depth - 1) * TILE_COLUMNS, last, TILE_COLUMNS * sizeof(float));
    }
}

// A slice of the windows of some panels: collected, or where they lie in the input, if all pixels of a
// panel are in one line.
typedef struct {
    const float *collected;
    const float *lines[MOST_PANELS];  // NULL: collected
    int64_t done, depth;
} Windows;

// The place of the first pixel of a panel, if its windows need not be collected.
static const float *line_of(const State *state, const float *input, int64_t first, int count) {
    Stretch stretches[TILE_COLUMNS];
    if (count < TILE_COLUMNS || !state->by_lines) return NULL;
    if (find_stretches(state, first, count, stretches) > 1) return NULL;
    return input + stretches[0].place;
}

// By the thread that multiplies them next.
static void collect_late(
    const Job *job, int64_t plane, int64_t first, int64_t width, float *own, Windows *windows) {
    const int64_t begin = windows->done, end = begin + windows->depth;
    const float *input = first_channel_of(&job->state->conv, job->input, plane);
    windows->collected = own;
    for (int64_t j = 0; j < width; j += TILE_COLUMNS, own += TILE_COLUMNS * windows->depth) {
        const int count = width - j < TILE_COLUMNS ? (int)(width - j) : TILE_COLUMNS;
        const float *line = line_of(job->state, input, first + j, count);
        windows->lines[j / TILE_COLUMNS] = line;
        if (!line) collect(job->state, input, first + j, count, begin, end, own);
    }
}

// A slice of the sums of a tile.
static void multiply_windows(
    const State *state, const Windows *windows, const float *left, Place out, int rows, int64_t j,
    int columns, Ending ending) {
    const float *line = windows->lines[j / TILE_COLUMNS];
    const bool add = windows->done > 0;
    if (!line) {
        ISA(multiply_tile)(
            left, windows->collected + j * windows->depth, windows->depth, out, rows, columns, add,
            ending);
        return;
    }
    const float *const lines[] = {line, line + LANES};
    ISA(multiply_lines)(
        left, lines, state->offsets + windows->done, windows->depth, out.data, out.row, LANES, rows,
        add, ending);
}

// A slice of the sums of height x width results.
static void multiply_slice(
    const State *state, const float *left, const Windows *windows, Place out, int64_t height,
    int64_t width, const Epilogue *epilogue) {
    const int64_t done = windows->done, depth = windows->depth;
    const bool last = done + depth == state->k;
    const bool ends = last && !epilogue->residual && !epilogue->column_bias &&
                      !epilogue->activation;
    for (int64_t i = 0; i < height; i += TILE_ROWS) {
        const int rows = height - i < TILE_ROWS ? (int)(height - i) : TILE_ROWS;
        Place tile = {out.data + i * out.row, out.row, out.first_row + i, out.first_column};
        Ending ending = {NULL, ends && epilogue->relu};
        if (ends && epilogue->row_bias) ending.bias = epilogue->row_bias + tile.first_row;
        for (int64_t j = 0; j < width; j += TILE_COLUMNS) {
            const int count = width - j < TILE_COLUMNS ? (int)(width - j) : TILE_COLUMNS;
            const Place part = {tile.data + j, out.row, 0, 0};
            const int64_t next = i + TILE_ROWS;
            const int64_t ahead = height - next < TILE_ROWS ? height - next : TILE_ROWS;
            expect(out.data + next * out.row + j, out.row, ahead, count);
            if (last && epilogue->residual)
                expect(
                    epilogue->residual + (out.first_row + next) * out.row + out.first_column + j,
                    out.row, ahead, count);
            multiply_windows(
                state, windows, left + i * state->k + done * TILE_ROWS, part, rows, j, count,
                ending);
        }
        if (last && !ends) ISA(finish)(epilogue, tile, rows, width);
    }
}

static void convolve(void *context, int64_t chunk, int thread) {
    const Job *job = context;
    const State *state = job->state;
    const Conv *conv = &state->conv;
    const int64_t columns = ceil_div(conv->pixels, state->column_group);
    const int64_t row_groups = ceil_div(conv->out, state->row_group);
    const int64_t first = chunk % columns * state->column_group;
    const int64_t top = chunk / columns % row_groups * state->row_group;
    const int64_t plane = chunk / columns / row_groups;  // number of the group, image by image
    const int64_t group = plane % conv->groups;
    const int64_t width = lesser(conv->pixels - first, state->column_group);
    const int64_t height = conv->out - top < state->row_group ? conv->out - top : state->row_group;
    const float *left = job->weights + group * state->filters.group + top * state->k;
    Epilogue epilogue = conv->epilogue;
    if (epilogue.row_bias) epilogue.row_bias += group * conv->out;
    if (epilogue.residual) epilogue.residual += plane * conv->out * conv->pixels;
    const Place out = {
        conv->y + (plane * conv->out + top) * conv->pixels + first, conv->pixels, top, first};
    for (int64_t done = 0; done < state->k; done += DEPTH) {
        const int64_t depth = state->k - done < DEPTH ? state->k - done : DEPTH;
        if (pool_is_stopped()) return;
        Windows windows = {.done = done, .depth = depth};
        if (state->early)
            windows.collected = job->windows + plane * state->panels_size +
                                done * padded(conv->pixels, TILE_COLUMNS) + first * depth;
        else
            collect_late(job, plane, first, width, (float *)job->run->own[thread], &windows);
        multiply_slice(state, left, &windows, out, height, width, &epilogue);
    }
}

static Failure run_conv(const void *argument, const Run *run) {
    const State *state = argument;
    const Conv *conv = &state->conv;
    float *input = state->direct ? NULL : (float *)run->shared;
    float *memory = (float *)run->shared + state->input_floats;
    Job job = {state, run, ISA(packed_filters)(&state->filters, run, memory), input, NULL};
    const int64_t weights = filter_floats(&state->filters);
    job.windows = (float *)run->shared + padded(state->input_floats + weights, 16);
    if (input) {
        const int64_t used = conv->batch * conv->groups * conv->in * conv->plane;
        memset(input + used, 0, (size_t)(state->input_floats - used) * sizeof(float));
        ISA(lay_out_input)(conv, run, input);
    }
    if (state->early)
        share_chunks(
            run, conv->batch * conv->groups * ceil_div(state->k, DEPTH), collect_early, &job);
    const int64_t columns = ceil_div(conv->pixels, state->column_group);
    const int64_t rows = ceil_div(conv->out, state->row_group);
    share_chunks(run, conv->batch * conv->groups * rows * columns, convolve, &job);
    return OK;
}

const Kernel ISA(CONVOLUTIONS)[] = {
    {"Conv_f32", prepare, run_conv, release},
    {NULL, NULL, NULL, NULL},
};
