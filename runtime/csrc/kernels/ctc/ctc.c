// Connectionist temporal classification: the loss of each sample, and its gradient.  What states are, and
// which paths lead through them, is said in popc_runtime/kernels/ctc.py.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../../kernel.h"
#include "../support/math.h"
#include "../support/simd.h"
#include "../support/sizes.h"

#define IMPOSSIBLE -1e30  // logarithm of 0: unlike -inf it may be subtracted from itself
#define UNLIKELY -1e29  // less is impossible
enum { BEFORE = 2 };  // more states in front, which nothing comes from

typedef enum { NONE, SUM, MEAN } Reduction;  // the order is that of losses.py

typedef struct {
    const float *logs;  // [steps][batch][classes]
    int64_t steps, batch, classes, most, states;  // `most`: labels of a sample
    Tensor labels, ends, counts;
    float *loss, *grads;  // gradients: NULL if not wanted
    int64_t blank;
    Reduction reduction;
    bool forgives;  // what no path fits has loss 0
} Ctc;

// Memory of one sample; `alphas` has a row for each step if there is a gradient, else two.
typedef struct {
    double *alphas, *ahead, *beta, *jumps;
    float *emitted;
    int64_t *classes;
} Lattice;

static int64_t kept_rows(const Ctc *ctc) { return ctc->grads ? ctc->steps : 2; }

static int64_t padded_row(const Ctc *ctc) { return padded(ctc->states + BEFORE, 8); }

static int64_t lattice_words(const Ctc *ctc) { return (kept_rows(ctc) + 5) * padded_row(ctc); }

static Lattice lattice_in(const Ctc *ctc, char *own) {
    const int64_t row = padded_row(ctc);
    double *at = (double *)(void *)own;
    double *ahead = at + kept_rows(ctc) * row;
    return (Lattice){
        at,
        ahead,
        ahead + row,
        ahead + 2 * row,
        (float *)(void *)(ahead + 3 * row),
        (int64_t *)(void *)(ahead + 4 * row)};
}

static bool indices_fit(const Ctc *ctc, const Tensor *loss, const Tensor *grads) {
    const Tensor *given[] = {&ctc->labels, &ctc->ends, &ctc->counts};
    bool fits = ctc->labels.dims[0] == ctc->batch && element_count(&ctc->ends) == ctc->batch &&
                element_count(&ctc->counts) == ctc->batch;
    for (int i = 0; i < 3; i++)
        fits = fits && are_indices(given[i]) && are_apart(given[i], loss) &&
               are_apart(given[i], grads);
    return fits;
}

// Logarithms, labels [batch][most], lengths of samples and of labels; the loss, the gradient?; the blank,
// reduction, whether what is impossible is forgiven.
static void *prepare(Params *params, Needs *needs) {
    const Tensor logs = next_tensor(params), labels = next_tensor(params);
    const Tensor ends = next_tensor(params), counts = next_tensor(params);
    const Tensor loss = next_tensor(params), grads = maybe_tensor(params);
    const int64_t blank = next_int(params), reduction = next_int(params);
    const bool forgives = next_int(params) != 0;
    Ctc *ctc = calloc(1, sizeof(Ctc));
    bool fits = ctc && !params->bad && logs.rank == 3 && labels.rank == 2 && reduction >= NONE &&
                reduction <= MEAN && blank >= 0;
    if (fits) {
        *ctc = (Ctc){
            (const float *)logs.data,
            logs.dims[0],
            logs.dims[1],
            logs.dims[2],
            labels.dims[1],
            2 * labels.dims[1] + 1,
            labels,
            ends,
            counts,
            (float *)loss.data,
            (float *)grads.data,
            blank,
            (Reduction)reduction,
            forgives};
        const int64_t all = element_count(&logs), batch = ctc->batch;
        fits = all > 0 && blank < ctc->classes && ctc->most < INT32_MAX && holds(&logs, F32, all) &&
               may_hold(&grads, F32, all) && holds(&loss, F32, reduction == NONE ? batch : 1) &&
               indices_fit(ctc, &loss, &grads);
    }
    int64_t words = fits ? size_of(kept_rows(ctc) + 5, padded_row(ctc), (int64_t)sizeof(double))
                         : -1;
    if (words < 0 || words > MOST_BYTES) {
        free(ctc);
        return NULL;
    }
    needs->own = lattice_words(ctc) * (int64_t)sizeof(double);
    needs->shared = ctc->batch * (int64_t)sizeof(double);
    return ctc;
}

