// The dropping of elements, by a sequence of random numbers or by a seed, and its gradient.
#include <stdlib.h>
#include <string.h>

#include "../../kernel.h"
#include "../support/simd.h"
#include "../support/sizes.h"
#include "source.h"

// Numbers that are drawn before they are used: 8 KiB of doubles, in the first cache.  Elements of a chunk:
// see sizes.h.
enum { DRAWN_BLOCK = 1 << 10, GRADIENT_CHUNK = 1 << 14 };

// -- by a sequence --------------------------------------------------------------------------------------

typedef struct {
    const Source *source;  // NULL: the gradient, which draws nothing
    bool wide;  // whether doubles are drawn
    const float *in;
    float *out;
    char *mask;  // NULL: not wanted
    const char *ratio, *training;
    bool wide_ratio;
    int64_t count;
} Dropout;

typedef struct {
    const Dropout *dropout;
    float scale;
} GradientJob;

static double dropped_share(const Dropout *dropout) {
    if (!*dropout->training) return 0;
    if (dropout->wide_ratio) {
        double share;
        memcpy(&share, dropout->ratio, sizeof(share));
        return share;
    }
    float share;
    memcpy(&share, dropout->ratio, sizeof(share));
    return share;
}

static float scale_of(double share) { return share < 1 ? (float)(1 / (1 - share)) : 0; }

static bool fill_dropout(Dropout *dropout, Params *params, bool draws) {
    const Tensor in = next_tensor(params), ratio = next_tensor(params);
    const Tensor training = next_tensor(params), out = next_tensor(params);
    const Tensor mask = maybe_tensor(params);
    dropout->in = (const float *)in.data;
    dropout->out = (float *)out.data;
    dropout->mask = mask.data;
    dropout->ratio = ratio.data;
    dropout->wide_ratio = ratio.dtype == F64;
    dropout->training = training.data;
    dropout->count = element_count(&out);
    const bool plain = is_contiguous(&in) && is_contiguous(&out) &&
                       element_count(&in) == dropout->count && in.dtype == F32 && out.dtype == F32;
    const bool scalars = (ratio.dtype == F32 || ratio.dtype == F64) && training.dtype == BOOL &&
                         element_count(&ratio) == 1 && element_count(&training) == 1;
    const bool masked = mask.data ? mask.dtype == BOOL && is_contiguous(&mask) &&
                                        element_count(&mask) == dropout->count
                                  : draws;
    return !params->bad && plain && scalars && masked;
}

static void *prepare_any(Params *params, bool draws) {
    Dropout *dropout = calloc(1, sizeof(Dropout));
    if (!dropout) return NULL;
    if (draws) {
        dropout->source = next_source(params);
        dropout->wide = next_int(params) != 0;
    }
    if (fill_dropout(dropout, params, draws)) return dropout;
    free(dropout);
    return NULL;
}

static void *prepare_dropout(Params *params, Needs *needs) {
    (void)needs;
    return prepare_any(params, true);
}

static void *prepare_gradient(Params *params, Needs *needs) {
    (void)needs;
    return prepare_any(params, false);
}

// Which of the next `count` elements stay.
static void draw_kept(const Dropout *dropout, double share, char *kept, int64_t count) {
    if (dropout->wide) {
        double drawn[DRAWN_BLOCK];
        draw_doubles(dropout->source, drawn, count);
        for (int64_t i = 0; i < count; i++) kept[i] = drawn[i] >= share;
        return;
    }
    float drawn[DRAWN_BLOCK];
    const float limit = (float)share;
    draw_floats(dropout->source, drawn, count);
    for (int64_t i = 0; i < count; i++) kept[i] = drawn[i] >= limit;
}

static void keep_all(const Dropout *dropout) {
    if (dropout->mask) memset(dropout->mask, 1, (size_t)dropout->count);
    memmove(dropout->out, dropout->in, (size_t)dropout->count * sizeof(float));
}

static Failure run_dropout(const void *state, const Run *run) {
    (void)run;
    const Dropout *dropout = state;
    const double share = dropped_share(dropout);
    if (share == 0) {
        keep_all(dropout);
        return OK;
    }
    const float scale = scale_of(share);
    for (int64_t start = 0; start < dropout->count; start += DRAWN_BLOCK) {
        const int64_t count = lesser(dropout->count - start, DRAWN_BLOCK);
        char kept[DRAWN_BLOCK];
        draw_kept(dropout, share, kept, count);
        // Multiplied, not chosen: nans stay, and what is dropped keeps its sign.
        for (int64_t i = 0; i < count; i++)
            dropout->out[start + i] = dropout->in[start + i] * (float)kept[i] * scale;
        if (dropout->mask) memcpy(dropout->mask + start, kept, (size_t)count);
    }
    return OK;
}

static void gradient_chunk(void *context, int64_t chunk, int thread) {
    (void)thread;
    const GradientJob *job = context;
    const Dropout *dropout = job->dropout;
    const int64_t start = chunk * GRADIENT_CHUNK;
    const int64_t end = start + GRADIENT_CHUNK < dropout->count ? start + GRADIENT_CHUNK
                                                                : dropout->count;
    const float scale = job->scale;
    for (int64_t i = start; i < end; i++)
        dropout->out[i] = dropout->in[i] * (float)dropout->mask[i] * scale;
}

