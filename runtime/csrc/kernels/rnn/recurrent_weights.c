// Weights of recurrent layers, as products want them.
#include <stdlib.h>
#include <string.h>

#include "../matmul/half_panels.h"
#include "recurrent_bytes.h"

// Floats of R that stay in the first cache from step to step.
enum { NEAR = 1 << 13 };

void ISA(release_weights)(State *state) {
    free(state->packed_w);
    free(state->packed_r);
    free(state->halves);
    free(state->bias_sums);
    free(state->late_bias);
    ISA(release_byte_weights)(state);
}

// Few rows wait for weights: those that float16 holds exactly are kept so, half the memory to read.
static void keep_halves(State *state) {
    const int64_t size = state->directions * state->packed_r_size;
    if (!state->is_packed || state->bytes || state->batch > HALVES_UP_TO) return;
    if (state->packed_r_size <= NEAR) return;
    uint16_t *halves = aligned_alloc(64, (size_t)padded(size * (int64_t)sizeof(uint16_t), 64));
    bool exact = halves != NULL;
    for (int64_t i = 0; exact && i < size; i++) {
        const _Float16 half = (_Float16)state->packed_r[i];
        memcpy(halves + i, &half, sizeof(half));
        exact = (float)half == state->packed_r[i];
    }
    if (!exact) {
        free(halves);
        return;
    }
    state->halves = halves;
    free(state->packed_r);
    state->packed_r = NULL;
}

bool ISA(take_weights)(State *state) {
    const int64_t columns = state->gates * state->wide, size = (int64_t)sizeof(float);
    state->packed_w_size = columns * state->width;
    state->packed_r_size = columns * state->hidden;
    const int64_t bytes_w = state->bytes ? 1 : state->directions * state->packed_w_size * size;
    const int64_t bytes_r = state->bytes ? 1 : state->directions * state->packed_r_size * size;
    state->packed_w = aligned_alloc(64, padded(bytes_w, 64));
    state->packed_r = aligned_alloc(64, padded(bytes_r, 64));
    state->bias_sums = calloc((size_t)(state->directions * columns), sizeof(float));
    state->late_bias = calloc((size_t)(state->directions * state->wide), sizeof(float));
    if (!state->packed_w || !state->packed_r || !state->bias_sums || !state->late_bias)
        return false;
    for (int64_t d = 0; state->is_packed && d < state->directions; d++) ISA(pack_weights)(state, d);
    keep_halves(state);
    return !state->bytes || ISA(pack_byte_weights)(state);
}

// What gate number `gate` of some units, those of a panel, adds to its products with the input.
static void pack_bias(const State *state, int64_t d, int gate, int64_t unit, int64_t count) {
    const int64_t rows = state->gates * state->hidden, row = gate * state->hidden + unit;
    const float *bias = state->bias + d * 2 * rows + row;
    const bool late = state->reset_late && gate == 2;
    float *sums = state->bias_sums + d * state->gates * state->wide + column_of(state, gate, unit);
    for (int64_t i = 0; i < count; i++) sums[i] = bias[i] + (late ? 0 : bias[rows + i]);
    if (late)
        memcpy(
            state->late_bias + d * state->wide + unit, bias + rows, (size_t)count * sizeof(float));
}

void ISA(pack_weights)(const State *state, int64_t d) {
    const int64_t hidden = state->hidden, width = state->width, rows = state->gates * hidden;
    float *w = state->packed_w + d * state->packed_w_size;
    float *r = state->packed_r + d * state->packed_r_size;
    for (int gate = 0; gate < state->gates; gate++)
        for (int64_t unit = 0; unit < hidden; unit += PANEL_COLUMNS) {
            const int64_t count = lesser(hidden - unit, PANEL_COLUMNS);
            const int64_t row = d * rows + gate * hidden + unit;
            const int64_t column = column_of(state, gate, unit);
            if (!state->bytes) {
                ISA(pack_panels)(
                    w + column * width, state->w + row * width, width, 1, count, width,
                    PANEL_COLUMNS);
                ISA(pack_panels)(
                    r + column * hidden, state->r + row * hidden, hidden, 1, count, hidden,
                    PANEL_COLUMNS);
            }
            if (state->bias) pack_bias(state, d, gate, unit, count);
        }
}