static bool is_valid(const Ctc *ctc, int64_t sample) {
    const int64_t end = index_at(&ctc->ends, sample), count = index_at(&ctc->counts, sample);
    if (end < 0 || end > ctc->steps || count < 0 || count > ctc->most) return false;
    for (int64_t i = 0; i < count; i++) {
        const int64_t label = index_at(&ctc->labels, sample * ctc->most + i);
        if (label < 0 || label >= ctc->classes || label == ctc->blank) return false;
    }
    return true;
}

// out[s] = ln(e**a[s] + e**b[s] + e**(c[s] + jumps[s]))
static void add_logarithms(
    const double *a, const double *b, const double *c, const double *jumps, double *out,
    int64_t n) {
    INDEPENDENT_FOR (int64_t s = 0; s < n; s++) {
        const double third = c[s] + jumps[s], two = a[s] > b[s] ? a[s] : b[s];
        const double peak = third > two ? third : two;
        const float sum = exp_below((float)(a[s] - peak)) + exp_below((float)(b[s] - peak)) +
                          exp_below((float)(third - peak));
        out[s] = peak + fast_log(sum);
    }
}

static const float *logs_at(const Ctc *ctc, int64_t time, int64_t sample) {
    return ctc->logs + (time * ctc->batch + sample) * ctc->classes;
}

static void emit(const Ctc *ctc, const Lattice *lattice, int64_t time, int64_t sample) {
    const float *row = logs_at(ctc, time, sample), least = (float)IMPOSSIBLE;
    for (int64_t s = 0; s < ctc->states; s++) {
        const float value = row[lattice->classes[s]];
        lattice->emitted[s] = value < least ? least : value;
    }
}

static void begin(const Ctc *ctc, const Lattice *lattice, int64_t sample, int64_t count) {
    int64_t *classes = lattice->classes;
    for (int64_t s = 0; s < ctc->states; s++) {
        const bool labelled = s % 2 && s / 2 < count;
        classes[s] = labelled ? index_at(&ctc->labels, sample * ctc->most + s / 2) : ctc->blank;
        const bool jumps = s > 1 && classes[s] != ctc->blank && classes[s] != classes[s - 2];
        lattice->jumps[s] = jumps ? 0 : IMPOSSIBLE;
    }
    for (int i = 0; i < BEFORE; i++) lattice->jumps[ctc->states + i] = IMPOSSIBLE;
}

static double *alpha_at(const Ctc *ctc, const Lattice *lattice, int64_t time) {
    return lattice->alphas + time % kept_rows(ctc) * padded_row(ctc) + BEFORE;
}

// The logarithm of the likelihood of a sample.
static double go_forward(
    const Ctc *ctc, const Lattice *lattice, int64_t sample, int64_t end, int64_t last) {
    const int64_t states = ctc->states;
    if (end == 0) return last == 0 ? 0.0 : IMPOSSIBLE;
    for (int64_t time = 0; time < end && !pool_is_stopped(); time++) {
        double *alpha = alpha_at(ctc, lattice, time);
        const double *before = time ? alpha_at(ctc, lattice, time - 1) : NULL;
        alpha[-2] = alpha[-1] = IMPOSSIBLE;
        emit(ctc, lattice, time, sample);
        if (before) add_logarithms(before, before - 1, before - 2, lattice->jumps, alpha, states);
        for (int64_t s = 0; s < states; s++) {
            if (before)
                alpha[s] += lattice->emitted[s];
            else
                alpha[s] = s < 2 ? lattice->emitted[s] : IMPOSSIBLE;
        }
    }
    const double *alpha = alpha_at(ctc, lattice, end - 1);
    const double a = alpha[last], b = alpha[last - 1], peak = a > b ? a : b;
    return peak + log(exp(a - peak) + exp(b - peak));
}