static Failure run_gradient(const void *state, const Run *run) {
    const Dropout *dropout = state;
    GradientJob job = {dropout, scale_of(dropped_share(dropout))};
    share_chunks(run, ceil_div(dropout->count, GRADIENT_CHUNK), gradient_chunk, &job);
    return OK;
}

// -- by a seed ----------------------------------------------------------------------------

// Philox4x64 with ten rounds (Salmon et al. 2011), whose numbers follow from a key and a count: any of
// them can be drawn by any thread.  numpy's first block is that of count 1; of its four words of
// 64 bits each gives two numbers, the lower half first.  Two blocks are drawn side by side, since the
// products of one wait for each other.
enum { DRAWN_OF_BLOCK = 8, DRAWN_AT_ONCE = 2 * DRAWN_OF_BLOCK, SEEDED_CHUNK = 1 << 13 };

static inline void draw_round(uint64_t word[4], uint64_t first, uint64_t second) {
    const unsigned __int128 left = (unsigned __int128)0xD2E7470EE14C6C93u * word[0];
    const unsigned __int128 right = (unsigned __int128)0xCA5A826395121157u * word[2];
    word[0] = (uint64_t)(right >> 64) ^ word[1] ^ first;
    word[1] = (uint64_t)right;
    word[2] = (uint64_t)(left >> 64) ^ word[3] ^ second;
    word[3] = (uint64_t)left;
}

static void draw_blocks(uint64_t key, uint64_t count, uint32_t to[DRAWN_AT_ONCE]) {
    uint64_t a[4] = {count}, b[4] = {count + 1}, first = key, second = 0;
    for (int round = 0; round < 10; round++) {
        draw_round(a, first, second);
        draw_round(b, first, second);
        first += 0x9E3779B97F4A7C15u;
        second += 0xBB67AE8584CAA73Bu;
    }
    for (int i = 0; i < 4; i++) {
        to[2 * i] = (uint32_t)a[i];
        to[2 * i + 1] = (uint32_t)(a[i] >> 32);
        to[DRAWN_OF_BLOCK + 2 * i] = (uint32_t)b[i];
        to[DRAWN_OF_BLOCK + 2 * i + 1] = (uint32_t)(b[i] >> 32);
    }
}

typedef struct {
    Dropout dropout;
    const uint32_t *seed;
} Seeded;

typedef struct {
    const Dropout *dropout;
    uint64_t key;
    float limit, scale;
} SeededJob;

static void *prepare_seeded(Params *params, Needs *needs) {
    (void)needs;
    Seeded *seeded = calloc(1, sizeof(Seeded));
    if (!seeded) return NULL;
    const Tensor seed = next_tensor(params);
    seeded->seed = (const uint32_t *)(const void *)seed.data;
    if (!params->bad && holds(&seed, U32, 2) && fill_dropout(&seeded->dropout, params, true))
        return seeded;
    free(seeded);
    return NULL;
}

static void seeded_chunk(void *context, int64_t chunk, int thread) {
    (void)thread;
    const SeededJob *job = context;
    const Dropout *dropout = job->dropout;
    const int64_t start = chunk * SEEDED_CHUNK;
    const int64_t count = lesser(SEEDED_CHUNK, dropout->count - start);
    const float *in = dropout->in + start;
    float *out = dropout->out + start;
    uint32_t drawn[SEEDED_CHUNK];
    for (int64_t i = 0; i < count; i += DRAWN_AT_ONCE)
        draw_blocks(job->key, (uint64_t)((start + i) / DRAWN_OF_BLOCK) + 1, drawn + i);
    if (dropout->mask)
        for (int64_t i = 0; i < count; i++)
            dropout->mask[start + i] = (float)(drawn[i] >> 8) * 0x1p-24f >= job->limit;
    for (int64_t i = 0; i < count; i++) {
        const float kept = (float)(drawn[i] >> 8) * 0x1p-24f >= job->limit ? 1.0f : 0.0f;
        out[i] = in[i] * kept * job->scale;
    }
}

static Failure run_seeded(const void *state, const Run *run) {
    const Seeded *seeded = state;
    const Dropout *dropout = &seeded->dropout;
    const double share = dropped_share(dropout);
    if (share == 0) {
        keep_all(dropout);
        return OK;
    }
    const uint64_t key = (uint64_t)seeded->seed[1] << 32 | seeded->seed[0];
    SeededJob job = {dropout, key, (float)share, scale_of(share)};
    share_chunks(run, ceil_div(dropout->count, SEEDED_CHUNK), seeded_chunk, &job);
    return OK;
}

const Kernel ISA(DROPOUTS)[] = {
    {"Dropout_f32", prepare_dropout, run_dropout, NULL},
    {"DropoutGrad_f32", prepare_gradient, run_gradient, NULL},
    {"SeededDropout_f32", prepare_seeded, run_seeded, NULL},
    {NULL, NULL, NULL, NULL},
};
