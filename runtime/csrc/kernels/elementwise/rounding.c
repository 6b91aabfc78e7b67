// Rounding floats to numbers of float16 or bfloat16, in place, other than to nearest: see
// popc_runtime/kernels/rounding.py, which does the same.
#include <stdlib.h>

#include "../../kernel.h"
#include "../support/bits.h"
#include "../support/simd.h"
#include "../support/sizes.h"

// As numpy's interface for random numbers has it.
typedef struct {
    void *state;
    uint64_t (*next_uint64)(void *state);
} Generator;

typedef enum { TO_INFINITY, TO_NAN, TO_LARGEST } Overflow;

// A format, by the bit patterns that float32 has for its numbers.
typedef struct {
    uint32_t cut;  // the last bits of a normal number, which it does not have
    uint32_t largest, overflow;  // the largest number, and the least that rounds to infinity
    uint32_t least_normal;  // 0: that of float32
} Narrow;

typedef struct {
    // The last of four words that are current when the kernel runs: see random.c.
    const uint64_t *source;  // NULL: to nearest
    float *values;
    int64_t count;
    Narrow narrow;
    Overflow overflow;
} Rounding;

enum { ROUNDED_BLOCK = 1 << 10 };  // elements whose random numbers stay in the first cache

static void *prepare(Params *params, Needs *needs) {
    (void)needs;
    static const Narrow half = {0x1fff, 0x477fe000, 0x477ff000, 0x38800000};
    static const Narrow brain = {0xffff, 0x7f7f0000, 0x7f7f8000, 0};
    Rounding *rounding = calloc(1, sizeof(Rounding));
    if (!rounding) return NULL;
    rounding->source = (const uint64_t *)(intptr_t)next_int(params);
    const Tensor values = next_tensor(params);
    rounding->values = (float *)values.data;
    rounding->count = element_count(&values);
    rounding->narrow = next_int(params) ? brain : half;
    rounding->overflow = (Overflow)next_int(params);
    if (!params->bad && is_contiguous(&values) && values.dtype == F32) return rounding;
    free(rounding);
    return NULL;
}

// Adds random bits below the last one that stays, and cuts there.  Numbers below the least normal
// one are spaced as in the binade above, where they are rounded.
static uint32_t at_random(const Narrow *narrow, uint32_t given, uint32_t drawn) {
    uint32_t size = given & 0x7fffffff;
    if (size > narrow->largest) return given;
    const float base = as_float((int32_t)(size < narrow->least_normal ? narrow->least_normal : 0));
    size = (uint32_t)as_bits(as_float((int32_t)size) + base);
    size = (size + (drawn & narrow->cut)) & ~narrow->cut;
    size = (uint32_t)as_bits(as_float((int32_t)size) - base);
    return size | (given & 0x80000000);
}

static uint32_t within_format(const Rounding *rounding, uint32_t given) {
    const Narrow *narrow = &rounding->narrow;
    const uint32_t size = given & 0x7fffffff;
    if (size < narrow->overflow || size >= 0x7f800000) return given;
    return rounding->overflow == TO_NAN ? 0x7fc00000 : (given & 0x80000000) | narrow->largest;
}

static Failure run_rounding(const void *state, const Run *run) {
    (void)run;
    const Rounding *rounding = state;
    const Generator *generator = rounding->source ? (const Generator *)(intptr_t)rounding->source[3]
                                                  : NULL;
    for (int64_t begin = 0; begin < rounding->count; begin += ROUNDED_BLOCK) {
        const int64_t count = lesser(rounding->count - begin, ROUNDED_BLOCK);
        uint16_t drawn[ROUNDED_BLOCK];
        for (int64_t i = 0; generator && i < count; i += 4) {
            const uint64_t four = generator->next_uint64(generator->state);
            memcpy(drawn + i, &four, sizeof(four));
        }
        float *values = rounding->values + begin;
        for (int64_t i = 0; i < count; i++) {
            uint32_t bits = (uint32_t)as_bits(values[i]);
            if (generator) bits = at_random(&rounding->narrow, bits, drawn[i]);
            if (rounding->overflow != TO_INFINITY) bits = within_format(rounding, bits);
            values[i] = as_float((int32_t)bits);
        }
    }
    return OK;
}

const Kernel ISA(ROUNDINGS)[] = {
    {"Round_narrow", prepare, run_rounding, NULL},
    {NULL, NULL, NULL, NULL},
};
