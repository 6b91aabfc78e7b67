#include "winograd_tiles.h"

// -- products -------------------------------------------------------------------------------------

// A matrix of elements by some columns of the weights for a point.
typedef struct {
    const float *left;
    int64_t in, depth, count;  // from row to row; numbers that are added up; rows
    const float *right, *ahead;  // and the weights that come next
    int64_t second;  // from a vector of weights to the one beside it
    float *out;
    int64_t products;  // from row to row
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
    const int64_t in = point->in, depth = point->depth, second = point->second;
    UNROLLED_FOR (int i = 0; 3 * i < R; i++) rows[i] = left + 3 * i * in;
    int64_t p = 0;
    for (; p + AT_ONCE <= depth; p += AT_ONCE) {
        UNROLLED_FOR (int i = 0; i < AT_ONCE; i++) {
            __builtin_prefetch(ahead + i * step, 0, 2);
            add_number(rows, in, right + i * PANEL_COLUMNS, second, i, R, V, sums);
        }
        UNROLLED_FOR (int i = 0; 3 * i < R; i++) rows[i] += AT_ONCE;
        right += AT_ONCE * PANEL_COLUMNS;
        ahead += AT_ONCE * step;
    }
    if (AT_ONCE > 1 && p < depth) add_number(rows, in, right, second, 0, R, V, sums);
    UNROLLED_FOR (int i = 0; i < R; i++)
        UNROLLED_FOR (int v = 0; v < V; v++)
            store(out + i * point->products + v * LANES, sums[i][v]);
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
        out += rows * point->products;
    }
}

static void multiply_points(const Strip *strip, int64_t channel) {
    const Tiling *tiling = strip->tiling;
    const int64_t depth = depth_of(tiling), height = even_rows(strip->count);
    for (int64_t i = 0; i < tiling->points; i++)
        for (int64_t column = 0; column < STRIP && channel + column < tiling->wide;
             column += TILE_COLUMNS) {
            const int64_t first = channel + column;
            const float *weights = strip->weights + i * tiling->wide * depth;
            const PanelColumns right = panel_columns(weights, depth, first, 0);
            Point point = {
                .left = strip->elements + i * tiling->elements,
                .in = tiling->in,
                .depth = depth,
                .count = strip->count,
                .right = right.data,
                .second = right.second,
                .out = strip->products + i * STRIP + column,
                .products = tiling->points * STRIP,
            };
            point.ahead = point.right + (i < tiling->points - 1 ? tiling->wide * depth : 0);
            if (TILE_COLUMNS > PANEL_COLUMNS && tiling->wide - first < TILE_COLUMNS)
                multiply_point(&point, height, 1);
            else
                multiply_point(&point, height, 2);
        }
}

// -- results --------------------------------------------------------------------------------------

