// Steps of LSTM and GRU with sigmoid for gates and tanh for the rest, some units of all rows at a time:
// the gates of a panel of units are computed as soon as their products are there.
#include "recurrent.h"

#include <string.h>

#include "../support/math.h"

typedef struct {
    const Step *now;
    bool candidates;  // of a GRU that resets before: the second half of its step
} Job;

// Gate number `gate` of a panel of units is here, behind those of the first.
INLINE const float *gate_of(const float *first, int gate) { return first + gate * PANEL_COLUMNS; }

INLINE void lstm_units(const float *s, const float *p, float *c, float *h) {
    const float *so = gate_of(s, 1), *sf = gate_of(s, 2), *sg = gate_of(s, 3);
    const float *po = gate_of(p, 1), *pf = gate_of(p, 2), *pg = gate_of(p, 3);
    INDEPENDENT_FOR (int j = 0; j < PANEL_COLUMNS; j++) {
        const float input = fast_sigmoid(s[j] + p[j]), output = fast_sigmoid(so[j] + po[j]);
        const float forget = fast_sigmoid(sf[j] + pf[j]);
        const float cell = forget * c[j] + input * fast_tanh(sg[j] + pg[j]);
        c[j] = cell;
        h[j] = output * fast_tanh(cell);
    }
}

// `bias` is added to the products of candidates, before they are reset.
INLINE void late_gru_units(
    const float *s, const float *p, const float *bias, const float *before, float *h) {
    const float *sr = gate_of(s, 1), *sc = gate_of(s, 2), *pr = gate_of(p, 1), *pc = gate_of(p, 2);
    INDEPENDENT_FOR (int j = 0; j < PANEL_COLUMNS; j++) {
        const float update = fast_sigmoid(s[j] + p[j]), reset = fast_sigmoid(sr[j] + pr[j]);
        const float candidate = fast_tanh(sc[j] + (pc[j] + bias[j]) * reset);
        h[j] = candidate + update * (before[j] - candidate);
    }
}

INLINE void reset_units(const float *s, const float *p, const float *before, float *reset) {
    const float *sr = gate_of(s, 1), *pr = gate_of(p, 1);
    INDEPENDENT_FOR (int j = 0; j < PANEL_COLUMNS; j++)
        reset[j] = fast_sigmoid(sr[j] + pr[j]) * before[j];
}

INLINE void early_gru_units(
    const float *s, const float *p, const float *sc, const float *pc, const float *before,
    float *h) {
    INDEPENDENT_FOR (int j = 0; j < PANEL_COLUMNS; j++) {
        const float update = fast_sigmoid(s[j] + p[j]);
        const float candidate = fast_tanh(sc[j] + pc[j]);
        h[j] = candidate + update * (before[j] - candidate);
    }
}

// A panel of units, from `unit` on, of row `b`.
static void make_units(const Job *job, int64_t b, int64_t unit) {
    static const float nothing[PANEL_COLUMNS] = {0};
    const Step *now = job->now;
    const State *state = now->state;
    const Memory *memory = now->memory;
    const int64_t cell = b * state->wide + unit, row = b * state->gates * state->wide;
    const float *s = now->shares + row, *p = memory->products + row, *before = memory->h + cell;
    const int64_t at = column_of(state, 0, unit), last = column_of(state, state->gates - 1, unit);
    float *h = memory->next + cell;
    if (is_over(state, b, now->time))
        memcpy(h, before, PANEL_COLUMNS * sizeof(float));
    else if (state->gates == LSTM)
        lstm_units(s + at, p + at, memory->c + cell, h);
    else if (state->reset_late)
        late_gru_units(s + at, p + at, now->late_bias ? now->late_bias + unit : nothing, before, h);
    else if (job->candidates)
        early_gru_units(s + at, p + at, s + last, p + last, before, h);
    else
        reset_units(s + at, p + at, before, memory->reset + cell);
}

static void some_units(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Job *job = context;
    const State *state = job->now->state;
    const Memory *memory = job->now->memory;
    const int64_t begin = chunk * state->chunk, end = lesser(begin + state->chunk, state->wide);
    int first, behind;
    group_of(state, job->candidates ? 2 : 0, &first, &behind);
    const int64_t columns = first * state->wide, gates = behind - first;
    const float *h = job->candidates ? memory->reset : memory->h;
    ISA(multiply_state)(job->now, h, columns + begin * gates, columns + end * gates);
    for (int64_t b = 0; b < state->batch; b++)
        for (int64_t unit = begin; unit < end; unit += PANEL_COLUMNS) make_units(job, b, unit);
}

void ISA(usual_step)(const Step *now, const Run *run) {
    const State *state = now->state;
    const Memory *memory = now->memory;
    Job job = {now, false};
    ISA(pack_state)(state, memory->h, memory->panels);
    share_chunks(run, state->chunks, some_units, &job);
    if (state->gates == LSTM || state->reset_late) return;
    job.candidates = true;
    ISA(pack_state)(state, memory->reset, memory->panels);
    share_chunks(run, state->chunks, some_units, &job);
}
