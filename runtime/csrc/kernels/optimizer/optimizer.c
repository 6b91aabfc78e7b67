// Steps of optimizers: one pass over tensors, with factors that follow from scalars, which may
// change from run to run.
#include <math.h>
#include <stdlib.h>

#include "../../kernel.h"
#include "../support/simd.h"
#include "../support/sizes.h"

// Of any step below; and elements of a chunk: see sizes.h.
enum { MOST_TENSORS = 3, MOST_SCALARS = 6, STEP_CHUNK = 1 << 13 };

// How factors follow from scalars; the order is that of _DERIVATIONS in optimizers.py.
typedef enum {
    AS_GIVEN,
    STEP,
    NESTEROV,
    AVERAGE,
    DECAY,
    AVERAGE_SQUARES,
    DECAY_SQUARES,
    ADAM,
    ADAM_DIRECTION,
    LAMB,
    SCALED
} Derivation;

typedef void (*PassFn)(
    float *out, const float *a, const float *b, const float *c, const float *factors, int64_t n);

typedef struct {
    PassFn pass;
    float *out;
    const float *tensors[MOST_TENSORS];
    int64_t count;
    Derivation derivation;
    bool corrects, takes_root;  // of Adam: corrects the bias; takes the root of the second moment
    const char *scalars[MOST_SCALARS];  // NULL: absent
    bool wide[MOST_SCALARS];  // whether they are doubles
} Step;

typedef struct {
    const Step *step;
    float factors[3];
} Job;

// -- factors --------------------------------------------------------------------------------------

// `scale` is a factor of the root of the second moment, and `added` is added to it.
static void size_factors(
    const Step *step, double beta1, double beta2, double epsilon, double steps, double *scale,
    double *added) {
    double first = 1, second = 1;
    if (step->corrects && steps == steps) {
        first = 1 - pow(beta1, steps);
        if (step->takes_root) second = sqrt(1 - pow(beta2, steps));
    }
    *scale = first / second;
    *added = epsilon * first;
}

static double lamb_rate(double rate, double weight, double update, double limit) {
    double trust = 1;
    if (weight != 0 && update != 0) {
        const double size = sqrt(weight);
        trust = (size < limit || limit != limit ? size : limit) / sqrt(update);
    }
    return -rate * trust;
}

static void find_factors(const Step *step, float *factors) {
    double s[MOST_SCALARS], scale, added;
    for (int i = 0; i < MOST_SCALARS; i++) {
        const char *at = step->scalars[i];
        s[i] = !at ? NAN : step->wide[i] ? *(const double *)at : (double)*(const float *)at;
    }
    const double second = step->scalars[1] ? s[1] : 1;
    double f[3] = {s[0], second, s[2]};
    switch (step->derivation) {
        case AS_GIVEN:
        case DECAY: break;
        case STEP: f[0] = second, f[1] = -s[0]; break;
        case NESTEROV: f[0] = s[2], f[1] = -s[1], f[2] = -s[0]; break;
        case AVERAGE: f[1] = (1 - s[0]) * second; break;
        case AVERAGE_SQUARES: f[1] = (1 - s[0]) * second * second; break;
        case DECAY_SQUARES: f[1] = second * second; break;
        case ADAM:
            size_factors(step, s[2], s[3], s[4], s[5], &scale, &added);
            f[0] = s[1];
            f[1] = s[0] == 0 ? 0 : scale / s[0];  // no step, even where the second moment is 0
            f[2] = s[0] == 0 ? INFINITY : added / s[0];
            break;
        case ADAM_DIRECTION:
            size_factors(step, s[1], s[2], s[3], s[4], &scale, &added);
            f[1] = scale, f[2] = added;
            break;
        case LAMB: f[0] = 1, f[1] = lamb_rate(s[0], s[1], s[2], s[3]); break;
        case SCALED: break;
    }
    for (int i = 0; i < 3; i++) factors[i] = (float)f[i];
}

// -- passes ---------------------------------------------------------------------------------------

#define PASS(NAME, EXPRESSION)                                                            \
    static void NAME(                                                                     \
        float *out, const float *a, const float *b, const float *c, const float *factors, \
        int64_t n) {                                                                      \
        const float f0 = factors[0], f1 = factors[1], f2 = factors[2];                    \
        (void)a, (void)b, (void)c, (void)f0, (void)f1, (void)f2;                          \
        INDEPENDENT_FOR (int64_t i = 0; i < n; i++) out[i] = EXPRESSION;                  \
    }

static inline float root(float x) { return __builtin_sqrtf(x); }
static inline float positive(float x) { return x < 0 ? 0 : x; }
static inline float larger(float a, float b) { return ((a > b) | (a != a)) ? a : b; }

