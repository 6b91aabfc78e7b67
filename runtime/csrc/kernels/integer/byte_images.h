// Images of bytes, and where results of convolutions of them go.
#ifndef POPC_BYTE_IMAGES_H
#define POPC_BYTE_IMAGES_H

#include "byte_panels.h"
#include "../conv/conv.h"

enum { CHUNK_PIXELS = 8 * BYTE_ROWS };  // for which a panel of weights is read once

// An image whose pixels lie at equal distances: a result, or a residual.
typedef struct {
    char *data;  // NULL: there is none
    int64_t batch, channel, pixel;  // strides in bytes
} Image;

// A convolution of bytes.  An input whose channels do not lie side by side is copied first, with
// what windows read around it.
typedef struct {
    BytePanels panels;  // of a group
    int64_t batch, groups, in, window, pixels;
    int64_t size[AXES], taps[AXES], result[AXES], stride[AXES], dilation[AXES], before[AXES];
    const uint8_t *x;
    int64_t x_batch, x_channel, x_axis[AXES];  // of the input
    int64_t from_batch, from_channel, from_axis[AXES], from_size[AXES], from_before[AXES];
    int64_t copy_bytes;  // 0: the input is read where it lies; channels lie side by side
    const uint8_t *w;  // [out][in][taps]
    bool constant;  // the weights
    Image out, residual;
} ByteConv;

// Reads x, w, y and the residual; groups; stride, dilation and pads before of each axis; and what
// `read_panels` reads.
bool ISA(read_byte_conv)(ByteConv *conv, Params *params);

// The images may lie elsewhere in each run.
static inline void byte_images_lie_anywhere(Needs *needs, ByteConv *conv) {
    reads_anywhere(needs, &conv->x);
    reads_anywhere(needs, &conv->residual.data);
    writes_anywhere(needs, &conv->out.data);
}

// Plans the copy, if the channels of the input do not lie side by side: from then on, strides, sizes
// and pads are its own, and those of the input stand beside them.
void ISA(plan_byte_copy)(ByteConv *conv);

// Lines of pixels that the copy of the input has; copies one of them.
static inline int64_t copied_lines(const ByteConv *conv) {
    return conv->batch * conv->size[0] * conv->size[1];
}
void ISA(copy_byte_line)(const ByteConv *conv, uint8_t *copy, int64_t line);

// The byte that surrounds the input.
static inline uint8_t outside_of(const ByteConv *conv) {
    return conv->panels.left.zero ? *conv->panels.left.zero : 0;
}

// Where the window of a pixel begins in the input; outside of it, maybe.
static inline void window_at(const ByteConv *conv, int64_t pixel, int64_t *at) {
    for (int axis = AXES - 1; axis >= 0; axis--) {
        at[axis] = pixel % conv->result[axis] * conv->stride[axis] - conv->before[axis];
        pixel /= conv->result[axis];
    }
}

// Pixels of an image by columns of a result.
typedef struct {
    int64_t number, first, count;  // of the image, of its first pixel, and of pixels
    int64_t column, columns;
} Part;

// Bytes of scratch for a part of a result and of a residual whose channels do not lie side by side.
enum { TILE_BYTES = CHUNK_PIXELS * BYTE_COLUMNS * 4, TILES_BYTES = 2 * TILE_BYTES };

// Where `finish_bytes` is to put a part: the result itself, or `tiles`, which `close_part` copies.
BytePlace ISA(open_part)(const ByteConv *conv, const Part *part, char *tiles);
void ISA(close_part)(const ByteConv *conv, const Part *part, const char *tiles);

#endif
