#include <stdlib.h>

#include "direct.h"

enum {
    FEW_CHANNELS = 8,  // more of them are worth a run of their own
    SLAB_FLOATS = 1 << 13,  // the first cache
};

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
        if (conv->stride[axis] != 1 || conv->before[axis] != 0 ||
            conv->size[axis] != conv->result[axis])
            return;
    for (int axis = AXES - 2; axis >= 0; axis--) {
        if (!append_lines(
                conv, conv->size[axis], conv->x_axis[axis], conv->y_axis[axis],
                conv->residual_axis[axis]))
            return;
        conv->size[axis] = conv->result[axis] = 1;
    }
    if (!append_lines(conv, conv->batch, conv->x_batch, conv->y_batch, conv->residual_batch))
        return;
    conv->pixels *= conv->batch;
    conv->batch = 1;
}

// The input is copied if channels do not lie side by side, or if so few do that joining the taps of
// a line is worth it.
static void plan_copy(const Conv *conv, Input *input) {
    Source *source = &input->source;
    int64_t step = conv->groups * conv->in;
    for (int axis = AXES - 1; axis >= 0; axis--) {
        source->size[axis] = (conv->result[axis] - 1) * conv->stride[axis] +
                             (conv->taps[axis] - 1) * conv->dilation[axis] + 1;
        source->before[axis] = 0;
        source->axis[axis] = step;
        step *= source->size[axis];
    }
    source->batch = step;
    input->copy_floats = padded(step * conv->batch, 16);
}

// How many lines of results have a slab that stays in the first cache; a copy of the whole image comes
// from the second one.  0: not even one.
static int64_t slab_lines(const Conv *conv, const Input *input) {
    const bool plane = input->source.size[0] == 1 && conv->result[1] > 1;
    const int64_t lines = SLAB_FLOATS / line_floats(input) - lines_under(conv, 1);
    return plane && lines >= 0 ? lines / conv->stride[1] + 1 : 0;
}

static void find_taps(const Conv *conv, Input *input) {
    const Source *source = &input->source;
    int64_t tap[AXES] = {0};
    for (int64_t t = 0; t < input->window; t++) {
        input->distances[t] = 0;
        for (int axis = 0; axis < AXES; axis++) {
            input->taps[t][axis] = tap[axis];
            input->distances[t] += tap[axis] * conv->dilation[axis] * source->axis[axis];
        }
        next_tap(source, tap);
    }
}

bool ISA(plan_input)(Conv *conv, Input *input, Needs *needs) {
    images_lie_anywhere(needs, conv);
    const bool aside = conv->x_channel == 1 || conv->groups * conv->in == 1;
    const bool joins = conv->groups == 1 && conv->dilation[2] == 1;
    input->copied = !aside || (joins && conv->in < FEW_CHANNELS && conv->taps[2] > 1);
    if (!input->copied) join_lines(conv);
    input->source = source_of(conv);
    input->run = conv->in;
    input->window = conv->window;
    if (input->copied) plan_copy(conv, input);
    if (input->copied && joins) {
        input->slab = conv->in < FEW_CHANNELS ? slab_lines(conv, input) : 0;
        if (input->slab) input->copy_floats = 0;
        input->run *= conv->taps[2];
        input->window /= conv->taps[2];
        input->source.taps[2] = 1;
    }
    const bool follow = conv->dilation[2] == 1 && input->source.axis[2] == input->run;
    input->joined = follow ? input->source.taps[2] : 1;
    input->outside = calloc((size_t)input->run, sizeof(float));
    input->distances = malloc((size_t)input->window * sizeof(int64_t));
    input->taps = malloc((size_t)input->window * sizeof(*input->taps));
    if (!input->outside || !input->distances || !input->taps) return false;
    input->source.outside = input->outside;
    find_taps(conv, input);
    return true;
}

void ISA(release_input)(Input *input) {
    free(input->outside);
    free(input->distances);
    free(input->taps);
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

static int64_t between(int64_t place, int64_t low, int64_t high) {
    return place < low ? low : place > high ? high : place;
}

int64_t ISA(input_lines)(const Conv *conv, const Input *input) {
    return conv->batch * input->source.size[0] * input->source.size[1];
}

void ISA(copy_line)(const Conv *conv, const Input *input, int64_t number, float *to) {
    const Source *source = &input->source;
    const int64_t channels = conv->groups * conv->in, width = source->size[2];
    const int64_t h = number % source->size[1], rest = number / source->size[1];
    const int64_t row = h - conv->before[1], slice = rest % source->size[0] - conv->before[0];
    const int64_t image = rest / source->size[0];
    if (row < 0 || row >= conv->size[1] || slice < 0 || slice >= conv->size[0]) {
        memset(to, 0, (size_t)(width * channels) * sizeof(float));
        return;
    }
    const float *from = conv->x + image * conv->x_batch + slice * conv->x_axis[0] +
                        row * conv->x_axis[1];
    const int64_t shift = conv->before[2];
    const int64_t first = between(shift, 0, width),
                  end = between(conv->size[2] + shift, first, width);
    memset(to, 0, (size_t)(first * channels) * sizeof(float));
    memset(to + end * channels, 0, (size_t)((width - end) * channels) * sizeof(float));
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

const float *ISA(copy_slab)(
    const Conv *conv, const Input *input, int64_t image, int64_t first, int64_t end, float *slab) {
    const int64_t width = conv->result[2], line = first / width * conv->stride[1];
    const int64_t lines = lines_under(conv, (end - first) / width), reach = lines_under(conv, 1);
    const int64_t number = image * input->source.size[1] + line;
    for (int64_t i = 0; i < lines; i++)
        if (i % conv->stride[1] < reach)  // windows skip others
            ISA(copy_line)(conv, input, number + i, slab + i * line_floats(input));
    return slab - line * line_floats(input);
}