PASS(sum_of_two, a[i] * f0 + b[i] * f1)
PASS(sum_of_three, a[i] * f0 + b[i] * f1 + c[i] * f2)
PASS(squares, a[i] * f0 + b[i] * f1 * b[i])
PASS(largest, larger(a[i] * f0, __builtin_fabsf(b[i]) * f1))
PASS(adam, a[i] * f0 - b[i] / (root(c[i]) * f1 + f2))
PASS(adamax, a[i] * f0 - b[i] / (c[i] * f1 + f2))
PASS(adam_direction, a[i] / (root(b[i]) * f1 + f2) + c[i] * f0)
PASS(adam_direction_alone, a[i] / (root(b[i]) * f1 + f2))
PASS(adamax_direction, a[i] / (b[i] * f1 + f2) + c[i] * f0)
PASS(adamax_direction_alone, a[i] / (b[i] * f1 + f2))
PASS(over_root, a[i] / (root(b[i]) + f0) * f1)
PASS(over_root_of_sum, a[i] / root(b[i] + f0) * f1)
PASS(over_deviation, a[i] / (root(positive(b[i] - c[i] * c[i])) + f0) * f1)
PASS(over_deviation_of_sum, a[i] / root(positive(b[i] - c[i] * c[i]) + f0) * f1)
PASS(ratio_of_roots, a[i] * root((c[i] + f0) / (b[i] + f0)) * f1)

// -- subnormal numbers ----------------------------------------------------------------------------

// What decays, as the momentum of a weight without gradient does, stays for ever among the smallest
// subnormal numbers, which the processors of x86 handle a hundred times more slowly than others: they
// count as zero here.
#if defined(__SSE__)
static unsigned flush_subnormals(void) {
    const unsigned before = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(before | 0x8040);
    return before;
}
static void restore_subnormals(unsigned before) { __builtin_ia32_ldmxcsr(before); }
#else
static unsigned flush_subnormals(void) { return 0; }
static void restore_subnormals(unsigned before) { (void)before; }
#endif

// -- kernels --------------------------------------------------------------------------------------

// `operands`: tensors that the pass reads.
static void *prepare(Params *params, PassFn pass, int operands) {
    Step *step = calloc(1, sizeof(Step));
    if (!step) return NULL;
    step->pass = pass;
    const Tensor out = next_tensor(params);
    step->out = (float *)out.data;
    step->count = element_count(&out);
    bool fits = out.dtype == F32 && is_contiguous(&out);
    for (int i = 0; i < MOST_TENSORS; i++) {
        const Tensor tensor = maybe_tensor(params);
        step->tensors[i] = (const float *)tensor.data;
        fits = fits && (tensor.data || i >= operands) && may_hold(&tensor, F32, step->count);
    }
    step->derivation = (Derivation)next_int(params);
    step->corrects = next_int(params) != 0;
    step->takes_root = next_int(params) != 0;
    for (int i = 0; i < MOST_SCALARS; i++) {
        const Tensor scalar = maybe_tensor(params);
        step->scalars[i] = scalar.data;
        step->wide[i] = scalar.dtype == F64;
        fits = fits && may_hold(&scalar, scalar.dtype == F64 ? F64 : F32, 1);
    }
    if (fits && !params->bad) return step;
    free(step);
    return NULL;
}

static void some_elements(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Job *job = context;
    const Step *step = job->step;
    const int64_t begin = chunk * STEP_CHUNK;
    const float *tensors[MOST_TENSORS];
    for (int i = 0; i < MOST_TENSORS; i++)
        tensors[i] = step->tensors[i] ? step->tensors[i] + begin : NULL;
    const unsigned before = flush_subnormals();
    step->pass(
        step->out + begin, tensors[0], tensors[1], tensors[2], job->factors,
        lesser(step->count - begin, STEP_CHUNK));
    restore_subnormals(before);
}

static Failure run_step(const void *state, const Run *run) {
    Job job = {.step = state};
    find_factors(job.step, job.factors);
    share_chunks(run, ceil_div(job.step->count, STEP_CHUNK), some_elements, &job);
    return OK;
}

// clang-format off
#define PASSES(_)                                      \
    _(SumOfTwo, sum_of_two, 2)                         \
    _(SumOfThree, sum_of_three, 3)                     \
    _(Squares, squares, 2)                             \
    _(Largest, largest, 2)                             \
    _(Adam, adam, 3)                                   \
    _(Adamax, adamax, 3)                               \
    _(AdamDirection, adam_direction, 3)                \
    _(AdamDirectionAlone, adam_direction_alone, 2)     \
    _(AdamaxDirection, adamax_direction, 3)            \
    _(AdamaxDirectionAlone, adamax_direction_alone, 2) \
    _(OverRoot, over_root, 2)                          \
    _(OverRootOfSum, over_root_of_sum, 2)              \
    _(OverDeviation, over_deviation, 3)                \
    _(OverDeviationOfSum, over_deviation_of_sum, 3)    \
    _(RatioOfRoots, ratio_of_roots, 3)
// clang-format on

#define PREPARE(NAME, PASS_FN, OPERANDS)                        \
    static void *prepare_##NAME(Params *params, Needs *needs) { \
        (void)needs;                                            \
        return prepare(params, PASS_FN, OPERANDS);              \
    }
#define ENTRY(NAME, PASS_FN, OPERANDS) {"Step" #NAME "_f32", prepare_##NAME, run_step, NULL},

PASSES(PREPARE)

const Kernel ISA(OPTIMIZERS)[] = {
    PASSES(ENTRY){NULL, NULL, NULL, NULL},
};
