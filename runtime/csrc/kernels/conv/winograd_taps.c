// Weights of convolutions at the points of Winograd's algorithm.
#include "winograd_tiles.h"

enum { MOST_LOADED = TAP * TAP };  // taps: of a square, or of a part of a row

// A vector of `count` taps from `tap` on of `filters` output channels from `first` on; zeros beyond them.
static void load_taps(
    const Tiling *tiling, const Taps *weights, int64_t first, int64_t channel, int64_t tap,
    int count, Floats *taps) {
    const int64_t there = greater(lesser(weights->taps - tap, count), 0);
    const int64_t filters = lesser(tiling->out - first, LANES);
    for (int i = 0; i < count; i++) taps[i] = (Floats){0};
    if (weights->in_panels) {
        const int64_t column = first % PANEL_COLUMNS, line = tiling->in * PANEL_COLUMNS;
        const float *w = weights->data + (first - column) * weights->taps * tiling->in +
                         channel * PANEL_COLUMNS + column;
        for (int64_t i = 0; i < there; i++) taps[i] = load(w + (tap + i) * line);
        return;
    }
    const int64_t columns = tiling->form == SQUARES ? TAP : weights->taps;
    for (int64_t lane = 0; lane < filters; lane++) {
        const float *w = weights->data + (first + lane) * weights->out + channel * weights->in;
        for (int64_t i = 0; i < there; i++)
            taps[i][lane] =
                w[(tap + i) / columns * weights->rows + (tap + i) % columns * weights->columns];
    }
}

static void transform_square(const Floats *taps, float *to, int64_t point) {
    Floats lines[SPAN * TAP], points[POINTS];
    for (int i = 0; i < TAP; i++) transform_weight_line(taps + i, TAP, lines + i, TAP);
    for (int i = 0; i < SPAN; i++) transform_weight_line(lines + i * TAP, 1, points + i * SPAN, 1);
    for (int i = 0; i < POINTS; i++) store(to + i * point, points[i]);
}

static void transform_row(const Floats *taps, int count, float *to, int64_t point) {
    Floats points[LINE_POINTS];
    if (count == LONG_TAPS)
        transform_taps(taps, LONG_TAPS, points);
    else
        transform_taps(taps, SHORT_TAPS, points);
    for (int i = 0; i < LINE_POINTS; i++) store(to + i * point, points[i]);
}

// Each part of a row has four taps, the last one up to five.
static int first_tap(int64_t part) { return (int)part * RESULT; }

static int taps_of(const Tiling *tiling, int64_t part) {
    if (tiling->form == SQUARES) return TAP * TAP;
    if (tiling->form == ROWS_OF_SIX) return SHORT_TAPS;
    return part + 1 < tiling->parts ? RESULT : LONG_TAPS;
}

void ISA(transform_panel)(const Tiling *tiling, const Taps *weights, float *to, int64_t panel) {
    const int64_t first = panel * PANEL_COLUMNS, point = tiling->wide * depth_of(tiling);
    to += first * depth_of(tiling);
    for (int64_t part = 0; part < tiling->parts; part++)
        for (int64_t channel = 0; channel < tiling->in; channel++, to += PANEL_COLUMNS)
            for (int column = 0; column < PANEL_COLUMNS; column += LANES) {
                Floats taps[MOST_LOADED] = {0};
                load_taps(
                    tiling, weights, first + column, channel, first_tap(part),
                    taps_of(tiling, part), taps);
                if (tiling->form == SQUARES)
                    transform_square(taps, to + column, point);
                else
                    transform_row(
                        taps, tiling->form == ROWS_OF_SIX ? SHORT_TAPS : LONG_TAPS, to + column,
                        point);
            }
}
