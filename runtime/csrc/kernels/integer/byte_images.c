// Images of bytes that lie plane by plane, or pixel by pixel.
#include "byte_images.h"
#include "../support/fits.h"
#include "../support/squares.h"

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
static bool read_axes(
    ByteConv *conv, Params *params, const Tensor *x, const Tensor *w, const Tensor *y) {
    int64_t plane = 1;
    for (int axis = 0; axis < AXES; axis++) {
        const int own = axis - AXES + x->rank;
        const bool there = own >= 2;
        conv->size[axis] = there ? x->dims[own] : 1;
        conv->x_axis[axis] = there ? x->strides[own] : 0;
        conv->taps[axis] = there ? w->dims[own] : 1;
        conv->result[axis] = there ? y->dims[own] : 1;
        conv->stride[axis] = there ? next_int(params) : 1;
        conv->dilation[axis] = there ? next_int(params) : 1;
        conv->before[axis] = there ? next_int(params) : 0;
        if (!window_fits(
                conv->stride[axis], conv->dilation[axis], conv->before[axis], conv->taps[axis],
                conv->result[axis], &plane)) {
            return false;
        }
        conv->window *= conv->taps[axis];
        conv->pixels *= conv->result[axis];
    }
    return true;
}

void ISA(plan_byte_copy)(ByteConv *conv) {
    const int64_t channels = conv->groups * conv->in;
    if (conv->x_channel == 1) return;
    conv->from_batch = conv->x_batch;
    conv->from_channel = conv->x_channel;
    conv->x_channel = 1;
    int64_t step = channels;
    for (int axis = AXES - 1; axis >= 0; axis--) {
        conv->from_axis[axis] = conv->x_axis[axis];
        conv->from_size[axis] = conv->size[axis];
        conv->from_before[axis] = conv->before[axis];
        conv->size[axis] = (conv->result[axis] - 1) * conv->stride[axis] +
                           (conv->taps[axis] - 1) * conv->dilation[axis] + 1;
        conv->before[axis] = 0;
        conv->x_axis[axis] = step;
        step *= conv->size[axis];
    }
    conv->x_batch = step;
    conv->copy_bytes = padded(step * conv->batch, 64);
}

bool ISA(read_byte_conv)(ByteConv *conv, Params *params) {
    const Tensor x = next_tensor(params), w = next_tensor(params), y = next_tensor(params);
    const Tensor residual = maybe_tensor(params);
    conv->groups = next_int(params);
    if (params->bad || x.rank < 3 || x.rank > 2 + AXES) return false;
    if (!channels_fit(&x, &w, &y, &residual, conv->groups)) return false;
    if (!is_contiguous(&w) || !read_image(&y, &conv->out)) return false;
    if (residual.data && !read_image(&residual, &conv->residual)) return false;
    conv->batch = x.dims[0];
    conv->in = w.dims[1];
    conv->window = conv->pixels = 1;
    if (!read_axes(conv, params, &x, &w, &y)) return false;
    conv->x = (const uint8_t *)x.data;
    conv->x_batch = x.strides[0];
    conv->x_channel = x.dims[1] == 1 ? 1 : x.strides[1];
    conv->w = (const uint8_t *)w.data;
    conv->constant = w.constant;
    conv->panels.n = w.dims[0] / conv->groups;
    conv->panels.k = conv->in * conv->window;
    return ISA(read_panels)(&conv->panels, params, &x, &w, y.dtype, 1, w.dims[0]);
}

// Pixels of so many channels, which lie plane by plane before, one behind the other.
INLINE void weave(
    const uint8_t *from, int64_t plane, int64_t pixel, int64_t count, uint8_t *restrict to,
    const int64_t channels) {
    for (int64_t i = 0; i < count; i++)
        for (int64_t c = 0; c < channels; c++) to[i * channels + c] = from[c * plane + i * pixel];
}

