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

// Where what the gradient needs of a panel of units goes: as many of these as there are kept gates.
typedef float *const Kept[5];

// `before` is the cell state; `keeps` is constant.
INLINE void lstm_units(
    const float *s, const float *p, const float *before, float *c, float *h, Kept kept,
    const bool keeps) {
    const float *so = gate_of(s, 1), *sf = gate_of(s, 2), *sg = gate_of(s, 3);
    const float *po = gate_of(p, 1), *pf = gate_of(p, 2), *pg = gate_of(p, 3);
    INDEPENDENT_FOR (int j = 0; j < PANEL_COLUMNS; j++) {
        const float input = fast_sigmoid(s[j] + p[j]), output = fast_sigmoid(so[j] + po[j]);
        const float forget = fast_sigmoid(sf[j] + pf[j]), wanted = fast_tanh(sg[j] + pg[j]);
        const float cell = forget * before[j] + input * wanted, shown = fast_tanh(cell);
        c[j] = cell;
        h[j] = output * shown;
        if (keeps) {
            kept[0][j] = input;
            kept[1][j] = output;
            kept[2][j] = forget;
            kept[3][j] = wanted;
            kept[4][j] = shown;
        }
    }
}

// `bias` is added to the products of candidates, before they are reset.
INLINE void late_gru_units(
    const float *s, const float *p, const float *bias, const float *before, float *h, Kept kept) {
    const float *sr = gate_of(s, 1), *sc = gate_of(s, 2), *pr = gate_of(p, 1), *pc = gate_of(p, 2);
    INDEPENDENT_FOR (int j = 0; j < PANEL_COLUMNS; j++) {
        const float update = fast_sigmoid(s[j] + p[j]), reset = fast_sigmoid(sr[j] + pr[j]);
        const float product = pc[j] + bias[j], candidate = fast_tanh(sc[j] + product * reset);
        h[j] = candidate + update * (before[j] - candidate);
        kept[0][j] = update;
        kept[1][j] = reset;
        kept[2][j] = product;
        kept[3][j] = candidate;
    }
}

INLINE void reset_units(
    const float *s, const float *p, const float *before, float *reset, Kept kept) {
    const float *sr = gate_of(s, 1), *pr = gate_of(p, 1);
    INDEPENDENT_FOR (int j = 0; j < PANEL_COLUMNS; j++) {
        const float gate = fast_sigmoid(sr[j] + pr[j]);
        reset[j] = gate * before[j];
        kept[1][j] = gate;
    }
}

INLINE void early_gru_units(
    const float *s, const float *p, const float *sc, const float *pc, const float *before, float *h,
    Kept kept) {
    INDEPENDENT_FOR (int j = 0; j < PANEL_COLUMNS; j++) {
        const float update = fast_sigmoid(s[j] + p[j]);
        const float candidate = fast_tanh(sc[j] + pc[j]);
        h[j] = candidate + update * (before[j] - candidate);
        kept[0][j] = update;
        kept[2][j] = candidate;
    }
}

// Where a kept gate of units of row `b` lies.
static float *place_of(const Step *now, int64_t b, int64_t unit, int gate) {
    const State *state = now->state;
    const int64_t place = (gate * state->directions + now->direction) * state->steps + now->time;
    return state->kept_gates + (place * state->batch + b) * state->hidden + unit;
}

// The same of a whole panel, or else `spare`.
static float *room_for(const Step *now, int64_t b, int64_t unit, int gate, float *spare) {
    const bool fits = now->state->kept_gates && unit + PANEL_COLUMNS <= now->state->hidden;
    return fits ? place_of(now, b, unit, gate) : spare + gate * PANEL_COLUMNS;
}

static void keep_part(const Step *now, int64_t b, int64_t unit, const float *spare, int gate) {
    const int64_t left = now->state->hidden - unit;
    if (now->state->kept_gates && left < PANEL_COLUMNS)
        copy_floats(place_of(now, b, unit, gate), spare + gate * PANEL_COLUMNS, left);
}

static void lstm_panel(
    const Step *now, int64_t b, int64_t unit, const float *s, const float *p, float *c, float *h) {
    float spare[5 * PANEL_COLUMNS];
    Kept kept = {
        room_for(now, b, unit, 0, spare), room_for(now, b, unit, 1, spare),
        room_for(now, b, unit, 2, spare), room_for(now, b, unit, 3, spare),
        room_for(now, b, unit, 4, spare)};
    const float *before = now->memory->c + b * now->state->wide + unit;
    if (!now->state->kept_gates) {
        lstm_units(s, p, before, c, h, kept, false);
        return;
    }
    lstm_units(s, p, before, c, h, kept, true);
    for (int gate = 0; gate < 5; gate++) keep_part(now, b, unit, spare, gate);
}

