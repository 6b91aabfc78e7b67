#include "conv.h"
#include "../support/fits.h"

#include <string.h>

static bool is_plain(const Tensor *tensor, int from) {
    int64_t expected = sizeof(float);
    for (int axis = tensor->rank - 1; axis >= from; axis--) {
        if (tensor->dims[axis] != 1 && tensor->strides[axis] != expected) return false;
        expected *= tensor->dims[axis];
    }
    return true;
}

static void find_sizes(Conv *conv) {
    conv->pixels = conv->window = conv->plane = 1;
    for (int axis = 0; axis < AXES; axis++) {
        // As far as the last window of the last output reads.
        const int64_t reach = (conv->result[axis] - 1) * conv->stride[axis] +
                              (conv->taps[axis] - 1) * conv->dilation[axis] + 1;
        conv->phase[axis] = ceil_div(reach, conv->stride[axis]);
        conv->pixels *= conv->result[axis];
        conv->window *= conv->taps[axis];
        conv->plane *= conv->phase[axis] * conv->stride[axis];
    }
}

static void clear_axes(Conv *conv) {
    for (int axis = 0; axis < AXES; axis++) {
        conv->size[axis] = conv->taps[axis] = conv->result[axis] = 1;
        conv->stride[axis] = conv->dilation[axis] = 1;
        conv->before[axis] = conv->x_axis[axis] = conv->w_axis[axis] = conv->y_axis[axis] = 0;
        conv->residual_axis[axis] = 0;
    }
}

// Axes that are nothing but 1 are left out, wherever they are, so that the last one is long.
static bool read_axes(
    Conv *conv, const Tensor *x, const Tensor *w, const Tensor *y, const Tensor *residual,
    Params *params) {
    const int64_t unit = sizeof(float);
    clear_axes(conv);
    int first = AXES;  // of those read so far
    int64_t plane = 1;
    for (int axis = 2; axis < x->rank; axis++) {
        const int64_t stride = next_int(params), dilation = next_int(params),
                      before = next_int(params);
        if (!window_fits(stride, dilation, before, w->dims[axis], y->dims[axis], &plane))
            return false;
        if (x->dims[axis] == 1 && w->dims[axis] == 1 && y->dims[axis] == 1 && before == 0) continue;
        first--;
        int64_t *rows[] = {conv->size,     conv->taps,         conv->result, conv->stride,
                           conv->dilation, conv->before,       conv->x_axis, conv->w_axis,
                           conv->y_axis,   conv->residual_axis};
        const int64_t values[] = {
            x->dims[axis],
            w->dims[axis],
            y->dims[axis],
            stride,
            dilation,
            before,
            x->strides[axis] / unit,
            w->strides[axis] / unit,
            y->strides[axis] / unit,
            residual->data ? residual->strides[axis] / unit : 0};
        for (int i = 0; i < 10; i++) {
            memmove(
                rows[i] + first, rows[i] + first + 1, (size_t)(AXES - 1 - first) * sizeof(int64_t));
            rows[i][AXES - 1] = values[i];
        }
    }
    find_sizes(conv);
    return true;
}

static bool read_operands(Conv *conv, Params *params, bool *plain) {
    const int64_t unit = sizeof(float);
    Tensor x = next_tensor(params), w = next_tensor(params), y = next_tensor(params);
    Tensor bias = maybe_tensor(params), residual = maybe_tensor(params);
    conv->groups = next_int(params);
    if (params->bad || x.rank < 3 || x.rank > 2 + AXES || x.dtype != F32 || w.dtype != F32 ||
        y.dtype != F32 || !channels_fit(&x, &w, &y, &residual, conv->groups) ||
        !may_hold(&bias, F32, w.dims[0]) || !read_axes(conv, &x, &w, &y, &residual, params))
        return false;
    ISA(next_activation)(params, &conv->epilogue);
    conv->batch = x.dims[0];
    conv->in = x.dims[1] / conv->groups;
    conv->out = w.dims[0] / conv->groups;
    conv->x = (const float *)x.data;
    conv->w = (const float *)w.data;
    conv->y = (float *)y.data;
    conv->x_batch = x.strides[0] / unit;
    conv->x_channel = x.strides[1] / unit;
    conv->w_out = w.strides[0] / unit;
    conv->w_in = w.strides[1] / unit;
    conv->w_plain = is_plain(&w, 0);
    conv->y_batch = y.strides[0] / unit;
    conv->y_channel = y.strides[1] / unit;
    conv->residual_batch = residual.data ? residual.strides[0] / unit : 0;
    conv->residual_channel = residual.data ? residual.strides[1] / unit : 0;
    conv->epilogue.row_bias = (const float *)bias.data;
    conv->epilogue.residual = (const float *)residual.data;
    conv->epilogue.residual_row = conv->pixels;
    conv->constant = w.constant;
    conv->packed = w.packed;
    conv->plain = is_plain(&x, 2);
    conv->contiguous = is_plain(&x, 0);
    *plain = is_plain(&y, 0) && (!residual.data || is_plain(&residual, 0));
    return !params->bad && (conv->w_plain || !conv->packed);
}

bool ISA(read_turned_conv)(Conv *conv, Params *params) {
    bool plain;
    return read_operands(conv, params, &plain);
}

bool ISA(read_strided_conv)(Conv *conv, Params *params) {
    return ISA(read_turned_conv)(conv, params) && conv->w_plain;
}

