// Convolutions of bytes less their zero points, in int32, and what follows them: products of windows,
// gathered row by row, and packed weights.
#include <stdlib.h>

#include "byte_panels.h"
#include "conv.h"

enum { CHUNK_PIXELS = 8 * BYTE_ROWS, FEW_CHUNKS = 4 };

// An image whose pixels lie at equal distances: a result, or a residual.
typedef struct {
    char *data;  // NULL: there is none
    int64_t batch, channel, pixel;  // strides in bytes
} Image;

typedef struct {
    BytePanels panels;  // of a group
    int64_t batch, groups, in, window, pixels;
    int64_t size[AXES], taps[AXES], result[AXES], stride[AXES], dilation[AXES], before[AXES];
    const uint8_t *x;
    int64_t x_batch, x_axis[AXES];  // of the input, or of its copy; channels lie side by side
    int64_t from_batch, from_channel, from_axis[AXES], from_size[AXES], from_before[AXES];
    int64_t copy_bytes;  // 0: the input is read where it lies
    const uint8_t *w;
    Image out, residual;
    int8_t *packed;  // the weights of all groups, if they are constant
    int64_t chunk_pixels, pixel_chunks, chunk_panels, panel_chunks;
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
    free(state);
}

// -- preparing ------------------------------------------------------------------------------------

// Whether pixels follow each other at one distance.
static bool read_image(const Tensor *tensor, Image *image) {
    *image = (Image){tensor->data, tensor->strides[0], tensor->strides[1], 0};
    int64_t count = 1;
    for (int axis = tensor->rank - 1; axis >= 2; axis--) {
        if (tensor->dims[axis] == 1) continue;
        if (count == 1) image->pixel = tensor->strides[axis];
        if (tensor->strides[axis] != image->pixel * count) return false;
        count *= tensor->dims[axis];
    }
    return true;
}

// Sizes of the axes that a convolution has, the last ones.
static void read_axes(State *state, Params *params, const Tensor *x, const Tensor *w, const Tensor *y) {
    for (int axis = 0; axis < AXES; axis++) {
        const int own = axis - AXES + x->rank;
        const bool there = own >= 2;
        state->size[axis] = there ? x->dims[own] : 1;
        state->x_axis[axis] = there ? x->strides[own] : 0;
        state->taps[axis] = there ? w->dims[own] : 1;
        state->result[axis] = there ? y->dims[own] : 1;
        state->stride[axis] = there ? next_int(params) : 1;
        state->dilation[axis] = there ? next_int(params) : 1;
        state->before[axis] = there ? next_int(params) : 0;
        state->window *= state->taps[axis];
        state->pixels *= state->result[axis];
    }
}

// An input whose channels do not lie side by side is copied, with what windows read around it.
static void plan_copy(State *state, const Tensor *x) {
    const int64_t channels = state->groups * state->in;
    if (x->strides[1] == 1 || channels == 1) return;
    state->from_batch = state->x_batch;
    state->from_channel = x->strides[1];
    int64_t step = channels;
    for (int axis = AXES - 1; axis >= 0; axis--) {
        state->from_axis[axis] = state->x_axis[axis];
        state->from_size[axis] = state->size[axis];
        state->from_before[axis] = state->before[axis];
        state->size[axis] = (state->result[axis] - 1) * state->stride[axis] +
                            (state->taps[axis] - 1) * state->dilation[axis] + 1;
        state->before[axis] = 0;
        state->x_axis[axis] = step;
        step *= state->size[axis];
    }
    state->x_batch = step;
    state->copy_bytes = padded(step * state->batch, 64);
}

static void plan_chunks(State *state) {
    const int64_t blocks = ceil_div(state->pixels, CHUNK_PIXELS);
    state->chunk_pixels = padded(ceil_div(state->pixels, blocks), BYTE_ROWS);
    state->pixel_chunks = ceil_div(state->pixels, state->chunk_pixels);
    const int64_t wanted =
        ceil_div(FEW_CHUNKS, state->batch * state->groups * state->pixel_chunks);
    state->chunk_panels = ceil_div(state->panels.panels, wanted);
    state->panel_chunks = ceil_div(state->panels.panels, state->chunk_panels);
}

