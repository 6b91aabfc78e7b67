// Tiles of an image, and their elements at the points of Winograd's algorithm.
#include "winograd_tiles.h"

bool ISA(divide_image)(Tiling *tiling) {
    const int sizes[] = {rows_of(tiling->form), columns_of(tiling->form)};
    tiling->points = points_of(tiling->form);
    tiling->all_tiles = tiling->batch;
    for (int axis = 0; axis < 2; axis++) {
        const int64_t before = tiling->before[axis], dilation = tiling->dilation[axis];
        const int64_t result = tiling->result[axis];
        if (before < -INT32_MAX || before > INT32_MAX) return false;
        if (dilation < 1 || dilation > INT32_MAX) return false;
        tiling->in_turn[axis] = ceil_div(ceil_div(result, dilation), sizes[axis]);
        if (axis == 1) tiling->in_turn[axis] += tiles_ahead(tiling);
        tiling->tiles[axis] = lesser(dilation, result) * tiling->in_turn[axis];
        tiling->all_tiles *= tiling->tiles[axis];
    }
    return tiling->all_tiles > 0;
}

// A vector of channels of a tile, whose elements lie at distances of `column` in each of six lines, or,
// if some lie outside, anywhere.
INLINE void transform_square(
    const float *const *from, int64_t column, int64_t channel, float *to, int64_t point,
    const bool inside) {
    Floats lines[POINTS];
    UNROLLED_FOR (int j = 0; j < SPAN; j++) {
        Floats d[SPAN], made[SPAN];
        UNROLLED_FOR (int i = 0; i < SPAN; i++)
            d[i] = load((inside ? from[i * SPAN] + j * column : from[i * SPAN + j]) + channel);
        transform_input_line(d, made);
        UNROLLED_FOR (int i = 0; i < SPAN; i++) lines[i * SPAN + j] = made[i];
    }
    to += channel;
    UNROLLED_FOR (int i = 0; i < SPAN; i++) {
        Floats points[SPAN];
        transform_input_line(lines + i * SPAN, points);
        UNROLLED_FOR (int j = 0; j < SPAN; j++, to += point) store(to, points[j]);
    }
}

// The same for a tile of a row.
INLINE void transform_row(
    const float *const *from, int64_t column, int64_t channel, float *to, int64_t point,
    const bool inside) {
    Floats d[LINE_POINTS], points[LINE_POINTS];
    UNROLLED_FOR (int i = 0; i < LINE_POINTS; i++)
        d[i] = load((inside ? from[0] + i * column : from[i]) + channel);
    transform_line(d, points);
    to += channel;
    UNROLLED_FOR (int i = 0; i < LINE_POINTS; i++, to += point) store(to, points[i]);
}

INLINE void transform_some(
    const float *const *from, int64_t column, int64_t channel, float *to, int64_t point,
    const bool square, const bool inside) {
    if (square)
        transform_square(from, column, channel, to, point, inside);
    else
        transform_row(from, column, channel, to, point, inside);
}

INLINE void transform_channels(
    const Tiling *tiling, const float *const *from, int64_t column, float *to, const bool square,
    const bool inside) {
    int64_t channel = 0;
    for (; channel + LANES <= tiling->in; channel += LANES)
        transform_some(from, column, channel, to, tiling->elements, square, inside);
    if (channel < tiling->in)
        transform_some(from, column, tiling->in - LANES, to, tiling->elements, square, inside);
}

INLINE void transform_tile(
    const Tiling *tiling, const Image *x, int64_t number, float *to, const Form form) {
    const bool square = form == SQUARES;
    const int64_t rows = square ? SPAN : 1, columns = square ? SPAN : LINE_POINTS;
    const int64_t down = tiling->dilation[0], across = tiling->dilation[1];
    const Tile tile = find_tile(tiling, number, form);
    const int64_t top = tile.row - tiling->before[0], left = tile.column - tiling->before[1];
    const bool inside = top >= 0 && left >= 0 && top + (rows - 1) * down < tiling->height &&
                        left + (columns - 1) * across < tiling->width;
    const float *from[POINTS];
    for (int64_t i = 0; i < rows * columns; i++) {
        const int64_t row = top + i / columns * down, column = left + i % columns * across;
        const bool there = row >= 0 && row < tiling->height && column >= 0 &&
                           column < tiling->width;
        from[i] = there ? x->data + tile.image * x->image + row * x->row + column * x->column
                        : tiling->nothing;
    }
    if (inside)
        transform_channels(tiling, from, x->column * across, to, square, true);
    else
        transform_channels(tiling, from, 0, to, square, false);
}

// Beyond the last tile there are none: only results that are not wanted read these rows.
void ISA(transform_elements)(
    const Tiling *tiling, const Image *x, int64_t first, int64_t count, float *elements,
    int64_t row) {
    for (int64_t i = 0; i < count; i++) {
        const int64_t number = lesser(first + i, tiling->all_tiles - 1);
        float *to = elements + (row + i) * tiling->in;
        if (tiling->form == SQUARES)
            transform_tile(tiling, x, number, to, SQUARES);
        else if (tiling->form == ROWS_OF_FOUR)
            transform_tile(tiling, x, number, to, ROWS_OF_FOUR);
        else
            transform_tile(tiling, x, number, to, ROWS_OF_SIX);
    }
}
