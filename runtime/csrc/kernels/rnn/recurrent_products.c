// Products of states with the recurrent weights.
#include <string.h>

#include "../matmul/half_panels.h"
#include "recurrent_bytes.h"

// Rows at the end that are multiplied where they lie.
static int64_t unpacked_rows(const State *state) {
    const int64_t left = state->rows % TILE_ROWS;
    if (state->halves) return state->rows == 1;
    return left <= FEW_ROWS ? left : 0;
}

void ISA(pack_state)(const State *state, const float *h, float *panels) {
    const int64_t rows = state->rows - unpacked_rows(state);
    if (state->bytes)
        ISA(quantize_states)(state, h, panels);
    else
        ISA(pack_panels)(panels, h, state->wide, 1, rows, state->hidden, TILE_ROWS);
}

// Few rows by weights that are halves.
static void multiply_halves(const Step *now, const float *h, int64_t first, int64_t end) {
    const State *state = now->state;
    const bool one = state->rows == 1;
    const uint16_t *r = state->halves + now->direction * state->packed_r_size;
    const Place out = {now->memory->products + first, state->gates * state->wide, 0, 0};
    ISA(multiply_half_panels)(
        one ? h : now->memory->panels, one ? 1 : TILE_ROWS, r + first * state->hidden, false,
        state->hidden, out, (int)state->rows, end - first, NULL);
}

void ISA(multiply_state)(const Step *now, const float *h, int64_t first, int64_t end) {
    const State *state = now->state;
    const int64_t k = state->hidden, wide = state->wide, row = state->gates * wide;
    float *products = now->memory->products + first;
    if (now->begins) {
        for (int64_t i = 0; i < state->rows; i++)
            memset(products + i * row, 0, (size_t)(end - first) * sizeof(float));
        return;
    }
    if (state->halves) {
        multiply_halves(now, h, first, end);
        return;
    }
    if (state->bytes) {
        ISA(multiply_bytes)(
            &state->bytes[1], now->direction, now->memory->panels, state->rows, first, end, NULL,
            products, row);
        return;
    }
    const int64_t left = unpacked_rows(state), packed = state->rows - left;
    const float *r = now->r + first * k;
    const Place above = {products, row, 0, 0}, below = {products + packed * row, row, 0, 0};
    if (packed) ISA(multiply_panels)(now->memory->panels, r, k, above, packed, end - first, NULL);
    if (left == 1)
        ISA(multiply_row)(h + packed * wide, r, k, below.data, end - first);
    else if (left)
        ISA(multiply_few)(h + packed * wide, wide, r, k, below, left, end - first);
}