bool ISA(read_conv)(Conv *conv, Params *params) {
    bool plain;
    return read_operands(conv, params, &plain) && plain && conv->w_plain && !conv->packed;
}

int64_t ISA(tap_offset)(const Conv *conv, int64_t tap) {
    int64_t index[AXES], phase = 0, place = 0;
    for (int axis = AXES - 1; axis >= 0; axis--) {
        index[axis] = tap % conv->taps[axis] * conv->dilation[axis];
        tap /= conv->taps[axis];
    }
    int64_t size = 1;
    for (int axis = 0; axis < AXES; axis++) {
        phase = phase * conv->stride[axis] + index[axis] % conv->stride[axis];
        place = place * conv->phase[axis] + index[axis] / conv->stride[axis];
        size *= conv->phase[axis];
    }
    return phase * size + place;
}

// Every other element.
static void copy_every_other(float *to, const float *from, int64_t count) {
    // Vectors read one element beyond what they need, so the last element is left for the end.
    const int64_t most = count - 1;
    int64_t i = 0;
    for (; i + LANES <= most; i += LANES)
        store(to + i, even_of(load(from + 2 * i), load(from + 2 * i + LANES)));
    if (i > 0 && i < most) {  // once more, over some of those that are there already
        i = most - LANES;
        store(to + i, even_of(load(from + 2 * i), load(from + 2 * i + LANES)));
        i = most;
    }
    for (; i < count; i++) to[i] = from[2 * i];
}

// How lines of the input become lines of one phase of the last axis.
typedef struct {
    int64_t first, end, count;  // elements first .. end - 1 are there, the others outside
    int64_t source;  // from the start of a line of the input to the first element
    int64_t hop;
    float outside;
} Line;

static Line line_of(const Conv *conv, int64_t phase) {
    const int64_t stride = conv->stride[2], count = conv->phase[2], before = conv->before[2];
    const int64_t size = conv->size[2];
    // Element i of the phase is element i * stride + phase - before of the input.
    int64_t first = before > phase ? ceil_div(before - phase, stride) : 0;
    int64_t end = size + before > phase ? ceil_div(size + before - phase, stride) : 0;
    if (first > count) first = count;
    if (end > count) end = count;
    if (end < first) end = first;
    const int64_t distance = conv->x_axis[2];
    const int64_t source = (first * stride + phase - before) * distance;
    return (Line){first, end, count, source, stride * distance, conv->outside};
}

static void fill_line(float *line, int64_t begin, int64_t end, float value) {
    for (int64_t i = begin; i < end; i++) line[i] = value;
}

static void lay_out_line(const Line *how, const float *from, float *line) {
    const int64_t count = how->count, first = how->first, after = count - how->end;
    if (count >= LANES && first <= LANES && after <= LANES) {
        store(line, all_of(how->outside));
        store(line + count - LANES, all_of(how->outside));
    } else {
        fill_line(line, 0, first, how->outside);
        fill_line(line, how->end, count, how->outside);
    }
    const float *source = from + how->source;
    const int64_t length = how->end - first;
    if (how->hop == 1) {
        copy_floats(line + first, source, length);
    } else if (how->hop == 2) {
        copy_every_other(line + first, source, length);
    } else {
        for (int64_t i = 0; i < length; i++) line[first + i] = source[i * how->hop];
    }
}

// Lines of a slice of the input that belong to one phase of the axis before the last one.
static void lay_out_lines(
    const Conv *conv, const Line *how, const float *slice, int64_t phase, float *to) {
    for (int64_t row = 0; row < conv->phase[1]; row++, to += conv->phase[2]) {
        const int64_t h = row * conv->stride[1] + phase - conv->before[1];
        if (!slice || h < 0 || h >= conv->size[1])
            fill_line(to, 0, conv->phase[2], conv->outside);
        else
            lay_out_line(how, slice + h * conv->x_axis[1], to);
    }
}

void ISA(lay_out_channel)(const Conv *conv, const float *channel, float *plane) {
    const int64_t lines = conv->phase[1] * conv->phase[2], size = conv->phase[0] * lines;
    for (int64_t last = 0; last < conv->stride[2]; last++) {
        const Line how = line_of(conv, last);
        for (int64_t first = 0; first < conv->stride[0]; first++)
            for (int64_t middle = 0; middle < conv->stride[1]; middle++) {
                const int64_t phase = (first * conv->stride[1] + middle) * conv->stride[2] + last;
                for (int64_t i = 0; i < conv->phase[0]; i++) {
                    const int64_t d = i * conv->stride[0] + first - conv->before[0];
                    const bool outside = d < 0 || d >= conv->size[0];
                    lay_out_lines(
                        conv, &how, outside ? NULL : channel + d * conv->x_axis[0], middle,
                        plane + phase * size + i * lines);
                }
            }
    }
}

typedef struct {
    const Conv *conv;
    float *planes;
} Layout;

static void lay_out(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Layout *layout = context;
    const Conv *conv = layout->conv;
    const int64_t channels = conv->groups * conv->in;
    const float *channel = conv->x + chunk / channels * conv->x_batch +
                           chunk % channels * conv->x_channel;
    ISA(lay_out_channel)(conv, channel, layout->planes + chunk * conv->plane);
}

void ISA(lay_out_input)(const Conv *conv, const Run *run, float *planes) {
    Layout layout = {conv, planes};
    share_chunks(run, conv->batch * conv->groups * conv->in, lay_out, &layout);
}
