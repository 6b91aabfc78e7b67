// Random numbers of numpy's generators, drawn in numpy's order, and the dropping of elements.
//
// A source is four words that popc_runtime/kernels/random_state.py keeps current: the address of a
// generator's state, of the functions of numpy that draw from it, and of its interface.  Seeding changes
// them, so they are read when a kernel runs.  Numbers are drawn by one thread: each follows from
// the one before.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../../kernel.h"
#include "../support/simd.h"
#include "../support/sizes.h"

typedef struct {
    void *state;
    uint32_t (*next_uint32)(void *state);
    double (*next_double)(void *state);
    void *interface;
} Source;

// Numbers that are drawn before they are used: 8 KiB of doubles, in the first cache.  Elements of a chunk:
// see sizes.h.
enum { DRAWN_BLOCK = 1 << 10, GRADIENT_CHUNK = 1 << 14 };

static const Source *next_source(Params *params) {
    const Source *source = (const Source *)(intptr_t)next_int(params);
    if (!source) params->bad = true;
    return source;
}

static void draw_floats(const Source *source, float *to, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        to[i] = (float)(source->next_uint32(source->state) >> 8) * 0x1p-24f;
}

static void draw_doubles(const Source *source, double *to, int64_t count) {
    for (int64_t i = 0; i < count; i++) to[i] = source->next_double(source->state);
}

// -- uniform numbers ------------------------------------------------------------------------------

typedef struct {
    const Source *source;
    Tensor out;
    int64_t count;
} Uniform;

static void *prepare_uniform(Params *params, Needs *needs) {
    (void)needs;
    Uniform *uniform = calloc(1, sizeof(Uniform));
    if (!uniform) return NULL;
    uniform->source = next_source(params);
    uniform->out = next_tensor(params);
    uniform->count = element_count(&uniform->out);
    const bool known = uniform->out.dtype == F32 || uniform->out.dtype == F64;
    if (params->bad || !known || !is_contiguous(&uniform->out)) {
        free(uniform);
        return NULL;
    }
    return uniform;
}

static Failure run_uniform(const void *state, const Run *run) {
    (void)run;
    const Uniform *uniform = state;
    if (uniform->out.dtype == F32)
        draw_floats(uniform->source, (float *)uniform->out.data, uniform->count);
    else
        draw_doubles(uniform->source, (double *)uniform->out.data, uniform->count);
    return OK;
}

// -- normal numbers -------------------------------------------------------------------------------

typedef struct {
    const Source *source;
    void (*fill)(void *interface, intptr_t count, void *to);  // numpy's own
    void *out;
    int64_t count;
} Normal;

static void *prepare_normal(Params *params, Needs *needs) {
    (void)needs;
    Normal *normal = calloc(1, sizeof(Normal));
    if (!normal) return NULL;
    normal->source = next_source(params);
    normal->fill = (void (*)(void *, intptr_t, void *))(intptr_t)next_int(params);
    const DType dtype = next_int(params) ? F64 : F32;
    const Tensor out = next_tensor(params);
    normal->out = out.data;
    normal->count = element_count(&out);
    if (!params->bad && normal->fill && holds(&out, dtype, normal->count)) return normal;
    free(normal);
    return NULL;
}

static Failure run_normal(const void *state, const Run *run) {
    (void)run;
    const Normal *normal = state;
    normal->fill(normal->source->interface, (intptr_t)normal->count, normal->out);
    return OK;
}

// -- choices among classes, by the logarithms of what they weigh ----------------------------------

typedef struct {
    const Source *source;
    const float *logits;
    char *out;
    bool wide;  // numbers of classes are int64, else int32
    int64_t rows, classes, samples;
} Choices;

static void *prepare_choices(Params *params, Needs *needs) {
    Choices *choices = calloc(1, sizeof(Choices));
    if (!choices) return NULL;
    choices->source = next_source(params);
    const Tensor logits = next_tensor(params), out = next_tensor(params);
    const bool plain = is_contiguous(&logits) && is_contiguous(&out) && logits.dtype == F32 &&
                       (out.dtype == I32 || out.dtype == I64);
    if (params->bad || !plain || logits.rank != 2 || out.rank != 2 || logits.dims[1] == 0 ||
        out.dims[0] != logits.dims[0]) {
        free(choices);
        return NULL;
    }
    choices->logits = (const float *)logits.data;
    choices->out = out.data;
    choices->wide = out.dtype == I64;
    choices->rows = logits.dims[0];
    choices->classes = logits.dims[1];
    choices->samples = out.dims[1];
    needs->shared = choices->classes * (int64_t)sizeof(double);
    return choices;
}

// The class whose share of [0, 1) a number falls into.  The number of the row is added to both as
// numpy's kernel does, which searches all rows at once.
static int64_t choose(const double *limits, int64_t classes, double drawn, double row) {
    int64_t low = 0, high = classes;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (limits[middle] + row <= drawn + row)
            low = middle + 1;
        else
            high = middle;
    }
    return low < classes ? low : classes - 1;
}

static Failure run_choices(const void *state, const Run *run) {
    const Choices *choices = state;
    double *limits = (double *)run->shared;
    for (int64_t row = 0; row < choices->rows; row++) {
        const float *logits = choices->logits + row * choices->classes;
        float peak = logits[0];
        for (int64_t i = 1; i < choices->classes; i++)
            peak = logits[i] > peak || logits[i] != logits[i] ? logits[i] : peak;
        double total = 0;
        for (int64_t i = 0; i < choices->classes; i++)
            limits[i] = total += exp((double)logits[i] - (double)peak);
        for (int64_t i = 0; i < choices->classes; i++) limits[i] /= total;
        for (int64_t i = 0; i < choices->samples; i++) {
            const double drawn = choices->source->next_double(choices->source->state);
            const int64_t chosen = choose(limits, choices->classes, drawn, (double)row);
            const int64_t place = row * choices->samples + i;
            if (choices->wide)
                ((int64_t *)choices->out)[place] = chosen;
            else
                ((int32_t *)choices->out)[place] = (int32_t)chosen;
        }
    }
    return OK;
}

// -- dropout --------------------------------------------------------------------------------------

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

static void *prepare_any(Params *params, bool draws) {
    Dropout *dropout = calloc(1, sizeof(Dropout));
    if (!dropout) return NULL;
    if (draws) {
        dropout->source = next_source(params);
        dropout->wide = next_int(params) != 0;
    }
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
    if (params->bad || !plain || !scalars || !masked) {
        free(dropout);
        return NULL;
    }
    return dropout;
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

static Failure run_dropout(const void *state, const Run *run) {
    (void)run;
    const Dropout *dropout = state;
    const double share = dropped_share(dropout);
    if (share == 0) {
        if (dropout->mask) memset(dropout->mask, 1, (size_t)dropout->count);
        memmove(dropout->out, dropout->in, (size_t)dropout->count * sizeof(float));
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

const Kernel ISA(RANDOM_NUMBERS)[] = {
    {"Dropout_f32", prepare_dropout, run_dropout, NULL},
    {"DropoutGrad_f32", prepare_gradient, run_gradient, NULL},
    {"Multinomial_f32", prepare_choices, run_choices, NULL},
    {"RandomNormal", prepare_normal, run_normal, NULL},
    {"RandomUniform", prepare_uniform, run_uniform, NULL},
    {NULL, NULL, NULL, NULL},
};