static bool read_operands(State *state, Params *params, bool *constant) {
    const Tensor x = next_tensor(params), w = next_tensor(params), y = next_tensor(params);
    const Tensor residual = next_tensor(params);
    state->groups = next_int(params);
    if (params->bad || x.rank < 3 || x.rank > 2 + AXES || w.rank != x.rank || y.rank != x.rank)
        return false;
    if (state->groups < 1 || !is_contiguous(&w) || !read_image(&y, &state->out)) return false;
    if (residual.data && !read_image(&residual, &state->residual)) return false;
    state->batch = x.dims[0];
    state->in = w.dims[1];
    state->window = state->pixels = 1;
    read_axes(state, params, &x, &w, &y);
    state->x = (const uint8_t *)x.data;
    state->x_batch = x.strides[0];
    state->w = (const uint8_t *)w.data;
    state->panels.n = w.dims[0] / state->groups;
    state->panels.k = state->in * state->window;
    plan_copy(state, &x);
    *constant = w.constant;
    return ISA(read_panels)(&state->panels, params, &x, &w, y.dtype, 1, w.dims[0]);
}

static int64_t line_bytes(const State *state) { return padded(state->panels.k, 64); }

// Bytes of windows, or of columns of weights, before they are packed.
static int64_t lines_bytes(const State *state) { return BYTE_COLUMNS * line_bytes(state); }

// Packs a panel of weights [out][in][taps], whose windows are [tap][in] here.
static void pack_weights(const State *state, int64_t number, uint8_t *lines, int8_t *packed) {
    const BytePanels *panels = &state->panels;
    const int64_t group = number / panels->panels, panel = number % panels->panels;
    const int64_t first = panel * BYTE_COLUMNS, k = panels->k, line = line_bytes(state);
    const int64_t count = least(panels->n - first, BYTE_COLUMNS);
    const uint8_t *from = state->w + (group * panels->n + first) * k;
    for (int64_t column = 0; column < count; column++, from += k)
        for (int64_t tap = 0; tap < state->window; tap++)
            for (int64_t c = 0; c < state->in; c++)
                lines[column * line + tap * state->in + c] = from[c * state->window + tap];
    ISA(pack_panel)(panels, lines, line, 1, panel, packed + group * matrix_bytes(panels));
}

// Whether there is memory for the weights, which are constant.
static bool pack_constant(State *state) {
    uint8_t *lines = malloc((size_t)lines_bytes(state));
    state->packed = aligned_alloc(
        64, (size_t)padded(state->groups * matrix_bytes(&state->panels) + 64, 64));
    for (int64_t i = 0; lines && state->packed && i < state->groups * state->panels.panels; i++)
        pack_weights(state, i, lines, state->packed);
    free(lines);
    return lines && state->packed;
}

static void *prepare(Params *params, Needs *needs) {
    State *state = calloc(1, sizeof(State));
    bool constant = false;
    if (!state) return NULL;
    if (!read_operands(state, params, &constant)) {
        release(state);
        return NULL;
    }
    plan_chunks(state);
    if (constant && !pack_constant(state)) {
        release(state);
        return NULL;
    }
    needs->shared = state->copy_bytes;
    if (!constant) needs->shared += state->groups * matrix_bytes(&state->panels);
    // Windows, packed windows, a panel of results and one of residuals
    needs->own = lines_bytes(state) + padded(row_bytes(&state->panels, CHUNK_PIXELS), 64) +
                 2 * CHUNK_PIXELS * BYTE_COLUMNS * 4;
    return state;
}

// -- running --------------------------------------------------------------------------------------

static uint8_t outside_of(const State *state) {
    return state->panels.left.zero ? *state->panels.left.zero : 0;
}

static void weights_chunk(void *context, int64_t chunk, int thread) {
    const Job *job = context;
    pack_weights(job->state, chunk, (uint8_t *)job->run->own[thread], job->unpacked);
}

