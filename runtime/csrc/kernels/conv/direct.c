#include "direct.h"
#include "../support/squares.h"
#include "../support/vector_exp.h"

static bool lie_side_by_side(const int64_t *places, int count) {
    for (int i = 1; i < count; i++)
        if (places[i] != places[0] + i) return false;
    return true;
}

// Residuals that do not lie as sums do: other strides, few channels.
static __attribute__((noinline)) void collect_residuals(
    const Tile *tile, int pixels, int width, float *collected) {
    const int64_t step = tile->conv->residual_channel;
    const int channels = tile->strip->channels;
    if (channels == width && lie_side_by_side(tile->residual, pixels)) {
        turn(tile->strip->residual + tile->residual[0], step, collected, width, channels, pixels);
        return;
    }
    for (int p = 0; p < pixels; p++, collected += width) {
        const float *from = tile->strip->residual + tile->residual[p];
        for (int c = 0; c < width; c++)
            collected[c] = c < tile->strip->channels ? from[c * step] : 0;
    }
}

// Sums that are not stored as they are: an activation, a result with other strides, few channels.
static __attribute__((noinline)) void keep_sums(
    const Tile *tile, int pixels, int width, float *sums) {
    const Conv *conv = tile->conv;
    const Strip *strip = tile->strip;
    static const int64_t steps[] = {sizeof(float), sizeof(float)};
    if (tile->limits.activation) {
        char *in[] = {(char *)sums};
        tile->limits.activation((char *)sums, in, steps, pixels * width, conv->epilogue.parameters);
    }
    if (conv->y_channel == 1) {
        for (int p = 0; p < pixels; p++)
            copy_floats(strip->y + tile->y[p], sums + p * width, strip->channels);
        return;
    }
    if (lie_side_by_side(tile->y, pixels)) {
        turn(sums, width, strip->y + tile->y[0], conv->y_channel, pixels, strip->channels);
        return;
    }
    for (int c = 0; c < strip->channels; c++)
        for (int p = 0; p < pixels; p++)
            strip->y[tile->y[p] + c * conv->y_channel] = sums[p * width + c];
}

// Results that lie where they belong, before Swish: a call of its loop would take a fifth longer.
static __attribute__((noinline)) void swish_results(const Tile *tile, int pixels, int vectors) {
    const Floats alpha = all_of((float)tile->conv->epilogue.parameters[0]);
    for (int p = 0; p < pixels; p++)
        for (int v = 0; v < vectors; v++) {
            float *y = tile->strip->y + tile->y[p] + v * LANES;
            store(y, swish_of(load(y), alpha));
        }
}

static __attribute__((noinline)) void find_rows(
    const Tile *tile, int64_t tap, int64_t channel, int pixels, const float **rows) {
    find_runs(
        tile->conv, &tile->input->source, tile->image, tile->input->taps[tap], tile->pixels, pixels,
        tile->inside, rows);
    for (int p = 0; p < pixels; p++) rows[p] += channel;
}

// `P` and `V` are constants wherever these are called, so that sums stay in registers.
// What is read and written at the end, unless the tile before has asked for it.
INLINE void ask_for_results(const Tile *tile, const int P, const int V) {
    const Strip *strip = tile->strip;
    if (strip->residual)
        for (int p = 0; p < P; p++)
            for (int v = 0; v < V; v++)
                __builtin_prefetch(strip->residual + tile->residual[p] + v * LANES);
    if (!tile->expected)
        for (int p = 0; p < P; p++)
            for (int v = 0; v < V; v++) __builtin_prefetch(strip->y + tile->y[p] + v * LANES, 1);
}

