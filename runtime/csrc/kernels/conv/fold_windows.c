// The sums of windows that overlap: a transposed convolution from products of each pixel with all
// taps, [N][pixels][M][taps].
#include "fold.h"

static bool read_axes(Fold *fold, Params *params) {
    int64_t plane = 1;
    bool fits = true;
    for (int axis = 0; axis < PLANE_AXES; axis++) {
        fold->stride[axis] = next_int(params);
        fold->dilation[axis] = next_int(params);
        fold->before[axis] = next_int(params);
        fits = fits && window_fits(
                           fold->stride[axis], fold->dilation[axis], fold->before[axis],
                           fold->taps[axis], fold->pixels[axis], &plane);
    }
    return fits;
}

static bool operands_fit(
    const Tensor *products, const Tensor *out, const Tensor *bias, const int axes[4]) {
    return products->rank == 6 && out->rank == 4 && products->dims[axes[0]] == out->dims[0] &&
           products->dims[axes[1]] == out->dims[1] &&
           holds(products, F32, element_count(products)) && element_count(products) > 0 &&
           holds(out, F32, element_count(out)) && element_count(out) > 0 &&
           may_hold(bias, F32, out->dims[1]);
}

bool ISA(read_fold)(Fold *fold, Params *params, const int axes[4]) {
    const Tensor products = next_tensor(params), out = next_tensor(params);
    const Tensor bias = maybe_tensor(params);
    if (params->bad || !operands_fit(&products, &out, &bias, axes)) return false;
    fold->products = (const float *)products.data;
    fold->out = (float *)out.data;
    fold->bias = (const float *)bias.data;
    fold->batch = out.dims[0];
    fold->channels = out.dims[1];
    for (int axis = 0; axis < PLANE_AXES; axis++) {
        fold->pixels[axis] = products.dims[axes[2] + axis];
        fold->taps[axis] = products.dims[axes[3] + axis];
        fold->size[axis] = out.dims[2 + axis];
    }
    fold->window = fold->taps[0] * fold->taps[1];
    const bool fits = read_axes(fold, params);
    ISA(next_activation)(params, &fold->epilogue);
    return fits && !params->bad;
}

typedef struct {
    Fold fold;
    int64_t apart;  // pixels of a line whose windows do not overlap
    int64_t inside, end;  // those of a line whose windows lie inside of the result
} Windows;

// Windows of pixel p begin at p * stride - before.
static void find_inside(Windows *windows) {
    const Fold *fold = &windows->fold;
    const int64_t step = fold->stride[1], before = fold->before[1];
    const int64_t last = fold->size[1] - fold->taps[1] + before;
    windows->apart = ceil_div(fold->taps[1], step);
    windows->inside = before > 0 ? lesser(ceil_div(before, step), fold->pixels[1]) : 0;
    windows->end = last < 0 ? 0 : lesser(last / step + 1, fold->pixels[1]);
}

static void *prepare_windows(Params *params, Needs *needs) {
    (void)needs;
    Windows *windows = calloc(1, sizeof(Windows));
    if (!windows) return NULL;
    static const int axes[] = {0, 3, 1, 4};
    if (!ISA(read_fold)(&windows->fold, params, axes) || windows->fold.dilation[1] != 1) {
        free(windows);
        return NULL;
    }
    find_inside(windows);
    return windows;
}

// Pixels that are `apart`: a processor waits for what it has just written if it reads a part of it.
INLINE void add_pixels(
    const Windows *windows, const float *from, float *line, int64_t first, const int64_t taps) {
    const Fold *fold = &windows->fold;
    const int64_t distance = fold->channels * fold->window, step = windows->apart;
    const int64_t moved = step * fold->stride[1];
    float *to = line + first * fold->stride[1] - fold->before[1];
    from += first * distance;
    for (int64_t p = first; p < windows->end; p += step, to += moved, from += step * distance)
        add_run(to, from, taps);
}

static void add_inside(const Windows *windows, const float *from, float *line, int64_t first) {
    switch (windows->fold.taps[1]) {
        case 2: add_pixels(windows, from, line, first, 2); break;
        case 3: add_pixels(windows, from, line, first, 3); break;
        case 4: add_pixels(windows, from, line, first, 4); break;
        case 5: add_pixels(windows, from, line, first, 5); break;
        default: add_pixels(windows, from, line, first, windows->fold.taps[1]);
    }
}

// Windows that jut out.
static void add_outside(
    const Fold *fold, const float *from, float *line, int64_t first, int64_t end) {
    for (int64_t p = first; p < end; p++) {
        const int64_t begin = p * fold->stride[1] - fold->before[1], rest = fold->size[1] - begin;
        const float *window = from + p * fold->channels * fold->window;
        for (int64_t t = begin < 0 ? -begin : 0; t < fold->taps[1] && t < rest; t++)
            line[begin + t] += window[t];
    }
}

static void add_line(const Windows *windows, const float *from, float *line) {
    const Fold *fold = &windows->fold;
    const int64_t inside = windows->inside, end = windows->end > inside ? windows->end : inside;
    add_outside(fold, from, line, 0, inside);
    for (int64_t i = 0; i < windows->apart; i++) add_inside(windows, from, line, inside + i);
    add_outside(fold, from, line, end, fold->pixels[1]);
}

static void fold_plane(const Windows *windows, int64_t plane) {
    const Fold *fold = &windows->fold;
    const int64_t image = plane / fold->channels, channel = plane % fold->channels;
    const int64_t width = fold->size[1], floats = fold->size[0] * width;
    const int64_t line = fold->pixels[1] * fold->channels * fold->window;
    const float *products = fold->products + image * fold->pixels[0] * line +
                            channel * fold->window;
    float *out = fold->out + plane * floats;
    const float bias = fold->bias ? fold->bias[channel] : 0;
    for (int64_t i = 0; i < floats; i++) out[i] = bias;
    for (int64_t row = 0; row < fold->pixels[0]; row++, products += line)
        for (int64_t tap = 0; tap < fold->taps[0]; tap++) {
            const int64_t to = row * fold->stride[0] + tap * fold->dilation[0] - fold->before[0];
            if (to >= 0 && to < fold->size[0])
                add_line(windows, products + tap * fold->taps[1], out + to * width);
        }
    const Place place = {out, floats, 0, 0};
    ISA(finish)(&fold->epilogue, place, 1, floats);
}

static void some_planes(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Windows *windows = context;
    const Fold *fold = &windows->fold;
    const int64_t unit = planes_of_chunk(fold), end = (chunk + 1) * unit;
    for (int64_t plane = chunk * unit; plane < end && plane < fold->batch * fold->channels; plane++)
        fold_plane(windows, plane);
}

static Failure run_windows(const void *state, const Run *run) {
    Windows windows = *(const Windows *)state;
    share_chunks(run, chunks_of(&windows.fold), some_planes, &windows);
    return OK;
}

const Kernel ISA(FOLDED_WINDOWS)[] = {
    {"FoldWindows_f32", prepare_windows, run_windows, NULL},
    {NULL, NULL, NULL, NULL},
};
