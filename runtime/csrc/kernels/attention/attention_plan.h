// What attention works on, and how it is divided.
#ifndef POPC_ATTENTION_PLAN_H
#define POPC_ATTENTION_PLAN_H

#include "../../kernel.h"
#include "heads.h"
#include "../support/simd.h"

enum { MANY_PANELS = 8 };  // of a chunk at most

typedef enum { NOT_STORED = -1, PRODUCT, CAPPED, MASKED, WEIGHTS } Stage;

typedef struct {
    HeadSizes sizes;
    Heads q, k, v, out, mask, scores;
    const int64_t *lengths;  // keys of each sample; NULL: all
    const float *sinks;  // a score of each query head that is counted beside those of keys, or NULL
    float scale, softcap;
    Stage stage;  // of the scores that are stored
    int64_t offset, reach, left;  // what a query sees: from position - left to position + reach
    bool reaches, hides;  // `reach` counts; not every key is visible everywhere, or there is a mask
    bool few;  // queries: nothing is packed
    bool packs;  // keys and values
    int64_t block;  // keys that are shown at once
    int64_t panels, chunk;  // of the queries of a key head; of them, in a chunk
    // Where things are in a thread's memory, in floats.
    int64_t values_at, queries_at, sums_at, states_at, scores_at, bias_at, turned_at;
} Attention;

void *ISA(prepare_attention)(Params *params, Needs *needs);

#endif
