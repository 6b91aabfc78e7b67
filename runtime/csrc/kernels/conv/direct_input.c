#include <stdlib.h>

#include "direct.h"
#include "../support/squares.h"

enum {
    FEW_CHANNELS = 8,  // more of them are worth a run of their own
    SLAB_FLOATS = 1 << 13,  // the first cache
    FEW_LINES = 16,  // that threads do not share evenly; then they share these:
    COPIED_CHANNELS = 64,
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
    join_lines(conv);
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

static int64_t lines_of(const Conv *conv, const Input *input) {
    return conv->batch * input->source.size[0] * input->source.size[1];
}

// Parts of a line that are copied by themselves: where few lines are long, threads share them.
static int64_t parts_of_line(const Conv *conv, const Input *input) {
    const bool few = lines_of(conv, input) < FEW_LINES;
    return few ? ceil_div(conv->groups * conv->in, COPIED_CHANNELS) : 1;
}

int64_t ISA(input_parts)(const Conv *conv, const Input *input) {
    return lines_of(conv, input) * parts_of_line(conv, input);
}

// `count` of the channels of so many pixels are outside.
static void clear_pixels(float *to, int64_t pixels, int64_t channels, int64_t count) {
    if (count == channels) {
        memset(to, 0, (size_t)(pixels * channels) * sizeof(float));
        return;
    }
    for (int64_t i = 0; i < pixels; i++)
        memset(to + i * channels, 0, (size_t)count * sizeof(float));
}

// Channels first .. first + count - 1 of a line, all of whose channels `to` has room for.
static void copy_channels(
    const Conv *conv, const Input *input, int64_t number, int64_t first, int64_t count, float *to) {
    const Source *source = &input->source;
    const int64_t channels = conv->groups * conv->in, width = source->size[2];
    const int64_t h = number % source->size[1], rest = number / source->size[1];
    const int64_t row = h - conv->before[1], slice = rest % source->size[0] - conv->before[0];
    const int64_t image = rest / source->size[0];
    to += first;
    if (row < 0 || row >= conv->size[1] || slice < 0 || slice >= conv->size[0]) {
        clear_pixels(to, width, channels, count);
        return;
    }
    const float *from = conv->x + image * conv->x_batch + slice * conv->x_axis[0] +
                        row * conv->x_axis[1] + first * conv->x_channel;
    const int64_t shift = conv->before[2];
    const int64_t begin = between(shift, 0, width),
                  end = between(conv->size[2] + shift, begin, width);
    clear_pixels(to, begin, channels, count);
    clear_pixels(to + end * channels, width - end, channels, count);
    to += begin * channels;
    from += (begin - shift) * conv->x_axis[2];
    if (channels == 3 && conv->x_axis[2] == 1) {
        weave(to, from, from + conv->x_channel, from + 2 * conv->x_channel, end - begin);
        return;
    }
    if (conv->x_axis[2] == 1) {
        turn(from, conv->x_channel, to, channels, count, end - begin);
        return;
    }
    for (int64_t c = 0; c < count; c++)
        for (int64_t i = 0; i < end - begin; i++)
            to[i * channels + c] = from[c * conv->x_channel + i * conv->x_axis[2]];
}

void ISA(copy_part)(const Conv *conv, const Input *input, int64_t number, float *copy) {
    const int64_t parts = parts_of_line(conv, input), channels = conv->groups * conv->in;
    const int64_t line = number / parts, part = number % parts;
    const int64_t first = parts == 1 ? 0 : part * COPIED_CHANNELS;
    const int64_t count = parts == 1 ? channels : lesser(channels - first, COPIED_CHANNELS);
    copy_channels(conv, input, line, first, count, copy + line * line_floats(input));
}

const float *ISA(copy_slab)(
    const Conv *conv, const Input *input, int64_t image, int64_t first, int64_t end, float *slab) {
    const int64_t width = conv->result[2], line = first / width * conv->stride[1];
    const int64_t lines = lines_under(conv, (end - first) / width), reach = lines_under(conv, 1);
    const int64_t number = image * input->source.size[1] + line;
    for (int64_t i = 0; i < lines; i++)
        if (i % conv->stride[1] < reach)  // windows skip others
            copy_channels(
                conv, input, number + i, 0, conv->groups * conv->in, slab + i * line_floats(input));
    return slab - line * line_floats(input);
}
