#include "attention_plan.h"

#include <stdlib.h>

#include "few_queries.h"
#include "../matmul/gemm.h"

// Keys whose scores a panel of queries keeps at once: 16 KiB with AVX2, which the first cache holds, and
// 64 KiB of packed keys for heads of 64.  So many heads of all samples are enough chunks for a few
// threads, and keys are packed for as many panels as may be; of fewer heads, chunks have two panels.
enum {
    KEYS = 256,
    FEW_PANELS = 2,
    MANY_HEADS = 4,
    // Keys that are read where they lie.  Their distance may be a multiple of 4 KiB: then these fill the
    // places of the second cache that they have, of 512 KiB with eight ways.
    UNPACKED_KEYS = 128,
};

// Parts of a thread's memory behind each other; the number of floats.
static int64_t lay_out(Attention *state) {
    const int64_t panel = state->sizes.depth * TILE_COLUMNS, block = state->block * TILE_COLUMNS;
    int64_t at = padded(padded(state->block, TILE_ROWS) * state->sizes.depth, 16);
    state->values_at = at;
    state->queries_at = at += padded(padded(state->sizes.width, TILE_ROWS) * state->block, 16);
    state->sums_at = at += state->chunk * panel;
    state->states_at = at += state->chunk * state->sizes.width * TILE_COLUMNS;
    state->scores_at = at += state->chunk * 2 * TILE_COLUMNS;
    state->bias_at = at += block;
    state->turned_at = at += state->hides ? block : 0;
    return at + padded(state->sizes.width, TILE_COLUMNS) * TILE_COLUMNS;
}

// Whether operands have the sizes of `state`, and those that are not wanted are absent.
static bool operands_fit(const Attention *state, const Tensor *tensors, const Tensor *lengths) {
    const Tensor *q = tensors, *k = q + 1, *v = q + 2, *out = q + 3, *mask = q + 4, *scores = q + 5;
    const HeadSizes *sizes = &state->sizes;
    const int64_t batch = sizes->batch, heads = sizes->heads * sizes->group, rows = sizes->rows;
    for (int i = 0; i < 6; i++)
        if (tensors[i].dtype != F32 && !(i == 4 && tensors[i].dtype == BOOL)) return false;
    const bool stored = state->stage != NOT_STORED;
    return have_sizes(q, sizes) && state->stage >= NOT_STORED && state->stage <= WEIGHTS &&
           stored == (scores->data != NULL) && are_heads(out, batch, heads, rows, sizes->width) &&
           (!mask->data || are_heads(mask, batch, heads, rows, sizes->keys)) &&
           (!stored || are_heads(scores, batch, heads, rows, sizes->keys)) &&
           may_hold(lengths, I64, batch) && element_count(q) > 0 && element_count(k) > 0 &&
           element_count(v) > 0;
}

static bool is_position(int64_t number) { return number >= -MOST_BYTES && number <= MOST_BYTES; }

static bool read_state(Attention *state, Params *params) {
    Tensor tensors[6];
    Heads *read[] = {&state->q, &state->k, &state->v, &state->out, &state->mask, &state->scores};
    for (int i = 0; i < 6; i++) *read[i] = next_heads(params, &tensors[i]);
    const Tensor lengths = maybe_tensor(params), sinks = maybe_tensor(params);
    state->lengths = (const int64_t *)lengths.data;
    state->sinks = (const float *)sinks.data;
    state->scale = (float)next_float(params);
    state->softcap = (float)next_float(params);
    state->stage = (Stage)next_int(params);
    state->offset = next_int(params);
    state->reaches = next_int(params) != 0;
    state->reach = next_int(params);
    state->left = next_int(params);
    state->sizes = head_sizes(tensors, params);
    state->hides = state->mask.data || state->lengths || state->reaches || state->left >= 0;
    return !params->bad && is_position(state->offset) && is_position(state->reach) &&
           is_position(state->left) && operands_fit(state, tensors, &lengths) &&
           may_hold(&sinks, F32, state->sizes.heads * state->sizes.group);
}

void *ISA(prepare_attention)(Params *params, Needs *needs) {
    Attention *state = calloc(1, sizeof(Attention));
    if (!state) return NULL;
    if (!read_state(state, params)) {
        free(state);
        return NULL;
    }
    // Weights are known, and stored, once all keys have been seen.
    state->block = state->stage == NOT_STORED ? lesser(state->sizes.keys, KEYS) : state->sizes.keys;
    state->few = state->sizes.group * state->sizes.rows <= FEW_QUERIES &&
                 state->k.strides[3] == 1 && state->v.strides[3] == 1;
    state->packs = !state->few && state->sizes.keys > UNPACKED_KEYS;
    state->panels = ceil_div(state->sizes.group * state->sizes.rows, TILE_COLUMNS);
    const int64_t heads = state->sizes.batch * state->sizes.heads;
    const int64_t wanted = heads >= MANY_HEADS ? MANY_PANELS : state->panels * heads / MANY_HEADS;
    state->chunk = lesser(lesser(greater(wanted, FEW_PANELS), MANY_PANELS), state->panels);
    needs->own = lay_out(state) * (int64_t)sizeof(float);
    Heads *read[] = {&state->q, &state->k, &state->v, &state->mask};
    for (int i = 0; i < 4; i++) reads_anywhere(needs, &read[i]->data);
    writes_anywhere(needs, &state->out.data);
    return state;
}