// The usual numbers of channels of a first image are constants.
static void weave_pixels(const ByteConv *conv, const uint8_t *from, int64_t count, uint8_t *to) {
    const int64_t channels = conv->groups * conv->in, plane = conv->from_channel;
    const int64_t pixel = conv->from_axis[2];
    if (pixel == 1 && channels == 1)
        memcpy(to, from, (size_t)count);
    else if (pixel == 1 && channels == 3)
        weave(from, plane, 1, count, to, 3);
    else if (pixel == 1 && channels == 4)
        weave(from, plane, 1, count, to, 4);
    else if (pixel == 1)
        turn_bytes(from, plane, to, channels, channels, count);
    else
        weave(from, plane, pixel, count, to, channels);
}

void ISA(copy_byte_line)(const ByteConv *conv, uint8_t *copy, int64_t line) {
    const int64_t channels = conv->groups * conv->in, rest = line / conv->size[1];
    const int64_t depth = rest % conv->size[0] - conv->from_before[0];
    const int64_t row = line % conv->size[1] - conv->from_before[1];
    uint8_t *to = copy + line * conv->x_axis[1];
    const uint8_t *from = conv->x + rest / conv->size[0] * conv->from_batch +
                          depth * conv->from_axis[0] + row * conv->from_axis[1];
    int64_t first = conv->from_before[2], last = first + conv->from_size[2];
    if (first < 0) first = 0;
    if (last > conv->size[2]) last = conv->size[2];
    const bool there = depth >= 0 && depth < conv->from_size[0] && row >= 0 &&
                       row < conv->from_size[1] && first < last;
    if (!there) first = last = 0;
    const uint8_t outside = outside_of(conv);
    memset(to, outside, (size_t)(first * channels));
    memset(to + last * channels, outside, (size_t)((conv->size[2] - last) * channels));
    from += (first - conv->from_before[2]) * conv->from_axis[2];
    weave_pixels(conv, from, last - first, to + first * channels);
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
    if (size == 4 && image->pixel == 4 && image->channel % 4 == 0) {
        turn(
            (const float *)from, BYTE_COLUMNS, (float *)(image->data + to), image->channel / 4,
            rows, columns);
        return;
    }
    if (size == 1 && image->pixel == 1) {
        turn_bytes(
            (const uint8_t *)from, BYTE_COLUMNS, (uint8_t *)image->data + to, image->channel, rows,
            columns);
        return;
    }
    for (int64_t j = 0; j < columns; j++) {
        char *plane = image->data + to + j * image->channel;
        if (size == 1)
            for (int64_t i = 0; i < rows; i++) plane[i * image->pixel] = from[i * BYTE_COLUMNS + j];
        else
            for (int64_t i = 0; i < rows; i++)
                memcpy(plane + i * image->pixel, from + (i * BYTE_COLUMNS + j) * 4, 4);
    }
}

static int64_t offset_in(const Image *image, const Part *part) {
    return part->number * image->batch + part->column * image->channel + part->first * image->pixel;
}

BytePlace ISA(open_part)(const ByteConv *conv, const Part *part, char *tiles) {
    const Image *out = &conv->out, *residual = &conv->residual;
    const int64_t size = item_size(conv->panels.epilogue.type);
    BytePlace place = {.rows = part->count, .columns = part->columns};
    const bool turned = out->channel != size;
    place.data = turned ? tiles : out->data + offset_in(out, part);
    place.row = turned ? BYTE_COLUMNS * size : out->pixel;
    if (!residual->data) return place;
    const int64_t from = offset_in(residual, part);
    const bool aside = residual->channel == 4;
    if (!aside) take_image(residual, from, 4, part->count, part->columns, tiles + TILE_BYTES);
    place.residual = aside ? residual->data + from : tiles + TILE_BYTES;
    place.residual_row = aside ? residual->pixel : BYTE_COLUMNS * 4;
    return place;
}

void ISA(close_part)(const ByteConv *conv, const Part *part, const char *tiles) {
    const int64_t size = item_size(conv->panels.epilogue.type);
    if (conv->out.channel == size) return;
    const int64_t to = offset_in(&conv->out, part);
    put_image(&conv->out, to, size, part->count, part->columns, tiles);
}