// Copies a line of pixels, and what is around it.
static void copy_chunk(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Job *job = context;
    const State *state = job->state;
    const int64_t channels = state->groups * state->in, rest = chunk / state->size[1];
    const int64_t line[] = {
        rest % state->size[0] - state->from_before[0],
        chunk % state->size[1] - state->from_before[1],
    };
    uint8_t *to = job->copy + chunk * state->x_axis[1];
    const uint8_t *from = state->x + rest / state->size[0] * state->from_batch +
                          line[0] * state->from_axis[0] + line[1] * state->from_axis[1];
    int64_t first = state->from_before[2], last = first + state->from_size[2];
    if (first < 0) first = 0;
    if (last > state->size[2]) last = state->size[2];
    const bool there = line[0] >= 0 && line[0] < state->from_size[0] && line[1] >= 0 &&
                       line[1] < state->from_size[1] && first < last;
    if (!there) first = last = 0;
    const uint8_t outside = outside_of(state);
    memset(to, outside, (size_t)(first * channels));
    memset(to + last * channels, outside, (size_t)((state->size[2] - last) * channels));
    for (int64_t w = first; w < last; w++) {
        const uint8_t *pixel = from + (w - state->from_before[2]) * state->from_axis[2];
        for (int64_t c = 0; c < channels; c++)
            to[w * channels + c] = pixel[c * state->from_channel];
    }
}

// The taps of a window in one line of the input.
static uint8_t *gather_line(
    const State *state, const uint8_t *line, int64_t at, uint8_t outside, uint8_t *to) {
    const int64_t in = state->in, taps = state->taps[2], size = state->size[2];
    if (state->dilation[2] == 1 && state->x_axis[2] == in && at >= 0 && at + taps <= size) {
        memcpy(to, line + at * in, (size_t)(taps * in));
        return to + taps * in;
    }
    for (int64_t tap = 0; tap < taps; tap++, at += state->dilation[2], to += in) {
        if (at >= 0 && at < size)
            memcpy(to, line + at * state->x_axis[2], (size_t)in);
        else
            memset(to, outside, (size_t)in);
    }
    return to;
}

// The window of pixel number `pixel` of an image.
static void gather_window(
    const State *state, const uint8_t *image, int64_t pixel, uint8_t outside, uint8_t *to) {
    int64_t at[AXES];
    for (int axis = AXES - 1; axis >= 0; axis--) {
        at[axis] = pixel % state->result[axis] * state->stride[axis] - state->before[axis];
        pixel /= state->result[axis];
    }
    const size_t width = (size_t)(state->taps[2] * state->in);
    for (int64_t i = 0; i < state->taps[0]; i++) {
        const int64_t depth = at[0] + i * state->dilation[0];
        for (int64_t j = 0; j < state->taps[1]; j++) {
            const int64_t row = at[1] + j * state->dilation[1];
            if (depth < 0 || depth >= state->size[0] || row < 0 || row >= state->size[1]) {
                memset(to, outside, width);
                to += width;
                continue;
            }
            const uint8_t *line = image + depth * state->x_axis[0] + row * state->x_axis[1];
            to = gather_line(state, line, at[2], outside, to);
        }
    }
}

// Packs the windows of so many pixels.
static void pack_windows(
    const Job *job, const uint8_t *image, int64_t first, int64_t count, uint8_t *lines,
    PackedRows rows) {
    const State *state = job->state;
    const int64_t line = line_bytes(state);
    const uint8_t outside = outside_of(state);
    for (int64_t i = 0; i < count; i += BYTE_ROWS) {
        const int64_t some = least(count - i, BYTE_ROWS);
        for (int64_t j = 0; j < some; j++)
            gather_window(state, image, first + i + j, outside, lines + j * line);
        ISA(pack_rows)(&state->panels, lines, line, 1, i, some, rows);
    }
}

// rows x columns of `size` bytes each, between images and rows of BYTE_COLUMNS.
static void take_image(
    const Image *image, int64_t from, int64_t size, int64_t rows, int64_t columns, char *to) {
    for (int64_t j = 0; j < columns; j++)
        for (int64_t i = 0; i < rows; i++)
            memcpy(
                to + (i * BYTE_COLUMNS + j) * size,
                image->data + from + j * image->channel + i * image->pixel, (size_t)size);
}

