// Gradients of normalisation of groups of channels, image by image: [images][channels][pixels].
#include <math.h>
#include <stdlib.h>

#include "../../kernel.h"
#include "../support/simd.h"

typedef struct {
    int64_t images, channels, pixels, groups;
    double epsilon;
    const float *dy, *x, *scale;
    float *dx, *scale_sums, *bias_sums;  // what is not wanted is NULL
} Groups;

typedef struct {
    const Groups *groups;
    float *products, *plain;  // of each image and channel: sums of dy * normalised x, and of dy
} Job;

static void *prepare(Params *params, Needs *needs) {
    Groups *groups = calloc(1, sizeof(Groups));
    if (!groups) return NULL;
    groups->images = next_int(params);
    groups->channels = next_int(params);
    groups->pixels = next_int(params);
    groups->groups = next_int(params);
    groups->epsilon = next_float(params);
    const float **given[] = {&groups->dy, &groups->x, &groups->scale};
    float **wanted[] = {&groups->dx, &groups->scale_sums, &groups->bias_sums};
    Tensor tensors[6];
    for (int i = 0; i < 6; i++) tensors[i] = maybe_tensor(params);
    for (int i = 0; i < 3; i++) *given[i] = (const float *)tensors[i].data;
    for (int i = 0; i < 3; i++) *wanted[i] = (float *)tensors[3 + i].data;
    const int64_t size = size_of(groups->images, groups->channels, groups->pixels);
    bool fits = !params->bad && size > 0 && groups->groups > 0 &&
                groups->channels % groups->groups == 0;
    for (int i = 0; i < 3; i++)
        fits = fits && holds(&tensors[i], F32, i < 2 ? size : groups->channels);
    for (int i = 3; i < 6; i++)
        fits = fits && may_hold(&tensors[i], F32, i == 3 ? size : groups->channels);
    if (!fits) {
        free(groups);
        return NULL;
    }
    needs->shared = 2 * groups->images * groups->channels * (int64_t)sizeof(float);
    return groups;
}

typedef enum { PLAIN, SQUARES, PRODUCTS } Kind;

// The sum of x - shift, of its squares, or of its products with y.
INLINE double sum_run(const float *x, const float *y, int64_t count, float shift, const Kind kind) {
    Floats sums[2] = {{0}, {0}};
    float rest = 0;
    int64_t i = 0;
    for (; i + 2 * LANES <= count; i += 2 * LANES)
        for (int k = 0; k < 2; k++) {
            const Floats v = load(x + i + k * LANES) - shift;
            sums[k] += kind == PLAIN ? v : kind == SQUARES ? v * v : v * load(y + i + k * LANES);
        }
    for (; i < count; i++) {
        const float v = x[i] - shift;
        rest += kind == PLAIN ? v : kind == SQUARES ? v * v : v * y[i];
    }
    return (double)(sum_of(sums[0] + sums[1]) + rest);
}

static void group_gradient(void *context, int64_t chunk, int thread) {
    (void)thread;
    const Job *job = context;
    const Groups *groups = job->groups;
    const int64_t width = groups->channels / groups->groups, n = groups->pixels;
    const int64_t first = chunk * width;  // number of its first channel, of those of all images
    const float *scale = groups->scale + chunk % groups->groups * width;
    const float *x = groups->x + first * n, *dy = groups->dy + first * n;
    const double count = (double)(width * n);
    double total = 0, squares = 0, slope = 0, offset = 0;
    for (int64_t c = 0; c < width; c++) total += sum_run(x + c * n, NULL, n, 0, PLAIN);
    const float mean = (float)(total / count);
    for (int64_t c = 0; c < width; c++) squares += sum_run(x + c * n, NULL, n, mean, SQUARES);
    const float inverse = 1.0f / sqrtf((float)(squares / count + groups->epsilon));
    for (int64_t c = 0; c < width; c++) {
        const double product = sum_run(x + c * n, dy + c * n, n, mean, PRODUCTS) * inverse;
        const double plain = sum_run(dy + c * n, NULL, n, 0, PLAIN);
        job->products[first + c] = (float)product;
        job->plain[first + c] = (float)plain;
        slope += product * scale[c];
        offset += plain * scale[c];
    }
    if (!groups->dx) return;
    const float by_x = (float)(-slope / count * inverse * inverse);
    const float added = (float)(-offset / count * inverse);
    for (int64_t c = 0; c < width; c++) {
        const float *from = x + c * n, *gradient = dy + c * n, factor = scale[c] * inverse;
        float *to = groups->dx + (first + c) * n;
        INDEPENDENT_FOR (int64_t i = 0; i < n; i++)
            to[i] = gradient[i] * factor + ((from[i] - mean) * by_x + added);
    }
}

// Over the images.
static void add_images(const Groups *groups, const float *parts, float *sums) {
    for (int64_t c = 0; sums && c < groups->channels; c++) {
        double total = 0;
        for (int64_t image = 0; image < groups->images; image++)
            total += parts[image * groups->channels + c];
        sums[c] = (float)total;
    }
}

static Failure run_groups(const void *state, const Run *run) {
    const Groups *groups = state;
    float *shared = (float *)run->shared;
    Job job = {groups, shared, shared + groups->images * groups->channels};
    share_chunks(run, groups->images * groups->groups, group_gradient, &job);
    add_images(groups, job.products, groups->scale_sums);
    add_images(groups, job.plain, groups->bias_sums);
    return OK;
}

const Kernel ISA(GROUP_GRADIENTS)[] = {
    {"GroupNormGrad_f32", prepare, run_groups, NULL},
    {NULL, NULL, NULL, NULL},
};
