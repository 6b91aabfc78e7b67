// What is done with sums of convolutions while they are in registers.
#ifndef POPC_LIMITS_H
#define POPC_LIMITS_H

#include <math.h>

#include "../matmul/gemm.h"

typedef struct {
    bool swishes;  // HardSwish, and no limits
    float low, high;  // values below `low` become `low`, those above `high` become `high`
    MapLoop activation;  // any other one, or NULL: for whoever has stored them
    bool swish;  // this is Swish
} Limits;

static inline Limits limits_of(const Epilogue *epilogue) {
    Limits limits = {false, epilogue->relu ? 0 : -INFINITY, INFINITY, epilogue->activation, false};
    if (epilogue->activation == ISA(clip_loop)()) {
        limits.low = (float)epilogue->parameters[0];
        limits.high = (float)epilogue->parameters[1];
        limits.activation = NULL;
    }
    if (epilogue->activation == ISA(hard_swish_loop)()) {
        limits.swishes = true;
        limits.activation = NULL;
    }
    limits.swish = limits.activation && limits.activation == ISA(swish_loop)();
    return limits;
}

static inline Floats within(Floats value, Floats low, Floats high) {
    return all_at_most(high, all_at_least(low, value));
}

static inline Floats hard_swish_of(Floats value) {
    return value * all_at_most(all_of(1), relu_of(value * 0.16666666666666666f + 0.5f));
}

static inline Floats limited(Floats value, const Limits *limits) {
    if (limits->swishes) return hard_swish_of(value);
    return within(value, all_of(limits->low), all_of(limits->high));
}

// Applies any other activation to `count` results.
static inline void activate(const Epilogue *epilogue, float *y, int64_t count) {
    static const int64_t steps[] = {sizeof(float), sizeof(float)};
    char *in[] = {(char *)y};
    epilogue->activation((char *)y, in, steps, count, epilogue->parameters);
}

#endif
