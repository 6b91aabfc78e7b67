// Cross entropy of scores [batch][classes][inner] and labels [batch][inner], and its gradient.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../../kernel.h"
#include "../norm/row_sums.h"
#include "../support/math.h"
#include "../support/sizes.h"

enum {
    LOSS_WORK = 1 << 14,  // scores of a chunk: see sizes.h
    COLUMNS =
        64,  // labels whose scores are neighbours that are done together: four lines of the cache
};
// Of what logarithms are taken of, and of what divides: PopART's numbers, as in kernels/loss.py.
#define LEAST_PROBABILITY 1e-7f
#define LEAST_DIVISOR 1e-10f

typedef enum { NONE, SUM, MEAN } Reduction;  // the order is that of losses.py

typedef struct {
    int64_t batch, classes, inner;
    const float *scores;  // of the gradient: the softmax, or shares whose logarithms are picked
    int64_t strides[3];  // of the scores, in floats
    Tensor labels;
    const float *weights;  // of classes, or NULL
    Reduction reduction;
    bool ignores, allows;  // labels of a value; labels that name no class
    int64_t ignored;
    float *out;  // the loss, or the gradient of the scores
    float *log_prob, *softmax;  // also wanted, or NULL
    const float *grad;  // of the loss
    bool
        logarithms;  // the softmax is given as its logarithm; logarithms are picked: scores are not read
    int64_t unit;  // of the batch
} Loss;

typedef struct {
    const Loss *loss;
    const Run *run;
    float *losses;  // of each label; of the gradient: its share
    const float *counts;  // how much each label counts
} Job;

// Whether operands have the sizes of `loss`; `gradient`: of the scores.
static bool operands_fit(
    const Loss *loss, const Tensor *scores, const Tensor *labels, const Tensor *weights,
    const Tensor *results, bool gradient) {
    const int64_t count = loss->batch * loss->inner, all = count * loss->classes;
    const int64_t single = loss->reduction == NONE ? count : 1;
    for (int i = 0; i < 3; i++)
        if (!are_apart(labels, &results[i])) return false;
    return scores->dtype == F32 && are_indices(labels) && element_count(labels) == count &&
           all > 0 && may_hold(weights, F32, loss->classes) &&
           holds(&results[0], F32, gradient ? all : single) && may_hold(&results[1], F32, all) &&
           may_hold(&results[2], F32, all) &&
           (!gradient || (is_contiguous(scores) && holds(&results[3], F32, single)));
}

// Scores [batch][classes][inner], labels, weights?; reduction, whether labels of a value are ignored,
// and which; the result, also the logarithms and the softmax, if they are wanted, and the gradient
// of the loss, if it is given; whether scores are logarithms.
static bool read_loss(Loss *loss, Params *params, bool gradient) {
    const Tensor scores = next_tensor(params), labels = next_tensor(params);
    const Tensor weights = maybe_tensor(params);
    const int64_t reduction = next_int(params);
    const int64_t flags = next_int(params);
    loss->ignores = flags & 1;
    loss->allows = flags & 2;
    loss->ignored = next_int(params);
    Tensor results[4];
    for (int i = 0; i < 4; i++) results[i] = maybe_tensor(params);
    loss->logarithms = next_int(params) != 0;
    if (params->bad || scores.rank != 3 || reduction < NONE || reduction > MEAN) return false;
    loss->batch = scores.dims[0];
    loss->classes = scores.dims[1];
    loss->inner = scores.dims[2];
    loss->scores = (const float *)scores.data;
    for (int axis = 0; axis < 3; axis++)
        loss->strides[axis] = scores.strides[axis] / (int64_t)sizeof(float);
    loss->labels = labels;
    loss->weights = (const float *)weights.data;
    loss->reduction = (Reduction)reduction;
    loss->out = (float *)results[0].data;
    loss->log_prob = (float *)results[1].data;
    loss->softmax = (float *)results[2].data;
    loss->grad = (const float *)results[3].data;
    return operands_fit(loss, &scores, &labels, &weights, results, gradient);
}

