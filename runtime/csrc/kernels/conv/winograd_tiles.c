#include "winograd_tiles.h"

// -- elements -------------------------------------------------------------------------------------

// A vector of channels of a tile, whose elements lie at distances of `column` in each of six lines, or,
// if some lie outside, anywhere.
INLINE void transform_some(
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

INLINE void transform_channels(
    const Tiling *tiling, const float *const *from, int64_t column, float *to, const bool inside) {
    int64_t channel = 0;
    for (; channel + LANES <= tiling->in; channel += LANES)
        transform_some(from, column, channel, to, tiling->elements, inside);
    if (channel < tiling->in)
        transform_some(from, column, tiling->in - LANES, to, tiling->elements, inside);
}

static void transform_tile(const Tiling *tiling, const Image *x, int64_t number, float *to) {
    const Tile tile = find_tile(tiling, number);
    const int64_t top = tile.row - tiling->before[0], left = tile.column - tiling->before[1];
    const bool inside = top >= 0 && left >= 0 && top + SPAN <= tiling->height &&
                        left + SPAN <= tiling->width;
    const float *from[POINTS];
    for (int64_t i = 0; i < POINTS; i++) {
        const int64_t row = top + i / SPAN, column = left + i % SPAN;
        const bool there = row >= 0 && row < tiling->height && column >= 0 &&
                           column < tiling->width;
        from[i] = there ? x->data + tile.image * x->image + row * x->row + column * x->column
                        : tiling->nothing;
    }
    if (inside)
        transform_channels(tiling, from, x->column, to, true);
    else
        transform_channels(tiling, from, x->column, to, false);
}

void ISA(transform_elements)(
    const Tiling *tiling, const Image *x, int64_t first, int64_t count, float *elements,
    int64_t row) {
    for (int64_t i = 0; i < count; i++)
        transform_tile(tiling, x, first + i, elements + (row + i) * tiling->in);
}

// -- products -------------------------------------------------------------------------------------

enum { PRODUCTS = POINTS * STRIP };  // of a tile

// A matrix of elements by some columns of the weights for a point.
typedef struct {
    const float *left;
    int64_t in, count;  // numbers of a row, and rows
    const float *right, *ahead;  // and the weights that come next
    int64_t second;  // from a vector of weights to the one beside it
    float *out;  // rows PRODUCTS apart
} Point;

// Adds the products of a number of each row; three of them share a register for their address.
INLINE void add_number(
    const float *const *rows, int64_t row, const float *right, int64_t second, int64_t p,
    const int R, const int V, Floats (*sums)[2]) {
    const Floats low = load_once(right), high = V > 1 ? load_once(right + second) : low;
    UNROLLED_FOR (int i = 0; i < R; i++) {
        const float number = rows[i / 3][i % 3 * row + p];
        sums[i][0] += number * low;
        if (V > 1) sums[i][1] += number * high;
    }
}

// `R` rows and `V` vectors are constants wherever this is called, so that the sums stay in registers.
INLINE void multiply_rows(
    const Point *point, const float *left, float *out, int64_t step, const int R, const int V) {
    Floats sums[TILE_ROWS][2] = {0};
    const float *rows[(TILE_ROWS + 2) / 3], *right = point->right, *ahead = point->ahead;
    const int64_t in = point->in, second = point->second;
    UNROLLED_FOR (int i = 0; 3 * i < R; i++) rows[i] = left + 3 * i * in;
    int64_t p = 0;
    for (; p + AT_ONCE <= in; p += AT_ONCE) {
        UNROLLED_FOR (int i = 0; i < AT_ONCE; i++) {
            __builtin_prefetch(ahead + i * step, 0, 2);
            add_number(rows, in, right + i * PANEL_COLUMNS, second, i, R, V, sums);
        }
        UNROLLED_FOR (int i = 0; 3 * i < R; i++) rows[i] += AT_ONCE;
        right += AT_ONCE * PANEL_COLUMNS;
        ahead += AT_ONCE * step;
    }
    if (AT_ONCE > 1 && p < in) add_number(rows, in, right, second, 0, R, V, sums);
    UNROLLED_FOR (int i = 0; i < R; i++)
        UNROLLED_FOR (int v = 0; v < V; v++) store(out + i * PRODUCTS + v * LANES, sums[i][v]);
}

#define CASE(N, VECTORS) \
    case N: multiply_rows(point, left, out, 0, N, VECTORS); break;
// All rows, `height` of them at a time.
INLINE void multiply_point(const Point *point, int64_t height, const int V) {
    const float *left = point->left;
    float *out = point->out;
    for (int64_t i = 0; i < point->count; i += height) {
        const int64_t rows = lesser(height, point->count - i);
        switch (rows) {
            ROW_CASES(CASE, V)
            default: multiply_rows(point, left, out, i == 0 ? PANEL_COLUMNS : 0, TILE_ROWS, V);
        }
        left += rows * point->in;
        out += rows * PRODUCTS;
    }
}

static void multiply_points(const Strip *strip, int64_t channel) {
    const Tiling *tiling = strip->tiling;
    const int64_t in = tiling->in, height = even_rows(strip->count);
    for (int64_t i = 0; i < POINTS; i++)
        for (int64_t column = 0; column < STRIP && channel + column < tiling->wide;
             column += TILE_COLUMNS) {
            const int64_t first = channel + column;
            const float *weights = strip->weights + i * tiling->wide * in;
            const PanelColumns right = panel_columns(weights, in, first, 0);
            Point point = {
                .left = strip->elements + i * tiling->elements,
                .in = in,
                .count = strip->count,
                .right = right.data,
                .second = right.second,
                .out = strip->products + i * STRIP + column,
            };
            point.ahead = point.right + (i < POINTS - 1 ? tiling->wide * in : 0);
            if (TILE_COLUMNS > PANEL_COLUMNS && tiling->wide - first < TILE_COLUMNS)
                multiply_point(&point, height, 1);
            else
                multiply_point(&point, height, 2);
        }
}

// -- results --------------------------------------------------------------------------------------

INLINE void transform_products(const float *products, Floats *results) {
    Floats lines[RESULT * SPAN];
    UNROLLED_FOR (int j = 0; j < SPAN; j++) {
        Floats m[SPAN], made[RESULT];
        UNROLLED_FOR (int i = 0; i < SPAN; i++) m[i] = load(products + (i * SPAN + j) * STRIP);
        transform_result_line(m, made);
        UNROLLED_FOR (int i = 0; i < RESULT; i++) lines[i * SPAN + j] = made[i];
    }
    UNROLLED_FOR (int i = 0; i < RESULT; i++)
        transform_result_line(lines + i * SPAN, results + i * RESULT);
}

// A vector of channels of a tile, or of all of them: what it is made of, and where it goes.
typedef struct {
    const float *products, *bias;
    const float *residual;  // NULL: there is none
    float *y;
    int64_t row, column, residual_row, residual_column;
} Spot;

// All results of a tile are wanted, and HardSwish does not follow, if it is `plain`; a residual is added
// if it `adds`.
INLINE void finish_vector(
    const Strip *strip, const Tile *tile, const Spot *spot, int64_t at, const bool plain,
    const bool adds) {
    const Floats low = all_of(strip->limits.low), high = all_of(strip->limits.high);
    const Floats bias = load(spot->bias + at);
    Floats results[RESULT * RESULT];
    transform_products(spot->products + at, results);
    if (plain) {
        UNROLLED_FOR (int i = 0; i < RESULT; i++) {
            float *y = spot->y + i * spot->row + at;
            const float *residual = adds ? spot->residual + i * spot->residual_row + at : NULL;
            UNROLLED_FOR (int j = 0; j < RESULT; j++) {
                Floats sum = results[i * RESULT + j] + bias;
                if (adds) sum += load(residual + j * spot->residual_column);
                store(y + j * spot->column, within(sum, low, high));
            }
        }
        return;
    }
    for (int i = 0; i < tile->rows; i++)
        for (int j = 0; j < tile->columns; j++) {
            Floats sum = results[i * RESULT + j] + bias;
            if (adds)
                sum +=
                    load(spot->residual + i * spot->residual_row + j * spot->residual_column + at);
            sum = strip->limits.swishes ? hard_swish_of(sum) : within(sum, low, high);
            store(spot->y + i * spot->row + j * spot->column + at, sum);
        }
}

static void finish_vectors(const Strip *strip, const Tile *tile, const Spot *spot, int64_t count) {
    const bool whole = tile->rows == RESULT && tile->columns == RESULT;
    const bool plain = whole && !strip->limits.swishes;
    for (int64_t at = 0; at < count; at += LANES) {
        if (plain && !spot->residual)
            finish_vector(strip, tile, spot, at, true, false);
        else if (plain)
            finish_vector(strip, tile, spot, at, true, true);
        else if (spot->residual)
            finish_vector(strip, tile, spot, at, false, true);
        else
            finish_vector(strip, tile, spot, at, false, false);
    }
}

// Copies `count` channels of the pixels of a tile.
static void copy_pixels(
    const Tile *tile, const float *from, int64_t row, int64_t column, float *to, int64_t to_row,
    int64_t to_column, int64_t count) {
    for (int i = 0; i < tile->rows; i++)
        for (int j = 0; j < tile->columns; j++)
            copy_floats(to + i * to_row + j * to_column, from + i * row + j * column, count);
}

// Where channels do not fill vectors, or are not done with yet: results are made aside.
static void finish_aside(const Strip *strip, const Tile *tile, Spot spot, int64_t count) {
    static const int64_t steps[] = {sizeof(float), sizeof(float)};
    float results[RESULT * RESULT * STRIP] = {0}, residual[RESULT * RESULT * STRIP] = {0};
    const Spot there = spot;
    spot.y = results;
    spot.row = spot.residual_row = RESULT * STRIP;
    spot.column = spot.residual_column = STRIP;
    if (there.residual) {
        copy_pixels(
            tile, there.residual, there.residual_row, there.residual_column, residual, spot.row,
            STRIP, count);
        spot.residual = residual;
    }
    finish_vectors(strip, tile, &spot, count);
    if (strip->limits.activation) {
        char *in[] = {(char *)results};
        strip->limits.activation(
            in[0], in, steps, RESULT * RESULT * STRIP, strip->epilogue->parameters);
    }
    copy_pixels(tile, results, spot.row, STRIP, there.y, there.row, there.column, count);
}

// `count` channels of a tile.
static void finish_tile(
    const Strip *strip, int64_t number, int64_t channel, int64_t count, const float *bias) {
    const Tile tile = find_tile(strip->tiling, strip->first + number);
    const Image *y = &strip->y, *residual = &strip->residual;
    Spot spot = {
        strip->products + number * POINTS * STRIP,
        bias,
        NULL,
        NULL,
        y->row,
        y->column,
        residual->row,
        residual->column};
    spot.y = y->data + tile.image * y->image + tile.row * y->row + tile.column * y->column +
             channel;
    if (residual->data)
        spot.residual = residual->data + tile.image * residual->image + tile.row * residual->row +
                        tile.column * residual->column + channel;
    if (strip->limits.activation || count % LANES != 0) {
        finish_aside(strip, &tile, spot, count);
        return;
    }
    finish_vectors(strip, &tile, &spot, count);
}

void ISA(make_strip)(const Strip *strip, int64_t channel) {
    const int64_t count = lesser(strip->tiling->out - channel, STRIP);
    float bias[STRIP] = {0};
    if (strip->bias) copy_floats(bias, strip->bias + channel, count);
    multiply_points(strip, channel);
    for (int64_t i = 0; i < strip->count; i++) finish_tile(strip, i, channel, count, bias);
}
