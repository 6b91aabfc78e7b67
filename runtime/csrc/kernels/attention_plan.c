#include "attention_plan.h"

#include <stdlib.h>

#include "few_queries.h"
#include "gemm.h"

enum { KEYS = 256, FEW_PANELS = 2, MANY_HEADS = 8 };

// Parts of a thread's memory behind each other; the number of floats.
static int64_t lay_out(Attention *state) {
    const int64_t panel = state->depth * TILE_COLUMNS, block = state->block * TILE_COLUMNS;
    int64_t at = padded(padded(state->block, TILE_ROWS) * state->depth, 16);
    state->values_at = at;
    state->queries_at = at += padded(padded(state->width, TILE_ROWS) * state->block, 16);
    state->sums_at = at += state->chunk * panel;
    state->states_at = at += state->chunk * state->width * TILE_COLUMNS;
    state->scores_at = at += state->chunk * 2 * TILE_COLUMNS;
    state->bias_at = at += block;
    state->turned_at = at += state->hides ? block : 0;
    return at + padded(state->width, TILE_COLUMNS) * TILE_COLUMNS;
}

// Whether operands have the sizes of `state`, and those that are not wanted are absent.
static bool operands_fit(const Attention *state, const Tensor *tensors, const Tensor *lengths) {
    const Tensor *q = tensors, *k = q + 1, *v = q + 2, *out = q + 3, *mask = q + 4, *scores = q + 5;
    const int64_t batch = state->batch, rows = state->rows, keys = state->keys;
    const int64_t heads = state->heads * state->group;
    for (int i = 0; i < 6; i++)
        if (tensors[i].dtype != F32 && !(i == 4 && tensors[i].dtype == BOOL)) return false;
    const bool stored = state->stage != NOT_STORED;
    return are_heads(q, batch, heads, rows, state->depth) && state->stage <= WEIGHTS &&
           state->stage >= NOT_STORED && stored == (scores->data != NULL) &&
           are_heads(k, batch, state->heads, keys, state->depth) &&
           are_heads(v, batch, state->heads, keys, state->width) &&
           are_heads(out, batch, heads, rows, state->width) &&
           (!mask->data || are_heads(mask, batch, heads, rows, keys)) &&
           (!stored || are_heads(scores, batch, heads, rows, keys)) &&
           may_hold(lengths, I64, batch) && element_count(q) > 0 && element_count(k) > 0 &&
           element_count(v) > 0;
}

static bool is_position(int64_t number) { return number >= -MOST_BYTES && number <= MOST_BYTES; }

static bool read_state(Attention *state, Params *params) {
    Tensor tensors[6];
    Heads *read[] = {&state->q, &state->k, &state->v, &state->out, &state->mask, &state->scores};
    for (int i = 0; i < 6; i++) *read[i] = next_heads(params, &tensors[i]);
    const Tensor lengths = maybe_tensor(params), *q = tensors, *k = q + 1;
    state->lengths = (const int64_t *)lengths.data;
    state->scale = (float)next_float(params);
    state->softcap = (float)next_float(params);
    state->stage = (Stage)next_int(params);
    state->offset = next_int(params);
    state->reaches = next_int(params) != 0;
    state->reach = next_int(params);
    state->left = next_int(params);
    if (params->bad || k->dims[1] <= 0) return false;
    state->batch = q->dims[0];
    state->heads = k->dims[1];
    state->group = q->dims[1] / k->dims[1];
    state->rows = q->dims[2];
    state->depth = q->dims[3];
    state->keys = k->dims[2];
    state->width = tensors[2].dims[3];
    state->hides = state->mask.data || state->lengths || state->reaches || state->left >= 0;
    return is_position(state->offset) && is_position(state->reach) && is_position(state->left) &&
           operands_fit(state, tensors, &lengths);
}

void *ISA(prepare_attention)(Params *params, Needs *needs) {
    Attention *state = calloc(1, sizeof(Attention));
    if (!state) return NULL;
    if (!read_state(state, params)) {
        free(state);
        return NULL;
    }
    // Weights are known, and stored, once all keys have been seen.
    state->block = state->stage == NOT_STORED ? lesser(state->keys, KEYS) : state->keys;
    state->few = state->group * state->rows <= FEW_QUERIES && state->k.strides[3] == 1 &&
                 state->v.strides[3] == 1;
    state->panels = ceil_div(state->group * state->rows, TILE_COLUMNS);
    const bool many = state->batch * state->heads >= MANY_HEADS;
    state->chunk = lesser(many ? MANY_PANELS : FEW_PANELS, state->panels);
    needs->own = lay_out(state) * (int64_t)sizeof(float);
    return state;
}
