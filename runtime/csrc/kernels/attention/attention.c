// Attention: softmax(scale Q K^T + mask) V without scores in memory.
//
// Everything is turned: the scores of a panel of TILE_COLUMNS queries are [key][query], which is
// both what a tile makes of packed keys and queries, and the packed right side of the product with
// the values.  The softmax of a query then lies across vectors, not along them.
//
// Queries are those of all heads that share a key head, one head after another.  A chunk packs some
// keys and values, shows them to all its queries, and takes the next; largest scores and sums of
// queries are kept, and what was added up before is scaled when a larger score appears.
#include <math.h>
#include <string.h>

#include "attention_plan.h"
#include "few_queries.h"
#include "../matmul/strided.h"
#include "../support/math.h"
#include "../support/vector_exp.h"

typedef struct {
    const Attention *state;
    const Run *run;
} Job;

// A panel of queries: which they are, and which keys they see.
typedef struct {
    int64_t image, kv_head, first;
    int count, lanes;  // queries, and columns that are computed
    int64_t begin[TILE_COLUMNS], end[TILE_COLUMNS];  // keys that each sees
    int64_t last;  // no query sees a key from here on
    const float *k, *v;  // of its key head
    float *queries, *sums, *peaks, *totals;
} Panel;

// -- masks ----------------------------------------------------------------------------------------

// Which keys the queries of a panel see by their positions.
static void look(const Attention *state, Panel *panel) {
    const int64_t ends = state->lengths ? state->lengths[panel->image] : state->sizes.keys;
    const int64_t offset = state->lengths ? ends - state->sizes.rows : state->offset;
    panel->last = 0;
    for (int c = 0; c < panel->count; c++) {
        const int64_t position = (panel->first + c) % state->sizes.rows + offset;
        panel->begin[c] = state->left >= 0 ? position - state->left : 0;
        panel->end[c] = lesser(ends, state->sizes.keys);
        if (state->reaches) panel->end[c] = lesser(panel->end[c], position + state->reach + 1);
        if (panel->end[c] > panel->last) panel->last = panel->end[c];
    }
    if (state->stage != NOT_STORED) panel->last = state->sizes.keys;
}

// Where the numbers of query `c` of a panel begin.
static int64_t place_of(const Attention *state, const Panel *panel, const Heads *heads, int c) {
    const int64_t query = panel->first + c, *s = heads->strides;
    const int64_t head = panel->kv_head * state->sizes.group + query / state->sizes.rows;
    return panel->image * s[0] + head * s[1] + query % state->sizes.rows * s[2];
}

// Whether all queries of a panel are of one head.
static bool one_member(const Attention *state, const Panel *panel) {
    return panel->first / state->sizes.rows ==
           (panel->first + panel->count - 1) / state->sizes.rows;
}

// Numbers of queries, [query][n], as a panel.
static void pack_queries(
    const Attention *state, const Panel *panel, const Heads *heads, int64_t first, int64_t n,
    float *to) {
    const float *from = (const float *)heads->data + first * heads->strides[3];
    if (one_member(state, panel)) {
        ISA(pack_panels)(
            to, from + place_of(state, panel, heads, 0), heads->strides[2], heads->strides[3],
            panel->count, n, TILE_COLUMNS);
        return;
    }
    memset(to, 0, (size_t)(n * TILE_COLUMNS) * sizeof(float));
    for (int c = 0; c < panel->count; c++) {
        const float *line = from + place_of(state, panel, heads, c);
        for (int64_t i = 0; i < n; i++) to[i * TILE_COLUMNS + c] = line[i * heads->strides[3]];
    }
}

// What is added to the scores of keys first .. first + n - 1.
static void fill_bias(
    const Attention *state, const Panel *panel, int64_t first, int64_t n, float *bias) {
    const Heads *mask = &state->mask;
    if (mask->data && mask->dtype == F32)
        pack_queries(state, panel, mask, first, n, bias);
    else
        memset(bias, 0, (size_t)(n * TILE_COLUMNS) * sizeof(float));
    for (int c = 0; c < panel->count; c++) {
        if (mask->data && mask->dtype == BOOL) {
            const char *line = mask->data + place_of(state, panel, mask, c) +
                               first * mask->strides[3];
            for (int64_t i = 0; i < n; i++)
                if (!line[i * mask->strides[3]]) bias[i * TILE_COLUMNS + c] = -INFINITY;
        }
        const int64_t begin = panel->begin[c] - first, end = panel->end[c] - first;
        for (int64_t i = 0; i < lesser(begin, n); i++) bias[i * TILE_COLUMNS + c] = -INFINITY;
        for (int64_t i = end < 0 ? 0 : end; i < n; i++) bias[i * TILE_COLUMNS + c] = -INFINITY;
    }
}