INLINE void transform_square(const float *products, Floats *results) {
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

INLINE void transform_products(const float *products, Floats *results, const Form form) {
    if (form == SQUARES) {
        transform_square(products, results);
        return;
    }
    Floats m[LINE_POINTS];
    UNROLLED_FOR (int i = 0; i < LINE_POINTS; i++) m[i] = load(products + i * STRIP);
    transform_sums(m, columns_of(form), results);
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
    const Strip *strip, const Tile *tile, const Spot *spot, int64_t at, const Form form,
    const bool plain, const bool adds) {
    const int rows = rows_of(form), columns = columns_of(form);
    const Floats low = all_of(strip->limits.low), high = all_of(strip->limits.high);
    const Floats bias = load(spot->bias + at);
    Floats results[RESULT * RESULT];
    transform_products(spot->products + at, results, form);
    if (plain) {
        UNROLLED_FOR (int i = 0; i < rows; i++) {
            float *y = spot->y + i * spot->row + at;
            const float *residual = adds ? spot->residual + i * spot->residual_row + at : NULL;
            UNROLLED_FOR (int j = 0; j < columns; j++) {
                Floats sum = results[i * columns + j] + bias;
                if (adds) sum += load(residual + j * spot->residual_column);
                store(y + j * spot->column, within(sum, low, high));
            }
        }
        return;
    }
    for (int i = 0; i < tile->rows; i++)
        for (int j = 0; j < tile->columns; j++) {
            Floats sum = results[i * columns + j] + bias;
            if (adds)
                sum +=
                    load(spot->residual + i * spot->residual_row + j * spot->residual_column + at);
            sum = strip->limits.swishes ? hard_swish_of(sum) : within(sum, low, high);
            store(spot->y + i * spot->row + j * spot->column + at, sum);
        }
}

INLINE void finish_form(
    const Strip *strip, const Tile *tile, const Spot *spot, int64_t count, const Form form) {
    const bool whole = tile->rows == rows_of(form) && tile->columns == columns_of(form);
    const bool plain = whole && !strip->limits.swishes;
    for (int64_t at = 0; at < count; at += LANES) {
        if (plain && !spot->residual)
            finish_vector(strip, tile, spot, at, form, true, false);
        else if (plain)
            finish_vector(strip, tile, spot, at, form, true, true);
        else if (spot->residual)
            finish_vector(strip, tile, spot, at, form, false, true);
        else
            finish_vector(strip, tile, spot, at, form, false, false);
    }
}

static void finish_vectors(const Strip *strip, const Tile *tile, const Spot *spot, int64_t count) {
    switch (strip->tiling->form) {
        case SQUARES: finish_form(strip, tile, spot, count, SQUARES); break;
        case ROWS_OF_FOUR: finish_form(strip, tile, spot, count, ROWS_OF_FOUR); break;
        default: finish_form(strip, tile, spot, count, ROWS_OF_SIX);
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
    spot.row = spot.residual_row = columns_of(strip->tiling->form) * STRIP;
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

static Tile tile_of(const Tiling *tiling, int64_t number) {
    switch (tiling->form) {
        case SQUARES: return find_tile(tiling, number, SQUARES);
        case ROWS_OF_FOUR: return find_tile(tiling, number, ROWS_OF_FOUR);
        default: return find_tile(tiling, number, ROWS_OF_SIX);
    }
}

// Channels from `channel` on of the first result of a tile.
static float *first_of(const Image *image, const Tile *tile, int64_t channel) {
    return image->data + tile->image * image->image + tile->row * image->row +
           tile->column * image->column + channel;
}

// `count` channels of a tile.
static void finish_tile(
    const Strip *strip, int64_t number, int64_t channel, int64_t count, const float *bias) {
    const Tiling *tiling = strip->tiling;
    const Tile tile = tile_of(tiling, strip->first + number);
    const int64_t down = tiling->dilation[0], across = tiling->dilation[1];
    const Image *y = &strip->y, *residual = &strip->residual;
    if (!tile.rows || !tile.columns) return;
    const Spot spot = {
        .products = strip->products + number * tiling->points * STRIP,
        .bias = bias,
        .y = first_of(y, &tile, channel),
        .residual = residual->data ? first_of(residual, &tile, channel) : NULL,
        .row = y->row * down,
        .column = y->column * across,
        .residual_row = residual->row * down,
        .residual_column = residual->column * across,
    };
    if (strip->limits.activation || count % LANES != 0)
        finish_aside(strip, &tile, spot, count);
    else
        finish_vectors(strip, &tile, &spot, count);
}

void ISA(make_strip)(const Strip *strip, int64_t channel) {
    const int64_t count = lesser(strip->tiling->out - channel, STRIP);
    float bias[STRIP] = {0};
    if (strip->bias) copy_floats(bias, strip->bias + channel, count);
    multiply_points(strip, channel);
    for (int64_t i = 0; i < strip->count; i++) finish_tile(strip, i, channel, count, bias);
}