// Whole panels of row `b`, from unit `begin` on; `keeps` is constant.
INLINE void lstm_panels(const Step *now, int64_t b, int64_t begin, int64_t end, const bool keeps) {
    const State *state = now->state;
    const Memory *memory = now->memory;
    const int64_t cell = b * state->wide + begin;
    const int64_t at = b * LSTM * state->wide + column_of(state, 0, begin);
    const float *s = now->shares + at, *p = memory->products + at, *before = memory->c + cell;
    float *c = memory->next_c + cell, *h = memory->next + cell, *kept[5] = {NULL};
    for (int gate = 0; keeps && gate < 5; gate++) kept[gate] = place_of(now, b, begin, gate);
    for (int64_t unit = 0; unit < end - begin; unit += PANEL_COLUMNS) {
        const Kept now_kept = {
            kept[0] + unit, kept[1] + unit, kept[2] + unit, kept[3] + unit, kept[4] + unit};
        const int64_t gates = LSTM * unit;
        lstm_units(s + gates, p + gates, before + unit, c + unit, h + unit, now_kept, keeps);
    }
}

static void gru_panel(
    const Job *job, int64_t b, int64_t unit, const float *s, const float *p, float *h) {
    static const float nothing[PANEL_COLUMNS] = {0};
    const Step *now = job->now;
    const State *state = now->state;
    const int64_t cell = b * state->wide + unit;
    const float *before = now->memory->h + cell;
    const float *late = now->late_bias ? now->late_bias + unit : nothing;
    const int64_t candidates = column_of(state, 2, unit) - column_of(state, 0, unit);
    float spare[4 * PANEL_COLUMNS];
    Kept kept = {
        room_for(now, b, unit, 0, spare), room_for(now, b, unit, 1, spare),
        room_for(now, b, unit, 2, spare), room_for(now, b, unit, 3, spare), NULL};
    if (state->reset_late)
        late_gru_units(s, p, late, before, h, kept);
    else if (job->candidates)
        early_gru_units(s, p, s + candidates, p + candidates, before, h, kept);
    else
        reset_units(s, p, before, now->memory->reset + cell, kept);
    const bool all = state->reset_late, half = job->candidates;
    for (int gate = 0; gate < 3 + all; gate++)
        if (all || half == (gate != 1)) keep_part(now, b, unit, spare, gate);
}

// A panel of units, from `unit` on, of row `b`.  Of a sequence that has ended gates are kept, and the
// state stays.
static void make_units(const Job *job, int64_t b, int64_t unit) {
    const Step *now = job->now;
    const State *state = now->state;
    const Memory *memory = now->memory;
    const int64_t cell = b * state->wide + unit, row = b * state->gates * state->wide;
    const int64_t at = row + column_of(state, 0, unit);
    float *h = memory->next + cell, *c = memory->next_c + cell, spare[2][PANEL_COLUMNS];
    if (is_over(state, b, now->time)) {
        memmove(h, memory->h + cell, PANEL_COLUMNS * sizeof(float));
        memmove(c, memory->c + cell, PANEL_COLUMNS * sizeof(float));
        if (!state->kept_gates) return;
        h = spare[0];
        c = spare[1];
    }
    if (state->gates == LSTM)
        lstm_panel(now, b, unit, now->shares + at, memory->products + at, c, h);
    else
        gru_panel(job, b, unit, now->shares + at, memory->products + at, h);
}

// Units begin .. end - 1 of a row, as long as nothing is special about them; where the others begin.
static int64_t make_panels(const Step *now, int64_t b, int64_t begin, int64_t end) {
    const State *state = now->state;
    const int64_t whole = lesser(end, state->hidden / PANEL_COLUMNS * PANEL_COLUMNS);
    if (state->gates != LSTM || whole <= begin || is_over(state, b, now->time)) return begin;
    if (state->kept_gates)
        lstm_panels(now, b, begin, whole, true);
    else
        lstm_panels(now, b, begin, whole, false);
    return whole;
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
    for (int64_t b = 0; b < state->rows; b++)
        for (int64_t unit = make_panels(job->now, b, begin, end); unit < end; unit += PANEL_COLUMNS)
            make_units(job, b, unit);
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