// -- a panel of queries and some keys -------------------------------------------------------------

// out[m][lanes] = (or, if `add`, +=) left right.
static void multiply(
    LeftTiles left, const float *right, int64_t k, float *out, int64_t m, int lanes, bool add) {
    for (int64_t done = 0; done < k; done += DEPTH) {
        ISA(multiply_strided)(
            left, right + done * TILE_COLUMNS, lesser(k - done, DEPTH), out, m, lanes,
            add || done > 0);
        left.data += DEPTH * left.column;
    }
}

// Keys, and values turned, from number `first` on: as they lie, or as they were packed.
static LeftTiles keys_of(
    const Attention *state, const Panel *panel, const float *own, int64_t first) {
    const int64_t *s = state->k.strides;
    if (state->packs) return packed_tiles(own, state->sizes.depth);
    return tiles_of(panel->k + first * s[2], s[2], s[3]);
}

static LeftTiles values_of(
    const Attention *state, const Panel *panel, const float *own, int64_t first, int64_t n) {
    const int64_t *s = state->v.strides;
    if (state->packs) return packed_tiles(own + state->values_at, n);
    return tiles_of(panel->v + first * s[2], s[3], s[2]);
}

static void store_scores(
    const Attention *state, const Panel *panel, const float *scores, int64_t n, float factor) {
    const Heads *heads = &state->scores;
    for (int c = 0; c < panel->count; c++) {
        float *line = (float *)heads->data + place_of(state, panel, heads, c);
        for (int64_t i = 0; i < n; i++)
            line[i * heads->strides[3]] = scores[i * TILE_COLUMNS + c] * factor;
    }
}

// Soft capping of scores that are divided by the cap already.
static void cap_scores(const Panel *panel, float *scores, int64_t n, float cap) {
    for (int64_t i = 0; i < n; i++) {
        float *line = scores + i * TILE_COLUMNS;
        for (int c = 0; c < panel->lanes; c++) line[c] = cap * fast_tanh(line[c]);
    }
}

// The largest score of each of a vector of queries.  Not a number is passed over: it is in the sum of
// the exponentials all the same.
static Floats find_peaks(const float *scores, int64_t n, Floats before) {
    Floats peaks[4] = {before, before, before, before};
    int64_t i = 0;
    for (; i + 4 <= n; i += 4)
        UNROLLED_FOR (int j = 0; j < 4; j++)
            peaks[j] = all_at_least(load(scores + (i + j) * TILE_COLUMNS), peaks[j]);
    for (; i < n; i++) peaks[0] = all_at_least(load(scores + i * TILE_COLUMNS), peaks[0]);
    return all_at_least(all_at_least(peaks[0], peaks[1]), all_at_least(peaks[2], peaks[3]));
}

// The exponentials of a vector of queries, in place; scales what they have added up before.
static void weigh(
    const Attention *state, Panel *panel, float *scores, int64_t n, int at, bool first) {
    const Floats before = load(panel->peaks + at), peak = find_peaks(scores + at, n, before);
    const Floats none = all_of(-INFINITY);  // nothing has been visible yet
    const Floats shift = select_of(peak == none, (Floats){0}, peak);
    const Floats factor = exp_of_below(before - shift);
    Floats total = load(panel->totals + at) * factor;
    store(panel->peaks + at, peak);
    int64_t i = 0;
    for (float *line = scores + at; i < n; i++, line += TILE_COLUMNS) {
        const Floats weight = exp_of_below(load(line) - shift);
        store(line, weight);
        total += weight;
    }
    store(panel->totals + at, total);
    if (first) return;
    for (i = 0; i < state->sizes.width; i++) {
        float *line = panel->sums + i * TILE_COLUMNS + at;
        store(line, load(line) * factor);
    }
}