INLINE void finish_tile(const Tile *tile, const int P, const int V, Floats (*sums)[MOST_VECTORS]) {
    const Strip *strip = tile->strip;
    const Floats low = all_of(tile->limits.low), high = all_of(tile->limits.high);
    // Where windows have few numbers, comparing with no limits is a twentieth of the time.
    const bool limited = tile->limits.low > -INFINITY || tile->limits.high < INFINITY;
    const bool swishes = tile->limits.swishes;
    const bool full = strip->channels == V * LANES;
    float kept[MOST_PIXELS * MOST_WIDTH];
    if (strip->residual) {
        const bool aside = full && tile->conv->residual_channel == 1;
        if (!aside) collect_residuals(tile, P, V * LANES, kept);
        UNROLLED_FOR (int p = 0; p < P; p++) {
            const float *from = aside ? strip->residual + tile->residual[p] : kept + p * V * LANES;
            UNROLLED_FOR (int v = 0; v < V; v++) sums[p][v] += load(from + v * LANES);
        }
    }
    const bool aside = !full || tile->conv->y_channel != 1;
    const bool swish = !aside && tile->limits.swish;
    const bool plain = !aside && (swish || !tile->limits.activation);
    UNROLLED_FOR (int p = 0; p < P; p++) {
        float *y = plain ? strip->y + tile->y[p] : kept + p * V * LANES;
        UNROLLED_FOR (int v = 0; v < V; v++)
            store(
                y + v * LANES, swishes   ? hard_swish_of(sums[p][v])
                               : limited ? within(sums[p][v], low, high)
                                         : sums[p][v]);
    }
    if (!plain) keep_sums(tile, P, V * LANES, kept);
    if (swish) swish_results(tile, P, V);
}

// What is multiplied: the weights that come next, and what they ask for.
typedef struct {
    const float *weights;
    const int64_t *apart;  // vectors of them
    const char *ahead;
    int64_t step;
} Stream;

// Adds the products of number `c` of each window.  Pixels lie at one distance from each other if
// `even`: registers for addresses are few.
INLINE void add_number(
    const float *weights, const int64_t *apart, const float *const *rows, const float *const *bases,
    int64_t distance, int64_t c, bool even, const int P, const int V,
    Floats (*sums)[MOST_VECTORS]) {
    Floats right[MOST_VECTORS];
    UNROLLED_FOR (int v = 0; v < V; v++) right[v] = *(const Floats *)(weights + apart[v]);
    UNROLLED_FOR (int p = 0; p < P; p++)
        UNROLLED_FOR (int v = 0; v < V; v++)
            sums[p][v] += (even ? bases[p / 4][p % 4 * distance + c] : rows[p][c]) * right[v];
}

// Adds the products of one run.
INLINE void add_run(
    Stream *stream, const float *const *rows, int64_t distance, int64_t run, bool even, const int P,
    const int V, Floats (*sums)[MOST_VECTORS]) {
    const float *bases[MOST_PIXELS / 4], *weights = stream->weights;
    int64_t apart[MOST_VECTORS];
    UNROLLED_FOR (int v = 0; v < V; v++)
        apart[v] = v == 0 ? 0 : v == 1 && PAIRS ? LANES : stream->apart[v];
    const char *ahead = stream->ahead;
    const int64_t step = stream->step * AT_ONCE;
    UNROLLED_FOR (int i = 0; 4 * i < P; i++) bases[i] = even ? rows[0] + 4 * i * distance : NULL;
    const float *after = rows[0] + P * distance;  // what the next pixels read, if `even`
    int64_t c = 0;
    for (; c + AT_ONCE <= run; c += AT_ONCE) {
        __builtin_prefetch(ahead, 0, 2);
        if (V * LANES > 16) __builtin_prefetch(ahead + 64, 0, 2);
        if (even) __builtin_prefetch(after);
        ahead += step;
        UNROLLED_FOR (int i = 0; i < AT_ONCE; i++)
            add_number(
                weights + i * PANEL_COLUMNS, apart, rows, bases, distance, even ? i : c + i, even,
                P, V, sums);
        weights += AT_ONCE * PANEL_COLUMNS;
        after += AT_ONCE * P;
        if (even)
            UNROLLED_FOR (int i = 0; 4 * i < P; i++) bases[i] += AT_ONCE;
    }
    for (; AT_ONCE > 1 && c < run; c++) {
        add_number(weights, apart, rows, bases, distance, even ? 0 : c, even, P, V, sums);
        weights += PANEL_COLUMNS;
        if (even)
            UNROLLED_FOR (int i = 0; 4 * i < P; i++) bases[i]++;
    }
    stream->weights = weights;
    stream->ahead = ahead;
}

