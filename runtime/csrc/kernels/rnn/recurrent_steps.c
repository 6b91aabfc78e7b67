// Steps of recurrent layers with any functions.
#include <string.h>

#include "recurrent.h"

// Applies function `index` of the direction to a gate, bounded first.
static void apply(const Step *now, int index, float *x, bool bounded) {
    const State *state = now->state;
    const Function *function = &state->functions[now->direction][index];
    const float bound = bounded ? state->clip : 0;
    for (int64_t j = 0; bound > 0 && j < state->hidden; j++) {
        const float above = x[j] < -bound ? -bound : x[j];
        x[j] = above > bound ? bound : above;
    }
    const int64_t steps[] = {sizeof(float), sizeof(float)};
    char *const in[] = {(char *)x};
    function->loop((char *)x, in, steps, state->hidden, function->parameters);
}

static void keep(const Step *now, int64_t gate, int64_t b, const float *values) {
    const State *state = now->state;
    if (!state->kept_gates) return;
    const int64_t place = (gate * state->directions + now->direction) * state->steps + now->time;
    float *to = state->kept_gates + (place * state->batch + b) * state->hidden;
    memcpy(to, values, (size_t)state->hidden * sizeof(float));
}

static void add(float *x, const float *y, int64_t n) {
    INDEPENDENT_FOR (int64_t j = 0; j < n; j++) x[j] += y[j];
}

static void add_product(float *x, const float *weights, const float *y, int64_t n) {
    INDEPENDENT_FOR (int64_t j = 0; weights && j < n; j++) x[j] += weights[j] * y[j];
}

static void rnn_sequence(const Step *now, int64_t b) {
    const int64_t n = now->state->hidden, wide = now->state->wide;
    float *p = now->memory->products + b * wide;
    add(p, now->shares + b * wide, n);
    apply(now, 0, p, true);
    if (is_over(now->state, b, now->time)) return;
    memcpy(now->memory->h + b * wide, p, (size_t)n * sizeof(float));
}

static void lstm_sequence(const Step *now, int64_t b) {
    const State *state = now->state;
    const int64_t n = state->hidden, wide = state->wide;
    const float *peep = state->peepholes ? state->peepholes + now->direction * 3 * n : NULL;
    float *i = now->memory->products + b * 4 * wide, *o = i + wide, *f = o + wide, *g = f + wide;
    float *h = now->memory->h + b * wide, *c = now->memory->c + b * wide;
    float *cell = now->memory->reset + b * wide, *out = now->memory->spare + b * wide;
    add(i, now->shares + b * 4 * wide, 4 * wide);
    add_product(i, peep, c, n);
    apply(now, 0, i, true);
    if (state->input_forget) {
        for (int64_t j = 0; j < n; j++) f[j] = 1 - i[j];
    } else {
        add_product(f, peep ? peep + 2 * n : NULL, c, n);
        apply(now, 0, f, true);
    }
    apply(now, 1, g, true);
    for (int64_t j = 0; j < n; j++) cell[j] = f[j] * c[j] + i[j] * g[j];
    add_product(o, peep ? peep + n : NULL, cell, n);
    apply(now, 0, o, true);
    memcpy(out, cell, (size_t)n * sizeof(float));
    apply(now, 2, out, false);
    const float *const kept[] = {i, o, f, g, out};
    for (int gate = 0; gate < 5; gate++) keep(now, gate, b, kept[gate]);
    if (is_over(state, b, now->time)) return;
    memcpy(c, cell, (size_t)n * sizeof(float));
    for (int64_t j = 0; j < n; j++) h[j] = o[j] * out[j];
}

// The first two gates; what the third is multiplied by, if it is reset before the product.
static void gru_gates(const Step *now, int64_t b) {
    const int64_t n = now->state->hidden, wide = now->state->wide;
    float *z = now->memory->products + b * 3 * wide, *r = z + wide;
    const float *h = now->memory->h + b * wide;
    add(z, now->shares + b * 3 * wide, 2 * wide);
    apply(now, 0, z, true);
    apply(now, 0, r, true);
    keep(now, 0, b, z);
    keep(now, 1, b, r);
    float *reset = now->memory->reset + b * wide;
    for (int64_t j = 0; j < n; j++) reset[j] = r[j] * h[j];
}

static void gru_sequence(const Step *now, int64_t b) {
    const State *state = now->state;
    const int64_t n = state->hidden, wide = state->wide;
    float *z = now->memory->products + b * 3 * wide, *r = z + wide, *p = r + wide;
    float *h = now->memory->h + b * wide;
    if (state->reset_late) {
        if (now->late_bias) add(p, now->late_bias, n);
        keep(now, 2, b, p);
        for (int64_t j = 0; j < n; j++) p[j] *= r[j];
    }
    add(p, now->shares + (b * 3 + 2) * wide, n);
    apply(now, 1, p, true);
    keep(now, state->reset_late ? 3 : 2, b, p);
    const float left = state->attention ? 1 - state->attention[now->time * state->batch + b] : 1.0f;
    if (is_over(state, b, now->time)) return;
    for (int64_t j = 0; j < n; j++) h[j] = p[j] + z[j] * left * (h[j] - p[j]);
}

void ISA(any_step)(const Step *now) {
    const State *state = now->state;
    const Memory *memory = now->memory;
    const bool early = state->gates == GRU && !state->reset_late;
    const int64_t all = state->gates * state->wide, candidates = 2 * state->wide;
    ISA(pack_state)(state, memory->h, memory->panels);
    ISA(multiply_state)(now, memory->h, 0, early ? candidates : all);
    for (int64_t b = 0; b < state->rows; b++) {
        if (state->gates == RNN)
            rnn_sequence(now, b);
        else if (state->gates == LSTM)
            lstm_sequence(now, b);
        else
            gru_gates(now, b);
    }
    if (state->gates != GRU) return;
    if (early) {
        ISA(pack_state)(state, memory->reset, memory->panels);
        ISA(multiply_state)(now, memory->reset, candidates, all);
    }
    for (int64_t b = 0; b < state->rows; b++) gru_sequence(now, b);
}