// Shows keys first .. first + n - 1, packed, to a panel.
static void show(const Attention *state, Panel *panel, float *own, int64_t first, int64_t n) {
    float *scores = own + state->scores_at, *bias = own + state->bias_at;
    if (state->few)
        score_lines(
            panel->queries, panel->count, panel->k + first * state->k.strides[2],
            state->k.strides[2], n, state->sizes.depth, scores);
    else
        multiply(
            keys_of(state, panel, own, first), panel->queries, state->sizes.depth, scores, n,
            panel->lanes, false);
    const bool capped = state->softcap != 0;
    if (state->stage == PRODUCT) store_scores(state, panel, scores, n, capped ? state->softcap : 1);
    if (capped) cap_scores(panel, scores, n, state->softcap);
    if (state->stage == CAPPED) store_scores(state, panel, scores, n, 1);
    if (state->hides) {
        fill_bias(state, panel, first, n, bias);
        for (int64_t i = 0; i < n; i++)
            for (int at = 0; at < panel->lanes; at += LANES) {
                float *line = scores + i * TILE_COLUMNS + at;
                store(line, load(line) + load(bias + i * TILE_COLUMNS + at));
            }
    }
    if (state->stage == MASKED) store_scores(state, panel, scores, n, 1);
    for (int at = 0; at < panel->lanes; at += LANES) weigh(state, panel, scores, n, at, first == 0);
    if (state->few)
        add_lines(
            scores, panel->count, panel->v + first * state->v.strides[2], state->v.strides[2], n,
            state->sizes.width, panel->sums);
    else
        multiply(
            values_of(state, panel, own, first, n), scores, n, panel->sums, state->sizes.width,
            panel->lanes, first > 0);
}

// -- chunks ---------------------------------------------------------------------------------------

// Queries behind each other.
static void copy_queries(const Attention *state, Panel *panel) {
    const int64_t step = state->q.strides[3], depth = state->sizes.depth;
    for (int c = 0; c < panel->count; c++) {
        const float *line = (const float *)state->q.data + place_of(state, panel, &state->q, c);
        for (int64_t i = 0; i < depth; i++) panel->queries[c * depth + i] = line[i * step];
    }
}

static void open_panel(const Attention *state, Panel *panel, float *own, int64_t index) {
    const int64_t all = state->sizes.group * state->sizes.rows;
    panel->count = (int)lesser(all - panel->first, TILE_COLUMNS);
    panel->lanes = panel->count <= LANES ? LANES : TILE_COLUMNS;
    panel->queries = own + state->queries_at + index * state->sizes.depth * TILE_COLUMNS;
    panel->sums = own + state->sums_at + index * state->sizes.width * TILE_COLUMNS;
    panel->peaks = own + state->states_at + index * 2 * TILE_COLUMNS;
    panel->totals = panel->peaks + TILE_COLUMNS;
    for (int c = 0; c < TILE_COLUMNS; c++) {
        panel->peaks[c] = -INFINITY;
        panel->totals[c] = 0;
    }
    for (int c = 0; state->sinks && c < panel->count; c++) {
        const int64_t member = (panel->first + c) / state->sizes.rows;
        const float sink = state->sinks[panel->kv_head * state->sizes.group + member];
        if (sink == -INFINITY) continue;
        panel->peaks[c] = sink;
        panel->totals[c] = 1;
    }
    look(state, panel);
    const int64_t *ks = state->k.strides, *vs = state->v.strides;
    panel->k = (const float *)state->k.data + panel->image * ks[0] + panel->kv_head * ks[1];
    panel->v = (const float *)state->v.data + panel->image * vs[0] + panel->kv_head * vs[1];
    memset(panel->sums, 0, (size_t)(state->sizes.width * TILE_COLUMNS) * sizeof(float));
    if (state->few)
        copy_queries(state, panel);
    else
        pack_queries(state, panel, &state->q, 0, state->sizes.depth, panel->queries);
    const float scale = state->softcap != 0 ? state->scale / state->softcap : state->scale;
    const int64_t size = state->sizes.depth * (state->few ? panel->count : TILE_COLUMNS);
    for (int64_t i = 0; i < size; i++) panel->queries[i] *= scale;
}