static void put_image(
    const Image *image, int64_t to, int64_t size, int64_t rows, int64_t columns, const char *from) {
    for (int64_t j = 0; j < columns; j++) {
        char *plane = image->data + to + j * image->channel;
        if (size == 1)
            for (int64_t i = 0; i < rows; i++)
                plane[i * image->pixel] = from[i * BYTE_COLUMNS + j];
        else
            for (int64_t i = 0; i < rows; i++)
                memcpy(plane + i * image->pixel, from + (i * BYTE_COLUMNS + j) * 4, 4);
    }
}

// Pixels `first` and on of image number `number`, by one panel of a group.  `tiles` is for results and
// residuals whose channels do not lie side by side.
static void panel_of_pixels(
    const Job *job, int64_t number, int64_t group, int64_t panel, int64_t first, int64_t count,
    PackedRows rows, char *tiles) {
    const State *state = job->state;
    const BytePanels *panels = &state->panels;
    const Image *out = &state->out, *residual = &state->residual;
    const int64_t size = item_size(panels->epilogue.type), tile = CHUNK_PIXELS * BYTE_COLUMNS * 4;
    const int64_t column = group * panels->n + panel * BYTE_COLUMNS;
    const int64_t columns = least(panels->n - panel * BYTE_COLUMNS, BYTE_COLUMNS);
    const int64_t to = number * out->batch + column * out->channel + first * out->pixel;
    const bool turned = out->channel != size;
    BytePlace place = {.data = out->data + to, .row = out->pixel, .rows = count};
    if (turned) place = (BytePlace){.data = tiles, .row = BYTE_COLUMNS * size, .rows = count};
    if (residual->data) {
        const int64_t from =
            number * residual->batch + column * residual->channel + first * residual->pixel;
        const bool aside = residual->channel == 4;
        if (!aside) take_image(residual, from, 4, count, columns, tiles + tile);
        place.residual = aside ? residual->data + from : tiles + tile;
        place.residual_row = aside ? residual->pixel : BYTE_COLUMNS * 4;
    }
    const int8_t *matrix = job->weights + group * matrix_bytes(panels);
    ISA(multiply_panel)(panels, matrix, panel, rows, group * panels->n, place);
    if (turned) put_image(out, to, size, count, columns, tiles);
}

static void pixels_chunk(void *context, int64_t chunk, int thread) {
    const Job *job = context;
    const State *state = job->state;
    const BytePanels *panels = &state->panels;
    const int64_t part = chunk % state->panel_chunks;
    chunk /= state->panel_chunks;
    const int64_t first = chunk % state->pixel_chunks * state->chunk_pixels;
    chunk /= state->pixel_chunks;
    const int64_t group = chunk % state->groups, number = chunk / state->groups;
    const int64_t count = least(state->pixels - first, state->chunk_pixels);
    char *own = job->run->own[thread], *packed = own + lines_bytes(state);
    char *tiles = packed + padded(row_bytes(panels, CHUNK_PIXELS), 64);
    const PackedRows rows = rows_in(panels, packed, 0, count);
    const uint8_t *image = job->x + number * state->x_batch + group * state->in;
    pack_windows(job, image, first, count, (uint8_t *)own, rows);
    const int64_t last = least((part + 1) * state->chunk_panels, panels->panels);
    for (int64_t panel = part * state->chunk_panels; panel < last; panel++)
        panel_of_pixels(job, number, group, panel, first, count, rows, tiles);
}

static Failure run_conv(const void *argument, const Run *run) {
    const State *state = argument;
    Job job = {.state = state, .run = run, .weights = state->packed, .x = state->x};
    if (state->copy_bytes) {
        job.x = job.copy = (uint8_t *)run->shared;
        share_chunks(run, state->batch * state->size[0] * state->size[1], copy_chunk, &job);
    }
    if (!state->packed) {
        job.weights = job.unpacked = (int8_t *)run->shared + state->copy_bytes;
        share_chunks(run, state->groups * state->panels.panels, weights_chunk, &job);
    }
    const int64_t blocks = state->pixel_chunks * state->panel_chunks;
    share_chunks(run, state->batch * state->groups * blocks, pixels_chunk, &job);
    return OK;
}

const Kernel ISA(BYTE_CONVOLUTIONS)[] = {
    {"Conv_i8", prepare, run_conv, release},
    {NULL, NULL, NULL, NULL},
};
