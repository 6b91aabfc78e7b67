// Random numbers of numpy's generators, drawn in numpy's order.
#include <math.h>
#include <stdlib.h>

#include "../../kernel.h"
#include "../support/simd.h"
#include "source.h"

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

// -- seeds ----------------------------------------------------------------------------------------

typedef struct {
    const Source *source;
    uint32_t *out;
} Seed;

static void *prepare_seed(Params *params, Needs *needs) {
    (void)needs;
    Seed *seed = calloc(1, sizeof(Seed));
    if (!seed) return NULL;
    seed->source = next_source(params);
    const Tensor out = next_tensor(params);
    seed->out = (uint32_t *)(void *)out.data;
    if (!params->bad && holds(&out, U32, 2)) return seed;
    free(seed);
    return NULL;
}

static Failure run_seed(const void *state, const Run *run) {
    (void)run;
    const Seed *seed = state;
    for (int i = 0; i < 2; i++) seed->out[i] = seed->source->next_uint32(seed->source->state);
    return OK;
}

const Kernel ISA(RANDOM_NUMBERS)[] = {
    {"Multinomial_f32", prepare_choices, run_choices, NULL},
    {"RandomNormal", prepare_normal, run_normal, NULL},
    {"RandomSeed", prepare_seed, run_seed, NULL},
    {"RandomUniform", prepare_uniform, run_uniform, NULL},
    {NULL, NULL, NULL, NULL},
};