static float *grads_at(const Ctc *ctc, int64_t time, int64_t sample) {
    return ctc->grads + (time * ctc->batch + sample) * ctc->classes;
}

// Minus the probability of each class and time, given the labels.
static void go_backward(
    const Ctc *ctc, const Lattice *lattice, int64_t sample, int64_t end, int64_t last,
    double likelihood) {
    const int64_t states = ctc->states;
    double *ahead = lattice->ahead, *beta = lattice->beta;
    const double evidence = likelihood < UNLIKELY ? -IMPOSSIBLE : likelihood;
    for (int i = 0; i < BEFORE; i++) ahead[states + i] = IMPOSSIBLE;
    for (int64_t time = end - 1; time >= 0 && !pool_is_stopped(); time--) {
        const double *alpha = alpha_at(ctc, lattice, time);
        float *shares = lattice->emitted, *row = grads_at(ctc, time, sample), blanks = 0;
        if (time == end - 1)
            for (int64_t s = 0; s < states; s++)
                beta[s] = s == last || s == last - 1 ? 0 : IMPOSSIBLE;
        else
            add_logarithms(ahead, ahead + 1, ahead + 2, lattice->jumps + 2, beta, states);
        for (int64_t s = 0; s < states; s++)
            shares[s] = fast_exp((float)(alpha[s] + beta[s] - evidence));
        for (int64_t s = 1; s < states; s += 2) row[lattice->classes[s]] -= shares[s];
        for (int64_t s = 0; s < states; s += 2) blanks += shares[s];
        row[ctc->blank] -= blanks;
        emit(ctc, lattice, time, sample);
        for (int64_t s = 0; s < states; s++) ahead[s] = beta[s] + lattice->emitted[s];
    }
}

typedef struct {
    const Ctc *ctc;
    const Run *run;
} Job;

static void one_sample(void *context, int64_t sample, int thread) {
    const Job *job = context;
    const Ctc *ctc = job->ctc;
    const Lattice lattice = lattice_in(ctc, job->run->own[thread]);
    const int64_t end = index_at(&ctc->ends, sample), count = index_at(&ctc->counts, sample);
    begin(ctc, &lattice, sample, count);
    const double likelihood = go_forward(ctc, &lattice, sample, end, 2 * count);
    ((double *)(void *)job->run->shared)[sample] = likelihood;
    if (!ctc->grads) return;
    for (int64_t time = 0; time < ctc->steps; time++)
        memset(grads_at(ctc, time, sample), 0, (size_t)ctc->classes * sizeof(float));
    go_backward(ctc, &lattice, sample, end, 2 * count, likelihood);
}

static Failure run_ctc(const void *state, const Run *run) {
    const Ctc *ctc = state;
    for (int64_t sample = 0; sample < ctc->batch; sample++)
        if (!is_valid(ctc, sample)) return INDEX_OUTSIDE;
    Job job = {ctc, run};
    share_chunks(run, ctc->batch, one_sample, &job);
    const double *likelihoods = (const double *)(const void *)run->shared;
    double total = 0;
    for (int64_t sample = 0; sample < ctc->batch; sample++) {
        const bool hopeless = likelihoods[sample] < UNLIKELY;
        const double loss = hopeless ? (ctc->forgives ? 0.0 : INFINITY) : -likelihoods[sample];
        const int64_t count = index_at(&ctc->counts, sample);
        if (ctc->reduction == NONE) ctc->loss[sample] = (float)loss;
        total += ctc->reduction == MEAN ? loss / (double)(count > 1 ? count : 1) : loss;
    }
    if (ctc->reduction == SUM) *ctc->loss = (float)total;
    if (ctc->reduction == MEAN) *ctc->loss = (float)(total / (double)ctc->batch);
    return OK;
}

const Kernel ISA(TEMPORAL_LOSSES)[] = {
    {"Ctc_f32", prepare, run_ctc, NULL},
    {NULL, NULL, NULL, NULL},
};