static void *prepare(Params *params, Needs *needs, bool gradient) {
    Loss *loss = calloc(1, sizeof(Loss));
    if (!loss || !read_loss(loss, params, gradient)) {
        free(loss);
        return NULL;
    }
    const int64_t size = loss->classes * loss->inner;
    loss->unit = ceil_div(LOSS_WORK, size);
    needs->shared = 2 * loss->batch * loss->inner * (int64_t)sizeof(float);
    needs->own = 2 * (loss->classes + LANES) * (int64_t)sizeof(float);
    return loss;
}

static void *prepare_loss(Params *params, Needs *needs) { return prepare(params, needs, false); }

static void *prepare_gradient(Params *params, Needs *needs) { return prepare(params, needs, true); }

static bool is_ignored(const Loss *loss, int64_t label) {
    return loss->ignores && label == loss->ignored;
}

static bool is_outside(const Loss *loss, int64_t label) {
    return label < 0 || label >= loss->classes;
}

// Whether a label has no score.
static bool has_none(const Loss *loss, int64_t label) {
    return is_ignored(loss, label) || is_outside(loss, label);
}

// How much each label counts, and the sum of that; false if a label is none.  One that names no class
// has probability 0, where that is allowed, and counts.
static bool count_labels(const Loss *loss, float *counts, double *total) {
    *total = 0;
    for (int64_t place = 0; place < loss->batch * loss->inner; place++) {
        const int64_t label = index_at(&loss->labels, place);
        counts[place] = 0;
        if (is_ignored(loss, label)) continue;
        const bool outside = is_outside(loss, label);
        if (outside && !loss->allows) return false;
        counts[place] = loss->weights && !outside ? loss->weights[label] : 1.0f;
        *total += counts[place];
    }
    return true;
}

static Failure share_batch(const Run *run, Job *job, ChunkFn work) {
    share_chunks(run, ceil_div(job->loss->batch, job->loss->unit), work, job);
    return OK;
}

// -- the loss -------------------------------------------------------------------------------------

// That of a label, whose score less the logarithm of the sum of powers is `score`.
static void keep_loss(const Job *job, int64_t place, float score) {
    const float count = job->counts[place];
    if (count == 0)
        job->losses[place] = 0;
    else if (is_outside(job->loss, index_at(&job->loss->labels, place)))
        job->losses[place] = -logf(LEAST_PROBABILITY) * count;
    else
        job->losses[place] = -score * count;
}

// The score of a label's class, or any number.
static float score_of(const Loss *loss, int64_t place, const float *x) {
    const int64_t label = index_at(&loss->labels, place);
    return has_none(loss, label) ? 0 : x[label * loss->strides[1]];
}

// One label; its scores may be anywhere.
static void one_loss(const Job *job, int64_t place, float *powers, float *centred) {
    const Loss *loss = job->loss;
    const int64_t n = loss->classes, step = loss->inner;
    const int64_t image = place / step, column = place % step, first = image * n * step + column;
    const float *x = loss->scores + image * loss->strides[0] + column * loss->strides[2];
    const float wanted = score_of(loss, place, x);
    if (loss->strides[1] != 1) {
        for (int64_t i = 0; i < n; i++) centred[i] = x[i * loss->strides[1]];
        x = centred;
    }
    const float peak = largest(x, n);
    for (int64_t i = 0; i < n; i++) centred[i] = x[i] - peak;
    for (int64_t i = 0; i < n; i++) powers[i] = fast_exp(centred[i]);
    const float total = sum(powers, n), shift = logf(total);
    if (loss->softmax)
        for (int64_t i = 0; i < n; i++) loss->softmax[first + i * step] = powers[i] / total;
    if (loss->log_prob)
        for (int64_t i = 0; i < n; i++) loss->log_prob[first + i * step] = centred[i] - shift;
    keep_loss(job, place, wanted - peak - shift);
}

