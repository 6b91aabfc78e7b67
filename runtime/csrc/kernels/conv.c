#include "conv.h"

#include <string.h>

static bool is_plain(const Tensor *tensor, int from) {
    int64_t expected = sizeof(float);
    for (int axis = tensor->rank - 1; axis >= from; axis--) {
        if (tensor->dims[axis] != 1 && tensor->strides[axis] != expected) return false;
        expected *= tensor->dims[axis];
    }
    return true;
}

// Axes that are nothing but 1 are left out, wherever they are, so that the last one is long.
static void read_axes(Conv *conv, const Tensor *x, const Tensor *w, const Tensor *y, Params *params) {
    for (int axis = 0; axis < AXES; axis++) {
        conv->size[axis] = conv->taps[axis] = conv->result[axis] = 1;
        conv->stride[axis] = conv->dilation[axis] = 1;
        conv->before[axis] = conv->x_axis[axis] = 0;
    }
    int first = AXES;  // of those read so far
    for (int axis = 2; axis < x->rank; axis++) {
        const int64_t stride = next_int(params), dilation = next_int(params), before = next_int(params);
        if (x->dims[axis] == 1 && w->dims[axis] == 1 && y->dims[axis] == 1 && before == 0) continue;
        first--;
        int64_t *rows[] = {conv->size, conv->taps, conv->result, conv->stride, conv->dilation,
                           conv->before, conv->x_axis};
        const int64_t values[] = {x->dims[axis], w->dims[axis], y->dims[axis], stride, dilation, before,
                                  x->strides[axis] / (int64_t)sizeof(float)};
        for (int i = 0; i < 7; i++) {
            memmove(rows[i] + first, rows[i] + first + 1, (size_t)(AXES - 1 - first) * sizeof(int64_t));
            rows[i][AXES - 1] = values[i];
        }
    }
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

bool ISA(read_conv)(Conv *conv, Params *params) {
    Tensor x = next_tensor(params), w = next_tensor(params), y = next_tensor(params);
    Tensor bias = next_tensor(params), residual = next_tensor(params);
    conv->groups = next_int(params);
    if (params->bad || x.rank < 3 || x.rank > 2 + AXES || w.rank != x.rank || y.rank != x.rank)
        return false;
    read_axes(conv, &x, &w, &y, params);
    ISA(next_activation)(params, &conv->epilogue);
    conv->batch = x.dims[0];
    conv->in = x.dims[1] / conv->groups;
    conv->out = w.dims[0] / conv->groups;
    conv->x = (const float *)x.data;
    conv->w = (const float *)w.data;
    conv->y = (float *)y.data;
    conv->x_batch = x.strides[0] / (int64_t)sizeof(float);
    conv->x_channel = x.strides[1] / (int64_t)sizeof(float);
    conv->epilogue.row_bias = (const float *)bias.data;
    conv->epilogue.residual = (const float *)residual.data;
    conv->epilogue.residual_row = conv->pixels;
    conv->constant = w.constant;
    conv->plain = is_plain(&x, 2);
    return is_plain(&w, 0) && is_plain(&y, 0) &&
           (!residual.data || is_plain(&residual, 0)) && element_count(&y) > 0 && conv->in > 0;
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

// One line of the input, in the phases of the last axis; `line` is where phase 0 of it begins, and
// `step` the distance between phases.
static void lay_out_line(const Conv *conv, const float *from, float *line, int64_t step) {
    const int64_t stride = conv->stride[2], count = conv->phase[2], before = conv->before[2];
    const int64_t size = conv->size[2];
    for (int64_t phase = 0; phase < stride; phase++, line += step) {
        // Element i of the phase is element i * stride + phase - before of the input.
        int64_t first = before > phase ? ceil_div(before - phase, stride) : 0;
        int64_t end = size + before > phase ? ceil_div(size + before - phase, stride) : 0;
        if (first > count) first = count;
        if (end > count) end = count;
        if (end < first) end = first;
        for (int64_t i = 0; i < first; i++) line[i] = conv->outside;
        const int64_t distance = conv->x_axis[2], hop = stride * distance;
        const float *source = from + (first * stride + phase - before) * distance;
        if (hop == 1) {
            copy_floats(line + first, source, end - first);
        } else if (hop == 2) {  // a constant, so that it becomes vector code
            for (int64_t i = 0; i < end - first; i++) line[first + i] = source[2 * i];
        } else {
            for (int64_t i = 0; i < end - first; i++) line[first + i] = source[i * hop];
        }
        for (int64_t i = end; i < count; i++) line[i] = conv->outside;
    }
}

void ISA(lay_out_channel)(const Conv *conv, const float *channel, float *plane) {
    const int64_t size = conv->phase[0] * conv->phase[1] * conv->phase[2];
    for (int64_t i = 0; i < conv->phase[0] * conv->stride[0]; i++) {
        const int64_t d = i - conv->before[0];
        for (int64_t j = 0; j < conv->phase[1] * conv->stride[1]; j++) {
            const int64_t h = j - conv->before[1];
            const int64_t phase = i % conv->stride[0] * conv->stride[1] + j % conv->stride[1];
            const int64_t row = i / conv->stride[0] * conv->phase[1] + j / conv->stride[1];
            float *line = plane + phase * conv->stride[2] * size + row * conv->phase[2];
            if (d < 0 || d >= conv->size[0] || h < 0 || h >= conv->size[1]) {
                for (int64_t k = 0; k < conv->stride[2]; k++)
                    for (int64_t m = 0; m < conv->phase[2]; m++)
                        line[k * size + m] = conv->outside;
            } else {
                const float *from = channel + d * conv->x_axis[0] + h * conv->x_axis[1];
                lay_out_line(conv, from, line, size);
            }
        }
    }
}