// Exponentials that are not divided by their sums yet.
static void store_weights(const Attention *state, const Panel *panel, float *scores) {
    for (int64_t i = 0; i < state->sizes.keys; i++)
        for (int c = 0; c < panel->count; c++) scores[i * TILE_COLUMNS + c] *= panel->totals[c];
    store_scores(state, panel, scores, state->sizes.keys, 1);
}

static void put_line(float *to, int64_t step, const float *from, int64_t n, float factor) {
    int64_t i = 0;
    for (; step == 1 && i + LANES <= n; i += LANES) store(to + i, load(from + i) * factor);
    for (; i < n; i++) to[i * step] = from[i] * factor;
}

// Divides by the sums, and writes the results; zero where no key was visible.
static void close_panel(const Attention *state, Panel *panel, float *own) {
    const Heads *out = &state->out;
    float *turned = own + state->turned_at;
    for (int c = 0; c < panel->count; c++)
        panel->totals[c] = panel->totals[c] != 0 ? 1.0f / panel->totals[c] : 0;
    if (state->stage == WEIGHTS) store_weights(state, panel, own + state->scores_at);
    // [TILE_COLUMNS of the results][query][...]
    for (int64_t first = 0; first < state->sizes.width; first += TILE_COLUMNS) {
        const int64_t n = lesser(state->sizes.width - first, TILE_COLUMNS);
        ISA(pack_panels)(
            turned, panel->sums + first * TILE_COLUMNS, TILE_COLUMNS, 1, n, panel->count,
            TILE_COLUMNS);
        for (int c = 0; c < panel->count; c++) {
            float *to = (float *)out->data + place_of(state, panel, out, c);
            put_line(
                to + first * out->strides[3], out->strides[3], turned + c * TILE_COLUMNS, n,
                panel->totals[c]);
        }
    }
}

// Keys and values first .. first + n - 1 of the key head of `panel`.
static void pack_keys(
    const Attention *state, const Panel *panel, float *own, int64_t first, int64_t n) {
    const int64_t *ks = state->k.strides, *vs = state->v.strides;
    ISA(pack_panels)(own, panel->k + first * ks[2], ks[2], ks[3], n, state->sizes.depth, TILE_ROWS);
    ISA(pack_panels)(
        own + state->values_at, panel->v + first * vs[2], vs[3], vs[2], state->sizes.width, n,
        TILE_ROWS);
}

static void some_panels(void *context, int64_t chunk, int thread) {
    const Job *job = context;
    const Attention *state = job->state;
    float *own = (float *)job->run->own[thread];
    const int64_t parts = ceil_div(state->panels, state->chunk), head = chunk / parts;
    const int64_t begin = chunk % parts * state->chunk;
    const int64_t count = lesser(state->panels - begin, state->chunk);
    Panel panels[MANY_PANELS];
    int64_t last = 0;
    for (int64_t i = 0; i < count; i++) {
        panels[i].image = head / state->sizes.heads;
        panels[i].kv_head = head % state->sizes.heads;
        panels[i].first = (begin + i) * TILE_COLUMNS;
        open_panel(state, &panels[i], own, i);
        if (panels[i].last > last) last = panels[i].last;
    }
    for (int64_t first = 0; first < last; first += state->block) {
        const int64_t n = lesser(last - first, state->block);
        if (state->packs) pack_keys(state, panels, own, first, n);
        for (int64_t i = 0; i < count; i++) {
            if (panels[i].last <= first) continue;
            show(state, &panels[i], own, first, n);
            if (state->stage == WEIGHTS) close_panel(state, &panels[i], own);
        }
    }
    for (int64_t i = 0; i < count; i++)
        if (state->stage != WEIGHTS) close_panel(state, &panels[i], own);
}

static Failure run_attention(const void *argument, const Run *run) {
    const Attention *state = argument;
    Job job = {state, run};
    const int64_t parts = ceil_div(state->panels, state->chunk);
    share_chunks(run, state->sizes.batch * state->sizes.heads * parts, some_panels, &job);
    return OK;
}

const Kernel ISA(ATTENTIONS)[] = {
    {"Attention_f32", ISA(prepare_attention), run_attention, NULL},
    {NULL, NULL, NULL, NULL},
};