// The largest score of each of some labels whose scores are neighbours, and the sum of their powers.
static void sum_columns(
    const Loss *loss, const float *x, float *softmax, float *peak, float *total, int64_t count) {
    const int64_t row = loss->strides[1];
    for (int64_t j = 0; j < count; j++) peak[j] = x[j];
    for (int64_t i = 1; i < loss->classes; i++)
        for (int64_t j = 0; j < count; j++) {
            const float v = x[i * row + j];
            peak[j] = v > peak[j] || v != v ? v : peak[j];
        }
    for (int64_t j = 0; j < count; j++) total[j] = 0;
    for (int64_t i = 0; i < loss->classes; i++) {
        float powers[COLUMNS];
        for (int64_t j = 0; j < count; j++) powers[j] = fast_exp(x[i * row + j] - peak[j]);
        for (int64_t j = 0; j < count; j++) total[j] += powers[j];
        if (softmax) copy_floats(softmax + i * loss->inner, powers, count);
    }
}

// Labels of an image from `column` on, whose scores are neighbours.
static void some_columns(const Job *job, int64_t image, int64_t column, int64_t count) {
    const Loss *loss = job->loss;
    const int64_t n = loss->classes, step = loss->inner, first = image * n * step + column;
    const float *x = loss->scores + image * loss->strides[0] + column;
    float *softmax = loss->softmax ? loss->softmax + first : NULL;
    float peak[COLUMNS], total[COLUMNS], shift[COLUMNS];
    sum_columns(loss, x, softmax, peak, total, count);
    for (int64_t i = 0; softmax && i < n; i++)
        for (int64_t j = 0; j < count; j++) softmax[i * step + j] /= total[j];
    for (int64_t j = 0; j < count; j++) shift[j] = logf(total[j]);
    for (int64_t i = 0; loss->log_prob && i < n; i++)
        for (int64_t j = 0; j < count; j++)
            loss->log_prob[first + i * step + j] = x[i * loss->strides[1] + j] - peak[j] - shift[j];
    for (int64_t j = 0; j < count; j++) {
        const int64_t place = image * step + column + j;
        keep_loss(job, place, score_of(loss, place, x + j) - peak[j] - shift[j]);
    }
}

static void some_losses(void *context, int64_t chunk, int thread) {
    const Job *job = context;
    const Loss *loss = job->loss;
    float *own = (float *)job->run->own[thread];
    int64_t end = (chunk + 1) * loss->unit;
    if (end > loss->batch) end = loss->batch;
    const bool neighbours = loss->inner > 1 && loss->strides[2] == 1;
    for (int64_t image = chunk * loss->unit; neighbours && image < end; image++)
        for (int64_t column = 0; column < loss->inner; column += COLUMNS)
            some_columns(job, image, column, lesser(loss->inner - column, COLUMNS));
    for (int64_t place = chunk * loss->unit * loss->inner; place < end * loss->inner; place++)
        if (!neighbours) one_loss(job, place, own, own + loss->classes + LANES);
}

// Logarithms of probabilities, negated, or of probabilities that are not tiny: the scores of labels.
static void some_picked(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Job *job = context;
    const Loss *loss = job->loss;
    int64_t end = (chunk + 1) * loss->unit;
    if (end > loss->batch) end = loss->batch;
    for (int64_t place = chunk * loss->unit * loss->inner; place < end * loss->inner; place++) {
        const float count = job->counts[place];
        const int64_t image = place / loss->inner, column = place % loss->inner;
        const int64_t label = index_at(&loss->labels, place);
        job->losses[place] = 0;
        if (count == 0) continue;
        if (is_outside(loss, label)) {
            if (!loss->logarithms) job->losses[place] = count * -logf(LEAST_PROBABILITY);
            continue;
        }
        const float score =
            loss->scores
                [image * loss->strides[0] + label * loss->strides[1] + column * loss->strides[2]];
        const float above = score < LEAST_PROBABILITY ? LEAST_PROBABILITY : score;
        job->losses[place] = count * -(loss->logarithms ? score : logf(above));
    }
}

static Failure reduce_losses(const Loss *loss, const Run *run, ChunkFn work) {
    const int64_t labels = loss->batch * loss->inner;
    float *counts = (float *)run->shared;
    double total;
    if (!count_labels(loss, counts, &total)) return INDEX_OUTSIDE;
    Job job = {loss, run, counts + labels, counts};
    if (loss->reduction == NONE) job.losses = loss->out;
    share_batch(run, &job, work);
    if (loss->reduction == NONE) return OK;
    double sum = 0;
    for (int64_t place = 0; place < labels; place++) sum += job.losses[place];
    *loss->out = (float)(loss->reduction == MEAN ? sum / total : sum);
    return OK;
}

