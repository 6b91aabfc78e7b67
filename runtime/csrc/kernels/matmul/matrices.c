// Determinants and inverses of square matrices, by factors with the largest pivots, in double
// precision.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../../kernel.h"
#include "../support/simd.h"

typedef struct {
    const float *x;
    float *y;
    int64_t count, n;
} Matrices;

static void *prepare(Params *params, Needs *needs, bool inverses) {
    Matrices *state = calloc(1, sizeof(Matrices));
    if (!state) return NULL;
    const Tensor x = next_tensor(params), y = next_tensor(params);
    state->x = (const float *)x.data;
    state->y = (float *)y.data;
    state->n = x.rank < 2 ? 0 : x.dims[x.rank - 1];
    const bool fits = !params->bad && state->n > 0 && x.dims[x.rank - 2] == state->n &&
                      is_contiguous(&x) && is_contiguous(&y) && x.dtype == F32 && y.dtype == F32;
    state->count = fits ? element_count(&x) / (state->n * state->n) : 0;
    if (!fits || element_count(&y) != state->count * (inverses ? state->n * state->n : 1)) {
        free(state);
        return NULL;
    }
    needs->own = 2 * state->n * state->n * (int64_t)sizeof(double);
    return state;
}

static void *prepare_determinants(Params *params, Needs *needs) {
    return prepare(params, needs, false);
}

static void *prepare_inverses(Params *params, Needs *needs) { return prepare(params, needs, true); }

static void exchange(double *a, double *b, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        const double value = a[i];
        a[i] = b[i];
        b[i] = value;
    }
}

// What is not a number is the largest, so that it is not lost.
static int64_t pivot_of(const double *a, int64_t n, int64_t column) {
    int64_t best = column;
    for (int64_t i = column; i < n; i++) {
        const double value = fabs(a[i * n + column]);
        if (value > fabs(a[best * n + column]) || value != value) best = i;
    }
    return best;
}

enum { MANY = 64 };  // columns, after which somebody may want to stop

// Clears what is below the diagonal, or all beside it, and does the same to the rows of `b`, which
// may be NULL; false if the matrix is singular.  The determinant alone does not tell: the product of
// many small pivots is zero, too.
static bool eliminate(double *a, double *b, int64_t n, double *determinant) {
    *determinant = 1;
    for (int64_t column = 0; column < n; column++) {
        if (column % MANY == MANY - 1 && pool_is_stopped()) return false;
        const int64_t pivot = pivot_of(a, n, column);
        if (pivot != column) {
            exchange(a + pivot * n, a + column * n, n);
            if (b) exchange(b + pivot * n, b + column * n, n);
            *determinant = -*determinant;
        }
        const double divisor = a[column * n + column];
        *determinant *= divisor;
        if (divisor == 0) return false;
        for (int64_t i = b ? 0 : column + 1; i < n; i++) {
            if (i == column) continue;
            const double factor = a[i * n + column] / divisor;
            for (int64_t j = column; j < n; j++) a[i * n + j] -= factor * a[column * n + j];
            for (int64_t j = 0; b && j < n; j++) b[i * n + j] -= factor * b[column * n + j];
        }
    }
    return true;
}

typedef struct {
    const Matrices *state;
    const Run *run;
} Job;

static double *copy_of(const Job *job, int64_t number, int thread) {
    const int64_t size = job->state->n * job->state->n;
    double *a = (double *)job->run->own[thread];
    for (int64_t i = 0; i < size; i++) a[i] = job->state->x[number * size + i];
    return a;
}

static void find_determinant(void *context, int64_t number, int thread) {
    const Job *job = context;
    double *a = copy_of(job, number, thread), determinant;
    const bool regular = eliminate(a, NULL, job->state->n, &determinant);
    job->state->y[number] = regular ? (float)determinant : 0;
}

// All elements of the inverse of a singular matrix are undefined.
static void find_inverse(void *context, int64_t number, int thread) {
    const Job *job = context;
    const int64_t n = job->state->n, size = n * n;
    double *a = copy_of(job, number, thread), *b = a + size;
    float *y = job->state->y + number * size;
    for (int64_t i = 0; i < size; i++) b[i] = i % (n + 1) == 0;
    double determinant;
    const bool regular = eliminate(a, b, n, &determinant);
    for (int64_t i = 0; i < size; i++) y[i] = regular ? (float)(b[i] / a[i / n * (n + 1)]) : NAN;
}

static Failure run_determinants(const void *state, const Run *run) {
    Job job = {state, run};
    share_chunks(run, job.state->count, find_determinant, &job);
    return OK;
}

static Failure run_inverses(const void *state, const Run *run) {
    Job job = {state, run};
    share_chunks(run, job.state->count, find_inverse, &job);
    return OK;
}

const Kernel ISA(MATRICES)[] = {
    {"Determinant_f32", prepare_determinants, run_determinants, NULL},
    {"Inverse_f32", prepare_inverses, run_inverses, NULL},
    {NULL, NULL, NULL, NULL},
};
