// Gradients of activations: the gradient g of the result times the slope, which follows from v, the
// argument or the result.  A slope of 0 that a comparison chooses gives 0, whatever g is.
#include "maps.h"
#include "../support/math.h"

// The slope at an element, times the gradient there: see `UnaryStep` in loops.h.
typedef float (*Slope)(float g, float v, float p0, float p1, float p2);

INLINE void slope_steps(
    char *out, char *const *in, int64_t so, int64_t sg, int64_t sv, int64_t n,
    const double *parameters, const Slope slope) {
    const float p0 = (float)parameters[0], p1 = (float)parameters[1], p2 = (float)parameters[2];
    const char *left = in[0], *right = in[1];
    INDEPENDENT_FOR (int64_t i = 0; i < n; i++) {
        const float g = *(const float *)(left + i * sg);
        const float v = *(const float *)(right + i * sv);
        *(float *)(out + i * so) = slope(g, v, p0, p1, p2);
    }
}

INLINE void slope_loop(
    char *out, char *const *in, const int64_t *steps, int64_t n, const double *p,
    const Slope slope) {
    const int64_t size = sizeof(float);
    if (steps[0] == size && steps[1] == size && steps[2] == size)
        slope_steps(out, in, size, size, size, n, p, slope);
    else
        slope_steps(out, in, steps[0], steps[1], steps[2], n, p, slope);
}

// Bounds on both sides of 0; NaN stays.
static inline float limited(float x, float low, float high) {
    const float inside = at_most(high, at_least(low, x));
    return x != x ? x : inside;
}

// s + s (1 - s) u where s = 1 / (1 + e): the slope of x s, without cancellation.
static inline float gate_slope(float e, float u) {
    const float s = 1.0f / (e + 1.0f);
    return (e * s * u + 1.0f) * s;
}

static inline float cubic_gelu_slope(float x) {
    const float linear = 1.5957691216057308f, cubic = 0.07135481282972f;
    const float near = limited(x, -9.5f, 9.5f), square = near * near;
    return gate_slope(
        fast_exp((-cubic * square - linear) * near), (3.0f * cubic * square + linear) * near);
}

static inline float gelu_slope(float x) {
    return fast_normal(x) + exp_below(-0.5f * x * x) * x * 0.3989422804014327f;
}

static inline float mish_slope(float x) {
    const float near = limited(x, -100.0f, 20.0f), e = fast_exp(near);
    const float n = e * (e + 2.0f), share = 1.0f / (n + 2.0f);
    return share * __builtin_fmaf(near * e * (e + 1.0f) * share, 4.0f, n);
}

static inline float swish_slope(float x, float alpha) {
    const float u = limited(alpha * x, -80.0f, 80.0f);
    return gate_slope(fast_exp(-u), u);
}

static inline float hard_swish_slope(float x) {
    const float slope = x < 3.0f ? (x + 1.5f) * (1.0f / 3.0f) : 1.0f;
    return x > -3.0f ? slope : 0.0f;
}

// Elu and its kin: below 0 the slope is `factor` times the result plus `at_zero`.
static inline float exponential_slope(float y, float factor, float at_zero, float above) {
    const float low = y > 0 ? 0 : y, slope = low * factor + at_zero;
    return ((y <= 0) | (above == at_zero)) ? slope : above;
}

// Bounds that are NaN are none.
#define INSIDE(x, low, high) \
    (((low) != (low)) | ((x) > (low))) & (((high) != (high)) | ((x) < (high)))

// Name, cost, expression.
// clang-format off
#define SLOPES(_)                                                                       \
    _(ClipGrad, 2, INSIDE(v, p0, p1) ? g : 0)                                           \
    _(EluGrad, 3, g * exponential_slope(v, p0, p1, p2))                                 \
    _(ErfGrad, 10, g * (exp_below(-(v * v)) * 1.1283791670955126f))                     \
    _(FakeQuantizeGrad, 4, ({                                                           \
          const float level = __builtin_rintf(v / p0);                                  \
          INSIDE(level, p1, p2) ? g : 0;                                                \
      }))                                                                               \
    _(GeluGrad, 28, g * gelu_slope(v))                                                  \
    _(GeluTanhGrad, 18, g * cubic_gelu_slope(v))                                        \
    _(HardSigmoidGrad, 2, ((v > 0) & (v < 1)) ? g * p0 : 0)                             \
    _(HardSwishGrad, 3, g * hard_swish_slope(v))                                        \
    _(LeakyReluGrad, 2, v <= 0 ? g * p0 : g)                                            \
    _(MishGrad, 20, g * mish_slope(v))                                                  \
    _(ReluGrad, 1, v > 0 ? g : 0)                                                       \
    _(ShrinkGrad, 1, __builtin_fabsf(v) > p0 ? g : 0)                                   \
    _(SigmoidGrad, 2, g * ((1.0f - v) * v))                                             \
    _(SoftplusGrad, 12, g / (fast_exp(-v) + 1.0f))                                      \
    _(SoftsignGrad, 4, g / ((__builtin_fabsf(v) + 1.0f) * (__builtin_fabsf(v) + 1.0f))) \
    _(SwishGrad, 14, g * swish_slope(v, p0))                                            \
    _(TanhGrad, 2, g * (1.0f - v * v))                                                  \
    _(ThresholdedReluGrad, 1, v > p0 ? g : 0)
// clang-format on

#define MAKE(NAME, COST, EXPRESSION)                                                    \
    INLINE float NAME##_at(float g, float v, float p0, float p1, float p2) {            \
        (void)p0, (void)p1, (void)p2;                                                   \
        return EXPRESSION;                                                              \
    }                                                                                   \
    static void NAME(                                                                   \
        char *out, char *const *in, const int64_t *steps, int64_t n, const double *p) { \
        slope_loop(out, in, steps, n, p, NAME##_at);                                    \
    }                                                                                   \
    static void *prepare_##NAME(Params *params, Needs *needs) {                         \
        static const Map map = {NAME, 2, COST, F32, F32};                               \
        return ISA(map_prepare)(params, needs, &map);                                   \
    }

SLOPES(MAKE)

#define ENTRY(NAME, COST, EXPRESSION) {#NAME "_f32", prepare_##NAME, ISA(map_run), NULL},

const Kernel ISA(SLOPES_OF_MAPS)[] = {
    SLOPES(ENTRY){NULL, NULL, NULL, NULL},
};