static Failure run_loss(const void *state, const Run *run) {
    return reduce_losses(state, run, some_losses);
}

static Failure run_picked(const void *state, const Run *run) {
    return reduce_losses(state, run, some_picked);
}

// -- the gradient ---------------------------------------------------------------------------------

static void one_gradient(const Job *job, int64_t image) {
    const Loss *loss = job->loss;
    const int64_t inner = loss->inner, size = loss->classes * inner;
    const float *given = loss->scores + image * size, *shares = job->losses + image * inner;
    float *out = loss->out + image * size;
    if (loss->logarithms) {
        for (int64_t i = 0; i < size; i++) out[i] = fast_exp(given[i]);
        given = out;
    }
    if (inner == 1) {
        const float share = shares[0];
        for (int64_t i = 0; i < size; i++) out[i] = given[i] * share;
    } else {
        for (int64_t i = 0; i < loss->classes; i++)
            for (int64_t j = 0; j < inner; j++)
                out[i * inner + j] = given[i * inner + j] * shares[j];
    }
    for (int64_t j = 0; j < inner; j++) {
        const int64_t label = index_at(&loss->labels, image * inner + j);
        if (!has_none(loss, label)) out[label * inner + j] -= shares[j];
    }
}

static void some_gradients(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Job *job = context;
    int64_t end = (chunk + 1) * job->loss->unit;
    if (end > job->loss->batch) end = job->loss->batch;
    for (int64_t image = chunk * job->loss->unit; image < end; image++) one_gradient(job, image);
}

// That of scores of labels: of the others it is 0.
static void some_picked_gradients(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Job *job = context;
    const Loss *loss = job->loss;
    const int64_t inner = loss->inner, size = loss->classes * inner;
    int64_t end = (chunk + 1) * loss->unit;
    if (end > loss->batch) end = loss->batch;
    for (int64_t image = chunk * loss->unit; image < end; image++) {
        float *out = loss->out + image * size;
        memset(out, 0, (size_t)size * sizeof(float));
        for (int64_t j = 0; j < inner; j++) {
            const int64_t label = index_at(&loss->labels, image * inner + j);
            if (has_none(loss, label)) continue;
            const float share = job->losses[image * inner + j];
            const int64_t place = label * inner + j;
            if (loss->logarithms) {
                out[place] = 0 - share;
                continue;
            }
            const float score = loss->scores[image * size + place];
            out[place] = 0 - share / (score < LEAST_DIVISOR ? LEAST_DIVISOR : score);
        }
    }
}

static Failure spread_gradient(const Loss *loss, const Run *run, ChunkFn work) {
    const int64_t labels = loss->batch * loss->inner;
    float *counts = (float *)run->shared, *shares = counts + labels;
    double total;
    if (!count_labels(loss, counts, &total)) return INDEX_OUTSIDE;
    // If nothing counts, nothing gets a share.
    const float divisor = loss->reduction == MEAN && total != 0 ? (float)total : 1.0f;
    for (int64_t place = 0; place < labels; place++)
        shares[place] = loss->grad[loss->reduction == NONE ? place : 0] / divisor * counts[place];
    Job job = {loss, run, shares, counts};
    return share_batch(run, &job, work);
}

static Failure run_gradient(const void *state, const Run *run) {
    return spread_gradient(state, run, some_gradients);
}

static Failure run_picked_gradient(const void *state, const Run *run) {
    return spread_gradient(state, run, some_picked_gradients);
}

const Kernel ISA(LOSSES)[] = {
    {"CrossEntropy_f32", prepare_loss, run_loss, NULL},
    {"PickedLoss_f32", prepare_loss, run_picked, NULL},
    {"CrossEntropyGrad_f32", prepare_gradient, run_gradient, NULL},
    {"PickedLossGrad_f32", prepare_gradient, run_picked_gradient, NULL},
    {NULL, NULL, NULL, NULL},
};
