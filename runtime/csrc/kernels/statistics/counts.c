// Ranks of elements among boundaries, how many are between levels.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../../kernel.h"
#include "../support/simd.h"
#include "../support/sizes.h"

// -- ranks ----------------------------------------------------------------------------------------

typedef struct {
    Tensor x, levels, out;
    int64_t count, boundaries;
    bool right;  // an element is behind boundaries that it is equal to
} Ranks;

enum { RANKED = 1 << 12 };  // elements of a chunk, each of which is looked for: see sizes.h

static void *prepare_ranks(Params *params, Needs *needs) {
    (void)needs;
    Ranks *ranks = calloc(1, sizeof(Ranks));
    if (!ranks) return NULL;
    ranks->x = next_tensor(params);
    ranks->levels = next_tensor(params);
    ranks->out = next_tensor(params);
    ranks->right = next_int(params) != 0;
    ranks->count = element_count(&ranks->x);
    ranks->boundaries = element_count(&ranks->levels);
    const DType dtype = ranks->x.dtype, result = ranks->out.dtype;
    const bool known = dtype == F32 || dtype == F64 || dtype == I32 || dtype == I64;
    const bool fits = !params->bad && known && dtype == ranks->levels.dtype &&
                      (result == I32 || result == I64) && is_contiguous(&ranks->x) &&
                      is_contiguous(&ranks->levels) && is_contiguous(&ranks->out) &&
                      element_count(&ranks->out) == ranks->count;
    if (fits) return ranks;
    free(ranks);
    return NULL;
}

#define TYPE float
#include "rank.h"
#define TYPE double
#include "rank.h"
#define TYPE int32_t
#include "rank.h"
#define TYPE int64_t
#include "rank.h"

static void some_ranks(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Ranks *ranks = context;
    const DType dtype = ranks->x.dtype;
    int64_t (*const rank)(const Ranks *, int64_t) = dtype == F32   ? rank_float
                                                    : dtype == F64 ? rank_double
                                                    : dtype == I32 ? rank_int32_t
                                                                   : rank_int64_t;
    int64_t end = (chunk + 1) * RANKED;
    if (end > ranks->count) end = ranks->count;
    for (int64_t i = chunk * RANKED; i < end; i++) {
        const int64_t place = rank(ranks, i);
        if (ranks->out.dtype == I64)
            ((int64_t *)ranks->out.data)[i] = place;
        else
            ((int32_t *)ranks->out.data)[i] = (int32_t)place;
    }
}

static Failure run_ranks(const void *state, const Run *run) {
    const Ranks *ranks = state;
    share_chunks(run, ceil_div(ranks->count, RANKED), some_ranks, (void *)ranks);
    return OK;
}

// -- counts ---------------------------------------------------------------------------------------

typedef struct {
    const float *x, *levels;  // levels may be in any order
    Tensor out;  // one more than there are levels
    int64_t count, bins;
    bool absolute;  // of sizes
    bool closed;  // an element that is equal to a level is below it
} Counts;

// Of so many levels each is compared with whole vectors; of more, elements look for their bin.
enum { FEW_LEVELS = 8 };

static void *prepare_counts(Params *params, Needs *needs) {
    Counts *counts = calloc(1, sizeof(Counts));
    if (!counts) return NULL;
    const Tensor x = next_tensor(params), levels = next_tensor(params);
    counts->out = next_tensor(params);
    counts->absolute = next_int(params) != 0;
    counts->closed = next_int(params) != 0;
    counts->x = (const float *)x.data;
    counts->levels = (const float *)levels.data;
    counts->count = element_count(&x);
    counts->bins = element_count(&levels);
    const DType dtype = counts->out.dtype;
    const bool known = dtype == I32 || dtype == U32 || dtype == I64 || dtype == F32;
    const bool fits = !params->bad && x.dtype == F32 && levels.dtype == F32 && known &&
                      is_contiguous(&x) && is_contiguous(&levels) && is_contiguous(&counts->out) &&
                      element_count(&counts->out) == counts->bins + 1;
    if (fits) {
        needs->shared = (counts->bins + 1) * (int64_t)sizeof(int64_t);
        return counts;
    }
    free(counts);
    return NULL;
}

static bool is_below(const Counts *counts, float x, float level) {
    return counts->closed ? x <= level : x < level;
}

static int64_t count_below(const Counts *counts, float level) {
    int64_t total = 0;
    for (int64_t i = 0; i < counts->count; i++) {
        const float x = counts->absolute ? fabsf(counts->x[i]) : counts->x[i];
        total += is_below(counts, x, level);
    }
    return total;
}

static void count_by_level(const Counts *counts, int64_t *found) {
    int64_t before = 0, done = 0;
    for (int64_t i = 0; i <= counts->bins; i++) {
        if (is_stopped_after(counts->count, &done)) return;
        const int64_t up_to = i < counts->bins ? count_below(counts, counts->levels[i])
                                               : counts->count;
        found[i] = up_to - before;
        before = up_to;
    }
}

static bool are_ascending(const float *levels, int64_t n) {
    for (int64_t i = 1; i < n; i++)
        if (!(levels[i - 1] <= levels[i])) return false;
    return true;
}

// The first of ascending levels that `x` is below: half of them remain each time, without a branch
// that would be foretold wrongly every other time.
static int64_t bin_of(const Counts *counts, float x) {
    const float *first = counts->levels;
    int64_t n = counts->bins;
    while (n > 1) {
        const int64_t half = n / 2;
        first += half * !is_below(counts, x, first[half - 1]);
        n -= half;
    }
    return first - counts->levels + !is_below(counts, x, *first);
}

static void count_by_element(const Counts *counts, int64_t *found) {
    memset(found, 0, (size_t)(counts->bins + 1) * sizeof(int64_t));
    for (int64_t i = 0; i < counts->count; i++)
        found[bin_of(counts, counts->absolute ? fabsf(counts->x[i]) : counts->x[i])]++;
}

static void store_count(const Tensor *out, int64_t i, int64_t count) {
    switch (out->dtype) {
        case I64: ((int64_t *)out->data)[i] = count; break;
        case F32: ((float *)out->data)[i] = (float)count; break;
        default: ((uint32_t *)out->data)[i] = (uint32_t)count; break;
    }
}

static Failure run_counts(const void *state, const Run *run) {
    const Counts *counts = state;
    int64_t *found = (int64_t *)run->shared;
    if (counts->bins > FEW_LEVELS && are_ascending(counts->levels, counts->bins))
        count_by_element(counts, found);
    else
        count_by_level(counts, found);
    for (int64_t i = 0; i <= counts->bins; i++) store_count(&counts->out, i, found[i]);
    return OK;
}

const Kernel ISA(COUNTS)[] = {
    {"Rank", prepare_ranks, run_ranks, NULL},
    {"CountLevels_f32", prepare_counts, run_counts, NULL},
    {NULL, NULL, NULL, NULL},
};
