// Weights of direct convolutions in panels.
#include <string.h>

#include "direct.h"
#include "../support/squares.h"

enum { SQUARE = 16 };  // numbers of windows that are packed at once: a line of the cache

// Where numbers `from` .. of a window, by channels and then taps, go in a panel: by taps first.
typedef struct {
    const Conv *conv;
    int64_t channel, tap;
} Line;

static int64_t next_line(Line *line) {
    const int64_t at = line->tap * line->conv->in + line->channel;
    if (++line->tap == line->conv->window) {
        line->tap = 0;
        line->channel++;
    }
    return at;
}

// SQUARE numbers of the windows of `count` channels of a panel, or fewer.
static void pack_lines(
    const float *from, int64_t k, int64_t numbers, Line line, float *to, int64_t count) {
    float *lines[SQUARE];
    for (int64_t q = 0; q < numbers; q++) lines[q] = to + next_line(&line) * PANEL_COLUMNS;
    int64_t o = 0;
    for (; o + 4 <= count; o += 4, from += 4 * k) {
        int64_t q = 0;
        for (; q + 4 <= numbers; q += 4) {
            Four four[4];
            for (int i = 0; i < 4; i++) four[i] = load_four(from + i * k + q);
            turn_square(four);
            for (int i = 0; i < 4; i++) store_four(lines[q + i] + o, four[i]);
        }
        for (; q < numbers; q++)
            for (int i = 0; i < 4; i++) lines[q][o + i] = from[i * k + q];
    }
    for (; o < count; o++, from += k)
        for (int64_t q = 0; q < numbers; q++) lines[q][o] = from[q];
    for (int64_t q = 0; count < PANEL_COLUMNS && q < numbers; q++)
        memset(lines[q] + count, 0, (size_t)(PANEL_COLUMNS - count) * sizeof(float));
}

// Weights that lie anyhow, such as mirrored ones: those of `count` channels of a panel.
static void gather_lines(const Conv *conv, const float *from, float *to, int64_t count) {
    const int64_t *taps = conv->taps, *axis = conv->w_axis, tap_line = conv->in * PANEL_COLUMNS;
    for (int64_t channel = 0; channel < conv->in; channel++, from += conv->w_in) {
        float *line = to + channel * PANEL_COLUMNS;
        for (int64_t tap = 0; tap < conv->window; tap++, line += tap_line) {
            const int64_t row = tap / taps[2], column = tap % taps[2];
            const float *source = from + row / taps[1] * axis[0] + row % taps[1] * axis[1] +
                                  column * axis[2];
            for (int64_t o = 0; o < count; o++) line[o] = source[o * conv->w_out];
            for (int64_t o = count; o < PANEL_COLUMNS; o++) line[o] = 0;
        }
    }
}

void ISA(pack_weights_panel)(const Conv *conv, int64_t number, float *packed) {
    const int64_t k = conv->in * conv->window, panels = ceil_div(conv->out, PANEL_COLUMNS);
    const int64_t group = number / panels, first = number % panels * PANEL_COLUMNS;
    const int64_t rest = conv->out - first, count = rest < PANEL_COLUMNS ? rest : PANEL_COLUMNS;
    const float *from = conv->w + (group * conv->out + first) * conv->w_out;
    float *to = packed + number * PANEL_COLUMNS * k;
    if (!conv->w_plain) {
        gather_lines(conv, from, to, count);
        return;
    }
    for (int64_t q = 0; q < k; q += SQUARE) {
        const int64_t numbers = k - q < SQUARE ? k - q : SQUARE;
        const Line line = {conv, q / conv->window, q % conv->window};
        pack_lines(from + q, k, numbers, line, to, count);
    }
}