INLINE void make_tile(const Tile *tile, const int P, const int V) {
    const Input *input = tile->input;
    Floats sums[MOST_PIXELS][MOST_VECTORS];
    const float *rows[MOST_PIXELS];
    const Strip *strip = tile->strip;
    Stream stream = {
        strip->weights + tile->first * PANEL_COLUMNS, strip->apart, tile->ahead, tile->ahead_step};
    const bool last = tile->end == input->window * input->run;
    if (last) ask_for_results(tile, P, V);
    UNROLLED_FOR (int p = 0; p < P; p++)
        UNROLLED_FOR (int v = 0; v < V; v++)
            sums[p][v] = load(
                tile->first ? tile->partial + (p * V + v) * LANES : tile->strip->bias + v * LANES);
    const int64_t joined = tile->even ? input->joined : 1, length = input->run * joined;
    int64_t t = tile->first ? tile->first / length : 0, c = tile->first - t * length;
    for (int64_t done = tile->first, run; done < tile->end; done += run, t++, c = 0) {
        run = tile->end - done < length - c ? tile->end - done : length - c;
        if (tile->even) {
            rows[0] = tile->image + (tile->from + input->distances[t * joined] + c);
            add_run(&stream, rows, tile->distance, run, true, P, V, sums);
            continue;
        }
        find_rows(tile, t, c, P, rows);
        add_run(&stream, rows, 0, run, false, P, V, sums);
    }
    if (last) {
        finish_tile(tile, P, V, sums);
        return;
    }
    UNROLLED_FOR (int p = 0; p < P; p++)
        UNROLLED_FOR (int v = 0; v < V; v++) store(tile->partial + (p * V + v) * LANES, sums[p][v]);
}

INLINE void make_some(Tile *tile, const int P, const int V) {
    for (int64_t i = 1;; i++) {
        make_tile(tile, P, V);
        if (i >= tile->repeats) return;
        tile->from += tile->next_from;
        tile->ahead += tile->next_ahead;
        UNROLLED_FOR (int p = 0; p < P; p++) tile->y[p] += tile->next_y;
        if (tile->strip->residual)
            UNROLLED_FOR (int p = 0; p < P; p++) tile->residual[p] += tile->next_residual;
    }
}

#define TILE(P, V) \
    static __attribute__((noinline)) void tile_##P##_##V(Tile *tile) { make_some(tile, P, V); }
#define FOUR_TILES(V) \
    TILE(1, V)        \
    TILE(2, V)        \
    TILE(3, V)        \
    TILE(4, V)
#define SIX_TILES(V) \
    FOUR_TILES(V)    \
    TILE(5, V)       \
    TILE(6, V)
#define TWELVE_TILES(V) \
    SIX_TILES(V)        \
    TILE(7, V)          \
    TILE(8, V)          \
    TILE(9, V)          \
    TILE(10, V)         \
    TILE(11, V)         \
    TILE(12, V)
#define FOUR(V) tile_1_##V, tile_2_##V, tile_3_##V, tile_4_##V
#define SIX(V) FOUR(V), tile_5_##V, tile_6_##V
#define EIGHT(V) SIX(V), tile_7_##V, tile_8_##V
#define TWELVE(V) EIGHT(V), tile_9_##V, tile_10_##V, tile_11_##V, tile_12_##V

typedef void (*MakeTile)(Tile *tile);

TWELVE_TILES(1)
#if VECTOR_BYTES == 32
SIX_TILES(2)
FOUR_TILES(3)
// Pixels of tiles of two, three and four vectors: 12 sums in 16 registers, and 24 in 32.
enum { PIXELS_2 = 6, PIXELS_3 = 4, PIXELS_4 = 0 };
static const MakeTile MAKE[MOST_VECTORS][MOST_PIXELS] = {{TWELVE(1)}, {SIX(2)}, {FOUR(3)}};
#else
TWELVE_TILES(2)
SIX_TILES(3)
TILE(7, 3)
TILE(8, 3)
SIX_TILES(4)
enum { PIXELS_2 = 12, PIXELS_3 = 8, PIXELS_4 = 6 };
static const MakeTile MAKE[MOST_VECTORS][MOST_PIXELS] = {
    {TWELVE(1)}, {TWELVE(2)}, {EIGHT(3)}, {SIX(4)}};
#endif

int ISA(most_pixels)(int vectors) {
    static const int most[] = {MOST_PIXELS, PIXELS_2, PIXELS_3, PIXELS_4};
    return most[vectors - 1];
}

void ISA(make_tiles)(Tile *tile, int pixels) { MAKE[tile->strip->vectors - 1][pixels - 1](tile); }
